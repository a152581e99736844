//! `segue`: one binary, verbs by what a person wants to do. Each verb is a module of [`cmd`] with an
//! `Args` (its options) and a `run`. Bad input of any kind ends in one line and exit status 2.

mod cmd;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// IP mobility for Linux: keeps every session alive while a device moves between access networks.
#[derive(Parser)]
#[command(name = "segue", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Plan(cmd::plan::Args),
    Probe(cmd::probe::Args),
}

fn main() -> ExitCode {
    let result: anyhow::Result<ExitCode> = match Cli::parse().verb {
        Verb::Plan(args) => cmd::plan::run(args),
        Verb::Probe(args) => cmd::probe::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("segue: {error:#}");
        ExitCode::from(2)
    })
}
