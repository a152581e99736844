//! The networks of paper 4: a tree and a mesh of access routers 19 to 30 behind a home agent, with the paper's
//! node numbers. Correspondent 0, home agent 6, gateway 7 (and 9 in the mesh).

use super::*;

const HOST: &str = "10.9.0.1";

struct Topology {
    gateways: &'static [usize],
    wired: &'static [(usize, &'static [usize])],
    /// Anchor points, with the first and last of their access routers.
    anchors: &'static [(usize, usize, usize)],
}

const TREE: Topology = Topology {
    gateways: &[7],
    wired: &[
        (7, &[8, 9]),
        (8, &[10, 11]),
        (9, &[12]),
        (10, &[13, 14]),
        (11, &[15, 16]),
        (12, &[17, 18]),
        (13, &[19, 20]),
        (14, &[21, 22]),
        (15, &[23, 24]),
        (16, &[25, 26]),
        (17, &[27, 28]),
        (18, &[29, 30]),
    ],
    anchors: &[(10, 19, 22), (11, 23, 26), (12, 27, 30)],
};

const MESH: Topology = Topology {
    gateways: &[7, 9],
    wired: &[
        (7, &[8, 10, 11]),
        (8, &[9, 11, 12]),
        (9, &[12, 13]),
        (10, &[11, 14, 15]),
        (11, &[12, 15, 16]),
        (12, &[13, 16, 17]),
        (13, &[17, 18]),
        (14, &[15, 19, 20]),
        (15, &[16, 21, 22, 23]),
        (16, &[17, 24, 25]),
        (17, &[18, 26, 27, 28]),
        (18, &[29, 30]),
    ],
    anchors: &[(14, 19, 22), (16, 23, 27), (18, 28, 30)],
};

impl Topology {
    fn anchor(&self, router: usize) -> usize {
        let over = self.anchors.iter().find(|(_, first, last)| (*first..=*last).contains(&router));
        over.unwrap().0
    }
}

/// A tunnel end of the mobility protocol, or the point where two tunnels meet: decapsulates packets, and forwards
/// them into the next tunnel if there is one.
struct Switch {
    own: IpAddr,
    next: Option<IpAddr>,
}

impl Agent for Switch {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let inner = opened(packet).unwrap_or_else(|packet| packet);
        match self.next {
            Some(next) => io.send(encapsulate(self.own, next, inner)),
            None => io.arrive(inner),
        }
    }
}

fn address(number: usize) -> String {
    alloc::format!("10.0.0.{number}")
}

/// The network with one mobile host, and its cells in the order of access routers from 19.
fn build(topology: &Topology) -> (Network, Vec<CellId>, RadioId) {
    let mut network = Network::new(1);
    let nodes: Vec<_> = (0..=30).map(|i| network.add_node(alloc::format!("{i}"))).collect();
    for (i, node) in nodes.iter().enumerate() {
        network.node_mut(*node).addresses.push(ip(&address(i)));
    }
    link(&mut network, nodes[0], nodes[6], spec(10, 5_000));
    for gateway in topology.gateways {
        link(&mut network, nodes[6], nodes[*gateway], spec(100, 5_000));
    }
    for (a, neighbours) in topology.wired {
        for b in *neighbours {
            link(&mut network, nodes[*a], nodes[*b], spec(20, 1_000));
        }
    }
    let cells = (19..=30).map(|i| {
        let (router, down, up) = (nodes[i], spec(10, 500), spec(10, 500));
        let gateway = Some(ip(&address(i)));
        network.add_cell(CellConfig { router, gateway, prefix: None, down, up }).unwrap()
    });
    let cells = cells.collect();
    let mobile = network.add_node("mobile");
    let interface = network.add_interface(mobile, "air");
    network.node_mut(mobile).adapters[0].interface.addresses.push(ip(HOST));
    let radio = network.add_radio(RadioConfig { node: mobile, interface, at_once: 1 }).unwrap();
    network.route_all(|_| true);
    (network, cells, radio)
}

