//! Doubt: an outage is found by what was due, at once while a path is used, and a living path is rarely called down.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::datapath::{Plane, Traffic, idle};
use common::{Dir, Link, at_ms, config, ms};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::{Asking, Config, Source, State};

/// What a path carries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// Packets so often in both directions.
    Both(u64),
    Up(u64),
    Down(u64),
    /// A key now and then, which the other end echoes at once.
    Keys(u64),
    Nothing,
}

fn traffic(of: Use, phase: Span) -> Traffic {
    let every = move |dir: Dir| match (of, dir) {
        (Use::Both(every) | Use::Keys(every), _)
        | (Use::Up(every), Dir::Up)
        | (Use::Down(every), Dir::Down) => Some(ms(every)),
        _ => None,
    };
    Box::new(move |dir, now| {
        let every = every(dir)?;
        // An echo comes a round trip after its key.
        let echo = if matches!(of, Use::Keys(_)) && dir == Dir::Down { ms(1) } else { Span::ZERO };
        let first = Time(0) + ms(200) + phase + echo;
        if now < first {
            return Some(first);
        }
        Some(first + every * (now.since(first).0 / every.0 + 1))
    })
}

fn settings(source: Source, rides: bool, t_ka: Span) -> Config {
    let doubt = Some(Asking { k: 3, spacing: ms(8) });
    Config { doubt, source, rides, ..config(4, t_ka) }
}

/// Passes everything with this delay until the fault, and then what the dead directions leave.
fn until(fault: Time, one_way: Span, dead: [bool; 2]) -> Link {
    Box::new(move |dir, at| (!dead[dir as usize] || at + one_way.half() < fault).then_some(one_way))
}

struct Found {
    /// From the fault to down.
    after: Vec<f64>,
    heard: usize,
}

fn outages(of: Use, source: Source, rides: bool, dead: [bool; 2], one_way: Span) -> Found {
    let (mut after, mut heard) = (Vec::new(), 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let fault = at_ms(8_000) + Span(rng.below(2_000_000_000));
        let idle = matches!(of, Use::Nothing);
        let t_ka = if idle { ms(4_800) } else { ms(250) };
        let link = until(fault, one_way, dead);
        let phase = Span(rng.below(50_000_000));
        let mut plane = Plane::new(settings(source, rides, t_ka), link, traffic(of, phase));
        plane.run_until(fault + ms(8_000));
        let case = format!("{of:?} {source:?} rides {rides} dead {dead:?} seed {seed}");
        let (at, state) = *plane.states.last().unwrap();
        assert_eq!((plane.states.len(), state), (2, State::Down), "{case}: {:?}", plane.states);
        heard += usize::from(plane.client.heard());
        after.push(at.since(fault).as_secs_f64() * 1e3);
    }
    after.sort_by(f64::total_cmp);
    Found { after, heard }
}

const SOURCES: [(Source, bool); 4] = [
    (Source::Probes, false),
    (Source::Readings, false),
    (Source::Probes, true),
    (Source::Readings, true),
];

#[test]
fn an_outage_of_a_used_path_is_found_within_its_bar() {
    let both = [true, true];
    for (of, dead, median, most) in [
        (Use::Both(10), both, 100.0, 130.0),
        (Use::Both(10), [true, false], 140.0, 200.0),
        (Use::Both(10), [false, true], 100.0, 130.0),
        (Use::Both(50), both, 150.0, 190.0),
        (Use::Both(50), [true, false], 170.0, 270.0),
        (Use::Up(20), both, 150.0, 250.0),
        (Use::Up(20), [true, false], 150.0, 250.0),
        (Use::Down(20), both, 120.0, 150.0),
        (Use::Down(20), [false, true], 120.0, 150.0),
        // From the fault to the next key up to 200 ms pass.
        (Use::Keys(200), both, 250.0, 360.0),
    ] {
        for (source, rides) in SOURCES {
            let found = outages(of, source, rides, dead, ms(10));
            let at = |share: usize| found.after[(found.after.len() - 1) * share / 100];
            println!(
                "{of:?} {dead:?} {source:?} rides {rides}: {:.0} {:.0} {:.0} ms, {} heard",
                at(0),
                at(50),
                at(100),
                found.heard
            );
            assert!(at(50) <= median, "{of:?} {dead:?} {source:?} {rides}: median {}", at(50));
            assert!(at(100) <= most, "{of:?} {dead:?} {source:?} {rides}: most {}", at(100));
        }
    }
}

#[test]
fn an_idle_path_is_found_dead_within_a_period_and_the_time_of_the_questions() {
    for (source, rides) in SOURCES {
        let found = outages(Use::Nothing, source, rides, [true, true], ms(10));
        let mean = found.after.iter().sum::<f64>() / found.after.len() as f64;
        assert!(found.after.iter().all(|ms| *ms <= 4_800.0 + 150.0), "{:?}", found.after);
        assert!((2_000.0..2_900.0).contains(&mean), "{mean}");
    }
}

#[test]
fn only_the_direction_that_died_is_called_dead() {
    for (source, rides) in SOURCES {
        assert_eq!(outages(Use::Both(10), source, rides, [true, false], ms(10)).heard, 100);
        assert_eq!(outages(Use::Both(10), source, rides, [false, true], ms(10)).heard, 0);
    }
}

/// A stream that pauses costs a few questions, and nothing else.
#[test]
fn pauses_of_the_applications_are_no_outages() {
    for (source, rides) in SOURCES {
        for seed in 0..20 {
            let mut pauses = Rng::new(seed);
            // Talk of a second, silence of one, in both directions by themselves.
            let talks: Traffic = Box::new(move |_, now| {
                let talk = now.0 / 1_000_000_000 % 2 == 0;
                let next = Time((now.0 / 1_000_000_000 + 1) * 1_000_000_000);
                Some(if talk { now + ms(20) } else { next + Span(pauses.below(300_000_000)) })
            });
            let mut jitter = Rng::new(seed);
            let link: Link = Box::new(move |_, _| Some(ms(10) + Span(jitter.below(3_000_000))));
            let mut plane = Plane::new(settings(source, rides, ms(250)), link, talks);
            plane.run_until(at_ms(60_000));
            assert_eq!(plane.states.len(), 1, "{source:?} {rides} {seed}: {:?}", plane.states);
            let doubts = plane.doubts.iter().filter(|(_, doubt)| *doubt).count();
            assert!((5..=120).contains(&doubts), "{doubts}");
            let ended = plane.doubts.len() - doubts;
            assert_eq!(ended, doubts, "each doubt ends");
        }
    }
}

#[test]
fn a_path_without_data_is_asked_once_in_a_period() {
    for (source, rides) in SOURCES {
        let link: Link = Box::new(|_, _| Some(ms(10)));
        let mut plane = Plane::new(settings(source, rides, ms(4_800)), link, idle());
        plane.run_until(at_ms(480_000));
        assert!((100..=101).contains(&plane.requests.len()), "{}", plane.requests.len());
        assert!(plane.doubts.is_empty());
    }
}

/// While data run both ways each direction proves the other: no request beside those of the period.
#[test]
fn data_in_both_directions_need_no_questions() {
    for (source, rides) in SOURCES {
        let link: Link = Box::new(|_, _| Some(ms(10)));
        let data = traffic(Use::Both(20), Span::ZERO);
        let mut plane = Plane::new(settings(source, rides, ms(250)), link, data);
        plane.run_until(at_ms(60_000));
        assert!((236..=244).contains(&plane.requests.len()), "{}", plane.requests.len());
        assert!(plane.doubts.is_empty(), "{:?}", plane.doubts);
    }
}
