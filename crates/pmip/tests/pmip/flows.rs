//! Flows of a host with two interfaces: their placement, and the notifications to gateways.

use std::net::Ipv6Addr;

use segue_clock::Span;
use segue_ip::{FlowKey, Input, Prefix, Traffic};
use segue_pmip::{
    Cause, DECISION, Identity, LmaConfig, LmaInput, LmaWish, MagConfig, PREFERENCE, PeerAddress,
    Placed, Presence, Rated, Report, Schedule, VENDOR, Worth,
};
use segue_wire::mobility::option::AccessTechnology;
use segue_wire::mobility::{Body, Message, MobilityOption, UpdateNotificationFlags};
use segue_wire::nd::{self, Preference};

use crate::domain::*;

/// A host with two interfaces, each at its own gateway, and their prefixes.
pub(crate) fn two(config: LmaConfig) -> (Domain, [Prefix; 2]) {
    of_two(2, config, |_| {})
}

/// The same with this number of gateways and a change to their configuration.
pub(crate) fn of_two(
    gateways: usize,
    config: LmaConfig,
    set: impl Fn(&mut MagConfig),
) -> (Domain, [Prefix; 2]) {
    let configs = (0..gateways).map(|n| {
        let mut config = mag_config(n);
        set(&mut config);
        let identities = config.identities.as_mut().unwrap();
        for n in [1, 2] {
            let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
            identities.known.insert(station(n), identity);
        }
        config
    });
    let mut domain = Domain::of(config, configs.collect());
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let prefixes = [domain.prefix(0, &station(1)), domain.prefix(1, &station(2))];
    (domain, prefixes)
}

pub(crate) fn flow(prefix: Prefix, port: u16) -> FlowKey {
    let std::net::IpAddr::V6(network) = prefix.addr else { panic!() };
    let dst = std::net::Ipv6Addr::from_bits(network.to_bits() | 5).into();
    let src = "2001:db8:ffff::9".parse().unwrap();
    FlowKey { src, dst, sport: 443, dport: port, protocol: 6, label: 0 }
}

pub(crate) fn first_packet(domain: &mut Domain, key: FlowKey) -> Vec<LmaWish> {
    domain.wishes.clear();
    domain.at_lma(Input::Own(LmaInput::Flow { key, dscp: 46 }));
    std::mem::take(&mut domain.wishes)
}

pub(crate) fn goes(domain: &Domain, key: FlowKey) -> Option<std::net::IpAddr> {
    domain.sends(Traffic::Flow(key))
}

fn v6(peer: PeerAddress) -> Ipv6Addr {
    let std::net::IpAddr::V6(address) = peer.address else { panic!("{peer}") };
    address
}

/// The reported handovers: cause, previous gateway, new gateway, number of flows.
pub(crate) fn handovers(domain: &Domain) -> Vec<(Cause, Ipv6Addr, Ipv6Addr, usize)> {
    let told = domain.reports.iter().filter_map(|report| match report {
        Report::Handover { cause, from, to, flows, .. } => {
            Some((*cause, v6(*from), v6(*to), *flows))
        }
        _ => None,
    });
    told.collect()
}

fn is_initiate(body: &Body) -> bool {
    matches!(body, Body::UpdateNotification(_))
}

/// The prefixes in a notification, and whether it sets the preference.
fn says(message: &Message) -> (Vec<String>, bool) {
    let prefixes = message.options.iter().filter_map(|option| match option {
        MobilityOption::HomeNetworkPrefix(home) => {
            assert_eq!(home.flags.0, 0x80, "not to be advertised");
            Some(Prefix::new(home.home_network_prefix, home.prefix_length).to_string())
        }
        _ => None,
    });
    let prefer = message.options.iter().any(|option| match option {
        MobilityOption::VendorSpecific(own) => {
            assert_eq!((own.vendor_id, own.sub_type), (VENDOR, PREFERENCE));
            own.data == [1]
        }
        _ => false,
    });
    (prefixes.collect(), prefer)
}

/// The router preference in the last advertisement to a station.
pub(crate) fn preference(domain: &Domain, n: u8) -> Option<Preference> {
    let own = domain.frames.iter().rev().filter(|(_, to, _)| *to == station(n));
    own.filter_map(|(_, _, message)| match message {
        nd::Message::RouterAdvertisement(advertisement) => Some(advertisement.prf),
        _ => None,
    })
    .next()
}

