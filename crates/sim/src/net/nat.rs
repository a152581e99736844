//! Network address translators: many inside addresses behind one outside address (RFC 4787 for UDP, RFC 5382 for
//! TCP).
//!
//! ```text
//!   inside interfaces ──► mapping ──► outside address, one port per mapping
//!                     ◄── filtering ◄──
//! ```
//!
//! Packets between inside interfaces, and packets sent or received by programs on the node, are not translated.
//! Hairpinning is not supported: packets from inside to the outside address end at the node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use segue_clock::{Span, Time};

use crate::packet::Packet;

/// Maximum number of remote endpoints per mapping. A further one replaces the endpoint that was sent to longest
/// ago.
const REMOTES: usize = 256;

/// How a mapping or filter depends on the remote endpoint (RFC 4787, sections 4.1 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It depends only on the inside address and port.
    EndpointIndependent,
    /// It also depends on the remote address.
    AddressDependent,
    /// It also depends on the remote address and port.
    AddressAndPortDependent,
}

impl Behaviour {
    /// The part of a remote endpoint that matters for this behaviour.
    fn part(self, (address, port): (IpAddr, u16)) -> Option<(IpAddr, u16)> {
        match self {
            Behaviour::EndpointIndependent => None,
            Behaviour::AddressDependent => Some((address, 0)),
            Behaviour::AddressAndPortDependent => Some((address, port)),
        }
    }
}

/// Configuration of a translator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// The node's inside interfaces, apart from those of its cells; all others are outside.
    pub inside: Vec<u32>,
    /// True if radios in the node's cells are inside.
    pub cells_inside: bool,
    /// The node's address as seen from outside. Packets of the other address family pass untranslated.
    pub outside: IpAddr,
    /// Dependence of the outside port.
    pub mapping: Behaviour,
    /// Which packets from outside a mapping lets in.
    pub filtering: Behaviour,
    /// Lifetime of a UDP mapping after the last packet that refreshed it.
    pub udp_timeout: Span,
    /// Lifetime of a TCP mapping after the last packet that refreshed it. TCP flags are ignored.
    pub tcp_timeout: Span,
    /// True if packets from outside also refresh a mapping (RFC 4787, REQ-6); packets from inside always do.
    pub inbound_refresh: bool,
    /// The first and last outside port. Programs on the node must listen on other ports.
    pub ports: (u16, u16),
}

impl NatConfig {
    /// A typical home translator: one port per inside endpoint regardless of destination, open to the endpoints
    /// that it has sent to. UDP mappings live for 120 s, the minimum of RFC 4787 (REQ-5); TCP mappings for 2 h 4
    /// min (RFC 5382, REQ-5).
    #[must_use]
    pub fn new(inside: Vec<u32>, outside: IpAddr) -> NatConfig {
        NatConfig {
            inside,
            cells_inside: true,
            outside,
            mapping: Behaviour::EndpointIndependent,
            filtering: Behaviour::AddressAndPortDependent,
            udp_timeout: Span::from_secs(120),
            tcp_timeout: Span::from_secs(7_440),
            inbound_refresh: false,
            ports: (1_024, u16::MAX),
        }
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatError {
    /// The node already has a translator.
    Second,
    /// The node has no interface with this index.
    NoInterface(u32),
    /// No interface is inside, and neither are the cells.
    NoInside,
    /// The outside address does not belong to the node, or belongs to an inside interface.
    NotOutside(IpAddr),
    /// The first port is 0 or greater than the last.
    Ports(u16, u16),
    /// A timeout of 0.
    ZeroTimeout,
}

impl fmt::Display for NatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NatError::Second => f.write_str("the node has a NAT already"),
            NatError::NoInterface(index) => write!(f, "the node has no interface {index}"),
            NatError::NoInside => f.write_str("a NAT needs an inside interface"),
            NatError::NotOutside(address) => {
                write!(f, "{address} is no address of the node outside of its NAT")
            }
            NatError::Ports(first, last) => write!(f, "{first} to {last} are no ports for a NAT"),
            NatError::ZeroTimeout => f.write_str("the NAT's timeout is 0"),
        }
    }
}

impl core::error::Error for NatError {}

/// Why a translator refused a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NatRefusal {
    /// From outside, to a port without a mapping or listening program.
    NoMapping,
    /// From outside, from a sender that the mapping does not let in.
    Filtered,
    /// From inside, while every port is in use.
    Exhausted,
    /// From inside, of a protocol without ports.
    NoPorts,
}

