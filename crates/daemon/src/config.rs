//! Configuration files: the operator's keys, which one validation turns into a daemon's settings. No file is needed;
//! every key has a default.

mod anchor;
mod host;
mod mih;
mod pmip;
mod radius;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::{Gid, Group};
use serde::Deserialize;
use serde::de::{Error, Unexpected, Visitor};

pub use anchor::{AnchorFile, default_state};
pub use host::{HostFile, default_host_state};
pub use mih::{MihFunctionFile, MihLinkSapFile};
pub use pmip::{LmaFile, MagFile, ProfileKey};
pub use radius::{RadiusKeys, RadiusProfileKey};
pub use segue_grammar::ScheduleKey;

use segue_grammar::Duration;
use segue_probe::metrics;

use crate::history;
use crate::settings::History;

/// The name of the tunnel device, `segue0` unless one is given.
fn device(name: Option<String>) -> anyhow::Result<String> {
    let name = name.unwrap_or_else(|| "segue0".into());
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.starts_with("segue") || name.len() > 15 || !name.chars().all(fits) {
        bail!("the tunnel device must be called segue…, with at most 15 characters: {name:?}");
    }
    Ok(name)
}

/// Validates the name of one of several daemons of a role; `None` if it is empty.
fn instance(name: Option<String>) -> anyhow::Result<Option<String>> {
    let name = name.filter(|name| !name.is_empty());
    name.map(|name| instance_name(&name).context("instance")).transpose()
}

/// Validates the name of one of several daemons of a role: short, and usable in a file name.
///
/// # Errors
/// The name is too long or has other characters.
pub fn instance_name(name: &str) -> anyhow::Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        bail!("at most 32 letters, digits, - and _, not {name:?}");
    }
    Ok(name.to_string())
}

/// Default path of a role's state file.
fn state(role: &str, instance: Option<&str>) -> PathBuf {
    let dash = instance.map(|name| format!("-{name}")).unwrap_or_default();
    PathBuf::from(format!("/var/lib/segue/{role}{dash}.db"))
}

/// The event log next to a daemon's state file, kept for this long and limited to this size; `None` for a size of 0.
fn history(
    keep: Option<Duration>,
    megabytes: Option<u32>,
    state: &Path,
) -> anyhow::Result<Option<History>> {
    let keep = keep.map_or(history::KEEP, |Duration(keep)| keep);
    let megabytes = megabytes.unwrap_or(history::MEGABYTES);
    if megabytes > 10_000 {
        bail!("history_mb: {megabytes} must lie between 0 and 10000");
    }
    // Different state files must have different logs.
    let mut name = state.to_owned();
    if state.extension().is_some_and(|extension| extension == "db") {
        name.set_extension("");
    }
    let mut path = name.into_os_string();
    path.push(".events");
    let (path, bytes) = (PathBuf::from(path), u64::from(megabytes) * 1_000_000);
    Ok((megabytes > 0).then_some(History { path, keep, bytes }))
}

/// The group of this name; `None` if the name is empty.
fn group(name: Option<String>) -> anyhow::Result<Option<Gid>> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = Group::from_name(&name).with_context(|| format!("control_group: {name:?}"))?;
    let none = || {
        format!("control_group: there is no group {name:?}; create it: groupadd --system {name}")
    };
    Ok(Some(found.with_context(none)?.gid))
}

/// The address on which to serve metrics; `None` if it is empty.
fn metrics(text: Option<String>) -> anyhow::Result<Option<SocketAddr>> {
    let given = text.filter(|text| !text.is_empty());
    let read = |text: String| {
        metrics::listening(&text).with_context(|| {
            format!("metrics: {text:?} is no address; examples: \":9101\" for this machine alone, \"192.0.2.1:9101\"")
        })
    };
    given.map(read).transpose()
}

/// The interfaces to use; an empty list, which means all, if the key is missing.
fn interfaces(listed: Option<Vec<String>>) -> anyhow::Result<Vec<String>> {
    if listed.as_ref().is_some_and(Vec::is_empty) {
        bail!("interfaces: the list is empty: name some, or leave the key out to use all");
    }
    let listed = listed.unwrap_or_default();
    listed.iter().try_for_each(|name| interface(name).context("interfaces"))?;
    Ok(listed)
}

/// Checks that a Linux interface may have this name.
fn interface(name: &str) -> anyhow::Result<()> {
    let good = |c: char| !c.is_whitespace() && !matches!(c, '/' | ':');
    if name.len() > 15 {
        bail!("{name:?} has {} characters: the name of an interface has at most 15", name.len());
    }
    if name.is_empty() || name == "." || name == ".." || !name.chars().all(good) {
        bail!("{name:?} is no name of an interface");
    }
    Ok(())
}

/// Checks that a link-layer address is of one interface, and not a group address, which never sends.
fn one_station(text: &str, address: &[u8]) -> anyhow::Result<()> {
    if address.first().is_some_and(|first| first & 1 == 1) {
        bail!("{text} is the address of a group, not of one interface");
    }
    Ok(())
}

/// Checks an MTU. Every host accepts 576 bytes (RFC 791, section 3.1); the device's MTU has 16 bits.
fn check_mtu(mtu: u32) -> anyhow::Result<()> {
    if !(576..=65_535).contains(&mtu) {
        bail!("mtu must lie between 576 and 65535");
    }
    Ok(())
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

#[cfg(test)]
mod tests;
