//! Tests of link notifications and link-scope packets.

use alloc::vec;

use segue_ip::DownReason;

use super::*;
use crate::packet::TCP;

const ALL_NODES: &str = "ff02::1";

/// A router with a cell, two radios (the second attaches at 10 ms), and a link to a node behind the router.
struct Home {
    network: Network,
    router: NodeId,
    agents: Vec<AgentId>,
    radios: [RadioId; 2],
    cell: CellId,
}

fn home(over_links: &[(u64, u32, Packet)]) -> Home {
    let mut network = Network::new(1);
    let (router, behind) = (network.add_node("router"), network.add_node("behind"));
    link(&mut network, router, behind, spec(1_000, 0));
    network.node_mut(behind).addresses.push(ip("fd00::9"));
    let (prefix, gateway) = (Some(Prefix::new(ip("fd01::"), 64)), Some(ip("fd01::1")));
    let (down, up) = (spec(1_000, 0), spec(1_000, 0));
    let config = CellConfig { router, gateway, prefix, down, up };
    let cell = network.add_cell(config).unwrap();
    let radio = |name: &str, network: &mut Network| {
        let node = network.add_node(name);
        let interface = network.add_interface(node, "wlan0");
        let radio = network.add_radio(RadioConfig { node, interface, at_once: 1 }).unwrap();
        (node, radio)
    };
    let (first, second) = (radio("a", &mut network), radio("b", &mut network));
    network.schedule(Time(MS), Change::Attach(first.1, cell));
    network.schedule(Time(10 * MS), Change::Attach(second.1, cell));
    let plan = over_links.iter().map(|(at, over, packet)| (Time(*at), *over, packet.clone()));
    let sender = Desk { over_links: plan.collect(), ..Desk::default() };
    let mut agents = vec![network.add_agent(router, "router", &[(UDP, 2)], Box::new(sender))];
    for node in [behind, first.0, second.0] {
        let name = alloc::format!("at {}", node.0);
        agents.push(network.add_agent(node, name, &[(UDP, 2)], Box::<Desk>::default()));
    }
    Home { network, router, agents, radios: [first.1, second.1], cell }
}

fn desk(network: &Network, id: AgentId) -> &Desk {
    network.agent::<Desk>(id).unwrap()
}

#[test]
fn a_multicast_of_link_scope_reaches_all_radios_of_the_cell_and_nothing_behind_them() {
    let to_all = |number| {
        let packet = Packet { ttl: 255, ..udp("fd01::1", 1, ALL_NODES, 2, 100) };
        numbered(packet, number)
    };
    // Interface 1 leads to the node behind, 2 to the first radio.
    let sent = [(5 * MS, 2, to_all(1)), (15 * MS, 2, to_all(2)), (20 * MS, 1, to_all(3))];
    let mut home = home(&sent);
    home.network.schedule(Time(25 * MS), Change::Detach(home.radios[0], home.cell));
    home.network.run_until(Time(30 * MS));
    let numbers = |id: AgentId| got(&home.network, id).into_iter().map(|(_, n)| n);
    let all: Vec<Vec<u64>> = home.agents.iter().map(|id| numbers(*id).collect()).collect();
    assert_eq!(all, [vec![], vec![3], vec![1, 2], vec![2]]);
    for id in &home.agents {
        assert!(desk(&home.network, *id).got.iter().all(|(_, packet)| packet.ttl == 255));
    }
    assert_eq!(home.network.refused(), Refused::default());
}

#[test]
fn a_multicast_of_link_scope_reaches_every_agent_that_listens_and_is_not_forwarded() {
    let mut network = Network::new(1);
    let nodes = ["a", "b", "c"].map(|name| network.add_node(name));
    link(&mut network, nodes[0], nodes[1], spec(1_000, 0));
    link(&mut network, nodes[1], nodes[2], spec(1_000, 0));
    network.node_mut(nodes[1]).routes.set(Prefix::default_of(false), Hop::Interface(2));
    let packet = udp("10.0.0.1", 1, "224.0.0.5", 2, 100);
    let sender = Desk { over_links: [(Time(0), 1, packet)].into(), ..Desk::default() };
    network.add_agent(nodes[0], "a", &[], Box::new(sender));
    let listen = |network: &mut Network, node, ports: &[(u8, u16)]| {
        let name = alloc::format!("{ports:?}");
        network.add_agent(node, name, ports, Box::<Desk>::default())
    };
    let here = [&[(UDP, 2)][..], &[(UDP, 0)], &[(UDP, 3)], &[(UDP, 0), (UDP, 2)], &[(TCP, 2)]]
        .map(|ports| listen(&mut network, nodes[1], ports));
    let beyond = listen(&mut network, nodes[2], &[(UDP, 0)]);
    network.run_until(Time(10 * MS));
    assert_eq!(here.map(|id| got(&network, id).len()), [1, 1, 0, 1, 0]);
    assert!(here.iter().all(|id| desk(&network, *id).over.iter().all(|over| *over == Some(1))));
    assert_eq!(got(&network, beyond).len(), 0);
}

