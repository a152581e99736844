//! What goes wrong, and when.
//!
//! **Distribution** ([`Schedule::generate`]). The protocol draws its hosts and their paths. Eight to forty faults over
//! six to twenty seconds, in clusters: after one fault the next follows within 300 ms with probability ½ (faults that
//! meet each other find more), else within twice the mean distance; one cluster in ten is followed by "all mended" and
//! six seconds of calm, in which everything must settle. A fault is drawn by the weights in [`Fault::draw`], what else
//! the protocol wants by [`Protocol::draw_more`](crate::Protocol::draw_more). Then the quiet time: all is mended, and
//! [`QUIET_MS`] later the run ends.

use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Rng;
use segue_sim::net::LinkFault;

use crate::protocol::Machines;

/// How long the quiet time at the end is. A host that was refused waits eight seconds before it asks again,
/// connection attempts may hang for five, a dead connection is noticed after three, and a path that flapped
/// may be held back by steering for up to a minute, which is no disagreement: flows deliver all the same.
pub const QUIET_MS: u64 = 30_000;
/// How long the calm in the middle of a run is.
pub const CALM_MS: u64 = 6_000;

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
}

/// A host at the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostShape {
    /// Its settings, in the words of the protocol.
    pub settings: String,
    /// Its paths.
    pub paths: Vec<PathShape>,
}

/// A run: the network at the start, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What it is for.
    pub machines: Machines,
    /// Seed of the links' draws and the machines' secrets.
    pub seed: u64,
    /// Settings for all, a line each, in the words of the protocol.
    pub settings: Vec<String>,
    /// The hosts.
    pub hosts: Vec<HostShape>,
    /// In the order of time.
    pub entries: Vec<Entry>,
    /// When the quiet time begins, in milliseconds.
    pub quiet_ms: u64,
}

impl Schedule {
    /// The schedule of a seed. See the module's text for the distribution.
    #[must_use]
    pub fn generate(machines: Machines, seed: u64) -> Schedule {
        let mut rng = Rng::new(seed ^ 0x6661_756c_7473);
        let (settings, hosts) = machines.draw(&mut rng);
        let span_ms = 6_000 + rng.below(14_000);
        let faults = 8 + rng.below(33);
        let mean = span_ms / faults;
        let mut at_ms = 1_000 + rng.below(1_500);
        let mut entries = Vec::new();
        for _ in 0..faults {
            let fault = Fault::draw(&mut rng, &hosts, machines);
            entries.push(Entry { at_ms, fault });
            if rng.chance(0.5) {
                at_ms += rng.below(300);
            } else if rng.chance(0.2) {
                entries.push(Entry { at_ms: at_ms + 500, fault: Fault::MendAll });
                at_ms += 500 + CALM_MS;
            } else {
                at_ms += rng.below(2 * mean);
            }
        }
        let quiet_ms = at_ms + 500;
        machines.draw_more(seed, &hosts, quiet_ms, &mut entries);
        entries.sort_by_key(|entry| entry.at_ms);
        Schedule { machines, seed, settings, hosts, entries, quiet_ms }
    }

    /// When the run ends, in milliseconds.
    #[must_use]
    pub fn end_ms(&self) -> u64 {
        self.quiet_ms + QUIET_MS
    }
}

impl PathShape {
    /// Delays from 1 to 80 ms, each direction its own.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> PathShape {
        let mut delay = || 1 + rng.below(80) as u16;
        PathShape { up_ms: delay(), down_ms: delay() }
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
    /// Draws a fault. The weights are those of this table, of 100; without interfaces that change, the first 61 and 5 of
    /// orders.
    fn draw(rng: &mut Rng, hosts: &[HostShape], machines: Machines) -> Fault {
        let at = PathRef::draw(rng, hosts);
        let way = Way::draw(rng);
        let permille = 20 + rng.below(480) as u16;
        let weight = rng.below(if machines.moves() { 100 } else { 66 });
        let link = |fault| Fault::Link(at, way, fault);
        match weight {
            0..16 => link(LinkFault::Cut),
            16..32 => Fault::Link(at, Way::Both, LinkFault::Mend),
            32..38 => link(LinkFault::Loss(permille)),
            38..42 => link(LinkFault::Burst(1 + rng.below(12) as u16)),
            42..46 => link(LinkFault::Duplicate(permille)),
            46..50 => link(LinkFault::Reorder(permille, 1 + rng.below(100) as u16)),
            50..54 => link(LinkFault::Delay(1 + rng.below(80) as u16)),
            54..58 => Fault::Restart(Node::Host(at.host)),
            58..61 => {
                let fixed = machines.fixed().len() as u64;
                Fault::Restart(Node::Fixed(rng.below(fixed) as usize))
            }
            66..71 => Fault::Gone(at),
            71..76 => Fault::Back(at),
            76..79 => Fault::Renumber(at),
            79..81 => Fault::Rename(at),
            81..84 => Fault::Rebind(at),
            84..87 => Fault::CutAll(at.host),
            _ => machines.draw_order(rng, at).map_or_else(|| link(LinkFault::Cut), Fault::Own),
        }
    }

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
            Fault::Restart(Node::Host(host)) | Fault::CutAll(host) => Some(*host),
            Fault::Own(order) => order.split_whitespace().nth(1)?.split('.').next()?.parse().ok(),
            _ => self.path().map(|at| at.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_in_order_and_differ_from_seed_to_seed() {
        for machines in Machines::ALL {
            for seed in 0..200 {
                let schedule = Schedule::generate(machines, seed);
                assert_eq!(schedule, Schedule::generate(machines, seed));
                assert_ne!(schedule.entries, Schedule::generate(machines, seed + 1).entries);
                assert!(schedule.entries.is_sorted_by_key(|entry| entry.at_ms));
                assert!(schedule.entries.last().unwrap().at_ms < schedule.quiet_ms);
                for path in schedule.entries.iter().filter_map(|entry| entry.fault.path()) {
                    assert!(path.path < schedule.hosts[path.host].paths.len());
                }
            }
        }
    }
}
