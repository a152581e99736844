//! Shared by the experiments on an emulated path: settings, series, accuracy, conditions.

use std::time::Duration;

use segue_clock::Span;
use segue_keepalive::{Config, Tau};
use segue_report::{Series, Style};

use super::average::{eq13, spread, value_at};
use super::experiment::{Experiment, Line, Needs, Outcome, SALSANO, Stage, role};
#[cfg(test)]
use super::track::Look;
use super::track::{self, Client, Course, Level, Track};
use super::tunnel;

/// Maximum median error of the averages in ms: a busy machine delays packets after their timestamps.
const MEDIAN_MS: f64 = 1.0;

/// The measuring program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The client of `segue probe` and its listener, without random loss.
    Probe,
    /// The daemons' estimators over the tunnel, with random loss and a realistic K.
    Tunnel,
}

impl Over {
    /// Runs a course.
    ///
    /// # Errors
    /// As [`track::run`] and [`tunnel::run`].
    pub(crate) fn run(self, stage: &Stage, course: &Course) -> anyhow::Result<Track> {
        match self {
            Over::Probe => track::run(stage, course),
            Over::Tunnel => tunnel::run(stage, course),
        }
    }

    /// A level with this round-trip time, and with the random loss of this measuring program.
    pub(crate) fn level(self, rtt_ms: u64) -> Level {
        let random_loss = if self == Over::Tunnel { tunnel::LOSS } else { 0.0 };
        Level { random_loss, ..Level::of(rtt_ms) }
    }

    /// The name of one of the units that measure the same course.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Over::Probe => "client",
            Over::Tunnel => "path",
        }
    }

    /// Number of periods by which a lost probe may delay a measurement.
    pub(crate) fn periods_lost(self) -> f64 {
        if self == Over::Tunnel { 1.0 } else { 0.0 }
    }

    /// The conditions that differ between the measuring programs.
    pub(crate) fn conditions(self) -> String {
        match self {
            Over::Probe => String::new(),
            Over::Tunnel => format!(
                "{:.0} % of the packets are lost at random in each direction; a lost probe shows a step a \
                 period later. ",
                100.0 * tunnel::LOSS
            ),
        }
    }
}

/// An experiment of paper 1 whose course takes `length_s` seconds.
pub(crate) fn experiment(
    id: &'static str,
    title: &'static str,
    length_s: u64,
    run: fn(&Stage) -> anyhow::Result<Outcome>,
) -> Experiment {
    let needs = if id.ends_with("tunnel") { Needs::Daemons } else { Needs::Namespaces };
    // Daemons take a while until both paths are measured.
    let takes = Duration::from_secs(length_s + if needs == Needs::Daemons { 6 } else { 1 });
    Experiment { id, paper: SALSANO, title, takes, needs, run }
}

/// The probing settings, with time constants as pairs (rising, falling) in s. For `segue probe`, K is too large for any
/// delay on a busy machine to reach.
pub(crate) fn config(over: Over, t_ka_ms: u64, taus: &[(f64, f64)]) -> Config {
    let spans = |(rise, fall): &(f64, f64)| Tau {
        rise: Span::from_secs_f64(*rise),
        fall: Span::from_secs_f64(*fall),
    };
    Config {
        t_ka: Span::from_millis(t_ka_ms),
        taus: taus.iter().map(spans).collect(),
        k: if over == Over::Tunnel { tunnel::K } else { 30 },
        ..Config::default()
    }
}

/// A client's average with the `i`-th time constant, in ms.
pub(crate) fn measured(client: &Client, i: usize) -> Vec<(f64, f64)> {
    client.looks.iter().filter_map(|look| Some((look.at, *look.rtt_ms.get(i)?))).collect()
}

/// The configured round-trip time, drawn as steps.
pub(crate) fn reference(track: &Track) -> Vec<(f64, f64)> {
    stairs(track, |level| level.rtt_ms as f64)
}

/// A value of the levels over time, with both corners of each step.
pub(crate) fn stairs(track: &Track, of: impl Fn(&super::track::Level) -> f64) -> Vec<(f64, f64)> {
    let ends = track.levels.iter().skip(1).map(|(at, _)| *at).chain([end(track)]);
    let pieces = track.levels.iter().zip(ends);
    pieces.flat_map(|((from, level), to)| [(*from, of(level)), (to, of(level))]).collect()
}

