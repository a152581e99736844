//! Fig. 16 and Fig. 21 of paper 1: how the average follows a step in the round-trip time.

use segue_clock::Span;
use segue_report::{Mark, Plot, Series, Style};

use super::average::{eq13, spread, t_tml, tau};
use super::experiment::{DataTable, Experiment, Figure, Line, Outcome, Stage, header, role, row};
use super::track::{self, Course, Track};
use super::tracking::{self, Over};

/// The smoothing factors of the paper; the reference interval is T_KA.
pub(crate) const ALPHAS: [f64; 4] = [0.8, 0.6, 0.4, 0.2];
/// RTT before and after the step, in ms.
const FROM: u64 = 100;
const TO: u64 = 200;
/// Time of the step, in ms.
const STEP_MS: u64 = 3_750;
/// Number of clients, each with a different phase of T_KA.
const CLIENTS: u32 = 8;
/// Over the tunnel: the kernel keeps only two averages.
const TUNNEL_ALPHAS: [f64; 2] = [0.8, 0.2];

/// One of the two figures.
struct Variant {
    tag: &'static str,
    t_ka_ms: u64,
    length_s: u64,
    over: Over,
}

const FIG16: Variant = Variant { tag: "stepfast", t_ka_ms: 200, length_s: 9, over: Over::Probe };
const FIG21: Variant = Variant { tag: "stepslow", t_ka_ms: 2_000, length_s: 34, over: Over::Probe };
const FIG16_TUNNEL: Variant = Variant { tag: "stepfasttun", over: Over::Tunnel, ..FIG16 };
const FIG21_TUNNEL: Variant = Variant { tag: "stepslowtun", over: Over::Tunnel, ..FIG21 };

/// Fig. 16 and 21.
pub(crate) fn experiments() -> Vec<Experiment> {
    let of =
        |id, title, variant: &Variant, run| tracking::experiment(id, title, variant.length_s, run);
    vec![
        of("salsano-fig16", "Average of the RTT after a step, T_KA = 200 ms", &FIG16, |stage| {
            run(stage, &FIG16)
        }),
        of("salsano-fig21", "Average of the RTT after a step, T_KA = 2 s", &FIG21, |stage| {
            run(stage, &FIG21)
        }),
        of(
            "salsano-fig16-tunnel",
            "Average of the RTT after a step, T_KA = 200 ms, over the tunnel",
            &FIG16_TUNNEL,
            |stage| run(stage, &FIG16_TUNNEL),
        ),
        of(
            "salsano-fig21-tunnel",
            "Average of the RTT after a step, T_KA = 2 s, over the tunnel",
            &FIG21_TUNNEL,
            |stage| run(stage, &FIG21_TUNNEL),
        ),
    ]
}

impl Variant {
    fn taus(&self) -> Vec<f64> {
        let alphas = if self.over == Over::Tunnel { &TUNNEL_ALPHAS[..] } else { &ALPHAS[..] };
        alphas.iter().map(|alpha| tau(self.t_ka_ms as f64 / 1e3, *alpha)).collect()
    }

    fn course(&self) -> Course {
        let level = |rtt_ms| self.over.level(rtt_ms);
        Course {
            tag: self.tag,
            config: tracking::config(self.over, self.t_ka_ms, &pairs(&self.taus())),
            clients: CLIENTS,
            levels: vec![(Span::ZERO, level(FROM)), (Span::from_millis(STEP_MS), level(TO))],
            length: Span::from_secs(self.length_s),
        }
    }
}

/// Plain averages, as pairs of time constants.
fn pairs(taus: &[f64]) -> Vec<(f64, f64)> {
    taus.iter().map(|tau| (*tau, *tau)).collect()
}

fn run(stage: &Stage, variant: &Variant) -> anyhow::Result<Outcome> {
    Ok(outcome(variant, &variant.over.run(stage, &variant.course())?))
}

