//! Links under load: exact times, loss statistics with fixed seeds, ordering and profiles.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use proptest::prelude::*;
use segue_clock::{Span, Time};
use segue_netem::{
    Change, Counters, DropCause, Jitter, LinkModel, LinkSpec, Loss, LossTrace, Profile, Queue,
    SpecError, Verdict,
};

const MS: u64 = 1_000_000;

fn link(spec: LinkSpec) -> LinkModel {
    LinkModel::new(spec, 1, Time::ZERO).unwrap()
}

fn with_loss(loss: Loss, seed: u64) -> LinkModel {
    LinkModel::new(LinkSpec { loss, ..LinkSpec::default() }, seed, Time::ZERO).unwrap()
}

/// Offers one packet per millisecond; true for each lost one.
fn losses(link: &mut LinkModel, packets: u64) -> Vec<bool> {
    (0..packets).map(|i| link.offer(Time(i * MS), 100) == Verdict::Drop(DropCause::Loss)).collect()
}

fn arrival(verdict: Verdict) -> Option<u64> {
    match verdict {
        Verdict::Deliver { at, .. } => Some(at.0),
        Verdict::Drop(_) => None,
    }
}

#[test]
fn an_unloaded_link_takes_serialisation_plus_propagation() {
    let mut link = link(LinkSpec {
        rate_bps: Some(10_000_000),
        delay: Span::from_millis(16),
        ..LinkSpec::default()
    });
    // 1 480 bytes take 1.184 ms at 10 Mbit/s; a round trip with an acknowledgement of 40 bytes takes 33.216 ms.
    let there = arrival(link.offer(Time::ZERO, 1_480)).unwrap();
    assert_eq!(there, 17_184_000);
    assert_eq!(arrival(link.offer(Time(there), 40)), Some(33_216_000));
}

#[test]
fn a_busy_link_sends_exactly_at_its_rate_also_where_a_packet_is_no_whole_nanosecond() {
    let rate = 7_000_003;
    let mut link = link(LinkSpec { rate_bps: Some(rate), ..LinkSpec::default() });
    let mut last = 0;
    for _ in 0..10_000 {
        last = arrival(link.offer(Time::ZERO, 1_499)).unwrap();
    }
    let exact = 10_000u128 * 1_499 * 8 * 1_000_000_000 / u128::from(rate);
    assert_eq!(u128::from(last), exact);
}

#[test]
fn a_queue_of_packets_holds_its_number_beside_the_one_being_sent() {
    // ns-2's DropTail with limit 50: one in service, 49 waiting, the others dropped.
    let mut link = link(LinkSpec {
        rate_bps: Some(8_000_000),
        queue: Queue::Packets(49),
        ..LinkSpec::default()
    });
    let fates: Vec<_> = (0..60).map(|_| link.offer(Time::ZERO, 1_000)).collect();
    assert!(fates[..50].iter().all(|v| arrival(*v).is_some()));
    assert!(fates[50..].iter().all(|v| *v == Verdict::Drop(DropCause::Queue)));
    // After 1 ms the first packet is sent and the second in service: one place is free, not two.
    assert!(arrival(link.offer(Time(MS), 1_000)).is_some());
    assert_eq!(link.offer(Time(MS), 1_000), Verdict::Drop(DropCause::Queue));
    assert_eq!(link.counters().queue_full, 11);
}

#[test]
fn a_queue_of_bytes_takes_a_small_packet_where_a_large_one_has_no_room() {
    let mut link = link(LinkSpec {
        rate_bps: Some(8_000_000),
        queue: Queue::Bytes(2_500),
        ..LinkSpec::default()
    });
    let sizes = [1_000, 1_000, 1_000, 1_000, 500, 1];
    let taken: Vec<bool> =
        sizes.iter().map(|s| arrival(link.offer(Time::ZERO, *s)).is_some()).collect();
    assert_eq!(taken, [true, true, true, false, true, false]);
}

/// Overloads a queue with packets of 1 ms each, one per half millisecond. Returns the counters and the longest wait in
/// ns.
fn overloaded(bytes_each: u32, longest_ms: u64, packets: u64) -> (Counters, u64) {
    let spec = LinkSpec {
        rate_bps: Some(u64::from(bytes_each) * 8 * 1_000),
        queue: Queue::Delay(Span::from_millis(longest_ms)),
        ..LinkSpec::default()
    };
    let mut link = link(spec);
    let mut longest = 0;
    for i in 0..packets {
        let now = i * MS / 2;
        if let Verdict::Deliver { start, .. } = link.offer(Time(now), bytes_each) {
            longest = longest.max(start.0 - now);
        }
    }
    (link.counters(), longest)
}

