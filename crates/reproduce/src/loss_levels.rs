//! Fig. 24 of paper 1: how the measured one-way loss follows a loss on three levels.

use segue_clock::Span;
use segue_keepalive::Config;
use segue_report::{Plot, Series, Style};

use super::average::{eq13, spread, tau, value_at};
use super::experiment::{DataTable, Experiment, Figure, Line, Outcome, Stage, header, role, row};
use super::track::{Client, Course, Level, Look, Track};
use super::tracking::{self, Over};

const TAG: &str = "losslevels";
const TUNNEL_TAG: &str = "losslevelstun";
const T_KA_MS: u64 = 200;
/// Probes of a loss interval.
const N: u32 = 10;
const ALPHA: f64 = 0.8;
/// One packet of this many is lost; the period begins again at the end.
const ONE_OF: [u64; 5] = [1_000, 10, 5, 10, 1_000];
const EACH_S: u64 = 15;
const LENGTH_S: u64 = EACH_S * ONE_OF.len() as u64;
const RTT_MS: u64 = 100;
/// Largest error of an average, in percentage points. The start of each level is not counted, and a
/// raw value moves in steps of ten.
const POINTS: f64 = 2.5;
/// Seconds at the start of a level during which the average still moves.
const SETTLE_S: f64 = 6.0;

/// Fig. 24.
pub(crate) fn experiments() -> Vec<Experiment> {
    let title = "One-way loss on three levels, T_KA = 200 ms, N = 10";
    let over = "One-way loss on three levels, T_KA = 200 ms, N = 10, over the tunnel";
    vec![
        tracking::experiment("salsano-fig24", title, LENGTH_S, |stage| run(stage, Over::Probe)),
        tracking::experiment("salsano-fig24-tunnel", over, LENGTH_S, |stage| {
            run(stage, Over::Tunnel)
        }),
    ]
}

fn run(stage: &Stage, over: Over) -> anyhow::Result<Outcome> {
    let t_l = T_KA_MS as f64 / 1e3 * f64::from(N);
    let tau = tau(t_l, ALPHA);
    let levels = ONE_OF.iter().enumerate().map(|(i, n)| {
        let level = match over {
            Over::Probe => Level { one_lost_of: Some(*n), ..Level::of(RTT_MS) },
            Over::Tunnel => Level { random_loss: 1.0 / *n as f64, ..Level::of(RTT_MS) },
        };
        (Span::from_secs(i as u64 * EACH_S), level)
    });
    let course = Course {
        tag: if over == Over::Tunnel { TUNNEL_TAG } else { TAG },
        config: Config { n: N, ..tracking::config(over, T_KA_MS, &[(tau, tau)]) },
        clients: 1,
        levels: levels.collect(),
        length: Span::from_secs(LENGTH_S),
    };
    let track = over.run(stage, &course)?;
    let rows = level_rows(&track, over, (t_l, tau));
    let mut lines: Vec<Line> = rows.iter().map(LevelRow::line).collect();
    // A daemon reports its averages, but not the ratio of each interval.
    if over == Over::Probe {
        lines.extend(track.clients.first().map(delay_line));
    }
    Ok(Outcome {
        figures: vec![figure(&track, t_l, tau)],
        tables: vec![DataTable {
            caption: format!(
                "Loss in each level, in %. Imposed: the emulator's drops. Measured: mean of the average \
                 from {SETTLE_S:.0} s after the beginning of the level on."
            ),
            header: header(&[
                "level",
                "up imposed",
                "up measured",
                "down imposed",
                "down measured",
            ]),
            rows: rows.iter().map(LevelRow::cells).collect(),
        }],
        lines,
        conditions: format!(
            "Loss 0.1, 10, 20, 10 and again 0.1 % in each direction for {EACH_S} s each: {}. RTT {RTT_MS} ms (the paper gives none), T_KA = {T_KA_MS} ms, N = {N}, so T_L = \
             {t_l:.0} s; α = {ALPHA} with T_L as reference interval is τ = {tau:.2} s. Probes alone are \
             counted, ten in an interval: a raw value moves in steps of ten per cent. {}",
            match over {
                Over::Probe =>
                    "exactly one packet of 1 000, 10, 5, so none of the 75 packets of a level of 0.1 %",
                Over::Tunnel =>
                    "at random; imposed is what eq. 13 makes of the share that was dropped between two \
                                 changes of the average",
            },
            tracking::conditions(&track)
        ),
    })
}

