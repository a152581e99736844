//! Packets of every kind that are walked through.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use etherparse::PacketBuilder;
use segue_decode::{Bare, Element, Link, Tree, bare, packet};
use segue_wire::header::flags::{DATA_ONE_WAY, REQUEST_QUESTION, REQUEST_REPORT};
use segue_wire::nd::{Message, NdOption};
use segue_wire::stamp::{ReflectorPacket, SenderPacket, Timestamp};
use segue_wire::upmt::{ProbePacket, Trailer};
use segue_wire::{Header, PacketType, Probe, ProbeKey, Size, TUNNEL_PORT};

const SOURCE: &str = "fe80::1";
const ALL_ROUTERS: &str = "ff02::2";

fn solicitation() -> Vec<u8> {
    let options = vec![NdOption::SourceLinkLayerAddress { link_layer_address: vec![2; 6] }];
    let (source, destination) = (SOURCE.parse().unwrap(), ALL_ROUTERS.parse().unwrap());
    Message::RouterSolicitation { options }.emit_with_checksum(source, destination)
}

/// An IPv6 packet between two addresses.
fn ipv6(source: &str, destination: &str, hop_limit: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([protocol, hop_limit]);
    for address in [source, destination] {
        packet.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    packet.extend(payload);
    packet
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend(payload);
    packet
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for half in [source, destination, 8 + payload.len() as u16, 0] {
        datagram.extend(half.to_be_bytes());
    }
    datagram.extend(payload);
    datagram
}

fn solicitation_packet() -> Vec<u8> {
    ipv6(SOURCE, ALL_ROUTERS, 255, 58, &solicitation())
}

fn raw(bytes: &[u8]) -> Vec<Element> {
    packet(7, Link::Raw, bytes, false)
}

/// The only element of a packet.
fn only(bytes: &[u8]) -> Element {
    let mut elements = raw(bytes);
    assert_eq!(elements.len(), 1, "{elements:?}");
    elements.remove(0)
}

fn field<'a>(element: &'a Element, name: &str) -> &'a Tree {
    let Tree::Object(fields) = &element.fields else { panic!("{:?}", element.fields) };
    let found = fields.iter().find(|(known, _)| known == name);
    &found.unwrap_or_else(|| panic!("no {name} in {fields:?}")).1
}

fn number(element: &Element, name: &str) -> u64 {
    let Tree::Number(number) = field(element, name) else { panic!("{name}") };
    *number
}

#[test]
fn the_same_packet_is_found_behind_every_link_layer() {
    let inner = solicitation_packet();
    let ethernet = |types: &[u8]| [&[1; 12][..], types, &inner].concat();
    let frames = [
        (Link::Raw, inner.clone()),
        (Link::Null, [&[0, 0, 0, 30][..], &inner].concat()),
        (Link::Ethernet, ethernet(&[0x86, 0xdd])),
        (Link::Ethernet, ethernet(&[0x81, 0, 0, 5, 0x86, 0xdd])),
        (Link::Ethernet, ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd])),
        (Link::Cooked, [&[0; 14][..], &[0x86, 0xdd], &inner].concat()),
        (Link::Cooked2, [&[0x86, 0xdd][..], &[0; 18], &inner].concat()),
        // Padded to the shortest frame.
        (Link::Ethernet, [&ethernet(&[0x86, 0xdd])[..], &[0; 9]].concat()),
    ];
    for (link, frame) in frames {
        let elements = packet(7, link, &frame, false);
        let [element] = &elements[..] else { panic!("{link:?}: {elements:?}") };
        assert_eq!(element.message, Some("Router Solicitation"), "{link:?}: {element}");
        assert_eq!((element.packet, element.reencodes), (7, true));
        assert_eq!(field(element, "checksum_ok"), &Tree::Bool(true));
        for n in 0..frame.len() {
            let cut = packet(7, link, &frame[..n], false);
            assert!(cut.iter().all(|cut| cut.message.is_none() == cut.error.is_some()));
            // The padding of the last frame is no part of the packet.
            assert!(n + 9 >= frame.len() || cut.iter().all(|cut| cut.error.is_some()), "{n}");
        }
    }
}

