//! Determines which flows lose the packets that a path loses.
//!
//! Both ends count the packets of each flow on the path that it is bound to. While a path loses packets, the host
//! periodically (every [`SOON`] at first) counts the flows on it and asks the anchor for its counts: one [`Round`]. Two
//! rounds bound the loss of a flow between them, without a common clock:
//!
//! * **Up.** Consider the packets that the host sent after the earlier answer arrived, but at least one settling time
//!   before the later round. By the later answer each of them has arrived or is lost, and the growth of the anchor's
//!   count is an upper bound on the arrived ones.
//! * **Down.** Consider the packets that the anchor sent between its two answers. One settling time after the later
//!   answer each of them has arrived or is lost, and the growth of the host's count since the start of the earlier
//!   round is an upper bound on the arrived ones.
//!
//! A packet in flight or in a queue is therefore not taken for a lost one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;
use segue_keepalive::size::Direction;
use segue_wire::FlowKey;
use segue_wire::signal::{FlowSeen, MAX_COUNTED};

use crate::FlowCount;

/// Time from one round to the next, at first and later.
const SOON: Span = Span::from_millis(50);
const LATER: Span = Span::from_millis(100);
/// How long the shorter interval applies.
const FIRST: Span = Span::from_secs(1);
/// Maximum number of rounds kept.
const ROUNDS: usize = 64;
/// Minimum share of a flow's packets that a filter drops.
const FILTERED: f64 = 0.9;
/// Minimum evidence for a filter. It must span several rounds, because a single burst that a full queue drops is no
/// filter.
pub(super) const ENOUGH: Least = Least { packets: 20, rounds: 3, span: Span::from_millis(350) };
/// From this much evidence on, a share like a filter's justifies waiting for more.
pub(super) const FEW: Least = Least { packets: 5, rounds: 1, span: Span::ZERO };
/// Maximum share of lost questions at which probes are considered to pass.
const QUESTIONS_LOST: f64 = 0.1;
/// Minimum number of questions for that. One loss is always tolerated.
const LEAST_QUESTIONS: u64 = 4;
/// The path as a whole must have lost at least this share of the flow's loss: otherwise the counts disagree and show no
/// filter.
const AGREES: f64 = 0.8;

/// Minimum evidence about a flow for a verdict.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Least {
    packets: u32,
    /// Number of rounds in which the flow's count grew.
    rounds: usize,
    span: Span,
}

/// The counts of the flows on one path.
pub(super) struct Audit {
    /// The path's number.
    path: u8,
    pub(super) began: Time,
    /// When the next round begins.
    pub(super) next: Time,
    pub(super) flows: Vec<FlowKey>,
    rounds: VecDeque<Round>,
    /// When the path's loss counters last grew, and their values.
    pub(super) lost_at: Time,
    lost: [u64; 2],
}

/// The counts of all flows at one time.
struct Round {
    number: u32,
    at: Time,
    /// The host's counts; `None` for a flow that is not on the path.
    own: Vec<Option<FlowCount>>,
    totals: Totals,
    answer: Option<Answer>,
}

struct Answer {
    at: Time,
    seen: Vec<FlowSeen>,
}

/// Counters of a path as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Questions and their answers, which are probes that never ride on data.
    pub(super) questions: Counted,
    /// Packets lost, up and down.
    pub(super) lost: [u64; 2],
}

/// A lower bound on the loss of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) flow: FlowKey,
    pub(super) direction: Direction,
    pub(super) counted: Counted,
    pub(super) since: Time,
    /// Mean length of its packets in that direction, in bytes.
    pub(super) length: u16,
    /// The loss is large enough for a filter.
    pub(super) mostly: bool,
    /// In addition, probes pass and the path's own counters agree.
    pub(super) filtered: bool,
}

impl Audit {
    pub(super) fn new(now: Time, path: u8, mut flows: Vec<FlowKey>) -> Audit {
        flows.truncate(MAX_COUNTED);
        Audit {
            path,
            began: now,
            next: now,
            flows,
            rounds: VecDeque::new(),
            lost_at: now,
            lost: [0; 2],
        }
    }

