//! Hosts that the driver identifies or authorizes.

use segue_ip::Input;
use segue_pmip::{
    Authorization, Identities, Identity, LmaConfig, LmaInput, LmaWish, MagConfig, MagInput, NodeId,
    Report, StationState, Why, Wish,
};
use segue_wire::mobility::{Body, Status};

use crate::domain::*;

/// An anchor that authorizes hosts, and a gateway that knows them.
fn asking() -> Domain {
    let config = LmaConfig { authorize: true, ..lma_config() };
    Domain::of(config, vec![mag_config(0), mag_config(1)])
}

fn says(domain: &mut Domain, n: u8, verdict: Authorization) {
    let (node, link_layer) = (node(n), station(n));
    domain.at_lma(Input::Own(LmaInput::Authorized { node, link_layer, verdict }));
}

/// The hosts whose authorization the anchor requested.
fn asked(domain: &Domain) -> Vec<NodeId> {
    let all = domain.wishes.iter().filter_map(|wish| match wish {
        LmaWish::Authorize { node, .. } => Some(node.clone()),
        _ => None,
    });
    all.collect()
}

/// The statuses of the anchor's answers.
fn statuses(domain: &Domain) -> Vec<Status> {
    let all = domain.sent_by(LMA, is_acknowledgement);
    let status = |body: &Body| match body {
        Body::BindingAcknowledgement(answer) => answer.status,
        other => panic!("{other:?}"),
    };
    all.iter().map(|(_, message)| status(&message.body)).collect()
}

#[test]
fn a_registration_waits_until_its_host_may_be_registered_and_renewals_do_not() {
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(0.5));
    assert_eq!((asked(&domain), statuses(&domain)), (vec![node(1)], vec![]));
    assert_eq!(domain.lma.sessions().count(), 0);
    let home = "2001:db8:0:77::/64".parse().unwrap();
    says(&mut domain, 1, Authorization::Allowed(vec![home]));
    domain.run(s(0.6));
    assert_eq!(domain.prefix(0, &station(1)), home);
    let bound =
        |wish: &&LmaWish| matches!(wish, LmaWish::Bound { prefixes, .. } if *prefixes == [home]);
    assert_eq!(domain.wishes.iter().filter(bound).count(), 1);
    // The binding survives renewals and a handover.
    domain.run(s(900.0));
    domain.detach(0, station(1));
    domain.attach(1, station(1));
    domain.run(s(901.0));
    assert_eq!(domain.prefix(1, &station(1)), home);
    assert_eq!(asked(&domain), [node(1)], "a binding that is there is asked about by nobody");
}

#[test]
fn a_gateway_that_repeats_itself_has_the_driver_asked_once_and_its_last_word_answered() {
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(7.5));
    let updates = domain.sent_by(mag(0), is_update).len();
    assert_eq!((updates, asked(&domain).len()), (4, 1));
    says(&mut domain, 1, Authorization::Allowed(vec![]));
    domain.run(s(8.0));
    assert_eq!(statuses(&domain), [Status::ACCEPTED]);
    assert_eq!(domain.mags[0].stations().next().unwrap().2.state, StationState::Active);
}

#[test]
fn a_host_that_may_not_be_registered_is_refused_with_the_standards_status() {
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(0.1));
    says(&mut domain, 1, Authorization::Refused);
    domain.run(s(60.0));
    assert_eq!(statuses(&domain), [Status::PROXY_REG_NOT_ENABLED]);
    assert_eq!(domain.lma.sessions().count(), 0);
    assert!(domain.mags[0].stations().next().is_none(), "the gateway has let it go");
    let name = Status::PROXY_REG_NOT_ENABLED.name().unwrap();
    assert_eq!(domain.refused(name), 1);
}

#[test]
fn without_a_verdict_there_is_no_answer_and_the_next_repetition_asks_again() {
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(0.1));
    says(&mut domain, 1, Authorization::Unanswered);
    assert_eq!((statuses(&domain), domain.refused("unanswered")), (vec![], 1));
    domain.run(s(1.5));
    assert_eq!(asked(&domain).len(), 2);
    says(&mut domain, 1, Authorization::Allowed(vec![]));
    domain.run(s(1.6));
    assert_eq!(statuses(&domain), [Status::ACCEPTED]);
}

#[test]
fn a_binding_that_is_not_allowed_any_more_is_revoked_and_no_other_of_its_host() {
    let alice = NodeId::nai("alice@example.org");
    let identity = Identity { node: alice.clone(), anchor: None, prefixes: vec![] };
    let known = [1, 2].map(|n| (station(n), identity.clone())).into();
    let identities = Some(Identities { known, realm: None });
    let mags = [0, 1].map(|n| MagConfig { identities: identities.clone(), ..mag_config(n) });
    let mut domain = Domain::of(LmaConfig { authorize: true, ..lma_config() }, mags.into());
    let says = |domain: &mut Domain, n: u8, verdict| {
        let (node, link_layer) = (alice.clone(), station(n));
        domain.at_lma(Input::Own(LmaInput::Authorized { node, link_layer, verdict }));
    };
    for n in [1, 2] {
        domain.attach(usize::from(n) - 1, station(n));
        domain.run(domain.now + segue_clock::Span::from_millis(50));
        says(&mut domain, n, Authorization::Allowed(vec![]));
    }
    domain.run(s(1.0));
    assert_eq!(domain.lma.sessions().count(), 2);
    says(&mut domain, 1, Authorization::Unanswered);
    says(&mut domain, 1, Authorization::Allowed(vec![]));
    domain.run(s(2.0));
    assert_eq!(domain.lma.sessions().count(), 2, "neither ends anything");
    says(&mut domain, 1, Authorization::Refused);
    domain.run(s(3.0));
    let left: Vec<_> = domain.lma.sessions().map(|(.., at)| at.link_layer.clone()).collect();
    assert_eq!(left, [station(2)]);
    let unbound = |wish: &LmaWish| matches!(wish, LmaWish::Unbound { link_layer, .. } if *link_layer == station(1));
    assert!(domain.wishes.iter().any(unbound));
}