#[test]
fn a_queue_of_a_delay_holds_what_the_rate_carries_in_it_whatever_the_packets_size() {
    for (bytes, longest_ms) in [(100, 0), (100, 1), (1_000, 7), (1_500, 50)] {
        // The wait grows by half a millisecond per packet up to the limit, and the wire is busy until the end. Of n
        // packets, those are delivered that fit into n/2 ms or are still waiting then; the others are dropped.
        let packets = 1_000;
        let (counters, longest) = overloaded(bytes, longest_ms, packets);
        assert_eq!(longest, longest_ms * MS, "{bytes} bytes");
        let delivered = packets / 2 + longest_ms;
        assert!(
            counters.delivered.abs_diff(delivered) <= 1,
            "{} delivered, by the formula {delivered}",
            counters.delivered
        );
        assert_eq!(counters.delivered + counters.queue_full, packets);
    }
}

#[test]
fn a_packet_may_wait_exactly_as_long_as_the_bound_and_no_nanosecond_more() {
    for (longest, taken) in [(2 * MS, 3), (2 * MS - 1, 2), (0, 1)] {
        let mut link = link(LinkSpec {
            rate_bps: Some(8_000_000),
            queue: Queue::Delay(Span(longest)),
            ..LinkSpec::default()
        });
        // Offered together, they would wait 0, 1, 2 and 3 ms.
        let offered = (0..4).filter(|_| arrival(link.offer(Time::ZERO, 1_000)).is_some());
        assert_eq!(offered.count(), taken, "{longest} ns");
    }
}

#[test]
fn an_exact_list_loses_those_packets_and_no_other() {
    let list = vec![0, 3, 4, 999];
    let mut link = with_loss(Loss::Exact(list.clone()), 1);
    let lost: Vec<u64> = losses(&mut link, 2_000)
        .iter()
        .enumerate()
        .filter_map(|(i, lost)| lost.then_some(i as u64))
        .collect();
    assert_eq!(lost, list);
    assert_eq!((link.counters().lost, link.counters().delivered), (4, 1_996));
}

#[test]
fn independent_loss_stays_within_the_binomial_interval() {
    let n = 200_000u64;
    for (seed, p) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.1), (5, 0.2)] {
        let mut link = with_loss(Loss::Bernoulli(p), seed);
        let lost = losses(&mut link, n).iter().filter(|l| **l).count() as f64;
        let sigma = (n as f64 * p * (1.0 - p)).sqrt();
        let z = (lost - n as f64 * p) / sigma;
        assert!(z.abs() < 3.29, "p {p}: {lost} lost, {z:.2} standard deviations");
    }
}

#[test]
fn bursts_have_the_mean_loss_and_length_of_their_parameters() {
    let (p, r) = (0.02, 0.25);
    let loss = Loss::GilbertElliott { p, r, loss_good: 0.0, loss_bad: 1.0 };
    let mean = loss.mean().unwrap();
    assert!((mean - p / (p + r)).abs() < 1e-12);
    let lost = losses(&mut with_loss(loss, 9), 400_000);
    let count = lost.iter().filter(|l| **l).count() as f64;
    let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
    let (share, length) = (count / lost.len() as f64, count / bursts);
    assert!((share / mean - 1.0).abs() < 0.03, "loss {share}, expected {mean}");
    assert!((length * r - 1.0).abs() < 0.03, "bursts of {length}, expected {}", 1.0 / r);
}

#[test]
fn loss_and_bursts_are_those_of_the_parameters_also_where_most_is_lost() {
    for (p, r) in [(0.3, 0.05), (0.9, 0.1), (1.0, 0.25)] {
        let loss = Loss::GilbertElliott { p, r, loss_good: 0.0, loss_bad: 1.0 };
        let mean = loss.mean().unwrap();
        let lost = losses(&mut with_loss(loss, 11), 400_000);
        let count = |of: bool| lost.iter().filter(|l| **l == of).count() as f64;
        let begun = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        let (share, burst, gap) =
            (count(true) / 400_000.0, count(true) / begun, count(false) / begun);
        assert!(share > 0.75 && (share / mean - 1.0).abs() < 0.01, "{share}, expected {mean}");
        assert!((burst * r - 1.0).abs() < 0.03, "bursts of {burst}, expected {}", 1.0 / r);
        assert!((gap * p - 1.0).abs() < 0.03, "gaps of {gap}, expected {}", 1.0 / p);
    }
}

