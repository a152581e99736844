//! Instants and spans on one monotonic clock.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// Nanoseconds on one monotonic clock; built only by a driver or the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A non-negative length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Time = Time(0);

    /// This instant in microseconds modulo 2³², as in probes.
    #[must_use]
    pub const fn micros32(self) -> u32 {
        (self.0 / 1_000) as u32
    }

    /// The span since `earlier`; zero if `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the clock's origin, for output.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Span = Span(0);

    /// A span of whole microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Span {
        Span(us.saturating_mul(1_000))
    }

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000_000))
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000_000))
    }

    /// A span from seconds. Negative values and NaN become zero; infinite and too large values become the largest span.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Span {
        Span((s * 1e9) as u64)
    }

    /// The span in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span in milliseconds.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whole microseconds of the span.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Half of the span.
    #[must_use]
    pub const fn half(self) -> Span {
        Span(self.0 / 2)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl fmt::Display for Span {
    /// In milliseconds below a second, otherwise in seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000_000_000 {
            write!(f, "{:.3} ms", self.as_millis_f64())
        } else {
            write!(f, "{:.3} s", self.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_wrap_at_two_to_the_thirty_two() {
        let wrap_us = 1u64 << 32;
        assert_eq!(Time(wrap_us * 1_000).micros32(), 0);
        assert_eq!(Time((wrap_us - 1) * 1_000).micros32(), u32::MAX);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time(1) - Span(2), Time(0));
        assert_eq!(Time(1).since(Time(5)), Span::ZERO);
        assert_eq!(Time(u64::MAX) + Span(1), Time(u64::MAX));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
    }
}
