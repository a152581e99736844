//! Decodes packets with all kinds of link layers, tunnels and faults.
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

/// A packet in an IEEE 802.11 frame whose header is `more` octets longer than the shortest.
fn wifi(control: u8, flags: u8, more: usize, inner: &[u8]) -> Vec<u8> {
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd];
    [&[control, flags][..], &[0; 22], &vec![0; more], &snap, inner].concat()
}

fn raw(bytes: &[u8]) -> Vec<Element> {
    packet(7, Link::Raw(0), bytes, bytes.len())
}

/// The single element of a packet.
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
    let link = |number| Link::of(number).unwrap();
    let radiotap =
        [&[0, 0, 25, 0, 3, 0, 0, 0x80, 0, 0, 0, 0][..], &[0; 4], &[9; 8], &[0x20]].concat();
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd];
    let frames = [
        (Link::Raw(0), inner.clone()),
        (link(0), [&[0, 0, 0, 30][..], &inner].concat()),
        (Link::Ethernet, ethernet(&[0x86, 0xdd])),
        (Link::Ethernet, ethernet(&[0x81, 0, 0, 5, 0x86, 0xdd])),
        (Link::Ethernet, ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd])),
        (link(113), [&[0; 14][..], &[0x86, 0xdd], &inner].concat()),
        (link(276), [&[0x86, 0xdd][..], &[0; 18], &inner].concat()),
        // IEEE 802.2, PPPoE, MPLS.
        (Link::Ethernet, ethernet(&[&[0, 64][..], &snap].concat())),
        (Link::Ethernet, ethernet(&[0x88, 0x64, 0x11, 0, 0, 5, 0, 66, 0, 0x57])),
        (Link::Ethernet, ethernet(&[0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x21, 64])),
        (link(9), [&[0xff, 3, 0, 0x57][..], &inner].concat()),
        (link(9), [&[0x57][..], &inner].concat()),
        (link(104), [&[0x0f, 0, 0x86, 0xdd][..], &inner].concat()),
        // IEEE 802.11: plain, with QoS, with four addresses, and after radiotap headers. The last of these has a
        // timestamp, and says that the 802.11 header is padded.
        (link(105), wifi(8, 1, 0, &inner)),
        (link(105), wifi(0x88, 2, 2, &inner)),
        (link(105), wifi(8, 3, 6, &inner)),
        (link(127), [&[0, 0, 8, 0, 0, 0, 0, 0][..], &wifi(8, 1, 0, &inner)].concat()),
        (link(127), [&radiotap[..], &wifi(0x88, 1, 4, &inner)].concat()),
        (link(192), [&[0, 0, 8, 0, 105, 0, 0, 0][..], &wifi(8, 1, 0, &inner)].concat()),
        // Padded to the minimum length of a frame.
        (Link::Ethernet, [&ethernet(&[0x86, 0xdd])[..], &[0; 9]].concat()),
    ];
    for (link, frame) in frames {
        let elements = packet(7, link, &frame, frame.len());
        let [element] = &elements[..] else { panic!("{link:?}: {elements:?}") };
        assert_eq!(element.message, Some("Router Solicitation"), "{link:?}: {element}");
        assert_eq!((element.packet, element.reencodes), (7, true));
        assert_eq!(field(element, "checksum_ok"), &Tree::Bool(true));
        for n in 0..frame.len() {
            let cut = packet(7, link, &frame[..n], frame.len());
            assert!(cut.iter().all(|cut| cut.message.is_none() == cut.error.is_some()));
            let is_named = |element: &Element| {
                let error = element.error.as_deref().unwrap_or_default();
                element.cut.is_some() || error.starts_with("cut by the capture, ")
            };
            // The padding of the last frame does not belong to the packet.
            assert!(n + 9 >= frame.len() || cut.iter().all(is_named), "{link:?} {n}: {cut:?}");
        }
    }
}

