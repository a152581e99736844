//! Time-of-day timestamps in packets, and the quality of their clock.

use segue_clock::{Span, Time};
use segue_linux::clock;
use segue_wire::stamp::{ErrorEstimate, Timestamp};

/// Converts a time of the monotonic clock to a time-of-day timestamp.
pub(crate) fn stamp(at: Time) -> Timestamp {
    Timestamp::ntp(clock::realtime_ns().saturating_sub(clock::monotonic().since(at).0))
}

/// The quality of the realtime clock, with `more` added to its error.
pub(super) fn error_estimate(more: Span) -> ErrorEstimate {
    let quality = clock::realtime_quality();
    ErrorEstimate::ntp(quality.error_max_ns.saturating_add(more.0), quality.synchronised)
}
