//! Tables of keys for the documentation, and JSON Schemas for editors.

use std::path::Path;

use anyhow::Context;
use segue_daemon::config;
use segue_grammar::schema::{self, Key, Table};
use segue_scenario::file as scenario;
use serde_json::{Map, Value};

use crate::cmd::roles::Kind;

/// Begins a table in a page: `<!-- keys: NAME -->`.
const BEGIN: &str = "<!-- keys: ";
/// Ends a table in a page.
const END: &str = "<!-- end of keys -->";

/// The JSON Schema of a kind of file.
pub(super) fn schema((_, file): Kind) -> Value {
    schema::document(file.title, schema::table((file.keys)()))
}

/// Writes the tables of a page between their marks.
pub(super) fn write(page: &Path) -> anyhow::Result<()> {
    let text = segue_grammar::text(page)?;
    let name = page.display();
    // Links in sentences are relative to `docs`.
    let below = page.components().rev().skip(1).take_while(|part| part.as_os_str() != "docs");
    let up = "../".repeat(below.count());
    let tables = if up.is_empty() { config::tables() } else { scenario::described() };
    let own = page.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = own.filter(|_| up.is_empty()).unwrap_or_default();
    let link = |to: &str| match to.strip_prefix(&own).filter(|rest| rest.starts_with('#')) {
        Some(here) => here.to_owned(),
        None => format!("{up}{to}"),
    };
    let mut parts = text.split(BEGIN);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (table, rest) = part.split_once(" -->").context("a mark without an end")?;
        let found = tables.iter().find(|known| known.name == table);
        let found = found.with_context(|| format!("{name}: there is no table {table}"))?;
        let (_, rest) =
            rest.split_once(END).with_context(|| format!("{name}: {END} is missing"))?;
        written += &format!("{BEGIN}{table} -->\n{}{END}{rest}", markdown(found, &link));
    }
    std::fs::write(page, written).with_context(|| format!("cannot write {name}"))
}

/// A table in Markdown.
fn markdown(table: &Table, link: &dyn Fn(&str) -> String) -> String {
    let row = |key: &Key| {
        let required = if key.required { ", required" } else { "" };
        let (value, meaning) = (value(&key.schema), meaning(&key.schema, link));
        format!("|`{}`|{value}{required}|{meaning}|\n", key.name)
    };
    let other = |(names, place): &(Vec<&str>, &str)| {
        format!("|`{}`||as in {}|\n", names.join("`, `"), linked(place, link))
    };
    let rows = table.keys.iter().map(row).chain(table.others.iter().map(other));
    format!("|{}|value|meaning|\n|---|---|---|\n", table.heading) + &rows.collect::<String>()
}

/// A text with its links as seen from a page.
fn linked(text: &str, link: &dyn Fn(&str) -> String) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (to, rest) = part.split_once(')').unwrap_or((part, ""));
        format!("{text}]({}){rest}", link(to))
    })
}

/// The sentence of a key, with the meaning of its choices and its name in an RFC.
fn meaning(schema: &Map<String, Value>, link: &dyn Fn(&str) -> String) -> String {
    let sentence = |schema: &Value| {
        let text = schema["description"].as_str().unwrap_or_default();
        linked(text.trim_end_matches('.'), link)
    };
    let choices = schema.get("oneOf").filter(|_| !schema.contains_key("x-plain"));
    let choices = choices.and_then(Value::as_array).into_iter().flatten();
    let choices = choices.filter(|choice| choice["description"].is_string());
    let choices = choices.map(|choice| {
        let name = choice["const"].as_str().unwrap_or_default();
        format!("`{name}`: {}", schema::lower(&sentence(choice)))
    });
    let choices: Vec<String> = choices.collect();
    let mut text = sentence(&Value::Object(schema.clone()));
    if let Some(name) = schema.get("x-rfc").and_then(Value::as_str) {
        text += &format!(" ({name})");
    }
    if choices.is_empty() { text } else { format!("{text}. {}", choices.join("; ")) }
}

