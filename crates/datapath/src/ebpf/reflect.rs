//! Requests answered by the XDP program: the answer and the state must be the same as from the TC program, and
//! everything else must be left to the TC program.

use std::os::fd::AsFd;

use segue_wire::header::flags::{
    REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION, RESPONSE_UNSOLICITED,
};
use segue_wire::{Header, PacketType, Probe};

use super::packets::{
    ARRIVED_ON, ETH, KEY, Lab, Outer, PORT, REDIRECT, SHOT, SLOT, XDP_PASS, frame, header, run,
    to_us,
};
use super::*;
use crate::maps::unmapped;

const XDP_TX: i32 = 3;

fn request(seq: u32) -> Probe {
    Probe { seq, t_sc: 99, sc: seq + 3, heard: 5, t_ka_ms: 200, ..Probe::default() }
}

fn sealed(probe: &Probe) -> Vec<u8> {
    probe.seal(&header(PacketType::Request), &KEY).to_vec()
}

/// The one's-complement sum of the UDP datagram with its pseudo-header; 0xffff if the checksum is correct.
pub(super) fn udp_sum(outer: Outer, frame: &[u8]) -> u32 {
    let udp = outer.headers() - 8;
    let addresses = if outer == Outer::V4 { udp - 8..udp } else { udp - 32..udp };
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum()
    };
    let sum = words(&frame[addresses]) + words(&frame[udp..]) + 17 + (frame.len() - udp) as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

#[test]
fn xdp_answers_a_request_as_tc_does_and_keeps_the_same_state() {
    for outer in Outer::BOTH {
        let (Some(xdp), Some(tc)) = (Lab::new(Role::Anchor), Lab::new(Role::Anchor)) else {
            return;
        };
        xdp.know(outer);
        tc.know(outer);
        for seq in 1..=20 {
            xdp.tables.set_alive(monotonic()).unwrap();
            tc.tables.set_alive(monotonic()).unwrap();
            // The echo of an answer that this end pretends to have sent a moment ago.
            let now_us = (monotonic().0 / 1000) as u32;
            let echo = Probe { t_ss: now_us.wrapping_sub(30_000_000), ss: seq - 1, ..request(seq) };
            let packet = to_us(outer, &sealed(&echo));
            let (verdict, by_xdp) = run(xdp.programs.xdp.as_fd(), &packet, None);
            assert_eq!(verdict, XDP_TX, "{outer:?} {seq}");
            let (verdict, by_tc) = tc.ingress(&packet);
            assert_eq!(verdict, REDIRECT);
            let at = outer.headers();
            if outer == Outer::V6 {
                assert_eq!(by_xdp[..at], by_tc[..at]);
            } else {
                // The request's header checksum is wrong and is updated incrementally.
                let checksum = ETH + 10..ETH + 12;
                assert_eq!(by_xdp[..checksum.start], by_tc[..checksum.start]);
                assert_eq!(by_xdp[checksum.end..at], by_tc[checksum.end..at]);
            }
            assert_eq!(Header::parse(&by_xdp[at..]), Header::parse(&by_tc[at..]));
            let [a, b] = [by_xdp, by_tc].map(|out| Probe::open(&out[at..], &KEY).unwrap());
            assert!(a.t_ss.wrapping_sub(now_us) < 10_000_000, "{a:?}");
            assert_eq!(Probe { t_ss: 0, dt: 0, ..a }, Probe { t_ss: 0, dt: 0, ..b });
        }
        let [a, b] = [xdp.state(), tc.state()];
        let counts = |s: &path_state| (s.rx_packets, s.tx_packets, s.received, s.newest, s.known);
        assert_eq!(counts(&a), counts(&b));
        let end = |s: &path_state| {
            let end = s.endpoint;
            (end.remote, end.remote_port, end.ifindex, end.local)
        };
        assert_eq!(end(&a), end(&b));
        assert_eq!((a.t_sc, a.up.sent, a.heard), (b.t_sc, b.up.sent, b.heard));
        assert_eq!((a.up.received, a.down.sent), (b.up.received, b.down.sent));
        assert!(a.rtt_last_us.abs_diff(b.rtt_last_us) < 5_000_000, "{a:?} {b:?}");
        assert!(xdp.tables.drops().is_empty() && a.endpoint.ifindex == ARRIVED_ON);
    }
}

