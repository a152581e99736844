//! The plan of a sweep: axes, seeds, and the number of each run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use segue_grammar::Mistake;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::{Spanned, Value};

use crate::file::Scenario;

/// Maximum number of runs in a sweep; each has a separate file until the end.
const MAX_RUNS: u64 = 1_000_000;

/// Number of combinations that are checked, without running them, before a value that is wrong alone is refused: it may
/// be right together with another axis's value.
const TRIES: u64 = 100;

/// A grid of runs. Two sweeps with the same plan have the same results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The version that created the plan: another version may compute other results.
    version: String,
    /// The text of the scenario.
    scenario: String,
    axes: Vec<Axis>,
    seeds: Vec<u64>,
}

/// A key of the scenario, and its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Axis {
    /// Dotted, with the names of list elements.
    pub key: String,
    /// The values as written in the scenario.
    pub values: Vec<String>,
}

/// The parameters of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point<'a> {
    /// Counted from 0.
    pub run: u64,
    /// The seed.
    pub seed: u64,
    /// A value for each axis.
    pub values: Vec<(&'a str, &'a str)>,
}

/// The seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seeds(Vec<u64>);

/// A share of the runs: its index from 0, and the number of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    index: u64,
    of: u64,
}

impl Plan {
    /// The plan for a scenario with a table `[sweep]` and command-line options.
    ///
    /// # Errors
    /// An axis is invalid, or there are too many runs; with file, line and key.
    pub(super) fn of(
        scenario: &Scenario,
        sets: &[(String, Vec<String>)],
        seeds: Option<Seeds>,
    ) -> anyhow::Result<Plan> {
        let tell = |mistake| scenario.source().tell(&mistake);
        let (mut axes, written) = read(scenario).map_err(tell)?;
        for (key, values) in sets {
            let axis = Axis { key: key.clone(), values: values.clone() };
            distinct(&axis).map_err(|message| anyhow!("--set {key}: {message}"))?;
            match axes.iter_mut().find(|known| known.key == *key) {
                Some(known) => *known = axis,
                None => axes.push(axis),
            }
        }
        if axes.is_empty() && seeds.is_none() && written.is_none() {
            bail!("nothing to sweep: write a table [sweep] into the file, or use --set or --seeds");
        }
        let Seeds(seeds) = seeds.or(written).unwrap_or_else(|| Seeds(vec![scenario.seed()]));
        let counts = axes.iter().map(|axis| axis.values.len()).chain([seeds.len()]);
        let runs = counts.fold(1u64, |product, n| product.saturating_mul(n as u64));
        if runs > MAX_RUNS {
            bail!("{runs} runs are more than {MAX_RUNS}: take values away, or make two sweeps");
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Plan { version, scenario: scenario.text().to_owned(), axes, seeds })
    }

    /// Checks every value before any run. Refuses a value that is wrong both alone and combined with the others.
    ///
    /// # Errors
    /// One line with file, line and key.
    pub(super) fn check(&self, scenario: &Scenario) -> anyhow::Result<()> {
        for axis in &self.axes {
            for value in &axis.values {
                let alone = scenario.with(&[(axis.key.clone(), value.clone())]);
                let Err(error) = alone else { continue };
                let has = |point: &Point<'_>| point.values.contains(&(&axis.key, value));
                let points = (0..self.runs()).step_by(self.seeds.len()).map(|run| self.point(run));
                let mut beside = points.filter(has).take(TRIES as usize);
                if self.axes.len() > 1 && beside.any(|point| scenario.with(&point.sets()).is_ok()) {
                    continue;
                }
                return Err(place(scenario, axis, &error));
            }
        }
        Ok(())
    }

    /// The axes, slowest first.
    pub(super) fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of runs.
    pub(super) fn runs(&self) -> u64 {
        let counts = self.axes.iter().map(|axis| axis.values.len() as u64);
        counts.fold(self.seeds.len() as u64, u64::saturating_mul)
    }

