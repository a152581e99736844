//! The effect of each handover on a stream: paper 4, section 4, Fig. 4.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use segue_clock::{Span, Time};

use super::meter::{MeterConfig, Outcome};

/// Handovers with this many lost packets or more are counted together.
pub(crate) const MOST_LOST: usize = 32;

/// Maximum number of handovers recorded individually; all of them are counted.
pub const MAX_RECORDS: usize = 4_096;

/// Maximum number of handover notices waiting for their first packet. Further ones are ignored.
const MAX_WAITING: usize = 65_536;

/// Statistics of the packets sent in a handover's interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// Time of the handover.
    pub at: Time,
    /// Packets sent in its interval.
    pub sent: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that arrived more than once.
    pub duplicated: u64,
    /// Packets that were reordered.
    pub reordered: u64,
    /// The maximum delay minus the forwarding delay, in nanoseconds. If the forwarding delay is the minimum, this
    /// is the maximum delay itself, because the minimum is known only at the end.
    pub delay_max_ns: Option<i64>,
    /// The maximum delay variation relative to the previous packet, in nanoseconds.
    pub jitter_max_ns: Option<i64>,
}

/// The handovers of a stream. The interval of a handover begins `lead` before its instant, since packets in
/// flight at that instant are lost with it, and ends after `span` or where the next one begins.
#[derive(Clone, Debug)]
pub struct Handovers {
    lead: Span,
    span: Option<Span>,
    merge: Span,
    /// Notices of handovers without a decided packet yet, ascending.
    waiting: VecDeque<Time>,
    last_opened: Option<Time>,
    open: Option<Handover>,
    records: Vec<Handover>,
    closed: u64,
    without_packets: u64,
    by_lost: Vec<u64>,
    lost: u64,
    most_lost: u64,
    worst_delay: Mean,
    worst_jitter: Mean,
    outside: Handover,
}

/// Sum and count.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(i128, u64);

impl Mean {
    fn add(&mut self, value: Option<i64>) {
        self.0 += i128::from(value.unwrap_or(0));
        self.1 += u64::from(value.is_some());
    }

    fn get(self) -> Option<f64> {
        (self.1 > 0).then(|| self.0 as f64 / self.1 as f64)
    }
}

impl Handovers {
    pub(super) fn new(config: &MeterConfig) -> Handovers {
        Handovers {
            // A packet is decided `loss_after` after it was sent; the notice must have arrived by then.
            lead: Span(config.handover_lead.0.min(config.loss_after.0)),
            span: config.handover_span,
            merge: config.handover_merge,
            waiting: VecDeque::new(),
            last_opened: None,
            open: None,
            records: Vec::new(),
            closed: 0,
            without_packets: 0,
            by_lost: vec![0; MOST_LOST + 1],
            lost: 0,
            most_lost: 0,
            worst_delay: Mean::default(),
            worst_jitter: Mean::default(),
            outside: Handover::default(),
        }
    }

    /// Notes a handover at `at`; notices before the last handover with decided packets are ignored. Another
    /// notice within `merge` refers to the same handover, reported by several sources.
    pub(super) fn notice(&mut self, at: Time) {
        let place = self.waiting.partition_point(|known| *known <= at);
        let before = place.checked_sub(1).map(|last| self.waiting[last]).or(self.last_opened);
        let near = |known: &Time| at.since(*known).max(known.since(at)) < self.merge;
        let passed = before.is_some_and(|before| at <= before);
        if passed || before.iter().chain(self.waiting.get(place)).any(near) {
            return;
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.insert(place, at);
        }
    }

    /// Notes the outcome of a packet. Packets are decided in the order in which they were sent.
    pub(super) fn decided(&mut self, sent: Time, outcome: &Outcome) {
        while let Some(next) = self.waiting.front().copied().filter(|at| *at - self.lead <= sent) {
            self.waiting.pop_front();
            self.close();
            self.last_opened = Some(next);
            self.open = Some(Handover { at: next, ..Handover::default() });
        }
        let within = |at: Time| self.span.is_none_or(|span| sent < at - self.lead + span);
        match self.open.as_mut().filter(|open| within(open.at)) {
            Some(open) => open.add(outcome),
            None => self.outside.add(outcome),
        }
    }

    fn close(&mut self) {
        let Some(closed) = self.open.take() else { return };
        self.closed += 1;
        if closed.sent == 0 {
            self.without_packets += 1;
        } else {
            self.by_lost[(closed.lost as usize).min(MOST_LOST)] += 1;
        }
        self.lost += closed.lost;
        self.most_lost = self.most_lost.max(closed.lost);
        self.worst_delay.add(closed.delay_max_ns);
        self.worst_jitter.add(closed.jitter_max_ns);
        if self.records.len() < MAX_RECORDS {
            self.records.push(closed);
        }
    }

    /// Ends the measurement. Handovers after `now` did not happen.
    pub(super) fn finish(&mut self, now: Time) {
        self.close();
        while let Some(at) = self.waiting.pop_front().filter(|at| *at <= now) {
            self.open = Some(Handover { at, ..Handover::default() });
            self.close();
        }
    }

    /// The first [`MAX_RECORDS`] handovers in order, including the one still open at the end.
    #[must_use]
    pub fn records(&self) -> &[Handover] {
        &self.records
    }

    /// Number of handovers.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.closed
    }

    /// Number of handovers without packets in their interval; they are ignored in loss statistics.
    #[must_use]
    pub(crate) fn without_packets(&self) -> u64 {
        self.without_packets
    }

    /// Packets lost in all handovers.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Packets lost in the worst handover.
    #[must_use]
    pub(crate) fn most_lost(&self) -> u64 {
        self.most_lost
    }

    /// The mean of [`Handover::delay_max_ns`] over all handovers.
    #[must_use]
    pub(crate) fn mean_worst_delay_ns(&self) -> Option<f64> {
        self.worst_delay.get()
    }

    /// The mean of [`Handover::jitter_max_ns`] over all handovers.
    #[must_use]
    pub(crate) fn mean_worst_jitter_ns(&self) -> Option<f64> {
        self.worst_jitter.get()
    }

    /// Packets sent outside of any handover's interval.
    #[must_use]
    pub fn outside(&self) -> &Handover {
        &self.outside
    }

    /// The share of handovers (with packets) that lost exactly `lost` packets; for [`MOST_LOST`], that many or
    /// more (paper 4, Fig. 4).
    #[must_use]
    pub(crate) fn share_losing(&self, lost: usize) -> Option<f64> {
        let judged = self.closed - self.without_packets;
        let count = self.by_lost.get(lost)?;
        (judged > 0).then(|| *count as f64 / judged as f64)
    }
}

impl Handover {
    fn add(&mut self, outcome: &Outcome) {
        self.sent += 1;
        self.lost += u64::from(outcome.delay_ns.is_none());
        self.duplicated += u64::from(outcome.copies > 1);
        self.reordered += u64::from(outcome.reordered);
        self.delay_max_ns = self.delay_max_ns.max(outcome.delay_ns);
        self.jitter_max_ns = self.jitter_max_ns.max(outcome.jitter_ns);
    }
}