/// A program's answer to a request of the path from a port of the host.
fn ask(lab: &Lab, by_xdp: bool, outer: Outer, port: u16, probe: &Probe) -> Probe {
    let program = if by_xdp { &lab.programs.xdp } else { &lab.programs.ingress };
    let mut packet = to_us(outer, &sealed(probe));
    let at = outer.headers();
    packet[at - 8..at - 6].copy_from_slice(&port.to_be_bytes());
    lab.tables.set_alive(monotonic()).unwrap();
    let (verdict, out) = run(program.as_fd(), &packet, None);
    assert_eq!(verdict, if by_xdp { XDP_TX } else { REDIRECT });
    assert_eq!(out[at - 6..at - 4], port.to_be_bytes(), "the answer goes back where it came from");
    Probe::open(&out[at..], &KEY).unwrap()
}

#[test]
fn a_new_source_is_sent_to_only_after_it_echoed_what_the_answers_to_it_said() {
    const OLD: u16 = 6000;
    const NEW: u16 = 6001;
    for (outer, by_xdp) in Outer::BOTH.into_iter().flat_map(|outer| [(outer, true), (outer, false)])
    {
        let Some(lab) = Lab::new(Role::Anchor) else { return };
        lab.know(outer);
        let port = || u16::from_be(lab.state().endpoint.remote_port);
        let mut seq = 0;
        let mut from = |source, t_ss| {
            seq += 1;
            let probe = Probe { t_ss, ..request(seq) };
            (ask(&lab, by_xdp, outer, source, &probe).t_ss, monotonic().micros32())
        };
        let (own, now) = from(OLD, 0);
        assert!(now.wrapping_sub(own) < 1 << 30, "a stamp: {own} at {now}");
        let (challenge, now) = from(NEW, own);
        // Not a stamp: it lies ahead of the clock, where a round-trip time would be negative.
        assert!(challenge.wrapping_sub(now) < 1 << 31, "{challenge} at {now}");
        let (other, _) = from(NEW + 1, challenge);
        // An echo for another source, the clock, and no echo.
        for guess in [other, own, now, challenge.wrapping_add(1), 0] {
            assert_eq!(from(NEW, guess).0, challenge, "{guess}");
            assert_eq!(port(), OLD);
        }
        // The correct echo, but too soon after the previous request.
        let state = lab.state();
        let later = path_state { received_ns: monotonic().0 + 1_000_000_000, ..state };
        lab.tables.set_state(SLOT, &later).unwrap();
        assert_eq!((from(NEW, challenge).0, port()), (challenge, OLD));
        let earlier = path_state { received_ns: monotonic().0 - 1_000_000_000, ..lab.state() };
        lab.tables.set_state(SLOT, &earlier).unwrap();
        let (stamp, now) = from(NEW, challenge);
        assert_eq!(port(), NEW, "{outer:?} XDP {by_xdp}");
        assert!(now.wrapping_sub(stamp) < 1 << 30, "a stamp: {stamp} at {now}");
        // No challenge became a round-trip time.
        let state = lab.state();
        assert!(state.rtt_max_us < 1 << 28, "{state:?}");
        assert_eq!(unmapped(state.endpoint.remote), outer.address(1));
    }
}

/// If an attacker made two anchors take each other for a host, they would pass one packet back and forth forever if
/// either of them answered what the other sends.
#[test]
fn what_an_anchor_sends_another_answers_with_nothing() {
    for outer in Outer::BOTH {
        let Some(lab) = Lab::new(Role::Anchor) else { return };
        lab.know(outer);
        let before = lab.state();
        let asked = sealed(&request(1));
        let (_, answer) = lab.ingress(&to_us(outer, &asked));
        let answer = Probe::open(&answer[outer.headers()..], &KEY).unwrap();
        let after = lab.state();
        let mut refused = 0;
        // An answer, and an unsolicited response, as an anchor with the same secrets would receive them.
        for flags in [0, RESPONSE_UNSOLICITED] {
            for seq in [answer.seq, answer.seq + 1, answer.seq + 100] {
                let head = Header { flags, ..header(PacketType::Response) };
                let packet = to_us(outer, &Probe { seq, ..answer }.seal(&head, &KEY));
                let (verdict, passed) = run(lab.programs.xdp.as_fd(), &packet, None);
                assert_eq!((verdict, &passed), (XDP_PASS, &packet), "{outer:?}");
                assert_eq!(lab.ingress(&packet).0, SHOT, "{outer:?}");
                refused += 1;
            }
        }
        assert_eq!(lab.tables.drops(), [(DropReason::Type, refused)].into());
        let last = lab.state();
        let counts = |s: &path_state| (s.rx_packets, s.tx_packets, s.received, s.newest);
        assert_eq!(counts(&last), counts(&after));
        assert_eq!(last.endpoint.remote_port, before.endpoint.remote_port);
    }
}

