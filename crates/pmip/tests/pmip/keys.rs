//! GRE with keys (RFC 5845), and the link-local address of gateways (RFC 5213, RFC 6543).

use std::net::Ipv6Addr;

use segue_ip::{Exit, Form, Forward, Input, Tunnel};
use segue_pmip::{Encapsulation, FIXED_LINK_LOCAL, GreUse, LmaConfig, Mag, MagConfig};
use segue_wire::mobility::option::LinkLocalAddress;
use segue_wire::mobility::{Body, Message, MobilityOption, Profile, Status};

use crate::domain::*;

fn gateway(n: usize) -> MagConfig {
    MagConfig { encapsulation: Encapsulation::Gre, ..mag_config(n) }
}

fn domain(gre: GreUse, gateways: usize) -> Domain {
    let config = LmaConfig { gre, ..lma_config() };
    Domain::of(config, (0..gateways).map(gateway).collect())
}

/// Keys of the GRE tunnels of a node: to send with, and to receive with.
fn keys(domain: &Domain, node: usize) -> Vec<[u32; 2]> {
    let all = domain.given[node].0.iter().filter_map(|part| match part {
        Forward::Tunnel(Tunnel { form: Form::Gre { send, receive }, .. }) => {
            Some([send.unwrap(), receive.unwrap()])
        }
        _ => None,
    });
    all.collect()
}

fn turned(all: Vec<[u32; 2]>) -> Vec<[u32; 2]> {
    all.into_iter().map(|[a, b]| [b, a]).collect()
}

fn key(message: &Message) -> Option<Option<u32>> {
    message.options.iter().find_map(|option| match option {
        MobilityOption::GreKey(key) => Some(key.gre_key_identifier),
        _ => None,
    })
}

fn answer(domain: &Domain) -> (Status, Option<Option<u32>>) {
    let answers = domain.sent_by(LMA, is_acknowledgement);
    let (_, message) = answers.last().unwrap();
    let Body::BindingAcknowledgement(answer) = &message.body else { panic!() };
    (answer.status, key(message))
}

/// The tunnel that a node uses for this traffic.
fn tunnel(domain: &Domain, node: usize, traffic: segue_ip::Traffic) -> Tunnel {
    let Some(Exit::Tunnel(number)) = domain.given[node].exit(traffic) else { panic!() };
    *domain.given[node].tunnel(number).unwrap()
}

#[test]
fn each_interface_has_its_own_keys_and_the_anchors_stays_when_it_moves() {
    let mut domain = domain(GreUse::Allowed, 2);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(1.0));
    let all = keys(&domain, 0);
    assert_eq!(all.len(), 2);
    assert_eq!(turned(keys(&domain, 1)), all);
    assert_ne!(all[0][0], all[1][0]);
    assert_ne!(all[0][1], all[1][1]);
    let prefix = domain.prefix(0, &station(1));
    let down = tunnel(&domain, 0, segue_ip::Traffic::To(prefix));
    let up = tunnel(&domain, 1, segue_ip::Traffic::From(prefix));
    let (Form::Gre { send, receive }, Form::Gre { send: other, receive: own }) =
        (down.form, up.form)
    else {
        panic!()
    };
    assert_eq!((send, receive), (own, other));
    // Each tunnel may carry packets of one interface only.
    assert_eq!(domain.given[0].brings(prefix), [mag(0)]);
    domain.attach(1, station(1));
    domain.run(s(2.0));
    let after = tunnel(&domain, 0, segue_ip::Traffic::To(prefix));
    let Form::Gre { receive: now, .. } = after.form else { panic!() };
    assert_eq!((after.number, after.remote, now), (down.number, mag(1).into(), receive));
    assert_eq!([keys(&domain, 1).len(), keys(&domain, 2).len()], [1, 1]);
    domain.detach(1, station(1));
    domain.detach(0, station(2));
    domain.run(s(60.0));
    assert!((0..3).all(|n| keys(&domain, n).is_empty()));
}

#[test]
fn whoever_starts_anew_has_the_keys_that_it_had() {
    let mut domain = domain(GreUse::Allowed, 1);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(1.0));
    let before = keys(&domain, 0);
    domain.given[1] = Given::default();
    let records: Vec<_> = domain.stored_at_mags[0].values().cloned().collect();
    domain.mags[0] = Mag::new(MagConfig { restart_counter: 2, ..gateway(0) });
    records.into_iter().for_each(|record| domain.at_mag(0, Input::Record(record)));
    domain.has_link(0);
    let at_once = |mut all: Vec<[u32; 2]>| {
        all.sort_unstable();
        all
    };
    assert_eq!(at_once(turned(keys(&domain, 1))), at_once(before.clone()));
    domain.given[0] = Given::default();
    let records: Vec<_> = domain.stored.values().cloned().collect();
    domain.lma = segue_pmip::Lma::new(LmaConfig { restart_counter: 2, ..lma_config() });
    records.into_iter().for_each(|record| domain.at_lma(Input::Record(record)));
    domain.at_lma(Input::Interfaces(Vec::new()));
    assert_eq!(at_once(keys(&domain, 0)), at_once(before.clone()));
    // Another station gets unused keys.
    domain.attach(0, station(3));
    domain.run(s(2.0));
    let all = keys(&domain, 0);
    assert_eq!(at_once(turned(keys(&domain, 1))), at_once(all.clone()));
    for n in 0..2 {
        let distinct: std::collections::BTreeSet<u32> = all.iter().map(|keys| keys[n]).collect();
        assert_eq!(distinct.len(), 3);
    }
}

