//! Unknown peers, misbehaving hosts, messages lost at bad moments, and full tables.

use std::net::Ipv6Addr;

use segue_clock::{DayClock, Machine, Span, Time, UnixTime};
use segue_ip::{Datagram, FlowKey, Forward, Input, Interface, Prefix, Traffic};
use segue_mobility::Pool;
use segue_pmip::{
    Access, AttachBy, HOSTS_MAX, Identity, LinkLayer, Lma, LmaConfig, LmaInput, LmaRecord,
    MOBILITY, Mag, MagConfig, MagInput, Report, Schedule,
};
use segue_wire::mobility::body::{BindingRevocation, BindingUpdate, Heartbeat};
use segue_wire::mobility::option::{AccessTechnology, Handoff, RestartCounter};
use segue_wire::mobility::{
    BindingUpdateFlags, Body, HeartbeatFlags, Message, MobilityOption, Profile, Status,
};
use segue_wire::nd;

use crate::domain::*;

/// Interface index of a second access, `wire`.
const WIRE: u32 = 3;

/// A gateway that takes these stations for interfaces of one host.
fn of_one(n: usize, stations: std::ops::RangeInclusive<u8>) -> MagConfig {
    let mut config = mag_config(n);
    for k in stations {
        let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
        config.identities.as_mut().unwrap().known.insert(station(k), identity);
    }
    config
}

/// The same, with a second access.
fn with_wire(
    mut config: MagConfig,
    technology: AccessTechnology,
    handoff: Handoff,
    coa: Ipv6Addr,
) -> MagConfig {
    let interface = "wire".into();
    let access = config.accesses[0].clone();
    config.accesses.push(Access {
        interface,
        technology,
        handoff,
        proxy_coa: coa.into(),
        ..access
    });
    config
}

fn both_links(domain: &mut Domain, n: usize) {
    let all = [("radio", LINK), ("wire", WIRE)].map(|(name, index)| Interface {
        name: name.into(),
        index,
        ..Interface::default()
    });
    domain.at_mag(n, Input::Interfaces(all.to_vec()));
}

fn restart_lma(domain: &mut Domain, config: LmaConfig, day: UnixTime) {
    let clock = DayClock::new(domain.now, day);
    domain.lma = Lma::new(LmaConfig { restart_counter: 2, clock, ..config });
    domain.given[0] = Given::default();
    for record in domain.stored.clone().into_values() {
        domain.at_lma(Input::Record(record));
    }
    domain.at_lma(Input::Interfaces(Vec::new()));
}

fn small_pool() -> Pool {
    Pool::prefixes("2001:db8::/62".parse().unwrap(), 64, 1).unwrap()
}

fn flow(prefix: Prefix, dport: u16) -> FlowKey {
    let std::net::IpAddr::V6(network) = prefix.addr else { panic!() };
    let dst = Ipv6Addr::from_bits(network.to_bits() | 5).into();
    let src = "2001:db8:ffff::9".parse().unwrap();
    FlowKey { src, dst, sport: 1, dport, protocol: 6, label: 0 }
}

fn flow_comes(domain: &mut Domain, key: FlowKey) {
    domain.at_lma(Input::Own(LmaInput::Flow { key, dscp: 0 }));
}

fn came(message: &Message, from: Ipv6Addr, to: Ipv6Addr) -> Input<MagInput, segue_pmip::MagRecord> {
    Input::Datagram(forged(message, from, to))
}

fn forged(message: &Message, from: Ipv6Addr, to: Ipv6Addr) -> Datagram {
    let bytes = message.emit_with_checksum(from, to, &Profile::STRICT).unwrap();
    let (from, to, protocol) = ((from.into(), 0), (to.into(), 0), MOBILITY);
    Datagram { waited_ns: 0, interface: None, from, to, protocol, hop_limit: 64, bytes }
}

