//! The scan of the datapath's flow table: a page at a time, the whole every few seconds.

use std::time::Duration;

use segue_datapath::FlowCursor;
use tokio::time::{Interval, MissedTickBehavior};

/// How often the table is scanned.
const SWEEP: Duration = Duration::from_secs(5);

/// Where the scan is.
pub(super) struct Sweep {
    interval: Interval,
    /// Where it continues; `None` until the next begins.
    next: Option<FlowCursor>,
}

impl Sweep {
    /// The first begins at once. Even if a scan takes longer than the period, there is a pause before the next.
    pub(super) fn new() -> Sweep {
        let mut interval = tokio::time::interval(SWEEP);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Sweep { interval, next: None }
    }

    /// Waits until a page is to be read, and says which. Cancel-safe.
    pub(super) async fn due(&mut self) -> FlowCursor {
        if self.next.is_none() {
            self.interval.tick().await;
        }
        self.next.unwrap_or_default()
    }

    /// A page was read; the next is here.
    pub(super) fn read(&mut self, next: Option<FlowCursor>) {
        self.next = next;
    }
}
