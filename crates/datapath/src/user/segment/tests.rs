use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::super::coalesce::Coalescer;
use super::*;

/// A packet as it comes from the kernel: one header for all of `payload`, with an incomplete
/// checksum.
pub(crate) fn super_packet(v6: bool, tcp: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ip = if v6 {
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
    } else {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    };
    if tcp {
        ip.tcp(1000, 2000, u32::MAX - 3000, 5000).ack(77).write(&mut bytes, payload).unwrap();
    } else {
        ip.udp(1000, 2000).write(&mut bytes, payload).unwrap();
    }
    let network = if v6 { 40 } else { 20 };
    if tcp {
        bytes[network + 13] = flags;
    }
    let addresses = if v6 { 8..40 } else { 12..20 };
    let len = bytes.len() - network;
    let protocol = if tcp { TCP } else { UDP };
    let sum = pseudo_header(&bytes[addresses], protocol, len).fold();
    let at = network + if tcp { 16 } else { 6 };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

pub(crate) fn vnet(v6: bool, tcp: bool, gso_size: u16) -> VnetHeader {
    let gso_type = match (tcp, v6) {
        (true, false) => VnetHeader::GSO_TCPV4,
        (true, true) => VnetHeader::GSO_TCPV6,
        (false, _) => VnetHeader::GSO_UDP_L4,
    };
    VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type,
        hdr_len: 0,
        gso_size,
        csum_start: if v6 { 40 } else { 20 },
        csum_offset: if tcp { 16 } else { 6 },
    }
}

pub(crate) fn cut(vnet: &VnetHeader, packet: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
    let mut packet = packet.to_vec();
    let cut = Cut::new(vnet, &packet)?;
    let mut ranges = Vec::new();
    cut.apply(&mut packet, |header, body| ranges.push((header.to_vec(), body)));
    let whole = |(header, body): (Vec<u8>, Range)| [&header[..], &packet[body]].concat();
    let packets: Vec<Vec<u8>> = ranges.into_iter().map(whole).collect();
    assert_eq!(packets.len(), cut.count as usize);
    assert_eq!(packets.iter().map(Vec::len).sum::<usize>(), cut.bytes);
    assert!(packets[..packets.len() - 1].iter().all(|p| p.len() == cut.size));
    Ok(packets)
}

type Range = std::ops::Range<usize>;

