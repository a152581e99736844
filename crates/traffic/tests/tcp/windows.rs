//! Windows of the classical senders with one to four losses in a window: snapshots, and tests of their
//! properties.

use std::fmt::Write as _;

use segue_clock::{Span, Time};
use segue_sim::Value;
use segue_traffic::dumbbell::{Dumbbell, Outcome};
use segue_traffic::tcp::{Config, TracePoint, Variant};

use crate::snapshots::expect_snapshots;

/// The senders of paper 4.
const CLASSICAL: [Variant; 6] =
    [Variant::Tahoe, Variant::Reno, Variant::NewReno, Variant::Sack, Variant::Fack, Variant::Vegas];

/// Start of the losses; every window is steady by then.
const LOSS: Time = Time(2_000_000_000);
/// RTT with 30 packets of 1.184 ms in flight: the link is full and two of them wait.
const RTT: Span = Span(35_520_000);

#[test]
fn the_windows_are_those_of_the_snapshots() {
    let runs =
        CLASSICAL.into_iter().flat_map(|variant| (1..=4).map(move |losses| (variant, losses)));
    expect_snapshots(runs.map(|(variant, losses)| {
        let name = format!("windows/{}-{losses}.txt", variant.name());
        (name, snapshot(&after(variant, losses).points))
    }));
}

#[test]
fn one_loss_costs_no_sender_a_timeout_and_one_retransmission() {
    for variant in CLASSICAL {
        let run = after(variant, 1);
        assert_eq!((run.timeouts, run.retransmissions), (0, 1), "{variant:?}");
    }
}

#[test]
fn tahoe_slow_starts_from_one_packet_to_half_its_window_whatever_is_lost() {
    for losses in 1..=4 {
        let run = after(Variant::Tahoe, losses);
        assert_eq!(run.timeouts, 0);
        let again = run.repairs()[0];
        assert_eq!((again.cwnd, again.ssthresh), (1.0, 15.0));
        // One more for each acknowledgement: with one loss the window doubles per round trip; with more, some
        // acknowledgements are spent on data that the receiver already has.
        let windows: Vec<f64> =
            (0..8).map(|n| run.window_at(again.at + RTT * n + Span::from_millis(2))).collect();
        assert!(windows.windows(2).all(|pair| pair[0] <= pair[1]), "{losses} losses: {windows:?}");
        assert!(windows[7] >= 15.0, "{losses} losses: {windows:?}");
        if losses == 1 {
            assert!(windows[1..4].iter().zip([2.0, 4.0, 8.0]).all(|(w, least)| *w >= least));
        }
    }
}

#[test]
fn reno_repairs_one_loss_in_a_round_trip_and_stalls_to_a_timeout_with_more() {
    let one = after(Variant::Reno, 1);
    assert!(one.repaired_within(RTT + Span::from_millis(5)));
    for losses in 2..=4 {
        let run = after(Variant::Reno, losses);
        assert_eq!(run.timeouts, 1, "{losses} losses");
        let silence = run.longest_silence();
        // The minimum timeout is 200 ms, counted from the last acknowledgement of new data.
        assert!(silence > Span::from_millis(130), "{losses} losses: {silence}");
    }
}

#[test]
fn newreno_repairs_one_hole_in_each_round_trip_without_a_timeout() {
    for losses in 2..=4_usize {
        let run = after(Variant::NewReno, losses as u32);
        assert_eq!((run.timeouts, run.retransmissions), (0, losses as u64));
        for pair in run.repairs().windows(2) {
            let gap = pair[1].at.since(pair[0].at);
            let round = Span::from_millis(30)..=RTT + Span::from_millis(5);
            assert!(round.contains(&gap), "{losses} losses: {gap}");
        }
    }
}

#[test]
fn sack_and_fack_repair_all_holes_in_about_one_round_trip() {
    for variant in [Variant::Sack, Variant::Fack] {
        for losses in 1..=4 {
            let run = after(variant, losses);
            assert_eq!((run.timeouts, run.retransmissions), (0, u64::from(losses)), "{variant:?}");
            let limit = RTT + RTT.half();
            assert!(run.repaired_within(limit), "{variant:?}, {losses} losses");
        }
    }
}

