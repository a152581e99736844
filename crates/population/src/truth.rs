//! Ground truth about outages and lost exchanges of a path, to judge the beliefs of the machines.

use segue_clock::{Span, Time};
use segue_keepalive::State;

use super::access::Outage;
use super::spec::Class;
use super::stats::ClassStats;

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Host = 0,
    Anchor = 1,
}

/// Ground truth of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    /// Number of consecutive lost exchanges.
    unanswered: u8,
    /// Number of consecutive exchanges without an outage, capped at K. Before it reaches K, no exchange can be the last
    /// of K unanswered ones.
    seen: u8,
    /// An outage has ended, and the host has not reported the path as up yet.
    recovering: bool,
    ends: [Belief; 2],
}

/// Belief of an end about a path.
#[derive(Clone, Copy, Debug, Default)]
struct Belief {
    is_up: bool,
    since: Time,
    /// This end has reported the path as down in the current outage.
    found: bool,
}

impl Truth {
    pub(super) fn is_up(&self, end: End) -> bool {
        self.ends[end as usize].is_up
    }

    /// Counts an exchange that no outage touched.
    pub(super) fn on_exchange(&mut self, answered: bool, k: u8, stats: &mut ClassStats) {
        if self.recovering {
            return;
        }
        self.unanswered = if answered { 0 } else { self.unanswered.saturating_add(1) };
        self.seen = (self.seen + 1).min(k);
        stats.exchanges += 1;
        stats.possible += u64::from(self.seen == k);
        stats.windows += u64::from(self.unanswered >= k);
    }

    /// An outage touched an exchange, so the exchange says nothing about random loss.
    pub(super) fn on_silence(&mut self) {
        (self.unanswered, self.seen) = (0, 0);
    }

    /// Handles the end of a path's outage from `start` to `end`, or the end of the run. Outages shorter than `bound`
    /// (eq. 1) need not be detected.
    pub(super) fn on_over(
        &mut self,
        (start, end): (Time, Time),
        bound: Span,
        class: &Class,
        stats: &mut ClassStats,
    ) {
        stats.outages += 1;
        self.recovering = true;
        self.on_silence();
        for at in [End::Host, End::Anchor] {
            let belief = &mut self.ends[at as usize];
            let held_up = belief.is_up && belief.since <= start;
            if held_up && !belief.found && concerns(at, class) && end.since(start) >= bound {
                stats.ends[at as usize].missed += 1;
            }
            belief.found = false;
        }
    }

    /// Handles a state report of an end; `silent` is the time since the last sign of life. All outages up to `now` must
    /// have been passed. Counts state changes after `from`, and detections of outages that start by `last`: of later
    /// ones, only those detected quickly would fall into the run.
    pub(super) fn on_state(
        &mut self,
        now: Time,
        end: End,
        (state, silent): (State, Option<Span>),
        (outage, class, (from, last)): (&Outage, &Class, (Time, Time)),
        stats: &mut ClassStats,
    ) {
        let belief = &mut self.ends[end as usize];
        belief.is_up = state == State::Up;
        belief.since = now;
        if belief.is_up && end == End::Host {
            self.recovering = false;
        }
        if state != State::Down || now < from {
            return;
        }
        let stats = &mut stats.ends[end as usize];
        if outage.covers(now) && concerns(end, class) {
            belief.found = true;
            if outage.start > last {
                return;
            }
            let us = now.since(outage.start).0 / 1_000;
            stats.detections.push(u32::try_from(us).unwrap_or(u32::MAX));
        } else if outage.before > now - silent.unwrap_or(Span::ZERO) {
            stats.late += 1;
        } else {
            stats.false_positives += 1;
        }
    }
}

/// Returns true if an end can notice the outages of a class: an outage that silences only the way to the host concerns
/// only the host.
fn concerns(end: End, class: &Class) -> bool {
    end == End::Host || class.outages.is_some_and(|outages| outages.silences(true))
}
