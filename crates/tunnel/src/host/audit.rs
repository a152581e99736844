//! Which flows lose the packets that a path loses?
//!
//! Both ends count the packets of each flow on the path that it is bound to. While a path loses packets, the host takes
//! its own counts of the flows on it every [`SOON`], and asks the anchor for the anchor's: one [`Round`]. Two rounds
//! give a bound of what a flow has lost between them that needs no clock in common:
//!
//! * **Up.** What the host sent after the earlier answer arrived, and an answer's time before the later round asked, has
//!   either arrived by the later answer or is lost. The growth of the anchor's count is at most what arrived of it.
//! * **Down.** What the anchor sent between its two answers has either arrived an answer's time after the later one or
//!   is lost. The growth of the host's count since the earlier round asked is at most what arrived of it.
//!
//! So a packet that is on its way, or in a queue, is not taken for a lost one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;
use segue_keepalive::size::Direction;
use segue_wire::FlowKey;
use segue_wire::signal::{FlowSeen, MAX_COUNTED};

use crate::FlowCount;

/// From one round to the next, at first and later.
const SOON: Span = Span::from_millis(50);
const LATER: Span = Span::from_millis(100);
/// How long rounds follow soon.
const FIRST: Span = Span::from_secs(1);
/// Most rounds that are remembered.
const ROUNDS: usize = 64;
/// A filter drops at least this share of a flow.
const FILTERED: f64 = 0.9;
/// Of at least this many packets, over at least this long and in several rounds: one burst that a full queue drops is no
/// filter.
pub(super) const ENOUGH: Least = Least { packets: 20, rounds: 3, span: Span::from_millis(350) };
/// From this on, a share like a filter's is a reason to wait for more.
pub(super) const FEW: Least = Least { packets: 5, rounds: 1, span: Span::ZERO };
/// While at most this share of questions is lost.
const QUESTIONS_LOST: f64 = 0.1;
/// Of at least this many, or one.
const LEAST_QUESTIONS: u64 = 4;
/// The path as a whole has lost at least this share of what its flow has: counts that disagree show no filter.
const AGREES: f64 = 0.8;

/// How much has to be known of a flow to judge it.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Least {
    packets: u32,
    /// Rounds between which its count grew.
    rounds: usize,
    span: Span,
}

/// Counts of a path's flows.
pub(super) struct Audit {
    /// The path, by number.
    path: u8,
    pub(super) began: Time,
    /// When the next round begins.
    pub(super) next: Time,
    pub(super) flows: Vec<FlowKey>,
    rounds: VecDeque<Round>,
    /// When the path's counts of lost packets last grew, and what they were.
    pub(super) lost_at: Time,
    lost: [u64; 2],
}

/// One look at all flows.
struct Round {
    number: u32,
    at: Time,
    /// What the host has counted; `None` for a flow that is not on the path.
    own: Vec<Option<FlowCount>>,
    totals: Totals,
    answer: Option<Answer>,
}

struct Answer {
    at: Time,
    seen: Vec<FlowSeen>,
}

/// Counts of a path as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Questions and their answers: probes that never ride on data.
    pub(super) questions: Counted,
    /// Packets lost, up and down.
    pub(super) lost: [u64; 2],
}

/// What a flow has lost, at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) flow: FlowKey,
    pub(super) direction: Direction,
    pub(super) counted: Counted,
    pub(super) since: Time,
    /// Mean length of its packets in that direction, in bytes.
    pub(super) length: u16,
    /// It loses what a filter would drop.
    pub(super) mostly: bool,
    /// And probes pass, and the path's own counts agree.
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

    /// Forgets what was counted, and goes on with these flows.
    pub(super) fn restart(&mut self, now: Time, flows: Vec<FlowKey>) {
        *self = Audit { next: self.next, ..Audit::new(now, self.path, flows) };
    }

    /// From this round to the next.
    pub(super) fn pause(&self, now: Time) -> Span {
        if now.since(self.began) < FIRST { SOON } else { LATER }
    }

    /// The totals of the first round.
    pub(super) fn first_totals(&self) -> Option<Totals> {
        self.rounds.front().map(|round| round.totals)
    }

    /// What the path has lost by now, up and down.
    pub(super) fn on_lost(&mut self, now: Time, lost: [u64; 2]) {
        if self.lost != lost {
            (self.lost_at, self.lost) = (now, lost);
        }
    }

    /// The host's counts of a round.
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

    /// The anchor's counts of a round.
    pub(super) fn answer(&mut self, now: Time, number: u32, seen: Vec<FlowSeen>) {
        let round = self.rounds.iter_mut().find(|round| round.number == number);
        if let Some(round) = round.filter(|round| round.own.len() == seen.len()) {
            round.answer = Some(Answer { at: now, seen });
        }
    }

    /// What each flow has lost of its last `least` packets or a few more, where that many are known of. `settle` is how
    /// long an answer takes at most, `totals` are the present ones.
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

    /// The last answered round that asked after an earlier round's packets had settled, and that earlier round.
    fn up_rounds(&self, settle: Span) -> Option<(usize, usize)> {
        let last = self.rounds.iter().rposition(|round| round.answer.is_some())?;
        let asked = self.rounds[last].at;
        let settled = self.rounds.iter().rposition(|round| round.at + settle <= asked)?;
        Some((last, settled))
    }

    /// The last answered round whose packets have settled, and the round that shows it.
    fn down_rounds(&self, settle: Span) -> Option<(usize, usize)> {
        let newest = self.rounds.back()?.at;
        let settled = |round: &Round| {
            round.answer.as_ref().is_some_and(|answer| answer.at + settle <= newest)
        };
        let last = self.rounds.iter().rposition(settled)?;
        Some((last, self.rounds.len() - 1))
    }

    /// The answered rounds before one, the latest first.
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
                // A binding that began anew at the anchor counts from zero.
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

    /// From one round to another.
    fn span(&self, from: usize, to: usize) -> Span {
        self.rounds[to].at.since(self.rounds[from].at)
    }

    fn own(&self, round: usize, index: usize) -> Option<FlowCount> {
        self.rounds.get(round)?.own.get(index).copied().flatten()
    }
}

/// What was found of one direction of a flow.
struct Lost {
    sent: u32,
    lost: u32,
    /// The round with which it begins.
    from: usize,
    /// Mean length of its packets, in bytes.
    length: u16,
}

impl Least {
    /// Whether so many packets over so long are enough; `counts` are those of the rounds.
    fn is_met(self, packets: u32, span: Span, counts: impl Iterator<Item = Option<u32>>) -> bool {
        let mut before = None;
        let grew = |count: &u32| before.replace(*count).is_some_and(|old| old != *count);
        packets >= self.packets
            && span >= self.span
            && counts.flatten().filter(grew).count() >= self.rounds
    }
}

/// Whether questions pass, as far as is known. For few packets it is enough that they are not known to be lost.
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

    /// Counts of one flow every 100 ms, each answered after 20 ms: what the host has sent and received by the question,
    /// and the anchor by its answer. Questions pass, and the path loses as much as the flow.
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

    /// A queue of a second builds up: what was sent lately is under way.
    #[test]
    fn packets_on_their_way_are_not_lost() {
        let sent = |n: u64| 10 * n as u32;
        let mut late = audit(4, |n| (sent(n), 0), |n| (sent(n), 0));
        late.rounds.back_mut().unwrap().at = MS(325);
        assert!(judge(&late, 4).iter().flatten().all(|found| !found.filtered));
        // The sender has just become much faster, and what it sent is in the air at the last question.
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

    /// The flow has moved at the anchor, or its packets on the path are all lost from the first on.
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
