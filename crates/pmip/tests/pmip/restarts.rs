//! Restarts, heartbeats and revocations.

use std::net::Ipv6Addr;

use segue_clock::Span;
use segue_ip::{Datagram, Input, Prefix};
use segue_pmip::{Allowed, Lma, LmaConfig, LmaInput, Mag, MagConfig, Report};
use segue_wire::mobility::{Body, HeartbeatFlags, Profile};

use crate::domain::*;

fn restart_lma(domain: &mut Domain, records: bool) {
    restart_lma_of(domain, lma_config(), records);
}

fn restart_lma_of(domain: &mut Domain, config: LmaConfig, records: bool) {
    domain.lma = Lma::new(LmaConfig {
        restart_counter: 2,
        clock: segue_clock::DayClock::new(
            domain.now,
            DAY + domain.now.since(segue_clock::Time::ZERO),
        ),
        ..config
    });
    domain.given[0] = Given::default();
    if records {
        for record in domain.stored.clone().into_values() {
            domain.at_lma(Input::Record(record));
        }
    }
    domain.at_lma(Input::Interfaces(Vec::new()));
}

#[test]
fn an_anchor_that_starts_anew_has_its_bindings_and_gateways_register_again() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let before = domain.given[0].0.len();
    let prefixes = [domain.prefix(0, &station(1)), domain.prefix(1, &station(2))];
    domain.run(s(100.0));
    domain.log.clear();
    restart_lma(&mut domain, true);
    assert_eq!(domain.given[0].0.len(), before, "it carries as before, at once");
    assert_eq!(domain.leads(prefixes[0]), Some(mag(0).into()));
    domain.run(s(100.1));
    for n in 0..2 {
        assert_eq!(
            domain.sent_by(mag(n), is_update).len(),
            1,
            "the counter says that it is another"
        );
    }
    assert!(domain.reports.contains(&Report::Restarted { peer: LMA.into() }));
    assert_eq!(domain.prefix(1, &station(2)), prefixes[1]);
    assert_eq!(domain.lma.sessions().count(), 2);
    // A third host gets another prefix.
    domain.attach(0, station(3));
    domain.run(s(101.0));
    assert!(!prefixes.contains(&domain.prefix(0, &station(3))));
}

#[test]
fn a_prefix_at_rest_rests_over_a_restart() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.detach(0, station(1));
    domain.run(s(20.0));
    restart_lma(&mut domain, true);
    domain.attach(0, station(2));
    domain.attach(0, station(1));
    domain.run(s(21.0));
    assert_eq!(domain.prefix(0, &station(1)), prefix);
    assert_ne!(domain.prefix(0, &station(2)), prefix);
}

#[test]
fn an_anchor_that_has_lost_everything_gives_hosts_their_prefixes_again() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(1.0));
    let prefixes = [1, 2].map(|n| domain.prefix(0, &station(n)));
    restart_lma(&mut domain, false);
    // The anchor knows no gateway to greet, and no host sends: the gateway's next heartbeat, within 30 s, reveals the
    // restart.
    domain.run(s(31.5));
    assert_eq!([1, 2].map(|n| domain.prefix(0, &station(n))), prefixes);
    assert_eq!(domain.leads(prefixes[0]), Some(mag(0).into()));
}

/// A host's packet in a tunnel.
fn packet(from: Ipv6Addr) -> Datagram {
    let (from, to) = ((from.into(), 0), (LMA.into(), 0));
    let bytes = vec![0x60; 48];
    Datagram { waited_ns: 0, interface: None, from, to, protocol: 41, hop_limit: 64, bytes }
}

fn is_beat(body: &Body) -> bool {
    matches!(body, Body::Heartbeat(_))
}

#[test]
fn an_anchor_that_has_lost_everything_greets_gateways_that_send_hosts_packets() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(2.0));
    let prefixes = [domain.prefix(0, &station(1)), domain.prefix(1, &station(2))];
    restart_lma(&mut domain, false);
    domain.log.clear();
    for _ in 0..100 {
        domain.at_lma(Input::Datagram(packet(mag(0))));
    }
    let stranger = "2001:db8:ffff::1".parse().unwrap();
    domain.at_lma(Input::Datagram(packet(stranger)));
    assert_eq!((domain.refused("no_binding"), domain.refused("stranger")), (100, 1));
    assert_eq!(domain.sent_by(LMA, is_beat).len(), 1, "one greeting, and none to the stranger");
    domain.run(s(2.5));
    assert_eq!(domain.leads(prefixes[0]), Some(mag(0).into()));
    assert_eq!(domain.leads(prefixes[1]), None, "the other gateway has not been heard");
    domain.run(s(4.0));
    domain.log.clear();
    domain.at_lma(Input::Datagram(packet(mag(0))));
    assert_eq!(domain.sent_by(LMA, is_beat).len(), 0, "a gateway with bindings knows");
    // A gateway without bindings is greeted once a second; nothing else changes.
    domain.at_lma(Input::Datagram(packet(mag(5))));
    domain.at_lma(Input::Datagram(packet(mag(5))));
    assert_eq!(domain.sent_by(LMA, is_beat).len(), 1);
    domain.run(s(5.1));
    domain.at_lma(Input::Datagram(packet(mag(5))));
    assert_eq!(domain.sent_by(LMA, is_beat).len(), 2);
}

