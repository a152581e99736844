//! Faults, and the hosts and paths that they affect.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::Rng;
use segue_sim::net::LinkFault;

/// Directions of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the host to the anchor.
    Up,
    /// From the anchor to the host.
    Down,
    /// Both directions.
    Both,
}

impl Way {
    /// Returns true if the uplink is included.
    #[must_use]
    pub const fn up(self) -> bool {
        !matches!(self, Way::Down)
    }

    /// Returns true if the downlink is included.
    #[must_use]
    pub const fn down(self) -> bool {
        !matches!(self, Way::Up)
    }

    /// The name in a schedule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Up => "up",
            Way::Down => "down",
            Way::Both => "both",
        }
    }
}

/// A path of a host, identified by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathRef {
    /// Number of the host.
    pub host: usize,
    /// Number of the path.
    pub path: usize,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A host, by number.
    Host(usize),
    /// Another node of the protocol, by its index in [`fixed`](crate::Protocol::fixed).
    Fixed(usize),
}

/// A fault, or the end of one. A fault that does not apply has no effect, so any subset of a schedule is a valid
/// schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A fault of a path's link.
    Link(PathRef, Way, LinkFault),
    /// Cut all paths of a host.
    CutAll(usize),
    /// Remove the interface.
    Gone(PathRef),
    /// Restore the interface, if it was removed.
    Back(PathRef),
    /// Assign another address to the interface; its node notices.
    Renumber(PathRef),
    /// Replace the interface by one with another name.
    Rename(PathRef),
    /// A NAT on the path forgets its mappings: the peers see another source, and packets to the old one are lost.
    Rebind(PathRef),
    /// Restart a node with its stored records.
    Restart(Node),
    /// Stall a node for this many milliseconds; arriving packets wait.
    Stall(Node, u16),
    /// Mend everything at once: links, interfaces, and the protocol's own faults.
    MendAll,
    /// An order of the protocol, in its own words.
    Own(String),
}

/// A fault and its time, in milliseconds from the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The time.
    pub at_ms: u64,
    /// The fault.
    pub fault: Fault,
}

/// Initial state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathShape {
    /// One-way delay from the host, in milliseconds.
    pub up_ms: u16,
    /// One-way delay to the host, in milliseconds.
    pub down_ms: u16,
    /// It uses IPv6 addresses, without a translator on the way.
    pub v6: bool,
}

/// Initial state of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostShape {
    /// Its settings, in the protocol's own words.
    pub settings: String,
    /// Its paths.
    pub paths: Vec<PathShape>,
}

impl Entry {
    /// An order of the protocol.
    #[must_use]
    pub fn own(at_ms: u64, order: impl ToString) -> Entry {
        Entry { at_ms, fault: Fault::Own(order.to_string()) }
    }
}

impl PathShape {
    /// An IPv4 path with delays from 1 to 80 ms, independent for each direction.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> PathShape {
        let mut delay = || 1 + rng.below(80) as u16;
        PathShape { up_ms: delay(), down_ms: delay(), v6: false }
    }
}

impl PathRef {
    /// Draws a path.
    #[must_use]
    pub fn draw(rng: &mut Rng, hosts: &[HostShape]) -> PathRef {
        let host = rng.below(hosts.len() as u64) as usize;
        PathRef { host, path: rng.below(hosts[host].paths.len() as u64) as usize }
    }
}

impl Way {
    /// Draws a direction.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Way {
        [Way::Up, Way::Down, Way::Both][rng.below(3) as usize]
    }
}

impl Fault {
    /// The path that the fault affects.
    #[must_use]
    pub fn path(&self) -> Option<PathRef> {
        match self {
            Fault::Link(at, ..)
            | Fault::Gone(at)
            | Fault::Back(at)
            | Fault::Renumber(at)
            | Fault::Rename(at)
            | Fault::Rebind(at) => Some(*at),
            Fault::Own(order) => order.split_whitespace().nth(1)?.parse().ok(),
            _ => None,
        }
    }

    /// The host that the fault affects.
    #[must_use]
    pub fn host(&self) -> Option<usize> {
        match self {
            Fault::Restart(Node::Host(host))
            | Fault::Stall(Node::Host(host), _)
            | Fault::CutAll(host) => Some(*host),
            Fault::Own(order) => order.split_whitespace().nth(1)?.split('.').next()?.parse().ok(),
            _ => self.path().map(|at| at.host),
        }
    }
}
