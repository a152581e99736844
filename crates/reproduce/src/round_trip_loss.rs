//! Appendix III of paper 1: the round-trip loss, measured without either one-way loss.

use std::time::Duration;

use segue_clock::{Rng, Span};
use segue_keepalive::Config;
use segue_wire::Mode;

use super::experiment::{DataTable, Experiment, Line, Needs, Outcome, SALSANO, Stage, header, row};
use super::virtual_path::VirtualPath;

/// Loss from client to server and back (OWLc and OWLs).
const LOSSES: [(f64, f64); 5] =
    [(0.01, 0.01), (0.05, 0.05), (0.10, 0.02), (0.02, 0.10), (0.20, 0.20)];
/// An hour of virtual time.
const PROBES: u32 = 18_000;
const T_KA: Span = Span::from_millis(200);
const RTT: Span = Span::from_millis(100);
const SEED: u64 = 3;
/// Number of standard deviations by which a run's losses may differ from the formula.
const SIGMAS: f64 = 4.0;
/// Maximum difference between measured and imposed loss, in percentage points.
const POINTS: f64 = 0.05;

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "salsano-appendix3",
        paper: SALSANO,
        title: "Round-trip loss against the one-way losses",
        takes: Duration::from_secs(1),
        needs: Needs::Nothing,
        run,
    }]
}

/// The result for one pair of losses, in percent.
struct Case {
    losses: (f64, f64),
    formula: f64,
    imposed: f64,
    measured: f64,
    intervals: u32,
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let mut cases = Vec::new();
    for losses in LOSSES {
        stage.check()?;
        cases.push(measure(losses));
    }
    let rows = cases.iter().map(|case| {
        let sum = 100.0 * (case.losses.0 + case.losses.1);
        row([
            &case.name(),
            &format!("{sum:.2} %"),
            &format!("{:.2} %", case.formula),
            &format!("{:.2} %", case.imposed),
            &format!("{:.2} %", case.measured),
            &case.intervals,
        ])
    });
    Ok(Outcome {
        figures: Vec::new(),
        tables: vec![DataTable {
            caption: "Round-trip loss: the sum that is its approximation, the formula, what was lost, what \
                      the client measured"
                .into(),
            header: header(&["OWLc, OWLs", "sum", "formula", "imposed", "measured", "intervals"]),
            rows: rows.collect(),
        }],
        lines: cases.iter().map(Case::line).collect(),
        conditions: format!(
            "The client's machine on virtual time in the mode round-trip-loss, which counts its own requests \
             and the answers to them (Fig. 20): {PROBES} requests of T_KA = {} ms, N = 10, RTT {} ms, losses \
             independent in each direction, seed {SEED}. Measured is the mean of the values of the loss \
             intervals, each weighted by the requests in it.",
            T_KA.as_millis_f64(),
            RTT.as_millis_f64()
        ),
    })
}

fn measure((up, down): (f64, f64)) -> Case {
    // A K that no run of losses reaches: a path that is down measures nothing.
    let config =
        Config { k: 60, t_ka: T_KA, n: 10, mode: Mode::RoundTripLoss, ..Config::default() };
    let mut path = VirtualPath::new(config, RTT, SEED);
    let mut rng = Rng::new(SEED);
    let (mut lost, mut weighted) = (0u32, 0.0);
    // Requests and losses up to the end of the last interval.
    let (mut counted, mut intervals) = ((0u32, 0u32), 0);
    while path.sent < PROBES {
        let mut last_gone = false;
        path.step(|_| {
            last_gone = rng.unit() < up || rng.unit() < down;
            lost += u32::from(last_gone);
            last_gone
        });
        if let Some((sent, Some(rtl))) = path.sample.as_ref().map(|(sent, s)| (*sent, s.rtl)) {
            // An interval that ends when a request is sent does not include that request.
            let lost = lost - u32::from(last_gone && sent < path.sent);
            weighted += rtl * f64::from(sent - counted.0);
            counted = (sent, lost);
            intervals += 1;
        }
    }
    let all = f64::from(counted.0.max(1));
    Case {
        losses: (up, down),
        formula: 100.0 * (up + down - up * down),
        imposed: 100.0 * f64::from(counted.1) / all,
        measured: 100.0 * weighted / all,
        intervals,
    }
}

impl Case {
    fn name(&self) -> String {
        format!("{:.0} %, {:.0} %", 100.0 * self.losses.0, 100.0 * self.losses.1)
    }

    fn line(&self) -> Line {
        let share = self.formula / 100.0;
        let off = 100.0 * SIGMAS * (share * (1.0 - share) / f64::from(PROBES)).sqrt();
        let holds = (self.measured - self.imposed).abs() <= POINTS
            && (self.imposed - self.formula).abs() <= off;
        Line::new(
            format!("round-trip loss, OWLc and OWLs {}", self.name()),
            format!("OWLc + OWLs − OWLc·OWLs = {:.2} %", self.formula),
            format!("{:.2} % (imposed {:.2} %)", self.measured, self.imposed),
        )
        .judged(
            format!(
                "within {POINTS} points of what was imposed, and that within {off:.2} ({SIGMAS:.0} σ) of the \
                 formula"
            ),
            holds,
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let lines = |imposed: f64, measured: f64| {
            let of = |losses: (f64, f64)| {
                let formula = 100.0 * (losses.0 + losses.1 - losses.0 * losses.1);
                let (imposed, measured) = (imposed * formula, measured * formula);
                Case { losses, formula, imposed, measured, intervals: 100 }.line()
            };
            LOSSES.map(of).into()
        };
        let wrong = vec![lines(1.0, 10.0), lines(10.0, 10.0)];
        vec![TenTimesOff { id: "salsano-appendix3", right: lines(1.0, 1.0), wrong }]
    }
}
