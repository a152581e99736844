//! Paths that come back, once or again and again.

use std::net::SocketAddr;

use segue_clock::{Span, Time};
use segue_ip::Input;
use segue_tunnel::{HostInput, Report};

use crate::net::{Net, Way, host_config, ms, secs};

#[test]
fn a_path_that_comes_back_is_used_again_within_ten_periods_and_the_hold() {
    for way in [Way::Both, Way::Up, Way::Down] {
        for outage in [ms(700), secs(3), secs(45)] {
            let (mut net, host) = Net::two_paths(1, host_config(3, 60));
            let bulk = net.add_bulk(host);
            net.run_for(secs(3));
            assert!(net.flows_use(bulk, "wifi"));
            net.set_alive(host, "wifi", way, false);
            net.run_for(outage);
            net.set_alive(host, "wifi", way, true);
            let hold: Span = net.hosts[host].config.steering.hold;
            let back = net.run_while_not(ms(600) + hold, |net| net.flows_use(bulk, "wifi"));
            assert!(back, "{way:?} {outage}: {:?}", net.routes(bulk));
            net.run_for(secs(1));
            net.expect_no_redirections();
            assert!(net.load.worst_probes <= 120, "{:?}", net.load);
        }
    }
}

#[test]
fn a_flapping_path_does_not_drag_its_flows_each_time() {
    let (mut net, host) = Net::two_paths(2, host_config(3, 60));
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    let moves = |net: &Net| net.causes(host).len();
    let before = moves(&net);
    for _ in 0..20 {
        net.set_alive(host, "wifi", Way::Both, false);
        net.run_for(ms(1_500));
        net.set_alive(host, "wifi", Way::Both, true);
        net.run_for(ms(1_500));
    }
    let dragged = moves(&net) - before;
    assert!(dragged <= 10, "{dragged} moves in 20 flaps");
    assert!(net.load.worst_signals <= 20, "{:?}", net.load);
    // Forgiven in the end.
    net.run_for(secs(200));
    assert!(net.flows_use(bulk, "wifi"));
}

#[test]
fn both_paths_may_die_and_come_back() {
    let (mut net, host) = Net::two_paths(3, host_config(3, 60));
    let (voice, bulk) = (net.add_voice(host), net.add_bulk(host));
    net.run_for(secs(3));
    for (first, second) in [("wifi", "lte"), ("lte", "wifi")] {
        net.set_alive(host, first, Way::Both, false);
        net.run_for(secs(1));
        net.set_alive(host, second, Way::Both, false);
        net.run_for(secs(30));
        net.set_alive(host, first, Way::Both, true);
        let through = |net: &Net| net.flows_use(voice, first) && net.flows_use(bulk, first);
        assert!(net.run_while_not(ms(600), through), "{:?}", net.routes(voice));
        net.run_for(secs(9));
        assert!(net.hosts[host].end.machine.registered(), "signalling is back as well");
        net.set_alive(host, second, Way::Both, true);
        net.run_for(secs(5));
        net.expect_no_redirections();
        assert!(net.flows_use(bulk, "wifi"));
    }
    assert!(net.load.worst_signals <= 20, "{:?}", net.load);
}

#[test]
fn flows_do_not_notice_that_signalling_breaks() {
    let (mut net, host) = Net::two_paths(4, host_config(3, 60));
    let voice = net.add_voice(host);
    net.run_for(secs(1));
    net.reset_streams();
    for _ in 0..5 {
        net.break_signal(host);
        assert!(!net.hosts[host].end.machine.registered());
        assert!(net.run_while_not(secs(2), |net| net.hosts[host].end.machine.registered()));
        net.run_for(ms(300));
    }
    net.stop_apps();
    let app = &net.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
    assert!(app.up.worst <= ms(20) && app.down.worst <= ms(20));
}

#[test]
fn signalling_follows_to_a_live_interface() {
    let (mut net, host) = Net::two_paths(5, host_config(3, 60));
    assert_eq!(net.hosts[host].end.machine.signal_interface(), Some("wifi"));
    net.set_alive(host, "wifi", Way::Both, false);
    net.run_for(secs(1));
    assert_eq!(net.hosts[host].end.machine.signal_interface(), Some("lte"));
    net.run_for(secs(10));
    assert!(net.hosts[host].end.machine.registered(), "it never broke");
    assert_eq!(net.said.iter().filter(|(_, m)| crate::net::is_registered(m)).count(), 1);
}

