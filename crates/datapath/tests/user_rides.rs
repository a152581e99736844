//! Probes that ride on data packets in the user-space datapath, between two network namespaces. Needs root;
//! otherwise prints a note and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod user_lab;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use segue_clock::Span;
use segue_datapath::{Datapath, LinuxDatapath, ProbeKind};
use segue_keepalive::rtt::client_rtt;
use segue_keepalive::{Arrival, Probing, Reading};
use segue_linux::clock::monotonic;
use segue_wire::header::flags::{RIDE_ONE_WAY, RIDE_RESPONSE};
use segue_wire::{DropReason, Header, PacketType, Probe, ProbeKey};
use user_lab::raw::{self, Tap};
use user_lab::{
    ANCHOR_COOKIE, ANCHOR_SLOT, End, HOST_COOKIE, HOST_SLOT, KEY, Lab, Offloads, PORT, exchange,
    expect_probe, inner, outer, skipped, wait_for,
};

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_with_offloads_whole() {
    every_pair_of_families(Offloads::Whole);
}

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_without_gso() {
    every_pair_of_families(Offloads::NoGso);
}

#[test]
fn what_takes_a_probe_along_arrives_bit_for_bit_without_checksum_offload() {
    every_pair_of_families(Offloads::NoChecksum);
}

fn every_pair_of_families(offloads: Offloads) {
    if skipped() {
        return;
    }
    for outer_v6 in [false, true] {
        // T_KA at the host is so short that nearly every packet falls into its own period; at the anchor it is so
        // long that a response always waits for the next packet.
        let lab = riding(outer_v6, offloads, Span::from_millis(1));
        lab.anchor_probes_as(rides(Span::from_secs(10)));
        for v6 in [false, true] {
            exchange(&lab, v6);
        }
        let (up, down) = (sent(&lab.host, HOST_SLOT), sent(&lab.anchor, ANCHOR_SLOT));
        assert!(up.rode >= 10 && down.rode >= 10, "{} and {} rode", up.rode, down.rode);
        lab.settled_counters();
        for reason in DropReason::ALL {
            assert_eq!((lab.host.drops(reason), lab.anchor.drops(reason)), (0, 0), "{reason}");
        }
    }
}

#[test]
fn a_period_has_one_ride_and_numbers_go_on_from_what_was_ordered() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let (sender, receiver) = flow(&lab);
    let before = lab.host.with(|u| u.counters(HOST_SLOT)).tx_packets;
    // In step with the receiver: a later packet may overtake one that waits for a binding.
    let mut buffer = [0; 200];
    for n in 0..50u8 {
        sender.send_to(&[n; 100], receiver.local_addr().unwrap()).unwrap();
        let len = receiver.recv(&mut buffer).expect("data is lost");
        assert_eq!(buffer[..len], [n; 100]);
    }
    let request = expect_probe(&lab.anchor.probes, "the ride");
    assert_eq!((request.kind, request.arrival.probe.seq, request.k), (ProbeKind::Request, 3, 4));
    assert_eq!((request.arrival.probe.heard, request.arrival.probe.t_ka_ms), (5, 0));
    let response = expect_probe(&lab.host.probes, "its answer");
    assert_eq!((response.kind, response.arrival.probe.seq), (ProbeKind::Response, 3));
    assert!(response.arrival.sent_at.is_some(), "the kernel tells when the ride left");
    let reading = sent(&lab.host, HOST_SLOT);
    assert_eq!((reading.sent, reading.rode), (3, 1));
    assert!(lab.anchor.probes.lock().unwrap().try_recv().is_err(), "a second ride");
    // The ride is one packet in the counters, and includes itself in the count that it states.
    let after = lab.host.with(|u| u.counters(HOST_SLOT)).tx_packets;
    assert_eq!(after - before, 50);
    assert_eq!(request.arrival.received, request.arrival.probe.sc);
    assert!((before + 1..=after).contains(&request.arrival.probe.sc));
}

