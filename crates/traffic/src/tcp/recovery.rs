//! The common part of all sender variants: their shared state, and the interface of a variant.

use alloc::collections::VecDeque;

use segue_clock::{Deadline, Time};

use super::config::{Config, Counting, Growth, Halving};
use super::rto::Estimator;
use super::segment::Sack;

/// An acknowledgement, in units.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// The first missing unit.
    pub next: u64,
    /// Ranges that arrived beyond it.
    pub sack: Sack,
    /// Sending time of the segment that it answers, from the echoed timestamp.
    pub echo: Option<Time>,
}

/// A segment to send: the units `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// First unit.
    pub start: u64,
    /// The unit after the last.
    pub end: u64,
    /// The data were sent before.
    pub retransmission: bool,
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Segments sent, including retransmissions.
    pub segments: u64,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Losses detected without a timeout.
    pub fast_retransmits: u64,
}

/// Response of a variant to acknowledgements and losses. Each variant has its file; [`Core`] holds the shared
/// part.
pub trait Recovery {
    /// Handles an acknowledgement: of new data (`ack.next > core.una`), a duplicate (equal), or an old one. Sends
    /// everything that it permits.
    fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack);

    /// Handles a retransmission timeout.
    fn on_timeout(&mut self, core: &mut Core, now: Time);

    /// Sends as much as the window allows: at the start, and when the application offers data.
    fn fill(&mut self, core: &mut Core, now: Time) {
        core.fill(now, core.window(), None);
    }

    /// A segment was sent during the last call.
    fn on_sent(&mut self, _core: &mut Core, _now: Time, _segment: Transmit) {}

    /// An additional timer of the variant.
    fn deadline(&self, _core: &Core) -> Deadline {
        None
    }

    /// Handles the expiry of that timer.
    fn on_timer(&mut self, _core: &mut Core, _now: Time) {}
}

/// State and actions shared by the variants. Windows and numbers are in units.
#[derive(Clone, Debug)]
pub struct Core {
    /// The configuration.
    pub config: Config,
    /// Units in a full segment: 1, or its size in bytes.
    pub smss: u64,
    /// First unit that is not acknowledged.
    pub una: u64,
    /// Next unit to send; below `max` after a step back.
    pub next: u64,
    /// The unit after the last one ever sent.
    pub max: u64,
    /// The unit after the last one offered by the application.
    pub limit: u64,
    /// Congestion window.
    pub cwnd: f64,
    /// Slow-start threshold.
    pub ssthresh: f64,
    /// Window inflation by duplicate acknowledgements.
    pub inflation: f64,
    /// Consecutive duplicate acknowledgements.
    pub dupacks: u32,
    /// Units sent by Limited Transmit, which do not count as outstanding when a loss halves the window (RFC 5681,
    /// section 3.2, step 2).
    limited: u64,
    /// `max` at the last loss, detected by duplicates or by the timer.
    pub recover: u64,
    /// Round-trip estimator.
    pub rtt: Estimator,
    /// Expiry of the retransmission timer.
    pub rto_at: Option<Time>,
    /// Counters.
    pub sent: Sent,
    /// The segment being timed: its first unit and sending time.
    timed: Option<(u64, Time)>,
    pub(super) out: VecDeque<Transmit>,
    /// Number of segments in `out` already reported to the variant.
    pub(super) told: usize,
}

impl Core {
    pub(super) fn new(config: Config) -> Core {
        let smss = match config.counting {
            Counting::Packets => 1,
            Counting::Bytes => u64::from(config.mss),
        };
        let ssthresh = config.initial_ssthresh.unwrap_or(config.window);
        Core {
            config,
            smss,
            una: 0,
            next: 0,
            max: 0,
            limit: 0,
            cwnd: (u64::from(config.initial_window) * smss) as f64,
            ssthresh: (u64::from(ssthresh) * smss) as f64,
            inflation: 0.0,
            dupacks: 0,
            limited: 0,
            recover: 0,
            rtt: Estimator::new(config.rto),
            rto_at: None,
            sent: Sent::default(),
            timed: None,
            out: VecDeque::new(),
            told: 0,
        }
    }

    /// Units in a full segment, for calculations with windows.
    #[must_use]
    pub(crate) fn smss_f64(&self) -> f64 {
        self.smss as f64
    }

