//! The output of `segue sim run --out DIR`: time series as CSV and Parquet, the nodes' events, and a page with plots.

use std::fs;
use std::path::Path;

use anyhow::Context;
use segue_report::{Band, Mark, Page, Plot, Series as Line, Style, Timeline, csv, made};
use segue_sim::{Results, Value};
use segue_traffic::tcp::WINDOW;

use crate::series::{DELAY, Event, LOST, QUEUE, RECEIVED, Series};
use crate::show::{Json, number};
use crate::sweep::table::Table;

/// The page's name.
pub(crate) const PAGE: &str = "report.html";
const TIME: &str = "time in s";
/// Marks closer than this, as a share of the run, are merged.
const NEAR: f64 = 0.002;

/// Writes the complete output of a run into a directory.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(
    directory: &Path,
    scenario: &str,
    series: &Series,
    results: &Results,
) -> anyhow::Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let times = series.times.iter().copied().map(Some).collect();
    let columns = [("time_s".to_owned(), times)].into_iter().chain(series.columns.clone());
    let table = Table::of_numbers(columns);
    let event = |event: &Event| [event.at_s.to_string(), event.node.clone(), event.what.clone()];
    let events: Vec<[String; 3]> = series.events.iter().map(event).collect();
    for (name, bytes) in [
        ("series.csv", table.csv()),
        ("series.parquet", table.parquet()?),
        ("events.csv", csv(&["time_s", "node", "event"], &events).into_bytes()),
        ("results.json", serde_json::to_vec(&Json(results))?),
    ] {
        let path = directory.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let page = page(scenario, series, results);
    page.write(directory, PAGE).with_context(|| format!("cannot write {}", directory.display()))
}

fn page(scenario: &str, series: &Series, results: &Results) -> Page {
    let end = series.times.last().copied().unwrap_or_default();
    let lead = format!("A run of {end} s of virtual time, in {} slices.", series.times.len());
    let mut page = Page::new(format!("Simulation of {scenario}"), lead, made());
    let marks = marks(&series.events, end);
    let rows = states(&series.events, end);
    if !rows.is_empty() {
        page.push_heading("States");
        let timeline = Timeline {
            title: "Paths, routes and attachments".into(),
            x_label: TIME.into(),
            x_range: (0.0, end),
            rows,
            marks: marks.clone(),
        };
        page.push_timeline("states", "What nodes said of themselves.", &timeline);
    }
    let handovers = series.events.iter().filter(|event| handover(&event.what).is_some());
    let rows: Vec<[String; 3]> = handovers
        .map(|event| [format!("{:.3} s", event.at_s), event.node.clone(), event.what.clone()])
        .collect();
    if !rows.is_empty() {
        page.push_heading("Handovers");
        page.push_table("", &["when", "node", "what"], &rows);
    }
    page.push_heading("Links");
    for (name, title, label, what, scale) in [
        ("received", "Received", "received in Mbit/s", RECEIVED, 1e-6),
        ("delay", "Mean time from sending to arrival", "delay in ms", DELAY, 1.0),
        ("queue", "Packets that wait for the link", "packets", QUEUE, 1.0),
        ("lost", "Packets lost in each slice", "packets", LOST, 1.0),
    ] {
        push_plot(&mut page, series, &marks, (name, title, label), what, scale);
    }
    page.push_heading("Senders");
    let window = ("windows", "Congestion windows", "window in packets");
    push_plot(&mut page, series, &marks, window, WINDOW, 1.0);
    page.push_heading("Results");
    let rows: Vec<[String; 2]> = results.iter().filter_map(row).collect();
    page.push_table("", &["result", "value"], &rows);
    page.push_heading("Files");
    page.push_links(&[
        ("series.csv", "the time series"),
        ("series.parquet", "the same for pandas and others"),
        ("events.csv", "what nodes said"),
        ("results.json", "the results"),
    ]);
    page
}

fn row((name, value): (&str, &Value)) -> Option<[String; 2]> {
    let value = match value {
        Value::Int(n) => n.to_string(),
        Value::Float(x) => number(*x),
        Value::Text(text) => text.clone(),
        Value::Rows(_) => return None,
    };
    Some([name.to_owned(), value])
}

/// Adds the plot of a quantity, with every column that is not always zero.
fn push_plot(
    page: &mut Page,
    series: &Series,
    marks: &[Mark],
    (name, title, label): (&str, &str, &str),
    what: &str,
    scale: f64,
) {
    let line = |(column, values): &(String, Vec<Option<f64>>)| {
        let of = column.strip_suffix(what)?.strip_suffix('.')?;
        let of = of.strip_prefix("link.").unwrap_or(of);
        let points = series.times.iter().zip(values);
        let points: Vec<_> = points.filter_map(|(x, y)| Some((*x, (*y)? * scale))).collect();
        let is_drawn = points.iter().any(|(_, y)| *y != 0.0);
        let (link, style) = drawn_as(of);
        is_drawn.then(|| Line::new(of, style, points).role(link))
    };
    let lines: Vec<Line> = series.columns.iter().filter_map(line).collect();
    if lines.is_empty() {
        return;
    }
    let plot = Plot {
        title: title.into(),
        x_label: TIME.into(),
        y_label: label.into(),
        series: lines,
        marks: marks.into(),
        x_range: Some((0.0, series.times.last().copied().unwrap_or_default())),
        y_from_zero: true,
        ..Plot::default()
    };
    page.push_plot(name, "", &plot);
}