/// Counters of a translator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatCounters {
    /// Mappings created.
    pub mappings: u64,
    /// Packets translated from inside to outside.
    pub out: u64,
    /// Packets translated from outside to inside.
    pub inward: u64,
    /// Times that all mappings were forgotten.
    pub rebindings: u64,
    /// Packets refused because there was no mapping.
    pub no_mapping: u64,
    /// Packets refused by the filter.
    pub filtered: u64,
    /// Packets refused because every port was in use.
    pub exhausted: u64,
    /// Packets refused because they have no ports.
    pub no_ports: u64,
}

/// Treatment of a packet that arrives at the node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inward {
    /// Forward it to the inside.
    Translated,
    /// Leave it untranslated.
    Local,
    Refused(NatRefusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: u8,
    inside: (IpAddr, u16),
    remote: Option<(IpAddr, u16)>,
}

#[derive(Clone, Debug)]
struct Mapping {
    key: Key,
    refreshed: Time,
    /// Remote endpoints that the filter lets in, and when each was last sent to.
    remotes: Vec<((IpAddr, u16), Time)>,
}

/// A running translator.
#[derive(Clone, Debug)]
pub struct Nat {
    pub(super) config: NatConfig,
    by_key: BTreeMap<Key, u16>,
    by_port: BTreeMap<(u8, u16), Mapping>,
    /// Where the search for a free port begins.
    next: u16,
    /// No mapping expires before this time.
    quiet_until: Time,
    counters: NatCounters,
}

