//! Packets that leave an end, and their destinations.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{Datapath, LinuxDatapath, PathSetup};
use segue_ip::{Prefix, Route};
use segue_linux::clock::monotonic;
use segue_linux::link::{self, add_route};
use segue_wire::flow::Inner;
use segue_wire::{Header, PacketType};

use crate::traffic::{datagrams, set_option};
use crate::world::{Family, PORT, Wire, World, anchor_slot, eventually, host_slot, may_run};

#[test]
fn the_next_hop_of_a_path_goes_before_the_routing_table() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::new(outer, Wire::Whole, 1, EbpfOptions::default());
        let distant: IpAddr = match outer {
            Family::V4 => [10, 5, 0, 2].into(),
            Family::V6 => [0xfd05, 0, 0, 0, 0, 0, 0, 2].into(),
        };
        let add = || link::add_address("lo", Prefix::host(distant));
        world.anchor.ns.run(add).unwrap().unwrap();
        // The routing table puts it behind a router that does not exist.
        let nowhere = Route::via(Prefix::host(distant), outer.outer(0, 200));
        world.host.ns.run(|| add_route(&nowhere)).unwrap().unwrap();
        let mut path = world.host_path(0);
        path.remote = Some(SocketAddr::new(distant, PORT));
        let set = |path: &PathSetup| {
            world.host.datapath.lock().unwrap().set_path(host_slot(0), path).unwrap();
        };
        set(&path);
        world.order(0, 1);
        path.gateway = Some(outer.outer(0, 2));
        set(&path);
        // The anchor may take a moment to notice its new address.
        let mut seq = 1;
        eventually("an answer", || {
            seq += 1;
            world.order(0, seq);
            std::thread::sleep(Duration::from_millis(20));
            !world.host.probes.lock().unwrap().is_empty()
        });
        let back = world.host.wait_for_probe(|_| true);
        assert_eq!((back.arrival.probe.r, back.remote.ip()), (1, distant));
        assert!(back.arrival.probe.seq > 1, "the request without the next hop is lost");
        let to = outer.inner(2);
        assert_eq!(datagrams(&world.host.ns, &world.anchor.ns, to, 20, 700, 1).len(), 20);
    }
}

/// A request is created before its neighbour is known, and stamped when it leaves.
#[test]
fn the_wait_for_a_neighbour_is_no_round_trip_time() {
    if !may_run() {
        return;
    }
    for tcx in [true, false] {
        let options = EbpfOptions { tcx, ..EbpfOptions::default() };
        let world = World::new(Family::V4, Wire::Whole, 1, options);
        let silent = |value| {
            let set = || link::sysctl("net.ipv4.conf.sg0.arp_ignore", value).unwrap();
            world.anchor.ns.run(set).unwrap();
        };
        // Solicits the neighbour for a minute.
        let patience = || link::sysctl("net.ipv4.neigh.sg0.mcast_solicit", "60").unwrap();
        world.host.ns.run(patience).unwrap();
        silent("8");
        let sent = monotonic();
        world.order(0, 1);
        std::thread::sleep(Duration::from_millis(600));
        assert!(world.host.probes.lock().unwrap().is_empty(), "the neighbour was known");
        silent("0");
        let back = world.host.wait_for_probe(|_| true);
        let waited = back.arrival.at.since(sent).0 / 1000;
        let at_us = (back.arrival.at.0 / 1000) as u32;
        let rtt_us =
            at_us.wrapping_sub(back.arrival.probe.t_sc).wrapping_sub(back.arrival.probe.dt);
        println!("waited {waited} µs, RTT {rtt_us} µs");
        assert!(u64::from(rtt_us) < waited / 2, "tcx {tcx}: {rtt_us} of {waited} µs");
    }
}

#[test]
fn what_leaves_is_the_header_and_the_inner_packet() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::ready(outer, Wire::NoChecksum, 1, EbpfOptions::default());
        let (host, anchor) = (&world.host, &world.anchor);
        let ifindex = anchor.ifindex(0);
        let at = SocketAddr::new(outer.outer(0, 2), PORT);
        let wire = anchor.ns.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        if outer == Family::V6 {
            set_option(&wire, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
        }
        wire.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        anchor.datapath.lock().unwrap().detach(ifindex);
        for inner in Family::BOTH {
            let sender = host.ns.run(|| UdpSocket::bind((inner.inner(1), 4000))).unwrap().unwrap();
            sender.send_to(b"what an application says", (inner.inner(2), 80)).unwrap();
            let mut bytes = [0; 200];
            let n = wire.recv(&mut bytes).unwrap();
            let expected = Header::new(PacketType::Data, 0, anchor_slot(0), 0xa000);
            assert_eq!(Header::parse(&bytes[..n]).unwrap(), expected);
            let packet = &bytes[Header::LEN..n];
            let sliced = SlicedPacket::from_ip(packet).unwrap();
            let flow = Inner::parse(packet).unwrap();
            assert_eq!((flow.key.src, flow.key.dst), (inner.inner(1), inner.inner(2)));
            assert_eq!((flow.key.sport, flow.key.dport, flow.len), (4000, 80, packet.len()));
            let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
                panic!("{sliced:?}");
            };
            assert_eq!(udp.payload(), b"what an application says");
            let sum = match &sliced.net {
                Some(NetSlice::Ipv4(ip)) => {
                    udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload())
                }
                Some(NetSlice::Ipv6(ip)) => {
                    udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                }
                _ => panic!("{sliced:?}"),
            };
            assert_eq!(udp.checksum(), sum.unwrap());
        }
    }
}
