//! Doubt: missing packets reveal an outage, immediately while a path is used. A working path is rarely declared down.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::datapath::{Plane, Traffic, idle};
use common::{Dir, Link, at_ms, config, ms};
use segue_clock::{Rng, Span, Time};
use segue_keepalive::questions::{Silence, evaluate};
use segue_keepalive::{Asking, Config, MeasuredBy, State};
use segue_wire::Mode;

/// Data on a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    /// Packets at this interval in both directions.
    Both(u64),
    Up(u64),
    Down(u64),
    /// A keystroke from time to time, which the peer echoes immediately.
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
        // An echo arrives a round trip after its keystroke.
        let echo = if matches!(of, Use::Keys(_)) && dir == Dir::Down { ms(1) } else { Span::ZERO };
        let first = Time(0) + ms(200) + phase + echo;
        if now < first {
            return Some(first);
        }
        Some(first + every * (now.since(first).0 / every.0 + 1))
    })
}

fn settings(measured_by: MeasuredBy, rides: bool, t_ka: Span) -> Config {
    let doubt = Some(Asking { k: 3, spacing: ms(8) });
    Config { doubt, measured_by, rides, ..config(4, t_ka) }
}

/// Delivers everything with this delay until the fault, and afterwards only in the directions that work.
fn until(fault: Time, one_way: Span, dead: [bool; 2]) -> Link {
    Box::new(move |dir, at| (!dead[dir as usize] || at + one_way.half() < fault).then_some(one_way))
}

struct Found {
    /// Seconds from the fault to down.
    after: Vec<f64>,
    heard: usize,
}

fn outages(of: Use, measured_by: MeasuredBy, rides: bool, dead: [bool; 2], one_way: Span) -> Found {
    let (mut after, mut heard) = (Vec::new(), 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let fault = at_ms(8_000) + Span(rng.below(2_000_000_000));
        let idle = matches!(of, Use::Nothing);
        let t_ka = if idle { ms(4_800) } else { ms(250) };
        let link = until(fault, one_way, dead);
        let phase = Span(rng.below(50_000_000));
        let mut plane = Plane::new(settings(measured_by, rides, t_ka), link, traffic(of, phase));
        plane.run_until(fault + ms(8_000));
        let case = format!("{of:?} {measured_by:?} rides {rides} dead {dead:?} seed {seed}");
        let (at, state) = *plane.states.last().unwrap();
        assert_eq!((plane.states.len(), state), (2, State::Down), "{case}: {:?}", plane.states);
        heard += usize::from(plane.client.heard());
        after.push(at.since(fault).as_secs_f64() * 1e3);
    }
    after.sort_by(f64::total_cmp);
    Found { after, heard }
}

const MEASURED_BY: [(MeasuredBy, bool); 4] = [
    (MeasuredBy::Machine, false),
    (MeasuredBy::PacketPath, false),
    (MeasuredBy::Machine, true),
    (MeasuredBy::PacketPath, true),
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
        // The next keystroke comes up to 200 ms after the fault.
        (Use::Keys(200), both, 250.0, 360.0),
    ] {
        for (measured_by, rides) in MEASURED_BY {
            let found = outages(of, measured_by, rides, dead, ms(10));
            let at = |share: usize| found.after[(found.after.len() - 1) * share / 100];
            println!(
                "{of:?} {dead:?} {measured_by:?} rides {rides}: {:.0} {:.0} {:.0} ms, {} heard",
                at(0),
                at(50),
                at(100),
                found.heard
            );
            assert!(at(50) <= median, "{of:?} {dead:?} {measured_by:?} {rides}: median {}", at(50));
            assert!(at(100) <= most, "{of:?} {dead:?} {measured_by:?} {rides}: most {}", at(100));
        }
    }
}

