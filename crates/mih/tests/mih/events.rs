//! Events: recipients, order, and recovery after failures.

use segue_clock::{Rng, Span, Time};
use segue_mih::{MihfInput, Report, Transport};

use crate::stage::*;

const UDP: Transport = Transport::Udp;

fn all_four() -> Stage {
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, sap(&[1, 2], UDP)),
        (GATEWAY, user("mag", Some(1), UDP)),
        (ANCHOR, user("lma", None, UDP)),
    ]);
    stage.run(Span::from_secs(3));
    stage
}

#[test]
fn each_hears_of_the_links_that_it_asked_for() {
    let mut stage = all_four();
    for event in [up(1, 1), up(2, 2), down(1, 1)] {
        stage.happens(event);
        stage.run(Span::from_millis(100));
    }
    assert_eq!(stage.news(GATEWAY), [up(1, 1), down(1, 1)]);
    assert_eq!(stage.news(ANCHOR), [up(1, 1), up(2, 2), down(1, 1)]);
    assert_eq!(stage.stations(ANCHOR, 2), [station(2)]);
}

#[test]
fn who_subscribes_later_is_told_who_is_there() {
    let mut stage = Stage::new(&[(FUNCTION, function()), (SAP, sap(&[1], UDP))]);
    stage.run(Span::from_secs(1));
    stage.happens(up(1, 1));
    stage.start(GATEWAY, user("mag", Some(1), UDP));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY), [up(1, 1)]);
    // The function answers from its state, because the owner already reports to it.
    stage.start(ANCHOR, user("lma", None, UDP));
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(ANCHOR), [up(1, 1)]);
    assert_eq!(stage.news(GATEWAY), []);
}

#[test]
fn a_link_that_comes_later_is_found() {
    let mut stage = Stage::new(&[(FUNCTION, function()), (GATEWAY, user("mag", Some(1), UDP))]);
    stage.run(Span::from_secs(5));
    stage.start(SAP, sap(&[1], UDP));
    stage.happens(up(1, 1));
    // The interest names the link, so the function is asked for it every second.
    stage.run(Span::from_millis(1_200));
    assert_eq!(stage.news(GATEWAY), [up(1, 1)]);
}

#[test]
fn after_any_restart_everybody_knows_again_who_is_there() {
    for who in [FUNCTION, SAP, GATEWAY] {
        let mut stage = all_four();
        stage.happens(up(1, 1));
        stage.happens(up(1, 2));
        stage.run(Span::from_secs(1));
        let again = match who {
            FUNCTION => function(),
            SAP => sap(&[1, 2], UDP),
            _ => user("mag", Some(1), UDP),
        };
        let again = segue_mih::MihfConfig { seed: 77, ..again };
        stage.start(who, again);
        stage.news(ANCHOR);
        if who == SAP {
            // It reports only the station that is still attached.
            stage.happens(up(1, 2));
        } else {
            stage.happens(down(1, 1));
        }
        stage.run(Span::from_secs(25));
        for knows in [FUNCTION, GATEWAY, ANCHOR] {
            assert_eq!(stage.stations(knows, 1), [station(2)], "{who} restarts: {knows}");
        }
        assert_eq!(stage.news(ANCHOR), [down(1, 1)], "{who} restarts");
        stage.happens(down(1, 2));
        stage.run(Span::from_secs(1));
        assert_eq!(stage.stations(GATEWAY, 1), [], "{who} restarts");
    }
}

#[test]
fn stations_stay_when_only_those_who_tell_of_them_are_gone() {
    let mut stage = all_four();
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    stage.news(GATEWAY);
    stage.nodes.remove(&ip(SAP));
    stage.run(Span::from_secs(60));
    assert!(stage.reports.iter().any(|(_, report)| *report == Report::Gone("sap".into())));
    assert_eq!(stage.news(GATEWAY), []);
    assert_eq!(stage.stations(GATEWAY, 1), [station(1)]);
}

#[test]
fn who_leaves_is_forgotten_at_once() {
    let mut stage = all_four();
    stage.give(GATEWAY, MihfInput::Leave);
    stage.run(Span::from_millis(100));
    let names: Vec<_> = stage.node(FUNCTION).registered().map(|of| of.name).collect();
    assert_eq!(names, ["lma".into(), "sap".into()]);
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(10));
    assert_eq!(stage.news(GATEWAY), []);
}

/// The latest event of each station.
fn truth(events: &[segue_mih::Event]) -> std::collections::BTreeMap<String, segue_mih::What> {
    events.iter().map(|event| (format!("{:?}", event.station), event.what.clone())).collect()
}