#[test]
fn a_message_in_any_tunnel_is_told_with_the_tunnels_around_it() {
    let inner = solicitation_packet();
    let ethernet = [&[1; 12][..], &[0x86, 0xdd], &inner].concat();
    let tunnels = [
        (ipv6("2001:db8::1", "2001:db8::2", 64, 41, &inner), "IPv6-in-IPv6"),
        (ipv4(41, &inner), "IPv6-in-IPv4"),
        (ipv4(47, &[&[0, 0, 0x86, 0xdd][..], &inner].concat()), "GRE"),
        (ipv4(47, &[&[0x20, 0, 0x86, 0xdd, 0, 0, 0, 9][..], &inner].concat()), "GRE"),
        (ipv4(17, &udp(4000, 4191, &inner)), "UDP (RFC 5555)"),
        (ipv4(17, &udp(5437, 4000, &inner)), "UDP (RFC 5844)"),
        (ipv4(17, &udp(5437, 5437, &[&[0, 41, 0, 64][..], &inner].concat())), "UDP (RFC 5844)"),
        (ipv4(17, &udp(4000, TUNNEL_PORT, &inner)), "UPMT"),
        (
            ipv4(
                47,
                &[&[0x30, 1, 0x88, 0x0b, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0x57][..], &inner].concat(),
            ),
            "GRE",
        ),
        (ipv4(47, &[&[0, 0, 0x65, 0x58][..], &ethernet].concat()), "GRE"),
        (
            ipv4(17, &udp(4000, 3544, &[&[0, 1, 0, 0][..], &[7; 9], &[0; 8], &inner].concat())),
            "Teredo",
        ),
        (
            ipv4(17, &udp(5072, 4000, &[&[0x40, 0x52, 0x11, 41][..], &[7; 40], &inner].concat())),
            "AYIYA",
        ),
        (
            ipv4(17, &udp(2152, 2152, &[&[0x30, 255, 0, 56, 0, 0, 0, 1][..], &inner].concat())),
            "GTP-U",
        ),
        (
            ipv4(
                17,
                &udp(
                    2152,
                    2152,
                    &[&[0x34, 255, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0][..], &inner]
                        .concat(),
                ),
            ),
            "GTP-U",
        ),
        (ipv4(17, &udp(9, 4789, &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &ethernet].concat())), "VXLAN"),
        (
            ipv4(
                17,
                &udp(9, 6081, &[&[1, 0, 0x86, 0xdd, 0, 0, 5, 0, 1, 2, 3, 4][..], &inner].concat()),
            ),
            "Geneve",
        ),
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
        error(&ipv6(SOURCE, ALL_ROUTERS, 255, 135, &[59, 0, 5])),
        "Mobility Header: 3 bytes, at least 6 needed"
    );
    let mut fragment = ipv4(17, &udp(9, TUNNEL_PORT, &[0; 16]));
    fragment[6] = 0x20;
    assert_eq!(error(&fragment), "a fragment: not decoded");
    let frame = [&[1; 12][..], &[8, 6], &[0; 28]].concat();
    let arp = packet(1, Link::Ethernet, &frame, frame.len()).remove(0);
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
    for (length, cut) in
        [(1_428, "by the capture, 256 of 1428 bytes"), (256, "before its end, 256 of 1428 bytes")]
    {
        let elements = packet(1, Link::Raw(0), &whole[..256], length);
        assert_eq!(
            (elements[0].message, elements[0].cut.as_deref()),
            (Some("Segue Size"), Some(cut))
        );
    }
    let elements = packet(1, Link::Raw(0), &whole[..40], whole.len());
    let error = "cut by the capture, 40 of 1428 bytes: Segue: header: 12 bytes";
    assert!(elements[0].error.as_ref().unwrap().starts_with(error), "{}", elements[0]);
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
    let elements = packet(1, Link::Ethernet, &bytes, bytes.len());
    assert_eq!(elements[0].message, Some("Segue Data"));
    assert_eq!(elements[0].destination.as_deref().unwrap().split(']').nth(1), Some(":5005"));
    assert_eq!(elements[1].error.as_deref(), Some("no packet"));
}

#[test]
fn one_bad_option_does_not_hide_its_message() {
    let bad = NdOption::Unknown { kind: 5, data: vec![0; 14] };
    let good = NdOption::Mtu { mtu: 1_280 };
    let message = Message::RouterSolicitation { options: vec![bad, good] };
    let bytes = message.emit_with_checksum(SOURCE.parse().unwrap(), ALL_ROUTERS.parse().unwrap());
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 58, &bytes));
    assert_eq!(element.message, Some("Router Solicitation"));
    let Tree::List(options) = field(&element, "options") else { panic!("{element}") };
    assert_eq!(options.len(), 2);
    let text = element.to_string();
    assert!(text.contains("malformed\n          type   5\n"), "{text}");
    assert!(text.contains("error  field option length holds 2\n"), "{text}");
    assert!(text.contains("mtu  1280\n") && !text.contains("refused"), "{text}");
    // An option of length zero ends the message and makes it invalid.
    let endless =
        ipv6(SOURCE, ALL_ROUTERS, 255, 58, &[&[133, 0, 0, 0, 0, 0, 0, 0][..], &[1, 0, 9]].concat());
    let element = only(&endless);
    assert_eq!(element.message, Some("Router Solicitation"));
    assert!(
        element.to_string().contains("refused      field option length holds 0\n"),
        "{element}"
    );

    // A Binding Acknowledgement with a Binding Refresh Advice of one octet, and an unknown message type.
    let refresh = [59, 2, 6, 0, 0, 0, 135, 0, 0, 1, 0, 9, 2, 1, 7, 2, 2, 0, 5, 1, 3, 0, 0, 0];
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 135, &refresh));
    assert_eq!(element.message, Some("Binding Acknowledgement"));
    let text = element.to_string();
    assert!(text.contains("status         135 (Sequence number out of window)\n"), "{text}");
    assert!(text.contains("malformed      Binding Refresh Advice: 1 bytes"), "{text}");
    assert!(text.contains("refresh_interval_4s  5\n"), "{text}");
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 135, &[59, 0, 99, 0, 0, 0, 1, 2]));
    assert_eq!((element.message, number(&element, "mh_type")), (Some("Mobility Header"), 99));
    assert_eq!(field(&element, "data"), &Tree::Text("0102".into()));
}

