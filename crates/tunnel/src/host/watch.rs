//! State about a path's flows, and about those that it filters.

use alloc::format;
use alloc::string::String;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;
use segue_keepalive::size::Direction;

use super::audit::Audit;

/// Minimum time between two updates of the usual loss rate.
const WINDOW: Span = Span::from_millis(500);
/// Time constant of the usual loss rate, in seconds.
const USUAL_TAU_S: f64 = 10.0;

/// State about the flows on a path that has lost packets.
pub(super) struct FlowWatch {
    /// When losses were last compared, the count at that time, and the usual losses per second; each up and down.
    pub(super) at: Time,
    pub(super) lost: [u64; 2],
    usual: [f64; 2],
    pub(super) audit: Option<Audit>,
    /// When the last audit ended.
    pub(super) ended: Option<Time>,
    /// True while a verdict of loss waits for the counts of flows.
    pub(super) holds: bool,
    /// Until this instant losses are attributed to filtered flows that have moved away.
    pub(super) excused: Time,
    /// Until this instant the path may lose copies of flows that it filters, sent over it on behalf of a path in doubt.
    pub(super) copies: Time,
}

impl FlowWatch {
    pub(super) fn new(now: Time) -> FlowWatch {
        FlowWatch {
            at: now,
            lost: [0; 2],
            usual: [0.0; 2],
            audit: None,
            ended: None,
            holds: false,
            excused: Time::ZERO,
            copies: Time::ZERO,
        }
    }

    /// Returns whether the path loses much more than usual. Also updates the usual rate.
    pub(super) fn jumps(&mut self, now: Time, lost: [u64; 2]) -> bool {
        let elapsed = now.since(self.at);
        let (s, ends) = (elapsed.as_secs_f64(), elapsed >= WINDOW);
        let weight = s / (s + USUAL_TAU_S);
        let mut jumps = false;
        for ((usual, before), lost) in self.usual.iter_mut().zip(self.lost).zip(lost) {
            let new = lost.saturating_sub(before) as f64;
            jumps |= new >= 2.0 + 3.0 * *usual * s;
            if ends {
                *usual += weight * (new / s - *usual);
            }
        }
        if ends {
            (self.at, self.lost) = (now, lost);
        }
        jumps
    }
}

/// A flow that a path filters: it drops the flow's data.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The direction of the dropped data.
    pub direction: Direction,
    /// The counts that showed it.
    pub counted: Counted,
    /// The earliest time at which the first of these packets was sent.
    pub since: Time,
    /// When the filter was found.
    pub at: Time,
    /// True if the flow may use the path again. If it is filtered once more, it waits twice as long.
    pub released: bool,
    /// When the flow may try again, or the current test of the path ends.
    pub(super) due: Time,
    /// The wait after the last finding.
    pub(super) wait: Span,
    /// Token of the path test in progress.
    pub(super) test: Option<u32>,
    /// Mean UDP payload of the flow's packets on the path, in bytes.
    pub(super) bytes: u16,
}

impl Filter {
    /// The counts as a phrase.
    pub(super) fn evidence(&self, path: &str, now: Time) -> String {
        let took = self.at.since(self.since).as_secs_f64();
        let ago = now.since(self.at).as_secs_f64();
        let Filter { counted, direction, .. } = self;
        let direction = direction.name();
        format!("filtered on {path}: {counted} {direction} in {took:.1} s, found {ago:.0} s ago")
    }
}
