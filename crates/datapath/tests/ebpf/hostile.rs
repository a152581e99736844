//! Packets that must not get through, and packets that may change an anchor's state.

use std::net::{SocketAddr, UdpSocket};

use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_datapath::{Datapath, LinuxDatapath, ProbeKind, ProbeOrder};
use segue_wire::flow::Inner;
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey, Size};

use crate::forward::tunnelled;
use crate::world::{
    End, Family, KEY, OWNER, PORT, Wire, World, anchor_slot, eventually, host_slot, may_run,
};

fn request_header() -> Header {
    Header::new(PacketType::Request, 3, anchor_slot(0), 0xa000)
}

pub(crate) fn request(seq: u32) -> [u8; Probe::PACKET_LEN] {
    Probe { seq, ..Probe::default() }.seal(&request_header(), &KEY)
}

/// A socket in the host's namespace that acts as an attacker on the wire.
pub(crate) fn stranger(world: &World, port: u16) -> UdpSocket {
    let local = SocketAddr::new(world.outer.outer(0, 1), port);
    let socket = world.host.ns.run(|| UdpSocket::bind(local)).unwrap().unwrap();
    socket.connect(SocketAddr::new(world.outer.outer(0, 2), PORT)).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    socket
}

/// The wire crate's verdict on a packet that arrives at the anchor for path 0.
fn verdict(bytes: &[u8]) -> DropReason {
    let header = match Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => return error.into(),
    };
    if header.index != anchor_slot(0) {
        return DropReason::UnknownIndex;
    }
    if header.cookie != 0xa000 {
        return DropReason::Cookie;
    }
    match header.packet_type {
        PacketType::Data => Inner::parse(&bytes[Header::LEN..]).expect_err("it was spoilt"),
        PacketType::Response | PacketType::Ride => DropReason::Type,
        PacketType::Request => Probe::open(bytes, &KEY).expect_err("it was spoilt").into(),
        PacketType::Size => Size::open(bytes, &KEY, true).expect_err("it was spoilt").into(),
    }
}

#[test]
fn every_spoilt_request_is_counted_by_its_reason_and_changes_nothing() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::ready(outer, Wire::Whole, 1, EbpfOptions::default());
        let socket = stranger(&world, 6000);
        let good = request(9);
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
        bad.push([&good[..], &[0]].concat());
        bad.push(
            Probe { seq: 9, ..Probe::default() }.seal(&request_header(), &ProbeKey([1; 16])).into(),
        );
        for bit in 0..good.len() * 8 {
            let mut flipped = good;
            flipped[bit / 8] ^= 1 << (bit % 8);
            bad.push(flipped.into());
        }
        let before = world.anchor.counters(anchor_slot(0));
        for packet in &bad {
            socket.send(packet).unwrap();
        }
        let mut expected = std::collections::BTreeMap::new();
        for packet in &bad {
            *expected.entry(verdict(packet)).or_insert(0) += 1;
        }
        let mut found = Default::default();
        eventually("all drops", || {
            found = world.anchor.datapath.lock().unwrap().drops();
            found.values().sum::<u64>() >= bad.len() as u64
        });
        assert_eq!(found, expected);
        let after = world.anchor.counters(anchor_slot(0));
        assert_eq!(after.remote, before.remote);
        assert_eq!((after.tx_packets, after.rx_bytes), (before.tx_packets, before.rx_bytes));
        assert!(world.anchor.probes.lock().unwrap().iter().all(|e| e.arrival.probe.seq == 1));
        // None of them used up a number: a lower number than theirs is still accepted.
        world.probe(0, 2);
    }
}

#[test]
fn a_replayed_request_is_not_answered_and_a_fresh_one_moves_the_endpoint_once_it_echoes() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::ready(outer, Wire::Whole, 1, EbpfOptions::default());
        let remote = || world.anchor.counters(anchor_slot(0)).remote.unwrap();
        let before = remote();
        let replays = stranger(&world, 6001);
        for seq in [1, 0, 1u32.wrapping_sub(1 << 30)] {
            replays.send(&request(seq)).unwrap();
        }
        eventually("three replays", || world.anchor.dropped(DropReason::Replay) == 3);
        let data = stranger(&world, 6002);
        let header = Header { packet_type: PacketType::Data, k: 0, ..request_header() };
        data.send(&[&header.emit()[..], &[0x45; 40]].concat()).unwrap();
        eventually("the data packet", || world.anchor.dropped(DropReason::InnerPacket) == 1);
        assert_eq!(remote(), before);

        let rebound = stranger(&world, 6003);
        rebound.send(&request(2)).unwrap();
        let mut bytes = [0; 100];
        let n = rebound.recv(&mut bytes).unwrap();
        let answer = Probe::open(&bytes[..n], &KEY).unwrap();
        let head = Header::parse(&bytes).unwrap();
        assert_eq!((answer.seq, head.packet_type), (2, PacketType::Response));
        assert_eq!((head.index, head.cookie), (host_slot(0), 0xb000));
        assert_eq!(remote(), before, "its source has not shown that it receives");
        // An unsolicited response goes to the source that has echoed.
        let probe = Probe { seq: 70, ..Probe::default() };
        let order = ProbeOrder::plain(anchor_slot(0), ProbeKind::Unsolicited, 4, probe);
        world.anchor.datapath.lock().unwrap().send_probes(&[order]).unwrap();
        world
            .host
            .wait_for_probe(|e| e.kind == ProbeKind::Unsolicited && e.arrival.probe.seq == 70);
        let echo = Probe { seq: 3, t_ss: answer.t_ss, ..Probe::default() };
        rebound.send(&echo.seal(&request_header(), &KEY)).unwrap();
        rebound.recv(&mut bytes).unwrap();
        assert_eq!(remote(), rebound.local_addr().unwrap());
        assert_eq!(world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 3).remote, remote());
    }
}

