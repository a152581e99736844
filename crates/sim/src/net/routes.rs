//! Where a node sends packets: rules first, then the longest prefix.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::AgentId;
use crate::packet::Packet;

/// An address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address; bits beyond the length are 0.
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The prefix of this length that holds `address`; a length beyond the address means all of it.
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Prefix {
        match address {
            IpAddr::V4(a) => {
                let len = len.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Prefix { address: IpAddr::V4((a.to_bits() & mask).into()), len }
            }
            IpAddr::V6(a) => {
                let len = len.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Prefix { address: IpAddr::V6((a.to_bits() & mask).into()), len }
            }
        }
    }

    /// The prefix of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Prefix {
        Prefix::new(address, 128)
    }

    /// Everything of the family of `address`.
    #[must_use]
    pub fn default_of(address: IpAddr) -> Prefix {
        Prefix::new(address, 0)
    }

    /// The address so many behind the first; `None` if it lies beyond the prefix, or is its last one of
    /// IPv4 (the broadcast address).
    #[must_use]
    pub fn nth(&self, number: u32) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(a) => {
                let last = u32::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
                (number < last).then(|| IpAddr::V4((a.to_bits() + number).into()))
            }
            IpAddr::V6(a) => {
                let last = u128::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
                let number = u128::from(number);
                (number <= last).then(|| IpAddr::V6((a.to_bits() + number).into()))
            }
        }
    }

    /// How many bits count.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.len
    }

    /// Whether the address lies within.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Prefix::new(address, self.len).address == self.address
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Over the interface with this index.
    Interface(u32),
    /// To an agent on this node.
    Agent(AgentId),
    /// Nowhere.
    Reject,
}

/// Looked at before the table; the first that fits decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Sources it is for.
    pub from: Option<Prefix>,
    /// Destinations it is for.
    pub to: Option<Prefix>,
    /// Code point it is for.
    pub dscp: Option<u8>,
    /// Protocol it is for.
    pub protocol: Option<u8>,
    /// Destination port it is for.
    pub dport: Option<u16>,
    /// Where such packets go.
    pub hop: Hop,
}

impl Rule {
    /// A rule for everything.
    #[must_use]
    pub fn all(hop: Hop) -> Rule {
        Rule { from: None, to: None, dscp: None, protocol: None, dport: None, hop }
    }

    fn fits(&self, packet: &Packet) -> bool {
        self.from.is_none_or(|p| p.contains(packet.src))
            && self.to.is_none_or(|p| p.contains(packet.dst))
            && self.dscp.is_none_or(|d| d == packet.dscp)
            && self.protocol.is_none_or(|p| p == packet.protocol())
            && self.dport.is_none_or(|d| d == packet.ports().1)
    }
}

/// A node's rules and its table.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    rules: Vec<Rule>,
    /// Single addresses, in ascending order.
    hosts: Vec<(IpAddr, Hop)>,
    /// Wider prefixes, longest first.
    prefixes: Vec<(Prefix, Hop)>,
}

impl Routes {
    /// Adds a rule behind those there are.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Takes away the rules that lead there.
    pub fn remove_rules(&mut self, hop: Hop) {
        self.rules.retain(|rule| rule.hop != hop);
    }

    /// Sets where a prefix goes.
    pub fn set(&mut self, prefix: Prefix, hop: Hop) {
        let whole = if prefix.address.is_ipv4() { 32 } else { 128 };
        if prefix.len == whole {
            match self.hosts.binary_search_by_key(&prefix.address, |(a, _)| *a) {
                Ok(place) => self.hosts[place].1 = hop,
                Err(place) => self.hosts.insert(place, (prefix.address, hop)),
            }
            return;
        }
        match self.prefixes.iter_mut().find(|(known, _)| *known == prefix) {
            Some((_, known)) => *known = hop,
            None => {
                let place = self.prefixes.partition_point(|(known, _)| known.len >= prefix.len);
                self.prefixes.insert(place, (prefix, hop));
            }
        }
    }

    /// Forgets a prefix.
    pub fn remove(&mut self, prefix: Prefix) {
        self.hosts.retain(|(address, _)| Prefix::host(*address) != prefix);
        self.prefixes.retain(|(known, _)| *known != prefix);
    }

    /// Where the table sends exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Prefix) -> Option<Hop> {
        let host = |(address, _): &&(IpAddr, Hop)| Prefix::host(*address) == prefix;
        let known = self.prefixes.iter().find(|(known, _)| *known == prefix).map(|(_, hop)| *hop);
        known.or_else(|| self.hosts.iter().find(host).map(|(_, hop)| *hop))
    }

    /// Sends `new` where `old` went, and forgets `old`.
    pub(super) fn rename(&mut self, old: IpAddr, new: IpAddr) {
        if let Some(hop) = self.get(Prefix::host(old)) {
            self.remove(Prefix::host(old));
            self.set(Prefix::host(new), hop);
        }
    }

    /// Where a packet goes; `None` without a route.
    #[must_use]
    pub fn look_up(&self, packet: &Packet) -> Option<Hop> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.fits(packet)) {
            return Some(rule.hop);
        }
        self.towards(packet.dst)
    }

    /// Where the table sends an address, without the rules.
    #[must_use]
    pub fn towards(&self, address: IpAddr) -> Option<Hop> {
        if let Ok(place) = self.hosts.binary_search_by_key(&address, |(a, _)| *a) {
            return Some(self.hosts[place].1);
        }
        self.prefixes.iter().find(|(prefix, _)| prefix.contains(address)).map(|(_, hop)| *hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_a_host_wins_over_all() {
        let mut routes = Routes::default();
        let a = |text: &str| text.parse::<IpAddr>().unwrap();
        routes.set(Prefix::default_of(a("0.0.0.0")), Hop::Interface(1));
        routes.set(Prefix::new(a("10.1.2.3"), 16), Hop::Interface(2));
        routes.set(Prefix::new(a("10.1.2.3"), 24), Hop::Interface(3));
        routes.set(Prefix::host(a("10.1.2.3")), Hop::Interface(4));
        for (to, expected) in [("9.9.9.9", 1), ("10.1.9.9", 2), ("10.1.2.9", 3), ("10.1.2.3", 4)] {
            assert_eq!(routes.towards(a(to)), Some(Hop::Interface(expected)), "{to}");
        }
        assert_eq!(routes.towards(a("fd00::1")), None);
        routes.remove(Prefix::new(a("10.1.0.0"), 16));
        assert_eq!(routes.towards(a("10.1.9.9")), Some(Hop::Interface(1)));
    }
}