/// One-way delay of a packet of 200 bytes from the correspondent to the host in the cell of a router, and the
/// number of links that it passes.
fn to_host(topology: &Topology, router: usize) -> (u64, u32) {
    let (mut network, cells, radio) = build(topology);
    network.schedule(Time::ZERO, Change::Attach(radio, cells[router - 19]));
    let anchor = topology.anchor(router);
    let way = [(6, Some(anchor)), (anchor, Some(router)), (router, None)];
    for (at, next) in way {
        let switch = Switch { own: ip(&address(at)), next: next.map(|next| ip(&address(next))) };
        let id = network.add_agent(NodeId(at as u32), "switch", &[(4, 0)], Box::new(switch));
        if at == 6 {
            network.node_mut(NodeId(6)).routes.set(Prefix::host(ip(HOST)), Hop::Agent(id));
        }
    }
    network.node_mut(NodeId(0)).routes.set(Prefix::host(ip(HOST)), Hop::Interface(1));
    let plan = [(MS, udp("10.0.0.0", 1, HOST, 2, 200))];
    network.add_agent(NodeId(0), "voip", &[], Desk::sending(plan));
    let mobile = NodeId(31);
    let sink = network.add_agent(mobile, "host", &[(UDP, 2)], Box::default() as Box<Desk>);
    let record = Record::default();
    network.observe(Box::new(record.clone()));
    network.run_until(Time(1_000 * MS));
    let links = record.0.borrow().iter().filter(|line| line.contains(" arrived ")).count();
    (got(&network, sink)[0].0 - MS, links as u32)
}

/// Delay of a packet of 200 bytes (220 inside tunnels) over this many wired links of the access network.
fn expected(wired: u64) -> u64 {
    let correspondent = 160_000 + 5_000_000;
    let home_agent = 17_600 + 5_000_000;
    let air = 160_000 + 500_000;
    correspondent + home_agent + wired * (88_000 + 1_000_000) + air
}

#[test]
fn in_the_tree_a_packet_of_200_bytes_takes_15_19_ms_to_every_cell() {
    assert_eq!(expected(4), 15_189_600);
    for router in 19..=30 {
        assert_eq!(to_host(&TREE, router), (expected(4), 7), "{router}");
    }
}

#[test]
fn in_the_mesh_some_cells_are_a_link_nearer_to_their_anchor_point() {
    for router in 19..=30 {
        let near = [19, 20, 24, 25, 29, 30].contains(&router);
        let (wired, links) = if near { (3, 6) } else { (4, 7) };
        assert_eq!(to_host(&MESH, router), (expected(wired), links), "{router}");
    }
}

#[test]
fn only_26_to_27_crosses_the_gateway_of_the_tree() {
    let (network, _, _) = build(&TREE);
    for router in 19..30 {
        let (mut at, mut passed) = (router, Vec::new());
        while at != router + 1 {
            passed.push(at);
            let hop = network.node(NodeId(at as u32)).routes.towards(ip(&address(router + 1)));
            let Some(Hop::Interface(index)) = hop else { panic!("no way from {at}") };
            let out = network.node(NodeId(at as u32)).adapter(index).unwrap().out.unwrap();
            at = network.channel(out).to.0.0 as usize;
        }
        assert_eq!(passed.contains(&7), router == 26, "{router}");
    }
}

#[test]
fn the_walk_goes_from_19_to_30_and_back_with_a_handover_a_second() {
    let (mut network, cells, radio) = build(&TREE);
    let host = network.add_agent(NodeId(31), "host", &[], Box::default() as Box<Desk>);
    network.walk(radio, &Walk::new(cells, Span::from_secs(1), 100)).unwrap();
    network.run_until(Time(200_000 * MS));
    let told = &network.agent::<Desk>(host).unwrap().told;
    let attached: Vec<_> = told.iter().filter(|(_, cells)| !cells.is_empty()).collect();
    assert_eq!(attached.len(), 100);
    for (i, (at, cells)) in (1..).zip(&attached) {
        let place = i % 22;
        let router = 19 + if place <= 11 { place } else { 22 - place };
        assert_eq!((at.0, cells[0].0 + 19), (i * 1_000 * MS, router as u32));
    }
}
