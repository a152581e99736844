//! The demonstration: a device with two access networks in namespaces and its daemons ([`stage`]), live traffic
//! ([`traffic`]), what is seen of it ([`watch`]), and how that is judged and written down ([`outcome`], [`page`]).
//! `segue demo` and the experiments of `segue reproduce` perform on it.

#![forbid(unsafe_code)]

pub mod domain;
pub mod interrupt;
pub mod moves;
pub mod outcome;
pub mod page;
pub mod stage;
pub mod traffic;
pub mod watch;

use std::time::Duration;

/// The course of a demonstration, in seconds from its start.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// The Wi-Fi falls silent.
    pub silent_at: f64,
    /// It comes back.
    pub back_at: f64,
    /// The end.
    pub until: f64,
}

/// The voice-like flow: 50 packets a second.
pub(crate) const VOICE_INTERVAL: Duration = Duration::from_millis(20);
