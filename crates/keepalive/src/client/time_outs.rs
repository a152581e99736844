//! The client's time-outs.

use segue_clock::{Span, Time};

use super::excuse::TimeOut;
use super::{Client, State};
use segue_clock::planted::fault;

impl Client {
    /// Handles a change to a shorter time-out. Answers in flight still have the old distance, so the new time-out
    /// starts when the first faster request can be answered. It expires no later than the old one would have, and no
    /// earlier than the new one permits.
    pub(super) fn rebase(&mut self, now: Time, old_down_at: Time) {
        let Some(down_at) = self.down_at() else { return };
        if down_at >= old_down_at {
            return;
        }
        let time_out = self.time_out();
        let fair = now + time_out + self.measure.estimates.rtt_max.unwrap_or_default();
        self.fresh = fair.min(old_down_at) - time_out;
    }

    pub(super) fn time_out(&self) -> Span {
        let extra =
            if self.state == State::Starting { self.config.t_ka.half() } else { Span::ZERO };
        self.config.time_out() + extra
    }

    pub(super) fn down_at(&self) -> Option<Time> {
        // With doubt, the questions decide instead.
        let judged = self.config.doubt.is_none() || self.state == State::Starting;
        let runs = self.runs() && self.state != State::Down && judged;
        let alive = if fault(12) { self.last_heard } else { self.alive };
        let since = (alive + self.excuse.since(alive)).max(self.fresh);
        runs.then(|| (since + self.time_out()).max(self.excuse.until(TimeOut::Down)))
    }

    pub(super) fn unheard_at(&self) -> Option<Time> {
        if !self.heard || !self.runs() {
            return None;
        }
        let t_ka = self.config.t_ka.max(self.unsolicited_t_ka).max(self.known_t_ka);
        let time_out = self.config.time_out_at(t_ka).max(t_ka * 2);
        let heard_at = self.heard_at().max(self.alive);
        let since = (heard_at + self.excuse.since(heard_at)).max(self.fresh);
        Some((since + time_out).max(self.excuse.until(TimeOut::Unheard)))
    }

    /// See "Late ticks" at [`Client`].
    pub(super) fn excuse_lateness(&mut self, now: Time) {
        let (t_ka, mut late) = (self.config.t_ka, Span::ZERO);
        if self.schedule.last.is_some() && now >= self.schedule.next {
            // A shorter period that begins in the past does not make a request late.
            late = now.since(self.schedule.next.max(self.configured));
            let in_flight = self.measure.estimates.rtt_max.unwrap_or_default();
            let waits = if self.config.rides { t_ka } else { Span::ZERO };
            self.excuse.on_request(now, late, t_ka, in_flight + waits);
        }
        let (down, unheard) = (self.down_at(), self.unheard_at());
        for expires in [(TimeOut::Down, down), (TimeOut::Unheard, unheard)] {
            self.excuse.on_late(now, late, t_ka, expires);
        }
    }
}
