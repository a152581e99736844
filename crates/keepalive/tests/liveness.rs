//! Detection of silent outages, separately for each direction, and recovery.

mod common;

use common::{Dir, Link, Log, World, at_ms, config, ms, steady};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::server::UNSOLICITED_FOR;
use segue_keepalive::{
    Arrival, Client, ClientInput, ClientOutput, Server, ServerInput, ServerOutput, State,
};
use segue_wire::Probe;

/// A link of constant delay that is dead in the given directions from `from` to `until`. The point of failure divides
/// the route from client to server at the fraction `point`.
fn faulty(one_way: Span, point: f64, dead: [bool; 2], from: Time, until: Time) -> Link {
    Box::new(move |dir, sent| {
        let share = if dir == Dir::Up { point } else { 1.0 - point };
        let crossing = sent + Span((one_way.0 as f64 * share) as u64);
        let lost = dead[dir as usize] && crossing >= from && crossing < until;
        (!lost).then_some(one_way)
    })
}

const NEVER: Time = Time(u64::MAX);
const BOTH: [bool; 2] = [true, true];
const UPLINK: [bool; 2] = [true, false];
const DOWNLINK: [bool; 2] = [false, true];

/// Lets a path settle and then fail. Returns (detection time, T_Rmax, T_Ravg, expected average for K + ½ periods) in
/// seconds.
fn outage(rng: &mut Rng, dead: [bool; 2], rtt_below_period: bool) -> (f64, f64, f64, f64) {
    let k = 1 + rng.below(7) as u8;
    let t_ka = Span::from_micros(20_000 + rng.below(480_000));
    let factor = if rtt_below_period { rng.unit() } else { 1.0 + 3.0 * rng.unit() };
    let one_way = Span((t_ka.0 as f64 * factor / 2.0) as u64);
    let start = Time(rng.below(1 << 43));
    let fault = start + t_ka * 30 + Span(rng.below(t_ka.0 * 20));
    let point = rng.unit();
    let link = faulty(one_way, point, dead, fault, NEVER);
    let mut world = World::new(config(k, t_ka), start, Span::from_secs(77), link);
    world.keep_samples = false;
    world.run_until(fault - Span(1));
    assert_eq!(world.client.state(), State::Up, "K {k}, T_KA {t_ka}, one way {one_way}");
    let transitions = world.client.estimates().transitions;
    world.run_until(fault + t_ka * 20 + one_way * 4);
    assert_eq!(world.client.state(), State::Down);
    assert_eq!(world.client.estimates().transitions, transitions + 1, "no other change");
    let down = world.first_after(fault, Log::Client(State::Down)).expect("it is down");
    let (t, k, rtt) = (t_ka.as_secs_f64(), f64::from(k), one_way.as_secs_f64() * 2.0);
    // The last answer passed the point of failure up to a period earlier, and then travelled the rest of the route.
    let expected = k * t + rtt / 2.0 * point;
    (down.since(fault).as_secs_f64(), (k + 1.0) * t + rtt, (k + 0.5) * t + rtt / 2.0, expected)
}

#[test]
fn a_thousand_silent_outages_are_found_within_equation_1_and_on_average_within_equation_2() {
    for below in [true, false] {
        let mut rng = Rng::new(2018 + u64::from(below));
        let (mut sum, mut sum_avg, mut sum_expected) = (0.0, 0.0, 0.0);
        for run in 0..1_000 {
            let (detection, t_r_max, t_r_avg, expected) = outage(&mut rng, BOTH, below);
            assert!(detection <= t_r_max + 1e-9, "run {run}: {detection} > {t_r_max}");
            sum += detection;
            sum_avg += t_r_avg;
            sum_expected += expected;
        }
        println!("RTT below T_KA: {below}: mean detection / eq. 2 = {:.3}", sum / sum_avg);
        assert!(sum <= sum_avg, "mean {sum} against {sum_avg}");
        let share = sum / sum_expected;
        assert!((0.98..1.02).contains(&share), "{share} of what K + 1/2 periods give");
    }
}

