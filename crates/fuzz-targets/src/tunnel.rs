//! The formats of `segue-wire`.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use segue_wire::enrol::{Enrolled, ToEnrol};
use segue_wire::flow::Inner;
use segue_wire::signal::{FromAnchor, FromHost, decode, encode};
use segue_wire::upmt::{ProbePacket, Trailer};
use segue_wire::{Header, PacketType, Probe, ProbeKey, Size, TooBig, WireError};
use serde::{Deserialize, Serialize};

use crate::take::take;

/// The tunnel header: a parsed header is emitted as the same bytes, and an error names the fault in the input.
pub(crate) fn header(data: &[u8]) {
    match Header::parse(data) {
        Ok(header) => assert_eq!(header.emit(), data[..Header::LEN]),
        Err(WireError::TooShort { got, min, .. }) => {
            assert!(got == data.len() && got < min && min == Header::LEN);
        }
        Err(WireError::Version { got }) => assert!(got == data[0] >> 4 && got != Header::VERSION),
        Err(WireError::Type { got }) => {
            assert!(got == data[0] & 15 && got > 4);
        }
        Err(WireError::Field { field, got }) => {
            let at = ["flags", "k", "reserved"].iter().position(|name| *name == field);
            assert_eq!(got, u32::from(data[1 + at.expect("a field of the header")]));
            assert_ne!(got, 0);
        }
        Err(error) => panic!("{error}"),
    }
    for n in 0..data.len().min(Header::LEN) {
        assert!(matches!(Header::parse(&data[..n]), Err(WireError::TooShort { .. })));
    }
}

