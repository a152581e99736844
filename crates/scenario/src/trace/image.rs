//! The bytes of a packet as a capture would show them. Application payloads are zeros.

use std::net::{IpAddr, Ipv6Addr};

use etherparse::{
    IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, TcpHeader, TcpOptionElement, UdpHeader,
};
use segue_sim::tcp::Segment;
use segue_sim::tunnel::{self, signal};
use segue_sim::{Body, Packet};
use segue_tunnel::ProbeKind;
use segue_wire::header::flags;
use segue_wire::{Header, PacketType};

/// Window in every TCP header: the models carry none on the wire.
const WINDOW: u16 = u16::MAX;
const TCP_HEADER: usize = 20;
const TCP_OPTIONS: usize = 40;

/// The whole IP packet. It is as long as the packet says, unless it carries options that cost nothing in
/// its model.
#[must_use]
pub fn of(packet: &Packet) -> Vec<u8> {
    let room = (packet.bytes as usize).saturating_sub(if packet.src.is_ipv4() { 20 } else { 40 });
    match &packet.body {
        Body::Tcp(segment) => tcp(packet, segment, room),
        Body::Udp(datagram) => {
            udp(packet, (datagram.sport, datagram.dport), &vec![0; room.saturating_sub(8)])
        }
        Body::Encapsulated(inner) => ip(packet, &of(inner)),
        Body::Tunnel(datagram) => {
            let ports = (datagram.sport, datagram.dport);
            udp(packet, ports, &tunnelled(&datagram.message))
        }
        Body::Signal(datagram) => {
            let ports = (datagram.sport, datagram.dport);
            udp(packet, ports, &signalled(datagram, room.saturating_sub(8)))
        }
    }
}

/// The payload of a tunnel's packet (docs/wire/tunnel-and-probe.md).
fn tunnelled(message: &tunnel::Message<Packet>) -> Vec<u8> {
    let (index, cookie) = (message.index, message.cookie);
    match &message.body {
        tunnel::Body::Data { inner, one_way, age } => {
            let flags = if *one_way { flags::DATA_ONE_WAY } else { 0 };
            let header =
                Header { packet_type: PacketType::Data, flags, k: 0, age: *age, index, cookie };
            [&header.emit()[..], &of(&inner.payload)].concat()
        }
        tunnel::Body::Probe { kind, k, report, question, age, probe, key } => {
            let mark = |flag: u8, set: bool| if set { flag } else { 0 };
            let (packet_type, flags) = match kind {
                ProbeKind::Request => (
                    PacketType::Request,
                    mark(flags::REQUEST_REPORT, *report) | mark(flags::REQUEST_QUESTION, *question),
                ),
                ProbeKind::Response => {
                    (PacketType::Response, mark(flags::RESPONSE_QUESTION, *question))
                }
                ProbeKind::Unsolicited => (PacketType::Response, flags::RESPONSE_UNSOLICITED),
            };
            let header = Header { packet_type, flags, k: *k, age: *age, index, cookie };
            probe.seal(&header, key).to_vec()
        }
        tunnel::Body::Ride(ride) => {
            let mark = |flag: u8, set: bool| if set { flag } else { 0 };
            let flags = mark(flags::RIDE_ONE_WAY, ride.one_way)
                | mark(flags::RIDE_RESPONSE, ride.kind == ProbeKind::Response);
            let (packet_type, k, age) = (PacketType::Ride, ride.k, ride.age);
            let header = Header { packet_type, flags, k, age, index, cookie };
            [&ride.probe.seal(&header, &ride.key)[..], &of(&ride.inner.payload)].concat()
        }
        tunnel::Body::Size { size, key } => {
            let packet_type = PacketType::Size;
            let header = Header { packet_type, flags: 0, k: 0, age: 0, index, cookie };
            let mut packet = Vec::new();
            size.seal(&header, key, &mut packet);
            packet
        }
    }
}

/// A datagram of the signalling connection. The daemons use encrypted QUIC. The simulator's
/// datagram has its kind, connection and number in 17 bytes; for a part of the stream, its position
/// in 8 bytes; and then its content: for a part of the stream, the messages as in
/// docs/wire/signalling.md. Zeros fill the rest.
fn signalled(datagram: &signal::Datagram, bytes: usize) -> Vec<u8> {
    let (kind, content) = match &datagram.frame {
        signal::Frame::Hello { name } => (1, name.clone().into_bytes()),
        signal::Frame::Accept => (2, Vec::new()),
        signal::Frame::Stream { offset, bytes } => (3, [&offset.to_be_bytes()[..], bytes].concat()),
        signal::Frame::Ping => (4, Vec::new()),
        signal::Frame::Ack => (5, Vec::new()),
        signal::Frame::Close => (6, Vec::new()),
        signal::Frame::Reset => (7, Vec::new()),
    };
    let mut payload = vec![kind];
    payload.extend(datagram.conn.to_be_bytes());
    payload.extend(datagram.number.to_be_bytes());
    payload.extend(content);
    payload.resize(payload.len().max(bytes), 0);
    payload
}

