//! CUBIC, RACK-TLP and the modern profile of the older variants: windows after one, two, three and more losses,
//! as traces in `snapshots/`, and tests of their properties.
//!
//! The path: 1 500 bytes take 1 ms, plus 16 ms in each direction. A window of 40 segments covers it. A trace's
//! columns are time in ms, window and threshold in segments, first byte, and `again` for retransmissions.

use segue_clock::{Span, Time};
use segue_sim::Packet;
use segue_traffic::tcp::cubic::{BETA, C, k, w_cubic};
use segue_traffic::tcp::{Config, Congestion, Segment, Variant};

use crate::path::{Direction, Fate, Path, Run, passes};
use crate::snapshots::expect_snapshots;

const MSS: u64 = 1_460;
const SEGMENTS: u64 = 120;
/// The first lost segment: by then the window is open and has grown for a while.
const FIRST_LOST: u64 = 50;
/// Two directions of 16 ms and a segment of 1 ms, without queueing.
const RTT_MS: f64 = 33.0;

#[test]
fn windows_after_one_to_five_losses_are_as_recorded() {
    let configs = [
        modern(Variant::Reno),
        modern(Variant::NewReno),
        modern(Variant::Sack),
        modern(Variant::Cubic),
        modern(Variant::Rack),
    ];
    expect_snapshots(configs.map(|config| {
        let mut text = String::new();
        for losses in 1..=5 {
            let run = after_losses(config, losses);
            text.push_str(&format!("# {losses} lost\n{}\n", run.lines.join("\n")));
        }
        (format!("snapshots/modern-{}.txt", config.variant.name()), text)
    }));
}

#[test]
fn with_selective_acknowledgements_any_losses_of_a_window_take_one_reduction_and_about_one_round_trip()
 {
    for variant in [Variant::Sack, Variant::Cubic, Variant::Rack] {
        for losses in 1..=5 {
            let run = after_losses(modern(variant), losses);
            assert_eq!(run.trouble(), (losses, 0), "{variant:?} {losses}");
            assert_eq!(reductions(&run), 1, "{variant:?} {losses}: {:#?}", run.lines);
            let took = repaired_ms(&run, losses) - first_again_ms(&run);
            assert!(took < 1.5 * RTT_MS, "{variant:?} {losses}: {took} ms");
        }
    }
}

#[test]
fn newreno_repairs_one_loss_in_a_round_trip_and_waits_for_no_timeout() {
    let took = |losses| {
        let run = after_losses(modern(Variant::NewReno), losses);
        assert_eq!(run.trouble().1, 0, "{losses}: {:#?}", run.lines);
        assert_eq!(reductions(&run), 1, "{losses}");
        repaired_ms(&run, losses) - first_again_ms(&run)
    };
    let one = took(1);
    for losses in 2..=5 {
        let each = (took(losses) - one) / (losses - 1) as f64;
        assert!((0.9 * RTT_MS..1.5 * RTT_MS).contains(&each), "{losses}: {each} ms for each more");
    }
}

#[test]
fn reno_repairs_one_loss_and_stalls_until_a_timeout_with_three() {
    assert_eq!(after_losses(modern(Variant::Reno), 1).trouble(), (1, 0));
    for losses in 3..=5 {
        let run = after_losses(modern(Variant::Reno), losses);
        assert!(run.trouble().1 > 0, "{losses}: {:#?}", run.lines);
    }
}

#[test]
fn rack_finds_that_a_retransmission_was_lost_and_the_others_wait_for_the_timeout() {
    let run = |variant| {
        let mut copies = 0;
        transfer(modern(variant), SEGMENTS, move |number| {
            copies += u64::from(number == FIRST_LOST);
            if number == FIRST_LOST && copies <= 2 { vec![] } else { passes() }
        })
    };
    let rack = run(Variant::Rack);
    assert_eq!(rack.trouble(), (2, 0));
    assert_eq!(reductions(&rack), 2, "losing a retransmission is a second sign of congestion");
    for variant in [Variant::Sack, Variant::Cubic, Variant::NewReno, Variant::Reno] {
        assert!(run(variant).trouble().1 > 0, "{variant:?}");
    }
}

