//! `segue events`: prints past events, and follows new ones.

use std::process::ExitCode;

use segue_clock::Span;
use segue_daemon::control::{Any, EventRecord, EventsPage, any};
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use segue_text::errors::Told;
use segue_text::terminal::layout;
use segue_text::units;

use super::which::{Paper, Which};

/// Print the events that a daemon remembers: registrations, paths up and down, handovers.
///
/// A daemon remembers its last 10 000 events.
#[derive(clap::Args)]
pub struct EventsArgs {
    #[command(flatten)]
    which: Which,
    /// Continue with new events, until Ctrl-C
    #[arg(short, long)]
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
    let mut page = ask(&args.which, 0)?;
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
            // A daemon that answered before may come back.
            Err(error) => {
                if answers {
                    eprintln!("segue: {}", Told(&error));
                }
                answers = false;
            }
        }
    }
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
    let (now_ns, room) = (clock::realtime_ns(), Paper::output().room);
    for event in &page.events {
        if json {
            println!("{}", serde_json::to_string(event)?);
        } else {
            let line = format!("{}  {}", when(event, page.now_ns, now_ns), event.text);
            layout::sentence(&line, room).iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}

/// The time of day of an event, if the daemon's clock shows `daemon_ns` when the time of day is `now_ns`.
fn when(event: &EventRecord<Any>, daemon_ns: u64, now_ns: u64) -> String {
    let at_ns = now_ns.saturating_sub(daemon_ns.saturating_sub(event.at_ns));
    let (s, ms) = (at_ns / 1_000_000_000, at_ns / 1_000_000 % 1_000);
    let date = units::date(s);
    format!("{}.{ms:03}Z", date.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, at_ns: u64) -> EventRecord<Any> {
        let (kind, host, text) = ("gone".into(), "bob".into(), "bob: gone".into());
        EventRecord { number, at_ns, kind, host, text, about: serde_json::Map::new() }
    }

    fn page(numbers: std::ops::Range<u64>) -> EventsPage<Any> {
        let next = numbers.end;
        EventsPage { events: numbers.map(|number| event(number, 0)).collect(), next, now_ns: 0 }
    }

    #[test]
    fn an_event_is_shown_at_its_time_of_day() {
        let event = event(0, 4_000_000_000);
        let now_ns = 1_764_000_000 * 1_000_000_000 + 7_000_000;
        assert_eq!(when(&event, 4_002_000_000, now_ns), "2025-11-24 16:00:00.005Z");
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