    /// The maximum window in units.
    #[must_use]
    pub fn max_window(&self) -> u64 {
        u64::from(self.config.window) * self.smss
    }

    /// The usable window: congestion window and inflation in whole units, limited to the maximum.
    #[must_use]
    pub fn window(&self) -> u64 {
        (self.cwnd as u64 + self.inflation as u64).min(self.max_window())
    }

    /// Outstanding data, in units.
    #[must_use]
    pub fn flight(&self) -> u64 {
        self.max - self.una
    }

    /// Unsent units for which the receiver has room; less than a segment only if there are no more.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        let room = (self.una + self.max_window()).saturating_sub(self.max);
        let ready = self.limit - self.max;
        if room >= self.smss || room >= ready { ready.min(room) } else { 0 }
    }

    /// Half of the quantity that [`Halving`] selects, in units.
    #[must_use]
    pub fn half(&self) -> f64 {
        match self.config.halving {
            Halving::Window => (self.cwnd + self.inflation).min(self.max_window() as f64) / 2.0,
            Halving::WholeWindow => (self.window() / self.smss / 2 * self.smss) as f64,
            Halving::Flight => (self.flight() - self.limited) as f64 / 2.0,
        }
    }

    /// Sets the slow-start threshold to half, in whole units and at least two segments.
    pub(crate) fn cut_ssthresh(&mut self) {
        self.ssthresh = ((self.half() as u64).max(2 * self.smss)) as f64;
    }

    /// Returns true if a run of duplicates may start a fast retransmit.
    #[must_use]
    pub(crate) fn may_retransmit_fast(&self) -> bool {
        !self.config.careful || self.una > self.recover || self.recover == 0
    }

    /// Processes an acknowledgement of new data: RTT, timer and numbers. `restart` restarts the timer.
    pub fn advance(&mut self, now: Time, ack: &Ack, restart: bool) {
        (self.dupacks, self.limited) = (0, 0);
        self.una = ack.next;
        self.next = self.next.max(ack.next);
        self.max = self.max.max(ack.next);
        self.measure(now, ack);
        if self.una >= self.max && self.next >= self.max {
            self.rto_at = None;
        } else if restart {
            self.arm(now);
        }
    }

    fn measure(&mut self, now: Time, ack: &Ack) {
        if let Some(sent) = ack.echo {
            self.rtt.sample(now, sent, true);
        }
        let Some((unit, sent)) = self.timed else { return };
        if ack.next > unit {
            self.timed = None;
            self.rtt.forget_backoff();
            if ack.echo.is_none() {
                self.rtt.sample(now, sent, false);
            }
        }
    }

    /// Opens the congestion window for an acknowledgement of `acked` units.
    pub fn open(&mut self, acked: u64) {
        let smss = self.smss_f64();
        let slow_start = self.cwnd < self.ssthresh;
        self.cwnd += match self.config.growth {
            Growth::PerAck if slow_start => smss,
            Growth::PerAck => smss * smss / self.cwnd,
            Growth::PerByte(most) if slow_start => (acked as f64).min(smss * f64::from(most)),
            Growth::PerByte(_) => smss * acked as f64 / self.cwnd,
        };
        if self.config.clamp {
            self.cwnd = self.cwnd.min(self.max_window() as f64);
        }
    }

    /// Sends the data from `next` on that a `window` beginning at `una` allows, at most `most` segments.
    pub fn fill(&mut self, now: Time, window: u64, most: Option<u32>) {
        let end = (self.una + window).min(self.limit);
        let mut left = most.unwrap_or(u32::MAX);
        while self.next < end && left > 0 {
            let full = self.next + self.smss;
            // Only the last segment of the available data may be short (RFC 1122, section 4.2.3.4).
            if full > end && end < self.limit {
                break;
            }
            self.transmit(now, self.next);
            left -= 1;
        }
    }

    /// Returns true if there is a segment at `next` and the receiver has room for it.
    #[must_use]
    pub(crate) fn may_send_new(&self) -> bool {
        let end = (self.next + self.smss).min(self.limit);
        self.next < end && end <= self.una + self.max_window()
    }

    /// Sends one new segment on a duplicate below the threshold (RFC 3042). The duplicates so far may exceed the
    /// congestion window, but not the receiver's window.
    pub fn limited_transmit(&mut self, now: Time) {
        let beyond = self.cwnd as u64 + u64::from(self.dupacks) * self.smss;
        let before = self.max;
        self.fill(now, beyond.min(self.max_window()), Some(1));
        self.limited += self.max - before;
    }

    /// Sends the segment that starts at `start`, as long as permitted, and advances `next` if it pointed there.
    pub fn transmit(&mut self, now: Time, start: u64) {
        self.transmit_range(now, start, (start + self.smss).min(self.limit));
    }

    /// Sends a segment that may be shorter than a full one, because it ends where another began or was split.
    pub(crate) fn transmit_range(&mut self, now: Time, start: u64, end: u64) {
        debug_assert!(start < end, "nothing to send at {start}");
        let retransmission = start < self.max;
        if self.next == start {
            self.next = end;
        }
        self.max = self.max.max(end);
        self.sent.segments += 1;
        if retransmission {
            self.sent.retransmissions += 1;
        } else if self.timed.is_none() {
            self.timed = Some((start, now));
        }
        if self.rto_at.is_none() {
            self.arm(now);
        }
        self.out.push_back(Transmit { start, end, retransmission });
    }

    /// Restarts the retransmission timer.
    pub fn arm(&mut self, now: Time) {
        self.rto_at = Some(now + self.rtt.timeout());
    }

    /// Stops the RTT measurement: answers may belong to a retransmitted segment (Karn).
    pub(crate) fn stop_timing(&mut self) {
        self.timed = None;
    }

    /// Actions of every variant after a timeout (RFC 5681, section 3.1; RFC 6298, section 5): halves the
    /// threshold, reduces the window to one segment, restarts from the first hole, and doubles the timeout. Does
    /// not send.
    pub fn collapse(&mut self, now: Time) {
        self.recover = self.max;
        self.inflation = 0.0;
        self.cut_ssthresh();
        self.cwnd = self.smss_f64();
        (self.dupacks, self.limited) = (0, 0);
        self.rtt.back_off();
        self.step_back(now);
    }

    /// Restarts sending from the first hole.
    pub(crate) fn step_back(&mut self, now: Time) {
        self.next = self.una;
        self.stop_timing();
        self.arm(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Variant;

    fn core(halving: Halving, counting: Counting, cwnd: f64, inflation: f64) -> Core {
        let config =
            Config { halving, counting, mss: 1_000, window: 20, ..Config::ns2_2001(Variant::Reno) };
        let mut core = Core::new(config);
        let units = core.smss_f64();
        (core.cwnd, core.inflation) = (cwnd * units, inflation * units);
        (core.una, core.max, core.limited) = (100 * core.smss, 109 * core.smss, core.smss);
        core
    }

    #[test]
    fn each_halving_halves_what_it_names() {
        for counting in [Counting::Packets, Counting::Bytes] {
            let half = |halving, cwnd, inflation| {
                let core = core(halving, counting, cwnd, inflation);
                core.half() / core.smss_f64()
            };
            // Rounded down to whole segments before and after.
            for (cwnd, inflation, whole) in [
                (13.9, 0.0, 6.0),
                (14.0, 0.0, 7.0),
                (7.5, 3.0, 5.0),
                (2.0, 0.0, 1.0),
                (1.5, 0.0, 0.0),
            ] {
                assert_eq!(half(Halving::WholeWindow, cwnd, inflation), whole, "{cwnd}");
            }
            // Limited to the receiver's window.
            assert_eq!(half(Halving::WholeWindow, 31.0, 9.0), 10.0);
            assert_eq!(half(Halving::Window, 31.0, 9.0), 10.0);
            assert!((half(Halving::Window, 13.9, 1.0) - 7.45).abs() < 1e-3);
            // Nine outstanding, one of them sent by Limited Transmit.
            assert_eq!(half(Halving::Flight, 31.0, 9.0), 4.0);
        }
    }

    #[test]
    fn a_threshold_is_whole_and_at_least_two_segments() {
        for (cwnd, threshold) in [(13.9, 6.0), (4.0, 2.0), (1.0, 2.0)] {
            let mut core = core(Halving::WholeWindow, Counting::Bytes, cwnd, 0.0);
            core.cut_ssthresh();
            assert_eq!(core.ssthresh, threshold * 1_000.0, "{cwnd}");
        }
    }
}