#[test]
fn both_states_lose_with_their_own_probability() {
    let loss = Loss::GilbertElliott { p: 0.1, r: 0.3, loss_good: 0.02, loss_bad: 0.5 };
    let mean = loss.mean().unwrap();
    let lost = losses(&mut with_loss(loss, 3), 400_000);
    let share = lost.iter().filter(|l| **l).count() as f64 / lost.len() as f64;
    assert!((mean - (0.25 * 0.5 + 0.75 * 0.02)).abs() < 1e-12);
    assert!((share / mean - 1.0).abs() < 0.03, "loss {share}, expected {mean}");
}

#[test]
fn a_profile_switches_at_its_instants_and_starts_again_after_its_period() {
    let delay = |ms| Change { delay: Some(Span::from_millis(ms)), ..Change::default() };
    let silent = Change { silent: Some(true), ..Change::default() };
    let steps = vec![(Span::from_millis(10), delay(7)), (Span::from_millis(20), silent)];
    let profile = Profile { steps, period: Some(Span::from_millis(30)) };
    let spec = LinkSpec { delay: Span::from_millis(2), profile, ..LinkSpec::default() };
    let start = Time(5 * MS);
    let mut link = LinkModel::new(spec, 1, start).unwrap();
    let mut delay_at = |ms: u64| {
        let now = start + Span::from_millis(ms);
        arrival(link.offer(now, 100)).map(|at| (at - now.0) / MS)
    };
    let seen: Vec<_> = [0, 9, 10, 19, 20, 29, 31, 40, 50, 3_000].map(&mut delay_at).into();
    let expected = [2, 2, 7, 7, 0, 0, 2, 7, 0, 2].map(|ms| (ms > 0).then_some(ms));
    assert_eq!(seen, expected);
}

#[test]
fn rate_and_silence_of_a_waiting_packet_are_those_when_its_turn_comes() {
    let at = |ms, change| (Span::from_millis(ms), change);
    let steps = vec![
        at(2, Change { rate_bps: Some(Some(4_000_000)), ..Change::default() }),
        at(5, Change { silent: Some(true), ..Change::default() }),
    ];
    let profile = Profile { steps, period: None };
    let mut link = link(LinkSpec { rate_bps: Some(8_000_000), profile, ..LinkSpec::default() });
    // Serialisation takes 1 ms at first, and 2 ms from 2 ms on. The fourth packet is on the wire at 5 ms and survives.
    let fates: Vec<_> = (0..5).map(|_| arrival(link.offer(Time::ZERO, 1_000))).collect();
    assert_eq!(fates, [Some(MS), Some(2 * MS), Some(4 * MS), Some(6 * MS), None]);
    assert_eq!(link.counters().silenced, 1);
}

#[test]
fn silence_by_hand_drops_all_until_it_ends_and_a_withdrawn_packet_is_counted_once() {
    let mut link = link(LinkSpec::default());
    assert!(arrival(link.offer(Time(1), 100)).is_some());
    link.set_silent(true);
    link.withdraw(100);
    assert_eq!(link.offer(Time(2), 100), Verdict::Drop(DropCause::Silent));
    link.set_silent(false);
    assert!(arrival(link.offer(Time(3), 60)).is_some());
    let c = link.counters();
    assert_eq!((c.offered, c.delivered, c.delivered_bytes, c.silenced), (3, 1, 60, 2));
}

#[test]
fn other_parameters_take_effect_and_bad_ones_change_nothing() {
    let mut link = link(LinkSpec::default());
    let bad = LinkSpec { rate_bps: Some(0), delay: Span(9), ..LinkSpec::default() };
    assert_eq!(link.reconfigure(Time(1), bad), Err(SpecError::ZeroRate));
    assert_eq!(arrival(link.offer(Time(1), 100)), Some(1));
    let slow = LinkSpec { delay: Span(9), ..LinkSpec::default() };
    link.reconfigure(Time(2), slow).unwrap();
    assert_eq!(arrival(link.offer(Time(2), 100)), Some(11));
}

