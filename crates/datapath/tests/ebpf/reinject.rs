//! What left on a path that died is sent again over another.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use segue_clock::Time;
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, Reinjection};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;

use crate::world::{End, Family, Wire, World, anchor_slot, eventually, host_slot, may_run};

const APART: Duration = Duration::from_millis(40);

#[test]
fn what_left_on_a_dead_path_arrives_over_another_with_offloads_whole() {
    every_family(Wire::Whole);
}

#[test]
fn what_left_on_a_dead_path_arrives_over_another_without_gso() {
    every_family(Wire::NoGso);
}

#[test]
fn what_left_on_a_dead_path_arrives_over_another_without_checksum_offload() {
    every_family(Wire::NoChecksum);
}

fn every_family(wire: Wire) {
    if !may_run() {
        return;
    }
    for (outer, inner) in [(Family::V4, Family::V6), (Family::V6, Family::V4)] {
        let world = world(outer, wire);
        seldom(&world, inner);
        moved(&world, inner);
        stream(&world, inner);
    }
}

/// Two paths that follow their use.
fn world(outer: Family, wire: Wire) -> World {
    let world = World::ready(outer, wire, 2, EbpfOptions::default());
    let probing = Probing { follows_use: true, ..Probing::default() };
    for path in 0..2 {
        let configs = [world.host_path(path), world.anchor_path(path)];
        let slots = [host_slot(path), anchor_slot(path)];
        for ((end, config), slot) in
            [&world.host, &world.anchor].into_iter().zip(configs).zip(slots)
        {
            let config = PathSetup { probing, ..config };
            end.datapath.lock().unwrap().set_path(slot, &config).unwrap();
        }
    }
    world
}

/// While it lives, nothing that comes over the first path gets in at this end.
fn while_dead<T>(end: &End, body: impl FnOnce() -> T) -> T {
    let ifindex = end.ifindex(0);
    let datapath = &end.datapath;
    end.ns.run(|| datapath.lock().unwrap().detach(ifindex)).unwrap();
    let result = body();
    end.ns.run(|| datapath.lock().unwrap().attach(ifindex)).unwrap().unwrap();
    result
}

fn reinject(end: &End, slot: fn(u32) -> u32, since: Time) -> usize {
    let order = Reinjection { slot: slot(0), over: slot(1), since };
    end.datapath.lock().unwrap().reinject(order)
}

/// One at the host, which sends to the other, and one at the anchor.
fn sockets(world: &World, family: Family) -> [UdpSocket; 2] {
    let open = |(end, last): (&End, u8)| {
        let socket = end.ns.run(|| UdpSocket::bind((family.inner(last), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let both = [(&world.host, 1), (&world.anchor, 2)].map(open);
    both[0].connect(both[1].local_addr().unwrap()).unwrap();
    both
}

/// Datagrams one by one in both directions.
fn seldom(world: &World, family: Family) {
    let [near, far] = sockets(world, family);
    far.connect(near.local_addr().unwrap()).unwrap();
    let ends =
        [(&near, &far, &world.host, &world.anchor), (&far, &near, &world.anchor, &world.host)];
    for ((from, to, sender, receiver), slot) in
        ends.into_iter().zip([host_slot as fn(u32) -> u32, anchor_slot])
    {
        from.send(b"there").unwrap();
        assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
        while_dead(receiver, || {
            from.send(b"known to be lost").unwrap();
            std::thread::sleep(APART);
            let since = monotonic();
            for n in 0..3u8 {
                std::thread::sleep(APART);
                from.send(&[n; 100]).unwrap();
            }
            assert_eq!(reinject(sender, slot, since), 3);
            for n in 0..3u8 {
                let mut bytes = [0; 200];
                assert_eq!(to.recv(&mut bytes).unwrap(), 100);
                assert_eq!(bytes[..100], [n; 100], "each once, and in order");
            }
            assert_eq!(reinject(sender, slot, since), 0, "each once");
        });
        // The flow itself has not moved, at either end.
        let flows = world.anchor.datapath.lock().unwrap().flows();
        let port = near.local_addr().unwrap().port();
        let flow = flows.iter().find(|flow| flow.key.dport == port && flow.key.protocol == 17);
        assert_eq!(flow.unwrap().slot, anchor_slot(0));
        from.send(b"after").unwrap();
        assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
    }
}

/// A flow has moved to the other path, which was in doubt before, when its lost packets are sent again.
fn moved(world: &World, family: Family) {
    let [near, far] = sockets(world, family);
    let expect = |what: &[u8]| {
        let mut bytes = [0; 64];
        let length = far.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], what);
    };
    near.send(b"there").unwrap();
    expect(b"there");
    let port = near.local_addr().unwrap().port();
    let bind = |path| {
        let mut datapath = world.host.datapath.lock().unwrap();
        let flows = datapath.flows();
        let flow = flows.iter().find(|flow| flow.key.sport == port).unwrap();
        datapath.bind_flow(flow.key, host_slot(path)).unwrap();
    };
    let order = |slot, over, since| {
        let order = Reinjection { slot: host_slot(slot), over: host_slot(over), since };
        world.host.datapath.lock().unwrap().reinject(order)
    };
    bind(1);
    let since = monotonic();
    std::thread::sleep(APART);
    near.send(b"doubted").unwrap();
    expect(b"doubted");
    assert_eq!(order(1, 0, since), 1);
    expect(b"doubted");
    bind(0);
    while_dead(&world.anchor, || {
        let since = monotonic();
        std::thread::sleep(APART);
        near.send(b"lost").unwrap();
        bind(1);
        assert_eq!(order(0, 1, since), 1);
        expect(b"lost");
    });
}

/// Super-packets: the first segment arrives, and what it says is right.
fn stream(world: &World, family: Family) {
    let listener =
        world.anchor.ns.run(|| TcpListener::bind((family.inner(2), 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let mut from = world.host.ns.run(|| TcpStream::connect(to)).unwrap().unwrap();
    let mut at = listener.accept().unwrap().0;
    at.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sent: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
    let mut got = vec![0; sent.len()];
    let first = while_dead(&world.anchor, || {
        let since = monotonic();
        std::thread::sleep(APART);
        from.write_all(&sent).unwrap();
        // The programs have it at once; what the kernel sends again is kept too.
        eventually("a copy", || reinject(&world.host, host_slot, since) > 0);
        at.read(&mut got).unwrap()
    });
    assert!(first > 1_000, "{first} bytes");
    at.read_exact(&mut got[first..]).unwrap();
    assert!(got == sent, "bytes differ");
    let bad = world
        .anchor
        .ns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap()
        .unwrap();
    let mut lines = bad.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    assert_eq!(values.split(' ').nth(place), Some("0"));
}
