//! Measurements by the programs themselves, and the events that they do not send to the daemon.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use segue_clock::Span;
use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_datapath::{Datapath, PathSetup, ProbeEvent, ProbeKind, ProbeOrder};
use segue_keepalive::{Counted, Probing, Reading, Tau};
use segue_linux::clock::monotonic;
use segue_wire::header::flags::RESPONSE_UNSOLICITED;
use segue_wire::{DropReason, Header, PacketType, Probe};

use crate::hostile::stranger;
use crate::options;
use crate::rides::{flow, riding};
use crate::world::{
    End, Family, KEY, PORT, Wire, World, anchor_slot, eventually, host_slot, may_run,
};

fn reading(end: &End, slot: u32) -> Reading {
    end.datapath.lock().unwrap().reading(slot).unwrap()
}

fn quiet(end: &End, slot: u32, quiet: bool) {
    end.datapath.lock().unwrap().set_quiet(slot, quiet);
}

fn seen(end: &End) -> Vec<ProbeEvent> {
    end.probes.lock().unwrap().clone()
}

/// Sets both ends' paths with these time constants; counters and endpoint are kept.
fn set_taus(world: &World, taus: [Tau; 2]) {
    let probing = Probing { taus, ..Probing::default() };
    let host = PathSetup { probing, ..world.host_path(0) };
    let anchor = PathSetup { probing, ..world.anchor_path(0) };
    world.host.datapath.lock().unwrap().set_path(host_slot(0), &host).unwrap();
    world.anchor.datapath.lock().unwrap().set_path(anchor_slot(0), &anchor).unwrap();
}

/// So long that no delay of a busy machine crosses a threshold.
fn never() -> [Tau; 2] {
    [Tau::symmetric(Span::from_secs(100_000)); 2]
}

#[test]
fn readings_of_both_ends_say_what_was_exchanged_and_measured() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    let before = monotonic();
    (2..=6).for_each(|seq| {
        world.probe(0, seq);
    });
    let (host, anchor) =
        (reading(&world.host, host_slot(0)), reading(&world.anchor, anchor_slot(0)));
    for (end, reading) in [("host", &host), ("anchor", &anchor)] {
        assert_eq!((reading.sent, reading.received, reading.rode), (6, 6, 0), "{end}");
        assert_eq!((reading.run, reading.k), (6, 3), "{end}");
        assert_eq!(reading.t_ka, Some(Span::from_millis(200)), "{end}");
        assert!(reading.last_received.unwrap() > before && reading.at > before, "{end}");
        let estimates = &reading.estimates;
        let rtt = estimates.rtt_last.unwrap();
        assert!(rtt < Span::from_secs(10), "{end}: {rtt:?}");
        assert!(estimates.rtt_min.unwrap() <= rtt && rtt <= estimates.rtt_max.unwrap(), "{end}");
        assert_eq!(estimates.rtt_ewma.len(), 2, "{end}");
        assert_eq!(estimates.up, Counted { sent: 5, received: 5 }, "{end}");
    }
    assert_eq!(host.estimates.down, Counted { sent: 5, received: 5 });
    // The last response has not been echoed yet, and the first request echoed none.
    assert_eq!(anchor.estimates.down, Counted { sent: 4, received: 4 });
    assert_eq!(host.last_heard, host.last_received);
    assert!(host.last_sent < host.last_received);
    assert_eq!(world.host.datapath.lock().unwrap().reading(host_slot(1)), None);
}

/// Sc, Rs, Ss and Rc.
fn counted(world: &World) -> [u32; 4] {
    let host = world.host.counters(host_slot(0));
    let anchor = world.anchor.counters(anchor_slot(0));
    [host.tx_packets, anchor.rx_packets, anchor.tx_packets, host.rx_packets]
}

