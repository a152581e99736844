//! The types of experiments and their results. Each file holds one experiment or a family of them; [`super::catalogue`]
//! lists all.

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

/// An experiment from one of the papers, or a test of one of their formulas.
pub(crate) struct Experiment {
    /// Name on the command line and in file names.
    pub id: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// Its subject, in one line.
    pub title: &'static str,
    /// Approximate duration.
    pub takes: Duration,
    /// Requirements, which decide which experiments may run at the same time.
    pub needs: Needs,
    /// Runs the experiment. Fails early if the user asks to stop.
    pub run: fn(&Stage) -> anyhow::Result<Outcome>,
}

/// Requirements of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: a calculation, or a simulation on virtual time.
    Nothing,
    /// Network namespaces (root or a user namespace). Measures milliseconds and sends a few packets per second, so
    /// several such experiments run at once.
    Namespaces,
    /// Network namespaces and, as root, the eBPF datapath, whose loading briefly occupies the machine. Several run at
    /// once, after those of [`Needs::Namespaces`].
    Daemons,
    /// Root and an otherwise idle machine: it measures processor time.
    Processor,
    /// A virtual machine with a distribution's kernel (`segue lab vm`); runs alone.
    Machine,
}

/// The requirement that this machine does not meet, so that an experiment was skipped.
#[derive(Debug)]
pub(crate) struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

impl Needs {
    /// The text in the list of experiments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Namespaces => "namespaces",
            Needs::Daemons => "namespaces, daemons",
            Needs::Processor => "root, quiet machine",
            Needs::Machine => "virtual machine",
        }
    }

    /// Checks that this machine meets the requirement, as far as that depends on installed software.
    ///
    /// # Errors
    /// The missing requirement.
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
    /// Use fewer steps and samples, in experiments that support it.
    pub quick: bool,
    /// Results in this run that another experiment sums up, by experiment name.
    pub found: Mutex<BTreeMap<&'static str, Found>>,
}

/// Results of an experiment that another one sums up.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its lines.
    pub lines: Vec<Line>,
    /// True if the page shows these verdicts under the experiment's own heading.
    pub on_page: bool,
}

impl Stage {
    /// A stage without results.
    pub(crate) fn new(interrupts: Interrupts, quick: bool) -> Stage {
        Stage { interrupts, quick, found: Mutex::default() }
    }

    /// Selects one of two values by the extent of the run.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Fails if the user has asked to stop; long experiments call it regularly.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.interrupts.happened(), "interrupted");
        Ok(())
    }
}

/// The results of an experiment.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Diagrams with their captions. The first is `ID.svg`, the others carry their own name too.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<DataTable>,
    /// The paper's statements, each compared with our result.
    pub lines: Vec<Line>,
    /// Parameters, and differences from the paper's setup.
    pub conditions: String,
}

/// A diagram.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Suffix of the experiment's id in the file's name; empty for the first one.
    pub name: &'static str,
    /// Its caption.
    pub caption: String,
    /// The diagram itself; the CSV contains its points.
    pub plot: Plot,
}

/// A table.
#[derive(Debug)]
pub(crate) struct DataTable {
    /// Its caption.
    pub caption: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows, with as many cells as the header.
    pub rows: Vec<Vec<String>>,
}

/// A statement of the paper and our result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The quantity.
    pub what: String,
    /// The paper's value or statement, or a note that it gives none.
    pub paper: String,
    /// Our result.
    pub here: String,
    /// The bar for `here`, or `null`.
    pub bar: Option<String>,
    /// True if the bar is met; `null` without a bar.
    pub agrees: Option<bool>,
}

impl Line {
    /// A line without a verdict.
    pub(crate) fn new(
        what: impl Into<String>,
        paper: impl Into<String>,
        here: impl Into<String>,
    ) -> Line {
        let (what, paper, here) = (what.into(), paper.into(), here.into());
        Line { what, paper, here, bar: None, agrees: None }
    }

    /// Adds the bar and the verdict.
    pub(crate) fn judged(self, bar: impl Into<String>, agrees: bool) -> Line {
        Line { bar: Some(bar.into()), agrees: Some(agrees), ..self }
    }

    /// Judges the line by whether a value stated in the paper lies within a range. A value that is too high is as wrong
    /// as one that is too low.
    pub(crate) fn within(self, value: f64, range: RangeInclusive<f64>, unit: &str) -> Line {
        let bar = format!("{} to {} {unit}", digits(*range.start()), digits(*range.end()));
        self.judged(bar, range.contains(&value))
    }

    /// Judges the line by an upper limit.
    pub(crate) fn at_most(self, value: f64, most: f64, unit: &str) -> Line {
        self.judged(format!("at most {} {unit}", digits(most)), value <= most)
    }

    /// Judges the line by whether a value is within a factor of two of the paper's: machines differ by that much.
    pub(crate) fn about(self, value: f64, stated: f64, unit: &str) -> Line {
        self.within(value, stated / 2.0..=stated * 2.0, unit)
    }

    /// The verdict in one word.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.agrees {
            Some(true) => "agrees",
            Some(false) => "DIFFERS",
            None => "–",
        }
    }
}

/// The lines of an experiment for plausible values, and for values of which some are off by a factor of ten. Every
/// experiment in the catalogue provides these; a test there checks it.
#[cfg(test)]
pub(crate) struct TenTimesOff {
    /// The experiment.
    pub id: &'static str,
    /// Its lines for good values.
    pub right: Vec<Line>,
    /// Its lines for wrong values.
    pub wrong: Vec<Vec<Line>>,
}

#[cfg(test)]
impl TenTimesOff {
    /// Lines that differ for good values, or agree for every set of wrong values.
    pub(crate) fn wrong_verdicts(&self) -> Vec<String> {
        // The text after a semicolon is the number of values that met the bar.
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

/// Cells of a table row from displayable values.
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

/// Column names.
pub(crate) fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Roles of series, so that each colour on a page has one meaning.
pub(crate) mod role {
    /// Imposed values, or a formula's values.
    pub(crate) const IMPOSED: &str = "imposed";
    /// Measured values, by the position of their time constant or variant.
    pub(crate) const MEASURED: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];
}
