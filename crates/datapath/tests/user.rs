//! The user-space datapath between two network namespaces. Needs root; otherwise prints a note and
//! passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod user_lab;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_datapath::{
    Datapath, LinuxDatapath, PathCounters, PathSetup, ProbeKind, ProbeOrder, Via,
};
use segue_ip::Prefix;
use segue_linux::clock::monotonic;
use segue_linux::link;
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, HOST_COOKIE, HOST_DEVICE, HOST_SLOT, KEY, Lab, Offloads, PORT,
    anchor_config, expect_probe, host_config, inner, outer, skipped, wait_for,
};

const BULK_BYTES: usize = 4 << 20;

#[test]
fn every_pair_of_families_carries_tcp_udp_and_udp_gso_with_offloads_whole() {
    four_pairs(Offloads::Whole);
}

#[test]
fn every_pair_of_families_carries_tcp_udp_and_udp_gso_without_gso() {
    four_pairs(Offloads::NoGso);
}

#[test]
fn every_pair_of_families_carries_tcp_udp_and_udp_gso_without_checksum_offload() {
    four_pairs(Offloads::NoChecksum);
}

fn four_pairs(offloads: Offloads) {
    if skipped() {
        return;
    }
    for outer_v6 in [false, true] {
        let lab = Lab::new(outer_v6, offloads);
        for inner_v6 in [false, true] {
            let what = format!("outer v6 {outer_v6}, inner v6 {inner_v6}, {offloads:?}");
            tcp_both_ways(&lab, inner(inner_v6, 2), &what);
            udp_echo(&lab, inner_v6, &what);
            udp_gso(&lab, inner_v6, &what);
        }
        let ((packets, bytes), _) = lab.settled_counters();
        // Segments are counted, not the super-packets in which they left.
        assert!(u64::from(packets) * 1500 > bytes, "{packets} packets, {bytes} bytes");
        assert!(bytes as usize > 2 * BULK_BYTES);
        for reason in
            [DropReason::Decapsulation, DropReason::Encapsulation, DropReason::InnerPacket]
        {
            assert_eq!((lab.host.drops(reason), lab.anchor.drops(reason)), (0, 0), "{reason}");
        }
    }
}

#[test]
fn vxlan_over_the_tunnel_carries_tcp() {
    if skipped() {
        return;
    }
    for offloads in [Offloads::Whole, Offloads::NoGso, Offloads::NoChecksum] {
        let lab = Lab::new(false, offloads);
        for (end, own, other) in [(&lab.host, 1u8, 2u8), (&lab.anchor, 2, 1)] {
            let (local, remote) = (inner(false, own).to_string(), inner(false, other).to_string());
            let args = format!(
                "link add sgvx0 type vxlan id 9 local {local} remote {remote} dstport 4789 dev segue0"
            );
            assert!(end.ns.command("ip").args(args.split(' ')).status().unwrap().success());
            end.ns
                .run(|| {
                    let address = IpAddr::from([10, 77, 0, own]);
                    link::set_mtu("sgvx0", 1400).unwrap();
                    link::add_address("sgvx0", Prefix::new(address, 24)).unwrap();
                    link::set_up("sgvx0", true).unwrap();
                })
                .unwrap();
        }
        tcp_both_ways(&lab, IpAddr::from([10, 77, 0, 2]), &format!("VXLAN, {offloads:?}"));
        lab.settled_counters();
    }
}

#[test]
fn the_first_packets_of_a_flow_wait_for_the_decision_and_arrive_in_order() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    lab.host.slot.store(u32::MAX, Ordering::Release);
    let receiver = lab.anchor.ns.run(|| bind(inner(false, 2))).unwrap();
    let sender = lab.host.ns.run(|| bind(inner(false, 1))).unwrap();
    let before = lab.host.misses.load(Ordering::Relaxed);
    for n in 0..10u8 {
        sender.send_to(&[n; 100], receiver.local_addr().unwrap()).unwrap();
    }
    wait_for("a miss", || lab.host.misses.load(Ordering::Relaxed) > before);
    lab.host.slot.store(HOST_SLOT, Ordering::Release);
    let mut buffer = [0; 200];
    for n in 0..10u8 {
        let len = receiver.recv(&mut buffer).expect("a held packet is lost");
        assert_eq!(buffer[..len], [n; 100]);
    }
    let flows = lab.host.with(|u| u.flows());
    let port = sender.local_addr().unwrap().port();
    let flow = flows.iter().find(|f| f.key.sport == port).expect("the flow is bound");
    assert_eq!((flow.slot, flow.packets, flow.bytes), (HOST_SLOT, 10, 1280));
    // The anchor learned the return path from the packets.
    let back = lab.anchor.with(|u| u.flows());
    assert!(back.iter().any(|f| f.key == flow.key.reversed() && f.slot == ANCHOR_SLOT));
}

