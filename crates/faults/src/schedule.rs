//! What goes wrong, and when.
//!
//! **Distribution** ([`Schedule::generate`]). One to three hosts with two or three paths each; K from 1
//! to 5, T_KA from 20 to 200 ms; probes that ride at two hosts of five, drawn apart; one-way delays from 1 to
//! 80 ms, each direction its own. Eight to forty faults over six to twenty seconds, in clusters: after one fault
//! the next follows within 300 ms with probability ½ (faults that meet each other find more), else within twice
//! the mean distance; one cluster in ten is followed by "all mended" and six seconds of calm, in which the ends
//! must agree. A fault is drawn by the weights in [`Fault::draw`], those of packet sizes by [`draw_sizes`]. Then
//! the quiet time: all is mended, and [`QUIET_MS`] later the run ends.

use alloc::vec::Vec;

use segue_clock::Rng;

/// How long the quiet time at the end is. A host that was refused waits eight seconds before it asks again,
/// connection attempts may hang for five, a dead connection is noticed after three, and a path that flapped
/// may be held back by steering for up to a minute, which is no disagreement: flows deliver all the same.
pub const QUIET_MS: u64 = 30_000;
/// How long the calm in the middle of a run is.
pub const CALM_MS: u64 = 6_000;

/// Which machines a schedule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machines {
    /// Hosts and an anchor, with tunnels between them.
    Tunnel,
    /// One estimator at each end of one path.
    Keepalive,
}

impl Machines {
    /// All of them.
    pub const ALL: [Machines; 2] = [Machines::Tunnel, Machines::Keepalive];

    /// The name in a schedule and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Machines::Tunnel => "tunnel",
            Machines::Keepalive => "keepalive",
        }
    }

    /// The machines of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Machines> {
        Machines::ALL.into_iter().find(|machines| machines.name() == name)
    }
}

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

/// One fault, or the end of one. A fault that makes no sense has no effect, so any subset of a schedule is a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Packets are lost with this probability, in thousandths.
    Loss(PathRef, Way, u16),
    /// This many of the next packets are lost.
    Burst(PathRef, Way, u16),
    /// Packets arrive twice with this probability, in thousandths; the copy up to 20 ms later.
    Duplicate(PathRef, Way, u16),
    /// Packets are held up with this probability, in thousandths, by up to this many milliseconds, and overtaken.
    Reorder(PathRef, Way, u16, u16),
    /// The one-way delay is this from now on, in milliseconds.
    Delay(PathRef, Way, u16),
    /// Packets above this size are lost silently from now on, in bytes, IP header included.
    Narrow(PathRef, Way, u16),
    /// A router on the way says, truly or not, that a packet was too big for this many bytes.
    TooBig(PathRef, Way, u16),
    /// Nothing arrives any more.
    Cut(PathRef, Way),
    /// Loss, burst, duplication, reordering and cut end; the delay stays, and the size.
    Mend(PathRef, Way),
    /// All paths of a host are cut.
    CutAll(usize),
    /// The interface goes.
    Gone(PathRef),
    /// It comes back, or stays as it is.
    Back(PathRef),
    /// The interface gets another address, and the host knows.
    Renumber(PathRef),
    /// A NAT on the way forgets: the anchor sees another source, and packets to the old one are lost.
    Rebind(PathRef),
    /// A host restarts, with a greater epoch.
    RestartHost(usize),
    /// The anchor restarts with what it has stored.
    RestartAnchor,
    /// A host's signalling connection ends at both ends.
    BreakSignal(usize),
    /// A copy of the host with its keys and an older epoch registers.
    OldCopy(usize),
    /// A host's enrolment ends.
    Unenrol(usize),
    /// The host is enrolled again.
    Enrol(usize),
    /// The operator moves all flows of a host to a path, or leaves them to the steering again.
    Handover(usize, Option<usize>),
    /// The operator switches a path's keepalive.
    Keepalive(PathRef, bool),
    /// A flow of a host, by number, starts or stops.
    Flow(usize, usize, bool),
    /// All is mended at once: links, interfaces, enrolments, keepalives.
    MendAll,
}

