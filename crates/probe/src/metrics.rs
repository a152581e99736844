//! Metrics in the Prometheus text format, version 0.0.4: their names, all in one place ([`names`]), the page that
//! contains them, and the server that delivers it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use segue_clock::Span;
use segue_keepalive::{Estimates, State, Tau};

pub mod names;
mod server;

pub use server::{Server, address, listening};

/// Name and value of a label.
pub type Label = (&'static str, String);

/// The behaviour of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only increases, from zero at the start of the process.
    Counter,
    /// It may rise and fall.
    Gauge,
}

/// Name and meaning of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, ending in the unit as Prometheus recommends.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its kind.
    pub kind: Kind,
}

/// The measurements of a path.
pub struct View<'a> {
    /// Labels that identify the path.
    pub labels: Vec<Label>,
    /// The estimates.
    pub estimates: &'a Estimates,
    /// Time constants of the averages in `estimates`.
    pub taus: &'a [Tau],
    /// State of the path.
    pub state: State,
    /// Number of probes that this end has sent on it.
    pub sent: u64,
    /// Number of probes that this end has received on it.
    pub received: u64,
    /// Maximum error of the last round-trip time.
    pub uncertainty: Option<Span>,
}

/// Builds a page of metrics. Groups the values of each metric, as the format requires, in whatever order they are
/// added.
#[derive(Default)]
pub struct Page {
    metrics: BTreeMap<&'static str, (&'static Metric, String)>,
    /// Metrics with their labels that were already added.
    series: BTreeSet<String>,
}

impl Page {
    /// Adds a value with labels. Drops a second value for the same metric and labels: it would make the page invalid,
    /// and hosts choose some of the names.
    pub fn add(&mut self, metric: &'static Metric, labels: &[Label], more: &[Label], value: f64) {
        let mut series = metric.name.to_owned();
        let mut open = '{';
        for (name, value) in labels.iter().chain(more) {
            let _ = write!(series, "{open}{name}=\"{}\"", escaped(value));
            open = ',';
        }
        series.push_str(if open == ',' { "}" } else { "" });
        let (_, lines) = self.metrics.entry(metric.name).or_insert((metric, String::new()));
        if !self.series.contains(&series) {
            let _ = writeln!(lines, "{series} {value}");
            self.series.insert(series);
        }
    }

    /// Adds a value without labels.
    pub fn one(&mut self, metric: &'static Metric, value: f64) {
        self.add(metric, &[], &[], value);
    }

    /// Adds refused packets by reason.
    pub fn drops(&mut self, labels: &[Label], drops: &BTreeMap<&'static str, u64>) {
        for (reason, count) in drops {
            let reason = ("reason", (*reason).to_owned());
            self.add(&names::DROPS, labels, &[reason], *count as f64);
        }
    }

    /// Adds the measurements of paths.
    pub fn paths(&mut self, views: &[View<'_>]) {
        for view in views {
            self.path(view);
        }
    }

    fn path(&mut self, view: &View<'_>) {
        let (e, labels) = (view.estimates, view.labels.as_slice());
        if let Some(rtt) = e.rtt_last {
            self.add(&names::RTT, labels, &[], rtt.as_secs_f64());
        }
        if let Some(error) = view.uncertainty {
            self.add(&names::RTT_UNCERTAINTY, labels, &[], error.as_secs_f64());
        }
        let tau = |i: usize| view.taus.get(i).map_or(0.0, |tau| tau.rise.as_secs_f64());
        for (i, average) in e.rtt_ewma.iter().enumerate() {
            let tau = ("tau", format!("{}s", tau(i)));
            self.add(&names::RTT_AVERAGE, labels, &[tau], *average);
        }
        let ways = [("up", &e.owl_up), ("down", &e.owl_down), ("both", &e.rtl)];
        for (way, averages) in ways {
            for (i, loss) in averages.iter().enumerate() {
                let more = [("direction", way.to_owned()), ("tau", format!("{}s", tau(i)))];
                self.add(&names::LOSS, labels, &more, *loss);
            }
        }
        for (way, counted) in [("up", e.up), ("down", e.down)] {
            let way = [("direction", way.to_owned())];
            self.add(&names::PACKETS_SENT, labels, &way, counted.sent as f64);
            self.add(&names::PACKETS_RECEIVED, labels, &way, counted.received as f64);
        }
        for (name, state) in
            [("starting", State::Starting), ("up", State::Up), ("down", State::Down)]
        {
            let value = if state == view.state { 1.0 } else { 0.0 };
            self.add(&names::STATE, labels, &[("state", name.to_owned())], value);
        }
        for (metric, value) in [
            (&names::TRANSITIONS, e.transitions),
            (&names::DUPLICATES, e.duplicates),
            (&names::REORDERED, e.reordered),
            (&names::PROBES_SENT, view.sent),
            (&names::PROBES_RECEIVED, view.received),
        ] {
            self.add(metric, labels, &[], value as f64);
        }
    }

    /// The text of the page.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, (metric, lines)) in &self.metrics {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n{lines}", metric.help);
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_metric_stand_together_each_once_and_labels_are_escaped() {
        let mut page = Page::default();
        page.one(&names::SESSIONS, 2.0);
        let label = |text: &str| [("target", text.to_owned())];
        page.add(&names::RTT, &label("a\"b\\c\n"), &[], 0.25);
        page.add(&names::RTT_UNCERTAINTY, &label("d"), &[], 1e-6);
        page.add(&names::RTT, &label("d"), &[("x", "y".to_owned())], 1.0);
        page.add(&names::RTT, &label("d"), &[("x", "y".to_owned())], 2.0);
        let text = page.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"segue_rtt_seconds{target="a\"b\\c\n"} 0.25"#,
                r#"segue_rtt_seconds{target="d",x="y"} 1"#,
                r#"segue_rtt_uncertainty_seconds{target="d"} 0.000001"#,
                "segue_sessions 2",
            ]
        );
        assert_eq!(text.matches("# TYPE segue_rtt_seconds gauge\n").count(), 1);
    }
}
