//! The report: one HTML page with plots.

use segue_report::{Band, Mark, Page, Plot, Series, Style, Timeline};

use super::outcome::{Outcome, millis, percent};
use super::stage::{PathTruth, SAMPLED, Truth};
use super::traffic::{Seen, Voice};
use super::watch::{Use, Watch};
use super::{Course, VOICE_INTERVAL};
use crate::cmd::made::made;
use crate::control::PathStatus;

/// Width of a bin of throughput and imposed loss, in seconds.
const BIN: f64 = 0.25;
const LOSS_BIN: f64 = 1.0;

/// The page.
pub fn render(
    outcome: &Outcome,
    watch: &Watch,
    seen: &Seen,
    truth: &Truth,
    course: Course,
) -> Page {
    let marks = marks(outcome, course);
    let mut page = Page::new(
        "Segue demonstration",
        format!(
            "A mobile host with Wi-Fi and cellular access, an anchor and a correspondent node, on this \
             machine. At {:.1} s the Wi-Fi's backhaul falls silent while its link stays up; at {:.1} s \
             it comes back. Datapath: {}. Imposed values are what the link emulator did to each packet, \
             measured values are what the host knew at that moment.",
            course.silent_at, course.back_at, outcome.datapath
        ),
        made(),
    );
    page.set_verdict(outcome.verdict());
    push_handovers(&mut page, outcome);
    let timeline = Timeline {
        title: "Path of each flow".into(),
        x_label: TIME.into(),
        x_range: (0.0, course.until),
        rows: usage(watch, course),
        marks: marks.clone(),
    };
    page.push_timeline("flows", "Up: as the host sends; down: as the anchor does.", &timeline);
    push_traffic(&mut page, seen, &marks, course);
    push_paths(&mut page, outcome);
    let placed = |plot| placed(plot, &marks, course);
    for path in &truth.paths {
        page.push_plot(&format!("rtt-{}", path.name), "", &placed(rtt(watch, path)));
    }
    for path in &truth.paths {
        page.push_plot(&format!("loss-{}", path.name), "", &placed(loss(watch, path)));
    }
    page.push_heading("Files");
    page.push_links(&[
        ("result.json", "the numbers of this page"),
        ("host.log", "what the host said"),
        ("anchor.log", "what the anchor said"),
    ]);
    page
}

/// The horizontal axis of all plots.
const TIME: &str = "time in s";

/// The plot with the demonstration's course on its horizontal axis.
fn placed(plot: Plot, marks: &[Mark], course: Course) -> Plot {
    Plot {
        x_label: TIME.into(),
        x_range: Some((0.0, course.until)),
        marks: marks.into(),
        y_from_zero: true,
        ..plot
    }
}

fn push_traffic(page: &mut Page, seen: &Seen, marks: &[Mark], course: Course) {
    page.push_heading("What the traffic saw");
    let download = Plot {
        title: "TCP download".into(),
        y_label: "received in Mbit/s".into(),
        series: vec![Series::new("received", Style::Step, rate(seen, course))],
        ..Plot::default()
    };
    page.push_plot("download", "", &placed(download, marks, course));
    let gaps = Plot {
        title: "Voice: time since the packet before, beyond its 20 ms".into(),
        y_label: "gap in ms".into(),
        series: vec![
            Series::new("at the correspondent node (up)", Style::Dots, silences(&seen.up)),
            Series::new("at the host (down)", Style::Dots, silences(&seen.down)),
        ],
        ..Plot::default()
    };
    page.push_plot("voice", "", &placed(gaps, marks, course));
}

fn marks(outcome: &Outcome, course: Course) -> Vec<Mark> {
    let mut marks = vec![
        Mark { x: course.silent_at, label: "Wi-Fi silent".into() },
        Mark { x: course.back_at, label: "Wi-Fi back".into() },
    ];
    for h in &outcome.handovers {
        marks.push(Mark { x: h.at_s, label: format!("to {}", h.to) });
    }
    marks
}

fn push_paths(page: &mut Page, outcome: &Outcome) {
    page.push_heading("What the host measured");
    let rows: Vec<Vec<String>> = outcome
        .paths
        .iter()
        .map(|p| {
            vec![
                p.name.clone(),
                millis(p.rtt_ms.imposed),
                millis(p.rtt_ms.measured),
                percent(p.owl_up.imposed),
                percent(p.owl_up.measured),
                percent(p.owl_down.imposed),
                percent(p.owl_down.measured),
            ]
        })
        .collect();
    let header = [
        "path",
        "RTT imposed",
        "RTT measured",
        "loss up imposed",
        "loss up measured",
        "loss down imposed",
        "loss down measured",
    ];
    page.push_table("Means before the outage", &header, &rows);
}

fn push_handovers(page: &mut Page, outcome: &Outcome) {
    page.push_heading("Handovers");
    let ms = |x: Option<f64>| x.map_or_else(|| "–".into(), |x| format!("{x:.0} ms"));
    let rows: Vec<Vec<String>> = outcome
        .handovers
        .iter()
        .map(|h| {
            vec![
                format!("{:.2} s", h.at_s),
                format!("{} to {}", h.from, h.to),
                h.cause.clone(),
                ms(h.detection_ms),
                ms(h.bound_ms),
                format!("{:.0} ms", h.udp_gap_up_ms),
                format!("{:.0} ms", h.udp_gap_down_ms),
                format!("{:.0} ms", h.tcp_stall_ms),
                h.packets_lost.to_string(),
            ]
        })
        .collect();
    let header = [
        "at",
        "move",
        "cause",
        "detected in",
        "bound",
        "voice gap up",
        "voice gap down",
        "TCP stall",
        "voice lost",
    ];
    page.push_table("Moves of flows, with the gaps and losses around them", &header, &rows);
    page.push_text(
        "Detected in: from the outage to the host's verdict. Bound: how long that may take. Voice gap: \
         the longest pause between packets beyond their 20 ms.",
    );
    page.push_text(&outcome.summary());
}

