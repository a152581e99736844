//! What a shard found, and how the shards' findings are put together.

use alloc::vec;
use alloc::vec::Vec;

use segue_tunnel::Cause;

/// Findings of one shard, or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Events that happened.
    pub events: u64,
    /// Hosts that the anchor gave addresses. In an outage of all its paths a host has no connection.
    pub registered: u64,
    /// Paths that were up at the end at both ends, or in an outage.
    pub accounted: u64,
    /// Messages of signalling, handshakes included, that came to an anchor or a host.
    pub signals: u64,
    /// Packets of the tunnels that an end refused.
    pub refused: u64,
    /// Orders of a machine that could not be obeyed.
    pub wrong: u64,
    /// By class, in the order of the scenario.
    pub classes: Vec<ClassStats>,
    /// By anchor.
    pub anchors: Vec<Load>,
    /// Requests that hosts sent in the time that counts.
    pub requests_sent: u64,
    /// Responses that the hosts' machines saw, and that their packet paths kept.
    pub seen: u64,
    /// See `seen`.
    pub kept: u64,
    /// Handovers at the hosts by cause, in the order of [`Cause::ALL`].
    pub handovers: [u64; Cause::ALL.len()],
    /// Downlinks that anchors redirected.
    pub redirected: u64,
    /// Packets of flows.
    pub flows: FlowStats,
}

/// Findings of the paths of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassStats {
    /// Exchanges that no outage touched, in the time that counts.
    pub exchanges: u64,
    /// Of these, the ones with K − 1 such before them, which can end K unanswered in a row.
    pub possible: u64,
    /// Of these, the ones that did, which is what eq. 4 counts.
    pub windows: u64,
    /// Outages that were over by the end.
    pub outages: u64,
    /// At hosts and at anchors.
    pub ends: [EndStats; 2],
}

/// Findings of one end of the paths of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndStats {
    /// Time from the start of an outage to when this end called the path down, in microseconds.
    pub detections: Vec<u32>,
    /// Outages longer than eq. 1 in which this end did not, though it held the path for up before.
    pub missed: u64,
    /// How often it called a path down that was not in an outage.
    pub false_positives: u64,
    /// How often it did when an outage had ended since the last sign of life.
    pub late: u64,
}

/// What an anchor had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that came in the time that counts.
    pub requests: u64,
    /// In the busiest second of it.
    pub most_requests: u64,
    /// Messages of signalling that came, in the whole run.
    pub signals: u64,
    /// In the busiest second.
    pub most_signals: u64,
}

/// Findings about the packets of applications.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// Flows.
    pub flows: u64,
    /// Packets sent, up and down.
    pub sent: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Gaps of changes from one path to another because of an outage, in microseconds: time from the last
    /// packet over the old path to the first over the new, less the interval of the packets.
    pub interruptions: Vec<u32>,
    /// The same for other changes.
    pub planned: Vec<u32>,
}

impl Stats {
    /// None yet, of so many classes and anchors.
    #[must_use]
    pub fn new(classes: usize, anchors: usize) -> Stats {
        let classes = vec![ClassStats::default(); classes];
        Stats { classes, anchors: vec![Load::default(); anchors], ..Stats::default() }
    }

    /// Adds what the next shard found. The order of the calls is that of the shards.
    pub fn merge(&mut self, other: Stats) {
        self.events += other.events;
        self.registered += other.registered;
        self.accounted += other.accounted;
        self.signals += other.signals;
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.requests_sent += other.requests_sent;
        self.seen += other.seen;
        self.kept += other.kept;
        self.redirected += other.redirected;
        for (sum, more) in self.handovers.iter_mut().zip(other.handovers) {
            *sum += more;
        }
        self.anchors.extend(other.anchors);
        if self.classes.is_empty() {
            self.classes = other.classes;
        } else {
            for (sum, more) in self.classes.iter_mut().zip(other.classes) {
                sum.merge(more);
            }
        }
        let (sum, more) = (&mut self.flows, other.flows);
        sum.flows += more.flows;
        sum.sent += more.sent;
        sum.delivered += more.delivered;
        sum.interruptions.extend(more.interruptions);
        sum.planned.extend(more.planned);
    }
}

impl ClassStats {
    fn merge(&mut self, other: ClassStats) {
        self.exchanges += other.exchanges;
        self.possible += other.possible;
        self.windows += other.windows;
        self.outages += other.outages;
        for (sum, more) in self.ends.iter_mut().zip(other.ends) {
            sum.detections.extend(more.detections);
            sum.missed += more.missed;
            sum.false_positives += more.false_positives;
            sum.late += more.late;
        }
    }
}

/// What a list of times says, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// How many.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half are at or below.
    pub median: f64,
    /// 95 % are at or below.
    pub p95: f64,
    /// 99 % are at or below.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// Of times in microseconds; `None` of none.
    #[must_use]
    pub fn of(times_us: &[u32]) -> Option<Distribution> {
        let mut sorted = times_us.to_vec();
        sorted.sort_unstable();
        let count = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let seconds = |us: u32| f64::from(us) / 1e6;
        // Nearest rank.
        let at = |percent: usize| seconds(sorted[(count * percent).div_ceil(100).max(1) - 1]);
        let sum: u64 = sorted.iter().map(|us| u64::from(*us)).sum();
        Some(Distribution {
            count,
            min: seconds(min),
            mean: sum as f64 / count as f64 / 1e6,
            median: at(50),
            p95: at(95),
            p99: at(99),
            max: seconds(max),
        })
    }
}
