//! Paths with UPMT's own packets in the user-space datapath. Tests that need root print a note and pass
//! without it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod user_lab;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use segue_clock::Span;
use segue_datapath::user::dry_run::DryRun;
use segue_datapath::{Datapath, PathSetup, ProbeKind, ProbeOrder, Role};
use segue_keepalive::Probing;
use segue_linux::link;
use segue_wire::upmt::{ProbePacket, Trailer};
use segue_wire::{DropReason, Encapsulation, Header, PacketType, Probe};
use user_lab::raw;
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, HOST_COOKIE, HOST_DEVICE, HOST_SLOT, Lab, Offloads, anchor_config,
    exchange, expect_probe, host_config, inner, skipped,
};

#[test]
fn packets_and_probes_pass_with_offloads_whole() {
    every_pair_of_families(Offloads::Whole);
}

#[test]
fn packets_and_probes_pass_without_gso() {
    every_pair_of_families(Offloads::NoGso);
}

#[test]
fn packets_and_probes_pass_without_checksum_offload() {
    every_pair_of_families(Offloads::NoChecksum);
}

fn every_pair_of_families(offloads: Offloads) {
    if skipped() {
        return;
    }
    for (outer_v6, rides) in [(false, false), (true, false), (false, true), (true, true)] {
        // As in user_rides.rs: nearly every packet of the host carries a request, and responses wait.
        let lab = upmt(outer_v6, offloads, rides, Span::from_millis(1));
        lab.anchor_probes_as(Probing { k: 9, ..probing(rides, Span::from_secs(10)) });
        for v6 in [false, true] {
            exchange(&lab, v6);
            transfer(&lab, v6);
        }
        if rides {
            let rode = |end: &user_lab::End, slot| end.with(|u| u.reading(slot)).unwrap().rode;
            let (up, down) = (rode(&lab.host, HOST_SLOT), rode(&lab.anchor, ANCHOR_SLOT));
            assert!(up >= 10 && down >= 10, "{up} and {down} rode");
        }
        lab.settled_counters();
        for reason in DropReason::ALL {
            assert_eq!((lab.host.drops(reason), lab.anchor.drops(reason)), (0, 0), "{reason}");
        }
    }
}

/// A megabyte over TCP each way.
fn transfer(lab: &Lab, v6: bool) {
    use std::io::{Read, Write};
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let listen = || std::net::TcpListener::bind((inner(v6, 2), 0)).unwrap();
    let listener = lab.anchor.ns.run(listen).unwrap();
    let to = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = vec![0; 1_000_000];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(&got).unwrap();
    });
    let mut stream = lab.host.ns.run(|| std::net::TcpStream::connect(to).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&data).unwrap();
    let mut back = vec![0; data.len()];
    stream.read_exact(&mut back).unwrap();
    echo.join().unwrap();
    assert!(back == data, "TCP is not what was sent");
}

#[test]
fn a_probe_is_answered_with_k_as_agreed_and_the_word_heard() {
    if skipped() {
        return;
    }
    for outer_v6 in [false, true] {
        let lab = upmt(outer_v6, Offloads::Whole, false, Span::from_millis(200));
        lab.anchor.with(|u| u.set_heard(&[ANCHOR_SLOT], 0x8009));
        let (request, response) = lab.probe(3);
        assert_eq!(
            (request.kind, request.k, request.arrival.probe.heard),
            (ProbeKind::Request, 9, 5)
        );
        assert_eq!((request.arrival.probe.t_ka_ms, request.arrival.probe.seq), (0, 3));
        assert_eq!((response.kind, response.arrival.probe.heard), (ProbeKind::Response, 0x8009));
        assert_eq!(request.arrival.received, request.arrival.probe.sc);
        assert_eq!(
            (response.arrival.probe.r, response.arrival.probe.sc),
            (request.arrival.received, request.arrival.probe.sc)
        );
        assert_eq!(response.arrival.probe.t_sc, request.arrival.probe.t_sc);
        // The round trip happens entirely within the test and does not include the time that the anchor held
        // it.
        let sent_at = response.arrival.sent_at.expect("the kernel tells when the request left");
        assert!(sent_at <= request.arrival.at && request.arrival.at <= response.arrival.at);
        let elapsed = response.arrival.at.micros32().wrapping_sub(response.arrival.probe.t_sc);
        assert!(response.arrival.probe.dt <= elapsed, "{response:?}");

        let order = ProbeOrder::plain(
            ANCHOR_SLOT,
            ProbeKind::Unsolicited,
            1,
            Probe { seq: 1, ..Probe::default() },
        );
        lab.anchor.with(|u| u.send_probes(&[order]).unwrap());
        assert_eq!(expect_probe(&lab.host.probes, "word").kind, ProbeKind::Unsolicited);
        let order = ProbeOrder {
            slot: HOST_SLOT,
            kind: ProbeKind::Request,
            probe: Probe { seq: 4, ..Probe::default() },
            report: true,
            age: 0,
            ..order
        };
        lab.host.with(|u| u.send_probes(&[order]).unwrap());
        assert!(expect_probe(&lab.anchor.probes, "report").report);
    }
}

