//! Decides which of two registrations is newer.

use segue_clock::{Span, UnixTime};
use segue_wire::mobility::Status;

/// Sequence numbers of one sender's registrations (RFC 6275, section 9.5.1). A number is newer than the last one if it
/// is less than 2¹⁵ ahead of it, modulo 2¹⁶.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceOrder {
    last: Option<u16>,
}

/// The number is not newer than the last accepted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfWindow {
    /// The last accepted number, for the answer.
    pub last: u16,
}

impl OutOfWindow {
    /// Status of the acknowledgement.
    pub const STATUS: Status = Status::SEQUENCE_OUT_OF_WINDOW;
}

impl SequenceOrder {
    /// Accepts any first number.
    #[must_use]
    pub const fn new() -> SequenceOrder {
        SequenceOrder { last: None }
    }

    /// Continues after a stored number.
    #[must_use]
    pub const fn behind(last: u16) -> SequenceOrder {
        SequenceOrder { last: Some(last) }
    }

    /// The last accepted number.
    #[must_use]
    pub const fn last(&self) -> Option<u16> {
        self.last
    }

    /// Checks that a number is newer than the last accepted one. Later checks may still refuse the message, so this
    /// changes nothing: call [`accept`](SequenceOrder::accept) afterwards.
    ///
    /// # Errors
    /// [`OutOfWindow`]: answer with [`OutOfWindow::STATUS`] and the last number.
    pub const fn check(&self, received: u16) -> Result<(), OutOfWindow> {
        match self.last {
            Some(last) if !is_newer(received, last) => Err(OutOfWindow { last }),
            _ => Ok(()),
        }
    }

    /// Records the number of an accepted message.
    pub const fn accept(&mut self, received: u16) {
        self.last = Some(received);
    }
}

/// Returns true if `received` is less than 2¹⁵ ahead of `last`. A distance of exactly 2¹⁵ counts as old.
const fn is_newer(received: u16, last: u16) -> bool {
    let ahead = received.wrapping_sub(last);
    ahead != 0 && ahead < 1 << 15
}

/// Timestamps of one mobile node's registrations (RFC 5213, section 5.5), which replace sequence numbers: the access
/// routers that a node moves between share no counter, but have synchronized clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampOrder {
    last: Option<UnixTime>,
}

/// Why a timestamp is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untimely {
    /// TIMESTAMP_MISMATCH: it differs from the receiver's clock by more than the window.
    Mismatch {
        /// The receiver's time of day, for the answer.
        own: UnixTime,
    },
    /// TIMESTAMP_LOWER_THAN_PREV_ACCEPTED: it is not later than the last accepted one.
    NotLater {
        /// The last accepted timestamp.
        last: UnixTime,
    },
}

impl Untimely {
    /// Status of the acknowledgement.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Untimely::Mismatch { .. } => Status::TIMESTAMP_MISMATCH,
            Untimely::NotLater { .. } => Status::TIMESTAMP_LOWER_THAN_PREV_ACCEPTED,
        }
    }
}

impl TimestampOrder {
    /// TimestampValidityWindow: default for the maximum difference between a timestamp and the receiver's clock, in
    /// either direction.
    pub const WINDOW: Span = Span::from_millis(300);

    /// Accepts any first timestamp within the window.
    #[must_use]
    pub const fn new() -> TimestampOrder {
        TimestampOrder { last: None }
    }

    /// Continues after a stored timestamp.
    #[must_use]
    pub const fn behind(last: UnixTime) -> TimestampOrder {
        TimestampOrder { last: Some(last) }
    }

    /// The last accepted timestamp.
    #[must_use]
    pub const fn last(&self) -> Option<UnixTime> {
        self.last
    }

    /// Checks that a timestamp is within the window around the receiver's time of day, `own`, and later than the last
    /// accepted one. Later checks may still refuse the message, so this changes nothing: call
    /// [`accept`](TimestampOrder::accept) afterwards.
    ///
    /// The last timestamp was within the window when it was accepted. If it is beyond the window now, the clock has
    /// stepped back and the last timestamp is ignored; otherwise the node would be locked out for as long as the step.
    /// A smaller step needs no handling, since new timestamps soon pass the last one.
    ///
    /// # Errors
    /// [`Untimely`].
    pub fn check(&self, received: UnixTime, own: UnixTime, window: Span) -> Result<(), Untimely> {
        if received.since(own).max(own.since(received)) > window {
            return Err(Untimely::Mismatch { own });
        }
        match self.last {
            Some(last) if received <= last && last.since(own) <= window => {
                Err(Untimely::NotLater { last })
            }
            _ => Ok(()),
        }
    }

