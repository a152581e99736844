//! Paths that come back, once or again and again.

use segue_clock::Span;

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
