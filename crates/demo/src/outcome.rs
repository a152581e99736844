//! Evaluates the demonstration: measured values, promises and their verdict.

use segue_daemon::control::{EventRecord, PathStatus, Tunnels};
use segue_text::say;
use segue_text::terminal::Stream;
use segue_text::terminal::layout::{Column, Table};
use serde::Serialize;

use super::stage::{PathTruth, Truth};
use super::traffic::{Seen, Voice};
use super::watch::Watch;
use super::{Course, VOICE_INTERVAL};

/// Seconds at the start during which averages settle; they are not compared.
const SETTLE: f64 = 3.0;
/// Seconds before and after a handover; gaps and losses within are attributed to it.
const AROUND: (f64, f64) = (0.2, 1.5);
/// Handover events within this many seconds belong to the same handover.
const SAME: f64 = 0.1;

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// `ebpf`, `ebpf+xdp` or `user`.
    pub datapath: String,
    /// Length of the demonstration in seconds.
    pub duration_s: f64,
    /// When the Wi-Fi fell silent, in seconds.
    pub silent_at_s: f64,
    /// When the Wi-Fi worked again, in seconds.
    pub back_at_s: f64,
    /// The paths before the outage.
    pub paths: Vec<PathOutcome>,
    /// Handovers at the host, in order.
    pub handovers: Vec<Handover>,
    /// The download.
    pub tcp: TcpOutcome,
    /// The voice-like flow.
    pub voice: VoiceOutcome,
}

/// One path before the outage: imposed values from the emulator, and the host's measurements.
#[derive(Debug, Serialize)]
pub struct PathOutcome {
    /// Name of the path.
    pub name: String,
    /// Mean round-trip time in ms: from the emulator's timestamps of packets each way, and the host's average.
    pub rtt_ms: Compared,
    /// Share of packets lost towards the anchor: from the emulator's drops, and from the host's counters.
    pub owl_up: Compared,
    /// Share of packets lost towards the host.
    pub owl_down: Compared,
}

/// An imposed value and the measured one.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The emulator's value.
    pub imposed: f64,
    /// The host's value.
    pub measured: f64,
}

/// A handover: flows moved to another path.
#[derive(Debug, Serialize)]
pub struct Handover {
    /// When it happened, in seconds.
    pub at_s: f64,
    /// The previous path.
    pub from: String,
    /// The new path.
    pub to: String,
    /// `down`, `better`, …
    pub cause: String,
    /// Time from the start of the silence until the host declared the path down, if that was the cause.
    pub detection_ms: Option<f64>,
    /// The longest time that the detection may take.
    pub bound_ms: Option<f64>,
    /// Longest silence of the voice flow at the correspondent, less its 20 ms interval.
    pub udp_gap_up_ms: f64,
    /// Longest silence of the voice flow at the host, likewise.
    pub udp_gap_down_ms: f64,
    /// Longest time during which the download received no bytes.
    pub tcp_stall_ms: f64,
    /// Voice packets lost around the handover, in both directions.
    pub packets_lost: usize,
}

/// Results of the download.
#[derive(Debug, Serialize)]
pub struct TcpOutcome {
    /// Bytes received.
    pub bytes: u64,
    /// Connections that broke.
    pub connections_broken: u32,
}

/// Results of the voice-like flow, over the whole time.
#[derive(Debug, Serialize)]
pub struct VoiceOutcome {
    /// Packets from the host.
    pub up: Tally,
    /// Packets from the correspondent.
    pub down: Tally,
}

/// Packet counts.
#[derive(Debug, Serialize)]
pub struct Tally {
    /// Packets sent.
    pub sent: usize,
    /// Packets lost.
    pub lost: usize,
}

/// A promise of the demonstration.
struct Promise {
    /// The measured result.
    found: String,
    /// The bar that it must meet.
    bar: String,
    kept: bool,
}

impl Outcome {
    /// True if the demonstration kept all its promises.
    pub fn holds(&self) -> bool {
        self.promises().iter().all(|promise| promise.kept)
    }

