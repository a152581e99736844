//! Lookup tables of a relaying node: which binding a packet follows, and whether a port may bring its source.
//! [`Traffic`] and [`Port`] define the rules. Used by the simulator and the user-space relay.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;

use crate::{FlowKey, Port, Prefix, Source, Traffic};

/// Maps traffic to values.
#[derive(Clone, Debug)]
pub struct Bindings<V> {
    bound: BTreeMap<Traffic, V>,
    to: Lengths,
    from: Lengths,
}

/// The inner sources allowed at each port.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    known: BTreeSet<Source>,
    lengths: Lengths,
    /// Prefixes allowed at checked links, with the number of links that may bring each.
    hosts: Bindings<usize>,
}

/// Number of prefixes per length, so that a lookup only tries lengths that occur.
#[derive(Clone, Debug, Default)]
struct Lengths {
    v4: BTreeMap<u8, usize>,
    v6: BTreeMap<u8, usize>,
}

impl<V> Default for Bindings<V> {
    fn default() -> Bindings<V> {
        Bindings { bound: BTreeMap::new(), to: Lengths::default(), from: Lengths::default() }
    }
}

impl<V> Bindings<V> {
    /// Binds traffic; returns the previous value.
    pub fn insert(&mut self, traffic: Traffic, value: V) -> Option<V> {
        let traffic = traffic.network();
        let old = self.bound.insert(traffic, value);
        if old.is_none()
            && let Some((lengths, prefix)) = self.lengths(&traffic)
        {
            lengths.add(prefix);
        }
        old
    }

    /// Removes a binding; returns its value.
    pub fn remove(&mut self, traffic: &Traffic) -> Option<V> {
        let traffic = traffic.network();
        let old = self.bound.remove(&traffic)?;
        if let Some((lengths, prefix)) = self.lengths(&traffic) {
            lengths.remove(prefix);
        }
        Some(old)
    }

    /// The value of exactly this traffic.
    #[must_use]
    pub fn get(&self, traffic: &Traffic) -> Option<&V> {
        self.bound.get(&traffic.network())
    }

    /// Like [`get`](Bindings::get), but mutable.
    pub fn get_mut(&mut self, traffic: &Traffic) -> Option<&mut V> {
        self.bound.get_mut(&traffic.network())
    }

    /// Number of bound flows, and number of bound prefixes.
    #[must_use]
    pub fn count(&self) -> [usize; 2] {
        let prefixes = self.to.count() + self.from.count();
        [self.bound.len() - prefixes, prefixes]
    }

    /// All bindings, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Traffic, &V)> {
        self.bound.iter()
    }

    /// The bound traffic that a packet of this flow matches. `checked`: the packet came over a checked link, where
    /// source prefixes take precedence over destination prefixes.
    #[must_use]
    pub fn of(&self, key: &FlowKey, checked: bool) -> Option<Traffic> {
        let flow = Traffic::Flow(*key);
        if self.bound.contains_key(&flow) {
            return Some(flow);
        }
        let (to, from) = (|| self.to(key.dst), || self.from(key.src));
        if checked { from().or_else(to) } else { to().or_else(from) }
    }

    /// The longest bound destination prefix that contains this address.
    #[must_use]
    pub fn to(&self, address: IpAddr) -> Option<Traffic> {
        let bound = |traffic: &Traffic| self.bound.contains_key(traffic);
        self.to.networks(address).map(Traffic::To).find(bound)
    }

    /// The longest bound source prefix that contains this address.
    #[must_use]
    pub fn from(&self, address: IpAddr) -> Option<Traffic> {
        let bound = |traffic: &Traffic| self.bound.contains_key(traffic);
        self.from.networks(address).map(Traffic::From).find(bound)
    }

    fn lengths(&mut self, traffic: &Traffic) -> Option<(&mut Lengths, Prefix)> {
        match *traffic {
            Traffic::Flow(_) => None,
            Traffic::To(prefix) => Some((&mut self.to, prefix)),
            Traffic::From(prefix) => Some((&mut self.from, prefix)),
        }
    }
}

impl Sources {
    /// Allows a source; false if it was allowed already.
    pub fn allow(&mut self, source: Source) -> bool {
        let source = Source { prefix: source.prefix.network(), ..source };
        let new = self.known.insert(source);
        if new {
            self.lengths.add(source.prefix);
        }
        if new && let Port::Link(_) = source.port {
            let from = Traffic::From(source.prefix);
            let links = self.hosts.get(&from).copied().unwrap_or(0);
            self.hosts.insert(from, links + 1);
        }
        new
    }

    /// Removes a source; false if it was not allowed.
    pub fn forbid(&mut self, source: &Source) -> bool {
        let source = Source { prefix: source.prefix.network(), ..*source };
        let known = self.known.remove(&source);
        if known {
            self.lengths.remove(source.prefix);
        }
        if known && let Port::Link(_) = source.port {
            let from = Traffic::From(source.prefix);
            match self.hosts.get_mut(&from) {
                Some(links) if *links > 1 => *links -= 1,
                _ => drop(self.hosts.remove(&from)),
            }
        }
        known
    }

    /// The sources allowed at a port.
    pub fn at(&self, port: Port) -> impl Iterator<Item = &Source> {
        // The smallest prefix in sort order.
        let first = Source { port, prefix: Prefix::default_of(false) };
        self.known.range(first..).take_while(move |source| source.port == port)
    }

