//! The scan of the datapath's flow table: a page at a time, the whole every few seconds.

use std::time::Duration;

use segue_datapath::FlowCursor;
use tokio::time::{Interval, MissedTickBehavior};

/// Interval of scans of the table.
const SWEEP: Duration = Duration::from_secs(5);

/// The position of the scan.
pub(super) struct Sweep {
    interval: Interval,
    /// Where the scan continues; `None` until the next one begins.
    next: Option<FlowCursor>,
}

impl Sweep {
    /// The first scan begins at once. Even if a scan takes longer than the interval, there is a pause before the next.
    pub(super) fn new() -> Sweep {
        let mut interval = tokio::time::interval(SWEEP);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Sweep { interval, next: None }
    }

    /// Waits until a page is due, and returns its position. Cancel-safe.
    pub(super) async fn due(&mut self) -> FlowCursor {
        if self.next.is_none() {
            self.interval.tick().await;
        }
        self.next.unwrap_or_default()
    }

    /// Notes that a page was read, and the position of the next.
    pub(super) fn read(&mut self, next: Option<FlowCursor>) {
        self.next = next;
    }
}
