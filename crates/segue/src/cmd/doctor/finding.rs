//! The result of a check.

use segue_text::errors::Told;
use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// The operator has to do something.
    Todo,
    /// The check could not decide.
    Unknown,
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    /// What was found and what to do about it.
    pub(crate) text: String,
}

pub(crate) fn ok(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Ok, text: text.into() }
}

pub(crate) fn todo(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Todo, text: text.into() }
}

pub(crate) fn unknown(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, verdict: Verdict::Unknown, text: text.into() }
}

/// An error in one line.
pub(crate) fn told(error: impl Into<anyhow::Error>) -> String {
    Told(&error.into()).to_string()
}
