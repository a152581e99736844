//! A host's configuration file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_tunnel::PathConfig;
use segue_wire::{Encapsulation, TUNNEL_PORT};
use serde::Deserialize;

use super::Duration;
use super::keepalive::KeepaliveKeys;
use crate::control;
use crate::daemon::host::Settings;
use crate::daemon::packets::Choice;
use crate::daemon::run;

/// The keys of a host's file, each with its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
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
    /// Interfaces to use; all that reach the anchor.
    pub interfaces: Option<Vec<String>>,
    /// Name servers that resolve the anchor's name; the system's.
    pub nameservers: Option<Vec<IpAddr>>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// The group that may use it, beside root; none.
    pub control_group: Option<String>,
    /// Where metrics are served; nowhere.
    pub metrics: Option<String>,
    /// Run before ordinary threads, true.
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

/// One interface.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathKeys {
    /// As in `[keepalive]`, for this path only.
    #[serde(default)]
    pub(crate) keepalive: KeepaliveKeys,
    /// Form of the packets, `segue` or `upmt`.
    encapsulation: Option<EncapsulationKey>,
    /// Relative price per byte, 0.
    price: Option<f64>,
    /// Added to the path's score, 0.
    preference: Option<f64>,
}

/// Form of a path's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EncapsulationKey {
    Segue,
    Upmt,
}

/// How flows move.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringKeys {
    /// Lead in score points that a better path needs, 5.
    margin: Option<f64>,
    /// How long the lead must last; four probe periods, at most 500 ms.
    hold: Option<Duration>,
}

/// Where a host keeps its state unless told otherwise.
pub fn default_host_state() -> PathBuf {
    PathBuf::from("/var/lib/segue/host.db")
}

impl HostFile {
    /// The settings of a daemon, without a join line.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(self) -> anyhow::Result<Settings> {
        let device = super::device(self.device)?;
        self.mtu.map_or(Ok(()), super::check_mtu)?;
        let prefix = |text: &String| text.parse().with_context(|| format!("routes: {text:?}"));
        let routes = self.routes.map(|all| all.iter().map(prefix).collect::<anyhow::Result<_>>());
        let user = self.datapath == Some(Choice::User);
        let Paths { path, paths, steering } =
            Paths::validate(&self.keepalive, &self.path, &self.steering, user)?;
        Ok(Settings {
            common: run::Settings {
                device,
                port: self.port.unwrap_or(TUNNEL_PORT),
                datapath: self.datapath.unwrap_or(Choice::Auto),
                interfaces: self.interfaces.unwrap_or_default(),
                control: self.control.unwrap_or_else(|| control::default_path("host")),
                control_group: super::group(self.control_group)?,
                metrics: super::metrics(self.metrics)?,
                realtime: self.realtime.unwrap_or(true),
            },
            join: None,
            state: self.state.unwrap_or_else(default_host_state),
            mtu: self.mtu,
            routes: routes.transpose()?,
            fail_closed: self.fail_closed.unwrap_or(false),
            nameservers: self.nameservers.unwrap_or_default(),
            path,
            paths,
            steering,
        })
    }
}

/// How paths are probed and flows move, validated.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Paths without settings of their own.
    pub path: PathConfig,
    /// The others, by the name of their interface.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows move.
    pub steering: segue_steering::Config,
}

impl Paths {
    /// Checks the keys; `user` says whether the user-space datapath is used.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(
        keepalive: &KeepaliveKeys,
        path_keys: &BTreeMap<String, PathKeys>,
        steering_keys: &SteeringKeys,
        user: bool,
    ) -> anyhow::Result<Paths> {
        let path_config = |keys: &PathKeys, what: &str| {
            let probed = keys.keepalive.over(keepalive).and_then(|keys| keys.validate());
            let (price, preference) = (keys.price.unwrap_or(0.0), keys.preference.unwrap_or(0.0));
            if !(price.is_finite() && price >= 0.0 && preference.is_finite()) {
                bail!("{what:?}: price must be zero or more, and preference a number");
            }
            let upmt = keys.encapsulation == Some(EncapsulationKey::Upmt);
            if upmt && !user {
                bail!("{what:?}: encapsulation \"upmt\" needs datapath = \"user\"");
            }
            let probed = probed.with_context(|| format!("{what:?}"))?;
            Ok(PathConfig {
                keepalive: probed.keepalive,
                enabled: probed.enabled,
                // UPMT probes do not carry K and T_KA, so an anchor could not follow changes.
                adaptive: probed.adaptive.filter(|_| !upmt),
                price,
                preference,
                encapsulation: if upmt { Encapsulation::Upmt } else { Encapsulation::Segue },
            })
        };
        let path = path_config(&PathKeys::default(), "keepalive")?;
        let paths = path_keys
            .iter()
            .map(|(name, keys)| Ok((name.clone(), path_config(keys, &format!("path.{name}"))?)))
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let mut steering = segue_steering::Config::default();
        let shortest = paths.values().chain([&path]).map(|path| path.keepalive.t_ka).min();
        let hold = shortest.map_or(steering.hold, |t_ka| (t_ka * 4).min(steering.hold));
        steering.hold = steering_keys.hold.map_or(hold, |Duration(span)| span);
        steering.margin = steering_keys.margin.unwrap_or(steering.margin);
        if !(steering.margin.is_finite() && steering.margin >= 0.0) {
            bail!("[steering] margin must be zero or more");
        }
        Ok(Paths { path, paths, steering })
    }
}
