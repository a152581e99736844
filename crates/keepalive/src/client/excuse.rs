//! This end's own share of a silence.

use segue_clock::{Span, Time};

use super::Client;

/// This end's own share of the silence: its driver did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excuse {
    /// Periods that went by without a request.
    pub(super) skipped: Span,
    /// How late within its period the last request was.
    pub(super) late: Span,
    /// Until when answers may be those to earlier requests.
    pub(super) until: Time,
    /// Until when an expired time-out whose tick was late is put off, and whether it has been since the
    /// last answer.
    pub(super) put_off: Option<Time>,
}

impl Excuse {
    pub(super) fn span(&self) -> Span {
        self.skipped + self.late
    }

    /// A request that was due leaves `late` after its time; answers to older ones may come for `in_flight` from now.
    pub(super) fn on_request(&mut self, now: Time, late: Span, t_ka: Span, in_flight: Span) {
        let skipped = t_ka * (late.0 / t_ka.0.max(1));
        let late = late - skipped;
        if now > self.until {
            self.late = Span::ZERO;
        }
        if late > Span(t_ka.0 / 4) || skipped > Span::ZERO {
            self.skipped = self.skipped + skipped;
            self.late = self.late.max(late);
            self.until = now + in_flight;
        }
    }
}

impl Client {
    /// See "Late ticks" at [`Client`].
    pub(super) fn excuse_lateness(&mut self, now: Time) {
        let t_ka = self.config.t_ka;
        let mut late = Span::ZERO;
        if self.schedule.last.is_some() && now >= self.schedule.next {
            // A shorter period that begins in the past makes nothing late.
            late = now.since(self.schedule.next.max(self.configured));
            let in_flight = self.measure.estimates.rtt_max.unwrap_or(Span::ZERO);
            let waits = if self.config.rides { t_ka } else { Span::ZERO };
            self.excuse.on_request(now, late, t_ka, in_flight + waits);
        }
        let grace = Span(t_ka.0 / 4);
        let unread = |at: Time| now.since(at) > grace || late > grace && at < now + grace;
        let out = [self.down_at(), self.unheard_at()];
        if self.excuse.put_off.is_none() && out.into_iter().flatten().any(unread) {
            self.excuse.put_off = Some(now + grace);
        }
    }
}
