//! Route optimization: inserting and removing home addresses in extension headers.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use segue_datapath::relay::RelayEvent;
use segue_ip::{Binding, Exit, Form, Forward, Forwarding, Prefix, Route, Traffic, Tunnel};
use segue_linux::link;
use segue_linux::route::add_route;
use segue_wire::DropReason;

use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{
    Path, Router, TUNNEL, Wire, eventually, ip, may_run, namespace, pair, send_raw, takes_in,
    wire_up,
};

/// Addresses on the link between the two nodes, one of each family.
const NEAR: [&str; 2] = ["fd00::1", "10.9.0.1"];
const FAR: [&str; 2] = ["fd00::2", "10.9.0.2"];
const HOME: &str = "fd08::1";
const FAR_HOME: &str = "fd08::2";
/// Bytes of either extension header.
const HEADER: u32 = 24;

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// A mobile node away from home, and its peer.
struct Pair {
    mobile: Router,
    other: Router,
    /// The address by which the mobile node knows its peer, and the one by which the peer knows the
    /// mobile node.
    at: [IpAddr; 2],
}

impl Pair {
    /// `both`: the peer is away from its home too.
    fn new(wire: Wire, both: bool) -> Pair {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = |node| format!("segue-o{}-{serial}{node}", std::process::id());
        let [a, b] = ['m', 'o'].map(|node| namespace(&name(node)));
        pair("sg0", &a, &b);
        a.run(|| wire_up("sg0", NEAR, wire)).unwrap();
        b.run(|| wire_up("sg0", FAR, wire)).unwrap();
        a.run(|| takes_in(NEAR[0])).unwrap();
        b.run(|| takes_in(FAR[0])).unwrap();
        let pair = Pair {
            mobile: Router::start(Path::Kernel, a),
            other: Router::start(Path::Kernel, b),
            at: [ip(if both { FAR_HOME } else { FAR[0] }), ip(HOME)],
        };
        let far_home = both.then(|| v6(FAR_HOME));
        let home = Some(v6(HOME));
        pair.lead(
            &pair.mobile,
            [NEAR[0], FAR[0]],
            [home, far_home],
            [HOME.into(), pair.at[0].to_string()],
        );
        pair.lead(
            &pair.other,
            [FAR[0], NEAR[0]],
            [far_home, home],
            [pair.at[0].to_string(), HOME.into()],
        );
        pair
    }

    fn lead(
        &self,
        node: &Router,
        wire: [&str; 2],
        homes: [Option<Ipv6Addr>; 2],
        ends: [String; 2],
    ) {
        let [home, peer] = homes;
        let [local, remote] = wire.map(ip);
        let form = Form::Optimized { home, peer };
        // Routes to the other node lead to the relay itself.
        let interface = Some(node.index("sg0"));
        node.put(Forward::Tunnel(Tunnel { number: TUNNEL, local, remote, interface, form }));
        let [from, to] = ends.map(|end| Prefix::host(ip(&end)));
        node.put(Forward::Bind(Binding { traffic: Traffic::To(to), exit: Exit::Tunnel(TUNNEL) }));
        let relay = node.relay.lock().unwrap().tun_ifindex();
        node.ns
            .run(|| {
                if home.is_some() {
                    link::add_address("segue0", from).unwrap();
                    takes_in(&from.addr.to_string());
                }
                let room = if home.is_some() && peer.is_some() { 2 * HEADER } else { HEADER };
                let way = Route::on(to, relay).metric(1);
                let mtu_bytes = Some(1_500 - room);
                add_route(&Route { source: Some(from.addr), mtu_bytes, ..way }).unwrap();
            })
            .unwrap();
    }
}

fn carries_everything(wire: Wire, both: bool) {
    if !may_run() {
        return;
    }
    let pair = Pair::new(wire, both);
    let [other, mobile] = pair.at;
    bulk_tcp(&pair.mobile.ns, &pair.other.ns, other, 4 << 20);
    bulk_tcp(&pair.other.ns, &pair.mobile.ns, mobile, 4 << 20);
    for batch in [1, 20] {
        assert_eq!(datagrams(&pair.mobile.ns, &pair.other.ns, other, 100, 700, batch).len(), 100);
        assert_eq!(datagrams(&pair.other.ns, &pair.mobile.ns, mobile, 100, 700, batch).len(), 100);
    }
    for node in [&pair.mobile, &pair.other] {
        let drops = node.relay.lock().unwrap().drops();
        assert!(drops.is_empty(), "{drops:?} {:?}", node.events.lock().unwrap());
        let carried = node.relay.lock().unwrap().tunnel_carried(TUNNEL);
        println!("{wire:?}, both mobile: {both}, {carried:?}");
        assert!(carried.sent_bytes > 8 << 20 && carried.received_bytes > 8 << 20);
    }
}

#[test]
fn home_addresses_go_in_and_out_with_offloads_whole() {
    carries_everything(Wire::Whole, false);
}

#[test]
fn home_addresses_go_in_and_out_without_segmentation_offload() {
    carries_everything(Wire::NoGso, false);
}

#[test]
fn home_addresses_go_in_and_out_without_checksum_offload() {
    carries_everything(Wire::NoChecksum, false);
}

#[test]
fn two_mobile_nodes_have_both_headers() {
    carries_everything(Wire::NoChecksum, true);
    carries_everything(Wire::Whole, true);
}

