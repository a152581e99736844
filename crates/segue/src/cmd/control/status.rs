//! `segue status`: once, or every second.

pub(crate) mod mih;
pub(crate) mod page;
pub(crate) mod pmip;
mod sentence;
pub(crate) mod tunnels;

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use segue_clock::Span;
use segue_daemon::control::{self, Any, EventRecord, Status};
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_text::errors::Told;
use segue_text::terminal::layout;
use segue_text::terminal::{Live, Stream, Tone};

use self::page::key_by_key;
use super::which::{Paper, Which};
use crate::cmd::roles;

/// Show the status of a running daemon.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[arg(value_name = "ROLE", conflicts_with = "control", value_parser = names(), hide_possible_values = true, help = help())]
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
    let shown = ask(&args.which, 0)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&shown)?);
    } else {
        let paper = Paper::output();
        print(&lines(&shown, paper), &events(&shown, paper));
    }
    Ok(ExitCode::SUCCESS)
}

/// The roles that can be named.
fn names() -> PossibleValuesParser {
    roles::daemons().map(|(role, _)| role.name).into()
}

fn help() -> String {
    let names: Vec<&str> = roles::installed().map(|role| role.name).collect();
    format!("Role of the daemon, if several run here: {}", names.join(", "))
}

fn ask(which: &Which, events_from: u64) -> anyhow::Result<Status<Any>> {
    control::status(&which.socket()?, events_from)
}

/// The lines of a status without its events. A daemon of another version may have one that its page does not know.
fn lines(status: &Status<Any>, paper: Paper) -> Vec<String> {
    let page = roles::daemon(&status.head.role).and_then(|daemon| daemon.page);
    let typed = page.and_then(|page| page(serde_json::to_value(status).ok()?, paper).ok());
    typed.unwrap_or_else(|| key_by_key(status, paper))
}

/// The last events, each as one or more lines.
fn events(Status { head, events, .. }: &Status<Any>, paper: Paper) -> Vec<Vec<String>> {
    let line = |event: &EventRecord<Any>| {
        let ago = head.now_ns.saturating_sub(event.at_ns) as f64 / 1e9;
        layout::sentence(&format!("{ago:>8.1} s ago  {}", event.text), paper.room)
    };
    events[events.len().saturating_sub(EVENTS)..].iter().map(line).collect()
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
        match ask(&args.which, if args.json { next_event } else { 0 }) {
            Ok(shown) => {
                next_event = shown.head.next_event;
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
    fn tell(&mut self, shown: &Status<Any>) -> anyhow::Result<()> {
        match self {
            Watch::Json => println!("{}", serde_json::to_string(shown)?),
            Watch::Live(live) => {
                let (paper, rows) = (Paper::live(live), live.size().rows);
                live.show(&page(shown, paper, rows))?;
            }
            Watch::Text => {
                let paper = Paper::output();
                print(&lines(shown, paper), &events(shown, paper));
                println!();
            }
        }
        Ok(())
    }

    /// Reports that the daemon does not answer.
    fn miss(&mut self, last: Option<&Status<Any>>, why: &str) -> anyhow::Result<()> {
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
fn page(shown: &Status<Any>, paper: Paper, rows: usize) -> Vec<String> {
    let mut all = lines(shown, paper);
    let mut left = rows.saturating_sub(1 + all.len());
    let fitting = events(shown, paper).into_iter().rev().take_while(|event| {
        let fits = event.len() <= left;
        left = left.saturating_sub(event.len());
        fits
    });
    let fitting: Vec<Vec<String>> = fitting.collect();
    all.extend(fitting.into_iter().rev().flatten());
    all
}