    /// The verdict in a sentence, with the bars.
    pub fn verdict(&self) -> String {
        let told = |Promise { found, bar, kept }: &Promise| {
            format!("{found} (bar: {bar}{})", if *kept { "" } else { "; MISSED" })
        };
        let promises: Vec<_> = self.promises().iter().map(told).collect();
        let held = if self.holds() { "It held" } else { "It did not hold" };
        format!("{held}: {}.", promises.join("; "))
    }

    /// No connection breaks, the silence moves the flows within the bound, and the flows come back.
    fn promises(&self) -> [Promise; 3] {
        let TcpOutcome { bytes, connections_broken: broken } = self.tcp;
        let connections = Promise {
            found: format!(
                "{broken} connections broke while {:.1} MB came down",
                bytes as f64 / 1e6
            ),
            bar: "none, and more than 0 MB".into(),
            kept: broken == 0 && bytes > 0,
        };
        let moved = self.handovers.iter().find_map(|h| Some((h, h.detection_ms?)));
        let bound = moved.and_then(|(h, _)| h.bound_ms);
        let silence = Promise {
            found: moved.map_or_else(
                || "no flow moved because of the silence".into(),
                |(_, took)| format!("the silence was found in {took:.0} ms"),
            ),
            bar: bound.map_or_else(
                || "the bound that the host states when it finds one".into(),
                |bound| format!("at most {bound:.0} ms"),
            ),
            kept: moved.is_some_and(|(h, took)| h.bound_ms.is_some_and(|bound| took <= bound)),
        };
        let back = self.handovers.iter().find(|h| h.at_s > self.back_at_s && h.to == "wifi");
        let home = Promise {
            found: back.map_or_else(
                || "no flow went back to the Wi-Fi".into(),
                |h| {
                    let later = h.at_s - self.back_at_s;
                    format!("the flows went back to the Wi-Fi {later:.2} s after its return")
                },
            ),
            bar: "before the end".into(),
            kept: back.is_some(),
        };
        [connections, silence, home]
    }

    /// The effect on the traffic, in one line.
    pub fn summary(&self) -> String {
        let Outcome { tcp, voice: VoiceOutcome { up, down }, .. } = self;
        format!(
            "Download: {:.1} MB, {} connections broken. Voice: {} of {} packets lost up, {} of {} down.",
            tcp.bytes as f64 / 1e6,
            tcp.connections_broken,
            up.lost,
            up.sent,
            down.lost,
            down.sent,
        )
    }
}

