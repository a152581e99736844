//! Fig. 10: how long packets of 50 flows take to pass the LMA and the MAG.

use std::ops::RangeInclusive;
use std::time::Duration;

use segue_report::{Plot, Series, Style};

use super::domain::{Domain, FIRST};
use super::figures::Samples;
use super::steady::{Load, Stay, measure, steer};
use crate::experiment::{DataTable, Figure, Line, Outcome, Stage, digits, header, row};

const FLOWS: u16 = 50;
const RATES: [u32; 2] = [10, 100];
const NODES: [&str; 2] = ["LMA", "MAG"];
/// The paper's "approximately twice".
const TWICE: RangeInclusive<f64> = 1.5..=2.5;

/// Measurements at one rate, in LMA and MAG.
struct Rate {
    kbit_s: u32,
    /// `spread`: flows send evenly spaced, one after another; `together`: all flows send in the same instant.
    spread: [Stay; 2],
    together: [Stay; 2],
}

impl Rate {
    /// For one node: packets that arrived alone (from spread flows), and packets that shared a poll.
    fn of(&self, node: usize) -> [Samples; 2] {
        let [alone, mut batched] = self.spread[node].samples().map(Samples::values);
        batched.extend(&self.together[node].batched);
        [alone, batched].map(Samples::new)
    }
}

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let lasts = stage.either(Duration::from_secs(2), Duration::from_secs(20));
    let mut domain = Domain::start(stage)?;
    domain.attach_both(stage)?;
    steer(&domain)?;
    let mut rates = Vec::new();
    for (place, kbit_s) in RATES.into_iter().enumerate() {
        let load = |together: bool| Load {
            flows: FLOWS,
            kbit_s,
            together,
            lasts,
            port: 10_000 + 200 * place as u16 + 100 * u16::from(together),
        };
        let spread = measure(stage, &domain, &FIRST, load(false))?;
        let together = measure(stage, &domain, &FIRST, load(true))?;
        rates.push(Rate { kbit_s, spread, together });
    }
    Ok(Outcome {
        figures: vec![alone(&rates), batches(&rates)],
        tables: vec![table(&rates)],
        lines: lines(&rates),
        conditions: format!(
            "{FLOWS} flows to a host with two interfaces, all placed before, packets of 125 bytes, {} s at each rate: once the \
             flows send evenly one after the other, once all in the same instant. The correspondent sends on one processor, \
             another handles what comes to the LMA. Batched: a node got several packets in one poll of NAPI, which a trace \
             point counts; alone: one. From the first program on the device where a packet comes to the last on the one where \
             it leaves: what it waits before the poll is in neither. In the MAG, what comes out of the tunnel is queued once more, \
             behind the rest of its poll.",
            lasts.as_secs()
        ),
    })
}

fn lines(rates: &[Rate]) -> Vec<Line> {
    let mut lines = Vec::new();
    for rate in rates {
        let kbit_s = rate.kbit_s;
        let [lma, mag] = [0, 1].map(|node| rate.of(node));
        let said = match kbit_s {
            10 => ["90 % slightly above 30 µs", "not noticeably affected by the rate"],
            _ => ["around 10 µs", "90 % in less than 15 µs"],
        };
        for ((node, paper), [alone, _]) in NODES.into_iter().zip(said).zip([&lma, &mag]) {
            let what = format!("time in the {node}, {kbit_s} kbit/s, alone");
            let line = Line::new(what, paper, alone.told("µs"));
            lines.push(match (node, kbit_s) {
                ("LMA", 10) => line.about(alone.share(0.9), 30.0, "µs (90 %)"),
                ("LMA", _) => line.about(alone.median(), 10.0, "µs (median)"),
                (_, 10) => line,
                _ => line.at_most(alone.share(0.9), 15.0, "µs (90 %)"),
            });
        }
        let [at_mag, at_lma] = [&mag[0], &lma[0]].map(Samples::median);
        let ratio = at_lma / at_mag;
        let (mag_us, lma_us) = (digits(at_mag), digits(at_lma));
        let here = format!("{} times ({lma_us} and {mag_us} µs)", digits(ratio));
        lines.push(
            Line::new(
                format!("the LMA's median over the MAG's, {kbit_s} kbit/s, alone"),
                "the LMA's about twice the MAG's",
                here,
            )
            .within(ratio, TWICE, "times"),
        );
        for (node, [alone, batched]) in NODES.into_iter().zip([&lma, &mag]) {
            let here = match batched.count() {
                0 => "no packet came with another".to_owned(),
                n => format!("{} times ({n} packets)", digits(batched.median() / alone.median())),
            };
            let paper = if node == "LMA" { "less when NAPI polls" } else { "–" };
            let what = format!("batched over alone in the {node}, {kbit_s} kbit/s, medians");
            lines.push(Line::new(what, paper, here));
        }
    }
    lines
}

