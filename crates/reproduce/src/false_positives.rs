//! How often a working path is declared down, by eq. 4, by the exact Markov chain, and by the client machine.

use std::time::Duration;

use segue_keepalive::false_positives::{Counts, Expected, expected, observe};
use segue_report::{Plot, Series, Style};

use super::experiment::{
    DataTable, Experiment, Figure, Line, Needs, Outcome, SALSANO, Stage, digits, header, role, row,
};

/// Loss in each direction.
const LOSSES: [f64; 4] = [0.01, 0.03, 0.05, 0.08];
const KS: std::ops::RangeInclusive<u8> = 2..=7;
/// T_KA in s, to convert probes to time.
const T_KA: f64 = 0.1;
const SEED: u64 = 4;
/// Probes per simulation, in parts so that the user can stop between them.
const PROBES: u64 = PARTS * PART;
const PARTS: u64 = 10;
const PART: u64 = 100_000;
/// Simulations with fewer expected false positives than this are skipped.
const EVENTS_LEAST: f64 = 20.0;
/// A count agrees with its expectation within this many standard deviations.
const SIGMAS: f64 = 4.0;

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "false-positives",
        paper: SALSANO,
        title: "Interval between false positives: eq. 4, exact chain, simulated machine",
        takes: Duration::from_secs(10),
        needs: Needs::Nothing,
        run,
    }]
}

/// The result for one loss and one K.
struct Point {
    loss: f64,
    k: u8,
    q: f64,
    expected: Expected,
    counts: Option<Counts>,
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let mut points = Vec::new();
    for loss in LOSSES {
        for k in KS {
            let q = 2.0 * loss - loss * loss;
            let expected = expected(q, k, PROBES);
            let enough = expected.downs >= EVENTS_LEAST;
            let counts = enough.then(|| simulate(stage, loss, k)).transpose()?;
            points.push(Point { loss, k, q, expected, counts });
        }
    }
    Ok(Outcome {
        figures: vec![figure(&points)],
        tables: vec![table(&points)],
        lines: LOSSES.iter().flat_map(|loss| lines(*loss, &points)).collect(),
        conditions: format!(
            "T_KA = {T_KA} s, RTT a fifth of it, independent losses of p in each direction, q = 2p − p². \
             Eq. 4 counts every period that ends K unanswered probes; runs longer than K make several. A path \
             goes down once for each run, every T_KA/((1 − q)·q^K) if the first answer brings it up again, as \
             here; with more answers asked for it takes longer. Simulated: the client's machine on virtual \
             time, {PROBES} probes for each point, seeds from {SEED}; where fewer than {EVENTS_LEAST:.0} \
             changes to down are to be expected it is left out. A count agrees within {SIGMAS:.0} standard \
             deviations of the exact Markov chain."
        ),
    })
}

fn simulate(stage: &Stage, loss: f64, k: u8) -> anyhow::Result<Counts> {
    let mut sum = Counts::default();
    for part in 0..PARTS {
        stage.check()?;
        let Counts { periods, downs } = observe(loss, k, PART, SEED + part + PARTS * u64::from(k));
        sum = Counts { periods: sum.periods + periods, downs: sum.downs + downs };
    }
    Ok(sum)
}

/// Mean time in s between events, for this number of events.
fn interval(events: f64) -> f64 {
    PROBES as f64 * T_KA / events
}

impl Point {
    fn formula(&self) -> f64 {
        T_KA / self.q.powi(self.k.into())
    }

    fn simulated(&self) -> Option<[f64; 2]> {
        let Counts { periods, downs } = self.counts?;
        Some([interval(periods as f64), interval(downs as f64)])
    }

    /// Compares both counts with the chain, and eq. 4 with the chain's count of periods.
    fn agrees(&self) -> [bool; 2] {
        let Counts { periods, downs } = self.counts.unwrap_or_default();
        let near = |count: u64, mean: f64, sd: f64| (count as f64 - mean).abs() <= SIGMAS * sd;
        let Expected { periods: mean, periods_sd, downs: mean_downs, downs_sd } = self.expected;
        let eq4 = (interval(mean) / self.formula() - 1.0).abs() < 0.01;
        [near(periods, mean, periods_sd) && eq4, near(downs, mean_downs, downs_sd)]
    }
}

