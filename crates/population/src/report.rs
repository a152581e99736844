//! Results of a population, and verdicts that compare them with the papers' equations.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_keepalive::false_positives;
use segue_netem::Loss;

use super::shard::bound;
use super::spec::{Class, Silent, Spec};
use segue_tunnel::Cause;

use super::stats::{ClassStats, Distribution, EndStats, Load, Stats};
use segue_sim::results::Results;

/// Minimum number of expected events for a verdict.
const FEWEST: f64 = 10.0;
/// The same, as text in a bar.
const JUDGED: &str = "from 10 detections on";
/// Allowed deviation of a count or mean in standard deviations. By chance, one in 150 000 exceeds it.
const SIGMAS: f64 = 4.5;
/// Number of probes for which the deviation of eq. 4's count is computed. It grows with the square root of the number.
const SAMPLE: u64 = 100_000;

/// A result and its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Name of the result, with its class and end.
    pub what: String,
    /// The measured value.
    pub found: f64,
    /// The expected value and the tolerance, which decide the verdict.
    pub bar: String,
    /// True if the value is within the tolerance; `None` if there were too few events.
    pub holds: Option<bool>,
}

impl Verdict {
    /// The verdict in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.holds {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "too few",
        }
    }
}

/// Duration of the measurement in seconds.
fn measured_s(spec: &Spec) -> f64 {
    (Time::ZERO + spec.duration).since(spec.measured_from()).as_secs_f64()
}

/// The results as named values.
#[must_use]
pub fn results(spec: &Spec, stats: &Stats) -> Results {
    let mut results = Results::new();
    let paths = u64::from(spec.hosts) * spec.paths.len() as u64;
    results.int("hosts", spec.hosts.into());
    results.int("paths", paths);
    results.int("anchors", spec.anchors.into());
    results.int("shards", spec.shards.into());
    results.float("virtual_s", spec.duration.as_secs_f64());
    results.float("measured_s", measured_s(spec));
    results.int("events", stats.events);
    results.int("registered", stats.registered);
    results.int("paths.up_or_in_outage", stats.accounted);
    results.int("refused", stats.refused);
    results.int("wrong", stats.wrong);
    results.int("responses.to_machines", stats.seen);
    results.int("responses.kept_by_packet_paths", stats.kept);
    load(spec, stats, &mut results);
    for (class, found) in spec.classes.iter().zip(&stats.classes) {
        if !used(spec, class) {
            continue;
        }
        let name = &class.name;
        results.int(format!("{name}.outages"), found.outages);
        for (end, found) in ["host", "anchor"].into_iter().zip(&found.ends) {
            let name = format!("{name}.{end}");
            distribution(&format!("{name}.detection"), &found.detections, &mut results);
            results.int(format!("{name}.missed"), found.missed);
            results.int(format!("{name}.late"), found.late);
            results.int(format!("{name}.false_positives"), found.false_positives);
        }
        results.int(format!("{name}.exchanges"), found.exchanges);
        results.int(format!("{name}.k_unanswered"), found.windows);
    }
    for (cause, count) in Cause::ALL.iter().zip(stats.handovers) {
        results.int(format!("handovers.{}", cause.name()), count);
    }
    results.int("handovers.redirections", stats.redirected);
    results.int("flows.count", stats.flows.flows);
    results.int("flows.sent", stats.flows.sent);
    results.int("flows.delivered", stats.flows.delivered);
    distribution("flows.interruption", &stats.flows.interruptions, &mut results);
    distribution("flows.planned", &stats.flows.planned, &mut results);
    results
}

fn used(spec: &Spec, class: &Class) -> bool {
    spec.paths.iter().any(|number| spec.classes[*number].name == class.name)
}

fn load(spec: &Spec, stats: &Stats, results: &mut Results) {
    let all = |value: fn(&Load) -> u64| stats.anchors.iter().map(value);
    let anchors = stats.anchors.len().max(1) as f64;
    let per_second = |value: u64| value as f64 / measured_s(spec);
    let requests: u64 = all(|load| load.requests).sum();
    results.int("requests.sent", stats.requests_sent);
    results.float("anchor.requests_per_s.mean", per_second(requests) / anchors);
    let most = all(|load| load.requests).max().unwrap_or(0);
    results.float("anchor.requests_per_s.max", per_second(most));
    let busiest = all(|load| load.most_requests).max().unwrap_or(0);
    results.int("anchor.requests_in_busiest_s", busiest);
    let signals: u64 = all(|load| load.signals).sum();
    let seconds = spec.duration.as_secs_f64();
    results.int("signals", stats.signals);
    results.float("signals_per_host", stats.signals as f64 / f64::from(spec.hosts));
    results.float("anchor.signals_per_s.mean", signals as f64 / seconds / anchors);
    let busiest = all(|load| load.most_signals).max().unwrap_or(0);
    results.int("anchor.signals_in_busiest_s", busiest);
}