#[test]
fn outages_of_one_direction_are_found_within_the_same_bound() {
    for dead in [UPLINK, DOWNLINK] {
        let mut rng = Rng::new(4);
        for run in 0..200 {
            let (detection, t_r_max, ..) = outage(&mut rng, dead, run % 2 == 0);
            assert!(detection <= t_r_max + 1e-9, "run {run}: {detection} > {t_r_max}");
        }
    }
}

#[test]
fn the_server_declares_the_uplink_down_k_and_a_half_periods_after_the_last_request() {
    for k in 1..=7 {
        let fault = at_ms(10_055);
        let link = faulty(ms(30), 0.3, BOTH, fault, NEVER);
        let mut world = World::new(config(k, ms(100)), Time(0), Span::from_secs(5), link);
        world.run_until(at_ms(15_000));
        let arrived = |(_, log): &&(Time, Log)| matches!(log, Log::RequestArrived(_));
        let last = world.log.iter().rev().find(arrived).unwrap().0;
        let down = world.first_after(fault, Log::Server(State::Down)).unwrap();
        assert_eq!(down, last + ms(100) * u64::from(k) + ms(50));
    }
}

#[test]
fn a_dead_uplink_leaves_the_downlink_heard() {
    for k in 1..=7 {
        let fault = at_ms(10_055);
        let link = faulty(ms(30), 0.5, UPLINK, fault, NEVER);
        let mut world = World::new(config(k, ms(100)), Time(0), Span::from_secs(5), link);
        world.run_until(at_ms(39_000));
        assert_eq!(world.client.state(), State::Down, "K {k}");
        assert_eq!(world.server.state(), State::Down);
        assert!(world.client.heard());
        assert_eq!(world.count_of(Log::Heard(false)), 0, "K {k}: never unheard in between");
        let transitions = world.client.estimates().transitions;
        world.run_until(at_ms(60_000));
        assert!(!world.client.heard(), "after the last unsolicited response it is silent");
        assert_eq!(world.client.estimates().transitions, transitions);
    }
}

#[test]
fn unsolicited_responses_begin_after_one_and_a_half_periods_and_end_after_their_time() {
    let link = faulty(ms(30), 0.5, UPLINK, at_ms(10_055), NEVER);
    let mut world = World::new(config(3, ms(100)), Time(0), Span::from_secs(5), link);
    world.run_until(at_ms(60_000));
    let arrived = |(_, log): &&(Time, Log)| matches!(log, Log::RequestArrived(_));
    let last = world.log.iter().rev().find(arrived).unwrap().0;
    let sent: Vec<_> =
        world.log.iter().filter(|(_, log)| matches!(log, Log::Unsolicited(_))).copied().collect();
    assert_eq!(sent[0], (last + ms(150), Log::Unsolicited(1)));
    assert!(sent.windows(2).all(|pair| pair[1].0 == pair[0].0 + ms(100)));
    let end = sent.last().unwrap().0;
    assert!(end <= last + UNSOLICITED_FOR && end > last + UNSOLICITED_FOR - ms(100));
}

#[test]
fn unsolicited_responses_are_no_samples() {
    let link = faulty(ms(30), 0.5, UPLINK, at_ms(10_055), NEVER);
    let mut world = World::new(config(3, ms(100)), Time(0), Span::from_secs(5), link);
    world.run_until(at_ms(10_200));
    let before = world.client.estimates().clone();
    world.client_samples.clear();
    world.run_until(at_ms(12_000));
    let silent =
        world.client_samples.iter().all(|s| (s.rtt, s.owl_up, s.owl_down) == (None, None, None));
    assert!(world.count_of(Log::Unsolicited(5)) == 1 && silent);
    let after = world.client.estimates();
    assert_eq!((&after.rtt_ewma, after.up, after.down), (&before.rtt_ewma, before.up, before.down));
}

#[test]
fn a_dead_downlink_leaves_the_uplink_up_at_the_server() {
    for k in 1..=7 {
        let link = faulty(ms(30), 0.5, DOWNLINK, at_ms(10_055), NEVER);
        let mut world = World::new(config(k, ms(100)), Time(0), Span::from_secs(5), link);
        world.run_until(at_ms(20_000));
        assert_eq!(world.client.state(), State::Down);
        assert!(!world.client.heard());
        assert_eq!(world.server.state(), State::Up);
        assert_eq!(world.count_of(Log::Unsolicited(1)), 0);
    }
}

