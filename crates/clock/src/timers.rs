//! A table of named timers with a defined order.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// Timers by key, with one instant per key. Timers due at the same instant fire in the order of their keys, so that
/// runs with the same inputs are identical.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    by_key: BTreeMap<K, Time>,
    by_time: BTreeSet<(Time, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Arms the timer of `key` for `at`, replacing an earlier one.
    pub fn set(&mut self, key: K, at: Time) {
        let before = self.by_key.insert(key.clone(), at);
        if before == Some(at) {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Disarms the timer of `key`.
    pub fn cancel(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// The instant for which `key` is armed.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Time> {
        self.by_key.get(key).copied()
    }

    /// The earliest timer.
    #[must_use]
    pub fn next(&self) -> Option<(Time, &K)> {
        self.by_time.first().map(|(at, key)| (*at, key))
    }

    /// The keys of the timers due at `now`, in the order in which they fire.
    pub fn due(&self, now: Time) -> impl Iterator<Item = &K> {
        self.by_time.iter().take_while(move |(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// Removes and returns the earliest timer if it is due at `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_of_time_then_key_and_only_when_due() {
        let mut timers = Timers::new();
        timers.set("b", Time(5));
        timers.set("a", Time(5));
        timers.set("c", Time(3));
        timers.set("c", Time(9));
        assert_eq!(timers.due(Time(5)).copied().collect::<alloc::vec::Vec<_>>(), ["a", "b"]);
        assert_eq!(timers.pop_due(Time(4)), None);
        assert_eq!(timers.pop_due(Time(5)), Some("a"));
        assert_eq!(timers.pop_due(Time(5)), Some("b"));
        assert_eq!(timers.pop_due(Time(5)), None);
        assert_eq!(timers.next(), Some((Time(9), &"c")));
        timers.cancel(&"c");
        assert_eq!(timers.next(), None);
    }
}
