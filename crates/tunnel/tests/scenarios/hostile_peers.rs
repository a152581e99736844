//! Malicious peers with valid keys.

use core::net::{IpAddr, SocketAddr};
use std::convert::Infallible;

use segue_clock::{Machine, Time};
use segue_ip::Input;
use segue_ip::Interface;
use segue_ip::Output::Own;
use segue_keepalive::{Estimates, MeasuredBy, Reading};
use segue_sim::tunnel::{Arrived, Body, Message};
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, ConnId, Host, HostInput, HostOutput, Order, Output,
    ProbeKind, Report,
};
use segue_wire::signal::{
    FromAnchor, FromHost, MAX_NAME, PathGrant, PathOffer, Refusal, SIGNAL_VERSION,
};
use segue_wire::{Probe, ProbeKey};

use crate::stage::{ANCHOR, Stage, anchor_config, host_config, ms, offer, secs};

#[test]
fn a_paths_name_cannot_write_on_the_operators_terminal() {
    let mut stage = Stage::new(1);
    let conn = stage.open("mallory");
    stage.say(conn, FromHost::Register { version: SIGNAL_VERSION, epoch: 1 });
    let colour = "\u{1b}[31mwifi";
    let reversed = "\u{202e}ifiw\u{2066}";
    let long = "x".repeat(4_000);
    for (path, name) in [(0, colour), (1, reversed), (2, &long), (3, "\u{9b}2J\n")] {
        // Offer a path, repeat the offer, and replace it.
        for cookie in [1, 1, 2] {
            let offer = PathOffer { name: name.into(), cookie, ..offer(path) };
            stage.say(conn, FromHost::AddPath(offer));
            let mut paths = stage.anchor().end().machine.paths();
            let (_, shown) = paths.find(|(_, p)| p.number == path).unwrap();
            assert!(shown.name.bytes().all(|b| b.is_ascii_graphic()), "{:?}", shown.name);
            assert!(!shown.name.is_empty() && shown.name.len() <= MAX_NAME, "{:?}", shown.name);
        }
    }
}

/// A host with one interface whose anchor has answered its registration with `inner`.
fn registered_with(inner: &[&str]) -> (Host, Vec<Output<HostOutput, Infallible>>) {
    let mut host = Host::new(host_config(3, 60), [7; 32]);
    let interface = Interface {
        name: "wifi".into(),
        index: 2,
        addresses: vec!["192.168.1.7".parse().unwrap(), "2001:db8:1::7".parse().unwrap()],
        gateways: vec!["192.168.1.1".parse().unwrap()],
        mtu_bytes: 1_500,
        ..Interface::default()
    };
    let anchor = host_config(3, 60).anchor[0];
    let inner = inner.iter().map(|a| a.parse().unwrap()).collect();
    let registered = FromAnchor::Registered { inner, anchor: Vec::new(), tunnel_port: 5005 };
    let mut outputs = Vec::new();
    for input in [
        Input::Interfaces(vec![interface]),
        HostInput::SignalUp { interface: "wifi".into(), anchor }.into(),
        HostInput::Signal(registered).into(),
    ] {
        host.handle(Time(1), input);
        outputs.extend(core::iter::from_fn(|| host.poll()));
    }
    (host, outputs)
}

#[test]
fn an_anchor_cannot_give_a_host_an_address_that_is_not_for_giving() {
    let anchor = host_config(3, 60).anchor[0].ip().to_string();
    for bad in [
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.251",
        "ff02::fb",
        "255.255.255.255",
        "169.254.169.254",
        "fe80::1",
        "::ffff:127.0.0.1",
        "192.168.1.7",
        "2001:db8:1::7",
        "192.168.1.1",
        &anchor,
    ] {
        let (host, outputs) = registered_with(&[bad]);
        assert!(host.inner().is_empty() && !host.registered(), "{bad}");
        let refused = |o: &Output<HostOutput, Infallible>| {
            matches!(
                o,
                Output::Driver(segue_ip::Output::Report(Report::Refused {
                    reason: Refusal::NoAddress,
                    ..
                }))
            )
        };
        assert!(outputs.iter().any(refused), "{bad}: {outputs:?}");
        assert!(
            !outputs.iter().any(|o| matches!(o, Output::Driver(Own(HostOutput::Addresses { .. })))),
            "{bad}"
        );
    }
}

#[test]
fn of_many_addresses_a_host_takes_one_of_each_family() {
    let (host, _) =
        registered_with(&["127.0.0.1", "10.77.0.2", "10.77.0.3", "fd5e::2", "fd5e::3", "::1"]);
    let expected: [IpAddr; 2] = ["10.77.0.2".parse().unwrap(), "fd5e::2".parse().unwrap()];
    assert_eq!(host.inner(), expected);
    assert!(host.registered());
}

#[test]
fn an_anchor_can_give_a_host_an_address_of_somebody_on_the_internet() {
    let (host, _) = registered_with(&["1.1.1.1"]);
    assert_eq!(host.inner(), ["1.1.1.1".parse::<IpAddr>().unwrap()]);
    assert!(host.registered());
}

/// An anchor whose datapath measures, with one path of one host.
fn anchor_that_reads() -> (Anchor, u32) {
    let config = AnchorConfig { measured_by: MeasuredBy::PacketPath, ..anchor_config() };
    let mut anchor = Anchor::new(config, [3; 32]);
    let (conn, version) = (ConnId(1), SIGNAL_VERSION);
    for input in [
        AnchorInput::Connected { conn, host: "mallory".into() },
        AnchorInput::Signal { conn, message: FromHost::Register { version, epoch: 1 } },
        AnchorInput::Signal { conn, message: FromHost::AddPath(offer(0)) },
    ] {
        anchor.handle(Time(1), input.into());
        while anchor.poll().is_some() {}
    }
    let slot = anchor.paths().next().unwrap().0;
    (anchor, slot)
}

