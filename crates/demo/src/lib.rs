//! The demonstration: namespaces with a device on two access networks, and its daemons ([`stage`]); live traffic
//! ([`traffic`]); the daemons' reports over time ([`watch`]); and the evaluation ([`outcome`]) with its page
//! ([`page`]). The experiments of `segue reproduce` use the same parts.

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
    /// When the Wi-Fi falls silent.
    pub silent_at: f64,
    /// When the Wi-Fi works again.
    pub back_at: f64,
    /// When the demonstration ends.
    pub until: f64,
}

/// Packet interval of the voice-like flow: 50 packets per second.
pub(crate) const VOICE_INTERVAL: Duration = Duration::from_millis(20);
