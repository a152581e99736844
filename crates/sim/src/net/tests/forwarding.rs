//! Tests of routing decisions.

use super::*;
use alloc::string::String;

use segue_ip::{Forward, Forwarding, MAIN_TABLE, Route, Then};

use crate::net::Rule;

#[test]
fn a_packet_passes_as_many_routers_as_its_ttl_says() {
    let (mut network, nodes, _) = chain(1, &[spec(10, 0), spec(10, 0), spec(10, 0)]);
    let with =
        |ttl: u8| Packet { ttl, ..numbered(udp("10.0.0.0", 1, "10.0.0.3", 2, 100), ttl.into()) };
    network.add_agent(nodes[0], "a", &[], Desk::sending([(0, with(2)), (MS, with(3))]));
    let sink = network.add_agent(nodes[3], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(10 * MS));
    let left: Vec<_> =
        network.agent::<Desk>(sink).unwrap().got.iter().map(|(_, p)| p.ttl).collect();
    assert_eq!((left, network.refused()), ([1].into(), Refused { ttl: 1, ..Refused::default() }));
}

#[test]
fn what_cannot_be_delivered_is_counted_by_reason() {
    let (mut network, nodes, _) = chain(1, &[spec(10, 0)]);
    network.add_interface(nodes[0], "loose");
    network.node_mut(nodes[0]).routes.set(Prefix::host(ip("10.9.9.9")), Hop::Interface(2));
    network.node_mut(nodes[0]).routes.set(Prefix::host(ip("10.9.9.8")), Hop::Reject);
    network.node_mut(nodes[1]).forwards = false;
    network.node_mut(nodes[0]).routes.set(Prefix::host(ip("10.9.9.7")), Hop::Interface(1));
    let plan = ["10.0.0.1", "10.0.0.7", "10.9.9.9", "10.9.9.8", "10.9.9.7"];
    let plan = plan.map(|to| (0, udp("10.0.0.0", 1, to, 2, 100)));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    // One listener for another port, and one for another protocol.
    network.add_agent(nodes[1], "b", &[(UDP, 3), (6, 0)], Box::default() as Box<Desk>);
    network.run_until(Time(MS));
    let expected = Refused {
        no_listener: 1,
        no_route: 2,
        detached: 1,
        not_forwarded: 1,
        ..Refused::default()
    };
    assert_eq!(network.refused(), expected);
}

#[test]
fn the_listener_of_a_port_goes_before_the_one_of_all_ports() {
    let (mut network, nodes, _) = chain(1, &[spec(10, 0)]);
    let plan =
        [2, 3].map(|port| (0, numbered(udp("10.0.0.0", 1, "10.0.0.1", port, 100), port.into())));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let all = network.add_agent(nodes[1], "all", &[(UDP, 0)], Box::default() as Box<Desk>);
    let two = network.add_agent(nodes[1], "two", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(MS));
    let numbers = |id| got(&network, id).into_iter().map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!((numbers(two), numbers(all)), ([2].into(), [3].into()));
}

