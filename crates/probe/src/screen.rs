//! The client's output: on a terminal a live line per target, elsewhere a line per sample; JSON lines; and the summary.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use segue_clock::{Span, Time};
use segue_keepalive::{Counted, Sample, State};
use segue_text::terminal::layout::{flow, wrap};
use segue_text::terminal::{self, Colours, Stream, Tone};
use serde::Serialize;

use super::addresses::shown;
use super::icmp::{self, Said};
use super::ipdv::IpdvMs;
use super::samples::{Distribution, RttMs, StampNames};
use super::target::{News, Target};

/// Interval between updates of the live lines.
const REDRAW: Span = Span::from_millis(250);

/// Output format.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Print JSON lines.
    pub json: bool,
    /// Print only the summary.
    pub quiet: bool,
}

/// Live lines for each target on a terminal, redrawn in place.
pub(crate) struct Live {
    on: Option<terminal::Live>,
    drawn: Option<Time>,
    /// Colours of the live lines.
    pub colours: Colours,
}

impl Live {
    /// Live lines, if the output is a terminal and neither JSON nor quiet.
    pub(crate) fn new(output: Output) -> Live {
        let on = !output.json && !output.quiet && Stream::Output.is_live();
        let on = on.then(|| terminal::Live::new(Stream::Output));
        Live { on, drawn: None, colours: Stream::Output.colours() }
    }

    fn off() -> Live {
        Live { on: None, drawn: None, colours: Colours::NONE }
    }

    /// True if live lines replace the line per sample.
    pub(crate) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// When to update the live lines.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let next = self.drawn.map_or(Time::ZERO, |drawn| drawn + REDRAW);
        self.on.as_ref().map(|_| next)
    }

    /// Updates the live lines if it is time.
    ///
    /// # Errors
    /// The output is closed.
    pub(crate) fn draw(
        &mut self,
        now: Time,
        targets: impl Iterator<Item = Vec<String>>,
    ) -> io::Result<()> {
        if self.deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        self.last(now, targets)
    }

    /// Updates the live lines a last time: they remain on screen and must not contradict the summary.
    ///
    /// # Errors
    /// As [`Live::draw`].
    pub(crate) fn last(
        &mut self,
        now: Time,
        targets: impl Iterator<Item = Vec<String>>,
    ) -> io::Result<()> {
        let Some(live) = &mut self.on else { return Ok(()) };
        self.drawn = Some(now);
        let room = live.size().columns.saturating_sub(1);
        let lines: Vec<String> = targets.flat_map(|items| flow(&items, "  ", room)).collect();
        live.show(&lines)
    }
}

/// The client's output.
pub(crate) struct Screen {
    output: Output,
    live: Live,
    start: Time,
}

#[derive(Serialize)]
struct SampleLine<'a> {
    r#type: &'static str,
    target: &'a str,
    at_s: f64,
    seq: u32,
    rtt_ms: Option<f64>,
    /// The moving averages after this sample, the main one first.
    rtt_ewma_ms: Vec<f64>,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    rtl: Option<f64>,
    stamp: &'static str,
    /// Error bound of `rtt_ms`.
    error_ms: f64,
    stamps: StampNames,
    wakeup_ms: f64,
}

#[derive(Serialize)]
struct EventLine<'a> {
    r#type: &'static str,
    target: &'a str,
    at_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct IcmpLine<'a> {
    r#type: &'static str,
    target: &'a str,
    at_s: f64,
    #[serde(flatten)]
    said: icmp::Count,
}

#[derive(Serialize)]
struct Summary<'a> {
    r#type: &'static str,
    scheduling: &'static str,
    targets: Vec<TargetSummary<'a>>,
}

/// A target in a summary.
#[derive(Serialize)]
pub(crate) struct TargetSummary<'a> {
    target: &'a str,
    address: String,
    sent: u32,
    received: u32,
    in_flight: u32,
    rtt_ms: RttMs,
    error_ms: Distribution,
    wakeup_ms: Distribution,
    owl_up: Option<f64>,
    owl_down: Option<f64>,
    rtl: Option<f64>,
    packets_up: Packets,
    packets_down: Packets,
    owl_up_ewma: &'a [f64],
    owl_down_ewma: &'a [f64],
    rtl_ewma: &'a [f64],
    state: &'static str,
    transitions: u64,
    duplicates: u64,
    reordered: u64,
    stamp: &'static str,
    drops: &'a BTreeMap<&'static str, u64>,
    ipdv_ms: IpdvMs,
    icmp: Vec<icmp::Count>,
    #[serde(skip)]
    icmp_text: String,
    #[serde(skip)]
    port_closed: bool,
}