#[test]
fn a_probe_is_answered_with_stamps_and_counters_of_its_own_instant() {
    if skipped() {
        return;
    }
    for v6 in [false, true] {
        let lab = Lab::new(v6, Offloads::Whole);
        lab.anchor.with(|u| u.set_heard(&[ANCHOR_SLOT], 0x00a5));
        let (request, response) = lab.probe(2);
        assert_eq!((request.kind, request.slot, request.k), (ProbeKind::Request, ANCHOR_SLOT, 4));
        assert_eq!((response.kind, response.slot), (ProbeKind::Response, HOST_SLOT));
        let (q, r) = (request.arrival.probe, response.arrival.probe);
        assert_eq!((q.seq, q.heard, q.t_ka_ms), (2, 5, 200));
        assert_eq!((r.seq, r.t_sc, r.sc, r.heard), (2, q.t_sc, q.sc, 0x00a5));
        assert_eq!((q.sc, r.r, request.arrival.received), (r.sc, request.arrival.received, r.r));
        assert_eq!(r.r, q.sc, "nothing was lost on the way there");
        assert_eq!(response.arrival.received, r.ss, "nothing was lost on the way back");
        assert!(request.kernel_stamp && response.kernel_stamp);
        let sent_at = response.arrival.sent_at.expect("the kernel tells when the request left");
        assert!(
            sent_at < response.arrival.at && sent_at.micros32().wrapping_sub(q.t_sc) < 1_000_000
        );
        assert!(r.dt < 10_000_000 && r.t_ss.wrapping_sub(request.arrival.at.micros32()) == r.dt);

        let probe = Probe { seq: 9, heard: 1, ..Probe::default() };
        let kind = ProbeKind::Unsolicited;
        let held_since = request.arrival.at.micros32();
        let order = ProbeOrder { held_since, ..ProbeOrder::plain(ANCHOR_SLOT, kind, 4, probe) };
        lab.anchor.with(|u| u.send_probes(&[order]).unwrap());
        let event = expect_probe(&lab.host.probes, "unsolicited response");
        assert_eq!((event.kind, event.arrival.sent_at), (ProbeKind::Unsolicited, None));
        assert_eq!((event.arrival.probe.seq, event.arrival.probe.heard), (9, 0x00a5));
        assert_eq!(event.arrival.probe.t_ss.wrapping_sub(held_since), event.arrival.probe.dt);
        assert_eq!((event.arrival.probe.ss, event.arrival.probe.r), (event.arrival.received, q.sc));
    }
}

