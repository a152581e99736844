//! Tests of node relays and bound traffic.

use segue_ip::{Binding, Exit, Form, Forward, Forwarding, Port, Source, Traffic, Tunnel};
use segue_wire::DropReason;

use super::*;

/// Installs forwarding at its node at preset times, and records the packets that it is asked about.
#[derive(Default)]
struct Wishes {
    plan: VecDeque<(Time, Forward, bool)>,
    asked: Vec<u64>,
}

impl Agent for Wishes {
    fn start(&mut self, io: &mut Io<'_>) {
        self.wake(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let Some(Numbered(number)) = packet.value() else { panic!("{packet:?}") };
        self.asked.push(*number);
        let flow = Traffic::Flow(flow_key(&packet));
        io.put(&Forward::Bind(Binding { traffic: flow, exit: Exit::Tunnel(1) })).unwrap();
        io.send(packet);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        while self.plan.front().is_some_and(|(at, ..)| *at <= io.now) {
            let Some((_, part, present)) = self.plan.pop_front() else { break };
            if present { io.put(&part).unwrap() } else { io.take_back(&part).unwrap() }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.plan.front().map(|(at, ..)| *at)
    }
}

const HOST: &str = "10.0.0.0";
const ACCESS: &str = "10.0.0.1";
const ANCHOR: &str = "10.0.0.2";
const CORRESPONDENT: &str = "10.0.0.3";

fn bind(traffic: Traffic, exit: Exit) -> Forward {
    Forward::Bind(Binding { traffic, exit })
}

fn host() -> Prefix {
    Prefix::host(ip(HOST))
}

fn end(local: &str, remote: &str, form: Form) -> Forward {
    let (local, remote) = (ip(local), ip(remote));
    Forward::Tunnel(Tunnel { number: 1, local, remote, interface: None, form })
}

/// Host, access router, anchor and correspondent in a row; the routers have a tunnel from the start. `more` lists
/// further changes at the anchor. Returns the network, its channels, the desks of host and correspondent, and the
/// anchor's agent.
fn world(
    forms: [Form; 2],
    up: Vec<(u64, Packet)>,
    down: Vec<(u64, Packet)>,
    more: Vec<(u64, Forward, bool)>,
) -> (Network, Vec<ChannelId>, [AgentId; 3]) {
    let (mut network, nodes, channels) = chain(1, &[spec(10, 0), spec(10, 0), spec(10, 0)]);
    let at_host = network.add_agent(nodes[0], "host", &[(UDP, 0)], Desk::sending(up));
    let at_far = network.add_agent(nodes[3], "far", &[(UDP, 0)], Desk::sending(down));
    let source = |port, prefix| Forward::Source(Source { port, prefix });
    let access = [
        end(ACCESS, ANCHOR, forms[0]),
        source(Port::Tunnel(1), Prefix::default_of(false)),
        source(Port::Link(1), host()),
        bind(Traffic::From(host()), Exit::Tunnel(1)),
    ];
    let anchor = [
        end(ANCHOR, ACCESS, forms[1]),
        source(Port::Tunnel(1), host()),
        bind(Traffic::To(host()), Exit::Tunnel(1)),
    ];
    let now = |parts: &[Forward]| -> VecDeque<_> {
        parts.iter().map(|part| (Time::ZERO, part.clone(), true)).collect()
    };
    let wishes = |plan| Box::new(Wishes { plan, asked: Vec::new() });
    network.add_agent(nodes[1], "access", &[], wishes(now(&access)));
    let more = more.into_iter().map(|(at, part, present)| (Time(at), part, present));
    let plan = now(&anchor).into_iter().chain(more).collect();
    let at_anchor = network.add_agent(nodes[2], "anchor", &[], wishes(plan));
    (network, channels, [at_host, at_far, at_anchor])
}

fn to_host(at: u64, number: u64) -> (u64, Packet) {
    (at, numbered(udp(CORRESPONDENT, 1, HOST, 2, 100), number))
}

fn from_host(at: u64, number: u64) -> (u64, Packet) {
    (at, numbered(udp(HOST, 2, CORRESPONDENT, 1, 100), number))
}

fn numbers(network: &Network, id: AgentId) -> Vec<u64> {
    got(network, id).into_iter().map(|(_, number)| number).collect()
}

fn refused(network: &Network, node: u32) -> Vec<(DropReason, u64)> {
    let relay = network.node(NodeId(node)).relay().unwrap();
    relay.refused().iter().map(|(why, count)| (*why, *count)).collect()
}

#[test]
fn every_form_carries_both_directions_in_its_headers() {
    for (forms, header) in [
        ([Form::Ip; 2], 20),
        ([Form::Gre { send: None, receive: None }; 2], 24),
        (
            [
                Form::Gre { send: Some(1), receive: Some(2) },
                Form::Gre { send: Some(2), receive: Some(1) },
            ],
            28,
        ),
        ([Form::Udp { local: 7, remote: 8 }, Form::Udp { local: 8, remote: 7 }], 28),
    ] {
        let (mut network, channels, [host, far, _]) =
            world(forms, [from_host(MS, 1)].into(), [to_host(MS, 2)].into(), Vec::new());
        network.run_until(Time(10 * MS));
        assert_eq!((numbers(&network, far), numbers(&network, host)), ([1].into(), [2].into()));
        let bytes = |link: usize| network.counters(channels[link]).delivered_bytes;
        assert_eq!([bytes(0), bytes(1), bytes(2)], [100, 100 + header, 100], "{forms:?}");
    }
}

#[test]
fn a_packet_of_no_tunnel_is_the_nodes_and_sources_are_checked_on_both_sides() {
    let stranger = numbered(udp("10.9.9.9", 2, CORRESPONDENT, 1, 100), 3);
    let gre = |key| Form::Gre { send: key, receive: key };
    let (mut network, _, [_, far, _]) = world(
        [gre(Some(1)), gre(Some(2))],
        [(MS, stranger.clone()), from_host(2 * MS, 1)].into(),
        Vec::new(),
        Vec::new(),
    );
    network.run_until(Time(10 * MS));
    assert_eq!(numbers(&network, far), [3], "bound to nothing, it goes by the routes");
    assert_eq!(network.refused().no_listener, 1, "another key is of another tunnel");
    // The access router lets the unknown source in; the anchor does not let it out.
    let (mut network, _, [_, far, _]) =
        world([Form::Ip; 2], [(2 * MS, stranger.clone())].into(), Vec::new(), Vec::new());
    let all = Prefix::default_of(false);
    let plan = [
        (Time(MS), bind(Traffic::From(all), Exit::Tunnel(1)), true),
        (Time(MS), Forward::Source(Source { port: Port::Link(1), prefix: all }), true),
    ];
    let wishes = Box::new(Wishes { plan: plan.into(), asked: Vec::new() });
    network.add_agent(NodeId(1), "careless", &[], wishes);
    network.run_until(Time(10 * MS));
    assert!(numbers(&network, far).is_empty());
    assert_eq!(refused(&network, 2), [(DropReason::InnerSource, 1)]);
    // Bound traffic of a checked link with a foreign source, and a packet from the other side with the host's
    // source.
    let forged = numbered(udp("10.9.9.9", 2, HOST, 1, 100), 4);
    let mirrored = numbered(udp(HOST, 2, HOST, 1, 100), 5);
    let (mut network, _, [host, ..]) =
        world([Form::Ip; 2], Vec::new(), [(MS, mirrored), (MS, forged)].into(), Vec::new());
    network.run_until(Time(10 * MS));
    assert_eq!(numbers(&network, host), [4]);
    assert_eq!(refused(&network, 2), [(DropReason::InnerSource, 1)]);
}

#[test]
fn what_is_held_leaves_in_order_within_its_bounds() {
    let hold = |packets| Exit::Hold { packets, within_ms: 4 };
    let to = Traffic::To(host());
    let (mut network, _, [at_host, ..]) = world(
        [Form::Ip; 2],
        Vec::new(),
        (0..8).map(|n| to_host(2 * MS + n * MS / 2, n)).chain([to_host(9 * MS, 8)]).collect(),
        [(MS, bind(to, hold(6)), true), (7 * MS + MS / 5, bind(to, Exit::Tunnel(1)), true)].into(),
    );
    network.run_until(Time(20 * MS));
    // Two were dropped for lack of room, and one after it had waited for four milliseconds.
    assert_eq!(numbers(&network, at_host), [3, 4, 5, 6, 7, 8]);
    let expected = [(DropReason::HoldFull, 2), (DropReason::HoldExpired, 1)];
    assert_eq!(refused(&network, 2), expected);
}

#[test]
fn an_agent_is_asked_about_a_flow_once_and_traffic_without_its_tunnel_is_refused() {
    let to = Traffic::To(host());
    let (mut network, _, [at_host, _, at_anchor]) = world(
        [Form::Ip; 2],
        Vec::new(),
        [to_host(2 * MS, 1), to_host(3 * MS, 2), to_host(6 * MS, 3), to_host(9 * MS, 4)].into(),
        [
            (MS, bind(to, Exit::Ask), true),
            (5 * MS, end(ANCHOR, ACCESS, Form::Ip), false),
            (8 * MS, end(ANCHOR, ACCESS, Form::Ip), true),
        ]
        .into(),
    );
    network.run_until(Time(20 * MS));
    assert_eq!(network.agent::<Wishes>(at_anchor).unwrap().asked, [1]);
    assert_eq!(numbers(&network, at_host), [1, 2, 4]);
    assert_eq!(refused(&network, 2), [(DropReason::NoRemote, 1)]);
}
