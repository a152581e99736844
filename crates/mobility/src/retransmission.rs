//! Retransmission of unanswered messages.

use segue_clock::{Span, Time};

/// Timeouts of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Timeout of the first transmission.
    pub initial: Span,
    /// The timeout doubles with each retransmission up to this maximum.
    pub longest: Span,
    /// Total number of transmissions; `None`: unlimited.
    pub tries: Option<u32>,
}

impl Backoff {
    /// Binding updates (RFC 6275, section 11.8): INITIAL_BINDACK_TIMEOUT 1 s, MAX_BINDACK_TIMEOUT 32 s. Also home and
    /// care-of test inits, and proxy binding updates (RFC 5213, section 6.9.4).
    pub const BINDING: Backoff = Backoff::from_secs(1, 32, None);
    /// The first registration at a home agent (RFC 6275, section 11.8), which includes duplicate address detection:
    /// InitialBindackTimeoutFirstReg 1.5 s.
    pub const FIRST_BINDING: Backoff =
        Backoff { initial: Span::from_millis(1_500), ..Backoff::BINDING };
    /// Binding revocation (RFC 5846, section 11): InitMINDelayBRIs 1 s, MAXDelayBRIs 2 s, BRIMaxRetriesNumber 1.
    pub const REVOCATION: Backoff = Backoff::from_secs(1, 2, Some(2));
    /// Update notifications (RFC 7077, section 7): one retransmission after 1 s.
    pub const NOTIFICATION: Backoff = Backoff::from_secs(1, 1, Some(2));

    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(initial: u64, longest: u64, tries: Option<u32>) -> Backoff {
        Backoff { initial: Span::from_secs(initial), longest: Span::from_secs(longest), tries }
    }
}

/// A message without an answer so far. Drop it when the answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    backoff: Backoff,
    sent: u32,
    wait: Span,
    at: Time,
}

/// What to do about a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The timeout has not passed yet.
    Wait,
    /// Send the message again: unchanged (update notifications), or with a new sequence number or timestamp (binding
    /// updates), as the protocol requires.
    Again,
    /// The last timeout has passed. Further calls return the same.
    GiveUp,
}

impl Retransmission {
    /// A message that is first sent at `now`.
    #[must_use]
    pub fn new(now: Time, backoff: Backoff) -> Retransmission {
        Retransmission { backoff, sent: 1, wait: backoff.initial, at: now + backoff.initial }
    }

    /// A message that is first sent after the initial timeout.
    #[must_use]
    pub fn later(now: Time, backoff: Backoff) -> Retransmission {
        Retransmission { sent: 0, ..Retransmission::new(now, backoff) }
    }

    /// When to call [`on_silence`](Retransmission::on_silence).
    #[must_use]
    pub const fn deadline(&self) -> Time {
        self.at
    }

    /// Number of transmissions so far.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Decides what to do at `now` without an answer. The timeout counts from the actual transmission, not from when it
    /// was due, so that a late driver never sends two at once.
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

    /// Send times and the time of giving up, in milliseconds, over two minutes. The driver is late by `late_ms`.
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