#[test]
fn strangers_and_hosts_that_have_left_are_not_asked_about() {
    let mut domain = asking();
    domain.lma =
        segue_pmip::Lma::new(LmaConfig { gateways: vec![], authorize: true, ..lma_config() });
    domain.at_lma(Input::Interfaces(Vec::new()));
    domain.attach(0, station(1));
    domain.run(s(0.1));
    assert_eq!(asked(&domain), []);
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(0.1));
    domain.detach(0, station(1));
    domain.run(s(0.5));
    says(&mut domain, 1, Authorization::Allowed(vec![]));
    assert_eq!((domain.lma.sessions().count(), statuses(&domain)), (0, vec![]));
}

#[test]
fn what_a_registration_lacks_is_told_after_its_host_was_allowed() {
    let mut domain = asking();
    domain.attach(0, station(1));
    domain.run(s(0.1));
    // This prefix is not from the pool.
    says(&mut domain, 1, Authorization::Allowed(vec!["2001:db8:ffff:1::/64".parse().unwrap()]));
    domain.run(s(0.2));
    assert_eq!(statuses(&domain), [Status::NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX]);
    let unbound = |wish: &LmaWish| matches!(wish, LmaWish::Unbound { why: Why::Refused, .. });
    assert!(domain.wishes.iter().any(unbound), "whoever was asked is told that nothing came of it");
}

/// A gateway whose driver identifies hosts.
fn told() -> Domain {
    Domain::of(lma_config(), vec![MagConfig { identities: None, ..mag_config(0) }])
}

fn identity(name: &str) -> Option<Identity> {
    Some(Identity { node: NodeId::nai(name), anchor: None, prefixes: vec![] })
}

fn identified(domain: &mut Domain, identity: Option<Identity>) {
    let (interface, station) = (LINK, station(1));
    domain.at_mag(0, Input::Own(MagInput::Identified { interface, station, identity }));
}

#[test]
fn a_gateway_asks_who_a_host_is_and_tells_how_long_it_is_served() {
    let mut domain = told();
    domain.attach(0, station(1));
    domain.attach(0, station(1));
    domain.run(s(0.5));
    let (interface, station) = (LINK, station(1));
    let identify = Wish::Identify { interface, station: station.clone() };
    assert_eq!(domain.asked, [(0, identify)], "once");
    assert!(domain.log.is_empty(), "nobody is registered meanwhile");
    identified(&mut domain, identity("alice@example.org"));
    domain.run(s(1.0));
    let began = Wish::Began { interface, station: station.clone() };
    assert_eq!(domain.asked[1..], [(0, began)]);
    assert_eq!(domain.mags[0].station(LINK, &station).unwrap().1.state, StationState::Active);
    // The same identity changes nothing; another identity, or none, ends the service.
    identified(&mut domain, identity("alice@example.org"));
    domain.run(s(1.5));
    assert_eq!(domain.asked.len(), 2);
    identified(&mut domain, identity("mallory@example.org"));
    domain.run(s(2.0));
    let ended = Wish::Ended { interface, station: station.clone(), why: Why::Unauthorized };
    assert_eq!(domain.asked[2], (0, ended));
    let left = |report: &&Report| matches!(report, Report::Left { why: Why::Unauthorized, .. });
    assert_eq!(domain.reports.iter().filter(left).count(), 1);
    assert!(domain.mags[0].station(LINK, &station).is_none(), "deregistered, and confirmed");
    let session = domain.lma.sessions().next().unwrap().3.state;
    assert_eq!(session, segue_pmip::SessionState::Leaving);
}

#[test]
fn a_host_that_may_not_be_served_is_forgotten_and_asked_about_when_it_is_heard_again() {
    let mut domain = told();
    domain.attach(0, station(1));
    identified(&mut domain, None);
    domain.run(s(1.0));
    assert!(domain.log.is_empty() && domain.mags[0].stations().next().is_none());
    domain.attach(0, station(1));
    let identify = |(_, wish): &&(usize, Wish)| matches!(wish, Wish::Identify { .. });
    assert_eq!(domain.asked.iter().filter(identify).count(), 2);
}

#[test]
fn a_host_of_an_earlier_start_is_served_and_told_of() {
    let mut domain = told();
    domain.attach(0, station(1));
    identified(&mut domain, identity("alice@example.org"));
    domain.run(s(1.0));
    let records = std::mem::take(&mut domain.stored_at_mags[0]);
    let mut domain = told();
    domain.mags[0] = segue_pmip::Mag::new(MagConfig { identities: None, ..mag_config(0) });
    records.into_values().for_each(|record| domain.at_mag(0, Input::Record(record)));
    domain.has_link(0);
    let began = Wish::Began { interface: LINK, station: station(1) };
    assert_eq!(domain.asked, [(0, began)]);
    identified(&mut domain, None);
    assert!(domain.mags[0].served_at(LINK).next().is_none(), "unless it may not be any more");
}