#[test]
fn what_would_be_too_long_with_a_probe_takes_none() {
    if skipped() {
        return;
    }
    for (outer_v6, room) in [(false, 1500 - 28 - 56), (true, 1500 - 48 - 56)] {
        let lab = riding(outer_v6, Offloads::Whole, Span::from_secs(100));
        let taps = [&lab.host, &lab.anchor].map(|end| end.ns.run(|| Tap::new("segue0")).unwrap());
        let packet = |bytes: usize| {
            let empty = raw::packet(inner(false, 1), inner(false, 2), 9, &[]);
            raw::packet(inner(false, 1), inner(false, 2), 9, &vec![7; bytes - empty.len()])
        };
        for _ in 0..5 {
            taps[0].send(&packet(room + 1));
            taps[1].expect(&packet(room + 1));
        }
        assert_eq!(sent(&lab.host, HOST_SLOT).rode, 0);
        taps[0].send(&packet(room));
        taps[1].expect(&packet(room));
        assert_eq!(sent(&lab.host, HOST_SLOT).rode, 1);
        expect_probe(&lab.anchor.probes, "the ride");
    }
}

#[test]
fn segments_of_a_super_packet_take_none() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let (sender, receiver) = flow(&lab);
    let segment = 500i32;
    // SAFETY: the option reads one int, which outlives the call.
    let set = unsafe {
        let value = (&raw const segment).cast();
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
    };
    assert_eq!(set, 0);
    let mut buffer = [0; 2000];
    for _ in 0..5 {
        sender.send_to(&[3; 5000], receiver.local_addr().unwrap()).unwrap();
        for _ in 0..10 {
            assert_eq!(receiver.recv(&mut buffer).expect("a segment is lost"), 500);
        }
    }
    assert_eq!(sent(&lab.host, HOST_SLOT).rode, 0);
}

#[test]
fn a_response_waits_only_where_data_leaves_and_no_longer_than_a_period() {
    if skipped() {
        return;
    }
    // The test sets the time of the sweep, so that it does not have to wait that long.
    let t_ka = Span::from_secs(100);
    let lab = riding(false, Offloads::Whole, t_ka);
    assert_eq!(lab.anchor.with(|u| u.sweep(monotonic())), None);
    // No data has left the anchor, so the answer comes at once (in `riding` and here).
    let (_, response) = lab.probe(0);
    assert!(response.arrival.probe.dt < 50_000_000, "{response:?}");

    let (host, anchor) = flow(&lab);
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 100];
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    // That packet carried a request, which is also answered at once.
    expect_probe(&lab.anchor.probes, "the ride");
    expect_probe(&lab.host.probes, "its answer");
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    lab.order(HOST_SLOT, 0);
    let request = expect_probe(&lab.anchor.probes, "request");
    let due = lab.anchor.with(|u| u.sweep(monotonic())).expect("a response waits");
    assert_eq!(due, request.arrival.at + t_ka);
    assert!(lab.host.probes.lock().unwrap().try_recv().is_err(), "the answer did not wait");
    assert_eq!(lab.anchor.with(|u| u.sweep(due)), None);
    let response = expect_probe(&lab.host.probes, "the swept answer");
    assert_eq!(response.arrival.probe.seq, request.arrival.probe.seq);
    not_inflated(&response, 0);

    // The next response rides on the next packet.
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    lab.order(HOST_SLOT, 0);
    let request = expect_probe(&lab.anchor.probes, "request");
    std::thread::sleep(Duration::from_millis(50));
    anchor.send_to(b"again", from).unwrap();
    let response = expect_probe(&lab.host.probes, "the riding answer");
    assert_eq!(response.arrival.probe.seq, request.arrival.probe.seq);
    not_inflated(&response, 50_000);
    // The sending thread updates its state after the packet has left; the packet may arrive earlier.
    let settled = || lab.anchor.with(|u| u.sweep(monotonic())).is_none();
    assert!((0..100).any(|_| settled() || {
        std::thread::sleep(Duration::from_millis(10));
        false
    }));
    let reading = sent(&lab.anchor, ANCHOR_SLOT);
    assert_eq!(reading.rode, 1);
    assert_eq!(reading.sent, request.arrival.probe.seq);
    let len = host.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"again");
}

/// Δt removes the wait from the round trip.
fn not_inflated(response: &segue_datapath::ProbeEvent, held_us: u32) {
    assert!(response.arrival.probe.dt >= held_us, "{response:?}");
    let arrival = Arrival {
        sent_at: response.arrival.sent_at,
        ..Arrival::new(response.arrival.probe, response.arrival.at, response.arrival.received)
    };
    let rtt = client_rtt(&arrival, segue_clock::Time(0)).expect("a sample");
    let total = response.arrival.at.micros32().wrapping_sub(response.arrival.probe.t_sc);
    assert!(rtt <= Span::from_micros(u64::from(total - held_us)), "{rtt:?} of {total} µs");
}

