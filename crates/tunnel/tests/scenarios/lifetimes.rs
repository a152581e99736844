//! Registrations over time: restarts, expiry, the end of an enrolment, many hosts.

use std::collections::BTreeSet;

use segue_tunnel::{AnchorInput, ConnId, Ending, HostInput, Report};
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION, WaysOut};

use crate::net::{Net, Way, host_config, ms, secs};

#[test]
fn after_a_restart_of_the_anchor_hosts_have_their_addresses_and_flows_go_on() {
    for seed in 0..20 {
        let (mut net, alice) = Net::two_paths(seed, host_config(3, 60));
        let bob = net.add_host("bob", host_config(4, 40));
        net.add_link(bob, "wifi", ms(15));
        net.announce(bob);
        net.run_for(secs(1));
        let (voice, other) = (net.add_voice(alice), net.add_bulk(bob));
        net.run_for(secs(2) + ms(seed * 17));
        let inner = |net: &Net, host: usize| net.hosts[host].end.machine.inner().to_vec();
        let before = (inner(&net, alice), inner(&net, bob));

        net.restart_anchor();
        net.run_for(secs(10));
        for host in [alice, bob] {
            assert!(net.hosts[host].end.machine.registered(), "seed {seed}");
            assert!(net.hosts[host].end.machine.paths().all(|(_, path)| path.is_up()));
        }
        assert_eq!((inner(&net, alice), inner(&net, bob)), before);
        net.expect_no_redirections();
        net.reset_streams();
        net.run_for(secs(2));
        net.stop_apps();
        for app in [voice, other] {
            let app = &net.apps[app];
            assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        }
        assert!(net.load.worst_signals <= 25, "{:?}", net.load);
    }
}

#[test]
fn a_silent_host_is_forgotten_and_has_its_address_when_it_comes_again() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let inner = net.hosts[host].end.machine.inner().to_vec();
    for name in ["wifi", "lte"] {
        net.set_alive(host, name, Way::Both, false);
    }
    net.run_for(secs(50));
    assert_eq!(net.anchor.machine.hosts().count(), 1, "not yet");
    net.run_for(secs(20));
    assert_eq!((net.anchor.machine.hosts().count(), net.anchor.machine.paths().count()), (0, 0));
    assert!(net.anchor.datapath.slots().next().is_none());

    let bob = net.add_host("bob", host_config(3, 60));
    net.add_link(bob, "wifi", ms(10));
    net.announce(bob);
    net.run_for(secs(2));
    assert_ne!(net.hosts[bob].end.machine.inner(), inner, "the address is not given away");
    for name in ["wifi", "lte"] {
        net.set_alive(host, name, Way::Both, true);
    }
    net.run_for(secs(20));
    assert!(net.hosts[host].end.machine.registered());
    assert_eq!(net.hosts[host].end.machine.inner(), inner);
    assert!(net.hosts[host].end.machine.paths().all(|(_, path)| path.is_up()));
}

#[test]
fn a_host_with_a_live_path_does_not_expire_without_signalling() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let conn = net.hosts[host].conn.unwrap();
    net.tell_anchor(AnchorInput::Disconnected { conn });
    net.run_for(secs(200));
    assert_eq!(net.anchor.machine.hosts().count(), 1);
    net.set_alive(host, "wifi", Way::Up, false);
    net.set_alive(host, "lte", Way::Up, false);
    net.run_for(secs(65));
    assert_eq!(net.anchor.machine.hosts().count(), 0);
}

