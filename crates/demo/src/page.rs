//! The report: one HTML page with plots.

use segue_daemon::control::PathStatus;
use segue_report::made;
use segue_report::{Band, Mark, Page, Plot, Series, Style, Timeline};

use super::outcome::{Outcome, millis, percent};
use super::stage::{PathTruth, SAMPLED, Truth};
use super::traffic::{Seen, Voice};
use super::watch::{Use, Watch};
use super::{Course, VOICE_INTERVAL};

/// Bin width of the throughput, in seconds; below, of the imposed loss.
const BIN: f64 = 0.25;
const LOSS_BIN: f64 = 1.0;

/// Renders the page.
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
    for (name, way) in [("up", Way::Up), ("down", Way::Down)] {
        let plot = loss(watch, &truth.paths, way, course.until);
        page.push_plot(&format!("loss-{name}"), "", &placed(plot));
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
pub(crate) const TIME: &str = "time in s";

/// Adds the demonstration's time axis and marks to a plot.
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
        series: vec![Series::new("received", Style::Step, rate(seen, course.until))],
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

/// The intervals during which each flow used each path.
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
    let imposed = imposed_rtt(truth);
    let y_max = end_of_most(&imposed);
    Plot {
        title: format!("Round-trip time of {}", truth.name),
        y_label: "RTT in ms".into(),
        series: vec![
            Series::new("imposed (stamps of the emulator)", Style::Dots, imposed).role("imposed"),
            Series::new("measured, τ = 1 s", Style::Line, average(0)).role(truth.name),
            Series::new("measured, τ = 0.2 s", Style::Dashed, average(1)).role(truth.name),
        ],
        y_max,
        ..Plot::default()
    }
}

/// An upper limit of the vertical axis that shows 99 % of the values and may cut off outliers.
fn end_of_most(points: &[(f64, f64)]) -> Option<f64> {
    let mut values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let (most, greatest) = (values.get(values.len() * 99 / 100)?, values.last()?);
    Some((most * 1.5).min(greatest * 1.2))
}

/// A value at each poll; NaN, shown as a gap, while the path was not up.
fn known(watch: &Watch, name: &str, pick: impl Fn(&PathStatus) -> Option<f64>) -> Vec<(f64, f64)> {
    let value = |path: &PathStatus| {
        if path.state == "up" { pick(path).unwrap_or(f64::NAN) } else { f64::NAN }
    };
    watch.path(name).map(|(at, path)| (at, value(path))).collect()
}

/// The round-trip delay imposed on packets: of each packet up, plus the first packet down after it.
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

/// A direction of traffic.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

/// The loss of all paths in one direction, with one colour per path.
fn loss(watch: &Watch, paths: &[PathTruth], way: Way, until: f64) -> Plot {
    let each = paths.iter().flat_map(|truth| {
        let (packets, measured): (_, fn(&PathStatus) -> Option<f64>) = match way {
            Way::Up => (&truth.up_packets, |path| path.owl_up.first().copied()),
            Way::Down => (&truth.down_packets, |path| path.owl_down.first().copied()),
        };
        let percent = move |path: &PathStatus| measured(path).map(|loss| loss * 100.0);
        let name = truth.name;
        let imposed = corners(&imposed_loss(packets, until));
        [
            Series::new(format!("{name}, imposed"), Style::Dashed, imposed).role(name),
            Series::new(
                format!("{name}, measured, τ = 1 s"),
                Style::Line,
                known(watch, name, percent),
            )
            .role(name),
        ]
    });
    let towards = match way {
        Way::Up => "anchor",
        Way::Down => "host",
    };
    Plot {
        title: format!("One-way loss towards the {towards}"),
        y_label: "loss in %".into(),
        series: each.collect(),
        y_max: Some(5.0),
        ..Plot::default()
    }
}

/// A step function as a line, so that it can be dashed: each value lasts until the next point.
fn corners(steps: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let ends = steps.iter().skip(1).map(|(at, _)| *at);
    steps.iter().zip(ends).flat_map(|((from, value), to)| [(*from, *value), (to, *value)]).collect()
}

/// Share of dropped packets in each bin. Bins that overlap the silence are left out, because marks show it. The share
/// is repeated before a gap and at the end, so that each bin gets its full width.
fn imposed_loss(packets: &[(f64, bool, bool)], until: f64) -> Vec<(f64, f64)> {
    let mut bins = vec![Some((0u32, 0u32)); (until / LOSS_BIN).ceil() as usize];
    for (at, dropped, silent) in packets.iter().filter(|(at, ..)| *at < until) {
        let Some(bin) = bins.get_mut((at / LOSS_BIN) as usize) else { continue };
        *bin = bin.filter(|_| !silent).map(|(n, lost)| (n + 1, lost + u32::from(*dropped)));
    }
    let share = |bin: &Option<(u32, u32)>| match bin {
        Some((n, lost)) if *n >= 20 => f64::from(*lost) / f64::from(*n) * 100.0,
        _ => f64::NAN,
    };
    let mut points = Vec::new();
    for (bin, counts) in bins.iter().enumerate() {
        let (from, share) = (bin as f64 * LOSS_BIN, share(counts));
        if share.is_nan() {
            end_step(&mut points, from);
        }
        points.push((from, share));
    }
    end_step(&mut points, until);
    points
}

