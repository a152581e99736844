//! Signalling and hosts' packets over IPv4 (RFC 5844), with and without a NAT.

use std::net::{IpAddr, Ipv4Addr};

use segue_ip::{Datagram, Form, Input, Tunnel};
use segue_pmip::{
    Allowed, DATA_PORT, Encapsulation, Lma, LmaConfig, MagConfig, PeerAddress, Report,
    SIGNALLING_PORT,
};
use segue_wire::mobility::option::{NatDetection, NatDetectionFlags};
use segue_wire::mobility::{Body, Message, MobilityOption, Profile, Status};

use crate::domain::*;

fn allowed(text: &str) -> Allowed {
    Allowed { prefix: text.parse().unwrap(), profile: Profile::STRICT }
}

fn anchor() -> LmaConfig {
    let gateways = vec![allowed("10.0.0.0/24"), allowed("198.51.100.9/32")];
    LmaConfig { address: LMA_V4.into(), gateways, ..lma_config() }
}

pub(crate) fn gateway(n: usize) -> MagConfig {
    let mut config = mag_config(n);
    config.anchor = LMA_V4.into();
    config.accesses[0].proxy_coa = mag_v4(n).into();
    config
}

fn domain(gateways: usize) -> Domain {
    Domain::of(anchor(), (0..gateways).map(gateway).collect())
}

/// Restarts the anchor with its stored records.
fn restart_anchor(domain: &mut Domain) {
    domain.given[0] = Given::default();
    let records: Vec<_> = domain.stored.values().cloned().collect();
    domain.lma = Lma::new(LmaConfig { restart_counter: 2, ..anchor() });
    records.into_iter().for_each(|record| domain.at_lma(Input::Record(record)));
    domain.at_lma(Input::Interfaces(Vec::new()));
}

/// The tunnels of a node: local and remote address, and form.
fn tunnels(domain: &Domain, node: usize) -> Vec<(IpAddr, IpAddr, Form)> {
    let all = domain.given[node].0.iter().filter_map(|part| match part {
        segue_ip::Forward::Tunnel(Tunnel { local, remote, form, .. }) => {
            Some((*local, *remote, *form))
        }
        _ => None,
    });
    all.collect()
}

fn v4(address: Ipv4Addr) -> IpAddr {
    address.into()
}

fn in_udp(remote: u16) -> Form {
    Form::Udp { local: DATA_PORT, remote }
}

/// The NAT's port for a gateway's port.
fn port_of(domain: &Domain, gateway: usize, own: u16) -> u16 {
    let inside = (v4(mag_v4(gateway)), own);
    let found = domain.nat.as_ref().unwrap().iter().find(|(_, of)| **of == inside);
    *found.unwrap().0
}

fn detected(message: &Message) -> Option<&NatDetection> {
    message.options.iter().find_map(|option| match option {
        MobilityOption::NatDetection(nat) => Some(nat),
        _ => None,
    })
}

fn is_udp(datagram: &Datagram) -> bool {
    let ports = [datagram.from.1, datagram.to.1];
    datagram.protocol == 17 && ports == [SIGNALLING_PORT; 2] && datagram.bytes[4..6] == [0, 0]
}

#[test]
fn messages_are_in_udp_and_packets_in_ipv4_and_a_host_keeps_its_prefix_when_it_moves() {
    let mut domain = domain(2);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    assert_eq!(domain.leads(prefix), Some(v4(mag_v4(0))));
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(mag_v4(0)), Form::Ip)]);
    assert_eq!(tunnels(&domain, 1), [(v4(mag_v4(0)), v4(LMA_V4), Form::Ip)]);
    domain.attach(1, station(1));
    domain.run(s(90.0));
    assert_eq!(domain.prefix(1, &station(1)), prefix);
    assert_eq!(domain.prefixes(0, &station(1)), [], "it was told that the host is elsewhere");
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(mag_v4(1)), Form::Ip)]);
    assert_eq!(tunnels(&domain, 1), []);
    assert!(domain.packets.iter().all(is_udp), "{:?}", domain.packets);
    let answers = domain.sent_by(LMA_V4.to_ipv6_mapped(), is_acknowledgement);
    assert!(answers.iter().all(|(_, message)| detected(message).is_none()));
    // Heartbeats in both directions.
    let beats = |body: &Body| matches!(body, Body::Heartbeat(_));
    assert!(domain.sent_by(mag_v4(1).to_ipv6_mapped(), beats).len() >= 4);
    domain.detach(1, station(1));
    domain.run(s(120.0));
    assert_eq!(tunnels(&domain, 0), []);
}

#[test]
fn an_anchor_of_both_families_answers_each_gateway_in_its_own() {
    let mut config = lma_config();
    config.gateways.push(allowed("10.0.0.0/24"));
    config.address_v4 = Some(LMA_V4);
    let mut domain = Domain::of(config, vec![mag_config(0), gateway(1)]);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.attach(1, station(1));
    domain.run(s(2.0));
    assert_eq!(domain.prefix(1, &station(1)), prefix);
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(mag_v4(1)), Form::Ip)]);
    assert_eq!(domain.prefixes(0, &station(1)), []);
}

