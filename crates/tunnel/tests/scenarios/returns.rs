//! Paths that come back, once or repeatedly.

use std::net::SocketAddr;

use segue_clock::{Span, Time};
use segue_tunnel::{HostInput, Report};
use segue_wire::signal::FromAnchor;

use crate::stage::{Stage, Way, host_config, ms, secs};

fn is_registered(message: &&FromAnchor) -> bool {
    matches!(message, FromAnchor::Registered { .. })
}

#[test]
fn a_path_that_comes_back_is_used_again_within_ten_periods_and_the_hold() {
    for way in [Way::Both, Way::Up, Way::Down] {
        for outage in [ms(700), secs(3), secs(45)] {
            let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
            let bulk = stage.add_bulk(host);
            stage.run_for(secs(3));
            assert!(stage.flows_use(bulk, "wifi"));
            stage.set_alive(host, "wifi", way, false);
            stage.run_for(outage);
            stage.set_alive(host, "wifi", way, true);
            let hold = host_config(3, 60).steering.hold;
            let back = stage.run_while_not(ms(600) + hold, |stage| stage.flows_use(bulk, "wifi"));
            assert!(back, "{way:?} {outage}: {:?}", stage.routes(bulk));
            stage.run_for(secs(1));
            stage.expect_no_redirections();
            assert!(stage.load().worst_probes <= 120, "{:?}", stage.load());
        }
    }
}

#[test]
fn a_flapping_path_does_not_drag_its_flows_each_time() {
    let (mut stage, host) = Stage::two_paths(2, host_config(3, 60));
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(3));
    let moves = |stage: &Stage| stage.causes(host).len();
    let before = moves(&stage);
    for _ in 0..20 {
        stage.set_alive(host, "wifi", Way::Both, false);
        stage.run_for(ms(1_500));
        stage.set_alive(host, "wifi", Way::Both, true);
        stage.run_for(ms(1_500));
    }
    let dragged = moves(&stage) - before;
    assert!(dragged <= 10, "{dragged} moves in 20 flaps");
    assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
    // The steering eventually trusts it again.
    stage.run_for(secs(200));
    assert!(stage.flows_use(bulk, "wifi"));
}

#[test]
fn both_paths_may_die_and_come_back() {
    let (mut stage, host) = Stage::two_paths(3, host_config(3, 60));
    let (voice, bulk) = (stage.add_voice(host), stage.add_bulk(host));
    stage.run_for(secs(3));
    for (first, second) in [("wifi", "lte"), ("lte", "wifi")] {
        stage.set_alive(host, first, Way::Both, false);
        stage.run_for(secs(1));
        stage.set_alive(host, second, Way::Both, false);
        stage.run_for(secs(30));
        stage.set_alive(host, first, Way::Both, true);
        let through = |stage: &Stage| stage.flows_use(voice, first) && stage.flows_use(bulk, first);
        assert!(stage.run_while_not(ms(600), through), "{:?}", stage.routes(voice));
        stage.run_for(secs(9));
        assert!(stage.is_registered(host), "signalling is back as well");
        stage.set_alive(host, second, Way::Both, true);
        stage.run_for(secs(5));
        stage.expect_no_redirections();
        assert!(stage.flows_use(bulk, "wifi"));
    }
    assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
}

