//! How long a fault goes unnoticed: the client machine on virtual time, compared with eq. 1 and 2.

use std::time::Duration;

use segue_clock::{Rng, Span, Time};
use segue_keepalive::{Config, State};
use segue_report::{Plot, Series, Style};

use super::experiment::{
    DataTable, Experiment, Figure, Line, Needs, Outcome, SALSANO, Stage, header, role, row,
};
use super::virtual_path::VirtualPath;

/// K, T_KA and RTT in ms. The second case is the optimum of Fig. 8, whose RTT exceeds T_KA.
const CASES: [(u8, u64, u64); 4] = [(3, 200, 100), (7, 60, 100), (2, 500, 100), (5, 100, 50)];
const TRIALS: u32 = 5_000;
const SEED: u64 = 5;

/// The experiment of this file.
pub(crate) fn experiments() -> Vec<Experiment> {
    vec![Experiment {
        id: "detection",
        paper: SALSANO,
        title: "Time until a fault is found against eq. 1 and eq. 2",
        takes: Duration::from_secs(1),
        needs: Needs::Nothing,
        run,
    }]
}

/// Results of one case, in ms, sorted.
struct Case {
    name: String,
    took: Vec<f64>,
    average: f64,
    worst: f64,
    ours: [f64; 2],
}

fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    let cases =
        CASES.iter().map(|case| measure(stage, *case)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Outcome {
        figures: vec![figure(&cases)],
        tables: vec![table(&cases)],
        lines: cases.iter().flat_map(Case::lines).collect(),
        conditions: format!(
            "{TRIALS} faults for each case, at an instant that is uniform over a period and at a place that \
             is uniform over the outgoing and incoming path (appendix II), seed {SEED}. The machine's time-out is (K + ½)·T_KA \
             after the last answer, half a period more than K·T_KA so that K losses are needed: a fault is \
             found within (K + ½)·T_KA + RTT, on average within K·T_KA + RTT/2, both half a period below the \
             paper's equations."
        ),
    })
}

fn measure(stage: &Stage, (k, t_ka_ms, rtt_ms): (u8, u64, u64)) -> anyhow::Result<Case> {
    let (t_ka, rtt) = (Span::from_millis(t_ka_ms), Span::from_millis(rtt_ms));
    let config = Config { k, t_ka, ..Config::default() };
    let mut rng = Rng::new(SEED);
    let mut took = Vec::new();
    for trial in 0..TRIALS {
        if trial.is_multiple_of(100) {
            stage.check()?;
        }
        took.push(one_fault(&config, rtt, &mut rng).as_millis_f64());
    }
    took.sort_by(f64::total_cmp);
    Ok(Case::new((k, t_ka_ms, rtt_ms), took))
}

impl Case {
    /// The measured times for K, T_KA and RTT in ms, with the predictions of the equations.
    fn new((k, t_ka_ms, rtt_ms): (u8, u64, u64), took: Vec<f64>) -> Case {
        let (periods, t_ka, rtt) = (f64::from(k), t_ka_ms as f64, rtt_ms as f64);
        Case {
            name: format!("K = {k}, T_KA = {t_ka_ms} ms, RTT = {rtt_ms} ms"),
            took,
            average: (periods + 0.5) * t_ka + rtt / 2.0,
            worst: (periods + 1.0) * t_ka + rtt,
            ours: [periods * t_ka + rtt / 2.0, (periods + 0.5) * t_ka + rtt],
        }
    }
}

/// The time from a fault until the client declares the path down.
fn one_fault(config: &Config, rtt: Span, rng: &mut Rng) -> Span {
    let mut path = VirtualPath::new(config.clone(), rtt, rng.next_u64());
    let warm_up = config.t_ka * 10 + rtt;
    let fault = path.now + warm_up + Span(rng.below(config.t_ka.0));
    // The fault breaks one direction: each probe passes the broken point once on its round trip.
    let place = Span((rtt.0 as f64 * rng.unit()) as u64);
    let cut = |sent: Time| sent + place >= fault;
    loop {
        if path.step(cut) == Some(State::Down) {
            return path.now.since(fault);
        }
    }
}

impl Case {
    fn mean(&self) -> f64 {
        self.took.iter().sum::<f64>() / self.took.len().max(1) as f64
    }

