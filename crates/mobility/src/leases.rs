//! Leases of addresses and prefixes from a pool.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::Prefix;

use crate::Pool;
use crate::free::Free;

/// Leases of the parts (addresses or prefixes) of a pool. A lease belongs to a key (a host's name, a session); a key
/// may have several. After a lease ends, its part *rests* for the hold time: only the same key can lease it again,
/// since packets to its previous owner may still be in flight.
///
/// The pool bounds the number of leases. At each instant, call [`ended`](Leases::ended) until `None` before anything
/// else. The cost of a call grows with the logarithm of the number of leases, and with the number of parts of one key.
#[derive(Clone, Debug)]
pub struct Leases<K> {
    pool: Pool,
    hold: Span,
    /// Where to start the search for a free part; `None`: always at the first.
    from: Option<u32>,
    slots: BTreeMap<u32, Slot<K>>,
    /// The parts that are leased to a key or rest for it.
    of: BTreeMap<K, BTreeSet<u32>>,
    ends: BTreeSet<(Time, u32)>,
    rests: BTreeSet<(Time, u32)>,
    free: Free,
}

/// State of a part that is not free.
#[derive(Clone, Debug)]
enum Slot<K> {
    /// Leased until this time; `None`: until it is released.
    Leased(K, Option<Time>),
    /// Resting until this time, for this key or for no one.
    Resting(Option<K>, Time),
}

/// The part is leased to another key, rests for another, or is not in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken;

impl<K: Ord + Clone> Leases<K> {
    /// Creates a pool without leases. The search for a free part starts after the last one assigned, so that parts are
    /// not reused soon.
    #[must_use]
    pub fn new(pool: Pool, hold: Span) -> Leases<K> {
        Leases {
            pool,
            hold,
            from: Some(0),
            slots: BTreeMap::new(),
            of: BTreeMap::new(),
            ends: BTreeSet::new(),
            rests: BTreeSet::new(),
            free: Free::all(pool.numbers()),
        }
    }