#[test]
fn xdp_writes_whole_checksums_and_leaves_absent_ones_absent() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let mut seq = 0;
    for outer in Outer::BOTH {
        let at = outer.headers();
        // Like a socket's datagram on a virtual link: the checksum is left to the device.
        for begun in [false, true] {
            seq += 1;
            let mut packet = to_us(outer, &sealed(&request(seq)));
            if outer == Outer::V4 {
                packet[ETH + 8] = 3; // TTL
                let header_sum: u32 = packet[ETH..ETH + 20]
                    .chunks(2)
                    .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
                    .sum();
                let check = !((header_sum & 0xffff) + (header_sum >> 16)) as u16;
                packet[ETH + 10..ETH + 12].copy_from_slice(&check.to_be_bytes());
            }
            if begun {
                packet[at - 2..at].copy_from_slice(&[0x12, 0x34]);
            }
            let (verdict, out) = run(lab.programs.xdp.as_fd(), &packet, None);
            assert_eq!(verdict, XDP_TX);
            if begun {
                assert_eq!(udp_sum(outer, &out), 0xffff, "{outer:?}");
            } else {
                assert_eq!(out[at - 2..at], [0, 0]);
            }
            if outer == Outer::V4 {
                let words =
                    out[ETH..ETH + 20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
                assert_eq!((words.sum::<u32>() % 0xffff, out[ETH + 8]), (0, 64));
            }
        }
    }
}

#[test]
fn a_report_is_answered_by_a_response_that_was_asked_for() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let head = Header { flags: REQUEST_REPORT, ..header(PacketType::Request) };
    let at = Outer::V4.headers();
    let packet = |seq| to_us(Outer::V4, &request(seq).seal(&head, &KEY));
    for (verdict, out) in [run(lab.programs.xdp.as_fd(), &packet(1), None), lab.ingress(&packet(2))]
    {
        assert!([XDP_TX, REDIRECT].contains(&verdict), "{verdict}");
        let answered = Header::parse(&out[at..]).unwrap();
        assert_eq!((answered.packet_type, answered.flags), (PacketType::Response, 0));
        assert!(Probe::open(&out[at..], &KEY).is_ok());
    }
}

#[test]
fn a_question_is_left_to_tc_which_counts_neither_it_nor_its_answer() {
    for outer in Outer::BOTH {
        let Some(lab) = Lab::new(Role::Anchor) else { return };
        lab.know(outer);
        assert_eq!(lab.ingress(&to_us(outer, &sealed(&request(1)))).0, REDIRECT);
        let before = lab.state();
        for (seq, flags) in [(2, REQUEST_QUESTION), (3, REQUEST_QUESTION | REQUEST_REPORT)] {
            let head = Header { flags, ..header(PacketType::Request) };
            let packet = to_us(outer, &request(seq).seal(&head, &KEY));
            let (verdict, passed) = run(lab.programs.xdp.as_fd(), &packet, None);
            assert_eq!((verdict, &passed), (XDP_PASS, &packet), "{outer:?}");
            let (verdict, out) = lab.ingress(&packet);
            assert_eq!(verdict, REDIRECT, "{outer:?}");
            let out = &out[outer.headers()..];
            assert_eq!(Header::parse(out).unwrap().flags, RESPONSE_QUESTION);
            let answer = Probe::open(out, &KEY).unwrap();
            assert_eq!((answer.ss, answer.r), (before.tx_packets, before.rx_packets));
            let state = lab.state();
            let counts = (state.tx_packets, state.rx_packets);
            assert_eq!(counts, (before.tx_packets, before.rx_packets));
            assert_eq!((state.received, state.newest as u32), (seq, seq), "as a probe it counts");
        }
    }
}