#[test]
fn rules_decide_by_source_code_point_protocol_and_port_and_the_longest_prefix_decides_the_rest() {
    // Five links from node 0 to node 1; the channel counters show which one was used.
    let mut network = Network::new(1);
    let (a, b) = (network.add_node("a"), network.add_node("b"));
    let links: Vec<_> = (0..5).map(|_| link(&mut network, a, b, spec(10, 0)).0).collect();
    let routes = &mut network.node_mut(a).routes;
    let everything = Rule::all(Hop::Interface(1));
    routes.add_rule(Rule { from: Some(Prefix::new(ip("10.1.0.0"), 16)), ..everything });
    let dscp = Rule { dscp: Some(46), hop: Hop::Interface(2), ..everything };
    routes.add_rule(dscp);
    let port = Rule { protocol: Some(UDP), dport: Some(53), hop: Hop::Interface(3), ..everything };
    routes.add_rule(port);
    routes.set(Prefix::default_of(false), Hop::Interface(4));
    routes.set(Prefix::new(ip("192.0.2.0"), 24), Hop::Interface(5));
    let mut marked = udp("10.0.0.1", 1, "192.0.2.1", 53, 100);
    marked.dscp = 46;
    let plan = [
        udp("10.1.2.3", 1, "192.0.2.1", 53, 100), // the first rule
        marked,                                   // the second, though the third fits as well
        udp("10.0.0.1", 1, "192.0.2.1", 53, 100), // the third
        udp("10.0.0.1", 1, "192.0.3.1", 54, 100), // the default
        udp("10.0.0.1", 1, "192.0.2.1", 54, 100), // the longer prefix
    ];
    network.add_agent(a, "a", &[], Desk::sending(plan.map(|packet| (0, packet))));
    network.run_until(Time(MS));
    let taken: Vec<_> = links.iter().map(|id| network.counters(*id).delivered).collect();
    assert_eq!(taken, [1, 1, 1, 1, 1]);
    network.node_mut(a).routes.remove_rules(Hop::Interface(3));
    assert_eq!(
        network.node(a).routes.look_up(&udp("10.0.0.1", 1, "192.0.2.1", 53, 9)),
        Some(Hop::Interface(5))
    );
}

#[test]
fn routes_are_shortest_and_among_equals_over_the_link_that_was_added_first() {
    // Three routes from 0 to 3: 0–1–3, 0–2–3, and the longer 0–4–5–3.
    let mut network = Network::new(1);
    let nodes: Vec<_> = (0..6).map(|i| network.add_node(alloc::format!("n{i}"))).collect();
    for (a, b) in [(0, 2), (0, 1), (0, 4), (4, 5), (5, 3), (1, 3), (2, 3)] {
        link(&mut network, nodes[a], nodes[b], spec(10, 0));
    }
    network.node_mut(nodes[3]).addresses.push(ip("10.0.0.3"));
    network.route_all(|_| true);
    let towards =
        |network: &Network, i: usize| network.node(nodes[i]).routes.towards(ip("10.0.0.3"));
    // Node 3's links to 5, 1 and 2 were added in this order, so node 0 uses node 1, over its second interface.
    assert_eq!(towards(&network, 0), Some(Hop::Interface(2)));
    assert_eq!(towards(&network, 4), Some(Hop::Interface(2)));
    // If node 1 carries no transit traffic, over node 2; if neither does, the long way.
    for (silent, expected) in [(&[1][..], 1), (&[1, 2], 3)] {
        network.route_all(|id| !silent.contains(&id.0));
        assert_eq!(towards(&network, 0), Some(Hop::Interface(expected)), "{silent:?}");
        assert_eq!(towards(&network, 1), Some(Hop::Interface(2)));
    }
}

#[test]
fn an_interfaces_own_address_is_reached_over_its_own_link_even_if_that_is_longer() {
    // 0–1 directly, and 0–2–1; the interface of 1 towards 2 has an address.
    let mut network = Network::new(1);
    let nodes: Vec<_> = (0..3).map(|i| network.add_node(alloc::format!("n{i}"))).collect();
    let direct = link(&mut network, nodes[0], nodes[1], spec(10, 0)).0;
    let first = link(&mut network, nodes[0], nodes[2], spec(10, 0)).0;
    let second = link(&mut network, nodes[2], nodes[1], spec(10, 0)).0;
    network.node_mut(nodes[1]).adapters[1].interface.addresses.push(ip("10.1.0.1"));
    network.node_mut(nodes[1]).addresses.push(ip("10.0.0.1"));
    network.route_all(|_| true);
    let plan = ["10.1.0.1", "10.0.0.1"].map(|to| (0, udp("10.0.0.9", 1, to, 2, 100)));
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let sink = network.add_agent(nodes[1], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(MS));
    let taken = [direct, first, second].map(|id| network.counters(id).delivered);
    assert_eq!((taken, got(&network, sink).len()), ([1, 1, 1], 2));
}

