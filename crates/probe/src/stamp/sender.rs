//! The main loop of the Session-Senders, and its output.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use segue_clock::{Span, Time};
use segue_keepalive::Counted;
use segue_linux::clock;
use segue_linux::stop_signals::StopSignals;
use serde::Serialize;

use super::common::Common;
use super::session::{News, Session, Short};
use super::stats::{JitterMs, Sample};
use crate::addresses::shown;
use crate::icmp::{self, Said};
use crate::ipdv::IpdvMs;
use crate::metrics::{Label, Page, Server as Metrics, names};
use crate::opening::Opening;
use crate::samples::RttMs;
use crate::screen::{
    Live, Output, Packets, exit_code, list, live_answers, live_losses, loss, loss_text, ms,
    order_text, percent, print, print_json, sent_text, stamp_name, tell_icmp, variation_text,
};

#[derive(Serialize)]
struct SampleLine<'a> {
    r#type: &'static str,
    target: &'a str,
    at_s: f64,
    seq: u32,
    rtt_ms: Option<f64>,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    stamp: &'static str,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    r#type: &'static str,
    target: &'a str,
    at_s: f64,
    error: String,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    protocol: &'static str,
    targets: Vec<TargetSummary<'a>>,
}

#[derive(Serialize)]
struct TargetSummary<'a> {
    target: &'a str,
    address: String,
    sent: u32,
    received: u32,
    in_flight: u32,
    rtt_ms: RttMs,
    jitter_ms: JitterMs,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    rtl: Option<f64>,
    packets_up: Option<Packets>,
    packets_down: Option<Packets>,
    duplicates: u64,
    reordered: u64,
    stamp: &'static str,
    reflector: Reflector,
    drops: &'a BTreeMap<&'static str, u64>,
    ipdv_ms: IpdvMs,
    icmp: Vec<icmp::Count>,
    #[serde(skip)]
    icmp_text: String,
    #[serde(skip)]
    short: Option<Short>,
}

/// Information about the other end.
#[derive(Serialize)]
struct Reflector {
    stateful: bool,
    /// TTL or hop limit on arrival of the last request, which was sent with 255.
    ttl: Option<u8>,
    clock_error_ms: Option<f64>,
    synchronised: bool,
    /// DSCP on arrival of the last request, and below of its answer.
    dscp_up: Option<u8>,
    dscp_down: Option<u8>,
    /// The other end refused the requested DSCP.
    dscp_refused: Option<bool>,
    /// Average delay of its answers after their stated departure.
    follow_up_ms: Option<f64>,
    unrecognised: u64,
    malformed: u64,
    integrity: u64,
    implausible: u64,
}

struct Screen {
    output: Output,
    live: Live,
    start: Time,
}

/// Measures until all requests are sent and answered, or until interrupted.
///
/// # Errors
/// Signals, sockets or output fail.
pub(super) fn run(mut sessions: Vec<Session>, common: &Common<'_>) -> anyhow::Result<ExitCode> {
    let signals = StopSignals::take()?;
    let metrics = common.running.told_metrics(common.output)?;
    for session in &sessions {
        opening(session, common).tell(common.output)?;
    }
    common.running.scheduling();
    let start = clock::monotonic();
    let end = common.deadline.map(|length| start + length);
    // How long to wait for an answer, as with the compact probe.
    let grace = common.interval * (u64::from(common.k) + 1);
    let mut screen = Screen::new(common.output, start);
    let mut due = start;
    loop {
        let now = clock::monotonic();
        let over = end.is_some_and(|end| now >= end);
        let all_sent = over || common.count.is_some_and(|count| sessions[0].sent >= count);
        if !all_sent && due <= now {
            sessions.iter_mut().for_each(Session::send);
            // Do not send a burst after the machine stalled.
            due = (due + common.interval).max(now);
        }
        for session in &mut sessions {
            session.receive()?;
            for news in session.news() {
                screen.news(now, session, &news)?;
            }
        }
        screen.live.draw(now, sessions.iter().map(live_items))?;
        if let Some(metrics) = &metrics {
            metrics.answer(|| page(&sessions));
        }
        let sending = [Some(due), end.filter(|end| *end > now)];
        let waiting = sessions.iter().filter(|s| s.outstanding(now - grace) > 0);
        let mut wake = if all_sent {
            waiting.map(|s| s.last_sent() + grace).max()
        } else {
            sending.into_iter().flatten().min()
        };
        let done = all_sent && wake.is_none();
        wake = wake.into_iter().chain(screen.live.deadline()).min();
        let sockets = sessions.iter().map(AsFd::as_fd);
        if done || signals.wait(sockets.chain(metrics.as_ref().map(Metrics::as_fd)), wake)? {
            break;
        }
    }
    let now = clock::monotonic();
    screen.summary(now, grace, &sessions)?;
    Ok(exit_code(sessions.iter().map(|s| (s.stats.received, s.error.is_some()))))
}

