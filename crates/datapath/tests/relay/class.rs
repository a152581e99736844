//! DSCP and congestion marks: copied to the outer header, and back to the inner one (RFC 6040).

use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use segue_ip::Form;
use segue_linux::packet::PacketSocket;
use segue_wire::DropReason;

use crate::traffic::{marked_datagram, received_class, set_option};
use crate::world::{
    ACCESS_OUTER, ANCHOR_OUTER, CORRESPONDENT, HOST, Path, Wire, World, eventually, ip, may_run,
    over_both, send_raw,
};

/// Destination port of the tests' packets.
pub(crate) const PORT: u16 = 7_000;

over_both! {
    the_inner_class_is_copied_to_the_outer_header
    congestion_marked_on_the_way_reaches_a_capable_receiver_and_drops_for_others
}

fn the_inner_class_is_copied_to_the_outer_header(path: Path) {
    if !may_run() {
        return;
    }
    let world = World::new(path, Wire::Whole, Wire::Whole, Form::Ip, true);
    let mut wire = world.anchor.ns.run(|| PacketSocket::open("sg0")).unwrap().unwrap();
    let sender = world.host.run(|| UdpSocket::bind((ip(HOST[1]), 0))).unwrap().unwrap();
    // DSCP 46; not ECN-capable, ECT(0), and CE.
    for class in [0xb8, 0xba, 0xbb] {
        set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, class);
        sender.send_to(b"x", (ip(CORRESPONDENT[1]), PORT)).unwrap();
        let mut outer = 0;
        eventually("the packet on the wire", || {
            let mut frame = [0; 2_000];
            let Some(received) = wire.receive(&mut frame).unwrap() else { return false };
            let packet = &frame[14..received.len];
            // IPv4 in IPv6.
            let ours = packet[0] >> 4 == 6 && packet[6] == 4;
            outer = i32::from(packet[0]) << 4 & 0xf0 | i32::from(packet[1]) >> 4;
            ours
        });
        assert_eq!(outer, class);
    }
}

fn congestion_marked_on_the_way_reaches_a_capable_receiver_and_drops_for_others(path: Path) {
    if !may_run() {
        return;
    }
    let world = World::new(path, Wire::Whole, Wire::Whole, Form::Ip, true);
    let receiver = world.correspondent.run(|| UdpSocket::bind((ip(CORRESPONDENT[1]), PORT)));
    let receiver = receiver.unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    set_option(&receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    // ECT(1), then a packet that is not ECN-capable, then one without a congestion mark.
    send_raw(&world.access, ANCHOR_OUTER[0], &tunnelled(3, 0xb9));
    assert_eq!(received_class(&receiver), 0xbb);
    send_raw(&world.access, ANCHOR_OUTER[0], &tunnelled(3, 0xb8));
    let dropped = || world.anchor.dropped(DropReason::Decapsulation) == 1;
    eventually("the drop that stands for the mark", dropped);
    send_raw(&world.access, ANCHOR_OUTER[0], &tunnelled(2, 0xb9));
    assert_eq!(received_class(&receiver), 0xb9);
}

/// A datagram of the host as its access router sends it, with the classes of both headers.
pub(crate) fn tunnelled(outer: u8, inner: u8) -> Vec<u8> {
    let octets = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let packet = marked_datagram(octets(HOST[1]), octets(CORRESPONDENT[1]), PORT, inner);
    let mut bytes = vec![0x60 | outer >> 4, outer << 4, 0, 0];
    bytes.extend((packet.len() as u16).to_be_bytes());
    bytes.extend([4, 64]);
    for end in [ACCESS_OUTER[0], ANCHOR_OUTER[0]] {
        bytes.extend(end.parse::<Ipv6Addr>().unwrap().octets());
    }
    bytes.extend(packet);
    bytes
}
