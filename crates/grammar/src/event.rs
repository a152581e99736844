//! `[[event]]`: what happens at preset times, read and checked in the same way in test networks and scenarios. Which
//! kinds there are differs.

use std::collections::{BTreeMap, BTreeSet};

use segue_clock::Span;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use crate::network::Ways;
use crate::source::{Mistake, Name, hint};
use crate::values::Duration;

/// The keys of a kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKeys {
    /// The key that makes an event one of this kind; its value names what it happens to.
    pub name: &'static str,
    /// The other keys that it takes.
    pub with: &'static [&'static str],
}

/// A link is cut, and mended after a while if one is given.
pub const CUT: EventKeys = EventKeys { name: "cut", with: &["way", "for"] };
/// A link is mended.
pub const MEND: EventKeys = EventKeys { name: "mend", with: &["way"] };
/// A link stalls.
pub const STALL: EventKeys = EventKeys { name: "stall", with: &["way", "for"] };
/// A radio attaches to a cell.
pub const ATTACH: EventKeys = EventKeys { name: "attach", with: &["cell"] };
/// A radio leaves a cell.
pub const DETACH: EventKeys = EventKeys { name: "detach", with: &["cell"] };

impl EventKeys {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.with.iter().copied())
    }
}

/// An event as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Event {
    keys: Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>,
}

impl Event {
    /// The value of a key.
    ///
    /// # Errors
    /// It does not fit.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Mistake> {
        let Some(value) = self.keys.get_ref().get(key) else { return Ok(None) };
        let read = T::deserialize(value.get_ref().clone());
        read.map(Some).map_err(|error| Mistake::refused(value, &error))
    }

    /// The value of a key with its place.
    ///
    /// # Errors
    /// It does not fit.
    pub fn placed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Spanned<T>>, Mistake> {
        let place = self.keys.get_ref().get(key).map(Spanned::span);
        Ok(self.get(key)?.zip(place).map(|(value, place)| Spanned::new(place, value)))
    }

    /// Which of these kinds it is, by its number in the list; when; and what it happens to. Keys of other kinds would be
    /// ignored silently: they are refused.
    ///
    /// # Errors
    /// An unknown key, a missing one, or one that is for another kind.
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

    /// Which directions of a link it is for.
    ///
    /// # Errors
    /// A word that is no direction.
    pub fn ways(&self) -> Result<Ways, Mistake> {
        Ok(self.get("way")?.unwrap_or_default())
    }

    /// How long it lasts, if that is said.
    ///
    /// # Errors
    /// Not a time.
    pub fn lasting(&self) -> Result<Option<Span>, Mistake> {
        Ok(self.get("for")?.map(|Duration(lasting)| lasting))
    }

    /// How long the link with this name stalls.
    ///
    /// # Errors
    /// It is not said, or is not a time.
    pub fn stalled(&self, link: &Name) -> Result<Span, Mistake> {
        self.lasting()?.ok_or_else(|| Mistake::of(link, "a stall needs for, its length"))
    }

    /// The cell that this radio attaches to or leaves.
    ///
    /// # Errors
    /// It is not said, or is not text.
    pub fn cell(&self, radio: &Name) -> Result<Name, Mistake> {
        self.placed("cell")?.ok_or_else(|| Mistake::of(radio, "which cell?"))
    }
}

fn names(kinds: &[EventKeys]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name).collect()
}