fn unasked_beat(counter: u32) -> Message {
    let flags = HeartbeatFlags::RESPONSE | HeartbeatFlags::UNSOLICITED;
    let restart_counter =
        MobilityOption::RestartCounter(RestartCounter { restart_counter: counter });
    let body = Body::Heartbeat(Heartbeat { flags, sequence: 0 });
    Message { body, options: vec![restart_counter] }
}

pub(crate) fn solicitation(
    from: &str,
    link_layer_address: Vec<u8>,
) -> Input<MagInput, segue_pmip::MagRecord> {
    let from: Ipv6Addr = from.parse().unwrap();
    let to: Ipv6Addr = "ff02::2".parse().unwrap();
    let options = vec![nd::NdOption::SourceLinkLayerAddress { link_layer_address }];
    let bytes = nd::Message::RouterSolicitation { options }.emit_with_checksum(from, to);
    let (from, to) = ((from.into(), 0), (to.into(), 0));
    Input::Datagram(Datagram {
        waited_ns: 0,
        interface: Some(LINK),
        from,
        to,
        protocol: 58,
        hop_limit: 255,
        bytes,
    })
}

pub(crate) fn by_solicitation() -> Domain {
    let mut config = mag_config(0);
    config.accesses[0].by = AttachBy::Solicitation;
    Domain::of(lma_config(), vec![config])
}

#[test]
fn a_full_gateway_without_an_anchor_goes_on() {
    let mut mag = Mag::new(mag_config(0));
    let radio = Interface { name: "radio".into(), index: LINK, ..Interface::default() };
    mag.handle(Time::ZERO, Input::Interfaces(vec![radio]));
    for n in 0..1u32 << 16 {
        let [a, b, c, d] = n.to_be_bytes();
        let (station, link_local) = (LinkLayer::mac([2, 0, a, b, c, d]), None);
        let own = MagInput::Attached { interface: LINK, station, link_local };
        mag.handle(Time::ZERO, Input::Own(own));
        while mag.poll().is_some() {}
    }
    // All stations retransmit, each with a different sequence number.
    mag.tick(s(1.0));
    assert_eq!(mag.stations().count(), HOSTS_MAX);
}

#[test]
fn a_prefix_that_has_rested_is_free_also_after_a_restart() {
    let prefix_hold = Span::from_secs(60);
    let config = || LmaConfig { pool: small_pool(), prefix_hold, ..lma_config() };
    let mut domain = Domain::of(config(), vec![mag_config(0)]);
    for n in 1..=3 {
        domain.attach(0, station(n));
        domain.run(domain.now + Span::from_secs(1));
        domain.detach(0, station(n));
        domain.run(domain.now + Span::from_secs(100));
    }
    let is_there = |record: &&LmaRecord| matches!(record, LmaRecord::Lease(_, Some(_)));
    assert_eq!(domain.stored.values().filter(is_there).count(), 0);
    let day = DAY + domain.now.since(Time::ZERO);
    restart_lma(&mut domain, config(), day);
    domain.attach(0, station(4));
    domain.run(domain.now + Span::from_secs(1));
    assert_eq!(domain.prefixes(0, &station(4)).len(), 1);
}

#[test]
fn a_prefix_that_rests_goes_on_resting_after_a_restart_and_no_longer() {
    let prefix_hold = Span::from_secs(60);
    let config = || LmaConfig { pool: small_pool(), prefix_hold, ..lma_config() };
    let mut domain = Domain::of(config(), vec![mag_config(0)]);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let first = domain.prefix(0, &station(1));
    domain.detach(0, station(1));
    domain.run(s(31.0));
    let day = DAY + domain.now.since(Time::ZERO);
    restart_lma(&mut domain, config(), day);
    // The binding ended at 11 s; the prefix stays reserved until 71 s.
    domain.run(s(70.0));
    for n in 2..=4 {
        domain.attach(0, station(n));
    }
    domain.run(s(70.9));
    let given = |domain: &Domain, n| domain.prefixes(0, &station(n)).contains(&first);
    assert!(!(2..=4).any(|n| given(&domain, n)));
    domain.run(s(71.5));
    domain.attach(0, station(5));
    domain.run(s(72.5));
    assert!((2..=5).any(|n| given(&domain, n)), "nobody has it");
}

