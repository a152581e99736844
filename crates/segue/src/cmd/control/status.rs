//! `segue status`: once, or every second.

use std::process::ExitCode;

use segue_clock::Span;
use segue_daemon::control::{self, Any, EventRecord, Status, Tunnels, tunnels};
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_text::errors::Told;
use segue_text::terminal::layout;
use segue_text::terminal::{Live, Stream, Tone};
use serde_json::Value;

use super::paths;
use super::which::{Paper, Which};

/// Show the status of a running daemon.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Role of the daemon, if several run here: host, anchor, pmip-lma, pmip-mag, mih-function, mih-link-sap
    #[arg(value_name = "ROLE", conflicts_with = "control")]
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
        args.which.of_role(role);
    }
    if args.watch {
        return watch(&args);
    }
    let status = match args.which.status(0) {
        Ok(status) => status,
        Err(error) => match control::status::<Any>(&args.which.socket()?, 0) {
            Ok(other) if !tunnels::ROLES.contains(&&*other.head.role) => {
                return of_another_role(&args, &other);
            }
            _ => return Err(error),
        },
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        let paper = Paper::output();
        print(&lines(&status, paper), &events(&status, paper));
    }
    Ok(ExitCode::SUCCESS)
}

/// What every daemon has, and the rest as it comes.
fn of_another_role(args: &StatusArgs, status: &Status<Any>) -> anyhow::Result<ExitCode> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(status)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}, up {:.0} s", status.head.role, status.head.uptime_s);
    for (key, value) in &status.body {
        match value {
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                for (n, item) in items.iter().enumerate() {
                    println!("{:10} {}", if n == 0 { key } else { "" }, words(item));
                }
            }
            value => println!("{key:10} {}", words(value)),
        }
    }
    for (reason, count) in status.head.drops.iter().filter(|(_, count)| **count > 0) {
        println!("dropped    {count} {reason}");
    }
    let skipped = status.events.len().saturating_sub(EVENTS);
    status.events.iter().skip(skipped).for_each(|event| println!("event      {}", event.text));
    Ok(ExitCode::SUCCESS)
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

fn print(lines: &[String], events: &[Vec<String>]) {
    lines.iter().chain(events.iter().flatten()).for_each(|line| println!("{line}"));
}

/// How `--watch` shows the status.
enum Watch {
    /// One object a line.
    Json,
    /// In place, on a terminal.
    Live(Live),
    /// One after the other, each followed by an empty line.
    Text,
}

fn watch(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let mut shown = match (args.json, Stream::Output.is_live()) {
        (true, _) => Watch::Json,
        (false, true) => Watch::Live(Live::new(Stream::Output)),
        (false, false) => Watch::Text,
    };
    let (mut next_event, mut last) = (0, None);
    loop {
        let until = clock::monotonic() + EVERY;
        match args.which.status(if args.json { next_event } else { 0 }) {
            Ok(status) => {
                next_event = status.head.next_event;
                shown.tell(&status)?;
                last = Some(status);
            }
            // A daemon that answered before may come back.
            Err(error) if last.is_some() => {
                next_event = 0;
                shown.miss(last.as_ref(), &Told(&error).to_string())?;
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
    fn tell(&mut self, status: &Status<Tunnels>) -> anyhow::Result<()> {
        match self {
            Watch::Json => println!("{}", serde_json::to_string(status)?),
            Watch::Live(live) => {
                let (paper, rows) = (Paper::live(live), live.size().rows);
                live.show(&page(status, paper, rows))?;
            }
            Watch::Text => {
                let paper = Paper::output();
                print(&lines(status, paper), &events(status, paper));
                println!();
            }
        }
        Ok(())
    }

    /// The daemon does not answer.
    fn miss(&mut self, last: Option<&Status<Tunnels>>, why: &str) -> anyhow::Result<()> {
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

/// The part that fits on a terminal of `rows` rows, with the latest events.
fn page(status: &Status<Tunnels>, paper: Paper, rows: usize) -> Vec<String> {
    let mut all = lines(status, paper);
    let mut left = rows.saturating_sub(1 + all.len());
    let fitting = events(status, paper).into_iter().rev().take_while(|event| {
        let fits = event.len() <= left;
        left = left.saturating_sub(event.len());
        fits
    });
    let fitting: Vec<Vec<String>> = fitting.collect();
    all.extend(fitting.into_iter().rev().flatten());
    all
}

/// All but the events.
fn lines(status: &Status<Tunnels>, paper: Paper) -> Vec<String> {
    let colours = paper.colours;
    let name =
        if status.head.name.is_empty() { String::new() } else { format!(" {}", status.head.name) };
    let mut said = vec![
        format!(
            "{}{name}, up {:.0} s, datapath {}",
            status.head.role, status.head.uptime_s, status.body.datapath
        ),
        format!("device     {} {}", status.body.device, status.body.inner.join(" ")),
    ];
    if status.head.role == "host" {
        let over = status
            .body
            .signalling
            .as_deref()
            .map_or("no signalling".into(), |interface| format!("signalling over {interface}"));
        let anchor = status.body.anchor.as_deref().unwrap_or("not found yet");
        let registered = match status.body.registered {
            true => "registered".to_owned(),
            false => colours.paint(Tone::Bad, "not registered"),
        };
        let no_way = !status.body.paths.is_empty()
            && status.body.paths.iter().all(|path| path.state != "up");
        let way = if no_way { colours.paint(Tone::Bad, "no path is up, ") } else { String::new() };
        said.push(format!("anchor     {anchor}, {registered}, {way}{over}"));
    }
    if let Some(trouble) = &status.body.trouble {
        let why = colours.paint(Tone::Bad, &trouble.why);
        said.push(format!("trouble    {why} ({:.0} s ago)", trouble.ago_s));
    }
    for host in &status.body.hosts {
        let how = if host.connected {
            "connected".to_owned()
        } else {
            colours.paint(Tone::Doubtful, "no signalling")
        };
        said.push(format!("host       {} {} ({how})", host.name, host.inner.join(" ")));
    }
    let mut all: Vec<String> =
        said.iter().flat_map(|line| layout::sentence(line, paper.room)).collect();
    all.extend(paths::lines(&status.body.paths, false, paper));
    all.extend(figures(status).iter().flat_map(|line| layout::sentence(line, paper.room)));
    all
}

/// Classes and counters.
fn figures(status: &Status<Tunnels>) -> Vec<String> {
    let mut said = Vec::new();
    for (class, path) in &status.body.classes {
        let order = match status.body.orders.get(class) {
            Some(wanted) if wanted == path => " (bound by an operator)".into(),
            Some(wanted) => format!(" (an operator wants {wanted}, which is not up)"),
            None => String::new(),
        };
        said.push(format!("class      {class:<12} {path}{order}"));
    }
    for (reason, n) in &status.head.drops {
        said.push(format!("refused    {n} {reason}"));
    }
    if status.body.reinjected > 0 {
        let n = status.body.reinjected;
        said.push(format!("reinjected {n} (sent a second time over another path)"));
    }
    said
}

/// The last events, each in lines.
fn events(status: &Status<Tunnels>, paper: Paper) -> Vec<Vec<String>> {
    let from = status.events.len().saturating_sub(EVENTS);
    let line = |event: &EventRecord<Tunnels>| {
        let ago = status.head.now_ns.saturating_sub(event.at_ns) as f64 / 1e9;
        layout::sentence(&format!("{ago:>8.1} s ago  {}", event.text), paper.room)
    };
    status.events[from..].iter().map(line).collect()
}