#[test]
fn a_host_is_registered_again_as_soon_as_it_finds_that_its_anchor_has_started_again() {
    let (mut net, host) = Net::two_paths(6, host_config(3, 60));
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    let inner = net.hosts[host].end.machine.inner().to_vec();
    net.restart_anchor();
    let registered = |net: &Net| net.hosts[host].end.machine.registered();
    let again = |net: &Net| registered(net) && net.flows_use(bulk, "wifi");
    // (K + 1)·T_KA and its round trip for the paths, then a handshake of two and the registration.
    assert!(net.run_while_not(ms(300) + ms(80), |net| !registered(net)), "it notices");
    assert!(net.run_while_not(ms(400), again), "{:?}", net.routes(bulk));
    assert_eq!(net.hosts[host].end.machine.inner(), inner);
    // The connection stands, though no path does for a moment.
    net.run_for(secs(5));
    assert_eq!(net.said.iter().filter(|(_, m)| crate::net::is_registered(m)).count(), 2);
}

#[test]
fn an_anchor_that_starts_again_twice_within_a_moment_is_not_waited_for_long() {
    let (mut net, host) = Net::two_paths(6, host_config(3, 60));
    let bulk = net.add_bulk(host);
    net.run_for(secs(3));
    let registered = |net: &Net| net.hosts[host].end.machine.registered();
    let again = |net: &Net| registered(net) && net.flows_use(bulk, "wifi");
    net.restart_anchor();
    assert!(net.run_while_not(ms(380), |net| !registered(net)), "it notices");
    let left = net.now;
    assert!(net.run_while_not(ms(400), again), "{:?}", net.routes(bulk));
    net.run_until(left + ms(1_200));
    net.restart_anchor();
    // No connection is left within two seconds of another, and this one as soon as they are over.
    net.run_until(left + ms(1_990));
    assert!(registered(&net));
    assert!(net.run_while_not(ms(20), |net| !registered(net)), "it does not forget");
    assert!(net.run_while_not(ms(400), again), "{:?}", net.routes(bulk));
    net.run_for(secs(5));
    assert_eq!(net.said.iter().filter(|(_, m)| crate::net::is_registered(m)).count(), 3);
}

#[test]
fn a_connection_is_not_left_for_paths_that_have_come_back_in_the_meantime() {
    let (mut net, host) = Net::two_paths(6, host_config(3, 60));
    net.run_for(secs(3));
    let registered = |net: &Net| net.hosts[host].end.machine.registered();
    net.restart_anchor();
    assert!(net.run_while_not(ms(380), |net| !registered(net)), "it notices");
    let left = net.now;
    net.run_until(left + ms(1_000));
    for alive in [false, true] {
        for name in ["wifi", "lte"] {
            net.set_alive(host, name, Way::Both, alive);
        }
        net.run_for(ms(450));
    }
    assert!(net.now < left + secs(2));
    net.run_for(secs(5));
    assert_eq!(net.said.iter().filter(|(_, m)| crate::net::is_registered(m)).count(), 2);
}

#[test]
fn a_connection_that_stood_is_replaced_at_once_and_one_that_did_not_after_a_pause() {
    let (mut net, host) = Net::two_paths(7, host_config(3, 60));
    net.run_for(secs(3));
    let registered = |net: &Net| net.hosts[host].end.machine.registered();
    // Two round trips of the shorter path for the handshake, one for the registration.
    net.break_signal(host);
    assert!(net.run_while_not(ms(70), registered));
    net.break_signal(host);
    assert!(!net.run_while_not(ms(450), registered));
    assert!(net.run_while_not(ms(150), registered));
}