fn opening<'a>(session: &'a Session, common: &Common<'a>) -> Opening<'a> {
    Opening {
        name: &session.name,
        address: session.address,
        interface: common.interface,
        protocol: "stamp",
        size: session.length(),
        interval: common.interval,
        count: common.count,
        deadline: common.deadline,
        keyed: common.key.is_some(),
    }
}

/// The page of metrics: those of the compact probe that STAMP can measure, and its jitter.
fn page(sessions: &[Session]) -> String {
    let mut page = Page::default();
    for session in sessions {
        let (stats, labels) = (&session.stats, [("target", session.name.clone())]);
        let way = |way: &str| -> [Label; 1] { [("direction", way.to_owned())] };
        if let Some(rtt) = stats.rtt_last {
            page.add(&names::RTT, &labels, &[], rtt.as_secs_f64());
        }
        let jitter = stats.jitter_ms();
        for (name, ms) in [("both", jitter.rtt), ("up", jitter.up), ("down", jitter.down)] {
            if let Some(ms) = ms {
                page.add(&names::JITTER, &labels, &way(name), ms / 1e3);
            }
        }
        if let Some((up, down)) = stats.directions() {
            for (name, counted) in [("up", up), ("down", down)] {
                page.add(&names::PACKETS_SENT, &labels, &way(name), counted.sent as f64);
                page.add(&names::PACKETS_RECEIVED, &labels, &way(name), counted.received as f64);
            }
        }
        for (metric, count) in [
            (&names::DUPLICATES, stats.duplicates),
            (&names::REORDERED, stats.reordered),
            (&names::PROBES_SENT, session.sent.into()),
            (&names::PROBES_RECEIVED, stats.received.into()),
        ] {
            page.add(metric, &labels, &[], count as f64);
        }
        page.drops(&labels, session.drops.by_reason());
    }
    page.text()
}

impl Screen {
    fn new(output: Output, start: Time) -> Screen {
        Screen { output, live: Live::new(output), start }
    }