fn outcome(variant: &Variant, track: &Track) -> Outcome {
    let (t_ka, taus) = (variant.t_ka_ms as f64 / 1e3, variant.taus());
    let step = track.levels.last().map_or(0.0, |(at, _)| *at);
    let times = Times::of(track, step, &taus);
    let late_s = t_ka * (1.0 + variant.over.periods_lost()) + TO as f64 / 1e3;
    let mut lines = times.lines(&taus, t_ka, late_s);
    lines.push(tracking::accuracy(track, &pairs(&taus)));
    Outcome {
        figures: vec![figure(track, variant.over, step, &taus)],
        tables: vec![times.table(variant.over, &taus)],
        lines,
        conditions: format!(
            "RTT {FROM} ms, from {step:.2} s on {TO} ms, T_KA = {} ms. {} probe the same \
             course with different phases of T_KA; the figure shows the first, the table all. {}2.3 τ holds \
             for an average that moves all the time. One of probes moves when an answer comes, and the \
             first that knows of the step comes up to T_KA + {TO} ms after it; an average that is 1 ms off moves \
             T_tml by τ/10. So the bar is 2.2 τ − T_KA to 2.4 τ + {:.0} ms. {}",
            variant.t_ka_ms,
            match variant.over {
                Over::Probe => format!("{CLIENTS} clients"),
                Over::Tunnel => "Two paths".into(),
            },
            variant.over.conditions(),
            late_s * 1e3,
            tracking::conditions(track)
        ),
    }
}

/// T_tml of each time constant and client, in ms, of the measured averages and of the imposed values.
struct Times {
    measured: Vec<Vec<f64>>,
    imposed: Vec<Vec<f64>>,
    clients: usize,
}

impl Times {
    /// Uses the medians of the imposed values before and after the step as levels; forwarding takes time, so they are
    /// slightly above the configured values.
    fn of(track: &Track, step: f64, taus: &[f64]) -> Times {
        let imposed = || track.clients.iter().flat_map(|client| &client.imposed);
        let median = |after: bool| {
            let side = imposed().filter(|(at, _)| (*at > step) == after).map(|(_, rtt)| *rtt);
            spread(side).map_or(f64::NAN, |[_, median, _]| median)
        };
        let (from, to) = (median(false), median(true));
        let took = |series: &[(f64, f64)]| {
            t_tml(series, step, f64::INFINITY, from, to).map(|took| took * 1e3)
        };
        let each = |of: &dyn Fn(usize, &track::Client) -> Option<f64>| {
            (0..taus.len())
                .map(|i| track.clients.iter().filter_map(|c| of(i, c)).collect())
                .collect()
        };
        Times {
            measured: each(&|i, client| took(&tracking::measured(client, i))),
            imposed: each(&|i, client| took(&eq13(&client.imposed, taus[i], taus[i]))),
            clients: track.clients.len(),
        }
    }

    fn lines(&self, taus: &[f64], t_ka: f64, late_s: f64) -> Vec<Line> {
        let line = |(i, tau): (usize, &f64)| {
            let formula = tau * 1e3 * 10f64.ln();
            let late = late_s * 1e3;
            // An error of 1 ms in the step of 100 ms shifts the instant at which the average is within a tenth by τ/10.
            let off = tau * 1e3 / 10.0;
            let bar = (formula - t_ka * 1e3 - off, formula + late + off);
            let all = &self.measured[i];
            let within = all.iter().filter(|ms| (bar.0..=bar.1).contains(*ms)).count();
            let here = match (spread(all.iter().copied()), spread(self.imposed[i].iter().copied()))
            {
                (Some([least, median, most]), Some([_, imposed, _])) => format!(
                    "median {median:.0} ms ({least:.0} to {most:.0}); of what was imposed {imposed:.0} ms"
                ),
                _ => "not reached".into(),
            };
            Line::new(
                format!("T_tml, τ = {}", tracking::seconds(*tau)),
                format!("2.3 τ = {formula:.0} ms"),
                here,
            )
            .judged(
                format!(
                    "all {} within {:.0} to {:.0} ms; {within} are",
                    self.clients,
                    bar.0.max(0.0),
                    bar.1
                ),
                within == self.clients,
            )
        };
        taus.iter().enumerate().map(line).collect()
    }