#[test]
fn an_anchor_has_paths_of_both_forms() {
    if skipped() {
        return;
    }
    let lab = upmt(false, Offloads::Whole, false, Span::from_millis(200));
    let (slots, cookies) = ([HOST_SLOT + 1, ANCHOR_SLOT + 1], [HOST_COOKIE + 1, ANCHOR_COOKIE + 1]);
    let ifindex = lab.host.ns.run(|| link::index_of(HOST_DEVICE).unwrap()).unwrap();
    let [rx_cookie, tx_cookie] = cookies;
    let tx_index = slots[1];
    let host = PathSetup { ifindex, rx_cookie, tx_cookie, tx_index, ..host_config(false) };
    lab.set_host_path(slots[0], &host);
    let [tx_cookie, rx_cookie] = cookies;
    let anchor = PathSetup { rx_cookie, tx_cookie, tx_index: slots[0], ..anchor_config() };
    lab.anchor.with(|u| u.set_path(slots[1], &anchor).unwrap());
    lab.order(slots[0], 1);
    assert_eq!(expect_probe(&lab.anchor.probes, "request").slot, slots[1]);
    assert_eq!(expect_probe(&lab.host.probes, "response").slot, slots[0]);
    let counted = || [ANCHOR_SLOT, slots[1]].map(|s| lab.anchor.with(|u| u.counters(s)).rx_packets);
    let before = counted();
    exchange(&lab, false);
    // ICMP errors for ports without a listener are counted too.
    let between = counted();
    assert!(between[0] >= before[0] + 12 && between[1] == before[1], "{before:?} {between:?}");
    lab.host.slot.store(slots[0], std::sync::atomic::Ordering::Release);
    exchange(&lab, true);
    let after = counted();
    assert!(after[1] >= between[1] + 12, "{between:?} {after:?}");
    lab.probe(4);
}

const FROM: &str = "192.0.2.1:5005";

fn dry(role: Role, encapsulation: Encapsulation, rides: bool) -> DryRun {
    let probing = Probing { encapsulation, rides, ..Probing::default() };
    let (slot, config) = match role {
        Role::Host => (HOST_SLOT, host_config(false)),
        Role::Anchor => (ANCHOR_SLOT, anchor_config()),
    };
    let owner = config.owner;
    let config = PathSetup { probing, ..config };
    let own = [false, true].map(|v6| (inner(v6, 1), owner));
    let other = (inner(false, 9), owner + 1);
    DryRun::new(role, &[(slot, config)], &[own[0], own[1], other]).unwrap()
}

fn request(seq: u32) -> ProbePacket {
    ProbePacket {
        host: inner(false, 1),
        anchor: IpAddr::from([192, 0, 2, 2]),
        path: HOST_SLOT as u8,
        response: false,
        flagged: false,
        probe: Probe { seq, ..Probe::default() },
    }
}

fn ride(packet: &[u8], trailer: Trailer) -> Vec<u8> {
    let mut ride = [packet, &trailer.emit()].concat();
    ride[0] |= 0xf0;
    ride
}

