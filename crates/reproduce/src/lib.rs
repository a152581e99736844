//! `segue reproduce`: runs the papers' experiments on this machine and compares the results with the papers.

#![forbid(unsafe_code)]

mod active_pb;
mod alves;
mod average;
mod catalogue;
mod detection;
mod experiment;
mod false_positives;
mod footprint;
mod levels;
mod loss_levels;
mod memory;
mod netem;
mod planning;
mod processor;
mod repeat;
mod results;
mod round_trip_loss;
mod schedule;
mod step;
mod track;
mod tracking;
mod tunnel;
mod virtual_path;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use segue_linux::netns;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::wrap;

use self::experiment::{Experiment, Needs, Stage};
use self::results::Results;

/// Run the papers' experiments: a page with figures, CSV, and "paper says / here" for each.
#[derive(clap::Args)]
#[command(after_help = "\
Example: segue reproduce salsano-fig16 salsano-fig8
Exit status: 0 if all experiments ran or were skipped, 1 if one could not, 2 for any other error. Differences from \
the papers are reported, and do not change it.")]
pub struct Args {
    /// Experiments to run
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// Run every experiment
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// List the experiments, how long they take and what they need
    #[arg(long, conflicts_with = "ids")]
    list: bool,
    /// Directory for the page, the figures and the tables
    #[arg(long, value_name = "DIR", default_value = "segue-reproduce")]
    out: PathBuf,
    /// Run what is measured this often: the median of each number, with the least and the greatest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Fewer steps and samples, in seconds where it takes minutes: to see that it works, not to judge by
    #[arg(long)]
    quick: bool,
    /// Print only the result, as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// An experiment is unknown, the directory cannot be written, or namespaces cannot be created for lack of permission.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.ids.is_empty() && !args.all && !args.list {
        let ids: Vec<&str> = catalogue::all().iter().map(|experiment| experiment.id).collect();
        bail!(
            "name one or more of {}; or run all with --all, or list them with --list",
            ids.join(", ")
        );
    }
    let experiments =
        if args.ids.is_empty() { catalogue::all() } else { catalogue::find(&args.ids)? };
    if args.list {
        say(&list(&experiments, args.json)?);
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot write to {}", args.out.display()))?;
    // The full path: without root, the process enters its own mount namespace.
    let out = args.out.canonicalize().with_context(|| args.out.display().to_string())?;
    let rootless = !nix::unistd::geteuid().is_root();
    if rootless && experiments.iter().any(|e| matches!(e.needs, Needs::Namespaces | Needs::Daemons))
    {
        netns::unshare_user().context("without root the experiments need a user namespace")?;
    }
    let stage = Stage::new(segue_demo::interrupt::interrupts()?, args.quick);
    let mut results = Results::new(out, rootless)?;
    let how = schedule::How { runs: args.runs, quiet: args.json };
    schedule::run(&experiments, &stage, how, &mut results)?;
    if args.json {
        say(&(results.json()? + "\n"));
    } else {
        say(&wrap(&results.text(), Stream::Output.room()));
    }
    let complete = results.ran() == experiments.len();
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints to standard output. Ignores a closed output: the result files are written anyway.
fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn list(experiments: &[Experiment], json: bool) -> anyhow::Result<String> {
    if json {
        let all: Vec<_> = experiments
            .iter()
            .map(|e| {
                serde_json::json!({ "id": e.id, "paper": e.paper, "title": e.title,
                    "takes_s": e.takes.as_secs(), "needs": e.needs.name() })
            })
            .collect();
        return Ok(serde_json::to_string_pretty(&all)? + "\n");
    }
    let mut text = String::new();
    for e in experiments {
        let takes = e.takes.as_secs();
        text += &format!(
            "{:<16} {takes:>4} s  {:<20} {} ({})\n",
            e.id,
            e.needs.name(),
            e.title,
            e.paper
        );
    }
    Ok(wrap(&text, Stream::Output.room()))
}