/// Packets that ns-2.35 delivered in 20 s with a window of 25 and this many consecutive losses per second. After
/// a timeout, unnecessary retransmissions cause duplicates: they inflate the window of the 2001 Reno, and Sack1
/// counts those with new information.
#[test]
fn losses_in_a_row_each_second_cost_what_they_cost_in_ns_2() {
    let reno = [(4, 4_737), (5, 4_497), (8, 4_283), (11, 4_097), (14, 4_056)];
    let sack = [(4, 12_473), (8, 12_074), (12, 11_141), (14, 5_264)];
    let cells = (reno.map(|cell| (Config::ns2_2001(Variant::Reno), cell)).into_iter())
        .chain(sack.map(|cell| (Config::ns2_35(Variant::Sack), cell)));
    for (tcp, (losses, theirs)) in cells {
        let dumbbell = Dumbbell {
            tcp: Config { window: 25, ..tcp },
            rate_bps: 10_000_000,
            delay: Span::from_millis(16),
            queue: 50,
            drop_at: (1..20).map(|second| (Span::from_secs(second), losses)).collect(),
            duration: Span::from_secs(20),
            trace: false,
        };
        let Outcome { results, .. } = dumbbell.run().expect("a link");
        let Some(Value::Int(ours)) = results.get("delivered") else { panic!("{results:?}") };
        let percent = 100.0 * (*ours as f64 - f64::from(theirs)) / f64::from(theirs);
        assert!(percent.abs() < 0.1, "{:?}, {losses} losses: {ours}, ns-2 {theirs}", tcp.variant);
    }
}

#[test]
fn vegas_holds_between_alpha_and_beta_packets_in_its_queue() {
    let run = run(Variant::Vegas, 60, &[], Span::from_secs(10));
    // The link holds 33.216 ms / 1.184 ms = 28.05 packets; the rest of a steady window waits.
    for point in run.points.iter().filter(|p| p.at > Time(5_000_000_000)) {
        let queued = point.cwnd.floor() - 33.216 / 1.184;
        assert!((1.0..=3.0).contains(&queued), "{queued} wait at {:?}", point.at);
    }
    assert_eq!(run.queue_drops, 0);
    assert!(run.points.iter().any(|p| p.at > Time(9_000_000_000)), "it stopped");
}

struct Run {
    points: Vec<TracePoint>,
    timeouts: u64,
    retransmissions: u64,
    queue_drops: u64,
}

/// A run that loses `losses` consecutive packets at two seconds.
fn after(variant: Variant, losses: u32) -> Run {
    run(variant, 30, &[(Span(LOSS.0), losses)], Span::from_millis(3_000))
}

fn run(variant: Variant, window: u32, drop_at: &[(Span, u32)], duration: Span) -> Run {
    let dumbbell = Dumbbell {
        tcp: Config { window, ..Config::ns2_35(variant) },
        rate_bps: 10_000_000,
        delay: Span::from_millis(16),
        queue: 50,
        drop_at: drop_at.to_vec(),
        duration,
        trace: true,
    };
    let Outcome { results, trace, .. } = dumbbell.run().expect("a link");
    let count = |name: &str| match results.get(name) {
        Some(Value::Int(n)) => *n,
        other => panic!("{name}: {other:?}"),
    };
    let (timeouts, queue_drops) = (count("timeouts"), count("queue_drops"));
    Run { points: trace, timeouts, retransmissions: count("retransmissions"), queue_drops }
}

impl Run {
    /// Retransmitted segments.
    fn repairs(&self) -> Vec<TracePoint> {
        let mut highest = None;
        let again = |point: &&TracePoint| {
            let again = highest.is_some_and(|highest| point.seq <= highest);
            highest = highest.max(Some(point.seq));
            again
        };
        self.points.iter().filter(again).copied().collect()
    }

    /// Returns true if the first and the last repair are at most `limit` apart.
    fn repaired_within(&self, limit: Span) -> bool {
        let repairs = self.repairs();
        let (first, last) = (repairs[0].at, repairs[repairs.len() - 1].at);
        last.since(first) <= limit
    }

    fn window_at(&self, at: Time) -> f64 {
        let before = self.points.iter().take_while(|point| point.at <= at);
        before.last().expect("it sent").cwnd
    }

    fn longest_silence(&self) -> Span {
        let gaps = self.points.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        gaps.max().expect("it sent")
    }
}

/// The trace from the loss to 450 ms later.
fn snapshot(points: &[TracePoint]) -> String {
    let mut text = String::from("time_s cwnd ssthresh sequence\n");
    for p in points.iter().filter(|p| p.at >= LOSS && p.at < LOSS + Span::from_millis(450)) {
        let micros = (p.at.0 + 500) / 1_000;
        let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
        let _ = writeln!(text, "{whole}.{part:06} {:.4} {:.4} {}", p.cwnd, p.ssthresh, p.seq);
    }
    text
}