#[test]
fn a_host_whose_enrolment_ends_is_cut_off_and_its_address_rests_for_a_day() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    let voice = net.add_voice(host);
    net.run_for(secs(1));
    let inner = net.hosts[host].end.machine.inner().to_vec();
    net.enrolled.remove("alice");
    net.tell_anchor(AnchorInput::End { host: "alice".into(), why: Ending::Removed });
    net.persisted.remove("alice");
    let until = net.now + secs(86_400);
    assert_eq!((net.anchor.machine.hosts().count(), net.anchor.machine.paths().count()), (0, 0));
    net.run_for(ms(100));
    net.reset_streams();
    net.run_for(secs(60));
    assert_eq!((net.apps[voice].up.received, net.apps[voice].down.received), (0, 0));
    assert!(!net.hosts[host].end.machine.registered());
    let refused = |r: &Report| matches!(r, Report::Refused { .. });
    assert!(net.hosts[host].reports.iter().any(|(_, report)| refused(report)));
    assert!(net.load.worst_signals <= 20, "{:?}", net.load);
    let bob = net.add_host("bob", host_config(3, 60));
    net.add_link(bob, "wifi", ms(10));
    net.announce(bob);
    net.run_for(secs(2));
    assert!(net.hosts[bob].end.machine.registered());
    assert_ne!(net.hosts[bob].end.machine.inner(), inner);
    net.anchor_config.resting = vec![(inner[0], until)];
    // Until the day is over, a host that comes when all other addresses are taken gets none, and a restart does not
    // change that.
    let register = |net: &mut Net, n: u64| {
        let name = format!("host{n}");
        net.enrolled.insert(name.clone());
        let conn = ConnId(1_000 + n);
        net.tell_anchor(AnchorInput::Connected { conn, host: name });
        let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
        net.tell_anchor(AnchorInput::Signal { conn, message: register });
        match net.said.last() {
            Some((_, FromAnchor::Registered { inner, .. })) => Some(inner.clone()),
            _ => None,
        }
    };
    for n in 0..251 {
        let given = register(&mut net, n).expect("an address is free");
        assert_ne!(given, inner, "host{n}");
        if n == 100 {
            net.restart_anchor();
        }
    }
    assert_eq!(register(&mut net, 251), None);
    net.now = until;
    assert_eq!(register(&mut net, 252), Some(inner));
}

#[test]
fn a_host_that_is_enrolled_anew_or_has_expired_keeps_its_address() {
    for (why, reason) in
        [(Ending::Replaced, Refusal::NotEnrolled), (Ending::Expired, Refusal::Expired)]
    {
        let (mut net, host) = Net::two_paths(1, host_config(3, 60));
        let inner = net.hosts[host].end.machine.inner().to_vec();
        net.tell_anchor(AnchorInput::End { host: "alice".into(), why });
        assert!(
            matches!(net.said.last(), Some((_, FromAnchor::Refused { reason: r })) if *r == reason)
        );
        assert_eq!(net.anchor.machine.hosts().count(), 0);
        // A smaller epoch than that of before is good where a thief may have chosen the last.
        let conn = ConnId(1_000);
        net.tell_anchor(AnchorInput::Connected { conn, host: "alice".into() });
        let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 0 };
        net.tell_anchor(AnchorInput::Signal { conn, message: register });
        match net.said.last() {
            Some((_, FromAnchor::Registered { inner: again, .. })) => {
                assert_eq!((why, again), (Ending::Replaced, &inner));
            }
            other => assert_eq!(why, Ending::Expired, "{other:?}"),
        }
    }
}

/// Two slots, reused by each host that comes, while old packets still arrive for those that have left.
#[test]
fn packets_for_hosts_that_have_left_reach_nobody() {
    let mut net = Net::new(1);
    net.anchor_config.max_paths = 3;
    net.restart_anchor();
    for n in 0..6 {
        let host = net.add_host(&format!("host{n}"), host_config(3, 60));
        net.add_link(host, "wifi", ms(10));
        net.add_link(host, "lte", ms(30));
        net.announce(host);
        net.run_for(secs(2));
        assert!(net.hosts[host].end.machine.paths().all(|(_, path)| path.is_up()), "host {n}");
        let app = net.add_voice(host);
        net.run_for(secs(1));
        assert!(net.apps[app].down.received > 40, "host {n}: {:?}", net.apps[app].down);
        assert_eq!(net.hosts[host].end.datapath.refused(), 0, "host {n} got what is not its own");
        net.tell_host(host, HostInput::Stop);
        net.apps[app].up.silent = true;
        net.run_for(secs(1));
        assert_eq!(net.anchor.machine.hosts().count(), 0);
    }
}