/// Packets in one direction between the first and the last exchange.
#[derive(Serialize)]
pub(crate) struct Packets {
    sent: u64,
    received: u64,
}

impl Screen {
    /// A screen for this format; with live lines only on a terminal.
    pub(crate) fn new(output: Output, start: Time) -> Screen {
        Screen { output, live: Live::new(output), start }
    }

    /// Like [`Screen::new`], without live lines.
    pub(crate) fn lines(output: Output, start: Time) -> Screen {
        Screen { output, live: Live::off(), start }
    }

    /// When to update the live lines.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.live.deadline()
    }

    /// Prints news of `target`.
    pub(crate) fn news(&mut self, now: Time, target: &Target, news: &News) -> io::Result<()> {
        if self.output.quiet || self.live.is_on() {
            return Ok(());
        }
        self.tell(now, &target.name, news)
    }

    /// Prints news of a path as lines.
    pub(crate) fn tell(&self, now: Time, name: &str, news: &News) -> io::Result<()> {
        if self.output.quiet {
            return Ok(());
        }
        let at_s = |at: Time| at.since(self.start).as_secs_f64();
        let event = |state, error: Option<String>| EventLine {
            r#type: if error.is_none() { "state" } else { "error" },
            target: name,
            at_s: at_s(now),
            state,
            error,
        };
        match (news, self.output.json) {
            (News::Sample { sample, stamps, rtt_ewma }, true) => print_json(&SampleLine {
                r#type: "sample",
                target: name,
                at_s: at_s(sample.at),
                seq: sample.seq,
                rtt_ms: sample.rtt.map(Span::as_millis_f64),
                rtt_ewma_ms: rtt_ewma.iter().map(|s| s * 1e3).collect(),
                owl_up: sample.owl_up,
                owl_down: sample.owl_down,
                rtl: sample.rtl,
                stamp: if stamps.kernel() { "kernel" } else { "user" },
                error_ms: sample.uncertainty.as_millis_f64(),
                stamps: stamps.names(),
                wakeup_ms: stamps.wakeup.as_millis_f64(),
            }),
            (News::Sample { sample, .. }, false) => print(&sample_text(name, sample)),
            (News::State(state), true) => print_json(&event(Some(state.name()), None)),
            (News::State(state), false) => print(&format!("{name}: {}", state.name())),
            (News::Unsendable(error), true) => print_json(&event(None, Some(error.clone()))),
            (News::Unsendable(error), false) => print(&format!("{name}: cannot send: {error}")),
            (News::Icmp(said), _) => tell_icmp(self.output, at_s(now), name, *said),
        }
    }

    /// Updates the live lines if it is time.
    pub(crate) fn draw(&mut self, now: Time, targets: &[Target]) -> io::Result<()> {
        let colours = self.live.colours;
        self.live.draw(now, targets.iter().map(|target| live_items(target, colours)))
    }

    /// Prints the summary. While a path is up, requests younger than `grace` may still be answered: they count neither
    /// as answered nor as lost.
    pub(crate) fn summary(
        &mut self,
        now: Time,
        grace: Span,
        targets: &[Target],
        scheduling: &'static str,
    ) -> io::Result<()> {
        let colours = self.live.colours;
        self.live.last(now, targets.iter().map(|target| live_items(target, colours)))?;
        let all: Vec<_> = targets.iter().map(|target| summary(target, now - grace)).collect();
        if self.output.json {
            return print_json(&Summary { r#type: "summary", scheduling, targets: all });
        }
        for target in &all {
            print(&target.text())?;
        }
        Ok(())
    }
}

/// The summary of a target; requests after `since` may still be answered.
pub(crate) fn summary(target: &Target, since: Time) -> TargetSummary<'_> {
    let estimates = target.machine().estimates();
    // On a path that is down, no answer is expected.
    let in_flight = match target.machine().state() {
        State::Down => 0,
        State::Starting | State::Up => target.outstanding(since),
    };
    let (sent, received) = (target.sent, target.received);
    let judged = sent.saturating_sub(in_flight);
    TargetSummary {
        target: &target.name,
        address: shown(target.address),
        sent,
        received,
        in_flight,
        rtt_ms: target.samples.summary(estimates),
        error_ms: target.samples.errors(),
        wakeup_ms: target.samples.wakeups(),
        owl_up: loss(estimates.up),
        owl_down: loss(estimates.down),
        rtl: loss(Counted { sent: judged.into(), received: received.into() }),
        packets_up: estimates.up.into(),
        packets_down: estimates.down.into(),
        owl_up_ewma: &estimates.owl_up,
        owl_down_ewma: &estimates.owl_down,
        rtl_ewma: &estimates.rtl,
        state: target.machine().state().name(),
        transitions: estimates.transitions,
        duplicates: estimates.duplicates,
        reordered: estimates.reordered,
        stamp: stamp_name(target.kernel_stamps, received.into()),
        drops: target.drops.by_reason(),
        ipdv_ms: target.ipdv.ms(),
        icmp: target.icmp.counts(),
        icmp_text: target.icmp.text(),
        port_closed: target.icmp.port_closed(),
    }
}