#[test]
fn jitter_has_the_spread_it_was_given() {
    let run = |jitter| {
        let spec = LinkSpec {
            delay: Span::from_millis(50),
            jitter,
            reordering: true,
            ..LinkSpec::default()
        };
        let mut link = link(spec);
        let delays: Vec<f64> = (0..50_000u64)
            .map(|i| (arrival(link.offer(Time(i * MS), 1)).unwrap() - i * MS) as f64 / MS as f64)
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64;
        let reach = delays.iter().map(|d| (d - 50.0).abs()).fold(0.0, f64::max);
        (mean, variance.sqrt(), reach)
    };
    let (mean, deviation, reach) = run(Jitter::Uniform(Span::from_millis(6)));
    assert!((mean - 50.0).abs() < 0.1 && (deviation - 6.0 / 3f64.sqrt()).abs() < 0.05);
    assert!(reach <= 6.0, "{reach}");
    let (mean, deviation, _) = run(Jitter::Normal(Span::from_millis(4)));
    assert!((mean - 50.0).abs() < 0.1 && (deviation - 4.0).abs() < 0.05, "{mean} {deviation}");
}

#[test]
fn the_same_packets_are_lost_with_and_without_jitter() {
    let loss = Loss::Bernoulli(0.1);
    let jitter = Jitter::Normal(Span::from_millis(1));
    let spec = LinkSpec { loss: loss.clone(), jitter, ..LinkSpec::default() };
    let mut shaken = LinkModel::new(spec, 5, Time::ZERO).unwrap();
    assert_eq!(losses(&mut shaken, 5_000), losses(&mut with_loss(loss, 5), 5_000));
}

#[test]
fn an_armed_counter_takes_the_next_packets_and_a_new_arming_replaces_it() {
    let at = |ms: u64| Span::from_millis(ms);
    let mut link = with_loss(Loss::Armed(vec![(at(2), 3), (at(4), 1), (at(9), 2)]), 1);
    let lost: Vec<u64> = (0..12)
        .filter(|ms| link.offer(Time(ms * MS), 100) == Verdict::Drop(DropCause::Loss))
        .collect();
    assert_eq!(lost, [2, 3, 4, 9, 10]);
}

fn any_spec() -> impl Strategy<Value = LinkSpec> {
    let queue = prop_oneof![
        Just(Queue::Unbounded),
        (0u32..20).prop_map(Queue::Packets),
        (0u64..9_000).prop_map(Queue::Bytes),
        (0..9 * MS).prop_map(|longest| Queue::Delay(Span(longest)))
    ];
    let jitter = prop_oneof![
        Just(Jitter::None),
        (0..9 * MS).prop_map(|j| Jitter::Uniform(Span(j))),
        (0..9 * MS).prop_map(|j| Jitter::Normal(Span(j)))
    ];
    (prop::option::of(1_000u64..100_000_000), 0..20 * MS, queue, jitter, 0.0..1.0f64).prop_map(
        |(rate_bps, delay, queue, jitter, p)| LinkSpec {
            rate_bps,
            delay: Span(delay),
            queue,
            jitter,
            loss: Loss::Bernoulli(p),
            ..LinkSpec::default()
        },
    )
}

/// Arrival times in ms of packets sent every millisecond over a link with 5 ms delay and these stalls.
fn stalled(spec: LinkSpec, stalls: &[(u64, u64)]) -> Vec<u64> {
    let mut link = link(LinkSpec { delay: Span::from_millis(5), ..spec });
    for (from, until) in stalls {
        link.stall(Time(from * MS), Time(until * MS));
    }
    (0..10).filter_map(|ms| Some(arrival(link.offer(Time(ms * MS), 1_000))? / MS)).collect()
}

