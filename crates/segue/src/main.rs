//! `segue`: one binary, verbs by what a person wants to do. Each verb is a module of [`segue::cmd`] with an
//! `Args` (its options) and a `run`. Bad input of any kind ends in one line and exit status 2.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use segue::cmd;

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
    Keepalive(cmd::look::KeepaliveArgs),
    Clean(cmd::clean::Args),
    Lab(cmd::lab::Args),
    Plan(cmd::plan::Args),
    Probe(cmd::probe::Args),
    Bench(cmd::bench::Args),
    Reproduce(cmd::reproduce::Args),
    Sim(cmd::sim::Args),
}

impl Verb {
    /// Leaves devices or namespaces behind if it is ended in the middle: nobody may close its output on it.
    fn has_to_tidy_up(&self) -> bool {
        matches!(
            self,
            Verb::Host(_) | Verb::Anchor(_) | Verb::Demo(_) | Verb::Bench(_) | Verb::Reproduce(_)
        )
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if !cli.verb.has_to_tidy_up() {
        segue_linux::process::end_on_broken_pipe();
    }
    let result: anyhow::Result<ExitCode> = match cli.verb {
        Verb::Demo(args) => cmd::demo::run(args),
        Verb::Host(args) => cmd::host::run(args),
        Verb::Anchor(args) => cmd::anchor::run(args),
        Verb::Enroll(args) => cmd::enroll::run(args),
        Verb::Status(args) => cmd::look::status(args),
        Verb::Paths(args) => cmd::look::paths(args),
        Verb::Flows(args) => cmd::look::flows(args),
        Verb::Handover(args) => cmd::look::handover(args),
        Verb::Keepalive(args) => cmd::look::keepalive(args),
        Verb::Clean(args) => cmd::clean::run(args),
        Verb::Lab(args) => cmd::lab::run(args),
        Verb::Plan(args) => cmd::plan::run(args),
        Verb::Probe(args) => cmd::probe::run(args),
        Verb::Bench(args) => cmd::bench::run(args),
        Verb::Reproduce(args) => cmd::reproduce::run(args),
        Verb::Sim(args) => cmd::sim::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("segue: {error:#}");
        ExitCode::from(2)
    })
}

/// Help and version as clap prints them; anything else in one line that says what is wrong.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    let said = said.join(" ");
    eprintln!("segue: {}", said.strip_prefix("error: ").unwrap_or(&said));
    ExitCode::from(2)
}