fn distribution(name: &str, times_us: &[u32], results: &mut Results) {
    results.int(format!("{name}.count"), times_us.len() as u64);
    let Some(d) = Distribution::of(times_us) else { return };
    for (what, value) in [
        ("min_s", d.min),
        ("mean_s", d.mean),
        ("median_s", d.median),
        ("p95_s", d.p95),
        ("p99_s", d.p99),
        ("max_s", d.max),
    ] {
        results.float(format!("{name}.{what}"), value);
    }
}

/// The results with their expected values.
#[must_use]
pub fn verdicts(spec: &Spec, stats: &Stats) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let paths = f64::from(spec.hosts) * spec.paths.len() as f64;
    let all = |what: &str, found: u64, all: f64| Verdict {
        what: what.into(),
        found: found as f64,
        bar: format!("{all}"),
        holds: Some(found as f64 == all),
    };
    verdicts.push(all("hosts registered", stats.registered, spec.hosts.into()));
    verdicts.push(all("packets refused", stats.refused, 0.0));
    verdicts.push(all("orders that could not be obeyed", stats.wrong, 0.0));
    let sent = measured_s(spec) / spec.t_ka.as_secs_f64() * paths;
    verdicts.push(Verdict {
        what: "requests sent".into(),
        found: stats.requests_sent as f64,
        bar: format!("{sent:.0} ± {paths} (by T_KA, one more or less of a path)"),
        holds: Some((stats.requests_sent as f64 - sent).abs() <= paths),
    });
    for (number, found) in stats.classes.iter().enumerate() {
        let class = &spec.classes[number];
        if used(spec, class) {
            for end in 0..2 {
                detection(spec, number, end, &found.ends[end], &mut verdicts);
                false_alarms(spec, class, end, found, &mut verdicts);
            }
            eq_4(spec, class, found, &mut verdicts);
        }
    }
    verdicts
}

/// Compares detection times with eq. 1 and eq. 2, and with the mean that follows from the timeout of K + ½ periods.
fn detection(
    spec: &Spec,
    number: usize,
    end: usize,
    found: &EndStats,
    verdicts: &mut Vec<Verdict>,
) {
    let class = &spec.classes[number];
    let name = format!("{} at the {}", class.name, ["hosts", "anchors"][end]);
    verdicts.push(Verdict {
        what: format!("{name}: outages longer than eq. 1 not detected"),
        found: found.missed as f64,
        bar: "0".into(),
        holds: Some(found.missed == 0),
    });
    let Some(d) = Distribution::of(&found.detections) else { return };
    let (t_ka, rtt) = (spec.t_ka.as_secs_f64(), class.delay.as_secs_f64() * 2.0);
    let longest = bound(spec, number).as_secs_f64();
    let judged = (d.count as f64 >= FEWEST).then_some(());
    verdicts.push(Verdict {
        what: format!("{name}: longest detection, s"),
        found: d.max,
        bar: format!("at most {longest:.3} (eq. 1)"),
        holds: Some(d.max <= longest),
    });
    let eq_2 = spec.keepalive().t_r_avg(Span::from_secs_f64(rtt)).as_secs_f64();
    let Some(lost) = independent(class) else {
        // The mean is not known exactly: it is only at most that of eq. 2, since half a period is saved.
        verdicts.push(Verdict {
            what: format!("{name}: mean detection, s"),
            found: d.mean,
            bar: format!("at most {eq_2:.3} (eq. 2); {JUDGED}"),
            holds: judged.map(|()| d.mean <= eq_2),
        });
        return;
    };
    let q = if end == 0 { 1.0 - (1.0 - lost) * (1.0 - lost) } else { lost };
    // The last sign of life was due up to T_KA before the outage, and earlier if probes had just been lost.
    let window = libm::pow(q, f64::from(spec.k));
    let before = q / (1.0 - q) - f64::from(spec.k) * window / (1.0 - window);
    let direction = class.outages.map(|outages| outages.direction);
    let way = if end == 0 && direction == Some(Silent::Up) { rtt } else { rtt / 2.0 };
    let mean = f64::from(spec.k) * t_ka + way - before * t_ka;
    let deviation = libm::sqrt(t_ka * t_ka / 12.0 + t_ka * t_ka * q / ((1.0 - q) * (1.0 - q)));
    let spread = SIGMAS * deviation / libm::sqrt(d.count as f64);
    verdicts.push(Verdict {
        what: format!("{name}: mean detection, s"),
        found: d.mean,
        bar: format!(
            "{mean:.3} ± {spread:.3} (time-out of K + 1/2 periods; eq. 2 says {eq_2:.3}); {JUDGED}"
        ),
        holds: judged.map(|()| (d.mean - mean).abs() <= spread),
    });
}

