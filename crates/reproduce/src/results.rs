//! Writes results as files, text and JSON. Files are rewritten after each experiment, so that an interrupted run keeps
//! the finished ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use segue_report::Page;
use segue_report::made;
use segue_text::errors::Told;
use serde::Serialize;

use super::experiment::{Experiment, Line, Outcome, Skipped};

/// File name of the page.
const PAGE: &str = "index.html";
const OVERVIEW: &str =
    "How many quantities of each experiment agree with their bars, differ, or have none.";

/// Up to this many quantities, the verdict lists all of them.
const FEW: usize = 3;

/// Results, by position of the experiment in the catalogue.
pub(crate) struct Results {
    directory: PathBuf,
    machine: Machine,
    done: BTreeMap<usize, Done>,
}

/// The machine and the program version.
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
    /// The result, or the reason for its absence.
    result: Result<Outcome, String>,
    /// The machine lacks a requirement.
    skipped: bool,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'a str>,
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
            error: self.result.as_ref().err().filter(|_| !self.skipped).map(String::as_str),
            skipped: self.result.as_ref().err().filter(|_| self.skipped).map(String::as_str),
        }
    }

    /// Text for an experiment without a result.
    fn none(&self) -> &'static str {
        if self.skipped { "Skipped" } else { "No result" }
    }

    /// Number of lines with each verdict: a row of the overview on the page.
    fn counted(&self) -> [String; 5] {
        let cells = match &self.result {
            Ok(outcome) => [Some(true), Some(false), None].map(|verdict| {
                let lines = outcome.lines.iter().filter(|line| line.agrees == verdict);
                lines.count().to_string()
            }),
            Err(_) => [self.none().to_lowercase(), String::new(), String::new()],
        };
        let [agrees, differs, open] = cells;
        [self.id.into(), agrees, differs, open, self.title.into()]
    }
}

impl Results {
    /// Starts without results and writes the page. Files go to `directory`.
    ///
    /// # Errors
    /// The page cannot be written there.
    pub(crate) fn new(directory: PathBuf, rootless: bool) -> anyhow::Result<Results> {
        let results = Results { directory, machine: machine(rootless), done: BTreeMap::new() };
        results.page().write(&results.directory, PAGE)?;
        Ok(results)
    }

    /// Adds a result and writes its files and the page.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn add(
        &mut self,
        place: usize,
        experiment: &Experiment,
        took_s: f64,
        result: anyhow::Result<Outcome>,
    ) -> anyhow::Result<()> {
        let lacking = result.as_ref().err().and_then(|error| error.downcast_ref::<Skipped>());
        let (skipped, lacking) = (lacking.is_some(), lacking.map(|Skipped(what)| what.clone()));
        let result = result.map_err(|error| lacking.unwrap_or_else(|| Told(&error).to_string()));
        let Experiment { id, title, paper, .. } = *experiment;
        self.done.insert(place, Done { id, title, paper, took_s, result, skipped });
        Ok(self.page().write(&self.directory, PAGE)?)
    }

    /// Number of experiments that produced a result or were skipped.
    pub(crate) fn ran(&self) -> usize {
        self.done.values().filter(|done| done.skipped || done.result.is_ok()).count()
    }

    /// All lines as text.
    pub(crate) fn text(&self) -> String {
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
                    let _ = writeln!(text, "  {}: {error}", done.none().to_lowercase());
                }
            }
        }
        let page = self.directory.join(PAGE);
        let _ = writeln!(text, "\nFigures, tables and conditions: {}", page.display());
        text
    }

    /// All lines as JSON.
    ///
    /// # Errors
    /// JSON cannot represent a value.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let experiments = self.done.values().map(Done::shown).collect();
        Ok(serde_json::to_string_pretty(&Shown { machine: &self.machine, experiments })?)
    }

    fn page(&self) -> Page {
        let Machine { segue: _, kernel, processor, processors, datapath, rootless } = &self.machine;
        let rights = if *rootless { "In a user namespace without root" } else { "As root" };
        let lead = "The papers' experiments run on this machine: what the paper says beside what was found \
                    here. What differs is marked; a dash stands where there is nothing to judge by.";
        let mut page = Page::new("Segue: the papers' experiments", lead, made());
        page.set_verdict(verdict(self.done.values()));
        page.push_text(&format!(
            "{rights}; Linux {kernel}; {processors} processors, {processor}. {datapath}"
        ));
        let overview: Vec<[String; 5]> = self.done.values().map(Done::counted).collect();
        if !overview.is_empty() {
            page.push_table(
                OVERVIEW,
                &["experiment", "agrees", "DIFFERS", "no bar", "what"],
                &overview,
            );
        }
        for done in self.done.values() {
            page.push_heading(&format!("{}: {}", done.id, done.title));
            match &done.result {
                Ok(outcome) => push_outcome(&mut page, done, outcome),
                Err(error) => page.push_text(&format!("{}: {error}.", done.none())),
            }
        }
        page
    }
}

