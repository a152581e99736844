//! Estimators for client and server.

use alloc::vec;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_wire::ProbeReport;

use crate::ewma;
use crate::loss::{OneWayLoss, Pace, RoundTripLoss};
use crate::rtt::MAX_RTT;
use crate::seq::Order;
use crate::{Estimates, Tau};
use segue_clock::planted::fault;

/// Time scales of the estimators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale<'a> {
    /// Time constants of the averages.
    pub(crate) taus: &'a [Tau],
    /// The rule that ends a loss interval.
    pub(crate) pace: Pace,
}

/// Estimators of both directions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measure {
    pub(crate) estimates: Estimates,
    /// Time of the last sample of each average. The averages themselves are in `estimates`.
    rtt: Option<Time>,
    rtl: Option<Time>,
    up: OneWayLoss,
    down: OneWayLoss,
    round_trip: RoundTripLoss,
}

impl Measure {
    /// Counts a probe.
    pub(crate) fn count(&mut self, order: Order) {
        match order {
            Order::Newest | Order::Restart => self.estimates.received += 1,
            Order::Late => {
                self.estimates.received += 1;
                self.estimates.reordered += 1;
            }
            Order::Duplicate => self.estimates.duplicates += 1,
            Order::Stale => self.estimates.reordered += 1,
        }
    }

    /// Counts a probe that is not an answer: only duplicates and reordering.
    pub(crate) fn count_aside(&mut self, order: Order) {
        match order {
            Order::Duplicate => self.estimates.duplicates += 1,
            Order::Late | Order::Stale => self.estimates.reordered += 1,
            Order::Newest | Order::Restart => {}
        }
    }

    /// Adopts the datapath's estimates, and adds `sent` and `received` new probes. Keeps the values that only the
    /// machine knows.
    pub(crate) fn take_over(&mut self, measured: Estimates, sent: u64, received: u64) {
        let own = core::mem::take(&mut self.estimates);
        self.estimates = Estimates {
            sent: own.sent + sent,
            received: own.received + received,
            transitions: own.transitions,
            client_silent: own.client_silent,
            ..measured
        };
    }

    /// Adopts the main averages that the client reports. Returns the reported RTT if it is credible.
    pub(crate) fn adopt(&mut self, report: ProbeReport) -> Option<Span> {
        self.estimates.rtl = vec![report.rtl()];
        let seconds = report.rtt().filter(|rtt| *rtt <= MAX_RTT.as_secs_f64())?;
        self.estimates.rtt_ewma = vec![seconds];
        Some(Span::from_secs_f64(seconds))
    }

    /// Adds a value of the round-trip loss that the client evaluated.
    pub(crate) fn reported_rtl(&mut self, scale: Scale<'_>, at: Time, rtl: f64) {
        average(&mut self.rtl, &mut self.estimates.rtl, scale, at, rtl);
    }

    pub(crate) fn rtt(&mut self, scale: Scale<'_>, at: Time, rtt: Span) {
        let e = &mut self.estimates;
        if let Some(last) = e.rtt_last {
            let difference = (rtt.as_secs_f64() - last.as_secs_f64()).abs();
            e.rtt_jitter += (difference - e.rtt_jitter) / 16.0;
        }
        e.rtt_last = Some(rtt);
        e.rtt_min = Some(e.rtt_min.map_or(rtt, |min| min.min(rtt)));
        e.rtt_max = Some(e.rtt_max.filter(|max| fault(21) || *max > rtt).unwrap_or(rtt));
        average(&mut self.rtt, &mut e.rtt_ewma, scale, at, rtt.as_secs_f64());
    }

    /// Processes the counters from client to server: Sc and Rs.
    pub(crate) fn up(
        &mut self,
        scale: Scale<'_>,
        at: Time,
        pair: (u32, u32),
        question: bool,
    ) -> Option<f64> {
        let e = &mut self.estimates;
        let interval = self.up.observe(at, at, pair, scale.pace, question, &mut e.up)?;
        ewma::push_over(&mut e.owl_up, scale.taus, interval.length, interval.loss);
        Some(interval.loss)
    }

