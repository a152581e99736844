//! Very large numbers of hosts without a topology: the real state machines of hosts and anchors, access paths of a few
//! classes, keepalives and handovers without simplification.
//!
//! ```text
//!   Spec ─► Shard (own queue, hosts, anchors)  ─► Stats ─┐
//!        ─► Shard                              ─► Stats ─┴ merge, in order ─► report: results and verdicts
//! ```
//!
//! Shards are independent, so they can run on any number of threads with the same result.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod places;
mod report;
mod shard;
mod signal;
mod spec;
mod stats;
mod store;
mod traffic;
mod truth;
mod warm;

pub use report::{Verdict, results, verdicts};
pub use shard::Shard;
pub use spec::{Class, Flows, MAX_HOSTS, Outages, Silent, Spec, SpecError};
pub use stats::{ClassStats, Distribution, EndStats, FlowStats, Load, Stats};