#[test]
fn what_is_wrong_is_counted_by_its_reason_and_changes_nothing() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    let socket = lab.host.ns.run(|| bind(outer(false, 1))).unwrap();
    let to = SocketAddr::new(outer(false, 2), PORT);
    let request = |cookie, key: &ProbeKey, seq| {
        let header = header(PacketType::Request, ANCHOR_SLOT, cookie);
        Probe { seq, ..Probe::default() }.seal(&header, key).to_vec()
    };
    let data = |index, cookie, source: [u8; 4]| {
        let mut bytes = header(PacketType::Data, index, cookie).emit().to_vec();
        bytes.extend(datagram(source, [10, 9, 0, 2]));
        bytes
    };
    let good = data(ANCHOR_SLOT, ANCHOR_COOKIE, [10, 9, 0, 1]);
    let with = |i: usize, v: u8| {
        let mut bytes = good.clone();
        bytes[i] = v;
        bytes
    };
    let ordered = request(ANCHOR_COOKIE, &KEY, 1);
    let cases = [
        (DropReason::Truncated, vec![]),
        (DropReason::Truncated, good[..15].to_vec()),
        (DropReason::Truncated, ordered[..55].to_vec()),
        (DropReason::Version, with(0, 0x20)),
        (DropReason::Type, with(0, 0x11)),
        (
            DropReason::Type,
            Probe::default()
                .seal(&header(PacketType::Response, ANCHOR_SLOT, ANCHOR_COOKIE), &KEY)
                .to_vec(),
        ),
        (DropReason::Field, with(1, 0x80)),
        (DropReason::UnknownIndex, data(9, ANCHOR_COOKIE, [10, 9, 0, 1])),
        (DropReason::UnknownIndex, data(u32::MAX, ANCHOR_COOKIE, [10, 9, 0, 1])),
        (DropReason::Cookie, data(ANCHOR_SLOT, HOST_COOKIE, [10, 9, 0, 1])),
        (DropReason::Cookie, request(HOST_COOKIE, &KEY, 5)),
        (DropReason::Mac, request(ANCHOR_COOKIE, &ProbeKey([8; 16]), 5)),
        (DropReason::Replay, ordered.clone()),
        (DropReason::Replay, request(ANCHOR_COOKIE, &KEY, 0x8000_0002)),
        (DropReason::InnerSource, data(ANCHOR_SLOT, ANCHOR_COOKIE, [10, 9, 0, 7])),
        (DropReason::InnerPacket, good[..30].to_vec()),
        (DropReason::InnerPacket, with(16, 0x55)),
    ];
    let before = lab.anchor.with(|u| (u.counters(ANCHOR_SLOT), u.flows()));
    for (n, (reason, bytes)) in cases.iter().enumerate() {
        let counted = lab.anchor.with(|u| u.drops());
        socket.send_to(bytes, to).unwrap();
        wait_for(&format!("case {n}: {reason}"), || {
            lab.anchor.drops(*reason) == counted.get(reason).copied().unwrap_or(0) + 1
        });
    }
    for bit in 0..ordered.len() * 8 {
        let mut bytes = request(ANCHOR_COOKIE, &KEY, 2);
        bytes[bit / 8] ^= 1 << (bit % 8);
        socket.send_to(&bytes, to).unwrap();
    }
    let refused = (cases.len() + ordered.len() * 8) as u64;
    let total = || lab.anchor.with(|u| u.drops()).values().sum::<u64>();
    wait_for("every flipped bit counted", || total() == refused);
    // A packet whose inner packet is refused has still arrived, and is counted.
    let inner = [DropReason::InnerSource, DropReason::InnerPacket].map(|r| lab.anchor.drops(r));
    let rx_packets = before.0.rx_packets + inner.iter().sum::<u64>() as u32;
    let rx_bytes = before.0.rx_bytes + (good.len() - Header::LEN) as u64; // of the foreign source
    let counters = PathCounters { rx_packets, rx_bytes, ..before.0 };
    assert_eq!(lab.anchor.with(|u| (u.counters(ANCHOR_SLOT), u.flows())), (counters, before.1));
    assert!(lab.anchor.probes.lock().unwrap().try_recv().is_err(), "no refused probe is reported");
    assert_eq!(lab.probe(2).0.arrival.received, rx_packets + 1);
}

#[test]
fn a_host_refuses_inner_packets_that_are_not_for_it() {
    if skipped() {
        return;
    }
    let lab = Lab::new(true, Offloads::Whole);
    let socket = lab.anchor.ns.run(|| bind(outer(true, 2))).unwrap();
    let to = SocketAddr::new(outer(true, 1), PORT);
    let mut bytes = header(PacketType::Data, HOST_SLOT, HOST_COOKIE).emit().to_vec();
    bytes.extend(datagram([10, 9, 0, 2], [10, 9, 0, 9]));
    let before = lab.host.with(|u| u.counters(HOST_SLOT));
    socket.send_to(&bytes, to).unwrap();
    wait_for("the refusal", || lab.host.drops(DropReason::InnerDestination) == 1);
    let rx_bytes = before.rx_bytes + (bytes.len() - Header::LEN) as u64;
    let counters = PathCounters { rx_packets: before.rx_packets + 1, rx_bytes, ..before };
    assert_eq!(lab.host.with(|u| u.counters(HOST_SLOT)), counters);
}

