//! When a message without an answer is sent again.

use segue_clock::{Span, Time};

/// How patient a sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// From the first message to the second.
    pub initial: Span,
    /// Each wait is twice as long as the one before, but no longer than this.
    pub longest: Span,
    /// Messages in all, the first one included; `None`: for ever, at the longest wait.
    pub tries: Option<u32>,
}

impl Backoff {
    /// Binding updates (RFC 6275, section 11.8): INITIAL_BINDACK_TIMEOUT 1 s, MAX_BINDACK_TIMEOUT 32 s. Home and care-of test
    /// inits too, and proxy binding updates (RFC 5213, section 6.9.4).
    pub const BINDING: Backoff = Backoff::from_secs(1, 32, None);
    /// The first registration at a home agent (RFC 6275, section 11.8), which takes the time of duplicate address
    /// detection: InitialBindackTimeoutFirstReg 1.5 s.
    pub const FIRST_BINDING: Backoff =
        Backoff { initial: Span::from_millis(1_500), ..Backoff::BINDING };
    /// Binding revocation (RFC 5846, section 11): InitMINDelayBRIs 1 s, MAXDelayBRIs 2 s, BRIMaxRetriesNumber 1.
    pub const REVOCATION: Backoff = Backoff::from_secs(1, 2, Some(2));
    /// Update notifications (RFC 7077, section 7): one more try after 1 s.
    pub const NOTIFICATION: Backoff = Backoff::from_secs(1, 1, Some(2));

    /// With whole seconds.
    #[must_use]
    pub const fn from_secs(initial: u64, longest: u64, tries: Option<u32>) -> Backoff {
        Backoff { initial: Span::from_secs(initial), longest: Span::from_secs(longest), tries }
    }
}

/// A message that was sent and has no answer yet. Its owner drops it when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    backoff: Backoff,
    sent: u32,
    wait: Span,
    at: Time,
}

/// What follows from no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is not time yet.
    Wait,
    /// Send the message again. The protocol says whether as it was (update notifications) or with a new sequence number or
    /// timestamp (binding updates).
    Again,
    /// The last try has had its time, too: there will be no answer. It stays so.
    GiveUp,
}

impl Retransmission {
    /// A message that is sent for the first time at `now`.
    #[must_use]
    pub fn new(now: Time, backoff: Backoff) -> Retransmission {
        Retransmission { backoff, sent: 1, wait: backoff.initial, at: now + backoff.initial }
    }

    /// When to ask [`on_silence`](Retransmission::on_silence).
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.at
    }

    /// How often the message was sent.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// What to do at `now`, there being no answer. A wait counts from when the message was sent, not from when it was
    /// due, so that a late driver sends no two at once.
    pub fn on_silence(&mut self, now: Time) -> Silence {
        if now < self.at {
            return Silence::Wait;
        }
        if self.backoff.tries.is_some_and(|tries| self.sent >= tries) {
            return Silence::GiveUp;
        }
        self.sent = self.sent.saturating_add(1);
        self.wait = (self.wait * 2).min(self.backoff.longest);
        self.at = now + self.wait;
        Silence::Again
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// When each message is sent, and when the sender gives up, in milliseconds, over two minutes; the driver is `late_ms`.
    fn sent(backoff: Backoff, late_ms: u64) -> (Vec<u64>, Option<u64>) {
        let late = Span::from_millis(late_ms);
        let (mut sent, mut message) = (Vec::from([0]), Retransmission::new(Time(0), backoff));
        while message.deadline() < Time(120_000_000_000) {
            let before = Time(message.deadline().0 - 1);
            assert_eq!(message.on_silence(before), Silence::Wait);
            let now = message.deadline() + late;
            match message.on_silence(now) {
                Silence::Again => sent.push(now.0 / 1_000_000),
                Silence::GiveUp => {
                    assert_eq!(message.on_silence(now), Silence::GiveUp);
                    return (sent, Some(now.0 / 1_000_000));
                }
                Silence::Wait => panic!("it was due"),
            }
            assert_eq!(message.sent() as usize, sent.len());
        }
        (sent, None)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_go_on_for_ever_or_end_with_the_last_try() {
        let s = |all: &[u64]| all.iter().map(|s| s * 1_000).collect::<Vec<u64>>();
        assert_eq!(sent(Backoff::BINDING, 0), (s(&[0, 1, 3, 7, 15, 31, 63, 95]), None));
        let first = [0, 1_500, 4_500, 10_500, 22_500, 46_500, 78_500, 110_500].into();
        assert_eq!(sent(Backoff::FIRST_BINDING, 0), (first, None));
        assert_eq!(sent(Backoff::REVOCATION, 0), (s(&[0, 1]), Some(3_000)));
        assert_eq!(sent(Backoff::NOTIFICATION, 0), (s(&[0, 1]), Some(2_000)));
        assert_eq!(sent(Backoff::from_secs(3, 30, Some(1)), 0), (s(&[0]), Some(3_000)));
    }

    #[test]
    fn a_late_driver_keeps_the_waits() {
        assert_eq!(sent(Backoff::REVOCATION, 2_500), (Vec::from([0, 3_500]), Some(8_000)));
    }

    #[test]
    fn waits_without_a_bound_saturate() {
        let backoff = Backoff { initial: Span(1), longest: Span(u64::MAX), tries: None };
        let mut message = Retransmission::new(Time(0), backoff);
        for _ in 0..200 {
            let due = message.deadline();
            assert_eq!(message.on_silence(due), Silence::Again);
        }
        assert_eq!(message.deadline(), Time(u64::MAX));
    }
}
