//! What data show about a path: that it is used, that it lives, and when its other end heard this one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use segue_clock::Time;
use segue_keepalive::{SILENCE, Traffic};
use segue_wire::age;

use super::path::{Path, lock};
use crate::Role;

/// Of one path; times in nanoseconds, zero for never. Written by the threads that carry packets.
#[derive(Default)]
pub struct Data {
    sent_at: AtomicU64,
    received_at: AtomicU64,
    heard_back: AtomicU64,
    /// When anything valid arrived.
    heard_at: AtomicU64,
    received: AtomicU32,
}

impl Data {
    /// Anything valid arrived.
    pub fn heard(&self, at: Time) {
        self.heard_at.fetch_max(at.0, Ordering::Relaxed);
    }

    /// The age that data state now.
    pub fn age(&self, now: Time) -> u8 {
        match self.heard_at.load(Ordering::Relaxed) {
            0 => 0,
            at => age::encode(now.0.saturating_sub(at)),
        }
    }

    /// Data left; whether they follow a silence.
    fn left(&self, now: Time) -> bool {
        let arrived = self.received_at.load(Ordering::Relaxed);
        let before = self.sent_at.swap(now.0, Ordering::Relaxed).max(arrived);
        now > Time(before) + SILENCE
    }

    /// A packet arrived, which stated this age; whether it follows a silence.
    fn came(&self, at: Time, stated: u8) -> bool {
        let left = self.sent_at.load(Ordering::Relaxed);
        let before = self.received_at.fetch_max(at.0, Ordering::Relaxed).max(left);
        self.received.fetch_add(1, Ordering::Relaxed);
        if let Some(age) = age::decode(stated) {
            self.heard_back.fetch_max(at.0.saturating_sub(age), Ordering::Relaxed);
        }
        at > Time(before) + SILENCE
    }
}

impl Path {
    /// Data leave. Returns whether the driver must look at this path.
    pub fn data_left(&self, role: Role, now: Time) -> bool {
        role == Role::Host && self.state.data.left(now) && self.config.probing.follows_use
    }

    /// Data arrived. Returns whether the driver must look at this path.
    pub fn data_came(&self, role: Role, at: Time, stated: u8) -> bool {
        self.state.data.heard(at);
        role == Role::Host && self.state.data.came(at, stated) && self.config.probing.follows_use
    }

    /// What a reading says about data.
    pub fn traffic(&self) -> Traffic {
        let data = &self.state.data;
        let instant =
            |at: &AtomicU64| Some(at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Time);
        let bytes = lock(&self.state.tx).bytes + lock(&self.state.rx).bytes;
        Traffic {
            sent_at: instant(&data.sent_at),
            received_at: instant(&data.received_at),
            heard_back: instant(&data.heard_back),
            received: data.received.load(Ordering::Relaxed),
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
