//! The keys of `[keepalive]` and `[path.NAME.keepalive]`: how to probe a path, or a peer without a path.

use anyhow::bail;
use schemars::JsonSchema;
use segue_clock::Span;
use segue_keepalive::planner::{self, Responsiveness, Targets};
use segue_keepalive::{Aims, Config as Keepalive, Tau};
use segue_wire::Mode;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::part::inherit;
use crate::values::{Duration, Flag, H, Ratio, S, Tenths, Within};

/// Default of `rides`. With a fixed K and T_KA, riding slows detection on a path without data; with adaptive probing,
/// it slows nothing.
const RIDES_FIXED: bool = false;
const RIDES_ADAPTIVE: bool = true;
/// Longest time constant of an average, which an anchor accepts.
type Constant = Duration<0, 1, H>;

/// Time constants of averages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Constants(Vec<Constant>);

impl Default for Constants {
    fn default() -> Self {
        Constants([1, 10].map(Span::from_secs).map(Duration).to_vec())
    }
}

/// Defines a struct of keys with those that all probing has.
macro_rules! probing {
    ($(#[$meta:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Probe continuously
            enabled: Flag<true>,
            $($own)*
            /// Planned: mean time until a silent outage is noticed
            #[schemars(extend("x-rfc" = "T_Ravg"))]
            responsiveness: Option<Duration<500>>,
            /// Least mean time between false alarms
            #[schemars(extend("x-rfc" = "T_fp"))]
            false_positive_interval: Duration<{ 100_000 * S }>,
            /// Planned: round-trip time to plan for
            rtt: Duration<50>,
            /// Planned: loss in each direction to plan for
            loss: Ratio<2>,
            /// Number of consecutive lost probes that makes a path down. Requires `period`
            #[schemars(extend("x-rfc" = "K"))]
            k: Option<Within<0, 1, 255>>,
            /// Time between probes. Requires `k`
            #[schemars(extend("x-rfc" = "T_KA"))]
            period: Option<Duration<0, 5, 65_535>>,
            /// Time constants of the averages of round-trip time and loss
            tau: Constants,
            /// Probes in one loss interval (N), at both ends: loss is evaluated
            /// [every N·T_KA, or sooner](measuring.md#loss)
            loss_interval: Within<10, 1, 65_535>,
        }
    };
}

probing! {
    /// How to probe a path. K and the period either follow targets continuously, are planned once from targets, or are
    /// given.
    KeepaliveKeys {
        /// Ends that measure
        mode: ModeKey,
        /// Probes may ride on data packets, which saves packets where there are data. With K and T_KA fixed or planned, a
        /// path without data needs more, and with `k` and `period` detection takes up to 2½ T_KA longer
        #[schemars(extend("x-unset" = "`true` if adaptive, else `false`"))]
        rides: Option<bool>,
        /// Detection follows the use of a path. Not together with `k` and `period`
        #[schemars(extend("x-unset" = "`true`, unless `k`, `period` or `responsiveness` is given"))]
        adaptive: Option<bool>,
        /// Adaptive: mean time until a silent outage is noticed on a path without data
        idle_responsiveness: Duration<2_500, 1>,
        /// Adaptive: maximum probes per second and path, not counting questions in doubt
        probe_budget: Tenths<500, 1, 2_000>,
        /// Instead of the first of `tau`, for samples that are worse than the average
        /// ([how to choose](measuring.md#averages)). Requires `tau_fall`
        tau_rise: Option<Constant>,
        /// The same for better samples. Requires `tau_rise`
        tau_fall: Option<Constant>,
    }
}

probing! {
    /// How to probe a peer without a path: planned once from targets, or given.
    PeerKeepaliveKeys {}
}

impl PeerKeepaliveKeys {
    /// Validates the keys; `None` if the peer is not probed. `usual` is the default of `enabled` without a table.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn validate(
        keys: Option<&PeerKeepaliveKeys>,
        usual: bool,
    ) -> anyhow::Result<Option<Keepalive>> {
        let enabled = keys.map_or(usual, |keys| keys.enabled.0);
        let keys = keys.cloned().unwrap_or_default();
        let planned = KeepaliveKeys {
            adaptive: Some(false),
            rides: Some(false),
            mode: ModeKey::Client,
            responsiveness: keys.responsiveness,
            false_positive_interval: keys.false_positive_interval,
            rtt: keys.rtt,
            loss: keys.loss,
            k: keys.k,
            period: keys.period,
            tau: keys.tau,
            loss_interval: keys.loss_interval,
            ..KeepaliveKeys::default()
        };
        Ok(Some(planned.validate()?.keepalive).filter(|_| enabled))
    }
}

