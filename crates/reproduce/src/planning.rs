//! Fig. 7 to 11 of paper 1: the planner with the paper's parameters (section 4.3, eq. 1–8).

use std::time::Duration;

use segue_keepalive::planner::{self, Plan, Responsiveness, Targets};
use segue_report::{Plot, Series, Style};

use super::experiment::{
    DataTable, Experiment, Figure, Line, Needs, Outcome, SALSANO, Stage, digits, header, role, row,
};

/// The paper's example: RTT_avg 100 ms, p_loss 5 %, T_Ravg^max 500 ms, T_fp^min 10⁵ s.
const EXAMPLE: Targets = Targets {
    rtt_avg: 0.1,
    rtt_max: None,
    loss_up: 0.05,
    loss_down: 0.05,
    loss: None,
    burst: None,
    rides: false,
    responsiveness: Responsiveness::Avg(0.5),
    fp_interval: 1e5,
    t_ka_min: 0.001,
    k_max: planner::K_MAX,
};
/// T_KA^min of Fig. 7, in seconds.
const FIG7_T_KA: f64 = 0.1;
/// K of Fig. 7 and Fig. 8.
const KS: std::ops::RangeInclusive<u8> = 1..=10;

/// Fig. 7 to 11.
pub(crate) fn experiments() -> Vec<Experiment> {
    let planning = |id, title, run| Experiment {
        id,
        paper: SALSANO,
        title,
        takes: Duration::ZERO,
        needs: Needs::Nothing,
        run,
    };
    vec![
        planning("salsano-fig7", "Responsiveness against false positives, T_KA fixed", fig7),
        planning("salsano-fig8", "Admissible T_KA for each K: K* and T_KA*", fig8),
        planning("salsano-fig9", "K* and T_KA* against the loss", |_| Ok(sweep(&LOSS))),
        planning("salsano-fig10", "K* and T_KA* against the false positive interval", |_| {
            Ok(sweep(&FALSE_POSITIVES))
        }),
        planning("salsano-fig11", "K* and T_KA* against the responsiveness", |_| {
            Ok(sweep(&RESPONSIVENESS))
        }),
    ]
}

fn fig7(_: &Stage) -> anyhow::Result<Outcome> {
    let plans: Vec<Plan> = KS.map(|k| planner::evaluate(k, FIG7_T_KA, &EXAMPLE)).collect();
    let points = |of: fn(&Plan) -> f64| plans.iter().map(|p| (f64::from(p.k), of(p))).collect();
    let plot = |title: &str, y_label: &str, points: Vec<(f64, f64)>, y_log: bool| Plot {
        title: title.into(),
        x_label: "K".into(),
        y_label: y_label.into(),
        series: vec![
            Series::new(y_label, Style::Line, points.clone()).role(role::MEASURED[0]),
            Series::new("each K", Style::Dots, points).role(role::MEASURED[0]),
        ],
        y_from_zero: !y_log,
        y_log,
        ..Plot::default()
    };
    let rows = plans.iter().map(|p| {
        row([&p.k, &format!("{:.0} ms", p.t_r_avg * 1e3), &format!("{} s", digits(p.t_fp))])
    });
    Ok(Outcome {
        figures: vec![
            Figure {
                name: "",
                caption: "Average time until a fault is found (eq. 2).".into(),
                plot: plot("Responsiveness", "T_Ravg (ms)", points(|p| p.t_r_avg * 1e3), false),
            },
            Figure {
                name: "false-positives",
                caption: "Mean time between false positives (eq. 4), logarithmic.".into(),
                plot: plot("False positives", "T_fp (s)", points(|p| p.t_fp), true),
            },
        ],
        tables: vec![DataTable {
            caption: "Fig. 7 in numbers".into(),
            header: header(&["K", "T_Ravg", "T_fp"]),
            rows: rows.collect(),
        }],
        lines: growing_lines(&plans),
        conditions: "T_KA = 100 ms, RTT_avg = 100 ms, p_loss = 5 % in each direction (the paper: below \
                     5 %). Eq. 3 assumes that the largest RTT is below T_KA; with these parameters it is \
                     equal."
            .into(),
    })
}