/// Role and style of a series: both directions of a link have its colour, and up is dashed.
fn drawn_as(of: &str) -> (&str, Style) {
    match of.rsplit_once('.') {
        Some((link, "up")) => (link, Style::Dashed),
        Some((link, "down")) => (link, Style::Line),
        _ => (of, Style::Line),
    }
}

/// The new path of flows or of a route, if the event reports a move.
fn handover(what: &str) -> Option<&str> {
    let (_, to) = what
        .split_once(" moved from ")
        .or_else(|| what.split_once(": from "))
        .and_then(|(_, rest)| rest.split_once(" to "))
        .or_else(|| what.split_once("default route over "))?;
    to.split([' ', ',']).next()
}

/// Handovers; those at nearly the same time to the same path are merged.
fn marks(events: &[Event], end: f64) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for event in events {
        let Some(to) = handover(&event.what) else { continue };
        let label = format!("to {to}");
        let is_told = |mark: &Mark| mark.label == label && event.at_s - mark.x < NEAR * end;
        if !marks.iter().any(is_told) {
            marks.push(Mark { x: event.at_s, label });
        }
    }
    marks
}

/// The object (path, route or interface) whose state an event reports, and its new state.
fn state(Event { node, what, .. }: &Event) -> Option<(String, String)> {
    if let Some((_, route)) = what.split_once("default route over ") {
        return Some((format!("{node}: default route"), route.to_owned()));
    }
    if let Some((interface, cell)) = what.split_once(" attached to ") {
        return Some((format!("{node}: {interface}"), cell.to_owned()));
    }
    if let Some((interface, _)) = what.split_once(" detached from ") {
        return Some((format!("{node}: {interface}"), "detached".into()));
    }
    let at = what.find("path ").filter(|at| *at == 0 || what[..*at].ends_with(": "))?;
    let (path, state) = what[at..].strip_prefix("path ")?.split_once(' ')?;
    let state = state.split(',').next()?;
    let host = &what[..at];
    Some((format!("{node}: {host}{path}"), state.to_owned()))
}

/// A row for each path, route and interface with reported states.
fn states(events: &[Event], end: f64) -> Vec<Band> {
    let mut rows: Vec<Band> = Vec::new();
    for event in events {
        let Some((of, state)) = state(event) else { continue };
        let place = rows.iter().position(|row| row.name == of).unwrap_or_else(|| {
            rows.push(Band { name: of, intervals: Vec::new() });
            rows.len() - 1
        });
        let intervals = &mut rows[place].intervals;
        if let Some(last) = intervals.last_mut() {
            last.1 = event.at_s;
        }
        intervals.push((event.at_s, end, state));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_s: f64, what: &str) -> Event {
        Event { at_s, node: "n".into(), what: what.into() }
    }

    #[test]
    fn both_directions_of_a_link_have_its_colour() {
        assert_eq!(drawn_as("wifi.up"), ("wifi", Style::Dashed));
        assert_eq!(drawn_as("wifi.down"), ("wifi", Style::Line));
        assert_eq!(drawn_as("download"), ("download", Style::Line));
    }

    #[test]
    fn states_last_until_the_next_one_and_handovers_at_one_instant_are_one_mark() {
        let events = [
            event(1.0, "path wifi set up"),
            event(2.0, "path wifi up"),
            event(3.0, "a: path wifi down, silent for 350 ms"),
            event(3.0, "2 flows moved from wifi to lte (down)"),
            event(3.001, "1 voice flow moved from wifi to lte (down)"),
            event(4.0, "path wifi down, silent for 293 ms"),
            event(5.0, "default route over lte"),
            event(6.0, "a@b: from fd00::1 to fd00::2 (moved), flows that were placed: 2"),
            event(7.0, "registered"),
        ];
        let rows = states(&events, 9.0);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["n: wifi", "n: a: wifi", "n: default route"]);
        let of_wifi = [(1.0, 2.0, "set up"), (2.0, 4.0, "up"), (4.0, 9.0, "down")];
        assert_eq!(rows[0].intervals, of_wifi.map(|(from, to, is)| (from, to, is.to_owned())));
        let marks = marks(&events, 9.0);
        let marks: Vec<(f64, &str)> = marks.iter().map(|mark| (mark.x, &*mark.label)).collect();
        assert_eq!(marks, [(3.0, "to lte"), (5.0, "to lte"), (6.0, "to fd00::2")]);
    }
}
