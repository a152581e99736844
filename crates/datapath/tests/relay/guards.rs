//! Packets that must not pass: inner sources of others, from either side of a tunnel.

use std::net::UdpSocket;
use std::time::Duration;

use segue_ip::{Binding, Exit, Form, Forward, Port, Prefix, Route, Source, Traffic};
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_wire::DropReason;

use crate::class;
use crate::traffic::{received_class, set_option};
use crate::world::{
    ACCESS_OUTER, ANCHOR_OUTER, CORRESPONDENT, HOME, HOST, Path, Router, TUNNEL, Wire, World,
    defaults, eventually, ip, may_run, namespace, over_both, pair, prefix, wire_up,
};

/// Addresses of another host behind the same access router, and its home prefixes.
const OTHER: [&str; 2] = ["fd0e::2", "10.71.0.2"];
const OTHER_HOME: [&str; 2] = ["fd0e::/64", "10.71.0.0/24"];

over_both! {
    a_host_that_sends_with_anothers_source_is_stopped_at_its_link
    what_comes_out_of_a_tunnel_has_a_source_that_was_allowed_there
    a_hosts_source_does_not_come_from_the_rest_of_the_world
    a_link_is_checked_as_long_as_it_has_a_source_and_sources_of_a_tunnel_go_with_it
    what_is_bound_to_nothing_is_dropped_and_counted
    a_hosts_source_does_not_come_over_another_link_of_its_access_router
    everything_of_one_family_is_nothing_of_the_other
    a_frame_with_a_vlans_tag_is_not_the_interfaces
    what_is_no_ip_packet_at_a_tunnels_port_is_for_whoever_has_it
}

fn world(path: Path) -> World {
    World::new(path, Wire::Whole, Wire::Whole, Form::Ip, true)
}

/// Sends a datagram from an address, which is first assigned to the node.
fn send(node: &Netns, device: &str, from: &str, to: &str) {
    node.run(|| {
        let _ = link::add_address(device, Prefix::host(ip(from)));
        let sender = UdpSocket::bind((ip(from), 0)).unwrap();
        sender.send_to(b"mine", (ip(to), 7_000)).unwrap();
    })
    .unwrap();
}

