//! Data rate of a path, and the budget for questions about its data.

use segue_clock::{Span, Time};

use crate::questions::QUESTION_GAP;

/// Bytes of a question and its answer, each with IPv4, UDP and a probe packet.
const QUESTION: f64 = (2 * (20 + 8 + segue_wire::Probe::PACKET_LEN)) as f64;
/// Cost of questions relative to the bytes of unanswered data, the maximum credit in questions, and the distance of
/// questions that the credit does not cover.
const QUESTION_SHARE: f64 = 0.3;
const QUESTION_CREDIT: f64 = 5.0;
const QUESTION_RARE: Span = Span::from_secs(1);
/// Averaging time of the rate in seconds.
const RATE_OVER: f64 = 1.0;

/// Data rate of a path, and the budget for questions about its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    last: Option<(u64, Time)>,
    /// Bytes per second.
    pub(super) average: f64,
    /// Bytes that questions may cost.
    credit: f64,
    /// When the last question about a missing answer left.
    asked: Option<Time>,
}

impl Rate {
    pub(super) const NEW: Rate = Rate { last: None, average: 0.0, credit: 0.0, asked: None };

    pub(super) fn observe(&mut self, now: Time, bytes: u64) {
        let last = self.last.replace((bytes, now));
        let Some((before, at)) = last else { return };
        let more = bytes.saturating_sub(before) as f64;
        let seconds = now.since(at).as_secs_f64();
        self.credit = (self.credit + more * QUESTION_SHARE).min(QUESTION * QUESTION_CREDIT);
        let keep = libm::exp(-seconds / RATE_OVER);
        let now_is = if seconds > 0.0 { more / seconds } else { self.average };
        self.average = now_is * (1.0 - keep) + self.average * keep;
    }

    /// When a question about a missing answer may leave: [`QUESTION_GAP`] after the last one while the credit covers
    /// it, otherwise [`QUESTION_RARE`] after it.
    pub(super) fn may_ask_at(&self, due: Time) -> Time {
        self.asked.map_or(due, |asked| due.max(asked + self.apart()))
    }

    fn apart(&self) -> Span {
        if self.credit >= QUESTION { QUESTION_GAP } else { QUESTION_RARE }
    }

    /// Maximum delay of the next question until the credit covers it.
    pub(super) fn longest_apart(&self) -> Span {
        let earned = QUESTION_SHARE * self.average.max(1.0);
        let missing = (QUESTION - self.credit).max(0.0);
        Span::from_secs_f64(missing / earned).clamp(QUESTION_GAP, QUESTION_RARE)
    }

    pub(super) fn ask(&mut self, now: Time) {
        self.asked = Some(now);
        self.credit = (self.credit - QUESTION).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn data_pay_for_questions_and_their_rate_is_averaged_over_a_second() {
        let (at, second) = (Time(7_000_000_000), Span::from_secs(1));
        let mut rate = Rate::NEW;
        rate.observe(at, 1_000_000);
        near(rate.average, 0.0);
        near(rate.credit, 0.0);
        rate.observe(at + second, 1_000_500);
        let average = 500.0 * (1.0 - libm::exp(-1.0));
        near(rate.average, average);
        near(rate.credit, 150.0);
        // A second reading at the same instant contains no information about the rate.
        rate.observe(at + second, 1_000_600);
        near(rate.average, average);
        near(rate.credit, 180.0);
        rate.observe(at + second * 3, 1_000_600);
        near(rate.average, average * libm::exp(-2.0));
        near(rate.credit, 180.0);
        // The credit is at most five questions. Counters that restart cost nothing.
        rate.observe(at + second * 4, 9_000_000);
        near(rate.credit, 5.0 * QUESTION);
        rate.observe(at + second * 5, 10);
        near(rate.credit, 5.0 * QUESTION);
    }

    #[test]
    fn questions_that_data_pay_for_are_close_and_others_a_second_apart() {
        let at = Time(7_000_000_000);
        let mut rate = Rate::NEW;
        assert_eq!(rate.may_ask_at(at), at, "none was asked");
        (rate.credit, rate.average) = (1.5 * QUESTION, 4.0 * QUESTION);
        rate.ask(at);
        near(rate.credit, 0.5 * QUESTION);
        assert_eq!(rate.may_ask_at(at), at + Span::from_secs(1));
        assert_eq!(rate.may_ask_at(at + Span::from_secs(2)), at + Span::from_secs(2));
        // The credit lacks half a question, and the path earns 1.2 questions per second.
        near(rate.longest_apart().as_secs_f64(), 0.5 / 1.2);
        rate.credit = QUESTION;
        assert_eq!(rate.may_ask_at(at), at + QUESTION_GAP);
        assert_eq!(rate.longest_apart(), QUESTION_GAP);
        rate.ask(at);
        near(rate.credit, 0.0);
        rate.average = 0.0;
        assert_eq!(rate.longest_apart(), QUESTION_RARE);
        rate.ask(at);
        near(rate.credit, 0.0);
    }
}