/// One end of a tunnel: encapsulates packets routed to it, or decapsulates packets that arrive.
struct End(Option<(IpAddr, IpAddr)>);

impl Agent for End {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        match self.0 {
            None => io.arrive(opened(packet).expect("it is encapsulated")),
            Some((src, dst)) => io.send(encapsulate(src, dst, packet)),
        }
    }
}

#[test]
fn a_packet_in_a_packet_counts_both_headers_on_its_way_and_comes_out_as_it_was() {
    let links = [spec(8, 0), spec(8, 0), spec(8, 0), spec(8, 0)];
    let (mut network, nodes, channels) = chain(1, &links);
    // A tunnel from node 1 to node 3.
    let into = Box::new(End(Some((ip("10.0.0.1"), ip("10.0.0.3")))));
    let into = network.add_agent(nodes[1], "into", &[], into);
    network.node_mut(nodes[1]).routes.set(Prefix::host(ip("10.0.0.4")), Hop::Agent(into));
    network.add_agent(nodes[3], "out", &[(4, 0)], Box::new(End(None)));
    let plan = [(0, numbered(udp("10.0.0.0", 1, "10.0.0.4", 2, 200), 5))];
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    let sink = network.add_agent(nodes[4], "b", &[(UDP, 2)], Box::default() as Box<Desk>);
    network.run_until(Time(10 * MS));
    // 1 µs per byte: 200, 220, 220, 200.
    assert_eq!(got(&network, sink), [(840_000, 5)]);
    let bytes: Vec<_> = channels.iter().map(|id| network.counters(*id).delivered_bytes).collect();
    assert_eq!(bytes, [200, 220, 220, 200]);
    // The inner packet passed the routers 1 and 3.
    assert_eq!(network.agent::<Desk>(sink).unwrap().got[0].1.ttl, TTL - 2);
}

#[test]
fn a_tunnel_that_leads_into_itself_over_another_ends() {
    let (mut network, nodes, _) = chain(1, &[spec(8, 0)]);
    let node = network.node_mut(nodes[0]);
    node.routes.set(Prefix::host(ip("10.2.0.1")), Hop::Agent(AgentId(1)));
    node.routes.set(Prefix::host(ip("10.2.0.2")), Hop::Agent(AgentId(0)));
    for to in ["10.2.0.1", "10.2.0.2"] {
        network.add_agent(nodes[0], to, &[], Box::new(End(Some((ip("10.0.0.0"), ip(to))))));
    }
    let plan = [(0, udp("10.0.0.0", 1, "10.2.0.1", 2, 200))];
    network.add_agent(nodes[0], "a", &[], Desk::sending(plan));
    network.run_until(Time(MS));
    assert_eq!(network.refused(), Refused { loops: 1, ..Refused::default() });
}

#[test]
fn two_agents_of_one_node_talk_in_the_order_in_which_they_speak() {
    let mut network = Network::new(1);
    let node = network.add_node("n");
    network.node_mut(node).addresses.push(ip("10.0.0.1"));
    let plan = (0..50).map(|i| (0, numbered(udp("10.0.0.1", 1, "10.0.0.1", 2, 100), i)));
    let a = network.add_agent(node, "a", &[(UDP, 1)], Desk::sending(plan));
    let echo = Box::new(Desk { echo: true, ..Desk::default() });
    network.add_agent(node, "b", &[(UDP, 2)], echo);
    network.run_until(Time(MS));
    let back: Vec<_> = got(&network, a).into_iter().map(|(_, number)| number).collect();
    assert_eq!(back, (0..50).collect::<Vec<_>>());
}

/// Installs and removes forwarding at its node when the run starts.
struct Asks(Vec<(Forward, bool)>);