/// Download rate in Mbit/s in each bin. The last bin may be shorter.
pub(crate) fn rate(seen: &Seen, until: f64) -> Vec<(f64, f64)> {
    let mut bins = vec![0usize; (until / BIN).ceil() as usize];
    for (at, n) in seen.tcp.reads.iter().filter(|(at, _)| *at < until) {
        if let Some(bin) = bins.get_mut((at.max(0.0) / BIN) as usize) {
            *bin += n;
        }
    }
    let mbit = |(bin, bytes): (usize, &usize)| {
        let from = bin as f64 * BIN;
        (from, *bytes as f64 * 8e-6 / (until - from).min(BIN))
    };
    let mut points: Vec<(f64, f64)> = bins.iter().enumerate().map(mbit).collect();
    end_step(&mut points, until);
    points
}

/// Extends the last step, if there is one, until `to`.
fn end_step(points: &mut Vec<(f64, f64)>, to: f64) {
    if let Some((_, last)) = points.last().copied().filter(|(_, last)| !last.is_nan()) {
        points.push((to, last));
    }
}

pub(crate) fn silences(voice: &Voice) -> Vec<(f64, f64)> {
    let interval = VOICE_INTERVAL.as_secs_f64();
    voice
        .received
        .windows(2)
        .map(|pair| (pair[1].1, ((pair[1].1 - pair[0].1 - interval).max(0.0)) * 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use segue_clock::Time;

    use super::super::traffic::Tcp;
    use super::*;

    #[test]
    fn the_rate_holds_until_the_end() {
        for until in [2.0, 2.1] {
            // 10 kB every 10 ms, and some that arrived during the teardown.
            let reads = (0..230).map(|i| (f64::from(i) * 0.01 + 0.005, 10_000)).collect();
            let tcp = Tcp { reads, ..Tcp::default() };
            let seen = Seen { up: Voice::default(), down: Voice::default(), tcp };
            let rate = rate(&seen, until);
            assert!(rate.iter().all(|(_, mbit)| (mbit - 8.0).abs() < 0.5), "{until}: {rate:?}");
            assert_eq!(rate.last().unwrap().0, until, "the last bin has its width");
        }
    }

    /// 100 packets per second, one in ten dropped; all packets sent during `silent` are silenced.
    fn packets(silent: std::ops::Range<f64>, until: f64) -> Vec<(f64, bool, bool)> {
        let packet = |i: u32| {
            let at = f64::from(i) / 100.0 + 0.005;
            let is_silent = silent.contains(&at);
            (at, !is_silent && i.is_multiple_of(10), is_silent)
        };
        (0..(until * 100.0) as u32).map(packet).collect()
    }

    #[test]
    fn each_bin_of_imposed_loss_has_its_width_also_before_a_gap_and_at_the_end() {
        let points = imposed_loss(&packets(2.0..4.0, 6.4), 6.0);
        let shown: Vec<_> = points.iter().copied().filter(|(_, share)| !share.is_nan()).collect();
        let expected = [0.0, 1.0, 2.0, 4.0, 5.0, 6.0].map(|at| (at, 10.0));
        assert_eq!(shown, expected, "{points:?}");
        let gap = points.iter().position(|(_, share)| share.is_nan()).unwrap();
        assert_eq!(gap, 3, "the line breaks in between");
    }

    #[test]
    fn the_last_bin_of_imposed_loss_ends_with_the_demonstration() {
        let points = imposed_loss(&packets(0.0..0.0, 4.0), 2.5);
        assert_eq!(points, [0.0, 1.0, 2.0, 2.5].map(|at| (at, 10.0)));
    }

    #[test]
    fn a_bin_that_is_silent_in_part_has_no_imposed_loss() {
        let points = imposed_loss(&packets(1.5..3.5, 5.0), 5.0);
        let shown: Vec<_> = points.iter().copied().filter(|(_, share)| !share.is_nan()).collect();
        assert_eq!(shown, [0.0, 1.0, 4.0, 5.0].map(|at| (at, 10.0)), "{points:?}");
    }

    /// A path with 10 ms in each direction, and `late` packets that took `delay` seconds.
    fn truth(late: u32, delay: f64) -> PathTruth {
        let way = |late: u32| {
            let delay = move |i| if i < late { delay } else { 0.010 };
            (0..1_000).map(|i| (f64::from(i) * SAMPLED, delay(i))).collect()
        };
        let (up, down) = (way(late), way(0));
        PathTruth { name: "wifi", up, down, up_packets: Vec::new(), down_packets: Vec::new() }
    }

    #[test]
    fn an_outlier_does_not_flatten_the_round_trip_times() {
        let watch = Watch::new(Time(0));
        let end = rtt(&watch, &truth(3, 0.5)).y_max.unwrap();
        assert!((20.0..=30.1).contains(&end), "{end} ms for 20 ms");
        // Frequent values are shown.
        let end = rtt(&watch, &truth(200, 0.1)).y_max.unwrap();
        assert!((110.0..=170.0).contains(&end), "{end} ms for 110 ms");
        let nothing = PathTruth { up: Vec::new(), ..truth(0, 0.0) };
        assert_eq!(rtt(&watch, &nothing).y_max, None);
    }
}
