//! `segue sim`: simulates networks on virtual time.

pub mod dumbbell;
pub mod faults;

use std::process::ExitCode;

use clap::Subcommand;
use segue_scenario::{run, sweep};

/// Simulate networks with the daemons' own protocol code, on virtual time.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Run(run::Args),
    Sweep(sweep::SweepArgs),
    Merge(sweep::MergeArgs),
    Dumbbell(dumbbell::Args),
    Faults(faults::Args),
}

/// Runs the verb.
///
/// # Errors
/// Bad input, or a file that cannot be read or written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => run::run(args),
        What::Sweep(args) => sweep::sweep(args),
        What::Merge(args) => sweep::merge(args),
        What::Dumbbell(args) => dumbbell::run(args),
        What::Faults(args) => faults::run(args),
    }
}
