//! Table 2 of paper 1 and Fig. 7 and 8 of paper 2: the processor time that an anchor spends per probe, and the number
//! of hosts that it can therefore serve.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_bench::probes::{self, BenchOptions, Point, Sweep};
use segue_bench::{Quantity, Responder};
use segue_report::{Plot, Series, Style};

use super::experiment::{
    DataTable, Experiment, Figure, Line, Needs, Outcome, PATRIARCA, SALSANO, Stage, digits, header,
    role, row,
};

/// Half of a processor, in percent.
const HALF: f64 = 50.0;
/// Probes per second of one host: two paths with two probes each.
const PROBES_OF_HOST: f64 = 4.0;
/// Number of measurements per point.
const RUNS: usize = 3;
/// Duration of each measurement.
const EACH: Duration = Duration::from_millis(500);

/// Table 2, then Fig. 7 and 8 of paper 2.
pub(crate) fn experiments() -> Vec<Experiment> {
    let of = |id, paper, title, seconds, run| Experiment {
        id,
        paper,
        title,
        takes: Duration::from_secs(seconds),
        needs: Needs::Processor,
        run,
    };
    vec![
        of("salsano-table2", SALSANO, "Keepalive rate at 50 % of a processor", 160, table2),
        of("patriarca-fig7", PATRIARCA, "Processor time against rate, user space", 60, fig7),
        of("patriarca-fig8", PATRIARCA, "Processor time against rate, kernel", 60, fig8),
    ]
}

/// The language of the responder that represents one of the papers' implementations.
fn written(responder: Responder) -> &'static str {
    match responder {
        Responder::Sip => "sipp, in C++; the papers' is in Java",
        Responder::Java => "a Java program, as the papers'",
        Responder::C => "a C program, as the paper's",
        Responder::Syscall | Responder::Batched | Responder::AfXdp => "ours, in Rust",
        Responder::Tc | Responder::Xdp | Responder::XdpBare => {
            "an eBPF program; the papers' is a kernel module"
        }
    }
}

/// A row of Table 2: the paper's implementation, its rate and number of hosts, and our responders of the same kind.
struct Kind {
    name: &'static str,
    rate: f64,
    hosts: f64,
    ours: &'static [Responder],
}

const TABLE2: [Kind; 4] = [
    Kind { name: "SIP", rate: 100.0, hosts: 25.0, ours: &[Responder::Sip] },
    Kind { name: "UDP, Java", rate: 278.0, hosts: 70.0, ours: &[Responder::Java] },
    Kind {
        name: "UDP, C (karle)",
        rate: 3_000.0,
        hosts: 750.0,
        // The first one is like the paper's; the others also answer from user space.
        ours: &[Responder::C, Responder::Syscall, Responder::Batched, Responder::AfXdp],
    },
    Kind {
        name: "kernel",
        rate: 46_512.0,
        hosts: 11_600.0,
        ours: &[Responder::Tc, Responder::Xdp],
    },
];
/// A ratio may differ from the paper's by this factor, either way, because the paper used another machine.
const FACTOR: f64 = 3.0;
/// Factor between SIP in user space and the kernel (paper 2).
const GAIN: f64 = 500.0;
/// Number of requests that arrive together.
const BURSTS: [usize; 2] = [32, 1];

/// Cost of an answered probe in µs, by responder and burst size.
type Costs = BTreeMap<(Responder, usize), Quantity>;

fn table2(stage: &Stage) -> anyhow::Result<Outcome> {
    let mut found: BTreeMap<(Responder, usize), Vec<f64>> = BTreeMap::new();
    let mut responders: Vec<Responder> =
        TABLE2.iter().flat_map(|kind| kind.ours).copied().collect();
    let mut skipped = BTreeMap::new();
    let mut method = String::new();
    for _ in 0..RUNS {
        // One run at a time, so that the user can stop in between.
        stage.check()?;
        let options = BenchOptions {
            responders: responders.clone(),
            bursts: BURSTS.to_vec(),
            runs: 1,
            duration: EACH,
            raw: false,
            sending: None,
            ..BenchOptions::default()
        };
        let report = probes::run(&options, &mut |_: &str| ())?;
        for row in &report.rows {
            found.entry((row.responder, row.burst)).or_default().push(row.cpu_us.median);
        }
        skipped.extend(report.skipped.into_iter().map(|part| (part.what, part.why)));
        method = report.method;
        responders.rotate_left(1);
    }
    let costs: Costs =
        found.into_iter().filter_map(|(key, us)| Some((key, Quantity::of(us)?))).collect();
    let mut lines: Vec<Line> = TABLE2.iter().flat_map(|kind| rate_lines(kind, &costs)).collect();
    lines.extend(ratio_lines(&costs));
    let skipped: String =
        skipped.into_iter().map(|(what, why)| format!(" Left out: {what} ({why}).")).collect();
    Ok(Outcome {
        figures: Vec::new(),
        tables: vec![table2_rows(&costs)],
        lines,
        conditions: format!(
            "All on one processor, the same requests to each; processor time charged by {method}, less that \
             of the same requests into a drop; medians of {RUNS} runs, order rotated. The papers' machines \
             ran in VirtualBox on a Core 2 Quad of 2.66 GHz: rates are not comparable one by one, their ratios are.{skipped}"
        ),
    })
}