impl Nat {
    pub(super) fn new(config: NatConfig) -> Nat {
        Nat {
            next: config.ports.0,
            config,
            by_key: BTreeMap::new(),
            by_port: BTreeMap::new(),
            quiet_until: Time::ZERO,
            counters: NatCounters::default(),
        }
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> NatCounters {
        self.counters
    }

    /// Its configuration; the outside address is the current one.
    #[must_use]
    pub fn config(&self) -> &NatConfig {
        &self.config
    }

    /// Adds a new interface of one of the node's cells.
    pub(super) fn add_air(&mut self, interface: u32) {
        if self.config.cells_inside {
            self.config.inside.push(interface);
        }
    }

    pub(super) fn inside(&self, interface: u32) -> bool {
        self.config.inside.contains(&interface)
    }

    /// Handles a packet that arrives over interface `over`; `None`: out of a tunnel, or from the node itself.
    pub(super) fn inward(&mut self, now: Time, over: Option<u32>, packet: &mut Packet) -> Inward {
        if packet.dst != self.config.outside || over.is_none_or(|over| self.inside(over)) {
            return Inward::Local;
        }
        let (protocol, (sport, dport)) = (packet.protocol, packet.ports);
        let timeout = self.timeout(protocol);
        let filtering = self.config.filtering;
        let refresh = self.config.inbound_refresh;
        let Some(mapping) = self.alive(now, (protocol, dport)) else { return Inward::Local };
        if let Some(from) = filtering.part((packet.src, sport)) {
            let known = |(remote, sent): &((IpAddr, u16), Time)| {
                filtering.part(*remote) == Some(from) && now.since(*sent) < timeout
            };
            if !mapping.remotes.iter().any(known) {
                self.counters.filtered += 1;
                return Inward::Refused(NatRefusal::Filtered);
            }
        }
        if refresh {
            mapping.refreshed = now;
            for (remote, sent) in &mut mapping.remotes {
                if *remote == (packet.src, sport) {
                    *sent = now;
                }
            }
        }
        let (address, port) = mapping.key.inside;
        packet.dst = address;
        packet.set_ports(sport, port);
        self.counters.inward += 1;
        Inward::Translated
    }

    /// Counts a packet from outside that no agent on the node accepts. Returns true if the packet was from
    /// outside.
    pub(super) fn unclaimed(&mut self, over: Option<u32>, packet: &Packet) -> bool {
        let outside = over.is_some_and(|over| !self.inside(over));
        let here = outside && packet.dst == self.config.outside;
        self.counters.no_mapping += u64::from(here);
        here
    }

    /// Handles a packet that the node forwards from one interface to another.
    pub(super) fn outward(
        &mut self,
        now: Time,
        over: Option<u32>,
        out: u32,
        packet: &mut Packet,
    ) -> Result<(), NatRefusal> {
        let leaves = over.is_some_and(|over| self.inside(over)) && !self.inside(out);
        if !leaves || packet.src.is_ipv4() != self.config.outside.is_ipv4() {
            return Ok(());
        }
        let (protocol, (sport, dport)) = (packet.protocol, packet.ports);
        if !matches!(protocol, 6 | 17) {
            self.counters.no_ports += 1;
            return Err(NatRefusal::NoPorts);
        }
        let remote = (packet.dst, dport);
        let inside = (packet.src, sport);
        let key = Key { protocol, inside, remote: self.config.mapping.part(remote) };
        let Some(port) = self.port_of(now, key) else {
            self.counters.exhausted += 1;
            return Err(NatRefusal::Exhausted);
        };
        let mapping = self.by_port.get_mut(&(protocol, port)).expect("a known port has a mapping");
        mapping.refreshed = now;
        let place = mapping.remotes.iter().position(|(known, _)| *known == remote);
        if let Some(place) = place {
            mapping.remotes.remove(place);
        } else if mapping.remotes.len() == REMOTES {
            mapping.remotes.remove(0);
        }
        mapping.remotes.push((remote, now));
        packet.src = self.config.outside;
        packet.set_ports(port, dport);
        self.counters.out += 1;
        Ok(())
    }

    fn timeout(&self, protocol: u8) -> Span {
        if protocol == 6 { self.config.tcp_timeout } else { self.config.udp_timeout }
    }

    /// The mapping of a port. Removes the mapping if it has expired.
    fn alive(&mut self, now: Time, port: (u8, u16)) -> Option<&mut Mapping> {
        let timeout = self.timeout(port.0);
        let mapping = self.by_port.get(&port)?;
        if now.since(mapping.refreshed) >= timeout {
            let key = mapping.key;
            self.by_port.remove(&port);
            self.by_key.remove(&key);
            return None;
        }
        self.by_port.get_mut(&port)
    }

    /// The outside port of a key: the existing one, or the next free one.
    fn port_of(&mut self, now: Time, key: Key) -> Option<u16> {
        if let Some(port) = self.by_key.get(&key).copied()
            && self.alive(now, (key.protocol, port)).is_some()
        {
            return Some(port);
        }
        let port = self.free_port(key.protocol).or_else(|| {
            self.sweep(now);
            self.free_port(key.protocol)
        })?;
        self.by_key.insert(key, port);
        let mapping = Mapping { key, refreshed: now, remotes: Vec::new() };
        self.by_port.insert((key.protocol, port), mapping);
        self.counters.mappings += 1;
        Some(port)
    }

    fn free_port(&mut self, protocol: u8) -> Option<u16> {
        let (first, last) = self.config.ports;
        let room = usize::from(last - first) + 1;
        if self.by_port.range((protocol, 0)..=(protocol, u16::MAX)).take(room).count() == room {
            return None;
        }
        let after = (self.next..=last).chain(first..self.next);
        let free = |port: &u16| !self.by_port.contains_key(&(protocol, *port));
        let port = after.into_iter().find(free)?;
        self.next = if port == last { first } else { port + 1 };
        Some(port)
    }

    /// Removes expired mappings.
    fn sweep(&mut self, now: Time) {
        if now < self.quiet_until {
            return;
        }
        let (tcp, udp) = (self.config.tcp_timeout, self.config.udp_timeout);
        let end = |protocol: u8, m: &Mapping| m.refreshed + if protocol == 6 { tcp } else { udp };
        self.by_port.retain(|(protocol, _), mapping| end(*protocol, mapping) > now);
        let Nat { by_key, by_port, .. } = self;
        by_key.retain(|key, port| by_port.contains_key(&(key.protocol, *port)));
        let next =
            self.by_port.iter().map(|((protocol, _), mapping)| end(*protocol, mapping)).min();
        self.quiet_until = next.unwrap_or(now);
    }

    /// Forgets all mappings. The port search continues where it was, so that new mappings get other ports.
    pub(super) fn rebind(&mut self, outside: Option<IpAddr>) {
        self.by_key.clear();
        self.by_port.clear();
        self.quiet_until = Time::ZERO;
        self.counters.rebindings += 1;
        self.config.outside = outside.unwrap_or(self.config.outside);
    }
}