#[test]
fn a_message_in_any_tunnel_is_told_with_the_tunnels_around_it() {
    let inner = solicitation_packet();
    let tunnels = [
        (ipv6("2001:db8::1", "2001:db8::2", 64, 41, &inner), "IPv6-in-IPv6"),
        (ipv4(41, &inner), "IPv6-in-IPv4"),
        (ipv4(47, &[&[0, 0, 0x86, 0xdd][..], &inner].concat()), "GRE"),
        (ipv4(47, &[&[0x20, 0, 0x86, 0xdd, 0, 0, 0, 9][..], &inner].concat()), "GRE"),
        (ipv4(17, &udp(4000, 4191, &inner)), "UDP (RFC 5555)"),
        (ipv4(17, &udp(5437, 4000, &inner)), "UDP (RFC 5844)"),
        (ipv4(17, &udp(5437, 5437, &[&[0, 41, 0, 64][..], &inner].concat())), "UDP (RFC 5844)"),
        (ipv4(17, &udp(4000, TUNNEL_PORT, &inner)), "UPMT"),
    ];
    for (bytes, tunnel) in tunnels {
        let element = only(&bytes);
        assert_eq!(element.message, Some("Router Solicitation"), "{tunnel}: {element}");
        assert_eq!(element.source.as_deref(), Some(SOURCE));
        let within: Vec<&str> = element.within.iter().map(|within| within.tunnel).collect();
        assert_eq!(within, [tunnel]);
    }
    let twice = ipv6("2001:db8::1", "2001:db8::2", 64, 4, &ipv4(4, &ipv4(41, &inner)));
    let element = only(&twice);
    let within: Vec<&str> = element.within.iter().map(|within| within.tunnel).collect();
    assert_eq!(within, ["IPv4-in-IPv6", "IPv4-in-IPv4", "IPv6-in-IPv4"]);
    assert_eq!(element.within[0].source, "2001:db8::1");
    let deep =
        (0..40).fold(inner, |packet, _| ipv4(if packet[0] == 0x45 { 4 } else { 41 }, &packet));
    assert_eq!(only(&deep).error.as_deref(), Some("too many tunnels in each other"));
}

#[test]
fn what_a_receiver_discards_and_wrong_checksums_are_told() {
    let routed = only(&ipv6(SOURCE, ALL_ROUTERS, 64, 58, &solicitation()));
    assert_eq!(field(&routed, "refused"), &Tree::Text("hop limit 64, must be 255".into()));
    let mut spoilt = solicitation();
    spoilt[15] ^= 1;
    let spoilt = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 58, &spoilt));
    assert_eq!(field(&spoilt, "checksum_ok"), &Tree::Bool(false));
    assert!(spoilt.reencodes, "a wrong checksum is kept");
    let mut reserved = solicitation();
    reserved[4] = 1;
    assert!(!only(&ipv6(SOURCE, ALL_ROUTERS, 255, 58, &reserved)).reencodes);
}

#[test]
fn packets_without_a_message_say_why() {
    let error = |bytes: &[u8]| only(bytes).error.unwrap();
    assert_eq!(error(&ipv4(6, &[0; 20])), "TCP: not decoded");
    assert_eq!(error(&ipv4(17, &udp(9, 4551, &[1]))), "MIH frame: 1 bytes, at least 8 needed");
    let short = "RADIUS packet: 1 bytes, at least 20 needed";
    assert_eq!(error(&ipv4(17, &udp(1812, 9, &[1]))), short);
    assert_eq!(error(&ipv4(17, &udp(9, 1813, &[1]))), short);
    assert_eq!(error(&ipv4(17, &udp(9, 10, &[1]))), "UDP port 10: not decoded");
    assert_eq!(error(&ipv4(17, &[0; 7])), "UDP: 7 bytes, at least 8 needed");
    assert_eq!(
        error(&ipv6(SOURCE, ALL_ROUTERS, 255, 58, &[128, 0, 0, 0])),
        "ICMPv6 type 128 (Echo Request): not decoded"
    );
    assert_eq!(
        error(&ipv6(SOURCE, ALL_ROUTERS, 255, 58, &[135, 0, 0, 0])),
        "Neighbor Solicitation: 4 bytes, at least 24 needed"
    );
    assert_eq!(
        error(&ipv6(SOURCE, ALL_ROUTERS, 255, 135, &[59, 0, 99, 0, 0, 0, 0, 0])),
        "Mobility Header: packet type 99 is not known"
    );
    let mut fragment = ipv4(17, &udp(9, TUNNEL_PORT, &[0; 16]));
    fragment[6] = 0x20;
    assert_eq!(error(&fragment), "a fragment: not decoded");
    let frame = [&[1; 12][..], &[8, 6], &[0; 28]].concat();
    let arp = packet(1, Link::Ethernet, &frame, false).remove(0);
    assert_eq!(arp.error.as_deref(), Some("ARP: not decoded"));
}