    /// Discards all counts and continues with these flows.
    pub(super) fn restart(&mut self, now: Time, flows: Vec<FlowKey>) {
        *self = Audit { next: self.next, ..Audit::new(now, self.path, flows) };
    }

    /// Time from this round to the next.
    pub(super) fn pause(&self, now: Time) -> Span {
        if now.since(self.began) < FIRST { SOON } else { LATER }
    }

    /// The totals of the first round.
    pub(super) fn first_totals(&self) -> Option<Totals> {
        self.rounds.front().map(|round| round.totals)
    }

    /// Updates the path's loss counters, up and down.
    pub(super) fn on_lost(&mut self, now: Time, lost: [u64; 2]) {
        if self.lost != lost {
            (self.lost_at, self.lost) = (now, lost);
        }
    }

    /// Starts a round with the host's counts.
    pub(super) fn count(
        &mut self,
        now: Time,
        number: u32,
        own: &[Option<FlowCount>],
        totals: Totals,
    ) {
        let path = u32::from(self.path);
        let on_path = |count: &Option<FlowCount>| count.filter(|count| count.slot == path);
        let own = own.iter().map(on_path).collect();
        if self.rounds.len() >= ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(Round { number, at: now, own, totals, answer: None });
    }

    /// Completes a round with the anchor's counts.
    pub(super) fn answer(&mut self, now: Time, number: u32, seen: Vec<FlowSeen>) {
        let round = self.rounds.iter_mut().find(|round| round.number == number);
        if let Some(round) = round.filter(|round| round.own.len() == seen.len()) {
            round.answer = Some(Answer { at: now, seen });
        }
    }

    /// Returns the loss of each flow over its last `least` packets or slightly more, if that much is known. `settle` is
    /// the longest time that an answer takes, `totals` are the current ones.
    pub(super) fn judge(&self, settle: Span, totals: Totals, least: Least) -> Vec<Found> {
        let up = self.up_rounds(settle);
        let down = self.down_rounds(settle);
        let mut found = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            let up = up.and_then(|ends| self.lost_up(index, ends, least));
            let down = down.and_then(|ends| self.lost_down(index, ends, least));
            for (direction, lost) in [(Direction::Up, up), (Direction::Down, down)] {
                let Some(Lost { sent, lost, from, length }) = lost else { continue };
                let before = &self.rounds[from];
                let way = usize::from(direction == Direction::Down);
                let of_path = totals.lost[way].saturating_sub(before.totals.lost[way]);
                let questions = totals.questions.since(before.totals.questions).unwrap_or_default();
                let mostly = f64::from(lost) >= FILTERED * f64::from(sent);
                let filtered =
                    mostly && of_path as f64 >= AGREES * f64::from(lost) && pass(questions, least);
                let counted = Counted { sent: u64::from(sent), received: u64::from(sent - lost) };
                let since = before.at;
                found.push(Found {
                    flow: *flow,
                    direction,
                    counted,
                    since,
                    length,
                    mostly,
                    filtered,
                });
            }
        }
        found
    }

    /// The last answered round, and the latest round that began a settling time before it.
    fn up_rounds(&self, settle: Span) -> Option<(usize, usize)> {
        let last = self.rounds.iter().rposition(|round| round.answer.is_some())?;
        let asked = self.rounds[last].at;
        let settled = self.rounds.iter().rposition(|round| round.at + settle <= asked)?;
        Some((last, settled))
    }

    /// The last answered round whose packets have settled, and the newest round, whose counts include them.
    fn down_rounds(&self, settle: Span) -> Option<(usize, usize)> {
        let newest = self.rounds.back()?.at;
        let settled = |round: &Round| {
            round.answer.as_ref().is_some_and(|answer| answer.at + settle <= newest)
        };
        let last = self.rounds.iter().rposition(settled)?;
        Some((last, self.rounds.len() - 1))
    }

    /// The answered rounds before `last`, latest first.
    fn answered_before(&self, last: usize) -> impl Iterator<Item = (usize, &Answer)> {
        let rounds = self.rounds.iter().enumerate().take(last).rev();
        rounds.filter_map(|(n, round)| Some((n, round.answer.as_ref()?)))
    }

    fn lost_up(&self, index: usize, (last, end): (usize, usize), least: Least) -> Option<Lost> {
        let received =
            |seen: &FlowSeen| if seen.path == Some(self.path) { seen.received } else { 0 };
        let until = received(self.rounds[last].answer.as_ref()?.seen.get(index)?);
        let sent_until = self.own(end, index)?.sent;
        for (_, answer) in self.answered_before(last) {
            let from = self.rounds.partition_point(|round| round.at < answer.at);
            if from >= end {
                continue;
            }
            let sent = sent_until.wrapping_sub(self.own(from, index)?.sent);
            let counts = (from..=end).map(|n| self.own(n, index).map(|count| count.sent));
            if sent < u32::MAX / 2 && least.is_met(sent, self.span(from, end), counts) {
                let before = received(answer.seen.get(index)?);
                // A binding that was created anew at the anchor counts from zero.
                let came = if until >= before { until - before } else { until };
                let lost = sent.saturating_sub(came);
                let length = u16::try_from(self.own(end, index)?.length).unwrap_or(u16::MAX);
                return Some(Lost { sent, lost, from, length });
            }
        }
        None
    }

    fn lost_down(&self, index: usize, (last, end): (usize, usize), least: Least) -> Option<Lost> {
        let on_path = |answer: &Answer| {
            answer.seen.get(index).filter(|seen| seen.path == Some(self.path)).copied()
        };
        let FlowSeen { sent: until, length, .. } = on_path(self.rounds[last].answer.as_ref()?)?;
        let came_until = self.own(end, index)?.received;
        for (from, answer) in self.answered_before(last) {
            let sent = until.wrapping_sub(on_path(answer)?.sent);
            let rounds = self.rounds.range(from..=last);
            let counts = rounds.map(|round| Some(on_path(round.answer.as_ref()?)?.sent));
            if sent < u32::MAX / 2 && least.is_met(sent, self.span(from, last), counts) {
                let came = came_until.wrapping_sub(self.own(from, index)?.received);
                let lost = sent.saturating_sub(came);
                return Some(Lost { sent, lost, from, length });
            }
        }
        None
    }

    /// Time from one round to another.
    fn span(&self, from: usize, to: usize) -> Span {
        self.rounds[to].at.since(self.rounds[from].at)
    }

    fn own(&self, round: usize, index: usize) -> Option<FlowCount> {
        self.rounds.get(round)?.own.get(index).copied().flatten()
    }
}

