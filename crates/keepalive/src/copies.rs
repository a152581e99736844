//! Copies of the last packets that left on a path, to send again if they did not arrive.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use segue_clock::{Span, Time};

/// Maximum number of copies for a path.
pub const COPIES: usize = 4;
/// Binary logarithm of a window in nanoseconds; the first [`COPIES`] packets of each window are kept. This covers
/// sparse traffic completely. A bulk transfer, whose next packet soon shows whether the last one arrived, costs next to
/// nothing.
pub const COPY_WINDOW_SHIFT: u32 = 24;

/// Copies older than this, relative to the last packet of their flow, are not sent: they would arrive after newer ones.
const STALE: Span = Span::from_secs(1);

/// Whether a copy of a packet that left `at` would be too late for its flow, whose last packet was seen at `last_seen`;
/// `None` for an unknown flow.
#[must_use]
pub fn is_stale(at: Time, last_seen: Option<Time>) -> bool {
    last_seen.is_some_and(|last_seen| last_seen.since(at) > STALE)
}

/// The copies of one path.
#[derive(Clone, Debug)]
pub struct Copies<T> {
    window: u64,
    /// Number of packets kept in this window.
    taken: usize,
    kept: VecDeque<(Time, T)>,
}

impl<T> Default for Copies<T> {
    fn default() -> Copies<T> {
        Copies { window: 0, taken: 0, kept: VecDeque::new() }
    }
}

impl<T> Copies<T> {
    /// Keeps a departing packet, and drops the oldest if necessary. Calls `packet` only if it keeps the copy.
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

    /// Returns the copies of packets that left after `since`, oldest first, and clears all. `last_seen` returns when
    /// the last packet of a copy's flow was seen; see [`is_stale`].
    pub fn take_since(&mut self, since: Time, last_seen: impl Fn(&T) -> Option<Time>) -> Vec<T> {
        let kept = core::mem::take(&mut self.kept).into_iter().rev();
        let sent = kept.filter(|(at, packet)| *at > since && !is_stale(*at, last_seen(packet)));
        sent.map(|(_, packet)| packet).collect()
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
        assert_eq!(copies.take_since(Time(4 * WINDOW), |_| None), vec![5, 6]);
        assert_eq!(copies.take_since(Time(0), |_| None), Vec::<u64>::new());
    }

    #[test]
    fn what_is_a_second_older_than_the_last_of_its_flow_is_left_out() {
        let mut copies = Copies::default();
        let at = |ms: u64| Time(ms * 1_000_000);
        for (ms, flow) in [(50, "voice"), (100, "shell"), (600, "voice")] {
            copies.keep(at(ms), || flow);
        }
        // The voice flow continues on another path; the shell flow has no newer packet.
        let last_seen = |flow: &&str| Some(at(if *flow == "voice" { 1_100 } else { 100 }));
        assert_eq!(copies.take_since(Time(0), last_seen), vec!["shell", "voice"]);
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
        assert_eq!((copies.take_since(Time(0), |_| None), made), (vec![0, 1, 2, 3], COPIES));
    }
}