#[test]
fn behind_a_nat_packets_are_in_udp_and_go_where_keepalives_come_from() {
    let mut domain = domain(2);
    domain.nat = Some([(SIGNALLING_PORT, (v4(mag_v4(0)), SIGNALLING_PORT))].into());
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let all: Vec<PeerAddress> = domain.lma.sessions().map(|(_, at, ..)| at).collect();
    let behind = |n| PeerAddress { address: NAT.into(), behind: Some(mag_v4(n)) };
    assert_eq!(all, [behind(0), behind(1)]);
    assert_eq!(behind(0).to_string(), "198.51.100.9 (10.0.0.2)");
    let answers = domain.sent_by(LMA_V4.to_ipv6_mapped(), is_acknowledgement);
    let flags = NatDetectionFlags::FORCE_UDP;
    let expected = NatDetection { flags, refresh_time_s: 110 };
    assert!(answers.iter().all(|(_, message)| detected(message) == Some(&expected)));
    for n in 0..2 {
        assert_eq!(tunnels(&domain, n + 1), [(v4(mag_v4(n)), v4(LMA_V4), in_udp(DATA_PORT))]);
        let end = (v4(LMA_V4), v4(NAT), in_udp(port_of(&domain, n, DATA_PORT)));
        assert!(tunnels(&domain, 0).contains(&end), "{end:?}: {:?}", tunnels(&domain, 0));
    }
    assert_ne!(port_of(&domain, 0, DATA_PORT), DATA_PORT, "the NAT gives other ports");
    let anew = |report: &Report| matches!(report, Report::Restarted { .. });
    assert!(!domain.reports.iter().any(anew), "a keepalive is no start");
    assert!(domain.lma.refused().is_empty(), "{:?}", domain.lma.refused());
    assert!(domain.mags.iter().all(|mag| mag.refused().is_empty()), "their answers are expected");
    // A host moves between gateways behind the NAT.
    let prefix = domain.prefix(0, &station(1));
    domain.attach(1, station(1));
    domain.run(s(2.0));
    assert_eq!(domain.prefix(1, &station(1)), prefix);
    assert_eq!(domain.prefixes(0, &station(1)), [], "what the anchor says gets through");
    let end = (v4(LMA_V4), v4(NAT), in_udp(port_of(&domain, 1, DATA_PORT)));
    assert!(tunnels(&domain, 0).contains(&end));
    // The last host leaves the second gateway, which is reached through a NAT's port: the revocation is retransmitted
    // after a loss, and answered.
    domain.detach(1, station(2));
    domain.run(s(30.0));
    domain.attach(0, station(1));
    domain.cut = true;
    domain.run(s(30.1));
    domain.cut = false;
    domain.run(s(35.0));
    assert_eq!(domain.prefixes(1, &station(1)), []);
    assert!(domain.lma.refused().is_empty(), "{:?}", domain.lma.refused());
}

#[test]
fn a_nat_that_has_forgotten_everything_is_opened_anew_by_the_next_keepalive() {
    let mut domain = domain(1);
    domain.nat = Some(Default::default());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let before = port_of(&domain, 0, DATA_PORT);
    domain.nat = Some(Default::default());
    domain.run(s(115.0));
    let after = port_of(&domain, 0, DATA_PORT);
    assert_ne!(before, after);
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(NAT), in_udp(after))]);
    // Messages that the anchor initiates arrive.
    let node = node(1);
    domain.at_lma(Input::Own(segue_pmip::LmaInput::Revoke(node)));
    domain.run(s(116.0));
    assert_eq!(domain.prefixes(0, &station(1)), []);
    // There were at most four packets per keepalive interval: two from the gateway, an answer, and heartbeats.
    let of_data = |datagram: &&Datagram| datagram.to.1 == DATA_PORT || datagram.from.1 == DATA_PORT;
    assert_eq!(domain.packets.iter().filter(of_data).count(), 4);
}

#[test]
fn a_keepalive_that_is_lost_is_said_again_ever_more_seldom() {
    let mut domain = domain(1);
    domain.nat = Some(Default::default());
    domain.attach(0, station(1));
    // The acknowledgement arrives, and nothing after it.
    domain.run(s(0.010));
    domain.cut = true;
    domain.run(s(400.0));
    let own = (v4(mag_v4(0)), DATA_PORT);
    let said = domain.packets.iter().filter(|datagram| datagram.from == own).count();
    // After 1, 2, 4, 8, 16, 32, 64 s and then every 110 s.
    assert_eq!(said, 10);
}

