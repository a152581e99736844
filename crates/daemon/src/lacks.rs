//! Interfaces and addresses that the files of anchors and gateways name, and this machine does not have. Only a
//! warning: they may appear later.

use std::net::IpAddr;

use segue_linux::link::{self, Link};
use segue_pmip::{LmaConfig, MagConfig};

/// Warnings about addresses that an anchor lacks.
///
/// # Errors
/// Netlink fails.
pub fn of_anchor(config: &LmaConfig) -> anyhow::Result<Vec<String>> {
    let v4 = config.address_v4.map(|address| ("address_v4", address.into()));
    let mut all = Vec::new();
    for (key, address) in [("address", config.address)].into_iter().chain(v4) {
        if !is_own(address)? {
            all.push(format!(
                "{key}: {address} is none of this machine's, so that gateways do not reach the anchor: ip address add \
                 {address} dev …"
            ));
        }
    }
    Ok(all)
}

/// Warnings about interfaces and addresses that a gateway lacks.
///
/// # Errors
/// Netlink fails.
pub fn of_gateway(config: &MagConfig) -> anyhow::Result<Vec<String>> {
    let links = link::links()?;
    let mut all = Vec::new();
    for access in &config.accesses {
        let (name, coa) = (&access.interface, access.proxy_coa);
        all.extend(interface("access", name, &links));
        if !is_own(coa)? {
            all.push(format!(
                "access {name}: proxy_coa {coa} is none of this machine's, so that hosts there cannot be registered: \
                 ip address add {coa} dev …"
            ));
        }
    }
    Ok(all)
}

/// A warning if an interface that a file names does not exist.
#[must_use]
pub fn interface(what: &str, name: &str, links: &[Link]) -> Option<String> {
    if links.iter().any(|link| link.name == *name) {
        return None;
    }
    let there = links.iter().filter(|link| !link.loopback).map(|link| link.name.as_str());
    let there: Vec<&str> = there.collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    Some(format!("{what} {name}: there is no such interface yet; those here: {there}"))
}

fn is_own(address: IpAddr) -> anyhow::Result<bool> {
    let own = link::addresses()?;
    Ok(own.iter().any(|own| own.prefix.addr == address))
}
