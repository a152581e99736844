//! Fig. 24 of paper 1: how the measured one-way loss follows a loss that alternates among three levels.

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
/// Number of probes in a loss interval.
const N: u32 = 10;
const ALPHA: f64 = 0.8;
/// One packet in this many is lost. At the end, the period begins again.
const ONE_OF: [u64; 5] = [1_000, 10, 5, 10, 1_000];
const EACH_S: u64 = 15;
const LENGTH_S: u64 = EACH_S * ONE_OF.len() as u64;
const RTT_MS: u64 = 100;
/// More than any run of losses: the path must not go down, since losses of an outage are excluded from the averages.
const K: u8 = 30;
/// Maximum error of an average, in percentage points, except at the start of each level.
const POINTS: f64 = 0.8;
/// Seconds at the start of a level in which the average is still moving.
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

/// T_L and the time constant in s.
fn times() -> (f64, f64) {
    let t_l = T_KA_MS as f64 / 1e3 * f64::from(N);
    (t_l, tau(t_l, ALPHA))
}

fn course(over: Over) -> Course {
    let (_, tau) = times();
    let levels = ONE_OF.iter().enumerate().map(|(i, n)| {
        let level = match over {
            Over::Probe => Level { one_lost_of: Some(*n), ..Level::of(RTT_MS) },
            Over::Tunnel => Level { random_loss: 1.0 / *n as f64, ..Level::of(RTT_MS) },
        };
        (Span::from_secs(i as u64 * EACH_S), level)
    });
    Course {
        tag: if over == Over::Tunnel { TUNNEL_TAG } else { TAG },
        config: Config { n: N, k: K, ..tracking::config(over, T_KA_MS, &[(tau, tau)]) },
        clients: 1,
        levels: levels.collect(),
        length: Span::from_secs(LENGTH_S),
    }
}

fn run(stage: &Stage, over: Over) -> anyhow::Result<Outcome> {
    Ok(outcome(over, &over.run(stage, &course(over))?))
}

