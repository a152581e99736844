//! `segue status`: once, or every second.

mod mih;
mod page;
pub(super) mod pmip;
mod sentence;
mod tunnels;

use std::process::ExitCode;

use clap::builder::PossibleValuesParser as Roles;
use segue_clock::Span;
use segue_daemon::control::{self, Any, Head, Status, Tunnels, Vocabulary, tunnels::ROLES};
use segue_daemon::pmip::{lma, mag};
use segue_daemon::run::Role;
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_text::errors::Told;
use segue_text::terminal::layout;
use segue_text::terminal::{Live, Stream, Tone};
use serde::Serialize;
use serde_json::Value;

use self::page::{counted, sentences};
use super::which::{Paper, Which};

/// Show the status of a running daemon.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Role of the daemon, if several run here: host, anchor, pmip-lma, pmip-mag, mih-function, mih-link-sap
    #[arg(value_name = "ROLE", conflicts_with = "control", value_parser = Roles::new(ROLE_NAMES), hide_possible_values = true)]
    role: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Repeat every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print JSON; with --watch one object per line, each with the events since the previous one
    #[arg(long)]
    json: bool,
}

/// The roles with a status.
const ROLE_NAMES: [&str; 7] =
    ["host", "anchor", "pmip-lma", "pmip-mag", "mih-function", "mih-link-sap", "echo"];

/// Time between two polls.
const EVERY: Span = Span::from_secs(1);
/// Most events shown.
const EVENTS: usize = 10;

/// Runs `segue status`.
pub fn status(mut args: StatusArgs) -> anyhow::Result<ExitCode> {
    if let Some(role) = &args.role {
        args.which.of_role(role)?;
    }
    if args.watch {
        return watch(&args);
    }
    let shown = Shown::ask(&args.which, 0)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&shown)?);
    } else {
        let paper = Paper::output();
        print(&shown.lines(paper), &shown.events(paper));
    }
    Ok(ExitCode::SUCCESS)
}

/// A status, typed by role.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown {
    Tunnels(Status<Tunnels>),
    Lma(Status<lma::Words>),
    Mag(Status<mag::Words>),
    Mih(Status<segue_daemon::mih::Words>),
    /// A role without a page, or a daemon of another version.
    Other(Status<Any>),
}

impl Shown {
    /// Asks a daemon for its status, with events from number `events_from` on.
    fn ask(which: &Which, events_from: u64) -> anyhow::Result<Shown> {
        use segue_daemon::mih::Daemon as Mih;
        let status: Status<Any> = control::status(&which.socket()?, events_from)?;
        let value = serde_json::to_value(&status)?;
        let own = match &*status.head.role {
            role if ROLES.contains(&role) => serde_json::from_value(value).map(Shown::Tunnels),
            <lma::Daemon as Role>::NAME => serde_json::from_value(value).map(Shown::Lma),
            <mag::Daemon as Role>::NAME => serde_json::from_value(value).map(Shown::Mag),
            <Mih<false> as Role>::NAME | <Mih<true> as Role>::NAME => {
                serde_json::from_value(value).map(Shown::Mih)
            }
            _ => return Ok(Shown::Other(status)),
        };
        Ok(own.unwrap_or(Shown::Other(status)))
    }

    fn head(&self) -> &Head {
        match self {
            Shown::Tunnels(status) => &status.head,
            Shown::Lma(status) => &status.head,
            Shown::Mag(status) => &status.head,
            Shown::Mih(status) => &status.head,
            Shown::Other(status) => &status.head,
        }
    }

    /// The lines of the status without its events.
    fn lines(&self, paper: Paper) -> Vec<String> {
        match self {
            Shown::Tunnels(status) => tunnels::lines(status, paper),
            Shown::Lma(status) => pmip::anchor(&status.head, &status.body, paper),
            Shown::Mag(status) => pmip::gateway(&status.head, &status.body, paper),
            Shown::Mih(status) => mih::lines(&status.head, &status.body, paper),
            Shown::Other(status) => other(status, paper),
        }
    }

    /// The last events, each as one or more lines.
    fn events(&self, paper: Paper) -> Vec<Vec<String>> {
        match self {
            Shown::Tunnels(status) => events(status, paper),
            Shown::Lma(status) => events(status, paper),
            Shown::Mag(status) => events(status, paper),
            Shown::Mih(status) => events(status, paper),
            Shown::Other(status) => events(status, paper),
        }
    }
}

