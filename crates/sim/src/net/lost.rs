//! Why packets go no further, and how many did not.

use segue_netem::DropCause;
use segue_wire::DropReason;

use super::nat::NatRefusal;

/// What an interface says that it takes. Links take packets of any size.
pub(super) const MTU_BYTES: u32 = 1_500;

/// Why a packet went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// On a link.
    Link(DropCause),
    /// On a link that takes no packet of its size.
    TooLarge,
    /// By a filter of a link.
    Filtered,
    /// A node has no route to its destination.
    NoRoute,
    /// No agent at its destination listens on its port.
    NoListener,
    /// It passed too many routers.
    Ttl,
    /// It was sent over an interface that is attached to nothing.
    Detached,
    /// A node that does not forward is not its destination.
    NotForwarded,
    /// The agents of a node pass it round among themselves.
    Loop,
    /// An address translator refused it.
    Nat(NatRefusal),
    /// A node's tunnels refused it.
    Relay(DropReason),
}

/// Packets that nodes dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No route.
    pub no_route: u64,
    /// No listener.
    pub no_listener: u64,
    /// Too many routers.
    pub ttl: u64,
    /// Interface attached to nothing.
    pub detached: u64,
    /// Not for this node, which does not forward.
    pub not_forwarded: u64,
    /// Passed round among the agents of a node.
    pub loops: u64,
    /// Address translators, by what they say themselves: [`Nat::counters`](super::nat::Nat::counters).
    pub nat: u64,
    /// Tunnels, by what they say themselves: [`Relay::refused`](super::relay::Relay::refused).
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
