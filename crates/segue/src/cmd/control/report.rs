//! `segue report`: makes a page with plots from a daemon's log of events, to answer why service was bad an hour ago.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_clock::Span;
use segue_daemon::control::{Any, EventRecord};
use segue_linux::clock;
use segue_report::{Band, Mark, Page, Plot, Series, Style, Timeline, made};
use segue_text::units;
use serde_json::Value;

use super::events::when;
use super::past::{Logged, Past};
use super::which::Which;

/// Make a page of what happened: states, round-trip times and loss of the paths, moves, Wi-Fi signal, and all events.
///
/// It is made from the daemon's log of events, which goes back a day and outlives the daemon.
#[derive(clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    past: Past,
    /// Directory for report.html and the figures' data [default: segue-report]
    #[arg(
        short,
        long,
        value_name = "DIR",
        default_value = "segue-report",
        hide_default_value = true
    )]
    out: PathBuf,
}

/// How far back a report goes by default.
const USUAL: Span = Span::from_secs(3_600);
/// Maximum number of events in the page's table.
const LISTED: usize = 500;
/// Figures mark at most this many moves and jumps of the clock. More marks would hide the curves.
const MARKED: usize = 12;
/// Minutes without a sample after which a line ends: the daemon did not run, or the machine was suspended.
const BREAK: f64 = 0.5;

/// Runs `segue report`.
pub fn report(args: ReportArgs) -> anyhow::Result<ExitCode> {
    let since = args.past.since.unwrap_or(USUAL);
    let records = args.past.read(&args.which, USUAL)?;
    if records.is_empty() {
        bail!("the log of events has nothing of the last {}", units::span(since));
    }
    let now_s = clock::realtime_ns() as f64 / 1e9;
    let page = page(&records, since, now_s);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    page.write(&args.out, "report.html")?;
    println!("{}", args.out.join("report.html").display());
    Ok(ExitCode::SUCCESS)
}

fn page(records: &[Logged], since: Span, now_s: f64) -> Page {
    let time = Times { now_s, minutes: since.as_secs_f64() / 60.0 };
    let events: Vec<&Logged> =
        records.iter().filter(|logged| logged.record.kind != "sample").collect();
    let lead = format!(
        "What the daemon's log of events has of the {} before {}. Round-trip times and losses are the daemon's shortest \
         averages, every ten seconds; states and moves are exact.",
        units::span(since),
        when(now_s)
    );
    let mut page = Page::new("Segue: what happened", lead, made());
    page.set_verdict(verdict(&events));
    let marks = marks(&events, &time);
    let x_range = (-time.minutes, 0.0);
    let x_label = format!("minutes before {}", units::date(now_s as u64));
    let timeline = Timeline {
        title: "States of the paths, and where flows went".into(),
        x_label: x_label.clone(),
        x_range,
        rows: rows(records, &time),
        marks: marks.clone(),
    };
    if !timeline.rows.is_empty() {
        page.push_timeline("states", "", &timeline);
    }
    let mut push = |name: &str, title: &str, y_label: &str, series: Vec<Series>, from_zero| {
        if series.iter().any(|series| !series.points.is_empty()) {
            let plot = Plot {
                title: title.into(),
                x_label: x_label.clone(),
                y_label: y_label.into(),
                series,
                marks: marks.clone(),
                x_range: Some(x_range),
                y_from_zero: from_zero,
                ..Plot::default()
            };
            page.push_plot(name, "", &plot);
        }
    };
    let sampled = |key: &'static str, factor: f64| sampled(records, &time, "sample", key, factor);
    push("rtt", "Round-trip times", "RTT in ms", sampled("rtt_ms", 1.0), true);
    push("loss-up", "Loss towards the anchor", "lost in %", sampled("loss_up", 100.0), true);
    push("loss-down", "Loss towards the host", "lost in %", sampled("loss_down", 100.0), true);
    let signal = self::sampled(records, &time, "wifi", "signal_dbm", 1.0);
    push("signal", "Wi-Fi signal", "signal in dBm", signal, false);
    push_events(&mut page, &events);
    page
}

/// Converts times to positions on the horizontal axis.
struct Times {
    now_s: f64,
    minutes: f64,
}

impl Times {
    fn of(&self, logged: &Logged) -> f64 {
        (logged.at_s - self.now_s) / 60.0
    }
}

