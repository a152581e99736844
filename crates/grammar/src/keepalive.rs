//! The keys of `[keepalive]` and `[path.NAME.keepalive]`: how to probe a path, or a peer without a path.

use anyhow::bail;
use segue_clock::Span;
use segue_keepalive::planner::{self, Responsiveness, Targets};
use segue_keepalive::{Aims, Config as Keepalive, Tau};
use segue_wire::Mode;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::part::inherit;
use crate::values::{Duration, Ratio};

/// Default of `rides`. With a fixed K and T_KA, riding slows detection on a path without data; with adaptive probing,
/// it slows nothing.
const RIDES_FIXED: bool = false;
const RIDES_ADAPTIVE: bool = true;
/// Shortest period that an anchor accepts.
const SHORTEST: Span = Span::from_millis(5);
/// Longest time constant that an anchor accepts.
const LONGEST_TAU: Span = Span::from_secs(3_600);
/// Longest period: a probe states it in whole milliseconds with 16 bits.
const LONGEST: Span = Span::from_millis(65_535);

/// How to probe a path. K and the period either follow targets continuously, are planned once from targets, or are
/// given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepaliveKeys {
    /// Probe the path, true.
    enabled: Option<bool>,
    /// The ends that measure, `both`.
    mode: Option<ModeKey>,
    /// Probes ride on data.
    rides: Option<bool>,
    /// Detection adapts to the use of a path; true unless `k`, `period` or `responsiveness` is given.
    adaptive: Option<bool>,
    /// Mean time to detect a silent outage of a path without data, 2.5 s.
    idle_responsiveness: Option<Duration>,
    /// Maximum number of probes per second, 50.
    probe_budget: Option<f64>,
    /// Mean time to detect a silent outage (T_Ravg), 500 ms.
    responsiveness: Option<Duration>,
    /// Mean time between false alarms (T_fp), 10⁵ s.
    false_positive_interval: Option<Duration>,
    /// Round-trip time to plan for, 50 ms.
    rtt: Option<Duration>,
    /// Loss in each direction to plan for, 2 %.
    loss: Option<Ratio>,
    /// K, instead of a plan; needs `period`.
    k: Option<u8>,
    /// T_KA, instead of a plan; needs `k`.
    period: Option<Duration>,
    /// Time constants of the averages, `["1s", "10s"]`.
    tau: Option<Vec<Duration>>,
    /// Time constant of the first average for samples that are worse than the average; needs `tau_fall`.
    tau_rise: Option<Duration>,
    /// Time constant of the first average for better samples; needs `tau_rise`.
    tau_fall: Option<Duration>,
    /// Number of probes in a loss interval (N), 10.
    loss_interval: Option<u32>,
}

