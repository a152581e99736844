//! Destinations of traffic: flows before prefixes, asking, holding and releasing, and exits on a link.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use segue_datapath::MissPacket;
use segue_datapath::relay::RelayEvent;
use segue_ip::{Exit, FlowKey, Form, Forward, Prefix, Route, Traffic};
use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_wire::DropReason;

use crate::traffic::{bulk_tcp, datagrams, set_option};
use crate::world::{
    ANCHOR_OUTER, CORRESPONDENT, HOME, HOST, Path, TUNNEL, Wire, World, defaults, eventually, ip,
    may_run, namespace, over_both, pair, prefix, takes_in, wire_up,
};

const PATIENCE: Duration = Duration::from_secs(10);

over_both! {
    a_flow_goes_where_it_is_bound_to_whatever_its_prefix_is_bound_to
    a_flow_is_asked_about_once_and_nothing_of_it_is_lost_or_out_of_order
    what_is_held_is_bounded_the_oldest_goes_first_and_the_rest_leaves_in_order
    a_stream_that_is_held_and_released_keeps_its_order
    a_flow_with_another_label_is_another_where_labels_count
    traffic_goes_out_of_a_link_to_the_destination_or_a_next_hop
    two_hosts_of_one_access_router_reach_each_other_through_the_anchor
    a_tunnel_follows_the_routes_to_its_other_end
    what_finds_no_room_at_the_relays_device_is_counted
    what_waits_for_a_slow_link_keeps_nothing_from_the_others
}

fn world(path: Path) -> World {
    World::new(path, Wire::Whole, Wire::Whole, Form::Ip, true)
}

/// Numbered datagrams, by default from the correspondent to the host.
struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

impl Stream {
    fn new(world: &World, port: u16) -> Stream {
        Stream::between((&world.correspondent, CORRESPONDENT[0]), (&world.host, HOST[0]), port)
    }

    /// From the host to the correspondent.
    fn up(world: &World, port: u16) -> Stream {
        Stream::between((&world.host, HOST[0]), (&world.correspondent, CORRESPONDENT[0]), port)
    }

