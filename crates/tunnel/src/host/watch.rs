//! What is watched of a path's flows, and what is known of those that it filters.

use alloc::format;
use alloc::string::String;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;
use segue_keepalive::size::Direction;

use super::audit::Audit;

/// Losses of at most this long are compared with what the path usually loses.
const WINDOW: Span = Span::from_millis(500);
/// Time constant of what it usually loses, in seconds.
const USUAL_TAU_S: f64 = 10.0;

/// What is watched of the flows on a path that has lost packets.
pub(super) struct FlowWatch {
    /// When the losses were last compared, how many there had been, and how many there usually are in a second.
    pub(super) at: Time,
    pub(super) lost: [u64; 2],
    usual: [f64; 2],
    pub(super) audit: Option<Audit>,
    /// When the last audit ended.
    pub(super) ended: Option<Time>,
    /// A verdict of loss waits for the counts of flows.
    pub(super) holds: bool,
    /// Until then what the path loses was that of flows that have left.
    pub(super) excused: Time,
    /// Until then it may lose copies of flows that it filters, which another path in doubt has sent over it.
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

    /// Whether the path loses much more than it usually does.
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

/// A flow whose data a path drops.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The direction in which they are dropped.
    pub direction: Direction,
    /// The packets that showed it.
    pub counted: Counted,
    /// When the first of them was sent, at the earliest.
    pub since: Time,
    /// When it was found.
    pub at: Time,
    /// The flow may use the path again; if it is dropped once more, it waits twice as long.
    pub released: bool,
    /// When that is, or the present test of the path ends.
    pub(super) due: Time,
    /// The wait after the last finding.
    pub(super) wait: Span,
    /// The test of the path that is under way.
    pub(super) test: Option<u32>,
    /// UDP payload of the flow's packets on the path, on average.
    pub(super) bytes: u16,
}

impl Filter {
    /// The counts, in words.
    pub(super) fn evidence(&self, path: &str, now: Time) -> String {
        let took = self.at.since(self.since).as_secs_f64();
        let ago = now.since(self.at).as_secs_f64();
        let Filter { counted, direction, .. } = self;
        let direction = direction.name();
        format!("filtered on {path}: {counted} {direction} in {took:.1} s, found {ago:.0} s ago")
    }
}
