//! Pending events, ordered by time and, within one instant, by order of scheduling.
//!
//! The queue is a timing wheel with 64 slots per level, each level 64 times as coarse as the one below, down to
//! single nanoseconds, and a short sorted list of the next events:
//!
//! ```text
//!   level 10        64^10 ns = 36 years
//!     …
//!   level 5   64 slots of 1.07 s   ─┐ when its turn comes, a slot is distributed over a level below,
//!   level 4   64 slots of 16.8 ms   │ or, if it has few events, sorted at once
//!     …                             ▼
//!   current   the next slot's events, sorted; new events within its span are inserted here
//! ```
//!
//! An event is stored at the level of the highest digit (to base 64) in which its time differs from `base`, in
//! the slot of that digit. `base` advances only to the start of the slot whose turn has come. Everything below is
//! empty at that point, so no other event has to move. Events of the same instant are therefore always together
//! and in order of scheduling, without serial numbers: both distributing and sorting a slot keep their order.

use alloc::vec::Vec;

use segue_clock::Time;

/// Bits per digit.
const BITS: u32 = 6;
/// Slots per level.
const SLOTS: usize = 1 << BITS;
/// Levels required for a 64-bit time.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// Default limit: a slot with at most this many events is sorted as a whole.
const SORT: usize = 32;
/// When the current list reaches this length it is moved back into slots, since an insertion costs O(length).
const SPILL: usize = 512;
/// This many of the latest events are compared one by one with a new event, which usually follows one of them.
const NEAR: usize = 6;
/// An empty slot shrinks its capacity to this many events.
const KEEP: usize = 1 << 13;

#[derive(Clone, Copy)]
struct Entry<E> {
    at: u64,
    event: E,
}

struct Level<E> {
    /// One bit per non-empty slot.
    filled: u64,
    slots: Vec<Vec<Entry<E>>>,
}

/// Pending events.
pub struct EventQueue<E> {
    /// Events at or before `covered`, in order. Those before `next` have happened.
    current: Vec<Entry<E>>,
    next: usize,
    covered: u64,
    base: u64,
    levels: Vec<Level<E>>,
    /// One bit per non-empty level.
    filled: u32,
    len: usize,
    scheduled: u64,
    /// A slot with at most this many events is sorted as a whole.
    sort: usize,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::foreseeing(SORT)
    }
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue that sorts up to `events` events at once, so that [`upcoming`](Self::upcoming) can list
    /// them.
    #[must_use]
    pub fn foreseeing(events: usize) -> Self {
        let slots = || core::iter::repeat_with(Vec::new).take(SLOTS).collect();
        let levels = (0..LEVELS).map(|_| Level { filled: 0, slots: slots() }).collect();
        EventQueue {
            current: Vec::new(),
            next: 0,
            covered: 0,
            base: 0,
            levels,
            filled: 0,
            len: 0,
            scheduled: 0,
            sort: events.min(SPILL),
        }
    }

    /// Schedules `event` at `at`, after events scheduled earlier for the same instant. If `at` has passed,
    /// `event` is next.
    pub fn schedule(&mut self, at: Time, event: E) {
        self.len += 1;
        self.scheduled += 1;
        let entry = Entry { at: at.0, event };
        if at.0 > self.covered {
            self.put(entry);
            return;
        }
        self.insert(entry);
        if self.current.len() - self.next >= SPILL {
            self.spill();
        }
    }

    /// Inserts an event into the current list, behind those of the same instant.
    fn insert(&mut self, entry: Entry<E>) {
        let (list, next) = (&mut self.current, self.next);
        let later = list[next..].iter().rev().take(NEAR).take_while(|other| other.at > entry.at);
        let mut place = list.len() - later.count();
        if place + NEAR == list.len() {
            place = next + list[next..place].partition_point(|other| other.at <= entry.at);
        }
        if next > 0 && place - next < list.len() - place {
            // Events that have happened leave room in front.
            list.copy_within(next..place, next - 1);
            list[place - 1] = entry;
            self.next -= 1;
        } else {
            list.insert(place, entry);
        }
    }

    /// Removes and returns the next event if it is due at or before `end`.
    #[inline]
    pub fn pop_until(&mut self, end: Time) -> Option<(Time, E)> {
        let entry = loop {
            match self.current.get(self.next) {
                Some(entry) if entry.at > end.0 => return None,
                Some(entry) => break *entry,
                None => self.refill(end.0)?,
            }
        };
        self.len -= 1;
        self.next += 1;
        if self.next >= SPILL {
            self.current.drain(..self.next);
            self.next = 0;
        }
        Some((Time(entry.at), entry.event))
    }

    /// The next events, as far as they are sorted; there may be more behind them. Lets a caller prepare for them.
    pub fn upcoming(&self) -> impl Iterator<Item = (Time, &E)> {
        self.current[self.next..].iter().map(|entry| (Time(entry.at), &entry.event))
    }

    /// Number of pending events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of events scheduled so far.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.scheduled
    }

    /// Stores an event later than `covered` in its slot.
    fn put(&mut self, entry: Entry<E>) {
        let level = ((entry.at ^ self.base).ilog2() / BITS) as usize;
        let slot = digit(entry.at, level);
        self.filled |= 1 << level;
        self.levels[level].filled |= 1 << slot;
        self.levels[level].slots[slot].push(entry);
    }

    /// Distributes the next slot, or makes it the current list, which must be empty. Returns `None` if the slot
    /// begins after `end` or no event is pending.
    fn refill(&mut self, end: u64) -> Option<()> {
        if self.filled == 0 {
            return None;
        }
        let number = self.filled.trailing_zeros() as usize;
        let level = &mut self.levels[number];
        let slot = level.filled.trailing_zeros() as usize;
        let shift = number as u32 * BITS;
        // All ones below the digit; the digits above it come from `base`.
        let below = (1 << shift) - 1;
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        let start = self.base & above | (slot as u64) << shift;
        if start > end {
            return None;
        }
        level.filled &= level.filled - 1;
        if level.filled == 0 {
            self.filled &= self.filled - 1;
        }
        self.base = start;
        let events = &mut level.slots[slot];
        self.current.clear();
        self.next = 0;
        if number == 0 || events.len() <= self.sort {
            // Reuse the allocation of the empty list for the slot.
            core::mem::swap(events, &mut self.current);
            if self.current.len() > 1 && number > 0 {
                self.current.sort_by_key(|entry| entry.at);
            }
            self.covered = start | below;
            return Some(());
        }
        self.covered = start;
        let mut events = core::mem::take(events);
        for entry in events.drain(..) {
            if entry.at > start {
                self.put(entry);
            } else {
                self.current.push(entry);
            }
        }
        if events.capacity() <= KEEP {
            self.levels[number].slots[slot] = events;
        }
        Some(())
    }

    /// Moves the current list except its first instant back into slots. All slots are empty as far as the list
    /// reaches.
    fn spill(&mut self) {
        let list = &self.current[self.next..];
        let Some(first) = list.first().map(|entry| entry.at.max(self.base)) else { return };
        if list.last().is_none_or(|entry| entry.at <= first) {
            return;
        }
        (self.base, self.covered) = (first, first);
        let later = self.next + list.partition_point(|entry| entry.at <= first);
        for entry in self.current.split_off(later) {
            self.put(entry);
        }
    }
}