    /// Like [`new`](Leases::new), but always assigns the lowest free part.
    #[must_use]
    pub fn lowest_first(pool: Pool, hold: Span) -> Leases<K> {
        Leases { from: None, ..Leases::new(pool, hold) }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Leases a part to a key, until `until` or until it is released: the first part that the key has, otherwise as
    /// [`another`](Leases::another). `None`: no part is available.
    pub fn lease(&mut self, now: Time, key: &K, until: Option<Time>) -> Option<Prefix> {
        let first = self.numbers_of(key).next();
        match first {
            Some(number) => self.put(number, Slot::Leased(key.clone(), until)),
            None => self.another(now, key, until),
        }
    }

    /// Leases an additional part to a key: the first that rests for it, or else a free one. `None`: no part is
    /// available.
    pub fn another(&mut self, now: Time, key: &K, until: Option<Time>) -> Option<Prefix> {
        self.free_rested(now);
        let rests = |number: &&u32| matches!(self.slots.get(number), Some(Slot::Resting(..)));
        let resting = self.of.get(key).and_then(|own| own.iter().find(rests)).copied();
        let number = resting.or_else(|| {
            let number = self.free.next(self.from.unwrap_or(0))?;
            self.from = self.from.map(|_| number + 1);
            Some(number)
        })?;
        self.put(number, Slot::Leased(key.clone(), until))
    }

    /// Leases this part to a key that requests it.
    ///
    /// # Errors
    /// [`Taken`].
    pub fn take(
        &mut self,
        now: Time,
        key: &K,
        part: Prefix,
        until: Option<Time>,
    ) -> Result<(), Taken> {
        self.free_rested(now);
        let number = self.pool.number(part).ok_or(Taken)?;
        let is_own = match self.slots.get(&number) {
            Some(Slot::Leased(owner, _)) => owner == key,
            Some(Slot::Resting(owner, _)) => owner.as_ref() == Some(key),
            None => true,
        };
        is_own.then(|| self.put(number, Slot::Leased(key.clone(), until))).ok_or(Taken)?;
        Ok(())
    }

    /// Restores a lease from before a restart, whatever the part's current state. `None`: the part is not in the pool.
    pub fn restore(&mut self, key: K, part: Prefix, until: Option<Time>) -> Option<Prefix> {
        let number = self.pool.number(part)?;
        self.put(number, Slot::Leased(key, until))
    }

    /// Ends all leases of a key. Its parts rest.
    pub fn release(&mut self, now: Time, key: &K) {
        let own: Vec<u32> = self.numbers_of(key).collect();
        for number in own {
            self.put(number, Slot::Resting(Some(key.clone()), now + self.hold));
        }
    }

    /// Ends the lease of a part, if there is one. The part rests.
    pub fn release_one(&mut self, now: Time, part: Prefix) {
        if let Some(number) = self.pool.number(part)
            && let Some(Slot::Leased(key, _)) = self.slots.get(&number)
        {
            self.put(number, Slot::Resting(Some(key.clone()), now + self.hold));
        }
    }

    /// Restores a resting part from before a restart. `None`: the part is not in the pool.
    pub fn rest(&mut self, key: K, part: Prefix, until: Time) -> Option<Prefix> {
        let number = self.pool.number(part)?;
        self.put(number, Slot::Resting(Some(key), until))
    }

    /// Ends the lease of a part and reserves it for no one until this time. A later time set earlier stays in effect.
    pub fn withhold(&mut self, part: Prefix, until: Time) {
        let Some(number) = self.pool.number(part) else { return };
        let before = match self.slots.get(&number) {
            Some(Slot::Resting(None, before)) => *before,
            _ => until,
        };
        self.put(number, Slot::Resting(None, until.max(before)));
    }

    /// Ends the next lease that has expired at `now`, ordered by end and then by part, and returns its key and part.
    /// The part rests from its end on.
    pub fn ended(&mut self, now: Time) -> Option<(K, Prefix)> {
        let (end, number) = self.ends.first().copied().filter(|(end, _)| *end <= now)?;
        let Some(Slot::Leased(key, _)) = self.slots.get(&number) else { return None };
        let key = key.clone();
        let part = self.put(number, Slot::Resting(Some(key.clone()), end + self.hold))?;
        Some((key, part))
    }

    /// Frees and returns the next part whose hold time is over. Callers that keep records drain this before anything
    /// else, as with [`ended`](Leases::ended).
    pub fn rested(&mut self, now: Time) -> Option<Prefix> {
        let (_, number) = self.rests.first().copied().filter(|(until, _)| *until <= now)?;
        self.clear(number);
        self.free.give(number);
        self.pool.part(number)
    }

    /// When the next hold time is over.
    #[must_use]
    pub fn next_rested(&self) -> Option<Time> {
        self.rests.first().map(|(until, _)| *until)
    }

    /// When the next lease expires.
    #[must_use]
    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// The parts leased to a key, by number.
    pub fn of(&self, key: &K) -> impl Iterator<Item = Prefix> {
        self.numbers_of(key).filter_map(|number| self.pool.part(number))
    }

    /// The key that a part is leased to.
    #[must_use]
    pub fn whose(&self, part: Prefix) -> Option<&K> {
        match self.slots.get(&self.pool.number(part)?)? {
            Slot::Leased(key, _) => Some(key),
            Slot::Resting(..) => None,
        }
    }

    /// All leases by part number: part, key, and end.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix, &K, Option<Time>)> {
        self.slots.iter().filter_map(|(number, slot)| match slot {
            Slot::Leased(key, until) => Some((self.pool.part(*number)?, key, *until)),
            Slot::Resting(..) => None,
        })
    }

    fn numbers_of(&self, key: &K) -> impl Iterator<Item = u32> {
        let leased = |number: &u32| matches!(self.slots.get(number), Some(Slot::Leased(..)));
        self.of.get(key).into_iter().flatten().copied().filter(leased)
    }

    fn free_rested(&mut self, now: Time) {
        while self.rested(now).is_some() {}
    }

    /// Replaces the state of a part.
    fn put(&mut self, number: u32, slot: Slot<K>) -> Option<Prefix> {
        if !self.free.take(number) {
            self.clear(number);
        }
        match &slot {
            Slot::Leased(_, until) => self.ends.extend(until.map(|until| (until, number))),
            Slot::Resting(_, until) => drop(self.rests.insert((*until, number))),
        }
        if let Slot::Leased(key, _) | Slot::Resting(Some(key), _) = &slot {
            self.of.entry(key.clone()).or_default().insert(number);
        }
        self.slots.insert(number, slot);
        self.pool.part(number)
    }