/// The ends that measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ModeKey {
    /// Host and anchor.
    #[default]
    Both,
    /// The host only, whose downlink follows the host.
    Client,
    /// The host, which reports its averages.
    Reports,
    /// Both the round-trip time, and the host the loss of the round trip, half of which is used for steering.
    RoundTripLoss,
}

/// Probing of a path, validated.
pub struct Probed {
    /// Initial K and T_KA, and all other settings.
    pub keepalive: Keepalive,
    /// True if the path is probed.
    pub enabled: bool,
    /// The targets that K and T_KA follow; `None` if they are fixed.
    pub adaptive: Option<Aims>,
}

/// Completes each `path.NAME.keepalive` in a host's table from the host's `keepalive`. If a path sets `k` or `period`,
/// it does not inherit `adaptive`.
pub fn complete(host: &mut DeTable<'_>) {
    let Some(DeValue::Table(base)) = host.get_mut("keepalive").map(Spanned::get_mut) else {
        return;
    };
    let base = base.clone();
    let Some(DeValue::Table(paths)) = host.get_mut("path").map(Spanned::get_mut) else { return };
    for (name, path) in paths {
        let DeValue::Table(path) = path.get_mut() else { continue };
        let place = name.span();
        let own = path.entry(Spanned::new(place.clone(), "keepalive".into()));
        let own = own.or_insert(Spanned::new(place, DeValue::Table(DeTable::new())));
        let DeValue::Table(own) = own.get_mut() else { continue };
        let mut base = base.clone();
        if own.contains_key("k") || own.contains_key("period") {
            base.remove("adaptive");
        }
        inherit(own, &base);
    }
}

impl KeepaliveKeys {
    /// True if these keys explicitly enable riding.
    pub fn asks_for_rides(&self) -> bool {
        self.rides == Some(true)
    }

    /// Validates the keys.
    pub fn validate(&self) -> anyhow::Result<Probed> {
        if self.adaptive == Some(true) && (self.k.is_some() || self.period.is_some()) {
            bail!(
                "adaptive chooses k and period by itself: leave them out, in [keepalive] too, or set \
                 adaptive = false"
            );
        }
        let mut keepalive = match (self.k, self.period) {
            (Some(k), Some(Duration(t_ka))) => {
                Keepalive { k: k.get(), t_ka, ..Keepalive::default() }
            }
            (None, None) => self.plan()?,
            _ => bail!("k and period go together; or give targets and let them be planned"),
        };
        keepalive.n = self.loss_interval.get();
        keepalive.taus = self.taus()?;
        keepalive.mode = match self.mode {
            ModeKey::Both => Mode::Both,
            ModeKey::Client => Mode::Client,
            ModeKey::Reports => Mode::Reports,
            ModeKey::RoundTripLoss => Mode::RoundTripLoss,
        };
        keepalive.rides = self.rides.unwrap_or(self.rides_unsaid());
        Ok(Probed { keepalive, enabled: self.enabled.0, adaptive: self.aims() })
    }

    fn taus(&self) -> anyhow::Result<Vec<Tau>> {
        let mut taus: Vec<Tau> = self.tau.0.iter().map(|tau| Tau::symmetric(tau.0)).collect();
        match (self.tau_rise, self.tau_fall, taus.first_mut()) {
            (Some(Duration(rise)), Some(Duration(fall)), Some(first)) => {
                *first = Tau { rise, fall }
            }
            (None, None, Some(_)) => {}
            (_, _, None) => bail!("tau needs at least one time constant"),
            _ => bail!("tau_rise and tau_fall go together"),
        }
        Ok(taus)
    }

    fn aims(&self) -> Option<Aims> {
        let aims = Aims {
            idle: self.idle_responsiveness.0.as_secs_f64(),
            fp_interval: self.false_positive_interval.0.as_secs_f64(),
            probes_per_s: self.probe_budget.0,
            ..Aims::default()
        };
        (!self.is_fixed()).then_some(aims)
    }

    fn is_fixed(&self) -> bool {
        self.k.is_some() || !self.adaptive.unwrap_or(self.responsiveness.is_none())
    }

    fn rides_unsaid(&self) -> bool {
        if self.is_fixed() { RIDES_FIXED } else { RIDES_ADAPTIVE }
    }

