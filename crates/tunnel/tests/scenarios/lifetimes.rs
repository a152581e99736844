//! Registrations over time: restarts, expiry, the end of an enrolment, many hosts.

use std::collections::BTreeSet;

use segue_clock::{Span, Time};
use segue_sim::tunnel::Enrolment;
use segue_tunnel::{AnchorConfig, AnchorInput, ConnId, Ending, HostInput, Report};
use segue_wire::signal::{FromAnchor, FromHost, Refusal, SIGNAL_VERSION, WaysOut};

use crate::stage::{Stage, Way, anchor_config, host_config, ms, secs};

#[test]
fn after_a_restart_of_the_anchor_hosts_have_their_addresses_and_flows_go_on() {
    for seed in 0..20 {
        let (mut stage, alice) = Stage::two_paths(seed, host_config(3, 60));
        let bob = stage.add_host("bob", host_config(4, 40));
        stage.add_link(bob, "wifi", ms(15));
        stage.run_for(secs(1));
        let (voice, other) = (stage.add_voice(alice), stage.add_bulk(bob));
        stage.run_for(secs(2) + ms(seed * 17));
        let inner = |stage: &Stage, host: usize| stage.host(host).end().machine.inner().to_vec();
        let before = (inner(&stage, alice), inner(&stage, bob));

        stage.restart_anchor();
        stage.run_for(secs(10));
        for host in [alice, bob] {
            assert!(stage.is_registered(host), "seed {seed}");
            assert!(stage.host(host).end().machine.paths().all(|(_, path)| path.is_up()));
        }
        assert_eq!((inner(&stage, alice), inner(&stage, bob)), before);
        stage.expect_no_redirections();
        stage.reset_streams();
        stage.run_for(secs(2));
        stage.stop_apps();
        for app in [voice, other] {
            let app = &stage.apps[app];
            assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        }
        assert!(stage.load().worst_signals <= 25, "{:?}", stage.load());
    }
}

#[test]
fn a_silent_host_is_forgotten_and_has_its_address_when_it_comes_again() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let inner = stage.host(host).end().machine.inner().to_vec();
    for name in ["wifi", "lte"] {
        stage.set_alive(host, name, Way::Both, false);
    }
    // Ten seconds until its connection ends, then the expiry of one minute.
    stage.run_for(secs(65));
    assert_eq!(stage.anchor().end().machine.hosts().count(), 1, "not yet");
    stage.run_for(secs(10));
    assert_eq!(
        (
            stage.anchor().end().machine.hosts().count(),
            stage.anchor().end().machine.paths().count()
        ),
        (0, 0)
    );
    assert!(stage.anchor().end().datapath.slots().next().is_none());

    let bob = stage.add_host("bob", host_config(3, 60));
    stage.add_link(bob, "wifi", ms(10));
    stage.run_for(secs(2));
    assert_ne!(stage.host(bob).end().machine.inner(), inner, "the address is not given away");
    for name in ["wifi", "lte"] {
        stage.set_alive(host, name, Way::Both, true);
    }
    stage.run_for(secs(20));
    assert!(stage.is_registered(host));
    assert_eq!(stage.host(host).end().machine.inner(), inner);
    assert!(stage.host(host).end().machine.paths().all(|(_, path)| path.is_up()));
}

#[test]
fn a_host_with_a_live_path_does_not_expire_without_signalling() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let conn = stage.conn_of("alice").unwrap();
    stage.tell_anchor(AnchorInput::Disconnected { conn });
    stage.run_for(secs(200));
    assert_eq!(stage.anchor().end().machine.hosts().count(), 1);
    stage.set_alive(host, "wifi", Way::Up, false);
    stage.set_alive(host, "lte", Way::Up, false);
    stage.run_for(secs(65));
    assert_eq!(stage.anchor().end().machine.hosts().count(), 0);
}

