//! Configuration files: what an operator wrote, then one validation into what a daemon uses. No file
//! is needed; every key has a default.

mod anchor;
mod host;
mod keepalive;
pub mod link;
pub(crate) mod text;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use nix::unistd::{Gid, Group};
use segue_clock::Span;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};

pub use anchor::{AnchorFile, default_state};
pub use host::{HostFile, PathKeys, Paths, SteeringKeys, default_host_state};
pub use keepalive::KeepaliveKeys;

use crate::{metrics, units};

/// Reads a TOML file; every error is one line with file, line and key.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text, &path.display().to_string())
}

/// Reads the text of the TOML file `name`; every error is one line with file, line and key.
pub fn parse<T: DeserializeOwned>(text: &str, name: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text[..offset].matches('\n').count() + 1;
        let message = error.message().trim_end().replace('\n', ", ");
        anyhow!("{name}:{line}: {}", printable(&in_numbers(&message)))
    })
}

/// Replaces the type that the library names in a message by the range of a number.
fn in_numbers(message: &str) -> String {
    let ranges = [
        ("expected u8", u64::from(u8::MAX)),
        ("expected u16", u64::from(u16::MAX)),
        ("expected u32", u64::from(u32::MAX)),
        ("expected u64", i64::MAX as u64),
        ("expected usize", i64::MAX as u64),
    ];
    let named = ranges.iter().find(|(end, _)| message.ends_with(end));
    match named.and_then(|(end, most)| Some((message.strip_suffix(end)?, most))) {
        Some((head, most)) => format!("{head}expected a whole number from 0 to {most}"),
        None => message.replace("expected f64", "expected a number"),
    }
}

/// Makes a message one line: it may quote the file, for example a key with a line break in it.
pub(crate) fn printable(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The name of the tunnel device, `segue0` unless one is given.
fn device(name: Option<String>) -> anyhow::Result<String> {
    let name = name.unwrap_or_else(|| "segue0".into());
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.starts_with("segue") || name.len() > 15 || !name.chars().all(fits) {
        bail!("the tunnel device must be called segue…, with at most 15 characters: {name:?}");
    }
    Ok(name)
}

/// The group of this name; none if it is empty.
fn group(name: Option<String>) -> anyhow::Result<Option<Gid>> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = Group::from_name(&name).with_context(|| format!("control_group: {name:?}"))?;
    let none = || {
        format!("control_group: there is no group {name:?}; create it: groupadd --system {name}")
    };
    Ok(Some(found.with_context(none)?.gid))
}

/// Where metrics are served; nowhere if it is empty.
fn metrics(text: Option<String>) -> anyhow::Result<Option<SocketAddr>> {
    let given = text.filter(|text| !text.is_empty());
    let read = |text: String| {
        metrics::listening(&text).with_context(|| {
            format!("metrics: {text:?} is no address; examples: \":9101\" for this machine alone, \"192.0.2.1:9101\"")
        })
    };
    given.map(read).transpose()
}

/// Every host accepts 576 bytes (RFC 791, section 3.1); the device's MTU has 16 bits.
fn check_mtu(mtu: u32) -> anyhow::Result<()> {
    if !(576..=65_535).contains(&mtu) {
        bail!("mtu must lie between 576 and 65535");
    }
    Ok(())
}

/// A duration with a unit, as in `"200ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub Span);

/// A share, as in `"5%"` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub f64);

struct Text<T>(fn(&str) -> Result<T, String>, &'static str);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.1)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.0)(&number.to_string()).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = Text(units::duration, "a duration with its unit, like \"200ms\"");
        deserializer.deserialize_any(visitor).map(Duration)
    }
}

/// Whether to run a service, or the port to run it on, as in `true` or `8862`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPort {
    /// Off.
    Off,
    /// On its usual port.
    Usual,
    /// On this one.
    Port(u16),
}

struct OnPortVisitor;

impl Visitor<'_> for OnPortVisitor {
    type Value = OnPort;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("true, false or a port from 1 to 65535")
    }
    fn visit_bool<E: Error>(self, on: bool) -> Result<OnPort, E> {
        Ok(if on { OnPort::Usual } else { OnPort::Off })
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<OnPort, E> {
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        port.map(OnPort::Port).ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

impl<'de> Deserialize<'de> for OnPort {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnPortVisitor)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = Text(units::ratio, "a share, like \"5%\" or 0.05");
        deserializer.deserialize_any(visitor).map(Ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        wait: Option<Duration>,
        share: Option<Ratio>,
    }

    #[test]
    fn durations_and_shares_read_with_their_units() {
        let small: Small = parse("wait = \"1.5s\"\nshare = 0.05", "x").unwrap();
        assert_eq!(small.wait, Some(Duration(Span::from_millis(1_500))));
        assert_eq!(small.share, Some(Ratio(0.05)));
        assert_eq!(parse::<Small>("share = \"5%\"", "x").unwrap().share, Some(Ratio(0.05)));
    }

    #[test]
    fn an_error_is_one_line_with_file_line_and_what_is_wrong() {
        for (text, part) in [
            ("\nwait = 5", "unit"),
            ("\nwiat = \"5s\"", "wiat"),
            ("\nwait = \"5 parsecs\"", "parsecs"),
            ("\nwait = ", "x:2"),
        ] {
            let error = parse::<Small>(text, "x").unwrap_err().to_string();
            assert!(error.starts_with("x:2: ") && error.contains(part), "{error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }
}
