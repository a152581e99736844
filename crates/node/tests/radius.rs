//! A gateway whose hosts RADIUS servers know, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::net::IpAddr;

use segue_aaa::{AaaConfig, Server, Side, Volume};
use segue_clock::{DayClock, Machine, Span, Time, UnixTime};
use segue_ip::{Datagram, Input, Interface, Output};
use segue_mobility::Pool;
use segue_node::{Node, NodeInput, NodeReport, NodeWish, RADIUS_PORT};
use segue_pmip::{
    Access, Allowed, AttachBy, LinkLayer, Lma, LmaConfig, MOBILITY, Mag, MagConfig, MagInput,
    Report, StationState,
};
use segue_wire::mobility::Profile;
use segue_wire::mobility::option::{AccessTechnology, Handoff};
use segue_wire::radius::{Attribute, AttributeType, Code, Packet, Secret, View};

const SECRET: &[u8] = b"of both ends";
const LINK: u32 = 7;
const AUTHENTICATION: u16 = 1812;
const ACCOUNTING: u16 = 1813;
const DAY: UnixTime = UnixTime::from_secs(1_700_000_000);

type OutputOfNode = <Node<Mag> as Machine>::Output;

fn gateway() -> Node<Mag> {
    let clock = DayClock::new(Time::ZERO, DAY);
    let access = Access {
        interface: "radio".into(),
        technology: AccessTechnology::WLAN,
        proxy_coa: "fd00::2".parse().unwrap(),
        handoff: Handoff::NEW_INTERFACE,
        by: AttachBy::Driver,
    };
    let anchor: IpAddr = "fd00::1".parse().unwrap();
    let mut config = MagConfig::new(anchor, vec![access], clock);
    // Servers identify the hosts.
    config.identities = None;
    let server = |port| {
        let address = [192, 0, 2, 1].into();
        Server { address, port, secret: Secret::new(SECRET) }
    };
    let radius = AaaConfig {
        accounting: vec![server(ACCOUNTING)],
        counts: true,
        seed: [7; 32],
        ..AaaConfig::new(vec![server(AUTHENTICATION)], Side::Gateway, clock)
    };
    let mut node = Node::new(Mag::new(config), Some(radius));
    let radio = Interface { name: "radio".into(), index: LINK, ..Interface::default() };
    give(&mut node, Time::ZERO, Input::Interfaces(vec![radio]));
    let day = Input::Own(NodeInput::Own(MagInput::TimeOfDay(DAY)));
    let outputs = give(&mut node, Time::ZERO, day);
    let [on] = to_servers(&outputs, ACCOUNTING)[..] else { panic!("{outputs:?}") };
    assert_eq!(status(on), ACCOUNTING_ON);
    let acknowledged = answer(on, Code::ACCOUNTING_RESPONSE, Vec::new());
    give(&mut node, Time::ZERO, Input::Datagram(acknowledged));
    node
}

fn give(
    node: &mut Node<Mag>,
    now: Time,
    input: <Node<Mag> as Machine>::Input,
) -> Vec<OutputOfNode> {
    node.handle(now, input);
    std::iter::from_fn(|| node.poll()).collect()
}

fn station() -> LinkLayer {
    LinkLayer::mac([2, 0, 0, 0, 0, 1])
}

fn attached() -> Input<NodeInput<MagInput>, segue_pmip::MagRecord> {
    let (interface, station, link_local) = (LINK, station(), None);
    Input::Own(NodeInput::Own(MagInput::Attached { interface, station, link_local }))
}

/// The datagrams to a port of the server.
fn to_servers(outputs: &[OutputOfNode], port: u16) -> Vec<&Datagram> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send(datagram, None) if datagram.from.1 == RADIUS_PORT => Some(datagram),
        _ => None,
    });
    sent.filter(|datagram| datagram.protocol != MOBILITY && datagram.to.1 == port).collect()
}

fn answer(asked: &Datagram, code: Code, attributes: Vec<Attribute>) -> Datagram {
    let view = View::parse(&asked.bytes).unwrap();
    let packet = Packet { code, id: view.id(), authenticator: [0; 16], attributes };
    let signs = code != Code::ACCOUNTING_RESPONSE;
    let bytes = packet.seal_reply(&view.authenticator(), &Secret::new(SECRET), signs).unwrap();
    Datagram { from: asked.to, to: asked.from, bytes, ..asked.clone() }
}

fn accepted(node: &mut Node<Mag>) -> Vec<OutputOfNode> {
    let outputs = give(node, Time::ZERO, attached());
    let [request] = to_servers(&outputs, AUTHENTICATION)[..] else { panic!("{outputs:?}") };
    let name = Attribute::octets(AttributeType::MOBILE_NODE_IDENTIFIER, b"alice@example.org");
    let accept = answer(request, Code::ACCESS_ACCEPT, vec![name]);
    give(node, Time::ZERO, Input::Datagram(accept))
}

