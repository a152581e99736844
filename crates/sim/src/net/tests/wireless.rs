//! Tests of cells, radios and walks.

use super::*;
use segue_netem::{Loss, Queue, WalkError};

const FIXED: &str = "10.9.0.1";

struct Ride {
    network: Network,
    radio: RadioId,
    cells: Vec<CellId>,
    sender: AgentId,
    host: AgentId,
    mobile: NodeId,
    routers: Vec<NodeId>,
}

/// A sender in the middle of access routers `r0`, `r1`…, each with a cell (1 µs per byte, prefix 10.1.i.0/24),
/// and a mobile node with a radio. The sender sends a datagram of 1,000 bytes every `every_ms`, cycling through
/// the addresses.
fn ride(routers: u8, address: Option<&str>, at_once: u32, to: &[&str], every_ms: u64) -> Ride {
    let mut network = Network::new(1);
    let middle = network.add_node("middle");
    network.node_mut(middle).addresses.push(ip("10.0.0.1"));
    let (mut cells, mut nodes) = (Vec::new(), Vec::new());
    for i in 0..routers {
        let router = network.add_node(alloc::format!("r{i}"));
        link(&mut network, middle, router, spec(1_000, 0));
        let gateway = ip(&alloc::format!("10.1.{i}.1"));
        let prefix = Some(Prefix::new(gateway, 24));
        let (down, up) = (spec(8, 0), spec(8, 0));
        let config = CellConfig { router, gateway: Some(gateway), prefix, down, up };
        cells.push(network.add_cell(config).unwrap());
        nodes.push(router);
    }
    let mobile = network.add_node("mobile");
    let interface = network.add_interface(mobile, "wlan0");
    network.node_mut(mobile).adapters[0].interface.addresses.extend(address.map(ip));
    let radio = network.add_radio(RadioConfig { node: mobile, interface, at_once }).unwrap();
    network.route_all(|_| true);
    network.route_cells(|_| true);
    let plan = (0..400 / every_ms).map(|i| {
        let to = to[i as usize % to.len()];
        (i * every_ms * MS, numbered(udp("10.0.0.1", 1, to, 2, 1_000), i))
    });
    let sender = network.add_agent(middle, "s", &[(UDP, 0)], Desk::sending(plan));
    let host = network.add_agent(mobile, "h", &[(UDP, 0)], Box::default() as Box<Desk>);
    Ride { network, radio, cells, sender, host, mobile, routers: nodes }
}

fn numbers(network: &Network, id: AgentId) -> Vec<u64> {
    got(network, id).into_iter().map(|(_, number)| number).collect()
}

#[test]
fn an_address_from_the_cell_is_reached_while_the_radio_is_there() {
    // A datagram every 10 ms, alternating between the addresses in the first and in the second cell.
    let mut r = ride(2, None, 1, &["10.1.0.2", "10.1.1.2"], 10);
    let walk = Walk::new(r.cells.clone(), Span::from_millis(105), 2);
    r.network.walk(r.radio, &walk).unwrap();
    assert_eq!(r.network.node(r.mobile).adapters[0].interface.addresses, [ip("10.1.0.2")]);
    r.network.run_until(Time(MS * 150));
    let interface = &r.network.node(r.mobile).adapters[0].interface;
    assert_eq!(interface.addresses, [ip("10.1.1.2")]);
    assert_eq!(interface.gateways, [ip("10.1.1.1")]);
    r.network.run_until(Time(MS * 400));
    // In the first cell until 105 ms, in the second until 210 ms (the datagram at 210 ms is too late), then back.
    let expected: Vec<u64> = (0..40)
        .filter(|i| match i * 10 {
            0..105 => i % 2 == 0,
            105..210 => i % 2 == 1,
            _ => i % 2 == 0,
        })
        .collect();
    assert_eq!(numbers(&r.network, r.host), expected);
    // The others reached the router while the radio was away.
    assert_eq!(r.network.refused(), Refused { no_route: 20, ..Refused::default() });
    // The agent is notified of each change; what happened before the run needs no notification.
    let told = &r.network.agent::<Desk>(r.host).unwrap().told;
    let [a, b] = [r.cells[0], r.cells[1]];
    let at = |ms: u64, cells: &[CellId]| (Time(ms * MS), cells.to_vec());
    assert_eq!(*told, [at(105, &[]), at(105, &[b]), at(210, &[]), at(210, &[a])]);
}

