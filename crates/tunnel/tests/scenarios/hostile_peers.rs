//! Peers that have keys and lie.

use core::net::IpAddr;
use std::convert::Infallible;

use segue_clock::{Machine, Time};
use segue_ip::Input;
use segue_ip::Interface;
use segue_ip::Output::Own;
use segue_keepalive::{Arrival, Estimates, MeasuredBy, Reading};
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, ConnId, Host, HostInput, HostOutput, Order, Output,
    ProbeEvent, ProbeKind, Report,
};
use segue_wire::Probe;
use segue_wire::signal::{
    FromAnchor, FromHost, MAX_NAME, PathGrant, PathOffer, Refusal, SIGNAL_VERSION,
};

use crate::net::{Net, anchor_config, host_config, ms, secs};

#[test]
fn a_paths_name_cannot_write_on_the_operators_terminal() {
    let mut net = Net::new(1);
    let host = net.add_host("alice", host_config(3, 60));
    net.add_link(host, "wifi", ms(10));
    net.announce(host);
    net.enrolled.insert("mallory".into());
    let conn = net.open(host, "wifi", "mallory");
    let version = SIGNAL_VERSION;
    net.tell_anchor(segue_tunnel::AnchorInput::Signal {
        conn,
        message: FromHost::Register { version, epoch: 1 },
    });
    let colour = "\u{1b}[31mwifi";
    let reversed = "\u{202e}ifiw\u{2066}";
    let long = "x".repeat(4_000);
    for (path, name) in [(0, colour), (1, reversed), (2, &long), (3, "\u{9b}2J\n")] {
        let offer = |cookie| {
            let name = name.into();
            let index = u32::from(path);
            FromHost::AddPath(PathOffer {
                path,
                name,
                index,
                cookie,
                k: 3,
                t_ka_ms: 60,
                mode: segue_wire::Mode::Both,
                rides: false,
                encapsulation: segue_wire::Encapsulation::Segue,
                n: 10,
                taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
                follows_use: false,
                largest: 1_456,
            })
        };
        // Offered, offered again as it stands, and replaced.
        for cookie in [1, 1, 2] {
            let message = offer(cookie);
            net.tell_anchor(segue_tunnel::AnchorInput::Signal { conn, message });
            let (_, shown) = net.anchor.machine.paths().find(|(_, p)| p.number == path).unwrap();
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
    let offer = FromHost::AddPath(PathOffer {
        path: 0,
        name: "wifi".into(),
        index: 0,
        cookie: 7,
        k: 3,
        t_ka_ms: 60,
        mode: segue_wire::Mode::Both,
        rides: false,
        encapsulation: segue_wire::Encapsulation::Segue,
        n: 10,
        taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
        follows_use: false,
        largest: 1_456,
    });
    for input in [
        AnchorInput::Connected { conn, host: "mallory".into() },
        AnchorInput::Signal { conn, message: FromHost::Register { version, epoch: 1 } },
        AnchorInput::Signal { conn, message: offer },
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
        anchor.handle(at, AnchorInput::Reading(slot, reading).into());
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

/// What the anchor has granted, in order: index, cookie, key.
fn grants(net: &Net) -> Vec<(u32, u64, [u8; 16])> {
    let grant = |(_, message): &(ConnId, FromAnchor)| match message {
        FromAnchor::PathReady(grant) => Some((grant.index, grant.cookie, grant.key)),
        _ => None,
    };
    net.said.iter().filter_map(grant).collect()
}

#[test]
fn each_set_up_of_a_path_has_new_secrets() {
    let mut net = Net::new(5);
    let host = net.add_host("alice", host_config(3, 60));
    net.add_link(host, "wifi", ms(10));
    net.add_link(host, "lte", ms(30));
    net.announce(host);
    net.run_for(secs(2));
    // The interface goes and comes back; then the anchor starts again.
    for present in [false, true] {
        net.link(host, "wifi").present = present;
        net.announce(host);
        net.run_for(secs(2));
    }
    net.restart_anchor();
    net.run_for(secs(20));
    let granted = grants(&net);
    assert!(granted.len() >= 5, "{granted:?}");
    for (n, (_, cookie, key)) in granted.iter().enumerate() {
        for (_, other_cookie, other_key) in &granted[..n] {
            assert!(cookie != other_cookie && key != other_key, "{granted:?}");
        }
    }
}

#[test]
fn false_heard_words_move_nobody_elses_downlink() {
    let (mut net, alice) = Net::two_paths(4, host_config(3, 60));
    let mallory = net.add_host("mallory", host_config(3, 60));
    net.add_link(mallory, "wifi", ms(10));
    net.add_link(mallory, "lte", ms(30));
    net.announce(mallory);
    net.run_for(secs(2));
    let voice = net.add_voice(alice);
    net.run_for(secs(1));
    net.reset_streams();
    let slots: Vec<(u32, String)> = net
        .anchor
        .machine
        .paths()
        .filter(|(_, path)| net.anchor.machine.host_name(path.owner) == Some("mallory"))
        .map(|(slot, path)| (slot, path.name.clone()))
        .collect();
    assert_eq!(slots.len(), 2);
    let mut moved = 0;
    for n in 0..200u32 {
        // That it hears none of its paths, all that there could be, or one of the two.
        let heard = [0, u16::MAX, 1, 2][n as usize % 4];
        let slot = slots[n as usize % 2].0;
        let now = net.now;
        let probe = Probe {
            seq: 1_000_000 + n,
            t_sc: 2_000_000_000 + n * 10_000,
            heard,
            t_ka_ms: 60,
            ..Probe::default()
        };
        let arrival = Arrival::new(probe, now, n);
        let kind = ProbeKind::Request;
        net.tell_anchor(AnchorInput::Probe(ProbeEvent {
            slot,
            kind,
            k: 3,
            report: false,
            age: 0,
            arrival,
            remote: ([192, 0, 2, 1], 5005).into(),
            kernel_stamp: true,
        }));
        for (slot, path) in net.anchor.machine.paths() {
            let whose = net.anchor.machine.host_name(path.owner).unwrap();
            assert!(path.via().is_none() || whose == "mallory", "slot {slot}");
            moved += usize::from(path.via().is_some());
        }
        net.run_for(ms(10));
    }
    assert!(moved > 0, "the words are looked at");
    net.stop_apps();
    let app = &net.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
    assert_eq!(app.down.count_over("wifi"), app.down.received);
}

#[test]
fn a_grant_that_nobody_asked_for_changes_nothing() {
    let (mut net, host) = Net::two_paths(4, host_config(3, 60));
    let slots = |net: &Net| net.hosts[host].end.datapath.slots().collect::<Vec<_>>();
    let before = slots(&net);
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
        };
        net.tell_host(host, HostInput::Signal(FromAnchor::PathReady(grant)));
        let refused = FromAnchor::PathRefused { path, reason: Refusal::NoPath };
        net.tell_host(host, HostInput::Signal(refused));
    }
    assert_eq!(slots(&net), before);
    assert_eq!(net.hosts[host].end.machine.paths().count(), 2);
    let voice = net.add_voice(host);
    net.run_for(secs(2));
    net.stop_apps();
    let app = &net.apps[voice];
    assert_eq!((app.up.sent, app.down.sent), (app.up.received, app.down.received));
}
