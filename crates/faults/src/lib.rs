//! The fault harness: protocols under seeded schedules of faults, with invariants checked after every event.
//!
//! ```text
//!   seed ──Schedule::generate──► Schedule ◄── text (kept, changed by hand, replayed)
//!                                   │ inject
//!   World: machines, faulty links ──┤ step, check ──► Outcome (hash of the record, Failure)
//!                                   └ shrink: the same with fewer faults
//! ```
//!
//! A [`Protocol`] defines the contents of its schedules and creates their [`World`]. Protocols that run as roles
//! on a network implement [`Scene`] over a [`Stage`], as [`tunnel`] (hosts and an anchor) does; [`estimators`],
//! the two ends of one path's measurement, needs no network. To add a protocol, write one file and add a line to
//! [`Machines::ALL`]. docs/simulator/faults.md lists the faults and the invariants with their bounds.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
pub mod echo;
pub mod estimators;
pub mod fault;
pub mod mih;
pub mod pmip;
pub mod protocol;
pub mod record;
mod registry;
pub mod report;
pub mod run;
pub mod schedule;
pub mod shrink;
pub mod stage;
pub mod text;
pub mod truth;
pub mod tunnel;
mod violation;
pub mod words;
mod world;

pub use fault::{Entry, Fault, Node, PathRef, Way};
pub use protocol::{Machines, Protocol};
pub use record::Record;
pub use report::report;
pub use run::{Failure, Outcome, drive, run};
pub use schedule::Schedule;
pub use shrink::{Shrunk, shrink};
pub use stage::{Scene, Stage, Staged};
pub use text::TextError;
pub use violation::Violation;
pub use words::Words;
pub use world::World;
