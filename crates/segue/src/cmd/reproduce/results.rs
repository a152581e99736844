//! What the experiments gave, as files, text and JSON. The files are written again after each
//! experiment, so that an interrupted run leaves what was done.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use segue_report::{Page, Plot, csv};
use serde::Serialize;

use super::experiment::{Experiment, Line, Outcome};
use crate::errors::Told;

/// Results by the place of the experiment in the catalogue.
pub struct Results {
    directory: PathBuf,
    machine: Machine,
    done: BTreeMap<usize, Done>,
}

/// Where it ran.
#[derive(Serialize)]
struct Machine {
    segue: &'static str,
    kernel: String,
    processor: String,
    processors: usize,
    datapath: &'static str,
    rootless: bool,
}

struct Done {
    id: &'static str,
    title: &'static str,
    paper: &'static str,
    took_s: f64,
    result: Result<Outcome, String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    machine: &'a Machine,
    experiments: Vec<ShownExperiment<'a>>,
}

#[derive(Serialize)]
struct ShownExperiment<'a> {
    id: &'a str,
    paper: &'a str,
    title: &'a str,
    took_s: f64,
    lines: &'a [Line],
    conditions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Done {
    fn shown(&self) -> ShownExperiment<'_> {
        let outcome = self.result.as_ref().ok();
        ShownExperiment {
            id: self.id,
            paper: self.paper,
            title: self.title,
            took_s: self.took_s,
            lines: outcome.map_or(&[], |outcome| &outcome.lines),
            conditions: outcome.map_or("", |outcome| &outcome.conditions),
            error: self.result.as_ref().err().map(String::as_str),
        }
    }

    /// How many lines have which verdict: a row of the page's overview.
    fn counted(&self) -> [String; 5] {
        let cells = match &self.result {
            Ok(outcome) => [Some(true), Some(false), None].map(|verdict| {
                let lines = outcome.lines.iter().filter(|line| line.agrees == verdict);
                lines.count().to_string()
            }),
            Err(_) => ["no result".into(), String::new(), String::new()],
        };
        let [agrees, differs, open] = cells;
        [self.id.into(), self.title.into(), agrees, differs, open]
    }
}

impl Results {
    /// Nothing yet. Files go to `directory`.
    ///
    /// # Errors
    /// If the page cannot be written there.
    pub fn new(directory: PathBuf, rootless: bool) -> anyhow::Result<Results> {
        let results = Results { directory, machine: machine(rootless), done: BTreeMap::new() };
        results.write("index.html", &results.page())?;
        Ok(results)
    }

