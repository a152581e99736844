//! Fig. 9: how long the first packets of new flows take to pass the anchor, whose daemon places each flow when its
//! first packet arrives.

use std::time::Duration;

use segue_report::{Plot, Series, Style};

use super::domain::{Domain, FIRST};
use super::fig8::NEW_FLOW_US;
use super::figures::Samples;
use super::packets::{self, Pace, plan};
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, role, row};

const PERIOD: Duration = Duration::from_millis(10);
const KBIT_S: u32 = 100;
/// Time between the starts of two flows.
const APART: Duration = Duration::from_millis(203);
/// Number of early packets of a flow, and the number of packets after which it is steady.
const EARLY: u32 = 10;
const STEADY: u32 = 15;
/// Maximum ratio of the time from the sixth packet on to the time in steady flows.
const MOST: f64 = 1.5;

/// (flow, position in the flow, time in µs).
type Found = Vec<(usize, u32, f64)>;

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let (rounds, flows) = stage.either((1, 10), (3, 50));
    let mut found = Found::new();
    for round in 0..rounds {
        found.extend(measure(stage, round, flows)?);
    }
    let steady = at(&found, STEADY..u32::MAX);
    Ok(Outcome {
        figures: vec![figure(&found), by_flow(&found)],
        tables: vec![table(&found, &steady)],
        lines: lines(&found, flows),
        conditions: format!(
            "{flows} flows of 100 kbit/s (125 bytes every 10 ms) to a host with two interfaces; one more begins every {} ms, \
             and the others go on; {rounds} rounds, each with daemons that have just started. The anchor's daemon, over \
             eBPF, with its own schedule.",
            APART.as_millis()
        ),
    })
}

/// Times of the packets at these positions in their flows.
fn at(found: &Found, places: std::ops::Range<u32>) -> Samples {
    let own = found.iter().filter(|(_, place, _)| places.contains(place));
    Samples::new(own.map(|(_, _, us)| *us).collect())
}

fn lines(found: &Found, flows: usize) -> Vec<Line> {
    let (first, late, steady) = (at(found, 0..1), at(found, 5..EARLY), at(found, STEADY..u32::MAX));
    let first_of = |range: std::ops::Range<usize>| {
        let own = found.iter().filter(|(flow, place, _)| *place == 0 && range.contains(flow));
        Samples::new(own.map(|(_, _, us)| *us).collect()).median()
    };
    let fifth = flows / 5;
    let ratio = late.median() / steady.median();
    vec![
        Line::new("time in the LMA, packet 1 of a flow", "an extra cost", first.told("µs"))
            .judged(format!("median under {NEW_FLOW_US} µs"), first.median() < NEW_FLOW_US),
        Line::new("time in the LMA, packets 6 to 10", "under 40 µs", late.told("µs")).at_most(
            late.share(0.9),
            40.0,
            "µs (90 %)",
        ),
        Line::new(
            "packets 6 to 10 over those of steady flows, medians",
            "soon as short as ever after the fifth",
            format!("{} times", digits(ratio)),
        )
        .at_most(ratio, MOST, "times"),
        Line::new(
            format!("packet 1 of the last {fifth} flows over that of the first {fifth}, medians"),
            "about the same",
            format!("{} times", digits(first_of(flows - fifth..flows) / first_of(0..fifth))),
        ),
    ]
}

fn measure(stage: &Stage, round: u16, count: usize) -> anyhow::Result<Found> {
    let mut domain = Domain::start(stage)?;
    domain.attach_both(stage)?;
    let _sink = domain.sink()?;
    let begins = (0..count as u32).map(|flow| APART * flow);
    let plan = plan(begins, PERIOD, APART * count as u32);
    let passages = domain.watch_anchor(plan.len() as u32)?;
    let pace = Pace::of(KBIT_S, PERIOD);
    let port = |flow| 10_000 + 100 * round + flow as u16;
    let flows: Vec<_> =
        (0..count).map(|flow| domain.flow(&FIRST, port(flow), pace)).collect::<Result<_, _>>()?;
    packets::send(stage, &flows, &plan)?;
    std::thread::sleep(PERIOD);
    let mut found = Found::new();
    for (number, packet) in plan.iter().enumerate() {
        let passage = passages.of(number as u32)?;
        if let Some(took) = passage.and_then(|passage| passage.took()) {
            found.push((packet.flow, packet.place, took.as_secs_f64() * 1e6));
        }
    }
    anyhow::ensure!(
        2 * found.len() > plan.len(),
        "{} of {} packets passed",
        found.len(),
        plan.len()
    );
    Ok(found)
}

/// Samples of each of the early packets.
fn early(found: &Found) -> Vec<Samples> {
    let of = |place| {
        let own = found.iter().filter(|(_, at, _)| *at == place);
        Samples::new(own.map(|(_, _, us)| *us).collect())
    };
    (0..EARLY).map(of).collect()
}

fn table(found: &Found, steady: &Samples) -> DataTable {
    let all = early(found).into_iter().enumerate();
    let named = all.map(|(place, s)| ((place + 1).to_string(), s));
    let rows = named.chain([("steady".to_owned(), steady.clone())]).map(|(name, s)| {
        let us = |share| digits(s.share(share));
        row([&name, &us(0.5), &us(0.9), &us(1.0), &s.count()])
    });
    DataTable {
        caption: "Time in the LMA by the packet's place in its flow, in µs".into(),
        header: header(&["packet", "median", "90 %", "most", "packets"]),
        rows: rows.collect(),
    }
}

fn figure(found: &Found) -> Figure {
    let early = early(found);
    let curve = |name: &str, share: f64, role: &str| {
        let points = early.iter().enumerate();
        let points = points.map(|(place, s)| (place as f64 + 1.0, s.share(share))).collect();
        Series::new(name, Style::Line, points).role(role)
    };
    Figure {
        name: "",
        caption: "Time in the LMA of the first ten packets of new flows.".into(),
        plot: Plot {
            title: "The first packets of a flow".into(),
            x_label: "packet".into(),
            y_label: "time in the LMA (µs)".into(),
            series: vec![
                curve("median", 0.5, role::MEASURED[0]),
                curve("90 %", 0.9, role::MEASURED[1]),
            ],
            y_from_zero: true,
            ..Plot::default()
        },
    }
}

fn by_flow(found: &Found) -> Figure {
    let of = |place: u32| {
        let own = found.iter().filter(move |(_, at, _)| *at == place);
        own.map(|(flow, _, us)| (*flow as f64 + 1.0, *us)).collect()
    };
    let series = [0, 1, 5].into_iter().zip(role::MEASURED).map(|(place, role)| {
        Series::new(format!("packet {}", place + 1), Style::Dots, of(place)).role(role)
    });
    Figure {
        name: "flows",
        caption: "The same by how many flows there are.".into(),
        plot: Plot {
            title: "The first packets by flow".into(),
            x_label: "flow".into(),
            y_label: "time in the LMA (µs)".into(),
            series: series.collect(),
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
        let lines = |first: f64, late: f64| {
            let of = |flow: usize| [(flow, 0, first), (flow, 7, late), (flow, 20, 12.0)];
            lines(&(0..10).flat_map(of).collect(), 10)
        };
        TenTimesOff {
            id: "alves-fig9",
            right: lines(80.0, 12.0),
            wrong: vec![lines(800.0, 12.0), lines(80.0, 120.0)],
        }
    }
}
