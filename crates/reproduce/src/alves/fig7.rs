//! Fig. 7: how long a packet takes to pass the node, by number of rules.

use std::collections::BTreeMap;

use segue_report::{Plot, Series, Style};

use super::classifier::{Classifier, Kind};
use super::figures::Samples;
use super::node::Node;
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, role, row};

/// Numbers of rules, or of flows bound in the relay.
pub(crate) fn steps(kind: Kind, stage: &Stage) -> &'static [usize] {
    match kind {
        Kind::Ebpf => stage.either(&[1, 1_000, 100_000], &[1, 10, 100, 1_000, 10_000, 100_000]),
        _ => stage.either(&[1, 1_000], &[1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000]),
    }
}

/// Maximum ratio of the time with most flows to the time with one flow, for eBPF.
const MOST: f64 = 1.2;

/// A delay that grows by at most this factor with the rules is not noticeable.
const UNNOTICED: f64 = 1.5;
/// Iptables is the best if it takes at most this share of the time of nftables.
const BEST: f64 = 0.5;

/// Samples, by kind and number of rules.
type Found = BTreeMap<(Kind, usize), Samples>;

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let (rounds, samples) = stage.either((1, 50), (3, 100));
    let mut all: BTreeMap<(Kind, usize), Vec<f64>> = BTreeMap::new();
    let missing: Vec<(Kind, String)> =
        Kind::ALL.into_iter().filter_map(|kind| Some((kind, kind.missing()?))).collect();
    let has = |kind: &Kind| missing.iter().all(|(other, _)| other != kind);
    for _ in 0..rounds {
        for kind in Kind::ALL.into_iter().filter(has) {
            let mut node = Node::new()?;
            let ns = segue_linux::netns::Netns::open(node.ns.name().unwrap_or_default())?;
            let mut classifier = Classifier::start(kind, &ns)?;
            for rules in steps(kind, stage) {
                classifier.hold(*rules)?;
                let took = node.time(stage, samples)?;
                all.entry((kind, *rules)).or_default().extend(took.values());
            }
        }
    }
    let found: Found = all.into_iter().map(|(at, values)| (at, Samples::new(values))).collect();
    Ok(Outcome {
        figures: vec![figure(&found)],
        tables: vec![table(&found)],
        lines: lines(&found, &missing),
        conditions: format!(
            "One flow of 100 kbit/s, a packet of 125 bytes every 10 ms, from the correspondent to the host; its rule is the \
             last, and unlike packets without a rule it goes to the second of two gateways, which is checked. {} samples at \
             each step, in {rounds} rounds. From the first program on the device where a packet comes to the last on \
             the one where it leaves. Tunnels: routes with encap seg6 (iptables, nftables), the relay's (eBPF).",
            rounds * samples
        ),
    })
}

/// The smallest and the largest number of rules, with their samples.
fn ends(found: &Found, kind: Kind) -> Option<[(usize, &Samples); 2]> {
    let mut of = found.range((kind, 0)..=(kind, usize::MAX)).map(|((_, rules), s)| (*rules, s));
    let first = of.next()?;
    Some([first, of.next_back()?])
}

fn lines(found: &Found, missing: &[(Kind, String)]) -> Vec<Line> {
    let mut lines = Vec::new();
    for kind in Kind::ALL {
        let paper = match kind {
            Kind::Iptables => "75 µs with 1 000 rules",
            Kind::Rules => "about 360 µs with 1 000 rules",
            Kind::Map => "not tried",
            Kind::Ebpf => "none of its kind",
        };
        let name = kind.name();
        let Some([(few, at_few), (many, at_many)]) = ends(found, kind) else {
            let why = missing.iter().find(|(other, _)| *other == kind);
            let why = why.map_or_else(String::new, |(_, why)| why.clone());
            lines.push(Line::new(format!("time in the node, {name}"), paper, why));
            continue;
        };
        let what = format!("time in the node, {name}, {many} rules");
        let line = Line::new(what, paper, at_many.told("µs"));
        lines.push(match kind {
            Kind::Iptables => line.about(at_many.median(), 75.0, "µs (median)"),
            Kind::Rules => line.about(at_many.median(), 360.0, "µs (median)"),
            _ => line,
        });
        let ratio = at_many.median() / at_few.median();
        let what = format!("{name}: medians with {many} rules over {few}");
        let here = format!("{} times", digits(ratio));
        lines.push(match kind {
            Kind::Ebpf => {
                Line::new(what, "–", here).judged(format!("at most {MOST} times"), ratio <= MOST)
            }
            Kind::Iptables => Line::new(what, "no noticeable delay; the drawing rises", here)
                .at_most(ratio, UNNOTICED, "times"),
            _ => Line::new(what, "–", here),
        });
    }
    if let [Some([_, (many, iptables)]), Some([_, (_, rules)])] =
        [Kind::Iptables, Kind::Rules].map(|kind| ends(found, kind))
    {
        let ratio = iptables.median() / rules.median();
        let what = format!("iptables over rules of nftables, {many} rules, medians");
        let here = format!("{} times", digits(ratio));
        lines.push(
            Line::new(what, "iptables is the best: 75 of 360 µs, 0.21 times", here)
                .at_most(ratio, BEST, "times"),
        );
    }
    lines
}