#[test]
fn a_host_whose_enrolment_ends_is_cut_off_and_its_address_rests_for_a_day() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    let voice = stage.add_voice(host);
    stage.run_for(secs(1));
    let inner = stage.host(host).end().machine.inner().to_vec();
    stage.enrol(Enrolment::End("alice".into()));
    let until = stage.now() + secs(86_400);
    assert_eq!(
        (
            stage.anchor().end().machine.hosts().count(),
            stage.anchor().end().machine.paths().count()
        ),
        (0, 0)
    );
    stage.run_for(ms(100));
    stage.reset_streams();
    stage.run_for(secs(60));
    assert_eq!((stage.apps[voice].up.received, stage.apps[voice].down.received), (0, 0));
    assert!(!stage.is_registered(host));
    let refused = |r: &Report| matches!(r, Report::Refused { .. });
    assert!(stage.host(host).reports().iter().any(|(_, report)| refused(report)));
    assert!(stage.load().worst_signals <= 20, "{:?}", stage.load());
    let bob = stage.add_host("bob", host_config(3, 60));
    stage.add_link(bob, "wifi", ms(10));
    stage.run_for(secs(2));
    assert!(stage.is_registered(bob));
    assert_ne!(stage.host(bob).end().machine.inner(), inner);
    // Until the day is over, a new host gets no address even if all others are taken, and a restart does not change
    // that.
    let register = |stage: &mut Stage, n: u64, at: Time| {
        let conn = stage.open(&format!("host{n}"));
        let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
        match stage.tell_anchor_at(at, AnchorInput::Signal { conn, message }).pop() {
            Some((_, FromAnchor::Registered { inner, .. })) => Some(inner),
            _ => None,
        }
    };
    let now = stage.now();
    for n in 0..251 {
        let given = register(&mut stage, n, now).expect("an address is free");
        assert_ne!(given, inner, "host{n}");
        if n == 100 {
            stage.restart_anchor();
        }
    }
    assert_eq!(register(&mut stage, 251, until - Span(1)), None);
    assert_eq!(register(&mut stage, 252, until), Some(inner));
}

#[test]
fn a_host_that_is_enrolled_anew_or_has_expired_keeps_its_address() {
    for (why, reason) in
        [(Ending::Replaced, Refusal::NotEnrolled), (Ending::Expired, Refusal::Expired)]
    {
        let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
        let inner = stage.host(host).end().machine.inner().to_vec();
        let said = stage.tell_anchor(AnchorInput::End { host: "alice".into(), why });
        let last = said.last().map(|(_, message)| message);
        assert_eq!(last, Some(&FromAnchor::Refused { reason }));
        assert_eq!(stage.anchor().end().machine.hosts().count(), 0);
        // If a thief may have chosen the last epoch, a smaller one is accepted.
        let conn = stage.open("alice");
        let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 0 };
        match stage.say(conn, register).last() {
            Some(FromAnchor::Registered { inner: again, .. }) => {
                assert_eq!((why, again), (Ending::Replaced, &inner));
            }
            other => assert_eq!(why, Ending::Expired, "{other:?}"),
        }
    }
}

/// Two slots are reused by each new host while old packets for earlier hosts still arrive.
#[test]
fn packets_for_hosts_that_have_left_reach_nobody() {
    let mut stage = Stage::with_anchor(1, AnchorConfig { max_paths: 3, ..anchor_config() });
    for n in 0..6 {
        let host = stage.add_host(&format!("host{n}"), host_config(3, 60));
        stage.add_link(host, "wifi", ms(10));
        stage.add_link(host, "lte", ms(30));
        stage.run_for(secs(2));
        assert!(stage.host(host).end().machine.paths().all(|(_, path)| path.is_up()), "host {n}");
        let app = stage.add_voice(host);
        stage.run_for(secs(1));
        assert!(stage.apps[app].down.received > 40, "host {n}: {:?}", stage.apps[app].down);
        assert_eq!(
            stage.host(host).end().datapath.refused(),
            0,
            "host {n} got what is not its own"
        );
        stage.tell_host(host, HostInput::Stop);
        stage.apps[app].up.silent = true;
        stage.run_for(secs(1));
        assert_eq!(stage.anchor().end().machine.hosts().count(), 0);
    }
}

