//! `segue events`: prints past events, and follows new ones.

use std::process::ExitCode;

use segue_clock::Span;
use segue_daemon::control::{Any, EventRecord, EventsPage, any};
use segue_daemon::history;
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_text::errors::Told;
use segue_text::terminal::layout;
use segue_text::units;

use super::past::Past;
use super::which::{Paper, Which};

/// Print what happened: registrations, paths up and down, handovers, clocks that were set.
///
/// A daemon remembers its last 10 000 events. With --since, those of its log are printed, which goes back a day and
/// outlives the daemon.
#[derive(clap::Args)]
pub struct EventsArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    past: Past,
    /// Print also the samples of the log: each path's round-trip time and loss, every ten seconds
    #[arg(long)]
    samples: bool,
    /// Continue with new events, until Ctrl-C
    #[arg(short, long, conflicts_with = "log")]
    follow: bool,
    /// Start with the last COUNT events
    #[arg(short = 'n', long, value_name = "COUNT")]
    last: Option<usize>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Time between two polls.
const EVERY: Span = Span::from_millis(250);

/// Runs `segue events`.
pub fn events(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let mut page = if args.past.is_wanted() || args.samples {
        let logged = args.past.read(&args.which, history::KEEP)?;
        let mut events: Vec<_> = logged.into_iter().map(|logged| logged.record).collect();
        let next = next_after(&events);
        events.retain(|event| args.samples || event.kind != "sample");
        EventsPage { events, next, now_ns: 0 }
    } else {
        ask(&args.which, 0)?
    };
    let skipped = page.events.len().saturating_sub(args.last.unwrap_or(usize::MAX));
    page.events.drain(..skipped);
    print(&page, args.json)?;
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut next, mut answers) = (page.next, true);
    loop {
        let until = clock::monotonic() + EVERY;
        while clock::monotonic() < until {
            if signals.wait(std::iter::empty(), Some(until))? {
                return Ok(ExitCode::SUCCESS);
            }
        }
        match ask(&args.which, next) {
            Ok(page) => {
                if let Some(said) = gap(next, &page) {
                    eprintln!("segue: {said}");
                }
                // A restarted daemon counts from zero.
                let page = if page.next < next { ask(&args.which, 0)? } else { page };
                print(&page, args.json)?;
                (next, answers) = (page.next, true);
            }
            // The daemon answered before, so it may come back.
            Err(error) => {
                if answers {
                    eprintln!("segue: {}", Told(&error));
                }
                answers = false;
            }
        }
    }
}

/// Number of the first event that the running daemon had not yet written to its log.
fn next_after(log: &[EventRecord<Any>]) -> u64 {
    let own = log.iter().rev().take_while(|event| event.kind != "started");
    // A record that is not an event carries the number of the next event.
    let next = |event: &EventRecord<Any>| match &*event.kind {
        "sample" | "stopped" | "unwritten" => event.number,
        _ => event.number + 1,
    };
    own.map(next).max().unwrap_or(0)
}

fn ask(which: &Which, from: u64) -> anyhow::Result<EventsPage<Any>> {
    any::events(&which.socket()?, from)
}

/// Why the page does not continue at event number `next`; `None` if it does.
fn gap(next: u64, page: &EventsPage<Any>) -> Option<String> {
    if page.next < next {
        return Some("the daemon was started anew".into());
    }
    let missed = page.events.first()?.number.checked_sub(next).filter(|missed| *missed > 0)?;
    Some(format!("{missed} events were forgotten before they could be printed"))
}

fn print(page: &EventsPage<Any>, json: bool) -> anyhow::Result<()> {
    let room = Paper::output().room;
    for event in &page.events {
        if json {
            println!("{}", serde_json::to_string(event)?);
        } else {
            // A log file may contain control characters.
            let text: String = event.text.chars().map(visible).collect();
            let line = format!("{}  {text}", when(event.unix_s));
            layout::sentence(&line, room).iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}

/// Replaces control characters, which a terminal would interpret.
fn visible(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

/// A time of day with its date.
pub(super) fn when(unix_s: f64) -> String {
    let ms = (unix_s * 1e3).round() as u64;
    let date = units::date(ms / 1_000);
    format!("{}.{:03}Z", date.trim_end_matches('Z'), ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, kind: &str) -> EventRecord<Any> {
        let (host, text) = ("bob".into(), "bob: gone".into());
        let (kind, about) = (kind.to_owned(), serde_json::Map::new());
        EventRecord { number, at_ns: 0, unix_s: 0.0, kind, host, text, about }
    }

    fn page(numbers: std::ops::Range<u64>) -> EventsPage<Any> {
        let next = numbers.end;
        EventsPage {
            events: numbers.map(|number| event(number, "gone")).collect(),
            next,
            now_ns: 0,
        }
    }

    #[test]
    fn an_event_is_shown_at_its_time_of_day() {
        assert_eq!(when(1_764_000_000.005), "2025-11-24 16:00:00.005Z");
    }

    #[test]
    fn a_follower_goes_on_after_the_last_event_of_the_daemon_that_runs() {
        let mut log = vec![event(0, "started"), event(0, "gone"), event(7, "gone")];
        assert_eq!(next_after(&log), 8);
        log.extend([event(8, "sample"), event(8, "stopped"), event(0, "started")]);
        assert_eq!(next_after(&log), 0);
        log.extend([event(0, "sample"), event(0, "clock"), event(1, "sample")]);
        assert_eq!(next_after(&log), 1);
        assert_eq!(next_after(&[event(7, "sample")]), 7, "nothing happened for a while");
    }

    #[test]
    fn what_is_missing_between_two_looks_is_said() {
        assert_eq!(gap(7, &page(7..9)), None);
        assert_eq!(gap(7, &page(7..7)), None);
        let said = gap(7, &page(12..20)).unwrap();
        assert!(said.starts_with("5 events were forgotten"), "{said}");
        let said = gap(7, &page(0..3)).unwrap();
        assert!(said.contains("started anew"), "{said}");
    }
}