/// Probability that a packet is lost in one direction; `None` if losses are not independent.
fn independent(class: &Class) -> Option<f64> {
    match class.loss {
        Loss::None => Some(0.0),
        Loss::Bernoulli(p) => Some(p),
        Loss::GilbertElliott { .. } | Loss::Exact(_) | Loss::Armed(_) | Loss::Trace(_) => None,
    }
}

/// Expected number of times per period that a working path is reported as down, if a probe is lost with probability
/// `q`: after K consecutive losses, and again after `up_after` answers have brought the path back up.
fn downs_per_period(q: f64, k: u8, up_after: u8) -> f64 {
    if q <= 0.0 {
        return 0.0;
    }
    // Mean number of trials until n consecutive events of probability p.
    let run = |p: f64, n: u8| {
        let all = libm::pow(p, n.into());
        (1.0 - all) / ((1.0 - p) * all)
    };
    1.0 / (run(q, k) + run(1.0 - q, up_after))
}

/// Compares the number of down reports of working paths with the model of losses and answers.
fn false_alarms(
    spec: &Spec,
    class: &Class,
    end: usize,
    found: &ClassStats,
    verdicts: &mut Vec<Verdict>,
) {
    let Some(lost) = independent(class) else { return };
    let q = if end == 0 { 1.0 - (1.0 - lost) * (1.0 - lost) } else { lost };
    let per_period = downs_per_period(q, spec.k, spec.keepalive().up_after);
    let path_seconds = found.exchanges as f64 * spec.t_ka.as_secs_f64();
    let expected = per_period * found.exchanges as f64;
    let downs = found.ends[end].false_positives as f64;
    let name = format!("{} at the {}", class.name, ["hosts", "anchors"][end]);
    verdicts.push(Verdict {
        what: format!("{name}: false positives a path-second"),
        found: downs / path_seconds,
        bar: format!(
            "{} (downs after K losses, up after {} answers)",
            near(expected, libm::sqrt(expected), path_seconds),
            spec.keepalive().up_after
        ),
        holds: judge(downs, expected, libm::sqrt(expected)),
    });
}

/// Compares the number of periods that end K unanswered probes with eq. 4.
fn eq_4(spec: &Spec, class: &Class, found: &ClassStats, verdicts: &mut Vec<Verdict>) {
    let Some(lost) = independent(class) else { return };
    let q = 1.0 - (1.0 - lost) * (1.0 - lost);
    let sample = false_positives::expected(q, spec.k, SAMPLE);
    let scale = found.possible as f64 / SAMPLE as f64;
    let expected = libm::pow(q, spec.k.into()) * found.possible as f64;
    let path_seconds = found.possible as f64 * spec.t_ka.as_secs_f64();
    let deviation = sample.periods_sd * libm::sqrt(scale);
    verdicts.push(Verdict {
        what: format!("{}: periods with K unanswered, a path-second", class.name),
        found: found.windows as f64 / path_seconds,
        bar: format!("{} (eq. 4)", near(expected, deviation, path_seconds)),
        holds: judge(found.windows as f64, expected, deviation),
    });
}

/// The bar of [`judge`] for a count over so many seconds.
fn near(expected: f64, deviation: f64, seconds: f64) -> String {
    if expected == 0.0 {
        return "0".into();
    }
    let [rate, off] = [expected, SIGMAS * deviation].map(|count| count / seconds);
    format!("{rate:.3e} ± {off:.1e}; from {FEWEST} expected events on, here {expected:.1}")
}

/// Returns true if a count is close to the expected one, or 0 if none is expected; `None` if too few are expected.
fn judge(found: f64, expected: f64, deviation: f64) -> Option<bool> {
    if expected == 0.0 {
        return Some(found == 0.0);
    }
    (expected >= FEWEST).then(|| (found - expected).abs() <= SIGMAS * deviation)
}