/// The time of the last answer to any client.
pub(crate) fn end(track: &Track) -> f64 {
    let looks = track.clients.iter().flat_map(|client| client.looks.last());
    looks.map(|look| look.at).fold(0.0, f64::max)
}

/// The reference, and the delays that the emulator imposed on each probe of the first client.
pub(crate) fn imposed_series(track: &Track) -> Vec<Series> {
    let points = track.clients.first().map(|client| client.imposed.clone()).unwrap_or_default();
    vec![
        Series::new("imposed", Style::Dashed, reference(track)).role(role::IMPOSED),
        Series::new("imposed on each probe", Style::Dots, points).role(role::IMPOSED),
    ]
}

/// Errors of the measured averages, compared with averages of the imposed values, over all clients and time constants
/// (pairs of rising and falling, in s).
pub(crate) fn accuracy(track: &Track, taus: &[(f64, f64)]) -> Line {
    let mut errors = Vec::new();
    for client in &track.clients {
        for (i, (rise, fall)) in taus.iter().enumerate() {
            let truth = eq13(&client.imposed, *rise, *fall);
            let error = |(at, s): (f64, f64)| Some((s - value_at(&truth, at)?).abs());
            errors.extend(measured(client, i).into_iter().filter_map(error));
        }
    }
    let (here, agrees) = match spread(errors.iter().copied()) {
        Some([_, median, worst]) => (
            format!("median {median:.3} ms, worst {worst:.2} ms of {} averages", errors.len()),
            median <= MEDIAN_MS,
        ),
        None => ("nothing measured".into(), false),
    };
    Line::new(
        "error of the averages against those of the emulator's stamps",
        "no number given",
        here,
    )
    .judged(format!("median at most {MEDIAN_MS} ms"), agrees)
}

/// The setup of the measurement.
pub(crate) fn conditions(track: &Track) -> String {
    format!(
        "{} with Segue's link emulator between them; it sent no packet more than {:.2} ms late.",
        track.how, track.late_max_ms
    )
}

/// A time as text.
pub(crate) fn seconds(s: f64) -> String {
    if s < 1.0 { format!("{:.0} ms", s * 1e3) } else { format!("{s:.2} s") }
}

/// A noiseless measurement of a course: the imposed round-trip times, and their averages with these time constants in
/// s, which are too high by `error_ms`.
#[cfg(test)]
pub(crate) fn ideal(course: &Course, taus: &[(f64, f64)], error_ms: f64) -> Track {
    let level_at = |at: f64| {
        let mut begun = course.levels.iter().filter(|(from, _)| from.as_secs_f64() <= at);
        begun.next_back().map_or(Level::of(0), |(_, level)| *level)
    };
    let (t_ka, length) = (course.config.t_ka.as_secs_f64(), course.length.as_secs_f64());
    let client = |phase: u32| {
        let first = t_ka * f64::from(phase) / f64::from(course.clients);
        let sent = (0..).map(|i| first + f64::from(i) * t_ka).take_while(|at| *at < length);
        let imposed: Vec<(f64, f64)> = sent
            .map(|at| {
                let rtt_ms = level_at(at).rtt_ms as f64;
                (at + rtt_ms / 1e3, rtt_ms)
            })
            .collect();
        let averages: Vec<_> =
            taus.iter().map(|(rise, fall)| eq13(&imposed, *rise, *fall)).collect();
        let looks = imposed.iter().enumerate().map(|(i, (at, _))| Look {
            at: *at,
            rtt_ms: averages.iter().map(|average| average[i].1 + error_ms).collect(),
            owl_up: None,
            owl_ewma: [None; 2],
            counted: Default::default(),
        });
        Client { looks: looks.collect(), imposed, ..Client::default() }
    };
    Track {
        levels: course.levels.iter().map(|(at, level)| (at.as_secs_f64(), *level)).collect(),
        clients: (0..course.clients).map(client).collect(),
        late_max_ms: 0.0,
        how: String::new(),
    }
}