fn print(lines: &[String], events: &[Vec<String>]) {
    lines.iter().chain(events.iter().flatten()).for_each(|line| println!("{line}"));
}

/// How `--watch` shows the status.
enum Watch {
    /// One JSON object per line.
    Json,
    /// Redrawn in place, on a terminal.
    Live(Live),
    /// One after the other, separated by empty lines.
    Text,
}

fn watch(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let mut watch = match (args.json, Stream::Output.is_live()) {
        (true, _) => Watch::Json,
        (false, true) => Watch::Live(Live::new(Stream::Output)),
        (false, false) => Watch::Text,
    };
    let (mut next_event, mut last) = (0, None);
    loop {
        let until = clock::monotonic() + EVERY;
        match Shown::ask(&args.which, if args.json { next_event } else { 0 }) {
            Ok(shown) => {
                next_event = shown.head().next_event;
                watch.tell(&shown)?;
                last = Some(shown);
            }
            // The daemon answered before, so it may come back.
            Err(error) if last.is_some() => {
                next_event = 0;
                watch.miss(last.as_ref(), &Told(&error).to_string())?;
            }
            Err(error) => return Err(error),
        }
        while clock::monotonic() < until {
            if signals.wait(std::iter::empty(), Some(until))? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

impl Watch {
    fn tell(&mut self, shown: &Shown) -> anyhow::Result<()> {
        match self {
            Watch::Json => println!("{}", serde_json::to_string(shown)?),
            Watch::Live(live) => {
                let (paper, rows) = (Paper::live(live), live.size().rows);
                live.show(&page(shown, paper, rows))?;
            }
            Watch::Text => {
                let paper = Paper::output();
                print(&shown.lines(paper), &shown.events(paper));
                println!();
            }
        }
        Ok(())
    }

    /// Reports that the daemon does not answer.
    fn miss(&mut self, last: Option<&Shown>, why: &str) -> anyhow::Result<()> {
        match (self, last) {
            (Watch::Live(live), Some(last)) => {
                let (paper, rows) = (Paper::live(live), live.size().rows);
                let said = paper.colours.paint(Tone::Bad, &format!("{why}; this is how it stood:"));
                let mut all = layout::sentence(&said, paper.room);
                all.extend(page(last, paper, rows.saturating_sub(all.len())));
                live.show(&all)?;
            }
            _ => eprintln!("segue: {why}"),
        }
        Ok(())
    }
}

/// The part of the status that fits on a terminal with `rows` rows, with the latest events.
fn page(shown: &Shown, paper: Paper, rows: usize) -> Vec<String> {
    let mut all = shown.lines(paper);
    let mut left = rows.saturating_sub(1 + all.len());
    let fitting = shown.events(paper).into_iter().rev().take_while(|event| {
        let fits = event.len() <= left;
        left = left.saturating_sub(event.len());
        fits
    });
    let fitting: Vec<Vec<String>> = fitting.collect();
    all.extend(fitting.into_iter().rev().flatten());
    all
}

/// The last events, each as one or more lines.
fn events<V: Vocabulary>(status: &Status<V>, paper: Paper) -> Vec<Vec<String>> {
    let from = status.events.len().saturating_sub(EVENTS);
    let line = |event: &control::EventRecord<V>| {
        let ago = status.head.now_ns.saturating_sub(event.at_ns) as f64 / 1e9;
        layout::sentence(&format!("{ago:>8.1} s ago  {}", event.text), paper.room)
    };
    status.events[from..].iter().map(line).collect()
}

/// The head that every daemon reports, and the remaining fields unformatted.
fn other(status: &Status<Any>, paper: Paper) -> Vec<String> {
    let mut said = vec![format!("{}, up {:.0} s", status.head.role, status.head.uptime_s)];
    for (key, value) in &status.body {
        match value {
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                for (n, item) in items.iter().enumerate() {
                    said.push(format!("{:10} {}", if n == 0 { key } else { "" }, words(item)));
                }
            }
            value => said.push(format!("{key:10} {}", words(value))),
        }
    }
    said.extend(counted(&status.head.drops));
    sentences(&said, paper)
}

/// A value in words.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "unknown".into(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".into(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(all) if all.is_empty() => "none".into(),
        Value::Object(all) => {
            let parts = all.iter().map(|(key, value)| format!("{key} {}", words(value)));
            parts.collect::<Vec<_>>().join(", ")
        }
        number => number.to_string(),
    }
}