#[test]
fn gateways_know_all_prefixes_of_their_hosts_and_flows_are_placed_one_by_one() {
    let (mut domain, [first, second]) = two(lma_config());
    let initiates = domain.sent_by(LMA, is_initiate);
    let said: Vec<_> = initiates.iter().map(|(_, message)| says(message)).collect();
    assert_eq!(said, [(vec![second.to_string()], false), (vec![first.to_string()], false)]);
    let acknowledged = |body: &Body| matches!(body, Body::UpdateNotificationAcknowledgement(_));
    assert_eq!(domain.sent_by(mag(0), acknowledged).len(), 1);
    for (n, other) in [(0, second), (1, first)] {
        assert!(domain.given[n + 1].has(&to_station(other, n + 1)));
    }
    assert!(domain.asks(first) && domain.asks(second));
    let key = flow(first, 1);
    assert_eq!(first_packet(&mut domain, key), [LmaWish::Release(key)]);
    assert_eq!(goes(&domain, key), Some(mag(0).into()), "where its prefix is");
    let stranger = flow("2001:db8:0:77::/64".parse().unwrap(), 1);
    assert_eq!(first_packet(&mut domain, stranger), [LmaWish::Refuse(stranger)]);
}

#[test]
fn when_an_access_goes_its_flows_are_on_the_other_in_the_same_instant_and_come_back() {
    let (mut domain, [first, second]) = two(lma_config());
    let keys: Vec<FlowKey> = (1..=3).map(|port| flow(first, port)).collect();
    keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
    let other = flow(second, 9);
    first_packet(&mut domain, other);
    domain.detach(0, station(1));
    domain.run(s(1.0) + DELAY);
    for key in &keys {
        assert_eq!(goes(&domain, *key), Some(mag(1).into()));
        assert_eq!(domain.lma.flows().find(|(k, _)| *k == key).unwrap().1.why, Placed::Moved);
    }
    assert_eq!(domain.leads(first), Some(mag(1).into()), "new ones too, unasked");
    assert_eq!(handovers(&domain), [(Cause::Left, mag(0), mag(1), 3)]);
    assert_eq!(goes(&domain, other), Some(mag(1).into()));
    // The remaining gateway advertises a high preference, since the host would keep sending into the other access.
    domain.run(s(1.1));
    let (_, last) = domain.sent_by(LMA, is_initiate).pop().unwrap();
    assert_eq!(says(last), (vec![first.to_string()], true));
    assert_eq!(preference(&domain, 2), Some(Preference::High));
    // The same holds long after the binding has ended.
    domain.run(s(60.0));
    assert_eq!(goes(&domain, keys[0]), Some(mag(1).into()));
    domain.attach(0, station(1));
    domain.run(s(61.0));
    for key in &keys {
        assert_eq!(goes(&domain, *key), Some(mag(0).into()));
    }
    assert!(domain.asks(first));
    let known = |n: usize| domain.mags[n].stations().next().unwrap().2.off_link.clone();
    assert_eq!((known(0), known(1)), (vec![second], vec![first]), "each knows of the other");
    let all = [(Cause::Left, mag(0), mag(1), 3), (Cause::Back, mag(1), mag(0), 3)];
    assert_eq!(handovers(&domain), all);
    assert_eq!(preference(&domain, 2), Some(Preference::Medium));
    assert_eq!(preference(&domain, 1), Some(Preference::Medium));
}

#[test]
fn a_move_is_one_handover_also_of_a_host_whose_flows_were_elsewhere_meanwhile() {
    let (mut domain, [first, _]) = of_two(3, lma_config(), |_| {});
    let keys: Vec<FlowKey> = (1..=3).map(|port| flow(first, port)).collect();
    keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
    domain.attach(2, station(1));
    domain.run(s(3.0));
    assert_eq!(handovers(&domain), [(Cause::Moved, mag(0), mag(2), 3)]);
    domain.detach(2, station(1));
    domain.run(s(4.0));
    domain.attach(0, station(1));
    domain.run(s(6.0));
    let all = [
        (Cause::Moved, mag(0), mag(2), 3),
        (Cause::Left, mag(2), mag(1), 3),
        (Cause::Moved, mag(2), mag(0), 3),
    ];
    assert_eq!(handovers(&domain), all);
    keys.iter().for_each(|key| assert_eq!(goes(&domain, *key), Some(mag(0).into())));
}

