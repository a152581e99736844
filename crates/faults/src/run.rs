//! Runs schedules.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};

use crate::{Entry, Fault, Record, Schedule, Violation, World};

/// A run that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Time since the start of the run.
    pub at: Span,
    /// The violated invariant.
    pub violation: Violation,
    /// The last events, if the record kept their texts.
    pub last: Vec<String>,
    /// The state of the machines at that time.
    pub state: String,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all events; identical for identical schedules.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// The failure, if any.
    pub failure: Option<Failure>,
}

/// Start time of a run with this seed: in every fourth run the timestamps of probes (microseconds modulo 2³²)
/// wrap around.
fn start_of(seed: u64) -> Time {
    const ROUND: Time = Time((1 << 32) * 1_000);
    if seed % 4 == 3 { ROUND - Span::from_secs(9) } else { Time(1_000_000_000) }
}

/// Runs a schedule to its end or to the first violation. If `keeps_text`, the failure includes the last events as
/// text.
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
/// The first violation; the world's clock shows its time.
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
