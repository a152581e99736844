//! Very many hosts without a topology: the real machines of hosts and anchors, access paths of a few classes,
//! keepalive and handovers in full.
//!
//! ```text
//!   Spec ─► Shard (own queue, hosts, anchors)  ─► Stats ─┐
//!        ─► Shard                              ─► Stats ─┴ merge, in order ─► report: results and verdicts
//! ```
//!
//! Shards know nothing of each other, so that they run on as many threads as there are, and the result is the
//! same for any number.

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