#[test]
fn a_gateway_that_missed_what_it_was_told_hears_it_again() {
    let mut domain = Domain::of(lma_config(), (0..2).map(|n| of_one(n, 1..=2)).collect());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(1.0049));
    // The acknowledgement is lost, and the notification with it.
    domain.cut = true;
    domain.run(s(1.006));
    domain.cut = false;
    domain.run(s(2_000.0));
    let first = domain.prefix(0, &station(1));
    assert!(domain.asks(first));
    domain.detach(0, station(1));
    domain.run(s(2_000.1));
    assert_eq!(domain.leads(first), Some(mag(1).into()));
}

#[test]
fn a_host_that_is_back_is_not_told_by_a_late_revocation_that_it_has_left() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    domain.attach(1, station(1));
    domain.run(s(1.0051));
    domain.drop_wire(); // the revocation to the first gateway is lost
    domain.run(s(1.5));
    domain.detach(0, station(1));
    domain.attach(0, station(1));
    domain.run(s(5.0));
    assert_eq!(domain.leads(prefix), Some(mag(0).into()));
    assert_eq!(domain.prefixes(0, &station(1)), [prefix]);
}

#[test]
fn of_two_accesses_of_a_gateway_the_old_one_takes_nothing_with_it() {
    for technology in [AccessTechnology::ETHERNET, AccessTechnology::WLAN] {
        let config = with_wire(of_one(0, 1..=2), technology, Handoff::BETWEEN_INTERFACES, mag(0));
        let mut domain = Domain::of(lma_config(), vec![config]);
        both_links(&mut domain, 0);
        domain.attach(0, station(1));
        domain.run(s(1.0));
        let prefix = domain.prefix(0, &station(1));
        domain.attach_at(0, WIRE, station(2));
        domain.run(s(2.0));
        assert_eq!(domain.prefix(0, &station(2)), prefix);
        domain.detach(0, station(1));
        domain.run(s(30.0));
        assert_eq!(domain.prefix(0, &station(2)), prefix);
        assert!(domain.given[1].exit(Traffic::From(prefix)).is_some(), "{technology:?}");
        assert_eq!(domain.leads(prefix), Some(mag(0).into()), "{technology:?}");
    }
}

#[test]
fn an_interface_that_joins_another_at_its_gateway_is_served() {
    let config =
        with_wire(of_one(0, 1..=2), AccessTechnology::WLAN, Handoff::BETWEEN_GATEWAYS, mag(0));
    let mut domain = Domain::of(lma_config(), vec![config, of_one(1, 1..=2)]);
    both_links(&mut domain, 0);
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let second = domain.prefix(1, &station(2));
    domain.attach_at(0, WIRE, station(2));
    domain.run(s(60.0));
    assert_eq!(domain.prefix(0, &station(2)), second);
    let to = |part: &&Forward| matches!(part, Forward::Route(r) if r.destination == second);
    assert_eq!(domain.given[1].0.iter().filter(to).count(), 1);
    assert!(domain.given[1].exit(Traffic::From(second)).is_some());
}

#[test]
fn of_two_stations_that_carry_another_interfaces_prefix_one_may_leave() {
    let coa = mag(0);
    let near = with_wire(of_one(0, 1..=3), AccessTechnology::ETHERNET, Handoff::NEW_INTERFACE, coa);
    let mut domain = Domain::of(lma_config(), vec![near, of_one(1, 1..=3)]);
    both_links(&mut domain, 0);
    domain.attach(1, station(3));
    domain.attach(0, station(1));
    domain.attach_at(0, WIRE, station(2));
    domain.run(s(3.0));
    let far = domain.prefix(1, &station(3));
    assert!(domain.given[1].exit(Traffic::From(far)).is_some());
    domain.detach_at(0, WIRE, station(2));
    domain.run(s(3.001));
    assert!(domain.given[1].exit(Traffic::From(far)).is_some());
}

