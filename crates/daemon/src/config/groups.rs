//! Keys that the files of several roles share.

use std::path::PathBuf;

use anyhow::{Context, bail};
use nix::unistd::{Gid, Group};
use schemars::JsonSchema;
use segue_grammar::{Duration, Flag, Within, from_text};
use segue_probe::metrics;
use segue_wire::TUNNEL_PORT;
use serde::{Deserialize, Serialize};

use crate::settings::{Choice, Common, History, Tunnel};
use crate::{control, history};

/// Keys of every daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonKeys {
    /// Name of this daemon if several of its role run on one machine; part of the default `control` and `state`. Set
    /// `device` (`segue1`) and `port`, too
    instance: Option<Instance>,
    /// Socket for commands such as `segue status`
    #[schemars(extend("x-value" = "path", "x-unset" = "`\"/run/segue/ROLE.sock\"`"))]
    pub control: Option<PathBuf>,
    /// Group that [may use it](operation.md#who-may-ask)
    #[schemars(extend("x-value" = "name", "x-unset" = "root alone"))]
    control_group: String,
    /// Serve [metrics](operation.md#metrics) there; without an address, only to this machine
    #[schemars(extend("x-value" = "`\":PORT\"`, `\"ADDRESS:PORT\"`"))]
    metrics: String,
}

/// Keys of a daemon with a state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StateKeys {
    /// The daemon's state: keys, certificates, enrolled hosts, leases, bindings
    #[schemars(extend("x-value" = "path", "x-unset" = "`\"/var/lib/segue/ROLE.db\"`"))]
    pub state: Option<PathBuf>,
    /// How long to keep events in the [log](operation.md#what-happened-an-hour-ago), within `history_mb`
    history: Duration<{ history::KEEP.0 / 1_000_000 }>,
    /// Maximum size of that log in megabytes; 0 disables it
    history_mb: Within<10, 0, 10_000>,
}

/// Keys of a daemon with a datapath.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatapathKeys {
    /// Tunnel device; begins with `segue`, at most 15 characters
    pub(super) device: Device,
    /// Packet path; the daemon logs its choice
    pub datapath: Choice,
    /// Interfaces to use, at least one
    #[schemars(extend("x-unset" = "all that are up: at a host, if they reach the anchor; at a gateway, no accesses"))]
    pub interfaces: Option<Vec<InterfaceName>>,
}

/// Keys of an end of tunnels.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TunnelKeys {
    /// UDP port of tunnel packets and probes; an anchor announces its own to hosts
    pub(super) port: Within<{ TUNNEL_PORT as i64 }, 0, 65_535>,
    /// Run before ordinary threads if the system allows it (`SCHED_FIFO`, else nice −10)
    realtime: Flag<true>,
}

/// Name of one of several daemons of a role; it may be empty.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct Instance(String);

/// Name of the tunnel device.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Device(pub(super) String);

/// Name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct InterfaceName(pub String);

from_text!(Instance, "name", |text: &str| match text {
    "" => anyhow::Ok(Instance(String::new())),
    name => instance_name(name).map(Instance),
});
from_text!(Device, "name", |name: &str| {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.starts_with("segue") || name.len() > 15 || !name.chars().all(fits) {
        bail!("the tunnel device must be called segue…, with at most 15 characters: {name:?}");
    }
    Ok(Device(name.into()))
});
from_text!(InterfaceName, "name", InterfaceName::of);

impl InterfaceName {
    /// Checks that a Linux interface may have this name.
    ///
    /// # Errors
    /// It may not.
    pub fn of(name: &str) -> anyhow::Result<InterfaceName> {
        let good = |c: char| !c.is_whitespace() && !matches!(c, '/' | ':');
        if name.len() > 15 {
            bail!(
                "{name:?} has {} characters: the name of an interface has at most 15",
                name.len()
            );
        }
        if name.is_empty() || name == "." || name == ".." || !name.chars().all(good) {
            bail!("{name:?} is no name of an interface");
        }
        Ok(InterfaceName(name.into()))
    }
}

impl Default for Device {
    fn default() -> Device {
        Device("segue0".into())
    }
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

impl DaemonKeys {
    /// The name of this daemon, if it has one.
    pub fn instance(&self) -> Option<&str> {
        self.instance.as_ref().map(|Instance(name)| name.as_str()).filter(|name| !name.is_empty())
    }

    /// The settings of every daemon.
    pub(super) fn common(self, role: &str) -> anyhow::Result<Common> {
        let usual = control::default_path(role, self.instance());
        let (control_group, metrics) = (group(self.control_group)?, metrics(self.metrics)?);
        Ok(Common { control_group, metrics, ..Common::at(self.control.unwrap_or(usual)) })
    }
}

impl StateKeys {
    /// The file of the state.
    pub fn file(&self, role: &str, instance: Option<&str>) -> PathBuf {
        self.state.clone().unwrap_or_else(|| default_state(role, instance))
    }

    /// The event log next to the state file; `None` for a size of 0.
    pub(super) fn history(&self, state: &std::path::Path) -> Option<History> {
        // Different state files must have different logs.
        let mut name = state.to_owned();
        if state.extension().is_some_and(|extension| extension == "db") {
            name.set_extension("");
        }
        let mut path = name.into_os_string();
        path.push(".events");
        let megabytes: u64 = self.history_mb.get();
        let (path, bytes) = (PathBuf::from(path), megabytes * 1_000_000);
        (megabytes > 0).then_some(History { path, keep: self.history.0, bytes })
    }
}

impl DatapathKeys {
    /// The interfaces to use; an empty list, which means all, if the key is missing.
    pub(super) fn interfaces(&self) -> anyhow::Result<Vec<String>> {
        if self.interfaces.as_ref().is_some_and(Vec::is_empty) {
            bail!("interfaces: the list is empty: name some, or leave the key out to use all");
        }
        Ok(self.interfaces.iter().flatten().map(|name| name.0.clone()).collect())
    }
}

impl TunnelKeys {
    /// The layer below an end of tunnels.
    pub(super) fn tunnel(self, datapath: DatapathKeys) -> Tunnel {
        Tunnel {
            device: datapath.device.0,
            port: self.port.get(),
            datapath: datapath.datapath,
            realtime: self.realtime.0,
        }
    }
}

/// Default path of a role's state file.
pub fn default_state(role: &str, instance: Option<&str>) -> PathBuf {
    let dash = instance.map(|name| format!("-{name}")).unwrap_or_default();
    PathBuf::from(format!("/var/lib/segue/{role}{dash}.db"))
}

/// The group of this name; `None` if the name is empty.
fn group(name: String) -> anyhow::Result<Option<Gid>> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = Group::from_name(&name).with_context(|| format!("control_group: {name:?}"))?;
    let none = || {
        format!("control_group: there is no group {name:?}; create it: groupadd --system {name}")
    };
    Ok(Some(found.with_context(none)?.gid))
}

/// The address on which to serve metrics; `None` if it is empty.
fn metrics(text: String) -> anyhow::Result<Option<std::net::SocketAddr>> {
    if text.is_empty() {
        return Ok(None);
    }
    let examples = "examples: \":9101\" for this machine alone, \"192.0.2.1:9101\"";
    let address = metrics::listening(&text);
    address.map(Some).with_context(|| format!("metrics: {text:?} is no address; {examples}"))
}