#[test]
fn a_stated_period_below_the_least_does_not_make_the_anchor_work_more() {
    let (mut anchor, slot) = anchor_that_reads();
    for (n, stated, counts_as) in
        [(1, Some(ms(1)), ms(5)), (2, Some(ms(7)), ms(7)), (3, None, ms(60))]
    {
        let at = Time(0) + ms(100) * u64::from(n);
        let reading = Reading {
            at,
            sent: n,
            rode: 0,
            last_sent: Some(at),
            received: n,
            last_received: Some(at),
            last_heard: None,
            watched: None,
            traffic: Default::default(),
            run: 1,
            k: 1,
            t_ka: stated,
            estimates: Estimates::default(),
        };
        anchor.handle(at, AnchorInput::Reading(slot, Box::new(reading)).into());
        assert_eq!(anchor.path(slot).unwrap().keepalive(), (1, counts_as), "{stated:?}");
        let told: Vec<_> = core::iter::from_fn(|| anchor.poll())
            .filter_map(|output| match output {
                Output::Order(Order::SetPath(_, setup)) => Some(setup.probing.t_ka),
                _ => None,
            })
            .collect();
        assert_eq!(told, [counts_as], "{stated:?}");
        assert!(anchor.deadline().is_some_and(|(due, _)| due >= at + counts_as), "{stated:?}");
    }
}

/// Index, cookie and key of each grant by the anchor, in order.
fn grants(stage: &Stage) -> Vec<(u32, u64, [u8; 16])> {
    let grant = |message: &FromAnchor| match message {
        FromAnchor::PathReady(grant) => Some((grant.index, grant.cookie, grant.key)),
        _ => None,
    };
    stage.said().iter().filter_map(grant).collect()
}

#[test]
fn each_set_up_of_a_path_has_new_secrets() {
    let (mut stage, host) = Stage::two_paths(5, host_config(3, 60));
    // The interface goes and returns; then the anchor restarts.
    for present in [false, true] {
        stage.set_present(host, "wifi", present);
        stage.run_for(secs(2));
    }
    stage.restart_anchor();
    stage.run_for(secs(20));
    let granted = grants(&stage);
    assert!(granted.len() >= 5, "{granted:?}");
    for (n, (_, cookie, key)) in granted.iter().enumerate() {
        for (_, other_cookie, other_key) in &granted[..n] {
            assert!(cookie != other_cookie && key != other_key, "{granted:?}");
        }
    }
}

#[test]
fn false_heard_words_move_nobody_elses_downlink() {
    let (mut stage, alice) = Stage::two_paths(4, host_config(3, 60));
    let voice = stage.add_voice(alice);
    stage.run_for(secs(1));
    stage.reset_streams();
    let conn = stage.open("mallory");
    stage.say(conn, FromHost::Register { version: SIGNAL_VERSION, epoch: 1 });
    let grants = [0, 1].map(|path| match stage.say(conn, FromHost::AddPath(offer(path))).pop() {
        Some(FromAnchor::PathReady(grant)) => grant,
        other => panic!("{other:?}"),
    });
    let from = SocketAddr::from(([192, 0, 2, 1], 5005));
    let mut moved = 0;
    for n in 0..200u32 {
        // The host claims to hear none of its paths, all possible paths, or one of the two.
        let heard = [0, u16::MAX, 1, 2][n as usize % 4];
        let grant = &grants[n as usize % 2];
        let (seq, t_sc) = (1 + n, 2_000_000_000 + n * 10_000);
        let probe = Probe { seq, t_sc, heard, t_ka_ms: 60, ..Probe::default() };
        let request = Body::Probe {
            kind: ProbeKind::Request,
            k: 3,
            report: false,
            question: false,
            age: 0,
            probe,
            key: ProbeKey(grant.key),
        };
        let request = Message { index: grant.index, cookie: grant.cookie, body: request };
        let arrived = stage
            .at_anchor_end(|end, now, effects| end.receive(now, from, ANCHOR, request, effects));
        assert_eq!(arrived, Arrived::Probe);
        let anchor = &stage.anchor().end().machine;
        for (slot, path) in anchor.paths() {
            let whose = anchor.host_name(path.owner).unwrap();
            assert!(path.via().is_none() || whose == "mallory", "slot {slot}");
            moved += usize::from(path.via().is_some());
        }
        stage.run_for(ms(10));
    }
    assert!(moved > 0, "the words are looked at");
    stage.stop_apps();
    let app = &stage.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
    assert_eq!(app.down.count_over("wifi"), app.down.received);
}

#[test]
fn a_grant_that_nobody_asked_for_changes_nothing() {
    let (mut stage, host) = Stage::two_paths(4, host_config(3, 60));
    let slots = |stage: &Stage| stage.host(host).end().datapath.slots().collect::<Vec<_>>();
    let before = slots(&stage);
    assert_eq!(before.len(), 2);
    for path in 2..=u8::MAX {
        let grant = PathGrant {
            path,
            index: 7,
            cookie: 7,
            key: [7; 16],
            mode: segue_wire::Mode::Both,
            rides: false,
            encapsulation: segue_wire::Encapsulation::Segue,
            checksums: false,
        };
        stage.tell_host(host, HostInput::Signal(FromAnchor::PathReady(grant)));
        let refused = FromAnchor::PathRefused { path, reason: Refusal::NoPath };
        stage.tell_host(host, HostInput::Signal(refused));
    }
    assert_eq!(slots(&stage), before);
    assert_eq!(stage.host(host).end().machine.paths().count(), 2);
    let voice = stage.add_voice(host);
    stage.run_for(secs(2));
    stage.stop_apps();
    let app = &stage.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
}