#[test]
fn with_loss_copies_and_reordering_all_agree_in_the_end() {
    for seed in 0..200 {
        let mut stage = all_four();
        let mut rng = Rng::new(seed);
        stage.rng = Rng::new(seed ^ 0x5e);
        stage.faults = (0.2, 0.1);
        stage.jitter = Span::from_millis(30);
        let mut there = [false; 4];
        let mut told = Vec::new();
        for _ in 0..40 {
            let who = rng.below(4) as usize;
            there[who] = !there[who];
            let event = if there[who] { up(1, who as u8) } else { down(1, who as u8) };
            told.push(event.clone());
            stage.happens(event);
            stage.run(Span::from_millis(rng.below(300)));
        }
        stage.faults = (0.0, 0.0);
        stage.run(Span::from_secs(60));
        let expected: Vec<_> = (0..4).filter(|who| there[*who as usize]).map(station).collect();
        for knows in [FUNCTION, GATEWAY, ANCHOR] {
            assert_eq!(stage.stations(knows, 1), expected, "seed {seed}, {knows}");
        }
        for user in [GATEWAY, ANCHOR] {
            let (heard, told) = (truth(&stage.news(user)), truth(&told));
            for (station, what) in heard {
                assert_eq!(told[&station].kind(), what.kind(), "seed {seed}, {station}");
            }
        }
    }
}

#[test]
fn the_pace_of_a_frame_that_is_lost_follows_the_round_trip() {
    let mut stage = all_four();
    stage.happens(up(1, 1));
    stage.run(Span::from_secs(1));
    stage.sent.clear();
    let gone = stage.nodes.remove(&ip(FUNCTION)).unwrap();
    stage.happens(down(1, 1));
    let began = stage.now;
    stage.run(Span::from_millis(2_000));
    let times: Vec<u64> = stage
        .sent
        .iter()
        .filter(|sent| sent.line() == "LS → MIHF: MIH_Link_Down indication")
        .map(|sent| sent.at.since(began).as_micros() / 1_000)
        .collect();
    assert_eq!(times, [0, 100, 300]);
    stage.nodes.insert(ip(FUNCTION), gone);
    assert!(stage.now > Time::ZERO);
}

#[test]
fn an_event_that_nobody_acknowledges_shows_at_once_that_a_function_has_started_anew() {
    let mut stage = all_four();
    // Its next renewal is seconds away.
    stage.happens(up(1, 1));
    stage.run(Span::from_millis(200));
    stage.start(FUNCTION, segue_mih::MihfConfig { seed: 77, ..function() });
    stage.happens(down(1, 1));
    stage.run(Span::from_millis(1_500));
    let names: Vec<_> = stage.node(FUNCTION).registered().map(|of| of.name).collect();
    assert!(names.contains(&"sap".into()), "{names:?}");
}

#[test]
fn numbers_that_come_round_are_those_of_new_frames() {
    let mut stage = all_four();
    for more in ["a", "bc", "def", "abcd", "c:abcd", "d:e:abcd"] {
        stage.start(&format!("fd00::6:{more}"), user(more, Some(1), UDP));
    }
    stage.run(Span::from_secs(1));
    // At 500 frames a second to each of eight peers: the 4096 IDs of a peer wrap after 8 s; a shared counter would wrap
    // after 1 s.
    for n in 0..10_000_u32 {
        let who = (n % 100) as u8;
        stage.happens(if n / 100 % 2 == 0 { up(1, who) } else { down(1, who) });
        stage.run(Span::from_millis(2));
    }
    stage.run(Span::from_secs(1));
    assert_eq!(stage.news(GATEWAY).len(), 10_000);
    assert_eq!(stage.news(ANCHOR).len(), 10_000);
}

#[test]
fn what_has_not_got_through_is_not_told_to_who_subscribes_again() {
    let mut stage = Stage::new(&[
        (FUNCTION, function()),
        (SAP, sap(&[1], UDP)),
        (GATEWAY, user("mag", Some(1), UDP)),
    ]);
    stage.run(Span::from_secs(3));
    stage.faults.0 = 1.0;
    stage.happens(up(1, 1));
    stage.faults.0 = 0.0;
    stage.give(GATEWAY, MihfInput::Leave);
    stage.run(Span::from_millis(40));
    stage.happens(down(1, 1));
    stage.start(GATEWAY, user("mag", Some(1), UDP));
    stage.run(Span::from_secs(2));
    assert_eq!(stage.stations(FUNCTION, 1), []);
    assert_eq!(stage.news(GATEWAY), []);
}
