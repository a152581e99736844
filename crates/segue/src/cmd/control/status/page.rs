//! Building blocks of the status pages of all roles, and the page of a role that has none.

use std::fmt::Display;

use segue_daemon::control::{Any, Status, Vocabulary};
use segue_text::terminal::layout::{self, Column, Table};
use serde_json::Value;

use super::super::which::Paper;

/// Maximum number of rows in a table.
pub(super) const ROWS: usize = 50;
/// Points to the rows that the page leaves out.
pub(super) const ALL: &str = "--json has all";

/// Packets that a daemon refused or dropped, by reason.
pub(super) fn counted<'a, N: Display + 'a>(
    all: impl IntoIterator<Item = (&'a String, &'a N)>,
) -> Vec<String> {
    all.into_iter().map(|(reason, n)| format!("refused    {n} {reason}")).collect()
}

/// Breaks lines to the width of the paper.
pub(super) fn sentences(said: &[String], paper: Paper) -> Vec<String> {
    said.iter().flat_map(|line| layout::sentence(line, paper.room)).collect()
}

/// The given rows as a table; nothing if there are none. `more` says where the rest of the `all` rows can be seen.
pub(super) fn table(
    columns: &[Column],
    rows: impl IntoIterator<Item = Vec<String>>,
    of: (usize, &str),
    paper: Paper,
) -> Vec<String> {
    explained(columns, rows.into_iter().map(|row| (row, None)), of, paper)
}

/// Like [`table`], with a sentence below each row that has one.
pub(super) fn explained<'a>(
    columns: &[Column],
    rows: impl IntoIterator<Item = (Vec<String>, Option<&'a str>)>,
    (all, more): (usize, &str),
    paper: Paper,
) -> Vec<String> {
    let mut table = Table::new(columns);
    let mut said = Vec::new();
    for (row, sentence) in rows {
        table.row(row);
        said.push(sentence);
    }
    let shown = said.len();
    if shown == 0 {
        return Vec::new();
    }
    let laid = table.lay(paper.room);
    let mut lines: Vec<String> = laid.head.into_iter().collect();
    for (row, sentence) in laid.rows.into_iter().zip(said) {
        lines.extend(row);
        let sentence = sentence.map(|said| format!("    {said}"));
        lines.extend(sentence.into_iter().flat_map(|said| layout::sentence(&said, paper.room)));
    }
    if all > shown {
        lines.push(format!("and {} more ({more})", all - shown));
    }
    lines
}

/// The lines of a status in its role's vocabulary, without its events.
pub(crate) fn typed<V: Vocabulary>(
    status: Value,
    paper: Paper,
    lines: fn(&Status<V>, Paper) -> Vec<String>,
) -> serde_json::Result<Vec<String>> {
    Ok(lines(&serde_json::from_value(status)?, paper))
}

/// The head that every daemon reports, and the remaining fields unformatted.
pub(super) fn key_by_key(status: &Status<Any>, paper: Paper) -> Vec<String> {
    let mut said = vec![format!("{}, up {:.0} s", status.head.role, status.head.uptime_s)];
    for (key, value) in &status.body {
        match value {
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                for (n, item) in items.iter().enumerate() {
                    said.push(format!("{:10} {}", if n == 0 { key } else { "" }, words(item)));
                }
            }
            value => said.push(format!("{key:10} {}", words(value))),
        }
    }
    said.extend(counted(&status.head.drops));
    sentences(&said, paper)
}

/// A value in words.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "unknown".into(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".into(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(all) if all.is_empty() => "none".into(),
        Value::Object(all) => {
            let parts = all.iter().map(|(key, value)| format!("{key} {}", words(value)));
            parts.collect::<Vec<_>>().join(", ")
        }
        number => number.to_string(),
    }
}