/// Probes per second with half a processor; `None` if the cost is below the noise.
fn rate_at_half(cost: &Quantity) -> Option<f64> {
    let (us, known) = cost.cost_us();
    known.then(|| HALF / 100.0 * 1e6 / us)
}

fn whole(rate: Option<f64>) -> String {
    rate.map_or_else(|| "lost in the noise".into(), |rate| format!("{rate:.0}"))
}

fn rate_lines(kind: &Kind, costs: &Costs) -> Vec<Line> {
    let each = kind.ours.iter().map(|responder| {
        let said: Vec<String> = BURSTS
            .iter()
            .filter_map(|burst| {
                let rate = rate_at_half(costs.get(&(*responder, *burst))?);
                let hosts = rate.map(|rate| rate / PROBES_OF_HOST);
                let how = if *burst == 1 { "isolated" } else { "in bursts of 32" };
                Some(format!("{} /s, {} hosts ({how})", whole(rate), whole(hosts)))
            })
            .collect();
        Line::new(
            format!("rate at 50 %, {} (here {responder}: {})", kind.name, written(*responder)),
            format!("{:.0} /s, {:.0} hosts", kind.rate, kind.hosts),
            if said.is_empty() { "not measured".into() } else { said.join("; ") },
        )
    });
    each.collect()
}

/// The paper's ratios between adjacent rows of the table, from the costs with bursts.
fn ratio_lines(costs: &Costs) -> Vec<Line> {
    let cost = |responder| costs.get(&(responder, BURSTS[0])).map(Quantity::cost_us);
    let pairs = [
        ("Java over SIP", 2.8, Responder::Sip, Responder::Java),
        ("C over Java", 10.8, Responder::Java, Responder::C),
        ("kernel over C", 15.5, Responder::C, Responder::Tc),
    ];
    pairs
        .into_iter()
        .filter_map(|(what, paper, dear, cheap)| {
            let ((dear_us, dear_known), (cheap_us, known)) = (cost(dear)?, cost(cheap)?);
            if !dear_known {
                return None;
            }
            let ratio = dear_us / cheap_us;
            let what = format!("{what}: rate ({cheap} over {dear})");
            let (least, most) = (paper / FACTOR, paper * FACTOR);
            let line = Line::new(
                what,
                format!("a factor of {paper}"),
                match known {
                    true => format!("{ratio:.1} times"),
                    false => format!("at least {ratio:.1} times"),
                },
            );
            // If the ratio is a lower bound, only the lower limit can be judged.
            Some(match known || ratio > most {
                true => line.within(ratio, least..=most, "times"),
                false => line.judged(format!("at least {} times", digits(least)), ratio >= least),
            })
        })
        .collect()
}

fn table2_rows(costs: &Costs) -> DataTable {
    let mut rows = Vec::new();
    for kind in &TABLE2 {
        for ((responder, burst), us) in costs.iter().filter(|((r, _), _)| kind.ours.contains(r)) {
            let rate = rate_at_half(us);
            rows.push(row([
                &kind.name,
                &kind.rate,
                &kind.hosts,
                responder,
                &written(*responder),
                burst,
                &format!("{:.2} ({:.2} to {:.2})", us.median, us.min, us.max),
                &whole(rate),
                &whole(rate.map(|rate| rate / PROBES_OF_HOST)),
            ]));
        }
    }
    DataTable {
        caption: "Rate and hosts at 50 % of a processor; hosts send four probes a second".into(),
        header: header(&[
            "implementation",
            "paper: rate",
            "paper: hosts",
            "here",
            "which is",
            "burst",
            "µs a probe",
            "rate",
            "hosts",
        ]),
        rows,
    }
}

/// A measured curve and its name.
struct Curve {
    name: String,
    points: Vec<Point>,
}

impl Curve {
    fn measure(
        stage: &Stage,
        name: impl Into<String>,
        responder: Responder,
        clients: u32,
        (burst, rates): (usize, &[f64]),
    ) -> anyhow::Result<Curve> {
        stage.check()?;
        let rates = rates.to_vec();
        let sweep = Sweep { responder, rates, clients, burst, runs: RUNS, duration: EACH };
        Ok(Curve { name: name.into(), points: probes::sweep(&sweep, &mut |_: &str| ())? })
    }