    fn between(from: (&Netns, &str), to: (&Netns, &str), port: u16) -> Stream {
        let bound =
            |(ns, at): (&Netns, &str)| ns.run(|| UdpSocket::bind((ip(at), port))).unwrap().unwrap();
        let (sender, receiver) = (bound(from), bound(to));
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        set_option(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
        Stream { sender, receiver, to: SocketAddr::new(ip(to.1), port) }
    }

    fn send(&self, number: u32) {
        self.sender.send_to(&number.to_be_bytes(), self.to).unwrap();
    }

    fn next(&self) -> u32 {
        let mut number = [0; 4];
        self.receiver.recv(&mut number).unwrap();
        u32::from_be_bytes(number)
    }

    fn key(&self) -> FlowKey {
        let from = self.sender.local_addr().unwrap();
        FlowKey {
            src: from.ip(),
            dst: self.to.ip(),
            sport: from.port(),
            dport: self.to.port(),
            protocol: 17,
            label: 0,
        }
    }
}

fn to_home() -> Traffic {
    Traffic::To(prefix(HOME[0]))
}

/// The next packet that the anchor's relay asks about.
fn asked(world: &World) -> MissPacket {
    let mut found = None;
    eventually("a question", || {
        let mut events = world.anchor.events.lock().unwrap();
        let at = events.iter().position(|event| matches!(event, RelayEvent::Miss(_)));
        found = at.map(|at| events.remove(at));
        found.is_some()
    });
    let Some(RelayEvent::Miss(packet)) = found else { unreachable!() };
    packet
}

fn a_flow_goes_where_it_is_bound_to_whatever_its_prefix_is_bound_to(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let (named, other) = (Stream::new(&world, 7_001), Stream::new(&world, 7_002));
    world.anchor.bind(Traffic::Flow(named.key()), Exit::Tunnel(TUNNEL));
    world.anchor.bind(to_home(), Exit::Drop);
    other.send(1);
    named.send(2);
    assert_eq!(named.next(), 2);
    eventually("the drop", || world.anchor.dropped(DropReason::Denied) == 1);
    // The longest prefix applies.
    world.anchor.bind(Traffic::To(Prefix::host(ip(HOST[0]))), Exit::Tunnel(TUNNEL));
    other.send(3);
    assert_eq!(other.next(), 3);
    let relay = world.anchor.relay.lock().unwrap();
    let carried = relay.traffic_carried(&Traffic::Flow(named.key()));
    assert_eq!((carried.sent_packets, carried.sent_bytes), (1, 52));
    assert!(carried.last_sent.is_some());
    assert_eq!(relay.traffic_carried(&Traffic::Flow(other.key())).sent_packets, 0);
}

/// Linux gives a socket's datagrams a flow label that it computes from addresses and ports, or none.
fn with_labels(world: &World, labels: bool) {
    let write =
        || std::fs::write("/proc/sys/net/ipv6/auto_flowlabels", if labels { "1" } else { "0" });
    world.correspondent.run(write).unwrap().unwrap();
}

fn a_flow_with_another_label_is_another_where_labels_count(path: Path) {
    if !may_run() {
        return;
    }
    for labels in [true, false] {
        let world = World::over(path, [Wire::Whole, Wire::Whole], (Form::Ip, true), labels);
        let stream = Stream::new(&world, 7_001);
        world.anchor.bind(to_home(), Exit::Ask);
        world.anchor.bind(Traffic::Flow(stream.key()), Exit::Tunnel(TUNNEL));
        with_labels(&world, false);
        stream.send(1);
        assert_eq!(stream.next(), 1);
        with_labels(&world, true);
        stream.send(2);
        if labels {
            let packet = asked(&world);
            assert_ne!(packet.key.label, 0);
            assert_eq!(FlowKey { label: 0, ..packet.key }, stream.key());
            world.anchor.bind(Traffic::Flow(packet.key), Exit::Tunnel(TUNNEL));
            world.anchor.relay.lock().unwrap().inject(packet);
        }
        assert_eq!(stream.next(), 2);
    }
}

fn a_flow_is_asked_about_once_and_nothing_of_it_is_lost_or_out_of_order(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    world.anchor.bind(to_home(), Exit::Ask);
    let (one, other) = (Stream::new(&world, 7_001), Stream::new(&world, 7_002));
    (0..20).for_each(|n| one.send(n));
    let packet = asked(&world);
    assert_eq!(packet.key, one.key());
    world.anchor.bind(Traffic::Flow(packet.key), Exit::Tunnel(TUNNEL));
    world.anchor.relay.lock().unwrap().inject(packet);
    (20..30).for_each(|n| one.send(n));
    (0..30).for_each(|n| assert_eq!(one.next(), n));
    // A refused flow is not asked about again for a moment.
    other.send(0);
    let packet = asked(&world);
    assert_eq!(packet.key, other.key());
    world.anchor.relay.lock().unwrap().refuse(&packet);
    let refused = world.anchor.dropped(DropReason::NoBinding);
    assert_eq!(refused, 1);
    other.send(1);
    eventually("the refusal", || world.anchor.dropped(DropReason::QueueFull) == 1);
    assert!(world.anchor.events.lock().unwrap().is_empty());
}

fn what_is_held_is_bounded_the_oldest_goes_first_and_the_rest_leaves_in_order(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let stream = Stream::new(&world, 7_001);
    world.anchor.bind(to_home(), Exit::Hold { packets: 100, within_ms: 60_000 });
    (0..150).for_each(|n| stream.send(n));
    eventually("the bound", || world.anchor.dropped(DropReason::HoldFull) == 50);
    world.anchor.bind(to_home(), Exit::Hold { packets: 90, within_ms: 60_000 });
    assert_eq!(world.anchor.dropped(DropReason::HoldFull), 60);
    world.anchor.bind(to_home(), Exit::Tunnel(TUNNEL));
    (60..150).for_each(|n| assert_eq!(stream.next(), n));
    stream.send(150);
    assert_eq!(stream.next(), 150);
    // A hold that ends in a drop.
    world.anchor.bind(to_home(), Exit::Hold { packets: 100, within_ms: 60_000 });
    (0..3).for_each(|n| stream.send(n));
    world.anchor.bind(to_home(), Exit::Drop);
    eventually("the drops", || world.anchor.dropped(DropReason::Denied) == 3);
    world.anchor.bind(to_home(), Exit::Hold { packets: 100, within_ms: 20 });
    (0..3).for_each(|n| stream.send(n));
    eventually("the end of their time", || world.anchor.dropped(DropReason::HoldExpired) == 3);
}

/// A call continues while its packets are repeatedly held for a moment.
fn a_stream_that_is_held_and_released_keeps_its_order(path: Path) {
    if !may_run() {
        return;
    }
    const PACKETS: u32 = 4_000;
    // A veth pair has one queue per processor, and packets that leave on different processors may overtake each
    // other.
    let mut one = CpuSet::new();
    one.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let world = world(path);
    let stream = Stream::new(&world, 7_001);
    // Until the kernel knows a next hop's hardware address, which may take a second, it drops packets beyond its
    // queue limit.
    stream.send(PACKETS);
    assert_eq!(stream.next(), PACKETS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            for n in 0..PACKETS {
                stream.send(n);
                let due = start + Duration::from_micros(250) * (n + 1);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        scope.spawn(|| {
            for _ in 0..10 {
                world.anchor.bind(to_home(), Exit::Hold { packets: 5_000, within_ms: 60_000 });
                std::thread::sleep(Duration::from_millis(50));
                world.anchor.bind(to_home(), Exit::Tunnel(TUNNEL));
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        (0..PACKETS).for_each(|n| assert_eq!(stream.next(), n));
    });
}

/// The access router also relays packets from the tunnel to the host on its link, which allows it to hold them.
fn traffic_goes_out_of_a_link_to_the_destination_or_a_next_hop(path: Path) {
    if !may_run() {
        return;
    }
    let world = world(path);
    let relay = world.access.relay.lock().unwrap().tun_ifindex();
    let interface = world.access.index("sga");
    for (family, host) in HOST.iter().map(|host| Prefix::host(ip(host))).enumerate() {
        world.access.put(Forward::Route(Route::on(host, relay)));
        for next in [None, Some(host.addr)] {
            world.access.bind(Traffic::To(host), Exit::Link { interface, next });
            let before = world.access.relay.lock().unwrap().traffic_carried(&Traffic::To(host));
            bulk_tcp(&world.host, &world.correspondent, ip(CORRESPONDENT[family]), 1 << 20);
            let after = world.access.relay.lock().unwrap().traffic_carried(&Traffic::To(host));
            assert!(after.sent_bytes > before.sent_bytes + (1 << 20), "{after:?}");
        }
    }
}

/// Packets from one host go up through the tunnel and come down to the other, once.
fn two_hosts_of_one_access_router_reach_each_other_through_the_anchor(path: Path) {
    if !may_run() {
        return;
    }
    const OTHER: [&str; 2] = ["fd0e::2", "10.71.0.2"];
    const GATEWAY: [&str; 2] = ["fd0e::1", "10.71.0.1"];
    let world = world(path);
    let other = namespace(&format!("{}o", world.host.name().unwrap()));
    pair("sgb", &other, &world.access.ns);
    world.access.ns.run(|| wire_up("sgb", GATEWAY, Wire::Whole)).unwrap();
    other
        .run(|| {
            wire_up("sgb", OTHER, Wire::Whole);
            takes_in(OTHER[0]);
            defaults(&GATEWAY);
        })
        .unwrap();
    world.serve("sgb", ["fd0e::/64", "10.71.0.0/24"].map(prefix));
    let relay = world.access.relay.lock().unwrap().tun_ifindex();
    let interface = world.access.index("sgb");
    for (family, to) in OTHER.iter().map(|to| Prefix::host(ip(to))).enumerate() {
        world.access.put(Forward::Route(Route::on(to, relay)));
        world.access.bind(Traffic::To(to), Exit::Link { interface, next: None });
        let arrived = datagrams(&world.host, &other, ip(OTHER[family]), 100, 700, 1);
        assert_eq!(arrived.len(), 100);
        let carried =
            |traffic| world.access.relay.lock().unwrap().traffic_carried(&traffic).sent_packets;
        eventually("the count", || carried(Traffic::To(to)) == 100);
        assert_eq!(carried(Traffic::From(prefix(HOME[family]))), 100, "each went up once");
        // A packet that waits on the way down stays on the way down.
        world.access.bind(Traffic::To(to), Exit::Hold { packets: 10, within_ms: 60_000 });
        let receiver = other.run(|| UdpSocket::bind((ip(OTHER[family]), 7_000))).unwrap().unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = world.host.run(|| UdpSocket::bind((ip(HOST[family]), 0))).unwrap().unwrap();
        sender.send_to(b"wait", receiver.local_addr().unwrap()).unwrap();
        let came_down = || {
            let relay = world.access.relay.lock().unwrap();
            relay.tunnel_carried(TUNNEL).received_packets >= 101 * (family as u64 + 1)
        };
        eventually("the packet at the hold", came_down);
        world.access.bind(Traffic::To(to), Exit::Link { interface, next: None });
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 4);
    }
}

/// The routes lead to the remote end over another interface, and through a router on its link.
fn a_tunnel_follows_the_routes_to_its_other_end(path: Path) {
    if !may_run() {
        return;
    }
    const OVER: [&str; 2] = ["fd01::1", "10.91.0.1"];
    const FROM: [&str; 2] = ["fd01::2", "10.91.0.2"];
    let world = world(path);
    pair("sg1", &world.access.ns, &world.anchor.ns);
    world.access.ns.run(|| wire_up("sg1", FROM, Wire::Whole)).unwrap();
    world.anchor.ns.run(|| wire_up("sg1", OVER, Wire::Whole)).unwrap();
    for (router, address) in [(&world.anchor, OVER[0]), (&world.access, FROM[0])] {
        router.ns.run(|| takes_in(address)).unwrap();
    }
    let second = world.anchor.index("sg1");
    world.anchor.ns.run(|| world.anchor.relay.lock().unwrap().attach(second)).unwrap().unwrap();
    let stream = Stream::up(&world, 7_001);
    stream.send(1);
    assert_eq!(stream.next(), 1);
    let mut wire = world.anchor.ns.run(|| PacketSocket::open("sg1")).unwrap().unwrap();
    let to_anchor = Prefix::host(ip(ANCHOR_OUTER[0]));
    world.access.put(Forward::Route(Route::via(to_anchor, ip(OVER[0]))));
    eventually("a packet of the tunnel on the other wire", || {
        stream.send(2);
        assert_eq!(stream.next(), 2);
        let mut frame = [0; 2_000];
        let mut received =
            || wire.receive(&mut frame).unwrap().map(|_| (frame[14] >> 4, frame[20]));
        std::iter::from_fn(&mut received).any(|packet| packet == (6, 41))
    });
    // The first one took the old or the new route: none was lost.
    let drops = world.access.relay.lock().unwrap().drops();
    assert!(drops.is_empty(), "{drops:?}");
}

/// The relay's thread is blocked while more packets arrive than its device can queue.
fn what_finds_no_room_at_the_relays_device_is_counted(path: Path) {
    if !may_run() {
        return;
    }
    const PACKETS: u32 = 2_000;
    let world = world(path);
    let (asked_about, held) = (Stream::new(&world, 7_001), Stream::new(&world, 7_002));
    held.send(0);
    assert_eq!(held.next(), 0);
    let flow = Traffic::Flow(held.key());
    world.anchor.bind(flow, Exit::Hold { packets: u16::MAX, within_ms: 60_000 });
    world.anchor.bind(to_home(), Exit::Ask);
    let events = world.anchor.events.lock().unwrap();
    asked_about.send(0);
    (0..PACKETS).for_each(|n| held.send(n));
    let lost = world.anchor.dropped(DropReason::QueueFull);
    assert!(lost > 0 && lost < u64::from(PACKETS), "{lost}");
    drop(events);
    asked(&world);
    world.anchor.bind(flow, Exit::Tunnel(TUNNEL));
    let arrived: Vec<u32> = (0..u64::from(PACKETS) - lost).map(|_| held.next()).collect();
    assert!(arrived.is_sorted());
    assert_eq!(world.anchor.dropped(DropReason::QueueFull), lost);
}

/// More is sent to a host than its link can carry.
fn what_waits_for_a_slow_link_keeps_nothing_from_the_others(path: Path) {
    if !may_run() {
        return;
    }
    const OTHER: [&str; 2] = ["fd0e::2", "10.71.0.2"];
    let world = world(path);
    let other = namespace(&format!("{}o", world.host.name().unwrap()));
    pair("sgb", &other, &world.access.ns);
    world.access.ns.run(|| wire_up("sgb", ["fd0e::1", "10.71.0.1"], Wire::Whole)).unwrap();
    other.run(|| wire_up("sgb", OTHER, Wire::Whole)).unwrap();
    other.run(|| takes_in(OTHER[0])).unwrap();
    world.serve("sgb", ["fd0e::/64", "10.71.0.0/24"].map(prefix));
    let slow = "qdisc add dev sgb root tbf rate 1mbit burst 16kb limit 100mb";
    let done = world.access.ns.command("tc").args(slow.split(' ')).status().unwrap();
    assert!(done.success(), "tc {slow}");
    let relay = world.access.relay.lock().unwrap().tun_ifindex();
    let interface = world.access.index("sgb");
    let to = Prefix::host(ip(OTHER[0]));
    world.access.put(Forward::Route(Route::on(to, relay)));
    world.access.bind(Traffic::To(to), Exit::Link { interface, next: None });
    let flood = world.correspondent.run(|| UdpSocket::bind((ip(CORRESPONDENT[0]), 0)));
    let flood = flood.unwrap().unwrap();
    let sent = || world.access.relay.lock().unwrap().traffic_carried(&Traffic::To(to));
    // More than a socket's buffer holds.
    for n in 0..20_000 {
        flood.send_to(&[0; 1_300], (ip(OTHER[0]), 7_000)).unwrap();
        if n % 100 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(sent().sent_packets > 3_000, "{:?}", sent());
    let arrived = datagrams(&world.host, &world.correspondent, ip(CORRESPONDENT[0]), 100, 700, 1);
    assert_eq!(arrived.len(), 100);
}
