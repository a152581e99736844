//! RTT and loss of a path: exact if possible, absent if they cannot be known.

mod common;

use std::collections::VecDeque;

use common::{Dir, World, at_ms, config, ms, steady};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::loss::{OneWayLoss, Pace, RoundTripLoss};
use segue_keepalive::rtt::{MAX_RTT, client_rtt, gap_us, server_rtt};
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Counted, Sample, Server, ServerInput, ServerOutput,
    State,
};
use segue_wire::Probe;

/// Observes counters with `of` equal to the arrival time.
fn observe(
    loss: &mut OneWayLoss,
    at: Time,
    pair: (u32, u32),
    length: Span,
    total: &mut Counted,
) -> Option<f64> {
    loss.observe(at, at, pair, every(length), false, total).map(|interval| interval.loss)
}

/// Intervals of this length with one probe each.
fn every(length: Span) -> Pace {
    Pace { t_ka: length * 2, n: 1, follows_use: false }
}

/// All loss values in samples.
fn losses(samples: &[Sample]) -> impl Iterator<Item = f64> + '_ {
    samples.iter().flat_map(|s| [s.owl_up, s.owl_down, s.rtl]).flatten()
}

// ---- round-trip time

#[test]
fn both_ends_measure_the_rtt_without_common_clocks_and_without_the_time_that_probes_are_held() {
    let mut rng = Rng::new(1);
    for _ in 0..50 {
        // In many runs, the clients' or the server's clocks wrap (2³² µs are 71.6 minutes).
        let start = Time((1 << 32) * 1_000 - rng.below(20_000_000_000));
        let link = Box::new(|dir, _| Some(if dir == Dir::Up { ms(35) } else { ms(20) }));
        let mut world = World::new(config(3, ms(200)), start, Span(rng.below(1 << 50)), link);
        world.hold = ms(7);
        world.run_for(ms(20_000));
        let (client, server) = (world.client.estimates(), world.server.estimates());
        for (end, estimates) in [("client", client), ("server", server)] {
            assert!(estimates.received >= 98, "{end}");
            for rtt in [estimates.rtt_min, estimates.rtt_max, estimates.rtt_last] {
                let error = rtt.unwrap().0.abs_diff(ms(55).0);
                assert!(error <= 3_000, "{end}: {rtt:?}, stamps are whole microseconds");
            }
        }
    }
}

#[test]
fn a_gap_of_more_than_two_to_the_31_microseconds_is_no_sample() {
    assert_eq!(gap_us(5, u32::MAX - 4), Some(10));
    assert_eq!(gap_us(1 << 31, 0), Some(1 << 31));
    assert_eq!(gap_us((1 << 31) + 1, 0), None);
    assert_eq!(gap_us(0, 1), None, "a negative one neither");
    let now = Time(10_000_000_000_000);
    let old = Probe { t_sc: now.micros32().wrapping_sub((1 << 31) + 5), ..Probe::default() };
    assert_eq!(client_rtt(&Arrival::new(old, now, 1), Time(0)), None);
}

#[test]
fn an_rtt_that_is_negative_or_absurd_is_no_sample() {
    let now = Time(10_000_000_000_000);
    let us = now.micros32();
    let rtt = |age: u32, dt: u32| {
        let probe = Probe { t_sc: us - age, t_ss: us - age, dt, ..Probe::default() };
        let arrival = Arrival::new(probe, now, 1);
        (client_rtt(&arrival, Time(0)), server_rtt(&arrival, Time(0)))
    };
    let some = |us| (Some(Span::from_micros(us)), Some(Span::from_micros(us)));
    assert_eq!(rtt(100, 40), some(60));
    assert_eq!(rtt(100, 100), some(0));
    assert_eq!(rtt(100, 101), (None, None), "held for longer than it was away");
    assert_eq!(rtt(100, u32::MAX), (None, None), "Δt negative");
    let most = (MAX_RTT.0 / 1_000) as u32;
    assert_eq!(rtt(most, 0), some(most.into()));
    assert_eq!(rtt(most + 1, 0), (None, None));
    assert_eq!(rtt(1 << 30, (1 << 30) - 500), some(500), "a server may hold for long");
}