/// A fault and its time, in milliseconds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// K: lost probes in a row that declare a path down.
    pub k: u8,
    /// T_KA in milliseconds.
    pub t_ka_ms: u16,
    /// Its probes ride on data.
    pub rides: bool,
    /// Its paths.
    pub paths: Vec<PathShape>,
}

/// A run: the network at the start, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// What it is for.
    pub machines: Machines,
    /// Seed of the links' draws and the machines' secrets.
    pub seed: u64,
    /// The packet paths measure by themselves, and the machines learn from readings.
    pub readings: bool,
    /// Detection follows use, as without a configuration: the bounds are derived from the hosts' K and T_KA.
    pub follows_use: bool,
    /// The hosts.
    pub hosts: Vec<HostShape>,
    /// In the order of time.
    pub entries: Vec<Entry>,
    /// When the quiet time begins, in milliseconds.
    pub quiet_ms: u64,
}

/// Flows of each host.
pub const FLOWS: usize = 3;
/// The initial MTU of a link, IP header included.
pub const MTU: u16 = 1_500;
/// MTUs that a narrowed link has, or is said to have: those of tunnels of many kinds, and one below any IPv6 link's.
const MTUS: [u16; 8] = [1_000, 1_280, 1_330, 1_358, 1_400, 1_420, 1_492, MTU];

impl Schedule {
    /// The schedule of a seed. See the module's text for the distribution.
    #[must_use]
    pub fn generate(machines: Machines, seed: u64) -> Schedule {
        let mut rng = Rng::new(seed ^ 0x6661_756c_7473);
        let tunnel = machines == Machines::Tunnel;
        let mut hosts: Vec<HostShape> = match tunnel {
            true => (0..1 + rng.below(3)).map(|_| HostShape::draw(&mut rng, 0)).collect(),
            false => Vec::from([HostShape::draw(&mut rng, 1)]),
        };
        let readings = tunnel && rng.chance(0.3);
        // Drawn separately, so that existing seeds change only in this.
        let follows_use = tunnel && Rng::new(seed ^ 0x7573_6564).chance(0.3);
        if tunnel {
            let mut rng = Rng::new(seed ^ 0x7269_6465);
            hosts.iter_mut().for_each(|host| host.rides = rng.chance(0.4));
        }
        let span_ms = 6_000 + rng.below(14_000);
        let faults = 8 + rng.below(33);
        let mean = span_ms / faults;
        let mut at_ms = 1_000 + rng.below(1_500);
        let begin = |host| Entry { at_ms: 1_000, fault: Fault::Flow(host, 0, true) };
        let mut entries: Vec<Entry> = (0..hosts.len()).map(begin).collect();
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
        if tunnel {
            draw_sizes(seed, &hosts, quiet_ms, &mut entries);
        }
        Schedule { machines, seed, readings, follows_use, hosts, entries, quiet_ms }
    }

    /// When the run ends, in milliseconds.
    #[must_use]
    pub fn end_ms(&self) -> u64 {
        self.quiet_ms + QUIET_MS
    }
}

/// In two of five runs, links change their MTU, or are said to, one to six times. Drawn separately, as `follows_use`.
fn draw_sizes(seed: u64, hosts: &[HostShape], quiet_ms: u64, entries: &mut Vec<Entry>) {
    let mut rng = Rng::new(seed ^ 0x7369_7a65);
    if !rng.chance(0.4) {
        return;
    }
    for _ in 0..1 + rng.below(6) {
        let host = rng.below(hosts.len() as u64) as usize;
        let at = PathRef { host, path: rng.below(hosts[host].paths.len() as u64) as usize };
        let way = [Way::Up, Way::Down, Way::Both][rng.below(3) as usize];
        let mtu = MTUS[rng.below(MTUS.len() as u64) as usize];
        let fault = match rng.chance(0.8) {
            true => Fault::Narrow(at, way, mtu),
            false => Fault::TooBig(at, way, mtu),
        };
        entries.push(Entry { at_ms: 1_000 + rng.below(quiet_ms - 1_000), fault });
    }
    entries.sort_by_key(|entry| entry.at_ms);
}