    /// Records the timestamp of an accepted message.
    pub const fn accept(&mut self, received: UnixTime) {
        self.last = Some(received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_newer_if_it_is_less_than_half_the_circle_ahead() {
        for last in [0, 1, 77, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            let order = SequenceOrder::behind(last);
            let refused = Err(OutOfWindow { last });
            for (ahead, expected) in
                [(0, refused), (1, Ok(())), (0x7fff, Ok(())), (0x8000, refused), (0xffff, refused)]
            {
                assert_eq!(order.check(last.wrapping_add(ahead)), expected, "{last} + {ahead}");
            }
            // RFC 6275, section 9.5.1: "less than or equal" is within [last - 32768, last].
            let newer = (0..=u16::MAX).filter(|n| order.check(*n).is_ok()).count();
            assert_eq!(newer, 0x7fff);
        }
    }

    #[test]
    fn without_a_last_number_each_is_accepted_and_only_an_accepted_one_becomes_the_last() {
        let mut order = SequenceOrder::new();
        assert!((0..=u16::MAX).all(|n| order.check(n).is_ok()));
        assert_eq!(order.last(), None);
        order.accept(u16::MAX);
        assert_eq!((order.check(0), order.last()), (Ok(()), Some(u16::MAX)));
        assert_eq!(order.check(u16::MAX), Err(OutOfWindow { last: u16::MAX }));
    }

    const WINDOW: Span = TimestampOrder::WINDOW;

    fn ms(ms: u64) -> UnixTime {
        UnixTime(ms * 1_000)
    }

    #[test]
    fn a_timestamp_is_within_the_window_and_later_than_the_last_one() {
        let own = ms(100_000);
        let mut order = TimestampOrder::new();
        for (received, accepted) in
            [(99_699, false), (99_700, true), (100_000, true), (100_300, true), (100_301, false)]
        {
            let expected = if accepted { Ok(()) } else { Err(Untimely::Mismatch { own }) };
            assert_eq!(order.check(ms(received), own, WINDOW), expected, "{received}");
        }
        order.accept(own);
        let refused = Err(Untimely::NotLater { last: own });
        assert_eq!(order.check(own, own, WINDOW), refused);
        assert_eq!(order.check(ms(99_999), own, WINDOW), refused);
        assert_eq!(order.check(UnixTime(own.0 + 1), own, WINDOW), Ok(()));
        // If both checks fail, the answer reports the clock, which the sender must set first.
        assert_eq!(order.check(ms(1), own, WINDOW), Err(Untimely::Mismatch { own }));
        let statuses = [Untimely::Mismatch { own }, Untimely::NotLater { last: own }];
        assert_eq!(statuses.map(|why| why.status().0), [156, 157]);
    }

    #[test]
    fn a_clock_that_steps_back_locks_a_node_out_for_no_longer_than_two_windows() {
        let mut longest = 0;
        for stepped in [1, 150, 299, 300, 301, 599, 600, 601, 10_000, 3_600_000_000] {
            for (ahead_before, ahead) in [(0, 0), (300, 0), (300, 300), (-300, 0), (0, -300)] {
                let set = 5_000_000_000_i64;
                let shown = |own: i64, ahead: i64| ms((own + ahead) as u64);
                let order = TimestampOrder::behind(shown(set, ahead_before));
                let passes = |own| order.check(shown(own, ahead), shown(own, 0), WINDOW).is_ok();
                let waited = (0..1_000).find(|waited| passes(set - stepped + waited)).unwrap();
                longest = longest.max(waited);
            }
        }
        assert_eq!(longest, 601, "two windows, and a tick to be later");
        // A sender with an unchanged clock offset, and a receiver's clock that has just stepped back by less than the
        // window.
        let order = TimestampOrder::behind(ms(5_000));
        let refused = Err(Untimely::NotLater { last: ms(5_000) });
        assert_eq!(order.check(ms(4_900), ms(4_750), WINDOW), refused);
        assert_eq!(order.check(ms(5_001), ms(4_750), WINDOW), Ok(()));
        assert_eq!(order.check(ms(4_900), ms(4_699), WINDOW), Ok(()));
    }
}
