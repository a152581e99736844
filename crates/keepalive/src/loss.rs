//! Loss: one way from counters of all packets (section 4.2), round trip from probes alone
//! (appendix III).

use segue_clock::{Span, Time};

use crate::Counted;

/// No interface sends more: 100 Gbit/s of smallest frames are 149 packets in a microsecond. A
/// counter that grows faster belongs to a peer that began again.
const MAX_PACKETS_PER_US: u64 = 150;
/// Allowed on top: probes that a stalled link lets go together carry counters from far apart.
const COUNTER_SLACK: u64 = 1 << 24;

/// Loss of one direction: sent and received counters of *all* packets, data and probes, as the
/// probes carry them, modulo 2³².
///
/// Feed it only with probes newer than all before. The first pair of counters is the baseline:
/// packets before it do not count. Counters that go backwards, or forwards faster than any link,
/// make a new baseline. A value lies in [0, 1].
#[derive(Clone, Debug, Default)]
pub struct OneWayLoss {
    last: Option<Pair>,
    interval: Counted,
    due: Time,
    outage: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    sent: u32,
    received: u32,
    at: Time,
}

impl OneWayLoss {
    /// No baseline yet.
    #[must_use]
    pub fn new() -> OneWayLoss {
        OneWayLoss::default()
    }

    /// Forgets the baseline and the interval that runs.
    pub fn reset(&mut self) {
        *self = OneWayLoss::default();
    }

    /// What has been lost in the interval that runs, and will be until the next pair of counters, is
    /// an outage: it counts in the total, but no interval is evaluated with it.
    pub fn outage(&mut self) {
        self.outage = true;
    }

    /// Takes the counters that a probe of the instant `at` brought, adds what is new to `total`, and
    /// evaluates the interval if `t_l` has passed: 1 − ΔR/ΔS, `None` if nothing was sent in it.
    pub fn observe(
        &mut self,
        at: Time,
        sent: u32,
        received: u32,
        t_l: Span,
        total: &mut Counted,
    ) -> Option<f64> {
        let pair = Pair { sent, received, at };
        let Some((new_sent, new_received)) = self.last.and_then(|last| last.growth(pair)) else {
            *self = OneWayLoss { last: Some(pair), due: at + t_l, ..OneWayLoss::default() };
            return None;
        };
        self.last = Some(pair);
        for counted in [&mut self.interval, total] {
            counted.sent += new_sent;
            counted.received += new_received;
        }
        if core::mem::take(&mut self.outage) {
            self.interval = Counted::default();
            self.due = at + t_l;
        }
        if at < self.due || self.interval.sent == 0 {
            return None;
        }
        self.due = next_due(self.due, at, t_l);
        let interval = core::mem::take(&mut self.interval);
        Some((1.0 - interval.received as f64 / interval.sent as f64).clamp(0.0, 1.0))
    }
}

impl Pair {
    /// How far both counters went from `self` to `later`, `None` if that is not credible.
    fn growth(self, later: Pair) -> Option<(u64, u64)> {
        let sent = u64::from(later.sent.wrapping_sub(self.sent));
        let received = u64::from(later.received.wrapping_sub(self.received));
        let elapsed_us = later.at.since(self.at).0 / 1_000;
        let most = elapsed_us.saturating_mul(MAX_PACKETS_PER_US).saturating_add(COUNTER_SLACK);
        (sent.max(received) <= most.min(1 << 31)).then_some((sent, received))
    }
}

/// Loss of the round trip, from the client's own counts of requests and responses.
///
/// A response that arrives after the end of the interval in which its request was sent counts as
/// lost there, and as surplus in a later one; the surplus is carried over so that it is not lost
/// for good when the RTT shrinks.
#[derive(Clone, Debug, Default)]
pub struct RoundTripLoss {
    last: Option<Counted>,
    due: Time,
}

impl RoundTripLoss {
    /// No baseline yet.
    #[must_use]
    pub fn new() -> RoundTripLoss {
        RoundTripLoss::default()
    }

    /// Takes Sc (requests sent) and Rc (responses received) as of a response at `at`, and evaluates
    /// if `t_l` has passed. The first response gives the baseline.
    pub fn observe(&mut self, at: Time, sc: u64, rc: u64, t_l: Span) -> Option<f64> {
        let Some(last) = self.last else {
            self.last = Some(Counted { sent: sc, received: rc });
            self.due = at + t_l;
            return None;
        };
        let sent = sc.saturating_sub(last.sent);
        let received = rc.saturating_sub(last.received);
        if at < self.due || sent == 0 {
            return None;
        }
        self.due = next_due(self.due, at, t_l);
        // The surplus is counted against the Sc_last of this interval, before that moves on.
        let surplus = received.saturating_sub(sent);
        self.last = Some(Counted { sent: sc, received: rc - surplus });
        Some((1.0 - received as f64 / sent as f64).clamp(0.0, 1.0))
    }
}

/// The first instant after `now` on the grid of `due` with steps `t_l`: intervals have a length of
/// T_L on average, though each ends at the probe after its expiry.
fn next_due(due: Time, now: Time, t_l: Span) -> Time {
    let periods = now.since(due).0 / t_l.0.max(1) + 1;
    due + t_l * periods
}