#[test]
fn the_moment_of_sending_that_the_kernel_told_replaces_the_echoed_one() {
    let probe = Probe { t_sc: 1_000, dt: 2_000, ..Probe::default() };
    let mut arrival = Arrival::new(probe, Time(60_000_000), 1);
    assert_eq!(client_rtt(&arrival, Time(0)), Some(ms(57)));
    arrival.sent_at = Some(Time(10_000_500));
    assert_eq!(client_rtt(&arrival, Time(0)), Some(Span(47_999_500)));
    arrival.sent_at = Some(Time(60_000_001));
    assert_eq!(client_rtt(&arrival, Time(0)), None, "sent after it arrived");
}

#[test]
fn the_first_request_and_echoes_from_before_a_restart_give_the_server_no_rtt() {
    let epoch = Time(500_000_000_000);
    let request = |t_ss, at: Time| Arrival::new(Probe { t_ss, ..Probe::default() }, at, 1);
    assert_eq!(server_rtt(&request(0, epoch), epoch), None);
    let now = epoch + ms(50);
    assert_eq!(server_rtt(&request(now.micros32() - 40_000, now), epoch), Some(ms(40)));
    assert_eq!(server_rtt(&request(now.micros32() - 60_000, now), epoch), None);
}

// ---- one-way loss

/// Runs a minute with data in both directions and the given losses. Returns the world and the imposed loss ratios, up
/// and down.
fn minute(loss: [f64; 2], seed: u64, counters: u32) -> (World, [f64; 2]) {
    let mut rng = Rng::new(seed);
    let lossy = at_ms(1_000)..at_ms(61_000);
    let link = Box::new(move |dir: Dir, at: Time| {
        let lost = lossy.contains(&at) && rng.chance(loss[dir as usize]);
        (!lost).then_some(ms(15))
    });
    let mut world = World::new(config(7, ms(100)), Time(0), Span::from_secs(3), link);
    (world.sc, world.rs, world.ss, world.rc) = (counters, counters, counters, counters);
    let mut sent = [0, 0];
    for tick in 0..62_000_u64 {
        world.run_until(at_ms(tick));
        let in_time = (1_000..61_000).contains(&tick);
        if tick % 2 == 0 {
            world.data(Dir::Up);
            sent[0] += u64::from(in_time);
        }
        for _ in 0..tick % 3 {
            world.data(Dir::Down);
            sent[1] += u64::from(in_time);
        }
    }
    world.run_until(at_ms(63_000));
    let imposed = [0, 1].map(|i| world.lost[i] as f64 / sent[i] as f64);
    (world, imposed)
}

#[test]
fn one_way_loss_equals_the_links_own_drops_exactly_at_both_ends() {
    for (seed, loss) in
        [[0.001, 0.2], [0.01, 0.1], [0.05, 0.05], [0.1, 0.01], [0.2, 0.001]].into_iter().enumerate()
    {
        // Counters wrap in every second run.
        let counters = if seed % 2 == 0 { u32::MAX - 7_000 } else { 0 };
        let (world, imposed) = minute(loss, seed as u64, counters);
        let dropped = |c: Counted| c.sent - c.received;
        for estimates in [world.client.estimates(), world.server.estimates()] {
            assert_eq!(dropped(estimates.up), world.lost[0], "up, {loss:?}");
            assert_eq!(dropped(estimates.down), world.lost[1], "down, {loss:?}");
        }
        assert!(world.lost[0] > 0 && world.lost[1] > 0);
        for samples in [&world.client_samples, &world.server_samples] {
            let mean = |pick: fn(&Sample) -> Option<f64>| {
                let values: Vec<f64> = samples.iter().filter_map(pick).collect();
                assert!((58..=62).contains(&values.len()), "{} in 62 s", values.len());
                values.iter().sum::<f64>() / values.len() as f64 * (62.0 / 60.0)
            };
            let (up, down) = (mean(|s| s.owl_up), mean(|s| s.owl_down));
            assert!((up / imposed[0] - 1.0).abs() < 0.1, "{up} {imposed:?}");
            assert!((down / imposed[1] - 1.0).abs() < 0.1, "{down} {imposed:?}");
        }
    }
}

