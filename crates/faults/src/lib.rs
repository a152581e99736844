//! The fault harness: protocols under seeded schedules of faults, with invariants checked after every event.
//!
//! ```text
//!   seed ──Schedule::generate──► Schedule ◄── text (kept, changed by hand, replayed)
//!                                   │ inject
//!   World: machines, faulty links ──┤ step, check ──► Outcome (hash of the record, Failure)
//!                                   └ shrink: the same with fewer faults
//! ```
//!
//! A [`Protocol`] says what its schedules look like and makes their [`World`]. Those that run as roles on a network
//! implement [`Scene`] over a [`Stage`], as [`tunnel`] (hosts and an anchor) does; [`estimators`], the two ends of one
//! path's measurement, are without a network. Another protocol joins with one file and a line in [`Machines::ALL`].
//! docs/simulator/faults.md lists what is injected and checked, with each bound.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
pub mod echo;
pub mod estimators;
pub mod protocol;
pub mod record;
pub mod report;
pub mod schedule;
pub mod shrink;
pub mod stage;
pub mod text;
pub mod tunnel;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Estimates;

pub use protocol::{Machines, Protocol};
pub use record::Record;
pub use report::report;
pub use schedule::{Entry, Fault, Node, PathRef, Schedule, Way};
pub use shrink::{Shrunk, shrink};
pub use stage::{Scene, Stage, Staged};
pub use text::{TextError, Words};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as in docs/simulator/faults.md.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}

impl Violation {
    /// The violation of `invariant`, with what was found.
    #[must_use]
    pub fn new(invariant: &'static str, detail: String) -> Violation {
        Violation { invariant, detail }
    }

    /// Nothing if `holds`.
    ///
    /// # Errors
    /// The violation if it does not hold.
    pub fn unless(
        holds: bool,
        invariant: &'static str,
        detail: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation::new(invariant, detail())) }
    }
}

/// What estimates count, which never goes back.
fn counters_of(e: &Estimates) -> [u64; 9] {
    [
        e.sent,
        e.received,
        e.duplicates,
        e.reordered,
        e.transitions,
        e.up.sent,
        e.up.received,
        e.down.sent,
        e.down.received,
    ]
}

/// Machines on virtual time, with what is between them and what must hold of them.
pub trait World {
    /// Virtual time.
    fn now(&self) -> Time;

    /// Runs the next event that is due up to and at `end`, and checks what must hold after it. Returns whether there was
    /// one; if not, it is `end` afterwards.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn step(&mut self, end: Time, record: &mut Record) -> Result<bool, Violation>;

    /// Injects a fault, and checks what must hold after it. One that makes no sense here does nothing.
    ///
    /// # Errors
    /// As for [`World::step`].
    fn inject(&mut self, fault: &Fault, record: &mut Record) -> Result<(), Violation>;

    /// All has been mended, and the quiet time begins: everything runs that can.
    ///
    /// # Errors
    /// As for [`World::step`].
    fn quiet(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// What must hold [`schedule::QUIET_MS`] later.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn finish(&mut self) -> Result<(), Violation>;

    /// The state of the machines, for a person who examines a failure.
    fn describe(&self) -> String;
}

/// A run that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Since the start of the run.
    pub at: Span,
    /// What did not hold.
    pub violation: Violation,
    /// The last events, if the record kept texts.
    pub last: Vec<String>,
    /// The state of the machines then.
    pub state: String,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all events: the same for the same schedule.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// What broke, if anything did.
    pub failure: Option<Failure>,
}

/// The instant at which a run of `seed` starts: in every fourth run the stamps of probes, microseconds modulo 2³²,
/// wrap.
fn start_of(seed: u64) -> Time {
    const ROUND: Time = Time((1 << 32) * 1_000);
    if seed % 4 == 3 { ROUND - Span::from_secs(9) } else { Time(1_000_000_000) }
}

/// Runs a schedule from its start to its end or to the first violation. The failure has the texts of the last events if
/// `keeps_text`.
#[must_use]
pub fn run(schedule: &Schedule, keeps_text: bool) -> Outcome {
    let start = start_of(schedule.seed);
    let mut record = Record::new(start, keeps_text);
    let mut world = schedule.machines.world(schedule, start);
    let failure = drive(world.as_mut(), schedule, start, &mut record).err();
    let failure = failure.map(|violation| Failure {
        at: world.now().since(start),
        violation,
        last: record.last(),
        state: world.describe(),
    });
    Outcome { hash: record.hash(), events: record.events(), failure }
}

/// Runs a world through a schedule.
///
/// # Errors
/// The first violation, at the time that the world has then.
pub fn drive(
    world: &mut dyn World,
    schedule: &Schedule,
    start: Time,
    record: &mut Record,
) -> Result<(), Violation> {
    let after = |ms: u64| start + Span::from_millis(ms);
    let mend = Entry { at_ms: schedule.quiet_ms, fault: Fault::MendAll };
    for entry in schedule.entries.iter().chain([&mend]) {
        let at = after(entry.at_ms);
        while world.step(at, record)? {}
        record.note(at, &[0xfa], || format!("FAULT {}", entry.fault));
        world.inject(&entry.fault, record)?;
    }
    world.quiet()?;
    while world.step(after(schedule.end_ms()), record)? {}
    world.finish()
}