/// The verdict on the lines with a bar, in a sentence. Gives the bars of lines that differ, or of all lines if they are
/// few. Empty before the first experiment.
fn verdict<'d>(done: impl Iterator<Item = &'d Done> + Clone) -> String {
    let outcomes = || done.clone().filter_map(|each| Some((each.id, each.result.as_ref().ok()?)));
    let lines = outcomes().flat_map(|(id, o)| o.lines.iter().map(move |line| (id, line)));
    let judged: Vec<(&str, &Line)> = lines.filter(|(_, line)| line.agrees.is_some()).collect();
    let agree = judged.iter().filter(|(_, line)| line.agrees == Some(true)).count();
    let told = judged.iter().filter(|(_, line)| judged.len() <= FEW || line.agrees == Some(false));
    let told: Vec<String> = told
        .map(|(id, line)| {
            let (bar, verdict) = (line.bar.as_deref().unwrap_or_default(), line.verdict());
            format!("{id}, {}: {} (bar: {bar}; {verdict})", line.what, line.here)
        })
        .collect();
    let told = match told.is_empty() {
        true => "; the bar of each stands beside it".to_owned(),
        false => format!(": {}", told.join("; ")),
    };
    let without = |what: &str, skipped: bool| {
        let all = done.clone().filter(|d| d.result.is_err() && d.skipped == skipped);
        let all: Vec<&str> = all.map(|d| d.id).collect();
        if all.is_empty() { String::new() } else { format!("; {what} {}", all.join(", ")) }
    };
    let failed = without("no result from", false) + &without("skipped", true);
    if judged.is_empty() {
        return match (done.clone().next(), outcomes().next()) {
            (None, _) => String::new(),
            (_, None) => format!("Nothing was judged{failed}."),
            _ => format!("Nothing was judged: no quantity here has a bar{failed}."),
        };
    }
    let quantities = if judged.len() == 1 { "quantity" } else { "quantities" };
    let agreeing = if agree == 1 || judged.len() == 1 { "agrees" } else { "agree" };
    format!("{agree} of {} {quantities} with a bar {agreeing}{told}{failed}.", judged.len())
}

fn push_outcome(page: &mut Page, done: &Done, outcome: &Outcome) {
    let rows: Vec<[&str; 5]> = outcome
        .lines
        .iter()
        .map(|line| {
            let bar = line.bar.as_deref().unwrap_or("–");
            [line.verdict(), line.what.as_str(), &line.paper, &line.here, bar]
        })
        .collect();
    page.push_verdicts(done.paper, &["verdict", "quantity", "paper says", "here", "bar"], &rows);
    for figure in &outcome.figures {
        let name = file_name(done.id, figure.name);
        page.push_plot(&name, &figure.caption, &figure.plot);
    }
    for table in &outcome.tables {
        page.push_table(&table.caption, &table.header, &table.rows);
    }
    page.push_text(&format!("Conditions: {} Took {:.0} s.", outcome.conditions, done.took_s));
}

