//! Starts anew, heartbeats, and revocations.

use std::net::Ipv6Addr;

use segue_ip::Input;
use segue_pmip::{Lma, LmaConfig, LmaInput, Mag, MagConfig, Report};
use segue_wire::mobility::Body;

use crate::domain::*;

fn restart_lma(domain: &mut Domain, records: bool) {
    domain.lma = Lma::new(LmaConfig {
        restart_counter: 2,
        clock: segue_clock::DayClock::new(
            domain.now,
            DAY + domain.now.since(segue_clock::Time::ZERO),
        ),
        ..lma_config()
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
    // A third host gets none of theirs.
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
    // It knows no gateway that it could tell: the gateway asks within a minute.
    domain.run(s(140.0));
    assert_eq!([1, 2].map(|n| domain.prefix(0, &station(n))), prefixes);
    assert_eq!(domain.leads(prefixes[0]), Some(mag(0).into()));
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
    // Both leave: nothing is left, of the tunnel either.
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
    domain.run(s(70.0));
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
