//! Statistics of a shard, and their aggregation.

use alloc::vec;
use alloc::vec::Vec;

use segue_tunnel::Cause;

/// Statistics of one or more shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Number of events.
    pub events: u64,
    /// Hosts that have an address from their anchor. A host keeps no connection while all its paths are in an outage.
    pub registered: u64,
    /// Paths that were up at both ends when the run ended, or in an outage.
    pub accounted: u64,
    /// Signalling messages, including handshakes, that arrived at an anchor or a host.
    pub signals: u64,
    /// Tunnel packets that an end refused.
    pub refused: u64,
    /// Requests of a machine that could not be carried out.
    pub wrong: u64,
    /// By class, in the order of the scenario.
    pub classes: Vec<ClassStats>,
    /// By anchor.
    pub anchors: Vec<Load>,
    /// Requests that hosts sent during the measurement.
    pub requests_sent: u64,
    /// Responses that reached the hosts' machines.
    pub seen: u64,
    /// Responses that the hosts' packet paths handled alone.
    pub kept: u64,
    /// Handovers of hosts by cause, in the order of [`Cause::ALL`].
    pub handovers: [u64; Cause::ALL.len()],
    /// Number of downlinks that anchors redirected.
    pub redirected: u64,
    /// Packets of flows.
    pub flows: FlowStats,
}

/// Statistics of the paths of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassStats {
    /// Exchanges during the measurement that no outage touched.
    pub exchanges: u64,
    /// Those of them with at least K − 1 such exchanges directly before, so that K in a row can be unanswered.
    pub possible: u64,
    /// Those of them that ended K unanswered exchanges in a row, which eq. 4 counts.
    pub windows: u64,
    /// Outages that had ended by the end of the run.
    pub outages: u64,
    /// At hosts and at anchors.
    pub ends: [EndStats; 2],
}

/// Statistics of one end of the paths of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndStats {
    /// Times from the start of an outage until this end reported the path as down, in microseconds.
    pub detections: Vec<u32>,
    /// Outages longer than eq. 1 that this end did not report, although it believed the path to be up before.
    pub missed: u64,
    /// Number of times this end reported a path as down outside of outages.
    pub false_positives: u64,
    /// Number of such reports after an outage that ended since the last sign of life. They are not false positives.
    pub late: u64,
}

/// Load of an anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that arrived during the measurement.
    pub requests: u64,
    /// Requests in the busiest second of the measurement.
    pub most_requests: u64,
    /// Signalling messages that arrived in the whole run.
    pub signals: u64,
    /// Signalling messages in the busiest second.
    pub most_signals: u64,
}

/// Statistics of application traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// Number of flows.
    pub flows: u64,
    /// Packets sent, in both directions.
    pub sent: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Gaps at changes of the path because of an outage, in microseconds: time from the last packet over the old path
    /// to the first over the new one, minus the packet interval.
    pub interruptions: Vec<u32>,
    /// Gaps at other changes of the path, in microseconds.
    pub planned: Vec<u32>,
}

impl Stats {
    /// Empty statistics for this number of classes and anchors.
    #[must_use]
    pub fn new(classes: usize, anchors: usize) -> Stats {
        let classes = vec![ClassStats::default(); classes];
        Stats { classes, anchors: vec![Load::default(); anchors], ..Stats::default() }
    }

    /// Adds the statistics of the next shard. Call it in the order of the shards.
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

/// Summary of a list of times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// Number of values.
    pub count: usize,
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// 50th percentile.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Distribution {
    /// Summarizes times given in microseconds; `None` if there are none.
    #[must_use]
    pub fn of(times_us: &[u32]) -> Option<Distribution> {
        let mut sorted = times_us.to_vec();
        sorted.sort_unstable();
        let count = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let seconds = |us: u32| f64::from(us) / 1e6;
        // Nearest-rank percentile.
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
