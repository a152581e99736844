//! What the settings of a path follow.

use segue_clock::{Deadline, Span, Time, earlier};
use segue_keepalive::Adaptive;

/// A path that is down for less than these times gets this T_KA, in turn: a burst of losses shows at once, and a path
/// that comes back is wanted.
const RETRIES: [(Span, Span); 2] = [
    (Span::from_millis(400), Span::from_millis(50)),
    (Span::from_secs(60), Span::from_millis(500)),
];

/// What a path's settings follow.
pub(super) struct Following {
    pub(super) planner: Adaptive,
    /// The path counts as used until then, as far as is known.
    pub(super) used_until: Time,
    /// When the planner was last asked, and when it last changed the settings.
    pub(super) asked: Time,
    pub(super) changed: Time,
    /// Since when the path is down.
    pub(super) down_since: Option<Time>,
}

impl Following {
    pub(super) fn new(planner: Adaptive) -> Following {
        let never = Time::ZERO;
        Following { planner, used_until: never, asked: never, changed: never, down_since: None }
    }

    /// When something ends so that the settings have to change.
    pub(super) fn deadline(&self) -> Deadline {
        let unused = self.in_use().then_some((self.used_until, "no data any more"));
        let ends =
            |at: Time| RETRIES.map(|(end, _)| at + end).into_iter().find(|at| *at > self.asked);
        let retries = self.down_since.and_then(ends).map(|at| (at, "fewer retries"));
        earlier(unused, retries)
    }

    /// Data run, as of the last look.
    pub(super) fn in_use(&self) -> bool {
        self.used_until > self.asked
    }

    /// T_KA while the path is down.
    pub(super) fn retry(&self, now: Time) -> Option<Span> {
        let down_for = now.since(self.down_since?);
        RETRIES.into_iter().find(|(end, _)| down_for < *end).map(|(_, t_ka)| t_ka)
    }
}