fn table(found: &Found) -> DataTable {
    let us = |x: f64| digits(x);
    let rows = found.iter().map(|((kind, rules), s)| {
        row([
            &kind.name(),
            rules,
            &us(s.median()),
            &us(s.share(0.9)),
            &us(s.share(1.0)),
            &s.count(),
        ])
    });
    DataTable {
        caption: "Time in the node, in µs".into(),
        header: header(&["", "rules", "median", "90 %", "most", "packets"]),
        rows: rows.collect(),
    }
}

fn figure(found: &Found) -> Figure {
    let series = Kind::ALL.into_iter().zip(role::MEASURED).map(|(kind, role)| {
        let of = found.range((kind, 0)..=(kind, usize::MAX));
        let points = of.map(|((_, rules), s)| (*rules as f64, s.median())).collect();
        Series::new(kind.name(), Style::Line, points).role(role)
    });
    Figure {
        name: "",
        caption: "Median time of a packet in the node.".into(),
        plot: Plot {
            title: "Time in the node against number of rules".into(),
            x_label: "rules".into(),
            y_label: "time in the node (µs)".into(),
            series: series.filter(|series| !series.points.is_empty()).collect(),
            y_from_zero: true,
            x_log: true,
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |factors: [f64; 2]| {
            let of = |kind, [few, many]: [f64; 2], most| {
                let samples = |us| Samples::new(vec![us; 3]);
                [((kind, 1), samples(few)), ((kind, most), samples(many * factors[0]))]
            };
            let [iptables, mut rules, ebpf] = [
                of(Kind::Iptables, [70.0, 75.0], 1_000),
                of(Kind::Rules, [10.0, 360.0], 1_000),
                of(Kind::Ebpf, [10.0, 11.0], 100_000),
            ];
            // Only one of the two compared values is off.
            rules[1].1 = Samples::new(vec![360.0 * factors[1]; 3]);
            lines(&iptables.into_iter().chain(rules).chain(ebpf).collect(), &[])
        };
        TenTimesOff {
            id: "alves-fig7",
            right: lines([1.0, 1.0]),
            wrong: vec![lines([10.0, 1.0]), lines([1.0, 10.0])],
        }
    }

    #[test]
    fn a_way_that_this_machine_lacks_has_its_reason_and_no_number() {
        let samples = |us| Samples::new(vec![us; 3]);
        let found = Found::from([
            ((Kind::Rules, 1), samples(10.0)),
            ((Kind::Rules, 1_000), samples(80.0)),
            ((Kind::Ebpf, 1), samples(10.0)),
            ((Kind::Ebpf, 100_000), samples(12.1)),
        ]);
        let missing = [(Kind::Iptables, "not available here: no such program".to_owned())];
        let lines = lines(&found, &missing);
        let of = |name: &str| {
            let own = lines.iter().filter(move |line| line.what.contains(name));
            own.map(|line| (line.here.as_str(), line.agrees)).collect::<Vec<_>>()
        };
        assert_eq!(of("iptables"), [("not available here: no such program", None)]);
        assert_eq!(of("a rule for each flow: medians"), [("8.000 times", None)]);
        assert!(lines.iter().all(|line| !line.what.contains("iptables over")));
        assert_eq!(of("eBPF, the relay: medians"), [("1.210 times", Some(false))]);
        assert_eq!(figure(&found).plot.series.len(), 2);
    }
}
