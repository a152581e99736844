//! Where a machine meets a network.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::Pref64;

/// An interface, as far as a protocol is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, unlike any other of the machine.
    pub name: String,
    /// Its number, from 1, unlike any other of the machine.
    pub index: u32,
    /// Its addresses that reach beyond the link, of each family the preferred source first.
    pub addresses: Vec<IpAddr>,
    /// Further addresses of its own that no packet of the role may come from: no route leads on from them.
    pub unusable: Vec<IpAddr>,
    /// The next hops of what leaves over it, at most one of each family; a family without one has its destinations on
    /// the link.
    pub gateways: Vec<IpAddr>,
    /// Next hops by source, for addresses whose packets take another than that of `gateways`.
    pub by_source: Vec<(IpAddr, IpAddr)>,
    /// The prefix of a translator on the way, by which an interface without IPv4 reaches destinations of IPv4.
    pub pref64: Option<Pref64>,
    /// The largest IP packet that it takes, in bytes.
    pub mtu_bytes: u32,
}

impl Interface {
    /// The next hop of packets from `source`, one of the interface's addresses; `None` if the destination is on the link.
    #[must_use]
    pub fn gateway(&self, source: IpAddr) -> Option<IpAddr> {
        let mut own = self.by_source.iter().filter(|(from, _)| *from == source);
        let general = || self.gateways.iter().find(|a| a.is_ipv4() == source.is_ipv4());
        own.next().map(|(_, next)| next).or_else(general).copied()
    }

    /// The address by which the interface reaches `destination`: that of the translator's, where it is of IPv4 and the
    /// interface has none.
    #[must_use]
    pub fn towards(&self, destination: IpAddr) -> IpAddr {
        match (destination, self.pref64) {
            (IpAddr::V4(v4), Some(pref64)) if !self.addresses.iter().any(IpAddr::is_ipv4) => {
                pref64.embed(v4).into()
            }
            _ => destination,
        }
    }
}
