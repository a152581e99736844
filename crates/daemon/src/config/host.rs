//! A host's configuration file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_grammar::{Config, Duration, KeepaliveKeys, PathKeys, Paths, SteeringKeys};
use segue_ip::Prefix;
use segue_wire::TUNNEL_PORT;
use serde::Deserialize;

use crate::control;
use crate::settings::{Choice, Common, Host, Tunnel};

/// The keys of a host's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// Name of this daemon, if several of its role run here; it names the control socket and the state file. Default:
    /// no name.
    pub instance: Option<String>,
    /// File with the join line.
    pub join_file: Option<PathBuf>,
    /// File of the host's state, `/var/lib/segue/host.db`.
    pub state: Option<PathBuf>,
    /// Tunnel device, `segue0`.
    pub device: Option<String>,
    /// MTU of the tunnel device.
    pub mtu: Option<u32>,
    /// Local UDP port of the tunnels, 5005.
    pub port: Option<u16>,
    /// `auto`, `ebpf` or `user`.
    pub datapath: Option<Choice>,
    /// Destinations sent through the tunnel; everything.
    pub routes: Option<Vec<String>>,
    /// Traffic to `routes` leaves only through the tunnel, false.
    pub fail_closed: Option<bool>,
    /// Priority of its first routing rule; 5280, or behind the rules of other programs' tunnels.
    pub priority: Option<u32>,
    /// Interfaces to use; all that reach the anchor.
    pub interfaces: Option<Vec<String>>,
    /// Name servers that resolve the anchor's name; the system's.
    pub nameservers: Option<Vec<IpAddr>>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, in addition to root; none.
    pub control_group: Option<String>,
    /// Where to serve metrics; not served.
    pub metrics: Option<String>,
    /// How long events are kept in a log next to the state file, 1 d.
    pub history: Option<Duration>,
    /// Largest size of that log in megabytes, 10; 0 disables the log.
    pub history_mb: Option<u32>,
    /// Use real-time scheduling, true.
    pub realtime: Option<bool>,
    /// Probing of all paths.
    #[serde(default)]
    pub keepalive: KeepaliveKeys,
    /// Settings by interface.
    #[serde(default)]
    pub path: BTreeMap<String, PathKeys>,
    /// How flows move.
    #[serde(default)]
    pub steering: SteeringKeys,
}

/// The last priority of a host's first rule: its five rules come before the main table's.
const LAST_PRIORITY: u32 = 32_760;

/// Default path of a host's state file.
pub fn default_host_state(instance: Option<&str>) -> PathBuf {
    super::state("host", instance)
}

impl Config for HostFile {
    const PATHS: bool = true;
}

impl HostFile {
    /// The settings of a daemon, without a join line.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(self) -> anyhow::Result<Host> {
        let device = super::device(self.device)?;
        let instance = super::instance(self.instance)?;
        let instance = instance.as_deref();
        self.mtu.map_or(Ok(()), super::check_mtu)?;
        if let Some(priority) = self.priority.filter(|p| !(1..=LAST_PRIORITY).contains(p)) {
            bail!("priority: {priority} must lie between 1 and {LAST_PRIORITY}");
        }
        let prefix = |text: &String| {
            let prefix: Prefix = text.parse().with_context(|| format!("routes: {text:?}"))?;
            match prefix.network() {
                network if network == prefix => Ok(prefix),
                network => bail!("routes: {text:?} has host bits (did you mean {network}?)"),
            }
        };
        let routes = self.routes.map(|all| all.iter().map(prefix).collect::<anyhow::Result<_>>());
        self.path.keys().try_for_each(|name| {
            super::interface(name).with_context(|| format!("\"path.{name}\""))
        })?;
        let user = self.datapath == Some(Choice::User);
        let Paths { path, paths, steering } =
            Paths::validate(&self.keepalive, &self.path, &self.steering, user)?;
        let state = self.state.unwrap_or_else(|| default_host_state(instance));
        Ok(Host {
            common: Common {
                interfaces: super::interfaces(self.interfaces)?,
                control: self.control.unwrap_or_else(|| control::default_path("host", instance)),
                control_group: super::group(self.control_group)?,
                metrics: super::metrics(self.metrics)?,
                history: super::history(self.history, self.history_mb, &state)?,
            },
            tunnel: Tunnel {
                device,
                port: self.port.unwrap_or(TUNNEL_PORT),
                datapath: self.datapath.unwrap_or(Choice::Auto),
                realtime: self.realtime.unwrap_or(true),
            },
            join: None,
            state,
            mtu: self.mtu,
            routes: routes.transpose()?,
            fail_closed: self.fail_closed.unwrap_or(false),
            priority: self.priority,
            nameservers: self.nameservers.unwrap_or_default(),
            path,
            paths,
            steering,
        })
    }
}