    /// True if packets that arrive at `port` may have this source.
    #[must_use]
    pub fn may_bring(&self, port: Port, source: IpAddr) -> bool {
        self.lengths.networks(source).any(|prefix| self.known.contains(&Source { port, prefix }))
    }

    /// True if a checked link may bring packets with this source.
    #[must_use]
    pub fn is_behind_link(&self, source: IpAddr) -> bool {
        self.hosts.from(source).is_some()
    }

    /// True if exactly this prefix is allowed at a link.
    #[must_use]
    pub fn has_at_link(&self, prefix: Prefix) -> bool {
        self.hosts.get(&Traffic::From(prefix)).is_some()
    }

    /// Number of allowed sources.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// True if packets from this interface are checked: at least one source is allowed there.
    #[must_use]
    pub fn is_checked(&self, interface: u32) -> bool {
        self.at(Port::Link(interface)).next().is_some()
    }
}

impl Lengths {
    fn add(&mut self, prefix: Prefix) {
        *self.of(prefix).entry(prefix.len).or_default() += 1;
    }

    fn remove(&mut self, prefix: Prefix) {
        let lengths = self.of(prefix);
        if let Some(count) = lengths.get_mut(&prefix.len) {
            *count -= 1;
            if *count == 0 {
                lengths.remove(&prefix.len);
            }
        }
    }

    fn count(&self) -> usize {
        self.v4.values().chain(self.v6.values()).sum()
    }

    fn of(&mut self, prefix: Prefix) -> &mut BTreeMap<u8, usize> {
        if prefix.addr.is_ipv6() { &mut self.v6 } else { &mut self.v4 }
    }

    /// The networks with these lengths that contain an address, longest first.
    fn networks(&self, address: IpAddr) -> impl Iterator<Item = Prefix> {
        let lengths = if address.is_ipv6() { &self.v6 } else { &self.v4 };
        lengths.keys().rev().map(move |len| Prefix::new(address, *len).network())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn flow(src: &str, dst: &str) -> FlowKey {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        FlowKey { src, dst, sport: 1, dport: 2, protocol: 17, label: 0 }
    }

    #[test]
    fn a_packet_goes_by_its_flow_then_by_the_longest_prefix_of_the_end_that_counts_first() {
        let mut bindings = Bindings::default();
        let wide = Traffic::To(prefix("10.0.0.0/8"));
        let (to, from) = (Traffic::To(prefix("10.1.0.0/16")), Traffic::From(prefix("fd00::/64")));
        let by_source = Traffic::From(prefix("192.0.2.0/24"));
        for (n, traffic) in [wide, to, from, by_source].into_iter().enumerate() {
            assert_eq!(bindings.insert(traffic, n), None);
        }
        let key = flow("192.0.2.9", "10.1.2.3");
        assert_eq!(
            (bindings.of(&key, false), bindings.of(&key, true)),
            (Some(to), Some(by_source))
        );
        assert_eq!(bindings.remove(&to), Some(1));
        assert_eq!(bindings.of(&key, false), Some(wide));
        assert_eq!(bindings.insert(Traffic::Flow(key), 9), None);
        assert_eq!(bindings.of(&key, true), Some(Traffic::Flow(key)));
        assert_eq!(bindings.count(), [1, 3]);
        assert_eq!(bindings.of(&flow("fd00::1", "fd01::1"), false), Some(from));
        assert_eq!(bindings.of(&flow("fd02::1", "fd01::1"), true), None);
        // Host bits are ignored.
        assert_eq!(bindings.insert(Traffic::To(prefix("10.9.9.9/8")), 7), Some(0));
        assert_eq!(bindings.remove(&wide), Some(7));
        assert_eq!((bindings.to(key.dst), bindings.remove(&wide)), (None, None));
    }

    #[test]
    fn a_port_brings_what_it_was_allowed_and_nothing_of_another_port() {
        let mut sources = Sources::default();
        let (link, tunnel) = (Port::Link(3), Port::Tunnel(3));
        let source = |port, text| Source { port, prefix: prefix(text) };
        assert!(sources.allow(source(link, "fd0c::/64")));
        assert!(!sources.allow(source(link, "fd0c::1/64")));
        assert!(sources.allow(source(tunnel, "0.0.0.0/0")));
        let ip = |text: &str| text.parse().unwrap();
        assert!(sources.may_bring(link, ip("fd0c::9")) && !sources.may_bring(link, ip("fd0d::9")));
        assert!(
            !sources.may_bring(link, ip("10.0.0.1")) && sources.may_bring(tunnel, ip("10.0.0.1"))
        );
        assert!(!sources.may_bring(tunnel, ip("fd0c::9")));
        assert!(sources.is_checked(3) && !sources.is_checked(4));
        assert!(sources.is_behind_link(ip("fd0c::9")) && !sources.is_behind_link(ip("10.0.0.1")));
        assert!(sources.allow(source(Port::Link(4), "fd0c::/64")));
        assert!(sources.forbid(&source(Port::Link(4), "fd0c::/64")));
        assert!(sources.is_behind_link(ip("fd0c::9")));
        assert!(sources.forbid(&source(link, "fd0c::/64")) && !sources.is_checked(3));
        assert!(!sources.forbid(&source(link, "fd0c::/64")));
        assert!(!sources.is_behind_link(ip("fd0c::9")));
        assert_eq!((sources.at(tunnel).count(), sources.count()), (1, 1));
    }
}