#[test]
fn a_stalled_link_holds_what_arrives_meanwhile_and_releases_it_at_once() {
    let perfect = LinkSpec::default;
    assert_eq!(stalled(perfect(), &[]), [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    // Packets due from 7 to 11 ms arrive at 12 ms, together with the one due then.
    let held = [5, 6, 12, 12, 12, 12, 12, 12, 13, 14];
    assert_eq!(stalled(perfect(), &[(7, 12)]), held);
    // Stalls in any order, nested, and adjacent or overlapping.
    assert_eq!(stalled(perfect(), &[(8, 9), (7, 12)]), held);
    assert_eq!(stalled(perfect(), &[(9, 12), (7, 9)]), held);
    assert_eq!(stalled(perfect(), &[(7, 10), (9, 12)]), held);
    // Stalls before and after change nothing else.
    assert_eq!(stalled(perfect(), &[(0, 5), (7, 12), (20, 30)]), held);
}

#[test]
fn a_stall_neither_loses_anything_nor_keeps_the_wire_from_sending() {
    // Each packet takes half a millisecond. Stalled packets occupy no place in the queue.
    let narrow =
        LinkSpec { rate_bps: Some(16_000_000), queue: Queue::Packets(0), ..LinkSpec::default() };
    let held = stalled(narrow.clone(), &[(6, 11)]);
    assert_eq!(held, [5, 11, 11, 11, 11, 11, 11, 12, 13, 14]);
    assert_eq!(stalled(narrow, &[]).len(), held.len());
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_in_order_and_the_same_seed_gives_the_same_verdicts(
        spec in any_spec(),
        seed in any::<u64>(),
        packets in prop::collection::vec((0..3 * MS, 1u32..1_501), 1..200),
        stalls in prop::collection::vec((0..300 * MS, 0..40 * MS), 0..4),
    ) {
        let mut one = LinkModel::new(spec.clone(), seed, Time::ZERO).unwrap();
        let mut two = LinkModel::new(spec, seed, Time::ZERO).unwrap();
        for (from, lasting) in stalls {
            one.stall(Time(from), Time(from + lasting));
            two.stall(Time(from), Time(from + lasting));
        }
        let (mut now, mut last) = (0, 0);
        for (gap, bytes) in packets {
            now += gap;
            let verdict = one.offer(Time(now), bytes);
            prop_assert_eq!(verdict, two.offer(Time(now), bytes));
            if let Verdict::Deliver { start, at } = verdict {
                prop_assert!(start.0 >= now && at >= start && at.0 >= last);
                last = at.0;
            }
        }
        let c = one.counters();
        prop_assert_eq!(c.offered, c.delivered + c.lost + c.queue_full + c.silenced);
    }
}

#[test]
fn a_recorded_sequence_of_losses_is_repeated_to_the_bit() {
    // 67 entries, so that the last word of the trace is partly filled.
    let recorded: Vec<bool> = (0..67u64).map(|i| i * i % 5 == 1).collect();
    let trace: LossTrace = recorded.iter().copied().collect();
    let lost = recorded.iter().filter(|lost| **lost).count() as u64;
    assert_eq!((trace.len(), trace.lost()), (67, lost));
    assert_eq!(Loss::Trace(trace.clone()).mean(), Some(lost as f64 / 67.0));
    let mut link = with_loss(Loss::Trace(trace), 3);
    let expected: Vec<bool> = recorded.iter().copied().cycle().take(200).collect();
    assert_eq!(losses(&mut link, 200), expected);
}

#[test]
fn a_new_trace_begins_at_its_first_entry() {
    let trace: LossTrace = [true, false, false].into_iter().collect();
    let again = Change { loss: Some(Loss::Trace(trace.clone())), ..Change::default() };
    let profile = Profile { steps: vec![(Span::from_millis(2), again)], period: None };
    let spec = LinkSpec { loss: Loss::Trace(trace), profile, ..LinkSpec::default() };
    assert_eq!(losses(&mut link(spec), 5), [true, false, true, false, false]);
}

#[test]
fn a_flushed_queue_leaves_the_packet_on_the_wire_and_frees_what_is_behind_it() {
    let spec = LinkSpec {
        rate_bps: Some(8_000),
        delay: Span::from_millis(5),
        queue: Queue::Packets(2),
        ..LinkSpec::default()
    };
    let mut link = link(spec);
    let sent: Vec<_> = (0..4).map(|_| arrival(link.offer(Time::ZERO, 10))).collect();
    assert_eq!(sent, [Some(15 * MS), Some(25 * MS), Some(35 * MS), None]);
    link.flush(Time(MS));
    link.withdraw(10);
    link.withdraw(10);
    // The first packet is on the wire until 10 ms; the next one follows at once.
    assert_eq!(arrival(link.offer(Time(2 * MS), 10)), Some(25 * MS));
    let counters = link.counters();
    assert_eq!((counters.offered, counters.delivered, counters.silenced), (5, 2, 2));
    assert_eq!((counters.delivered_bytes, counters.queue_full), (20, 1));
}