impl From<Counted> for Packets {
    fn from(counted: Counted) -> Packets {
        Packets { sent: counted.sent, received: counted.received }
    }
}

impl TargetSummary<'_> {
    /// The summary as lines of text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n--- {} ({}) ---\n", self.target, self.address);
        text += &sent_text(self.sent, self.received, self.in_flight);
        text += &loss_text(self.rtl, self.owl_up, self.owl_down);
        let s = if self.transitions == 1 { "" } else { "s" };
        text += &format!("\nstate {}, {} transition{s}, ", self.state, self.transitions);
        text += &order_text(self.duplicates, self.reordered, self.drops);
        text += &self.icmp_text;
        if self.sent > 0 && self.received == 0 {
            let closed = if self.port_closed { ", and the port is closed" } else { "" };
            text += &format!(
                "\nno answer{closed}: does `segue probe --listen` run there, with the same key? An anchor answers \
                     STAMP, if it is told to (`stamp = true`): segue probe --stamp"
            );
        }
        let rtt = &self.rtt_ms;
        if rtt.avg.is_some() {
            text += &format!(
                "\nrtt min/avg/max/ewma/p50/p99 = {} ms, {} timestamps",
                list(&[rtt.min, rtt.avg, rtt.max, rtt.ewma, rtt.p50, rtt.p99]),
                self.stamp
            );
            text += &variation_text(rtt.stddev, &self.ipdv_ms);
            text += &format!(
                "\nerror at most p50/p99 = {} ms, wake-up p50/p99 = {} ms",
                list(&[self.error_ms.p50, self.error_ms.p99]),
                list(&[self.wakeup_ms.p50, self.wakeup_ms.p99])
            );
        }
        text
    }
}