/// Both quantities grow with K.
fn growing_lines(plans: &[Plan]) -> Vec<Line> {
    let [first, second, ..] = plans else { return Vec::new() };
    vec![
        Line::new(
            "T_Ravg with growing K",
            "a linear increase",
            format!("{:.0} ms more for each K", (second.t_r_avg - first.t_r_avg) * 1e3),
        )
        .judged(
            "T_KA = 100 ms more for each K, to 1 ns",
            plans.windows(2).all(|p| ((p[1].t_r_avg - p[0].t_r_avg) - FIG7_T_KA).abs() < 1e-9),
        ),
        Line::new(
            "T_fp with growing K",
            "an exponential increase",
            format!("{:.2} times as long for each K", second.t_fp / first.t_fp),
        )
        .judged(
            "the same ratio for each K, to 10⁻⁶",
            plans
                .windows(2)
                .all(|p| (p[1].t_fp / p[0].t_fp - second.t_fp / first.t_fp).abs() < 1e-6),
        ),
    ]
}

fn fig8(_: &Stage) -> anyhow::Result<Outcome> {
    let plan = planner::plan(&EXAMPLE)?;
    let curve = |of: fn(u8, &Targets) -> f64| {
        KS.map(|k| (f64::from(k), of(k, &EXAMPLE) * 1e3)).collect::<Vec<_>>()
    };
    let (longest, shortest) = (curve(planner::longest_period), curve(planner::shortest_period));
    let rows = longest.iter().zip(&shortest).map(|((k, longest), (_, shortest))| {
        let admissible = if shortest < longest { "yes" } else { "no" };
        row([
            k,
            &format!("{} ms", digits(*longest)),
            &format!("{} ms", digits(*shortest)),
            &admissible,
        ])
    });
    let rows = rows.collect();
    let plot = Plot {
        title: "Admissible range of T_KA".into(),
        x_label: "K".into(),
        y_label: "T_KA (ms)".into(),
        series: vec![
            Series::new("Resp. (eq. 6): T_KA below", Style::Line, longest).role(role::MEASURED[0]),
            Series::new("FPev. (eq. 7): T_KA above", Style::Line, shortest).role(role::MEASURED[1]),
            Series::new(
                format!("K* = {}, T_KA* = {:.0} ms", plan.k, plan.t_ka * 1e3),
                Style::Dots,
                vec![(f64::from(plan.k), plan.t_ka * 1e3)],
            )
            .role(role::MEASURED[2]),
        ],
        y_log: true,
        ..Plot::default()
    };
    Ok(Outcome {
        figures: vec![Figure {
            name: "",
            caption: "T_KA must lie below the first and above the second curve. Logarithmic.".into(),
            plot,
        }],
        tables: vec![DataTable {
            caption: "Fig. 8 in numbers".into(),
            header: header(&["K", "longest T_KA", "shortest T_KA", "admissible"]),
            rows,
        }],
        lines: example_lines(&plan),
        conditions: "RTT_avg = 100 ms, p_loss = 5 % in each direction, T_Ravg^max = 500 ms, T_fp^min = \
                     10⁵ s. At the paper's own optimum T_KA* is below the RTT, where the assumption of \
                     eq. 3 (largest RTT below T_KA) does not hold."
            .into(),
    })
}

/// The values that the paper's text gives for the example.
fn example_lines(plan: &Plan) -> Vec<Line> {
    vec![
        Line::new("K* of the example", "7", plan.k.to_string()).judged("7", plan.k == 7),
        Line::new("T_KA* of the example", "60 ms", format!("{:.1} ms", plan.t_ka * 1e3)).within(
            plan.t_ka * 1e3,
            59.5..=60.5,
            "ms",
        ),
    ]
}

/// One of Fig. 9 to 11: the quantity that varies, and its range.
struct Sweep {
    what: &'static str,
    range: &'static str,
    from: f64,
    to: f64,
    points: u32,
    ratios: bool,
    /// Its value in the example of Fig. 8.
    example: f64,
    /// Converts the plotted quantity to targets.
    targets: fn(f64) -> Targets,
}

