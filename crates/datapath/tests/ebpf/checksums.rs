//! Paths whose data need a UDP checksum, for translators on the path.

use std::net::UdpSocket;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup, Role};
use segue_keepalive::Probing;

use crate::raw::{self, Tap};
use crate::traffic::{bulk_tcp, datagrams};
use crate::world::{Family, PORT, Wire, World, anchor_slot, host_slot, may_run, setup};

#[test]
fn all_data_have_right_checksums_with_offloads_whole() {
    every_pair_of_families(Wire::Whole);
}

#[test]
fn all_data_have_right_checksums_without_gso() {
    every_pair_of_families(Wire::NoGso);
}

#[test]
fn all_data_have_right_checksums_without_checksum_offload() {
    every_pair_of_families(Wire::NoChecksum);
}

fn every_pair_of_families(wire: Wire) {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        for rides in [false, true] {
            let world = World::ready(outer, wire, 1, EbpfOptions::default());
            let probing = Probing { checksums: true, rides, ..Probing::default() };
            let setups = [
                (&world.host, host_slot(0), world.host_path(0)),
                (&world.anchor, anchor_slot(0), world.anchor_path(0)),
            ];
            for (end, slot, setup) in setups {
                let setup = PathSetup { probing, ..setup };
                end.datapath.lock().unwrap().set_path(slot, &setup).unwrap();
            }
            Family::BOTH.into_iter().for_each(|inner| exchange(&world, inner));
            for end in [&world.host, &world.anchor] {
                let drops = end.datapath.lock().unwrap().drops();
                assert!(drops.is_empty(), "{drops:?}");
            }
        }
    }
}

/// Packets of all lengths, datagrams of sockets one by one and several in one super-packet, and TCP with
/// super-packets.
fn exchange(world: &World, inner: Family) {
    let (host, anchor) = (&world.host.ns, &world.anchor.ns);
    let wires = [host, anchor].map(|ns| ns.run(|| Tap::new("sg0")).unwrap());
    let [from, to] = [host, anchor].map(|ns| ns.run(|| Tap::new("segue0")).unwrap());
    let _open = anchor.run(|| UdpSocket::bind((inner.inner(2), 4001))).unwrap().unwrap();
    // How many have left each end; all of them must have a correct checksum.
    let left = || {
        let right = |wire: &Tap| {
            std::iter::from_fn(|| wire.next(true)).filter(|packet| is_right(packet)).count()
        };
        wires.each_ref().map(right)
    };
    // Around the block size of the checksum computation, and the largest length.
    let headers = if inner == Family::V4 { 28 } else { 48 };
    let largest = setup(Role::Host, world.outer).tun_mtu as usize - headers;
    for len in (0..130).chain([1_000, 1_001, largest]) {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let packet = raw::packet(inner.inner(1), inner.inner(2), payload.len() as u16, &payload);
        from.send(&packet);
        to.expect(&packet);
        assert!(left()[0] > 0);
    }
    for at_once in [1, 5] {
        for (from, to, last) in [(host, anchor, 2), (anchor, host, 1)] {
            assert_eq!(datagrams(from, to, inner.inner(last), 50, 700, at_once).len(), 50);
            let left = left()[2 - usize::from(last)];
            assert!(left >= 50, "{left} of 50 to {last}, {at_once} at once");
        }
    }
    bulk_tcp(host, anchor, inner.inner(2), 100_000);
    let left = left();
    assert!(left.iter().all(|left| *left > 20), "{left:?}");
}

/// True for a tunnel packet, whose checksum must be correct.
fn is_right(packet: &[u8]) -> bool {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let (Some(net), Some(TransportSlice::Udp(udp))) = (&sliced.net, &sliced.transport) else {
        return false;
    };
    let header = udp.to_header();
    if header.destination_port != PORT {
        return false;
    }
    let sum = match net {
        NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
        NetSlice::Arp(_) => return false,
    };
    assert_eq!(header.checksum, sum.unwrap(), "{} bytes", packet.len());
    true
}