#[test]
fn what_waits_for_the_air_at_a_detachment_is_lost_and_what_is_on_it_arrives() {
    let mut r = ride(1, None, 1, &["10.1.0.2"], 400);
    let burst = (0..10).map(|i| (MS, numbered(udp("10.0.0.1", 1, "10.1.0.2", 2, 1_000), i)));
    let more = (20..22).map(|i| (5 * MS, numbered(udp("10.0.0.1", 1, "10.1.0.2", 2, 1_000), i)));
    let middle = r.network.agents[r.sender.0 as usize].node;
    r.network.add_agent(middle, "more", &[], Desk::sending(burst.chain(more)));
    r.network.schedule(Time::ZERO, Change::Attach(r.radio, r.cells[0]));
    // At 3.5 ms two packets have arrived and the third is on the air. The radio attaches again before the third
    // is through.
    r.network.schedule(Time(7 * MS / 2), Change::Detach(r.radio, r.cells[0]));
    r.network.schedule(Time(4 * MS), Change::Attach(r.radio, r.cells[0]));
    r.network.run_until(Time(100 * MS));
    let times = got(&r.network, r.host);
    // The very first datagram was sent at 0 ms. The air is free again for those sent at 5 ms.
    assert_eq!(times.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [0, 0, 1, 2, 20, 21]);
    assert_eq!(times[3].0 / MS, 4);
    assert_eq!(times[4].0 / MS, 6);
    let (down, _) = r.network.air(r.radio, r.cells[0]).unwrap();
    let c = r.network.counters(down);
    assert_eq!((c.offered, c.delivered, c.silenced, c.delivered_bytes), (13, 6, 7, 6_000));
}

#[test]
fn a_fixed_address_is_kept_and_the_router_of_the_cell_reaches_it() {
    let mut r = ride(2, Some(FIXED), 1, &[FIXED], 10);
    let middle = r.network.agents[r.sender.0 as usize].node;
    // The test routes the host to a fixed cell, which is correct half of the time.
    r.network.node_mut(middle).routes.set(Prefix::host(ip(FIXED)), Hop::Interface(2));
    let walk = Walk::new(r.cells.clone(), Span::from_millis(105), 1);
    r.network.walk(r.radio, &walk).unwrap();
    r.network.run_until(Time(400 * MS));
    assert_eq!(numbers(&r.network, r.host), (11..40).collect::<Vec<_>>());
    assert_eq!(r.network.node(r.mobile).adapters[0].interface.addresses, [ip(FIXED)]);
    assert_eq!(r.network.node(r.routers[0]).routes.towards(ip(FIXED)), None);
}

#[test]
fn a_radio_that_can_is_in_both_cells_while_they_overlap() {
    let mut r = ride(2, None, 2, &["10.1.0.2", "10.1.1.2"], 10);
    let walk = Walk {
        overlap: Span::from_millis(50),
        ..Walk::new(r.cells.clone(), Span::from_millis(105), 1)
    };
    r.network.walk(r.radio, &walk).unwrap();
    r.network.run_until(Time(400 * MS));
    // Even numbers reach the first address until 155 ms, odd ones the second from 105 ms.
    let expected: Vec<u64> =
        (0..40).filter(|i| if i % 2 == 0 { *i < 16 } else { *i >= 11 }).collect();
    assert_eq!(numbers(&r.network, r.host), expected);
    let told = &r.network.agent::<Desk>(r.host).unwrap().told;
    let [a, b] = [r.cells[0], r.cells[1]];
    assert_eq!(*told, [(Time(105 * MS), [a, b].into()), (Time(155 * MS), [b].into())]);
}

#[test]
fn one_that_cannot_leaves_the_oldest_cell_first_and_sends_over_the_newest() {
    let mut r = ride(3, None, 1, &["10.1.0.2"], 400);
    for (at, cell) in [(0, 0), (10, 1), (20, 1), (30, 2)] {
        r.network.schedule(Time(at * MS), Change::Attach(r.radio, r.cells[cell]));
    }
    let plan =
        (0..4).map(|i| (i * 10 * MS + 5 * MS, numbered(udp("10.9.9.9", 1, "10.0.0.1", 2, 100), i)));
    r.network.add_agent(r.mobile, "up", &[], Desk::sending(plan));
    r.network.run_until(Time(100 * MS));
    assert_eq!(numbers(&r.network, r.sender), [0, 1, 2, 3]);
    let sent = |cell: usize| {
        let (_, up) = r.network.air(r.radio, r.cells[cell]).unwrap();
        r.network.counters(up).delivered
    };
    assert_eq!([sent(0), sent(1), sent(2)], [1, 2, 1]);
}

