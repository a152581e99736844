//! The record of a run: a hash of all events, and the last events as text.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Time;

/// Number of events in a report.
const LAST: usize = 30;

/// The record of a run.
#[derive(Clone, Debug)]
pub struct Record {
    start: Time,
    hash: u64,
    events: u64,
    last: Option<VecDeque<String>>,
}

impl Record {
    /// An empty record of a run that starts at `start`. Texts are recorded only if `keeps_text`: they cost more
    /// than the rest of a run, so a failed run is repeated to obtain them.
    #[must_use]
    pub fn new(start: Time, keeps_text: bool) -> Record {
        let last = keeps_text.then(VecDeque::new);
        Record { start, hash: 0xcbf2_9ce4_8422_2325, events: 0, last }
    }

    /// Records an event: numbers that distinguish it from other events, and a text for people.
    pub fn note(&mut self, now: Time, what: &[u64], text: impl FnOnce() -> String) {
        self.events += 1;
        self.mix(now.since(self.start).0);
        for word in what {
            self.mix(*word);
        }
        if self.last.is_some() {
            self.write(now, text());
        }
    }

    /// Adds a text that belongs to the previous event.
    pub fn detail(&mut self, now: Time, text: impl FnOnce() -> String) {
        if self.last.is_some() {
            self.write(now, text());
        }
    }

    fn write(&mut self, now: Time, text: String) {
        let since = now.since(self.start).as_secs_f64();
        if let Some(last) = &mut self.last {
            if last.len() == LAST {
                last.pop_front();
            }
            last.push_back(format!("{since:>12.6} s  {text}"));
        }
    }

    /// FNV-1a over the eight bytes of a word.
    fn mix(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A hash of all events.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last events as text.
    #[must_use]
    pub fn last(&self) -> Vec<String> {
        self.last.iter().flatten().cloned().collect()
    }
}
