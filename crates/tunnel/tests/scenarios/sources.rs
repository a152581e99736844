//! The choice of a path's source address.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use segue_clock::{Machine, Span, Time};
use segue_ip::{Input, Interface};
use segue_tunnel::{Host, HostConfig, HostInput, Order, Output, PathConfig, SourceChoice};
use segue_wire::signal::{FromAnchor, PathGrant};
use segue_wire::{Encapsulation, Mode};

use crate::stage::{host_config, secs};

const ANCHORS: [&str; 2] = ["192.0.2.1:5005", "[2001:db8::1]:5005"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with one interface, whose path gets no answers.
struct Lonely {
    host: Host,
    now: Time,
    /// The path's source and next hop at each change, with the time since the start.
    sent_from: Vec<(Span, IpAddr, Option<IpAddr>)>,
}

impl Lonely {
    fn new(v6: bool, source: Option<&str>, interface: Interface) -> Lonely {
        let anchor: SocketAddr = ANCHORS[usize::from(v6)].parse().unwrap();
        let base = host_config(3, 60);
        let path = PathConfig { source: source.map(ip), ..base.path.clone() };
        let config =
            HostConfig { anchor: vec![anchor], paths: [("wifi".into(), path)].into(), ..base };
        let host = Host::new(config, [5; 32]);
        let mut all = Lonely { host, now: START, sent_from: Vec::new() };
        all.tell(Input::Interfaces(vec![interface]));
        all.tell(HostInput::SignalUp { interface: "wifi".into(), anchor }.into());
        let inner = vec![ip("10.77.0.2"), ip("fd5e::2"), ip("10.0.0.2")];
        let registered = FromAnchor::Registered { inner, anchor: Vec::new(), tunnel_port: 5005 };
        all.tell(HostInput::Signal(registered).into());
        let grant = PathGrant {
            path: 0,
            index: 1,
            cookie: 2,
            key: [3; 16],
            mode: Mode::Both,
            rides: true,
            encapsulation: Encapsulation::Segue,
            checksums: false,
        };
        all.tell(HostInput::Signal(FromAnchor::PathReady(grant)).into());
        all
    }

    fn tell(&mut self, input: Input<HostInput, Infallible>) {
        self.host.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.host.poll() {
            let Output::Order(Order::SetPath(_, setup)) = output else { continue };
            let way = (setup.local.unwrap().ip(), setup.gateway);
            if self.sent_from.last().map(|(_, local, gateway)| (*local, *gateway)) != Some(way) {
                self.sent_from.push((self.now.since(START), way.0, way.1));
            }
        }
    }

    fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while let Some((at, _)) = self.host.deadline().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.host.tick(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn sources(&self) -> Vec<IpAddr> {
        self.sent_from.iter().map(|(_, local, _)| *local).collect()
    }

    fn choice(&self) -> Option<SourceChoice> {
        self.host.paths().next().map(|(_, path)| path.source_choice())
    }
}

const START: Time = Time(1_000_000_000);

fn wifi(addresses: &[&str]) -> Interface {
    Interface {
        name: "wifi".into(),
        index: 2,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        mtu_bytes: 1_500,
        ..Interface::default()
    }
}

/// Two addresses of one family, and one of the other; for IPv4 and for IPv6.
const ADDRESSES: [[&str; 3]; 2] =
    [["10.91.0.2", "10.0.0.2", "2001:db8:91::2"], ["2001:db8:91::2", "2001:db8:5::2", "10.91.0.2"]];

#[test]
fn the_preferred_address_comes_first_and_the_others_in_turn_while_none_is_answered() {
    for (v6, [first, second, other]) in [false, true].into_iter().zip(ADDRESSES) {
        let mut host = Lonely::new(v6, None, wifi(&[other, first, second]));
        assert_eq!(host.choice(), Some(SourceChoice::Preferred));
        host.run_for(secs(2));
        assert_eq!(host.sources(), [ip(first)]);
        host.run_for(secs(2));
        assert_eq!(host.sources(), [ip(first), ip(second)]);
        assert_eq!(host.choice(), Some(SourceChoice::Tried));
        // Announced again unchanged: the address on trial stays.
        host.tell(Input::Interfaces(vec![wifi(&[first, second, other])]));
        assert_eq!(host.sources(), [ip(first), ip(second)]);
        host.run_for(secs(3));
        assert_eq!(host.sources(), [first, second, first].map(ip));
        let times: Vec<Span> = host.sent_from.iter().map(|(at, ..)| *at).collect();
        let waits = times.windows(2).map(|two| two[1] - two[0]);
        assert!(waits.clone().all(|wait| (secs(3)..secs(4)).contains(&wait)), "{times:?}");
    }
}

#[test]
fn a_new_preference_counts_at_once_and_an_address_that_goes_is_left() {
    for (v6, [first, second, _]) in [false, true].into_iter().zip(ADDRESSES) {
        let mut host = Lonely::new(v6, None, wifi(&[first, second]));
        // The first is deprecated.
        host.tell(Input::Interfaces(vec![wifi(&[second, first])]));
        assert_eq!(host.sources(), [first, second].map(ip));
        assert_eq!(host.choice(), Some(SourceChoice::Preferred));
        host.tell(Input::Interfaces(vec![wifi(&[first])]));
        host.run_for(secs(60));
        assert_eq!(host.sources(), [first, second, first].map(ip), "there is no other to try");
    }
}

#[test]
fn each_address_has_a_next_hop_of_its_own() {
    let [first, second, _] = ADDRESSES[1];
    let routers = ["fe80::1", "fe80::2"].map(ip);
    let interface = Interface {
        gateways: vec![routers[0]],
        by_source: vec![(ip(second), routers[1])],
        ..wifi(&[first, second])
    };
    let mut host = Lonely::new(true, None, interface);
    host.run_for(secs(4));
    let ways: Vec<_> = host.sent_from.iter().map(|(_, local, next)| (*local, *next)).collect();
    assert_eq!(ways, [(ip(first), Some(routers[0])), (ip(second), Some(routers[1]))]);
}

#[test]
fn a_configured_address_stays_and_without_it_there_is_no_path() {
    for (v6, [first, second, _]) in [false, true].into_iter().zip(ADDRESSES) {
        let mut host = Lonely::new(v6, Some(second), wifi(&[first, second]));
        host.run_for(secs(60));
        assert_eq!(host.sources(), [ip(second)]);
        assert_eq!(host.choice(), Some(SourceChoice::Configured));
        let mut host = Lonely::new(v6, Some(second), wifi(&[first]));
        assert_eq!(host.choice(), None);
        // The configured address appears.
        host.tell(Input::Interfaces(vec![wifi(&[first, second])]));
        assert_eq!(host.choice(), Some(SourceChoice::Configured));
    }
}

#[test]
fn addresses_that_no_path_uses_are_no_inner_addresses() {
    let inner = |host: &Lonely| host.host.inner().contains(&ip("10.0.0.2"));
    let both = || wifi(&["10.91.0.2", "10.0.0.2"]);
    let apart = Interface { unusable: vec![ip("10.0.0.2")], ..wifi(&["10.91.0.2"]) };
    for (source, interface) in [(None, both()), (Some("10.91.0.2"), both()), (None, apart)] {
        assert!(!inner(&Lonely::new(false, source, interface)));
    }
    assert_eq!(Lonely::new(false, None, both()).host.inner()[0], ip("10.77.0.2"));
}
