//! Planned and adaptive keepalive where probes ride on data: what was asked of detection is kept.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::datapath::{Plane, Traffic, bursts, flow, idle};
use common::{Dir, Link, at_ms, ms, steady};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::adapt::Look;
use segue_keepalive::planner::{Responsiveness, T_KA_MIN, Targets};
use segue_keepalive::{Adaptive, Aims, Config, Source, State, plan};

const DEAD: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

fn traffics(seed: u64) -> Vec<(&'static str, Traffic)> {
    let mut rng = Rng::new(seed);
    vec![
        ("idle", idle()),
        ("voice", flow(ms(20), Span(rng.below(20_000_000)))),
        ("slow flow", flow(ms(170) + Span(rng.below(100_000_000)), Span::ZERO)),
        ("bursts", bursts(seed, ms(900))),
    ]
}

fn targets(responsiveness: Responsiveness, rides: bool) -> Targets {
    Targets {
        rtt_avg: 0.030,
        rtt_max: None,
        loss_up: 0.02,
        loss_down: 0.02,
        loss: None,
        burst: None,
        rides,
        responsiveness,
        fp_interval: 1e5,
        t_ka_min: T_KA_MIN,
        k_max: 20,
    }
}

/// A round trip of 30 ms that loses packets at random, and from `fault` on those of dead directions.
fn link(seed: u64, loss: f64, dead: [bool; 2], fault: Time) -> Link {
    let (one_way, mut rng) = (ms(15), Rng::new(seed));
    Box::new(move |dir, at| {
        let cut = dead[dir as usize] && at + one_way.half() >= fault;
        (!cut && !rng.chance(loss)).then_some(one_way)
    })
}

/// Mean and longest time in seconds from a fault to the verdict, for the worst kind of fault.
fn detection(config: &Config) -> (f64, f64) {
    let (mut mean, mut longest) = (0.0_f64, 0.0_f64);
    for dead in DEAD {
        let (mut sum, mut count) = (0.0, 0);
        for seed in 0..60 {
            let fault = at_ms(10_000) + Span(Rng::new(seed).below(5_000_000_000));
            for (_, traffic) in traffics(seed) {
                let link = link(seed, 0.0, dead, fault);
                let mut plane = Plane::new(config.clone(), link, traffic);
                plane.run_until(fault + ms(10_000));
                let (at, state) = *plane.states.last().unwrap();
                assert_eq!((plane.states.len(), state), (2, State::Down));
                sum += at.since(fault).as_secs_f64();
                count += 1;
                longest = longest.max(at.since(fault).as_secs_f64());
            }
        }
        mean = mean.max(sum / f64::from(count));
    }
    (mean, longest)
}

#[test]
fn a_plan_for_rides_keeps_its_target_and_one_without_does_not() {
    for asked in [0.15, 0.5, 2.0] {
        for worst in [false, true] {
            let wanted =
                if worst { Responsiveness::Max(asked) } else { Responsiveness::Avg(asked) };
            let found = [true, false].map(|rides| {
                let plan = plan(&targets(wanted, rides)).unwrap();
                let source = Source::Readings;
                let riding = Config { rides: true, source, ..Config::from_plan(&plan) };
                let (mean, longest) = detection(&riding);
                println!(
                    "{wanted:?}, planned with rides {rides}: {} {} {mean:.3} {longest:.3}",
                    plan.k, riding.t_ka
                );
                if worst { longest } else { mean }
            });
            assert!(found[0] <= asked, "{wanted:?}: {found:?}");
            assert!(found[0] >= 0.5 * asked, "{wanted:?}: far too careful, {found:?}");
            assert!(found[1] > asked, "{wanted:?}: {found:?}");
        }
    }
}

#[test]
fn losses_bring_a_riding_path_down_no_more_often_than_planned() {
    let wanted = Targets {
        fp_interval: 30.0,
        loss_up: 0.1,
        loss_down: 0.1,
        ..targets(Responsiveness::Avg(0.5), true)
    };
    let plan = plan(&wanted).unwrap();
    let mut all = 0;
    for (name, traffic) in traffics(5) {
        let config = Config { rides: true, up_after: 1, ..Config::from_plan(&plan) };
        let config = Config { source: Source::Readings, ..config };
        let mut plane = Plane::new(config, link(9, 0.1, [false; 2], Time(0)), traffic);
        plane.run_until(at_ms(3_000_000));
        let downs = plane.states.iter().filter(|(_, state)| *state == State::Down).count();
        println!("{name}: {downs} downs, {:.0} promised at most", 3_000.0 / plan.t_fp);
        assert!(downs as f64 <= 3_000.0 / wanted.fp_interval, "{name}: {downs}");
        all += downs;
    }
    assert!(all > 0, "the losses are to be felt");
}

