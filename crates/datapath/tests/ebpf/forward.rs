//! An anchor that forwards: a third namespace behind it.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use etherparse::{Ipv4Header, PacketBuilder};
use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_linux::link::{self, Feature, Prefix, Route, add_route, set_feature};
use segue_linux::netns::Netns;

use crate::traffic::{bulk_tcp, datagrams};
use segue_wire::{DropReason, Header, PacketType};

use crate::hostile::stranger;
use crate::world::{Family, Wire, World, anchor_slot, eventually, may_run};

const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 2);

/// A correspondent behind the anchor, on a wire that needs everything cut to packets.
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
            add_route(&Route::on(Prefix::new([10, 6, 0, 0], 24), "segue0").unwrap()).unwrap();
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
        set_int(&receiver, libc::IP_RECVTOS, 1);
        let sender = world.host.ns.run(|| UdpSocket::bind("10.8.0.1:0")).unwrap().unwrap();
        let to = receiver.local_addr().unwrap();
        // DSCP 46; not ECN-capable, ECT(0), and CE, which is outer CE too and stays CE inside.
        for tos in [0xb8, 0xba, 0xbb] {
            set_int(&sender, libc::IP_TOS, tos);
            sender.send_to(b"x", to).unwrap();
            assert_eq!(i32::from(received_tos(&receiver)), tos);
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
        set_int(&receiver, libc::IP_RECVTOS, 1);
        let wire = stranger(&world, 6000);
        set_int(&wire, libc::IP_TOS, 3);
        let port = receiver.local_addr().unwrap().port();
        wire.send(&tunnelled(port, 0xb9)).unwrap(); // ECT(1)
        assert_eq!(received_tos(&receiver), 0xbb);
        wire.send(&tunnelled(port, 0xb8)).unwrap(); // not capable
        let dropped = || world.anchor.dropped(DropReason::Decapsulation) == 1;
        eventually("the drop that stands for the mark", dropped);
    }
}

/// A data packet of path 0 with an inner datagram of the class given.
fn tunnelled(port: u16, tos: u8) -> Vec<u8> {
    let header = Header {
        packet_type: PacketType::Data,
        flags: 0,
        k: 0,
        index: anchor_slot(0),
        cookie: 0xa000,
    };
    let mut inner = Vec::new();
    let builder = PacketBuilder::ipv4([10, 8, 0, 1], [10, 8, 0, 2], 9).udp(4000, port);
    builder.write(&mut inner, b"marked").unwrap();
    let (mut ip, rest) = Ipv4Header::from_slice(&inner).unwrap();
    ip.dscp = (tos >> 2).try_into().unwrap();
    ip.ecn = (tos & 3).try_into().unwrap();
    ip.header_checksum = ip.calc_header_checksum();
    let mut bytes = header.emit().to_vec();
    ip.write(&mut bytes).unwrap();
    bytes.extend(rest);
    bytes
}

fn set_int(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) {
    // SAFETY: these options of IPPROTO_IP read one int, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn received_tos(socket: &UdpSocket) -> u8 {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
    let mut bytes = [0; 16];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(u8);
    let message =
        recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())
            .unwrap();
    for control in message.cmsgs().unwrap() {
        if let ControlMessageOwned::Ipv4Tos(tos) = control {
            return tos;
        }
    }
    panic!("no type of service came along");
}
