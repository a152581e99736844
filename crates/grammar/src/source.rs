//! The text of a file, overrides of its values, and the place of each value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::placed::Name;

/// An error at a place in the text.
#[derive(Debug)]
pub struct Mistake {
    pub(crate) at: usize,
    /// If set, the wrong value belongs to this key in the same table.
    key: Option<&'static str>,
    pub(crate) message: String,
}

impl Mistake {
    /// An error about a value.
    pub fn of<T>(value: &Spanned<T>, message: impl Into<String>) -> Mistake {
        Mistake { at: value.span().start, key: None, message: message.into() }
    }

    /// The same as a closure that takes the message.
    pub fn at<T, E: ToString>(value: &Spanned<T>) -> impl FnOnce(E) -> Mistake + use<T, E> {
        let at = value.span().start;
        move |error| Mistake { at, key: None, message: error.to_string() }
    }

    /// The parser's error about a value.
    pub(crate) fn read(error: &toml::de::Error) -> Mistake {
        let at = error.span().map_or(0, |span| span.start);
        Mistake { at, key: None, message: one_line(error.message()) }
    }

    /// The parser's error about a value whose place it does not know.
    pub fn refused<T>(value: &Spanned<T>, error: &toml::de::Error) -> Mistake {
        Mistake { at: value.span().start, ..Mistake::read(error) }
    }

    /// An error about the value of another key in the same table.
    pub fn beside<T>(value: &Spanned<T>, key: &'static str, message: impl Into<String>) -> Mistake {
        Mistake { key: Some(key), ..Mistake::of(value, message) }
    }
}

/// A file's text and its overrides. Overrides have places after the end of the file.
pub struct Source {
    name: String,
    file: String,
    sets: Vec<Set>,
}

/// An override.
struct Set {
    key: String,
    value: String,
    place: Range<usize>,
    /// `v=VALUE`, padded with spaces up to its place.
    padded: String,
}

impl Source {
    /// Reads the text of the file `name` and overrides values by dotted keys. A list element is addressed by its
    /// `name`, or, if it has none, by its number from 1.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub fn new(name: &str, text: &str, sets: &[(String, String)]) -> anyhow::Result<Source> {
        let mut start = text.len() + 1;
        let placed = sets.iter().map(|(key, value)| {
            let padded = format!("{}{VALUE}{value}", " ".repeat(start));
            let place = start..padded.len() + 1;
            start = place.end;
            Set { key: key.clone(), value: value.clone(), place, padded }
        });
        let sets = placed.collect();
        let source = Source { name: name.to_owned(), file: text.to_owned(), sets };
        let written = source.parsed().map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let (line, content) = line_at(text, offset);
            let key = content.split_once('=').map(|(key, _)| format!("{}: ", key.trim()));
            let (key, message) = (key.unwrap_or_default(), one_line(error.message()));
            anyhow!("{}:{line}: {}", source.name, printable(&format!("{key}{message}")))
        })?;
        source.overridden(written).map_err(|(set, message)| {
            let message = format!("{}={}: {message}", set.key, set.value);
            anyhow!("{}: {}", source.name, printable(&message))
        })?;
        Ok(source)
    }

    /// Reads the values into a struct.
    ///
    /// # Errors
    /// A value has the wrong type, or a key is unknown.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Mistake> {
        let values = toml::Deserializer::from(self.values());
        T::deserialize(values).map_err(|error| Mistake::read(&error))
    }

    /// `FILE:LINE: KEY: message`, or `FILE: KEY=VALUE: message` for an override.
    #[must_use]
    pub fn tell(&self, mistake: &Mistake) -> anyhow::Error {
        let Mistake { at, key, message } = mistake;
        let values = self.values();
        let (mut at, mut message) = (*at, plain(message));
        if let Some(key) = key {
            match beside(values.get_ref(), at, key) {
                Some(place) => at = place,
                None => message = format!("{key}: {message}"),
            }
        }
        let text = match self.sets.iter().find(|set| set.place.contains(&at)) {
            Some(Set { key, value, .. }) => format!(" {key}={value}: {message}"),
            None => {
                let key = key_at(values.get_ref(), at).map(|key| format!("{key}: "));
                let (line, _) = line_at(&self.file, at);
                format!("{line}: {}{message}", key.unwrap_or_default())
            }
        };
        anyhow!("{}:{}", self.name, printable(&text))
    }

    fn parsed(&self) -> Result<Spanned<DeTable<'_>>, toml::de::Error> {
        DeTable::parse(&self.file)
    }

    /// All values, each with its place.
    #[must_use]
    pub fn values(&self) -> Spanned<DeTable<'_>> {
        let values = self.overridden(self.written()).map_err(|(_, message)| message);
        values.expect("they were overridden once when it was made")
    }

    /// The values of the file, without overrides.
    #[must_use]
    pub fn written(&self) -> Spanned<DeTable<'_>> {
        self.parsed().expect("it was parsed once when it was made")
    }

    fn overridden<'a>(
        &'a self,
        mut tree: Spanned<DeTable<'a>>,
    ) -> Result<Spanned<DeTable<'a>>, (&'a Set, String)> {
        for set in &self.sets {
            set.apply(tree.get_mut()).map_err(|message| (set, message))?;
        }
        Ok(tree)
    }
}