#[test]
fn the_first_evaluation_is_a_baseline_and_what_was_sent_before_does_not_count() {
    let link = Box::new(|_, at| (at >= at_ms(995)).then_some(ms(10)));
    let mut world = World::new(config(7, ms(100)), Time(0), Span::ZERO, link);
    for tick in 0..990 {
        world.run_until(at_ms(tick));
        world.data(Dir::Up);
        world.data(Dir::Down);
    }
    world.run_until(at_ms(20_000));
    for estimates in [world.client.estimates(), world.server.estimates()] {
        assert_eq!(estimates.up.sent, estimates.up.received);
        assert_eq!(estimates.down.sent, estimates.down.received);
        assert!(estimates.up.sent > 150);
    }
    assert!(world.client_samples.iter().chain(&world.server_samples).count() > 100);
    assert_eq!(
        losses(&world.client_samples).chain(losses(&world.server_samples)).sum::<f64>(),
        0.0
    );
    let first = world.client_samples.iter().find(|s| s.owl_up.is_some()).unwrap().at;
    assert!(first >= at_ms(2_005), "one loss interval after the first response");
}

#[test]
fn a_lost_interval_is_made_up_for_by_the_next() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    let t_l = ms(1_000);
    assert_eq!(observe(&mut loss, at_ms(0), (100, 90), t_l, &mut total), None);
    assert_eq!(observe(&mut loss, at_ms(999), (150, 140), t_l, &mut total), None);
    // Nothing until 2.3 s: the value covers the whole time since the baseline.
    assert_eq!(observe(&mut loss, at_ms(2_300), (300, 240), t_l, &mut total), Some(0.25));
    assert_eq!(observe(&mut loss, at_ms(3_299), (310, 250), t_l, &mut total), None);
    assert_eq!(observe(&mut loss, at_ms(3_300), (320, 250), t_l, &mut total), Some(0.5));
    assert_eq!(total, Counted { sent: 220, received: 160 });
}

#[test]
fn an_interval_ends_sooner_when_probes_do_or_when_fifty_packets_have_been_sent() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    let pace = |t_ka_ms, follows_use| Pace { t_ka: ms(t_ka_ms), n: 10, follows_use };
    let mut take = |at, pair, pace, question| {
        let interval = loss.observe(at_ms(at), at_ms(at), pair, pace, question, &mut total);
        interval.map(|interval| (interval.loss, interval.length))
    };
    // An idle path whose period then falls. The interval ends nine and a half new periods after it began.
    assert_eq!(take(0, (0, 0), pace(4_900, true), false), None);
    assert_eq!(take(2_000, (1, 1), pace(250, true), false), None);
    assert_eq!(take(2_370, (11, 6), pace(250, true), false), None);
    assert_eq!(take(2_375, (12, 6), pace(250, true), true), None, "a question ends none");
    assert_eq!(take(2_380, (12, 6), pace(250, true), false), Some((0.5, ms(2_380))));
    // If settings follow use, a fast stream ends it after a quarter of a second.
    assert_eq!(take(2_629, (112, 81), pace(250, true), false), None);
    assert_eq!(take(2_630, (112, 81), pace(250, false), false), None);
    assert_eq!(take(2_631, (112, 81), pace(250, true), false), Some((0.25, ms(251))));
    assert_eq!(take(3_000, (161, 130), pace(250, true), false), None, "49 packets");
    assert_eq!(take(3_001, (162, 131), pace(250, true), false), Some((0.0, ms(370))));
}

#[test]
fn late_packets_make_up_for_the_next_interval_and_copies_hide_no_more() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    let mut take = |n: u64, pair| observe(&mut loss, at_ms(n * 1_000), pair, ms(1_000), &mut total);
    assert_eq!(take(0, (0, 0)), None);
    // Ten packets arrive with twenty duplicates.
    assert_eq!(take(1, (10, 30)), Some(0.0));
    assert_eq!(take(2, (40, 40)), Some(0.0), "of thirty packets ten came, and twenty before");
    assert_eq!(take(3, (50, 45)), Some(0.5), "and no further");
}

