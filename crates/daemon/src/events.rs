//! A daemon's events: reports of the machine and changes of the clock. They are numbered and bounded, logged to
//! standard error, and written to the [log](crate::history) that outlives the daemon.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use segue_clock::{Span, Time};
use tracing::{info, warn};

use crate::control::{EventCounts, EventRecord, EventsPage, News, Vocabulary};
use crate::history::History;
use crate::wall::{Jump, Reading};

/// Events kept for later requests; older ones are forgotten.
const KEPT: usize = 10_000;
/// Burst of events per host that an anchor logs and keeps, so that no host can bury the events of others.
const AT_ONCE: u64 = 200;
/// Time between two events of a host beyond its burst; the excess is counted and dropped.
const PACE: Span = Span::from_millis(500);
/// Burst of events of all hosts that are logged or written.
const CROWD_AT_ONCE: u32 = 1_000;
/// Interval of logged events beyond that burst, so that a crowd of hosts does not fill the disk.
const LOGGED_PACE: Span = Span::from_millis(20);
/// Interval of events beyond that burst in the event log: half of the log's size holds a day of them.
const WRITTEN_PACE: Span = Span::from_secs(5);
/// Hosts whose pace is tracked before those with a full allowance are forgotten.
const HOSTS: usize = 1_024;

/// The events of a daemon.
pub struct Events<V: Vocabulary> {
    kept: VecDeque<EventRecord<V>>,
    next: u64,
    /// By host name, on an anchor.
    paces: BTreeMap<String, Pace>,
    logged: Paced,
    history: Option<History>,
    written: Paced,
    /// The last reading of the clocks.
    seen: Option<Reading>,
    /// Number of events by kind and cause, including suppressed ones.
    counts: EventCounts,
}

/// Allows a burst of events and then one per interval; the others are counted.
#[derive(Default)]
struct Paced {
    pace: segue_mobility::Pace,
    untold: u64,
}

impl Paced {
    /// Takes one event from the allowance. Returns the number of events suppressed since the last one, or `None` to
    /// suppress this one.
    fn take(&mut self, now: Time, period: Span) -> Option<u64> {
        if self.pace.take(now, period, CROWD_AT_ONCE) {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}

/// A host's allowance of events.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// The time at which the host's events so far would be over, at one per [`PACE`].
    settled: Time,
    /// Suppressed events.
    untold: u64,
}

impl<V: Vocabulary> Default for Events<V> {
    fn default() -> Events<V> {
        Events {
            kept: VecDeque::new(),
            next: 0,
            paces: BTreeMap::new(),
            logged: Paced::default(),
            history: None,
            written: Paced::default(),
            seen: None,
            counts: EventCounts::new(),
        }
    }
}

impl<V: Vocabulary> Events<V> {
    /// Starts writing all events to this log.
    pub fn write_to(&mut self, history: History) {
        self.history = Some(history);
    }

    /// Path of the event log.
    pub fn log(&self) -> Option<&Path> {
        self.history.as_ref().map(History::path)
    }

    /// Records a report and logs it, unless its host has had too many.
    pub fn note(&mut self, at: &Reading, news: &V::News) {
        self.look_at_clocks(at);
        self.count(news.kind(), news.cause());
        let host = news.host();
        // A host's own daemon logs every event.
        if !host.is_empty() && !self.may_tell(at.monotonic, &host) {
            return;
        }
        let text = news.to_string();
        if self.is_to_be_logged(at.monotonic) {
            if news.warns() { warn!("{text}") } else { info!("{text}") }
        }
        self.keep(at, news.kind(), host, text, news.about());
    }

    /// Records an event of the daemon itself, and logs it.
    pub fn tell(&mut self, at: &Reading, kind: &str, text: String, about: V::Event) {
        self.look_at_clocks(at);
        info!("{text}");
        self.count(kind, "");
        self.keep(at, kind, String::new(), text, about);
    }