/// Runs with the planner asked each second.
fn adaptive(plane: &mut Plane, adaptive: &mut Adaptive, until: Time, active: bool) {
    while plane.now < until {
        plane.run_until((plane.now + ms(1_000)).min(until));
        let client = &plane.client;
        let look = Look {
            estimates: client.estimates(),
            round_trips: client.round_trips(),
            burst: client.burst(),
            active,
            is_up: client.state() == State::Up,
            rides: client.config().rides,
        };
        if let Some(why) = adaptive.update(plane.now, look) {
            let planned = Config::from_plan(&why.plan);
            plane.set_pace(planned.k, planned.t_ka);
        }
    }
}

/// What a riding path or another costs and does under adaptation, with a fault at the end: requests per
/// second that went alone, and how long the fault went unnoticed.
fn adapted(rides: bool, traffic: Traffic, active: bool, seed: u64) -> (f64, f64) {
    let fault = at_ms(200_000) + Span(Rng::new(seed).below(2_000_000_000));
    let dead = DEAD[seed as usize % 3];
    let config = Config { rides, ..Config::default() };
    let mut plane = Plane::new(config, link(seed, 0.002, dead, fault), traffic);
    let mut planner = Adaptive::new(Aims::default());
    adaptive(&mut plane, &mut planner, at_ms(100_000), active);
    let before = plane.requests.len();
    adaptive(&mut plane, &mut planner, at_ms(200_000), active);
    let alone = plane.requests[before..].iter().filter(|(_, rode)| !rode).count();
    adaptive(&mut plane, &mut planner, fault + ms(10_000), active);
    let down = plane.states.iter().find(|(at, state)| *at >= fault && *state == State::Down);
    assert!(plane.states.len() <= 3, "{:?}", plane.states);
    (alone as f64 / 100.0, down.unwrap().0.since(fault).as_secs_f64())
}

#[test]
fn adaptation_keeps_the_target_with_and_without_rides() {
    for (name, active, asked) in [("idle", false, 2.0), ("voice", true, 0.15)] {
        for rides in [false, true] {
            let (mut alone, mut found) = (0.0, 0.0);
            for seed in 0..30 {
                let traffic = if active { flow(ms(20), ms(seed % 20)) } else { idle() };
                let one = adapted(rides, traffic, active, seed);
                alone += one.0 / 30.0;
                found += one.1 / 30.0;
            }
            println!(
                "{name}, rides {rides}: {alone:.2} requests alone per second, found in {found:.3} s"
            );
            assert!(found <= asked, "{name}, rides {rides}: {found}");
        }
    }
}

#[test]
fn round_trips_are_counted_right_where_probes_ride() {
    for source in [Source::Probes, Source::Readings] {
        for (name, traffic) in traffics(3) {
            let config = Config { rides: true, source, k: 20, ..Config::default() };
            let lost = std::rc::Rc::new(std::cell::Cell::new([0_u64; 2]));
            let (count, mut rng) = (lost.clone(), Rng::new(4));
            let link: Link = Box::new(move |dir, _| {
                let chance = rng.chance(if dir == Dir::Up { 0.05 } else { 0.02 });
                let mut both = count.get();
                both[dir as usize] += u64::from(chance);
                count.set(both);
                (!chance).then_some(ms(15))
            });
            let mut plane = Plane::new(config, link, traffic);
            plane.run_until(at_ms(300_000));
            let counted = plane.client.round_trips();
            let (missing, lost) = (counted.sent - counted.received, lost.get());
            assert!(counted.sent > 1_400, "{source:?}, {name}: {counted:?}");
            let near = missing.abs_diff(lost[0] + lost[1]) <= 3;
            assert!(near, "{source:?}, {name}: {counted:?}, {lost:?} lost");
        }
    }
    assert!(Plane::new(Config::default(), steady(ms(1)), idle()).client.round_trips().sent == 0);
}
