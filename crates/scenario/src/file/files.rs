//! Files: the scenario's own, and those that it names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Error, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::anyhow;
use segue_grammar::printable;
use segue_netem::LossTrace;

/// Most bytes of a scenario.
const MAX_SCENARIO: u64 = 8 << 20;
/// Most bytes of a file that a scenario names.
const MAX_NAMED: u64 = 128 << 20;

/// The text of a scenario's file.
///
/// # Errors
/// It cannot be read, is no text, or is too long.
pub fn text(path: &Path) -> anyhow::Result<String> {
    bounded(path, MAX_SCENARIO).map_err(|error| anyhow!("{}", printable(&error)))
}

fn bounded(path: &Path, most: u64) -> Result<String, String> {
    let name = path.display();
    let wrong = |error: Error| format!("cannot read {name}: {error}");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > most {
        return Err(format!("cannot read {name}: it has more than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|_| format!("cannot read {name}: it is no UTF-8 text"))
}

/// Files that a scenario names. Each is read only once, so every run of a scenario sees the same
/// content.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Their directory; `None` if the scenario may name no files.
    directory: Option<PathBuf>,
    known: Arc<Mutex<BTreeMap<String, Arc<str>>>>,
}

impl Files {
    /// Files in this directory.
    pub(super) fn new(directory: Option<PathBuf>) -> Files {
        Files { directory, known: Arc::default() }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read, or no file may be named.
    pub(super) fn read(&self, name: &str) -> Result<Arc<str>, String> {
        let Some(directory) = &self.directory else {
            return Err("this scenario may name no files".into());
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(name) {
            return Ok(text.clone());
        }
        let text: Arc<str> = bounded(&directory.join(name), MAX_NAMED)?.into();
        known.insert(name.to_owned(), text.clone());
        Ok(text)
    }

    /// A recorded sequence of losses: a word for each packet, `1` or `lost`, `0` or `kept`; a `#`
    /// begins a comment.
    ///
    /// # Errors
    /// What is wrong, with the line of that file.
    pub(super) fn losses(&self, name: &str) -> Result<LossTrace, String> {
        losses(&self.read(name)?).map_err(|message| format!("{name}:{message}"))
    }
}

fn losses(text: &str) -> Result<LossTrace, String> {
    let mut entries = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for word in content.split('#').next().unwrap_or_default().split_whitespace() {
            entries.push(match word {
                "0" | "kept" => false,
                "1" | "lost" => true,
                _ => {
                    let mut some: String = word.chars().take(20).collect();
                    if some.len() < word.len() {
                        let _ = write!(some, "…");
                    }
                    return Err(format!("{line}: {some:?} is none of 0, 1, kept, lost"));
                }
            });
            if entries.len() as u64 > LossTrace::MAX {
                return Err(format!("{line}: more than {} packets", LossTrace::MAX));
            }
        }
    }
    if entries.is_empty() {
        return Err("1: the file has no packet: write 0 or 1 for each".into());
    }
    Ok(entries.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_losses_has_a_word_for_each_packet_and_mistakes_have_their_line() {
        let trace = losses("# recorded\n0 1 lost kept # two\n\n1\n").unwrap();
        assert_eq!((trace.len(), trace.lost()), (5, 3));
        for (text, expected) in [
            ("", "1: the file has no packet: write 0 or 1 for each"),
            ("# 1\n", "1: the file has no packet: write 0 or 1 for each"),
            ("0\n0 2\n", "2: \"2\" is none of 0, 1, kept, lost"),
            ("0101010101010101010101", "1: \"01010101010101010101…\" is none of 0, 1, kept, lost"),
        ] {
            assert_eq!(losses(text), Err(expected.to_owned()), "{text:?}");
        }
        let long = "0 ".repeat(1 << 24);
        assert_eq!(losses(&long).map(|trace| trace.len()), Ok(1 << 24));
        assert!(losses(&format!("{long}\n1")).is_err_and(|e| e == "2: more than 16777216 packets"));
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "cannot read /dev/zero: it has more than 8 MiB");
    }
}
