//! The event queue of a small world. Unlike [`segue_sim::EventQueue`], which is built for millions of events, it
//! can report the time of the next event.

use alloc::collections::BTreeMap;

use segue_clock::Time;

/// Events ordered by time and, within an instant, by order of scheduling.
pub(super) struct Agenda<E> {
    events: BTreeMap<(Time, u64), E>,
    serial: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Agenda<E> {
        Agenda { events: BTreeMap::new(), serial: 0 }
    }

    pub(crate) fn schedule(&mut self, at: Time, event: E) {
        self.events.insert((at, self.serial), event);
        self.serial += 1;
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns the next event if it is due at or before `end`.
    pub(crate) fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        let entry = self.events.first_entry().filter(|entry| entry.key().0 <= end)?;
        let ((at, _), event) = entry.remove_entry();
        Some((at, event))
    }
}