/// Data that took another path are acknowledged over this one. This shows that its downlink works, but nothing about
/// the direction in question.
#[test]
fn answers_to_what_another_path_carries_do_not_end_a_doubt() {
    let (fault, one_way) = (at_ms(9_003), ms(10));
    for (measured_by, rides) in MEASURED_BY {
        let acks_end = fault + one_way;
        let data: Traffic = Box::new(move |dir, now| {
            let next = (now + ms(5)).max(at_ms(200));
            if dir == Dir::Up || next < acks_end {
                return Some(next);
            }
            // Bursts of four.
            let since = next.since(acks_end + ms(60)).0 / 1_000_000;
            let (burst, into) = (since / 40, since % 40);
            let into = if into < 4 { into } else { 40 };
            Some((acks_end + ms(60 + burst * 40 + into)).max(now + ms(1)))
        });
        let link = until(fault, one_way, [true, false]);
        let mut plane = Plane::new(settings(measured_by, rides, ms(250)), link, data);
        plane.run_until(fault + ms(3_000));
        let case = format!("{measured_by:?} rides {rides}");
        let (at, state) = *plane.states.last().unwrap();
        assert_eq!((plane.states.len(), state), (2, State::Down), "{case}: {:?}", plane.states);
        assert!(at.since(fault) < ms(120), "{case}: {:?}", at.since(fault));
        assert!(plane.client.heard(), "{case}");
    }
}

#[test]
fn an_idle_path_is_found_dead_within_a_period_and_the_time_of_the_questions() {
    for (measured_by, rides) in MEASURED_BY {
        let found = outages(Use::Nothing, measured_by, rides, [true, true], ms(10));
        let mean = found.after.iter().sum::<f64>() / found.after.len() as f64;
        assert!(found.after.iter().all(|ms| *ms <= 4_800.0 + 150.0), "{:?}", found.after);
        assert!((2_000.0..2_900.0).contains(&mean), "{mean}");
    }
}

#[test]
fn only_the_direction_that_died_is_called_dead() {
    for (measured_by, rides) in MEASURED_BY {
        assert_eq!(outages(Use::Both(10), measured_by, rides, [true, false], ms(10)).heard, 100);
        assert_eq!(outages(Use::Both(10), measured_by, rides, [false, true], ms(10)).heard, 0);
    }
}

/// If only the uplink failed, data and the anchor's own probes show that the downlink works. Regardless of how often
/// the host asks, the probes keep the period last stated to the anchor.
#[test]
fn frequent_retries_do_not_make_a_living_downlink_dead() {
    for (measured_by, rides) in MEASURED_BY {
        for (lasts, mode) in
            [(ms(160), Mode::Both), (ms(5_000), Mode::Both), (ms(5_000), Mode::Client)]
        {
            let fault = at_ms(9_003);
            let link = until(fault, ms(10), [true, false]);
            let mut both = traffic(Use::Both(10), Span::ZERO);
            let data: Traffic =
                Box::new(move |dir, now| both(dir, now).filter(|at| *at < fault + lasts));
            let config = Config { mode, ..settings(measured_by, rides, ms(250)) };
            let mut plane = Plane::new(config, link, data);
            plane.run_until(fault + ms(150));
            assert_eq!(plane.client.state(), State::Down);
            plane.set_pace(4, ms(20));
            plane.run_until(fault + ms(5_000));
            let case =
                format!("{lasts:?} {mode:?} {measured_by:?} rides {rides}: {:?}", plane.heard);
            let before = plane.heard.iter().filter(|(at, _)| *at < fault + ms(150)).count();
            assert_eq!(plane.heard.len(), before, "{case}");
            assert!(plane.client.heard(), "{case}");
        }
    }
}

/// A stream with pauses costs only a few questions.
#[test]
fn pauses_of_the_applications_are_no_outages() {
    for (measured_by, rides) in MEASURED_BY {
        for seed in 0..20 {
            let mut pauses = Rng::new(seed);
            // One second of talk, then one of silence, independently in each direction.
            let talks: Traffic = Box::new(move |_, now| {
                let talk = now.0 / 1_000_000_000 % 2 == 0;
                let next = Time((now.0 / 1_000_000_000 + 1) * 1_000_000_000);
                Some(if talk { now + ms(20) } else { next + Span(pauses.below(300_000_000)) })
            });
            let mut jitter = Rng::new(seed);
            let link: Link = Box::new(move |_, _| Some(ms(10) + Span(jitter.below(3_000_000))));
            let mut plane = Plane::new(settings(measured_by, rides, ms(250)), link, talks);
            plane.run_until(at_ms(60_000));
            assert_eq!(plane.states.len(), 1, "{measured_by:?} {rides} {seed}: {:?}", plane.states);
            let doubts = plane.doubts.iter().filter(|(_, doubt)| *doubt).count();
            assert!((5..=120).contains(&doubts), "{doubts}");
            let ended = plane.doubts.len() - doubts;
            assert_eq!(ended, doubts, "each doubt ends");
        }
    }
}

