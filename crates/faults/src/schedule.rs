//! Schedules: faults and their times.
//!
//! **Distribution** ([`Schedule::generate`]). The protocol draws its hosts and their paths. Eight to forty faults
//! over six to twenty seconds, in clusters: after one fault the next follows within 300 ms with probability ½
//! (faults that interact find more), else within twice the mean distance; one cluster in ten is followed by "all
//! mended" and six seconds of calm, in which everything must settle. Faults are drawn with the weights in
//! [`Fault::draw`], and the protocol adds more with [`Protocol::draw_more`](crate::Protocol::draw_more). Then the
//! quiet time begins: everything is mended, and [`QUIET_MS`] later the run ends.

use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Rng;
use segue_sim::net::LinkFault;

use crate::fault::{Entry, Fault, HostShape, Node, PathRef, Way};
use crate::protocol::Machines;

/// Duration of the quiet time at the end. A refused host waits eight seconds before it asks again, connection
/// attempts may hang for five, and a dead connection is noticed after ten. Steering may hold back a flapping path
/// for up to a minute, which is not a disagreement: flows are delivered all the same.
pub const QUIET_MS: u64 = 30_000;
/// Duration of a calm period within a run.
pub const CALM_MS: u64 = 6_000;

/// A run: the network at the start, and the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The protocol.
    pub machines: Machines,
    /// Seed of the links' random draws and the machines' secrets.
    pub seed: u64,
    /// Settings of the run, one per line, in the protocol's own words.
    pub settings: Vec<String>,
    /// The hosts.
    pub hosts: Vec<HostShape>,
    /// Ordered by time.
    pub entries: Vec<Entry>,
    /// Start of the quiet time, in milliseconds.
    pub quiet_ms: u64,
}

impl Schedule {
    /// The schedule of a seed. See the module documentation for the distribution.
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
        let mut schedule = Schedule { machines, seed, settings, hosts, entries, quiet_ms };
        machines.draw_more(&mut schedule);
        schedule.entries.sort_by_key(|entry| entry.at_ms);
        schedule
    }

    /// End of the run, in milliseconds.
    #[must_use]
    pub fn end_ms(&self) -> u64 {
        self.quiet_ms + QUIET_MS
    }
}

impl Fault {
    /// Draws a fault, with the weights of this table out of 100. Protocols without changing interfaces use only
    /// the first 61, and 5 for orders.
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