    /// Writes a record that is not an event to the event log.
    pub fn write(&mut self, at: &Reading, kind: &str, text: String, about: V::Event) {
        let Some(history) = &mut self.history else { return };
        let record = EventRecord::<V>::new(at, self.next, kind, String::new(), text, about);
        history.put(at.wall_ns, &record);
    }

    /// Records whether the time of day was set, or the machine slept, since the last look.
    pub fn look_at_clocks(&mut self, at: &Reading) {
        let before = self.seen.replace(*at);
        for jump in before.iter().flat_map(|before| Jump::between(before, at)) {
            warn!("{jump}");
            self.count("clock", "");
            self.keep(at, "clock", String::new(), jump.to_string(), V::Event::default());
        }
    }

    /// Writes an event to the event log, unless there are too many: a crowd must not push the previous day out of it.
    fn write_event(&mut self, at: &Reading, record: &EventRecord<V>) {
        let Some(history) = &mut self.history else { return };
        let Some(unwritten) = self.written.take(at.monotonic, WRITTEN_PACE) else { return };
        history.put(at.wall_ns, record);
        if unwritten > 0 {
            let text = format!("{unwritten} events were not written, there were too many");
            self.write(at, "unwritten", text, V::Event::default());
        }
    }

    fn count(&mut self, kind: &str, cause: &str) {
        let of = self.counts.entry(kind.to_owned()).or_default();
        *of.entry(cause.to_owned()).or_default() += 1;
    }

    /// Number of events by kind and cause.
    pub fn counts(&self) -> &EventCounts {
        &self.counts
    }

    fn keep(&mut self, at: &Reading, kind: &str, host: String, text: String, about: V::Event) {
        let record = EventRecord::new(at, self.next, kind, host, text, about);
        self.write_event(at, &record);
        self.kept.push_back(record);
        self.next += 1;
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// Returns whether one more line may be logged; counts it.
    fn is_to_be_logged(&mut self, now: Time) -> bool {
        let unlogged = self.logged.take(now, LOGGED_PACE);
        if let Some(unlogged) = unlogged.filter(|unlogged| *unlogged > 0) {
            warn!("{unlogged} events were not logged, there were too many: see `segue events`");
        }
        unlogged.is_some()
    }

    /// Returns whether one more event of a host is within its pace; counts it.
    pub fn may_tell(&mut self, now: Time, host: &str) -> bool {
        if self.paces.len() > HOSTS {
            self.paces.retain(|_, pace| pace.settled > now || pace.untold > 0);
        }
        let pace = self.paces.entry(host.to_owned()).or_default();
        let settled = pace.settled.max(now);
        if settled.since(now) > PACE * (AT_ONCE - 1) {
            pace.untold += 1;
            return false;
        }
        pace.settled = settled + PACE;
        let untold = std::mem::take(&mut pace.untold);
        if untold > 0 {
            warn!("{host}: {untold} events were not told, there were too many");
        }
        true
    }

    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The kept events from `number` on.
    pub fn since(&self, number: u64) -> Vec<EventRecord<V>> {
        self.kept.iter().filter(|event| event.number >= number).cloned().collect()
    }

    /// The same as a page, from which a client can continue later.
    pub fn page(&self, now: Time, number: u64) -> EventsPage<V> {
        EventsPage { events: self.since(number), next: self.next, now_ns: now.0 }
    }
}

#[cfg(test)]
mod tests {
    use segue_tunnel::Report;

    use super::*;
    use crate::control::Tunnels;

    /// A machine started in November 2025, whose clock is never set.
    fn at(now: Time) -> Reading {
        let wall_ns = 1_764_000_000_000_000_000 + now.0;
        Reading { monotonic: now, boot: now, wall_ns }
    }

