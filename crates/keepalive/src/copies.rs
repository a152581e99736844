//! What left last on a path, kept for the case that it did not arrive.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use segue_clock::Time;

/// Packets that are kept of a path: the last ones.
pub const COPIES: usize = 4;
/// Binary logarithm of the window, in nanoseconds, of which the first [`COPIES`] packets are kept: so what is sparse is
/// kept whole, and a bulk transfer, which sends so often that the next packet tells what happened to the last, costs
/// next to nothing.
pub const COPY_WINDOW_SHIFT: u32 = 24;

/// The copies of one path.
#[derive(Clone, Debug)]
pub struct Copies<T> {
    window: u64,
    /// How many were kept of that window.
    taken: usize,
    kept: VecDeque<(Time, T)>,
}

impl<T> Default for Copies<T> {
    fn default() -> Copies<T> {
        Copies { window: 0, taken: 0, kept: VecDeque::new() }
    }
}

impl<T> Copies<T> {
    /// Keeps a packet that leaves, made only if it is to be kept. The oldest gives way.
    pub fn keep(&mut self, now: Time, packet: impl FnOnce() -> T) {
        let window = now.0 >> COPY_WINDOW_SHIFT;
        if window != self.window {
            (self.window, self.taken) = (window, 0);
        }
        if self.taken == COPIES {
            return;
        }
        self.taken += 1;
        self.kept.truncate(COPIES - 1);
        self.kept.push_front((now, packet()));
    }

    /// Gives away what left after `since`, the oldest first, and forgets the others.
    pub fn take_since(&mut self, since: Time) -> Vec<T> {
        let kept = core::mem::take(&mut self.kept);
        kept.into_iter().rev().filter(|(at, _)| *at > since).map(|(_, packet)| packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const WINDOW: u64 = 1 << COPY_WINDOW_SHIFT;

    #[test]
    fn the_last_sparse_packets_are_kept_and_each_is_given_once() {
        let mut copies = Copies::default();
        for n in 1..=6u64 {
            copies.keep(Time(n * WINDOW), || n);
        }
        assert_eq!(copies.take_since(Time(4 * WINDOW)), vec![5, 6]);
        assert_eq!(copies.take_since(Time(0)), Vec::<u64>::new());
    }

    #[test]
    fn of_many_in_a_window_the_first_are_kept() {
        let mut copies = Copies::default();
        let mut made = 0;
        for n in 0..1_000u64 {
            copies.keep(Time(5 * WINDOW + n), || {
                made += 1;
                n
            });
        }
        assert_eq!((copies.take_since(Time(0)), made), (vec![0, 1, 2, 3], COPIES));
    }
}
