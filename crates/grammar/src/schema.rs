//! The keys of tables as data, for JSON Schemas, documentation and summaries.
//!
//! A key is declared once, as a field: the doc comment is its sentence, the type has its values and its range, and
//! `Default` its default. Extensions of a schema: `x-value` (the kind of a text), `x-minimum` and `x-maximum` (limits
//! of a time), `x-unset` (what applies without the key), `x-rfc` (the name in an RFC), `x-plain` (choices that the
//! sentence explains), `x-explained` (choices that a summary explains), `x-required` (validation requires it). Links in
//! sentences are relative to `docs`.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::part::Part;

/// A key of a table.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its schema.
    pub schema: Map<String, Value>,
    /// The table must have it.
    pub required: bool,
}

/// A table of keys in the documentation.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name, which the page states.
    pub name: &'static str,
    /// The heading of its first column.
    pub heading: String,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Names of further keys, with the place that describes them.
    pub others: Vec<(Vec<&'static str>, &'static str)>,
}

impl Table {
    /// The table of a struct's keys.
    #[must_use]
    pub fn of<T: Part>(name: &'static str, heading: &str) -> Table {
        Table { name, heading: heading.into(), keys: T::described(), others: Vec::new() }
    }

    /// The same table with the keys of another struct.
    #[must_use]
    pub fn and<T: Part>(mut self) -> Table {
        self.keys.extend(T::described());
        self
    }

    /// The same table with the names of the keys of another struct, which `place` describes.
    #[must_use]
    pub fn see<T: Part>(mut self, place: &'static str) -> Table {
        self.others.push((T::keys(), place));
        self
    }
}

/// The keys of a struct, in the order of these names.
pub(crate) fn keys<T: JsonSchema>(names: &[&'static str]) -> Vec<Key> {
    let inline = |settings: &mut SchemaSettings| settings.inline_subschemas = true;
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12().with(inline));
    let mut schema = T::json_schema(&mut generator).to_value();
    simplify(&mut schema);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let described = |name: &&'static str| schema["properties"].get(*name);
    let mut keys = Vec::new();
    for (place, name) in names.iter().enumerate() {
        // A name without a property is an alias of the next one with a property.
        let Some(of) = names[place..].iter().find(|name| described(name).is_some()) else {
            continue;
        };
        let mut schema = described(of).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut required =
            schema.remove("x-required").is_some() || required.iter().any(|one| one == of);
        if of != name {
            schema.insert("description".into(), format!("Another name of `{of}`").into());
            required = false;
        }
        keys.push(Key { name, schema, required });
    }
    keys
}

/// Removes what only serves JSON, such as null, which TOML does not have.
fn simplify(schema: &mut Value) {
    if let Value::Array(all) = schema {
        all.iter_mut().for_each(simplify);
    }
    let Value::Object(map) = schema else { return };
    map.remove("title");
    map.remove("writeOnly");
    let is_null = |value: &Value| value.is_null() || value == "null" || value["type"] == "null";
    for key in ["type", "enum", "anyOf"] {
        let Some(Value::Array(all)) = map.get_mut(key) else { continue };
        all.retain(|value| !is_null(value));
        match &mut all[..] {
            [one] if key == "type" => map["type"] = one.take(),
            [Value::Object(one)] if key == "anyOf" => {
                let one = std::mem::take(one);
                map.remove("anyOf");
                for (key, value) in one {
                    map.entry(key).or_insert(value);
                }
            }
            _ => {}
        }
    }
    // The default of a type is that of a key without another one.
    let default = map.remove("x-default");
    if map.get("default").is_none_or(Value::is_null) {
        map.remove("default");
        map.extend(default.map(|default| ("default".to_owned(), default)));
    }
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    map.values_mut().for_each(simplify);
}

/// The JSON Schema of a file.
#[must_use]
pub fn document(title: &str, table: Map<String, Value>) -> Value {
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
    });
    document.as_object_mut().expect("it is an object").extend(table);
    unlink(&mut document);
    document
}

/// The schema of a table that has no other keys.
#[must_use]
pub fn table(keys: Vec<Key>) -> Map<String, Value> {
    let required = keys.iter().filter(|key| key.required).map(|key| key.name.into());
    let required: Vec<Value> = required.collect();
    let properties = keys.into_iter().map(|key| (key.name.to_owned(), Value::Object(key.schema)));
    let properties: Map<String, Value> = properties.collect();
    let table = [
        ("type", "object".into()),
        ("properties", properties.into()),
        ("required", required.into()),
        ("additionalProperties", false.into()),
    ];
    table.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value)).collect()
}

/// The key of a list of tables with these keys.
#[must_use]
pub fn list(name: &'static str, keys: Vec<Key>) -> Key {
    let list = [("type", "array".into()), ("items", table(keys).into())];
    let list = list.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value));
    Key { name, schema: list.collect(), required: false }
}

/// The key of a list of events, whose keys are not described.
#[must_use]
pub fn events() -> Key {
    let mut events = list("event", Vec::new());
    events.schema.insert("items".into(), json!({ "type": "object" }));
    events
}

/// Replaces links in sentences by their texts.
fn unlink(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(unlink),
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = without_links(text);
            }
            map.values_mut().for_each(unlink);
        }
        _ => {}
    }
}

/// A text with its Markdown links replaced by their own texts.
#[must_use]
pub fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(start) = plain.rfind('[') {
            plain.remove(start);
        }
        plain += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain
}

/// A sentence in the middle of another: without its capital letter, unless that begins a name.
#[must_use]
pub fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_replaced_by_their_texts() {
        let text = "As in [a page](page.md#part), a list [of two], and [it](it.md).";
        assert_eq!(without_links(text), "As in a page, a list [of two], and it.");
    }
}