#[test]
fn an_address_that_goes_to_and_fro_between_two_gateways_is_named_once() {
    let mut domain = Domain::new(2);
    let twice = |domain: &Domain| {
        let named = domain.reports.iter().filter(|report| matches!(report, Report::Twice { .. }));
        named.map(ToString::to_string).collect::<Vec<_>>()
    };
    // Two machines with the same address show themselves alternately at two gateways.
    for n in 0..20 {
        domain.attach(n % 2, station(1));
        domain.run(domain.now + Span::from_secs(2));
    }
    let named = twice(&domain);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].contains("02:00:00:00:00:01 goes to and fro between"), "{named:?}");
    // A host that really moves back and forth does so more slowly.
    let mut domain = Domain::new(2);
    for n in 0..20 {
        domain.attach(n % 2, station(1));
        domain.run(domain.now + Span::from_secs(20));
    }
    assert_eq!(twice(&domain), [""; 0]);
}

#[test]
fn without_flow_mobility_a_prefix_goes_to_its_own_interface_or_nowhere() {
    let mut config = lma_config();
    config.flow_mobility = false;
    let (mut domain, [first, _]) = two(config);
    assert_eq!(domain.sent_by(LMA, is_initiate).len(), 0);
    assert_eq!(domain.leads(first), Some(mag(0).into()));
    domain.detach(0, station(1));
    domain.run(s(2.0));
    assert_eq!(domain.leads(first), None);
}

#[test]
fn a_notification_without_an_answer_is_repeated_once_and_marked_and_its_prefix_is_not_used() {
    let mut domain = Domain::of(lma_config(), vec![mag_config(0), mag_config(1)]);
    // The anchor sees both as interfaces of one host.
    let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
    for n in 0..2 {
        let mut config = mag_config(n);
        let identities = config.identities.as_mut().unwrap();
        identities.known.insert(station(1), identity.clone());
        identities.known.insert(station(2), identity.clone());
        domain.mags[n] = segue_pmip::Mag::new(config);
        domain.given[n + 1] = Given::default();
        domain.has_link(n);
    }
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    // The answer to the registration arrives; later messages of the anchor are lost.
    domain.run(s(1.0) + DELAY);
    domain.drop_wire();
    domain.cut = true;
    domain.run(s(5.0));
    let first = domain.prefix(0, &station(1));
    let initiates = domain.sent_by(LMA, is_initiate);
    assert_eq!(initiates.len(), 4, "each gateway twice");
    let repeated = initiates.iter().filter(|(_, message)| match &message.body {
        Body::UpdateNotification(body) => {
            body.flags.contains(UpdateNotificationFlags::RETRANSMISSION)
        }
        _ => false,
    });
    assert_eq!(repeated.count(), 2);
    assert_eq!(domain.leads(first), Some(mag(0).into()), "not asked: there is no choice");
}

#[test]
fn flows_are_placed_by_hash_by_chance_or_where_there_are_fewest() {
    for schedule in [Schedule::Hash, Schedule::Random, Schedule::LeastLoaded] {
        let mut config = lma_config();
        (config.schedule, config.seed) = (schedule, 7);
        let (mut domain, [first, _]) = two(config);
        let keys: Vec<FlowKey> = (1..=400).map(|port| flow(first, port)).collect();
        keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
        let there = keys.iter().filter(|key| goes(&domain, **key) == Some(mag(0).into())).count();
        let even = if schedule == Schedule::LeastLoaded { 200..=200 } else { 160..=240 };
        assert!(even.contains(&there), "{schedule:?}: {there}");
        // Flows stay where they are as long as they can.
        let before: Vec<_> = keys.iter().map(|key| goes(&domain, *key)).collect();
        domain.detach(0, station(1));
        domain.run(s(2.0));
        assert!(keys.iter().all(|key| goes(&domain, *key) == Some(mag(1).into())));
        assert!(before.iter().any(|place| *place == Some(mag(1).into())));
    }
}

