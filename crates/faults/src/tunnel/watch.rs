//! Observations of the machines, and limits on their output.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Config as Keepalive;
use segue_wire::{MAX_PATHS, ProbeKey};

use super::host::Host;
use crate::Violation;

/// Maximum number of messages and probes per input or tick for each path of the end: the offers of a
/// registration, with a margin.
const MAX_OUTPUTS_PER_PATH: usize = 16;
/// Signalling messages per second of a host with two paths: a registration with its offers, twice, and moves. In
/// addition, a host that has had many interfaces names all that are gone.
const SIGNALS: u32 = 25;
/// Additional messages for each further path: its offer, grant and sizes.
const SIGNALS_PER_PATH: u32 = 5;
/// Additional messages for each fault in this second or the previous one.
const SIGNALS_PER_FAULT: u32 = 15;
/// Questions about the flows of a lossy path, 50 ms apart, and their answers; late ones may arrive together.
const COUNTS_PER_PATH: u32 = 2 * 25;
/// Requests per second on each path beyond 1/T_KA: the edge of the second, a start, two to show a new address,
/// and two to align with the probing times of another path.
const SPARE_PROBES: u32 = 6;
/// Requests per second on each path: twice as many if they ride, since bare requests are also sent on a path that
/// is not up.
fn per_second(keepalive: &Keepalive) -> u32 {
    let periods = (1_000_000_000 / keepalive.t_ka.0) as u32;
    if keepalive.rides { periods * 2 } else { periods }
}

/// Requests per second if detection follows use: questions are eight milliseconds apart, and while one path is
/// questioned each other path gets one as well.
const QUESTIONS: u32 = 250;

/// The last observation of a path at one end.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Index and cookie under which the peer receives; they differ for another path.
    pub(super) tx: (u32, u64),
    pub(super) began: Time,
    /// For a path at the anchor: since when the anchor watches it.
    pub(super) watched: Option<Time>,
    pub(super) counters: [u64; 9],
}

/// Observations of the machines, for comparison with their next state.
pub(super) struct Watch {
    pub(super) hosts: Vec<Load>,
    pub(super) host_paths: Vec<BTreeMap<u8, Seen>>,
    pub(super) anchor_paths: BTreeMap<u32, Seen>,
    /// Slots of the anchor with a known destination.
    pub(super) shown: BTreeSet<u32>,
    /// Slots that have had a path since the anchor's start.
    pub(super) used: BTreeSet<u32>,
    /// K and T_KA in the newest request with each key.
    pub(super) stated: BTreeMap<[u8; 16], (u8, Span)>,
    /// Number of the last probe to each index with its cookie and key.
    pub(super) numbers: BTreeMap<(u32, u64, [u8; 16]), u32>,
    pub(super) answers: Answers,
    /// Messages and probes sent within one event, by each host and the anchor.
    pub(super) outputs: Vec<usize>,
    /// Start of the quiet time.
    pub(super) quiet: Time,
}

/// Messages between a host and the anchor in the current second.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    second: u64,
    signals: u32,
    /// Questions about flows, and their answers.
    counts: u32,
    /// Number of former paths of a host that has had many interfaces; it may report each of them as gone.
    gone: u32,
    requests: u32,
    faults: [u32; 2],
    paths: u32,
    per_second: u32,
}

impl Load {
    fn turn(&mut self, now: Time) {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            let before = if second == self.second + 1 { self.faults[0] } else { 0 };
            (self.second, self.signals, self.requests) = (second, 0, 0);
            self.counts = 0;
            self.faults = [0, before];
        }
    }

    fn recent_faults(&self) -> u32 {
        self.faults[0] + self.faults[1]
    }
}

impl Watch {
    pub(super) fn new(hosts: &[Host], quiet: Time) -> Watch {
        let load = |host: &Host| Load {
            paths: host.paths.len() as u32,
            gone: if host.worn { MAX_PATHS as u32 } else { 0 },
            per_second: if host.follows_use { QUESTIONS } else { per_second(&host.keepalive) },
            ..Load::default()
        };
        Watch {
            hosts: hosts.iter().map(load).collect(),
            host_paths: vec![BTreeMap::new(); hosts.len()],
            anchor_paths: BTreeMap::new(),
            shown: BTreeSet::new(),
            used: BTreeSet::new(),
            stated: BTreeMap::new(),
            numbers: BTreeMap::new(),
            answers: Answers::default(),
            outputs: vec![0; hosts.len() + 1],
            quiet,
        }
    }

    pub(super) fn host_began(&mut self, host: usize) {
        self.host_paths[host].clear();
    }

    /// Removes a path; another one may get its number at the same instant.
    pub(super) fn path_gone(&mut self, host: usize, number: u8) {
        if let Some(gone) = self.host_paths[host].remove(&number) {
            self.numbers.retain(|(index, cookie, _), _| (*index, *cookie) != gone.tx);
        }
    }

