//! What an experiment is and what comes out of it. One file holds one experiment or a family of
//! them; [`super::catalogue`] lists all.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use segue_demo::interrupt::Interrupts;
use segue_report::Plot;
use serde::Serialize;

/// Paper 1.
pub(crate) const SALSANO: &str = "Salsano et al. 2018";
/// Paper 2.
pub(crate) const PATRIARCA: &str = "Patriarca et al. 2012";
/// Paper 3.
pub(crate) const ALVES: &str = "Alves et al.";

/// An experiment of one of the papers, or a test of one of their formulas.
pub(crate) struct Experiment {
    /// Its name on the command line and in files.
    pub id: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// About how long it takes.
    pub takes: Duration,
    /// What it needs, which decides what it may run beside.
    pub needs: Needs,
    /// Runs it. Ends early, with an error, if the user asks to stop.
    pub run: fn(&Stage) -> anyhow::Result<Outcome>,
}

/// What an experiment needs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: a calculation, or a simulation on virtual time.
    Nothing,
    /// Network namespaces (root or a user namespace). It measures milliseconds and sends a few
    /// packets a second, so several run at once.
    Namespaces,
    /// Network namespaces, and as root the eBPF datapath, whose loading occupies the machine for a
    /// moment. Several run at once, after those of [`Needs::Namespaces`].
    Daemons,
    /// The whole machine, and root: it measures processor time.
    Processor,
    /// A virtual machine with a distribution's kernel (`segue lab vm`); it runs alone.
    Machine,
}

/// Why an experiment did not run: this machine lacks what it needs.
#[derive(Debug)]
pub(crate) struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

impl Needs {
    /// As the list of experiments shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Namespaces => "namespaces",
            Needs::Daemons => "namespaces, daemons",
            Needs::Processor => "root, quiet machine",
            Needs::Machine => "virtual machine",
        }
    }

    /// Whether this machine has it; what has to be installed.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn check(self) -> Result<(), Skipped> {
        if self != Needs::Machine {
            return Ok(());
        }
        let found = segue_lab::vm::Pieces::find(None);
        found.map(|_| ()).map_err(|missing| Skipped(format!("{missing:#}")))
    }
}

/// The environment of an experiment.
pub(crate) struct Stage {
    /// The user's request to stop.
    pub interrupts: Interrupts,
    /// Fewer steps and samples, for those that have such a form.
    pub quick: bool,
    /// What experiments found in this run that another one sums up, by their names.
    pub found: Mutex<BTreeMap<&'static str, Found>>,
}

/// Results of an experiment that another one sums up.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its lines.
    pub lines: Vec<Line>,
    /// The page shows its verdicts under its own heading.
    pub on_page: bool,
}

impl Stage {
    /// A stage without anything found yet.
    pub(crate) fn new(interrupts: Interrupts, quick: bool) -> Stage {
        Stage { interrupts, quick, found: Mutex::default() }
    }

    /// One or the other, by how much is to be done.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Fails once the user wants to stop; long experiments call it from time to time.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.interrupts.happened(), "interrupted");
        Ok(())
    }
}

/// The results.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Diagrams with their captions. The first is `ID.svg`, the others carry their own name too.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<DataTable>,
    /// The paper's statements beside the findings.
    pub lines: Vec<Line>,
    /// Parameters, and how this differs from what the paper did.
    pub conditions: String,
}

/// A diagram.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Suffix of the experiment's id in the file's name; empty for the first one.
    pub name: &'static str,
    /// What it shows.
    pub caption: String,
    /// The diagram itself; the CSV contains its points.
    pub plot: Plot,
}

/// A table.
#[derive(Debug)]
pub(crate) struct DataTable {
    /// What it holds.
    pub caption: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
}

