//! The keys of `[path.NAME]` and `[steering]`: properties of paths, and how flows move between them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use segue_clock::Span;
use segue_tunnel::PathConfig;
use segue_wire::Encapsulation;
use serde::{Deserialize, Serialize};

use crate::keepalive::KeepaliveKeys;
use crate::values::{Duration, Tenths};

/// Keys of one interface.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PathKeys {
    /// Replaces keys of `[keepalive]` for this path. If `[keepalive]` sets `k` and `period`, the path must set its own
    pub keepalive: KeepaliveKeys,
    /// Form of the packets
    encapsulation: EncapsulationKey,
    /// Relative price of a byte: 0 is free, 1 a metered link. A unit costs 10 points of score for voice and interactive
    /// flows, 20 for default, 30 for bulk
    price: Tenths<0>,
    /// Points added to the path's score, for every class
    preference: f64,
    /// Outer [source address](operation.md#source-addresses). If the interface lacks it, there is no path of that family
    #[schemars(extend("x-value" = "address", "x-unset" = "as the kernel's routes prefer"))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EncapsulationKey {
    /// Protected, with probes.
    #[default]
    Segue,
    /// [The inner packet directly in UDP](wire/upmt.md), without protection; requires `datapath = "user"`, and
    /// `allow_upmt` at the anchor, which otherwise grants `segue`. Such a path does not adapt K and T_KA.
    Upmt,
}

/// How flows move between paths.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SteeringKeys {
    /// A path is better if its score is higher by more than these points
    margin: Tenths<50>,
    /// How long it must stay better before flows move. The time doubles for a path that keeps failing, up to 30 s
    #[schemars(extend("x-unset" = "four of the shortest T_KA at the start, at most 500 ms"))]
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
            if !keys.preference.is_finite() {
                bail!("{what:?}: preference must be a number");
            }
            let upmt = keys.encapsulation == EncapsulationKey::Upmt;
            if upmt && !user {
                bail!("{what:?}: encapsulation \"upmt\" needs datapath = \"user\"");
            }
            let probed = probed.with_context(|| format!("{what:?}"))?;
            Ok(PathConfig {
                keepalive: probed.keepalive,
                enabled: probed.enabled,
                // UPMT probes do not carry K and T_KA, so an anchor could not follow changes.
                adaptive: probed.adaptive.filter(|_| !upmt),
                price: keys.price.0,
                preference: keys.preference,
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
        Ok(Paths { path, paths, steering: steering_keys.validate(shortest) })
    }
}

impl SteeringKeys {
    /// The settings; `shortest` is the shortest probe period.
    #[must_use]
    pub fn validate(&self, shortest: Option<Span>) -> segue_steering::Config {
        let mut steering = segue_steering::Config::default();
        let hold = shortest.map_or(steering.hold, |t_ka| (t_ka * 4).min(steering.hold));
        steering.hold = self.hold.map_or(hold, |Duration(span)| span);
        steering.margin = self.margin.0;
        steering
    }
}
