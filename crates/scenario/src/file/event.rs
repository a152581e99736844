//! `[[event]]`: what happens at preset times. Kinds of tables say what may happen to them.

use segue_clock::{Span, Time};
use segue_grammar::{Duration, Mistake, Name, Part, known, list};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builder::Builder;

/// Something that happens, read.
pub(super) trait Happening: Send + Sync {
    /// Schedules it.
    fn schedule(&self, builder: &mut Builder<'_>, at: Time) -> Result<(), Mistake>;
}

/// A kind of events.
#[derive(Clone, Copy)]
pub(super) struct EventKind {
    /// The key that makes an event one of this kind; its value is what it happens to.
    name: &'static str,
    keys: fn() -> Vec<&'static str>,
    read: fn(&mut Spanned<DeTable<'_>>) -> Result<Box<dyn Happening>, Mistake>,
}

impl EventKind {
    /// Events that are read into a type.
    pub(super) const fn of<T: Happening + Part + 'static>(name: &'static str) -> EventKind {
        let read = |table: &mut Spanned<DeTable<'_>>| {
            T::take(table).map(|event| Box::new(event) as Box<dyn Happening>)
        };
        EventKind { name, keys: T::keys, read }
    }
}

/// An event, read.
pub(super) struct Event {
    at: Spanned<Duration>,
    what: Box<dyn Happening>,
}

/// The key of every event.
#[derive(Deserialize)]
struct When {
    at: Spanned<Duration>,
}

impl Event {
    /// Reads a list of events of these kinds.
    pub(super) fn read_all(
        events: Spanned<DeValue<'_>>,
        kinds: &[EventKind],
    ) -> Result<Vec<Event>, Mistake> {
        list(events)?.into_iter().map(|event| Event::read(event, kinds)).collect()
    }

    fn read(mut event: Spanned<DeTable<'_>>, kinds: &[EventKind]) -> Result<Event, Mistake> {
        let mut keys = When::keys();
        kinds.iter().for_each(|kind| keys.extend((kind.keys)()));
        known(event.get_ref(), &keys)?;
        let When { at } = When::take(&mut event)?;
        let mut found = kinds.iter().filter(|kind| event.get_ref().contains_key(kind.name));
        let (Some(kind), None) = (found.next(), found.next()) else {
            let names = words(kinds.iter());
            return Err(Mistake::of(&at, format!("an event is one of {}", names.join(", "))));
        };
        let keys = (kind.keys)();
        if let Some(key) =
            event.get_ref().keys().find(|key| !keys.contains(&key.get_ref().as_ref()))
        {
            let takes = |kind: &&EventKind| (kind.keys)().contains(&key.get_ref().as_ref());
            let names = words(kinds.iter().filter(takes));
            return Err(Mistake::of(key, format!("this key is for {}", names.join(" and "))));
        }
        Ok(Event { at, what: (kind.read)(&mut event)? })
    }

    /// Schedules it.
    pub(super) fn add(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let at = builder.within(&self.at)?;
        self.what.schedule(builder, at)
    }
}

fn words<'k>(kinds: impl Iterator<Item = &'k EventKind>) -> Vec<&'static str> {
    kinds.map(|kind| kind.name).collect()
}

/// A role crashes and starts anew.
#[derive(Deserialize)]
pub(super) struct Restart {
    restart: Name,
    /// How long it is down.
    #[serde(rename = "for")]
    lasting: Option<Duration>,
}

impl Happening for Restart {
    fn schedule(&self, builder: &mut Builder<'_>, at: Time) -> Result<(), Mistake> {
        builder.restart(&self.restart, at, self.lasting.map_or(Span::ZERO, |d| d.0))
    }
}