/// Counts outages, doubts, moves and other events, in a sentence.
fn verdict(events: &[&Logged]) -> String {
    let count =
        |is: &dyn Fn(&EventRecord<Any>) -> bool| events.iter().filter(|e| is(&e.record)).count();
    let kind = |kind: &'static str| count(&|event| event.kind == kind);
    let downs = count(&|event| event.kind == "path_state" && text(event, "detail") == "down");
    let doubts = count(&|event| event.kind == "path_doubt" && event.about["doubt_ms"].is_null());
    let counted = [
        (downs, "path went down", "paths went down"),
        (doubts, "doubt", "doubts"),
        (kind("handover"), "move of flows", "moves of flows"),
        (kind("clock"), "jump of the clock", "jumps of the clock"),
        (kind("wifi"), "change of access point", "changes of access point"),
        (kind("started").saturating_sub(1), "restart", "restarts"),
    ];
    let told = counted.into_iter().filter(|(n, ..)| *n > 0);
    let told: Vec<String> =
        told.map(|(n, one, many)| format!("{n} {}", if n == 1 { one } else { many })).collect();
    if told.is_empty() { "Nothing happened.".into() } else { format!("{}.", told.join(", ")) }
}

/// A text field of an event; empty if the event has none.
fn text<'a>(event: &'a EventRecord<Any>, key: &str) -> &'a str {
    event.about.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn marks(events: &[&Logged], time: &Times) -> Vec<Mark> {
    let mark = |logged: &&Logged| {
        let event = &logged.record;
        let label = match &*event.kind {
            "handover" => format!("to {}", text(event, "to")),
            "clock" => "clock".into(),
            "started" => "start".into(),
            _ => return None,
        };
        Some(Mark { x: time.of(logged), label })
    };
    let marks: Vec<Mark> = events.iter().filter_map(mark).collect();
    if marks.len() > MARKED { Vec::new() } else { marks }
}

/// A row with the states of each path, and one with the path of each class of flows.
fn rows(records: &[Logged], time: &Times) -> Vec<Band> {
    let mut paths: BTreeMap<&str, Vec<(f64, &str)>> = BTreeMap::new();
    let mut classes: BTreeMap<&str, Vec<(f64, &str)>> = BTreeMap::new();
    for logged in records {
        let (at, record) = (time.of(logged), &logged.record);
        let path = text(record, "path");
        match &*record.kind {
            "sample" => {
                let state = record.about["sample"]["state"].as_str().unwrap_or_default();
                paths.entry(path).or_default().push((at, state));
            }
            "path_state" => paths.entry(path).or_default().push((at, text(record, "detail"))),
            "path_removed" => paths.entry(path).or_default().push((at, "")),
            "handover" => {
                let class = record.about.get("class").and_then(Value::as_str);
                let moved = classes.entry(class.unwrap_or("all")).or_default();
                if moved.is_empty() {
                    moved.push((-time.minutes, path));
                }
                moved.push((at, text(record, "to")));
            }
            "started" | "stopped" => {
                let all = paths.values_mut().chain(classes.values_mut());
                all.for_each(|points| points.push((at, "")));
            }
            _ => {}
        }
    }
    let states = paths.into_iter().map(|(path, points)| (format!("path {path}"), points));
    let moves = classes.into_iter().map(|(class, points)| (format!("{class} flows"), points));
    let alive = alive(records, time);
    let band = |(name, points): (String, Vec<(f64, &str)>)| Band {
        name,
        intervals: within(&stretches(&points), &alive),
    };
    states.chain(moves).map(band).collect()
}

/// The periods in which the daemon ran: from its first record to its last, without pauses in which even samples are
/// missing. A daemon that takes no samples counts as running all the time.
fn alive(records: &[Logged], time: &Times) -> Vec<(f64, f64)> {
    if records.iter().all(|logged| logged.record.kind != "sample") {
        return vec![(-time.minutes, 0.0)];
    }
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    for at in records.iter().map(|logged| time.of(logged)) {
        match stretches.last_mut() {
            Some((_, end)) if at - *end <= BREAK => *end = at.max(*end),
            _ => stretches.push((at, at)),
        }
    }
    if let Some((_, end)) = stretches.last_mut().filter(|(_, end)| -*end <= BREAK) {
        *end = 0.0;
    }
    stretches
}

/// Clips labelled stretches to these periods.
fn within(of: &[(f64, f64, String)], alive: &[(f64, f64)]) -> Vec<(f64, f64, String)> {
    let parts = of.iter().flat_map(|(from, to, label)| {
        alive.iter().filter_map(move |(begin, end)| {
            let (from, to) = (from.max(*begin), to.min(*end));
            (from < to).then(|| (from, to, label.clone()))
        })
    });
    parts.collect()
}

/// Turns points at which a state begins into stretches of time. A point with an empty state ends a stretch.
fn stretches(points: &[(f64, &str)]) -> Vec<(f64, f64, String)> {
    let mut stretches: Vec<(f64, f64, String)> = Vec::new();
    let ends = points.iter().skip(1).map(|(at, _)| *at).chain([0.0]);
    for ((from, what), to) in points.iter().zip(ends) {
        match stretches.last_mut() {
            Some((_, end, label)) if label == what && *end == *from => *end = to,
            _ if what.is_empty() => {}
            _ => stretches.push((*from, to, (*what).to_owned())),
        }
    }
    stretches
}