#[test]
fn a_question_and_its_answer_count_in_no_counter_and_a_plain_request_in_all() {
    if !may_run() {
        return;
    }
    for (outer, xdp) in [(Family::V4, Xdp::Off), (Family::V6, Xdp::Off), (Family::V4, Xdp::On)] {
        let world = World::ready(outer, Wire::Whole, 1, options(xdp));
        let first = reading(&world.host, host_slot(0)).estimates.up;
        for (seq, question) in (2..).zip([false, true, true, false, true]) {
            let before = counted(&world);
            world.order_as(0, seq, question);
            let response = world.host.wait_for_probe(|e| e.arrival.probe.seq == seq);
            let request = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == seq);
            let after = before.map(|count| count + u32::from(!question));
            assert_eq!(counted(&world), after, "{outer:?} {xdp:?} {seq}");
            let said = [
                request.arrival.probe.sc,
                response.arrival.probe.r,
                response.arrival.probe.ss,
                response.arrival.received,
            ];
            assert_eq!(
                (said, request.arrival.received),
                (after, after[1]),
                "{outer:?} {xdp:?} {seq}"
            );
        }
        for (end, slot) in [(&world.host, host_slot(0)), (&world.anchor, anchor_slot(0))] {
            let reading = reading(end, slot);
            assert_eq!((reading.sent, reading.received), (6, 6), "as probes they count");
            let up = Counted { sent: first.sent + 2, received: first.received + 2 };
            assert_eq!(reading.estimates.up, up);
        }
    }
}

/// The answer does not wait either, because the asking end may be in doubt.
#[test]
fn the_answer_to_a_question_takes_no_ride() {
    if !may_run() {
        return;
    }
    let world = riding(Family::V4, Wire::Whole, Span::from_secs(100));
    let (host, anchor) = flow(&world);
    let mut buffer = [0; 100];
    host.send_to(b"there", anchor.local_addr().unwrap()).unwrap();
    let (_, from) = anchor.recv_from(&mut buffer).unwrap();
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 2);
    anchor.send_to(b"back", from).unwrap();
    host.recv(&mut buffer).unwrap();
    let before = counted(&world);
    world.order_as(0, 0, true);
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 3);
    assert_eq!(counted(&world), before);
    world.order(0, 0);
    world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 4);
    anchor.send_to(b"back", from).unwrap();
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 4);
}

#[test]
fn a_quiet_path_reports_what_is_new_and_nothing_else() {
    if !may_run() {
        return;
    }
    let world = World::new(Family::V6, Wire::Whole, 1, EbpfOptions::default());
    set_taus(&world, never());
    world.probe(0, 1);
    let received = |n| {
        eventually("the probes", || {
            reading(&world.host, host_slot(0)).received == n
                && reading(&world.anchor, anchor_slot(0)).received == n
        });
    };
    quiet(&world.host, host_slot(0), true);
    quiet(&world.anchor, anchor_slot(0), true);
    (2..=5).for_each(|seq| world.order(0, seq));
    received(5);
    // Both ends now start to report what they hear, so the next probes carry news.
    world.anchor.datapath.lock().unwrap().set_heard(&[anchor_slot(0)], 0x8001);
    world.order(0, 6);
    world.host.wait_for_probe(|e| e.arrival.probe.seq == 6);
    assert_eq!(seen(&world.host).iter().map(|e| e.arrival.probe.seq).collect::<Vec<_>>(), [1, 6]);

    let faster = Probe { t_ka_ms: 100, heard: 3, ..Probe::default() };
    for (k, probe) in [(3, faster), (4, faster), (4, Probe { heard: 7, ..faster })] {
        let order = ProbeOrder::plain(host_slot(0), ProbeKind::Request, k, probe);
        world.host.datapath.lock().unwrap().send_probes(&[order, order]).unwrap();
    }
    received(12);
    // From another address: the source becomes the new endpoint once it has echoed.
    let moved = stranger(&world, 6000);
    let request = |seq, t_ss| {
        let header = Header::new(PacketType::Request, 4, anchor_slot(0), 0xa000);
        moved.send(&Probe { seq, t_ss, heard: 7, ..faster }.seal(&header, &KEY)).unwrap();
    };
    request(13, 0);
    let mut answer = [0; 100];
    let len = moved.recv(&mut answer).unwrap();
    let challenge = Probe::open(&answer[..len], &KEY).unwrap().t_ss;
    std::thread::sleep(Duration::from_millis(5)); // an earlier echo is not compared
    (14..=15).for_each(|seq| request(seq, challenge));
    world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 14);
    quiet(&world.anchor, anchor_slot(0), false);
    eventually("all requests", || reading(&world.anchor, anchor_slot(0)).received == 15);
    request(16, challenge);
    world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 16);
    let told: Vec<u32> = seen(&world.anchor).iter().map(|e| e.arrival.probe.seq).collect();
    assert!(told.starts_with(&[1, 7, 9, 11, 14]) && told.ends_with(&[16]), "{told:?}");
}

