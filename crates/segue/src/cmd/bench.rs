//! `segue bench`: measures the cost of probing on this machine, implementations side by side.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use segue_bench::Responder;
use segue_bench::probes::{self, BenchOptions};
use segue_clock::Span;
use segue_text::units;

mod show;

/// Measure what Segue costs on this machine, compared with other ways of doing the same.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Processor time and turnaround of an answered probe, from SIP to XDP (Table 2 of paper 1), and of
    /// sending probes.
    Probes(ProbesArgs),
}

/// Options of `segue bench probes`.
#[derive(clap::Args)]
#[command(after_help = "Example: segue bench probes --only syscall,tc,xdp --runs 3")]
struct ProbesArgs {
    /// Measure only these: sip, java, c, syscall, batched, af_xdp, tc, xdp, xdp-bare, raw (frames without socket
    /// buffers: of xdp and xdp-bare), sending (10 000 paths).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Part>,
    /// Measurements of each part.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Duration of each measurement.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    duration: Span,
    /// Only requests that arrive N at a time (1 to 64) [default: 32 and 1].
    #[arg(long, value_name = "N")]
    burst: Option<usize>,
    /// Print JSON (docs/measured.md has its fields).
    #[arg(long)]
    json: bool,
    /// Also write the table as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write probes.json and probes.csv there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Responder(Responder),
    Raw,
    Sending,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Part, String> {
        match name {
            "raw" => Ok(Part::Raw),
            "sending" => Ok(Part::Sending),
            _ => name.parse().map(Part::Responder).map_err(|e: String| e + ", raw, sending"),
        }
    }
}

/// Runs the verb.
///
/// # Errors
/// Invalid options, no root, or a file that cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    let What::Probes(args) = args.what;
    let report = probes::run(&options(&args), &mut |step: &str| eprintln!("{step}"))?;
    let json = serde_json::to_string_pretty(&report)?;
    let csv = show::csv(&report);
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(directory) = &args.out {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        write(directory.join("probes.json"), &json)?;
        write(directory.join("probes.csv"), &csv)?;
    }
    if let Some(path) = args.csv {
        write(path, &csv)?;
    }
    if args.json {
        println!("{json}");
    } else {
        print!("{}", show::table(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &ProbesArgs) -> BenchOptions {
    let mut options = BenchOptions {
        runs: usize::from(args.runs),
        duration: Duration::from_nanos(args.duration.0),
        ..BenchOptions::default()
    };
    if let Some(burst) = args.burst {
        options.bursts = vec![burst];
    }
    if !args.only.is_empty() {
        options.raw = args.only.contains(&Part::Raw);
        if !args.only.contains(&Part::Sending) {
            options.sending = None;
        }
        options.responders.retain(|r| args.only.contains(&Part::Responder(*r)));
    }
    options
}
