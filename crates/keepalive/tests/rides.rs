//! Requests and responses on data packets (section 5.3, Fig. 15).
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::datapath::{Plane, Traffic, bursts, flow, idle};
use common::{Dir, Link, at_ms, config, ms, steady};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{Arrival, Client, ClientInput, Config, LOOK, MeasuredBy, State};
use segue_wire::Probe;

fn riding(k: u8, t_ka: Span, measured_by: MeasuredBy) -> Config {
    Config { rides: true, measured_by, ..config(k, t_ka) }
}

/// Alternates between a flow, nothing and bursts, each for some periods.
fn changing(seed: u64) -> Traffic {
    let mut rng = Rng::new(seed);
    Box::new(move |_, now| {
        Some(match Rng::new(seed ^ (now.0 / 1_500_000_000)).below(3) {
            0 => now + ms(20),
            1 => now + ms(1) + Span(rng.below(700_000_000)),
            _ => Time((now.0 / 1_500_000_000 + 1) * 1_500_000_000),
        })
    })
}

fn traffics(seed: u64) -> Vec<(&'static str, Traffic)> {
    let mut rng = Rng::new(seed);
    vec![
        ("idle", idle()),
        ("flow", flow(ms(20), Span(rng.below(20_000_000)))),
        ("slow flow", flow(ms(170) + Span(rng.below(100_000_000)), Span::ZERO)),
        ("bursts", bursts(seed, ms(900))),
        ("changing", changing(seed)),
    ]
}

#[test]
fn requests_are_never_more_than_two_periods_apart_and_one_in_each_period() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..20 {
            for (name, traffic) in traffics(seed) {
                let t_ka = ms(200);
                let mut plane = Plane::new(riding(3, t_ka, measured_by), steady(ms(15)), traffic);
                plane.run_until(at_ms(60_000));
                let apart = plane.requests.windows(2).map(|pair| pair[1].0.since(pair[0].0));
                assert!(apart.max().unwrap() <= t_ka * 2, "{name}, seed {seed}");
                assert!(
                    (299..=302).contains(&plane.requests.len()),
                    "{name}: {}",
                    plane.requests.len()
                );
            }
        }
    }
}

#[test]
fn nineteen_probes_of_twenty_ride_on_fifty_packets_a_second() {
    for phase in 0..20 {
        let traffic = flow(ms(20), ms(phase));
        let mut plane =
            Plane::new(riding(3, ms(200), MeasuredBy::PacketPath), steady(ms(15)), traffic);
        plane.run_until(at_ms(120_000));
        let rode = plane.requests.iter().filter(|(_, rode)| *rode).count();
        let share = rode as f64 / plane.requests.len() as f64;
        assert!(share >= 0.95, "phase {phase}: {share}");
    }
}

#[test]
fn nothing_is_called_down_without_loss_at_any_phase() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (k, t_ka) = (1 + rng.below(4) as u8, ms(50 + rng.below(300)));
            let delay = Span(rng.below(t_ka.0));
            for (name, traffic) in traffics(seed) {
                let mut jitter = Rng::new(seed);
                let link: Link = Box::new(move |_, _| Some(delay + Span(jitter.below(t_ka.0 / 5))));
                let mut plane = Plane::new(riding(k, t_ka, measured_by), link, traffic);
                plane.run_until(at_ms(60_000));
                let case = format!("{measured_by:?}, {name}, seed {seed}, K {k}, T_KA {t_ka}");
                assert_eq!(plane.states.len(), 1, "{case}: {:?}", plane.states);
                assert_eq!(plane.server_states.len(), 1, "{case}");
                assert_eq!(plane.heard.len(), 1, "{case}");
                assert!(plane.unsolicited.is_empty(), "{case}");
            }
        }
    }
}

