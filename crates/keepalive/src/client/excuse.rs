//! This end's own share of a silence.

use segue_clock::{Span, Time};

/// A time-out that was put off.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimeOut {
    /// Of answers to requests.
    Down,
    /// Of anything that comes.
    Unheard,
}

/// This end's own share of the silence: its driver did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excuse {
    /// Periods that went by without a request.
    skipped: Span,
    /// How late within its period the last request was.
    late: Span,
    /// Until when answers may be those to earlier requests.
    until: Time,
    /// Until when each [`TimeOut`] that expired before a late tick is put off, or was: once in its silence.
    put_off: [Option<Time>; 2],
}

impl Excuse {
    /// Of a silence since `at`: no more than what may be missing from then on.
    pub(super) fn since(&self, at: Time) -> Span {
        (self.skipped + self.late).min(self.until.since(at))
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

    /// An answer came at `at`: what was late before it is over.
    pub(super) fn on_answer(&mut self, at: Time) {
        let left = self.until.since(at);
        self.late = self.late.min(left);
        self.skipped = self.skipped.min(left - self.late);
    }

    /// A tick was `late`: a time-out that expired before it, or is about to, is put off once, for answers that wait in a
    /// queue.
    pub(super) fn on_late(
        &mut self,
        now: Time,
        late: Span,
        t_ka: Span,
        (which, expires): (TimeOut, Option<Time>),
    ) {
        let grace = Span(t_ka.0 / 4);
        let unread = |at: Time| now.since(at) > grace || late > grace && at < now + grace;
        let put_off = &mut self.put_off[which as usize];
        if put_off.is_none() && expires.is_some_and(unread) {
            *put_off = Some(now + grace);
        }
    }

    /// Until when a time-out is put off; the start of time if it is not.
    pub(super) fn until(&self, which: TimeOut) -> Time {
        self.put_off[which as usize].unwrap_or_default()
    }

    /// The silence that a time-out is about has ended.
    pub(super) fn ends(&mut self, which: TimeOut) {
        self.put_off[which as usize] = None;
    }
}