/// Prints an ICMP error about requests; called once per distinct error.
pub(crate) fn tell_icmp(output: Output, at_s: f64, target: &str, said: Said) -> io::Result<()> {
    match output {
        Output { json: true, .. } => {
            print_json(&IcmpLine { r#type: "icmp", target, at_s, said: said.count(1) })
        }
        Output { quiet: true, .. } => Ok(()),
        _ => print(&format!("{target}: {}", said.text())),
    }
}

/// Text for the standard deviation of round-trip times, and for the delay variation.
pub(crate) fn variation_text(stddev: Option<f64>, ipdv: &IpdvMs) -> String {
    let way = |of: &Distribution| list(&[of.p50, of.p99, of.max]);
    format!(
        "\nrtt standard deviation = {} ms, delay variation p50/p99/max = {} ms up, {} ms down",
        ms(stddev),
        way(&ipdv.up),
        way(&ipdv.down)
    )
}

fn sample_text(name: &str, sample: &Sample) -> String {
    let mut text = format!("{name}: seq={}", sample.seq);
    if let Some(rtt) = sample.rtt {
        let error = sample.uncertainty.as_millis_f64();
        text += &format!(" rtt={:.3} ms ±{error:.3}", rtt.as_millis_f64());
    }
    let losses = [("up", sample.owl_up), ("down", sample.owl_down), ("both ways", sample.rtl)];
    for (way, loss) in losses {
        if loss.is_some() {
            text += &format!(" loss {way}={}", percent(loss));
        }
    }
    text
}

/// The items of a target's live line.
fn live_items(target: &Target, colours: Colours) -> Vec<String> {
    let estimates = target.machine().estimates();
    let ms = |span: Option<Span>| span.map_or("-".into(), |s| format!("{:.1}", s.as_millis_f64()));
    let error = target.samples.last_error();
    let averages: Vec<String> =
        estimates.rtt_ewma.iter().map(|s| format!("{:.1}", s * 1e3)).collect();
    let averages = if averages.is_empty() { "-".into() } else { averages.join(", ") };
    let mut items = vec![
        target.name.clone(),
        colours.state(target.machine().state().name()),
        format!(
            "rtt {} ms ±{} (ewma {averages})",
            ms(estimates.rtt_last),
            error.map_or("-".into(), |s| format!("{:.3}", s.as_millis_f64())),
        ),
    ];
    items.extend(live_losses([
        estimates.owl_up.first().copied(),
        estimates.owl_down.first().copied(),
        estimates.rtl.first().copied(),
    ]));
    items.push(live_answers(target.received, target.sent));
    items.extend(target.icmp.last().map(|said| colours.paint(Tone::Bad, &said.text())));
    if let Some(error) = &target.error {
        items.push(colours.paint(Tone::Bad, &format!("cannot send: {}", target.reason(error))));
    }
    items
}

/// Losses up, down and both ways, one item each.
pub(crate) fn live_losses([up, down, both]: [Option<f64>; 3]) -> Vec<String> {
    let mut items = vec![format!("loss up {} down {}", percent(up), percent(down))];
    items.extend(both.map(|_| format!("both ways {}", percent(both))));
    items
}

/// Text for the number of answered requests.
pub(crate) fn live_answers(received: u32, sent: u32) -> String {
    format!("{received} of {sent} answered")
}

/// Text for the numbers of requests and answers.
pub(crate) fn sent_text(sent: u32, received: u32, in_flight: u32) -> String {
    let out = if in_flight > 0 { format!(", {in_flight} still out") } else { String::new() };
    format!("{sent} sent, {received} received{out}")
}

/// Text for the losses both ways and in each direction.
pub(crate) fn loss_text(rtl: Option<f64>, up: Option<f64>, down: Option<f64>) -> String {
    format!(", loss {} (up {}, down {})", percent(rtl), percent(up), percent(down))
}

/// Text for duplicates, reordering and refusals.
pub(crate) fn order_text(
    duplicates: u64,
    reordered: u64,
    drops: &BTreeMap<&'static str, u64>,
) -> String {
    let s = if duplicates == 1 { "" } else { "s" };
    let mut text = format!("{duplicates} duplicate{s}, {reordered} reordered");
    for (reason, count) in drops {
        text += &format!(", {count} refused ({reason})");
    }
    text
}

/// A time in milliseconds, or `-`.
pub(crate) fn ms(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.3}"))
}

/// Times in milliseconds, separated by slashes.
pub(crate) fn list(values: &[Option<f64>]) -> String {
    values.iter().map(|value| ms(*value)).collect::<Vec<_>>().join("/")
}

/// The origin of timestamps, if `of_kernel` of `all` samples have the kernel's.
pub(crate) fn stamp_name(of_kernel: u64, all: u64) -> &'static str {
    match of_kernel {
        0 => "user",
        n if n == all => "kernel",
        _ => "mixed",
    }
}

/// 0 if every target has answered. Each target is given by its number of answers, and whether requests could not be
/// sent.
pub(crate) fn exit_code(targets: impl Iterator<Item = (u32, bool)>) -> ExitCode {
    let silent = targets.filter(|(received, _)| *received == 0).map(|(_, error)| error);
    match silent.max() {
        Some(true) => ExitCode::from(2),
        Some(false) => ExitCode::from(1),
        None => ExitCode::SUCCESS,
    }
}

/// Share of packets that were lost; `None` if none were sent.
pub(crate) fn loss(counted: Counted) -> Option<f64> {
    let lost = 1.0 - counted.received as f64 / counted.sent as f64;
    (counted.sent > 0).then(|| lost.clamp(0.0, 1.0))
}

/// A share in percent, or `-`.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.2} %", share * 100.0))
}

/// Prints the address where metrics are served.
pub(crate) fn metrics(output: Output, address: SocketAddr) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line {
        r#type: &'static str,
        address: String,
    }
    match output {
        Output { json: true, .. } => {
            print_json(&Line { r#type: "metrics", address: address.to_string() })
        }
        Output { quiet: true, .. } => Ok(()),
        _ => print(&format!("metrics on http://{address}/metrics")),
    }
}

/// Prints text, wrapped to the terminal. Unlike `println!`, returns an error if the output is closed.
pub(crate) fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", wrap(text, Stream::Output.room()))
}

/// Prints the number of refused datagrams by reason.
///
/// # Errors
/// As `print`.
pub(crate) fn print_drops(drops: &BTreeMap<&'static str, u64>) -> io::Result<()> {
    drops
        .iter()
        .try_for_each(|(reason, count)| print(&format!("{count} datagrams refused: {reason}")))
}

/// Prints a JSON line.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", serde_json::to_string(value)?)
}
