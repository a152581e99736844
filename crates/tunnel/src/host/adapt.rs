//! K and T_KA of the host's paths follow what is measured and which flows are active.
//!
//! A path is *active* while it carries latency-sensitive flows: voice from the first packet, interactive
//! ones that live for a second (a single question to a name server is over before a fault could be found).

use segue_clock::{Span, Time};
use segue_keepalive::adapt::Look;
use segue_keepalive::{Adaptive, ClientInput, Config as Keepalive, Why};
use segue_steering::Class;

use super::{Flow, Host, Path};

/// The planner is asked at most this often: with a sample, so that it costs no wake-up of its own.
const PACE: Span = Span::from_millis(250);
/// A flow without packets for this long is not active. Longer than a driver takes from one look at the
/// flow table to the next.
const ACTIVE: Span = Span::from_secs(10);
/// An interactive flow counts from this age.
const SETTLED: Span = Span::from_secs(1);

/// What a path's K and T_KA follow.
pub(super) struct Following {
    planner: Adaptive,
    /// Latency-sensitive flows use the path until then, as far as is known.
    active_until: Time,
    /// When the planner was last asked, and when it last changed the settings.
    asked: Time,
    changed: Time,
}

impl Following {
    pub(super) fn new(planner: Adaptive) -> Following {
        let never = Time::ZERO;
        Following { planner, active_until: never, asked: never, changed: never }
    }
}

impl Path {
    /// Why K and T_KA are what they are, and since when; `None` where they are fixed, or nothing has been
    /// chosen yet.
    #[must_use]
    pub fn why(&self) -> Option<(&Why, Time)> {
        let following = self.following.as_deref()?;
        Some((following.planner.why()?, following.changed))
    }
}

impl Flow {
    /// Whether it is one for which detection must be quick, and until when.
    fn urgent_until(&self) -> Option<Time> {
        let counts = match self.class {
            Class::Voice => true,
            Class::Interactive => self.last_seen.since(self.first_seen) >= SETTLED,
            Class::Bulk | Class::Default => false,
        };
        counts.then(|| self.last_seen + ACTIVE)
    }
}

impl Host {
    /// Something new is known of a path.
    pub(super) fn follow(&mut self, now: Time, number: u8) {
        let following = self.paths.get(&number).and_then(|path| path.following.as_ref());
        if following.is_some_and(|following| now.since(following.asked) >= PACE) {
            self.adapt(now, number);
        }
    }

    /// A flow uses a path.
    pub(super) fn note_use(&mut self, now: Time, flow: &Flow) {
        let Some(until) = flow.urgent_until() else { return };
        let via = self.paths.get(&flow.path).and_then(|path| path.via);
        let number = via.and_then(|via| u8::try_from(via.slot).ok()).unwrap_or(flow.path);
        let Some(path) = self.paths.get_mut(&number) else { return };
        let Some(following) = path.following.as_mut() else { return };
        let begins = following.active_until <= now && until > now;
        following.active_until = following.active_until.max(until);
        if begins {
            self.adapt(now, number);
        }
    }

    /// Looks at all flows again: some have ended, others have moved.
    pub(super) fn note_uses(&mut self, now: Time) {
        let flows: alloc::vec::Vec<Flow> =
            self.flows.values().filter(|flow| flow.urgent_until() > Some(now)).copied().collect();
        for flow in flows {
            self.note_use(now, &flow);
        }
    }

    pub(super) fn adapt(&mut self, now: Time, number: u8) {
        let Some(path) = self.paths.get_mut(&number) else { return };
        let is_up = path.is_up() && !path.off;
        let (Some(following), Some(client)) = (path.following.as_deref_mut(), path.client.as_ref())
        else {
            return;
        };
        // Up, but nothing measured yet: the first reading brings it.
        if is_up && client.estimates().rtt_ewma.is_empty() {
            return;
        }
        following.asked = now;
        let active = following.active_until > now;
        let look = Look {
            estimates: client.estimates(),
            round_trips: client.round_trips(),
            burst: client.burst(),
            active,
            is_up,
            rides: client.config().rides,
        };
        let Some(why) = following.planner.update(now, look) else { return };
        let planned = Keepalive::from_plan(&why.plan);
        following.changed = now;
        let (k, t_ka) = (planned.k, planned.t_ka);
        if (k, t_ka) != (client.config().k, client.config().t_ka) {
            let config = Keepalive { k, t_ka, ..client.config().clone() };
            self.feed(now, number, ClientInput::Reconfigure(config));
            self.configure(number);
        }
    }
}
