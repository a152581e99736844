//! Fig. 17, 18, 22 and 23 of paper 1: the round-trip time alternates among three levels, and is averaged with plain and
//! with asymmetric time constants.

use segue_clock::Span;
use segue_report::{Plot, Series, Style};

use super::average::{spread, t_tml, tau, value_at};
use super::experiment::{DataTable, Experiment, Figure, Line, Outcome, Stage, header, role, row};
use super::track::{Course, Track};
use super::tracking::{self, Over};

/// The levels of one period, each for [`EACH_S`].
const LEVELS_MS: [u64; 4] = [200, 300, 200, 100];
const EACH_S: u64 = 5;
const PERIOD_S: u64 = EACH_S * LEVELS_MS.len() as u64;
/// The smoothing factors of the two time constants.
const FAST: f64 = 0.8;
const SLOW: f64 = 0.2;
/// Number of T_KA periods after a change of level at which an average's progress is checked: by then, the first answer
/// that reflects the change has arrived.
const AFTER_PERIODS: f64 = 2.4;

/// One of the figures.
struct Variant {
    tag: &'static str,
    t_ka_ms: u64,
    periods: u64,
    asymmetric: bool,
    over: Over,
}

const FIG17: Variant =
    Variant { tag: "levelsslow", t_ka_ms: 2_000, periods: 3, asymmetric: false, over: Over::Probe };
const FIG18: Variant = Variant { tag: "asymslow", asymmetric: true, ..FIG17 };
const FIG22: Variant = Variant { tag: "levelsfast", t_ka_ms: 200, periods: 2, ..FIG17 };
const FIG23: Variant = Variant { tag: "asymfast", asymmetric: true, ..FIG22 };
const FIG17_TUNNEL: Variant = Variant { tag: "levelsslowtun", over: Over::Tunnel, ..FIG17 };
const FIG18_TUNNEL: Variant = Variant { tag: "asymslowtun", over: Over::Tunnel, ..FIG18 };
const FIG22_TUNNEL: Variant = Variant { tag: "levelsfasttun", over: Over::Tunnel, ..FIG22 };
const FIG23_TUNNEL: Variant = Variant { tag: "asymfasttun", over: Over::Tunnel, ..FIG23 };

/// Fig. 17, 18, 22 and 23.
pub(crate) fn experiments() -> Vec<Experiment> {
    let of = |id, title, variant: &Variant, run| {
        tracking::experiment(id, title, variant.periods * PERIOD_S, run)
    };
    vec![
        of("salsano-fig17", "Average of the RTT on three levels, T_KA = 2 s", &FIG17, |stage| {
            run(stage, &FIG17)
        }),
        of("salsano-fig18", "Asymmetric average on three levels, T_KA = 2 s", &FIG18, |stage| {
            run(stage, &FIG18)
        }),
        of("salsano-fig22", "Average of the RTT on three levels, T_KA = 200 ms", &FIG22, |stage| {
            run(stage, &FIG22)
        }),
        of("salsano-fig23", "Asymmetric average on three levels, T_KA = 200 ms", &FIG23, |stage| {
            run(stage, &FIG23)
        }),
        of(
            "salsano-fig17-tunnel",
            "Average of the RTT on three levels, T_KA = 2 s, over the tunnel",
            &FIG17_TUNNEL,
            |stage| run(stage, &FIG17_TUNNEL),
        ),
        of(
            "salsano-fig18-tunnel",
            "Asymmetric average on three levels, T_KA = 2 s, over the tunnel",
            &FIG18_TUNNEL,
            |stage| run(stage, &FIG18_TUNNEL),
        ),
        of(
            "salsano-fig22-tunnel",
            "Average of the RTT on three levels, T_KA = 200 ms, over the tunnel",
            &FIG22_TUNNEL,
            |stage| run(stage, &FIG22_TUNNEL),
        ),
        of(
            "salsano-fig23-tunnel",
            "Asymmetric average on three levels, T_KA = 200 ms, over the tunnel",
            &FIG23_TUNNEL,
            |stage| run(stage, &FIG23_TUNNEL),
        ),
    ]
}