#[test]
fn who_decides_is_asked_first_and_the_own_rule_decides_when_no_answer_comes() {
    let (mut domain, [first, _]) = two(lma_config());
    domain.at_lma(Input::Own(LmaInput::Deciding(true)));
    let [quick, slow] = [1, 2].map(|port| flow(first, port));
    assert_eq!(first_packet(&mut domain, quick), [LmaWish::Decide(quick)]);
    assert_eq!(goes(&domain, quick), None);
    let place = |domain: &mut Domain, key, bid| {
        domain.at_lma(Input::Own(LmaInput::Place { key, bid }));
        std::mem::take(&mut domain.wishes)
    };
    assert_eq!(place(&mut domain, quick, Some(2)), [LmaWish::Release(quick)]);
    assert_eq!(goes(&domain, quick), Some(mag(1).into()));
    assert_eq!(domain.lma.flows().next().unwrap().1.why, Placed::Decision);
    assert_eq!(first_packet(&mut domain, slow), [LmaWish::Decide(slow)]);
    domain.run(domain.now + DECISION - Span::from_millis(1));
    assert_eq!((goes(&domain, slow), domain.wishes.len()), (None, 0));
    domain.run(domain.now + Span::from_millis(1));
    assert_eq!(domain.wishes, [LmaWish::Release(slow)]);
    assert_eq!(goes(&domain, slow), Some(mag(0).into()));
    domain.wishes.clear();
    // Later decisions move the flow and return it to the schedule; impossible ones are refused.
    let went = LmaWish::Went { key: slow, asked: false };
    assert_eq!(place(&mut domain, slow, Some(2)), [went], "all who listen are told");
    assert_eq!(place(&mut domain, slow, Some(2)), [], "nothing has changed");
    assert_eq!(goes(&domain, slow), Some(mag(1).into()));
    place(&mut domain, slow, None);
    assert_eq!(goes(&domain, slow), Some(mag(0).into()));
    place(&mut domain, slow, Some(9));
    place(&mut domain, flow(first, 99), Some(1));
    assert_eq!(domain.refused("no_binding"), 2);
    assert_eq!(goes(&domain, slow), Some(mag(0).into()));
}

/// The same with a third gateway, to which the host may attach another interface.
fn and_a_third(config: LmaConfig) -> (Domain, [Prefix; 2]) {
    of_two(3, config, |mag| {
        let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
        mag.identities.as_mut().unwrap().known.insert(station(3), identity);
    })
}

/// Reports to the external scheduler since the last call.
fn told(domain: &mut Domain) -> Vec<LmaWish> {
    std::mem::take(&mut domain.wishes)
}

fn interface(n: u8, now: Presence) -> LmaWish {
    LmaWish::Interface { node: node(1), link_layer: station(n), now }
}

/// The gateway of a flow, and the reason for its placement.
fn place_of(domain: &Domain, key: FlowKey) -> (std::net::IpAddr, Placed) {
    (goes(domain, key).unwrap(), domain.lma.flow(&key).unwrap().why)
}

#[test]
fn an_order_is_carried_out_each_time_its_interface_is_back_and_who_decides_is_told_at_once() {
    for schedule in [Schedule::Static, Schedule::Random, Schedule::Quality, Schedule::Preferred] {
        let (mut domain, [first, _]) = and_a_third(LmaConfig { schedule, ..lma_config() });
        domain.at_lma(Input::Own(LmaInput::Deciding(true)));
        let key = flow(first, 1);
        assert_eq!(first_packet(&mut domain, key), [LmaWish::Decide(key)]);
        domain.at_lma(Input::Own(LmaInput::Place { key, bid: Some(2) }));
        assert_eq!(told(&mut domain), [LmaWish::Release(key)]);
        let went = LmaWish::Went { key, asked: false };
        for round in 0..20 {
            domain.detach(1, station(2));
            domain.run(domain.now + DELAY);
            // With a third interface there is a choice.
            let asked = LmaWish::Went { key, asked: round > 8 };
            let expected = [interface(2, Presence::Left), asked];
            assert_eq!(told(&mut domain), expected, "{schedule:?}, {round}: at once");
            assert_ne!(goes(&domain, key), Some(mag(1).into()));
            assert_eq!(domain.lma.flow(&key).unwrap().why, Placed::Moved);
            // Even after the binding has ended and another interface has taken over its BID.
            domain.run(domain.now + Span::from_secs(if round % 4 == 0 { 15 } else { 2 }));
            if round == 8 {
                domain.attach(2, station(3));
                domain.run(domain.now + Span::from_secs(1));
            }
            told(&mut domain);
            domain.attach(1, station(2));
            domain.run(domain.now + Span::from_secs(1));
            let said = told(&mut domain);
            assert_eq!(
                said,
                [interface(2, Presence::There), went.clone()],
                "{schedule:?}, {round}"
            );
            assert_eq!(place_of(&domain, key), (mag(1).into(), Placed::Decision));
        }
        // Placing the flow by the schedule cancels the order.
        domain.at_lma(Input::Own(LmaInput::Place { key, bid: Some(1) }));
        domain.at_lma(Input::Own(LmaInput::Place { key, bid: None }));
        domain.detach(1, station(2));
        domain.run(domain.now + Span::from_secs(1));
        domain.attach(1, station(2));
        domain.run(domain.now + Span::from_secs(1));
        assert_ne!(domain.lma.flow(&key).unwrap().why, Placed::Decision);
    }
}