/// Loss of one level in per cent, imposed and measured, up and down.
struct LevelRow {
    /// When it began, in s.
    from: f64,
    set: f64,
    imposed: [f64; 2],
    measured: [f64; 2],
}

impl LevelRow {
    fn cells(&self) -> Vec<String> {
        let percent = |x: f64| format!("{x:.1}");
        let ([up, down], [up_seen, down_seen]) =
            (self.imposed.map(percent), self.measured.map(percent));
        row([&percent(self.set), &up, &up_seen, &down, &down_seen])
    }

    fn line(&self) -> Line {
        let far = self.imposed.iter().zip(self.measured).map(|(a, b)| (a - b).abs());
        Line::new(
            format!("loss from {:.0} s on", self.from),
            format!("{:.1} %, followed by the average", self.set),
            format!(
                "up {:.1} % (imposed {:.1}), down {:.1} % (imposed {:.1})",
                self.measured[0], self.imposed[0], self.measured[1], self.imposed[1]
            ),
        )
        .judged(
            format!("both within {POINTS} points of what was imposed"),
            far.fold(0.0, f64::max) <= POINTS,
        )
    }
}

fn level_rows(track: &Track, over: Over, (t_l, tau): (f64, f64)) -> Vec<LevelRow> {
    let Some(client) = track.clients.first() else { return Vec::new() };
    let perfect = [0, 1].map(|way| perfect(client, way, t_l, tau));
    let ends = track.levels.iter().skip(1).map(|(at, _)| *at).chain([tracking::end(track)]);
    let each = track.levels.iter().zip(ends);
    each.map(|((from, level), to)| {
        let dropped = |packets: &[(f64, bool)]| {
            mean(
                packets
                    .iter()
                    .filter(|(at, _)| *at >= *from && *at < to)
                    .map(|(_, lost)| f64::from(u8::from(*lost)) * 100.0),
            )
        };
        let settled =
            || client.looks.iter().filter(|look| look.at >= from + SETTLE_S && look.at < to);
        let average =
            |way: usize| mean(settled().filter_map(|l| l.owl_ewma[way]).map(|x| x * 100.0));
        LevelRow {
            from: *from,
            set: percent(level),
            imposed: match over {
                Over::Probe => [dropped(&client.requests), dropped(&client.answers)],
                Over::Tunnel => perfect
                    .each_ref()
                    .map(|series| mean(settled().filter_map(|look| value_at(series, look.at)))),
            },
            measured: [average(0), average(1)],
        }
    })
    .collect()
}

/// Eq. 13 applied to the drops of a direction, in per cent. It has a value for each change of the
/// measured average, over the packets that reached the emulator since the previous change.
/// Intervals that change nothing, such as lossless ones in a row, are found by their length `t_l`
/// in s.
fn perfect(client: &Client, way: usize, t_l: f64, tau: f64) -> Vec<(f64, f64)> {
    let packets = if way == 0 { &client.requests } else { &client.answers };
    let share = |from: f64, to: f64| {
        let mine = packets.iter().filter(|(at, _)| (from..to).contains(at));
        mean(mine.map(|(_, lost)| f64::from(u8::from(*lost)) * 100.0))
    };
    let mut from = client.looks.first().map_or(0.0, |look| look.at);
    let mut shares = Vec::new();
    let mut add = |from: f64, to: f64| {
        shares.extend(Some((to, share(from, to))).filter(|(_, share)| share.is_finite()));
    };
    for pair in client.looks.windows(2) {
        if pair[0].owl_ewma[way] == pair[1].owl_ewma[way] {
            continue;
        }
        let to = pair[1].at;
        while to - from > 1.5 * t_l {
            add(from, from + t_l);
            from += t_l;
        }
        add(from, to);
        from = to;
    }
    eq13(&shares, tau, tau)
}