    /// The least-squares line: percent of a processor when idle, and percent per probe per second.
    fn fit(&self) -> (f64, f64) {
        let n = self.points.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Point) -> f64| self.points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(&|p| p.rate), mean(&|p| p.cpu_percent.median));
        let slope =
            mean(&|p| (p.rate - x) * (p.cpu_percent.median - y)) / mean(&|p| (p.rate - x).powi(2));
        (y - slope * x, slope)
    }

    fn slope(&self) -> f64 {
        self.fit().1
    }

    /// Share of the variation that the line explains (R²).
    fn linearity(&self) -> f64 {
        let (rest, slope) = self.fit();
        let mean = self.points.iter().map(|p| p.cpu_percent.median).sum::<f64>()
            / self.points.len().max(1) as f64;
        let square = |of: &dyn Fn(&Point) -> f64| {
            self.points.iter().map(|p| (p.cpu_percent.median - of(p)).powi(2)).sum::<f64>()
        };
        1.0 - square(&|p| rest + slope * p.rate) / square(&|_| mean)
    }

    /// The rate at which the line reaches 50 %; `None` if it does not rise.
    fn rate_at_half(&self) -> Option<f64> {
        let (rest, slope) = self.fit();
        (slope > 0.0).then(|| (HALF - rest) / slope).filter(|rate| rate.is_finite())
    }

    fn linear_line(&self) -> Line {
        let fit = self.linearity();
        Line::new(
            format!("processor time against rate, {}", self.name),
            "grows linearly",
            format!("a straight line explains {:.1} % of the variation", 100.0 * fit),
        )
        .judged("at least 90 %", fit >= 0.9)
    }

    fn half_line(&self, paper: &str) -> Line {
        let rate = self.rate_at_half();
        Line::new(
            format!("rate at 50 %, {}", self.name),
            paper,
            format!("{} /s, {} hosts", whole(rate), whole(rate.map(|rate| rate / PROBES_OF_HOST))),
        )
    }
}

