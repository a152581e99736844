//! A set of free numbers.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Free numbers, stored as ranges so that finding the next one does not scan the taken ones.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// Start of each range, and its exclusive end. No two ranges touch.
    ranges: BTreeMap<u32, u32>,
}

impl Free {
    /// All of these numbers are free.
    pub(crate) fn all(numbers: Range<u32>) -> Free {
        Free { ranges: BTreeMap::from([(numbers.start, numbers.end)]) }
    }

    /// The first free number at or after `from`; if there is none, the first of all.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let first = || self.ranges.keys().next().copied();
        let next = || self.ranges.range(from..).next().map(|(start, _)| *start);
        self.around(from).map(|_| from).or_else(next).or_else(first)
    }

    /// Takes a number. Returns false if it was not free.
    pub(crate) fn take(&mut self, number: u32) -> bool {
        let Some(Range { start, end }) = self.around(number) else { return false };
        self.ranges.remove(&start);
        if start < number {
            self.ranges.insert(start, number);
        }
        if number + 1 < end {
            self.ranges.insert(number + 1, end);
        }
        true
    }

    /// Gives back a number that was taken.
    pub(crate) fn give(&mut self, number: u32) {
        let end = self.ranges.remove(&(number + 1)).unwrap_or(number + 1);
        let before = self.ranges.range_mut(..number).next_back();
        match before.filter(|(_, end)| **end == number) {
            Some((_, last)) => *last = end,
            None => drop(self.ranges.insert(number, end)),
        }
    }

    /// The free range that contains a number.
    fn around(&self, number: u32) -> Option<Range<u32>> {
        let (start, end) = self.ranges.range(..=number).next_back()?;
        (number < *end).then_some(*start..*end)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use segue_clock::Rng;

    use super::*;

    #[test]
    fn ranges_say_the_same_as_a_set_of_numbers_and_never_touch() {
        let numbers = 3..40;
        let mut rng = Rng::new(1);
        let (mut free, mut model) = (Free::all(numbers.clone()), BTreeSet::from_iter(numbers));
        for _ in 0..20_000 {
            let number = 3 + rng.below(37) as u32;
            // A free number is taken. A taken one is taken again in vain, or given back.
            if model.contains(&number) || rng.chance(0.5) {
                assert_eq!(free.take(number), model.remove(&number));
            } else {
                free.give(number);
                model.insert(number);
            }
            let from = rng.below(45) as u32;
            let expected = model.range(from..).next().or(model.first());
            assert_eq!(free.next(from), expected.copied());
            let mut last = 0;
            for (start, end) in &free.ranges {
                assert!(last < *start && start < end, "{free:?}");
                last = *end;
            }
        }
    }
}