#[test]
fn flows_do_not_notice_that_signalling_breaks() {
    let (mut stage, host) = Stage::two_paths(4, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.run_for(secs(1));
    stage.reset_streams();
    for _ in 0..5 {
        stage.break_signal(host);
        assert!(!stage.is_registered(host));
        assert!(stage.run_while_not(secs(2), |stage| stage.is_registered(host)));
        stage.run_for(ms(300));
    }
    stage.stop_apps();
    let app = &stage.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
    assert!(app.up.worst <= ms(20) && app.down.worst <= ms(20));
}

#[test]
fn signalling_follows_to_a_live_interface() {
    let (mut stage, host) = Stage::two_paths(5, host_config(3, 60));
    assert_eq!(stage.host(host).end().machine.signal_interface(), Some("wifi"));
    stage.set_alive(host, "wifi", Way::Both, false);
    stage.run_for(secs(1));
    assert_eq!(stage.host(host).end().machine.signal_interface(), Some("lte"));
    stage.run_for(secs(12));
    assert!(stage.is_registered(host), "it never broke");
    assert_eq!(stage.said().iter().filter(is_registered).count(), 1);
}

/// At this time the connection has just had a sign of life, and the next is due in a second: the host learns only from
/// its paths what happens to the anchor in between.
const BETWEEN_SIGNS: Span = Span::from_millis(3_300);

#[test]
fn a_host_is_registered_again_as_soon_as_it_finds_that_its_anchor_has_started_again() {
    let (mut stage, host) = Stage::two_paths(6, host_config(3, 60));
    let bulk = stage.add_bulk(host);
    stage.run_for(BETWEEN_SIGNS);
    let inner = stage.host(host).end().machine.inner().to_vec();
    stage.restart_anchor();
    let registered = |stage: &Stage| stage.is_registered(host);
    let again = |stage: &Stage| registered(stage) && stage.flows_use(bulk, "wifi");
    // (K + 1)·T_KA and a round trip to find the paths dead, then a handshake and the registration.
    assert!(stage.run_while_not(ms(300) + ms(80), |stage| !registered(stage)), "it notices");
    assert!(stage.run_while_not(ms(400), again), "{:?}", stage.routes(bulk));
    assert_eq!(stage.host(host).end().machine.inner(), inner);
    // The connection lasts, although the paths were briefly down.
    stage.run_for(secs(5));
    assert_eq!(stage.said().iter().filter(is_registered).count(), 2);
}

#[test]
fn an_anchor_that_starts_again_twice_within_a_moment_is_not_waited_for_long() {
    let (mut stage, host) = Stage::two_paths(6, host_config(3, 60));
    let bulk = stage.add_bulk(host);
    stage.run_for(BETWEEN_SIGNS);
    let registered = |stage: &Stage| stage.is_registered(host);
    let again = |stage: &Stage| registered(stage) && stage.flows_use(bulk, "wifi");
    stage.restart_anchor();
    assert!(stage.run_while_not(ms(380), |stage| !registered(stage)), "it notices");
    let left = stage.now();
    assert!(stage.run_while_not(ms(400), again), "{:?}", stage.routes(bulk));
    // At this time both paths are found dead together, so the connection is not moved, which would reveal its end.
    stage.run_until(left + ms(1_300));
    stage.restart_anchor();
    // A second connection is not abandoned within two seconds of the first, but right after that.
    stage.run_until(left + ms(1_990));
    assert!(registered(&stage));
    assert!(stage.run_while_not(ms(20), |stage| !registered(stage)), "it does not forget");
    assert!(stage.run_while_not(ms(400), again), "{:?}", stage.routes(bulk));
    stage.run_for(secs(5));
    assert_eq!(stage.said().iter().filter(is_registered).count(), 3);
}

#[test]
fn a_connection_is_not_left_for_paths_that_have_come_back_in_the_meantime() {
    let (mut stage, host) = Stage::two_paths(6, host_config(3, 60));
    stage.run_for(BETWEEN_SIGNS);
    let registered = |stage: &Stage| stage.is_registered(host);
    stage.restart_anchor();
    assert!(stage.run_while_not(ms(380), |stage| !registered(stage)), "it notices");
    let left = stage.now();
    stage.run_until(left + ms(1_000));
    for alive in [false, true] {
        for name in ["wifi", "lte"] {
            stage.set_alive(host, name, Way::Both, alive);
        }
        stage.run_for(ms(450));
    }
    assert!(stage.now() < left + secs(2));
    stage.run_for(secs(5));
    assert_eq!(stage.said().iter().filter(is_registered).count(), 2);
}

#[test]
fn a_connection_that_stood_is_replaced_at_once_and_one_that_did_not_after_a_pause() {
    let (mut stage, host) = Stage::two_paths(7, host_config(3, 60));
    stage.run_for(secs(3));
    let registered = |stage: &Stage| stage.is_registered(host);
    // One round trip of the shorter path for the handshake and one for the registration.
    stage.break_signal(host);
    assert!(stage.run_while_not(ms(50), registered));
    stage.break_signal(host);
    assert!(!stage.run_while_not(ms(450), registered));
    assert!(stage.run_while_not(ms(100), registered));
}

#[test]
fn an_outage_before_the_first_average_of_loss_is_not_held_against_a_path() {
    let mut config = host_config(3, 60);
    // The first average takes a minute; until then only the counts are available, and they include the outage.
    config.path.keepalive.n = 1_000;
    let (mut stage, host) = Stage::two_paths(1, config);
    let bulk = stage.add_bulk(host);
    stage.run_for(secs(2));
    assert!(stage.flows_use(bulk, "wifi"));
    stage.set_alive(host, "wifi", Way::Both, false);
    stage.run_for(secs(5));
    assert!(stage.flows_use(bulk, "lte"));
    stage.set_alive(host, "wifi", Way::Both, true);
    let hold = host_config(3, 60).steering.hold;
    let back = stage.run_while_not(ms(600) + hold, |stage| stage.flows_use(bulk, "wifi"));
    assert!(back, "{:?}", stage.routes(bulk));
    let machine = &stage.host(host).end().machine;
    let (_, wifi) = machine.paths().find(|(_, path)| path.name() == "wifi").unwrap();
    let seen = wifi.client().unwrap().estimates();
    assert!(seen.owl_up.is_empty() && seen.owl_down.is_empty(), "{seen:?}");
    assert!(seen.up.sent - seen.up.received > 50, "{seen:?}");
}

#[test]
fn what_has_waited_for_a_path_for_more_than_a_second_is_not_sent() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.run_for(secs(2));
    stage.announce_falsely(host, Vec::new());
    stage.run_for(ms(100));
    stage.reset_streams();
    stage.run_for(secs(5));
    assert_eq!(stage.apps[voice].up.received, 0);
    stage.announce(host);
    stage.run_for(secs(3));
    stage.stop_apps();
    let app = &stage.apps[voice];
    let unsent = app.interval * (app.up.sent - app.up.received);
    // The packets held for a flow are as old as the oldest, up to 100 ms more.
    assert!(unsent >= secs(4) - app.interval && unsent <= ms(4_200), "{unsent}");
}

