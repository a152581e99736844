//! `[[event]]`: what happens at preset times. Kinds of tables say what may happen to them.

use std::collections::{BTreeMap, BTreeSet};

use segue_clock::{Span, Time};
use segue_grammar::{Duration, Mistake, Name, hint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use super::builder::Builder;

/// A kind of events.
pub(super) struct EventKind {
    /// The key that makes an event one of this kind; its value names what it happens to.
    pub(super) name: &'static str,
    /// The other keys that it takes.
    pub(super) with: &'static [&'static str],
    /// Schedules an event at a time, to what is named.
    pub(super) add: fn(&mut Builder<'_>, &Event, Time, &Name) -> Result<(), Mistake>,
}

/// An event as written.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Event {
    keys: Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>,
}

/// A role crashes, and starts anew after a while.
pub(super) const RESTART: EventKind = EventKind {
    name: "restart",
    with: &["for"],
    add: |builder, event, at, name| {
        let down = event.get("for")?.map_or(Span::ZERO, |Duration(span)| span);
        builder.restart(name, at, down)
    },
};

impl Event {
    /// The value of a key.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Mistake> {
        let Some(value) = self.keys.get_ref().get(key) else { return Ok(None) };
        let read = T::deserialize(value.get_ref().clone());
        read.map(Some).map_err(|error| Mistake::refused(value, &error))
    }

    /// The value of a key with its place.
    pub(super) fn placed<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<Spanned<T>>, Mistake> {
        let place = self.keys.get_ref().get(key).map(Spanned::span);
        Ok(self.get(key)?.zip(place).map(|(value, place)| Spanned::new(place, value)))
    }

    /// Schedules it as the one of these kinds that it is. Keys of other kinds would be ignored silently: they are refused.
    pub(super) fn schedule(
        &self,
        builder: &mut Builder<'_>,
        kinds: &[&EventKind],
    ) -> Result<(), Mistake> {
        let keys = self.keys.get_ref();
        let mut known = vec!["at"];
        known.extend(kinds.iter().flat_map(|kind| kind.keys()));
        let mut seen = BTreeSet::new();
        known.retain(|key| seen.insert(*key));
        if let Some(key) = keys.keys().find(|key| !known.contains(&key.get_ref().as_str())) {
            return Err(Mistake::of(key, format!("unknown key{}", hint(key.get_ref(), &known))));
        }
        let at = self.placed("at")?;
        let at = at.ok_or_else(|| Mistake::of(&self.keys, "the key at is missing"))?;
        let time = builder.within(&at)?;
        let found: Vec<_> = kinds.iter().filter(|kind| keys.contains_key(kind.name)).collect();
        let [kind] = found[..] else {
            let message = format!("an event is one of {}", names(kinds).join(", "));
            return Err(Mistake::of(&at, message));
        };
        for key in keys.keys().filter(|key| key.get_ref() != "at") {
            let has = |kind: &&EventKind| kind.keys().any(|known| known == key.get_ref());
            if !has(kind) {
                let others: Vec<&EventKind> = kinds.iter().copied().filter(has).collect();
                let message = format!("this key is for {}", names(&others).join(" and "));
                return Err(Mistake::of(key, message));
            }
        }
        match self.placed(kind.name)? {
            Some(name) => (kind.add)(builder, self, time, &name),
            None => Ok(()),
        }
    }
}

impl EventKind {
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.with.iter().copied())
    }
}

fn names(kinds: &[&EventKind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name).collect()
}