#[test]
fn no_unsolicited_response_goes_before_the_first_request() {
    let mut world = World::new(config(1, ms(100)), Time(0), Span::ZERO, Box::new(|_, _| None));
    world.run_until(at_ms(5_000));
    assert_eq!(world.count_of(Log::Unsolicited(1)), 0);
    assert_eq!(world.first_after(Time(0), Log::Client(State::Down)), Some(at_ms(200)));
    assert_eq!(world.server.state(), State::Down);
}

#[test]
fn k_losses_in_a_row_bring_the_path_down_and_one_less_does_not() {
    for k in 2..=7_u8 {
        for (losses, want) in [(k - 1, 0), (k, 1)] {
            let mut sent = 0;
            let link = Box::new(move |dir, _| {
                sent += u32::from(dir == Dir::Up);
                let lost = dir == Dir::Up && (21..21 + u32::from(losses)).contains(&sent);
                (!lost).then_some(ms(20))
            });
            let mut world = World::new(config(k, ms(100)), Time(0), Span::ZERO, link);
            world.run_until(at_ms(10_000));
            assert_eq!(world.count_of(Log::Client(State::Down)), want, "K {k}, {losses} losses");
        }
    }
}

#[test]
fn one_loss_less_than_k_does_not_bring_the_path_down_while_the_delay_varies_by_less_than_half_a_period()
 {
    for k in 1..=7_u32 {
        let (mut rng, mut sent) = (Rng::new(k.into()), 0);
        let link = Box::new(move |dir, _| {
            sent += u32::from(dir == Dir::Up);
            let lost = dir == Dir::Up && sent % k != 0;
            (!lost).then(|| ms(20) + Span(rng.below(24_000_000)))
        });
        let mut world = World::new(config(k as u8, ms(100)), Time(0), Span::ZERO, link);
        world.run_until(at_ms(300_000));
        assert_eq!(world.count_of(Log::Client(State::Down)), 0, "K {k}");
        assert!(world.client.estimates().received >= 2_990 / u64::from(k));
    }
}

#[test]
fn a_path_that_comes_back_is_up_after_three_answers_and_within_ten_periods() {
    for phase in 0..20 {
        let (from, until) = (at_ms(5_000), at_ms(9_000 + 5 * phase));
        let link = faulty(ms(40), 0.5, BOTH, from, until);
        let mut world = World::new(config(3, ms(100)), Time(0), Span::from_secs(1), link);
        world.run_until(at_ms(20_000));
        let up = world.first_after(until, Log::Client(State::Up)).unwrap();
        assert!(up.since(until) <= ms(300 + 80), "phase {phase}: {}", up.since(until));
        let up = world.first_after(until, Log::Server(State::Up)).unwrap();
        assert!(up.since(until) <= ms(300 + 80));
        assert_eq!(world.client.estimates().transitions, 2);
    }
}

#[test]
fn a_path_that_was_dead_at_the_start_is_up_within_ten_periods_of_its_coming() {
    let until = at_ms(5_000);
    let link = faulty(ms(40), 0.5, BOTH, Time(0), until);
    let mut world = World::new(config(3, ms(100)), Time(0), Span::from_secs(1), link);
    world.run_until(at_ms(20_000));
    let up = world.first_after(until, Log::Client(State::Up)).unwrap();
    assert!(up.since(until) <= ms(1_000));
    // The server had never heard the client, so its first request suffices.
    let up = world.first_after(until, Log::Server(State::Up)).unwrap();
    assert!(up.since(until) <= ms(140));
}

#[test]
fn a_flapping_path_stays_down() {
    // From 5 s on, two requests arrive and then six are lost.
    let mut sent = 0;
    let link = Box::new(move |dir, at: Time| {
        sent += u32::from(dir == Dir::Up);
        let lost = dir == Dir::Up && at >= at_ms(5_000) && sent % 8 >= 2;
        (!lost).then_some(ms(20))
    });
    let mut world = World::new(config(3, ms(100)), Time(0), Span::ZERO, link);
    world.run_until(at_ms(60_000));
    assert_eq!(world.client.state(), State::Down);
    assert_eq!(world.client.estimates().transitions, 1);
    assert!(world.client.estimates().received > 100, "answers did come");
    assert_eq!(world.server.state(), State::Down);
    assert_eq!(world.server.estimates().transitions, 1);
}