#[test]
fn a_neighbour_is_found_while_it_is_attached_and_both_ends_are_told_of_each_change() {
    let mut home = home(&[]);
    let [first, second] = home.radios;
    let (cell, poa) = (home.cell, Some(u64::from(home.cell.0)));
    home.network.schedule(Time(20 * MS), Change::Announce(first, cell, Time(32 * MS)));
    home.network.schedule(Time(20 * MS), Change::Announce(second, CellId(7), Time(32 * MS)));
    home.network.schedule(Time(32 * MS), Change::Detach(first, cell));
    let mut found = Vec::new();
    for ms in [5, 15, 40] {
        home.network.run_until(Time(ms * MS));
        let at = |address| home.network.neighbour(home.router, ip(address));
        found.push(["fd01::2", "fd01::3", "fd00::9", "fd09::9"].map(at));
    }
    assert_eq!(found[0], [Some(2), None, Some(1), None]);
    assert_eq!(found[1], [Some(2), Some(3), Some(1), None]);
    assert_eq!(found[2], [None, Some(3), Some(1), None]);
    let why = DownReason::ExplicitDisconnect;
    let life = |interface| {
        [
            (Time(MS), LinkEvent::Up { interface, poa }),
            (Time(20 * MS), LinkEvent::GoingDown { interface, poa, within_ms: 12 }),
            (Time(32 * MS), LinkEvent::Down { interface, poa, why }),
        ]
    };
    assert_eq!(desk(&home.network, home.agents[2]).events, life(1));
    let at_router = &desk(&home.network, home.agents[0]).events;
    let of_first: Vec<_> = at_router.iter().copied().filter(|(at, _)| at.0 != 10 * MS).collect();
    assert_eq!(of_first, life(2));
    assert_eq!(at_router.len(), 4);
}

#[test]
fn a_walk_announces_each_cell_that_it_leaves_before_it_does() {
    let mut home = home(&[]);
    let mut other = home.network.cell(home.cell).unwrap().clone();
    other.prefix = None;
    let other = home.network.add_cell(other).unwrap();
    let ms = Span::from_millis;
    let cells = [home.cell, other].into();
    let walk = Walk { notice: ms(4), ..Walk::new(cells, ms(100), 2) };
    home.network.walk(home.radios[0], &walk).unwrap();
    home.network.run_until(Time(400 * MS));
    let events = &desk(&home.network, home.agents[2]).events;
    let going = events.iter().filter_map(|(at, event)| match event {
        LinkEvent::GoingDown { poa, within_ms, .. } => Some((at.0 / MS, *poa, *within_ms)),
        _ => None,
    });
    assert_eq!(going.collect::<Vec<_>>(), [(96, Some(0), 4), (196, Some(1), 4)]);
}

#[test]
fn only_an_interface_that_notices_is_told_that_its_carrier_is_gone() {
    for senses in [false, true] {
        let mut network = Network::new(1);
        let nodes = ["a", "b"].map(|name| network.add_node(name));
        let (there, back) = link(&mut network, nodes[0], nodes[1], spec(1_000, 0));
        network.node_mut(nodes[1]).adapters[0].senses = senses;
        let agents = nodes.map(|node| network.add_agent(node, "x", &[], Box::<Desk>::default()));
        for (at, channel, cut) in
            [(1, there, true), (2, there, true), (3, there, false), (4, back, true)]
        {
            network.schedule(Time(at * MS), Change::Cut(channel, cut));
        }
        network.run_until(Time(10 * MS));
        let (interface, poa, why) = (1, None, DownReason::PacketTimeout);
        let told = [
            (Time(MS), LinkEvent::Down { interface, poa, why }),
            (Time(3 * MS), LinkEvent::Up { interface, poa }),
        ];
        assert_eq!(desk(&network, agents[1]).events, if senses { &told[..] } else { &[] });
        assert!(desk(&network, agents[0]).events.is_empty());
    }
}
