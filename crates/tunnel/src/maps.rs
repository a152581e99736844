//! Maps keyed by small, dense numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A table ordered by number. The cost of a look-up does not depend on the number of values, and an empty place costs
/// one pointer.
pub(crate) struct DenseMap<V> {
    values: Vec<Option<Box<V>>>,
    /// Number of values looked at: the cost of an event, measured without a clock.
    #[cfg(test)]
    pub(crate) looks: core::cell::Cell<u64>,
}

impl<V> DenseMap<V> {
    pub(crate) fn new() -> DenseMap<V> {
        DenseMap {
            values: Vec::new(),
            #[cfg(test)]
            looks: core::cell::Cell::default(),
        }
    }

    fn count(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    pub(crate) fn get(&self, number: &u32) -> Option<&V> {
        self.count();
        self.values.get(*number as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: &u32) -> Option<&mut V> {
        self.count();
        self.values.get_mut(*number as usize)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, number: u32, value: V) {
        let place = number as usize;
        if self.values.len() <= place {
            self.values.resize_with(place + 1, || None);
        }
        self.values[place] = Some(Box::new(value));
    }

    pub(crate) fn remove(&mut self, number: &u32) -> Option<V> {
        self.values.get_mut(*number as usize)?.take().map(|value| *value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.values
            .iter()
            .inspect(|_| self.count())
            .zip(0..)
            .filter_map(|(value, number)| Some((number, value.as_deref()?)))
    }
}

/// A map of few entries, sorted by key. It allocates only what the entries need, and iteration reads contiguous memory.
pub(crate) struct SmallMap<K, V>(Vec<(K, V)>);

impl<K: Ord + Copy, V> SmallMap<K, V> {
    pub(crate) fn new() -> SmallMap<K, V> {
        SmallMap(Vec::new())
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        match self.0.iter().position(|(other, _)| other >= key) {
            Some(place) if self.0[place].0 == *key => Ok(place),
            place => Err(place.unwrap_or(self.0.len())),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.iter_mut().find(|(other, _)| other == key).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.place(key).ok().map(|place| self.0.remove(place).1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_few_entries_is_sorted_and_has_each_key_once() {
        let mut few = SmallMap::new();
        for (key, value) in [(7, "g"), (2, "b"), (9, "i"), (7, "h")] {
            few.insert(key, value);
        }
        assert_eq!(few.iter().collect::<Vec<_>>(), [(&2, &"b"), (&7, &"h"), (&9, &"i")]);
        assert_eq!((few.remove(&7), few.remove(&7), few.get(&9)), (Some("h"), None, Some(&"i")));
        if let Some(value) = few.get_mut(&2) {
            *value = "c";
        }
        assert!(few.contains_key(&2) && !few.contains_key(&7));
        assert_eq!((few.keys().count(), few.values().next()), (2, Some(&"c")));
    }

    #[test]
    fn values_come_in_the_order_of_their_numbers_and_a_place_is_used_again() {
        let mut table = DenseMap::new();
        table.insert(7, "g");
        table.insert(2, "b");
        assert_eq!(
            (table.remove(&7), table.remove(&7), table.remove(&70)),
            (Some("g"), None, None)
        );
        table.insert(7, "h");
        if let Some(value) = table.get_mut(&2) {
            *value = "c";
        }
        assert_eq!(table.iter().collect::<Vec<_>>(), [(2, &"c"), (7, &"h")]);
        assert_eq!((table.get(&3), table.get(&70)), (None, None));
    }
}
