//! Raw sockets for ICMPv6 and the Mobility Header between two namespaces. Needs root.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use segue_ip::{Datagram, Prefix};
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_linux::raw::{Extension, ICMPV6, MOBILITY, RawSocket, solicited_node};

const LEFT: &str = "fd61:78::1";
const RIGHT: &str = "fd61:78::2";
const ALL_ROUTERS: &str = "ff02::2";
const SOLICITATION: u8 = 133;
const ECHO: u8 = 128;
/// A Binding Update with 16 bytes, whose checksum field (at 4) is neither right nor zero.
const UPDATE: [u8; 16] = [59, 1, 5, 0, 0xbe, 0xef, 0, 7, 0, 0, 0, 9, 1, 2, 0, 0];

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Two namespaces joined by a veth pair, sgr0 and sgr1; `None` without root.
fn pair(tag: &str) -> Option<(Netns, Netns)> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let name = |end| format!("segue-t{}-{tag}{end}", std::process::id());
    let left = Netns::create(&name("l")).unwrap();
    let right = Netns::create(&name("r")).unwrap();
    left.run(|| link::create_veth("sgr0", "sgr1", Some(&right)).unwrap()).unwrap();
    for (ns, device, address) in [(&left, "sgr0", LEFT), (&right, "sgr1", RIGHT)] {
        ns.run(|| {
            let prefix = Prefix { addr: ip(address).into(), len: 64 };
            link::add_address(device, prefix).unwrap();
            link::set_up(device, true).unwrap();
        })
        .unwrap();
    }
    // The kernel adds multicast routes shortly after the link comes up.
    let ready = |ns: &Netns, device| {
        let nodes = SocketAddrV6::new(ip("ff02::1"), 9, 0, index(ns, device));
        let socket = ns.run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
        socket.send_to(b"", nodes).is_ok()
    };
    let until = Instant::now() + SOON;
    while !(ready(&left, "sgr0") && ready(&right, "sgr1")) {
        assert!(Instant::now() < until, "the link does not come up");
        std::thread::sleep(Duration::from_millis(2));
    }
    Some((left, right))
}

fn message(protocol: u8, to: &str, bytes: &[u8]) -> Datagram {
    Datagram {
        waited_ns: 0,
        interface: None,
        from: (ip(LEFT).into(), 0),
        to: (ip(to).into(), 0),
        protocol,
        hop_limit: 77,
        bytes: bytes.to_vec(),
    }
}