/// A socket at which only legitimate packets may arrive.
fn receiver(node: &Netns, at: &str) -> UdpSocket {
    let socket = node.run(|| UdpSocket::bind((ip(at), 7_000))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn arrives_from(socket: &UdpSocket, from: &str) {
    let mut buffer = [0; 100];
    let (_, sender) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(sender.ip(), ip(from), "nothing else has arrived");
}

fn counted(router: &Router, reason: DropReason, packets: u64) {
    eventually("the count of what was refused", || router.dropped(reason) == packets);
}

fn a_host_that_sends_with_anothers_source_is_stopped_at_its_link(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    for (family, to) in CORRESPONDENT.iter().enumerate() {
        let at = receiver(&world.correspondent, to);
        send(&world.host, "sga", OTHER[family], to);
        counted(&world.access, DropReason::InnerSource, family as u64 + 1);
        send(&world.host, "sga", HOST[family], to);
        arrives_from(&at, HOST[family]);
    }
    assert_eq!(world.anchor.dropped(DropReason::InnerSource), 0, "it was stopped before");
}

/// The access router does not check sources, or is an impostor: the anchor must not rely on it.
fn what_comes_out_of_a_tunnel_has_a_source_that_was_allowed_there(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let link = Port::Link(world.access.index("sga"));
    for (family, to) in CORRESPONDENT.iter().enumerate() {
        let other = prefix(OTHER_HOME[family]);
        world.access.put(Forward::Source(Source { port: link, prefix: other }));
        world.access.bind(Traffic::From(other), Exit::Tunnel(TUNNEL));
        let at = receiver(&world.correspondent, to);
        send(&world.host, "sga", OTHER[family], to);
        counted(&world.anchor, DropReason::InnerSource, family as u64 + 1);
        send(&world.host, "sga", HOST[family], to);
        arrives_from(&at, HOST[family]);
        let allowed = Source { port: Port::Tunnel(TUNNEL), prefix: other };
        world.anchor.put(Forward::Source(allowed));
        send(&world.host, "sga", OTHER[family], to);
        arrives_from(&at, OTHER[family]);
        world.anchor.take_back(Forward::Source(allowed));
    }
}

/// A node on the anchor's other side impersonates a host.
fn a_hosts_source_does_not_come_from_the_rest_of_the_world(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let relay = world.anchor.relay.lock().unwrap().tun_ifindex();
    for (family, home) in OTHER_HOME.iter().map(|home| prefix(home)).enumerate() {
        world.anchor.put(Forward::Route(Route::on(home, relay)));
        world.anchor.bind(Traffic::To(home), Exit::Tunnel(TUNNEL));
        let at = receiver(&world.host, HOST[family]);
        send(&world.correspondent, "sgc", OTHER[family], HOST[family]);
        counted(&world.anchor, DropReason::InnerSource, family as u64 + 1);
        send(&world.correspondent, "sgc", CORRESPONDENT[family], HOST[family]);
        arrives_from(&at, CORRESPONDENT[family]);
    }
}

fn a_link_is_checked_as_long_as_it_has_a_source_and_sources_of_a_tunnel_go_with_it(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let link = Port::Link(world.access.index("sga"));
    let [home, _] = HOME.map(prefix);
    let scope = Source { port: link, prefix: prefix("fe80::/10") };
    world.access.put(Forward::Source(scope));
    world.access.take_back(Forward::Source(Source { port: link, prefix: home }));
    let at = receiver(&world.correspondent, CORRESPONDENT[0]);
    send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
    counted(&world.access, DropReason::InnerSource, 1);
    world.access.put(Forward::Source(Source { port: link, prefix: home }));
    send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
    arrives_from(&at, HOST[0]);
    // A tunnel that is added again has only the sources that are added again.
    let tunnel = world.anchor.tunnel(TUNNEL);
    world.anchor.take_back(Forward::Tunnel(tunnel));
    world.anchor.put(Forward::Tunnel(tunnel));
    send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
    counted(&world.anchor, DropReason::InnerSource, 1);
    let port = Port::Tunnel(TUNNEL);
    world.anchor.put(Forward::Source(Source { port, prefix: home }));
    send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
    arrives_from(&at, HOST[0]);
}

/// Routes lead more traffic to the relay than is bound.
fn what_is_bound_to_nothing_is_dropped_and_counted(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let [home, _] = HOME.map(prefix);
    let at = receiver(&world.host, HOST[0]);
    let to_home = |exit| Binding { traffic: Traffic::To(home), exit };
    world.anchor.take_back(Forward::Bind(to_home(Exit::Tunnel(TUNNEL))));
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    counted(&world.anchor, DropReason::NoBinding, 1);
    world.anchor.bind(Traffic::To(home), Exit::Drop);
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    counted(&world.anchor, DropReason::Denied, 1);
    world.anchor.bind(Traffic::To(home), Exit::Tunnel(99));
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    counted(&world.anchor, DropReason::NoRemote, 1);
    world.anchor.bind(Traffic::To(home), Exit::Tunnel(TUNNEL));
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    arrives_from(&at, CORRESPONDENT[0]);
    // Without the tunnel, traffic bound to it is refused; once the tunnel is back, the traffic goes
    // there again.
    let tunnel = world.anchor.tunnel(TUNNEL);
    world.anchor.take_back(Forward::Tunnel(tunnel));
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    counted(&world.anchor, DropReason::NoRemote, 2);
    world.anchor.put(Forward::Tunnel(tunnel));
    send(&world.correspondent, "sgc", CORRESPONDENT[0], HOST[0]);
    arrives_from(&at, CORRESPONDENT[0]);
}

/// The host is behind the access router, which binds nothing by destination.
fn a_hosts_source_does_not_come_over_another_link_of_its_access_router(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let other = namespace(&format!("{}o", world.host.name().unwrap()));
    pair("sgb", &other, &world.access.ns);
    world.access.ns.run(|| wire_up("sgb", ["fd0e::1", "10.71.0.1"], Wire::Whole)).unwrap();
    other.run(|| wire_up("sgb", OTHER, Wire::Whole)).unwrap();
    other.run(|| defaults(&["fd0e::1", "10.71.0.1"])).unwrap();
    world.serve("sgb", OTHER_HOME.map(prefix));
    // The other host has left, so its link is not checked.
    let link = Port::Link(world.access.index("sgb"));
    for home in OTHER_HOME.map(prefix) {
        world.access.take_back(Forward::Source(Source { port: link, prefix: home }));
    }
    for (family, to) in CORRESPONDENT.iter().enumerate() {
        let at = receiver(&world.correspondent, to);
        send(&other, "sgb", HOST[family], to);
        counted(&world.access, DropReason::InnerSource, family as u64 + 1);
        send(&world.host, "sga", HOST[family], to);
        arrives_from(&at, HOST[family]);
    }
}

/// `::/0` does not cover IPv4, nor `0.0.0.0/0` IPv6.
fn everything_of_one_family_is_nothing_of_the_other(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let port = Port::Tunnel(TUNNEL);
    for (family, wide) in ["::/0", "0.0.0.0/0"].map(prefix).into_iter().enumerate() {
        let at = receiver(&world.host, HOST[family]);
        world.access.take_back(Forward::Source(Source { port, prefix: wide }));
        send(&world.correspondent, "sgc", CORRESPONDENT[family], HOST[family]);
        counted(&world.access, DropReason::InnerSource, family as u64 + 1);
        world.access.put(Forward::Source(Source { port, prefix: wide }));
        send(&world.correspondent, "sgc", CORRESPONDENT[family], HOST[family]);
        arrives_from(&at, CORRESPONDENT[family]);
        // Bound by all addresses of the other family.
        let other = prefix(["0.0.0.0/0", "::/0"][family]);
        let home = prefix(HOME[family]);
        let to = |traffic| Binding { traffic, exit: Exit::Tunnel(TUNNEL) };
        world.anchor.put(Forward::Bind(to(Traffic::From(other))));
        world.anchor.take_back(Forward::Bind(to(Traffic::To(home))));
        send(&world.correspondent, "sgc", CORRESPONDENT[family], HOST[family]);
        counted(&world.anchor, DropReason::NoBinding, family as u64 + 1);
        world.anchor.put(Forward::Bind(to(Traffic::To(home))));
        world.anchor.take_back(Forward::Bind(to(Traffic::From(other))));
    }
}

/// Messages between the ends of a tunnel over the tunnel's ports, as needed for NATs.
fn what_is_no_ip_packet_at_a_tunnels_port_is_for_whoever_has_it(path: Path) {
    if !may_run() {
        return;
    }
    let form = Form::Udp { local: 5_437, remote: 5_437 };
    let world = World::new(path, Wire::Whole, Wire::Whole, form, false);
    let [anchor, access] =
        [(&world.anchor, ANCHOR_OUTER), (&world.access, ACCESS_OUTER)].map(|at| {
            let (router, addresses) = at;
            let socket = router.ns.run(|| UdpSocket::bind((ip(addresses[1]), 5_437)));
            let socket = socket.unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        });
    let at = receiver(&world.correspondent, CORRESPONDENT[0]);
    let (mut buffer, to) = ([0; 100], (ip(ANCHOR_OUTER[1]), 5_437));
    for _ in 0..3 {
        send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
        arrives_from(&at, HOST[0]);
        // The second one has an IPv6 version field, but is not a packet.
        for message in [&[0x3b, 1][..], &[0x60, 2], &[0x3b, 3]] {
            access.send_to(message, to).unwrap();
        }
        for expected in [1, 3] {
            let (len, from) = anchor.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from.port()), (&[0x3b, expected][..], 5_437));
        }
    }
    counted(&world.anchor, DropReason::InnerPacket, 3);
    // Data that could be a packet, from a port that no tunnel uses.
    let stranger = world.access.ns.run(|| UdpSocket::bind((ip(ACCESS_OUTER[1]), 5_438)));
    stranger.unwrap().unwrap().send_to(&[0x60, 5], to).unwrap();
    let (len, from) = anchor.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from.port()), (&[0x60, 5][..], 5_438));
    anchor.send_to(&[0x3b, 4], (ip(ACCESS_OUTER[1]), 5_437)).unwrap();
    assert_eq!(access.recv(&mut buffer).unwrap(), 2);
}

