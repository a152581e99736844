//! Tests of address translators: which packets pass, over which port, and for how long.

use super::*;
use crate::packet::TCP;

const SERVER: &str = "203.0.113.1";
const OTHER: &str = "203.0.113.2";
const OUTSIDE: &str = "198.51.100.1";
const INSIDE: &str = "192.168.1.2";

/// A packet of the inside host: time in milliseconds, source port, destination.
type Out = (u64, u16, (&'static str, u16));
/// A packet of a server to the outside address: time in milliseconds, source, destination port.
type In = (u64, (&'static str, u16), u16);

struct Home {
    network: Network,
    nat: NodeId,
    inside: AgentId,
    server: AgentId,
    other: AgentId,
}

/// host ─ inside ─ NAT ─ outside ─ router ─ two servers; the servers record what they receive.
fn home(change: impl Fn(&mut NatConfig), out: &[Out], back: &[In]) -> Home {
    let mut network = Network::new(1);
    let names = ["host", "nat", "router", "server", "other"];
    let [host, nat, router, server, other] = names.map(|name| network.add_node(name));
    for (a, b) in [(host, nat), (nat, router), (router, server), (router, other)] {
        link(&mut network, a, b, spec(100, 0));
    }
    for (node, address) in [(host, INSIDE), (server, SERVER), (other, OTHER)] {
        network.node_mut(node).addresses.push(ip(address));
    }
    network.node_mut(nat).adapters[0].interface.addresses.push(ip("192.168.1.1"));
    network.node_mut(nat).adapters[1].interface.addresses.push(ip(OUTSIDE));
    let mut config = NatConfig::new([1].into(), ip(OUTSIDE));
    config.ports = (40_000, 40_009);
    change(&mut config);
    network.add_nat(nat, config).unwrap();
    network.route_all(|_| true);
    let plan = out.iter().zip(0..).map(|((at, port, to), number)| {
        (at * MS, numbered(udp(INSIDE, *port, to.0, to.1, 100), number))
    });
    let inside = network.add_agent(host, "in", &[(UDP, 0), (6, 0)], Desk::sending(plan));
    let from = |address: &str| {
        let mine = back.iter().zip(100..).filter(|((_, from, _), _)| from.0 == address);
        let plan: Vec<_> = mine
            .map(|((at, from, port), number)| {
                (at * MS, numbered(udp(from.0, from.1, OUTSIDE, *port, 100), number))
            })
            .collect();
        Desk::sending(plan)
    };
    let (at_server, at_other) = (from(SERVER), from(OTHER));
    let server = network.add_agent(server, "s", &[(UDP, 0), (6, 0)], at_server);
    let other = network.add_agent(other, "o", &[(UDP, 0), (6, 0)], at_other);
    Home { network, nat, inside, server, other }
}

impl Home {
    fn run(&mut self, ms: u64) -> NatCounters {
        self.network.run_until(Time(ms * MS));
        self.network.node(self.nat).nat().unwrap().counters()
    }

    /// Source address and port of all packets that a server received.
    fn seen(&self, server: AgentId) -> Vec<(IpAddr, u16)> {
        let desk = self.network.agent::<Desk>(server).unwrap();
        desk.got.iter().map(|(_, packet)| (packet.src, packet.ports.0)).collect()
    }

    /// Number and destination port of all packets that the inside host received.
    fn back(&self) -> Vec<(u64, u16)> {
        let desk = self.network.agent::<Desk>(self.inside).unwrap();
        let numbers = got(&self.network, self.inside).into_iter().map(|(_, number)| number);
        numbers.zip(desk.got.iter().map(|(_, packet)| packet.ports.1)).collect()
    }
}

fn at(port: u16) -> (IpAddr, u16) {
    (ip(OUTSIDE), port)
}

#[test]
fn an_endpoint_keeps_its_port_whoever_it_talks_to_unless_the_mapping_depends_on_that() {
    let out = [(0, 7, (SERVER, 1)), (1, 7, (SERVER, 2)), (2, 7, (OTHER, 1)), (3, 8, (SERVER, 1))];
    let cases = [
        (Behaviour::EndpointIndependent, [40_000, 40_000, 40_001], 40_000),
        (Behaviour::AddressDependent, [40_000, 40_000, 40_002], 40_001),
        (Behaviour::AddressAndPortDependent, [40_000, 40_001, 40_003], 40_002),
    ];
    for (mapping, server, other) in cases {
        let mut home = home(|config| config.mapping = mapping, &out, &[]);
        assert_eq!(home.run(10).out, 4);
        assert_eq!(home.seen(home.server), server.map(at), "{mapping:?}");
        assert_eq!(home.seen(home.other), [at(other)], "{mapping:?}");
    }
}

#[test]
fn a_filter_lets_in_whom_its_kind_says() {
    // The host has sent to port 1 of the server. The server answers from this port and from another one, then the
    // other server tries; finally a port without a mapping is tried.
    let back = [
        (10, (SERVER, 1), 40_000),
        (11, (SERVER, 2), 40_000),
        (12, (OTHER, 1), 40_000),
        (13, (SERVER, 1), 40_001),
    ];
    let cases = [
        (Behaviour::EndpointIndependent, &[100, 101, 102][..]),
        (Behaviour::AddressDependent, &[100, 101]),
        (Behaviour::AddressAndPortDependent, &[100]),
    ];
    for (filtering, expected) in cases {
        let out = [(0, 7, (SERVER, 1))];
        let mut home = home(|config| config.filtering = filtering, &out, &back);
        let counters = home.run(20);
        let expected: Vec<_> = expected.iter().map(|number| (*number, 7)).collect();
        assert_eq!(home.back(), expected, "{filtering:?}");
        let refused = 3 - expected.len() as u64;
        assert_eq!((counters.filtered, counters.no_mapping), (refused, 1), "{filtering:?}");
        assert_eq!(home.network.refused().nat, refused + 1);
    }
}

#[test]
fn a_mapping_ends_its_timeout_behind_the_last_packet_from_inside() {
    let out = [(0, 7, (SERVER, 1)), (90_000, 7, (SERVER, 1)), (400_000, 7, (SERVER, 1))];
    let back = [(209_000, (SERVER, 1), 40_000), (211_000, (SERVER, 1), 40_000)];
    let mut home = home(|_| (), &out, &back);
    let counters = home.run(500_000);
    // The second answer comes 120 s after the refresh at 90 s; the next packet gets a new mapping with the next
    // port.
    assert_eq!(home.back(), [(100, 7)]);
    assert_eq!((counters.mappings, counters.no_mapping), (2, 1));
    assert_eq!(home.seen(home.server), [at(40_000), at(40_000), at(40_001)]);
}

#[test]
fn packets_from_outside_keep_a_mapping_where_it_says_so() {
    let back = [(100_000, (SERVER, 1), 40_000), (200_000, (SERVER, 1), 40_000)];
    for (inbound_refresh, expected) in [(false, 1), (true, 2)] {
        let change = |config: &mut NatConfig| config.inbound_refresh = inbound_refresh;
        let mut home = home(change, &[(0, 7, (SERVER, 1))], &back);
        home.run(300_000);
        assert_eq!(home.back().len(), expected, "{inbound_refresh}");
    }
}

#[test]
fn without_a_free_port_a_new_mapping_is_refused_until_an_old_one_ends() {
    // Ten ports and eleven endpoints; the last one tries again after the other mappings have expired.
    let mut out: Vec<Out> = (0..11).map(|i| (u64::from(i), 100 + i, (SERVER, 1))).collect();
    out.push((119_000, 111, (SERVER, 1)));
    out.push((120_003, 111, (SERVER, 1)));
    let mut home = home(|_| (), &out, &[]);
    let counters = home.run(200_000);
    assert_eq!((counters.out, counters.exhausted, counters.mappings), (11, 2, 11));
    assert_eq!(home.seen(home.server).last(), Some(&at(40_000)));
}

#[test]
fn a_rebinding_forgets_all_mappings_and_may_change_the_outside_address() {
    let out = [(0, 7, (SERVER, 1)), (20, 7, (SERVER, 1)), (40, 7, (SERVER, 1))];
    let back = [(15, (SERVER, 1), 40_000), (25, (SERVER, 1), 40_001)];
    let mut home = home(|_| (), &out, &back);
    let new = ip("198.51.100.77");
    home.network.schedule(Time(10 * MS), Change::RebindNat(home.nat, None));
    home.network.schedule(Time(30 * MS), Change::RebindNat(home.nat, Some(new)));
    let (nat, server) = (home.nat, home.network.agents[home.server.0 as usize].node);
    // An answer to the new address.
    let answer = [(50 * MS, numbered(udp(SERVER, 1, "198.51.100.77", 40_002, 100), 7))];
    home.network.add_agent(server, "again", &[], Desk::sending(answer));
    let counters = home.run(100);
    assert_eq!(home.seen(home.server), [at(40_000), at(40_001), (new, 40_002)]);
    assert_eq!(home.back(), [(101, 7), (7, 7)]);
    assert_eq!((counters.rebindings, counters.no_mapping, counters.mappings), (2, 1, 3));
    assert!(home.network.node(nat).owns(new) && !home.network.node(nat).owns(ip(OUTSIDE)));
}

#[test]
fn tcp_has_ports_of_its_own_and_a_packet_without_ports_is_refused() {
    let mut home = home(|_| (), &[(0, 7, (SERVER, 1))], &[]);
    let host = home.network.agents[home.inside.0 as usize].node;
    let tcp = |sport| Packet::new(TCP, (ip(INSIDE), sport), (ip(SERVER), 1), 40, Raw::default());
    let tunnel = encapsulate(ip(INSIDE), ip(SERVER), udp("10.0.0.1", 1, "10.0.0.2", 2, 100));
    let plan = [(MS, tcp(9)), (2 * MS, tcp(7)), (3 * MS, tunnel)];
    home.network.add_agent(host, "more", &[], Desk::sending(plan));
    let counters = home.run(100);
    assert_eq!(home.seen(home.server), [at(40_000), at(40_001), at(40_002)]);
    assert_eq!((counters.mappings, counters.no_ports), (3, 1));
}

#[test]
fn two_homes_may_have_the_same_inside_addresses() {
    let mut network = Network::new(1);
    let router = network.add_node("router");
    network.node_mut(router).addresses.push(ip(SERVER));
    let echo = Box::new(Desk { echo: true, ..Desk::default() });
    let server = network.add_agent(router, "server", &[(UDP, 1)], echo);
    let mut agents = Vec::new();
    for home in 0..2u8 {
        let (host, nat) = (network.add_node("host"), network.add_node("nat"));
        link(&mut network, host, nat, spec(100, 0));
        link(&mut network, nat, router, spec(100, 0));
        let outside = alloc::format!("198.51.100.{home}");
        network.node_mut(host).adapters[0].interface.addresses.push(ip(INSIDE));
        network.node_mut(nat).adapters[1].interface.addresses.push(ip(&outside));
        network.add_nat(nat, NatConfig::new([1].into(), ip(&outside))).unwrap();
        let packet = numbered(udp(INSIDE, 5, SERVER, 1, 100), home.into());
        let desk = Desk::sending([(MS * u64::from(home), packet)]);
        agents.push(network.add_agent(host, "h", &[(UDP, 5)], desk));
    }
    network.route_all(|_| true);
    assert_eq!(network.node(router).routes.towards(ip(INSIDE)), None);
    network.run_until(Time(10 * MS));
    let sources: Vec<_> =
        network.agent::<Desk>(server).unwrap().got.iter().map(|(_, p)| p.src).collect();
    assert_eq!(sources, [ip("198.51.100.0"), ip("198.51.100.1")]);
    for (agent, number) in agents.into_iter().zip(0..) {
        let numbers: Vec<_> = got(&network, agent).into_iter().map(|(_, n)| n).collect();
        assert_eq!(numbers, [number]);
    }
}

#[test]
fn what_makes_no_translator_is_refused_with_its_reason() {
    let mut network = Network::new(1);
    let (nat, other) = (network.add_node("nat"), network.add_node("other"));
    link(&mut network, nat, other, spec(100, 0));
    link(&mut network, nat, other, spec(100, 0));
    network.node_mut(nat).adapters[0].interface.addresses.push(ip("192.168.1.1"));
    network.node_mut(nat).adapters[1].interface.addresses.push(ip(OUTSIDE));
    let good = NatConfig::new([1].into(), ip(OUTSIDE));
    let mut refused = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = good.clone();
        change(&mut config);
        network.add_nat(nat, config).unwrap_err()
    };
    assert_eq!(refused(&|c| c.inside = [3].into()), NatError::NoInterface(3));
    assert_eq!(refused(&|c| (c.inside, c.cells_inside) = ([].into(), false)), NatError::NoInside);
    for address in [SERVER, "192.168.1.1"] {
        assert_eq!(refused(&|c| c.outside = ip(address)), NatError::NotOutside(ip(address)));
    }
    assert_eq!(refused(&|c| c.ports = (5, 4)), NatError::Ports(5, 4));
    assert_eq!(refused(&|c| c.ports = (0, 4)), NatError::Ports(0, 4));
    assert_eq!(refused(&|c| c.udp_timeout = Span::ZERO), NatError::ZeroTimeout);
    assert_eq!(network.add_nat(nat, good.clone()), Ok(()));
    assert_eq!(network.add_nat(nat, good), Err(NatError::Second));
}
