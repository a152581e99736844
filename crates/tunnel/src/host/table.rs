//! The host's paths by number, with their deadlines.

use alloc::boxed::Box;
use core::cell::Cell;

use segue_clock::{Deadline, Time, earlier};

use super::path::Path;
use crate::maps::SmallMap;

/// The paths by number. The deadline of a path is computed anew only after a change, since every event of a host asks
/// for the deadlines of all its paths.
pub(super) struct Paths(SmallMap<u8, Entry>);

struct Entry {
    path: Box<Path>,
    /// `None` after a change.
    deadline: Cell<Option<Deadline>>,
}

impl Entry {
    fn deadline(&self) -> Deadline {
        let known = self.deadline.get().unwrap_or_else(|| self.path.deadline());
        self.deadline.set(Some(known));
        known
    }
}

impl Paths {
    pub(super) fn new() -> Paths {
        Paths(SmallMap::new())
    }

    pub(super) fn get(&self, number: &u8) -> Option<&Path> {
        self.0.get(number).map(|entry| &*entry.path)
    }

    /// A path for changes.
    pub(super) fn get_mut(&mut self, number: &u8) -> Option<&mut Path> {
        let entry = self.0.get_mut(number)?;
        entry.deadline.set(None);
        Some(&mut entry.path)
    }

    pub(super) fn insert(&mut self, number: u8, path: Path) {
        self.0.insert(number, Entry { path: Box::new(path), deadline: Cell::new(None) });
    }

    pub(super) fn remove(&mut self, number: &u8) -> Option<Box<Path>> {
        self.0.remove(number).map(|entry| entry.path)
    }

    pub(super) fn contains_key(&self, number: &u8) -> bool {
        self.0.contains_key(number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u8, &Path)> {
        self.0.iter().map(|(number, entry)| (number, &*entry.path))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &u8> {
        self.0.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Path> {
        self.0.values().map(|entry| &*entry.path)
    }

    /// The earliest deadline of a path.
    pub(super) fn deadline(&self) -> Deadline {
        self.0.values().fold(None, |first, entry| earlier(first, entry.deadline()))
    }

    /// A bit for each path that is due at `now`.
    pub(super) fn due(&self, now: Time) -> u16 {
        let due =
            self.0.iter().filter(|(_, entry)| entry.deadline().is_some_and(|(at, _)| at <= now));
        due.fold(0, |word, (number, _)| word | 1 << number)
    }
}
