//! A table of values by number.

use alloc::vec::Vec;

/// Reuses the most recently freed place first, because it is still in the cache.
pub(super) struct Store<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Store<T> {
    pub(super) fn new() -> Store<T> {
        Store { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn put(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        self.places.len() as u32 - 1
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn take(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize].take().expect("each number is taken once")
    }
}