fn fig7(stage: &Stage) -> anyhow::Result<Outcome> {
    const RATES: [f64; 5] = [500.0, 1_000.0, 2_000.0, 4_000.0, 6_000.0];
    let curves = (1..=3)
        .map(|clients| {
            let name = format!("{clients} client{}", if clients == 1 { "" } else { "s" });
            Curve::measure(stage, name, Responder::Sip, clients, (1, &RATES))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let lines = fig7_lines(&curves);
    Ok(outcome(
        curves,
        lines,
        "SIP MESSAGE requests answered by sipp (in C++; the paper's MjSip is in Java), isolated, from 1, 2 and 3 \
         addresses.",
    ))
}

/// The lines for curves with one client and with more.
fn fig7_lines(curves: &[Curve]) -> Vec<Line> {
    let mut lines: Vec<Line> = curves.iter().map(Curve::linear_line).collect();
    let [one, .., three] = curves else { return lines };
    lines.push(one.half_line("in the order of 100 /s, 25 hosts"));
    let more = three.slope() / one.slope();
    lines.push(
        Line::new(
            "3 clients against 1 at the same rate",
            "slightly heavier, a small dependency",
            format!("{:+.0} % of processor time", 100.0 * (more - 1.0)),
        )
        .within(more, 0.9..=1.5, "times the processor time of one"),
    );
    lines
}

fn fig8(stage: &Stage) -> anyhow::Result<Outcome> {
    const RATES: [f64; 5] = [20_000.0, 40_000.0, 80_000.0, 120_000.0, 160_000.0];
    let kernel = Curve::measure(stage, "kernel (tc)", Responder::Tc, 1, (32, &RATES))?;
    let xdp = Curve::measure(stage, "kernel (XDP)", Responder::Xdp, 1, (32, &RATES))?;
    let sip = Curve::measure(stage, "SIP, user space", Responder::Sip, 1, (1, &[2_000.0, 6_000.0]));
    let lines = fig8_lines(&kernel, &xdp, &sip);
    Ok(outcome(
        vec![kernel, xdp],
        lines,
        "Segue's eBPF programs at TC and XDP, requests in bursts of 32, one client; every probe's MAC is \
         checked and its path's state kept, which the paper's kernel module did not do.",
    ))
}

fn fig8_lines(kernel: &Curve, xdp: &Curve, sip: &anyhow::Result<Curve>) -> Vec<Line> {
    let mut lines = vec![
        kernel.linear_line(),
        kernel.half_line("50 000 /s, 12 500 hosts"),
        xdp.half_line("(no XDP then)"),
    ];
    match sip {
        Ok(sip) => {
            let gain = sip.slope() / kernel.slope();
            let line = |here| {
                Line::new(
                    "gain of the kernel over SIP in user space (sipp, in C++; the paper's is in Java)",
                    "in the order of 500 times",
                    here,
                )
            };
            lines.push(match gain > 0.0 {
                true => line(format!("{gain:.0} times")).within(
                    gain,
                    GAIN / FACTOR..=GAIN * FACTOR,
                    "times",
                ),
                false => line("lost in the noise of this machine".into()),
            });
        }
        Err(error) => lines.push(Line::new(
            "gain of the kernel over SIP in user space",
            "in the order of 500 times",
            format!("not measured: {error:#}"),
        )),
    }
    lines
}

fn outcome(curves: Vec<Curve>, lines: Vec<Line>, what: &str) -> Outcome {
    let mut series = Vec::new();
    let mut rows = Vec::new();
    for (curve, role) in curves.iter().zip(role::MEASURED) {
        let points = curve.points.iter().map(|p| (p.rate, p.cpu_percent.median)).collect();
        series.push(Series::new(curve.name.clone(), Style::Line, points).role(role));
        for p in &curve.points {
            let Quantity { median, min, max } = p.cpu_percent;
            rows.push(row([
                &curve.name,
                &format!("{:.0}", p.rate),
                &format!("{} ({} to {})", digits(median), digits(min), digits(max)),
                &format!("{:.1} %", 100.0 * p.answered),
            ]));
        }
    }
    Outcome {
        figures: vec![Figure {
            name: "",
            caption: "Medians. Processor time above that of dropping the same requests.".into(),
            plot: Plot {
                title: "Processor time of the anchor".into(),
                x_label: "requests a second".into(),
                y_label: "CPU (% of one)".into(),
                series,
                y_from_zero: true,
                ..Plot::default()
            },
        }],
        tables: vec![DataTable {
            caption: "Percent of one processor: median (least to greatest)".into(),
            header: header(&["curve", "requests a second", "CPU, %", "answered"]),
            rows,
        }],
        lines,
        conditions: format!(
            "{what} Generator and responder on one processor, {RUNS} runs of {:.1} s for each point. The \
             papers' machines ran in VirtualBox on a Core 2 Quad of 2.66 GHz; what counts is the shape and the \
             ratio. Other work on this machine spoils the curve: a spread as wide as the value says so.",
            EACH.as_secs_f64()
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    fn same(value: f64) -> Quantity {
        Quantity { median: value, min: value, max: value }
    }

    /// A curve with this percentage of a processor per thousand requests per second; one point is scaled by `off`.
    fn curve(slope: f64, off: f64) -> Curve {
        let point = |i: u32| {
            let rate = 1_000.0 * f64::from(i);
            let times = if i == 2 { off } else { 1.0 };
            Point { rate, cpu_percent: same(times * slope * rate / 1e3), answered: 1.0 }
        };
        Curve { name: String::new(), points: (1..=5).map(point).collect() }
    }

    fn named(name: &str, curve: Curve) -> Curve {
        Curve { name: name.into(), ..curve }
    }

    fn table2() -> TenTimesOff {
        let lines = |dearer: Option<Responder>| {
            let of = |(responder, us): (Responder, f64)| {
                let us = if dearer == Some(responder) { 10.0 * us } else { us };
                ((responder, BURSTS[0]), same(us))
            };
            let costs = [
                (Responder::Sip, 250.0),
                (Responder::Java, 90.0),
                (Responder::C, 8.3),
                (Responder::Tc, 0.54),
            ];
            ratio_lines(&costs.map(of).into())
        };
        let each = [Responder::Sip, Responder::Java, Responder::C, Responder::Tc];
        let wrong = each.map(|responder| lines(Some(responder)));
        TenTimesOff { id: "salsano-table2", right: lines(None), wrong: wrong.into() }
    }

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let users = |slopes: [f64; 3], off: f64| {
            let of = |(i, slope)| named(&format!("{i} clients"), curve(slope, off));
            fig7_lines(&(1..=3).zip(slopes).map(of).collect::<Vec<_>>())
        };
        let kernel = |slope: f64, off: f64| {
            let [tc, xdp] = [slope, 0.3].map(|slope| curve(slope, off));
            fig8_lines(&named("tc", tc), &named("xdp", xdp), &Ok(curve(250.0, 1.0)))
        };
        vec![
            table2(),
            TenTimesOff {
                id: "patriarca-fig7",
                right: users([20.0, 21.0, 22.0], 1.0),
                wrong: vec![users([20.0, 21.0, 220.0], 1.0), users([20.0, 21.0, 22.0], 10.0)],
            },
            TenTimesOff {
                id: "patriarca-fig8",
                right: kernel(0.5, 1.0),
                wrong: vec![kernel(5.0, 1.0), kernel(0.5, 10.0)],
            },
        ]
    }
}