fn lines(loss: f64, points: &[Point]) -> [Line; 2] {
    let mine: Vec<&Point> =
        points.iter().filter(|p| p.loss == loss && p.counts.is_some()).collect();
    let q = mine.first().map_or(f64::NAN, |p| p.q);
    let said = |which: usize, against: &dyn Fn(&Point) -> f64| {
        let each = mine.iter().filter_map(|p| {
            let simulated = p.simulated()?[which];
            let ratio = simulated / against(p);
            Some(format!("K = {}: {} s ({ratio:.2} times)", p.k, digits(simulated)))
        });
        each.collect::<Vec<_>>().join("; ")
    };
    let all = |which: usize| mine.iter().all(|p| p.agrees()[which]);
    let p = format!("p = {:.0} %", loss * 100.0);
    [
        Line::new(
            format!("T_fp as eq. 4 counts, {p}"),
            format!("T_KA/q^K, q = {:.2} %", q * 100.0),
            said(0, &Point::formula),
        )
        .judged(
            format!(
                "each count within {SIGMAS:.0} σ of the exact chain, which is within 1 % of eq. 4"
            ),
            all(0),
        ),
        Line::new(
            format!("time between changes to down, {p}"),
            format!("(exact chain: {:.2} times eq. 4)", 1.0 / (1.0 - q)),
            said(1, &Point::formula),
        )
        .judged(format!("each count within {SIGMAS:.0} σ of the exact chain"), all(1)),
    ]
}

fn table(points: &[Point]) -> DataTable {
    let rows = points.iter().map(|p| {
        let counted = p.simulated().map(|both| both.map(digits));
        let [periods, downs] = counted.unwrap_or_else(|| ["–".into(), "–".into()]);
        let events = p.counts.map_or_else(|| "–".into(), |counts| counts.downs.to_string());
        row([
            &format!("{:.0} %", p.loss * 100.0),
            &p.k,
            &digits(p.formula()),
            &periods,
            &digits(interval(p.expected.downs)),
            &downs,
            &events,
        ])
    });
    DataTable {
        caption: "Mean time in s between periods that end K unanswered probes, and between changes to down"
            .into(),
        header: header(&[
            "p",
            "K",
            "eq. 4",
            "simulated",
            "down, exact",
            "down, simulated",
            "changes to down",
        ]),
        rows: rows.collect(),
    }
}

fn figure(points: &[Point]) -> Figure {
    let mut series = Vec::new();
    for (loss, role) in LOSSES.into_iter().zip(role::MEASURED) {
        let mine = || points.iter().filter(move |p| p.loss == loss);
        let formula = mine().map(|p| (f64::from(p.k), p.formula())).collect();
        let simulated = mine().filter_map(|p| Some((f64::from(p.k), p.simulated()?[0]))).collect();
        let p = format!("p = {:.0} %", loss * 100.0);
        series.push(Series::new(format!("{p}, eq. 4"), Style::Dashed, formula).role(role));
        series.push(Series::new(format!("{p}, simulated"), Style::Dots, simulated).role(role));
    }
    Figure {
        name: "",
        caption: "Logarithmic. A dot is the simulated machine, counted as eq. 4 counts.".into(),
        plot: Plot {
            title: "Mean time between false positives".into(),
            x_label: "K".into(),
            y_label: "T_fp (s)".into(),
            series,
            y_log: true,
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let all = |times: [f64; 2]| {
            let of = |loss: f64| {
                let q = 2.0 * loss - loss * loss;
                let expected = expected(q, 2, PROBES);
                let [periods, downs] = [expected.periods * times[0], expected.downs * times[1]];
                let counts = Some(Counts { periods: periods as u64, downs: downs as u64 });
                Point { loss, k: 2, q, expected, counts }
            };
            let points = LOSSES.map(of);
            LOSSES.iter().flat_map(|loss| lines(*loss, &points)).collect::<Vec<_>>()
        };
        let wrong = vec![all([10.0, 1.0]), all([1.0, 10.0])];
        vec![TenTimesOff { id: "false-positives", right: all([1.0; 2]), wrong }]
    }
}