#[test]
fn a_host_is_served_again_after_an_outage_longer_than_its_lifetime() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.cut = true;
    domain.run(s(700.0));
    domain.cut = false;
    domain.run(s(800.0));
    assert_eq!(domain.prefixes(0, &station(1)).len(), 1);
}

#[test]
fn a_host_that_has_gone_without_a_word_is_missed_and_one_that_is_heard_is_not() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.attach(0, station(2));
    domain.run(s(1.0));
    domain.here.remove(&(0, LINK, station(1)));
    domain.run(s(100_000.0));
    let there: Vec<_> = domain.lma.sessions().map(|(.., at)| at.link_layer.clone()).collect();
    assert_eq!(there, [station(2)]);
}

#[test]
fn after_a_start_in_1970_no_binding_lasts_longer_than_any_may() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let now = domain.now;
    restart_lma(&mut domain, lma_config(), UnixTime::from_secs(10));
    let left = domain.lma.sessions().map(|(_, _, until, _)| until.since(now)).max().unwrap();
    assert!(left <= Span::from_secs(3_600), "{left}");
}

#[test]
fn a_flow_that_is_told_twice_counts_once() {
    let config = LmaConfig { max_flows: 4, schedule: Schedule::LeastLoaded, ..lma_config() };
    let mut domain = Domain::of(config, (0..2).map(|n| of_one(n, 1..=2)).collect());
    domain.attach(0, station(1));
    domain.attach(1, station(2));
    domain.run(s(1.0));
    let prefix = domain.prefix(0, &station(1));
    for at in [1.1, 1.2] {
        domain.run(s(at));
        flow_comes(&mut domain, flow(prefix, 1));
    }
    for port in 2..100 {
        domain.run(domain.now + Span::from_millis(1));
        flow_comes(&mut domain, flow(prefix, port));
    }
    assert_eq!(domain.lma.flows().count(), 4);
    let first = domain.lma.flows().next().unwrap().1.session;
    let there = domain.lma.flows().filter(|(_, flow)| flow.session == first).count();
    assert_eq!(there, 2, "each interface has as many");
}

#[test]
fn a_host_that_has_its_share_of_the_flows_takes_none_of_anothers() {
    let config = LmaConfig { max_flows: 8, ..lma_config() };
    let mut configs: Vec<_> = (0..2).map(|n| of_one(n, 1..=2)).collect();
    for config in &mut configs {
        for k in 3..=4 {
            let identity = Identity { node: node(3), anchor: None, prefixes: vec![] };
            config.identities.as_mut().unwrap().known.insert(station(k), identity);
        }
    }
    let mut domain = Domain::of(config, configs);
    for (n, k) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        domain.attach(n, station(k));
    }
    domain.run(s(1.0));
    let [quiet, loud] = [1, 3].map(|k| domain.prefix(0, &station(k)));
    for port in 1..=2 {
        flow_comes(&mut domain, flow(quiet, port));
    }
    for port in 1..100 {
        domain.run(domain.now + Span::from_millis(1));
        flow_comes(&mut domain, flow(loud, port));
    }
    let of = |node| domain.lma.flows().filter(|(_, flow)| flow.node == node).count();
    assert_eq!((of(node(1)), of(node(3))), (2, 6));
}