#[test]
fn a_quiet_path_tells_once_that_the_round_trip_or_the_loss_has_changed_much() {
    if !may_run() {
        return;
    }
    let world = World::new(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    // The short average follows at once; the long one hardly moves.
    set_taus(&world, [Tau::symmetric(Span::ZERO), never()[0]]);
    quiet(&world.anchor, anchor_slot(0), true);
    let socket = stranger(&world, 6000);
    let header = Header {
        packet_type: PacketType::Request,
        flags: 0,
        k: 200, // so high that no delay of a busy machine causes an outage
        age: 0,
        index: anchor_slot(0),
        cookie: 0xa000,
    };
    // A request whose echo makes the round trip this long; the first request cannot echo anything.
    let request = |seq, rtt_s: u32, sc| {
        let t_ss = monotonic().micros32().wrapping_sub(rtt_s * 1_000_000);
        let probe = Probe { seq, t_ss, sc, t_ka_ms: 10, ..Probe::default() };
        socket.send(&probe.seal(&header, &KEY)).unwrap();
        eventually("the request", || reading(&world.anchor, anchor_slot(0)).received == seq);
    };
    for (seq, rtt_s) in (1..).zip([0, 10, 10, 30, 30, 30, 10, 10]) {
        request(seq, rtt_s, seq);
    }
    // Half of the packets are lost, in an interval of ten periods of 10 ms.
    let base = 8;
    let mut seq = base;
    eventually("loss", || {
        seq += 1;
        request(seq, 10, base + (seq - base) * 2);
        let told = seen(&world.anchor);
        told.last().is_some_and(|e| e.arrival.probe.seq > base)
    });
    let told: Vec<u32> = seen(&world.anchor).iter().map(|e| e.arrival.probe.seq).collect();
    assert_eq!(told[..3], [1, 4, 7], "first, longer, shorter again");
    assert!(told.len() == 4 && told[3] > base, "loss: {told:?}");
    let owl = reading(&world.anchor, anchor_slot(0)).estimates.owl_up;
    assert!(owl[0] > 0.3, "{owl:?}");
}

#[test]
fn a_repeated_response_is_refused_and_does_not_hide_loss() {
    if !may_run() {
        return;
    }
    let world = World::ready(Family::V4, Wire::Whole, 1, EbpfOptions::default());
    (2..=4).for_each(|seq| {
        world.probe(0, seq);
    });
    let local = SocketAddr::new(world.outer.outer(0, 2), 6000);
    let socket = world.anchor.ns.run(|| UdpSocket::bind(local)).unwrap().unwrap();
    socket.connect(SocketAddr::new(world.outer.outer(0, 1), PORT)).unwrap();
    let mut refused = 0;
    // Duplicates, a response to a number that was never sent, and unsolicited responses, except for
    // the two that count.
    for (seq, flags, counts) in [
        (4, 0, false),
        (1, 0, false),
        (0, 0, false),
        (5, 0, false),
        (9, RESPONSE_UNSOLICITED, true),
        (9, RESPONSE_UNSOLICITED, false),
    ] {
        let header = Header { flags, ..Header::new(PacketType::Response, 3, host_slot(0), 0xb000) };
        let before = world.host.counters(host_slot(0)).rx_packets;
        socket.send(&Probe { seq, ..Probe::default() }.seal(&header, &KEY)).unwrap();
        refused += u64::from(!counts);
        eventually("its fate", || {
            world.host.dropped(DropReason::Replay) == refused
                && world.host.counters(host_slot(0)).rx_packets == before + u32::from(counts)
        });
    }
    let host = reading(&world.host, host_slot(0));
    assert_eq!((host.received, host.estimates.duplicates), (4, 2));
    assert!(host.last_heard > host.last_received, "an unsolicited response was heard");
    world.probe(0, 5);
}
