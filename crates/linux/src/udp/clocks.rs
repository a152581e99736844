//! Converts realtime stamps to the monotonic clock, with a bound on the error.

use std::cell::Cell;

use nix::sys::time::TimeSpec;
use segue_clock::{Span, Time};

use crate::clock;

/// Maximum age of a stamp when it is collected. An older stamp means that the realtime clock was stepped.
const STAMP_AGE_MAX_NS: u64 = 60_000_000_000;
/// Two readings at most this far apart are good enough, …
const GAP_MAX: Span = Span::from_micros(1);
/// … and so is the last of this many attempts.
const TRIES_MAX: u32 = 4;

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) monotonic: Time,
    realtime_ns: u64,
    /// Maximum time between the two readings.
    gap: Span,
}

/// A stamp on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Converted {
    pub(super) at: Time,
    /// Possible error of `at` from the conversion.
    pub(super) error: Span,
}

/// Difference between realtime and monotonic clock at the last reading. The kernel slews both clocks alike, so a change
/// means that the realtime clock was stepped, and that a stamp taken before the step is off by the same amount.
#[derive(Debug, Default)]
pub(super) struct Ahead(Cell<Option<i64>>);

impl Clocks {
    /// Reads the realtime clock between two readings of the monotonic clock. Repeats if the program was interrupted in
    /// between.
    pub(super) fn read() -> Clocks {
        let mut tries = 0;
        loop {
            let before = clock::monotonic();
            let realtime_ns = clock::realtime_ns();
            let between = clock::monotonic().since(before);
            tries += 1;
            if between < GAP_MAX || tries == TRIES_MAX {
                let gap = between.half();
                return Clocks { monotonic: before + gap, realtime_ns, gap };
            }
        }
    }

    /// Converts a realtime stamp. `None` without a stamp (zero), or if the realtime clock was stepped back, or far
    /// forward, since it was taken.
    pub(super) fn convert(&self, stamp: TimeSpec, ahead: &Ahead) -> Option<Converted> {
        let (s, ns) = (u64::try_from(stamp.tv_sec()).ok()?, u64::try_from(stamp.tv_nsec()).ok()?);
        let age_ns = self.realtime_ns.checked_sub(s.checked_mul(1_000_000_000)? + ns)?;
        (age_ns < STAMP_AGE_MAX_NS).then(|| Converted {
            at: Time(self.monotonic.0.saturating_sub(age_ns)),
            error: self.gap + ahead.stepped(self),
        })
    }
}

impl Ahead {
    /// How far the realtime clock was stepped since the last call.
    fn stepped(&self, clocks: &Clocks) -> Span {
        let ahead = clocks.realtime_ns as i64 - clocks.monotonic.0 as i64;
        let change = self.0.replace(Some(ahead)).map_or(0, |last| ahead.abs_diff(last));
        // Two readings a microsecond apart cannot resolve a smaller change.
        let noise = clocks.gap + GAP_MAX;
        if change > noise.0 { Span(change) } else { Span::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCKS: Clocks =
        Clocks { monotonic: Time(500_000_000_000), realtime_ns: 1_000_000_000_000, gap: Span(40) };

    #[test]
    fn stamps_from_the_future_or_the_distant_past_are_refused() {
        let ahead = Ahead::default();
        let convert = |s, ns| CLOCKS.convert(TimeSpec::new(s, ns), &ahead).map(|stamp| stamp.at);
        assert_eq!(convert(999, 0), Some(Time(499_000_000_000)));
        assert_eq!(convert(1_000, 1), None);
        assert_eq!(convert(0, 0), None);
    }

    #[test]
    fn a_step_of_the_realtime_clock_is_in_the_bound_of_the_stamp_after_it_alone() {
        let ahead = Ahead::default();
        let error = |clocks: &Clocks| {
            clocks.convert(TimeSpec::new(999, 0), &ahead).map(|stamp| stamp.error.0)
        };
        assert_eq!(error(&CLOCKS), Some(40));
        assert_eq!(error(&CLOCKS), Some(40));
        let stepped = Clocks { realtime_ns: CLOCKS.realtime_ns + 3_000_000, ..CLOCKS };
        assert_eq!(error(&stepped), Some(3_000_040));
        assert_eq!(error(&stepped), Some(40));
    }
}