    /// Processes the counters from server to client, Ss and Rc, of the instant `of`.
    pub(crate) fn down(
        &mut self,
        scale: Scale<'_>,
        (at, of): (Time, Time),
        pair: (u32, u32),
        question: bool,
    ) -> Option<f64> {
        let e = &mut self.estimates;
        let interval = self.down.observe(at, of, pair, scale.pace, question, &mut e.down)?;
        ewma::push_over(&mut e.owl_down, scale.taus, interval.length, interval.loss);
        Some(interval.loss)
    }

    /// Evaluates the round-trip loss from the number of probes sent and received so far.
    pub(crate) fn rtl(&mut self, scale: Scale<'_>, at: Time) -> Option<f64> {
        let e = &mut self.estimates;
        let rtl = self.round_trip.observe(e.sent, e.received, scale.pace.n)?;
        average(&mut self.rtl, &mut e.rtl, scale, at, rtl);
        Some(rtl)
    }

    /// Like [`rtl`](Measure::rtl), just before another request leaves.
    pub(crate) fn rtl_at_sending(&mut self, scale: Scale<'_>, at: Time) -> Option<f64> {
        let e = &mut self.estimates;
        let rtl = self.round_trip.evaluate(e.sent, e.received, scale.pace.n)?;
        average(&mut self.rtl, &mut e.rtl, scale, at, rtl);
        Some(rtl)
    }

    /// At a client, when it declares the path down.
    pub(crate) fn declare(&mut self, now: Time) {
        self.up.declare(now);
        self.down.declare(now);
    }

    /// At a server, when it declares the path down. The downlink counters that the next request echoes are from before
    /// the silence.
    pub(crate) fn declare_at_server(&mut self, now: Time) {
        self.up.declare(now);
        self.down.declare_echoed();
    }

    /// At a server, when the client reports at `now` that it hears nothing. The client found this half a round trip
    /// earlier, and the packets in question left another half round trip before that.
    pub(crate) fn declare_deaf(&mut self, now: Time) {
        self.down.declare_deaf(now - self.estimates.rtt_last.unwrap_or(Span::ZERO));
    }

    /// At a server, when the client hears again.
    pub(crate) fn hears(&mut self) {
        self.down.over();
    }

    /// Like [`is_up`](Measure::is_up), at a server whose client hears nothing.
    pub(crate) fn is_up_one_way(&mut self) {
        self.up.over();
    }

    /// The path is up. Call this after processing the probe that brought it up: the counts of such probes stay
    /// excluded, because they were selected for having arrived.
    pub(crate) fn is_up(&mut self) {
        self.up.over();
        self.down.over();
    }

    /// The peer restarted, so its counters start from new baselines.
    pub(crate) fn restart(&mut self) {
        if fault(22) {
            return;
        }
        self.up.reset();
        self.down.reset();
    }
}

fn average(last: &mut Option<Time>, values: &mut Vec<f64>, scale: Scale<'_>, at: Time, x: f64) {
    ewma::push(values, last, scale.taus, at, x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_zero_for_a_steady_rtt_and_tends_to_the_mean_difference_of_a_changing_one() {
        let taus = [Tau::symmetric(Span::from_secs(1))];
        let scale = Scale { taus: &taus, pace: crate::Config::default().pace() };
        let measure = |high_ms: u64| {
            let mut measure = Measure::default();
            for n in 0..200 {
                let rtt = Span::from_millis(if n % 2 == 0 { 20 } else { high_ms });
                measure.rtt(scale, Time(n * 1_000_000), rtt);
            }
            measure.estimates.rtt_jitter
        };
        assert_eq!(measure(20), 0.0);
        assert!((measure(30) - 0.010).abs() < 1e-5, "{}", measure(30));
    }
}
