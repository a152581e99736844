//! Reused slots: flows bound to the former path do not move to the new one.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;

use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_datapath::{Datapath, DatapathError, LinuxDatapath, PathSetup, Via};
use segue_wire::FlowKey;

use crate::world::{Family, OWNER, Wire, World, anchor_slot, eventually, may_run};

/// Another host, whose path uses the second wire.
fn others_path(world: &World) -> PathSetup {
    PathSetup { owner: OWNER + 1, ..world.anchor_path(1) }
}

/// A flow of the first host whose packets the anchor sends, learned or bound by the daemon.
fn flow(world: &World, inner: Family, learned: bool) -> ([UdpSocket; 2], FlowKey) {
    let bind = |end: u8, ns: &segue_linux::netns::Netns| {
        let socket = ns.run(|| UdpSocket::bind((inner.inner(end), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        socket
    };
    let (near, far) = (bind(1, &world.host.ns), bind(2, &world.anchor.ns));
    let (near_at, far_at) = (near.local_addr().unwrap(), far.local_addr().unwrap());
    if learned {
        // The kernel takes some time to make an IPv6 address usable.
        eventually("the first packet", || {
            near.send_to(b"first", far_at).unwrap();
            far.recv(&mut [0; 8]).is_ok()
        });
    }
    far.connect(near_at).unwrap();
    eventually("the way back", || {
        far.send(b"mine").unwrap();
        near.recv(&mut [0; 8]).is_ok()
    });
    let flows = world.anchor.datapath.lock().unwrap().flows();
    let flow = flows.iter().find(|flow| flow.key.dport == near_at.port()).unwrap();
    assert_eq!(flow.slot, anchor_slot(0));
    ([far, near], flow.key)
}

/// Sends packets of the flow until they are reported to the anchor's daemon.
fn expect_misses(world: &World, far: &UdpSocket) {
    let before = world.anchor.misses.load(Ordering::Relaxed);
    eventually("a miss", || {
        far.send(b"not yours").unwrap();
        world.anchor.misses.load(Ordering::Relaxed) > before
    });
}

#[test]
fn another_hosts_path_in_the_same_slot_gets_none_of_the_former_ones_packets() {
    if !may_run() {
        return;
    }
    for (xdp, inner, learned) in
        [(Xdp::Off, Family::V4, true), (Xdp::On, Family::V6, true), (Xdp::Off, Family::V6, false)]
    {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(Family::V4, Wire::NoGso, 2, options);
        let ([far, _near], key) = flow(&world, inner, learned);
        world.anchor.bind_to.store(u32::MAX, Ordering::Relaxed);
        {
            let mut datapath = world.anchor.datapath.lock().unwrap();
            datapath.remove_path(anchor_slot(0));
            datapath.remove_path(anchor_slot(1));
            datapath.set_path(anchor_slot(0), &others_path(&world)).unwrap();
            let refused = datapath.bind_flow(key, anchor_slot(0));
            assert!(matches!(refused, Err(DatapathError::Owner { .. })), "{refused:?}");
            let refused = datapath.bind_flow(key, anchor_slot(1));
            assert!(matches!(refused, Err(DatapathError::NoPath { .. })), "{refused:?}");
        }
        expect_misses(&world, &far);
        assert_eq!(world.anchor.counters(anchor_slot(0)).tx_packets, 0, "{xdp:?} {inner:?}");
    }
}

#[test]
fn another_path_of_the_same_host_is_another_path() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 2, EbpfOptions::default());
    let ([far, _near], _) = flow(&world, Family::V4, true);
    world.anchor.bind_to.store(u32::MAX, Ordering::Relaxed);
    {
        let mut datapath = world.anchor.datapath.lock().unwrap();
        datapath.remove_path(anchor_slot(0));
        datapath.set_path(anchor_slot(0), &world.anchor_path(1)).unwrap();
    }
    expect_misses(&world, &far);
    assert_eq!(world.anchor.counters(anchor_slot(0)).tx_packets, 0);
}

#[test]
fn a_redirection_ends_where_its_slot_goes_to_another_host() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 2, EbpfOptions::default());
    let ([far, _near], _) = flow(&world, Family::V4, true);
    let set_via = || {
        let via = Some(Via { slot: anchor_slot(1), one_way: false });
        world.anchor.datapath.lock().unwrap().set_via(anchor_slot(0), via).unwrap();
    };
    set_via();
    let before = world.anchor.counters(anchor_slot(1)).tx_packets;
    far.send(b"round").unwrap();
    eventually("the way round", || world.anchor.counters(anchor_slot(1)).tx_packets == before + 1);
    world.anchor.bind_to.store(u32::MAX, Ordering::Relaxed);
    {
        let mut datapath = world.anchor.datapath.lock().unwrap();
        datapath.remove_path(anchor_slot(1));
        datapath.set_path(anchor_slot(1), &others_path(&world)).unwrap();
    }
    expect_misses(&world, &far);
    set_via();
    expect_misses(&world, &far);
    assert_eq!(world.anchor.counters(anchor_slot(1)).tx_packets, 0);
}