    /// Removes the state of a part.
    fn clear(&mut self, number: u32) {
        let Some(slot) = self.slots.remove(&number) else { return };
        match &slot {
            Slot::Leased(_, until) => drop(until.map(|until| self.ends.remove(&(until, number)))),
            Slot::Resting(_, until) => drop(self.rests.remove(&(*until, number))),
        }
        if let Slot::Leased(key, _) | Slot::Resting(Some(key), _) = &slot
            && let Some(own) = self.of.get_mut(key)
        {
            own.remove(&number);
            if own.is_empty() {
                self.of.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const HOLD: Span = Span(10);

    fn leases(first: &str) -> Leases<&'static str> {
        Leases::new(Pool::addresses(first.parse().unwrap(), 2).unwrap(), HOLD)
    }

    fn given(part: Option<Prefix>) -> alloc::string::String {
        part.map_or("none".to_string(), |part| part.addr.to_string())
    }

    #[test]
    fn a_part_rests_for_its_key_alone_and_then_for_nobody() {
        let mut leases = leases("10.7.0.0/30");
        let lease = |leases: &mut Leases<_>, at, key| given(leases.lease(Time(at), &key, None));
        assert_eq!(lease(&mut leases, 0, "a"), "10.7.0.2");
        assert_eq!(lease(&mut leases, 0, "b"), "none");
        leases.release(Time(5), &"a");
        assert_eq!(leases.of(&"a").count(), 0);
        assert_eq!(lease(&mut leases, 14, "b"), "none");
        assert_eq!(lease(&mut leases, 14, "a"), "10.7.0.2");
        leases.release(Time(20), &"a");
        assert_eq!(lease(&mut leases, 30, "b"), "10.7.0.2");
        assert_eq!(lease(&mut leases, 30, "a"), "none");
        assert_eq!(leases.of.len(), 1, "a key without anything is forgotten");
    }

    #[test]
    fn a_part_that_has_rested_is_told_once_and_one_that_is_given_again_is_not() {
        let mut leases = leases("10.7.0.0/29");
        let part = |n| Prefix::host([10, 7, 0, n]);
        for key in ["a", "b"] {
            leases.lease(Time(0), &key, None);
            leases.release(Time(5), &key);
        }
        assert_eq!(leases.rest("c", part(4), Time(11)), Some(part(4)));
        assert_eq!(leases.rest("c", Prefix::host([10, 8, 0, 1]), Time(11)), None);
        assert_eq!((leases.rested(Time(10)), leases.next_rested()), (None, Some(Time(11))));
        assert_eq!(leases.rested(Time(12)), Some(part(4)));
        assert_eq!(leases.another(Time(14), &"a", None), Some(part(2)));
        let all: Vec<_> = core::iter::from_fn(|| leases.rested(Time(15))).collect();
        assert_eq!((all, leases.next_rested()), ([part(3)].to_vec(), None));
    }

    #[test]
    fn a_part_that_was_given_back_at_once_is_not_the_next_to_be_given() {
        let mut leases = Leases { hold: Span::ZERO, ..leases("10.7.0.0/29") };
        let given = [(); 6].map(|()| {
            let part = leases.lease(Time(0), &"a", None);
            leases.release(Time(0), &"a");
            given(part)
        });
        let all = ["10.7.0.2", "10.7.0.3", "10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.0.2"];
        assert_eq!(given, all);
    }

    #[test]
    fn a_key_may_have_several_and_asks_for_one_by_name_that_is_free_or_its_own() {
        let mut leases = leases("10.7.0.0/29");
        let part = |n| Prefix::host([10, 7, 0, n]);
        assert_eq!(leases.take(Time(0), &"a", part(5), Some(Time(9))), Ok(()));
        assert_eq!(leases.another(Time(0), &"a", Some(Time(7))), Some(part(2)));
        assert_eq!(leases.take(Time(0), &"b", part(5), None), Err(Taken));
        assert_eq!(leases.take(Time(0), &"a", part(1), None), Err(Taken), "it is kept back");
        assert_eq!(leases.of(&"a").collect::<Vec<_>>(), [part(2), part(5)]);
        assert_eq!((leases.next_end(), leases.ended(Time(6))), (Some(Time(7)), None));
        assert_eq!(leases.ended(Time(8)), Some(("a", part(2))));
        assert_eq!((leases.ended(Time(8)), leases.next_end()), (None, Some(Time(9))));
        // The hold time starts at the end of the lease, not when the end was noticed.
        assert_eq!(leases.take(Time(16), &"b", part(2), None), Err(Taken));
        assert_eq!(leases.take(Time(17), &"b", part(2), None), Ok(()));
    }

    #[test]
    fn what_is_withheld_is_nobodys_until_then_and_a_record_ends_that() {
        let mut leases = leases("10.7.0.0/30");
        let part = leases.lease(Time(0), &"a", None).unwrap();
        leases.withhold(part, Time(50));
        leases.withhold(part, Time(40));
        assert_eq!((leases.iter().count(), leases.lease(Time(49), &"a", None)), (0, None));
        assert_eq!(leases.restore("c", part, None), Some(part));
        assert_eq!(leases.lease(Time(60), &"a", None), None);
        assert_eq!(leases.restore("c", Prefix::host([192, 0, 2, 1]), None), None);
    }
}
