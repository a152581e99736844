//! Fig. 11: the cost of flow mobility per packet, compared with a host with one interface, whose prefix is routed to
//! one gateway.

use std::time::Duration;

use segue_report::{Plot, Style};

use super::domain::{Domain, FIRST, SECOND};
use super::figures::Samples;
use super::steady::{Load, Stay, measure, steer};
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, row};

const FLOWS: [u16; 2] = [5, 50];
const KBIT_S: u32 = 100;
const NODES: [&str; 2] = ["LMA", "MAG"];
const HOW: [&str; 2] = ["without flow mobility", "with flow mobility"];
/// Maximum cost of flow mobility at the 90th percentile, in µs.
const MOST_US: f64 = 5.0;

/// Samples by number of flows (index in [`FLOWS`]), with and without flow mobility, and node.
type Found = [[[Samples; 2]; 2]; 2];

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let (rounds, lasts) = stage.either((1, 1), (3, 6));
    let lasts = Duration::from_secs(lasts);
    let mut all: [[[Stay; 2]; 2]; 2] = Default::default();
    for _ in 0..rounds {
        let mut domain = Domain::start(stage)?;
        steer(&domain)?;
        for how in 0..2 {
            domain.attach(stage, [&FIRST, &SECOND][how])?;
            if how == 1 {
                domain.await_mobility(stage)?;
            }
            for (place, flows) in FLOWS.into_iter().enumerate() {
                let port = 10_000 + 1_000 * how as u16 + 100 * place as u16;
                let load = Load { flows, kbit_s: KBIT_S, together: false, lasts, port };
                for (node, stay) in measure(stage, &domain, &FIRST, load)?.into_iter().enumerate() {
                    all[place][how][node].add(stay);
                }
            }
        }
    }
    let found: Found = all.each_ref().map(|flows| {
        flows.each_ref().map(|how| how.each_ref().map(|stay| Samples::new(stay.alone.clone())))
    });
    Ok(Outcome {
        figures: vec![figure(&found)],
        tables: vec![table(&found)],
        lines: lines(&found),
        conditions: format!(
            "Flows of 100 kbit/s (125 bytes every 10 ms), evenly one after the other, {} s of each in {rounds} rounds with new \
             daemons, as in Fig. 10; packets that came alone. Without: the host has one interface, and one binding for its \
             prefix. With: it has two, and each flow has a binding. The MAG does the same in both: its difference shows how far \
             two measurements are from each other.",
            lasts.as_secs()
        ),
    })
}

fn lines(found: &Found) -> Vec<Line> {
    let mut lines = Vec::new();
    for (flows, of) in FLOWS.into_iter().zip(found) {
        for (node, name) in NODES.into_iter().enumerate() {
            let [without, with] = [&of[0][node], &of[1][node]].map(|s| s.share(0.9));
            let cost = with - without;
            let here = format!("{cost:+.1} µs ({} and {} µs)", digits(with), digits(without));
            let paper = match (node, flows) {
                (0, 5) => "about 5 µs (30 µs with)",
                (0, _) => "almost nothing",
                _ => "none",
            };
            let what = format!("flow mobility at 90 % in the {name}, {flows} flows");
            let line = Line::new(what, paper, here);
            lines.push(match node {
                0 => line.judged(format!("at most {MOST_US} µs more"), cost <= MOST_US),
                _ => line,
            });
        }
    }
    lines
}

fn table(found: &Found) -> DataTable {
    let mut rows = Vec::new();
    for (flows, of) in FLOWS.into_iter().zip(found) {
        for (how, nodes) in HOW.into_iter().zip(of) {
            for (node, s) in NODES.into_iter().zip(nodes) {
                let us = |share| digits(s.share(share));
                rows.push(row([&node, &flows, &how, &us(0.5), &us(0.9), &us(0.99), &s.count()]));
            }
        }
    }
    DataTable {
        caption: "Time in a node, in µs".into(),
        header: header(&["node", "flows", "", "median", "90 %", "99 %", "packets"]),
        rows,
    }
}

fn figure(found: &Found) -> Figure {
    let [of_five, _] = found;
    let mut series = Vec::new();
    for (node, name) in NODES.into_iter().enumerate() {
        for (how, style) in [Style::Line, Style::Dashed].into_iter().enumerate() {
            series.push(of_five[how][node].curve(format!("{name}, {}", HOW[how]), node, style));
        }
    }
    let end = of_five.iter().flatten().map(|s| s.share(0.99)).fold(0.0, f64::max);
    Figure {
        name: "",
        caption: "Share of packets that stay no longer, 5 flows of 100 kbit/s, up to where 99 % of each are through.".into(),
        plot: Plot {
            title: "With and without flow mobility".into(),
            x_label: "time in the node (µs)".into(),
            y_label: "packets (%)".into(),
            series,
            y_from_zero: true,
            x_range: (end > 0.0).then_some((0.0, end)),
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |with: f64| {
            let samples = |us| Samples::new(vec![us; 3]);
            let how = [[samples(25.0), samples(10.0)], [samples(with), samples(10.0)]];
            lines(&[how.clone(), how])
        };
        TenTimesOff { id: "alves-fig11", right: lines(28.0), wrong: vec![lines(280.0)] }
    }
}