/// An IPv6 packet with a destination option, a routing header, or both.
fn packet(from: &str, to: &str, headers: &[(u8, &[u8])], next: u8, payload: &[u8]) -> Vec<u8> {
    let protocols: Vec<u8> = headers.iter().map(|(kind, _)| *kind).chain([next]).collect();
    let len: usize = headers.iter().map(|(_, rest)| rest.len() + 1).sum::<usize>() + payload.len();
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend([protocols[0], 64]);
    bytes.extend(v6(from).octets());
    bytes.extend(v6(to).octets());
    for ((_, rest), next) in headers.iter().zip(&protocols[1..]) {
        bytes.push(*next);
        bytes.extend(*rest);
    }
    bytes.extend(payload);
    bytes
}

/// The bytes after the next-header field of a Destination Options header with this home address.
fn home_option(home: &str) -> Vec<u8> {
    [&[2, 1, 2, 0, 0, 0xc9, 16][..], &v6(home).octets()].concat()
}

/// The bytes after the next-header field of a type 2 routing header with this home address.
fn routing(home: &str) -> Vec<u8> {
    [&[2, 2, 1, 0, 0, 0, 0][..], &v6(home).octets()].concat()
}

/// The packets that the node's daemon has received.
fn given(node: &Router, number: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    eventually("a message for the daemon", || {
        packets.extend(node.events.lock().unwrap().drain(..).map(|event| match event {
            RelayEvent::Message { bytes, .. } => bytes,
            other => panic!("unasked: {other:?}"),
        }));
        packets.len() >= number
    });
    packets
}

/// How many ICMPv6 errors a node has sent.
fn errors_sent(node: &Router) -> u64 {
    let text = node.ns.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp6")).unwrap();
    let count = |name: &str| {
        let text = text.as_ref().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    count("Icmp6OutParmProblems") + count("Icmp6OutDestUnreachs")
}

#[test]
fn messages_with_home_addresses_reach_the_daemon_and_not_the_kernel() {
    if !may_run() {
        return;
    }
    const MOBILITY: u8 = 135;
    const ICMPV6: u8 = 58;
    let pair = Pair::new(Wire::Whole, false);
    let message = [59, 1, 5, 0, 0, 0, 0, 1, 0x80, 0, 0, 60, 1, 2, 0, 0];
    let sent = [
        // From a node without a binding yet, and from the one with a binding.
        packet(NEAR[0], FAR[0], &[(60, &home_option("fd08::77"))], MOBILITY, &message),
        packet(NEAR[0], FAR[0], &[(60, &home_option(HOME))], MOBILITY, &message),
        packet(NEAR[0], FAR[0], &[(43, &routing(FAR_HOME))], MOBILITY, &message),
        packet(
            NEAR[0],
            FAR[0],
            &[(60, &home_option("fd08::77"))],
            ICMPV6,
            &[146, 0, 0, 0, 0, 1, 0, 0],
        ),
    ];
    for packet in &sent {
        send_raw(&pair.mobile, FAR[0], packet);
    }
    assert_eq!(given(&pair.other, sent.len()), sent);
    assert_eq!((errors_sent(&pair.other), pair.other.dropped(DropReason::NoBinding)), (0, 0));
}

#[test]
fn data_without_a_binding_is_counted_and_told_and_a_strange_routing_header_is_the_kernels() {
    if !may_run() {
        return;
    }
    let pair = Pair::new(Wire::Whole, false);
    let udp = [0x1b, 0x59, 0x1b, 0x59, 0, 8, 0, 0];
    // A home address other than the binding's, and the correct one from another care-of address.
    let wrong = [
        packet(NEAR[0], FAR[0], &[(60, &home_option("fd08::77"))], 17, &udp),
        packet("fd00::99", FAR[0], &[(60, &home_option(HOME))], 17, &udp),
    ];
    for (n, packet) in wrong.iter().enumerate() {
        send_raw(&pair.mobile, FAR[0], packet);
        assert_eq!(given(&pair.other, 1), std::slice::from_ref(packet));
        assert_eq!(pair.other.dropped(DropReason::NoBinding), n as u64 + 1);
    }
    assert_eq!(errors_sent(&pair.other), 0);
    send_raw(
        &pair.mobile,
        FAR[0],
        &packet(NEAR[0], FAR[0], &[(43, &routing("fd08::77"))], 17, &udp),
    );
    eventually("the kernel's answer", || errors_sent(&pair.other) == 1);
    assert!(pair.other.events.lock().unwrap().is_empty());
}

#[test]
fn in_user_space_home_addresses_and_a_port_in_use_are_refused_and_nothing_changes() {
    if !may_run() {
        return;
    }
    let ns = namespace(&format!("segue-r{}-refused", std::process::id()));
    let far = namespace(&format!("segue-r{}-far", std::process::id()));
    pair("sg0", &ns, &far);
    let router = Router::start(Path::User, ns);
    let taken = router.ns.run(|| std::net::UdpSocket::bind(("::", 4_191))).unwrap().unwrap();
    let tunnel = |form| Tunnel { form, ..router.tunnel(TUNNEL) };
    let put = |form| {
        let part = Forward::Tunnel(tunnel(form));
        let put = router.ns.run(|| router.relay.lock().unwrap().put(&part)).unwrap();
        put.map_err(|error| error.to_string())
    };
    let homes = put(Form::Optimized { home: Some(v6(HOME)), peer: None }).unwrap_err();
    assert!(homes.contains("home addresses"), "{homes}");
    let udp = Form::Udp { local: 4_191, remote: 4_192 };
    assert!(put(udp).unwrap_err().contains("in use"));
    drop(taken);
    put(udp).unwrap();
    // Other programs can use a tunnel's port again once the tunnel is gone.
    let bind = || router.ns.run(|| std::net::UdpSocket::bind(("::", 4_191))).unwrap();
    assert!(bind().is_err());
    router.take_back(Forward::Tunnel(tunnel(udp)));
    bind().unwrap();
}