fn expect_refused(dry: &DryRun, from: &str, packet: &[u8], reason: DropReason) {
    let taken = dry.receive(from.parse::<SocketAddr>().unwrap(), packet, None);
    assert_eq!(taken.refused, [(reason, 1)].into(), "{packet:02x?}");
    assert_eq!((taken.probes.len(), taken.answers), (0, 0));
}

#[test]
fn an_anchor_refuses_what_is_wrong_by_its_reason() {
    let dry = dry(Role::Anchor, Encapsulation::Upmt, false);
    let data = raw::packet(inner(false, 1), inner(false, 2), 1, b"data");
    expect_refused(&dry, FROM, &data, DropReason::UnknownIndex);
    let wrong = ProbePacket { path: 9, ..request(1) };
    expect_refused(&dry, FROM, &wrong.emit(), DropReason::UnknownIndex);
    let stranger = ProbePacket { host: inner(false, 7), ..request(1) };
    expect_refused(&dry, FROM, &stranger.emit(), DropReason::InnerSource);
    let response = ProbePacket { response: true, ..request(1) };
    expect_refused(&dry, FROM, &response.emit(), DropReason::Type);
    let mut flipped = request(1).emit();
    *flipped.last_mut().unwrap() ^= 1;
    expect_refused(&dry, FROM, &flipped, DropReason::Field);
    let config = anchor_config();
    let header = |packet_type, cookie| Header::new(packet_type, 0, ANCHOR_SLOT, cookie).emit();
    let ours = [&header(PacketType::Data, config.rx_cookie)[..], &data].concat();
    expect_refused(&dry, FROM, &ours, DropReason::Version);

    let from = FROM.parse().unwrap();
    let taken = dry.receive(from, &request(5).emit(), None).probes;
    assert_eq!((taken[0].slot, taken[0].arrival.probe.seq), (ANCHOR_SLOT, 5));
    expect_refused(&dry, FROM, &request(5).emit(), DropReason::Replay);
    let packets = |from: &str| dry.receive(from.parse().unwrap(), &data, None).packets.len();
    assert_eq!(packets(FROM), 1, "its source is known now");
    expect_refused(&dry, "192.0.2.1:9", &data, DropReason::UnknownIndex);
    let foreign = raw::packet(inner(false, 9), inner(false, 2), 1, b"data");
    expect_refused(&dry, FROM, &foreign, DropReason::UnknownIndex);
    let nobodys = raw::packet(inner(false, 7), inner(false, 2), 1, b"data");
    expect_refused(&dry, FROM, &nobodys, DropReason::InnerSource);
    for n in 1..data.len() {
        expect_refused(&dry, FROM, &data[..n], DropReason::InnerPacket);
    }
    // A new source moves the path, and the old source is forgotten.
    assert_eq!(dry.receive("192.0.2.1:9".parse().unwrap(), &request(6).emit(), None).answers, 1);
    assert_eq!(packets("192.0.2.1:9"), 1);
    expect_refused(&dry, FROM, &data, DropReason::UnknownIndex);
}

#[test]
fn a_host_cannot_draw_anothers_packets_to_itself_with_that_ones_source_address() {
    let probing = Probing { encapsulation: Encapsulation::Upmt, ..Probing::default() };
    let (config, slot) = (PathSetup { probing, ..anchor_config() }, ANCHOR_SLOT);
    let (owner, liars) = (config.owner, config.owner + 1);
    let other = PathSetup { owner: liars, ..config.clone() };
    let entries = [(inner(false, 1), owner), (inner(false, 9), liars)];
    let dry = DryRun::new(Role::Anchor, &[(slot, config), (slot + 1, other)], &entries).unwrap();
    let from: SocketAddr = FROM.parse().unwrap();
    let data = raw::packet(inner(false, 1), inner(false, 2), 1, b"data");
    assert_eq!(dry.receive(from, &request(1).emit(), None).answers, 1);
    let lie = ProbePacket { host: inner(false, 9), ..request(1) };
    assert_eq!(dry.receive(from, &lie.emit(), None).probes[0].slot, slot + 1);
    assert_eq!(dry.receive(from, &data, None).packets.len(), 1);
}

