//! Events of a scenario's tables at preset times.

use segue_clock::{Span, Time};
use segue_grammar::{Event, EventKeys, Mistake, Name};

use super::builder::Builder;

/// A kind of event.
pub(super) struct EventKind {
    /// Its keys.
    pub(super) keys: EventKeys,
    /// Schedules an event for a named object.
    pub(super) add: fn(&mut Builder<'_>, &Event, Time, &Name) -> Result<(), Mistake>,
}

/// Crashes a role, and starts it again after a while.
pub(super) const RESTART: EventKind = EventKind {
    keys: EventKeys { name: "restart", with: &["for"] },
    add: |builder, event, at, name| {
        builder.restart(name, at, event.lasting()?.unwrap_or(Span::ZERO))
    },
};

/// Schedules an event according to its kind.
pub(super) fn schedule(
    event: &Event,
    builder: &mut Builder<'_>,
    kinds: &[&EventKind],
) -> Result<(), Mistake> {
    let keys: Vec<EventKeys> = kinds.iter().map(|kind| kind.keys).collect();
    let (number, at, name) = event.read(&keys)?;
    let at = builder.within(&at)?;
    (kinds[number].add)(builder, event, at, &name)
}
