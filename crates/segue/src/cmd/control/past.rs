//! Reads a daemon's event log: events that the daemon itself no longer remembers, and the log of a stopped daemon.

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
    /// Reads the records of the log, samples included, that are not older than `since`, or `usual` by default.
    pub(super) fn read(&self, which: &Which, usual: Span) -> anyhow::Result<Vec<Logged>> {
        let log = self.log.clone().map_or_else(|| log_of(which), Ok)?;
        let since = self.since.unwrap_or(usual);
        let read = |record| serde_json::from_value(serde_json::Value::Object(record)).ok();
        let records = history::read(&log, 0)?.into_iter().filter_map(read).collect();
        let from = clock::realtime_ns().saturating_sub(since.0) as f64 / 1e9;
        Ok(logged(records).into_iter().filter(|logged| logged.at_s >= from).collect())
    }

    /// Whether the operator asked for the log.
    pub(super) fn is_wanted(&self) -> bool {
        self.since.is_some() || self.log.is_some()
    }
}

/// A log record and its time.
pub(super) struct Logged {
    /// Seconds since 1970 according to the present clock, which may have been set since the event.
    pub(super) at_s: f64,
    /// The record as written, with the time that the clock showed at the event.
    pub(super) record: EventRecord<Any>,
}

/// Converts the times of log records to the present clock.
pub(super) fn logged(records: Vec<EventRecord<Any>>) -> Vec<Logged> {
    let mut shift = 0.0;
    let mut next: Option<(f64, u64)> = None;
    let mut all: Vec<Logged> = Vec::new();
    for record in records.into_iter().rev() {
        if let Some((unix_s, at_ns)) = next.take() {
            // Time from this record to the change of the clock, measured by the monotonic clock.
            let lasted = at_ns.saturating_sub(record.at_ns) as f64 / 1e9;
            shift += unix_s - record.unix_s - lasted;
        }
        if record.kind == "clock" && record.text.contains("was set") {
            next = Some((record.unix_s, record.at_ns));
        }
        all.push(Logged { at_s: record.unix_s + shift, record });
    }
    all.reverse();
    all
}

/// Finds the log of a running daemon.
fn log_of(which: &Which) -> anyhow::Result<PathBuf> {
    let status = control::status::<Any>(&which.socket()?, u64::MAX)
        .context("--log FILE reads what a daemon has left, such as /var/lib/segue/host.events")?;
    status.head.history.with_context(|| {
        format!(
            "this {} has no log of events: history_mb is 0 in its file, or its log says why it cannot be written",
            status.head.role
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_the_clock_was_set_is_told_in_the_clocks_present_time() {
        let record = |at_s: u64, unix_s: f64, kind: &str, text: &str| EventRecord {
            number: 0,
            at_ns: at_s * 1_000_000_000,
            unix_s,
            kind: kind.into(),
            host: String::new(),
            text: text.into(),
            about: serde_json::Map::new(),
        };
        let hour = 3_600.0;
        let records = vec![
            record(10, 1_000.0 + hour, "sample", ""),
            record(20, 1_010.0, "clock", "the clock was set back by 60 min"),
            record(25, 1_015.0, "sample", ""),
            record(26, 1_616.0, "clock", "the machine slept for 10 min"),
            record(27, 1_617.0, "sample", ""),
        ];
        let at: Vec<f64> = logged(records).iter().map(|logged| logged.at_s).collect();
        assert_eq!(at, [1_000.0, 1_010.0, 1_015.0, 1_616.0, 1_617.0]);
    }
}