/// Up to K − 1 consecutive losses, in all phases.
#[test]
fn one_loss_less_than_k_does_not_bring_a_riding_path_down() {
    for k in 2..=4_u8 {
        for seed in 0..20 {
            for (name, traffic) in traffics(seed) {
                let (mut in_row, mut rng) = (0, Rng::new(seed));
                let link: Link = Box::new(move |dir, _| {
                    let lost = dir == Dir::Up && in_row + 1 < k && rng.chance(0.7);
                    in_row = if dir == Dir::Down {
                        in_row
                    } else if lost {
                        in_row + 1
                    } else {
                        0
                    };
                    (!lost).then_some(ms(15))
                });
                let config = riding(k, ms(200), MeasuredBy::PacketPath);
                let mut plane = Plane::new(config, link, traffic);
                plane.run_until(at_ms(60_000));
                assert_eq!(plane.states.len(), 1, "K {k}, {name}, seed {seed}");
                assert_eq!(plane.server_states.len(), 1, "K {k}, {name}, seed {seed}");
            }
        }
    }
}

#[test]
fn faults_are_found_within_the_bound_and_on_average_within_theirs() {
    for dead in [[true, true], [true, false], [false, true]] {
        let (mut sum, mut sum_avg) = (0.0, 0.0);
        for seed in 0..150 {
            let mut rng = Rng::new(seed);
            let (k, t_ka) = (1 + rng.below(4) as u8, ms(50 + rng.below(300)));
            let one_way = Span(rng.below(t_ka.0 / 2));
            let fault = Time(0) + t_ka * 20 + Span(rng.below(t_ka.0 * 20));
            for (name, traffic) in traffics(seed) {
                let config = riding(k, t_ka, MeasuredBy::PacketPath);
                let (t_r_max, t_r_avg) = (config.t_r_max(one_way * 2), config.t_r_avg(one_way * 2));
                let link: Link = Box::new(move |dir, at| {
                    let crossing = at + one_way.half();
                    (!dead[dir as usize] || crossing < fault).then_some(one_way)
                });
                let mut plane = Plane::new(config, link, traffic);
                plane.run_until(fault + t_ka * 40);
                let (at, state) = *plane.states.last().unwrap();
                assert_eq!((plane.states.len(), state), (2, State::Down), "{name}, seed {seed}");
                assert!(at.since(fault) <= t_r_max, "{name}, seed {seed}, {dead:?}");
                sum += at.since(fault).as_secs_f64();
                sum_avg += t_r_avg.as_secs_f64();
                if dead == [true, false] {
                    assert_eq!(plane.server_states.last().unwrap().1, State::Down);
                    assert_eq!(plane.heard.len(), 1, "{name}, seed {seed}: {:?}", plane.heard);
                }
            }
        }
        println!("{dead:?}: mean detection / bound of the mean = {:.3}", sum / sum_avg);
        // The bound of the mean has a margin of a period if both directions fail, and of half a period for a response.
        let share = sum / sum_avg;
        assert!((0.7..=1.0).contains(&share), "{dead:?}: {share:.3} of the bound of the mean");
    }
}

#[test]
fn the_rtt_is_right_when_the_response_waits_for_a_ride() {
    let traffic = flow(ms(130), ms(7));
    let mut plane = Plane::new(riding(3, ms(200), MeasuredBy::Machine), steady(ms(15)), traffic);
    plane.run_until(at_ms(60_000));
    assert!(plane.requests.iter().filter(|(_, rode)| *rode).count() > 250);
    let e = plane.client.estimates();
    for rtt in [e.rtt_min, e.rtt_max, e.rtt_last] {
        assert!(rtt.unwrap().0.abs_diff(ms(30).0) <= 2_000, "{rtt:?}");
    }
    assert_eq!(e.sent, plane.requests.len() as u64);
    assert!(plane.client.deadline().is_some());
}