#[test]
fn a_prefix_that_an_interface_has_no_longer_is_advertised_as_such() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    let first = domain.prefix(0, &station(1));
    let lifetimes = |domain: &Domain| {
        let last = domain.frames.iter().rev().find_map(|(_, _, message)| match message {
            nd::Message::RouterAdvertisement(advertisement) => Some(advertisement.options.clone()),
            _ => None,
        });
        let of = |option: &nd::NdOption| match option {
            nd::NdOption::PrefixInformation(p) => {
                Some((Prefix::new(p.prefix, p.prefix_length), p.preferred_lifetime > 0))
            }
            _ => None,
        };
        last.unwrap().iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(lifetimes(&domain), [(first, true)]);
    // Another anchor's answer to the renewal carries a different prefix.
    let (_, answer) = domain.sent_by(LMA, is_acknowledgement).pop().unwrap();
    let mut answer = answer.clone();
    domain.run(s(299.0));
    domain.cut = true;
    domain.run(s(302.0));
    let (_, update) = domain.sent_by(mag(0), is_update).pop().unwrap();
    let Body::BindingUpdate(update) = &update.body else { panic!() };
    let Body::BindingAcknowledgement(body) = &mut answer.body else { panic!() };
    body.sequence = update.sequence;
    for option in &mut answer.options {
        if let MobilityOption::HomeNetworkPrefix(home) = option {
            home.home_network_prefix = "2001:db8:77::".parse().unwrap();
        }
    }
    domain.at_mag(0, came(&answer, LMA, mag(0)));
    let second = domain.prefix(0, &station(1));
    assert_eq!(lifetimes(&domain), [(second, true), (first, false)]);
}

#[test]
fn a_registration_that_waits_ends_with_its_host() {
    let mut configs: Vec<_> = (0..2).map(|n| of_one(n, 1..=2)).collect();
    configs[1].accesses[0].handoff = Handoff::UNKNOWN;
    let mut domain = Domain::of(lma_config(), configs);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(1.5));
    domain.detach(1, station(2));
    domain.run(s(10.0));
    assert_eq!(domain.lma.sessions().count(), 1);
}

#[test]
fn a_shared_prefix_stays_its_hosts_when_a_full_table_displaces_the_interface_that_had_it() {
    let prefix_hold = Span::from_secs(60);
    let config = LmaConfig { pool: small_pool(), capacity: 2, prefix_hold, ..lma_config() };
    let mut configs: Vec<_> = (0..2).map(|n| of_one(n, 1..=2)).collect();
    configs[1].accesses[0].handoff = Handoff::NEW_INTERFACE_SHARING_PREFIXES;
    configs.push(mag_config(2));
    let mut domain = Domain::of(config, configs);
    domain.attach(0, station(1));
    domain.run(s(0.5));
    domain.attach(0, station(9));
    domain.run(s(1.0));
    domain.attach(1, station(2)); // displaces station 1
    domain.run(s(2.0));
    let shared = domain.prefix(1, &station(2));
    domain.detach(0, station(9));
    domain.run(s(100.0));
    for n in 3..=7 {
        domain.attach(2, station(n));
        domain.run(domain.now + Span::from_secs(1));
        assert!(!domain.prefixes(2, &station(n)).contains(&shared), "given to {n} too");
        domain.detach(2, station(n));
        domain.run(domain.now + Span::from_secs(80));
    }
}

#[test]
fn nobody_else_says_at_which_address_a_host_is_asked() {
    let mut domain = by_solicitation();
    domain.at_mag(0, solicitation("fe80::1", station(1).0));
    domain.run(s(1.0));
    domain.at_mag(0, solicitation("fe80::bad", station(1).0));
    domain.run(s(301.0));
    let mut asked = domain.frames.iter().filter_map(|(_, _, message)| match message {
        nd::Message::NeighborSolicitation { target_address, .. } => Some(*target_address),
        _ => None,
    });
    assert_eq!(asked.next_back(), Some("fe80::1".parse().unwrap()));
}

#[test]
fn a_link_layer_address_that_is_none_is_no_hosts() {
    let mut domain = by_solicitation();
    domain.at_mag(0, solicitation("fe80::1", vec![255; 254]));
    assert_eq!(domain.mags[0].stations().count(), 0);
    assert_eq!(domain.mags[0].refused().values().sum::<u64>(), 1);
}