#[test]
fn an_order_outlives_the_time_in_which_its_interface_was_about_to_leave() {
    let (mut domain, [first, _]) = two(lma_config());
    let key = flow(first, 1);
    first_packet(&mut domain, key);
    domain.at_lma(Input::Own(LmaInput::Place { key, bid: Some(2) }));
    told(&mut domain);
    let (link_layer, within) = (station(2), Span::from_millis(400));
    let went = LmaWish::Went { key, asked: false };
    for by_word in [true, false] {
        domain.at_lma(Input::Own(LmaInput::GoingDown { link_layer: link_layer.clone(), within }));
        let expected = [interface(2, Presence::GoingDown(within)), went.clone()];
        assert_eq!(told(&mut domain), expected);
        assert_eq!(place_of(&domain, key), (mag(0).into(), Placed::Moved));
        if by_word {
            domain.at_lma(Input::Own(LmaInput::Stays { link_layer: link_layer.clone() }));
        } else {
            domain.run(domain.now + Span::from_secs(3));
        }
        assert_eq!(told(&mut domain), [interface(2, Presence::Stays), went.clone()]);
        assert_eq!(place_of(&domain, key), (mag(1).into(), Placed::Decision));
    }
}

#[test]
fn who_decides_is_asked_again_when_a_flow_without_an_order_has_more_ways() {
    let (mut domain, [first, _]) = and_a_third(lma_config());
    domain.at_lma(Input::Own(LmaInput::Deciding(true)));
    let key = flow(first, 1);
    first_packet(&mut domain, key);
    domain.at_lma(Input::Own(LmaInput::Place { key, bid: None }));
    domain.detach(0, station(1));
    domain.run(domain.now + DELAY);
    told(&mut domain);
    domain.run(domain.now + Span::from_secs(1));
    domain.attach(0, station(1));
    domain.run(domain.now + Span::from_secs(1));
    let asks = |wish: &LmaWish| *wish == LmaWish::Went { key, asked: true };
    assert_eq!(told(&mut domain).iter().filter(|wish| asks(wish)).count(), 1);
    // No request for a flow that the scheduler has placed.
    domain.at_lma(Input::Own(LmaInput::Place { key, bid: Some(1) }));
    domain.attach(2, station(3));
    domain.run(domain.now + Span::from_secs(1));
    assert!(!told(&mut domain).iter().any(asks));
    // Except when that interface is gone and two others remain.
    domain.detach(0, station(1));
    domain.run(domain.now + DELAY);
    assert_eq!(
        told(&mut domain),
        [interface(1, Presence::Left), LmaWish::Went { key, asked: true }]
    );
    // A flow that no interface can carry ends.
    domain.detach(1, station(2));
    domain.detach(2, station(3));
    domain.run(domain.now + DELAY);
    assert_eq!(told(&mut domain).iter().filter(|wish| **wish == LmaWish::Ended(key)).count(), 1);
}

