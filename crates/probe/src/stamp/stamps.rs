//! Times of day in packets, and how good the clock behind them is.

use segue_clock::{Span, Time};
use segue_linux::clock;
use segue_wire::stamp::{ErrorEstimate, Timestamp};

/// An instant of the monotonic clock as a timestamp of the time of day.
pub(crate) fn stamp(at: Time) -> Timestamp {
    Timestamp::ntp(clock::realtime_ns().saturating_sub(clock::monotonic().since(at).0))
}

/// How good the realtime clock is, `more` added to its error.
pub(super) fn error_estimate(more: Span) -> ErrorEstimate {
    let quality = clock::realtime_quality();
    ErrorEstimate::ntp(quality.error_max_ns.saturating_add(more.0), quality.synchronised)
}