/// Number of reports at each end (host, anchor) that something moved off a path.
fn moves_off(stage: &Stage, host: usize, path: &str) -> [usize; 2] {
    let off = |reports: &[(Time, Report)]| {
        let moved =
            |report: &Report| matches!(report, Report::Handover { from, .. } if from == path);
        reports.iter().filter(|(_, report)| moved(report)).count()
    };
    [off(stage.host(host).reports()), off(stage.anchor().reports())]
}

#[test]
fn a_move_is_told_once_though_the_path_that_it_went_to_comes_and_goes() {
    let (mut stage, host) = Stage::two_paths(12, host_config(3, 60));
    stage.add_bulk(host);
    stage.run_for(secs(3));
    stage.set_alive(host, "wifi", Way::Both, false);
    stage.run_for(secs(2));
    let told = moves_off(&stage, host, "wifi");
    assert_eq!(told[1], 1, "{:?}", stage.anchor().reports());
    for _ in 0..5 {
        stage.set_alive(host, "lte", Way::Both, false);
        stage.run_for(secs(2));
        stage.set_alive(host, "lte", Way::Both, true);
        stage.run_for(secs(2));
    }
    assert_eq!(moves_off(&stage, host, "wifi"), told, "nothing new");
    // After a recovery, the next move is reported again.
    stage.set_alive(host, "wifi", Way::Both, true);
    stage.run_for(secs(2));
    stage.set_alive(host, "wifi", Way::Both, false);
    stage.run_for(secs(2));
    assert_eq!(moves_off(&stage, host, "wifi")[1], told[1] + 1);
}

/// The outer destinations of the host's paths.
fn remotes(stage: &Stage, host: usize) -> Vec<SocketAddr> {
    stage.host(host).end().machine.paths().map(|(_, path)| path.remote()).collect()
}

#[test]
fn paths_go_to_another_address_of_the_anchor_only_when_it_was_reached_there_and_none_lives() {
    let (mut stage, host) = Stage::two_paths(13, host_config(3, 60));
    stage.run_for(secs(3));
    let before = remotes(&stage, host);
    let other = SocketAddr::new([192, 0, 2, 99].into(), before[0].port());
    stage.tell_host(host, HostInput::Anchor(vec![before[0], other]));
    stage.run_for(secs(1));
    let reached = || HostInput::SignalUp { interface: "lte".into(), anchor: other };
    stage.tell_host(host, reached());
    stage.run_for(secs(1));
    assert_eq!(remotes(&stage, host), before, "they live");
    for name in ["wifi", "lte"] {
        stage.set_alive(host, name, Way::Both, false);
    }
    stage.run_for(secs(3));
    assert_eq!(remotes(&stage, host), before, "nobody has reached it elsewhere");
    stage.tell_host(host, reached());
    assert_eq!(remotes(&stage, host), [other; 2]);
}