    fn news(&self, now: Time, session: &Session, news: &News) -> io::Result<()> {
        if self.output.quiet || self.live.is_on() {
            return Ok(());
        }
        let at_s = |at: Time| at.since(self.start).as_secs_f64();
        let target = session.name.as_str();
        let (owl_up, owl_down) = directions(session);
        match (news, self.output.json) {
            (News::Sample(sample), true) => print_json(&SampleLine {
                r#type: "sample",
                target,
                at_s: at_s(sample.at),
                seq: sample.seq,
                rtt_ms: sample.rtt.map(Span::as_millis_f64),
                owl_up,
                owl_down,
                stamp: if sample.kernel { "kernel" } else { "user" },
            }),
            (News::Sample(sample), false) => print(&sample_text(session, sample)),
            (News::Unsendable(error), true) => {
                let (at_s, error) = (at_s(now), error.to_string());
                print_json(&ErrorLine { r#type: "error", target, at_s, error })
            }
            (News::Unsendable(error), false) => print(&format!("{target}: cannot send: {error}")),
            (News::Icmp(said), _) => tell_icmp(self.output, at_s(now), target, *said),
        }
    }

    /// Requests younger than `grace` may still be answered, and count neither as answered nor as lost.
    fn summary(&mut self, now: Time, grace: Span, sessions: &[Session]) -> io::Result<()> {
        self.live.last(now, sessions.iter().map(live_items))?;
        let targets: Vec<_> = sessions.iter().map(|s| summary(s, now - grace)).collect();
        if self.output.json {
            return print_json(&Summary { r#type: "summary", protocol: "stamp", targets });
        }
        targets.iter().try_for_each(|target| print(&target.text()))
    }
}

fn directions(session: &Session) -> (Option<f64>, Option<f64>) {
    session.stats.directions().map_or((None, None), |(up, down)| (loss(up), loss(down)))
}

fn sample_text(session: &Session, sample: &Sample) -> String {
    let mut text = format!("{}: seq={}", session.name, sample.seq);
    match sample.rtt {
        Some(rtt) => text += &format!(" rtt={:.3} ms", rtt.as_millis_f64()),
        None => text += " rtt unknown: the reflector's times cannot be right",
    }
    let (up, down) = directions(session);
    for (way, share) in [("up", up), ("down", down)] {
        if share.is_some() {
            text += &format!(" loss {way}={}", percent(share));
        }
    }
    text
}

/// The items of a session's live line.
fn live_items(session: &Session) -> Vec<String> {
    let (up, down) = directions(session);
    let rtt = session.stats.rtt_ms();
    let mut items = vec![
        session.name.clone(),
        format!("rtt {} ms (min {}, max {})", ms(rtt.avg), ms(rtt.min), ms(rtt.max)),
    ];
    items.extend(live_losses([up, down, None]));
    items.push(live_answers(session.stats.received, session.sent));
    items.extend(session.icmp.last().map(Said::text));
    if let Some(error) = &session.error {
        items.push(format!("cannot send: {}", error.kind()));
    }
    items
}

fn summary(session: &Session, since: Time) -> TargetSummary<'_> {
    let stats = &session.stats;
    let in_flight = session.outstanding(since);
    let judged = session.sent.saturating_sub(in_flight);
    let directions = stats.directions();
    TargetSummary {
        target: &session.name,
        address: shown(session.address),
        sent: session.sent,
        received: stats.received,
        in_flight,
        rtt_ms: stats.rtt_ms(),
        jitter_ms: stats.jitter_ms(),
        owl_up: directions.and_then(|(up, _)| loss(up)),
        owl_down: directions.and_then(|(_, down)| loss(down)),
        rtl: loss(Counted { sent: judged.into(), received: stats.received.into() }),
        packets_up: directions.map(|(up, _)| up.into()),
        packets_down: directions.map(|(_, down)| down.into()),
        duplicates: stats.duplicates,
        reordered: stats.reordered,
        stamp: stamp_name(stats.kernel_stamps.into(), stats.received.into()),
        reflector: reflector(session),
        drops: session.drops.by_reason(),
        ipdv_ms: stats.ipdv.ms(),
        icmp: session.icmp.counts(),
        icmp_text: session.icmp.text(),
        short: session.short,
    }
}

fn reflector(session: &Session) -> Reflector {
    let stats = &session.stats;
    let class = stats.class;
    let (follow_ups, late) = stats.follow_ups;
    Reflector {
        stateful: stats.stateful,
        ttl: stats.ttl,
        clock_error_ms: stats.clock_error_s.map(|s| s * 1e3),
        synchronised: stats.synchronised,
        dscp_up: class.map(|(told, _)| told.dscp2),
        dscp_down: class.and_then(|(_, class)| class).map(|class| class >> 2),
        dscp_refused: class.map(|(told, _)| told.rp != 0),
        follow_up_ms: (follow_ups > 0).then(|| late.as_millis_f64() / follow_ups as f64),
        unrecognised: stats.unrecognised,
        malformed: stats.malformed,
        integrity: stats.integrity,
        implausible: stats.implausible,
    }
}

impl TargetSummary<'_> {
    fn text(&self) -> String {
        let mut text = format!("\n--- {} ({}), STAMP ---\n", self.target, self.address);
        if self.received == 0 {
            let short = self.short.map(short_text).unwrap_or_default();
            let (sent, icmp) = (self.sent, &self.icmp_text);
            return text + &format!("{sent} requests sent, none answered{short}{icmp}");
        }
        text += &sent_text(self.sent, self.received, self.in_flight);
        text += &loss_text(self.rtl, self.owl_up, self.owl_down);
        text += "\n";
        text += &order_text(self.duplicates, self.reordered, self.drops);
        text.extend(self.short.map(short_text));
        text += &self.icmp_text;
        let (rtt, jitter) = (&self.rtt_ms, &self.jitter_ms);
        text += &format!(
            "\nrtt min/avg/max/p50/p99 = {} ms, {} timestamps",
            list(&[rtt.min, rtt.avg, rtt.max, rtt.p50, rtt.p99]),
            self.stamp
        );
        text += &variation_text(rtt.stddev, &self.ipdv_ms);
        let jitters = list(&[jitter.rtt, jitter.up, jitter.down]);
        text += &format!("\njitter both ways/up/down = {jitters} ms\n");
        text + &self.reflector.text()
    }
}

/// Text for the number of answers that were too short, on a separate line.
fn short_text(Short { count, got, needed }: Short) -> String {
    let answers = if count == 1 { "answer" } else { "answers" };
    format!("\n{count} {answers} too short for STAMP ({needed} octets needed, {got} came)")
}

impl Reflector {
    fn text(&self) -> String {
        let mut text = format!(
            "reflector {}",
            if self.stateful { "stateful" } else { "stateless or lossless" }
        );
        if let Some(ttl) = self.ttl {
            text += &format!(", requests arrive with TTL {ttl}");
        }
        if let (Some(up), Some(refused)) = (self.dscp_up, self.dscp_refused) {
            text += &format!(", DSCP {up} up");
            match (refused, self.dscp_down) {
                (true, _) => text += ", the one asked for is not permitted",
                (false, Some(down)) => text += &format!(", {down} down"),
                (false, None) => {}
            }
        }
        if let Some(ms) = self.follow_up_ms {
            text += &format!(", answers leave {ms:.3} ms later than it says");
        }
        let oddities = [
            (self.unrecognised, "extensions it does not know"),
            (self.malformed, "answers with a malformed extension"),
            (self.integrity, "answers whose extensions fail their HMAC"),
            (self.implausible, "answers with impossible times"),
        ];
        for (count, what) in oddities.iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {what}");
        }
        text
    }
}