/// Evaluates a demonstration.
pub fn judge(watch: &Watch, seen: &Seen, truth: &Truth, course: Course) -> Outcome {
    let datapath =
        watch.last.as_ref().map_or_else(String::new, |status| status.body.datapath.clone());
    Outcome {
        datapath,
        duration_s: course.until,
        silent_at_s: course.silent_at,
        back_at_s: course.back_at,
        paths: truth.paths.iter().map(|path| path_outcome(watch, path, course)).collect(),
        handovers: handovers(watch, seen, course),
        tcp: TcpOutcome { bytes: seen.tcp.bytes, connections_broken: seen.tcp.broken },
        voice: VoiceOutcome { up: tally(&seen.up), down: tally(&seen.down) },
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    if n == 0 { f64::NAN } else { sum / f64::from(n) }
}

fn path_outcome(watch: &Watch, truth: &PathTruth, course: Course) -> PathOutcome {
    let within = |at: f64| SETTLE.min(course.silent_at / 2.0) <= at && at < course.silent_at;
    let delay = |probes: &[(f64, f64)]| {
        mean(probes.iter().filter(|(at, _)| within(*at)).map(|(_, delay)| *delay))
    };
    let looks: Vec<(f64, &PathStatus)> =
        watch.path(truth.name).filter(|(at, _)| within(*at)).collect();
    let measured = mean(looks.iter().filter_map(|(_, path)| path.rtt_ms.first().copied()));
    let (first, last) = (looks.first(), looks.last());
    let ratio = |count: fn(&PathStatus) -> segue_daemon::control::Count| {
        let ends = first.zip(last).map(|(a, b)| (count(a.1), count(b.1)));
        ends.map_or(f64::NAN, |(a, b)| {
            b.lost.saturating_sub(a.lost) as f64 / b.sent.saturating_sub(a.sent).max(1) as f64
        })
    };
    let dropped = |packets: &[(f64, bool, bool)]| {
        let (from, to) = (first.map_or(0.0, |l| l.0), last.map_or(0.0, |l| l.0));
        let window = packets.iter().filter(|(at, _, _)| (from..to).contains(at));
        mean(window.map(|(_, dropped, _)| f64::from(u8::from(*dropped))))
    };
    PathOutcome {
        name: truth.name.to_owned(),
        rtt_ms: Compared { imposed: (delay(&truth.up) + delay(&truth.down)) * 1e3, measured },
        owl_up: Compared { imposed: dropped(&truth.up_packets), measured: ratio(|p| p.up) },
        owl_down: Compared { imposed: dropped(&truth.down_packets), measured: ratio(|p| p.down) },
    }
}

fn handovers(watch: &Watch, seen: &Seen, course: Course) -> Vec<Handover> {
    merged(&watch.host_events)
        .iter()
        .map(|(at, event)| handover(*at, event, watch, seen, course))
        .collect()
}

/// Handovers: when each began, and its last event. One direction may die a moment before the other, so the last event
/// has the final cause.
fn merged(events: &[(f64, EventRecord<Tunnels>)]) -> Vec<(f64, &EventRecord<Tunnels>)> {
    let mut moves: Vec<(f64, &EventRecord<Tunnels>)> = Vec::new();
    for (at, event) in events.iter().filter(|(_, event)| event.kind == "handover") {
        let same = |(began, other): &&mut (f64, &EventRecord<Tunnels>)| {
            at - *began < SAME
                && (&other.about.path, &other.about.to) == (&event.about.path, &event.about.to)
        };
        match moves.iter_mut().find(same) {
            Some((_, last)) => *last = event,
            None => moves.push((*at, event)),
        }
    }
    moves
}

fn handover(
    at: f64,
    event: &EventRecord<Tunnels>,
    watch: &Watch,
    seen: &Seen,
    course: Course,
) -> Handover {
    let verdict = watch
        .host_events
        .iter()
        .filter(|(when, e)| {
            e.kind == "path_state" && e.about.path == event.about.path && (at - when).abs() < SAME
        })
        .find(|(_, e)| e.about.detail == "down");
    let died = verdict.filter(|(when, _)| (course.silent_at..course.back_at).contains(when));
    let from = died.map_or(at - AROUND.0, |_| course.silent_at - AROUND.0);
    let window = (from, at + AROUND.1);
    let gap = |voice: &Voice| {
        // A duplicate does not end a gap.
        let mut seen = std::collections::BTreeSet::new();
        let first = voice.received.iter().filter(|(number, _)| seen.insert(*number));
        let arrivals: Vec<f64> = first.map(|(_, at)| *at).collect();
        (longest_silence(&arrivals, window) - VOICE_INTERVAL.as_secs_f64()).max(0.0) * 1e3
    };
    let reads: Vec<f64> = seen.tcp.reads.iter().map(|(at, _)| *at).collect();
    Handover {
        at_s: at,
        from: event.about.path.clone(),
        to: event.about.to.clone().unwrap_or_default(),
        cause: event.about.detail.clone(),
        detection_ms: died.map(|(when, _)| (when - course.silent_at) * 1e3),
        bound_ms: died.and_then(|(_, event)| event.about.bound_ms),
        udp_gap_up_ms: gap(&seen.up),
        udp_gap_down_ms: gap(&seen.down),
        tcp_stall_ms: longest_silence(&reads, window) * 1e3,
        packets_lost: lost_within(&seen.up, window) + lost_within(&seen.down, window),
    }
}

/// The longest time between two arrivals that overlaps the window, in seconds.
fn longest_silence(arrivals: &[f64], window: (f64, f64)) -> f64 {
    arrivals
        .windows(2)
        .filter(|pair| window.0 <= pair[1] && pair[0] <= window.1)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max)
}

