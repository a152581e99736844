//! `segue sim sweep` and `segue sim merge`.

mod plan;
mod store;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use super::file::{self, Scenario};
use plan::{Plan, Point, Shard};
use segue_text::say;
use store::{Kept, Store};

/// Run a scenario over a grid of parameters and seeds
#[derive(clap::Args, Debug)]
pub struct SweepArgs {
    /// A scenario with a table [sweep] (docs/simulator/sweeps.md).
    file: PathBuf,
    /// Directory for the results; one with results of the same sweep is continued
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Values of a key, in addition to the axes of the file or replacing one; repeatable
    #[arg(long, value_name = "KEY=VALUE,VALUE", value_parser = plan::set)]
    set: Vec<(String, Vec<String>)>,
    /// Override the seeds of the file: how many, from 1, or a list
    #[arg(long, value_name = "N|LIST", value_parser = plan::seeds)]
    seeds: Option<plan::Seeds>,
    /// Runs at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Run only the I-th of N shares, from 1; `segue sim merge` then makes the tables
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Put the results of a sweep's shards together
#[derive(clap::Args, Debug)]
pub struct MergeArgs {
    /// Where results.csv and results.parquet go.
    out: PathBuf,
    /// Directories of the shards; or one that all of them wrote to.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a sweep.
///
/// # Errors
/// The input is invalid, or a file cannot be read or written.
pub fn sweep(args: SweepArgs) -> anyhow::Result<ExitCode> {
    let text = segue_grammar::text(&args.file)?;
    if file::population::is_one(&text) {
        let name = args.file.display();
        bail!("{name}: a population is not swept: segue sim run it with --seed and --set");
    }
    let scenario = Scenario::of_text(&args.file, &text, &[])?;
    let plan = Plan::of(&scenario, &args.set, args.seeds)?;
    plan.check(&scenario)?;
    let store = Store::open(&args.out, &plan)?;
    let jobs = match args.jobs {
        Some(jobs) => usize::from(jobs),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let run = |point: &Point<'_>| {
        let scenario = scenario.with(&point.sets()).map_err(|error| error.to_string())?;
        scenario.run(None).map_err(|error| error.to_string())
    };
    let runs = plan.share(args.shard);
    work::execute(&plan, &store, &runs, jobs, &run)?;
    let kept: Vec<Kept> = runs.iter().map(|run| store.load(*run)).collect::<Result<_, _>>()?;
    let out = if args.shard.is_whole() { Some(args.out.as_path()) } else { None };
    finish(&plan, &kept, out, args.json)
}

/// Checks the table `[sweep]` of a scenario, if it has one, without running the sweep.
///
/// # Errors
/// One line with file, line and key.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    if !scenario.is_swept() {
        return Ok(());
    }
    Plan::of(scenario, &[], None)?.check(scenario)
}

/// Merges shards.
///
/// # Errors
/// The input is invalid, or a file cannot be read or written.
pub fn merge(args: MergeArgs) -> anyhow::Result<ExitCode> {
    let (plan, kept) = store::gather(&args.dirs)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| anyhow::anyhow!("{}: {error}", args.out.display()))?;
    finish(&plan, &kept, Some(&args.out), args.json)
}

/// Writes the tables, reports failures, and prints a summary.
fn finish(
    plan: &Plan,
    kept: &[Kept],
    out: Option<&Path>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    if let Some(out) = out {
        let table = table::Table::of(plan, kept)?;
        for (name, bytes) in [("results.csv", table.csv()), ("results.parquet", table.parquet()?)] {
            let path = out.join(name);
            store::write(&path, &bytes)?;
            files.push(path.display().to_string());
        }
    }
    let mut failed = Vec::new();
    for run in kept {
        if let Some(error) = &run.error {
            let point = plan.point(run.run);
            eprintln!("segue: run {} ({point}) failed: {error}", run.run);
            failed.push(json!({ "run": run.run, "parameters": point.to_string(), "error": error }));
        }
    }
    let (done, all, bad) = (kept.len(), plan.runs(), failed.len());
    if as_json {
        let summary = json!({ "runs": all, "done": done, "failed": failed, "files": files });
        println!("{summary}");
    } else if files.is_empty() {
        say!("{done} of {all} runs done, {bad} failed; segue sim merge puts the shards together");
    } else {
        say!("{done} runs, {bad} failed: {}", files.join(", "));
    }
    if kept.is_empty() {
        bail!("this shard has no runs: the sweep has {all}");
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
