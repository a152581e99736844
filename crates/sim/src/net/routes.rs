//! Routing decisions: rules first, then the longest prefix.

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_ip::Prefix;

use super::AgentId;
use crate::packet::Packet;

/// The next hop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Over the interface with this index.
    Interface(u32),
    /// To an agent on this node.
    Agent(AgentId),
    /// Nowhere: the packet is refused.
    Reject,
}

/// A rule that precedes the table; the first match decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Source prefix to match.
    pub from: Option<Prefix>,
    /// Destination prefix to match.
    pub to: Option<Prefix>,
    /// Code point to match.
    pub dscp: Option<u8>,
    /// Protocol to match.
    pub protocol: Option<u8>,
    /// Destination port to match.
    pub dport: Option<u16>,
    /// Next hop of matching packets.
    pub hop: Hop,
}

impl Rule {
    /// A rule that matches every packet.
    #[must_use]
    pub fn all(hop: Hop) -> Rule {
        Rule { from: None, to: None, dscp: None, protocol: None, dport: None, hop }
    }

    fn fits(&self, packet: &Packet) -> bool {
        self.from.is_none_or(|p| p.contains(packet.src))
            && self.to.is_none_or(|p| p.contains(packet.dst))
            && self.dscp.is_none_or(|d| d == packet.dscp)
            && self.protocol.is_none_or(|p| p == packet.protocol)
            && self.dport.is_none_or(|d| d == packet.ports.1)
    }
}

/// Rules and table of a node. A prefix stands for its network here; host bits are ignored.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    rules: Vec<Rule>,
    /// Host routes, keyed by [`number`], in ascending order.
    hosts: Vec<(u128, Hop)>,
    /// Wider networks, longest first.
    prefixes: Vec<(Prefix, Hop)>,
}

impl Routes {
    /// Appends a rule.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Removes the rules with this next hop.
    pub fn remove_rules(&mut self, hop: Hop) {
        self.rules.retain(|rule| rule.hop != hop);
    }

    /// Sets the next hop of a prefix.
    pub fn set(&mut self, prefix: Prefix, hop: Hop) {
        let prefix = prefix.network();
        if prefix.is_host() {
            match self.place(prefix.addr) {
                Ok(place) => self.hosts[place].1 = hop,
                Err(place) => self.hosts.insert(place, (number(prefix.addr), hop)),
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

    /// Removes a prefix.
    pub fn remove(&mut self, prefix: Prefix) {
        let prefix = prefix.network();
        if prefix.is_host()
            && let Ok(place) = self.place(prefix.addr)
        {
            self.hosts.remove(place);
        }
        self.prefixes.retain(|(known, _)| *known != prefix);
    }

    /// Removes all prefixes with this next hop.
    pub fn remove_towards(&mut self, hop: Hop) {
        self.hosts.retain(|(_, known)| *known != hop);
        self.prefixes.retain(|(_, known)| *known != hop);
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Prefix) -> Option<Hop> {
        let prefix = prefix.network();
        if prefix.is_host() {
            return self.host(prefix.addr);
        }
        self.prefixes.iter().find(|(known, _)| *known == prefix).map(|(_, hop)| *hop)
    }

    /// Moves the host route for `old` to `new`.
    pub(super) fn rename(&mut self, old: IpAddr, new: IpAddr) {
        if let Some(hop) = self.get(Prefix::host(old)) {
            self.remove(Prefix::host(old));
            self.set(Prefix::host(new), hop);
        }
    }

    /// The next hop of a packet; `None` without a route.
    #[must_use]
    #[inline]
    pub fn look_up(&self, packet: &Packet) -> Option<Hop> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.fits(packet)) {
            return Some(rule.hop);
        }
        self.towards(packet.dst)
    }

    /// The next hop of an address according to the table, without the rules.
    #[must_use]
    pub fn towards(&self, address: IpAddr) -> Option<Hop> {
        let wider = |(prefix, _): &&(Prefix, Hop)| prefix.contains(address);
        self.host(address).or_else(|| self.prefixes.iter().find(wider).map(|(_, hop)| *hop))
    }

    #[inline]
    fn host(&self, address: IpAddr) -> Option<Hop> {
        self.place(address).ok().map(|place| self.hosts[place].1)
    }

    fn place(&self, address: IpAddr) -> Result<usize, usize> {
        self.hosts.binary_search_by_key(&number(address), |(known, _)| *known)
    }
}

/// An address as a number, for fast comparison; IPv4 addresses are mapped as in RFC 4291, section 2.5.5.2.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_a_host_wins_over_all() {
        let mut routes = Routes::default();
        let a = |text: &str| text.parse::<IpAddr>().unwrap();
        routes.set(Prefix::default_of(false), Hop::Interface(1));
        routes.set(Prefix::new(a("10.1.2.3"), 16), Hop::Interface(2));
        routes.set(Prefix::new(a("10.1.2.3"), 24), Hop::Interface(3));
        routes.set(Prefix::host(a("10.1.2.3")), Hop::Interface(4));
        for (to, expected) in [("9.9.9.9", 1), ("10.1.9.9", 2), ("10.1.2.9", 3), ("10.1.2.3", 4)] {
            assert_eq!(routes.towards(a(to)), Some(Hop::Interface(expected)), "{to}");
        }
        assert_eq!(routes.towards(a("fd00::1")), None);
        // Host bits do not make another prefix.
        assert_eq!(routes.get(Prefix::new(a("10.1.2.9"), 24)), Some(Hop::Interface(3)));
        routes.set(Prefix::new(a("10.1.2.9"), 24), Hop::Interface(5));
        assert_eq!(routes.towards(a("10.1.2.9")), Some(Hop::Interface(5)));
        routes.remove(Prefix::new(a("10.1.0.7"), 16));
        assert_eq!(routes.towards(a("10.1.9.9")), Some(Hop::Interface(1)));
    }
}