/// The values of a key, the default in bold.
fn value(schema: &Map<String, Value>) -> String {
    let unset = schema.get("x-unset").and_then(Value::as_str).map(|unset| format!(", **{unset}**"));
    let default = schema.get("default").filter(|_| unset.is_none());
    if let Some(choices) = choices(schema) {
        let choice = |choice: &Value| match default == Some(choice) {
            true => format!("**{}**", toml_of(choice)),
            false => toml_of(choice),
        };
        let all: Vec<String> = choices.iter().map(choice).collect();
        return all.join(", ") + &unset.unwrap_or_default();
    }
    let has_value = |default: &&Value| match default {
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(_) => false,
        _ => true,
    };
    let default = default.filter(has_value).map(|default| format!(", **{}**", toml_of(default)));
    kind(schema) + &unset.or(default).unwrap_or_default()
}

/// The choices of a key that has few values; null stands for a port.
fn choices(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    if schema.get("x-value").is_some_and(|value| value == "true, false, port") {
        return Some(vec![true.into(), false.into(), Value::Null]);
    }
    match (schema.get("oneOf"), schema.get("enum"), schema.get("type")) {
        (Some(Value::Array(all)), ..) => {
            let names = |one: &Value| match &one["enum"] {
                Value::Array(names) => names.clone(),
                _ => vec![one["const"].clone()],
            };
            Some(all.iter().flat_map(names).collect())
        }
        (_, Some(Value::Array(all)), _) => Some(all.clone()),
        (.., Some(kind)) if kind == "boolean" => Some(vec![true.into(), false.into()]),
        _ => None,
    }
}

/// A value as written in a file.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Bool(on) => on.to_string(),
        Value::Null => "port".into(),
        value => format!("`{}`", value.to_string().replace(',', ", ")),
    }
}

/// The kind of a value and its range.
fn kind(schema: &Map<String, Value>) -> String {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let bound = |key: &str| match schema.get(key) {
        // The limits of the type say nothing.
        Some(Value::Number(bound)) if bound.as_i64() >= Some(u32::MAX.into()) => None,
        Some(Value::Number(bound)) => Some(bound.to_string().trim_end_matches(".0").to_owned()),
        Some(Value::String(bound)) => Some(bound.clone()),
        _ => None,
    };
    let word = match (text("x-value"), text("format"), text("type")) {
        (Some(value), ..) => value,
        (_, Some("ip"), _) => "address",
        (_, Some("ipv4"), _) => "IPv4 address",
        (_, Some("ipv6"), _) => "IPv6 address",
        (_, _, Some("object")) => "table",
        (_, _, Some("integer" | "number")) => "number",
        (_, _, Some("array")) => match schema.get("items").and_then(Value::as_object) {
            Some(items) => return plural(&kind(items)),
            None => "list",
        },
        _ => "text",
    };
    let prefix = if word == "time" { "x-" } else { "" };
    let limits = [format!("{prefix}minimum"), format!("{prefix}maximum")].map(|key| bound(&key));
    match limits.map(|limit| limit.filter(|_| text("format").is_none())) {
        [Some(least), Some(most)] if least == "0s" => format!("{word} up to {most}"),
        [Some(least), None] if least == "0s" => format!("{word} above zero"),
        [Some(least), Some(most)] => format!("{least} to {most}"),
        [Some(least), None] if word == "time" => format!("{least} or longer"),
        [Some(least), None] if text("type") == Some("number") => format!("{word}, {least} or more"),
        [_, Some(most)] => format!("{word} up to {most}"),
        _ => word.to_owned(),
    }
}

fn plural(word: &str) -> String {
    match word.split_once(' ') {
        _ if word.ends_with('s') && !word.ends_with("ss") => word.to_owned(),
        Some(("time", rest)) => format!("times {rest}"),
        _ if word.ends_with("ss") || word.ends_with('x') => format!("{word}es"),
        _ if word == "text" => "texts".to_owned(),
        _ => format!("{word}s"),
    }
}
