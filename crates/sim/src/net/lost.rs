//! Reasons for lost packets, and their counts.

use segue_netem::DropCause;
use segue_wire::DropReason;

use super::nat::NatRefusal;

/// MTU reported by interfaces. Links carry packets of any size.
pub(super) const MTU_BYTES: u32 = 1_500;

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// On a link.
    Link(DropCause),
    /// Too large for a link.
    TooLarge,
    /// Dropped by a filter of a link.
    Filtered,
    /// No route to its destination.
    NoRoute,
    /// No agent at its destination listens on its port.
    NoListener,
    /// Its hop limit was exhausted.
    Ttl,
    /// Sent over an interface that is attached to nothing.
    Detached,
    /// It reached a node that is not its destination and does not forward.
    NotForwarded,
    /// The agents of one node passed it among themselves without end.
    Loop,
    /// Refused by an address translator.
    Nat(NatRefusal),
    /// Refused by a node's relay.
    Relay(DropReason),
}

/// Packets that nodes dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No route.
    pub no_route: u64,
    /// No listener.
    pub no_listener: u64,
    /// Hop limit exhausted.
    pub ttl: u64,
    /// Interface attached to nothing.
    pub detached: u64,
    /// Not for this node, and the node does not forward.
    pub not_forwarded: u64,
    /// Passed among the agents of one node without end.
    pub loops: u64,
    /// Address translators; [`Nat::counters`](super::nat::Nat::counters) lists their reasons.
    pub nat: u64,
    /// Relays; [`Relay::refused`](super::relay::Relay::refused) lists their reasons.
    pub relay: u64,
}

impl Refused {
    pub(super) fn count(&mut self, why: Lost) {
        match why {
            Lost::NoRoute => self.no_route += 1,
            Lost::NoListener => self.no_listener += 1,
            Lost::Ttl => self.ttl += 1,
            Lost::Detached => self.detached += 1,
            Lost::NotForwarded => self.not_forwarded += 1,
            Lost::Loop => self.loops += 1,
            Lost::Nat(_) => self.nat += 1,
            Lost::Relay(_) => self.relay += 1,
            Lost::Link(_) | Lost::TooLarge | Lost::Filtered => {}
        }
    }
}
