//! A gateway's routes to its anchors, which must not lead over an access: hosts there could impersonate an anchor, and
//! would see other hosts' packets on their link.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::bail;
use segue_linux::link;
use segue_linux::route::way_from;
use segue_pmip::{Access, MagConfig};

/// Refuses routes that lead to one of these anchors over an access.
///
/// # Errors
/// The access concerned, with a remedy.
pub fn check(anchors: impl IntoIterator<Item = IpAddr>, accesses: &[Access]) -> anyhow::Result<()> {
    let anchors: BTreeSet<IpAddr> = anchors.into_iter().collect();
    let indices: Vec<Option<u32>> =
        accesses.iter().map(|access| link::index_of(&access.interface).ok()).collect();
    let own: BTreeSet<IpAddr> = accesses.iter().map(|access| access.proxy_coa).collect();
    for anchor in anchors {
        for proxy_coa in &own {
            // Without an answer there is no route, or none that this process may see.
            let Ok(Some(way)) = way_from(*proxy_coa, anchor) else { continue };
            let over = indices.iter().position(|index| *index == Some(way.interface));
            let Some(over) = over.and_then(|place| accesses.get(place)) else { continue };
            bail!(
                "interface {} is an access, and routes lead to the anchor {anchor} over it: a host there could speak in the \
                 anchor's name; give hosts an interface of their own, or the anchor another route",
                over.interface
            );
        }
    }
    Ok(())
}

/// The same for the anchors in a configuration, if this machine has one of its gateway addresses.
///
/// # Errors
/// As for [`check`].
pub fn check_here(config: &MagConfig) -> anyhow::Result<()> {
    let own = link::addresses().unwrap_or_default();
    let is_own = |access: &Access| own.iter().any(|own| own.prefix.addr == access.proxy_coa);
    match config.accesses.iter().any(is_own) {
        true => check(config.anchors(), &config.accesses),
        false => Ok(()),
    }
}
