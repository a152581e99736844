//! The part of a silence that this end caused itself.

use segue_clock::{Span, Time};

/// The time-outs that can be deferred.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimeOut {
    /// No answers to requests.
    Down,
    /// No arrivals of any kind.
    Unheard,
}

/// The part of a silence that this end caused because its driver did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excuse {
    /// Total of the periods without a request.
    skipped: Span,
    /// Delay of the last request within its period.
    late: Span,
    /// Latest arrival of answers to earlier requests.
    until: Time,
    /// End of the deferral of each [`TimeOut`] that expired before a late tick. At most one deferral per silence.
    put_off: [Option<Time>; 2],
}

impl Excuse {
    /// The excused part of a silence since `at`: at most the time in which answers can be missing.
    pub(super) fn since(&self, at: Time) -> Span {
        (self.skipped + self.late).min(self.until.since(at))
    }

    /// A due request leaves `late`. Answers to older requests may arrive during `in_flight` from now.
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

    /// An answer arrived at `at`: earlier delays are over.
    pub(super) fn on_answer(&mut self, at: Time) {
        let left = self.until.since(at);
        self.late = self.late.min(left);
        self.skipped = self.skipped.min(left - self.late);
    }

    /// A tick was `late`. Defers a time-out once if it expired before the tick or is about to, for answers that wait in
    /// a queue.
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

    /// End of a time-out's deferral; zero if it is not deferred.
    pub(super) fn until(&self, which: TimeOut) -> Time {
        self.put_off[which as usize].unwrap_or_default()
    }

    /// The silence of this time-out has ended.
    pub(super) fn ends(&mut self, which: TimeOut) {
        self.put_off[which as usize] = None;
    }
}
