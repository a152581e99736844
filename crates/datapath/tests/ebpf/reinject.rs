//! Data lost on a path that died is sent again over another path.

use std::net::IpAddr;

use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, Reinjection};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;

use crate::reinjection::{self, APART, Tunnel};
use crate::world::{End, Family, Wire, World, anchor_slot, host_slot, may_run};

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
        let cut = |from_host, dead| match from_host {
            true => deafen(&world.anchor, dead),
            false => deafen(&world.host, dead),
        };
        let tunnel = Tunnel {
            host: end(&world.host, host_slot, inner.inner(1)),
            anchor: end(&world.anchor, anchor_slot, inner.inner(2)),
            cut: &cut,
        };
        tunnel.seldom();
        moved(&tunnel, &world);
        tunnel.stream();
    }
}

/// Two paths whose detection follows use.
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

fn end(end: &End, slot: fn(u32) -> u32, inner: IpAddr) -> reinjection::End<'_> {
    reinjection::End { ns: &end.ns, datapath: &*end.datapath, slots: [0, 1].map(slot), inner }
}

/// Makes this end drop everything that arrives over the first path, or receive it again.
fn deafen(end: &End, deaf: bool) {
    let ifindex = end.ifindex(0);
    end.ns
        .run(|| {
            let mut datapath = end.datapath.lock().unwrap();
            if deaf { datapath.detach(ifindex) } else { datapath.attach(ifindex).unwrap() }
        })
        .unwrap();
}

/// A flow has moved to the other path, which was in doubt before, when its lost packets are sent again.
fn moved(tunnel: &Tunnel<'_>, world: &World) {
    let [near, far] = tunnel.sockets();
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
    tunnel.while_dead(true, || {
        let since = monotonic();
        std::thread::sleep(APART);
        near.send(b"lost").unwrap();
        bind(1);
        assert_eq!(order(0, 1, since), 1);
        expect(b"lost");
    });
}
