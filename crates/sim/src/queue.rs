//! What happens next: events in the order of their time, those of one instant in the order in which they
//! were scheduled.

use alloc::collections::BinaryHeap;
use core::cmp::Ordering;

use segue_clock::Time;

struct Entry<E> {
    at: Time,
    serial: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives its greatest entry first: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

/// Events to come.
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    serial: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { heap: BinaryHeap::new(), serial: 0 }
    }
}

impl<E> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `event` happen at `at`, after what was scheduled before for the same instant.
    pub fn schedule(&mut self, at: Time, event: E) {
        self.heap.push(Entry { at, serial: self.serial, event });
        self.serial += 1;
    }

    /// Takes the next event if it lies at or before `end`.
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        if self.heap.peek()?.at > end {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// How many events are to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Nothing is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// How many events were ever scheduled.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, "c"), (3, "a"), (5, "d"), (3, "b"), (9, "e")] {
            queue.schedule(Time(at), event);
        }
        let mut order = alloc::string::String::new();
        while let Some((_, event)) = queue.pop_until(Time(5)) {
            order.push_str(event);
        }
        assert_eq!((order.as_str(), queue.len()), ("abcd", 1));
    }
}
