//! What a daemon's log of events has: also what it no longer remembers, and what a daemon has left that does not run.

use std::path::PathBuf;

use anyhow::Context;
use segue_clock::Span;
use segue_daemon::control::{self, Any, EventRecord};
use segue_daemon::history;
use segue_linux::clock;
use segue_text::units;

use super::which::Which;

/// Which part of which log.
#[derive(clap::Args)]
pub(super) struct Past {
    /// Read the log of events, from this long ago on, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(super) since: Option<Span>,
    /// The log's file, for a daemon that does not run, such as /var/lib/segue/host.events
    #[arg(long, value_name = "FILE", conflicts_with_all = ["control", "instance"])]
    log: Option<PathBuf>,
}

impl Past {
    /// What the log has, samples included, from `since` or this long ago on.
    pub(super) fn read(&self, which: &Which, usual: Span) -> anyhow::Result<Vec<EventRecord<Any>>> {
        let log = self.log.clone().map_or_else(|| log_of(which), Ok)?;
        let since = self.since.unwrap_or(usual);
        let records = history::read(&log, clock::realtime_ns().saturating_sub(since.0))?;
        let read = |record| serde_json::from_value(serde_json::Value::Object(record)).ok();
        Ok(records.into_iter().filter_map(read).collect())
    }

    /// Whether the log is asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.since.is_some() || self.log.is_some()
    }
}

/// Where the log of a running daemon is.
fn log_of(which: &Which) -> anyhow::Result<PathBuf> {
    let status = control::status::<Any>(&which.socket()?, u64::MAX)
        .context("--log FILE reads what a daemon has left, such as /var/lib/segue/host.events")?;
    status.head.history.with_context(|| {
        format!("this {} keeps no log of events (history_mb in its file)", status.head.role)
    })
}