#[test]
fn a_message_in_an_atomic_fragment_is_shown_and_refused() {
    let atomic = [&[58, 0, 0, 0, 0, 0, 0, 9][..], &solicitation()].concat();
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 44, &atomic));
    assert_eq!(field(&element, "checksum_ok"), &Tree::Bool(true));
    assert_eq!(field(&element, "refused"), &Tree::Text("in a fragment (RFC 6980)".into()));
    // Another header after it, and an Authentication Header.
    let hops =
        [&[60, 0, 0, 0, 0, 0, 0, 9][..], &[135, 0, 1, 4, 0, 0, 0, 0], &[59, 0, 0, 0, 0, 0, 0, 0]];
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 44, &hops.concat()));
    assert_eq!(element.message, Some("Binding Refresh Request"));
    let authenticated = [&[135, 4, 0, 0][..], &[7; 20], &[59, 0, 0, 0, 0, 0, 0, 0]].concat();
    let element = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 51, &authenticated));
    assert_eq!(element.message, Some("Binding Refresh Request"));
    let part = only(&ipv6(SOURCE, ALL_ROUTERS, 255, 44, &[&[58, 0, 0, 1][..], &[0; 40]].concat()));
    assert_eq!(part.other.as_deref(), Some("fragments"));
}

#[test]
fn packets_that_errors_quote_are_told_as_quotes() {
    let quoted = solicitation_packet();
    let unreachable = [&[1, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let whole = only(&ipv6("fe80::9", SOURCE, 64, 58, &unreachable));
    assert_eq!((whole.message, whole.within[0].tunnel), (Some("Router Solicitation"), "ICMPv6"));
    assert_eq!((whole.cut.as_deref(), field(&whole, "checksum_ok")), (None, &Tree::Bool(true)));
    let part = ipv6("fe80::9", SOURCE, 64, 58, &unreachable[..unreachable.len() - 8]);
    assert_eq!(only(&part).cut.as_deref(), Some("by its quotation in ICMPv6"));
    let tunnelled = ipv4(1, &[&[3, 1, 0, 0, 0, 0, 0, 0][..], &ipv4(41, &quoted)].concat());
    let element = only(&tunnelled);
    let within: Vec<&str> = element.within.iter().map(|within| within.tunnel).collect();
    assert_eq!(within, ["ICMP", "IPv6-in-IPv4"]);
}

#[test]
fn radius_is_found_on_all_its_ports_with_names_for_its_values() {
    let attributes = [
        &[6, 6, 0, 0, 0, 2][..],
        &[64, 6, 1, 0, 0, 13],
        &[81, 5, 1, b'4', b'2'],
        &[26, 9, 0, 0, 0, 9, 1, 3, 7],
        &[101, 6, 0, 0, 1, 0xf7],
        // Longer than the packet.
        &[1, 9, b'a'],
    ]
    .concat();
    let mut packet = vec![45, 7, 0, 20 + attributes.len() as u8];
    packet.extend([9; 16]);
    packet.extend(attributes);
    for port in [1645, 1646, 1700, 1812, 1813, 3799] {
        let element = only(&ipv4(17, &udp(4000, port, &packet)));
        assert_eq!(element.message, Some("CoA-NAK"), "{port}");
        let text = element.to_string();
        for line in [
            "Service-Type  2 (Framed)\n",
            "Tunnel-Type\n          tag    1\n          value  13 (VLAN)\n",
            "Tunnel-Private-Group-Id\n          tag    1\n          value  42\n",
            "Vendor-Specific\n          vendor_id  9\n          data       010307\n",
            "Error-Cause  503 (Session-Context-Not-Found)\n",
            "malformed",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    let dns = only(&ipv4(17, &udp(1812, 53, &[200; 40])));
    assert_eq!(dns.other.as_deref(), Some("UDP"));
}