#[test]
fn flows_go_over_the_cheapest_access_and_of_equals_over_the_preferred_one() {
    let rated = |access, price, preference| Rated {
        access: Some(access),
        gateway: None,
        worth: Worth { price, preference },
    };
    let (wlan, lte) = (AccessTechnology::WLAN, AccessTechnology::E_UTRAN);
    for (accesses, expected) in [
        (vec![rated(wlan, 1.0, 9.0), rated(lte, 0.0, 0.0)], 1),
        (vec![rated(wlan, 0.0, 0.0), rated(lte, 1.0, 9.0)], 0),
        (vec![rated(wlan, 0.0, 0.0), rated(lte, 0.0, 1.0)], 1),
        (vec![rated(wlan, 0.5, 1.0), rated(lte, 0.5, 0.0)], 0),
        (vec![rated(lte, 1.0, 0.0)], 0),
        // The first matching entry applies.
        (
            vec![
                Rated { access: None, gateway: Some(Prefix::host(mag(1))), ..rated(lte, 2.0, 0.0) },
                rated(lte, 0.0, 0.0),
                rated(wlan, 1.0, 0.0),
            ],
            0,
        ),
        (vec![], 0),
    ] {
        let config = LmaConfig { schedule: Schedule::Preferred, accesses, ..lma_config() };
        let rate = |mag: &mut MagConfig| {
            let second = mag.accesses[0].proxy_coa == std::net::IpAddr::from(crate::domain::mag(1));
            mag.accesses[0].technology = if second { lte } else { wlan };
        };
        let (mut domain, [first, second]) = of_two(2, config, rate);
        let keys = [flow(first, 1), flow(second, 2)];
        keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
        // Among equally good accesses, a flow goes to the one that holds its prefix.
        let has = |domain: &Domain, n: usize| place_of(domain, keys[n]);
        assert_eq!(has(&domain, 0), (mag(expected).into(), Placed::Rule));
        let (link, station) = (expected, station(expected as u8 + 1));
        domain.detach(link, station.clone());
        domain.run(domain.now + Span::from_secs(2));
        assert_eq!(has(&domain, 0).0, std::net::IpAddr::from(mag(1 - expected)));
        domain.attach(link, station);
        domain.run(domain.now + Span::from_secs(2));
        assert_eq!(has(&domain, 0), (mag(expected).into(), Placed::Rule), "and back");
    }
}

#[test]
fn idle_flows_and_the_oldest_of_too_many_are_bound_to_nothing() {
    let mut config = lma_config();
    config.max_flows = 3;
    config.flow_idle = Span::from_secs(5);
    let (mut domain, [first, _]) = two(config);
    for port in 1..=4 {
        first_packet(&mut domain, flow(first, port));
        domain.run(domain.now + Span::from_millis(1));
    }
    assert_eq!(domain.lma.flows().count(), 3);
    assert_eq!(goes(&domain, flow(first, 1)), None);
    domain.idle.push(flow(first, 3));
    domain.run(domain.now + Span::from_secs(4));
    assert!(goes(&domain, flow(first, 3)).is_some());
    domain.run(domain.now + Span::from_secs(2));
    assert_eq!(goes(&domain, flow(first, 3)), None);
    assert!(goes(&domain, flow(first, 4)).is_some());
    // All flows end with the host.
    domain.detach(0, station(1));
    domain.detach(1, station(2));
    domain.run(s(60.0));
    assert_eq!(domain.lma.flows().count(), 0);
    assert!(domain.given[0].0.is_empty(), "{:?}", domain.given[0].0);
}

