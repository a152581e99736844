//! This end's own share of a silence.

use segue_clock::{Span, Time};

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

    /// One of these time-outs ran out before a tick that was `late`, or is about to: it is put off once, for answers that
    /// wait in a queue.
    pub(super) fn put_off(&mut self, now: Time, late: Span, t_ka: Span, outs: [Option<Time>; 2]) {
        let grace = Span(t_ka.0 / 4);
        let unread = |at: Time| now.since(at) > grace || late > grace && at < now + grace;
        if self.put_off.is_none() && outs.into_iter().flatten().any(unread) {
            self.put_off = Some(now + grace);
        }
    }
}