#[test]
fn hosts_take_turns_and_walk_back_from_the_last_cell() {
    let mut network = Network::new(1);
    let cells: Vec<_> = (0..3)
        .map(|i| {
            let router = network.add_node(alloc::format!("r{i}"));
            let (down, up) = (LinkSpec::default(), LinkSpec::default());
            let config = CellConfig { router, gateway: None, prefix: None, down, up };
            network.add_cell(config).unwrap()
        })
        .collect();
    let mut hosts = Vec::new();
    for turn in 0..2 {
        let node = network.add_node(alloc::format!("m{turn}"));
        let interface = network.add_interface(node, "wlan0");
        let radio = network.add_radio(RadioConfig { node, interface, at_once: 1 }).unwrap();
        let walk = Walk::new(cells.clone(), Span::from_secs(1), 6).taking_turns(turn, 2);
        network.walk(radio, &walk).unwrap();
        hosts.push(network.add_agent(node, "h", &[], Box::default() as Box<Desk>));
    }
    network.run_until(Time(20_000 * MS));
    for (turn, host) in hosts.into_iter().enumerate() {
        let told = &network.agent::<Desk>(host).unwrap().told;
        let attached = told.iter().filter(|(_, cells)| !cells.is_empty());
        let way: Vec<_> = attached.map(|(at, cells)| (at.0 / (1_000 * MS), cells[0].0)).collect();
        let expected = [1, 2, 1, 0, 1, 2].into_iter().zip(0..);
        let expected: Vec<_> = expected.map(|(cell, i)| (1 + turn as u64 + 2 * i, cell)).collect();
        assert_eq!(way, expected);
    }
}

#[test]
fn the_chance_of_an_air_link_does_not_depend_on_who_else_walks() {
    let lost = |others: u32| {
        let mut network = Network::new(3);
        let router = network.add_node("r");
        network.node_mut(router).addresses.push(ip("10.0.0.1"));
        let air = LinkSpec { loss: Loss::Bernoulli(0.3), queue: Queue::Unbounded, ..spec(100, 0) };
        let gateway = Some(ip("10.1.0.1"));
        let prefix = Some(Prefix::new(ip("10.1.0.0"), 24));
        let config = CellConfig { router, gateway, prefix, down: air.clone(), up: air };
        let cell = network.add_cell(config).unwrap();
        let mut radios: Vec<_> = (0..=others)
            .map(|i| {
                let node = network.add_node(alloc::format!("m{i}"));
                let interface = network.add_interface(node, "wlan0");
                network.node_mut(node).adapters[0]
                    .interface
                    .addresses
                    .push(ip(&alloc::format!("10.9.0.{i}")));
                network.add_radio(RadioConfig { node, interface, at_once: 1 }).unwrap()
            })
            .collect();
        radios.reverse();
        for radio in &radios {
            network.schedule(Time::ZERO, Change::Attach(*radio, cell));
        }
        let plan = (0..100).map(|i| (i * MS, numbered(udp("10.0.0.1", 1, "10.9.0.0", 2, 100), i)));
        network.add_agent(router, "s", &[], Desk::sending(plan));
        let first = network.nodes().find(|(_, node)| node.name == "m0").map(|(id, _)| id);
        let node = first.unwrap();
        let host = network.add_agent(node, "h", &[(UDP, 2)], Box::default() as Box<Desk>);
        network.run_until(Time(200 * MS));
        numbers(&network, host)
    };
    let alone = lost(0);
    assert!(alone.len() > 50 && alone.len() < 90);
    assert_eq!(alone, lost(3));
}

#[test]
fn radios_behind_a_translator_come_out_with_its_address() {
    let mut network = Network::new(1);
    let (server, nat) = (network.add_node("server"), network.add_node("nat"));
    network.node_mut(server).addresses.push(ip("203.0.113.1"));
    link(&mut network, nat, server, spec(100, 0));
    network.node_mut(nat).adapters[0].interface.addresses.push(ip("198.51.100.1"));
    let gateway = Some(ip("192.168.1.1"));
    let prefix = Some(Prefix::new(ip("192.168.1.0"), 24));
    let config = CellConfig { router: nat, gateway, prefix, down: spec(8, 0), up: spec(8, 0) };
    let cell = network.add_cell(config).unwrap();
    network.add_nat(nat, NatConfig::new([].into(), ip("198.51.100.1"))).unwrap();
    let node = network.add_node("mobile");
    let interface = network.add_interface(node, "wlan0");
    let radio = network.add_radio(RadioConfig { node, interface, at_once: 1 }).unwrap();
    network.route_all(|_| true);
    network.route_cells(|_| true);
    network.schedule(Time::ZERO, Change::Attach(radio, cell));
    let plan = [(MS, udp("192.168.1.2", 5, "203.0.113.1", 1, 100))];
    let host = network.add_agent(node, "h", &[(UDP, 5)], Desk::sending(plan));
    let echo = Box::new(Desk { echo: true, ..Desk::default() });
    let server = network.add_agent(server, "s", &[(UDP, 1)], echo);
    network.run_until(Time(10 * MS));
    let seen = &network.agent::<Desk>(server).unwrap().got[0].1;
    assert_eq!((seen.src, got(&network, host).len()), (ip("198.51.100.1"), 1));
}