/// The probe: bytes with a valid authenticator are identical to the output of sealing. A sealed probe opens, but not
/// with a changed bit or another key.
pub(crate) fn probe(data: &[u8]) {
    let key = ProbeKey(core::array::from_fn(|i| i as u8));
    if let (Ok(header), Ok(probe)) = (Header::parse(data), Probe::open(data, &key)) {
        assert_eq!(probe.seal(&header, &key)[..], *data);
    }
    let mut rest = data;
    let [response, flags, k, bit_high, bit_low] = take(&mut rest);
    let header = Header {
        packet_type: if response & 1 == 0 { PacketType::Request } else { PacketType::Response },
        flags: flags & response & 1,
        k,
        age: 0,
        index: u32::from_be_bytes(take(&mut rest)),
        cookie: u64::from_be_bytes(take(&mut rest)),
    };
    let probe = Probe::parse(&take(&mut rest));
    let mut packet = probe.seal(&header, &key);
    assert_eq!(Header::parse(&packet), Ok(header));
    assert_eq!(Probe::open(&packet, &key), Ok(probe));
    assert_eq!(Probe::open(&packet, &ProbeKey([0; 16])), Err(WireError::Mac));
    let bit = usize::from(u16::from_be_bytes([bit_high, bit_low])) % (packet.len() * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(Probe::open(&packet, &key), Err(WireError::Mac));
}

/// The test of a packet size: bytes that open are identical to the output of sealing. They do not open with a changed
/// bit or another key, and a test whose length differs from the stated length is rejected.
pub(crate) fn size(data: &[u8]) {
    let key = ProbeKey(core::array::from_fn(|i| i as u8));
    for from_host in [true, false] {
        if let Ok(size) = Size::open(data, &key, from_host) {
            let header = Header::parse(data).expect("it has opened");
            let mut packet = Vec::new();
            size.seal(&header, &key, &mut packet);
            assert_eq!(packet[..Size::LEAST.into()], data[..Size::LEAST.into()]);
            assert_eq!(usize::from(size.size), data.len());
        }
    }
    let mut rest = data;
    let [asked, answer, bit] = [0; 3].map(|_: u16| u16::from_be_bytes(take(&mut rest)));
    let within = |bytes: u16| Size::LEAST + bytes % (Size::MOST - Size::LEAST + 1);
    let test = Size {
        token: u32::from_be_bytes(take(&mut rest)),
        size: within(asked),
        answer: within(answer),
    };
    let header = Header {
        packet_type: PacketType::Size,
        flags: 0,
        k: 0,
        age: 0,
        index: u32::from_be_bytes(take(&mut rest)),
        cookie: u64::from_be_bytes(take(&mut rest)),
    };
    let mut packet = Vec::new();
    test.seal(&header, &key, &mut packet);
    assert_eq!(Size::open(&packet, &key, true), Ok(test));
    assert!(Size::open(&packet, &ProbeKey([0; 16]), true).is_err());
    assert!(Size::open(&packet[..packet.len() - 1], &key, true).is_err());
    let bit = usize::from(bit) % (usize::from(Size::LEAST) * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    assert!(Size::open(&packet, &key, true).is_err(), "bit {bit}");
}

/// A router's report that a packet was too big: the extracted fields are those of the quoted packet according to
/// another parser.
pub(crate) fn icmp(data: &[u8]) {
    for (v6, said) in [(false, TooBig::parse_v4(data)), (true, TooBig::parse_v6(data))] {
        let Some(said) = said else { continue };
        let quote = match v6 {
            true => &data[8..],
            false => &data[usize::from(data[0] & 15) * 4 + 8..],
        };
        // The other parser requires whole packets and correct lengths.
        let ip = match v6 {
            true => 40,
            false => usize::from(quote[0] & 15) * 4,
        };
        let udp = etherparse::UdpHeaderSlice::from_slice(&quote[ip..]).expect("a UDP header");
        let header = Header::parse(&quote[ip + udp.slice().len()..]).expect("ours");
        assert_eq!((said.index, said.cookie), (header.index, header.cookie));
        assert_ne!(said.mtu, Some(0));
        for n in 0..data.len() {
            let cut = &data[..n];
            let less = if v6 { TooBig::parse_v6(cut) } else { TooBig::parse_v4(cut) };
            assert!(less.is_none_or(|less| less == said));
        }
    }
}

/// The inner packet: the result does not depend on bytes after the packet, lies within it, has a flow key that equals
/// its double reversal, and agrees with another parser if that accepts the packet.
pub(crate) fn inner(data: &[u8]) {
    // The other parser takes a zero length as "unspecified"; ours takes it literally.
    let stated = match data.first().map(|first| first >> 4) {
        Some(4) => data.get(2..4),
        _ => data.get(4..6),
    };
    let other = match stated {
        Some(length) if length != [0, 0] => SlicedPacket::from_ip(data).ok(),
        _ => None,
    };
    let Ok(inner) = Inner::parse(data) else {
        let transport = other.and_then(|packet| packet.transport);
        assert!(transport.is_none(), "refused what another parser reads: {transport:?}");
        return;
    };
    assert!(inner.len <= data.len() && inner.dscp < 64 && inner.key.label < 1 << 20);
    assert_eq!(Inner::parse(&data[..inner.len]), Ok(inner));
    assert_eq!(inner.key.reversed().reversed(), inner.key);
    assert_eq!(inner.key.src.is_ipv4(), inner.key.dst.is_ipv4());
    if inner.key.sport != 0 || inner.key.dport != 0 {
        assert!(matches!(inner.key.protocol, 6 | 17 | 33 | 132 | 136) && inner.key.label == 0);
    }
    assert!(!inner.key.to_string().contains(char::is_control));
    let Some(SlicedPacket { net: Some(net), transport, .. }) = other else { return };
    let (src, dst, plain) = match &net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            (addresses.0, addresses.1, ip.extensions().is_empty())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            (addresses.0, addresses.1, ip.extensions().is_empty())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((inner.key.src, inner.key.dst), (src, dst));
    let ports = match transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        _ => return,
    };
    if plain {
        assert_eq!((inner.key.sport, inner.key.dport), ports);
    }
}

/// A ride: after sealing, opening restores its probe and inner packet. It is rejected if any bit of the first 56 bytes
/// is changed. For arbitrary bytes, anything that opens is identical to the output of sealing.
pub(crate) fn ride(data: &[u8]) {
    let key = ProbeKey([42; 16]);
    if let Ok((probe, inner)) = Probe::open_ride(data, &key) {
        if let Ok(header) = Header::parse(data) {
            assert_eq!([&probe.seal(&header, &key)[..], inner].concat(), data);
        }
        assert_eq!(Probe::open(data, &key).is_ok(), inner.is_empty());
    }
    let mut rest = data;
    let [flags, k, bit_high, bit_low] = take(&mut rest);
    let body: [u8; Probe::LEN] = take(&mut rest);
    let header = Header { packet_type: PacketType::Ride, flags, k, age: 0, index: 7, cookie: 9 };
    let probe = Probe::parse(&body);
    let mut packet = [&probe.seal(&header, &key)[..], rest].concat();
    assert_eq!(Probe::open_ride(&packet, &key), Ok((probe, rest)));
    assert_eq!(Header::parse(&packet).is_ok(), flags < 6);
    let bit = usize::from(u16::from_be_bytes([bit_high, bit_low])) % (Probe::PACKET_LEN * 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(Probe::open_ride(&packet, &key), Err(WireError::Mac));
}

/// UPMT packets: the fields of a probe or a trailer parse to themselves from their own bytes, and a trailer with any
/// bit changed is rejected.
pub(crate) fn upmt(data: &[u8]) {
    if let Some(Ok(probe)) = ProbePacket::parse(data) {
        assert_eq!(ProbePacket::parse(&probe.emit()), Some(Ok(probe)));
    }
    let Ok((trailer, inner)) = Trailer::split(data) else { return };
    let mut ride = [inner, &trailer.emit()].concat();
    assert_eq!(ride, data);
    for bit in inner.len() * 8..ride.len() * 8 {
        ride[bit / 8] ^= 1 << (bit % 8);
        assert!(Trailer::split(&ride).is_err());
        ride[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Messages from a host.
pub(crate) fn from_host(data: &[u8]) {
    stream::<FromHost>(data);
}

/// Messages from an anchor.
pub(crate) fn from_anchor(data: &[u8]) {
    stream::<FromAnchor>(data);
}

/// Messages of the enrolment in both directions.
pub(crate) fn enrol(data: &[u8]) {
    stream::<ToEnrol>(data);
    stream::<Enrolled>(data);
}

/// A stream of messages: the result does not depend on how the stream is divided. Each message parses to itself from
/// its own encoding, which is no longer than the input.
fn stream<M: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let (mut whole, mut messages, mut failed) = (data.to_vec(), Vec::new(), false);
    loop {
        let before = whole.len();
        match decode::<M>(&mut whole) {
            Ok(Some(message)) => {
                let mut bytes = encode(&message).expect("what was read can be written");
                assert!(bytes.len() <= before - whole.len());
                assert_eq!(decode(&mut bytes).expect("whole").as_ref(), Some(&message));
                assert!(bytes.is_empty());
                messages.push(message);
            }
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error, WireError::Signal);
                failed = true;
                break;
            }
        }
    }
    let (mut buffer, mut again) = (Vec::new(), Vec::new());
    for byte in data {
        buffer.push(*byte);
        match decode::<M>(&mut buffer) {
            Ok(Some(message)) => again.push(message),
            Ok(None) => {}
            Err(_) => {
                assert!(failed, "one byte at a time fails, the whole does not");
                break;
            }
        }
    }
    assert_eq!(again, messages);
}