#[test]
fn of_two_responses_that_would_wait_the_older_goes() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let (host, anchor) = flow(&lab);
    let mut buffer = [0; 100];
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    expect_probe(&lab.host.probes, "the answer to the ride");
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    lab.order(HOST_SLOT, 0);
    lab.order(HOST_SLOT, 0);
    let response = expect_probe(&lab.host.probes, "the older answer");
    assert_eq!(response.arrival.probe.seq, 4);
    anchor.send_to(b"back", from).unwrap();
    assert_eq!(expect_probe(&lab.host.probes, "the newer answer").arrival.probe.seq, 5);
}

/// Sc, Rs, Ss and Rc.
fn counted(lab: &Lab) -> [u32; 4] {
    let host = lab.host.with(|u| u.counters(HOST_SLOT));
    let anchor = lab.anchor.with(|u| u.counters(ANCHOR_SLOT));
    [host.tx_packets, anchor.rx_packets, anchor.tx_packets, host.rx_packets]
}

#[test]
fn a_question_and_its_answer_count_in_no_counter_and_a_plain_request_in_all() {
    if skipped() {
        return;
    }
    for v6 in [false, true] {
        let lab = Lab::new(v6, Offloads::Whole);
        for (seq, question) in (2..).zip([false, true, true, false, true]) {
            let before = counted(&lab);
            lab.order_as(HOST_SLOT, seq, question);
            let request = expect_probe(&lab.anchor.probes, "the request");
            let response = expect_probe(&lab.host.probes, "its answer");
            assert_eq!((response.kind, response.arrival.probe.seq), (ProbeKind::Response, seq));
            let after = before.map(|count| count + u32::from(!question));
            assert_eq!(counted(&lab), after, "{seq}");
            let said = [
                request.arrival.probe.sc,
                response.arrival.probe.r,
                response.arrival.probe.ss,
                response.arrival.received,
            ];
            assert_eq!((said, request.arrival.received), (after, after[1]), "{seq}");
        }
    }
}

/// The answer does not wait either, because the asking end may be in doubt.
#[test]
fn the_answer_to_a_question_takes_no_ride() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let (host, anchor) = flow(&lab);
    let mut buffer = [0; 100];
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    expect_probe(&lab.host.probes, "the answer to the ride");
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    let before = lab.settled_counters();
    lab.order_as(HOST_SLOT, 0, true);
    assert_eq!(expect_probe(&lab.host.probes, "the answer, at once").arrival.probe.seq, 4);
    assert_eq!(lab.settled_counters(), before);
    lab.order(HOST_SLOT, 0);
    while expect_probe(&lab.anchor.probes, "the request, whose answer waits").arrival.probe.seq != 5
    {
    }
    anchor.send_to(b"back", from).unwrap();
    assert_eq!(expect_probe(&lab.host.probes, "the one that waited").arrival.probe.seq, 5);
}