/// A statement of the paper beside what was found here.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The quantity.
    pub what: String,
    /// The paper's value or statement, or a note that it gives none.
    pub paper: String,
    /// What was found here.
    pub here: String,
    /// The bar for `here`; `null` if there is none.
    pub bar: Option<String>,
    /// Whether it is met; `null` like the bar.
    pub agrees: Option<bool>,
}

impl Line {
    /// A line that is not judged.
    pub(crate) fn new(
        what: impl Into<String>,
        paper: impl Into<String>,
        here: impl Into<String>,
    ) -> Line {
        let (what, paper, here) = (what.into(), paper.into(), here.into());
        Line { what, paper, here, bar: None, agrees: None }
    }

    /// The same line with the bar that it is judged by, and the verdict.
    pub(crate) fn judged(self, bar: impl Into<String>, agrees: bool) -> Line {
        Line { bar: Some(bar.into()), agrees: Some(agrees), ..self }
    }

    /// The same line, judged by whether a value that the paper states lies within a range: too high
    /// is as wrong as too low.
    pub(crate) fn within(self, value: f64, range: RangeInclusive<f64>, unit: &str) -> Line {
        let bar = format!("{} to {} {unit}", digits(*range.start()), digits(*range.end()));
        self.judged(bar, range.contains(&value))
    }

    /// The same line, judged by whether a value is at most this.
    pub(crate) fn at_most(self, value: f64, most: f64, unit: &str) -> Line {
        self.judged(format!("at most {} {unit}", digits(most)), value <= most)
    }

    /// The same line, judged by whether a value is within a factor of two of what the paper states: machines differ by
    /// that much.
    pub(crate) fn about(self, value: f64, stated: f64, unit: &str) -> Line {
        self.within(value, stated / 2.0..=stated * 2.0, unit)
    }

    /// The verdict in a word.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.agrees {
            Some(true) => "agrees",
            Some(false) => "DIFFERS",
            None => "–",
        }
    }
}

/// What an experiment says of values as they should be, and of values of which some are ten times off. Each experiment of
/// the catalogue has one: a test there asks for it.
#[cfg(test)]
pub(crate) struct TenTimesOff {
    /// The experiment.
    pub id: &'static str,
    /// Its lines for good values.
    pub right: Vec<Line>,
    /// Its lines for others.
    pub wrong: Vec<Vec<Line>>,
}

#[cfg(test)]
impl TenTimesOff {
    /// The verdicts that differ for good values, or agree with every bad one.
    pub(crate) fn wrong_verdicts(&self) -> Vec<String> {
        // What follows a semicolon is how many values met the bar.
        let bar = |line: &Line| line.bar.as_deref()?.split(';').next().map(str::to_owned);
        let fails = |line: &Line| {
            let same = |other: &&Line| other.what == line.what && bar(other) == bar(line);
            self.wrong.iter().flatten().filter(same).any(|other| other.agrees == Some(false))
        };
        let judged = self.right.iter().filter(|line| line.agrees.is_some());
        let bad = judged.filter(|line| line.agrees == Some(false) || !fails(line));
        bad.map(|line| format!("{}: {line:?}", self.id)).collect()
    }
}

/// The table's cells from anything that can be shown.
pub(crate) fn row<const N: usize>(cells: [&dyn std::fmt::Display; N]) -> Vec<String> {
    cells.map(ToString::to_string).into()
}

/// A number with four significant digits.
pub(crate) fn digits(x: f64) -> String {
    let power = if x == 0.0 { 0.0 } else { x.abs().log10().floor() };
    if (-4.0..6.0).contains(&power) {
        format!("{x:.*}", (3.0 - power).max(0.0) as usize)
    } else {
        format!("{x:.3e}")
    }
}

/// Names of columns.
pub(crate) fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Roles of the series, so that a page uses each colour for one thing.
pub(crate) mod role {
    /// Imposed values, or those of a formula.
    pub(crate) const IMPOSED: &str = "imposed";
    /// Measured values, by the position of their time constant or variant.
    pub(crate) const MEASURED: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];
}