/// One series per path, with a gap where samples are missing.
fn sampled(records: &[Logged], time: &Times, part: &str, key: &str, factor: f64) -> Vec<Series> {
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for logged in records.iter().filter(|logged| logged.record.kind == "sample") {
        let (at, record) = (time.of(logged), &logged.record);
        let value = record.about.get(part).and_then(|part| part.get(key)).and_then(Value::as_f64);
        let Some(value) = value else { continue };
        let points = series.entry(text(record, "path")).or_default();
        if points.last().is_some_and(|(last, _)| at - last > BREAK) {
            points.push((at, f64::NAN));
        }
        points.push((at, value * factor));
    }
    series.into_iter().map(|(path, points)| Series::new(path, Style::Line, points)).collect()
}

fn push_events(page: &mut Page, events: &[&Logged]) {
    page.push_heading("Events");
    let left_out = events.len().saturating_sub(LISTED);
    if left_out > 0 {
        page.push_text(&format!("The last {LISTED} of {}; segue events shows all.", events.len()));
    }
    let rows: Vec<[String; 3]> = events[left_out..]
        .iter()
        .map(|logged| &logged.record)
        .map(|event| [when(event.unix_s), event.text.clone(), scores(event)])
        .collect();
    page.push_table("", &["time", "what", "scores (0 to 100, higher is better)"], &rows);
}

/// The scores that led to a move.
fn scores(event: &EventRecord<Any>) -> String {
    let scores = event.about.get("scores").and_then(Value::as_object);
    let told = scores
        .into_iter()
        .flatten()
        .filter_map(|(path, score)| Some(format!("{path} {:.0}", score.as_f64()?)));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::past::logged;
    use super::*;

    fn record(unix_s: f64, kind: &str, about: Value) -> EventRecord<Any> {
        let Value::Object(about) = about else { panic!("{about}") };
        let text = format!("{kind} at {unix_s}");
        let (number, at_ns, kind, host) = (0, 0, kind.to_owned(), String::new());
        EventRecord { number, at_ns, unix_s, kind, host, text, about }
    }

    fn sample(at: f64, path: &str, state: &str, rtt: f64) -> EventRecord<Any> {
        let sample = serde_json::json!({ "state": state, "rtt_ms": rtt });
        record(at, "sample", serde_json::json!({ "path": path, "sample": sample }))
    }

    #[test]
    fn states_and_moves_become_stretches_with_gaps_where_the_daemon_did_not_run() {
        let state = |at, detail| {
            record(at, "path_state", serde_json::json!({ "path": "wifi", "detail": detail }))
        };
        let moves = serde_json::json!({ "path": "wifi", "to": "lte", "scores": { "lte": 71.4 } });
        let seen = |from: u64, to: u64| (from..=to).step_by(10).map(|at| at as f64);
        let mut records: Vec<_> = seen(600, 610).map(|at| sample(at, "wifi", "up", 20.0)).collect();
        records.extend([
            state(612.0, "down"),
            record(612.0, "handover", moves),
            state(630.0, "up"),
            // The daemon was killed here.
            sample(650.0, "wifi", "up", 20.0),
            record(840.0, "started", serde_json::json!({})),
        ]);
        records.extend(seen(850, 890).map(|at| sample(at, "wifi", "up", 90.0)));
        let records = logged(records);
        let time = Times { now_s: 900.0, minutes: 10.0 };
        let rows = rows(&records, &time);
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["path wifi", "all flows"]);
        let at = |from: f64, to: f64, what: &str| {
            ((from - 900.0) / 60.0, (to - 900.0) / 60.0, what.to_owned())
        };
        let wifi = [
            at(600.0, 612.0, "up"),
            at(612.0, 630.0, "down"),
            at(630.0, 650.0, "up"),
            at(850.0, 900.0, "up"),
        ];
        assert_eq!(rows[0].intervals, wifi);
        assert_eq!(rows[1].intervals, [at(600.0, 612.0, "wifi"), at(612.0, 650.0, "lte")]);

        let rtt = sampled(&records, &time, "sample", "rtt_ms", 1.0);
        let values: Vec<f64> = rtt[0].points.iter().map(|(_, value)| *value).collect();
        let gaps: Vec<usize> = (0..values.len()).filter(|n| values[*n].is_nan()).collect();
        assert_eq!(gaps, [2, 4], "no line over what was not measured: {values:?}");

        let page = page(&records, Span::from_secs(600), 900.0).html();
        assert!(page.contains("1 path went down, 1 move of flows."), "{page}");
        assert!(page.contains("lte 71"), "the scores of the move");
    }

    #[test]
    fn an_hour_without_events_is_called_that() {
        let page =
            page(&logged(vec![sample(890.0, "wifi", "up", 20.0)]), Span::from_secs(600), 900.0)
                .html();
        assert!(page.contains("Nothing happened."));
    }
}
