//! The keys of `[path.NAME]` and `[steering]`: properties of paths, and how flows move between them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_tunnel::PathConfig;
use segue_wire::Encapsulation;
use serde::Deserialize;

use crate::keepalive::KeepaliveKeys;
use crate::values::Duration;

/// Keys of one interface.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathKeys {
    /// As in `[keepalive]`, whose keys are the defaults.
    #[serde(default)]
    pub keepalive: KeepaliveKeys,
    /// Packet format, `segue` or `upmt`.
    encapsulation: Option<EncapsulationKey>,
    /// Relative price per byte, 0.
    price: Option<f64>,
    /// Added to the path's score, 0.
    preference: Option<f64>,
    /// Outer source address, one of the interface's; by default, the kernel chooses.
    source: Option<String>,
}

impl PathKeys {
    fn source(&self, what: &str) -> anyhow::Result<Option<IpAddr>> {
        let Some(text) = &self.source else { return Ok(None) };
        let unusable = |address: &IpAddr| match address {
            IpAddr::V4(a) => a.is_multicast() || a.is_broadcast() || a.is_link_local(),
            IpAddr::V6(a) => {
                a.is_multicast() || a.is_unicast_link_local() || a.to_ipv4_mapped().is_some()
            }
        };
        match text.parse::<IpAddr>() {
            Err(_) => bail!("{what}.source: {text:?} is not an IP address"),
            Ok(a) if a.is_unspecified() || a.is_loopback() || unusable(&a) => bail!(
                "{what}.source: {a} cannot be the source of a path: give a global or private address of the interface"
            ),
            Ok(address) => Ok(Some(address)),
        }
    }
}

/// Packet format of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EncapsulationKey {
    Segue,
    Upmt,
}

/// How flows move between paths.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringKeys {
    /// Advantage in score points that a better path needs, 5.
    margin: Option<f64>,
    /// How long the advantage must last; four probe periods, at most 500 ms.
    hold: Option<Duration>,
}

/// Settings of paths and steering, validated.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Settings of paths without a table.
    pub path: PathConfig,
    /// Settings of other paths, by interface name.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows move.
    pub steering: segue_steering::Config,
}

impl Paths {
    /// Validates the keys; `user` is true for the user-space datapath.
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
            let probed = keys.keepalive.validate();
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
                source: keys.source(what)?,
            })
        };
        let all = PathKeys { keepalive: keepalive.clone(), ..PathKeys::default() };
        let path = path_config(&all, "keepalive")?;
        let paths = path_keys
            .iter()
            .map(|(name, keys)| Ok((name.clone(), path_config(keys, &format!("path.{name}"))?)))
            .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let shortest = paths.values().chain([&path]).map(|path| path.keepalive.t_ka).min();
        let steering = steering_keys.validate(shortest)?;
        Ok(Paths { path, paths, steering })
    }
}

impl SteeringKeys {
    /// Validates the keys; `shortest` is the shortest probe period.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(&self, shortest: Option<Span>) -> anyhow::Result<segue_steering::Config> {
        let mut steering = segue_steering::Config::default();
        let hold = shortest.map_or(steering.hold, |t_ka| (t_ka * 4).min(steering.hold));
        steering.hold = self.hold.map_or(hold, |Duration(span)| span);
        steering.margin = self.margin.unwrap_or(steering.margin);
        if !(steering.margin.is_finite() && steering.margin >= 0.0) {
            bail!("[steering] margin must be zero or more");
        }
        Ok(steering)
    }
}