impl Set {
    fn apply<'a>(&'a self, mut table: &mut DeTable<'a>) -> Result<(), String> {
        let mut parts: Vec<&str> = self.key.split('.').collect();
        let last = parts.pop().filter(|part| !part.is_empty()).ok_or("no key")?;
        let spanned = |part: &'a str| Spanned::new(self.place.clone(), Cow::Borrowed(part));
        let mut parts = parts.into_iter();
        let mut top = true;
        while let Some(part) = parts.next() {
            if !top && !table.contains_key(part) {
                let empty = Spanned::new(self.place.clone(), DeValue::Table(DeTable::new()));
                table.insert(spanned(part), empty);
            }
            table = match table.get_mut(part).map(Spanned::get_mut) {
                Some(DeValue::Table(inner)) => inner,
                Some(DeValue::Array(list)) => {
                    let name = parts.next().ok_or_else(|| format!("which {part}?"))?;
                    element(list, name).ok_or_else(|| format!("there is no {part} {name}"))?
                }
                Some(_) => return Err(format!("{part} is a single value")),
                None => return Err(format!("there is no {part} in the file")),
            };
            top = false;
        }
        table.insert(spanned(last), self.parsed());
        Ok(())
    }

    /// Parses the value as TOML; anything that is not TOML, such as `5mbit`, becomes a string.
    fn parsed(&self) -> Spanned<DeValue<'_>> {
        let parsed = DeTable::parse(&self.padded).ok().map(Spanned::into_inner);
        let value = parsed.filter(|table| table.len() == 1).and_then(|mut t| t.remove("v"));
        value.unwrap_or_else(|| {
            Spanned::new(self.place.clone(), DeValue::String(Cow::Borrowed(&self.value)))
        })
    }
}

/// Prefix that makes the value of an override parsable.
const VALUE: &str = "v=";

fn element<'a, 'i>(list: &'a mut DeArray<'i>, name: &str) -> Option<&'a mut DeTable<'i>> {
    let named = |value: &Spanned<DeValue<'_>>| name_of(value.get_ref()) == Some(name);
    let by_number = || name.parse::<usize>().ok()?.checked_sub(1);
    let place = list.iter().position(named).or_else(by_number)?;
    match list.get_mut(place).map(Spanned::get_mut) {
        Some(DeValue::Table(table)) => Some(table),
        _ => None,
    }
}

fn name_of<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    match value.get("name").map(Spanned::get_ref) {
        Some(DeValue::String(name)) => Some(name),
        _ => None,
    }
}

/// The innermost dotted key at this place.
pub(crate) fn key_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    for (key, value) in table {
        let name = key.get_ref();
        if key.span().contains(&at) {
            return Some(name.to_string());
        }
        let inner = match value.get_ref() {
            DeValue::Table(inner) => key_at(inner, at),
            DeValue::Array(list) => list.iter().enumerate().find_map(|(i, value)| {
                let own = name_of(value.get_ref()).map_or_else(|| (i + 1).to_string(), Into::into);
                match value.get_ref() {
                    DeValue::Table(inner) => match key_at(inner, at) {
                        Some(inner) => Some(format!("{own}.{inner}")),
                        None => value.span().contains(&at).then_some(own),
                    },
                    _ => None,
                }
            }),
            _ => None,
        };
        if let Some(inner) = inner {
            return Some(format!("{name}.{inner}"));
        }
        if value.span().contains(&at) {
            return Some(name.to_string());
        }
    }
    None
}

/// The place of the value of `key` in the table that has the value at `at`.
fn beside(table: &DeTable<'_>, at: usize, key: &str) -> Option<usize> {
    if table.values().any(|value| value.span().start == at) {
        return table.get(key).map(|value| value.span().start);
    }
    table.values().find_map(|value| match value.get_ref() {
        DeValue::Table(inner) => beside(inner, at, key),
        DeValue::Array(list) => list.iter().find_map(|value| match value.get_ref() {
            DeValue::Table(inner) => beside(inner, at, key),
            _ => None,
        }),
        _ => None,
    })
}

/// The number and the text of the line at this offset.
fn line_at(text: &str, offset: usize) -> (usize, &str) {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    (number, text.lines().nth(number - 1).unwrap_or_default())
}

/// Puts a message on one line: it may quote the file, for example a key that contains a line break.
#[must_use]
pub fn printable(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn one_line(message: &str) -> String {
    message.trim_end().replace('\n', ", ")
}

/// Rewrites the parser's message about an unknown key, and suggests the most similar known key.
fn plain(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut words = rest.split('`').skip(1).step_by(2);
        let unknown = words.next().unwrap_or_default();
        let known: Vec<&str> = words.collect();
        return format!("unknown key{}", hint(unknown, &known));
    }
    match message.strip_prefix("missing field ") {
        Some(key) => format!("the key {} is missing", key.trim_matches('`')),
        None => message.to_owned(),
    }
}

/// Looks up an object of kind `what` by name.
///
/// # Errors
/// No such object exists.
pub fn named<T: Clone>(what: &str, name: &Name, known: &BTreeMap<String, T>) -> Result<T, Mistake> {
    known.get(name.get_ref()).cloned().ok_or_else(|| {
        let known: Vec<&str> = known.keys().map(String::as_str).collect();
        let hint = hint(name.get_ref(), &known);
        Mistake::of(name, format!("there is no {what} {}{hint}", name.get_ref()))
    })
}

/// A suggestion for `unknown`: the most similar known word, or all of them.
#[must_use]
pub fn hint(unknown: &str, known: &[&str]) -> String {
    let near = |word: &&&str| strsim::jaro_winkler(word, unknown);
    let nearest = known.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    match nearest {
        Some(word) if near(&word) > 0.8 => format!(" (did you mean {word}?)"),
        Some(_) => format!(" (known: {})", known.join(", ")),
        None => String::new(),
    }
}