    #[test]
    fn each_event_has_the_time_of_day_that_the_clock_showed_then() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("host.events");
        let (keep, bytes) = (Span::from_secs(86_400), 1_000_000);
        let settings = crate::history::Settings { path: path.clone(), keep, bytes };
        let mut events = Events::<Tunnels>::default();
        events.write_to(History::start(&settings).unwrap());
        let gone = |name: &str| Report::Gone { host: name.into() };
        let second = 1_000_000_000;
        let first = at(Time(second));
        events.note(&first, &gone("first"));
        // An hour back, then ten minutes of sleep.
        let wall_ns = first.wall_ns + second - 3_600 * second;
        let second_one = Reading { wall_ns, ..at(Time(2 * second)) };
        events.note(&second_one, &gone("second"));
        let asleep = Span::from_secs(600);
        let third = Reading {
            monotonic: second_one.monotonic + Span::from_secs(1),
            boot: second_one.boot + Span::from_secs(1) + asleep,
            wall_ns: second_one.wall_ns + second + asleep.0,
        };
        events.look_at_clocks(&third);
        let told: Vec<_> = events.since(0).into_iter().map(|e| (e.text, e.unix_s)).collect();
        let wanted = [
            ("first: gone", 1_764_000_001.0),
            ("the clock was set back by 60 min", 1_763_996_402.0),
            ("second: gone", 1_763_996_402.0),
            ("the machine slept for 10 min", 1_763_997_003.0),
        ];
        assert_eq!(told, wanted.map(|(text, at)| (text.to_owned(), at)));
        drop(events);
        let written = crate::history::read(&path, 0).unwrap();
        let written: Vec<_> = written.iter().map(|record| record["text"].as_str()).collect();
        assert_eq!(written, wanted.map(|(text, _)| Some(text)));
    }

    #[test]
    fn events_of_very_many_hosts_fill_no_log_and_are_kept() {
        let mut events = Events::<Tunnels>::default();
        let mut logged = 0;
        for n in 0..100_000u64 {
            let now = Time(n * 1_000_000);
            let before = events.logged.untold;
            events.note(&at(now), &Report::Gone { host: format!("host-{n}") });
            logged += u64::from(events.logged.untold <= before);
        }
        // A thousand at once, and fifty a second for a hundred seconds.
        assert!((5_990..=6_002).contains(&logged), "{logged}");
        assert_eq!(events.next(), 100_000);
        assert_eq!(events.since(0).len(), KEPT);
    }

    #[test]
    fn events_of_very_many_hosts_leave_the_day_before_in_the_log() {
        let files = tempfile::tempdir().unwrap();
        let path = files.path().join("anchor.events");
        let (keep, bytes) = (Span::from_secs(86_400), 10_000_000);
        let settings = crate::history::Settings { path: path.clone(), keep, bytes };
        let mut events = Events::<Tunnels>::default();
        events.write_to(History::start(&settings).unwrap());
        let gone = |host: String| Report::Gone { host };
        events.note(&at(Time(0)), &gone("before".into()));
        for n in 0..100_000u64 {
            events.note(&at(Time(1_000_000_000 + n * 1_000_000)), &gone(format!("host-{n}")));
        }
        events.note(&at(Time(200_000_000_000)), &gone("after".into()));
        drop(events);
        let written = crate::history::read(&path, 0).unwrap();
        let text = |n: usize| written[n]["text"].as_str().unwrap();
        assert_eq!(text(0), "before: gone");
        assert!((1_000..1_050).contains(&written.len()), "{}", written.len());
        assert!(text(written.len() - 1).ends_with("events were not written, there were too many"));
    }

    #[test]
    fn a_host_that_has_too_many_events_buries_no_other_hosts() {
        let mut events = Events::<Tunnels>::default();
        let gone = |host: &str| Report::Gone { host: host.into() };
        events.note(&at(Time(0)), &gone("alice"));
        for n in 0..100_000 {
            events.note(&at(Time(n * 100_000)), &gone("mallory"));
        }
        events.note(&at(Time(10_000_000_000)), &gone("alice"));
        let of = |host: &str| events.since(0).iter().filter(|e| e.host == host).count();
        assert_eq!((of("alice"), of("mallory")), (2, 200 + 20 - 1));
        assert_eq!(events.counts()["gone"][""], 100_002, "all are counted");
        assert_eq!(events.next(), 221, "what is not told has no number");
    }
}
