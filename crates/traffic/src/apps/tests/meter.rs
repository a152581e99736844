//! Tests of the meter with hand-made arrivals.

use super::*;

#[test]
fn jitter_of_alternating_delays_is_their_difference_both_ways() {
    let meter = played(MeterConfig::default(), 101, |i| Some(if i % 2 == 0 { 10 } else { 14 }));
    let jitter = &meter.finished(Time(10_000 * MS)).jitter;
    assert_eq!(jitter.count(), 100);
    assert_eq!((jitter.min_ns(), jitter.max_ns()), (Some(-4 * MS as i64), Some(4 * MS as i64)));
    assert_eq!(jitter.share_above_ns(0), Some(0.5));
    assert_eq!(jitter.mean_ns(), Some(0.0));
}

#[test]
fn jitter_is_of_neighbours_in_sequence_whatever_the_order_of_arrival() {
    // Datagram 1 takes 50 ms and arrives after 2; 4 is lost, so 3-4 and 4-5 have no variation.
    let delays = [10, 50, 12, 13, 0, 20];
    let meter = played(MeterConfig::default(), 6, |i| Some(delays[i as usize]).filter(|d| *d > 0));
    let measured = meter.finished(Time(10_000 * MS));
    let found: Vec<_> = measured.jitter.bins_ns().map(|(edge, n)| (edge / MS as i64, n)).collect();
    assert_eq!(found, [(-38, 1), (1, 1), (40, 1)]);
    assert_eq!(measured.counts.reordered, 1);
}

#[test]
fn what_comes_after_the_threshold_is_lost_and_at_the_threshold_is_not() {
    let config = MeterConfig { loss_after: Span(100 * MS), ..MeterConfig::default() };
    let delays = [100, 101, 5];
    let meter = played(config, 3, |i| Some(delays[i as usize]));
    let Measured { counts, .. } = meter.finished(Time(1_000 * MS));
    assert_eq!((counts.received, counts.lost, counts.late), (2, 1, 1));
}

#[test]
fn a_datagram_on_its_way_at_the_end_is_neither_received_nor_lost() {
    let meter = played(MeterConfig::default(), 10, |i| Some(1).filter(|_| i < 8));
    let soon = meter.finished(Time(200 * MS));
    assert_eq!((soon.counts.received, soon.counts.lost, soon.undecided), (8, 0, 2));
    assert_eq!(soon.loss_ratio(), Some(0.0));
    let later = meter.finished(Time(5_000 * MS));
    assert_eq!((later.counts.lost, later.undecided, later.loss_ratio()), (2, 0, Some(0.2)));
}

#[test]
fn what_comes_below_the_next_number_expected_is_reordered() {
    // RFC 4737, section 3.3: 4, 5 and 6 arrive when 11 is expected.
    let mut meter = Meter::new(&MeterConfig::default(), Direction::Down);
    (0..11).for_each(|i| _ = meter.sent(Time(i), 100, 0));
    for (i, number) in [1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11].into_iter().enumerate() {
        meter.arrived(Time(100 + i as u64), number - 1);
    }
    meter.arrived(Time(200), 3);
    let Measured { counts, .. } = meter.finished(Time(300));
    assert_eq!((counts.reordered, counts.received, counts.duplicates), (3, 11, 1));
}

#[test]
fn lost_packets_belong_to_the_handover_in_whose_interval_they_were_sent() {
    let config = MeterConfig {
        handovers: [1_000, 2_000, 3_000, 9_000].map(|ms| Time(ms * MS)).to_vec(),
        ..MeterConfig::default()
    };
    // One every 20 ms. Lost: the one at 880 ms, before any handover; 900 ms, in the lead of the first handover;
    // 1 880 ms, the last one of the first handover; 1 900 to 1 940 ms, in the second.
    let lost = [44, 45, 94, 95, 96, 97];
    let meter = played(config, 200, |i| Some(5).filter(|_| !lost.contains(&i)));
    let handovers = meter.finished(Time(20_000 * MS)).handovers;
    let by_hand: Vec<_> =
        handovers.records().iter().map(|h| (h.at.0 / MS, h.sent, h.lost)).collect();
    assert_eq!(by_hand, [(1_000, 50, 2), (2_000, 50, 3), (3_000, 55, 0), (9_000, 0, 0)]);
    assert_eq!((handovers.outside().sent, handovers.outside().lost), (45, 1));
    assert_eq!((handovers.count(), handovers.without_packets()), (4, 1));
    for (k, share) in [(0, 1.0), (1, 0.0), (2, 1.0), (3, 1.0), (4, 0.0)] {
        assert_eq!(handovers.share_losing(k), Some(share / 3.0), "{k}");
    }
}

#[test]
fn several_notices_of_one_handover_are_one_and_those_before_the_first_packet_are_none() {
    let mut meter = Meter::new(&MeterConfig::default(), Direction::Down);
    meter.handover(Time(0));
    meter.sent(Time(MS), 100, 0);
    for ms in [500, 510, 549, 550, 900] {
        meter.handover(Time(ms * MS));
    }
    assert_eq!(meter.finished(Time(1_000 * MS)).handovers.count(), 3);
}

#[test]
fn notices_of_what_is_to_come_leave_room_for_others_before_them() {
    let handovers = [1_000, 9_000].map(|ms| Time(ms * MS)).to_vec();
    let mut meter = Meter::new(&MeterConfig { handovers, ..MeterConfig::default() }, Direction::Up);
    meter.sent(Time(0), 100, 0);
    for ms in [500, 960, 2_000] {
        meter.handover(Time(ms * MS));
    }
    let handovers = meter.finished(Time(5_000 * MS)).handovers;
    let found: Vec<_> = handovers.records().iter().map(|h| h.at.0 / MS).collect();
    assert_eq!(found, [500, 1_000, 2_000], "9 s is beyond the end");
}

#[test]
fn a_handover_of_a_given_length_leaves_what_comes_later_outside() {
    let config = MeterConfig {
        handovers: vec![Time(1_000 * MS)],
        handover_lead: Span(100 * MS),
        handover_span: Some(Span(300 * MS)),
        ..MeterConfig::default()
    };
    let meter = played(config, 100, |_| None);
    let handovers = meter.finished(Time(20_000 * MS)).handovers;
    assert_eq!((handovers.records()[0].lost, handovers.outside().lost), (15, 85));
}

#[test]
fn the_window_of_a_meter_is_bounded() {
    let mut meter = Meter::new(&MeterConfig::default(), Direction::Down);
    (0..MAX_WINDOW as u64 + 10).for_each(|i| _ = meter.sent(Time(i), 100, 0));
    meter.arrived(Time(MS), 9);
    meter.arrived(Time(MS), 10);
    let Measured { counts, .. } = meter.finished(Time(2 * MS));
    assert_eq!((counts.hurried, counts.lost, counts.late, counts.received), (10, 10, 1, 1));
}

#[test]
fn a_frame_is_whole_if_all_its_datagrams_came_and_unknown_while_one_is_on_its_way() {
    let mut meter = Meter::new(&MeterConfig::default(), Direction::Down);
    for tag in [1, 1, 2, 2, 3, 4, 4] {
        meter.sent(Time(tag), 100, tag as u32);
    }
    [0, 1, 2, 4, 5].into_iter().for_each(|seq| meter.arrived(Time(100), seq));
    let early = meter.finished(Time(200)).counts;
    assert_eq!((early.frames_whole, early.frames_broken), (2, 0));
    let late = meter.finished(Time(10_000 * MS)).counts;
    assert_eq!((late.frames_whole, late.frames_broken), (2, 2));
}