#[test]
fn a_tunnel_packet_without_an_outer_checksum_is_taken_over_both_families() {
    if skipped() {
        return;
    }
    for v6 in [false, true] {
        let lab = Lab::new(v6, Offloads::Whole);
        let socket = lab.host.ns.run(|| bind(outer(v6, 1))).unwrap();
        // UDP_NO_CHECK6_TX of linux/udp.h.
        let (level, name) =
            if v6 { (libc::SOL_UDP, 101) } else { (libc::SOL_SOCKET, libc::SO_NO_CHECK) };
        let one = 1i32;
        // SAFETY: the value is an int, its size is given.
        let set = unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const one).cast(), 4)
        };
        assert_eq!(set, 0);
        let packets = lab.anchor.with(|u| u.counters(ANCHOR_SLOT).rx_packets);
        let mut bytes = header(PacketType::Data, ANCHOR_SLOT, ANCHOR_COOKIE).emit().to_vec();
        bytes.extend(datagram([10, 9, 0, 1], [10, 9, 0, 2]));
        socket.send_to(&bytes, SocketAddr::new(outer(v6, 2), PORT)).unwrap();
        wait_for("the packet", || {
            lab.anchor.with(|u| u.counters(ANCHOR_SLOT).rx_packets) == packets + 1
        });
    }
}

#[test]
fn probes_under_load_count_with_the_data_and_are_all_answered() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| tcp_both_ways(&lab, inner(false, 2), "under probes"));
        let mut seq = 1;
        let mut sent = 0;
        while !bulk.is_finished() || seq < 20 {
            seq += 1;
            let (request, response) = lab.probe(seq);
            assert_eq!((request.arrival.probe.seq, response.arrival.probe.seq), (seq, seq));
            assert!(request.arrival.probe.sc > sent && response.arrival.probe.ss > 0);
            sent = request.arrival.probe.sc;
        }
    });
    let ((up, _), (down, _)) = lab.settled_counters();
    assert!(up as usize > BULK_BYTES / 1500 && down as usize > BULK_BYTES / 1500);
}

#[test]
fn a_new_outer_source_is_learned_from_a_valid_probe_with_its_echo_only() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    let rebound = lab.host.ns.run(|| bind(outer(false, 1))).unwrap();
    let to = SocketAddr::new(outer(false, 2), PORT);
    let remote = || lab.anchor.with(|u| u.counters(ANCHOR_SLOT).remote);
    let old = Some(SocketAddr::new(outer(false, 1), PORT));
    assert_eq!(remote(), old);
    // Data with a correct cookie are accepted, but do not move the path.
    let packets = lab.anchor.with(|u| u.counters(ANCHOR_SLOT).rx_packets);
    let mut data = header(PacketType::Data, ANCHOR_SLOT, ANCHOR_COOKIE).emit().to_vec();
    data.extend(datagram([10, 9, 0, 1], [10, 9, 0, 2]));
    rebound.send_to(&data, to).unwrap();
    wait_for("data", || lab.anchor.with(|u| u.counters(ANCHOR_SLOT).rx_packets) == packets + 1);
    assert_eq!(remote(), old);
    let head = header(PacketType::Request, ANCHOR_SLOT, ANCHOR_COOKIE);
    let ask = |seq, t_ss| {
        let probe = Probe { seq, t_ss, ..Probe::default() };
        rebound.send_to(&probe.seal(&head, &KEY), to).unwrap();
        expect_probe(&lab.anchor.probes, "request");
        let mut buffer = [0; 100];
        let (len, from) = rebound.recv_from(&mut buffer).expect("answered where it came from");
        assert_eq!((len, from), (Probe::PACKET_LEN, to));
        Probe::open(&buffer[..len], &KEY).unwrap().t_ss
    };
    let challenge = ask(2, 0);
    // Not a stamp: it lies ahead of the clock, where a round-trip time would be negative.
    assert!(challenge.wrapping_sub(monotonic().micros32()) < 1 << 31);
    for (seq, guess) in [(3, challenge.wrapping_add(1)), (4, monotonic().micros32()), (5, 0)] {
        assert_eq!(ask(seq, guess), challenge);
        assert_eq!(remote(), old);
    }
    std::thread::sleep(Duration::from_millis(5)); // after a few tries, earlier echoes are not compared
    let stamp = ask(6, challenge);
    assert_eq!(remote(), Some(rebound.local_addr().unwrap()));
    assert!(monotonic().micros32().wrapping_sub(stamp) < 1 << 30, "a stamp again");
    // A configuration with the same cookies keeps what was learned; one with different cookies does
    // not.
    lab.anchor.with(|u| u.set_path(ANCHOR_SLOT, &anchor_config()).unwrap());
    assert_eq!(remote(), Some(rebound.local_addr().unwrap()));
    let other = PathSetup { rx_cookie: 1, ..anchor_config() };
    lab.anchor.with(|u| u.set_path(ANCHOR_SLOT, &other).unwrap());
    assert_eq!(remote(), None);
}