#[test]
fn an_outage_counts_but_is_in_no_value_from_its_declaration_on() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    let t_l = ms(1_000);
    observe(&mut loss, at_ms(0), (100, 100), t_l, &mut total);
    observe(&mut loss, at_ms(500), (150, 150), t_l, &mut total);
    // 900 packets in nine seconds, of which only the last arrived. A ninth left before the declaration.
    loss.declare(at_ms(1_500));
    let value = loss
        .observe(at_ms(9_500), at_ms(9_500), (1_050, 151), every(t_l), false, &mut total)
        .unwrap();
    assert!((value.loss - 100.0 / 150.0).abs() < 1e-12);
    assert_eq!(value.length, ms(1_500), "and it is as long as what it tells of");
    // The probes that bring the path up were selected for having arrived.
    assert_eq!(observe(&mut loss, at_ms(11_000), (1_200, 301), t_l, &mut total), None);
    loss.over();
    assert_eq!(observe(&mut loss, at_ms(11_400), (1_290, 346), t_l, &mut total), None);
    assert_eq!(observe(&mut loss, at_ms(12_000), (1_300, 351), t_l, &mut total), Some(0.5));
    assert_eq!(total, Counted { sent: 1_200, received: 251 });
}

#[test]
fn of_losses_in_one_direction_of_a_silence_each_part_has_its_share() {
    let mut kept = 0.0;
    for n in 0..10_000_u64 {
        let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
        let start = Time(n * 777_777_777);
        observe(&mut loss, start, (0, 0), ms(300), &mut total);
        // Two of five unanswered probes were lost in this direction. Two of the five are from before the declaration.
        loss.declare(start + ms(250));
        let end = start + ms(600);
        let value = observe(&mut loss, end, (6, 4), ms(300), &mut total);
        assert_eq!(value, None, "200 ms of it count");
        loss.over();
        kept += observe(&mut loss, end + ms(100), (7, 5), ms(300), &mut total).unwrap() * 3.0;
    }
    assert!((kept / 10_000.0 - 0.8).abs() < 0.02, "{kept} of 10 000 times two fifths of two");
}

#[test]
fn an_interval_in_which_nothing_was_sent_has_no_value() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    observe(&mut loss, at_ms(0), (7, 7), ms(100), &mut total);
    assert_eq!(observe(&mut loss, at_ms(500), (7, 7), ms(100), &mut total), None);
    assert_eq!(observe(&mut loss, at_ms(600), (9, 8), ms(100), &mut total), Some(0.5));
}

#[test]
fn more_received_than_sent_is_no_negative_loss() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    observe(&mut loss, at_ms(0), (100, 90), ms(100), &mut total);
    // Packets that the baseline probe had overtaken arrive in this interval.
    assert_eq!(observe(&mut loss, at_ms(100), (110, 105), ms(100), &mut total), Some(0.0));
}

#[test]
fn probes_that_a_stalled_link_lets_go_together_keep_their_counts() {
    let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
    observe(&mut loss, at_ms(0), (0, 0), ms(100), &mut total);
    // Ten seconds at a million packets per second, seen by probes that arrive simultaneously.
    for i in 1..=10 {
        observe(&mut loss, at_ms(10_000), (i * 1_000_000, i * 900_000), ms(100), &mut total);
    }
    assert_eq!(total, Counted { sent: 10_000_000, received: 9_000_000 });
}

#[test]
fn counters_that_jump_make_a_new_baseline() {
    let start = Time(0);
    for (sent, received) in [
        (1, 1),             // both restarted
        (3_000_000_100, 3), // the receiver restarted
        (4, 3_000_000_090), // the sender restarted
        (3_000_000_099, 3_000_000_090),
        (700_000_000, 3_000_000_100), // forwards modulo 2³², and still a restart
    ] {
        let (mut loss, mut total) = (OneWayLoss::new(), Counted::default());
        observe(&mut loss, start, (3_000_000_100, 3_000_000_090), ms(100), &mut total);
        let before = total;
        assert_eq!(observe(&mut loss, at_ms(200), (sent, received), ms(100), &mut total), None);
        assert_eq!(total, before, "{sent} {received}");
        let next = observe(&mut loss, at_ms(400), (sent + 10, received + 9), ms(100), &mut total);
        assert!((next.unwrap() - 0.1).abs() < 1e-12, "counts go on from there");
    }
}

