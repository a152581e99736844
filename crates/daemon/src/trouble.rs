//! Logs a daemon's failures.

use segue_clock::{Span, Time};
use segue_text::errors::Told;
use tracing::{debug, warn};

/// Logs failures, at most once a second: an error that repeats with every packet must not fill the
/// log.
#[derive(Default)]
pub struct Trouble {
    last: Option<Time>,
}

impl Trouble {
    /// Logs the error of a result.
    pub fn note(&mut self, now: Time, result: Result<(), impl Into<anyhow::Error>>) {
        if let Err(error) = result {
            self.tell(now, &error.into());
        }
    }

    /// Logs an error.
    pub fn tell(&mut self, now: Time, error: &anyhow::Error) {
        if self.last.is_some_and(|last| now.since(last) < Span::from_secs(1)) {
            debug!("{}", Told(error));
            return;
        }
        self.last = Some(now);
        warn!("{}", Told(error));
    }
}