#[test]
fn a_host_that_stops_leaves_nothing_behind() {
    let (mut stage, host) = Stage::two_paths(1, host_config(3, 60));
    stage.add_voice(host);
    stage.run_for(secs(1));
    stage.tell_host(host, HostInput::Stop);
    stage.run_for(secs(1));
    assert_eq!(
        (
            stage.anchor().end().machine.hosts().count(),
            stage.anchor().end().machine.paths().count()
        ),
        (0, 0)
    );
    assert!(stage.host(host).end().datapath.slots().next().is_none());
    stage.announce(host);
    stage.run_for(secs(30));
    assert_eq!(stage.anchor().end().machine.hosts().count(), 0);
}

#[test]
fn fifty_hosts_have_fifty_addresses_and_a_load_in_proportion() {
    let mut stage = Stage::with_anchor(1, AnchorConfig { max_paths: 1_000, ..anchor_config() });
    for i in 0..50 {
        let host = stage.add_host(&format!("host{i}"), host_config(3, 100));
        stage.add_link(host, "wifi", ms(5 + i));
        stage.add_link(host, "lte", ms(30));
    }
    stage.run_for(secs(5));
    let machines: Vec<_> = (0..50).map(|host| &stage.host(host).end().machine).collect();
    let addresses: BTreeSet<_> =
        machines.iter().flat_map(|machine| machine.inner().to_vec()).collect();
    assert_eq!(addresses.len(), 50);
    assert!(machines.iter().all(|machine| machine.paths().all(|(_, path)| path.is_up())));
    // Ten requests and ten answers per second on each of a hundred paths. At the start there are a tenth more, plus two
    // tests of the packet size per direction, of two packets and two answers each.
    assert!(stage.load().worst_probes <= 2_200 + 800, "{:?}", stage.load());
    assert!(stage.load().worst_signals <= 50 * 10, "{:?}", stage.load());
}

#[test]
fn both_ends_agree_a_round_trip_after_things_have_settled() {
    for seed in 0..100 {
        let mut rng = segue_clock::Rng::new(seed);
        let (mut stage, host) = Stage::two_paths(seed, host_config(3, 60));
        let apps = [stage.add_voice(host), stage.add_bulk(host)];
        for _ in 0..20 {
            let name = ["wifi", "lte"][rng.below(2) as usize];
            let way = [Way::Up, Way::Down, Way::Both][rng.below(3) as usize];
            stage.set_alive(host, name, way, rng.chance(0.5));
            stage.run_for(ms(rng.below(1_500)));
        }
        for name in ["wifi", "lte"] {
            stage.set_alive(host, name, Way::Both, true);
        }
        stage.run_for(ms(600) + ms(60));
        stage.expect_no_redirections();
        for app in apps {
            let (up, down) = stage.routes(app);
            let settled = stage.run_while_not(ms(80), |stage| {
                let (up, down) = stage.routes(app);
                up.is_some() && up == down
            });
            assert!(settled, "seed {seed}: {up:?} {down:?}");
        }
        stage.run_for(secs(1));
        stage.reset_streams();
        stage.run_for(secs(5));
        stage.stop_apps();
        for app in &stage.apps {
            assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
        }
    }
}

#[test]
fn hosts_are_told_the_anchors_ways_out_before_they_are_registered_and_once_for_each_change() {
    let mut stage = Stage::new(1);
    let (both, v4) = (WaysOut { v4: 0, v6: 0 }, WaysOut { v4: 0, v6: 64 });
    let conn = ConnId(7);
    // Not before the host has shown that it speaks this version.
    for input in [
        AnchorInput::WaysOut(both),
        AnchorInput::Connected { conn, host: "alice".into() },
        AnchorInput::WaysOut(v4),
    ] {
        assert_eq!(stage.tell_anchor(input), []);
    }
    let message = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
    let mut said = stage.tell_anchor(AnchorInput::Signal { conn, message });
    for ways_out in [v4, both, both, v4] {
        said.extend(stage.tell_anchor(AnchorInput::WaysOut(ways_out)));
    }
    let ways_out = |(_, message)| match message {
        FromAnchor::WaysOut(ways_out) => Some(ways_out),
        _ => None,
    };
    let said: Vec<Option<WaysOut>> = said.into_iter().map(ways_out).collect();
    assert_eq!(said, [Some(v4), None, Some(both), Some(v4)]);
}
