//! Loss on the host's paths: tests each direction, feeds the steering and reports verdicts.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::loss_test::bounds;
use segue_keepalive::size::Direction;
use segue_keepalive::{Client, ClientInput, Counted, LossTest, LossVerdict, PathLosses};

use super::{Host, Path};
use crate::{Output, Report};

/// Upper bound of T_KA on every path for a while after one became suspicious: probes show whether the other paths are
/// better, and whether the lossy one has recovered.
const WATCHED: Span = Span::from_millis(250);
/// How long that bound applies.
const WATCHED_FOR: Span = Span::from_secs(60);
/// Upper bound of T_KA on the lossy path after that, until the verdict ends.
const WATCHED_LATER: Span = Span::from_secs(1);
/// Minimum time between two extra requests for the counters of a suspicious path.
const RECOUNT: Span = Span::from_millis(100);
/// Maximum number of packets that count as evidence for a path without losses.
const MOST_COUNTED: u64 = 500;

/// The loss of one direction, as steering uses it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenLoss {
    /// While a verdict stands, the lowest loss consistent with the counts; otherwise zero.
    pub(super) share: f64,
    /// The highest loss that the counts do not rule out.
    pub(super) bound: f64,
}

impl Path {
    /// The test of a direction; `None` before the first loss.
    fn loss_test(&self, direction: Direction) -> Option<&LossTest> {
        let losses = self.losses.as_deref()?;
        Some(match direction {
            Direction::Up => &losses.up,
            Direction::Down => &losses.down,
        })
    }

    /// The verdict that a direction loses packets, while it stands; `None` while the verdict waits because it may
    /// concern a single flow.
    #[must_use]
    pub fn loss_verdict(&self, direction: Direction) -> Option<&LossVerdict> {
        self.loss_test(direction)?.verdict().filter(|_| !self.holds_verdicts())
    }

    /// Returns whether a verdict of loss stands.
    pub(super) fn is_lossy(&self) -> bool {
        !self.holds_verdicts() && self.losses.as_deref().is_some_and(PathLosses::is_lossy)
    }

    /// The loss up and down, for the steering. If only round trips are counted, their loss is divided evenly, which is
    /// right for small equal losses.
    pub(super) fn seen_losses(&self) -> [SeenLoss; 2] {
        let Some([up, down]) = self.client.as_ref().map(Client::counted) else {
            return Default::default();
        };
        let seen = |direction, sent: u64| match self.loss_test(direction) {
            Some(test) => {
                let share = if self.holds_verdicts() { 0.0 } else { test.least() };
                SeenLoss { share, bound: test.most() }
            }
            None => SeenLoss { share: 0.0, bound: bounds(sent.min(MOST_COUNTED) as f64, 0.0).1 },
        };
        if down.sent == 0 {
            let SeenLoss { share, bound } = seen(Direction::Up, up.sent);
            return [SeenLoss { share: share / 2.0, bound: bound / 2.0 }; 2];
        }
        [seen(Direction::Up, up.sent), seen(Direction::Down, down.sent)]
    }

    /// Returns whether data are running but no answer with counters has arrived for more than 1.5 periods. Requests
    /// that ride may be lost with the data of one flow, while data of other flows show that the path lives.
    fn counts_are_old(&self, now: Time) -> bool {
        self.client.as_ref().is_some_and(|client| {
            let most = client.config().t_ka + client.config().t_ka.half() + client.answer_within();
            client.use_of_path().0 > now && now.since(client.last_response()) > most
        })
    }

    /// Describes the counts behind the verdicts.
    pub(super) fn loss_evidence(&self, now: Time) -> String {
        let directions = [Direction::Up, Direction::Down].into_iter();
        let found = directions.filter_map(|d| Some((d, self.loss_verdict(d)?)));
        let found = found.map(|(direction, verdict)| {
            let LossVerdict { counted, since, at, .. } = verdict;
            let (name, took) = (direction.name(), at.since(*since).as_secs_f64());
            let ago = now.since(*at).as_secs_f64();
            format!("{} {counted} {name} in {took:.1} s, verdict {ago:.1} s before", self.name)
        });
        found.collect::<Vec<String>>().join(" and ")
    }

