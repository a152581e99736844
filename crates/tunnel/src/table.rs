//! Values by small dense numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A table whose order is that of the numbers. A look-up costs the same however many there are, and a place
/// that is empty costs a pointer.
pub(crate) struct Table<V>(Vec<Option<Box<V>>>);

impl<V> Table<V> {
    pub(crate) fn new() -> Table<V> {
        Table(Vec::new())
    }

    pub(crate) fn get(&self, number: &u32) -> Option<&V> {
        self.0.get(*number as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: &u32) -> Option<&mut V> {
        self.0.get_mut(*number as usize)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, number: u32, value: V) {
        let place = number as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(Box::new(value));
    }

    pub(crate) fn remove(&mut self, number: &u32) -> Option<V> {
        self.0.get_mut(*number as usize)?.take().map(|value| *value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.0.iter().zip(0..).filter_map(|(value, number)| Some((number, value.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_the_order_of_their_numbers_and_a_place_is_used_again() {
        let mut table = Table::new();
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
