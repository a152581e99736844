//! `segue`: one binary with a verb for each task. Each verb is a module of [`segue::cmd`] with an
//! `Args` (its options) and a `run`. Invalid input of any kind is reported in one line with exit
//! status 2.

use std::any::Any;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use segue::cmd;
use segue_text::errors::Told;
use segue_text::terminal::{Stream, complain};

/// Maximum line length of help, in characters: longer lines are hard to read.
const HELP_COLUMNS: usize = 100;

/// IP mobility for Linux: keeps every session alive while a device moves between access networks.
#[derive(Parser)]
#[command(name = "segue", version)]
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
    Status(cmd::control::StatusArgs),
    Events(cmd::control::EventsArgs),
    Report(cmd::control::ReportArgs),
    Paths(cmd::control::PathsArgs),
    Flows(cmd::control::FlowsArgs),
    Handover(cmd::control::HandoverArgs),
    Keepalive(cmd::control::KeepaliveArgs),
    Run(cmd::run::Args),
    Check(cmd::check::Args),
    Doctor(cmd::doctor::Args),
    Clean(cmd::clean::Args),
    Lab(cmd::lab::Args),
    Plan(cmd::plan::Args),
    Probe(segue_probe::Args),
    Bench(cmd::bench::Args),
    Reproduce(segue_reproduce::Args),
    Sim(cmd::sim::Args),
    Pmip(cmd::pmip::Args),
    Mih(cmd::mih::Args),
    Decode(segue_decode::Args),
    Generate(cmd::generate::Args),
    #[command(hide = true)]
    Echo(segue_daemon::echo::Args),
}

impl Verb {
    /// Whether stopping the verb midway would leave devices or namespaces behind: a closed output
    /// must not kill it.
    fn has_to_tidy_up(&self) -> bool {
        matches!(
            self,
            Verb::Host(_)
                | Verb::Anchor(_)
                | Verb::Demo(_)
                | Verb::Bench(_)
                | Verb::Reproduce(_)
                | Verb::Run(_)
                | Verb::Pmip(_)
                | Verb::Mih(_)
                | Verb::Echo(_)
        )
    }
}

fn main() -> ExitCode {
    segue_linux::process::use_built_in_lookups();
    // If the output is not a terminal, clap would assume 100 columns.
    let command = Cli::command().term_width(Stream::Output.room().min(HELP_COLUMNS));
    let parsed = command.try_get_matches().and_then(|given| Cli::from_arg_matches(&given));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    say_when_output_fails();
    // Unwinding removes what the verb has set up.
    std::panic::catch_unwind(|| run(cli)).unwrap_or_else(|payload| match output_error(&*payload) {
        Some(_) => ExitCode::from(2),
        None => std::panic::resume_unwind(payload),
    })
}

/// `println!` panics if it cannot write, for example on a full disk. Report that in one line, like
/// bad input.
fn say_when_output_fails() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| match output_error(info.payload()) {
        Some(error) => eprintln!("segue: cannot write to standard output: {error}"),
        None => usual(info),
    }));
}

/// The error in the panic of `println!`.
fn output_error(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>()?.strip_prefix("failed printing to stdout: ")
}

fn run(cli: Cli) -> ExitCode {
    if !cli.verb.has_to_tidy_up() {
        segue_linux::process::end_on_broken_pipe();
    }
    let result: anyhow::Result<ExitCode> = match cli.verb {
        Verb::Demo(args) => cmd::demo::run(args),
        Verb::Host(args) => cmd::host::run(args),
        Verb::Anchor(args) => cmd::anchor::run(args),
        Verb::Enroll(args) => cmd::enroll::run(args),
        Verb::Status(args) => cmd::control::status(args),
        Verb::Events(args) => cmd::control::events(args),
        Verb::Report(args) => cmd::control::report(args),
        Verb::Paths(args) => cmd::control::paths(args),
        Verb::Flows(args) => cmd::control::flows(args),
        Verb::Handover(args) => cmd::control::handover(args),
        Verb::Keepalive(args) => cmd::control::keepalive(args),
        Verb::Run(args) => cmd::run::run(args),
        Verb::Check(args) => cmd::check::run(args),
        Verb::Doctor(args) => cmd::doctor::run(args),
        Verb::Clean(args) => cmd::clean::run(args),
        Verb::Lab(args) => cmd::lab::run(args),
        Verb::Plan(args) => cmd::plan::run(args),
        Verb::Probe(args) => segue_probe::run(args),
        Verb::Bench(args) => cmd::bench::run(args),
        Verb::Reproduce(args) => segue_reproduce::run(args),
        Verb::Sim(args) => cmd::sim::run(args),
        Verb::Pmip(args) => cmd::pmip::run(args),
        Verb::Mih(args) => cmd::mih::run(args),
        Verb::Decode(args) => segue_decode::run(args),
        Verb::Generate(args) => cmd::generate::run(args, Cli::command()),
        Verb::Echo(args) => cmd::block_on(segue_daemon::echo::run(args)),
    };
    result.unwrap_or_else(|error| {
        complain(&Told(&error).to_string());
        ExitCode::from(2)
    })
}

/// Prints help and version as clap does, and any other error in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    if let Some(negative) = negative(error) {
        complain(&format!("{negative} is less than zero, which makes no sense here"));
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let said: String = said
        .map(|line| match line.strip_prefix("tip: ") {
            Some(tip) => format!("; {tip}"),
            None => format!(" {line}"),
        })
        .collect();
    // Rephrase the messages of the standard library's parsers in the user's terms.
    let said = said
        .trim_start()
        .replace("number too large to fit in target type", "too large")
        .replace("invalid float literal", "not a number")
        .replace("invalid digit found in string", "not a whole number");
    complain(said.strip_prefix("error: ").unwrap_or(&said));
    ExitCode::from(2)
}

/// The value that was mistaken for options because it begins with a hyphen. clap names only its
/// first character.
fn negative(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let number = argument.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let given = || std::env::args().find(|given| given.starts_with(argument.as_str()));
    (error.kind() == ErrorKind::UnknownArgument && number).then(given)?
}