/// Payload of a packet, after etherparse has confirmed every length and checksum.
fn judged(packet: &[u8]) -> Vec<u8> {
    let sliced = SlicedPacket::from_ip(packet).expect("etherparse reads the packet");
    let net = sliced.net.expect("a network layer");
    let (source, destination, v4) = match &net {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(usize::from(header.total_len), packet.len());
            (Default::default(), Default::default(), Some((header.source, header.destination)))
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            assert_eq!(usize::from(header.payload_length) + 40, packet.len());
            (header.source, header.destination, None)
        }
        other => panic!("{other:?}"),
    };
    match sliced.transport.expect("a transport layer") {
        TransportSlice::Tcp(tcp) => {
            let sum = match v4 {
                Some((s, d)) => tcp.calc_checksum_ipv4(s, d),
                None => tcp.calc_checksum_ipv6(source, destination),
            };
            assert_eq!(sum.unwrap(), tcp.checksum());
            tcp.payload().to_vec()
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let sum = match v4 {
                Some((s, d)) => header.calc_checksum_ipv4_raw(s, d, udp.payload()),
                None => header.calc_checksum_ipv6_raw(source, destination, udp.payload()),
            };
            assert_eq!(sum.unwrap(), header.checksum);
            assert_eq!(usize::from(header.length), 8 + udp.payload().len());
            udp.payload().to_vec()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_virtio_header_round_trips() {
    let header = vnet(true, true, 1400);
    let mut bytes = header.emit().to_vec();
    bytes.push(9);
    assert_eq!(VnetHeader::split(&bytes), Some((header, &[9][..])));
    assert_eq!(VnetHeader::split(&bytes[..9]), None);
}

#[test]
fn only_the_last_segment_ends_and_only_the_first_tells_of_congestion() {
    let payload = [1; 250];
    let packet = super_packet(false, true, ACK | PSH | FIN | CWR, &payload);
    let header = VnetHeader { gso_type: 0x81, ..vnet(false, true, 100) };
    let packets = cut(&header, &packet).unwrap();
    let flags: Vec<u8> = packets.iter().map(|p| p[33]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
    let ids: Vec<u16> = packets.iter().map(|p| u16::from_be_bytes([p[4], p[5]])).collect();
    assert_eq!([ids[1].wrapping_sub(ids[0]), ids[2].wrapping_sub(ids[0])], [1, 2]);
}

#[test]
fn a_header_that_does_not_fit_its_packet_is_refused() {
    let packet = super_packet(false, true, ACK, &[1; 250]);
    let good = vnet(false, true, 100);
    let bad = [
        VnetHeader { gso_size: 0, ..good },
        VnetHeader { gso_type: 9, ..good },
        VnetHeader { csum_start: 16, ..good },
        VnetHeader { csum_start: 21, ..good },
        VnetHeader { csum_start: u16::MAX, ..good },
        VnetHeader { gso_type: 0, csum_offset: u16::MAX, ..good },
        VnetHeader { gso_type: 0, csum_start: 289, csum_offset: 0, ..good },
    ];
    assert!(cut(&good, &packet).is_ok());
    for header in bad {
        assert_eq!(cut(&header, &packet), Err(DropReason::InnerPacket), "{header:?}");
    }
}

proptest! {
    #[test]
    fn segments_are_whole_packets_and_carry_the_same_bytes(
        v6: bool, tcp: bool, gso_size in 1u16..1500,
        payload in proptest::collection::vec(any::<u8>(), 1..9000))
    {
        prop_assume!(payload.len() / usize::from(gso_size) < 200);
        let packet = super_packet(v6, tcp, ACK | PSH, &payload);
        let packets = cut(&vnet(v6, tcp, gso_size), &packet).unwrap();
        let bytes: Vec<u8> = packets.iter().flat_map(|p| judged(p)).collect();
        prop_assert_eq!(bytes, payload);
    }

    #[test]
    fn an_open_checksum_is_finished(v6: bool, tcp: bool, payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let packet = super_packet(v6, tcp, ACK, &payload);
        let header = VnetHeader { gso_type: 0, gso_size: 0, ..vnet(v6, tcp, 0) };
        let packets = cut(&header, &packet).unwrap();
        prop_assert_eq!(packets.len(), 1);
        prop_assert_eq!(judged(&packets[0]), payload);
    }

    #[test]
    fn what_was_cut_is_put_together_again(
        v6: bool, gso_size in 100u16..1500,
        payload in proptest::collection::vec(any::<u8>(), 200..20_000))
    {
        prop_assume!(payload.len() / usize::from(gso_size) < 64 && payload.len() > usize::from(gso_size));
        let header = vnet(v6, true, gso_size);
        let packet = super_packet(v6, true, ACK | PSH, &payload);
        let packets = cut(&header, &packet).unwrap();
        let mut written = Vec::new();
        let mut coalescer = Coalescer::new(usize::MAX, |vnet: &VnetHeader, headers: &[u8], payloads: &[&[u8]]| {
            written.push((*vnet, [headers, &payloads.concat()].concat()));
        });
        packets.iter().for_each(|p| coalescer.push(p));
        coalescer.flush();
        prop_assert_eq!(written.len(), 1);
        let (vnet, mut again) = written.remove(0);
        prop_assert_eq!(VnetHeader { hdr_len: 0, ..vnet }, header);
        let mut expected = packet.clone();
        // The IPv4 header's own checksum is complete in both.
        for bytes in [&mut again, &mut expected] {
            if !v6 { set_ipv4(&mut bytes[..20]); }
        }
        prop_assert_eq!(again, expected);
    }

    #[test]
    fn no_bytes_panic(
        header in proptest::array::uniform10(any::<u8>()), gso in 0u8..6, flags in 0u8..2, start in 0u16..90,
        v in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
        bytes in proptest::collection::vec(any::<u8>(), 0..200))
    {
        let (mut vnet, _) = VnetHeader::split(&header).unwrap();
        (vnet.gso_type, vnet.flags, vnet.csum_start) = (gso, flags, start);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() { *first = v; }
        let _ = cut(&vnet, &bytes);
    }
}