impl Variant {
    /// The rising and falling time constants of the two averages, in s. The figures of the asymmetric average show the
    /// plain slow average for comparison.
    fn taus(&self) -> [(f64, f64); 2] {
        let [fast, slow] = self.fast_and_slow();
        [(fast, if self.asymmetric { slow } else { fast }), (slow, slow)]
    }

    fn fast_and_slow(&self) -> [f64; 2] {
        [FAST, SLOW].map(|alpha| tau(self.t_ka_ms as f64 / 1e3, alpha))
    }

    fn course(&self) -> Course {
        let levels = (0..self.periods * LEVELS_MS.len() as u64).map(|i| {
            let rtt_ms = LEVELS_MS[i as usize % LEVELS_MS.len()];
            (Span::from_secs(i * EACH_S), self.over.level(rtt_ms))
        });
        Course {
            tag: self.tag,
            config: tracking::config(self.over, self.t_ka_ms, &self.taus()),
            clients: 1,
            levels: levels.collect(),
            length: Span::from_secs(self.periods * PERIOD_S),
        }
    }
}

fn run(stage: &Stage, variant: &Variant) -> anyhow::Result<Outcome> {
    Ok(outcome(variant, &variant.over.run(stage, &variant.course())?))
}

fn outcome(variant: &Variant, track: &Track) -> Outcome {
    let (t_ka, [fast, slow]) = (variant.t_ka_ms as f64 / 1e3, variant.fast_and_slow());
    let seen = Seen { track, t_ka_s: t_ka, names: names(variant, fast, slow) };
    let mut lines =
        if variant.asymmetric { seen.asymmetric_lines(variant) } else { seen.plain_lines(variant) };
    lines.push(tracking::accuracy(track, &variant.taus()));
    Outcome {
        figures: vec![seen.figure()],
        tables: vec![seen.table()],
        lines,
        conditions: format!(
            "RTT 200, 300, 200 and 100 ms for 5 s each, {} periods; T_KA = {} ms. Means, least and greatest \
             values are of the periods after the first. {}{}{}",
            variant.periods,
            variant.t_ka_ms,
            if variant.asymmetric {
                "The text does not give the two time constants of this figure; they are those of the \
                 figure with the plain average. "
            } else {
                ""
            },
            variant.over.conditions(),
            tracking::conditions(track)
        ),
    }
}

fn names(variant: &Variant, fast: f64, slow: f64) -> [String; 2] {
    let (fast, slow) = (tracking::seconds(fast), tracking::seconds(slow));
    if variant.asymmetric {
        [format!("τ = {fast} rising, {slow} falling"), format!("τ = {slow}")]
    } else {
        [format!("τ = {fast}"), format!("τ = {slow}")]
    }
}

/// The measurement, and the names of the two averages.
struct Seen<'a> {
    track: &'a Track,
    t_ka_s: f64,
    names: [String; 2],
}