#[test]
fn xdp_answers_at_an_address_as_long_as_the_machine_has_it() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    lab.know(Outer::V4);
    let verdict = |seq, to: IpAddr| {
        let packet = frame(Outer::V4, Outer::V4.address(1), to, PORT, &sealed(&request(seq)));
        run(lab.programs.xdp.as_fd(), &packet, None).0
    };
    let (first, second) = (Outer::V4.address(2), Outer::V4.address(9));
    assert_eq!((verdict(1, first), verdict(2, first)), (XDP_TX, XDP_TX));
    let number = lab.state().endpoint.local;
    lab.tables.set_locals(&[second].into()).unwrap();
    // The path still has the number of the first address.
    assert_eq!((verdict(3, first), verdict(3, second)), (XDP_PASS, XDP_TX));
    assert_ne!(lab.state().endpoint.local, number);
    lab.tables.set_locals(&[first, second].into()).unwrap();
    assert_eq!((verdict(4, second), verdict(5, first)), (XDP_TX, XDP_TX));
    assert_eq!(unmapped(lab.state().endpoint.remote), Outer::V4.address(1));
}

#[test]
fn xdp_turns_the_frame_addresses_round() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let mut packet = to_us(Outer::V4, &sealed(&request(1)));
    packet[..12].copy_from_slice(&[2, 3, 4, 5, 6, 7, 18, 19, 20, 21, 22, 23]);
    lab.tables.set_device(ARRIVED_ON, [2, 3, 4, 5, 6, 7]).unwrap();
    let (verdict, out) = run(lab.programs.xdp.as_fd(), &packet, None);
    assert_eq!(verdict, XDP_TX);
    assert_eq!(out[..12], [18, 19, 20, 21, 22, 23, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn xdp_leaves_all_but_valid_requests_to_tc() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let program = lab.programs.xdp.as_fd();
    for (outer, seq) in [(Outer::V4, 2), (Outer::V6, 3)] {
        let good = sealed(&request(seq));
        let at = outer.headers();
        let of = |head: Header| to_us(outer, &request(seq).seal(&head, &KEY));
        let head = header(PacketType::Request);
        let changed = |i: usize, bit: u8| {
            let mut packet = to_us(outer, &good);
            packet[i] ^= bit;
            packet
        };
        let stranger = frame(outer, outer.address(1), outer.address(3), PORT, &good);
        let long = to_us(outer, &[&good[..], &[0; 4]].concat());
        let short = to_us(outer, &good[..good.len() - 1]);
        let mut odd = vec![
            changed(at + 55, 1), // the authenticator
            changed(at + 20, 1), // t_Sc, which it covers
            changed(at + 1, 2),  // an unknown flag
            changed(at + 3, 1),  // the reserved byte
            changed(0, 1),       // a frame to a group address
            changed(5, 2),       // a frame to another device
            of(Header { cookie: 1, ..head }),
            of(Header { index: SLOT + 1, ..head }),
            of(Header { index: 1 << 20, ..head }),
            of(Header { packet_type: PacketType::Response, ..head }),
            stranger,
            long,
            short,
        ];
        if outer == Outer::V4 {
            odd.push(changed(ETH + 6, 0x20)); // a fragment
        }
        for (i, packet) in odd.into_iter().enumerate() {
            assert_eq!(run(program, &packet, None), (XDP_PASS, packet), "{outer:?} {i}");
        }
        let packet = to_us(outer, &good);
        lab.tables.set_alive(segue_clock::Time(1)).unwrap();
        assert_eq!(run(program, &packet, None).0, XDP_PASS, "the daemon is gone");
        lab.tables.set_alive(monotonic()).unwrap();
        assert_eq!(run(program, &packet, None).0, XDP_TX);
        assert_eq!(run(program, &packet, None), (XDP_PASS, packet.clone()), "a replay");
        assert_eq!(lab.ingress(&packet).0, SHOT);
    }
    assert_eq!(lab.state().rx_packets, 2);
    assert_eq!(lab.tables.drops(), [(DropReason::Replay, 2)].into());
    let Some(host) = Lab::new(Role::Host) else { return };
    let packet = to_us(Outer::V4, &sealed(&request(1)));
    assert_eq!(run(host.programs.xdp.as_fd(), &packet, None), (XDP_PASS, packet));
}
