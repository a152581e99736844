//! Measurement modes, and keepalive switched off.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod common;

use common::{Dir, Link, Log, World, at_ms, config, ms, steady};
use segue_clock::{Machine, Rng, Span, Time};
use segue_keepalive::{Config, Estimates, State};
use segue_wire::Mode;

fn world(mode: Mode, link: Link) -> World {
    World::new(Config { mode, ..config(3, ms(100)) }, Time(0), Span::from_secs(9), link)
}

/// A link that loses a tenth of the packets in each direction and is dead from `until` on.
fn lossy(seed: u64, until: Time) -> Link {
    let mut rng = Rng::new(seed);
    Box::new(move |_, at| (at < until && !rng.chance(0.1)).then_some(ms(20)))
}

#[test]
fn in_client_mode_the_server_keeps_nothing_and_is_never_down() {
    let mut world = world(Mode::Client, lossy(1, at_ms(60_000)));
    world.run_until(at_ms(500));
    assert!(world.server.heard());
    world.run_until(at_ms(90_000));
    assert_eq!(world.client.state(), State::Down);
    assert!(!world.client.estimates().owl_up.is_empty());
    assert!(world.server.heard() && world.server.deadline().is_none());
    assert_eq!(*world.server.estimates(), Estimates::default());
    assert_eq!(world.count_of(Log::Unsolicited(1)), 0);
    assert!(world.server_samples.is_empty());
}

#[test]
fn in_reports_mode_the_server_has_the_clients_averages_and_a_timer() {
    let mut world = world(Mode::Reports, lossy(2, at_ms(60_000)));
    world.run_until(at_ms(1_000));
    assert!(world.server.estimates().rtl.is_empty(), "nothing before the first loss interval");
    world.run_until(at_ms(59_900));
    let (client, server) = (world.client.estimates().clone(), world.server.estimates().clone());
    assert!((client.rtt_ewma[0] - server.rtt_ewma[0]).abs() < 1e-4);
    assert!((client.rtl[0] - server.rtl[0]).abs() < 0.1 && server.rtl[0] > 0.02);
    assert!(server.rtt_last.is_none() && server.owl_up.is_empty(), "it measures nothing itself");
    // Without a new loss value, the last reported one stays the same except for rounding.
    let last = world.server_samples.last().unwrap();
    assert_eq!(last.rtl, Some(server.rtl[0]));
    world.run_until(at_ms(61_000));
    assert_eq!(world.server.state(), State::Down);
}

#[test]
fn in_round_trip_loss_mode_each_value_reaches_the_server_once_and_both_measure_rtt() {
    let mut world = world(Mode::RoundTripLoss, steady(ms(20)));
    // One request in twenty is lost, but never one with a report, so that both ends stay comparable.
    let mut sent = 0_u32;
    world.link = Box::new(move |dir, _| {
        sent += u32::from(dir == Dir::Up);
        (dir == Dir::Down || sent % 20 != 5).then_some(ms(20))
    });
    world.run_until(at_ms(120_000));
    let (client, server) = (world.client.estimates(), world.server.estimates());
    assert!(client.owl_up.is_empty() && server.owl_up.is_empty() && server.owl_down.is_empty());
    for e in [client, server] {
        assert!(e.rtt_last.unwrap().0.abs_diff(ms(40).0) < 10_000);
    }
    let of = |samples: &[segue_keepalive::Sample]| -> Vec<f64> {
        samples.iter().filter_map(|s| s.rtl).collect()
    };
    let (there, here) = (of(&world.client_samples), of(&world.server_samples));
    assert!(here.len() > 110 && there.len() - here.len() <= 1);
    assert!(there.iter().zip(&here).all(|(a, b)| (a - b).abs() < 1e-9));
    let mean = there.iter().sum::<f64>() / there.len() as f64;
    assert!((mean - 0.05).abs() < 0.005, "{mean}");
    assert!((client.rtl[0] - server.rtl[0]).abs() < 0.03);
}

#[test]
fn a_path_switched_off_sends_nothing_after_its_first_answer_and_stays_as_it_is() {
    let mut world = world(Mode::Both, steady(ms(20)));
    world.switch_client(false);
    world.run_until(at_ms(1_000));
    assert_eq!(world.client.state(), State::Up, "the first answer still comes");
    let sent = world.client.estimates().sent;
    world.link = Box::new(|_, _| None);
    world.run_until(at_ms(60_000));
    assert_eq!((world.client.estimates().sent, sent), (1, 1));
    assert_eq!((world.client.state(), world.server.state()), (State::Up, State::Down));
    assert!(world.client.heard() && world.client.deadline().is_none());
}

#[test]
fn switched_off_at_both_ends_nothing_changes_and_switched_on_again_it_starts() {
    let mut world = world(Mode::Both, steady(ms(20)));
    world.run_until(at_ms(5_000));
    for on in [false, true] {
        world.switch_client(on);
        world.switch_server(on);
        if on {
            break;
        }
        let before = world.log.len();
        world.run_for(ms(30_000));
        assert!(world.log.len() <= before + 1, "one request may have been under way");
        assert!(world.server.deadline().is_none() && world.client.deadline().is_none());
    }
    let resumed = world.now;
    world.run_for(ms(20_000));
    assert_eq!(world.client.estimates().transitions + world.server.estimates().transitions, 0);
    let requests =
        world.log.iter().filter(|(at, log)| *at >= resumed && matches!(log, Log::Request(_)));
    assert!(requests.count() >= 199);
    world.link = Box::new(|_, _| None);
    world.run_for(ms(500));
    assert_eq!((world.client.state(), world.server.state()), (State::Down, State::Down));
}

#[test]
fn in_client_mode_requests_leave_no_trace_at_the_server() {
    let mut world = world(Mode::Client, steady(ms(20)));
    world.run_until(at_ms(150));
    let first = format!("{:?}", world.server);
    assert!(world.server.heard());
    world.run_until(at_ms(60_000));
    assert_eq!(format!("{:?}", world.server), first, "600 requests later");
    assert_eq!(world.server.deadline(), None);
}

#[test]
fn to_be_switched_on_again_and_again_changes_nothing() {
    let run = |again: bool| {
        // Some losses, then none except an outage.
        let mut lossy = lossy(7, at_ms(8_000));
        let link: Link = Box::new(move |dir, at| lossy(dir, at).filter(|_| at < at_ms(9_030)));
        let mut world = world(Mode::Both, link);
        while world.now < at_ms(12_000) {
            world.run_for(ms(37));
            if again {
                world.switch_client(true);
                world.switch_server(true);
            }
        }
        world.log
    };
    let (left_alone, told) = (run(false), run(true));
    assert!(left_alone.iter().any(|(_, log)| *log == Log::Client(State::Down)));
    assert!(left_alone.iter().any(|(_, log)| *log == Log::Server(State::Down)));
    assert_eq!(left_alone, told);
}
