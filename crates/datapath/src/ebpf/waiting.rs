//! Responses that wait for a ride, as the programs report them.

use std::collections::{BTreeMap, BTreeSet};

use segue_clock::Time;

/// Deadlines of waiting responses. Each path has only its newest, because the next request makes the programs send
/// the previous one; so there is one entry per path, however many requests arrive.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_time: BTreeSet<(Time, u32)>,
    until: BTreeMap<u32, Time>,
}

impl Waiting {
    /// The response on the path in `slot` waits until then.
    pub(super) fn note(&mut self, slot: u32, until: Time) {
        if let Some(before) = self.until.insert(slot, until) {
            self.by_time.remove(&(before, slot));
        }
        self.by_time.insert((until, slot));
    }

    /// Removes the next path whose response is due at `now`.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let (until, slot) = *self.by_time.first().filter(|(until, _)| *until <= now)?;
        self.by_time.remove(&(until, slot));
        self.until.remove(&slot);
        Some(slot)
    }

    /// When the next response is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_requests_leaves_one_entry_for_each_path() {
        let mut waiting = Waiting::default();
        for n in 0..10_000 {
            waiting.note(7, Time(65_000_000_000 + n));
        }
        waiting.note(8, Time(5));
        assert_eq!((waiting.by_time.len(), waiting.until.len()), (2, 2));
        assert_eq!(waiting.next(), Some(Time(5)));
        assert_eq!((waiting.pop_due(Time(4)), waiting.pop_due(Time(5))), (None, Some(8)));
        assert_eq!(waiting.pop_due(Time(65_000_000_000)), None, "only the newest counts");
        assert_eq!(waiting.pop_due(Time(65_000_009_999)), Some(7));
        assert_eq!((waiting.next(), waiting.until.len()), (None, 0));
    }
}
