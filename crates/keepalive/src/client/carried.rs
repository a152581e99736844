//! Lets a client sleep while its requests ride and the datapath watches the rides.

use segue_clock::{Span, Time};

use super::Client;
use crate::{Reading, State};

/// Maximum time without a reading while requests ride. Longer than the second after which a daemon wakes in any case
/// for its sign of life.
pub const LOOK: Span = Span::from_millis(1_500);

impl Client {
    /// Whether requests ride and the datapath calls when they cease, so that no ticks are needed for them.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.carried.is_some()
    }

    /// Sleeps if the datapath will call before anything is due: another request within 2·T_KA of the last, and the
    /// time-out. The datapath may not call if the settings have changed since the last ride. Nor after a silence as
    /// long as the time-out, for example while the keepalive was off: later rides do not end this silence, and the
    /// datapath calls only once for it.
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

    /// Wakes at the datapath's call, or earlier.
    pub(super) fn wake(&mut self, now: Time, watched: Option<Time>) {
        match watched.filter(|at| *at <= now) {
            // A request is due at the time of the call. Its delay since then is this end's own silence.
            Some(at) => self.schedule.next = at,
            None => self.schedule.catch_up(now, self.config.t_ka),
        }
    }

    /// A tick without a preceding reading.
    pub(super) fn on_tick(&mut self, now: Time) {
        self.have_looked(now);
        if self.carried.take_if(|look_at| *look_at <= now).is_some() {
            self.schedule.catch_up(now, self.config.t_ka);
        }
    }

    /// Wakes while requests ride, without a reading of recent arrivals. There must have been some, because the datapath
    /// would have called otherwise.
    pub(super) fn land(&mut self, now: Time) {
        if self.carried.take().is_some() {
            self.alive = self.alive.max(now);
            self.last_heard = self.last_heard.max(now);
            self.schedule.catch_up(now, self.config.t_ka);
        }
    }

    /// The datapath has news, so schedule a reading.
    pub(super) fn look(&mut self, now: Time) {
        if let Some(look_at) = &mut self.carried {
            // Not during this call: the driver must take the reading first.
            *look_at = now + Span(1);
        }
    }
}