    /// Takes a result and writes its files and the page.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(
        &mut self,
        place: usize,
        experiment: &Experiment,
        took_s: f64,
        result: anyhow::Result<Outcome>,
    ) -> anyhow::Result<()> {
        let result = result.map_err(|error| Told(&error).to_string());
        let Experiment { id, title, paper, .. } = *experiment;
        for figure in result.iter().flat_map(|outcome| &outcome.figures) {
            let name = file_name(id, figure.name);
            self.write(&format!("{name}.svg"), &standalone(&figure.plot.svg()))?;
            self.write(&format!("{name}.csv"), &points(&figure.plot))?;
        }
        self.done.insert(place, Done { id, title, paper, took_s, result });
        self.write("index.html", &self.page())
    }

    /// Experiments that gave a result.
    pub fn ran(&self) -> usize {
        self.done.values().filter(|done| done.result.is_ok()).count()
    }

    /// All lines, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for done in self.done.values() {
            let _ = writeln!(text, "\n{}: {}", done.id, done.title);
            match &done.result {
                Ok(outcome) => {
                    for line in &outcome.lines {
                        let _ = writeln!(
                            text,
                            "  {}: paper says {} / here {} [{}]",
                            line.what,
                            line.paper,
                            line.here,
                            match &line.bar {
                                Some(bar) => format!("{}; bar: {bar}", line.verdict()),
                                None => line.verdict().to_owned(),
                            }
                        );
                    }
                }
                Err(error) => {
                    let _ = writeln!(text, "  no result: {error}");
                }
            }
        }
        let page = self.directory.join("index.html");
        let _ = writeln!(text, "\nFigures, tables and conditions: {}", page.display());
        text
    }

    /// All lines, for machines.
    ///
    /// # Errors
    /// A value that JSON cannot hold.
    pub fn json(&self) -> anyhow::Result<String> {
        let experiments = self.done.values().map(Done::shown).collect();
        Ok(serde_json::to_string_pretty(&Shown { machine: &self.machine, experiments })?)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn page(&self) -> String {
        let Machine { segue, kernel, processor, processors, datapath, rootless } = &self.machine;
        let rights = if *rootless { "in a user namespace without root" } else { "as root" };
        let lead = "The papers' experiments run on this machine: what the paper says beside what was found \
                    here. What differs is marked; a dash stands where there is nothing to judge by.";
        let mut page = Page::new("Segue: the papers' experiments", lead);
        page.push_text(&format!(
            "Segue {segue}, {rights}; Linux {kernel}; {processors} processors, {processor}. {datapath}"
        ));
        let overview: Vec<[String; 5]> = self.done.values().map(Done::counted).collect();
        if !overview.is_empty() {
            page.push_table("", &["experiment", "what", "agrees", "DIFFERS", "–"], &overview);
        }
        for done in self.done.values() {
            page.push_heading(&format!("{}: {}", done.id, done.title));
            match &done.result {
                Ok(outcome) => push_outcome(&mut page, done, outcome),
                Err(error) => page.push_text(&format!("No result: {error}.")),
            }
        }
        page.html()
    }
}

fn push_outcome(page: &mut Page, done: &Done, outcome: &Outcome) {
    let rows: Vec<[&str; 5]> = outcome
        .lines
        .iter()
        .map(|line| {
            let bar = line.bar.as_deref().unwrap_or("–");
            [line.what.as_str(), &line.paper, &line.here, bar, line.verdict()]
        })
        .collect();
    page.push_table(done.paper, &["quantity", "paper says", "here", "bar", "verdict"], &rows);
    for figure in &outcome.figures {
        let name = file_name(done.id, figure.name);
        let caption = format!("{} ({name}.svg, {name}.csv)", figure.caption);
        page.push_plot(caption.trim(), &figure.plot);
    }
    for table in &outcome.tables {
        page.push_table(&table.caption, &table.header, &table.rows);
    }
    page.push_text(&format!("Conditions: {} Took {:.0} s.", outcome.conditions, done.took_s));
}

fn file_name(id: &str, figure: &str) -> String {
    if figure.is_empty() { id.to_owned() } else { format!("{id}-{figure}") }
}

/// An element made for a page as a file of its own: with a white ground, and the XML name space if it
/// is not there.
fn standalone(svg: &str) -> String {
    let svg = match svg.contains("xmlns=") {
        true => svg.to_owned(),
        false => svg.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1),
    };
    svg.replacen("<svg ", "<svg style=\"background:#fff\" font-family=\"sans-serif\" ", 1)
}

/// The points of a diagram: one row for each, with the names of the axes as columns.
fn points(plot: &Plot) -> String {
    let rows: Vec<[String; 3]> = plot
        .series
        .iter()
        .flat_map(|series| {
            let drawn = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            drawn.map(|(x, y)| [series.name.clone(), x.to_string(), y.to_string()])
        })
        .collect();
    csv(&["series", plot.x_label.as_str(), plot.y_label.as_str()], &rows)
}

fn machine(rootless: bool) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
        })
        .unwrap_or_else(|| "of an unknown model".into());
    Machine {
        segue: env!("CARGO_PKG_VERSION"),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        processor,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        datapath: "Where a datapath matters the experiment's conditions name it.",
        rootless,
    }
}
