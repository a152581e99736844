//! A sweep's directory: `sweep.json` identifies the sweep, and `runs/` contains a file for each finished run. Files
//! appear there atomically, so a crash loses only the unfinished runs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use segue_sim::{Results, Value};
use serde::{Deserialize, Serialize};

use super::plan::Plan;

/// The directory with a sweep's runs.
pub(super) struct Store {
    runs: PathBuf,
}

/// The stored result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Its number.
    pub run: u64,
    /// The error, if the run failed.
    pub error: Option<String>,
    /// Its results, in their order.
    pub results: Vec<(String, Figure)>,
}

/// A value. Fractional numbers are strings that parse to the same bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Figure {
    /// A whole number.
    Int(u64),
    /// The shortest decimal representation.
    Float(String),
    /// A string.
    Text(String),
}

impl Kept {
    /// A finished run.
    pub(super) fn of(run: u64, outcome: Result<Results, String>) -> Kept {
        // Lists are left out: their lengths differ from run to run.
        let figure = |value: &Value| match value {
            Value::Int(n) => Some(Figure::Int(*n)),
            Value::Float(x) => Some(Figure::Float(format!("{x:?}"))),
            Value::Text(text) => Some(Figure::Text(text.clone())),
            Value::Rows(_) => None,
        };
        let named = |(name, value): (&str, &Value)| Some((name.to_owned(), figure(value)?));
        let (error, results) = match outcome {
            Ok(results) => (None, results.iter().filter_map(named).collect()),
            Err(error) => (Some(error), Vec::new()),
        };
        Kept { run, error, results }
    }
}

impl Store {
    /// Opens the directory of a sweep: a new one, or one with the same plan.
    ///
    /// # Errors
    /// The directory belongs to another sweep, or cannot be written.
    pub(super) fn open(dir: &Path, plan: &Plan) -> anyhow::Result<Store> {
        let runs = dir.join("runs");
        fs::create_dir_all(&runs).with_context(|| format!("cannot make {}", runs.display()))?;
        match read_plan(dir)? {
            Some(known) if known == *plan => {}
            Some(known) => {
                let why = known.difference(plan);
                bail!("{} holds a sweep that {why}: give another --out", dir.display());
            }
            None => {
                let text = serde_json::to_vec_pretty(plan).context("the plan")?;
                write(&dir.join("sweep.json"), &text)?;
            }
        }
        Ok(Store { runs })
    }

    fn path(&self, run: u64) -> PathBuf {
        self.runs.join(format!("{run:06}.json"))
    }

    /// Stores a finished run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep(&self, kept: &Kept) -> anyhow::Result<()> {
        write(&self.path(kept.run), &serde_json::to_vec(kept).context("a run")?)
    }

    /// True if a run is stored and readable.
    pub(super) fn has(&self, run: u64) -> bool {
        self.load(run).is_ok()
    }

    /// Loads a finished run.
    ///
    /// # Errors
    /// The run is missing or malformed.
    pub(super) fn load(&self, run: u64) -> anyhow::Result<Kept> {
        let path = self.path(run);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let kept: Kept =
            serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
        if kept.run != run {
            bail!("{}: this is run {}", path.display(), kept.run);
        }
        for (name, figure) in &kept.results {
            if let Figure::Float(text) = figure
                && text.parse::<f64>().is_err()
            {
                bail!("{}: {name:?} is {text:?}, which is no number", path.display());
            }
        }
        Ok(kept)
    }
}

/// Writes a file under a temporary name, and renames it when complete.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let wrong = || format!("cannot write {}", path.display());
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    fs::write(&aside, bytes).with_context(wrong)?;
    fs::rename(&aside, path).with_context(wrong)
}

/// The plan in a directory, if there is one.
fn read_plan(dir: &Path) -> anyhow::Result<Option<Plan>> {
    let path = dir.join("sweep.json");
    match fs::read(&path) {
        Ok(bytes) => {
            let plan = serde_json::from_slice::<Plan>(&bytes);
            let plan = plan.with_context(|| format!("{} is no sweep's", path.display()))?;
            if !plan.is_one() {
                bail!("{} is no sweep's: it has no runs, or too many", path.display());
            }
            Ok(Some(plan))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!("{}: {error}", path.display())),
    }
}

/// Collects all runs of a sweep from the directories of its shards.
///
/// # Errors
/// The directories belong to different sweeps, contain two different results of a run, or lack a run.
pub(super) fn gather(dirs: &[PathBuf]) -> anyhow::Result<(Plan, Vec<Kept>)> {
    let mut plan: Option<Plan> = None;
    for dir in dirs {
        let found = read_plan(dir)?.ok_or_else(|| anyhow!("{} holds no sweep", dir.display()))?;
        match &plan {
            Some(known) if *known != found => {
                let (first, why) = (dirs[0].display(), found.difference(known));
                bail!("{} holds a sweep that {why} than {first}", dir.display());
            }
            Some(_) => {}
            None => plan = Some(found),
        }
    }
    let plan = plan.ok_or_else(|| anyhow!("no directories"))?;
    let stores: Vec<_> = dirs.iter().map(|dir| Store { runs: dir.join("runs") }).collect();
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for run in 0..plan.runs() {
        let mut found: Option<Kept> = None;
        for store in stores.iter().filter(|store| store.path(run).exists()) {
            let kept = store.load(run)?;
            if found.as_ref().is_some_and(|other| *other != kept) {
                bail!("run {run} has two different results, one in {}", store.runs.display());
            }
            found = Some(kept);
        }
        match found {
            Some(kept) => all.push(kept),
            None => missing.push(run),
        }
    }
    if !missing.is_empty() {
        let (n, all) = (missing.len(), plan.runs());
        bail!("{n} of {all} runs are missing: {}", ranges(&missing));
    }
    Ok((plan, all))
}

/// Ascending numbers with adjacent ones merged into ranges, at most as many as fit on a line.
fn ranges(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let text = |(first, last): &(u64, u64)| {
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    };
    let some: Vec<_> = runs.iter().take(12).map(text).collect();
    let rest = if runs.len() > 12 { ", …" } else { "" };
    format!("{}{rest}", some.join(", "))
}
