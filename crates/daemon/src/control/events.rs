//! Events on the control socket.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::Vocabulary;
use crate::wall::Reading;

/// A page of the events that a daemon remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct EventsPage<V: Vocabulary> {
    /// The events, in order.
    pub events: Vec<EventRecord<V>>,
    /// Number of the next event.
    pub next: u64,
    /// The daemon's monotonic clock in nanoseconds, to relate events to.
    pub now_ns: u64,
}

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct EventRecord<V: Vocabulary> {
    /// Its number.
    pub number: u64,
    /// Monotonic clock in nanoseconds.
    pub at_ns: u64,
    /// Time of day in seconds since 1970, as the clock showed it then.
    #[serde(default)]
    pub unix_s: f64,
    /// Its kind. All daemons have `clock`; hosts and anchors: `registered`, `refused`, `gone`, `path_added`,
    /// `path_removed`, `path_state`, `path_doubt`, `path_loss`, `path_mtu`, `flow_filtered`, `handover` or `wifi`.
    pub kind: String,
    /// The host that it concerns, by name; empty on that host itself.
    pub host: String,
    /// The event in one sentence.
    #[serde(default)]
    pub text: String,
    /// Data specific to its kind.
    #[serde(flatten)]
    pub about: V::Event,
}

impl<V: Vocabulary> EventRecord<V> {
    /// A record of an event at this moment.
    pub fn new(
        at: &Reading,
        number: u64,
        kind: &str,
        host: String,
        text: String,
        about: V::Event,
    ) -> EventRecord<V> {
        let (at_ns, unix_s, kind) = (at.monotonic.0, at.unix_s(), kind.to_owned());
        EventRecord { number, at_ns, unix_s, kind, host, text, about }
    }
}

/// A report of a role's machine; displayed as a sentence without a full stop.
pub trait News<E>: Display {
    /// Its kind, as in output.
    fn kind(&self) -> &'static str;
    /// The host that it concerns, by name; empty on that host itself.
    fn host(&self) -> String {
        String::new()
    }
    /// Its cause or result, by which events of its kind are counted; may be empty.
    fn cause(&self) -> &'static str {
        ""
    }
    /// Returns whether it deserves a warning in the log.
    fn warns(&self) -> bool {
        false
    }
    /// Data specific to its kind.
    fn about(&self) -> E;
}