#[test]
fn a_host_that_a_server_accepts_is_registered_under_the_servers_name_for_it() {
    let mut node = gateway();
    let outputs = accepted(&mut node);
    let updates = outputs.iter().filter(
        |output| matches!(output, Output::Send(datagram, _) if datagram.protocol == MOBILITY),
    );
    assert_eq!(updates.count(), 1, "{outputs:?}");
    let (_, at) = node.machine().station(LINK, &station()).unwrap();
    assert_eq!(at.state, StationState::Registering);
    assert_eq!(at.identity.as_ref().unwrap().node.to_string(), "alice@example.org");
}

#[test]
fn a_host_that_no_server_knows_of_is_not_registered() {
    let mut node = gateway();
    let outputs = give(&mut node, Time::ZERO, attached());
    let [request] = to_servers(&outputs, AUTHENTICATION)[..] else { panic!("{outputs:?}") };
    let reject = answer(request, Code::ACCESS_REJECT, Vec::new());
    let outputs = give(&mut node, Time::ZERO, Input::Datagram(reject));
    assert!(
        outputs.iter().any(|output| matches!(output, Output::Report(NodeReport::Radius(_)))),
        "{outputs:?}"
    );
    assert!(node.machine().station(LINK, &station()).is_none_or(|(_, at)| at.identity.is_none()));
}

#[test]
fn a_silent_server_is_asked_three_times_and_the_host_is_not_registered() {
    let mut node = gateway();
    let mut asked = to_servers(&give(&mut node, Time::ZERO, attached()), AUTHENTICATION).len();
    let end = Time::ZERO + Span::from_secs(60);
    while let Some((at, _)) = node.deadline().filter(|(at, _)| *at < end) {
        node.tick(at);
        let outputs: Vec<_> = std::iter::from_fn(|| node.poll()).collect();
        asked += to_servers(&outputs, AUTHENTICATION).len();
        let is_registered = |output: &OutputOfNode| {
            matches!(output, Output::Report(NodeReport::Role(Report::Registered { .. })))
        };
        assert!(!outputs.iter().any(is_registered));
    }
    assert_eq!(asked, 3);
}

#[test]
fn the_traffic_of_a_session_is_asked_of_the_driver_and_told_to_the_server() {
    let mut node = gateway();
    let pool = Pool::prefixes("2001:db8::/48".parse().unwrap(), 64, 1).unwrap();
    let clock = DayClock::new(Time::ZERO, DAY);
    let prefix = "fd00::/64".parse().unwrap();
    let mut lma = Lma::new(LmaConfig {
        gateways: vec![Allowed { prefix, profile: Profile::STRICT }],
        ..LmaConfig::new("fd00::1".parse::<IpAddr>().unwrap(), pool, clock)
    });
    let mut waiting = VecDeque::from(accepted(&mut node));
    let mut begun = false;
    while let Some(output) = waiting.pop_front() {
        let datagram = match output {
            Output::Send(datagram, _) => datagram,
            Output::Own(NodeWish::Count { session, last: false, .. }) => {
                let volume = Volume::default();
                let counted = Input::Own(NodeInput::Counted { session, volume });
                waiting.extend(give(&mut node, Time::ZERO, counted));
                continue;
            }
            _ => continue,
        };
        if datagram.protocol != MOBILITY {
            assert_eq!(status(&datagram), START);
            let answer = answer(&datagram, Code::ACCOUNTING_RESPONSE, Vec::new());
            waiting.extend(give(&mut node, Time::ZERO, Input::Datagram(answer)));
            begun = true;
            continue;
        }
        lma.handle(Time::ZERO, Input::Datagram(datagram));
        while let Some(output) = lma.poll() {
            if let Output::Send(datagram, _) = output {
                waiting.extend(give(&mut node, Time::ZERO, Input::Datagram(datagram)));
            }
        }
    }
    assert!(begun, "{:?}", lma.refused());
    let (interface, station) = (LINK, station());
    let left = Input::Own(NodeInput::Own(MagInput::Detached { interface, station }));
    let outputs = give(&mut node, Time::ZERO, left);
    assert!(
        to_servers(&outputs, ACCOUNTING).is_empty(),
        "the server is told when the traffic is known"
    );
    let asked = outputs.iter().find_map(|output| match output {
        Output::Own(NodeWish::Count { session, last: true, .. }) => Some(*session),
        _ => None,
    });
    let session = asked.expect("the driver is asked");
    let volume = Volume { input_octets: 77, ..Volume::default() };
    let outputs = give(&mut node, Time::ZERO, Input::Own(NodeInput::Counted { session, volume }));
    let [stop] = to_servers(&outputs, ACCOUNTING)[..] else { panic!("{outputs:?}") };
    assert_eq!(status(stop), STOP);
    let stop = Packet::parse(&stop.bytes).unwrap();
    let octets = stop.first(AttributeType::ACCT_INPUT_OCTETS).unwrap();
    assert_eq!(octets.to_integer(), Some(77));
}

/// Acct-Status-Type (RFC 2866, 5.1).
const START: u32 = 1;
const STOP: u32 = 2;
const ACCOUNTING_ON: u32 = 7;

fn status(request: &Datagram) -> u32 {
    let packet = Packet::parse(&request.bytes).unwrap();
    packet.first(AttributeType::ACCT_STATUS_TYPE).unwrap().to_integer().unwrap()
}