#[test]
fn rides_that_are_wrong_are_refused_by_their_reason() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let tap = lab.anchor.ns.run(|| Tap::new("segue0")).unwrap();
    // A socket listens, so that no ICMP error is returned.
    let _open = lab.anchor.ns.run(|| UdpSocket::bind((inner(false, 2), 4001)).unwrap()).unwrap();
    let socket = lab.host.ns.run(|| UdpSocket::bind((outer(false, 1), 0)).unwrap()).unwrap();
    let to = SocketAddr::new(outer(false, 2), PORT);
    let data = raw::packet(inner(false, 1), inner(false, 2), 9, b"good");
    let foreign = raw::packet(inner(false, 7), inner(false, 2), 9, b"foreign");
    let ride = |flags, seq, key: ProbeKey, inner: &[u8]| {
        let header =
            Header { flags, ..Header::new(PacketType::Ride, 4, ANCHOR_SLOT, ANCHOR_COOKIE) };
        let probe = Probe { seq, ..Probe::default() };
        [&probe.seal(&header, &key)[..], inner].concat()
    };
    let refused = |reason, bytes: &[u8]| {
        let before = lab.anchor.drops(reason);
        socket.send_to(bytes, to).unwrap();
        wait_for(&format!("{reason}"), || lab.anchor.drops(reason) == before + 1);
    };
    let received = || lab.anchor.with(|u| u.counters(ANCHOR_SLOT)).rx_packets;
    let before = received();
    refused(DropReason::Mac, &ride(0, 100, ProbeKey([8; 16]), &data));
    refused(DropReason::Type, &ride(RIDE_RESPONSE, 100, KEY, &data));
    refused(DropReason::Field, &ride(8, 100, KEY, &data));
    refused(DropReason::Truncated, &ride(0, 100, KEY, &data)[..55]);
    assert_eq!(received(), before, "none of these has arrived");
    assert!(lab.anchor.probes.lock().unwrap().try_recv().is_err());

    // The probe of a ride counts even if the inner packet is refused, and the packet counts once.
    refused(DropReason::InnerSource, &ride(0, 100, KEY, &foreign));
    let event = expect_probe(&lab.anchor.probes, "the probe of a foreign packet");
    assert_eq!(
        (event.arrival.probe.seq, event.arrival.received, received()),
        (100, before + 1, before + 1)
    );
    refused(DropReason::InnerPacket, &ride(0, 101, KEY, &[]));
    expect_probe(&lab.anchor.probes, "the probe of an empty packet");

    // Data of a replayed ride are delivered, and counted once.
    socket.send_to(&ride(RIDE_ONE_WAY, 102, KEY, &data), to).unwrap();
    tap.expect(&data);
    expect_probe(&lab.anchor.probes, "the probe");
    let flows = lab.anchor.with(|u| u.flows());
    assert!(flows.iter().all(|f| f.key.dport != 4000), "learned from a one-way ride: {flows:?}");
    refused(DropReason::Replay, &ride(0, 102, KEY, &data));
    tap.expect(&data);
    assert_eq!(received(), before + 4);
    assert!(lab.anchor.probes.lock().unwrap().try_recv().is_err());

    lab.anchor_probes_as(Probing::default());
    refused(DropReason::Type, &ride(0, 103, KEY, &data));
}

#[test]
fn a_host_refuses_requests_that_ride_and_answers_to_what_it_never_sent() {
    if skipped() {
        return;
    }
    let lab = riding(false, Offloads::Whole, Span::from_secs(100));
    let socket = lab.anchor.ns.run(|| UdpSocket::bind((outer(false, 2), 0)).unwrap()).unwrap();
    let to = SocketAddr::new(outer(false, 1), PORT);
    let data = raw::packet(inner(false, 2), inner(false, 1), 9, b"good");
    let ride = |flags, seq| {
        let header = Header { flags, ..Header::new(PacketType::Ride, 4, HOST_SLOT, HOST_COOKIE) };
        let probe = Probe { seq, ..Probe::default() };
        [&probe.seal(&header, &KEY)[..], &data].concat()
    };
    let tap = lab.host.ns.run(|| Tap::new("segue0")).unwrap();
    // A socket listens, so that no ICMP error goes back and carries a request.
    let _open = lab.host.ns.run(|| UdpSocket::bind((inner(false, 1), 4001)).unwrap()).unwrap();
    socket.send_to(&ride(0, 1), to).unwrap();
    wait_for("type", || lab.host.drops(DropReason::Type) == 1);
    socket.send_to(&ride(RIDE_RESPONSE, 3), to).unwrap();
    wait_for("replay", || lab.host.drops(DropReason::Replay) == 1);
    tap.expect(&data);
    assert!(lab.host.probes.lock().unwrap().try_recv().is_err());
    // A second answer to the last request is only a replay.
    socket.send_to(&ride(RIDE_RESPONSE, 2), to).unwrap();
    wait_for("replay", || lab.host.drops(DropReason::Replay) == 2);
    tap.expect(&data);
    assert!(lab.host.probes.lock().unwrap().try_recv().is_err());
}

/// A lab in which both ends have agreed on rides, and one request has then been sent on its own and answered.
fn riding(outer_v6: bool, offloads: Offloads, t_ka: Span) -> Lab {
    let lab = Lab::new(outer_v6, offloads);
    lab.probe_as(Probing { k: 4, ..rides(t_ka) }, rides(t_ka));
    lab.probe(0);
    lab
}

fn rides(t_ka: Span) -> Probing {
    Probing { rides: true, t_ka, ..Probing::default() }
}

fn sent(end: &End, slot: u32) -> Reading {
    end.with(|u| u.reading(slot)).expect("the path has rides")
}

/// A UDP socket at each end, inside the tunnel.
fn flow(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let bind = |end: &End, last| {
        let socket = end.ns.run(|| UdpSocket::bind((inner(false, last), 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    (bind(&lab.host, 1), bind(&lab.anchor, 2))
}