/// Video arrives in frames. The client learns the pauses between them, and therefore rarely asks about them.
#[test]
fn the_pauses_between_frames_are_learned() {
    // In doubt each answer is reported immediately, at whichever end the measurement is made.
    for rides in [false, true] {
        for (way, frame) in [(10, 33), (2, 33), (30, 33), (2, 100)] {
            let frames: Traffic = Box::new(move |dir, now| {
                let next = now + Span::from_micros(100);
                let into = next.0 % (frame * 1_000_000);
                let next = if into < 400_000 { next } else { next + ms(frame) - Span(into) };
                (dir == Dir::Down).then_some(next)
            });
            let fault = at_ms(60_000);
            let link: Link = Box::new(move |_, at| (at < fault).then_some(ms(way)));
            let mut plane = Plane::new(settings(MeasuredBy::Machine, rides, ms(250)), link, frames);
            plane.run_until(fault);
            let begun = plane.doubts.iter().filter(|(_, doubt)| *doubt).count();
            println!(
                "rides {rides} {way} {frame}: {begun} doubts, {} requests",
                plane.requests.len()
            );
            assert_eq!(plane.states.len(), 1);
            assert!(begun <= 60, "rides {rides} {way} {frame}: {begun} doubts in a minute");
            let bound = plane.client.detection_bound(Asking { k: 3, spacing: ms(8) }, true);
            plane.run_until(fault + ms(2_000));
            let (at, state) = *plane.states.last().unwrap();
            assert_eq!(state, State::Down);
            let found = at.since(fault);
            assert!(found <= bound.min(ms(400)) + ms(frame), "{found:?} of {bound:?}");
        }
    }
}

/// Answers to questions asked during a stream's pause arrive behind the burst with which it resumes.
#[test]
fn a_burst_after_a_pause_that_delays_the_answers_is_no_outage() {
    for (measured_by, rides) in MEASURED_BY {
        let (pause, again) = (at_ms(9_000), at_ms(9_036));
        let frames: Traffic = Box::new(move |dir, now| {
            let next =
                now.max(at_ms(200)) + if now < again { ms(10) } else { Span::from_micros(100) };
            let next = if (pause..again).contains(&next) { again } else { next };
            (dir == Dir::Down && next < again + ms(300)).then_some(next)
        });
        // It arrives thirteen times as fast as the link's rate, until the queue is 55 ms long.
        let link: Link = Box::new(move |dir, at| {
            let queued = if dir == Dir::Down && at > again { at.since(again) * 12 } else { ms(0) };
            let full = at < again + ms(300);
            Some(ms(10) + if full { queued.min(ms(55)) } else { ms(0) })
        });
        let mut plane = Plane::new(settings(measured_by, rides, ms(250)), link, frames);
        plane.run_until(at_ms(12_000));
        let case = format!("{measured_by:?} rides {rides}: {:?}", plane.doubts);
        assert_eq!(plane.states.len(), 1, "{case} {:?}", plane.states);
        assert!(plane.doubts.iter().any(|(at, doubt)| *doubt && *at < at_ms(9_100)), "{case}");
    }
}

#[test]
fn a_path_without_data_is_asked_once_in_a_period() {
    for (measured_by, rides) in MEASURED_BY {
        let link: Link = Box::new(|_, _| Some(ms(10)));
        let mut plane = Plane::new(settings(measured_by, rides, ms(4_800)), link, idle());
        plane.run_until(at_ms(480_000));
        assert!((100..=101).contains(&plane.requests.len()), "{}", plane.requests.len());
        assert!(plane.doubts.is_empty());
    }
}