const LOSS: Sweep = Sweep {
    what: "p_loss (%)",
    range: "p_loss from 0.5 % to 8 %",
    from: 0.5,
    to: 8.0,
    points: 301,
    ratios: false,
    example: 5.0,
    targets: |percent| Targets { loss_up: percent / 100.0, loss_down: percent / 100.0, ..EXAMPLE },
};
const FALSE_POSITIVES: Sweep = Sweep {
    what: "T_fp^min (s)",
    range: "T_fp^min from 100 s to 10⁶ s",
    from: 100.0,
    to: 1e6,
    points: 401,
    ratios: true,
    example: 1e5,
    targets: |seconds| Targets { fp_interval: seconds, ..EXAMPLE },
};
const RESPONSIVENESS: Sweep = Sweep {
    what: "T_Ravg^max (ms)",
    range: "T_Ravg^max from 80 ms to 2 s",
    from: 80.0,
    to: 2_000.0,
    points: 385,
    ratios: false,
    example: 500.0,
    targets: |ms| Targets { responsiveness: Responsiveness::Avg(ms / 1e3), ..EXAMPLE },
};

fn sweep(sweep: &Sweep) -> Outcome {
    let at = |i: u32| {
        let share = f64::from(i) / f64::from(sweep.points - 1);
        match sweep.ratios {
            true => sweep.from * (sweep.to / sweep.from).powf(share),
            false => sweep.from + (sweep.to - sweep.from) * share,
        }
    };
    let plans: Vec<(f64, Option<Plan>)> =
        (0..sweep.points).map(|i| (at(i), planner::plan(&(sweep.targets)(at(i))).ok())).collect();
    let points = |of: fn(&Plan) -> f64| {
        plans.iter().map(|(x, plan)| (*x, plan.as_ref().map_or(f64::NAN, of))).collect::<Vec<_>>()
    };
    let figure = |name, title: &str, y_label: &str, points, style| Figure {
        name,
        caption: String::new(),
        plot: Plot {
            title: title.into(),
            x_label: sweep.what.into(),
            y_label: y_label.into(),
            series: vec![Series::new(title, style, points).role(role::MEASURED[0])],
            y_from_zero: true,
            x_log: sweep.ratios,
            ..Plot::default()
        },
    };
    let found = || plans.iter().filter_map(|(_, plan)| plan.as_ref());
    let (k_least, k_most) =
        found().fold((u8::MAX, 0), |(low, high), p| (low.min(p.k), high.max(p.k)));
    let (t_least, t_most) =
        found().fold((f64::MAX, 0.0_f64), |(low, high), p| (low.min(p.t_ka), high.max(p.t_ka)));
    let lines = vec![Line::new(
        format!("K* and T_KA*, {}", sweep.range),
        "drawn, without numbers in the text",
        format!("K* {k_least} to {k_most}, T_KA* {:.2} to {:.2} ms", t_least * 1e3, t_most * 1e3),
    )];
    let unmet = plans.len() - found().count();
    let unmet = if unmet == 0 {
        String::new()
    } else {
        format!(" For {unmet} of {} values no K gives a T_KA of 1 ms or more.", plans.len())
    };
    Outcome {
        figures: vec![
            figure("", "K*", "K*", points(|p| f64::from(p.k)), Style::Step),
            figure("period", "T_KA*", "T_KA* (ms)", points(|p| p.t_ka * 1e3), Style::Line),
        ],
        lines,
        conditions: format!(
            "The other parameters are those of Fig. 8; with {} = {} they are its example, which is judged \
             there and only there.{unmet}",
            sweep.what, sweep.example
        ),
        ..Outcome::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let plans = || KS.map(|k| planner::evaluate(k, FIG7_T_KA, &EXAMPLE)).collect::<Vec<_>>();
        let with = |change: fn(&mut Plan)| {
            let mut plans = plans();
            change(&mut plans[4]);
            growing_lines(&plans)
        };
        let plan = || planner::plan(&EXAMPLE).unwrap();
        let mut all = vec![
            TenTimesOff {
                id: "salsano-fig7",
                right: growing_lines(&plans()),
                wrong: vec![with(|plan| plan.t_r_avg *= 10.0), with(|plan| plan.t_fp *= 10.0)],
            },
            TenTimesOff {
                id: "salsano-fig8",
                right: example_lines(&plan()),
                wrong: vec![
                    example_lines(&Plan { k: 10 * plan().k, ..plan() }),
                    example_lines(&Plan { t_ka: 10.0 * plan().t_ka, ..plan() }),
                ],
            },
        ];
        let drawn = [
            ("salsano-fig9", &LOSS),
            ("salsano-fig10", &FALSE_POSITIVES),
            ("salsano-fig11", &RESPONSIVENESS),
        ];
        let unjudged = |(id, of)| TenTimesOff { id, right: sweep(of).lines, wrong: Vec::new() };
        all.extend(drawn.map(unjudged));
        all
    }
}