const KEY: ProbeKey = ProbeKey([7; 16]);

fn on_our_port(payload: &[u8]) -> Vec<u8> {
    ipv4(17, &udp(4000, TUNNEL_PORT, payload))
}

#[test]
fn segues_own_packets_are_told_with_all_fields() {
    let probe = Probe { seq: 1, t_sc: 2, t_ss: 3, dt: 4, sc: 5, ss: 6, r: 7, heard: 8, t_ka_ms: 9 };
    let header = |packet_type, flags| Header { flags, ..Header::new(packet_type, 0, 10, 11) };
    let request = header(PacketType::Request, REQUEST_REPORT | REQUEST_QUESTION);
    let element = only(&on_our_port(&probe.seal(&request, &KEY)));
    assert_eq!(element.message, Some("Segue Request"));
    assert_eq!(element.source.as_deref(), Some("192.0.2.1:4000"));
    assert_eq!(element.destination.as_deref(), Some("192.0.2.2:5005"));
    let names = ["seq", "t_sc", "t_ss", "dt", "sc", "ss", "r"];
    assert_eq!(names.map(|name| number(&element, name)), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((number(&element, "t_ka"), number(&element, "tunnel_index")), (9, 10));
    assert_eq!(field(&element, "cookie"), &Tree::Text("000000000000000b".into()));
    let flags = ["report", "question"].map(|name| Tree::Text(name.into()));
    assert_eq!(field(&element, "flags"), &Tree::List(flags.to_vec()));
    assert!(element.reencodes);

    let data = header(PacketType::Data, DATA_ONE_WAY).emit();
    let elements = raw(&on_our_port(&[&data[..], &solicitation_packet()].concat()));
    let messages: Vec<_> = elements.iter().map(|element| element.message.unwrap()).collect();
    assert_eq!(messages, ["Segue Data", "Router Solicitation"]);
    assert_eq!(elements[1].within[0].tunnel, "Segue");
    assert_eq!(elements[1].within[0].destination, "192.0.2.2:5005");

    let ride = probe.seal(&header(PacketType::Ride, 0), &KEY);
    let elements = raw(&on_our_port(&[&ride[..], &ipv4(6, &[0; 20])].concat()));
    assert_eq!(elements[0].message, Some("Segue Ride"));
    assert_eq!(elements[1].error.as_deref(), Some("TCP: not decoded"));

    for size in [Size { token: 1, size: 60, answer: 56 }, Size { token: 1, size: 60, answer: 0 }] {
        let mut test = Vec::new();
        size.seal(&header(PacketType::Size, 0), &KEY, &mut test);
        let element = only(&on_our_port(&test));
        assert_eq!(element.message, Some("Segue Size"));
        assert_eq!(["token", "size"].map(|name| number(&element, name)), [1, 60]);
        test.push(0);
        assert_eq!(
            only(&on_our_port(&test)).error.as_deref(),
            Some("Segue Size: field size holds 60")
        );
    }
}

#[test]
fn a_packet_of_which_a_capture_kept_the_beginning_is_told_as_far_as_it_goes() {
    let mut test = Vec::new();
    let size = Size { token: 1, size: 1_400, answer: 56 };
    size.seal(&Header::new(PacketType::Size, 0, 10, 11), &KEY, &mut test);
    let whole = on_our_port(&test);
    let elements = packet(1, Link::Raw, &whole[..256], true);
    assert_eq!(elements[0].message, Some("Segue Size"));
    let elements = packet(1, Link::Raw, &whole[..256], false);
    assert_eq!(elements[0].error.as_deref(), Some("IPv4 packet: 256 bytes, at least 1428 needed"));
}

#[test]
fn upmts_probes_and_rides_are_told() {
    let probe = Probe { seq: 77, heard: 3, ..Probe::default() };
    let (host, anchor) = ([10, 77, 0, 2].into(), [10, 77, 0, 1].into());
    let alone = ProbePacket { host, anchor, path: 4, response: false, flagged: true, probe };
    let element = only(&on_our_port(&alone.emit()));
    assert_eq!(element.message, Some("UPMT Request"));
    assert_eq!((number(&element, "path"), number(&element, "seq")), (4, 77));
    assert!(element.reencodes);

    let trailer = Trailer { version: 6, response: true, report: false, path: 2, probe };
    let mut ride = solicitation_packet();
    ride[0] = 0xf0;
    ride.extend(trailer.emit());
    let elements = raw(&on_our_port(&ride));
    let messages: Vec<_> = elements.iter().map(|element| element.message.unwrap()).collect();
    assert_eq!(messages, ["UPMT Ride", "Router Solicitation"]);
    assert!(elements.iter().all(|element| element.reencodes));
}

#[test]
fn stamp_is_told_at_both_ends() {
    let sender =
        SenderPacket { seq: 5, timestamp: Timestamp(1 << 40), ssid: 9, ..Default::default() };
    let mut bytes = [0; 48];
    sender.emit(None, &mut bytes).unwrap();
    let element = only(&ipv4(17, &udp(4000, 862, &bytes[..44])));
    assert_eq!(element.message, Some("STAMP Session-Sender packet"));
    assert_eq!((number(&element, "sequence_number"), number(&element, "ssid")), (5, 9));
    let reflector = ReflectorPacket {
        seq: 6,
        timestamp: Timestamp(1 << 40),
        sender_ttl: 64,
        ..Default::default()
    };
    reflector.emit(None, &mut bytes).unwrap();
    bytes[44..].copy_from_slice(&[0x80, 7, 0, 0]);
    let element = only(&ipv4(17, &udp(862, 4000, &bytes)));
    assert_eq!(element.message, Some("STAMP Session-Reflector packet"));
    assert_eq!(number(&element, "session_sender_ttl"), 64);
    assert!(matches!(field(&element, "extensions"), Tree::List(list) if list.len() == 1));
    assert!(only(&ipv4(17, &udp(4000, 862, &[0; 112]))).error.unwrap().contains("its key"));
}

#[test]
fn a_message_by_itself_has_no_addresses_and_an_unknown_checksum() {
    let elements = bare(Bare::Icmpv6, &solicitation());
    assert_eq!((elements.len(), elements[0].message), (1, Some("Router Solicitation")));
    assert_eq!((&elements[0].source, field(&elements[0], "checksum_ok")), (&None, &Tree::Null));
    let request = Header::new(PacketType::Request, 3, 7, 9);
    let elements = bare(Bare::Segue, &Probe::default().seal(&request, &KEY));
    assert_eq!(elements[0].message, Some("Segue Request"));
    // A Binding Refresh Request.
    let elements = bare(Bare::MobilityHeader, &[59, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(elements[0].message, Some("Binding Refresh Request"));
}

#[test]
fn packets_of_another_builder_are_walked() {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .single_vlan(5.try_into().unwrap())
        .ipv6([0xfd; 16], [0xfe; 16], 64)
        .udp(4000, TUNNEL_PORT)
        .write(&mut bytes, &Header::new(PacketType::Data, 0, 1, 2).emit())
        .unwrap();
    let elements = packet(1, Link::Ethernet, &bytes, false);
    assert_eq!(elements[0].message, Some("Segue Data"));
    assert_eq!(elements[0].destination.as_deref().unwrap().split(']').nth(1), Some(":5005"));
    assert_eq!(elements[1].error.as_deref(), Some("no packet"));
}
