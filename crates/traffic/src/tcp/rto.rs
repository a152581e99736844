//! RTT, its variation, and the retransmission timeout derived from them.

use segue_clock::{Span, Time};

use super::config::Rto;

/// Gain 1/8 for the mean and 1/4 for the deviation (Jacobson 1988; RFC 6298, section 2). The estimates are stored
/// multiplied by 8 and 4, in whole ticks or in nanoseconds.
#[derive(Clone, Debug)]
pub struct Estimator {
    config: Rto,
    srtt8: i64,
    rttvar4: i64,
    /// Timeout before bounds and backoff.
    raw: Span,
    /// Exponent (base 2) by which repeated timeouts have lengthened it.
    backoff: u32,
}

impl Estimator {
    /// An estimator without samples.
    #[must_use]
    pub fn new(config: Rto) -> Estimator {
        Estimator { config, srtt8: 0, rttvar4: 0, raw: config.first, backoff: 0 }
    }

    /// Adds an RTT sample of a segment sent at `sent`.
    pub fn sample(&mut self, now: Time, sent: Time, echoed: bool) {
        let unit = self.unit();
        let m = if !self.config.whole_ticks {
            now.since(sent).0
        } else if echoed {
            now.since(sent).0.saturating_add(unit / 2) / unit
        } else {
            // Number of clock ticks in between.
            now.0 / unit - sent.0 / unit
        };
        let m = m.max(1) as i64;
        if self.srtt8 == 0 {
            self.srtt8 = m * 8;
            self.rttvar4 = m * 2;
        } else {
            let delta = m - self.srtt8 / 8;
            self.srtt8 = (self.srtt8 + delta).max(1);
            self.rttvar4 = (self.rttvar4 + delta.abs() - self.rttvar4 / 4).max(1);
        }
        self.raw = self.combined(unit);
    }

    /// srtt + 4 rttvar. In whole ticks, 4 rttvar is the stored value, and the sum is truncated to ticks.
    fn combined(&self, unit: u64) -> Span {
        if self.config.whole_ticks {
            return Span(((self.rttvar4 * 8 + self.srtt8) as u64 / 8).saturating_mul(unit));
        }
        // RFC 6298, equation 2.3: RTO = SRTT + max(G, 4 RTTVAR).
        Span((self.srtt8 as u64 / 8).saturating_add((self.rttvar4 as u64).max(self.config.tick.0)))
    }

    fn unit(&self) -> u64 {
        if self.config.whole_ticks { self.config.tick.0.max(1) } else { 1 }
    }

    /// The current retransmission timeout.
    #[must_use]
    pub fn timeout(&self) -> Span {
        let Rto { min, max, tick, .. } = self.config;
        let longer = |span: Span| Span(span.0.saturating_mul(1 << self.backoff.min(40)));
        let timeout = if self.config.min_before_backoff {
            longer(self.raw.max(min))
        } else {
            longer(self.raw).max(min)
        };
        // A timer of whole ticks that is armed between two ticks needs two to guarantee one.
        timeout.min(max).max(if self.config.whole_ticks { tick * 2 } else { Span::ZERO })
    }

    /// Handles an expired timer (RFC 6298, section 5.5).
    pub(crate) fn back_off(&mut self) {
        let bounded = !self.config.min_before_backoff && self.backoff >= 6;
        if !bounded && self.timeout() < self.config.max {
            self.backoff += 1;
        }
        if self.backoff > 3 {
            // The route may have changed: restart the mean; the deviation covers the old one.
            self.rttvar4 += self.srtt8 / 8;
            self.srtt8 = 0;
        }
    }

    /// A segment sent only once was acknowledged: the timeout returns to the measured one (Karn).
    pub(crate) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The smoothed RTT; `None` before the first sample.
    #[must_use]
    pub(crate) fn srtt(&self) -> Option<Span> {
        (self.srtt8 != 0).then(|| Span(self.srtt8 as u64 * self.unit() / 8))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::tcp::{Config, Variant};

    #[test]
    fn whole_ticks_round_as_ns_2_does() {
        let mut rtt = Estimator::new(Config::ns2_2001(Variant::Reno).rto);
        assert_eq!(rtt.timeout(), Span::from_secs(6));
        // Sent at 90 ms, answered at 130 ms: one tick of 100 ms has passed.
        rtt.sample(Time(130_000_000), Time(90_000_000), false);
        assert_eq!(rtt.srtt(), Some(Span::from_millis(100)));
        // srtt 1, 4 rttvar 2 ticks.
        assert_eq!(rtt.timeout(), Span::from_millis(300));
        for _ in 0..50 {
            rtt.sample(Time(130_000_000), Time(90_000_000), false);
        }
        assert_eq!(rtt.timeout(), Span::from_millis(300), "a quarter of 2 is 0: it stays");
    }

    #[test]
    fn rfc_6298_in_its_own_order_with_bounds_and_backoff() {
        let rto = Config::modern(Variant::Reno).rto;
        let mut rtt = Estimator::new(rto);
        assert_eq!(rtt.timeout(), Span::from_secs(1));
        rtt.sample(Time(100_000_000), Time(0), true);
        // Section 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.timeout(), Span::from_millis(300));
        // Section 2.3: RTTVAR = 3/4 · 50 + 1/4 · 80, SRTT = 7/8 · 100 + 1/8 · 180.
        rtt.sample(Time(180_000_000), Time(0), true);
        assert_eq!(rtt.srtt(), Some(Span::from_millis(110)));
        assert_eq!(rtt.timeout(), Span::from_millis(340));
        let mut doubled = Vec::new();
        for _ in 0..3 {
            rtt.back_off();
            doubled.push(rtt.timeout());
        }
        assert_eq!(doubled, [680, 1_360, 2_720].map(Span::from_millis));
        rtt.forget_backoff();
        assert_eq!(rtt.timeout(), Span::from_millis(340));
        for _ in 0..20 {
            rtt.back_off();
        }
        assert!(rtt.timeout() <= rto.max);
        let mut floor = Estimator::new(rto);
        for _ in 0..100 {
            floor.sample(Time(1_000_000), Time(0), true);
        }
        assert_eq!(floor.timeout(), rto.min);
    }
}