#[test]
fn whoever_starts_anew_behind_a_nat_finds_the_other_again() {
    let mut domain = domain(1);
    domain.nat = Some(Default::default());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    restart_anchor(&mut domain);
    // Until the gateway shows its data port, packets go to the usual one.
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(NAT), in_udp(DATA_PORT))]);
    domain.run(s(2.0));
    let end = (v4(LMA_V4), v4(NAT), in_udp(port_of(&domain, 0, DATA_PORT)));
    assert_eq!(tunnels(&domain, 0), [end]);
    let config = MagConfig { restart_counter: 2, ..gateway(0) };
    domain.mags[0] = segue_pmip::Mag::new(config);
    domain.given[1] = Given::default();
    let records: Vec<_> = domain.stored_at_mags[0].values().cloned().collect();
    records.into_iter().for_each(|record| domain.at_mag(0, Input::Record(record)));
    domain.has_link(0);
    domain.run(s(3.0));
    assert_eq!(domain.prefix(0, &station(1)), prefix);
    assert_eq!(tunnels(&domain, 1), [(v4(mag_v4(0)), v4(LMA_V4), in_udp(DATA_PORT))]);
    assert_eq!(tunnels(&domain, 0), [end]);
}

#[test]
fn gateways_behind_a_nat_are_allowed_by_the_address_of_the_nat() {
    let gateways = vec![allowed("10.0.0.0/24")];
    let mut domain = Domain::of(LmaConfig { gateways, ..anchor() }, vec![gateway(0)]);
    domain.nat = Some(Default::default());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    assert_eq!(domain.lma.sessions().count(), 0);
    assert_eq!(domain.refused("MAG_NOT_AUTHORIZED_FOR_PROXY_REG"), 1);
}

#[test]
fn udp_without_a_nat_is_to_be_allowed() {
    for accept_udp in [false, true] {
        let config = MagConfig { encapsulation: Encapsulation::Udp, ..gateway(0) };
        let mut domain = Domain::of(LmaConfig { accept_udp, ..anchor() }, vec![config]);
        domain.attach(0, station(1));
        domain.run(s(1.0));
        let answers = domain.sent_by(LMA_V4.to_ipv6_mapped(), is_acknowledgement);
        let Body::BindingAcknowledgement(answer) = &answers[0].1.body else { panic!() };
        let expected =
            if accept_udp { Status::ACCEPTED } else { Status::ADMINISTRATIVELY_PROHIBITED };
        assert_eq!(answer.status, expected);
        let there = [(v4(LMA_V4), v4(mag_v4(0)), in_udp(DATA_PORT))];
        assert_eq!(tunnels(&domain, 0), if accept_udp { &there[..] } else { &[] });
    }
}

#[test]
fn a_stranger_behind_the_nat_moves_no_packets_of_others() {
    let mut domain = domain(1);
    domain.nat = Some(Default::default());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let before = tunnels(&domain, 0);
    let beat = domain.packets.iter().find(|datagram| datagram.from.1 == DATA_PORT);
    let beat = beat.unwrap().clone();
    // From a gateway without a binding, and from another port.
    let mut other = beat.clone();
    other.from = (NAT.into(), 1);
    let octets = mag_v4(0).octets();
    let at = other.bytes.windows(4).position(|four| four == octets).unwrap();
    other.bytes[at + 3] = 99;
    domain.at_lma(Input::Datagram(other));
    let mut elsewhere = beat.clone();
    elsewhere.from = (v4(Ipv4Addr::new(203, 0, 113, 5)), 1);
    domain.at_lma(Input::Datagram(elsewhere));
    assert_eq!(tunnels(&domain, 0), before);
    assert_eq!(domain.refused("stranger"), 1);
}

#[test]
fn there_are_no_more_tunnels_than_the_node_has_room_for() {
    let config = LmaConfig { max_tunnels: 1, ..anchor() };
    let mut domain = Domain::of(config, (0..2).map(gateway).collect());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(1.5));
    assert_eq!(tunnels(&domain, 0).len(), 1);
    assert_eq!(domain.refused("Insufficient resources"), 1);
    domain.detach(0, station(1));
    domain.run(s(60.0));
    assert_eq!(tunnels(&domain, 0), [(v4(LMA_V4), v4(mag_v4(1)), Form::Ip)], "it has tried again");
}

#[test]
fn a_gateway_that_is_away_keeps_no_port_from_one_that_shows_it() {
    let mut domain = domain(2);
    domain.nat = Some([(DATA_PORT, (v4(mag_v4(1)), DATA_PORT))].into());
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let gone = mag_v4(0).to_ipv6_mapped();
    domain.ways.insert(gone, Way { loses_one_of: Some(1), ..Way::default() });
    restart_anchor(&mut domain);
    domain.run(s(10.0));
    let form_to = |n| {
        let to = PeerAddress { address: NAT.into(), behind: Some(mag_v4(n)) };
        let found = domain.lma.tunnels().find(|(_, peer)| *peer == to);
        found.unwrap().0.form
    };
    assert_eq!(form_to(1), in_udp(DATA_PORT));
    assert_ne!(form_to(0), in_udp(DATA_PORT));
    let given = tunnels(&domain, 0).into_iter().filter(|(.., form)| *form == in_udp(DATA_PORT));
    assert_eq!(given.count(), 1);
}
