//! Network interfaces.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::Pref64;

/// A network interface, as protocols see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, unique on the machine.
    pub name: String,
    /// Its index, from 1, unique on the machine.
    pub index: u32,
    /// Addresses with more than link scope; within each family the preferred source first.
    pub addresses: Vec<IpAddr>,
    /// Further addresses that the role must not send from, because no route leads on from them.
    pub unusable: Vec<IpAddr>,
    /// Next hops for packets that leave by this interface, at most one per family. Without one, destinations of that
    /// family are on the link.
    pub gateways: Vec<IpAddr>,
    /// Next hops by source address, for sources whose packets do not use `gateways`.
    pub by_source: Vec<(IpAddr, IpAddr)>,
    /// Prefix of a translator (NAT64), by which an interface without IPv4 reaches IPv4 destinations.
    pub pref64: Option<Pref64>,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u32,
}

impl Interface {
    /// Next hop for packets from `source`, an address of the interface; `None` if destinations are on the link.
    #[must_use]
    pub fn gateway(&self, source: IpAddr) -> Option<IpAddr> {
        let mut own = self.by_source.iter().filter(|(from, _)| *from == source);
        let general = || self.gateways.iter().find(|a| a.is_ipv4() == source.is_ipv4());
        own.next().map(|(_, next)| next).or_else(general).copied()
    }

    /// The address to use for `destination` on this interface: translated with `pref64` if the destination is IPv4 and
    /// the interface has no IPv4 address.
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