/// Intervals of the path of each flow.
fn usage(watch: &Watch, course: Course) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for (at, uses) in &watch.uses {
        for Use { flow, path } in uses {
            let index = bands.iter().position(|band| band.name == *flow).unwrap_or_else(|| {
                bands.push(Band { name: flow.clone(), intervals: Vec::new() });
                bands.len() - 1
            });
            let intervals = &mut bands[index].intervals;
            match intervals.last_mut() {
                Some((_, end, label)) if label == path => *end = *at,
                last => {
                    let from = last.map_or(*at, |(_, end, _)| *end);
                    intervals.push((from, *at, path.clone()));
                }
            }
        }
    }
    for (_, end, _) in bands.iter_mut().filter_map(|band| band.intervals.last_mut()) {
        *end = course.until;
    }
    bands.sort_by(|a, b| b.name.cmp(&a.name));
    bands
}

fn rtt(watch: &Watch, truth: &PathTruth) -> Plot {
    let average = |index: usize| {
        let pick = move |path: &PathStatus| path.rtt_ms.get(index).copied();
        known(watch, truth.name, pick)
    };
    let longest = truth.down.iter().chain(&truth.up).map(|(_, d)| *d).fold(f64::NAN, f64::max);
    Plot {
        title: format!("Round-trip time of {}", truth.name),
        y_label: "RTT in ms".into(),
        series: vec![
            Series::new("imposed (stamps of the emulator)", Style::Dots, imposed_rtt(truth)),
            Series::new("measured, τ = 1 s", Style::Line, average(0)),
            Series::new("measured, τ = 0.2 s", Style::Line, average(1)),
        ],
        y_max: longest.is_finite().then_some(longest * 2.0 * 1.2e3),
        ..Plot::default()
    }
}

/// A value at each look at which the path was up; a break where it was not.
fn known(watch: &Watch, name: &str, pick: impl Fn(&PathStatus) -> Option<f64>) -> Vec<(f64, f64)> {
    let value = |path: &PathStatus| {
        if path.state == "up" { pick(path).unwrap_or(f64::NAN) } else { f64::NAN }
    };
    watch.path(name).map(|(at, path)| (at, value(path))).collect()
}

/// The delay of packets up, each plus that of the first one down after it.
fn imposed_rtt(truth: &PathTruth) -> Vec<(f64, f64)> {
    let mut down = truth.down.iter().peekable();
    let mut points = Vec::new();
    for (at, delay) in &truth.up {
        while down.next_if(|(arrival, back)| arrival - back < *at).is_some() {}
        if let Some((arrival, back)) = down.peek()
            && arrival - back - at < 2.0 * SAMPLED
        {
            points.push((*arrival, (delay + back) * 1e3));
        }
    }
    points
}

fn loss(watch: &Watch, truth: &PathTruth) -> Plot {
    let measured = |pick: fn(&PathStatus) -> Option<f64>| {
        let percent = move |path: &PathStatus| pick(path).map(|loss| loss * 100.0);
        known(watch, truth.name, percent)
    };
    Plot {
        title: format!("One-way loss of {}", truth.name),
        y_label: "loss in %".into(),
        series: vec![
            Series::new("up, imposed", Style::Step, imposed_loss(&truth.up_packets)),
            Series::new(
                "up, measured (τ = 1 s)",
                Style::Line,
                measured(|p| p.owl_up.first().copied()),
            ),
            Series::new("down, imposed", Style::Step, imposed_loss(&truth.down_packets)),
            Series::new(
                "down, measured (τ = 1 s)",
                Style::Line,
                measured(|p| p.owl_down.first().copied()),
            ),
        ],
        y_max: Some(5.0),
        ..Plot::default()
    }
}

/// Share of dropped packets in each bin; silence is shown by the marks and left out.
fn imposed_loss(packets: &[(f64, bool, bool)]) -> Vec<(f64, f64)> {
    let mut bins: Vec<(u32, u32)> = Vec::new();
    for (at, dropped, silent) in packets {
        let bin = (at / LOSS_BIN) as usize;
        bins.resize(bins.len().max(bin + 1), (0, 0));
        if !silent {
            bins[bin].0 += 1;
            bins[bin].1 += u32::from(*dropped);
        }
    }
    let share = |(n, lost): &(u32, u32)| {
        if *n < 20 { f64::NAN } else { f64::from(*lost) / f64::from(*n) * 100.0 }
    };
    bins.iter().enumerate().map(|(bin, counts)| (bin as f64 * LOSS_BIN, share(counts))).collect()
}

fn rate(seen: &Seen, course: Course) -> Vec<(f64, f64)> {
    let mut bins = vec![0usize; (course.until / BIN).ceil() as usize + 1];
    for (at, n) in &seen.tcp.reads {
        if let Some(bin) = bins.get_mut((at.max(0.0) / BIN) as usize) {
            *bin += n;
        }
    }
    let mbit = |bytes: &usize| *bytes as f64 * 8e-6 / BIN;
    bins.iter().enumerate().map(|(bin, bytes)| (bin as f64 * BIN, mbit(bytes))).collect()
}

fn silences(voice: &Voice) -> Vec<(f64, f64)> {
    let interval = VOICE_INTERVAL.as_secs_f64();
    voice
        .received
        .windows(2)
        .map(|pair| (pair[1].1, ((pair[1].1 - pair[0].1 - interval).max(0.0)) * 1e3))
        .collect()
}
