//! An anchor that forwards: a third namespace behind it.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use segue_datapath::LinuxDatapath;
use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_ip::{Prefix, Route};
use segue_linux::link::{self, Feature, add_route, set_feature};
use segue_linux::netns::Netns;

use crate::traffic::{bulk_tcp, datagrams, marked_datagram, received_class, set_option};
use segue_wire::{DropReason, Header, PacketType};

use crate::hostile::{request, stranger};
use crate::world::{Family, PORT, Wire, World, anchor_slot, eventually, may_run};

const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 2);

/// A correspondent behind the anchor, optionally on a wire that requires segmented packets.
fn correspondent(world: &World, gso: bool) -> Netns {
    let name = world.anchor.ns.name().map(|n| format!("{n}c")).unwrap();
    let behind = Netns::create(&name).unwrap();
    world
        .anchor
        .ns
        .run(|| {
            link::create_veth("sgc", "sgc", Some(&behind)).unwrap();
            link::add_address("sgc", Prefix::new([10, 6, 0, 1], 24)).unwrap();
            link::sysctl("net.ipv4.ip_forward", "1").unwrap();
            set_feature("sgc", Feature::Tso, gso).unwrap();
            set_feature("sgc", Feature::Gso, gso).unwrap();
            set_feature("sgc", Feature::TxChecksum, gso).unwrap();
            link::set_up("sgc", true).unwrap();
        })
        .unwrap();
    behind
        .run(|| {
            link::add_address("sgc", Prefix::new(BEHIND, 24)).unwrap();
            link::set_up("sgc", true).unwrap();
            add_route(&Route::via(Prefix::default_of(false), [10, 6, 0, 1])).unwrap();
        })
        .unwrap();
    world
        .host
        .ns
        .run(|| {
            let index = link::index_of("segue0").unwrap();
            add_route(&Route::on(Prefix::new([10, 6, 0, 0], 24), index)).unwrap();
        })
        .unwrap();
    behind
}

#[test]
fn an_anchor_forwards_both_ways_to_any_kind_of_wire() {
    if !may_run() {
        return;
    }
    for (wire, gso, xdp) in [
        (Wire::Whole, true, Xdp::Off),
        (Wire::Whole, false, Xdp::Off),
        (Wire::NoGso, true, Xdp::On),
        (Wire::NoGso, false, Xdp::On),
    ] {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(Family::V4, wire, 1, options);
        let behind = correspondent(&world, gso);
        println!("{wire:?}, offloads behind the anchor {gso}, XDP {xdp:?}");
        bulk_tcp(&world.host.ns, &behind, BEHIND.into(), 4 << 20);
        let got = datagrams(&world.host.ns, &behind, BEHIND.into(), 100, 700, 20);
        assert_eq!(got.len(), 100);
    }
}

/// An anchor that is also a router must not touch this: a valid tunnel packet to the port of another machine.
#[test]
fn packets_to_another_machines_port_are_forwarded_untouched() {
    if !may_run() {
        return;
    }
    for xdp in [Xdp::Off, Xdp::On] {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(Family::V4, Wire::Whole, 1, options);
        let behind = correspondent(&world, true);
        let way = Route::via(Prefix::host(BEHIND), [10, 9, 0, 2]);
        world.host.ns.run(|| add_route(&way)).unwrap().unwrap();
        let receiver = behind.run(|| UdpSocket::bind((BEHIND, PORT))).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let before = world.anchor.counters(anchor_slot(0));
        let local = (Ipv4Addr::new(10, 9, 0, 1), 6000);
        let sender = world.host.ns.run(|| UdpSocket::bind(local)).unwrap().unwrap();
        for payload in [tunnelled(9, 0xb8), request(2).to_vec(), vec![1, 2, 3]] {
            sender.send_to(&payload, (BEHIND, PORT)).unwrap();
            let mut got = [0; 200];
            let n = receiver.recv(&mut got).unwrap();
            assert_eq!(got[..n], payload, "XDP {xdp:?}");
        }
        assert_eq!(world.anchor.counters(anchor_slot(0)), before);
        assert!(world.anchor.datapath.lock().unwrap().drops().is_empty());
    }
}

#[test]
fn an_address_is_served_as_long_as_the_machine_has_it() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    let anchor = &world.anchor;
    let late = Prefix::new([10, 9, 0, 77], 24);
    let sender = stranger(&world, 6000);
    sender.set_nonblocking(true).unwrap();
    let mut seq = 1;
    let mut answered = || {
        seq += 1;
        sender.send_to(&request(seq), (late.addr, PORT)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        anchor.probes.lock().unwrap().iter().any(|e| e.arrival.probe.seq == seq)
    };
    anchor.ns.run(|| link::add_address("sg0", late)).unwrap().unwrap();
    eventually("answers from the new address", &mut answered);
    anchor.ns.run(|| link::delete_address("sg0", late)).unwrap().unwrap();
    eventually("silence", || !answered());
}

#[test]
fn the_inner_class_is_copied_out_and_congestion_seen_outside_is_carried_in() {
    if !may_run() {
        return;
    }
    for xdp in [Xdp::Off, Xdp::On] {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(Family::V4, Wire::NoGso, 1, options);
        let receiver = world.anchor.ns.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        set_option(&receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        let sender = world.host.ns.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
        let to = receiver.local_addr().unwrap();
        // DSCP 46; not ECN-capable, ECT(0), and CE, which makes the outer header CE too and stays CE inside.
        for tos in [0xb8, 0xba, 0xbb] {
            set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, tos);
            sender.send_to(b"x", to).unwrap();
            assert_eq!(i32::from(received_class(&receiver)), tos);
        }
    }
}

#[test]
fn congestion_marked_on_the_way_reaches_a_capable_receiver_and_drops_for_others() {
    if !may_run() {
        return;
    }
    for (outer, xdp) in [(Family::V4, Xdp::Off), (Family::V4, Xdp::On)] {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(outer, Wire::NoGso, 1, options);
        let receiver = world.anchor.ns.run(|| UdpSocket::bind("10.8.0.2:0")).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        set_option(&receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        let wire = stranger(&world, 6000);
        set_option(&wire, libc::IPPROTO_IP, libc::IP_TOS, 3);
        let port = receiver.local_addr().unwrap().port();
        wire.send(&tunnelled(port, 0xb9)).unwrap(); // ECT(1)
        assert_eq!(received_class(&receiver), 0xbb);
        wire.send(&tunnelled(port, 0xb8)).unwrap(); // not ECN-capable
        let dropped = || world.anchor.dropped(DropReason::Decapsulation) == 1;
        eventually("the drop that stands for the mark", dropped);
    }
}

/// A data packet of path 0 with an inner datagram of the given class.
pub(crate) fn tunnelled(port: u16, tos: u8) -> Vec<u8> {
    let header = Header::new(PacketType::Data, 0, anchor_slot(0), 0xa000);
    let inner = marked_datagram([10, 8, 0, 1], [10, 8, 0, 2], port, tos);
    [&header.emit()[..], &inner].concat()
}
