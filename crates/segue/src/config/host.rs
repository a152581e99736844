//! A host's configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_keepalive::planner::{self, Responsiveness, Targets};
use segue_keepalive::{Config as Keepalive, Tau};
use segue_linux::link::Prefix;
use segue_tunnel::PathConfig;
use segue_wire::TUNNEL_PORT;
use serde::Deserialize;

use super::{Duration, Ratio};
use crate::control;
use crate::daemon::host::Settings;
use crate::daemon::packets::Choice;
use crate::identity::Join;

/// What may stand in a host's file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// File with the join line.
    pub join_file: Option<PathBuf>,
    /// Tunnel device, `segue0`.
    pub device: Option<String>,
    /// MTU of the tunnel device.
    pub mtu: Option<u32>,
    /// Local UDP port of the tunnels, 5005.
    pub port: Option<u16>,
    /// `auto`, `ebpf` or `user`.
    pub datapath: Option<Choice>,
    /// What goes through the tunnel; everything.
    pub routes: Option<Vec<String>>,
    /// Interfaces to use; all that reach the anchor.
    pub interfaces: Option<Vec<String>>,
    /// Control socket.
    pub control: Option<PathBuf>,
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

/// How a path is probed: by targets, or by K and period.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepaliveKeys {
    /// Mean time to notice a silent outage (T_Ravg), 500 ms.
    responsiveness: Option<Duration>,
    /// Mean time between false alarms (T_fp), 10⁵ s.
    false_positive_interval: Option<Duration>,
    /// Round-trip time to plan for, 50 ms.
    rtt: Option<Duration>,
    /// Loss in each direction to plan for, 2 %.
    loss: Option<Ratio>,
    /// K, in place of a plan; needs `period`.
    k: Option<u8>,
    /// T_KA, in place of a plan; needs `k`.
    period: Option<Duration>,
    /// Time constants of the averages, `["1s", "10s"]`.
    tau: Option<Vec<Duration>>,
    /// Probes of a loss interval (N), 10.
    loss_interval: Option<u32>,
}

/// One interface.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathKeys {
    /// As in `[keepalive]`, for this path alone.
    #[serde(default)]
    keepalive: KeepaliveKeys,
    /// Relative price per byte, 0.
    price: Option<f64>,
    /// Added to the path's score, 0.
    preference: Option<f64>,
}

/// How flows move.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringKeys {
    /// Lead in score points that a better path needs, 5.
    margin: Option<f64>,
    /// How long it needs it; four probe periods, at most 500 ms.
    hold: Option<Duration>,
}

impl KeepaliveKeys {
    /// These keys, and `base`'s where these are silent.
    fn over(&self, base: &KeepaliveKeys) -> KeepaliveKeys {
        KeepaliveKeys {
            responsiveness: self.responsiveness.or(base.responsiveness),
            false_positive_interval: self.false_positive_interval.or(base.false_positive_interval),
            rtt: self.rtt.or(base.rtt),
            loss: self.loss.or(base.loss),
            k: self.k.or(base.k),
            period: self.period.or(base.period),
            tau: self.tau.clone().or_else(|| base.tau.clone()),
            loss_interval: self.loss_interval.or(base.loss_interval),
        }
    }

    fn validate(&self) -> anyhow::Result<Keepalive> {
        let mut keepalive = match (self.k, self.period) {
            (Some(k), Some(Duration(t_ka))) => Keepalive { k, t_ka, ..Keepalive::default() },
            (None, None) => self.plan()?,
            _ => bail!("k and period go together; or give targets and let them be planned"),
        };
        // A probe states whole milliseconds in 16 bits.
        let (shortest, longest) = (Span::from_millis(5), Span::from_millis(65_535));
        if keepalive.k == 0 || !(shortest..=longest).contains(&keepalive.t_ka) {
            bail!("k must be at least 1 and the period between {shortest} and {longest}");
        }
        if let Some(n) = self.loss_interval {
            if n == 0 {
                bail!("loss_interval must be at least 1");
            }
            keepalive.n = n;
        }
        keepalive.taus = [1, 10].map(Span::from_secs).map(Tau::symmetric).to_vec();
        if let Some(taus) = &self.tau {
            if taus.is_empty() || taus.iter().any(|tau| tau.0 == Span::ZERO) {
                bail!("tau needs at least one time constant, each above zero");
            }
            keepalive.taus = taus.iter().map(|tau| Tau { rise: tau.0, fall: tau.0 }).collect();
        }
        Ok(keepalive)
    }

    fn plan(&self) -> anyhow::Result<Keepalive> {
        let seconds = |given: Option<Duration>, default: f64| {
            given.map_or(default, |Duration(span)| span.as_secs_f64())
        };
        let loss = self.loss.map_or(0.02, |Ratio(loss)| loss);
        let plan = planner::plan(&Targets {
            rtt_avg: seconds(self.rtt, 0.05),
            loss_up: loss,
            loss_down: loss,
            responsiveness: Responsiveness::Avg(seconds(self.responsiveness, 0.5)),
            fp_interval: seconds(self.false_positive_interval, 1e5),
            rtt_max: None,
            burst: None,
            t_ka_min: 0.005,
            k_max: 32,
        })
        .map_err(|error| anyhow::anyhow!("the keepalive targets cannot be met: {error}"))?;
        Ok(Keepalive::from(&plan))
    }
}

impl HostFile {
    /// The settings of a daemon with these credentials.
    pub fn validate(self, join: Join) -> anyhow::Result<Settings> {
        let device = super::device(self.device)?;
        self.mtu.map_or(Ok(()), super::check_mtu)?;
        let routes = self.routes.unwrap_or_else(|| vec!["0.0.0.0/0".into(), "::/0".into()]);
        let routes: Vec<Prefix> = routes
            .iter()
            .map(|text| text.parse().with_context(|| format!("routes: {text:?}")))
            .collect::<anyhow::Result<_>>()?;
        let path_config = |keys: &PathKeys, what: &str| {
            let keepalive = keys.keepalive.over(&self.keepalive).validate();
            let (price, preference) = (keys.price.unwrap_or(0.0), keys.preference.unwrap_or(0.0));
            if !(price.is_finite() && price >= 0.0 && preference.is_finite()) {
                bail!("{what:?}: price must be zero or more, and preference a number");
            }
            let keepalive = keepalive.with_context(|| format!("{what:?}"))?;
            Ok(PathConfig { keepalive, price, preference })
        };
        let path = path_config(&PathKeys::default(), "keepalive")?;
        let paths = self
            .path
            .iter()
            .map(|(name, keys)| Ok((name.clone(), path_config(keys, &format!("path.{name}"))?)))
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let mut steering = segue_steering::Config::default();
        let shortest = paths.values().chain([&path]).map(|path| path.keepalive.t_ka).min();
        let hold = shortest.map_or(steering.hold, |t_ka| (t_ka * 4).min(steering.hold));
        steering.hold = self.steering.hold.map_or(hold, |Duration(span)| span);
        steering.margin = self.steering.margin.unwrap_or(steering.margin);
        if !(steering.margin.is_finite() && steering.margin >= 0.0) {
            bail!("[steering] margin must be zero or more");
        }
        Ok(Settings {
            join,
            device,
            mtu: self.mtu,
            port: self.port.unwrap_or(TUNNEL_PORT),
            datapath: self.datapath.unwrap_or(Choice::Auto),
            routes,
            interfaces: self.interfaces.unwrap_or_default(),
            path,
            paths,
            steering,
            control: self.control.unwrap_or_else(|| control::default_path("host")),
        })
    }
}
