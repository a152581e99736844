//! `segue`: one binary, verbs by what a person wants to do. Each verb is a module of [`cmd`] with an
//! `Args` (its options) and a `run`. Bad input of any kind ends in one line and exit status 2.

mod cmd;
mod config;
mod control;
mod daemon;
mod identity;
mod signalling;
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
    Demo(cmd::demo::Args),
    Host(cmd::host::Args),
    Anchor(cmd::anchor::Args),
    Enroll(cmd::enroll::Args),
    Status(cmd::look::StatusArgs),
    Paths(cmd::look::PathsArgs),
    Flows(cmd::look::FlowsArgs),
    Handover(cmd::look::HandoverArgs),
    Clean(cmd::clean::Args),
    Lab(cmd::lab::Args),
    Plan(cmd::plan::Args),
    Probe(cmd::probe::Args),
}

fn main() -> ExitCode {
    let result: anyhow::Result<ExitCode> = match Cli::parse().verb {
        Verb::Demo(args) => cmd::demo::run(args),
        Verb::Host(args) => cmd::host::run(args),
        Verb::Anchor(args) => cmd::anchor::run(args),
        Verb::Enroll(args) => cmd::enroll::run(args),
        Verb::Status(args) => cmd::look::status(args),
        Verb::Paths(args) => cmd::look::paths(args),
        Verb::Flows(args) => cmd::look::flows(args),
        Verb::Handover(args) => cmd::look::handover(args),
        Verb::Clean(args) => cmd::clean::run(args),
        Verb::Lab(args) => cmd::lab::run(args),
        Verb::Plan(args) => cmd::plan::run(args),
        Verb::Probe(args) => cmd::probe::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("segue: {error:#}");
        ExitCode::from(2)
    })
}
