//! The recent minimum RTT.

use segue_clock::{Span, Time};

/// Time for which a minimum RTT is remembered, at least half of it (section 6.2, step 1, requires a filter that
/// forgets). Short compared to Linux's five minutes, since a handover changes the path.
pub(crate) const MIN_RTT_WINDOW: Span = Span::from_secs(10);

/// The minimum RTT of the last [`MIN_RTT_WINDOW`], kept as the minima of two halves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MinRtt {
    since: Time,
    now: Option<Span>,
    before: Option<Span>,
}

impl MinRtt {
    pub(crate) fn sample(&mut self, now: Time, rtt: Span) {
        if now.since(self.since) >= MIN_RTT_WINDOW.half() {
            (self.since, self.before, self.now) = (now, self.now, None);
        }
        self.now = Some(self.now.map_or(rtt, |known| known.min(rtt)));
    }

    pub(crate) fn get(&self) -> Option<Span> {
        match (self.now, self.before) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