#[test]
fn a_detour_takes_all_flows_and_one_way_does_not_teach_the_other_end() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    let second = |config: PathSetup, tx_index| PathSetup { tx_index, ..config };
    lab.set_host_path(HOST_SLOT + 1, &second(host_config(true), ANCHOR_SLOT + 1));
    lab.anchor.with(|u| {
        u.set_path(ANCHOR_SLOT + 1, &second(anchor_config(), HOST_SLOT + 1)).unwrap();
    });
    lab.order(HOST_SLOT + 1, 1);
    expect_probe(&lab.anchor.probes, "request on the second path");
    let receiver = lab.anchor.ns.run(|| bind(inner(false, 2))).unwrap();
    let sender = lab.host.ns.run(|| bind(inner(false, 1))).unwrap();
    let to = receiver.local_addr().unwrap();
    let mut buffer = [0; 100];
    let mut exchange = || {
        sender.send_to(b"there", to).unwrap();
        receiver.recv(&mut buffer).expect("the datagram arrives");
        let flows = lab.anchor.with(|u| u.flows());
        flows.iter().find(|f| f.key.sport == to.port()).expect("learned").slot
    };
    assert_eq!(exchange(), ANCHOR_SLOT);
    let sent = || lab.host.with(|u| u.counters(HOST_SLOT + 1).tx_packets);
    let before = sent();
    let via = |one_way| Some(Via { slot: HOST_SLOT + 1, one_way });
    lab.host.with(|u| u.set_via(HOST_SLOT, via(true)).unwrap());
    assert_eq!((exchange(), sent()), (ANCHOR_SLOT, before + 1));
    lab.host.with(|u| u.set_via(HOST_SLOT, via(false)).unwrap());
    assert_eq!((exchange(), sent()), (ANCHOR_SLOT + 1, before + 2));
    lab.host.with(|u| u.set_via(HOST_SLOT, None).unwrap());
    assert_eq!((exchange(), sent()), (ANCHOR_SLOT, before + 2));
    lab.host.with(|u| u.remove_path(HOST_SLOT));
    let misses = lab.host.misses.load(Ordering::Relaxed);
    lab.host.slot.store(HOST_SLOT + 1, Ordering::Release);
    assert_eq!((exchange(), sent()), (ANCHOR_SLOT + 1, before + 3));
    assert_eq!(lab.host.misses.load(Ordering::Relaxed), misses + 1);
}

#[test]
fn a_dropped_datapath_leaves_no_device_behind() {
    if skipped() {
        return;
    }
    let lab = Lab::new(false, Offloads::Whole);
    let Lab { host, anchor, .. } = lab;
    let device = |end: &user_lab::End| end.ns.run(|| link::index_of("segue0").is_ok()).unwrap();
    assert!(device(&host) && device(&anchor));
    let ns = host.ns.name().unwrap().to_owned();
    let opened = segue_linux::netns::Netns::open(&ns).unwrap();
    drop(host);
    assert!(opened.run(|| link::index_of("segue0").is_err()).unwrap());
    assert!(opened.run(|| link::index_of(HOST_DEVICE).is_ok()).unwrap());
}