#[test]
fn a_probe_recovers_a_lost_tail_before_the_timeout_would() {
    for lost in 1..=5 {
        let run = |variant| {
            let mut again = false;
            transfer(modern(variant), SEGMENTS, move |number| {
                let tail = number >= SEGMENTS - lost && !again;
                again |= number == SEGMENTS - 1;
                if tail { vec![] } else { passes() }
            })
        };
        let (rack, sack) = (run(Variant::Rack), run(Variant::Sack));
        assert_eq!(rack.trouble().1, 0, "{lost}: {:#?}", rack.lines);
        assert!(sack.trouble().1 > 0, "{lost}");
        if lost > 1 {
            assert!(rack.completed < sack.completed, "{lost}: {:?}", rack.completed);
        } else {
            // The acknowledgement of a single segment may be delayed, so the probe comes at the time of the
            // timeout.
            let late = Some(sack.completed.expect("it did") + Span::from_millis(5));
            assert!(rack.completed < late, "{:?}, {late:?}", rack.completed);
        }
        // One retransmission per lost segment; the probe is one of them.
        assert_eq!(rack.trouble().0, lost, "{:#?}", rack.lines);
    }
}

#[test]
fn the_window_answers_to_a_loss_that_a_probe_repaired_as_soon_as_it_shows() {
    // The last segment of the first part is lost. The following data reveal that the probe was its only copy.
    let mut lost = false;
    let fate = |way, _, packet: &Packet| match packet.value::<Segment>() {
        Some(s) if way == Direction::Data && s.seq / MSS == SEGMENTS - 1 && !lost => {
            lost = true;
            vec![]
        }
        _ => passes(),
    };
    let offers = [0, 2_000].map(|ms| (Time::ZERO + Span::from_millis(ms), SEGMENTS * MSS)).to_vec();
    let run = Path { offers, ..path(modern(Variant::Rack), SEGMENTS, fate) }.run();
    assert_eq!((run.trouble(), reductions(&run)), ((1, 0), 1));
}

#[test]
fn a_probe_for_an_acknowledgement_that_was_late_costs_no_window() {
    // The last acknowledgements arrive 120 ms late: the probe is a duplicate, and is reported as such.
    let late = Span::from_millis(120);
    let fate = |way, _, packet: &Packet| {
        let end = packet
            .value::<Segment>()
            .is_some_and(|s| s.ack.is_some_and(|ack| ack > (SEGMENTS - 20) * MSS));
        if way == Direction::Back && end { vec![late] } else { passes() }
    };
    let run = path(modern(Variant::Rack), SEGMENTS, fate).run();
    assert_eq!(run.trouble(), (1, 0), "{:#?}", run.lines);
    assert_eq!(reductions(&run), 0);
}

#[test]
fn what_is_late_within_a_quarter_of_the_round_trip_is_not_sent_again_once_reordering_was_seen() {
    // One segment overtaken by two proves reordering; then every twelfth is overtaken by six.
    let late = |number: u64| match number {
        20 => vec![Span::from_micros(2_500)],
        n if n > 30 && n % 12 == 0 => vec![Span::from_micros(6_500)],
        _ => passes(),
    };
    let rack = transfer(modern(Variant::Rack), 400, late);
    assert_eq!((rack.trouble(), reductions(&rack)), ((0, 0), 0), "{:#?}", rack.lines);
    for variant in [Variant::Sack, Variant::Cubic, Variant::NewReno] {
        let run = transfer(modern(variant), 400, late);
        assert!(run.trouble().0 >= 5, "{variant:?}: {:?}", run.trouble());
    }
}

#[test]
fn duplicates_teach_rack_a_wider_reordering_window() {
    // Overtaken by twelve: later than a quarter of the round trip, within one round trip.
    let late = |number: u64| match number % 40 {
        20 => vec![Span::from_micros(12_500)],
        _ => passes(),
    };
    let rack = transfer(modern(Variant::Rack), 2_000, late);
    let sack = transfer(modern(Variant::Sack), 2_000, late);
    assert!(sack.trouble().0 >= 20, "{:?} of the 50 that were late", sack.trouble());
    assert!(rack.trouble().0 <= 3, "{:?}", rack.trouble());
    let last = rack.sent.iter().rposition(|left| left.again).expect("the first one was");
    assert!(last < 200, "none later than {last}");
}

