//! Round-trip time, its variation, and the timeout made of them.

use segue_clock::{Span, Time};

use super::config::Rto;

/// Gain 1/8 for the mean and 1/4 for the deviation (Jacobson 1988; RFC 6298, section 2): the estimates are
/// kept multiplied by 8 and 4, in whole ticks or in nanoseconds.
#[derive(Clone, Debug)]
pub struct Estimator {
    config: Rto,
    srtt8: i64,
    rttvar4: i64,
    /// Before bounds and backoff.
    raw: Span,
    /// Power of two by which repeated timeouts have lengthened it.
    backoff: u32,
}

impl Estimator {
    /// Nothing measured.
    #[must_use]
    pub fn new(config: Rto) -> Estimator {
        Estimator { config, srtt8: 0, rttvar4: 0, raw: config.first, backoff: 0 }
    }

    /// A round trip of what was sent at `sent`.
    pub fn sample(&mut self, now: Time, sent: Time, echoed: bool) {
        let unit = self.unit();
        let m = if !self.config.whole_ticks {
            now.since(sent).0
        } else if echoed {
            (now.since(sent).0 + unit / 2) / unit
        } else {
            // Ticks of the clock that went by.
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

    /// srtt + 4 rttvar; in whole ticks 4 rttvar is what is kept, and the sum is cut to ticks.
    fn combined(&self, unit: u64) -> Span {
        if self.config.whole_ticks {
            return Span((self.rttvar4 * 8 + self.srtt8) as u64 / 8 * unit);
        }
        // RFC 6298, equation 2.3: RTO = SRTT + max(G, 4 RTTVAR).
        Span(self.srtt8 as u64 / 8 + (self.rttvar4 as u64).max(self.config.tick.0))
    }

    fn unit(&self) -> u64 {
        if self.config.whole_ticks { self.config.tick.0.max(1) } else { 1 }
    }

    /// How long to wait for an acknowledgement.
    #[must_use]
    pub fn timeout(&self) -> Span {
        let Rto { min, max, tick, .. } = self.config;
        let longer = |span: Span| Span(span.0.saturating_mul(1 << self.backoff.min(40)));
        let timeout = if self.config.min_before_backoff {
            longer(self.raw.max(min))
        } else {
            longer(self.raw).max(min)
        };
        // A timer of whole ticks that is armed between two needs two to be sure of one.
        timeout.min(max).max(if self.config.whole_ticks { tick * 2 } else { Span::ZERO })
    }

    /// The timer has run out (RFC 6298, section 5.5).
    pub fn back_off(&mut self) {
        let bounded = !self.config.min_before_backoff && self.backoff >= 6;
        if !bounded && self.timeout() < self.config.max {
            self.backoff += 1;
        }
        if self.backoff > 3 {
            // The route may have changed: the mean starts afresh, the deviation covers the old one.
            self.rttvar4 += self.srtt8 / 8;
            self.srtt8 = 0;
        }
    }

    /// What was sent once was acknowledged: the timeout is the measured one (Karn).
    pub fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The smoothed round trip; `None` before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Span> {
        (self.srtt8 != 0).then(|| Span(self.srtt8 as u64 * self.unit() / 8))
    }
}