fn table(rates: &[Rate]) -> DataTable {
    let mut rows = Vec::new();
    for rate in rates {
        for (node, name) in NODES.into_iter().enumerate() {
            for (how, s) in ["alone", "batched"].into_iter().zip(rate.of(node)) {
                let us = |share| if s.count() == 0 { "–".into() } else { digits(s.share(share)) };
                let cells = (us(0.5), us(0.9), us(0.99));
                rows.push(row([
                    &name,
                    &rate.kbit_s,
                    &how,
                    &cells.0,
                    &cells.1,
                    &cells.2,
                    &s.count(),
                ]));
            }
        }
    }
    DataTable {
        caption: "Time in a node, in µs".into(),
        header: header(&["node", "kbit/s", "came", "median", "90 %", "99 %", "packets"]),
        rows,
    }
}

fn curves(name: &'static str, title: &str, series: Vec<Series>) -> Figure {
    let ends = series.iter().flat_map(|s| &s.points).filter(|(_, y)| *y <= 99.0);
    let end = ends.map(|(x, _)| *x).fold(0.0, f64::max);
    Figure {
        name,
        caption: format!(
            "{title}: share of packets that stay no longer, up to where 99 % of each are through."
        ),
        plot: Plot {
            title: title.into(),
            x_label: "time in the node (µs)".into(),
            y_label: "packets (%)".into(),
            series,
            y_from_zero: true,
            x_range: (end > 0.0).then_some((0.0, end)),
            ..Plot::default()
        },
    }
}

/// Packets that arrived alone, by rate and node.
fn alone(rates: &[Rate]) -> Figure {
    let all = rates.iter().flat_map(|rate| NODES.into_iter().enumerate().map(move |n| (rate, n)));
    let series = all.enumerate().map(|(place, (rate, (node, name)))| {
        let [alone, _] = rate.of(node);
        alone.curve(format!("{name}, {} kbit/s", rate.kbit_s), place, Style::Line)
    });
    curves("", "Packets that came alone", series.collect())
}

/// Alone compared with batched, at the higher rate.
fn batches(rates: &[Rate]) -> Figure {
    let mut series = Vec::new();
    for (node, name) in NODES.into_iter().enumerate() {
        let Some(rate) = rates.last() else { continue };
        let styles = [("alone", Style::Line), ("batched", Style::Dashed)];
        for ((how, style), s) in styles.into_iter().zip(rate.of(node)) {
            if s.count() > 0 {
                series.push(s.curve(format!("{name}, {how}"), node, style));
            }
        }
    }
    curves("batches", "Alone and batched, 100 kbit/s", series)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> TenTimesOff {
        let lines = |lma: [f64; 2], mag: [f64; 2]| {
            let rate = |place: usize| {
                let stay = |us: f64| Stay { alone: vec![us; 3], batched: vec![us; 3] };
                let spread = [stay(lma[place]), stay(mag[place])];
                Rate { kbit_s: RATES[place], together: spread.clone(), spread }
            };
            lines(&[rate(0), rate(1)])
        };
        let wrong = vec![lines([300.0, 100.0], [15.0, 5.0]), lines([30.0, 10.0], [150.0, 50.0])];
        TenTimesOff { id: "alves-fig10", right: lines([30.0, 10.0], [15.0, 5.0]), wrong }
    }
}
