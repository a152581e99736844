//! A gateway's links to hosts, and how it learns of hosts there.

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
    /// Address at which hosts there are registered (Proxy-CoA), one of this machine's; unique per access.
    pub proxy_coa: IpAddr,
    /// Its kind: `ethernet`, `wlan`, `wimax`, `geran`, `utran`, `e-utran`, `ppp` or `virtual`; `ethernet`.
    pub technology: Option<TechnologyKey>,
    /// How a host is detected: `link`, by any packet on the link; `solicitation`, by its router solicitations; or
    /// `mih`, by an IEEE 802.21 function (`[mih]`). `link`.
    pub attach: Option<AttachKey>,
    /// With `attach = "mih"`: the address of its link there; the interface's own address.
    pub link: Option<String>,
    /// How an attaching host is assumed to have arrived (Handoff Indicator): `new-interface`, `between-interfaces`,
    /// `between-gateways`, `unknown` or `sharing`; `new-interface`.
    pub handoff: Option<HandoffKey>,
}

/// How a host at an access is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachKey {
    /// By any packet on the link; the host leaves when the link goes down.
    Link,
    /// By its router solicitations; the host leaves when the link goes down.
    Solicitation,
    /// By Link_Up and Link_Down of an IEEE 802.21 function.
    Mih,
}

/// Refuses an access that also leads to the anchor: a host there could impersonate the anchor.
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

/// Accesses whose hosts an IEEE 802.21 function reports, and the configured addresses of their links.
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

/// The gateway's subscription to these accesses' links. A link without a known address subscribes to all links.
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
