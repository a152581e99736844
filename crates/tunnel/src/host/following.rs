//! State of a path's adaptive settings.

use segue_clock::{Deadline, Span, Time, earlier};
use segue_keepalive::Adaptive;

/// T_KA of a path that has been down for less than these times, tried in turn: probes are frequent at first, because
/// after a burst of losses, or when a path comes back, the host should notice at once.
const RETRIES: [(Span, Span); 2] = [
    (Span::from_millis(400), Span::from_millis(50)),
    (Span::from_secs(60), Span::from_millis(500)),
];

/// State of a path's adaptive settings.
pub(super) struct Following {
    pub(super) planner: Adaptive,
    /// The path is considered in use until this instant.
    pub(super) used_until: Time,
    /// When the planner was last called, and when it last changed the settings.
    pub(super) asked: Time,
    pub(super) changed: Time,
    /// Since when the path has been down.
    pub(super) down_since: Option<Time>,
}

impl Following {
    pub(super) fn new(planner: Adaptive) -> Following {
        let never = Time::ZERO;
        Following { planner, used_until: never, asked: never, changed: never, down_since: None }
    }

    /// When the settings have to change without new measurements.
    pub(super) fn deadline(&self) -> Deadline {
        let unused = self.in_use().then_some((self.used_until, "no data any more"));
        let ends =
            |at: Time| RETRIES.map(|(end, _)| at + end).into_iter().find(|at| *at > self.asked);
        let retries = self.down_since.and_then(ends).map(|at| (at, "fewer retries"));
        earlier(unused, retries)
    }

    /// Returns whether data were running at the last check.
    pub(super) fn in_use(&self) -> bool {
        self.used_until > self.asked
    }

    /// T_KA while the path is down, if it is to be probed more often.
    pub(super) fn retry(&self, now: Time) -> Option<Span> {
        let down_for = now.since(self.down_since?);
        RETRIES.into_iter().find(|(end, _)| down_for < *end).map(|(_, t_ka)| t_ka)
    }
}