    fn table(&self, over: Over, taus: &[f64]) -> DataTable {
        let cells = |values: &[f64]| {
            spread(values.iter().copied()).map_or_else(
                || "–".to_owned(),
                |[least, median, most]| format!("{median:.0} ({least:.0} to {most:.0})"),
            )
        };
        DataTable {
            caption: format!(
                "Time until the average is within a tenth of the step of the new value, in ms: \
                 median (least to greatest) over the {}s",
                over.one()
            ),
            header: header(&["τ", "2.3 τ", "measured", "average of what was imposed"]),
            rows: taus
                .iter()
                .enumerate()
                .map(|(i, tau)| {
                    row([
                        &tracking::seconds(*tau),
                        &format!("{:.0}", tau * 1e3 * 10f64.ln()),
                        &cells(&self.measured[i]),
                        &cells(&self.imposed[i]),
                    ])
                })
                .collect(),
        }
    }
}

fn figure(track: &Track, over: Over, step: f64, taus: &[f64]) -> Figure {
    let first = &track.clients[0];
    let end = tracking::end(track);
    let mut series = tracking::imposed_series(track);
    let near = TO as f64 - 0.1 * (TO - FROM) as f64;
    series.push(
        Series::new("within 10 % of the step", Style::Dashed, vec![(step, near), (end, near)])
            .role(role::MEASURED[4]),
    );
    for (i, tau) in taus.iter().enumerate() {
        let name = format!("measured, τ = {}", tracking::seconds(*tau));
        let line = Series::new(name, Style::Line, tracking::measured(first, i));
        series.push(line.role(role::MEASURED[i]));
    }
    Figure {
        name: "",
        caption: format!(
            "The first {}. Dots: the emulator's own stamps of each probe.",
            over.one()
        ),
        plot: Plot {
            title: format!("Round-trip time, average with {} time constants", taus.len()),
            x_label: "time (s)".into(),
            y_label: "RTT (ms)".into(),
            series,
            marks: vec![Mark { x: step, label: "step".into() }],
            x_range: Some((0.0, end)),
            ..Plot::default()
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let all = [
            ("salsano-fig16", &FIG16),
            ("salsano-fig21", &FIG21),
            ("salsano-fig16-tunnel", &FIG16_TUNNEL),
            ("salsano-fig21-tunnel", &FIG21_TUNNEL),
        ];
        let of = |(id, variant): (&'static str, &Variant)| {
            let lines = |slower: f64, error_ms: f64| {
                let taus: Vec<f64> = variant.taus().iter().map(|tau| tau * slower).collect();
                outcome(variant, &tracking::ideal(&variant.course(), &pairs(&taus), error_ms)).lines
            };
            TenTimesOff {
                id,
                right: lines(1.0, 0.5),
                wrong: vec![lines(10.0, 0.5), lines(1.0, 5.0)],
            }
        };
        all.into_iter().map(of).collect()
    }

    #[test]
    fn figure_and_table_say_how_many_averages_of_what_they_show() {
        let track = Track {
            levels: vec![(0.0, Over::Tunnel.level(FROM))],
            clients: vec![track::Client::default()],
            late_max_ms: 0.0,
            how: String::new(),
        };
        let told = |over: Over, taus: &[f64]| {
            let table = Times::of(&track, 1.0, taus).table(over, taus);
            let Figure { caption, plot, .. } = figure(&track, over, 1.0, taus);
            (plot.title, caption, table.caption)
        };
        let (title, caption, table) = told(Over::Tunnel, &[0.1, 0.9]);
        assert_eq!(title, "Round-trip time, average with 2 time constants");
        assert!(caption.starts_with("The first path. "), "{caption}");
        assert!(table.ends_with(" over the paths"), "{table}");
        let (title, caption, table) = told(Over::Probe, &[0.1, 0.2, 0.4, 0.9]);
        assert_eq!(title, "Round-trip time, average with 4 time constants");
        assert!(caption.starts_with("The first client. "), "{caption}");
        assert!(table.ends_with(" over the clients"), "{table}");
    }
}
