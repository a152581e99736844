//! Events as the control socket tells them.

use serde::{Deserialize, Serialize};

/// Events that a daemon remembers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EventsPage {
    /// The events, in order.
    pub events: Vec<EventRecord>,
    /// Number of the next event.
    pub next: u64,
    /// Monotonic clock in nanoseconds, for relating events.
    pub now_ns: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number.
    pub number: u64,
    /// Monotonic clock in nanoseconds.
    pub at_ns: u64,
    /// `registered`, `refused`, `gone`, `path_added`, `path_removed`, `path_state`, `path_doubt`,
    /// `path_mtu` or `handover`.
    pub kind: String,
    /// The host's name (anchor).
    pub host: String,
    /// The path, or the one moved from.
    pub path: String,
    /// The path moved to.
    pub to: Option<String>,
    /// `path_state`: the state. `path_mtu`: the sizes. `handover`: the cause.
    pub detail: String,
    /// `path_state`: whether the downlink is heard.
    pub downlink: Option<bool>,
    /// `path_state` down: milliseconds since the last sign that both directions work.
    pub silent_ms: Option<f64>,
    /// `path_state`: the longest time until an outage is noticed, in milliseconds.
    pub bound_ms: Option<f64>,
    /// `handover`: bindings rewritten.
    pub flows: Option<usize>,
    /// `handover`: the class, if only one moved.
    pub class: Option<String>,
}