/// A digit of a time in base 64.
fn digit(at: u64, level: usize) -> usize {
    (at >> (level as u32 * BITS)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

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

    #[test]
    fn many_events_of_one_instant_keep_their_order_however_the_wheel_is_taken_apart() {
        let mut queue = EventQueue::new();
        let instants = [0, 1, 1_000_000_007, 1_000_000_008, u64::MAX - 1, u64::MAX];
        for n in 0..20_000_usize {
            queue.schedule(Time(instants[n * 7 % instants.len()]), n);
        }
        let order: Vec<_> = core::iter::from_fn(|| queue.pop_until(Time(u64::MAX))).collect();
        assert_eq!(order.len(), 20_000);
        assert!(order.is_sorted());
    }

    /// An operation on a queue.
    #[derive(Clone, Debug)]
    enum Step {
        /// Schedule this many events, this far (ns) after the last event that happened; negative: before it.
        Schedule(i64, usize),
        /// Pop events up to this far (ns) after the last one, at most this many.
        Pop(u64, usize),
    }

    fn span() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => Just(0_i64),
            4 => 0..70_i64,
            4 => 0..300_000_i64,
            4 => 0..3_000_000_000_i64,
            1 => -5_000..0_i64,
            1 => 0..i64::MAX,
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let many = prop_oneof![6 => 1..8_usize, 1 => 60..70_usize, 1 => 500..1_100_usize];
        let some = prop_oneof![4 => 0..10_usize, 1 => 0..2_000_usize];
        prop_oneof![
            3 => (span(), many).prop_map(|(ahead, count)| Step::Schedule(ahead, count)),
            2 => (span(), some).prop_map(|(ahead, count)| Step::Pop(ahead.unsigned_abs(), count)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_order_is_that_of_a_sorted_map(
            start in prop_oneof![Just(0_u64), 0..u64::MAX, Just(u64::MAX - 1_000)],
            steps in proptest::collection::vec(step(), 1..60),
            stride in prop_oneof![Just(0_u64), Just(1), Just(13), 0..5_000_000_u64],
        ) {
            let mut queue = EventQueue::new();
            let mut model: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            let (mut now, mut serial) = (start, 0_u64);
            for step in steps {
                match step {
                    Step::Schedule(ahead, count) => for n in 0..count as u64 {
                        let at = now.saturating_add_signed(ahead).saturating_add(n % 97 * stride);
                        queue.schedule(Time(at), serial);
                        model.insert((at, serial), serial);
                        serial += 1;
                    },
                    Step::Pop(ahead, count) => for _ in 0..count {
                        let end = now.saturating_add(ahead);
                        let want = model.first_key_value().filter(|((at, _), _)| *at <= end);
                        let want = want.map(|((at, _), event)| (Time(*at), *event));
                        let known = queue.upcoming().next().map(|(at, event)| (at, *event));
                        prop_assert!(known.is_none() || known == want || want.is_none());
                        prop_assert_eq!(queue.pop_until(Time(end)), want);
                        let Some((at, event)) = want else { break };
                        model.remove(&(at.0, event));
                        now = now.max(at.0);
                    },
                }
                prop_assert_eq!((queue.len(), queue.scheduled()), (model.len(), serial));
            }
            let rest: Vec<_> = core::iter::from_fn(|| queue.pop_until(Time(u64::MAX))).collect();
            prop_assert!(queue.is_empty());
            let model: Vec<_> = model.into_iter().map(|((at, _), event)| (Time(at), event)).collect();
            prop_assert_eq!(rest, model);
        }
    }
}
