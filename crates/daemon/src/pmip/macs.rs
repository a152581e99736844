//! The link-layer address that accesses of all gateways share (RFC 6543), and the original addresses of the interfaces.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use segue_linux::link::{self, Link};
use segue_pmip::FIXED_MAC;
use segue_store::{Embedded, StoreExt};
use segue_wire::mih::identity::LinkAddress;
use tracing::warn;

use super::STARTS;

/// Default directory of gateways' state files.
const STATES: &str = "/var/lib/segue";

/// The store's key for an interface's original address.
fn key(interface: &str) -> String {
    format!("link-layer address of {interface}")
}

/// An interface's original address; `None` if it is unknown. A gateway that was killed leaves the shared address on its
/// accesses, so the original one is also stored.
fn own(link: &Link, store: &Embedded) -> anyhow::Result<Option<[u8; 6]>> {
    let remembered = store.get_as(STARTS, &key(&link.name))?;
    if link.mac == FIXED_MAC {
        return Ok(remembered.or(link.permanent_mac));
    }
    if remembered != Some(link.mac) {
        store.put_as(STARTS, &key(&link.name), &link.mac)?;
    }
    Ok(Some(link.mac))
}

/// The links' addresses: configured, or the original address of the interface.
pub(super) fn own_links(
    all: &BTreeMap<String, Option<LinkAddress>>,
    store: &Embedded,
) -> anyhow::Result<BTreeMap<String, LinkAddress>> {
    let links = link::links()?;
    let address = |(name, address): (&String, &Option<LinkAddress>)| {
        let there = links.iter().find(|link| link.name == *name);
        let own = match there {
            Some(link) => own(link, store)?,
            None => store.get_as(STARTS, &key(name))?,
        };
        let address = address.clone().or(own.map(LinkAddress::mac)).with_context(|| {
            format!("access {name}: what its link is called in IEEE 802.21 is not known: set link")
        })?;
        Ok((name.clone(), address))
    };
    all.iter().map(address).collect()
}

/// Interfaces that have the shared address, with their original addresses. Dropping this restores them.
pub(super) struct Macs {
    had: BTreeMap<String, Option<[u8; 6]>>,
    store: Arc<Embedded>,
}

impl Macs {
    pub(super) fn new(store: Arc<Embedded>) -> Macs {
        Macs { had: BTreeMap::new(), store }
    }

    /// Sets the shared address on an access, if the access exists.
    pub(super) fn fix(&mut self, access: &str) -> anyhow::Result<()> {
        if self.had.contains_key(access) {
            return Ok(());
        }
        let all = link::links()?;
        let Some(link) = all.into_iter().find(|link| link.name == access) else { return Ok(()) };
        let own = own(&link, &self.store)?;
        if link.mac != FIXED_MAC {
            link::set_mac(access, FIXED_MAC).with_context(|| {
                format!(
                    "{access} cannot have the link-layer address of all gateways: set fixed_mac = false"
                )
            })?;
        }
        self.had.insert(access.to_owned(), own);
        Ok(())
    }

    /// Forgets interfaces that no longer exist.
    pub(super) fn keep(&mut self, present: &BTreeMap<u32, String>) {
        self.had.retain(|name, _| present.values().any(|there| there == name));
    }
}

impl Drop for Macs {
    fn drop(&mut self) {
        for (name, own) in &self.had {
            let Some(own) = own else {
                warn!("{}", kept(name));
                continue;
            };
            if let Err(error) = link::set_mac(name, *own)
                && !link::is_gone(&error)
            {
                warn!("{error}");
            }
        }
    }
}

/// The warning for an interface whose original address is unknown.
#[must_use]
pub fn kept(interface: &str) -> String {
    format!(
        "{interface} keeps the link-layer address of all gateways, since nobody knows what it had before: \
         ip link set {interface} address …"
    )
}

/// Interfaces that have the shared address.
#[must_use]
pub fn fixed(links: &[Link]) -> Vec<&Link> {
    links.iter().filter(|link| link.mac == FIXED_MAC).collect()
}

/// An interface's original address, as stored by gateways that are not running, in the default directory or in `more`.
#[must_use]
pub fn remembered(link: &Link, more: Option<&PathBuf>) -> Option<[u8; 6]> {
    let usual = std::fs::read_dir(STATES).into_iter().flatten().flatten();
    let usual = usual.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("pmip-mag") && name.ends_with(".db"))
    });
    let states = more.cloned().into_iter().chain(usual).filter(|path| path.exists());
    let had = |path: PathBuf| Embedded::open(&path).ok()?.get_as(STARTS, &key(&link.name)).ok()?;
    states.into_iter().find_map(had).or(link.permanent_mac)
}