    /// Updates the tests with new counters.
    fn test_losses(&mut self, now: Time, was_up: bool, excused: bool) {
        let Some(client) = &self.client else { return };
        let up = was_up && self.is_up() && !self.loses_copies(now);
        // An idle path without losses needs no test.
        let lost: u64 = client.counted().into_iter().map(Counted::lost).sum();
        let in_use = client.use_of_path().0 > now;
        if self.losses.is_none() && (!up || lost == 0 && !in_use) {
            return;
        }
        let losses = self.losses.get_or_insert_with(|| Box::new(PathLosses::new(now, client)));
        if excused {
            losses.restart(now, client);
        } else {
            losses.observe(now, client, up);
        }
    }
}

impl Host {
    /// Evaluates a path's counters after its client has handled an input.
    pub(super) fn judge_losses(&mut self, now: Time, number: u8, was_up: bool) {
        // Without another path, a verdict that rests on a filtered flow would serve no purpose.
        let other = || self.paths.iter().any(|(n, path)| *n != number && path.is_up());
        let keeps_filtered = self.keeps_filtered(number) && !other();
        let Some(path) = self.paths.get_mut(&number) else { return };
        let excused = keeps_filtered || path.is_excused(now);
        path.test_losses(now, was_up, excused);
        self.watch_flows(now, number, was_up);
        let Some(path) = self.paths.get_mut(&number) else { return };
        let suspicious = path.losses.as_deref().is_some_and(PathLosses::is_suspicious);
        let recounts =
            suspicious && !path.is_lossy() || path.is_audited() || path.counts_are_old(now);
        let recounts = recounts && path.is_up();
        if recounts && path.recounted.is_none_or(|at| now.since(at) >= RECOUNT) {
            path.recounted = Some(now);
            self.feed(now, number, ClientInput::Recount);
        }
        if suspicious {
            let begins = self.watched_since.is_none_or(|at| now.since(at) >= WATCHED_FOR);
            self.watched_since = Some(now);
            if begins {
                self.adapt_all(now);
            }
        }
        self.tell_losses(now, number);
    }

    /// Reports verdicts of loss that are new or have ended, and re-evaluates the steering.
    pub(super) fn tell_losses(&mut self, now: Time, number: u8) {
        let directions = [Direction::Up, Direction::Down];
        let Some(path) = self.paths.get_mut(&number) else { return };
        let stands = directions.map(|direction| path.loss_verdict(direction).is_some());
        let told = core::mem::replace(&mut path.loss_told, stands);
        if stands == told {
            return;
        }
        for ((direction, stands), told) in directions.into_iter().zip(stands).zip(told) {
            if stands != told {
                self.report_loss(now, number, direction);
            }
        }
        self.evaluate(now);
    }

    fn report_loss(&mut self, now: Time, number: u8, direction: Direction) {
        let Some(path) = self.paths.get(&number) else { return };
        let verdict = path.loss_verdict(direction).copied();
        let took = verdict.map_or(Span::ZERO, |verdict| now.since(verdict.since));
        let (host, path) = (String::new(), path.name.to_string());
        self.out.push_back(Output::report(Report::PathLoss {
            host,
            path,
            direction,
            verdict,
            took,
        }));
    }

    /// The upper bound of T_KA on a path while loss is watched.
    pub(super) fn watched_t_ka(&self, now: Time, path: &Path) -> Option<Span> {
        if self.watched_since.is_some_and(|at| now.since(at) < WATCHED_FOR) {
            return Some(WATCHED);
        }
        path.is_lossy().then_some(WATCHED_LATER)
    }
}