    /// The parameters of a run. The seed varies fastest, then the last axis; the first axis varies slowest.
    pub(super) fn point(&self, run: u64) -> Point<'_> {
        let seeds = self.seeds.len() as u64;
        let (mut rest, seed) = (run / seeds, self.seeds[(run % seeds) as usize]);
        let mut values = Vec::new();
        for axis in self.axes.iter().rev() {
            let count = axis.values.len() as u64;
            values.push((axis.key.as_str(), axis.values[(rest % count) as usize].as_str()));
            rest /= count;
        }
        values.reverse();
        Point { run, seed, values }
    }

    /// The runs of a shard.
    pub(super) fn share(&self, shard: Shard) -> Vec<u64> {
        (0..self.runs()).filter(|run| run % shard.of == shard.index).collect()
    }

    /// Checks the number of runs, for a plan from a file.
    pub(super) fn is_one(&self) -> bool {
        (1..=MAX_RUNS).contains(&self.runs())
    }

    /// How another plan differs, as text.
    pub(super) fn difference(&self, other: &Plan) -> &'static str {
        match () {
            () if self.version != other.version => "was made by another version",
            () if self.scenario != other.scenario => "has another scenario",
            () if self.axes != other.axes => "has other axes",
            () => "has other seeds",
        }
    }
}

/// Adds the scenario's line to the error about an axis.
fn place(scenario: &Scenario, axis: &Axis, error: &anyhow::Error) -> anyhow::Error {
    let Ok(SweepFile { sweep: Some(table) }) = scenario.source().read::<SweepFile>() else {
        return anyhow!("{error}");
    };
    let Some(key) = table.keys().find(|key| *key.get_ref() == axis.key) else {
        return anyhow!("{error}");
    };
    // The scenario's error is `FILE: KEY=VALUE: message`, or names a different place that the value made wrong.
    let text = error.to_string();
    let message = match text.split_once(&format!(" {}=", axis.key)) {
        Some((_, rest)) => rest,
        None => &text,
    };
    scenario.source().tell(&Mistake::of(key, message))
}

impl Point<'_> {
    /// The overrides of the scenario.
    pub(super) fn sets(&self) -> Vec<(String, String)> {
        let axes = self.values.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        axes.chain([("seed".into(), self.seed.to_string())]).collect()
    }
}

impl fmt::Display for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.values {
            write!(f, "{key}={value} ")?;
        }
        write!(f, "seed={}", self.seed)
    }
}

impl Shard {
    /// True if the shard contains all runs.
    pub(super) fn is_whole(self) -> bool {
        self.of == 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let bad = || format!("{text:?} is no share: write for example 2/4, from 1/4 to 4/4");
        let (index, of) = text.split_once('/').ok_or_else(bad)?;
        let index: u64 = index.parse().map_err(|_| bad())?;
        let of: u64 = of.parse().map_err(|_| bad())?;
        if index == 0 || index > of {
            return Err(bad());
        }
        Ok(Shard { index: index - 1, of })
    }
}

/// The part of a scenario file that is read here. The scenario's own reader refuses unknown keys.
#[derive(Deserialize)]
struct SweepFile {
    sweep: Option<BTreeMap<Spanned<String>, Spanned<Value>>>,
}

/// The axes of the file, in its order, and its seeds.
fn read(scenario: &Scenario) -> Result<(Vec<Axis>, Option<Seeds>), Mistake> {
    let table = scenario.source().read::<SweepFile>()?.sweep.unwrap_or_default();
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let (mut axes, mut found) = (Vec::new(), None);
    for (key, value) in entries {
        let wrong = |message: String| Mistake::of(&key, message);
        match key.get_ref().as_str() {
            "seeds" => found = Some(seeds_of(value.get_ref()).map_err(wrong)?),
            "seed" => return Err(wrong("write seeds: how many, or a list".into())),
            _ => {
                let values = values_of(value.get_ref()).map_err(wrong)?;
                let axis = Axis { key: key.get_ref().clone(), values };
                distinct(&axis).map_err(wrong)?;
                axes.push(axis);
            }
        }
    }
    Ok((axes, found))
}

fn distinct(axis: &Axis) -> Result<(), String> {
    if axis.key == "seed" {
        return Err("seeds go by seeds or --seeds".into());
    }
    if axis.key == "sweep" || axis.key.starts_with("sweep.") {
        return Err("the sweep is no part of what is swept".into());
    }
    if axis.values.is_empty() {
        return Err("an axis has one value at least".into());
    }
    let twice = axis.values.iter().enumerate().find(|(i, v)| axis.values[..*i].contains(v));
    twice.map_or(Ok(()), |(_, value)| Err(format!("{value} stands there twice")))
}

fn seeds_of(value: &Value) -> Result<Seeds, String> {
    match value {
        Value::Integer(n) => count(*n),
        Value::Array(list) => {
            let seed = |value: &Value| value.as_integer().and_then(|n| u64::try_from(n).ok());
            let seeds: Option<Vec<u64>> = list.iter().map(seed).collect();
            listed(seeds.ok_or("a seed is a whole number from 0")?)
        }
        _ => Err("seeds are how many, or a list".into()),
    }
}

