//! Information from data packets about a path: that it is used, that it works, and when the other end
//! last heard this one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use segue_clock::Time;
use segue_keepalive::{SILENCE, Traffic};
use segue_wire::age;

/// The state of one path. Times are in nanoseconds, zero for never. Written by the threads that carry
/// packets.
#[derive(Default)]
pub(super) struct Data {
    sent_at: AtomicU64,
    received_at: AtomicU64,
    heard_back: AtomicU64,
    /// When anything valid last arrived.
    heard_at: AtomicU64,
    received: AtomicU32,
}

impl Data {
    /// Records that something valid arrived.
    pub(super) fn heard(&self, at: Time) {
        self.heard_at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// The age that data packets state at `now`.
    pub(super) fn age(&self, now: Time) -> u8 {
        match self.heard_at.load(Ordering::Relaxed) {
            0 => 0,
            at => age::encode(now.0.saturating_sub(at)),
        }
    }

    /// Records departing data; true if they follow a silence.
    pub(super) fn left(&self, now: Time) -> bool {
        let arrived = self.received_at.load(Ordering::Relaxed);
        let before = self.sent_at.swap(now.0, Ordering::Relaxed).max(arrived);
        now > Time(before) + SILENCE
    }

    /// Records an arriving packet that stated this age; true if it follows a silence.
    pub(super) fn came(&self, at: Time, stated: u8) -> bool {
        let left = self.sent_at.load(Ordering::Relaxed);
        let before = self.received_at.fetch_max(at.0, Ordering::Relaxed).max(left);
        self.received.fetch_add(1, Ordering::Relaxed);
        if let Some(age) = age::decode(stated) {
            self.heard_back.fetch_max(at.0.saturating_sub(age), Ordering::Relaxed);
        }
        at > Time(before) + SILENCE
    }

    /// The part of a reading that concerns data; `bytes` is their number of bytes.
    pub(super) fn traffic(&self, bytes: u64) -> Traffic {
        let instant =
            |at: &AtomicU64| Some(at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Time);
        Traffic {
            sent_at: instant(&self.sent_at),
            received_at: instant(&self.received_at),
            heard_back: instant(&self.heard_back),
            received: self.received.load(Ordering::Relaxed),
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_age_says_nothing_of_the_future_and_takes_nothing_back() {
        let data = Data::default();
        let back = || data.heard_back.load(Ordering::Relaxed);
        let now = Time(10_000_000_000);
        for nothing in [0, 255] {
            data.came(now, nothing);
            assert_eq!(back(), 0, "age {nothing}");
        }
        for stated in [200, 100, 1] {
            data.came(now, stated);
            assert_eq!(back(), now.0 - age::decode(stated).unwrap());
        }
        let newest = back();
        data.came(now, 250);
        assert_eq!(back(), newest);
        assert!(newest < now.0);
    }
}
