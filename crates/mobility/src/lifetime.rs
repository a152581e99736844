//! Requested and granted lifetimes of bindings.

use segue_clock::{Span, Time};

/// The lifetime of a binding in units of 4 s, as in `lifetime_4s` of binding updates and acknowledgements (RFC 6275,
/// section 6.1.7). The interval of a Binding Refresh Advice has the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetime(pub u16);

const UNIT: Span = Span::from_secs(4);

impl Lifetime {
    /// In a binding update: delete the binding. In an acknowledgement: the binding no longer exists.
    pub const ZERO: Lifetime = Lifetime(0);
    /// MAX_RR_BINDING_LIFETIME: the maximum at a correspondent node, 420 s (RFC 6275, section 12).
    pub const MAX_RR_BINDING: Lifetime = Lifetime(105);

    /// Rounds a span down to units of 4 s; at most about 73 hours.
    #[must_use]
    pub fn of(span: Span) -> Lifetime {
        Lifetime(u16::try_from(span.0 / UNIT.0).unwrap_or(u16::MAX))
    }

    /// The lifetime as a span.
    #[must_use]
    pub const fn span(self) -> Span {
        Span(UNIT.0 * self.0 as u64)
    }

    /// Returns true if the lifetime requests or confirms a deletion.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The lifetime to grant if at most `most` is allowed: never more than requested.
    #[must_use]
    pub fn grant(self, most: Lifetime) -> Lifetime {
        self.min(most)
    }

    /// When a binding with this lifetime ends. A receiver counts from when it accepts the update. A sender counts from
    /// when it *sent* it, so that its binding ends before the receiver's (RFC 6275, section 11.7.3, expresses the same
    /// as a difference of lifetimes).
    #[must_use]
    pub fn end(self, from: Time) -> Time {
        from + self.span()
    }

    /// When a sender renews a binding that it requested at `asked`: after half the granted lifetime, or after the
    /// advised refresh interval if that is shorter than the lifetime (RFC 6275, section 6.2.4). At least 2 s after
    /// `asked`.
    #[must_use]
    pub fn refresh(self, asked: Time, advice: Option<Lifetime>) -> Time {
        let advised = advice.filter(|advice| !advice.is_zero() && *advice < self);
        asked + advised.map_or(self.span().half(), Lifetime::span).max(UNIT.half())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_four_seconds_and_a_span_is_never_made_longer() {
        assert_eq!(Lifetime::MAX_RR_BINDING.span(), Span::from_secs(420));
        let of = |ms| Lifetime::of(Span::from_millis(ms)).0;
        assert_eq!([of(0), of(3_999), of(4_000), of(7_999), of(8_000)], [0, 0, 1, 1, 2]);
        assert_eq!(Lifetime::of(Span(u64::MAX)), Lifetime(u16::MAX));
        assert_eq!(Lifetime::of(Lifetime(u16::MAX).span()), Lifetime(u16::MAX));
        assert_eq!([Lifetime(0), Lifetime(1)].map(Lifetime::is_zero), [true, false]);
    }

    #[test]
    fn no_more_is_granted_than_was_asked_for_and_no_more_than_there_is() {
        for (asked, most, granted) in [(10, 105, 10), (200, 105, 105), (0, 105, 0), (7, 0, 0)] {
            assert_eq!(Lifetime(asked).grant(Lifetime(most)), Lifetime(granted));
        }
    }

    #[test]
    fn a_binding_is_refreshed_at_half_its_time_or_as_advised_and_before_its_end() {
        let at = |s: u64| Time(s * 1_000_000_000);
        let granted = Lifetime(100);
        assert_eq!(granted.end(at(5)), at(405));
        for (advice, refreshed) in [
            (None, 205),
            (Some(Lifetime(20)), 85),
            (Some(Lifetime(99)), 401),
            (Some(Lifetime(100)), 205),
            (Some(Lifetime(0)), 205),
        ] {
            assert_eq!(granted.refresh(at(5), advice), at(refreshed), "{advice:?}");
        }
        assert_eq!(Lifetime(1).refresh(at(5), None), at(7));
        assert_eq!(Lifetime::ZERO.refresh(at(5), None), at(7));
        assert_eq!(Lifetime(u16::MAX).end(Time(u64::MAX)), Time(u64::MAX));
    }
}