/// How to probe a peer without a path: planned once from targets, or given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerKeepaliveKeys {
    /// Probe the peer.
    enabled: Option<bool>,
    /// Mean time to detect a silent outage (T_Ravg), 500 ms.
    responsiveness: Option<Duration>,
    /// Mean time between false alarms (T_fp), 10⁵ s.
    false_positive_interval: Option<Duration>,
    /// Round-trip time to plan for, 50 ms.
    rtt: Option<Duration>,
    /// Loss in each direction to plan for, 2 %.
    loss: Option<Ratio>,
    /// K, instead of a plan; needs `period`.
    k: Option<u8>,
    /// T_KA, instead of a plan; needs `k`.
    period: Option<Duration>,
    /// Time constants of the averages, `["1s", "10s"]`.
    tau: Option<Vec<Duration>>,
    /// Number of probes in a loss interval (N), 10.
    loss_interval: Option<u32>,
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
        let enabled = keys.map_or(usual, |keys| keys.enabled.unwrap_or(true));
        let keys = keys.cloned().unwrap_or_default();
        let planned = KeepaliveKeys {
            adaptive: Some(false),
            rides: Some(false),
            mode: Some(ModeKey::Client),
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
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeKey {
    Both,
    Client,
    Reports,
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
            (Some(k), Some(Duration(t_ka))) => Keepalive { k, t_ka, ..Keepalive::default() },
            (None, None) => self.plan()?,
            _ => bail!("k and period go together; or give targets and let them be planned"),
        };
        if keepalive.k == 0 || !(SHORTEST..=LONGEST).contains(&keepalive.t_ka) {
            bail!("k must be at least 1 and the period between {SHORTEST} and {LONGEST}");
        }
        if let Some(n) = self.loss_interval {
            if !(1..=u32::from(u16::MAX)).contains(&n) {
                bail!("loss_interval must lie between 1 and 65535");
            }
            keepalive.n = n;
        }
        keepalive.taus = self.taus()?;
        keepalive.mode = match self.mode {
            None | Some(ModeKey::Both) => Mode::Both,
            Some(ModeKey::Client) => Mode::Client,
            Some(ModeKey::Reports) => Mode::Reports,
            Some(ModeKey::RoundTripLoss) => Mode::RoundTripLoss,
        };
        let adaptive = self.aims()?;
        keepalive.rides = self.rides.unwrap_or(self.rides_unsaid());
        Ok(Probed { keepalive, enabled: self.enabled.unwrap_or(true), adaptive })
    }

    fn taus(&self) -> anyhow::Result<Vec<Tau>> {
        let mut taus = [1, 10].map(Span::from_secs).map(Tau::symmetric).to_vec();
        if let Some(given) = &self.tau {
            taus = given.iter().map(|tau| Tau::symmetric(tau.0)).collect();
        }
        match (self.tau_rise, self.tau_fall, taus.first_mut()) {
            (Some(Duration(rise)), Some(Duration(fall)), Some(first)) => {
                *first = Tau { rise, fall }
            }
            (None, None, Some(_)) => {}
            (_, _, None) => bail!("tau needs at least one time constant"),
            _ => bail!("tau_rise and tau_fall go together"),
        }
        let spans = || taus.iter().flat_map(|tau| [tau.rise, tau.fall]);
        if spans().any(|tau| tau == Span::ZERO || tau > LONGEST_TAU) {
            bail!("tau, tau_rise and tau_fall must be above zero and at most {LONGEST_TAU}");
        }
        Ok(taus)
    }

    fn aims(&self) -> anyhow::Result<Option<Aims>> {
        if self.is_fixed() {
            return Ok(None);
        }
        let default = Aims::default();
        let probes_per_s = self.probe_budget.unwrap_or(default.probes_per_s);
        if !(0.1..=200.0).contains(&probes_per_s) {
            bail!("probe_budget must lie between 0.1 and 200 probes per second");
        }
        let idle = seconds(self.idle_responsiveness, default.idle);
        if idle <= 0.0 {
            bail!("idle_responsiveness must be above zero");
        }
        let fp_interval = seconds(self.false_positive_interval, default.fp_interval);
        Ok(Some(Aims { idle, fp_interval, probes_per_s, ..default }))
    }

    fn is_fixed(&self) -> bool {
        self.k.is_some() || !self.adaptive.unwrap_or(self.responsiveness.is_none())
    }

    fn rides_unsaid(&self) -> bool {
        if self.is_fixed() { RIDES_FIXED } else { RIDES_ADAPTIVE }
    }

    fn plan(&self) -> anyhow::Result<Keepalive> {
        let loss = self.loss.map_or(0.02, |Ratio(loss)| loss);
        let plan = planner::plan(&Targets {
            rtt_avg: seconds(self.rtt, 0.05),
            loss_up: loss,
            loss_down: loss,
            responsiveness: Responsiveness::Avg(seconds(self.responsiveness, 0.5)),
            fp_interval: seconds(self.false_positive_interval, 1e5),
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

fn seconds(given: Option<Duration>, default: f64) -> f64 {
    given.map_or(default, |Duration(span)| span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PathKeys, parse};
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
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
