//! A daemon's event history: the machine's reports, numbered and bounded, and logged to standard
//! error.

use std::collections::{BTreeMap, VecDeque};

use segue_clock::{Span, Time};
use segue_keepalive::State;
use segue_text::errors::Told;
use segue_tunnel::Report;
use tracing::{debug, info, warn};

use crate::control::{EventRecord, EventsPage};

/// Events kept for later requests; older ones are forgotten.
const KEPT: usize = 10_000;
/// Burst of events per host that an anchor logs and keeps, so that no host can bury the others'
/// events.
const AT_ONCE: u64 = 200;
/// Time between two events of a host beyond its burst; the excess is counted and dropped.
const PACE: Span = Span::from_millis(500);
/// Hosts whose pace is remembered before those with a full allowance are forgotten.
const HOSTS: usize = 1_024;

/// The events of a daemon.
#[derive(Default)]
pub struct Events {
    kept: VecDeque<EventRecord>,
    next: u64,
    /// By name, at an anchor.
    paces: BTreeMap<String, Pace>,
}

/// A host's allowance of events.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// When all its events would have come at [`PACE`].
    settled: Time,
    /// Events that were dropped.
    untold: u64,
}

impl Events {
    /// Notes a report and logs it, unless its host has had too many.
    pub fn note(&mut self, now: Time, report: &Report) {
        let mut record = record_of(report);
        // A host's own daemon logs everything.
        if !record.host.is_empty() && !self.may_tell(now, &record.host) {
            return;
        }
        record.number = self.next;
        record.at_ns = now.0;
        self.next += 1;
        let text = sentence(&record);
        if matches!(report, Report::Refused { .. }) {
            warn!("{text}")
        } else {
            info!("{text}")
        }
        self.kept.push_back(record);
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
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
    pub fn since(&self, number: u64) -> Vec<EventRecord> {
        self.kept.iter().filter(|event| event.number >= number).cloned().collect()
    }

    /// The same as a page, for a client that continues from there later.
    pub fn page(&self, now: Time, number: u64) -> EventsPage {
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

/// One clear sentence about an event.
pub fn sentence(event: &EventRecord) -> String {
    let whose = if event.host.is_empty() { String::new() } else { format!("{}: ", event.host) };
    let path = &event.path;
    match event.kind.as_str() {
        "registered" => format!("{whose}registered, inner addresses {}", event.detail),
        "refused" => format!("{whose}refused: {}", event.detail),
        "gone" => format!("{whose}gone"),
        "path_added" => format!("{whose}path {path} set up"),
        "path_removed" => format!("{whose}path {path} removed"),
        "handover" => {
            let noun = if event.flows == Some(1) { "flow" } else { "flows" };
            let what = match (&event.class, event.flows) {
                (Some(class), Some(n)) => format!("{n} {class} {noun}"),
                (None, Some(n)) if n > 0 => format!("{n} {noun}"),
                _ => "all traffic".to_owned(),
            };
            let to = event.to.as_deref().unwrap_or("nowhere");
            format!("{whose}{what} moved from {path} to {to} ({})", event.detail)
        }
        _ => {
            let silent = event.silent_ms.map(|ms| format!(", silent for {ms:.0} ms"));
            let half = (event.detail == "down" && event.downlink == Some(true))
                .then_some(", downlink still heard");
            format!(
                "{whose}path {path} {}{}{}",
                event.detail,
                silent.unwrap_or_default(),
                half.unwrap_or_default()
            )
        }
    }
}

/// The name of a state in output.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Up => "up",
        State::Down => "down",
    }
}

fn record_of(report: &Report) -> EventRecord {
    let (empty, ms) = (EventRecord::default(), Span::as_millis_f64);
    match report.clone() {
        Report::Registered { host, inner } => {
            let inner: Vec<String> = inner.iter().map(ToString::to_string).collect();
            EventRecord { kind: "registered".into(), host, detail: inner.join(", "), ..empty }
        }
        Report::Refused { host, reason } => {
            EventRecord { kind: "refused".into(), host, detail: reason.to_string(), ..empty }
        }
        Report::Gone { host } => EventRecord { kind: "gone".into(), host, ..empty },
        Report::PathAdded { host, path } => {
            EventRecord { kind: "path_added".into(), host, path, ..empty }
        }
        Report::PathRemoved { host, path } => {
            EventRecord { kind: "path_removed".into(), host, path, ..empty }
        }
        Report::PathState { host, path, state, heard, silent, bound } => EventRecord {
            kind: "path_state".into(),
            host,
            path,
            detail: state_name(state).into(),
            downlink: Some(heard),
            silent_ms: silent.map(ms),
            bound_ms: Some(ms(bound)),
            ..empty
        },
        Report::PathDoubt { host, path } => EventRecord {
            kind: "path_doubt".into(),
            host,
            path,
            detail: "in doubt".into(),
            ..empty
        },
        Report::PathMtu { path, up, down } => {
            let detail = match up == down {
                true => format!("takes packets of {up} bytes at most"),
                false => format!("takes packets of {up} bytes at most up, of {down} down"),
            };
            EventRecord { kind: "path_mtu".into(), path, detail, ..empty }
        }
        Report::Handover { host, class, from, to, cause, flows } => EventRecord {
            kind: "handover".into(),
            host,
            path: from,
            to: Some(to),
            detail: cause.name().into(),
            flows: Some(flows),
            class: class.map(|class| class.name().to_owned()),
            ..empty
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover(flows: Option<usize>, class: Option<&str>) -> String {
        sentence(&EventRecord {
            number: 0,
            at_ns: 0,
            kind: "handover".into(),
            host: String::new(),
            path: "wifi".into(),
            to: Some("lte".into()),
            detail: "down".into(),
            downlink: None,
            silent_ms: None,
            bound_ms: None,
            flows,
            class: class.map(str::to_owned),
        })
    }

    #[test]
    fn a_host_that_has_too_many_events_buries_no_other_hosts() {
        let mut events = Events::default();
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

    #[test]
    fn one_flow_is_told_from_several_and_from_all_traffic() {
        let told = [
            (Some(1), None, "1 flow"),
            (Some(2), None, "2 flows"),
            (Some(0), None, "all traffic"),
            (None, None, "all traffic"),
            (Some(0), Some("voice"), "0 voice flows"),
            (Some(1), Some("voice"), "1 voice flow"),
        ];
        for (flows, class, what) in told {
            assert_eq!(handover(flows, class), format!("{what} moved from wifi to lte (down)"));
        }
    }
}