    pub(super) fn anchor_began(&mut self) {
        self.anchor_paths.clear();
        self.used.clear();
        self.answers = Answers::default();
    }

    /// A fault that affects a host, or all hosts.
    pub(super) fn on_fault(&mut self, now: Time, host: Option<usize>) {
        for (number, load) in self.hosts.iter_mut().enumerate() {
            load.turn(now);
            load.faults[0] += u32::from(host.is_none_or(|host| host == number));
        }
    }

    /// Starts the count of a new event's outputs.
    pub(super) fn begin(&mut self) {
        self.outputs.fill(0);
    }

    /// Checks the number of packets sent within one event, not counting flow packets.
    pub(super) fn expect_few_outputs(&self) -> Result<(), Violation> {
        let all: u32 = self.hosts.iter().map(|load| load.paths).sum();
        let ends = self.hosts.iter().map(|load| (load.paths, load.gone)).chain([(all, 0)]);
        for (number, (count, (paths, gone))) in self.outputs.iter().zip(ends).enumerate() {
            let most = MAX_OUTPUTS_PER_PATH * paths as usize + gone as usize;
            Violation::unless(*count <= most, "storm", || {
                let who = if number == self.hosts.len() { "the anchor" } else { "a host" };
                format!("{who} says {count} things at once, {most} at most")
            })?;
        }
        Ok(())
    }

    pub(super) fn on_signal(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let load = &mut self.hosts[host];
        load.turn(now);
        load.signals += 1;
        let paths = SIGNALS_PER_PATH * load.paths.saturating_sub(2);
        let most = SIGNALS + paths + 2 * load.gone + SIGNALS_PER_FAULT * load.recent_faults();
        Violation::unless(load.signals <= most, "storm", || {
            format!("{} messages of host {host} in a second, {most} at most", load.signals)
        })
    }

    /// A host asks about its flows, or receives an answer.
    pub(super) fn on_count(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let load = &mut self.hosts[host];
        load.turn(now);
        load.counts += 1;
        let most = COUNTS_PER_PATH * load.paths;
        Violation::unless(load.counts <= most, "storm", || {
            format!("{} counts of host {host} in a second, {most} at most", load.counts)
        })
    }

    pub(super) fn on_request(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let load = &mut self.hosts[host];
        load.turn(now);
        load.requests += 1;
        let most = load.paths * (load.per_second + SPARE_PROBES + 2 * load.recent_faults());
        Violation::unless(load.requests <= most, "storm", || {
            format!("{} requests of host {host} in a second, {most} at most", load.requests)
        })
    }

    /// Requests and unsolicited responses of a path have increasing numbers.
    pub(super) fn expect_newer(
        &mut self,
        to: (u32, u64),
        key: [u8; 16],
        seq: u32,
    ) -> Result<(), Violation> {
        let before = self.numbers.insert((to.0, to.1, key), seq);
        let newer = before.is_none_or(|before| seq.wrapping_sub(before).cast_signed() > 0);
        Violation::unless(newer, "probe numbers grow", || {
            format!("number {seq} after {before:?} to index {}", to.0)
        })
    }

    /// Time since when a path number of a host refers to its current path.
    pub(super) fn host_path_began(&self, host: usize, number: u8) -> Option<Time> {
        self.host_paths[host].get(&number).map(|seen| seen.began)
    }

    /// Time since when the anchor has watched the path in this slot.
    pub(super) fn watched(&self, slot: u32) -> Option<Time> {
        self.anchor_paths.get(&slot).and_then(|seen| seen.watched)
    }

    /// Time since when a slot of the anchor has its current path.
    pub(super) fn slot_began(&self, slot: u32) -> Option<Time> {
        self.anchor_paths.get(&slot).map(|seen| seen.began)
    }

    pub(super) fn quiet(&self) -> Time {
        self.quiet
    }
}

/// Requests that have arrived, by the key of their path.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) newest: BTreeMap<[u8; 16], u32>,
    /// Unanswered requests: when they arrived, and at which slot.
    pub(super) open: BTreeMap<([u8; 16], u32), (Time, u32)>,
}

impl Answers {
    /// A request arrives at a slot. Returns true if it is the newest. An old one is not answered; a new one need
    /// not be unless `waits`.
    pub(super) fn on_request(
        &mut self,
        now: Time,
        slot: u32,
        key: ProbeKey,
        seq: u32,
        waits: bool,
    ) -> bool {
        let newest = self.newest.entry(key.0).or_insert(seq.wrapping_sub(1));
        let newer = seq.wrapping_sub(*newest).cast_signed() > 0;
        if newer {
            *newest = seq;
            if waits {
                self.open.insert((key.0, seq), (now, slot));
            }
        }
        newer
    }

    /// A response leaves.
    pub(super) fn on_response(&mut self, key: ProbeKey, seq: u32) {
        self.open.remove(&(key.0, seq));
    }
}