#[test]
fn an_outage_before_the_first_average_of_loss_is_not_held_against_a_path() {
    let mut config = host_config(3, 60);
    // A minute until there is an average; until then there are the counts, and they have the outage.
    config.path.keepalive.n = 1_000;
    let (mut net, host) = Net::two_paths(1, config);
    let bulk = net.add_bulk(host);
    net.run_for(secs(2));
    assert!(net.flows_use(bulk, "wifi"));
    net.set_alive(host, "wifi", Way::Both, false);
    net.run_for(secs(5));
    assert!(net.flows_use(bulk, "lte"));
    net.set_alive(host, "wifi", Way::Both, true);
    let hold: Span = net.hosts[host].config.steering.hold;
    let back = net.run_while_not(ms(600) + hold, |net| net.flows_use(bulk, "wifi"));
    assert!(back, "{:?}", net.routes(bulk));
    let machine = &net.hosts[host].end.machine;
    let (_, wifi) = machine.paths().find(|(_, path)| path.name() == "wifi").unwrap();
    let seen = wifi.client().unwrap().estimates();
    assert!(seen.owl_up.is_empty() && seen.owl_down.is_empty(), "{seen:?}");
    assert!(seen.up.sent - seen.up.received > 50, "{seen:?}");
}

#[test]
fn what_has_waited_for_a_path_for_more_than_a_second_is_not_sent() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let voice = net.add_voice(host);
    net.run_for(secs(2));
    net.tell_host(host, Input::Interfaces(Vec::new()));
    net.run_for(ms(100));
    net.reset_streams();
    net.run_for(secs(5));
    assert_eq!(net.apps[voice].up.received, 0);
    net.announce(host);
    net.run_for(secs(3));
    net.stop_apps();
    let app = &net.apps[voice];
    let unsent = app.interval * (app.up.sent - app.up.received);
    // What is held of a flow has the age of the oldest, up to 100 ms more.
    assert!(unsent >= secs(4) - app.interval && unsent <= ms(4_200), "{unsent}");
}

/// Of each end's reports, how many say that something moved off a path.
fn moves_off(net: &Net, host: usize, path: &str) -> [usize; 2] {
    let off = |reports: &[(Time, Report)]| {
        let moved =
            |report: &Report| matches!(report, Report::Handover { from, .. } if from == path);
        reports.iter().filter(|(_, report)| moved(report)).count()
    };
    [off(&net.hosts[host].reports), off(&net.anchor_reports)]
}

#[test]
fn a_move_is_told_once_though_the_path_that_it_went_to_comes_and_goes() {
    let (mut net, host) = Net::two_paths(12, host_config(3, 60));
    net.add_bulk(host);
    net.run_for(secs(3));
    net.set_alive(host, "wifi", Way::Both, false);
    net.run_for(secs(2));
    let told = moves_off(&net, host, "wifi");
    assert_eq!(told[1], 1, "{:?}", net.anchor_reports);
    for _ in 0..5 {
        net.set_alive(host, "lte", Way::Both, false);
        net.run_for(secs(2));
        net.set_alive(host, "lte", Way::Both, true);
        net.run_for(secs(2));
    }
    assert_eq!(moves_off(&net, host, "wifi"), told, "nothing new");
    // When it has been back it is news again.
    net.set_alive(host, "wifi", Way::Both, true);
    net.run_for(secs(2));
    net.set_alive(host, "wifi", Way::Both, false);
    net.run_for(secs(2));
    assert_eq!(moves_off(&net, host, "wifi")[1], told[1] + 1);
}

/// Where the host's paths go.
fn remotes(net: &Net, host: usize) -> Vec<SocketAddr> {
    net.hosts[host].end.machine.paths().map(|(_, path)| path.remote()).collect()
}

#[test]
fn paths_go_to_another_address_of_the_anchor_only_when_it_was_reached_there_and_none_lives() {
    let (mut net, host) = Net::two_paths(13, host_config(3, 60));
    net.run_for(secs(3));
    let before = remotes(&net, host);
    let other = SocketAddr::new([192, 0, 2, 99].into(), before[0].port());
    net.tell_host(host, HostInput::Anchor(vec![before[0], other]));
    net.run_for(secs(1));
    let reached = || HostInput::SignalUp { interface: "lte".into(), anchor: other };
    net.tell_host(host, reached());
    net.run_for(secs(1));
    assert_eq!(remotes(&net, host), before, "they live");
    for name in ["wifi", "lte"] {
        net.set_alive(host, name, Way::Both, false);
    }
    net.run_for(secs(3));
    assert_eq!(remotes(&net, host), before, "nobody has reached it elsewhere");
    net.tell_host(host, reached());
    assert_eq!(remotes(&net, host), [other; 2]);
}