    fn plan(&self) -> anyhow::Result<Keepalive> {
        let responsiveness = self.responsiveness.unwrap_or_default();
        let plan = planner::plan(&Targets {
            rtt_avg: self.rtt.0.as_secs_f64(),
            loss_up: self.loss.0,
            loss_down: self.loss.0,
            responsiveness: Responsiveness::Avg(responsiveness.0.as_secs_f64()),
            fp_interval: self.false_positive_interval.0.as_secs_f64(),
            rtt_max: None,
            loss: None,
            burst: None,
            rides: self.rides.unwrap_or(self.rides_unsaid()),
            t_ka_min: 0.005,
            k_max: 32,
        })
        .map_err(|error| anyhow::anyhow!("the keepalive targets cannot be met: {error}"))?;
        Ok(Keepalive::from(&plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PathKeys, parse};
    use std::collections::BTreeMap;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Host {
        #[expect(dead_code, reason = "its values are in those of paths")]
        keepalive: KeepaliveKeys,
        path: BTreeMap<String, PathKeys>,
    }

    impl Config for Host {
        const PATHS: bool = true;
    }

    fn probed(base: &str, own: &str) -> anyhow::Result<Probed> {
        let text = format!("[keepalive]\n{base}\n[path.wifi.keepalive]\n{own}\n");
        parse::<Host>(&text, "x")?.path["wifi"].keepalive.validate()
    }

    #[test]
    fn k_and_period_follow_unless_something_fixes_them() {
        for (base, own, adaptive) in [
            ("", "", true),
            ("adaptive = false", "", false),
            ("responsiveness = \"300ms\"", "", false),
            ("responsiveness = \"300ms\"\nadaptive = true", "", true),
            ("k = 3\nperiod = \"100ms\"", "", false),
            ("", "k = 3\nperiod = \"100ms\"", false),
            ("adaptive = true", "k = 3\nperiod = \"100ms\"", false),
        ] {
            let probed = probed(base, own).unwrap();
            assert_eq!(probed.adaptive.is_some(), adaptive, "{base:?} {own:?}");
        }
    }

    #[test]
    fn who_asks_for_adaptation_and_gives_k_and_period_is_told() {
        let fixed = "k = 3\nperiod = \"100ms\"";
        let both = format!("adaptive = true\n{fixed}");
        for (base, own) in [("", &*both), (&*both, ""), (fixed, "adaptive = true")] {
            let error = probed(base, own).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error.starts_with("adaptive chooses k and period"),
                "{base:?} {own:?}: {error}"
            );
        }
    }

    #[test]
    fn a_plan_keeps_its_target_with_and_without_rides() {
        let t_ka = ["rides = true", "rides = false", ""].map(|text| {
            let text = format!("{text}\nresponsiveness = \"300ms\"\nloss = \"1%\"");
            let Keepalive { rides, t_ka, .. } = probed("", &text).unwrap().keepalive;
            let keepalive = probed(&text, "").unwrap().keepalive;
            assert_eq!((keepalive.rides, keepalive.t_ka), (rides, t_ka));
            let average = keepalive.t_r_avg(Span::from_millis(50));
            let target = Span::from_millis(280)..=Span::from_millis(300);
            assert!(target.contains(&average), "{text}: {average}");
            t_ka
        });
        assert!(t_ka[0] < t_ka[1]);
        assert_eq!(t_ka[usize::from(!RIDES_FIXED)], t_ka[2]);
        assert!(probed("", "").unwrap().keepalive.rides, "where detection follows use");
    }

    #[test]
    fn modes_and_targets_are_taken_as_written() {
        let text = "mode = \"round-trip-loss\"\nrides = true\nenabled = false\n\
                    idle_responsiveness = \"5s\"\nprobe_budget = 20";
        let probed = probed("mode = \"client\"", text).unwrap();
        assert_eq!((probed.keepalive.mode, probed.keepalive.rides), (Mode::RoundTripLoss, true));
        assert!(!probed.enabled);
        let aims = probed.adaptive.unwrap();
        assert_eq!((aims.idle, aims.probes_per_s), (5.0, 20.0));
    }

    #[test]
    fn a_path_may_have_an_asymmetric_first_average_of_its_own() {
        let probed =
            probed("tau = [\"2s\", \"20s\"]", "tau_rise = \"500ms\"\ntau_fall = \"8s\"").unwrap();
        let first = Tau { rise: Span::from_millis(500), fall: Span::from_secs(8) };
        assert_eq!(probed.keepalive.taus, [first, Tau::symmetric(Span::from_secs(20))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_key() {
        for (text, key) in [
            ("mode = \"server\"", "mode"),
            ("probe_budget = 0", "probe_budget"),
            ("tau = []", "tau"),
            ("tau = [\"2h\"]", "tau"),
            ("tau_rise = \"1s\"", "tau_fall"),
            ("loss_interval = 70000", "loss_interval"),
            ("idle_responsiveness = \"0s\"", "idle_responsiveness"),
        ] {
            let error = probed("", text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(key) || error.contains("server"), "{text}: {error}");
        }
    }
}
