//! The fault harness: sets of machines under seeded schedules of faults, with invariants checked after
//! every event.
//!
//! ```text
//!   seed ──Schedule::generate──► Schedule ◄── text (kept, changed by hand, replayed)
//!                                   │ inject
//!   World: machines, faulty links ──┤ step, check ──► Outcome (hash of the record, Failure)
//!                                   └ shrink: the same with fewer faults
//! ```
//!
//! A [`World`] is a set of machines with what is between them. There are two: [`tunnel`] (hosts and an anchor) and
//! [`estimators`] (the two ends of one path's measurement). Another set of machines joins by implementing the trait and
//! adding a name to [`Machines`]; schedules, links, records, shrinking and the verb stay the same.
//! docs/simulator/faults.md lists what is injected and checked, with each bound.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
pub mod estimators;
pub mod link;
pub mod record;
pub mod report;
pub mod schedule;
pub mod shrink;
mod text;
pub mod tunnel;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::Estimates;

pub use record::Record;
pub use report::report;
pub use schedule::{Entry, Fault, Machines, PathRef, Schedule, Way};
pub use shrink::{Shrunk, shrink};
pub use text::TextError;

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

/// A set of machines on virtual time, with what is between them and what must hold of them.
pub trait World {
    /// When the next thing happens; `None` if nothing is pending.
    fn next(&self) -> Option<Time>;

    /// Runs one event that is due at `now`.
    ///
    /// # Errors
    /// An invariant that the machines have broken.
    fn step(&mut self, now: Time, record: &mut Record) -> Result<(), Violation>;

    /// Injects a fault. One that makes no sense here does nothing.
    ///
    /// # Errors
    /// As for [`World::step`].
    fn inject(&mut self, now: Time, fault: &Fault, record: &mut Record) -> Result<(), Violation>;

    /// What must hold after every event.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn check(&mut self, now: Time) -> Result<(), Violation>;

    /// What must hold [`schedule::QUIET_MS`] after all has been mended.
    ///
    /// # Errors
    /// An invariant that does not hold.
    fn finish(&mut self, now: Time) -> Result<(), Violation>;

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
    let mut world: Box<dyn World> = match schedule.machines {
        Machines::Tunnel => Box::new(tunnel::Tunnels::new(schedule, start)),
        Machines::Keepalive => Box::new(estimators::Estimators::new(schedule, start)),
    };
    let failure = drive(world.as_mut(), schedule, start, &mut record).err();
    let failure = failure.map(|(now, violation)| Failure {
        at: now.since(start),
        violation,
        last: record.last(),
        state: world.describe(),
    });
    Outcome { hash: record.hash(), events: record.events(), failure }
}

/// Runs a world through a schedule. Returns where and how it broke, if it did.
///
/// # Errors
/// The first violation and its time.
pub fn drive(
    world: &mut dyn World,
    schedule: &Schedule,
    start: Time,
    record: &mut Record,
) -> Result<(), (Time, Violation)> {
    let after = |ms: u64| start + Span::from_millis(ms);
    for entry in &schedule.entries {
        let at = after(entry.at_ms);
        advance(world, at, record)?;
        inject(world, at, &entry.fault, record)?;
    }
    let quiet = after(schedule.quiet_ms);
    advance(world, quiet, record)?;
    inject(world, quiet, &Fault::MendAll, record)?;
    for host in 0..schedule.hosts.len() {
        for flow in 0..schedule::FLOWS {
            inject(world, quiet, &Fault::Flow(host, flow, true), record)?;
        }
    }
    let end = after(schedule.end_ms());
    advance(world, end, record)?;
    world.finish(end).map_err(|violation| (end, violation))
}

fn advance(world: &mut dyn World, end: Time, record: &mut Record) -> Result<(), (Time, Violation)> {
    while let Some(now) = world.next().filter(|now| *now <= end) {
        let stepped = world.step(now, record).and_then(|()| world.check(now));
        stepped.map_err(|violation| (now, violation))?;
    }
    Ok(())
}

fn inject(
    world: &mut dyn World,
    now: Time,
    fault: &Fault,
    record: &mut Record,
) -> Result<(), (Time, Violation)> {
    record.note(now, &[0xfa], || alloc::format!("FAULT {fault}"));
    let injected = world.inject(now, fault, record).and_then(|()| world.check(now));
    injected.map_err(|violation| (now, violation))
}