#[test]
fn while_requests_ride_the_client_is_woken_for_a_look_alone() {
    for (t_ka, every) in [(ms(200), ms(20)), (ms(30), ms(20)), (ms(1_000), ms(300))] {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let config = riding(3, t_ka, MeasuredBy::PacketPath);
            let traffic = flow(every, Span(rng.below(every.0)));
            let mut plane = Plane::new(config, steady(ms(15)), traffic);
            let settled = Time(0) + t_ka * 10;
            plane.run_until(settled);
            plane.wakes.clear();
            plane.run_until(settled + Span::from_secs(60));
            let looks = Span::from_secs(60).0 / LOOK.max(t_ka * 2).0 + 1;
            let wakes = plane.wakes.len() as u64;
            assert!(wakes <= looks, "T_KA {t_ka}, seed {seed}: {wakes} of {looks}");
            assert!(plane.client.is_carried());
        }
    }
}

#[test]
fn when_the_flow_ends_requests_go_on_alone_and_the_client_wakes_for_each() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let end = at_ms(10_000) + Span(rng.below(1_000_000_000));
        let traffic: Traffic =
            Box::new(move |_, now| Some(now + ms(20)).filter(|next| *next < end));
        let config = riding(3, ms(200), MeasuredBy::PacketPath);
        let mut plane = Plane::new(config, steady(ms(15)), traffic);
        plane.run_until(end);
        plane.wakes.clear();
        plane.run_until(end + Span::from_secs(10));
        assert!(!plane.client.is_carried(), "seed {seed}");
        let alone = plane.requests.iter().filter(|(at, rode)| *at > end && !rode).count();
        assert!((48..=50).contains(&alone), "seed {seed}: {alone} requests alone");
        assert!(plane.wakes.len() <= 52, "seed {seed}: {} wakes", plane.wakes.len());
        assert_eq!((plane.states.len(), plane.server_states.len()), (1, 1), "seed {seed}");
    }
}

/// The datapath's calls pass a queue that may be full.
#[test]
fn a_call_that_is_lost_delays_what_it_tells_by_a_look_at_most() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let fault = at_ms(10_000) + Span(rng.below(1_000_000_000));
        let link: Link = Box::new(move |_, at| (at < fault).then_some(ms(15)));
        let config = riding(3, ms(200), MeasuredBy::PacketPath);
        let bound = config.t_r_max(ms(30)) + LOOK;
        let mut plane = Plane::new(config, link, flow(ms(20), ms(seed % 20)));
        plane.lost_calls = Some(1);
        plane.run_until(fault + Span::from_secs(10));
        let (at, state) = *plane.states.last().unwrap();
        assert_eq!((plane.states.len(), state), (2, State::Down), "seed {seed}");
        assert!(at.since(fault) <= bound, "seed {seed}: {}", at.since(fault));
    }
}

/// The planner may change T_KA at any time. Earlier rides followed the old one.
#[test]
fn other_settings_while_requests_ride_bring_no_false_alarm_and_no_gap() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let t_ka = |rng: &mut Rng| ms(30 + rng.below(600));
        let first = riding(3, t_ka(&mut rng), MeasuredBy::PacketPath);
        let mut plane = Plane::new(first.clone(), steady(ms(15)), flow(ms(20), ms(seed % 20)));
        let mut longest = first.t_ka;
        for step in 1..8 {
            plane.run_until(at_ms(step * 4_000) + Span(rng.below(500_000_000)));
            let config = riding(2 + rng.below(3) as u8, t_ka(&mut rng), MeasuredBy::PacketPath);
            longest = longest.max(config.t_ka);
            plane.reconfigure(config);
        }
        plane.run_until(at_ms(40_000));
        assert_eq!(plane.states.len(), 1, "seed {seed}: {:?}", plane.states);
        assert_eq!(plane.heard.len(), 1, "seed {seed}: {:?}", plane.heard);
        let apart = plane.requests.windows(2).map(|pair| pair[1].0.since(pair[0].0));
        assert!(apart.max().unwrap() <= longest * 2, "seed {seed}");
        assert!(plane.client.is_carried(), "seed {seed}");
    }
}