fn lost_within(voice: &Voice, window: (f64, f64)) -> usize {
    let arrived: std::collections::BTreeSet<u32> = voice.received.iter().map(|(n, _)| *n).collect();
    let sent = voice.sent.iter().enumerate();
    sent.filter(|(_, at)| (window.0..=window.1).contains(*at))
        .filter(|(n, _)| !arrived.contains(&(*n as u32)))
        .count()
}

/// Counts packets, except those sent in the last half second, which may still be under way.
fn tally(voice: &Voice) -> Tally {
    let until = voice.sent.last().copied().unwrap_or(0.0) - 0.5;
    let sent = voice.sent.iter().filter(|at| **at <= until).count();
    Tally { sent, lost: lost_within(voice, (0.0, until)) }
}

/// A share in percent; `-` if it is undefined.
pub fn percent(share: f64) -> String {
    if share.is_nan() { "-".into() } else { format!("{:.2} %", share * 100.0) }
}

/// A mean time in ms; `-` if it is undefined.
pub fn millis(ms: f64) -> String {
    if ms.is_nan() { "-".into() } else { format!("{ms:.2} ms") }
}

/// Columns of the handover table.
const HANDOVERS: [Column; 8] = [
    Column::right("at", 8),
    Column::left("move", 11).apart(),
    Column::left("cause", 7).apart(),
    Column::right("detected", 0).apart(),
    Column::right("bound", 6).apart(),
    Column::right("voice up/down", 0).apart(),
    Column::right("TCP", 6).apart(),
    Column::right("lost", 0).apart(),
];

/// Prints the result as tables.
pub fn print(outcome: &Outcome) {
    say!("\nDatapath: {}\n", outcome.datapath);
    say!("Before the outage   round-trip time          loss up            loss down");
    say!("path              imposed    measured   imposed  measured   imposed  measured");
    for path in &outcome.paths {
        say!(
            "{:<14} {:>10}  {:>10}  {:>8} {:>9}  {:>8} {:>9}",
            path.name,
            millis(path.rtt_ms.imposed),
            millis(path.rtt_ms.measured),
            percent(path.owl_up.imposed),
            percent(path.owl_up.measured),
            percent(path.owl_down.imposed),
            percent(path.owl_down.measured),
        );
    }
    say!("\nHandovers");
    let ms = |x: Option<f64>| x.map_or_else(|| "-".into(), |x| format!("{x:.0} ms"));
    let mut table = Table::new(&HANDOVERS);
    for h in &outcome.handovers {
        table.row(vec![
            format!("{:.2} s", h.at_s),
            format!("{} > {}", h.from, h.to),
            h.cause.clone(),
            ms(h.detection_ms),
            ms(h.bound_ms),
            format!("{:.0} / {:.0} ms", h.udp_gap_up_ms, h.udp_gap_down_ms),
            format!("{:.0} ms", h.tcp_stall_ms),
            h.packets_lost.to_string(),
        ]);
    }
    let laid = table.lay(Stream::Output.room());
    laid.head.iter().chain(laid.rows.iter().flatten()).for_each(|line| say!("{line}"));
    say!("\n{}", outcome.summary());
}

#[cfg(test)]
mod tests {
    use segue_daemon::control::TunnelEvent;

    use super::*;

    #[test]
    fn the_longest_silence_is_looked_for_in_the_window_only() {
        let arrivals = [0.0, 0.02, 0.5, 0.52, 0.54, 2.0];
        assert!((longest_silence(&arrivals, (0.1, 0.6)) - 1.46).abs() < 1e-9);
        assert!((longest_silence(&arrivals, (0.1, 0.53)) - 0.48).abs() < 1e-9);
        assert_eq!(longest_silence(&[], (0.0, 1.0)), 0.0);
    }