fn receive(socket: &RawSocket, within: Duration) -> Option<Datagram> {
    let (until, mut buffer) = (Instant::now() + within, [0; 2048]);
    while Instant::now() < until {
        if let Some(datagram) = socket.receive(&mut buffer).unwrap() {
            assert!(datagram.waited_ns > 0, "the kernel says when it arrived");
            return Some(Datagram { waited_ns: 0, ..datagram });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

const SOON: Duration = Duration::from_secs(20);
/// Time to wait for messages that must not arrive. Each test sends them before a message that does arrive.
const NOTHING: Duration = Duration::from_millis(100);

fn index(ns: &Netns, device: &str) -> u32 {
    ns.run(|| link::index_of(device).unwrap()).unwrap()
}

#[test]
fn a_mobility_header_arrives_as_it_was_sent_with_what_the_ip_header_said() {
    let Some((left, right)) = pair("mh") else { return };
    let there = right.run(|| RawSocket::mobility().unwrap()).unwrap();
    let here = left.run(|| RawSocket::mobility().unwrap()).unwrap();
    let sent = message(MOBILITY, RIGHT, &UPDATE);
    here.send(&sent).unwrap();
    let interface = Some(index(&right, "sgr1"));
    // The kernel would have replaced or rejected the checksum.
    assert_eq!(receive(&there, SOON), Some(Datagram { interface, ..sent.clone() }));
    // The kernel chooses the source; the test chooses the interface.
    let any = (IpAddr::from(Ipv6Addr::UNSPECIFIED), 0);
    let way = Some(index(&left, "sgr0"));
    here.send(&Datagram { from: any, interface: way, ..sent.clone() }).unwrap();
    assert_eq!(receive(&there, SOON).unwrap().from, (ip(LEFT).into(), 0));
    for wrong in [
        Datagram { protocol: ICMPV6, ..sent.clone() },
        Datagram { to: (IpAddr::from([192, 0, 2, 1]), 0), ..sent },
    ] {
        assert_eq!(here.send(&wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn of_icmpv6_the_kernel_computes_the_checksum_and_only_wanted_types_come() {
    let Some((left, right)) = pair("ic") else { return };
    let there = right.run(|| RawSocket::icmpv6(&[SOLICITATION, 200]).unwrap()).unwrap();
    let here = left.run(|| RawSocket::icmpv6(&[]).unwrap()).unwrap();
    for kind in [ECHO, 201, 200] {
        here.send(&message(ICMPV6, RIGHT, &[kind, 0, 0, 0, 1, 2, 3, 4])).unwrap();
    }
    let came = receive(&there, SOON).unwrap();
    assert_eq!((came.bytes[0], came.hop_limit), (200, 77));
    assert_eq!((came.bytes.len(), &came.bytes[4..]), (8, &[1, 2, 3, 4][..]));
    assert_ne!(came.bytes[2..4], [0, 0], "the checksum");
    assert_eq!(receive(&there, NOTHING), None);
}

#[test]
fn what_is_sent_to_a_group_comes_from_the_interfaces_where_it_was_joined() {
    let Some((left, right)) = pair("gr") else { return };
    let mut there = right.run(|| RawSocket::icmpv6(&[SOLICITATION]).unwrap()).unwrap();
    let here = left.run(|| RawSocket::icmpv6(&[SOLICITATION]).unwrap()).unwrap();
    let (interface, way) = (index(&right, "sgr1"), index(&left, "sgr0"));
    let proxied = solicited_node(ip("fd61:78::77:1234"));
    let say = |group: Ipv6Addr, last: u8| {
        let bytes = [SOLICITATION, 0, 0, 0, 0, 0, 0, last];
        let sent = message(ICMPV6, &group.to_string(), &bytes);
        here.send(&Datagram { interface: Some(way), hop_limit: 255, ..sent }).unwrap();
    };
    let said =
        |came: Option<Datagram>| came.map(|d| (d.to.0, d.bytes[7], d.interface, d.hop_limit));
    let (routers, nodes) = (ip(ALL_ROUTERS), ip("ff02::1"));
    // Every node is in the all-nodes group.
    for (group, last) in [(routers, 1), (proxied, 2), (nodes, 3)] {
        say(group, last);
    }
    assert_eq!(said(receive(&there, SOON)), Some((nodes.into(), 3, Some(interface), 255)));
    for group in [routers, proxied] {
        right.run(|| there.join(group, interface).unwrap()).unwrap();
        right.run(|| there.join(group, interface).unwrap()).unwrap();
        say(group, 4);
        assert_eq!(said(receive(&there, SOON)), Some((group.into(), 4, Some(interface), 255)));
    }
    there.leave(routers, interface);
    there.keep(&[].into());
    for (group, last) in [(routers, 5), (proxied, 6), (nodes, 7)] {
        say(group, last);
    }
    assert_eq!(said(receive(&there, SOON)).map(|came| came.1), Some(7), "it has left both");
    assert!(right.run(|| there.join(routers, 9999)).unwrap().is_err(), "there is no interface");
    assert_eq!(receive(&here, NOTHING), None, "what it said to the group itself");
}

#[test]
fn a_policy_for_mobility_headers_stops_them_and_nothing_else() {
    let Some((left, right)) = pair("po") else { return };
    let policy = |ns: &Netns, words: &str| {
        let words = format!("xfrm policy {words}");
        ns.command("ip").args(words.split_whitespace()).status().unwrap().success()
    };
    let outward = format!("src {LEFT} dst {RIGHT} proto 135 dir out");
    if !policy(&left, &format!("add {outward} action block")) {
        println!("skipped: this kernel has no IPsec policies");
        return;
    }
    let there = right.run(|| RawSocket::mobility().unwrap()).unwrap();
    let icmp_there = right.run(|| RawSocket::icmpv6(&[200]).unwrap()).unwrap();
    let mut here = left.run(|| RawSocket::mobility().unwrap()).unwrap();
    let icmp = left.run(|| RawSocket::icmpv6(&[]).unwrap()).unwrap();
    let update = message(MOBILITY, RIGHT, &UPDATE);
    let padding = Extension { protocol: 60, bytes: &[0, 0, 1, 4, 0, 0, 0, 0] };
    let sent = here.send(&update);
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::PermissionDenied);
    let sent = left.run(|| here.send_behind(&[padding], &update)).unwrap();
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::PermissionDenied);
    icmp.send(&message(ICMPV6, RIGHT, &[200, 0, 0, 0])).unwrap();
    assert!(receive(&icmp_there, SOON).is_some());
    assert!(policy(&left, &format!("delete {outward}")));
    here.send(&update).unwrap();
    left.run(|| here.send_behind(&[padding], &update).unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&there, SOON).unwrap().bytes, UPDATE);
    }
    // The same for received packets.
    assert!(policy(&right, &format!("add src {LEFT} dst {RIGHT} proto 135 dir in action block")));
    here.send(&update).unwrap();
    icmp.send(&message(ICMPV6, RIGHT, &[200, 0, 0, 0])).unwrap();
    assert!(receive(&icmp_there, SOON).is_some());
    assert_eq!(receive(&there, NOTHING), None);
}

/// Home Address option (RFC 6275, 6.3) and type 2 routing header (6.4) around a Mobility Header, as tshark parses them.
#[test]
fn headers_with_home_addresses_stand_before_the_message_on_the_wire() {
    let Some((left, right)) = pair("ha") else { return };
    let mut here = left.run(|| RawSocket::mobility().unwrap()).unwrap();
    let mut wire = right.run(|| PacketSocket::open("sgr1").unwrap()).unwrap();
    let home = [ip("2001:db8:1::aaaa"), ip("2001:db8:1::bbbb")];
    let mut options = vec![0, 2, 1, 2, 0, 0, 201, 16];
    options.extend(home[0].octets());
    let mut routing = vec![0, 2, 2, 1, 0, 0, 0, 0];
    routing.extend(home[1].octets());
    let headers =
        [Extension { protocol: 43, bytes: &routing }, Extension { protocol: 60, bytes: &options }];
    let update = message(MOBILITY, RIGHT, &UPDATE);
    left.run(|| here.send_behind(&headers, &update).unwrap()).unwrap();
    let mut frame = [0; 2048];
    let until = Instant::now() + SOON;
    let len = loop {
        assert!(Instant::now() < until, "nothing on the wire");
        match wire.receive(&mut frame).unwrap() {
            // Skips the kernel's neighbour discovery.
            Some(received) if frame[20] == 43 => break received.len,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let packet = &frame[14..len];
    assert_eq!(packet[packet.len() - UPDATE.len()..], UPDATE, "with the sender's checksum");
    assert_eq!((packet[7], packet.len()), (77, 40 + 24 + 24 + UPDATE.len()));
    let from = (Ipv6Addr::UNSPECIFIED.into(), 0);
    let sent = left.run(|| here.send_behind(&headers, &Datagram { from, ..update.clone() }));
    assert_eq!(sent.unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    let long = Datagram { bytes: vec![0; 1500], ..update.clone() };
    let sent = left.run(|| here.send_behind(&headers, &long)).unwrap();
    assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    let read = tshark(&frame[..len]);
    let Some(read) = read else { return println!("skipped: needs tshark") };
    let (options, routing) = (home[0].to_string(), home[1].to_string());
    assert_eq!(read, [LEFT, RIGHT, &options, &routing, "5"]);
}

/// Source and destination, home addresses of option and routing header, and message type of one frame.
fn tshark(frame: &[u8]) -> Option<Vec<String>> {
    let mut capture = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1, 0, 0] {
        capture.extend(word.to_le_bytes());
    }
    capture.extend([frame.len() as u32; 2].iter().flat_map(|len| len.to_le_bytes()));
    capture.extend(frame);
    let path = std::env::temp_dir().join(format!("segue-raw-{}.pcap", std::process::id()));
    std::fs::write(&path, capture).unwrap();
    let fields = [
        "ipv6.src",
        "ipv6.dst",
        "ipv6.opt.mipv6.home_address",
        "ipv6.routing.mipv6.home_address",
        "mip6.mhtype",
    ];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let mut command = Command::new("tshark");
    let command = command.arg("-r").arg(&path).args(["-T", "fields", "-E", "occurrence=f"]);
    let output = command.args(fields).output();
    std::fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.ok()?.stdout).unwrap();
    Some(text.trim().split('\t').map(str::to_owned).collect())
}
