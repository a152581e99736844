//! Time of day.

use core::ops::{Add, Sub};

use crate::{Span, Time};

/// Microseconds since 1970 (UTC, without leap seconds) on a settable clock, which may step back.
///
/// Use it for times that another machine reads or that must survive a reboot, never to measure a duration: that is what
/// [`Time`] is for. A driver passes it to machines as an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub u64);

const US_PER_S: u64 = 1_000_000;

impl UnixTime {
    /// From whole seconds since 1970.
    #[must_use]
    pub const fn from_secs(s: u64) -> UnixTime {
        UnixTime(s.saturating_mul(US_PER_S))
    }

    /// From nanoseconds since 1970, rounded down to microseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> UnixTime {
        UnixTime(ns / 1_000)
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / US_PER_S
    }

    /// The span since `earlier`, zero if `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: UnixTime) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The value of a Timestamp option (RFC 5213, section 8.8): seconds since 1970, and a fraction in units of 1/65536
    /// s, rounded down.
    #[must_use]
    pub const fn to_timestamp(self) -> (u64, u16) {
        let fraction = ((self.0 % US_PER_S) << 16) / US_PER_S;
        (self.as_secs(), fraction as u16)
    }

    /// The instant in a Timestamp option. Seconds beyond about the year 500 000 saturate.
    ///
    /// Different timestamps below that limit give different instants, and [`to_timestamp`](UnixTime::to_timestamp)
    /// returns the original timestamp.
    #[must_use]
    pub const fn from_timestamp(seconds: u64, fraction_65536ths: u16) -> UnixTime {
        let fraction_us = (fraction_65536ths as u64 * US_PER_S).div_ceil(1 << 16);
        UnixTime(seconds.saturating_mul(US_PER_S).saturating_add(fraction_us))
    }
}

/// A time of day from the driver, from which a machine derives the current time of day by its monotonic clock. The
/// driver updates it periodically, and when the system clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayClock {
    told: Time,
    day: UnixTime,
}

impl DayClock {
    /// The time of day was `day` at the instant `told`.
    #[must_use]
    pub const fn new(told: Time, day: UnixTime) -> DayClock {
        DayClock { told, day }
    }

    /// The time of day at `now`.
    #[must_use]
    pub fn at(&self, now: Time) -> UnixTime {
        self.day + now.since(self.told)
    }

    /// The instant at which it will be this time of day; `now` if that has passed.
    #[must_use]
    pub fn when(&self, day: UnixTime, now: Time) -> Time {
        now + day.since(self.at(now))
    }
}

impl Add<Span> for UnixTime {
    type Output = UnixTime;
    fn add(self, span: Span) -> UnixTime {
        UnixTime(self.0.saturating_add(span.as_micros()))
    }
}

impl Sub<Span> for UnixTime {
    type Output = UnixTime;
    fn sub(self, span: Span) -> UnixTime {
        UnixTime(self.0.saturating_sub(span.as_micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_has_seconds_and_parts_of_one_and_comes_back_bit_by_bit() {
        let timestamp = |us| UnixTime(us).to_timestamp();
        assert_eq!(timestamp(5_000_000), (5, 0));
        assert_eq!(timestamp(7_500_000), (7, 0x8000));
        assert_eq!(timestamp(7_999_999), (7, 0xffff));
        let seconds = 1_700_000_000;
        for fraction in 0..=0xffff {
            let time = UnixTime::from_timestamp(seconds, fraction);
            assert_eq!(time.to_timestamp(), (seconds, fraction));
        }
        let back = |(seconds, fraction)| UnixTime::from_timestamp(seconds, fraction).0;
        let error = |us| back(timestamp(us)).abs_diff(us);
        assert!((0..2_000_000).all(|us| error(us) <= 15), "1/65536 s is 15.3 µs");
    }

    #[test]
    fn what_no_clock_shows_is_the_last_instant() {
        assert_eq!(UnixTime::from_timestamp((1 << 48) - 1, 7), UnixTime(u64::MAX));
        assert_eq!(UnixTime::from_secs(u64::MAX), UnixTime(u64::MAX));
    }

    #[test]
    fn a_clock_that_stepped_back_has_seen_no_time_pass() {
        let (before, after) = (UnixTime::from_secs(100), UnixTime::from_nanos(90_000_001_999));
        assert_eq!((after.0, after.as_secs()), (90_000_001, 90));
        assert_eq!(after.since(before), Span::ZERO);
        assert_eq!(before.since(after), Span(9_999_999_000));
        assert_eq!((after + Span(9_999_999_000), before - Span(9_999_999_000)), (before, after));
        assert_eq!((UnixTime(1) - Span::from_secs(1)).0, 0);
    }
}
