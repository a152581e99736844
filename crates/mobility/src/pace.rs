//! A rate limit.

use segue_clock::{Span, Time};

/// A rate limit that allows a burst, then a steady rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When all events so far would have happened at the steady rate.
    settled: Time,
}

impl Pace {
    /// Returns true, and counts the event, if it is within the limit: `burst` at once, then one per `period`.
    #[must_use]
    pub fn take(&mut self, now: Time, period: Span, burst: u32) -> bool {
        let settled = self.settled.max(now);
        let is_within = settled.since(now) <= period * u64::from(burst.saturating_sub(1));
        if is_within {
            self.settled = settled + period;
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_period() {
        let (mut pace, period) = (Pace::default(), Span::from_millis(100));
        let mut passed = |from_ms: u64, to_ms: u64| {
            let all = (from_ms..to_ms).map(|ms| Time::ZERO + Span::from_millis(ms));
            all.filter(|now| pace.take(*now, period, 5)).count()
        };
        assert_eq!(passed(0, 5), 5);
        assert_eq!(passed(5, 100), 0);
        assert_eq!(passed(100, 1_100), 10);
        // After a pause a burst is allowed again.
        assert_eq!(passed(10_000, 10_050), 5);
    }
}
