use proptest::prelude::*;

use super::*;
use crate::user::segment::{self, Cut};

const GSO_SIZE: u16 = 500;
/// MTU of the device; larger than the segments of these tests.
const MTU: usize = 1456;

/// Completed segments of one flow.
fn segments(v6: bool, payload: usize) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..payload).map(|i| (i * 7) as u8).collect();
    let packet = segment::tests::super_packet(v6, true, ACK | PSH, &bytes);
    segment::tests::cut(&segment::tests::vnet(v6, true, GSO_SIZE), &packet).unwrap()
}

/// The output of a coalescer for these packets.
fn coalesced(packets: &[Vec<u8>]) -> Vec<(VnetHeader, Vec<u8>)> {
    let mut written = Vec::new();
    let mut coalescer =
        Coalescer::new(MTU, |vnet: &VnetHeader, headers: &[u8], payloads: &[&[u8]]| {
            written.push((*vnet, [headers, &payloads.concat()].concat()));
        });
    packets.iter().for_each(|packet| coalescer.push(packet));
    coalescer.flush();
    written
}

/// Corrects a packet's checksums after a change.
fn repair(packet: &mut [u8]) {
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: if packet[0] >> 4 == 4 { VnetHeader::GSO_TCPV4 } else { VnetHeader::GSO_TCPV6 },
        gso_size: u16::MAX,
        csum_start: if packet[0] >> 4 == 4 { 20 } else { 40 },
        csum_offset: 16,
        hdr_len: 0,
    };
    let mut headers = Vec::new();
    Cut::new(&vnet, packet).unwrap().apply(packet, |header, _| headers = header.to_vec());
    packet[..headers.len()].copy_from_slice(&headers);
}

#[test]
fn a_lone_segment_is_written_as_it_came_and_marked_valid() {
    let packets = segments(true, 300);
    let valid = VnetHeader { flags: VnetHeader::DATA_VALID, ..VnetHeader::default() };
    assert_eq!(coalesced(&packets), [(valid, packets[0].clone())]);
}

#[test]
fn segments_whose_checksums_were_left_to_a_device_are_finished_alone_and_merged() {
    for v6 in [false, true] {
        let whole = segments(v6, 2000);
        let (network, addresses) = if v6 { (40, 8..40) } else { (20, 12..20) };
        let mut open = whole.clone();
        for packet in &mut open {
            let sum = pseudo_header(&packet[addresses.clone()], TCP, packet.len() - network).fold();
            packet[network + 16..network + 18].copy_from_slice(&sum.to_be_bytes());
        }
        let [(vnet, alone)] = &coalesced(&open[..1])[..] else { panic!() };
        let mut alone = alone.clone();
        Cut::new(vnet, &alone).unwrap().apply(&mut alone, |_, _| {});
        assert_eq!(alone, whole[0]);
        assert_eq!(coalesced(&open), coalesced(&whole));
    }
}

#[test]
fn a_super_packet_that_came_whole_is_cut_to_what_the_device_takes() {
    for v6 in [false, true] {
        let payload: Vec<u8> = (0..5000).map(|i| (i * 7) as u8).collect();
        let packet = segment::tests::super_packet(v6, true, ACK | PSH, &payload);
        let [(vnet, written)] = &coalesced(std::slice::from_ref(&packet))[..] else { panic!() };
        assert_eq!(written, &packet);
        let segments = segment::tests::cut(vnet, written).unwrap();
        assert_eq!(segments[0].len(), MTU);
        assert_eq!(packets_in(&packet, MTU), segments.len() as u32);
        segments.iter().for_each(|segment| assert_eq!(packets_in(segment, MTU), 1));
        let gso_size = vnet.gso_size;
        assert_eq!(
            segments,
            segment::tests::cut(&segment::tests::vnet(v6, true, gso_size), &packet).unwrap()
        );
    }
}

#[test]
fn a_segment_with_a_wrong_checksum_is_left_to_the_kernel_to_refuse() {
    for v6 in [false, true] {
        let mut packets = segments(v6, 2000);
        let last = packets[1].len() - 1;
        packets[1][last] ^= 1;
        let written = coalesced(&packets);
        assert_eq!(written[1], (VnetHeader::default(), packets[1].clone()));
        assert_eq!(written.len(), 3, "the two after it are merged");
    }
}

#[test]
fn segments_that_differ_in_anything_but_position_are_not_merged() {
    // Offset in an IPv4 packet, and the bits to change there.
    let changes: [(&str, usize, u8); 11] = [
        ("type of service", 1, 4),
        ("don't fragment", 6, 0x40),
        ("time to live", 8, 1),
        ("source", 15, 1),
        ("destination", 19, 1),
        ("port", 21, 1),
        ("sequence number", 26, 1),
        ("acknowledgement", 31, 1),
        ("ECE", 33, 0x40),
        ("congestion window reduced", 33, 0x80),
        ("window", 35, 1),
    ];
    for (what, at, bits) in changes {
        let mut packets = segments(false, 1000);
        packets[1][at] ^= bits;
        repair(&mut packets[1]);
        let written = coalesced(&packets);
        let bytes: Vec<Vec<u8>> = written.into_iter().map(|(_, packet)| packet).collect();
        assert_eq!(bytes, packets, "{what}");
    }
}

#[test]
fn packets_that_mean_something_alone_pass_alone_and_in_order() {
    for (what, flags) in [("SYN", 0x12), ("RST", 0x14), ("URG", 0x30), ("no ACK", 0)] {
        let mut packets = segments(false, 1500);
        packets[1][33] = flags;
        repair(&mut packets[1]);
        let written = coalesced(&packets);
        let bytes: Vec<Vec<u8>> = written.into_iter().map(|(_, packet)| packet).collect();
        assert_eq!(bytes, packets, "{what}");
    }
}

#[test]
fn nothing_follows_a_pushed_or_shorter_segment() {
    let mut packets = segments(true, 1700);
    packets[1][40 + 13] |= PSH;
    repair(&mut packets[1]);
    let written = coalesced(&packets);
    assert_eq!(written.len(), 2);
    assert_eq!(written[0].1[40 + 13], ACK | PSH);
    packets = segments(true, 1700);
    let shorter = packets.swap_remove(3);
    assert_eq!(coalesced(&[shorter, packets[0].clone()]).len(), 2);
}

#[test]
fn a_super_packet_stays_within_the_length_field() {
    let packets = segments(false, 64_000);
    assert_eq!(packets.len(), 128);
    let written = coalesced(&packets);
    assert_eq!(written.len(), 2);
    assert!(written.iter().all(|(_, p)| usize::from(u16::from_be_bytes([p[2], p[3]])) == p.len()));
}

proptest! {
    #[test]
    fn every_packet_comes_out_once_whatever_bits_flip(
        v6: bool, n in 1usize..5000, flips in proptest::collection::vec((0usize..20, 0usize..4000), 0..6))
    {
        let mut packets = segments(v6, n);
        for (packet, bit) in flips {
            let i = packet % packets.len();
            let bit = bit % (packets[i].len() * 8);
            packets[i][bit / 8] ^= 1 << (bit % 8);
        }
        let mut again = Vec::new();
        for (vnet, packet) in coalesced(&packets) {
            match vnet.gso_type {
                0 => again.push(packet),
                _ => again.extend(segment::tests::cut(&vnet, &packet).unwrap()),
            }
        }
        prop_assert_eq!(again, packets);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), v in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()]) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() { *first = v; }
        prop_assert_eq!(coalesced(&[bytes.clone()]), [(VnetHeader::default(), bytes)]);
    }
}