/// A ride in a short period does not count for the longer period that follows. Otherwise the server would wait for a
/// request that never comes.
#[test]
fn a_longer_period_is_told_though_requests_rode_just_before() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        // A packet every 20 ms for two seconds, then nothing.
        let data: Traffic = Box::new(|_, now| Some(now + ms(20)).filter(|at| *at < at_ms(2_000)));
        let mut plane = Plane::new(riding(4, ms(250), measured_by), steady(ms(15)), data);
        plane.run_until(at_ms(2_100));
        assert!(plane.requests.iter().any(|(_, rode)| *rode));
        plane.set_pace(4, ms(4_800));
        plane.run_until(at_ms(60_000));
        assert_eq!(plane.server_states.len(), 1, "{measured_by:?}: {:?}", plane.server_states);
        assert_eq!(plane.states.len(), 1, "{measured_by:?}: {:?}", plane.states);
    }
}

/// The driver slept through ten periods. Answers that arrive within a round trip plus the wait of a response for a ride
/// may belong to requests from before the sleep. The first answer to a later request arrives by the end of that time,
/// and the excuse ends there.
#[test]
fn after_a_late_tick_what_is_excused_ends_with_answers_that_may_have_waited_for_a_ride() {
    let (t_ka, rtt) = (ms(100), ms(20));
    let answer = |seq, sent: Time, at| {
        let probe = Probe { seq, t_sc: sent.micros32(), sc: seq, ..Probe::default() };
        let arrival = Arrival::new(probe, at, seq);
        ClientInput::Response(arrival)
    };
    for (rides, after, excused) in [
        (true, rtt, t_ka),
        (true, rtt + t_ka - Span(1), Span(1)),
        (true, rtt + t_ka + Span(1), Span::ZERO),
        (false, ms(5), ms(15)),
        (false, rtt + Span(1), Span::ZERO),
    ] {
        let config = Config { rides, ..config(3, t_ka) };
        let time_out = config.time_out();
        let mut client = Client::new(config, Time(0), 9);
        client.tick(Time(0));
        client.handle(Time(0) + rtt, answer(1, Time(0), Time(0) + rtt));
        let slept = ms(1_000);
        let woken = client.next_request().unwrap() + slept;
        client.tick(woken);
        let answered = woken + after;
        while client.deadline().unwrap().0 < answered {
            let at = client.deadline().unwrap().0;
            client.tick(at);
        }
        client.handle(answered, answer(2, woken, answered));
        let mut now = answered;
        while client.state() == State::Up {
            now = client.deadline().unwrap().0;
            client.tick(now);
        }
        let silence = now.since(answered);
        assert_eq!(silence, time_out + excused, "rides {rides}, answered after {after}");
    }
}

/// The answer to a riding request may go to this end's former address, so no ride ever brings the path back.
#[test]
fn on_a_path_that_is_down_requests_go_alone_beside_those_that_ride() {
    for measured_by in [MeasuredBy::Machine, MeasuredBy::PacketPath] {
        let t_ka = ms(200);
        let dies: Link = Box::new(|_, now| (now < at_ms(5_000)).then_some(ms(15)));
        let mut plane = Plane::new(riding(3, t_ka, measured_by), dies, flow(ms(20), ms(3)));
        plane.run_until(at_ms(20_000));
        let (down_at, state) = *plane.states.last().unwrap();
        assert_eq!(state, State::Down);
        let while_down = plane.requests.iter().copied().filter(|(at, _)| *at > down_at);
        type Requests = Vec<(Time, bool)>;
        let (rode, alone): (Requests, Requests) = while_down.partition(|(_, rode)| *rode);
        let apart = alone.windows(2).map(|pair| pair[1].0.since(pair[0].0));
        assert!(
            apart.max().unwrap() <= t_ka && alone.len() > 60,
            "{measured_by:?}: {}",
            alone.len()
        );
        assert!(rode.len() > 60, "{measured_by:?}: {}", rode.len());
    }
}
