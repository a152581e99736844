//! Counts which of a path's questions were answered. Questions never ride on data, so they pass through anything that
//! drops data alone.

use alloc::collections::VecDeque;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;

/// Maximum number of unanswered questions kept; beyond that, the oldest counts as lost.
const MOST: usize = 64;
/// Maximum time from the order of a probe to its stamp, on a busy machine.
const STAMPED: Span = Span::from_millis(50);
/// An answer that is late by at most this still counts as received.
const LATE: Span = Span::from_secs(2);

/// The questions of a path.
#[derive(Default)]
pub(super) struct Questions {
    /// When the unanswered questions were ordered, oldest first.
    waiting: VecDeque<Time>,
    /// How many of them count as lost because their answer is overdue.
    late: usize,
    settled: Counted,
}

impl Questions {
    /// Adds a question.
    pub(super) fn ask(&mut self, now: Time) {
        if self.waiting.len() >= MOST {
            self.give_up();
        }
        self.waiting.push_back(now);
    }

    /// Handles the answer to the question with this stamp, in microseconds modulo 2³².
    pub(super) fn answer(&mut self, now: Time, stamp: u32) {
        let age = Span::from_micros(u64::from(now.micros32().wrapping_sub(stamp)));
        let at = Time(now.0.saturating_sub(age.0));
        // The stamp is truncated to a microsecond.
        let fits =
            |asked: &Time| at + Span::from_micros(1) >= *asked && at.since(*asked) <= STAMPED;
        if let Some(place) = self.waiting.iter().rposition(fits) {
            self.waiting.remove(place);
            self.settled.received += 1;
            if place < self.late {
                self.late -= 1;
            } else {
                self.settled.sent += 1;
            }
        }
    }

    /// Counts questions as lost whose answer is overdue.
    pub(super) fn expire(&mut self, now: Time, within: Span) {
        while self.waiting.get(self.late).is_some_and(|asked| now.since(*asked) > within) {
            self.late += 1;
            self.settled.sent += 1;
        }
        while self.waiting.front().is_some_and(|asked| now.since(*asked) > within + LATE) {
            self.give_up();
        }
    }

    /// Stops waiting for the oldest.
    fn give_up(&mut self) {
        self.waiting.pop_front();
        match self.late {
            0 => self.settled.sent += 1,
            _ => self.late -= 1,
        }
    }

    /// The counts of questions that were answered or are overdue.
    pub(super) fn settled(&self) -> Counted {
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = |ms| Time(ms * 1_000_000);

    #[test]
    fn a_question_is_answered_once_or_lost_in_the_end() {
        let mut questions = Questions::default();
        [100, 200, 300].into_iter().for_each(|at| questions.ask(MS(at)));
        // Stamped a millisecond after the order; the answer arrives twice.
        questions.answer(MS(230), 201_000);
        questions.answer(MS(231), 201_000);
        assert_eq!(questions.settled(), Counted { sent: 1, received: 1 });
        questions.expire(MS(151), Span::from_millis(50));
        questions.expire(MS(350), Span::from_millis(50));
        assert_eq!(questions.settled(), Counted { sent: 2, received: 1 });
        questions.answer(MS(350), 300_000);
        assert_eq!(questions.settled(), Counted { sent: 3, received: 2 });
        // One late answer, a duplicate of it, and one to an unknown question.
        questions.answer(MS(360), 100_000);
        questions.answer(MS(360), 100_000);
        questions.answer(MS(360), 50_000);
        assert_eq!(questions.settled(), Counted { sent: 3, received: 3 });
        // Late answers revise the count of lost questions.
        assert_eq!(questions.settled().lost(), 0);
        // This answer arrives too late to count.
        questions.ask(MS(400));
        questions.expire(MS(500), Span::from_millis(50));
        questions.expire(MS(2_600), Span::from_millis(50));
        questions.answer(MS(2_600), 400_000);
        assert_eq!(questions.settled(), Counted { sent: 4, received: 3 });
    }

    #[test]
    fn of_too_many_the_oldest_are_lost() {
        let mut questions = Questions::default();
        (0..MOST as u64 + 3).for_each(|at| questions.ask(MS(at)));
        assert_eq!(questions.settled(), Counted { sent: 3, received: 0 });
    }
}
