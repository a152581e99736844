//! `[[event]]`: changes at preset times, read and checked alike in test networks and scenarios. The kinds of events
//! differ.

use std::collections::{BTreeMap, BTreeSet};

use segue_clock::Span;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::network::Ways;
use crate::placed::{Name, Spanned};
use crate::source::{Mistake, hint};
use crate::values::Duration;

/// The keys of one kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKeys {
    /// The key that identifies the kind; its value names the affected object.
    pub name: &'static str,
    /// Further keys that this kind accepts.
    pub with: &'static [&'static str],
}

/// Cuts a link, and restores it after a while if `for` is given.
pub const CUT: EventKeys = EventKeys { name: "cut", with: &["way", "for"] };
/// Restores a link.
pub const MEND: EventKeys = EventKeys { name: "mend", with: &["way"] };
/// Stalls a link.
pub const STALL: EventKeys = EventKeys { name: "stall", with: &["way", "for"] };
/// Attaches a radio to a cell.
pub const ATTACH: EventKeys = EventKeys { name: "attach", with: &["cell"] };
/// Detaches a radio from a cell.
pub const DETACH: EventKeys = EventKeys { name: "detach", with: &["cell"] };

impl EventKeys {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.with.iter().copied())
    }
}

/// An event as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Event {
    keys: toml::Spanned<BTreeMap<toml::Spanned<String>, toml::Spanned<Value>>>,
}

impl Event {
    /// The value of a key.
    ///
    /// # Errors
    /// The value has the wrong type.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Mistake> {
        let Some(value) = self.keys.get_ref().get(key) else { return Ok(None) };
        let read = T::deserialize(value.get_ref().clone());
        read.map(Some).map_err(|error| Mistake::refused(value, &error))
    }

    /// The value of a key with its place in the file.
    ///
    /// # Errors
    /// The value has the wrong type.
    pub fn placed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Spanned<T>>, Mistake> {
        let place = self.keys.get_ref().get(key).map(toml::Spanned::span);
        Ok(self.get(key)?.zip(place).map(|(value, place)| Spanned::new(place, value)))
    }

    /// The kind of this event (an index into `kinds`), its time, and the affected object. Refuses keys of other kinds,
    /// which would otherwise be ignored silently.
    ///
    /// # Errors
    /// A key is unknown, missing, or belongs to another kind.
    pub fn read(&self, kinds: &[EventKeys]) -> Result<(usize, Spanned<Duration>, Name), Mistake> {
        let keys = self.keys.get_ref();
        let mut known = vec!["at"];
        known.extend(kinds.iter().flat_map(EventKeys::all));
        let mut seen = BTreeSet::new();
        known.retain(|key| seen.insert(*key));
        if let Some(key) = keys.keys().find(|key| !known.contains(&key.get_ref().as_str())) {
            return Err(Mistake::of(key, format!("unknown key{}", hint(key.get_ref(), &known))));
        }
        let at = self.placed("at")?;
        let at = at.ok_or_else(|| Mistake::of(&self.keys, "the key at is missing"))?;
        let mut found = kinds.iter().enumerate().filter(|(_, kind)| keys.contains_key(kind.name));
        let (Some((number, kind)), None) = (found.next(), found.next()) else {
            let message = format!("an event is one of {}", names(kinds).join(", "));
            return Err(Mistake::of(&at, message));
        };
        for key in keys.keys().filter(|key| key.get_ref() != "at") {
            let has = |kind: &EventKeys| kind.all().any(|known| known == key.get_ref());
            if !has(kind) {
                let others: Vec<EventKeys> = kinds.iter().copied().filter(has).collect();
                let message = format!("this key is for {}", names(&others).join(" and "));
                return Err(Mistake::of(key, message));
            }
        }
        let name = self.placed(kind.name)?.expect("the file has this key");
        Ok((number, at, name))
    }

    /// The affected directions of a link.
    ///
    /// # Errors
    /// The value is not a direction.
    pub fn ways(&self) -> Result<Ways, Mistake> {
        Ok(self.get("way")?.unwrap_or_default())
    }

    /// The duration, if given.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn lasting(&self) -> Result<Option<Span>, Mistake> {
        Ok(self.get("for")?.map(|lasting: Duration| lasting.0))
    }

    /// How long the link with this name stalls.
    ///
    /// # Errors
    /// The value is missing, or not a duration.
    pub fn stalled(&self, link: &Name) -> Result<Span, Mistake> {
        self.lasting()?.ok_or_else(|| Mistake::of(link, "a stall needs for, its length"))
    }

    /// The cell that this radio attaches to or leaves.
    ///
    /// # Errors
    /// The value is missing, or not a string.
    pub fn cell(&self, radio: &Name) -> Result<Name, Mistake> {
        self.placed("cell")?.ok_or_else(|| Mistake::of(radio, "which cell?"))
    }
}

fn names(kinds: &[EventKeys]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name).collect()
}
