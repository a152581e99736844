//! A gateway's links to hosts, and who tells of hosts there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, bail};
use segue_grammar::{HandoffKey, TechnologyKey};
use segue_mih::{Interest, MihfConfig};
use segue_pmip::{Access, AttachBy};
use segue_wire::mih::codes::EventList;
use segue_wire::mih::identity::LinkAddress;
use serde::Deserialize;

use super::super::mih::{self, MihKeys};
use super::transport::{same_family, unicast};

/// The keys of an `[[access]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessKeys {
    /// Its interface.
    pub interface: String,
    /// Address that hosts there are registered at (Proxy-CoA), one of this machine's; unlike any other access's.
    pub proxy_coa: IpAddr,
    /// Its kind: `ethernet`, `wlan`, `wimax`, `geran`, `utran`, `e-utran`, `ppp` or `virtual`; `ethernet`.
    pub technology: Option<TechnologyKey>,
    /// Who says that a host is there: `link`, whatever it sends over the link, or `solicitation`, the host when it asks for
    /// routers, or `mih`, a function of IEEE 802.21 (`[mih]`); `link`.
    pub attach: Option<AttachKey>,
    /// With `attach = "mih"`: what its link is called there; the interface's own address.
    pub link: Option<String>,
    /// How a host that attaches came there: `new-interface`, `between-interfaces`, `between-gateways`, `unknown` or
    /// `sharing`; `new-interface`.
    pub handoff: Option<HandoffKey>,
}

/// Who says that a host is at an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachKey {
    /// What it sends over the link; it has left when the link goes down.
    Link,
    /// The host, by router solicitations; it has left when the link goes down.
    Solicitation,
    /// A function of IEEE 802.21, by Link_Up and Link_Down.
    Mih,
}

/// Refuses an access that also leads to the anchor: a host there could speak in the anchor's name.
pub(super) fn apart(accesses: &[Access], uplinks: &[String]) -> anyhow::Result<()> {
    match accesses.iter().find(|access| uplinks.contains(&access.interface)) {
        Some(Access { interface, .. }) => bail!(
            "interfaces: {interface} is an access too, where a host could speak in the anchor's name: give hosts an \
             interface of their own"
        ),
        None => Ok(()),
    }
}

pub(super) fn accesses(keys: Vec<AccessKeys>, anchor: IpAddr) -> anyhow::Result<Vec<Access>> {
    let mut all: Vec<Access> = Vec::new();
    for AccessKeys { interface, proxy_coa, technology, attach, handoff, link: _ } in keys {
        super::super::interface(&interface).context("access: interface")?;
        unicast("proxy_coa", proxy_coa)?;
        same_family("proxy_coa", proxy_coa, anchor)?;
        if let Some(other) = all.iter().find(|other| other.interface == interface) {
            bail!("access: {} is there twice", other.interface);
        }
        if let Some(other) = all.iter().find(|other| other.proxy_coa == proxy_coa) {
            bail!("access: {interface} and {} have the same proxy_coa", other.interface);
        }
        all.push(Access {
            interface,
            technology: technology.unwrap_or(TechnologyKey::Ethernet).code(),
            proxy_coa,
            handoff: handoff.unwrap_or(HandoffKey::NewInterface).code(),
            by: match attach.unwrap_or(AttachKey::Link) {
                AttachKey::Link | AttachKey::Mih => AttachBy::Driver,
                AttachKey::Solicitation => AttachBy::Solicitation,
            },
        });
    }
    if all.is_empty() {
        bail!("access is missing: an [[access]] for each link to hosts");
    }
    Ok(all)
}

/// Accesses whose hosts a function of IEEE 802.21 tells of, and what their links are called.
pub(super) fn mih_links(
    keys: &[AccessKeys],
) -> anyhow::Result<BTreeMap<String, Option<LinkAddress>>> {
    let mut all = BTreeMap::new();
    for AccessKeys { interface, attach, link, .. } in keys {
        let by_mih = *attach == Some(AttachKey::Mih);
        let link = mih::link_address("link", link.clone());
        let link = link.with_context(|| format!("access {interface}"))?;
        if by_mih {
            all.insert(interface.clone(), link);
        } else if link.is_some() {
            bail!("access {interface}: link goes with attach = \"mih\"");
        }
    }
    Ok(all)
}

/// How a gateway hears of these accesses' hosts. Of a link whose address is not known yet it hears as of all.
pub(super) fn told_of(
    keys: Option<MihKeys>,
    instance: Option<&str>,
    links: &BTreeMap<String, Option<LinkAddress>>,
) -> anyhow::Result<Option<MihfConfig>> {
    if links.is_empty() {
        if keys.is_some() {
            bail!("\"mih\" tells of hosts at accesses with attach = \"mih\", and there is none");
        }
        return Ok(None);
    }
    let events = EventList::LINK_UP | EventList::LINK_DOWN;
    let interest = |link: &Option<LinkAddress>| Interest { link: link.clone(), events };
    let interests = links.values().map(interest).collect();
    keys.unwrap_or_default().listens(("pmip-mag", instance), interests).map(Some)
}