impl Agent for Asks {
    fn start(&mut self, io: &mut Io<'_>) {
        for (part, present) in &self.0 {
            let done = if *present { io.put(part) } else { io.take_back(part) };
            done.unwrap();
        }
    }

    fn receive(&mut self, _: &mut Io<'_>, _: Option<u32>, _: Packet) {}
}

#[test]
fn rules_choose_a_table_by_the_interface_that_a_packet_came_by() {
    // Nodes 0 and 1 send through node 2, which has three links to node 3.
    let mut network = Network::new(1);
    let nodes: Vec<_> = (0..4).map(|i| network.add_node(alloc::format!("n{i}"))).collect();
    for node in &nodes[..2] {
        link(&mut network, *node, nodes[2], spec(10, 0));
        network.node_mut(*node).routes.set(Prefix::default_of(false), Hop::Interface(1));
    }
    let ways: Vec<_> =
        (0..3).map(|_| link(&mut network, nodes[2], nodes[3], spec(10, 0)).0).collect();
    network.node_mut(nodes[3]).addresses.push(ip("192.0.2.1"));
    let by = |n: usize| network.node(nodes[2]).adapter(n as u32).unwrap().interface.name.clone();
    let everything = Prefix::default_of(false);
    let route = |way, table| Forward::Route(Route::on(everything, way).table(table));
    let rule = |priority, iif: String, table| {
        let iif = Some(iif);
        segue_ip::Rule { priority, table, iif, ..Default::default() }
    };
    let (first, own) = (rule(100, by(1), 77), rule(100, "lo".into(), 78));
    let gone = rule(50, by(1), 78);
    // Packets over interface 1 skip the next rule, which refuses everything.
    let skip = segue_ip::Rule { then: Then::Goto(99), ..rule(90, by(1), 0) };
    let refuse = segue_ip::Rule { then: Then::Prohibit, invert: true, ..rule(95, by(2), 0) };
    let own_skip = segue_ip::Rule { then: Then::Goto(99), ..rule(90, "lo".into(), 0) };
    let other_family =
        segue_ip::Rule { v6: true, priority: 1, then: Then::Prohibit, ..Default::default() };
    let rules = [first, own, gone.clone(), skip, refuse, own_skip, other_family];
    let mut parts: Vec<_> = rules.map(|rule| (Forward::Rule(rule), true)).into();
    parts.push((Forward::Rule(gone), false));
    parts.extend([(route(3, MAIN_TABLE), true), (route(4, 77), true), (route(5, 78), true)]);
    network.add_agent(nodes[2], "asks", &[], Box::new(Asks(parts)));
    for (node, packets) in [(nodes[0], 1), (nodes[1], 2), (nodes[2], 4)] {
        let plan = (0..packets).map(|_| (MS, udp("10.0.0.0", 1, "192.0.2.1", 2, 100)));
        network.add_agent(node, "sends", &[], Desk::sending(plan));
    }
    network.run_until(Time(10 * MS));
    let taken: Vec<_> = ways.iter().map(|way| network.counters(*way).delivered).collect();
    // Interface 2 uses the main table, interface 1 the first additional one, the node itself the second.
    assert_eq!(taken, [2, 1, 4]);
}

#[test]
fn a_neighbour_is_found_behind_the_node_that_answers_for_it() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node("a"), network.add_node("b"));
    link(&mut network, a, b, spec(10, 0));
    let proxy = |address| Forward::Proxy { interface: 1, address: ip(address) };
    let parts = [(proxy("10.0.0.7"), true), (proxy("10.0.0.8"), true), (proxy("10.0.0.8"), false)];
    network.add_agent(b, "asks", &[], Box::new(Asks(parts.into())));
    assert_eq!(network.neighbour(a, ip("10.0.0.7")), None);
    network.run_until(Time(MS));
    assert_eq!(["10.0.0.7", "10.0.0.8"].map(|at| network.neighbour(a, ip(at))), [Some(1), None]);
}