#[test]
fn a_gateway_that_has_lost_its_hosts_still_lives() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.mags[0] = Mag::new(MagConfig { restart_counter: 2, ..mag_config(0) });
    domain.given[1] = Given::default();
    domain.has_link(0);
    domain.run(s(400.0));
    assert!(!domain.reports.contains(&Report::Silent { peer: mag(0).into() }));
}

#[test]
fn a_link_that_comes_back_under_another_index_has_its_hosts_on_disk() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.cut = true;
    domain.at_mag(0, Input::Interfaces(vec![]));
    domain.cut = false;
    let radio = Interface { name: "radio".into(), index: 7, ..Interface::default() };
    domain.at_mag(0, Input::Interfaces(vec![radio]));
    domain.attach_at(0, 7, station(1));
    domain.run(s(5.0));
    assert_eq!(domain.prefixes(0, &station(1)).len(), 1);
    assert!(domain.stored_at_mags[0].values().any(|record| record.stored.is_some()));
}

#[test]
fn a_notification_that_was_overtaken_says_nothing() {
    let mut domain = Domain::of(lma_config(), (0..3).map(|n| of_one(n, 1..=3)).collect());
    for n in 0..3 {
        domain.attach(n, station(n as u8 + 1));
        domain.run(s(n as f64 + 1.0));
    }
    let off = |domain: &Domain| domain.mags[0].stations().next().unwrap().2.off_link.len();
    assert_eq!(off(&domain), 2);
    let is_one = |body: &Body| matches!(body, Body::UpdateNotification(_));
    let first = domain.sent_by(LMA, is_one)[0].1.clone();
    domain.at_mag(0, came(&first, LMA, mag(0)));
    domain.run(s(1_000.0));
    assert_eq!(off(&domain), 2);
}

#[test]
fn a_host_says_nothing_in_its_anchors_name() {
    let first =
        with_wire(of_one(0, 1..=1), AccessTechnology::ETHERNET, Handoff::NEW_INTERFACE, mag(7));
    let mut domain = Domain::of(lma_config(), vec![first, of_one(1, 2..=2)]);
    both_links(&mut domain, 0);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(2.0));
    domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
    let is_told = |body: &Body| {
        matches!(
            body,
            Body::BindingRevocation(BindingRevocation::Indication(_)) | Body::UpdateNotification(_)
        )
    };
    let told = domain.sent_by(LMA, is_told);
    let told: Vec<Message> = told.into_iter().map(|(_, message)| message.clone()).collect();
    let revokes = |message: &&Message| matches!(message.body, Body::BindingRevocation(_));
    assert!(told.iter().any(|message| !revokes(&message)), "a notification");
    assert!(told.iter().any(|message| revokes(&message)), "a revocation");
    domain.drop_wire();
    let before = domain.prefixes(0, &station(1));
    let mut refused = 0;
    for message in &told {
        for interface in [LINK, WIRE] {
            let Input::Datagram(forged) = came(message, LMA, mag(0)) else { unreachable!() };
            let forged = Datagram { interface: Some(interface), ..forged };
            domain.at_mag(0, Input::Datagram(forged));
            refused += 1;
        }
    }
    assert_eq!(domain.prefixes(0, &station(1)), before);
    let counted = |name: &str| {
        let all = domain.mags[0].refused().iter();
        all.filter(|(why, _)| why.name() == name).map(|(_, n)| *n).sum::<u64>()
    };
    assert_eq!(counted("from_host"), refused);
}

#[test]
fn a_forged_restart_makes_nobody_register_again() {
    let mut domain = Domain::new(1);
    for n in 1..=100 {
        domain.attach(0, station(n));
    }
    domain.run(s(1.5));
    domain.log.clear();
    for counter in 10..20 {
        domain.at_mag(0, came(&unasked_beat(counter), LMA, mag(0)));
    }
    domain.run(s(3.0));
    assert_eq!(domain.sent_by(mag(0), is_update).len(), 0);
    let is_beat = |body: &Body| matches!(body, Body::Heartbeat(_));
    assert!(domain.sent_by(mag(0), is_beat).len() <= 2, "the anchor is asked once a second");
}