/// A TCP segment. Streams begin at 0 with a SYN that the models may leave out, so the first byte
/// has number 1.
fn tcp(packet: &Packet, segment: &Segment, room: usize) -> Vec<u8> {
    let number = |byte: u64| (byte + 1) as u32;
    let seq = if segment.syn { 0 } else { number(segment.seq) };
    let mut header = TcpHeader::new(segment.sport, segment.dport, seq, WINDOW);
    // Only the first segment of a connection acknowledges nothing; a stream one way has received a SYN.
    header.ack = segment.ack.is_some() || !segment.syn;
    header.acknowledgment_number = match segment.ack {
        Some(byte) => number(byte),
        None if header.ack => 1,
        None => 0,
    };
    (header.syn, header.fin) = (segment.syn, segment.fin);
    let payload = vec![0; segment.len as usize];
    let for_options = room.saturating_sub(payload.len() + TCP_HEADER);
    let options = options(segment, for_options.min(TCP_OPTIONS));
    header.set_options(&options).expect("options that fit were chosen");
    let checksum = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &payload)
        }
        (src, dst) => header.calc_checksum_ipv6_raw(v6(src), v6(dst), &payload),
    };
    header.checksum = checksum.expect("a segment is shorter than 64 KiB");
    ip(packet, &[&header.to_bytes()[..], &payload].concat())
}

/// SACK blocks always, even if they cost nothing in the model; timestamps if there is room; then
/// padding up to the model's length.
fn options(segment: &Segment, room: usize) -> Vec<TcpOptionElement> {
    let number = |byte: u64| (byte + 1) as u32;
    let mut options = Vec::new();
    let mut used = 0;
    let blocks: Vec<(u32, u32)> =
        segment.sack.blocks().iter().map(|(a, b)| (number(*a), number(*b))).collect();
    if let Some((first, more)) = blocks.split_first() {
        let others = std::array::from_fn(|i| more.get(i).copied());
        options.extend([TcpOptionElement::Noop, TcpOptionElement::Noop]);
        options.push(TcpOptionElement::SelectiveAcknowledgement(*first, others));
        used += 4 + 8 * blocks.len();
    }
    if let Some((value, echo)) = segment.timestamps.filter(|_| used + 12 <= room) {
        let ms = |ns: u64| (ns / 1_000_000) as u32;
        options.extend([TcpOptionElement::Noop, TcpOptionElement::Noop]);
        options.push(TcpOptionElement::Timestamp(ms(value), ms(echo)));
        used += 12;
    }
    options.extend((used..room / 4 * 4).map(|_| TcpOptionElement::Noop));
    options
}

fn udp(packet: &Packet, (sport, dport): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader::without_ipv4_checksum(sport, dport, payload.len());
    let mut header = header.expect("a datagram is shorter than 64 KiB");
    let checksum = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), payload)
        }
        (src, dst) => header.calc_checksum_ipv6_raw(v6(src), v6(dst), payload),
    };
    header.checksum = checksum.expect("a datagram is shorter than 64 KiB");
    ip(packet, &[&header.to_bytes()[..], payload].concat())
}

/// An IP header and its payload. Packets are atomic: "do not fragment" is set, and the
/// identification is 0 (RFC 6864).
fn ip(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let protocol = IpNumber(packet.protocol());
    let length = u16::try_from(payload.len()).expect("a packet is shorter than 64 KiB");
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) {
        let header = Ipv4Header::new(length, packet.ttl, protocol, src.octets(), dst.octets());
        let mut header = header.expect("a packet is shorter than 64 KiB");
        header.dscp = packet.dscp.try_into().expect("a code point has 6 bits");
        header.dont_fragment = true;
        header.header_checksum = header.calc_header_checksum();
        return [&header.to_bytes()[..], payload].concat();
    }
    let header = Ipv6Header {
        traffic_class: packet.dscp << 2,
        flow_label: Ipv6FlowLabel::try_new(packet.label & 0xf_ffff).expect("20 bits"),
        payload_length: length,
        next_header: protocol,
        hop_limit: packet.ttl,
        source: v6(packet.src),
        destination: v6(packet.dst),
    };
    [&header.to_bytes()[..], payload].concat()
}

/// The bytes of an IPv6 address, or of one of IPv4 in IPv6.
fn v6(address: IpAddr) -> [u8; 16] {
    let address: Ipv6Addr = match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    };
    address.octets()
}