#[test]
fn what_an_anchor_answers_depends_on_what_it_wants() {
    for (gre, asks, expected) in [
        (GreUse::Off, true, Status::GRE_KEY_OPTION_NOT_REQUIRED),
        (GreUse::Allowed, true, Status::ACCEPTED),
        (GreUse::Allowed, false, Status::ACCEPTED),
        (GreUse::Required, true, Status::ACCEPTED),
        (GreUse::Required, false, Status::GRE_KEY_OPTION_REQUIRED),
    ] {
        let config = if asks { gateway(0) } else { mag_config(0) };
        let mut domain = Domain::of(LmaConfig { gre, ..lma_config() }, vec![config]);
        domain.attach(0, station(1));
        domain.run(s(1.0));
        let (status, key) = answer(&domain);
        assert_eq!(status, expected, "{gre:?}, {asks}");
        let keyed = asks && gre != GreUse::Off;
        assert_eq!(key.is_some(), keyed);
        assert_eq!(keys(&domain, 1).len(), usize::from(keyed));
        let served = domain.prefixes(0, &station(1)).len();
        assert_eq!(served, usize::from(status.is_accepted()), "{gre:?}, {asks}");
    }
}

#[test]
fn a_binding_without_keys_goes_back_into_the_tunnel_that_all_have() {
    let mut domain = domain(GreUse::Allowed, 2);
    domain.mags[1] = Mag::new(mag_config(1));
    domain.has_link(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    assert_eq!(keys(&domain, 0).len(), 1);
    domain.attach(1, station(1));
    domain.run(s(2.0));
    assert_eq!(keys(&domain, 0).len(), 0);
    assert_eq!(domain.leads(prefix), Some(mag(1).into()));
    assert_eq!(domain.given[0].brings(prefix), [mag(1)]);
}

/// Repeats a gateway's update with a Link-local Address option, and returns the address in the answer.
fn asks(domain: &mut Domain, address: &str) -> Ipv6Addr {
    let mut updates = domain.packets.iter().filter(|datagram| datagram.bytes[2] == 5);
    let mut update = updates.next_back().unwrap().clone();
    let mut message = Message::parse(&update.bytes, &Profile::STRICT).unwrap();
    let link_local_address = address.parse().unwrap();
    message.options.push(MobilityOption::LinkLocalAddress(LinkLocalAddress { link_local_address }));
    for option in &mut message.options {
        if let MobilityOption::Timestamp(at) = option {
            let now = DAY + domain.now.since(segue_clock::Time::ZERO);
            (at.seconds, at.fraction_65536ths) = now.to_timestamp();
        }
    }
    let std::net::IpAddr::V6(from) = update.from.0 else { panic!() };
    update.bytes = message.emit_with_checksum(from, LMA, &Profile::STRICT).unwrap();
    domain.at_lma(Input::Datagram(update));
    let answers = domain.sent_by(LMA, is_acknowledgement);
    let said = answers.last().unwrap().1.options.iter().find_map(|option| match option {
        MobilityOption::LinkLocalAddress(said) => Some(said.link_local_address),
        _ => None,
    });
    said.unwrap()
}

#[test]
fn an_anchor_says_which_address_gateways_have_on_the_link_of_a_host() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    assert_eq!(asks(&mut domain, "::"), FIXED_LINK_LOCAL);
    domain.run(s(1.1));
    assert_eq!(asks(&mut domain, "fe80::7"), "fe80::7".parse::<Ipv6Addr>().unwrap());
    // The address belongs to this host; another host may have another.
    domain.run(s(1.2));
    domain.attach(1, station(1));
    domain.run(s(2.0));
    assert_eq!(asks(&mut domain, "::"), "fe80::7".parse::<Ipv6Addr>().unwrap());
    domain.attach(0, station(2));
    domain.run(s(3.0));
    assert_eq!(asks(&mut domain, "::"), FIXED_LINK_LOCAL);
    domain.run(s(3.1));
    // Only a link-local address is accepted.
    assert_eq!(asks(&mut domain, "2001:db8::1"), FIXED_LINK_LOCAL);
}