#[test]
fn what_makes_no_walk_is_refused_before_anything_is_scheduled() {
    let mut r = ride(2, None, 1, &["10.1.0.2"], 400);
    let good = Walk::new(r.cells.clone(), Span::from_millis(100), 5);
    let ms = Span::from_millis;
    let a = r.cells[0];
    let few = WirelessError::Walk(WalkError::FewCells);
    let cases = [
        (RadioId(9), good.clone(), WirelessError::NoRadio(RadioId(9))),
        (r.radio, Walk { cells: [a].into(), ..good.clone() }, few),
        (
            r.radio,
            Walk { cells: [a, CellId(7)].into(), ..good.clone() },
            WirelessError::NoCell(CellId(7)),
        ),
        (r.radio, Walk { overlap: ms(1), ..good.clone() }, WirelessError::NoOverlap),
    ];
    for (radio, walk, error) in cases {
        assert_eq!(r.network.walk(radio, &walk), Err(error));
    }
    assert!(r.network.changes.is_empty());
    assert_eq!(r.network.walk(r.radio, &good), Ok(()));
    let again = RadioConfig { node: r.mobile, interface: 1, at_once: 1 };
    assert_eq!(r.network.add_radio(again.clone()), Err(WirelessError::Connected(1)));
    let none = RadioConfig { interface: 2, ..again.clone() };
    assert_eq!(r.network.add_radio(none), Err(WirelessError::NoInterface(2)));
    assert_eq!(
        r.network.add_radio(RadioConfig { at_once: 3, ..again }),
        Err(WirelessError::AtOnce(3))
    );
}

#[test]
fn a_prefix_without_an_address_left_refuses_the_walk() {
    let mut network = Network::new(1);
    let cell = |network: &mut Network, prefix: Option<Prefix>| {
        let router = network.add_node("r");
        let (down, up) = (LinkSpec::default(), LinkSpec::default());
        network.add_cell(CellConfig { router, gateway: None, prefix, down, up }).unwrap()
    };
    let small = cell(&mut network, Some(Prefix::new(ip("10.1.0.0"), 30)));
    let wide = cell(&mut network, None);
    let mut walk = || {
        let node = network.add_node("m");
        let interface = network.add_interface(node, "wlan0");
        let radio = network.add_radio(RadioConfig { node, interface, at_once: 1 }).unwrap();
        network.walk(radio, &Walk::new([small, wide].into(), Span::from_secs(1), 1))
    };
    // 10.1.0.2 is the only address besides the gateway.
    assert_eq!(walk(), Ok(()));
    assert_eq!(walk(), Err(WirelessError::PrefixFull(small)));
}

#[test]
fn an_address_that_a_program_gave_a_radio_is_routed_by_programs_alone() {
    let mut r = ride(1, None, 1, &["10.1.0.2"], 10);
    let (router, own) = (r.routers[0], ip("fd00::7"));
    let (down, up) = (spec(8, 0), spec(8, 0));
    let bare = CellConfig { router, gateway: None, prefix: None, down, up };
    let bare = r.network.add_cell(bare).unwrap();
    r.network.node_mut(r.mobile).adapters[0].interface.addresses.push(own);
    for cell in [r.cells[0], bare] {
        r.network.happen(Change::Attach(r.radio, cell));
        let routes = |node| &r.network.node(node).routes;
        assert_eq!(routes(router).get(Prefix::host(own)), None);
        assert_eq!(routes(r.mobile).get(Prefix::default_of(true)), None);
    }
    let adapter = &r.network.node(r.mobile).adapters[0];
    assert_eq!((&adapter.interface.addresses[..], &adapter.cells[..]), (&[own][..], &[bare][..]));
}