impl HostShape {
    /// A host with two or three paths, or with `paths`.
    fn draw(rng: &mut Rng, paths: u64) -> HostShape {
        let k = 1 + rng.below(5) as u8;
        let t_ka_ms = 20 + rng.below(181) as u16;
        let paths = if paths == 0 { 2 + rng.below(2) } else { paths };
        let delay = |rng: &mut Rng| 1 + rng.below(80) as u16;
        let path = |rng: &mut Rng| PathShape { up_ms: delay(rng), down_ms: delay(rng) };
        HostShape { k, t_ka_ms, rides: false, paths: (0..paths).map(|_| path(rng)).collect() }
    }
}

impl Fault {
    /// Draws a fault. The weights are those of this table, of 100; `keepalive` has only the first two columns' faults
    /// of links, restarts and flows.
    fn draw(rng: &mut Rng, hosts: &[HostShape], machines: Machines) -> Fault {
        let host = rng.below(hosts.len() as u64) as usize;
        let paths = hosts[host].paths.len() as u64;
        let at = PathRef { host, path: rng.below(paths) as usize };
        let way = [Way::Up, Way::Down, Way::Both][rng.below(3) as usize];
        let permille = 20 + rng.below(480) as u16;
        let on = rng.chance(0.6);
        let weight = rng.below(if machines == Machines::Tunnel { 100 } else { 66 });
        match weight {
            0..16 => Fault::Cut(at, way),
            16..32 => Fault::Mend(at, Way::Both),
            32..38 => Fault::Loss(at, way, permille),
            38..42 => Fault::Burst(at, way, 1 + rng.below(12) as u16),
            42..46 => Fault::Duplicate(at, way, permille),
            46..50 => Fault::Reorder(at, way, permille, 1 + rng.below(100) as u16),
            50..54 => Fault::Delay(at, way, 1 + rng.below(80) as u16),
            54..58 => Fault::RestartHost(host),
            58..61 => Fault::RestartAnchor,
            61..64 => Fault::Keepalive(at, on),
            64..66 => Fault::Flow(host, rng.below(FLOWS as u64) as usize, on),
            66..71 => Fault::Gone(at),
            71..76 => Fault::Back(at),
            76..80 => Fault::Renumber(at),
            80..84 => Fault::Rebind(at),
            84..88 => Fault::BreakSignal(host),
            88..90 => Fault::OldCopy(host),
            90..92 => Fault::Unenrol(host),
            92..94 => Fault::Enrol(host),
            94..97 => Fault::Handover(host, on.then_some(at.path)),
            _ => Fault::CutAll(host),
        }
    }

    /// The path that the fault concerns.
    #[must_use]
    pub fn path(&self) -> Option<PathRef> {
        match self {
            Fault::Loss(at, ..)
            | Fault::Burst(at, ..)
            | Fault::Duplicate(at, ..)
            | Fault::Reorder(at, ..)
            | Fault::Delay(at, ..)
            | Fault::Narrow(at, ..)
            | Fault::TooBig(at, ..)
            | Fault::Cut(at, _)
            | Fault::Mend(at, _)
            | Fault::Gone(at)
            | Fault::Back(at)
            | Fault::Renumber(at)
            | Fault::Rebind(at)
            | Fault::Keepalive(at, _) => Some(*at),
            Fault::Handover(host, Some(path)) => Some(PathRef { host: *host, path: *path }),
            _ => None,
        }
    }

    /// The host that the fault concerns.
    #[must_use]
    pub fn host(&self) -> Option<usize> {
        match self {
            Fault::RestartHost(host)
            | Fault::BreakSignal(host)
            | Fault::OldCopy(host)
            | Fault::Unenrol(host)
            | Fault::Enrol(host)
            | Fault::Handover(host, _)
            | Fault::CutAll(host)
            | Fault::Flow(host, ..) => Some(*host),
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