#[test]
fn strangers_write_no_log_and_have_few_answers_sent_to_others() {
    let mut domain = Domain::new(1);
    let flags = BindingUpdateFlags::ACKNOWLEDGE | BindingUpdateFlags::PROXY;
    let body = Body::BindingUpdate(BindingUpdate { sequence: 1, flags, lifetime_4s: 1 });
    let stranger: Ipv6Addr = "2001:db8:bad::1".parse().unwrap();
    let update = forged(&Message { body, options: vec![] }, stranger, LMA);
    for _ in 0..1_000 {
        domain.at_lma(Input::Datagram(update.clone()));
    }
    assert_eq!(domain.sent_by(LMA, is_acknowledgement).len(), 10, "in a second");
    assert!(!domain.reports.iter().any(|report| matches!(report, Report::Denied { .. })));
    let counted: u64 = domain.lma.refused().values().sum();
    assert_eq!(counted, 1_000);
}

#[test]
fn a_host_that_moves_while_it_is_revoked_is_revoked_where_it_is() {
    let mut domain = Domain::new(2);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
    domain.drop_wire();
    domain.attach(1, station(1));
    domain.run(s(20.0));
    let served = domain.prefixes(1, &station(1)).len();
    assert_eq!(domain.lma.sessions().count(), served);
}

#[test]
fn a_host_that_comes_back_while_it_is_revoked_is_revoked_where_it_is() {
    let mut domain = Domain::new(1);
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.detach(0, station(1));
    domain.run(s(1.2));
    // The revocation reaches the gateway before it has the anchor's answer to the registration.
    domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
    domain.attach(0, station(1));
    domain.run(s(20.0));
    let served = domain.prefixes(0, &station(1)).len();
    assert_eq!(domain.lma.sessions().count(), served);
}

#[test]
fn a_gateway_that_has_started_anew_says_so_from_each_of_its_addresses() {
    let config =
        with_wire(of_one(0, 1..=2), AccessTechnology::ETHERNET, Handoff::NEW_INTERFACE, mag(1));
    let mut domain = Domain::of(lma_config(), vec![config.clone()]);
    both_links(&mut domain, 0);
    domain.attach(0, station(1));
    domain.attach_at(0, WIRE, station(2));
    domain.run(s(1.0));
    domain.mags[0] = Mag::new(MagConfig { restart_counter: 2, ..config });
    domain.given[1] = Given::default();
    for record in domain.stored_at_mags[0].clone().into_values() {
        domain.at_mag(0, Input::Record(record));
    }
    domain.log.clear();
    both_links(&mut domain, 0);
    let said = |body: &Body| matches!(body, Body::Heartbeat(beat) if beat.flags.contains(HeartbeatFlags::UNSOLICITED));
    assert_eq!([mag(0), mag(1)].map(|from| domain.sent_by(from, said).len()), [1, 1]);
}

#[test]
fn a_host_has_no_more_interfaces_than_a_message_can_name() {
    let mut domain = Domain::of(lma_config(), vec![of_one(0, 0..=255)]);
    for n in 0..100 {
        domain.attach(0, station(n));
        domain.run(domain.now + DELAY * 4);
    }
    assert_eq!(domain.lma.sessions().count(), 16);
    assert!(domain.refused(Status::INSUFFICIENT_RESOURCES.name().unwrap()) >= 84);
    // Each gateway knows all prefixes of the host.
    let all: Vec<_> = domain.mags[0].stations().filter(|(.., at)| at.state.is_served()).collect();
    assert!(all.iter().all(|(.., at)| at.prefixes.len() + at.off_link.len() == 16));
}