fn file_name(id: &str, figure: &str) -> String {
    if figure.is_empty() { id.to_owned() } else { format!("{id}-{figure}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn done(id: &'static str, result: Result<Vec<Line>, String>) -> Done {
        let outcome = |lines| Outcome { lines, ..Outcome::default() };
        Done { id, title: "", paper: "", took_s: 0.0, result: result.map(outcome), skipped: false }
    }

    #[test]
    fn the_verdict_counts_what_has_a_bar_and_shows_the_bars_of_what_differs() {
        let line = |here: &str| Line::new("K*", "7", here);
        let open = done("open", Ok(vec![line("9")]));
        assert_eq!(verdict([].into_iter()), "", "nothing is done");
        assert_eq!(verdict([&open].into_iter()), "Nothing was judged: no quantity here has a bar.");
        let few = done("few", Ok(vec![line("7").judged("7", true)]));
        assert_eq!(
            verdict([&open, &few].into_iter()),
            "1 of 1 quantity with a bar agrees: few, K*: 7 (bar: 7; agrees)."
        );
        let many = done("many", Ok(vec![line("7").judged("7", true); 4]));
        assert_eq!(
            verdict([&many].into_iter()),
            "4 of 4 quantities with a bar agree; the bar of each stands beside it."
        );
        let bad = done("bad", Ok(vec![line("8").judged("6 to 7", false)]));
        let failed = done("failed", Err("interrupted".into()));
        assert_eq!(
            verdict([&many, &bad, &failed].into_iter()),
            "4 of 5 quantities with a bar agree: bad, K*: 8 (bar: 6 to 7; DIFFERS); no result from \
             failed."
        );
        assert_eq!(
            verdict([&few, &bad].into_iter()),
            "1 of 2 quantities with a bar agrees: few, K*: 7 (bar: 7; agrees); bad, K*: 8 (bar: 6 to 7; DIFFERS)."
        );
        assert_eq!(
            verdict([&bad].into_iter()),
            "0 of 1 quantity with a bar agrees: bad, K*: 8 (bar: 6 to 7; DIFFERS)."
        );
    }

    #[test]
    fn the_verdict_says_what_gave_no_result_also_where_nothing_was_judged() {
        let open = done("open", Ok(vec![Line::new("K*", "7", "9")]));
        let failed = done("failed", Err("interrupted".into()));
        assert_eq!(verdict([&failed].into_iter()), "Nothing was judged; no result from failed.");
        assert_eq!(
            verdict([&open, &failed].into_iter()),
            "Nothing was judged: no quantity here has a bar; no result from failed."
        );
    }

    #[test]
    fn what_was_skipped_is_no_failure_and_stands_with_its_reason_in_text_page_and_json() {
        let mut skipped = done("far", Err("a virtual machine needs kmod".into()));
        skipped.skipped = true;
        assert_eq!(verdict([&skipped].into_iter()), "Nothing was judged; skipped far.");
        let done = BTreeMap::from([(0, skipped)]);
        let results = Results { directory: PathBuf::new(), machine: machine(true), done };
        assert_eq!(results.ran(), 1);
        assert!(results.text().contains("  skipped: a virtual machine needs kmod\n"));
        assert!(results.page().html().contains("Skipped: a virtual machine needs kmod."));
        let json = results.json().unwrap();
        assert!(json.contains(r#""skipped": "a virtual machine needs kmod""#), "{json}");
        assert!(!json.contains("error"), "{json}");
    }

    #[test]
    fn the_overview_names_each_of_its_columns() {
        let results = Results {
            directory: PathBuf::new(),
            machine: machine(true),
            done: BTreeMap::from([(0, done("open", Ok(vec![Line::new("K*", "7", "9")])))]),
        };
        let html = results.page().html();
        let overview = html.split_once("<thead>").unwrap().1.split_once("</thead>").unwrap().0;
        assert!(overview.contains(">DIFFERS</th>"), "{overview}");
        assert!(overview.contains(">no bar</th>") && !overview.contains('–'), "{overview}");
    }
}
