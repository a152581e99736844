//! A daemon's event history: the machine's news, numbered and bounded, and logged to standard error.

use std::collections::{BTreeMap, VecDeque};

use segue_clock::{Span, Time};
use segue_text::errors::Told;
use tracing::{debug, info, warn};

use crate::control::{EventRecord, EventsPage, News, Vocabulary};

/// Events kept for later requests; older ones are forgotten.
const KEPT: usize = 10_000;
/// Burst of events per host that an anchor logs and keeps, so that no host can bury the others'
/// events.
const AT_ONCE: u64 = 200;
/// Time between two events of a host beyond its burst; the excess is counted and dropped.
const PACE: Span = Span::from_millis(500);
/// Burst of events of all hosts that are logged, and the time between two beyond it: a crowd of hosts fills no disk.
const LOGGED_AT_ONCE: u32 = 1_000;
const LOGGED_PACE: Span = Span::from_millis(20);
/// Hosts whose pace is remembered before those with a full allowance are forgotten.
const HOSTS: usize = 1_024;

/// The events of a daemon.
pub struct Events<V: Vocabulary> {
    kept: VecDeque<EventRecord<V>>,
    next: u64,
    /// By name, at an anchor.
    paces: BTreeMap<String, Pace>,
    logged: segue_mobility::Pace,
    /// Events that are kept and were not logged.
    unlogged: u64,
}

/// A host's allowance of events.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When all its events would have come at [`PACE`].
    settled: Time,
    /// Events that were dropped.
    untold: u64,
}

impl<V: Vocabulary> Default for Events<V> {
    fn default() -> Events<V> {
        Events {
            kept: VecDeque::new(),
            next: 0,
            paces: BTreeMap::new(),
            logged: segue_mobility::Pace::default(),
            unlogged: 0,
        }
    }
}

impl<V: Vocabulary> Events<V> {
    /// Notes news and logs it, unless its host has had too many.
    pub fn note(&mut self, now: Time, news: &V::News) {
        let host = news.host();
        // A host's own daemon logs everything.
        if !host.is_empty() && !self.may_tell(now, &host) {
            return;
        }
        let (kind, text) = (news.kind().to_owned(), news.to_string());
        if self.is_to_be_logged(now) {
            if news.warns() { warn!("{text}") } else { info!("{text}") }
        }
        let (number, at_ns, about) = (self.next, now.0, news.about());
        self.kept.push_back(EventRecord { number, at_ns, kind, host, text, about });
        self.next += 1;
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// Whether the log has room for one more line; counts it.
    fn is_to_be_logged(&mut self, now: Time) -> bool {
        let is_within = self.logged.take(now, LOGGED_PACE, LOGGED_AT_ONCE);
        if !is_within {
            self.unlogged += 1;
        } else if self.unlogged > 0 {
            let unlogged = std::mem::take(&mut self.unlogged);
            warn!("{unlogged} events were not logged, there were too many: see `segue events`");
        }
        is_within
    }

    /// Whether one more event of a host is within its pace; counts it.
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

    /// The same as a page, for a client that continues from there later.
    pub fn page(&self, now: Time, number: u64) -> EventsPage<V> {
        EventsPage { events: self.since(number), next: self.next, now_ns: now.0 }
    }
}

/// Logs failures, at most once a second: an error that repeats with every packet must not fill the
/// log.
#[derive(Default)]
pub struct Trouble {
    last: Option<Time>,
}

impl Trouble {
    /// Logs what went wrong, if anything did.
    pub fn note(&mut self, now: Time, result: Result<(), impl Into<anyhow::Error>>) {
        if let Err(error) = result {
            self.tell(now, &error.into());
        }
    }

    /// Logs an error.
    pub fn tell(&mut self, now: Time, error: &anyhow::Error) {
        if self.last.is_some_and(|last| now.since(last) < Span::from_secs(1)) {
            debug!("{}", Told(error));
            return;
        }
        self.last = Some(now);
        warn!("{}", Told(error));
    }
}

#[cfg(test)]
mod tests {
    use segue_tunnel::Report;

    use super::*;
    use crate::control::Tunnels;

    #[test]
    fn events_of_very_many_hosts_fill_no_log_and_are_kept() {
        let mut events = Events::<Tunnels>::default();
        let mut logged = 0;
        for n in 0..100_000u64 {
            let now = Time(n * 1_000_000);
            let before = events.unlogged;
            events.note(now, &Report::Gone { host: format!("host-{n}") });
            logged += u64::from(events.unlogged <= before);
        }
        // A thousand at once, and fifty a second for a hundred seconds.
        assert!((5_990..=6_002).contains(&logged), "{logged}");
        assert_eq!(events.next(), 100_000);
        assert_eq!(events.since(0).len(), KEPT);
    }

    #[test]
    fn a_host_that_has_too_many_events_buries_no_other_hosts() {
        let mut events = Events::<Tunnels>::default();
        let gone = |host: &str| Report::Gone { host: host.into() };
        events.note(Time(0), &gone("alice"));
        for n in 0..100_000 {
            events.note(Time(n * 100_000), &gone("mallory"));
        }
        events.note(Time(10_000_000_000), &gone("alice"));
        let of = |host: &str| events.since(0).iter().filter(|e| e.host == host).count();
        assert_eq!((of("alice"), of("mallory")), (2, 200 + 20 - 1));
        assert_eq!(events.next(), 221, "what is not told has no number");
    }
}