impl Seen<'_> {
    fn series(&self, i: usize) -> Vec<(f64, f64)> {
        self.track.clients.first().map(|client| tracking::measured(client, i)).unwrap_or_default()
    }

    /// Mean over time, minimum and maximum, after the first period.
    fn summary(&self, series: &[(f64, f64)]) -> [f64; 3] {
        let start = PERIOD_S as f64;
        let settled: Vec<(f64, f64)> =
            series.iter().copied().filter(|(at, _)| *at >= start).collect();
        let (area, time) = settled.windows(2).fold((0.0, 0.0), |(area, time), pair| {
            let width = pair[1].0 - pair[0].0;
            (area + width * pair[0].1, time + width)
        });
        let [least, _, most] = spread(settled.iter().map(|(_, s)| *s)).unwrap_or([f64::NAN; 3]);
        [area / time, least, most]
    }

    /// T_tml in s for each change of level that the average reached in time, and the number of changes.
    fn times(&self, series: &[(f64, f64)]) -> (Vec<f64>, usize) {
        let levels = &self.track.levels;
        let ends = levels.iter().skip(2).map(|(at, _)| *at).chain([f64::INFINITY]);
        let changes = levels.windows(2).zip(ends);
        let took = changes.filter_map(|(pair, end)| {
            let [(_, old), (at, new)] = pair else { return None };
            t_tml(series, *at, end, old.rtt_ms as f64, new.rtt_ms as f64)
        });
        (took.collect(), levels.len() - 1)
    }

    fn plain_lines(&self, variant: &Variant) -> Vec<Line> {
        let (slow, imposed) = (self.series(1), self.imposed());
        let [mean, least, most] = self.summary(&slow);
        let [average, ..] = self.summary(&imposed);
        let (took, changes) = self.times(&slow);
        let reached = format!("{} of {changes} levels", took.len());
        if variant.t_ka_ms > 1_000 {
            return vec![
                Line::new(
                    format!("{}: the levels are tracked", self.names[1]),
                    "not possible to track the variations",
                    format!("within a tenth of the change at {reached}"),
                )
                .judged("not all levels within a tenth of the change", took.len() < changes),
                Line::new(
                    format!("{}: extremes", self.names[1]),
                    "maximum and minimum (300, 100 ms) are filtered out, oscillating around the average",
                    format!(
                        "{least:.0} to {most:.0} ms, mean {mean:.0} ms (mean imposed {average:.0} ms)"
                    ),
                )
                .judged(
                    format!(
                        "between 110 and 290 ms, mean within {:.0} to {:.0} ms (a tenth of the imposed)",
                        0.9 * average,
                        1.1 * average
                    ),
                    most < 290.0 && least > 110.0 && (mean - average).abs() < 0.1 * average,
                ),
            ];
        }
        let here = match spread(took.iter().copied()) {
            Some([least, median, most]) => {
                format!(
                    "median {median:.2} s ({least:.2} to {most:.2} s), within a tenth at {reached}"
                )
            }
            None => "no level is reached".into(),
        };
        // "In the order of": from half the minimum to one and a half times the maximum.
        let agrees = took.len() == changes && took.iter().all(|s| (1.0..=4.5).contains(s));
        vec![
            Line::new(
                format!("{}: delay behind the reference", self.names[1]),
                "follows quite reasonably, with a delay in the order of 2–3 s",
                here,
            )
            .judged("within a tenth at every level, each after 1.0 to 4.5 s", agrees),
        ]
    }

    fn asymmetric_lines(&self, variant: &Variant) -> Vec<Line> {
        let (asymmetric, plain) = (self.series(0), self.series(1));
        let ([mean, _, most], [other, _, highest]) =
            (self.summary(&asymmetric), self.summary(&plain));
        let [average, _, maximum] = self.summary(&self.imposed());
        let [rises, falls] = [true, false].map(|rising| self.after(&asymmetric, rising));
        let mut lines = vec![
            Line::new(
                "increases against decreases",
                "increases are followed promptly, decreases more slowly",
                format!(
                    "{} after a change {:.0} % of an increase and {:.0} % of a decrease is followed",
                    tracking::seconds(AFTER_PERIODS * variant.t_ka_ms as f64 / 1e3),
                    100.0 * rises,
                    100.0 * falls
                ),
            )
            .judged("at least 10 points more of an increase", rises > falls + 0.1),
            Line::new(
                "higher delays",
                "followed more closely than by the plain average",
                format!(
                    "mean {mean:.0} ms, greatest {most:.0} ms; plain average: {other:.0} and {highest:.0} ms"
                ),
            )
            .judged(
                "mean above that of the plain average, greatest no more than 1 ms below",
                mean > other && most > highest - 1.0,
            ),
        ];
        if variant.t_ka_ms > 1_000 {
            lines.push(Line::new(
                "what is reported when changes are too fast to follow",
                "better a value close to the maximum than the average (a wish, no number)",
                format!(
                    "mean {mean:.0} ms, between {average:.0} (mean imposed) and {maximum:.0} ms"
                ),
            ));
        }
        lines
    }

    /// Mean share of each change of level that an average had completed after [`AFTER_PERIODS`].
    fn after(&self, series: &[(f64, f64)], rising: bool) -> f64 {
        let at = |t| value_at(series, t);
        let changes = self.track.levels.windows(2).map(|pair| (pair[0], pair[1]));
        let shares: Vec<f64> = changes
            .filter(|((_, old), (_, new))| (new.rtt_ms > old.rtt_ms) == rising)
            .filter_map(|(_, (when, new))| {
                let wait = AFTER_PERIODS * self.t_ka_s;
                let (before, after) = (at(when)?, at(when + wait)?);
                let wanted = new.rtt_ms as f64 - before;
                // An average that is already at the new level has nothing to follow.
                (wanted.abs() > 10.0).then(|| ((after - before) / wanted).clamp(0.0, 1.0))
            })
            .collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }

    fn imposed(&self) -> Vec<(f64, f64)> {
        self.track.clients.first().map(|client| client.imposed.clone()).unwrap_or_default()
    }

    fn table(&self) -> DataTable {
        let cells = |name: &str, series: &[(f64, f64)]| {
            let [mean, least, most] = self.summary(series).map(|x| format!("{x:.1} ms"));
            row([&name, &mean, &least, &most])
        };
        DataTable {
            caption: "Over the periods after the first".into(),
            header: header(&["series", "mean", "least", "greatest"]),
            rows: vec![
                cells("imposed on each probe", &self.imposed()),
                cells(&self.names[0], &self.series(0)),
                cells(&self.names[1], &self.series(1)),
            ],
        }
    }

    fn figure(&self) -> Figure {
        let mut series = tracking::imposed_series(self.track);
        for (i, name) in self.names.iter().enumerate() {
            let line = Series::new(format!("measured, {name}"), Style::Line, self.series(i));
            series.push(line.role(role::MEASURED[[0, 3][i]]));
        }
        Figure {
            name: "",
            caption: "Dots: the emulator's own stamps of each probe.".into(),
            plot: Plot {
                title: "Round-trip time on three levels".into(),
                x_label: "time (s)".into(),
                y_label: "RTT (ms)".into(),
                series,
                x_range: Some((0.0, tracking::end(self.track))),
                ..Plot::default()
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::TenTimesOff;

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let all = [
            ("salsano-fig17", &FIG17),
            ("salsano-fig18", &FIG18),
            ("salsano-fig22", &FIG22),
            ("salsano-fig23", &FIG23),
            ("salsano-fig17-tunnel", &FIG17_TUNNEL),
            ("salsano-fig18-tunnel", &FIG18_TUNNEL),
            ("salsano-fig22-tunnel", &FIG22_TUNNEL),
            ("salsano-fig23-tunnel", &FIG23_TUNNEL),
        ];
        let of = |(id, variant): (&'static str, &Variant)| {
            let lines = |taus: [(f64, f64); 2], error_ms| {
                outcome(variant, &tracking::ideal(&variant.course(), &taus, error_ms)).lines
            };
            let taus = variant.taus();
            let with = |rise: f64, both: f64| {
                [(taus[0].0 * rise * both, taus[0].1 * both), (taus[1].0 * both, taus[1].1 * both)]
            };
            TenTimesOff {
                id,
                right: lines(taus, 0.5),
                wrong: vec![
                    lines(with(1.0, 10.0), 0.5),
                    lines(with(1.0, 0.1), 0.5),
                    lines(with(10.0, 1.0), 0.5),
                    lines(taus, 5.0),
                ],
            }
        };
        all.into_iter().map(of).collect()
    }
}