#[test]
fn everything_works_in_an_unprivileged_user_namespace() {
    if skipped() {
        return;
    }
    let tun = std::fs::metadata("/dev/net/tun").unwrap().permissions().mode();
    if tun & 0o006 != 0o006 {
        eprintln!(
            "skipped: /dev/net/tun is for its owner only here ({tun:o}); distributions give 666"
        );
        return;
    }
    // The user `nobody` may not be able to read the build directory.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("tests");
    // Copied by another process: a file that another test's child holds open for writing cannot be
    // executed.
    let mut copy = std::process::Command::new("cp");
    let copied = copy.arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    for path in [directory.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let tests = "every_pair_of_families_carries_tcp_udp_and_udp_gso_with_offloads_whole \
        a_probe_is_answered_with_stamps_and_counters_of_its_own_instant";
    let script = format!("mount -t tmpfs none /run && exec \"$0\" --exact {tests}");
    let user = "--reuid 65534 --regid 65534 --clear-groups unshare -U -r -n -m sh -c";
    let output = std::process::Command::new("setpriv")
        .args(user.split(' '))
        .arg(script)
        .arg(program)
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("unshare failed") {
        eprintln!("skipped: this kernel has no unprivileged user namespaces: {err}");
        return;
    }
    assert!(out.contains("2 passed"), "{out}{err}");
}

fn header(packet_type: PacketType, index: u32, cookie: u64) -> Header {
    Header::new(packet_type, 0, index, cookie)
}

/// An inner UDP datagram.
fn datagram(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ipv4(source, destination, 64)
        .udp(40_000, 40_001)
        .write(&mut bytes, b"payload")
        .unwrap();
    bytes
}

fn bind(address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Bytes that differ at every position, so that a misplaced packet is noticed.
fn bulk(seed: u64) -> Vec<u8> {
    let mut rng = segue_clock::Rng::new(seed);
    (0..BULK_BYTES / 8).flat_map(|_| rng.next_u64().to_ne_bytes()).collect()
}

/// Bulk data in both directions of one connection at once, compared byte by byte.
fn tcp_both_ways(lab: &Lab, server: IpAddr, what: &str) {
    let listener = lab.anchor.ns.run(|| TcpListener::bind((server, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let exchange = |mut stream: TcpStream, send: u64, expect: u64| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let writer = std::thread::spawn(move || stream.write_all(&bulk(send)));
        let mut got = vec![0; BULK_BYTES];
        reader.read_exact(&mut got).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(got == bulk(expect), "{what}: other bytes arrived");
        writer.join().unwrap().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(listener.accept().unwrap().0, 2, 1));
        let timeout = Duration::from_secs(10);
        let connect = || TcpStream::connect_timeout(&to, timeout);
        let stream = lab.host.ns.run(connect).unwrap().unwrap_or_else(|e| panic!("{what}: {e}"));
        exchange(stream, 1, 2);
    });
}

fn udp_echo(lab: &Lab, v6: bool, what: &str) {
    let server = lab.anchor.ns.run(|| bind(inner(v6, 2))).unwrap();
    let client = lab.host.ns.run(|| bind(inner(v6, 1))).unwrap();
    let mut buffer = [0; 2000];
    for len in [0, 1, 100, 1300] {
        let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
        client.send_to(&sent, server.local_addr().unwrap()).unwrap();
        let (got, from) = server.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
        server.send_to(&buffer[..got], from).unwrap();
        let got = client.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(buffer[..got], sent, "{what}");
    }
}

/// One send call with many datagrams, as in QUIC applications; each must arrive separately.
fn udp_gso(lab: &Lab, v6: bool, what: &str) {
    let server = lab.anchor.ns.run(|| bind(inner(v6, 2))).unwrap();
    let client = lab.host.ns.run(|| bind(inner(v6, 1))).unwrap();
    let to = server.local_addr().unwrap();
    nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::UdpGsoSegment, &1200).unwrap();
    let sent: Vec<u8> = (0..1200 * 20 + 700).map(|i| (i / 97) as u8).collect();
    client.send_to(&sent, to).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut buffer = [0; 2000];
    for chunk in sent.chunks(1200) {
        let got = server.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}, UDP GSO: {e}"));
        assert!(buffer[..got] == *chunk, "{what}: a datagram of {got} bytes differs");
    }
}