#[test]
fn requests_keep_their_grid_and_are_not_sent_in_a_burst_after_a_late_tick() {
    let mut client = Client::new(config(3, ms(100)), Time(0), 9);
    let mut sent = Vec::new();
    let mut tick = |client: &mut Client, now: Time| {
        client.tick(now);
        while let Some(output) = client.poll() {
            if let ClientOutput::SendRequest(request) = output {
                sent.push((now, request.probe.seq));
            }
        }
        sent.len()
    };
    assert_eq!(tick(&mut client, Time(0)), 1);
    let second = client.deadline().unwrap().0;
    assert!(second <= at_ms(100) && second > at_ms(87), "the phase is at most an eighth");
    assert_eq!(tick(&mut client, second + ms(3)), 2);
    let late = second + ms(1_234);
    assert_eq!(tick(&mut client, late), 3, "one request for twelve missed ones");
    while client.deadline().unwrap().1 != "request due" {
        let at = client.deadline().unwrap().0;
        tick(&mut client, at);
    }
    let next = client.deadline().unwrap().0;
    assert!(next > late && next.since(second).0.is_multiple_of(ms(100).0), "still on the grid");
}

#[test]
fn a_much_shorter_period_set_before_the_first_request_is_kept_from_the_start() {
    let mut client = Client::new(config(3, ms(5_000)), Time(0), 9);
    client.handle(Time(0), ClientInput::Reconfigure(config(3, ms(1))));
    let next = client.deadline().unwrap().0;
    assert!(next > Time(875_000) && next <= at_ms(1), "{next:?}");
}

#[test]
fn a_response_that_came_in_time_is_not_overruled_by_a_late_tick() {
    let mut client = Client::new(config(1, ms(100)), Time(0), 9);
    client.tick(Time(0));
    while client.poll().is_some() {}
    let answer = |seq, at| {
        let probe = Probe { seq, t_sc: 0, sc: seq, ss: seq, r: seq, ..Probe::default() };
        ClientInput::Response(Arrival::new(probe, at, seq))
    };
    client.handle(at_ms(10), answer(1, at_ms(10)));
    client.tick(at_ms(100));
    // The driver slept from 100 ms to 200 ms. The time-out was at 160 ms, and the answer arrived at 110 ms.
    client.handle(at_ms(200), answer(2, at_ms(110)));
    assert_eq!(client.state(), State::Up);
}

#[test]
fn a_new_period_on_a_living_path_never_looks_like_an_outage() {
    for (old, new, old_k, new_k) in [
        (2_000, 60, 3, 7),
        (2_000, 10, 7, 1),
        (60, 2_000, 3, 3),
        (100, 1_000, 1, 1),
        (50, 40, 2, 1),
    ] {
        for (phase, one_way) in [(0, 5), (13, 5), (777, 5), (1_950, 5), (0, 400), (1_500, 400)] {
            let link = steady(ms(one_way));
            let mut world = World::new(config(old_k, ms(old)), Time(0), Span::from_secs(9), link);
            let change = ms(old * 20 + 2_000 + phase);
            world.run_for(change);
            let before = (
                world.client.estimates().transitions,
                world.server.estimates().transitions,
                world.count_of(Log::Heard(false)),
            );
            world.reconfigure_client(config(new_k, ms(new)));
            world.run_for(ms(20_000));
            let after = (
                world.client.estimates().transitions,
                world.server.estimates().transitions,
                world.count_of(Log::Heard(false)),
            );
            assert_eq!(before, after, "{old} to {new} ms, phase {phase}, one way {one_way} ms");
            assert_eq!(world.server.in_force(), (new_k, ms(new)));
        }
    }
}