/// The loss of one direction of a flow.
struct Lost {
    sent: u32,
    lost: u32,
    /// The round at which the evidence starts.
    from: usize,
    /// Mean length of its packets, in bytes.
    length: u16,
}

impl Least {
    /// Returns whether this many packets over this time suffice; `counts` are those of the rounds.
    fn is_met(self, packets: u32, span: Span, counts: impl Iterator<Item = Option<u32>>) -> bool {
        let mut before = None;
        let grew = |count: &u32| before.replace(*count).is_some_and(|old| old != *count);
        packets >= self.packets
            && span >= self.span
            && counts.flatten().filter(grew).count() >= self.rounds
    }
}

/// Returns whether questions pass, as far as known. With few packets it suffices that they are not known to be lost.
fn pass(questions: Counted, least: Least) -> bool {
    let enough = questions.sent >= LEAST_QUESTIONS || least == FEW;
    enough && questions.lost() as f64 <= (QUESTIONS_LOST * questions.sent as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const MS: fn(u64) -> Time = |ms| Time(ms * 1_000_000);
    const SETTLE: Span = Span::from_millis(40);

    fn flow() -> FlowKey {
        let address = core::net::IpAddr::from([10, 7, 0, 2]);
        FlowKey { src: address, dst: address, sport: 1, dport: 2, protocol: 17, label: 0 }
    }

    /// Counts of one flow every 100 ms, each answered after 20 ms. `own` gives the host's sent and received packets at
    /// the start of a round, `far` the anchor's at its answer. Questions pass, and the path loses as much as the flow.
    fn audit(
        rounds: u64,
        own: impl Fn(u64) -> (u32, u32),
        far: impl Fn(u64) -> (u32, u32),
    ) -> Audit {
        let mut audit = Audit::new(MS(0), 3, vec![flow()]);
        for n in 0..rounds {
            let ((sent, received), at) = (own(n), 100 * n);
            let count = FlowCount { slot: 3, sent, received, length: 200 };
            audit.count(MS(at), n as u32, &[Some(count)], totals(n));
            let (sent, received) = far(n);
            let seen = FlowSeen { path: Some(3), sent, received, length: 100 };
            audit.answer(MS(at + 20), n as u32, vec![seen]);
        }
        audit
    }

    fn totals(n: u64) -> Totals {
        Totals { questions: Counted { sent: 2 * n, received: 2 * n }, lost: [1_000 * n; 2] }
    }

    fn judge(audit: &Audit, rounds: u64) -> [Option<Found>; 2] {
        let found = audit.judge(SETTLE, totals(rounds), ENOUGH);
        [Direction::Up, Direction::Down]
            .map(|way| found.iter().find(|found| found.direction == way).copied())
    }

    #[test]
    fn a_flow_that_loses_all_is_filtered_and_one_that_loses_most_is_not() {
        let sent = |n: u64| 10 * n as u32;
        let all = audit(9, |n| (sent(n), 0), |n| (sent(n), 0));
        let [up, down] = judge(&all, 9).map(Option::unwrap);
        assert!(up.filtered && down.filtered, "{up:?} {down:?}");
        assert_eq!((up.length, down.length), (200, 100));
        let most = audit(9, |n| (sent(n), sent(n) / 5), |n| (sent(n), sent(n) / 5));
        let [up, down] = judge(&most, 9).map(Option::unwrap);
        let lost = [up, down].map(|found| found.counted.lost() * 2 > found.counted.sent);
        assert!(!up.mostly && !down.mostly && lost == [true; 2], "{up:?} {down:?}");
    }

    /// A queue builds up to a second, so recent packets are still in flight.
    #[test]
    fn packets_on_their_way_are_not_lost() {
        let sent = |n: u64| 10 * n as u32;
        let mut late = audit(4, |n| (sent(n), 0), |n| (sent(n), 0));
        late.rounds.back_mut().unwrap().at = MS(325);
        assert!(judge(&late, 4).iter().flatten().all(|found| !found.filtered));
        // The sender has just become much faster, and its last burst is in flight at the last round.
        let bursts = |n: u64| sent(n) + if n >= 8 { 1_000 } else { 0 };
        let fast = audit(9, |n| (bursts(n), 0), |n| (0, sent(n)));
        assert!(!judge(&fast, 9)[0].unwrap().mostly);
    }

    #[test]
    fn one_burst_that_is_lost_is_no_filter() {
        let burst = |n: u64| if n >= 3 { 60 } else { 0 };
        let lost = audit(12, |n| (burst(n), 0), |_| (0, 0));
        assert_eq!(judge(&lost, 12)[0], None);
    }

    #[test]
    fn where_questions_die_or_the_path_counts_no_loss_nothing_is_filtered() {
        let sent = |n: u64| 10 * n as u32;
        let all = audit(9, |n| (sent(n), 0), |n| (sent(n), 0));
        let dead = Totals { questions: Counted { sent: 18, received: 3 }, ..totals(9) };
        let clean = Totals { lost: [0; 2], ..totals(9) };
        for totals in [dead, clean] {
            let found = all.judge(SETTLE, totals, ENOUGH);
            assert!(!found.is_empty() && found.iter().all(|found| !found.filtered), "{found:?}");
        }
    }

    /// The flow has moved at the anchor, or all its packets on the path were lost from the start.
    #[test]
    fn a_path_that_the_anchor_has_never_seen_a_flow_on_has_received_nothing() {
        let mut lost = audit(9, |n| (10 * n as u32, 0), |_| (0, 0));
        for round in &mut lost.rounds {
            round.answer.as_mut().unwrap().seen[0] =
                FlowSeen { path: Some(1), sent: 900, received: 900, length: 0 };
        }
        let [up, down] = judge(&lost, 9);
        assert!(up.unwrap().filtered && down.is_none());
    }
}
