//! T_KA and the questions in doubt follow what is measured on each of the host's paths, and whether it is used.

use segue_clock::{Deadline, Span, Time, earlier};
use segue_keepalive::adapt::Look;
use segue_keepalive::{Adaptive, ClientInput, Config as Keepalive, Why};

use super::{Host, Path};

/// Minimum time between two calls of the planner, which are made on a sample and so cost no wake-up.
const PACE: Span = Span::from_millis(250);
/// A path that is down for less than these times gets this T_KA, in turn: a burst of losses shows at once, and a path
/// that comes back is wanted.
const RETRIES: [(Span, Span); 2] = [
    (Span::from_millis(400), Span::from_millis(50)),
    (Span::from_secs(60), Span::from_millis(500)),
];

/// What a path's settings follow.
pub(super) struct Following {
    planner: Adaptive,
    /// The path counts as used until then, as far as is known.
    used_until: Time,
    /// When the planner was last asked, and when it last changed the settings.
    asked: Time,
    changed: Time,
    /// Since when the path is down.
    down_since: Option<Time>,
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
    fn retry(&self, now: Time) -> Option<Span> {
        let down_for = now.since(self.down_since?);
        RETRIES.into_iter().find(|(end, _)| down_for < *end).map(|(_, t_ka)| t_ka)
    }
}

impl Path {
    /// Why the settings are what they are, and since when; `None` where they are fixed, or nothing has been
    /// chosen yet.
    #[must_use]
    pub fn why(&self) -> Option<(&Why, Time)> {
        let following = self.following.as_deref()?;
        Some((following.planner.why()?, following.changed))
    }
}

impl Host {
    /// Something new is known of a path.
    pub(super) fn follow(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get(&number) else { return };
        let Some(following) = path.following.as_deref() else { return };
        let begins = path
            .client
            .as_ref()
            .is_some_and(|client| following.used_until <= now && client.use_of_path().0 > now);
        let ends = following.deadline().is_some_and(|(at, _)| at <= now);
        if begins || ends || now.since(following.asked) >= PACE {
            self.adapt(now, number);
        }
    }

    pub(super) fn adapt(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let (is_up, is_down) = (path.is_up() && !path.off, path.is_down());
        let (Some(following), Some(client)) = (path.following.as_deref_mut(), path.client.as_ref())
        else {
            return;
        };
        following.asked = now;
        // Up, but nothing measured yet: a later reading brings it.
        if is_up && client.estimates().rtt_ewma.is_empty() {
            return;
        }
        following.down_since = if is_down { following.down_since.or(Some(now)) } else { None };
        let (used_until, rate) = client.use_of_path();
        following.used_until = used_until;
        let look = Look {
            estimates: client.estimates(),
            round_trips: client.round_trips(),
            lapses: client.lapses(now),
            answer: client.answer_within(),
            used: used_until > now,
            rate,
            is_up,
        };
        let changes = following.planner.update(look).is_some();
        if changes {
            following.changed = now;
        }
        let Some(why) = following.planner.why() else { return };
        let planned = whole_milliseconds(why.t_ka);
        let t_ka = following.retry(now).map_or(planned, |retry| retry.min(planned));
        let doubt = Some(why.questions.asking());
        let config = Keepalive { k: why.k, t_ka, doubt, ..client.config().clone() };
        if (changes || t_ka != client.config().t_ka) && config != *client.config() {
            self.feed(now, number, ClientInput::Reconfigure(config));
            self.configure(number);
        }
    }
}

/// A period as probes can state it, rounded down.
fn whole_milliseconds(seconds: f64) -> Span {
    Span::from_millis(Span::from_secs_f64(seconds).0 / 1_000_000)
}
