//! Fig. 8: how long it takes to add the rule for one more flow, by number of rules.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Instant;

use segue_linux::netns::Netns;
use segue_report::{Plot, Series, Style};

use super::classifier::{Classifier, Kind};
use super::fig7::steps;
use super::figures::Samples;
use super::node::{Node, must};
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, role, row};

/// Maximum time to add a flow in the relay, in µs.
pub(crate) const NEW_FLOW_US: f64 = 100.0;
/// Range of the ratio, most rules to fewest, that counts as constant.
const CONSTANT: RangeInclusive<f64> = 0.67..=1.5;
/// Iptables is the best if it takes at most this share of the time of nftables.
const BEST: f64 = 0.5;

/// Samples in µs, by kind and number of rules.
type Found = BTreeMap<(Kind, usize), Samples>;

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let samples = stage.either(10, 100);
    let mut found = Found::new();
    let mut lines = Vec::new();
    let mut starts = Vec::new();
    for kind in Kind::ALL {
        if let Some(why) = kind.missing() {
            lines.push(Line::new(format!("time to add a rule, {}", kind.name()), paper(kind), why));
            continue;
        }
        let node = Node::new()?;
        let ns = Netns::open(node.ns.name().unwrap_or_default())?;
        let mut classifier = Classifier::start(kind, &ns)?;
        for rules in steps(kind, stage) {
            classifier.hold(*rules)?;
            let mut took = Vec::new();
            for _ in 0..samples {
                stage.check()?;
                took.push(classifier.insertion()?.as_secs_f64() * 1e6);
            }
            found.insert((kind, *rules), Samples::new(took));
        }
        starts.extend(started(kind)?.map(|us| format!("{us:.0} µs of {}", kind.name())));
        lines.extend(told(&found, kind));
    }
    lines.extend(compared(&found));
    Ok(Outcome {
        figures: vec![figure(&found)],
        tables: vec![table(&found)],
        lines,
        conditions: format!(
            "{samples} samples at each step; each rule is added while that many are there, and goes again. iptables and \
             nftables: the command from start to end, as the paper's manager has only commands; of that, a command that does \
             nothing takes {}. eBPF: the call by which the daemon binds a flow, books and map.",
            starts.join(", ")
        ),
    })
}

/// Median time of a command that does nothing, in µs.
fn started(kind: Kind) -> anyhow::Result<Option<f64>> {
    let mut took = Vec::new();
    for _ in 0..10 {
        let Some(mut idle) = kind.idle() else { return Ok(None) };
        let began = Instant::now();
        must(&mut idle)?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Some(Samples::new(took).median()))
}

fn paper(kind: Kind) -> &'static str {
    match kind {
        Kind::Iptables => "about 25 ms, up to about 75 ms with 1 000 rules",
        Kind::Rules => "180 ms, however many",
        Kind::Map => "not tried",
        Kind::Ebpf => "none of its kind; 25 to 180 ms",
    }
}

fn told(found: &Found, kind: Kind) -> Vec<Line> {
    let of: Vec<(usize, &Samples)> =
        found.range((kind, 0)..=(kind, usize::MAX)).map(|((_, rules), s)| (*rules, s)).collect();
    let (Some((few, first)), Some((many, last))) = (of.first(), of.last()) else {
        return Vec::new();
    };
    let name = kind.name();
    let here = format!(
        "median {} µs with {few}, {} µs with {many}",
        digits(first.median()),
        digits(last.median())
    );
    let line = Line::new(format!("time to add a rule, {name}"), paper(kind), here);
    match kind {
        Kind::Ebpf => {
            let worst = of.iter().map(|(_, s)| s.median()).fold(0.0, f64::max);
            let bar = format!("the median of each step under {NEW_FLOW_US} µs");
            vec![line.judged(bar, worst < NEW_FLOW_US)]
        }
        Kind::Iptables => vec![line.about(last.median() / 1e3, 75.0, "ms with the most rules")],
        Kind::Rules => {
            let ratio = last.median() / first.median();
            let constant = Line::new(
                format!("time to add a rule, {name}: medians with {many} rules over {few}"),
                "constant",
                format!("{} times", digits(ratio)),
            );
            vec![
                line.about(last.median() / 1e3, 180.0, "ms with the most rules"),
                constant.within(ratio, CONSTANT, "times"),
            ]
        }
        Kind::Map => vec![line],
    }
}

/// The paper finds that iptables is also the best at adding a rule.
fn compared(found: &Found) -> Option<Line> {
    let most = |kind| found.range((kind, 0)..=(kind, usize::MAX)).next_back().map(|(_, s)| s);
    let ratio = most(Kind::Iptables)?.median() / most(Kind::Rules)?.median();
    let here = format!("{} times", digits(ratio));
    let what = "adding a rule: iptables over rules of nftables, with the most rules, medians";
    let line = Line::new(what, "iptables is the best: 75 of 180 ms, 0.42 times", here);
    Some(line.at_most(ratio, BEST, "times"))
}

fn table(found: &Found) -> DataTable {
    let rows = found.iter().map(|((kind, rules), s)| {
        let us = |share| digits(s.share(share));
        row([&kind.name(), rules, &us(0.5), &us(0.9), &us(1.0), &s.count()])
    });
    DataTable {
        caption: "Time to add a further rule, in µs".into(),
        header: header(&["", "rules", "median", "90 %", "most", "samples"]),
        rows: rows.collect(),
    }
}

fn figure(found: &Found) -> Figure {
    let series = Kind::ALL.into_iter().zip(role::MEASURED).map(|(kind, role)| {
        let of = found.range((kind, 0)..=(kind, usize::MAX));
        let points = of.map(|((_, rules), s)| (*rules as f64, s.median() / 1e3)).collect();
        Series::new(kind.name(), Style::Line, points).role(role)
    });
    Figure {
        name: "",
        caption: "Median time to add the rule of a further flow.".into(),
        plot: Plot {
            title: "Time to add a rule against number of rules".into(),
            x_label: "rules".into(),
            y_label: "time to add a rule (ms)".into(),
            series: series.filter(|series| !series.points.is_empty()).collect(),
            x_log: true,
            y_log: true,
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        // In ms, with the fewest and with the most rules.
        let lines = |iptables: f64, rules: [f64; 2], ebpf_us: f64| {
            let samples = |ms: f64| Samples::new(vec![ms * 1e3; 3]);
            let found = Found::from([
                ((Kind::Iptables, 1), samples(25.0)),
                ((Kind::Iptables, 1_000), samples(iptables)),
                ((Kind::Rules, 1), samples(rules[0])),
                ((Kind::Rules, 1_000), samples(rules[1])),
                ((Kind::Ebpf, 1), samples(ebpf_us / 1e3)),
                ((Kind::Ebpf, 100_000), samples(ebpf_us / 1e3)),
            ]);
            let told = Kind::ALL.into_iter().flat_map(|kind| told(&found, kind));
            told.chain(compared(&found)).collect::<Vec<_>>()
        };
        let wrong = vec![
            lines(750.0, [180.0; 2], 20.0),
            lines(75.0, [18.0; 2], 20.0),
            lines(75.0, [18.0, 180.0], 20.0),
            lines(75.0, [180.0; 2], 200.0),
        ];
        TenTimesOff { id: "alves-fig8", right: lines(75.0, [180.0; 2], 20.0), wrong }
    }
}
