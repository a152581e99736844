//! A gateway's links to hosts, and how it learns of hosts there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_grammar::{AttachKey, HandoffKey, TechnologyKey};
use segue_mih::{Interest, MihfConfig};
use segue_pmip::Access;
use segue_wire::mih::codes::EventList;
use segue_wire::mih::identity::LinkAddress;
use serde::Deserialize;

use super::super::groups::InterfaceName;
use super::super::mih::{self, MihKeys};
use super::transport::{same_family, unicast};

/// The keys of an `[[access]]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct AccessKeys {
    /// Its interface
    interface: InterfaceName,
    /// This machine's address at which hosts there are registered; unique among the accesses, and of the anchor's family
    #[schemars(extend("x-rfc" = "Proxy-CoA"))]
    proxy_coa: IpAddr,
    /// Access technology
    #[serde(default)]
    #[schemars(extend("x-rfc" = "Access Technology Type"))]
    technology: TechnologyKey,
    /// [Source of attachments](pmip.md#how-a-host-is-noticed)
    #[serde(default)]
    attach: AttachKey,
    /// With `attach = "mih"`: the address by which functions identify its link, such as `"02:00:00:00:00:02"`
    #[schemars(extend("x-unset" = "the interface's own address"))]
    link: Option<String>,
    /// How a host that attaches [arrived there](pmip.md#handover)
    #[serde(default)]
    #[schemars(extend("x-rfc" = "Handoff Indicator"))]
    handoff: HandoffKey,
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
    for AccessKeys {
        interface: InterfaceName(interface),
        proxy_coa,
        technology,
        attach,
        handoff,
        link: _,
    } in keys
    {
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
            technology: technology.code(),
            proxy_coa,
            handoff: handoff.code(),
            by: attach.by(),
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
    for AccessKeys { interface: InterfaceName(interface), attach, link, .. } in keys {
        let by_mih = *attach == AttachKey::Mih;
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
