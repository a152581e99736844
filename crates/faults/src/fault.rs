//! Faults, and the hosts and paths that they happen to.

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
    /// Both.
    Both,
}

impl Way {
    /// Whether it has the uplink in it.
    #[must_use]
    pub const fn up(self) -> bool {
        !matches!(self, Way::Down)
    }

    /// Whether it has the downlink in it.
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

/// A path of a host, both by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathRef {
    /// Which host.
    pub host: usize,
    /// Which of its paths.
    pub path: usize,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A host, by number.
    Host(usize),
    /// One of the protocol's others, by its place in [`fixed`](crate::Protocol::fixed).
    Fixed(usize),
}

/// One fault, or the end of one. A fault that makes no sense has no effect, so any subset of a schedule is a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Of the link of a path.
    Link(PathRef, Way, LinkFault),
    /// All paths of a host are cut.
    CutAll(usize),
    /// The interface goes.
    Gone(PathRef),
    /// It comes back, or stays as it is.
    Back(PathRef),
    /// The interface gets another address, and its node knows.
    Renumber(PathRef),
    /// The interface is replaced by one with another name.
    Rename(PathRef),
    /// A NAT on the way forgets: the others see another source, and packets to the old one are lost.
    Rebind(PathRef),
    /// A node restarts with what it has stored.
    Restart(Node),
    /// A node stands still for so many milliseconds; what comes meanwhile waits.
    Stall(Node, u16),
    /// All is mended at once: links, interfaces, and what the protocol mends.
    MendAll,
    /// An order of the protocol, in its own words.
    Own(String),
}

/// A fault and its time, in milliseconds from the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// When.
    pub at_ms: u64,
    /// What.
    pub fault: Fault,
}

/// A path at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathShape {
    /// One-way delay from the host, in milliseconds.
    pub up_ms: u16,
    /// One-way delay to the host, in milliseconds.
    pub down_ms: u16,
    /// Its addresses are of IPv6, without a translator on the way.
    pub v6: bool,
}

/// A host at the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostShape {
    /// Its settings, in the words of the protocol.
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
    /// Delays from 1 to 80 ms, each direction its own. Of IPv4.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> PathShape {
        let mut delay = || 1 + rng.below(80) as u16;
        PathShape { up_ms: delay(), down_ms: delay(), v6: false }
    }
}

impl PathRef {
    /// Draws one.
    #[must_use]
    pub fn draw(rng: &mut Rng, hosts: &[HostShape]) -> PathRef {
        let host = rng.below(hosts.len() as u64) as usize;
        PathRef { host, path: rng.below(hosts[host].paths.len() as u64) as usize }
    }
}

impl Way {
    /// Draws one.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Way {
        [Way::Up, Way::Down, Way::Both][rng.below(3) as usize]
    }
}

impl Fault {
    /// The path that the fault concerns.
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

    /// The host that the fault concerns.
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