#[test]
fn an_anchor_that_has_lost_everything_greets_gateways_that_it_is_configured_with() {
    let config = || LmaConfig {
        gateways: [0, 1]
            .map(|n| Allowed { prefix: Prefix::host(mag(n)), profile: Profile::STRICT })
            .to_vec(),
        ..lma_config()
    };
    let mut domain = Domain::of(config(), vec![mag_config(0), mag_config(1)]);
    domain.attach(0, station(1));
    domain.run(s(2.0));
    let prefix = domain.prefix(0, &station(1));
    restart_lma_of(&mut domain, config(), false);
    domain.run(s(3.5));
    assert_eq!(domain.leads(prefix), Some(mag(0).into()));
    assert!(domain.reports.contains(&Report::Restarted { peer: LMA.into() }));
    assert!(domain.mags[1].refused().is_empty(), "it has no hosts, and was greeted");
}

#[test]
fn a_gateway_that_renews_what_its_anchor_has_forgotten_registers_all_of_its_hosts() {
    let mut config = mag_config(0);
    config.lifetime.shortest = Span::from_secs(8);
    config.lifetime.first = Span::from_secs(12);
    let mut domain = Domain::of(lma_config(), vec![config]);
    domain.attach(0, station(1));
    domain.run(s(5.0));
    domain.attach(0, station(2));
    domain.run(s(6.0));
    let prefixes = [1, 2].map(|n| domain.prefix(0, &station(n)));
    domain.log.clear();
    restart_lma(&mut domain, false);
    let renewed = |domain: &Domain| domain.sent_by(mag(0), is_update).first().map(|(at, _)| *at);
    while renewed(&domain).is_none() {
        let next = domain.now + Span::from_millis(100);
        assert!(next < s(30.0), "before a heartbeat");
        domain.run(next);
    }
    domain.run(renewed(&domain).unwrap() + Span::from_secs(1));
    assert_eq!(prefixes.map(|prefix| domain.leads(prefix)), [Some(mag(0).into()); 2]);
    let greetings = domain.sent_by(LMA, |body| {
        matches!(body, Body::Heartbeat(beat) if beat.flags.contains(HeartbeatFlags::UNSOLICITED))
    });
    assert_eq!(greetings.len(), 1);
}

#[test]
fn a_gateway_that_starts_anew_serves_its_hosts_and_registers_them_again() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(100.0));
    let prefixes = [1, 2].map(|n| domain.prefix(0, &station(n)));
    domain.log.clear();
    domain.mags[0] = Mag::new(MagConfig {
        restart_counter: 2,
        seed: 9,
        clock: segue_clock::DayClock::new(
            domain.now,
            DAY + domain.now.since(segue_clock::Time::ZERO),
        ),
        ..mag_config(0)
    });
    domain.given[1] = Given::default();
    for record in domain.stored_at_mags[0].clone().into_values() {
        domain.at_mag(0, Input::Record(record));
    }
    domain.has_link(0);
    assert_eq!([1, 2].map(|n| domain.prefix(0, &station(n))), prefixes);
    domain.run(s(100.1));
    assert_eq!(domain.sent_by(mag(0), is_update).len(), 2);
    assert_eq!([1, 2].map(|n| domain.prefix(0, &station(n))), prefixes);
    // Both hosts leave: no forwarding state remains, not even the tunnel.
    domain.detach(0, station(1));
    domain.detach(0, station(2));
    domain.run(s(102.0));
    assert_eq!(domain.given[1].0.len(), 2, "what the link has: {:?}", domain.given[1].0);
    assert!(domain.stored_at_mags[0].values().all(|record| record.stored.is_none()));
}

#[test]
fn silence_of_the_other_end_is_told_once_and_its_return_too() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(40.0));
    let beats = |domain: &Domain, from| {
        domain.sent_by(from, |body| matches!(body, Body::Heartbeat(_))).len()
    };
    assert_eq!(
        [beats(&domain, LMA), beats(&domain, mag(0))],
        [4, 4],
        "two requests and two responses"
    );
    domain.cut = true;
    domain.run(s(400.0));
    let silent = |peer: Ipv6Addr| Report::Silent { peer: peer.into() };
    for peer in [LMA, mag(0)] {
        assert_eq!(domain.reports.iter().filter(|r| **r == silent(peer)).count(), 1);
    }
    domain.cut = false;
    domain.run(s(500.0));
    for peer in [LMA, mag(0)] {
        assert!(domain.reports.contains(&Report::Answers { peer: peer.into() }));
    }
}

#[test]
fn a_revoked_host_is_served_no_more_even_if_its_gateway_does_not_answer() {
    for answers in [true, false] {
        let mut domain = Domain::new(1);
        domain.attach(0, station(1));
        domain.attach(0, station(2));
        domain.run(s(1.0));
        let other = domain.prefix(0, &station(2));
        domain.cut = !answers;
        domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
        domain.run(s(1.1));
        assert_eq!(domain.prefixes(0, &station(1)).is_empty(), answers);
        assert_eq!(domain.lma.sessions().count(), if answers { 1 } else { 2 });
        domain.run(s(5.0));
        let sent = domain.sent_by(LMA, |body| matches!(body, Body::BindingRevocation(_)));
        assert_eq!(sent.len(), if answers { 1 } else { 2 }, "it is repeated once");
        assert_eq!(domain.lma.sessions().count(), 1);
        assert_eq!(domain.leads(other), Some(mag(0).into()));
    }
}