#[test]
fn a_restart_of_either_end_gives_no_loss_and_no_rtt_that_was_not() {
    for high in [0, 3_000_000_000] {
        for restarted in ["client", "server"] {
            let mut world =
                World::new(config(3, ms(100)), at_ms(5_000), Span::from_secs(9), steady(ms(30)));
            (world.sc, world.rs, world.ss, world.rc) = (high, high, high, high);
            world.run_for(ms(10_040));
            if restarted == "client" {
                (world.sc, world.rc) = (0, 0);
                world.client = Client::new(config(3, ms(100)), world.now, 3);
            } else {
                (world.ss, world.rs) = (0, 0);
                world.offset = Span::from_secs(2);
                world.server = Server::new(config(3, ms(100)), world.now + world.offset, true);
            }
            world.run_for(ms(20_000));
            let samples = || world.client_samples.iter().chain(&world.server_samples);
            let (client, server) = (world.client.estimates(), world.server.estimates());
            for sample in samples() {
                if let Some(rtt) = sample.rtt {
                    assert!(rtt.0.abs_diff(ms(60).0) < 3_000, "{restarted} {high}: {rtt}");
                }
            }
            assert_eq!(losses(&world.client_samples).sum::<f64>(), 0.0, "{restarted} {high}");
            assert_eq!(losses(&world.server_samples).sum::<f64>(), 0.0, "{restarted} {high}");
            for estimates in [client, server] {
                assert_eq!(estimates.up.sent, estimates.up.received, "{restarted} {high}");
                assert_eq!(estimates.down.sent, estimates.down.received);
                assert!(estimates.up.sent > 190);
            }
            assert_eq!((world.client.state(), world.server.state()), (State::Up, State::Up));
            assert_eq!((server.duplicates, server.reordered), (0, 0), "known as new at once");
        }
    }
}

// ---- round-trip loss