/// Packets of others, as a bridge port or a device in promiscuous mode receives them.
#[test]
fn what_is_to_another_hardware_address_is_not_taken() {
    if !may_run() {
        return;
    }
    for (outer, xdp) in Family::BOTH.into_iter().flat_map(|f| [(f, Xdp::On), (f, Xdp::Off)]) {
        let options = EbpfOptions { xdp, ..EbpfOptions::default() };
        let world = World::ready(outer, Wire::Whole, 1, options);
        let ip = |end: &End, arguments: &str| {
            let status = end.ns.command("ip").args(arguments.split(' ')).status().unwrap();
            assert!(status.success(), "ip {arguments}");
        };
        ip(&world.anchor, "link set sg0 promisc on");
        let to = outer.outer(0, 2);
        let before = world.anchor.counters(anchor_slot(0));
        let neighbour =
            format!("neigh replace {to} lladdr 02:00:00:00:5e:99 dev sg0 nud permanent");
        ip(&world.host, &neighbour);
        let stray = stranger(&world, 6000);
        stray.send(&tunnelled(9, 0)).unwrap();
        stray.send(&request(2)).unwrap();
        world.order(0, 2);
        ip(&world.host, &format!("neigh del {to} dev sg0"));
        let own = stranger(&world, 6001);
        own.send(&tunnelled(9, 0)).unwrap();
        world.probe(0, 3);
        let after = world.anchor.counters(anchor_slot(0));
        // Only the last two.
        assert_eq!(after.rx_packets, before.rx_packets + 2, "{outer:?} {xdp:?}");
        assert!(world.host.probes.lock().unwrap().iter().all(|e| e.arrival.probe.seq != 2));
    }
}

#[test]
fn responses_are_right_also_where_checksums_are_complete_on_the_wire() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::new(outer, Wire::NoChecksum, 1, EbpfOptions::default());
        let socket = stranger(&world, 6000);
        socket.send(&request(1)).unwrap();
        let mut bytes = [0; 100];
        let n = socket.recv(&mut bytes).unwrap();
        assert_eq!(Probe::open(&bytes[..n], &KEY).unwrap().seq, 1);
    }
}

#[test]
fn an_ordinary_socket_accepts_the_probes_and_their_checksum() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::new(outer, Wire::NoChecksum, 1, EbpfOptions::default());
        let ifindex = world.anchor.ifindex(0);
        let at = SocketAddr::new(outer.outer(0, 2), PORT);
        let socket = world.anchor.ns.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        world.anchor.datapath.lock().unwrap().detach(ifindex);
        world.order(0, 1);
        let mut bytes = [0; 100];
        let (n, from) = socket.recv_from(&mut bytes).unwrap();
        let probe = Probe::open(&bytes[..n], &KEY).unwrap();
        assert_eq!((probe.seq, probe.sc, probe.t_ka_ms, probe.heard), (1, 1, 200, 3));
        assert_eq!(from, world.host_path(0).local.unwrap());
        assert_eq!(Header::parse(&bytes).unwrap(), request_header());
    }
}

#[test]
fn unsolicited_responses_reach_the_host_once() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V6, Wire::Whole, 1, EbpfOptions::default());
    let probe = Probe { seq: 77, ..Probe::default() };
    world.anchor.datapath.lock().unwrap().set_heard(&[anchor_slot(0)], 2);
    let order = ProbeOrder::plain(anchor_slot(0), ProbeKind::Unsolicited, 4, probe);
    world.anchor.datapath.lock().unwrap().send_probes(&[order, order]).unwrap();
    let seen = world.host.wait_for_probe(|e| e.kind == ProbeKind::Unsolicited);
    assert_eq!(
        (seen.arrival.probe.seq, seen.arrival.probe.ss, seen.arrival.probe.r, seen.k),
        (77, 2, 1, 4)
    );
    assert_eq!(seen.arrival.probe.heard, 2);
    eventually("refusal of the copy", || world.host.dropped(DropReason::Replay) == 1);
}

#[test]
fn inner_addresses_that_are_not_the_hosts_are_refused_at_both_ends() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    for (inner, foreign, own) in
        [(Family::V4, "10.8.0.9", "10.8.0.2"), (Family::V6, "fd08::9", "fd08::2")]
    {
        let foreign: std::net::IpAddr = foreign.parse().unwrap();
        let own: std::net::IpAddr = own.parse().unwrap();
        let spoof = world.host.ns.run(|| {
            let len = if inner == Family::V4 { 32 } else { 128 };
            segue_linux::link::add_address("segue0", segue_ip::Prefix::new(foreign, len)).unwrap();
            UdpSocket::bind((foreign, 0)).unwrap()
        });
        let before = world.anchor.dropped(DropReason::InnerSource);
        spoof.unwrap().send_to(b"spoofed", (own, 9)).unwrap();
        eventually("refusal", || world.anchor.dropped(DropReason::InnerSource) == before + 1);

        let sender = world.anchor.ns.run(|| UdpSocket::bind((own, 0))).unwrap().unwrap();
        let before = world.anchor.dropped(DropReason::NoHost);
        sender.send_to(b"to nobody", (foreign, 9)).unwrap();
        eventually("no host", || world.anchor.dropped(DropReason::NoHost) == before + 1);
        let entry = OWNER;
        world.anchor.datapath.lock().unwrap().set_inner(foreign, entry).unwrap();
        let before = world.host.dropped(DropReason::InnerDestination);
        sender.send_to(b"misled", (foreign, 9)).unwrap();
        let refused = || world.host.dropped(DropReason::InnerDestination) == before + 1;
        eventually("refusal at the host", refused);
    }
}