#[test]
fn a_gateway_that_starts_anew_is_told_anew() {
    let (mut domain, [first, second]) = two(lma_config());
    domain.log.clear();
    domain.mags[0] = segue_pmip::Mag::new(segue_pmip::MagConfig {
        restart_counter: 2,
        identities: domain.mags[0].config().identities.clone(),
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
    assert_eq!(domain.prefix(0, &station(1)), first);
    domain.run(s(2.0));
    let initiates = domain.sent_by(LMA, is_initiate);
    assert_eq!(initiates.len(), 1, "{initiates:?}");
    assert!(domain.given[1].has(&to_station(second, 1)));
    assert!(domain.asks(second));
}

#[test]
fn what_is_for_an_interface_that_is_about_to_leave_goes_another_way_before_it_does() {
    let (mut domain, [first, second]) = two(lma_config());
    let keys: Vec<FlowKey> = (1..=3).map(|port| flow(first, port)).collect();
    keys.iter().for_each(|key| drop(first_packet(&mut domain, *key)));
    let leaves = |domain: &mut Domain, n| {
        let (link_layer, within) = (station(n), Span::from_millis(400));
        domain.at_lma(Input::Own(LmaInput::GoingDown { link_layer, within }));
    };
    leaves(&mut domain, 1);
    for key in &keys {
        assert_eq!(goes(&domain, *key), Some(mag(1).into()), "at once");
    }
    assert_eq!(domain.leads(first), Some(mag(1).into()), "new ones too, unasked");
    assert_eq!(domain.leads(second), Some(mag(1).into()));
    assert_eq!(handovers(&domain), [(Cause::GoingDown, mag(0), mag(1), 3)]);
    // The host should use the other access while it still hears both.
    domain.run(domain.now + Span::from_millis(100));
    assert_eq!(preference(&domain, 2), Some(Preference::High));
    assert_eq!(preference(&domain, 1), Some(Preference::Medium));
    // The interface leaves: nothing changes.
    domain.detach(0, station(1));
    domain.run(s(5.0));
    assert_eq!(goes(&domain, keys[0]), Some(mag(1).into()));
    assert_eq!(preference(&domain, 2), Some(Preference::High));
    // If the other interface is about to leave too, there is no alternative.
    leaves(&mut domain, 2);
    assert_eq!(goes(&domain, keys[0]), Some(mag(1).into()));
}

#[test]
fn an_interface_that_stays_after_all_has_again_what_is_its_own() {
    for told in [true, false] {
        let (mut domain, [first, _]) = two(lma_config());
        let key = flow(first, 1);
        first_packet(&mut domain, key);
        let (link_layer, within) = (station(1), Span::from_millis(400));
        domain.at_lma(Input::Own(LmaInput::GoingDown { link_layer, within }));
        assert_eq!(goes(&domain, key), Some(mag(1).into()));
        if told {
            let link_layer = station(1);
            domain.at_lma(Input::Own(LmaInput::Stays { link_layer }));
        } else {
            // The prediction holds for two more seconds.
            domain.run(s(1.0) + Span::from_millis(2_390));
            assert_eq!(goes(&domain, key), Some(mag(1).into()));
            domain.run(s(1.0) + Span::from_millis(2_410));
        }
        assert_eq!(goes(&domain, key), Some(mag(0).into()), "told: {told}");
        assert!(domain.asks(first));
        let all = [(Cause::GoingDown, mag(0), mag(1), 1), (Cause::Back, mag(1), mag(0), 1)];
        assert_eq!(handovers(&domain), all);
        domain.run(s(6.0));
        assert_eq!(preference(&domain, 2), Some(Preference::Medium));
    }
}

#[test]
fn gateways_that_forward_all_need_not_be_told_of_flows_that_move() {
    let mut config = lma_config();
    config.flow_mobility_initiate = false;
    let everything = Prefix::default_of(true);
    for forward_all in [false, true] {
        let (mut domain, [first, _]) =
            of_two(2, config.clone(), |mag| mag.forward_all = forward_all);
        assert_eq!(domain.given[2].has(&to_station(everything, 2)), forward_all);
        assert!(!domain.given[2].has(&to_station(first, 2)));
        assert!(domain.asks(first), "there is a choice from the beginning");
        let key = flow(first, 1);
        first_packet(&mut domain, key);
        domain.detach(0, station(1));
        domain.run(s(2.0));
        assert_eq!(goes(&domain, key), Some(mag(1).into()));
        assert_eq!(domain.sent_by(LMA, is_initiate).len(), 0);
        domain.detach(1, station(2));
        domain.run(s(20.0));
        assert!(!domain.given[2].has(&to_station(everything, 2)));
        assert_eq!(domain.given[2].exit(Traffic::From(everything)), None);
    }
}

#[test]
fn a_gateway_that_forwards_all_serves_one_host_at_a_time() {
    let config = MagConfig { forward_all: true, ..mag_config(0) };
    let mut domain = Domain::of(lma_config(), vec![config]);
    let served = |domain: &Domain| {
        let all = domain.mags[0].stations().map(|(_, station, _)| station.clone());
        all.collect::<Vec<_>>()
    };
    let everything = Prefix::default_of(true);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(0, station(2));
    domain.run(s(2.0));
    assert_eq!(served(&domain), [station(1)]);
    assert!(domain.given[1].has(&to_station(everything, 1)));
    // Packets in flight to a host that leaves must not reach another.
    domain.detach(0, station(1));
    domain.attach(0, station(2));
    let refused = domain.mags[0].refused().iter();
    let refused: u64 =
        refused.filter(|(why, _)| why.name() == "second_host").map(|(_, n)| *n).sum();
    assert_eq!(refused, 2);
    domain.run(s(4.0));
    // After the departure, hosts are asked to show themselves, and the second one is served.
    assert_eq!(served(&domain), [station(2)]);
    assert!(domain.given[1].has(&to_station(everything, 2)));
}