#[test]
fn the_window_of_cubic_follows_w_cubic_within_a_segment_from_loss_to_loss() {
    for variant in [Variant::Cubic, Variant::Rack] {
        let config = Config { window: 2_000, initial_ssthresh: Some(2_000), ..modern(variant) };
        let path = Path {
            delay: Span::from_millis(50),
            spacing: Span::from_micros(250),
            most_events: 400_000,
            ..path(config, 60_000, |way, number, _: &Packet| {
                if way == Direction::Data && number % 50_000 == 400 { vec![] } else { passes() }
            })
        };
        let run = path.run();
        assert_eq!((run.trouble(), reductions(&run)), ((2, 0), 2), "{variant:?}");
        // Between the first loss and the second.
        let bounds: Vec<usize> = changes(&run).take(2).collect();
        let w_max = run.sent[bounds[0] - 1].cwnd;
        let stage = &run.sent[bounds[0]..bounds[1]];
        let ssthresh = stage[0].ssthresh;
        assert!((ssthresh / w_max - BETA).abs() < 0.02, "{ssthresh} of {w_max}");
        // The stage begins with the acknowledgement that ends the recovery and opens the window, which only grows
        // from then on.
        let falls = |i: &usize| stage[*i].cwnd < stage[*i - 1].cwnd || stage[*i].cwnd <= ssthresh;
        let begin = (1..stage.len()).rfind(falls).expect("a recovery") + 1;
        let k = k(C, w_max, ssthresh);
        let (mut seen, mut beyond) = (0, 0);
        for left in &stage[begin..] {
            let t = left.at.since(stage[begin].at).as_secs_f64();
            let expected = w_cubic(C, t, k, w_max);
            let off = left.cwnd - expected;
            assert!(off.abs() < 1.0 + 0.01, "{variant:?}, {t} s: {}, not {expected}", left.cwnd);
            seen += 1;
            beyond += u32::from(t > k);
        }
        assert!(seen > 5_000 && beyond > 1_000, "concave and convex: {seen}, {beyond}");
    }
}

#[test]
fn rack_takes_the_window_of_reno_if_asked() {
    let run = |congestion| {
        let run = after_losses(Config { congestion, ..modern(Variant::Rack) }, 1);
        let at = changes(&run).next().expect("a reduction");
        run.sent[at].ssthresh / run.sent[at - 1].cwnd
    };
    assert!((run(Congestion::Reno) - 0.5).abs() < 0.02);
    assert!((run(Congestion::Cubic) - 0.7).abs() < 0.02);
}

#[test]
fn what_limited_transmit_sent_is_not_halved() {
    // Two segments leave on the first two duplicates, beyond the window (RFC 5681, section 3.2, steps 1 and 2).
    for variant in [Variant::Reno, Variant::NewReno, Variant::Sack, Variant::Rack] {
        let run = after_losses(Config { congestion: Congestion::Reno, ..modern(variant) }, 1);
        let cut = changes(&run).next().expect("a loss was seen");
        let (before, after) = (run.sent[cut - 1], run.sent[cut]);
        assert!(after.again, "{variant:?}");
        assert!(
            (after.ssthresh - before.cwnd / 2.0).abs() < 0.5,
            "{variant:?}: {before:?} {after:?}"
        );
    }
}

fn modern(variant: Variant) -> Config {
    Config { mss: MSS as u32, window: 40, initial_ssthresh: Some(20), ..Config::modern(variant) }
}

/// A transfer that loses `losses` consecutive segments, first transmissions only.
fn after_losses(config: Config, losses: u64) -> Run {
    let mut lost = 0;
    transfer(config, SEGMENTS, move |number| {
        if number == FIRST_LOST + lost && lost < losses {
            lost += 1;
            return vec![];
        }
        passes()
    })
}

/// A transfer in which the number of a data packet's segment determines its fate.
fn transfer(config: Config, segments: u64, mut fate: impl FnMut(u64) -> Fate) -> Run {
    let by_segment = |way, _, packet: &Packet| match packet.value::<Segment>() {
        Some(segment) if way == Direction::Data => fate(segment.seq / MSS),
        _ => passes(),
    };
    let run = path(config, segments, by_segment).run();
    assert_eq!(run.sink.delivered(), segments * MSS);
    run
}

fn path<F>(config: Config, segments: u64, fate: F) -> Path<F> {
    Path {
        config,
        offers: vec![(Time::ZERO, segments * MSS)],
        delay: Span::from_millis(16),
        spacing: Span::from_millis(1),
        fate,
        most_events: 50_000,
    }
}

/// Indices at which the threshold changed.
fn changes(run: &Run) -> impl Iterator<Item = usize> {
    (1..run.sent.len()).filter(|&i| run.sent[i].ssthresh != run.sent[i - 1].ssthresh)
}

fn reductions(run: &Run) -> usize {
    changes(run).count()
}

fn first_again_ms(run: &Run) -> f64 {
    let first = run.sent.iter().find(|left| left.again).expect("something was sent again");
    first.at.as_secs_f64() * 1e3
}

/// When the last lost segment had been retransmitted and acknowledged.
fn repaired_ms(run: &Run, losses: u64) -> f64 {
    let end = (FIRST_LOST + losses - 1) * MSS;
    let last =
        run.sent.iter().rfind(|left| left.again && left.seq <= end).expect("it was repaired");
    last.at.as_secs_f64() * 1e3 + RTT_MS
}
