//! Adapts T_KA and the questions in doubt to the measurements and the use of each path of the host.

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::adapt::Look;
use segue_keepalive::{ClientInput, Config as Keepalive};

use super::Host;

/// Minimum time between two calls of the planner. They happen on samples and so cause no wake-up.
const PACE: Span = Span::from_millis(250);
impl Host {
    /// Calls the planner for a path if its use has begun or ended, or if the last call was long enough ago.
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

    /// Adapts all paths now.
    pub(super) fn adapt_all(&mut self, now: Time) {
        let numbers: Vec<u8> = self.paths.keys().copied().collect();
        for number in numbers {
            self.adapt(now, number);
        }
    }

    pub(super) fn adapt(&mut self, now: Time, number: u8) {
        let watched = self.paths.get(&number).and_then(|path| self.watched_t_ka(now, path));
        let Some(path) = self.paths.get_mut(&number) else { return };
        let (is_up, is_down) = (path.is_up() && !path.off, path.is_down());
        let (Some(following), Some(client)) = (path.following.as_deref_mut(), path.client.as_ref())
        else {
            return;
        };
        following.asked = now;
        // The path is up but has no estimates yet: wait for a reading.
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
        let wanted = following.retry(now).into_iter().chain(watched);
        let t_ka = wanted.fold(planned, Span::min);
        let doubt = Some(why.questions.asking());
        let config = Keepalive { k: why.k, t_ka, doubt, ..client.config().clone() };
        if (changes || t_ka != client.config().t_ka) && config != *client.config() {
            self.feed(now, number, ClientInput::Reconfigure(config));
            self.configure(number);
        }
    }
}

/// A period as probes can carry it, rounded down to milliseconds.
fn whole_milliseconds(seconds: f64) -> Span {
    Span::from_millis(Span::from_secs_f64(seconds).0 / 1_000_000)
}