    fn greatest(&self) -> f64 {
        self.took.last().copied().unwrap_or(f64::NAN)
    }

    fn lines(&self) -> [Line; 2] {
        let (mean, greatest) = (self.mean(), self.greatest());
        // The paper gives a mean and a maximum. Detecting a fault sooner is a deviation too, except for the half period
        // by which our timeout is shorter.
        let [our_mean, our_worst] = self.ours;
        let (mean_off, worst_off) = (0.01 * our_mean, 0.01 * our_worst);
        [
            Line::new(
                format!("T_R on average, {}", self.name),
                format!("eq. 2: {:.0} ms", self.average),
                format!("{mean:.1} ms, {}", beside(mean, self.average)),
            )
            .judged(
                format!("{our_mean:.0} ± {mean_off:.0} ms, half a period below eq. 2"),
                (mean - our_mean).abs() <= mean_off,
            ),
            Line::new(
                format!("T_R at worst, {}", self.name),
                format!("eq. 1: {:.0} ms", self.worst),
                format!("{greatest:.1} ms, {}", beside(greatest, self.worst)),
            )
            .judged(
                format!(
                    "{our_worst:.0} ms, half a period below eq. 1, or up to {worst_off:.0} ms less"
                ),
                (our_worst - worst_off..=our_worst).contains(&greatest),
            ),
        ]
    }
}

/// The difference from a formula's value, in ms.
fn beside(took: f64, formula: f64) -> String {
    let word = if took <= formula { "sooner" } else { "later" };
    format!("{:.1} ms {word}", (took - formula).abs())
}

fn table(cases: &[Case]) -> DataTable {
    let ms = |x: f64| format!("{x:.1} ms");
    let rows = cases.iter().map(|case| {
        row([
            &case.name,
            &ms(case.mean()),
            &ms(case.ours[0]),
            &ms(case.average),
            &ms(case.greatest()),
            &ms(case.ours[1]),
            &ms(case.worst),
        ])
    });
    DataTable {
        caption: "Time from the fault to the verdict".into(),
        header: header(&[
            "case",
            "mean",
            "expected",
            "eq. 2",
            "greatest",
            "bound of the machine",
            "eq. 1",
        ]),
        rows: rows.collect(),
    }
}

fn figure(cases: &[Case]) -> Figure {
    /// Number of points per curve.
    const POINTS: usize = 100;
    let curve = |case: &Case| {
        let last = case.took.len().saturating_sub(1);
        (0..=POINTS)
            .filter_map(|i| {
                let share = i as f64 / POINTS as f64;
                Some((*case.took.get((share * last as f64) as usize)?, 100.0 * share))
            })
            .collect()
    };
    let mut series = Vec::new();
    for (case, role) in cases.iter().zip(role::MEASURED) {
        series.push(Series::new(case.name.clone(), Style::Line, curve(case)).role(role));
        let (short, _) = case.name.split_once(',').unwrap_or((&case.name, ""));
        let equations = vec![(case.average, 50.0), (case.worst, 100.0)];
        let name = format!("eq. 2 and 1, {short}");
        series.push(Series::new(name, Style::Dots, equations).role(role));
    }
    Figure {
        name: "",
        caption: "Share of faults that are found within a time. Dots at half height: what eq. 2 \
                  gives for the mean; at the top: what eq. 1 gives for the worst."
            .into(),
        plot: Plot {
            title: "Time until a fault is found".into(),
            x_label: "T_R (ms)".into(),
            y_label: "faults found (%)".into(),
            series,
            y_from_zero: true,
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        // As many detection times below the mean as above, and one at the bound.
        let lines = |times: f64| {
            let of = |case| {
                let [mean, worst] = Case::new(case, Vec::new()).ours;
                let mut took = vec![mean; 998];
                took.extend([2.0 * mean - worst, worst]);
                took.iter_mut().for_each(|ms| *ms *= times);
                Case::new(case, took).lines()
            };
            CASES.into_iter().flat_map(of).collect::<Vec<_>>()
        };
        let wrong = vec![lines(10.0), lines(0.1)];
        vec![TenTimesOff { id: "detection", right: lines(1.0), wrong }]
    }
}