#[test]
fn a_host_that_stops_leaves_nothing_behind() {
    let (mut net, host) = Net::two_paths(1, host_config(3, 60));
    net.add_voice(host);
    net.run_for(secs(1));
    net.tell_host(host, HostInput::Stop);
    net.run_for(secs(1));
    assert_eq!((net.anchor.machine.hosts().count(), net.anchor.machine.paths().count()), (0, 0));
    assert!(net.hosts[host].end.datapath.slots().next().is_none());
    net.announce(host);
    net.run_for(secs(30));
    assert_eq!(net.anchor.machine.hosts().count(), 0);
}

#[test]
fn fifty_hosts_have_fifty_addresses_and_a_load_in_proportion() {
    let mut net = Net::new(1);
    net.anchor_config.max_paths = 1_000;
    net.restart_anchor();
    for i in 0..50 {
        let host = net.add_host(&format!("host{i}"), host_config(3, 100));
        net.add_link(host, "wifi", ms(5 + i));
        net.add_link(host, "lte", ms(30));
        net.announce(host);
    }
    net.run_for(secs(5));
    let addresses: BTreeSet<_> =
        net.hosts.iter().flat_map(|host| host.end.machine.inner().to_vec()).collect();
    assert_eq!(addresses.len(), 50);
    assert!(net.hosts.iter().all(|host| host.end.machine.paths().all(|(_, path)| path.is_up())));
    // Ten requests and ten answers a second on each of a hundred paths; at the start a tenth more, and two tests of the
    // packet size in each direction, of two packets and two answers.
    assert!(net.load.worst_probes <= 2_200 + 800, "{:?}", net.load);
    assert!(net.load.worst_signals <= 50 * 10, "{:?}", net.load);
}

#[test]
fn both_ends_agree_a_round_trip_after_things_have_settled() {
    for seed in 0..100 {
        let mut rng = segue_clock::Rng::new(seed);
        let (mut net, host) = Net::two_paths(seed, host_config(3, 60));
        let apps = [net.add_voice(host), net.add_bulk(host)];
        for _ in 0..20 {
            let name = ["wifi", "lte"][rng.below(2) as usize];
            let way = [Way::Up, Way::Down, Way::Both][rng.below(3) as usize];
            net.set_alive(host, name, way, rng.chance(0.5));
            net.run_for(ms(rng.below(1_500)));
        }
        for name in ["wifi", "lte"] {
            net.set_alive(host, name, Way::Both, true);
        }
        net.run_for(ms(600) + ms(60));
        net.expect_no_redirections();
        for app in apps {
            let (up, down) = net.routes(app);
            let settled = net.run_while_not(ms(80), |net| {
                let (up, down) = net.routes(app);
                up.is_some() && up == down
            });
            assert!(settled, "seed {seed}: {up:?} {down:?}");
        }
        net.run_for(secs(1));
        net.reset_streams();
        net.run_for(secs(5));
        net.stop_apps();
        for app in &net.apps {
            assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        }
    }
}

#[test]
fn hosts_are_told_the_anchors_ways_out_before_they_are_registered_and_once_for_each_change() {
    let mut net = Net::new(1);
    let (both, v4) = (WaysOut { v4: 0, v6: 0 }, WaysOut { v4: 0, v6: 64 });
    net.tell_anchor(AnchorInput::WaysOut(both));
    net.enrolled.insert("alice".into());
    let conn = ConnId(7);
    net.tell_anchor(AnchorInput::Connected { conn, host: "alice".into() });
    // Not before it has shown that it speaks this version.
    net.tell_anchor(AnchorInput::WaysOut(v4));
    assert!(net.said.is_empty(), "{:?}", net.said);
    let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
    net.tell_anchor(AnchorInput::Signal { conn, message });
    for ways_out in [v4, both, both, v4] {
        net.tell_anchor(AnchorInput::WaysOut(ways_out));
    }
    let said: Vec<Option<WaysOut>> = net
        .said
        .iter()
        .map(|(_, message)| match message {
            FromAnchor::WaysOut(ways_out) => Some(*ways_out),
            _ => None,
        })
        .collect();
    assert_eq!(said, [Some(v4), None, Some(both), Some(v4)]);
}