/// While data flow in both directions, each direction proves the other: the only requests are those of the period.
#[test]
fn data_in_both_directions_need_no_questions() {
    for (measured_by, rides) in MEASURED_BY {
        let link: Link = Box::new(|_, _| Some(ms(10)));
        let data = traffic(Use::Both(20), Span::ZERO);
        let mut plane = Plane::new(settings(measured_by, rides, ms(250)), link, data);
        plane.run_until(at_ms(60_000));
        assert!((236..=244).contains(&plane.requests.len()), "{}", plane.requests.len());
        assert!(plane.doubts.is_empty(), "{:?}", plane.doubts);
    }
}

/// The planner's promise for K questions, y apart, against a count: probes of an idle path are lost independently or in
/// bursts of 50 ms.
#[test]
fn false_alarms_are_as_rare_as_the_planner_says() {
    let (one_way, t_ka, k) = (ms(10), ms(1_000), 3);
    for (share, burst) in [(0.1, None), (0.2, None), (0.02, Some(0.05)), (0.1, Some(0.05))] {
        let mut rng = Rng::new(3);
        let exponential = move |rng: &mut Rng, mean: f64| -mean * (1.0 - rng.unit()).ln();
        let (mut lost, mut until) = (false, Time(0));
        let link: Link = Box::new(move |_, at| match burst {
            None => (rng.unit() >= share).then_some(one_way),
            Some(burst) => {
                while until <= at {
                    lost = !lost;
                    let mean = if lost { burst } else { burst * (1.0 - share) / share };
                    until += Span::from_secs_f64(exponential(&mut rng, mean));
                }
                (!lost).then_some(one_way)
            }
        });
        let doubt = Some(Asking { k, spacing: ms(8) });
        let config = Config { doubt, ..config(4, t_ka) };
        let mut plane = Plane::new(config, link, idle());
        let hours = 100.0;
        plane.run_until(Time(0) + Span::from_secs_f64(hours * 3_600.0));
        let downs = plane.states.iter().filter(|(_, state)| *state == State::Down).count() as f64;
        let loss = if burst.is_some() { share } else { 1.0 - (1.0 - share) * (1.0 - share) };
        let silence = Silence {
            answer: 0.03,
            loss,
            burst,
            longest: 0.0,
            requests: 1.0 / t_ka.as_secs_f64(),
            pauses: 0.0,
            fp_interval: 1e5,
            k_max: 20,
        };
        let promised = hours * 3_600.0 / evaluate(&silence, k, 0.008).t_fp;
        println!(
            "{share} {burst:?}: {downs} false alarms in {hours} h, {promised:.0} promised at most"
        );
        let off = 4.0 * promised.sqrt();
        assert!(
            promised > 30.0 && downs <= promised + off,
            "{share} {burst:?}: {downs}, {promised}"
        );
        // For independent losses the promise is exact, except for the time that a path is down.
        assert!(burst.is_some() || downs >= 0.9 * promised - off, "{downs}, {promised}");
    }
}

#[test]
fn the_bound_of_an_idle_path_is_a_period_an_answer_and_the_questions() {
    for (measured_by, rides) in MEASURED_BY {
        let config = settings(measured_by, rides, ms(4_800));
        let link = until(at_ms(60_000), ms(10), [true, true]);
        let mut plane = Plane::new(config, link, traffic(Use::Nothing, Span::ZERO));
        plane.run_until(at_ms(20_000));
        // A round trip of 20 ms without jitter, plus the margin.
        let answer = plane.client.answer_within();
        assert!(answer > ms(20) && answer < ms(40), "{answer}");
        let held = if rides { ms(24) } else { Span::ZERO };
        for (k, spacing) in [(3, ms(8)), (1, ms(8)), (5, ms(20))] {
            let bound = plane.client.detection_bound(Asking { k, spacing }, false);
            let expected = ms(4_800) + answer + held + spacing * u64::from(k - 1) + answer;
            assert_eq!(bound, expected, "{measured_by:?}, rides {rides}, K {k}");
        }
    }
}