fn outcome(over: Over, track: &Track) -> Outcome {
    let (t_l, tau) = times();
    let rows = level_rows(track, tau);
    let mut lines: Vec<Line> = rows.iter().map(LevelRow::line).collect();
    // A daemon reports its averages, but not the ratio of each interval.
    if over == Over::Probe {
        lines.extend(track.clients.first().map(delay_line));
    }
    Outcome {
        figures: vec![figure(track, t_l, tau)],
        tables: vec![DataTable {
            caption: format!(
                "Loss in each level, in %: mean of the average from {SETTLE_S:.0} s after the beginning of the level on. \
                 Imposed: eq. 13 over the emulator's drops among the packets that were counted between two changes of \
                 the measured average."
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
                Over::Tunnel => "at random",
            },
            tracking::conditions(track)
        ),
    }
}

/// Loss at one level in percent, imposed and measured, `[up, down]`.
struct LevelRow {
    /// When the level began, in s.
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

fn level_rows(track: &Track, tau: f64) -> Vec<LevelRow> {
    let Some(client) = track.clients.first() else { return Vec::new() };
    let perfect = [0, 1].map(|way| perfect(client, way, tau));
    let ends = track.levels.iter().skip(1).map(|(at, _)| *at).chain([tracking::end(track)]);
    let each = track.levels.iter().zip(ends);
    each.map(|((from, level), to)| {
        let settled =
            || client.looks.iter().filter(|look| look.at >= from + SETTLE_S && look.at < to);
        let average =
            |way: usize| mean(settled().filter_map(|l| l.owl_ewma[way]).map(|x| x * 100.0));
        LevelRow {
            from: *from,
            set: percent(level),
            imposed: perfect
                .each_ref()
                .map(|series| mean(settled().filter_map(|look| value_at(series, look.at)))),
            measured: [average(0), average(1)],
        }
    })
    .collect()
}

/// Eq. 13 applied to the emulator's drops in one direction, in percent, with one value for each change of the measured
/// average. The packet counters at two changes delimit an interval. The time of a look would be too inaccurate: the
/// daemon reads a path up to a period after the answer that ended the interval, when the next packet may already be
/// under way.
fn perfect(client: &Client, way: usize, tau: f64) -> Vec<(f64, f64)> {
    let packets = if way == 0 { &client.requests } else { &client.answers };
    let first = first_counted(client, way, packets);
    let place = |look: &Look| (first + look.counted[way].sent as usize).min(packets.len());
    let mut from = client.looks.first().map_or(0, place);
    let (mut shares, mut seen) = (Vec::new(), Vec::new());
    let mut add = |from: usize, to: usize, at: f64| {
        let lost = packets[from..to].iter().filter(|(_, lost)| *lost).count();
        if let Some((left, _)) = packets[from..to].last() {
            shares.push((*left, 100.0 * lost as f64 / (to - from) as f64));
            seen.push(at);
        }
    };
    for pair in client.looks.windows(2) {
        if pair[0].owl_ewma[way] == pair[1].owl_ewma[way] {
            continue;
        }
        let to = place(&pair[1]).max(from);
        // Consecutive lossless intervals leave an average of zero unchanged.
        while pair[0].owl_ewma[way] == Some(0.0) && 2 * (to - from) > 3 * N as usize {
            add(from, from + N as usize, pair[0].at);
            from += N as usize;
        }
        add(from, to, pair[1].at);
        from = to;
    }
    let averages = eq13(&shares, tau, tau).into_iter().map(|(_, share)| share);
    seen.into_iter().zip(averages).collect()
}

/// Index in the emulator's log of the first packet that the path counts: the one for which the counters' losses match
/// the emulator's drops.
fn first_counted(client: &Client, way: usize, packets: &[(f64, bool)]) -> usize {
    let mut drops = vec![0u64];
    drops.extend(packets.iter().scan(0, |sum, (_, lost)| {
        *sum += u64::from(*lost);
        Some(*sum)
    }));
    let last = drops.len() - 1;
    let off = |first: usize| -> u64 {
        let counted = client.looks.iter().map(|look| look.counted[way]);
        let differences = counted.map(|count| {
            let dropped = drops[(first + count.sent as usize).min(last)] - drops[first];
            dropped.abs_diff(count.sent.saturating_sub(count.received))
        });
        differences.sum()
    };
    (0..=last).min_by_key(|first| off(*first)).unwrap_or(0)
}

/// The paper finds the average's delay behind the raw values negligible.
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

/// The share of packets in one direction that the emulator dropped, per interval, in percent.
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

#[cfg(test)]
pub(crate) mod tests {
    use segue_keepalive::Counted;

    use super::*;
    use crate::experiment::TenTimesOff;

    /// A client whose averages use a time constant that is too long by this factor.
    fn ideal(over: Over, slower: f64) -> Track {
        let course = course(over);
        let Track { mut clients, .. } = tracking::ideal(&course, &[], 0.0);
        let client = &mut clients[0];
        let n_at = |at: f64| ONE_OF[(at / EACH_S as f64) as usize];
        let sent = |i: usize| i as f64 * T_KA_MS as f64 / 1e3;
        let fate = |i: usize| (sent(i), (i as u64).is_multiple_of(n_at(sent(i))));
        let packets: Vec<_> = (0..client.looks.len()).map(fate).collect();
        let interval = |packets: &[(f64, bool)]| {
            let lost = packets.iter().filter(|(_, lost)| *lost).count();
            (packets[packets.len() - 1].0, lost as f64 / packets.len() as f64)
        };
        let ratios: Vec<_> = packets.chunks(N as usize).map(interval).collect();
        let (_, tau) = times();
        let averages = eq13(&ratios, tau * slower, tau * slower);
        for (i, look) in client.looks.iter_mut().enumerate() {
            let done = (i + 1) / N as usize;
            let ends = (i + 1).is_multiple_of(N as usize);
            look.owl_up = ends.then(|| ratios[done - 1].1);
            look.owl_ewma = [done.checked_sub(1).map(|last| averages[last].1); 2];
            let received = packets[..=i].iter().filter(|(_, lost)| !lost).count() as u64;
            look.counted = [Counted { sent: i as u64 + 1, received }; 2];
        }
        (client.requests, client.answers) = (packets.clone(), packets);
        Track { clients, ..tracking::ideal(&course, &[], 0.0) }
    }

    /// The same client with averages that are ten times too high.
    fn ten_times(mut track: Track) -> Track {
        for look in &mut track.clients[0].looks {
            let level = ONE_OF[((look.at / EACH_S as f64) as usize).min(ONE_OF.len() - 1)];
            look.owl_ewma = [Some(10.0 / level as f64); 2];
        }
        track
    }

    pub(crate) fn ten_times_off() -> Vec<TenTimesOff> {
        let of = |(id, over)| TenTimesOff {
            id,
            right: outcome(over, &ideal(over, 1.0)).lines,
            wrong: vec![
                outcome(over, &ten_times(ideal(over, 1.0))).lines,
                outcome(over, &ideal(over, 10.0)).lines,
            ],
        };
        [("salsano-fig24", Over::Probe), ("salsano-fig24-tunnel", Over::Tunnel)].map(of).into()
    }

    #[test]
    fn intervals_are_those_that_the_path_counted_however_late_they_are_seen() {
        let (_, tau) = times();
        let mut track = ideal(Over::Tunnel, 1.0);
        let client = &mut track.clients[0];
        // The path counts from the fifth packet on, and is read almost a period later.
        for look in &mut client.looks {
            look.at += 0.18;
        }
        let before = [(-0.8, false), (-0.6, false), (-0.4, true), (-0.2, false)];
        client.requests.splice(..0, before);
        assert_eq!(first_counted(client, 0, &client.requests), before.len());
        let measured = average(client, 0);
        let exact = perfect(client, 0, tau);
        assert!(exact.len() > 20, "{exact:?}");
        for (at, share) in exact.iter().filter(|(at, _)| *at > 18.0) {
            let shown = value_at(&measured, *at).unwrap();
            assert!((shown - share).abs() < 0.1, "{at}: {shown} and {share}");
        }
    }
}
