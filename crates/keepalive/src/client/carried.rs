//! How a client sleeps while its requests ride and the datapath watches the rides.

use segue_clock::{Span, Time};

use super::Client;
use crate::{Reading, State};

/// How long a client whose requests ride goes without a reading. Longer than the second after which a daemon wakes
/// anyway, to show that it lives.
pub const LOOK: Span = Span::from_millis(1_500);

impl Client {
    /// Whether requests ride and the datapath calls when that ends: no tick is needed for them until then.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.carried.is_some()
    }

    /// Sleeps, if the datapath calls before anything could be due: another request within 2·T_KA of the last, and the
    /// time-out. If the settings have changed since the last ride, the datapath may not; nor after a silence as long as
    /// the time-out, as while the keepalive was off: rides that follow do not end it, and it calls for its end once.
    pub(super) fn carry(&mut self, now: Time, reading: &Reading) {
        let t_ka = self.config.t_ka;
        let steady =
            self.state == State::Up && self.config.rides && self.on && self.config.doubt.is_none();
        let calls = reading.watched.filter(|at| steady && *at > now);
        let (Some(at), Some(last_sent)) = (calls, reading.last_sent) else { return };
        let hears = reading.last_received.is_some_and(|at| at + self.config.time_out() > now);
        let in_time = hears
            && at <= last_sent + t_ka * 2
            && self.down_at().is_none_or(|down_at| at <= down_at)
            && self.unheard_at().is_none_or(|unheard_at| at <= unheard_at);
        if in_time && self.schedule.announce.is_none() {
            self.carried = Some(now + LOOK.max(t_ka * 2));
        }
    }

    /// It slept until the datapath's call, or woke before.
    pub(super) fn wake(&mut self, now: Time, watched: Option<Time>) {
        match watched.filter(|at| *at <= now) {
            // Another request must leave then; the lateness of this wake-up is this end's own silence.
            Some(at) => self.schedule.next = at,
            None => self.schedule.catch_up(now, self.config.t_ka),
        }
    }

    /// A tick with no reading before it.
    pub(super) fn on_tick(&mut self, now: Time) {
        self.have_looked(now);
        if self.carried.take_if(|look_at| *look_at <= now).is_some() {
            self.schedule.catch_up(now, self.config.t_ka);
        }
    }

    /// The client wakes while requests ride, and no reading tells what came meanwhile. But the datapath would have
    /// called if nothing had.
    pub(super) fn land(&mut self, now: Time) {
        if self.carried.take().is_some() {
            self.alive = self.alive.max(now);
            self.last_heard = self.last_heard.max(now);
            self.schedule.catch_up(now, self.config.t_ka);
        }
    }

    /// The datapath has news: a reading is due.
    pub(super) fn look(&mut self, now: Time) {
        if let Some(look_at) = &mut self.carried {
            // Not due within this call: the driver has to take the reading first.
            *look_at = now + Span(1);
        }
    }
}