#[test]
fn two_changes_to_longer_periods_reach_the_server_even_if_a_request_is_lost() {
    for lost in 51..54 {
        let mut sent = 0;
        let link = Box::new(move |dir, _| {
            sent += u32::from(dir == Dir::Up);
            (dir == Dir::Down || sent != lost).then_some(ms(5))
        });
        let mut world = World::new(config(3, ms(60)), Time(0), Span::from_secs(9), link);
        world.run_until(at_ms(2_990));
        world.reconfigure_client(config(3, ms(2_000)));
        world.reconfigure_client(config(3, ms(3_000)));
        world.run_for(ms(60_000));
        assert_eq!(world.server.estimates().transitions, 0, "request {lost} was lost");
        assert_eq!(world.client.estimates().transitions, 0);
        assert_eq!(world.server.in_force(), (3, ms(3_000)));
    }
}

#[test]
fn after_a_change_the_new_settings_bound_detection() {
    let fault = at_ms(45_010);
    let link = faulty(ms(20), 0.5, BOTH, fault, NEVER);
    let mut world = World::new(config(3, ms(2_000)), Time(0), Span::ZERO, link);
    world.run_until(at_ms(44_000));
    world.reconfigure_client(config(5, ms(60)));
    world.run_until(at_ms(60_000));
    let down = world.first_after(fault, Log::Client(State::Down)).unwrap();
    assert!(down.since(fault) <= world.client.config().t_r_max(ms(40)), "{}", down.since(fault));
}

#[test]
fn the_server_takes_k_and_the_period_from_the_request() {
    let mut server = Server::new(config(9, ms(5_000)), Time(0), false);
    let request = |seq, t_ka_ms, at| {
        Arrival::new(Probe { seq, t_sc: seq, sc: seq, t_ka_ms, ..Probe::default() }, at, seq)
    };
    server.handle(
        at_ms(0),
        ServerInput::Request { arrival: request(1, 50, at_ms(0)), k: 2, report: false },
    );
    assert_eq!(server.poll(), Some(ServerOutput::State(State::Up)));
    assert_eq!(server.deadline().unwrap().0, at_ms(125));
    server.handle(
        at_ms(40),
        ServerInput::Request { arrival: request(2, 0, at_ms(40)), k: 0, report: false },
    );
    assert_eq!(server.deadline().unwrap().0, at_ms(40 + 47_500), "its own where none is stated");
}

/// Mean and variance of the number of trials up to the first run of `r` events of probability `p` (Feller, An
/// Introduction to Probability Theory, vol. 1, XIII.7).
fn first_run(p: f64, r: i32) -> (f64, f64) {
    let (q, pr) = (1.0 - p, p.powi(r));
    let mean = (1.0 - pr) / (q * pr);
    let variance = 1.0 / (q * pr).powi(2) - f64::from(2 * r + 1) / (q * pr) - p / q.powi(2);
    (mean, variance)
}

#[test]
fn false_positives_come_as_often_as_the_markov_chain_of_the_rules_says() {
    let (p, runs, each) = (0.2, 8, 250_000_u64);
    for k in [2_u8, 3] {
        let mut got = 0.0;
        for seed in 0..runs {
            let mut rng = Rng::new(13 + 7_919 * seed);
            let link = Box::new(move |_, _| (!rng.chance(p)).then_some(ms(20)));
            let mut world = World::new(config(k, ms(100)), Time(0), Span::ZERO, link);
            world.keep_samples = false;
            world.run_until(Time(0) + ms(100) * each);
            got += world.count_of(Log::Client(State::Down)) as f64;
        }
        let probes = runs * each;
        // A cycle: up until K consecutive losses, then down until three consecutive answers. The first cycle begins up.
        // Each run starts from zero because the preceding trial was of the other kind.
        let q = 1.0 - (1.0 - p) * (1.0 - p);
        let ((up, up_var), (down, down_var)) = (first_run(q, k.into()), first_run(1.0 - q, 3));
        let (mean, variance) = (up + down, up_var + down_var);
        let expected = probes as f64 / mean;
        let sigma = (probes as f64 * variance / mean.powi(3)).sqrt();
        println!("K {k}: {got} false positives, expected {expected:.0} ± {:.0}", 1.96 * sigma);
        assert!((got - expected).abs() <= 1.96 * sigma, "{got}, expected {expected} ± {sigma}");
        // Eq. 4 counts every probe that ends a run of losses, so it is a lower bound of T_fp.
        let t_fp = probes as f64 * 0.1 / got;
        assert!(t_fp >= 0.1 / q.powi(k.into()), "T_fp {t_fp}");
    }
}