    /// An outcome with a download and these handovers: time, new path, detection time, bound.
    fn outcome(broken: u32, moves: &[(f64, &str, Option<f64>, Option<f64>)]) -> Outcome {
        let handover = |(at_s, to, detection_ms, bound_ms): &(f64, &str, _, _)| Handover {
            at_s: *at_s,
            from: String::new(),
            to: (*to).to_owned(),
            cause: String::new(),
            detection_ms: *detection_ms,
            bound_ms: *bound_ms,
            udp_gap_up_ms: 0.0,
            udp_gap_down_ms: 0.0,
            tcp_stall_ms: 0.0,
            packets_lost: 0,
        };
        let tally = || Tally { sent: 0, lost: 0 };
        Outcome {
            datapath: "user".into(),
            duration_s: 30.0,
            silent_at_s: 10.0,
            back_at_s: 20.0,
            paths: Vec::new(),
            handovers: moves.iter().map(handover).collect(),
            tcp: TcpOutcome { bytes: 133_400_000, connections_broken: broken },
            voice: VoiceOutcome { up: tally(), down: tally() },
        }
    }

    #[test]
    fn the_verdict_names_each_bar_and_what_missed_it() {
        let (found, home) = ((10.13, "lte", Some(130.0), Some(261.0)), (20.96, "wifi", None, None));
        let held = outcome(0, &[found, home]);
        assert!(held.holds());
        assert_eq!(
            held.verdict(),
            "It held: 0 connections broke while 133.4 MB came down (bar: none, and more than \
             0 MB); the silence was found in 130 ms (bar: at most 261 ms); the flows went back to \
             the Wi-Fi 0.96 s after its return (bar: before the end)."
        );
        let late = (10.13, "lte", Some(262.0), Some(261.0));
        for (outcome, missed) in [
            (outcome(1, &[found, home]), "1 connections broke while 133.4 MB came down (bar: none"),
            (outcome(0, &[late, home]), "found in 262 ms (bar: at most 261 ms; MISSED)"),
            (outcome(0, &[home]), "no flow moved because of the silence (bar: the bound"),
            (outcome(0, &[(10.13, "lte", Some(130.0), None), home]), "found in 130 ms (bar: the"),
            (outcome(0, &[found]), "no flow went back to the Wi-Fi (bar: before the end; MISSED)"),
        ] {
            let verdict = outcome.verdict();
            assert!(!outcome.holds() && verdict.starts_with("It did not hold: "), "{verdict}");
            assert!(
                verdict.contains(missed) && verdict.matches("MISSED").count() == 1,
                "{verdict}"
            );
        }
    }

    #[test]
    fn of_two_causes_of_one_handover_the_one_that_stood_is_told() {
        let event = |at: f64, kind: &str, to: &str, cause: &str| {
            let record = EventRecord {
                number: 0,
                at_ns: 0,
                unix_s: 0.0,
                kind: kind.into(),
                host: String::new(),
                text: String::new(),
                about: TunnelEvent {
                    path: "wifi".into(),
                    to: Some(to.into()),
                    detail: cause.into(),
                    ..TunnelEvent::default()
                },
            };
            (at, record)
        };
        let events = [
            event(4.30, "handover", "lte", "uplink_down"),
            event(4.31, "path_state", "lte", "down"),
            event(4.35, "handover", "lte", "down"),
            event(4.36, "handover", "usb", "down"),
            event(9.00, "handover", "lte", "better"),
        ];
        let told: Vec<_> = merged(&events)
            .iter()
            .map(|(at, e)| {
                (*at, e.about.to.as_deref().unwrap_or_default(), e.about.detail.as_str())
            })
            .collect();
        assert_eq!(told, [(4.30, "lte", "down"), (4.36, "usb", "down"), (9.00, "lte", "better")]);
    }

    #[test]
    fn lost_packets_are_those_sent_in_the_window_and_never_received() {
        let voice = Voice { sent: vec![0.0, 0.1, 0.2, 0.3], received: vec![(0, 0.05), (2, 0.25)] };
        assert_eq!(lost_within(&voice, (0.0, 0.25)), 1);
        assert_eq!(lost_within(&voice, (0.0, 1.0)), 2);
    }
}
