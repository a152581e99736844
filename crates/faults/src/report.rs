//! Failure reports for people.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use super::schedule::Schedule;
use super::shrink::Shrunk;
use super::{Failure, Violation};

/// Maximum number of runs for shrinking.
pub const SHRINK_RUNS: usize = 400;

/// A failure as text: the violated invariant and its time, the last events and the state, how to reproduce it,
/// and the shrunk schedule if there is one. `replay` is the command that repeats the run.
#[must_use]
pub fn report(
    schedule: &Schedule,
    failure: &Failure,
    shrunk: Option<(&Shrunk, &Failure)>,
    replay: &str,
) -> String {
    let mut text = String::new();
    let Violation { invariant, detail } = &failure.violation;
    let _ = writeln!(
        text,
        "seed {} ({}) breaks \"{invariant}\" {} after the start:\n  {detail}",
        schedule.seed,
        schedule.machines.name(),
        failure.at
    );
    let _ = writeln!(text, "replay: {replay}");
    describe(&mut text, shrunk.map_or(failure, |(_, failure)| failure), shrunk.is_some());
    if let Some((shrunk, failure)) = shrunk {
        let (from, to) = (schedule.entries.len(), shrunk.schedule.entries.len());
        let _ = write!(
            text,
            "shrunk in {} runs from {from} faults to {to}, which break it {} after the start:\n  {}\n\
             in a FILE, this is replayed with: segue sim faults --schedule FILE\n\n{}",
            shrunk.runs, failure.at, failure.violation.detail, shrunk.schedule
        );
    }
    text
}

fn describe(text: &mut String, failure: &Failure, shrunk: bool) {
    let of = if shrunk { " of the shrunk schedule" } else { "" };
    if !failure.last.is_empty() {
        let _ = writeln!(text, "the last events{of}:");
        for line in &failure.last {
            let _ = writeln!(text, "  {line}");
        }
    }
    if !failure.state.is_empty() {
        let _ = writeln!(text, "the state then:");
        for line in failure.state.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
}

/// The command that repeats a seed's run.
#[must_use]
pub fn replay_seed(schedule: &Schedule) -> String {
    format!("segue sim faults --machines {} --seed {}", schedule.machines.name(), schedule.seed)
}
