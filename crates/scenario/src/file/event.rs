//! What may happen to the tables of a scenario at preset times.

use segue_clock::{Span, Time};
use segue_grammar::{Event, EventKeys, Mistake, Name};

use super::builder::Builder;

/// A kind of events.
pub(super) struct EventKind {
    /// Its keys.
    pub(super) keys: EventKeys,
    /// Schedules an event at a time, to what is named.
    pub(super) add: fn(&mut Builder<'_>, &Event, Time, &Name) -> Result<(), Mistake>,
}

/// A role crashes, and starts anew after a while.
pub(super) const RESTART: EventKind = EventKind {
    keys: EventKeys { name: "restart", with: &["for"] },
    add: |builder, event, at, name| {
        builder.restart(name, at, event.lasting()?.unwrap_or(Span::ZERO))
    },
};

/// Schedules an event as the one of these kinds that it is.
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