#[test]
fn the_inner_class_is_copied_out_and_congestion_on_the_way_is_carried_in() {
    if skipped() {
        return;
    }
    for outer_v6 in [false, true] {
        let lab = Lab::new(outer_v6, Offloads::Whole);
        let receiver = lab.anchor.ns.run(|| bind(inner(false, 2))).unwrap();
        set_int(&receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        let sender = lab.host.ns.run(|| bind(inner(false, 1))).unwrap();
        let capture = lab.anchor.ns.run(capture).unwrap();
        let to = receiver.local_addr().unwrap();
        // DSCP 46; not ECN-capable, ECT(0), and CE; then no class at all.
        for class in [0xb8, 0xba, 0xbb, 0] {
            set_int(&sender, libc::IPPROTO_IP, libc::IP_TOS, class.into());
            sender.send_to(b"classified", to).unwrap();
            assert_eq!(received_class(&receiver), class);
            assert_eq!(outer_class(&capture, outer(outer_v6, 1)), class);
        }
        let wire = lab.host.ns.run(|| bind(outer(outer_v6, 1))).unwrap();
        let (level, option) = if outer_v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        set_int(&wire, level, option, 3);
        let anchor = SocketAddr::new(outer(outer_v6, 2), PORT);
        wire.send_to(&tunnelled(to.port(), 0xb9), anchor).unwrap(); // ECT(1)
        assert_eq!(received_class(&receiver), 0xbb);
        wire.send_to(&tunnelled(to.port(), 0xb8), anchor).unwrap(); // not ECN-capable
        wait_for("the drop that stands for the mark", || {
            lab.anchor.drops(DropReason::Decapsulation) == 1
        });
    }
}

/// A data packet from the host with an inner datagram of the given class.
fn tunnelled(port: u16, class: u8) -> Vec<u8> {
    let header = Header::new(PacketType::Data, 0, ANCHOR_SLOT, ANCHOR_COOKIE);
    let (IpAddr::V4(from), IpAddr::V4(to)) = (inner(false, 1), inner(false, 2)) else {
        unreachable!("asked for IPv4");
    };
    let builder = etherparse::PacketBuilder::ipv4(from.octets(), to.octets(), 9).udp(4000, port);
    let mut packet = Vec::new();
    builder.write(&mut packet, b"marked").unwrap();
    let (mut ip, rest) = etherparse::Ipv4Header::from_slice(&packet).unwrap();
    ip.dscp = (class >> 2).try_into().unwrap();
    ip.ecn = (class & 3).try_into().unwrap();
    ip.header_checksum = ip.calc_header_checksum();
    let mut bytes = header.emit().to_vec();
    ip.write(&mut bytes).unwrap();
    bytes.extend(rest);
    bytes
}

/// A socket that receives every packet of the calling thread's namespace, from the IP header on.
fn capture() -> std::os::fd::OwnedFd {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).unwrap()
}

/// The class of the next UDP packet from `source`.
fn outer_class(capture: &std::os::fd::OwnedFd, source: IpAddr) -> u8 {
    use nix::sys::socket::{MsgFlags, recv};
    let mut bytes = [0; 2000];
    loop {
        let n = recv(capture.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
        let packet = &bytes[..n];
        match source {
            IpAddr::V4(a) if packet[0] >> 4 == 4 && packet[12..16] == a.octets() => {
                return packet[1];
            }
            IpAddr::V6(a)
                if packet[0] >> 4 == 6 && packet[6] == 17 && packet[8..24] == a.octets() =>
            {
                return packet[0] << 4 | packet[1] >> 4;
            }
            _ => {}
        }
    }
}

fn set_int(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    // SAFETY: these options read one int, which outlives the call.
    let set = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, 4)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn received_class(socket: &UdpSocket) -> u8 {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg};
    let mut bytes = [0; 16];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!(u8);
    let (fd, none) = (socket.as_raw_fd(), MsgFlags::empty());
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), none).unwrap();
    let class = message.cmsgs().unwrap().find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        _ => None,
    });
    class.expect("no class came along")
}