#[test]
fn surplus_answers_are_carried_over() {
    let mut rtl = RoundTripLoss::new();
    assert_eq!(rtl.observe(5, 1, 10), None, "baseline with four on their way");
    assert_eq!(rtl.observe(14, 10, 10), None, "nine requests");
    assert_eq!(rtl.observe(15, 11, 10), Some(0.0));
    // The RTT grows: four answers arrive in the next interval.
    assert!((rtl.observe(25, 17, 10).unwrap() - 0.4).abs() < 1e-12);
    // It shrinks again: fourteen answers to ten requests leave a surplus of four.
    assert_eq!(rtl.observe(35, 31, 10), Some(0.0));
    // Five are lost, and the surplus offsets four of them.
    assert!((rtl.observe(45, 36, 10).unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(rtl.observe(55, 46, 10), Some(0.0), "and are used up");
    assert!((rtl.observe(65, 51, 10).unwrap() - 0.5).abs() < 1e-12);
}

#[test]
fn a_changing_rtt_without_loss_gives_a_round_trip_loss_that_comes_to_an_end() {
    let link = Box::new(|_, at: Time| {
        let slow = (at_ms(20_000)..at_ms(30_000)).contains(&at);
        Some(if slow { ms(900) } else { ms(20) })
    });
    let mut world = World::new(config(7, ms(200)), Time(0), Span::ZERO, link);
    world.run_until(at_ms(60_000));
    let late = world.client_samples.iter().filter(|s| s.at > at_ms(36_000));
    assert_eq!(late.filter_map(|s| s.rtl).sum::<f64>(), 0.0);
    assert!(losses(&world.client_samples).all(|loss| (0.0..=1.0).contains(&loss)));
}

#[test]
fn round_trip_loss_is_that_of_both_directions_together() {
    let mut count = [0_u32; 2];
    let link = Box::new(move |dir: Dir, _| {
        count[dir as usize] += 1;
        let every = if dir == Dir::Up { 10 } else { 9 };
        (!count[dir as usize].is_multiple_of(every)).then_some(ms(20))
    });
    let mut world = World::new(config(7, ms(100)), Time(0), Span::ZERO, link);
    world.run_until(at_ms(300_000));
    let values: Vec<f64> = world.client_samples.iter().filter_map(|s| s.rtl).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    assert!(values.len() > 280 && (mean - 0.2).abs() < 0.005, "{mean} of {}", values.len());
    assert!((world.client.estimates().rtl[1] - 0.2).abs() < 0.02);
    assert!(world.server.estimates().rtl.is_empty());
}

// ---- duplicates and reordering

fn drain(client: &mut Client) -> Vec<ClientOutput> {
    core::iter::from_fn(|| client.poll()).collect()
}

/// A client that has sent `sent` requests, one every 100 ms from time zero.
fn client_after(sent: u32) -> Client {
    let mut client = Client::new(config(7, ms(100)), Time(0), 0);
    for i in 0..sent {
        client.tick(at_ms(100 * u64::from(i)));
        drain(&mut client);
    }
    assert_eq!(client.estimates().sent, u64::from(sent));
    client
}

/// The answer to request `seq`, without loss so far.
fn answer(seq: u32, at: Time) -> Arrival {
    let t_sc = at_ms(100 * u64::from(seq - 1)).micros32();
    let probe = Probe { seq, t_sc, sc: seq, t_ss: t_sc, ss: seq, r: seq, ..Probe::default() };
    Arrival::new(probe, at, seq)
}

#[test]
fn a_duplicate_is_counted_and_does_nothing_else() {
    let mut client = client_after(5);
    client.handle(at_ms(420), ClientInput::Response(answer(4, at_ms(420))));
    drain(&mut client);
    let before = client.estimates().clone();
    let deadline = client.deadline();
    client.handle(at_ms(450), ClientInput::Response(answer(4, at_ms(450))));
    assert_eq!(drain(&mut client), []);
    assert_eq!(client.deadline(), deadline, "the time-out counts from the first of the two");
    assert_eq!(client.estimates().duplicates, 1);
    assert_eq!(*client.estimates(), segue_keepalive::Estimates { duplicates: 1, ..before });

    let mut server = Server::new(config(3, ms(100)), Time(0), true);
    let request = Probe { seq: 1, t_sc: 5, sc: 1, ..Probe::default() };
    for at in [at_ms(10), at_ms(20)] {
        server.handle(
            at,
            ServerInput::Request { arrival: Arrival::new(request, at, 1), k: 3, report: false },
        );
    }
    assert_eq!(server.poll(), Some(ServerOutput::State(State::Up)));
    assert_eq!((server.estimates().received, server.estimates().duplicates), (1, 1));
    assert_eq!(server.deadline().unwrap().0, at_ms(160));
}

#[test]
fn a_late_answer_is_an_rtt_sample_but_moves_no_counters() {
    let mut client = client_after(4);
    for seq in [1, 3, 2, 4] {
        let at = at_ms(300 + u64::from(seq));
        client.handle(at, ClientInput::Response(answer(seq, at.max(at_ms(303)))));
        let rtt = client.estimates().rtt_last.unwrap();
        assert!(rtt >= ms(3), "{rtt}");
    }
    let estimates = client.estimates();
    assert_eq!((estimates.received, estimates.reordered, estimates.duplicates), (4, 1, 0));
    assert_eq!(estimates.up, Counted { sent: 3, received: 3 });
    assert_eq!(estimates.down, Counted { sent: 3, received: 3 });
}

#[test]
fn answers_that_come_late_or_twice_do_not_bring_a_path_up() {
    let mut client = client_after(30);
    assert_eq!(client.state(), State::Down, "nothing was answered");
    for seq in [10, 10, 12, 11, 14, 15] {
        client.handle(at_ms(2_950), ClientInput::Response(answer(seq, at_ms(2_950))));
    }
    assert_eq!(client.state(), State::Down, "14 and 15 are two in a row");
    client.handle(at_ms(2_951), ClientInput::Response(answer(16, at_ms(2_951))));
    assert_eq!(client.state(), State::Up);
}

#[test]
fn an_answer_to_a_request_that_was_never_sent_shows_the_downlink_only() {
    let mut client = client_after(3);
    client.handle(at_ms(250), ClientInput::Response(answer(4, at_ms(250))));
    assert_eq!(drain(&mut client), [ClientOutput::Heard(true)]);
    assert_eq!((client.state(), client.estimates().received), (State::Starting, 0));
}

#[test]
fn requests_repeat_the_newest_response() {
    let mut client = client_after(3);
    for seq in [1, 3, 2] {
        client.handle(at_ms(290), ClientInput::Response(answer(seq, at_ms(290))));
    }
    drain(&mut client);
    client.tick(at_ms(300));
    let request = drain(&mut client).into_iter().find_map(|output| match output {
        ClientOutput::SendRequest(request) => Some(request),
        _ => None,
    });
    let request = request.unwrap();
    assert_eq!(request.held_since, 290_000);
    let want = Probe { seq: 4, t_ss: 200_000, ss: 3, r: 3, t_ka_ms: 100, ..Probe::default() };
    assert_eq!(request.probe, want);
}

#[test]
fn an_unsolicited_response_repeats_the_last_request() {
    let mut server = Server::new(config(3, ms(100)), Time(0), true);
    let probe = Probe { seq: 9, t_sc: 5_000, sc: 44, t_ka_ms: 50, ..Probe::default() };
    let input =
        ServerInput::Request { arrival: Arrival::new(probe, at_ms(30), 40), k: 3, report: false };
    server.handle(at_ms(30), input);
    assert_eq!(server.poll(), Some(ServerOutput::State(State::Up)));
    assert_eq!(server.deadline(), Some((at_ms(105), "unsolicited response due")));
    server.tick(at_ms(105));
    let Some(ServerOutput::SendUnsolicited(request)) = server.poll() else { panic!("none") };
    assert_eq!(request.held_since, 30_000);
    let want = Probe { seq: 1, t_sc: 5_000, sc: 44, t_ka_ms: 50, ..Probe::default() };
    assert_eq!(request.probe, want);
}

#[test]
fn round_trip_loss_has_values_while_nothing_comes() {
    let link = Box::new(|_, at| (at < at_ms(10_050)).then_some(ms(20)));
    let mut world = World::new(config(7, ms(100)), Time(0), Span::ZERO, link);
    world.run_until(at_ms(10_050));
    assert_eq!(world.client.estimates().rtl, [0.0, 0.0]);
    world.client_samples.clear();
    world.run_until(at_ms(40_050));
    let values: Vec<f64> = world.client_samples.iter().filter_map(|s| s.rtl).collect();
    assert!((29..=30).contains(&values.len()), "one for N requests: {values:?}");
    assert!(values[1..].iter().all(|rtl| *rtl == 1.0), "{values:?}");
    let rtl = &world.client.estimates().rtl;
    assert!(rtl[0] > 0.99 && (rtl[1] - (1.0 - (-1.0_f64).exp())).abs() < 0.03, "{rtl:?}");
}

#[test]
fn a_burst_is_at_most_four_times_k_long_and_what_lasts_longer_is_an_outage() {
    // The last `lost` of every forty requests are lost.
    let burst = |lost: u64| {
        let link = Box::new(move |dir, at: Time| {
            let number = at.0 / ms(100).0 % 40;
            (dir == Dir::Down || number < 40 - lost).then_some(ms(5))
        });
        let mut world = World::new(config(3, ms(100)), Time(0), Span::ZERO, link);
        world.run_for(ms(60_000));
        world.client.burst()
    };
    for (lost, expected) in [(5, Some(5.0)), (11, Some(11.0)), (13, None)] {
        let found = burst(lost);
        let near = |found: f64| expected.is_some_and(|expected| (found - expected).abs() < 1.0);
        assert!(found.map_or(expected.is_none(), near), "{lost} lost: {found:?}");
    }
}

#[test]
fn what_a_server_sends_to_a_client_that_hears_nothing_counts_but_is_in_no_value() {
    let silent = at_ms(10_000)..at_ms(20_000);
    let link = Box::new(move |dir, at| (dir == Dir::Up || !silent.contains(&at)).then_some(ms(5)));
    let mut world = World::new(config(3, ms(100)), Time(0), Span::from_secs(9), link);
    let mut said = VecDeque::from([true; 6]);
    while world.now < at_ms(30_000) {
        world.data(Dir::Down);
        world.run_for(ms(20));
        // The next request reports whether the client hears anything; the server processes its counters first.
        let before = said.pop_front().unwrap();
        said.push_back(world.client.heard());
        if before != said[0] {
            world.server.handle(world.now + world.offset, ServerInput::Deaf(!said[0]));
        }
    }
    assert_eq!(world.server.state(), State::Up, "it hears the client all the time");
    let down = world.server.estimates().down;
    assert_eq!(down.sent - down.received, world.lost[Dir::Down as usize]);
    // Half a second of the outage, until the client had reported that it hears nothing.
    let values: Vec<f64> =
        world.server_samples.iter().filter_map(|sample| sample.owl_down).collect();
    let sum: f64 = values.iter().sum();
    assert!(values.len() >= 17 && (0.2..0.6).contains(&sum), "{values:?}");
}
