//! The clocks that date events, and their jumps: the time of day is set, or the machine sleeps.

use std::fmt;

use segue_clock::{Span, Time};
use segue_linux::clock;
use segue_text::units;

/// The three clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The monotonic clock, which stops while the machine is suspended.
    pub monotonic: Time,
    /// The same, without stopping (CLOCK_BOOTTIME).
    pub boot: Time,
    /// Time of day in nanoseconds since 1970.
    pub wall_ns: u64,
}

impl Reading {
    /// The clocks of this machine.
    #[must_use]
    pub fn now() -> Reading {
        Reading {
            monotonic: clock::monotonic(),
            boot: clock::boottime(),
            wall_ns: clock::realtime_ns(),
        }
    }

    /// The time of day in seconds since 1970, in whole milliseconds.
    #[must_use]
    pub fn unix_s(&self) -> f64 {
        (self.wall_ns / 1_000_000) as f64 / 1e3
    }
}

/// Smaller differences come from a clock that is being adjusted, or from delays between the three readings.
const NOTICED: Span = Span::from_millis(500);

/// A jump of the clocks between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// The machine was suspended for this long.
    Slept(Span),
    /// The time of day was set forward by this many milliseconds, or back.
    Set(i64),
}

/// One sentence, without a full stop.
impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Jump::Slept(span) => write!(f, "the machine slept for {}", units::span(*span)),
            Jump::Set(ms) => {
                let by = units::span(Span::from_millis(ms.unsigned_abs()));
                let way = if *ms < 0 { "back" } else { "forward" };
                write!(f, "the clock was set {way} by {by}")
            }
        }
    }
}

impl Jump {
    /// The jumps from one reading to a later one: first the sleep, then the setting of the clock.
    pub fn between(before: &Reading, after: &Reading) -> impl Iterator<Item = Jump> + use<> {
        let passed = after.boot.since(before.boot);
        let slept = Span(passed.0.saturating_sub(after.monotonic.since(before.monotonic).0));
        let shown = i128::from(after.wall_ns) - i128::from(before.wall_ns);
        let set_ms = (shown - i128::from(passed.0)) / 1_000_000;
        let slept = (slept > NOTICED).then_some(Jump::Slept(slept));
        let is_set = set_ms.unsigned_abs() > u128::from(NOTICED.0 / 1_000_000);
        let set = is_set.then(|| Jump::Set(i64::try_from(set_ms).unwrap_or(i64::MAX)));
        slept.into_iter().chain(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3_600);

    fn after(before: &Reading, awake: Span, asleep: Span, set_ns: i64) -> Reading {
        Reading {
            monotonic: before.monotonic + awake,
            boot: before.boot + awake + asleep,
            wall_ns: (before.wall_ns + awake.0 + asleep.0).strict_add_signed(set_ns),
        }
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_a_machine_that_slept() {
        let before =
            Reading { monotonic: Time(7), boot: Time(9), wall_ns: 1_764_000_000_000_000_000 };
        let jumps = |asleep, set_ns| {
            let after = after(&before, Span::from_secs(1), asleep, set_ns);
            Jump::between(&before, &after).collect::<Vec<_>>()
        };
        let hour = HOUR.0 as i64;
        assert_eq!(jumps(Span::ZERO, 0), []);
        assert_eq!(jumps(Span::ZERO, 400_000_000), [], "steered");
        assert_eq!(jumps(Span::ZERO, hour), [Jump::Set(3_600_000)]);
        assert_eq!(jumps(Span::ZERO, -hour), [Jump::Set(-3_600_000)]);
        let sleep = Span::from_secs(600);
        assert_eq!(jumps(sleep, 0), [Jump::Slept(sleep)]);
        assert_eq!(jumps(sleep, -hour), [Jump::Slept(sleep), Jump::Set(-3_600_000)]);
    }

    #[test]
    fn jumps_are_sentences() {
        assert_eq!(Jump::Set(-3_600_000).to_string(), "the clock was set back by 60 min");
        let slept = Jump::Slept(Span::from_secs(600));
        assert_eq!(slept.to_string(), "the machine slept for 10 min");
    }
}
