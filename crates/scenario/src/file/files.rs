//! Files that a scenario refers to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use segue_grammar::text_up_to;
use segue_netem::LossTrace;

/// Maximum length in bytes of such a file.
const MAX_NAMED: u64 = 128 << 20;

/// Files that a scenario refers to. Each is read only once, so that all runs of a scenario see the same content.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Their directory; `None` if the scenario must not refer to files.
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
    /// The file cannot be read, or the scenario must not refer to files.
    pub(super) fn read(&self, name: &str) -> Result<Arc<str>, String> {
        let Some(directory) = &self.directory else {
            return Err("this scenario may name no files".into());
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(name) {
            return Ok(text.clone());
        }
        let text: Arc<str> = text_up_to(&directory.join(name), MAX_NAMED)?.into();
        known.insert(name.to_owned(), text.clone());
        Ok(text)
    }

    /// A recorded sequence of losses, one word per packet: `1` or `lost`, `0` or `kept`. A `#` starts a comment.
    ///
    /// # Errors
    /// The error, with the line in that file.
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
}
