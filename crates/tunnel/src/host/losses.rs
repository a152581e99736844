//! Loss on the host's paths: a test of each direction, what steering sees of it, and the news.

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

/// T_KA of every path for a while after one became suspicious: the others show whether they are better, and the lossy
/// one whether it has recovered.
const WATCHED: Span = Span::from_millis(250);
/// For how long.
const WATCHED_FOR: Span = Span::from_secs(60);
/// T_KA after that, until the verdict ends.
const WATCHED_LATER: Span = Span::from_secs(1);
/// Minimum time between questions about a suspicious path that wait for no verdict yet.
const RECOUNT: Span = Span::from_millis(100);
/// Counts of a path without losses go back this far, in packets.
const MOST_COUNTED: u64 = 500;

/// The loss of one direction, as steering uses it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenLoss {
    /// The least that explains the counts while a verdict stands; zero without one.
    pub(super) share: f64,
    /// The most that the counts do not rule out.
    pub(super) bound: f64,
}

impl Path {
    /// The test of a direction; `None` before anything was lost.
    fn loss_test(&self, direction: Direction) -> Option<&LossTest> {
        let losses = self.losses.as_deref()?;
        Some(match direction {
            Direction::Up => &losses.up,
            Direction::Down => &losses.down,
        })
    }

    /// The verdict that a direction loses packets, while it stands. One that may concern a single flow waits.
    #[must_use]
    pub fn loss_verdict(&self, direction: Direction) -> Option<&LossVerdict> {
        self.loss_test(direction)?.verdict().filter(|_| !self.holds_verdicts())
    }

    /// Whether a verdict of loss stands.
    pub(super) fn is_lossy(&self) -> bool {
        !self.holds_verdicts() && self.losses.as_deref().is_some_and(PathLosses::is_lossy)
    }

    /// The loss up and down, as steering uses it. The loss of round trips is divided evenly, which is right for small
    /// equal losses.
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

    /// Whether data run and yet no answer with counts has come for longer than a period. Requests that ride may die
    /// with the data of one flow, while those of others show that the path lives.
    fn counts_are_old(&self, now: Time) -> bool {
        self.client.as_ref().is_some_and(|client| {
            let most = client.config().t_ka + client.config().t_ka.half() + client.answer_within();
            client.use_of_path().0 > now && now.since(client.last_response()) > most
        })
    }

    /// The counts on which the verdicts rest, in a sentence.
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

    /// Gives the tests new counts.
    fn test_losses(&mut self, now: Time, was_up: bool, excused: bool) {
        let Some(client) = &self.client else { return };
        let up = was_up && self.is_up() && !self.loses_copies(now);
        // An idle path that has lost nothing needs no test.
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
    /// A path's client has taken something: judges its counts.
    pub(super) fn judge_losses(&mut self, now: Time, number: u8, was_up: bool) {
        // Where there is no other path, a verdict of loss would say nothing more.
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

    /// Reports the verdicts of loss that are new or have ended, and acts on them.
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

    /// T_KA that a path may have at most while loss is watched.
    pub(super) fn watched_t_ka(&self, now: Time, path: &Path) -> Option<Span> {
        if self.watched_since.is_some_and(|at| now.since(at) < WATCHED_FOR) {
            return Some(WATCHED);
        }
        path.is_lossy().then_some(WATCHED_LATER)
    }
}