/// An operator reloads the packet filter, or deletes a single element.
#[test]
fn the_packet_filters_table_comes_back() {
    if !may_run() {
        return;
    }
    let world = world(Path::User);
    let nft = |command: &str| {
        let done = world.access.ns.command("nft").args(command.split(' ')).status().unwrap();
        assert!(done.success(), "nft {command}");
    };
    let at = receiver(&world.correspondent, CORRESPONDENT[0]);
    send(&world.host, "sga", OTHER[0], CORRESPONDENT[0]);
    counted(&world.access, DropReason::InnerSource, 1);
    nft("flush ruleset");
    let table = || segue_linux::nft::tables("segue_relay_").unwrap();
    eventually("the table", || !world.access.ns.run(table).unwrap().is_empty());
    send(&world.host, "sga", OTHER[0], CORRESPONDENT[0]);
    counted(&world.access, DropReason::InnerSource, 2);
    nft("flush set inet segue_relay_segue0 sources6");
    let link = Port::Link(world.access.index("sga"));
    let home = Source { port: link, prefix: prefix(HOME[0]) };
    world.access.take_back(Forward::Source(home));
    world.access.put(Forward::Source(home));
    send(&world.host, "sga", HOST[0], CORRESPONDENT[0]);
    arrives_from(&at, HOST[0]);
}

/// The VLAN is a different link.
fn a_frame_with_a_vlans_tag_is_not_the_interfaces(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let to = CORRESPONDENT[1];
    let at = world.correspondent.run(|| UdpSocket::bind((ip(to), class::PORT))).unwrap().unwrap();
    at.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    set_option(&at, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let mac = |router: &Router| {
        let links = router.ns.run(link::links).unwrap().unwrap();
        links.into_iter().find(|link| link.name == "sg0").unwrap().mac
    };
    let frame = |tag: &[u8], class| {
        let packet = class::tunnelled(0, class);
        [&mac(&world.anchor)[..], &mac(&world.access), tag, &[0x86, 0xdd], &packet].concat()
    };
    let wire = world.access.ns.run(|| PacketSocket::open("sg0")).unwrap().unwrap();
    let tag = [0x81, 0, 0, 5];
    assert!(wire.send(&frame(&tag, 0x20)).unwrap() && wire.send(&frame(&[], 0x40)).unwrap());
    assert_eq!(received_class(&at), 0x40, "nothing has arrived before");
}