/// The paper finds the delay of the average behind the raw values negligible.
fn delay_line(client: &Client) -> Line {
    let raw: Vec<(f64, f64)> =
        client.looks.iter().filter_map(|look| Some((look.owl_up?, look.owl_ewma[0]?))).collect();
    let shares: Vec<f64> = raw
        .windows(2)
        .filter(|pair| (pair[1].0 - pair[0].1).abs() > 0.01)
        .map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].1))
        .collect();
    let here = match spread(shares.iter().copied()) {
        Some([least, median, _]) => format!(
            "with the interval that shows a change the average follows {:.0} % of it (least {:.0} %)",
            100.0 * median,
            100.0 * least
        ),
        None => "the measured ratio did not change".into(),
    };
    let prompt = !shares.is_empty() && shares.iter().all(|share| *share >= 0.7);
    Line::new("average behind the measured ratios", "follows them with negligible delay", here)
        .judged("at least 70 % of each change with the interval that shows it", prompt)
}

fn percent(level: &Level) -> f64 {
    level.one_lost_of.map_or(100.0 * level.random_loss, |n| 100.0 / n as f64)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    if n == 0 { f64::NAN } else { sum / f64::from(n) }
}

fn average(client: &Client, way: usize) -> Vec<(f64, f64)> {
    let point = |look: &Look| Some((look.at, look.owl_ewma[way]? * 100.0));
    client.looks.iter().filter_map(point).collect()
}

/// Share of a direction's packets that the emulator dropped in each interval, in per cent.
fn dropped(packets: &[(f64, bool)], t_l: f64) -> Vec<(f64, f64)> {
    let mut bins: Vec<(u32, u32)> = Vec::new();
    for (at, lost) in packets {
        let bin = (at / t_l).max(0.0) as usize;
        bins.resize(bins.len().max(bin + 1), (0, 0));
        bins[bin].0 += 1;
        bins[bin].1 += u32::from(*lost);
    }
    let point = |(i, (n, lost)): (usize, &(u32, u32))| {
        ((i as f64 + 1.0) * t_l, 100.0 * f64::from(*lost) / f64::from((*n).max(1)))
    };
    bins.iter().enumerate().map(point).collect()
}

fn figure(track: &Track, t_l: f64, tau: f64) -> Figure {
    let empty = Client::default();
    let client = track.clients.first().unwrap_or(&empty);
    let raw = client.looks.iter().filter_map(|look| Some((look.at, look.owl_up? * 100.0)));
    let end = tracking::end(track);
    let reference = tracking::stairs(track, percent);
    Figure {
        name: "",
        caption: format!(
            "Imposed on packets: the emulator's drops of the uplink in intervals of {t_l:.0} s."
        ),
        plot: Plot {
            title: "One-way loss on three levels".into(),
            x_label: "time (s)".into(),
            y_label: "loss (%)".into(),
            series: vec![
                Series::new("imposed", Style::Dashed, reference).role(role::IMPOSED),
                Series::new("imposed on packets, up", Style::Step, dropped(&client.requests, t_l))
                    .role(role::IMPOSED),
                Series::new("measured, up, each interval", Style::Dots, raw.collect())
                    .role(role::MEASURED[1]),
                Series::new(
                    format!("measured, up, τ = {tau:.2} s"),
                    Style::Line,
                    average(client, 0),
                )
                .role(role::MEASURED[0]),
                Series::new(
                    format!("measured, down, τ = {tau:.2} s"),
                    Style::Line,
                    average(client, 1),
                )
                .role(role::MEASURED[2]),
            ],
            y_from_zero: true,
            x_range: Some((0.0, end)),
            ..Plot::default()
        },
    }
}