#[test]
fn rides_are_taken_apart_and_refused_where_they_are_wrong() {
    let trailer = |seq, response| Trailer {
        version: 4,
        response,
        report: false,
        path: HOST_SLOT as u8,
        probe: Probe { seq, ..Probe::default() },
    };
    let data = raw::packet(inner(false, 1), inner(false, 2), 1, b"odd");
    assert_eq!(data.len() % 2, 1);
    let from: SocketAddr = FROM.parse().unwrap();
    let good = ride(&data, trailer(1, false));
    expect_refused(&dry(Role::Anchor, Encapsulation::Upmt, false), FROM, &good, DropReason::Type);
    expect_refused(
        &dry(Role::Anchor, Encapsulation::Segue, true),
        FROM,
        &good,
        DropReason::Version,
    );
    let anchor = dry(Role::Anchor, Encapsulation::Upmt, true);
    expect_refused(&anchor, FROM, &ride(&data, trailer(1, true)), DropReason::Type);
    let longer = ride(&[&data[..], &[0]].concat(), trailer(1, false));
    expect_refused(&anchor, FROM, &longer, DropReason::InnerPacket);
    let other = ride(&data, Trailer { version: 6, ..trailer(1, false) });
    expect_refused(&anchor, FROM, &other, DropReason::InnerPacket);
    for n in 1..good.len() {
        let refused = anchor.receive(from, &good[..n], None).refused;
        assert_eq!(refused.values().sum::<u64>(), 1, "cut to {n}");
    }
    let taken = anchor.receive(from, &good, None);
    assert_eq!((taken.packets.len(), taken.answers, taken.probes[0].arrival.probe.seq), (1, 1, 1));
    assert_eq!(taken.packets[0][..], data[..]);
    // The data of a repeated ride are still delivered.
    let again = anchor.receive(from, &good, None);
    assert_eq!(again.refused, [(DropReason::Replay, 1)].into());
    assert_eq!((again.packets.len(), again.answers), (1, 0));
    let v6 = raw::packet(inner(true, 1), inner(true, 2), 3, b"over IPv6");
    let over = ride(&v6, Trailer { version: 6, ..trailer(2, false) });
    let taken = anchor.receive(from, &over, None);
    assert_eq!((taken.packets.len(), taken.answers), (1, 1));
    assert_eq!(taken.packets[0][..], v6[..]);
}

#[test]
fn a_host_takes_its_anchors_packets_alone() {
    let host = dry(Role::Host, Encapsulation::Upmt, false);
    let from = host_config(false).remote.unwrap();
    let data = raw::packet(inner(false, 2), inner(false, 1), 1, b"data");
    assert_eq!(host.receive(from, &data, None).packets.len(), 1);
    expect_refused(&host, "192.0.2.77:5005", &data, DropReason::UnknownIndex);
    let elsewhere = raw::packet(inner(false, 2), inner(false, 8), 1, b"data");
    expect_refused(&host, &from.to_string(), &elsewhere, DropReason::InnerDestination);
    let answer = ProbePacket { response: true, ..request(1) };
    assert_eq!(host.receive(from, &answer.emit(), None).probes.len(), 1);
    expect_refused(&host, &from.to_string(), &answer.emit(), DropReason::Replay);
    expect_refused(&host, "192.0.2.77:5005", &answer.emit(), DropReason::UnknownIndex);
    expect_refused(&host, &from.to_string(), &request(1).emit(), DropReason::Type);
}

/// A lab in which both ends have agreed on UPMT packets, and one request has then been answered.
fn upmt(outer_v6: bool, offloads: Offloads, rides: bool, t_ka: Span) -> Lab {
    let lab = Lab::new(outer_v6, offloads);
    let probing = probing(rides, t_ka);
    lab.probe_as(probing, Probing { k: 9, ..probing });
    lab.probe(2);
    lab
}

fn probing(rides: bool, t_ka: Span) -> Probing {
    Probing { rides, t_ka, encapsulation: Encapsulation::Upmt, ..Probing::default() }
}
