//! The result of a check.

use segue_text::errors::Told;
use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// The operator has to do something.
    Todo,
    /// The check could not decide.
    Unknown,
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// What was found and what to do about it.
    pub(super) text: String,
}

pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Ok, text: text.into() }
}

pub(super) fn todo(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Todo, text: text.into() }
}

pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Unknown, text: text.into() }
}

/// An error in one line.
pub(super) fn told(error: impl Into<anyhow::Error>) -> String {
    Told(&error.into()).to_string()
}