fn count(n: i64) -> Result<Seeds, String> {
    match u64::try_from(n) {
        Ok(n @ 1..=MAX_RUNS) => Ok(Seeds((1..=n).collect())),
        _ => Err(format!("{n} seeds: write a number from 1 to {MAX_RUNS}, or a list")),
    }
}

fn listed(seeds: Vec<u64>) -> Result<Seeds, String> {
    if seeds.is_empty() {
        return Err("a sweep has one seed at least".into());
    }
    match seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed)) {
        Some((_, seed)) => Err(format!("seed {seed} stands there twice")),
        None => Ok(Seeds(seeds)),
    }
}

/// Parses `--seeds`: a number of seeds, or a list.
pub(super) fn seeds(text: &str) -> Result<Seeds, String> {
    let number =
        |text: &str| text.trim().parse::<u64>().map_err(|_| format!("{text:?} is no seed"));
    let numbers: Vec<u64> = text.split(',').map(number).collect::<Result<_, _>>()?;
    match numbers[..] {
        [n] => count(i64::try_from(n).unwrap_or(i64::MAX)),
        _ => listed(numbers),
    }
}

/// Parses `--set`: a key, and values separated by commas outside brackets and quotation marks.
pub(super) fn set(text: &str) -> Result<(String, Vec<String>), String> {
    let (key, rest) = text.split_once('=').ok_or_else(|| format!("{text:?} is no KEY=VALUE"))?;
    let (mut values, mut depth, mut quoted) = (vec![String::new()], 0i32, false);
    for c in rest.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        values.last_mut().expect("it begins with one").push(c);
    }
    Ok((key.to_owned(), values))
}

/// The values of an axis as text: from a list, or from `{ from, to, step }`.
fn values_of(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => Ok(list.iter().map(text_of).collect()),
        Value::Table(table)
            if table.keys().all(|k| ["from", "to", "step"].contains(&k.as_str())) =>
        {
            let get = |key: &str| table.get(key).ok_or_else(|| format!("the range has no {key}"));
            steps(get("from")?, get("to")?, get("step")?)
        }
        Value::Table(table) if !table.is_empty() => {
            let (outer, inner) = ("a key of several parts stands in quotation marks", table.keys());
            Err(format!("{outer}: \"….{}\"", inner.cloned().collect::<Vec<_>>().join("\", \"….")))
        }
        _ => Err("an axis is a list of values, or { from, to, step }".into()),
    }
}

/// A value as TOML writes it. JSON's strings are TOML's as well.
fn text_of(value: &Value) -> String {
    let quoted = |text: &str| Json::from(text).to_string();
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => format!("{x:?}"),
        Value::Boolean(yes) => yes.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(list) => {
            format!("[{}]", list.iter().map(text_of).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let pairs =
                table.iter().map(|(key, value)| format!("{} = {}", quoted(key), text_of(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn steps(from: &Value, to: &Value, step: &Value) -> Result<Vec<String>, String> {
    let integers = (from.as_integer(), to.as_integer(), step.as_integer());
    if let (Some(from), Some(to), Some(step)) = integers {
        let far = i128::from(to) - i128::from(from);
        let count = span(far as f64, step as f64)?;
        let value = |i: u64| i128::from(from) + i128::from(i) * i128::from(step);
        return Ok((0..count).map(|i| value(i).to_string()).collect());
    }
    let number = |value: &Value| value.as_float().or(value.as_integer().map(|n| n as f64));
    let (Some(a), Some(b), Some(s)) = (number(from), number(to), number(step)) else {
        return Err("from, to and step are numbers; for others write a list".into());
    };
    let count = span(b - a, s)?;
    // With as many decimals as the file uses, so that 0.1 + 2 · 0.1 is 0.3.
    let decimals = |x: f64| x.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
    let places = decimals(a).max(decimals(s)).max(1);
    Ok((0..count).map(|i| format!("{:.places$}", a + i as f64 * s)).collect())
}

/// Number of values in a range, including both ends.
fn span(far: f64, step: f64) -> Result<u64, String> {
    let count = far / step;
    if !count.is_finite() || count < 0.0 {
        return Err("the range never gets from its from to its to".into());
    }
    if count >= MAX_RUNS as f64 {
        return Err(format!("the range has more than {MAX_RUNS} values"));
    }
    Ok((count + 1e-9) as u64 + 1)
}
