//! The reflector called by the tunnel's ingress program, under `BPF_PROG_TEST_RUN`, judged by the wire
//! crate.

use segue_wire::stamp::{Reply, SenderPacket, Timestamp};

use super::*;
use crate::ebpf::load::may_load;
use crate::ebpf::packets::{ARRIVED_ON, Outer, PORT, REDIRECT, frame, run};
use crate::ebpf::tables::Tables;
use crate::ebpf::{self, Programs};
use crate::{Role, Setup};
use segue_wire::{Header, PacketType, Probe, ProbeKey};

const STAMP_PORT: u16 = 862;
const RATE: u32 = 12;
const SOURCE_RATE: u32 = 5;
const OPTIONS: StampOptions = StampOptions {
    port: STAMP_PORT,
    stateful: true,
    rate: RATE,
    source_rate: SOURCE_RATE,
    echo_dscp: true,
};
const UNSPEC: i32 = -1;
const SHOT: i32 = 2;

/// The programs of an anchor that answers STAMP; `None` without the privilege to load them.
fn anchor() -> Option<(Programs, Tables)> {
    if !may_load() {
        return None;
    }
    let setup = Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1456,
        port: PORT,
        role: Role::Anchor,
        max_paths: 1,
        max_flows: 1,
        mark: 0x5e6,
    };
    let (programs, tables, _) = ebpf::load(&setup, ARRIVED_ON, Some(OPTIONS)).unwrap();
    tables.set_locals(&Outer::BOTH.map(|outer| outer.address(2)).into()).unwrap();
    Some((programs, tables))
}

/// The stand-alone reflector, with addresses and clock; `None` without the privilege to load it.
fn alone(options: StampOptions) -> Option<Loaded> {
    if !may_load() {
        return None;
    }
    let loaded = load(options, Some(PORT)).unwrap();
    for outer in Outer::BOTH {
        loaded.locals.update(&super::key(outer.address(2)), 1u32.bytes(), MapFlags::ANY).unwrap();
    }
    loaded.maps.set_clock().unwrap();
    Some(loaded)
}

/// A request without extensions.
fn plain(seq: u32) -> Vec<u8> {
    let packet = SenderPacket { seq, timestamp: Timestamp(7 << 32), ssid: 9, ..Default::default() };
    let mut request = vec![0; segue_wire::stamp::BASE_LEN];
    packet.emit(None, &mut request).unwrap();
    request
}

/// The verdict on a request with `rest` after the base packet, and the resulting frame.
fn ask(programs: &Programs, outer: Outer, seq: u32, rest: &[u8]) -> (i32, Vec<u8>) {
    let mut request = plain(seq);
    request.extend(rest);
    let from = outer.address(1);
    run(programs.ingress.as_fd(), &frame(outer, from, outer.address(2), STAMP_PORT, &request), None)
}

#[test]
fn behind_the_tunnel_plain_requests_are_answered_and_others_pass() {
    let Some((programs, _tables)) = anchor() else { return };
    for outer in Outer::BOTH {
        assert_eq!(ask(&programs, outer, 7, &[]).0, UNSPEC, "nobody has told the time yet");
    }
    programs.stamp.set_clock().unwrap();
    for outer in Outer::BOTH {
        // Each session is numbered separately, and padding is returned.
        for (number, rest) in [(0, &[][..]), (1, &[0; 30])] {
            let (verdict, out) = ask(&programs, outer, 7 + number, rest);
            assert_eq!(verdict, REDIRECT, "{outer:?}");
            let at = outer.headers();
            let packet = Reply::open(&out[at..], None).unwrap().packet;
            assert_eq!((packet.seq, packet.sender_seq, packet.ssid), (number, 7 + number, 9));
            assert_eq!((packet.sender_timestamp, packet.sender_ttl), (Timestamp(7 << 32), 64));
            assert!(packet.timestamp.0 >= packet.receive.0 && packet.receive.0 > 0, "{packet:?}");
            assert_eq!(
                out[at - 8..at - 4],
                [STAMP_PORT.to_be_bytes(), 6000u16.to_be_bytes()].concat()
            );
            assert_eq!(out[at + 44..], *rest);
        }
        let (verdict, out) = ask(&programs, outer, 9, &[0x80, 5, 0, 12, 0, 0, 0, 0]);
        assert_eq!(verdict, UNSPEC, "extensions are for user space");
        assert_eq!(out[outer.headers()..][..4], 9u32.to_be_bytes(), "and the packet is as it was");
    }
    assert_eq!(programs.stamp.count().answered, 4);
}

#[test]
fn behind_the_tunnel_a_source_gets_its_rate_and_all_together_theirs() {
    let Some((programs, _tables)) = anchor() else { return };
    programs.stamp.set_clock().unwrap();
    let start = monotonic();
    let ask = |outer: Outer, from: IpAddr| {
        let packet = frame(outer, from, outer.address(2), STAMP_PORT, &plain(1));
        let verdict = run(programs.ingress.as_fd(), &packet, None).0;
        assert!([REDIRECT, SHOT].contains(&verdict), "{from}: {verdict}");
        u64::from(verdict == REDIRECT)
    };
    // 20 requests from each address; addresses in the same IPv6 network of 64 bits count as one source.
    let asked: Vec<(Outer, IpAddr)> = (10..13u16)
        .map(|n| (Outer::V6, [0x2001, 0xdb8, 9, 9, 0, 0, 0, n].into()))
        .chain((10..13u8).map(|n| (Outer::V4, [192, 0, 2, n].into())))
        .collect();
    let answered: Vec<u64> =
        asked.iter().map(|(outer, from)| (0..20).map(|_| ask(*outer, *from)).sum()).collect();
    let seconds = monotonic().since(start).0 / 1_000_000_000 + 1;
    let (of_network, all) = (answered[..3].iter().sum::<u64>(), answered.iter().sum::<u64>());
    assert!((5..=5 * seconds).contains(&of_network), "{answered:?} in {seconds} s");
    assert!(answered[3..].iter().all(|n| *n <= 5 * seconds), "{answered:?} in {seconds} s");
    assert!((12..=12 * seconds).contains(&all), "{answered:?} in {seconds} s");
    let count = programs.stamp.count();
    assert_eq!((count.answered, count.limited), (all, 120 - all));
}

#[test]
fn behind_the_tunnel_what_may_loop_passes_to_user_space() {
    let Some((programs, _tables)) = anchor() else { return };
    programs.stamp.set_clock().unwrap();
    for outer in Outer::BOTH {
        let source = outer.headers() - 8;
        for (port, verdict) in
            [(0u16, UNSPEC), (7, UNSPEC), (862, UNSPEC), (1023, UNSPEC), (1024, REDIRECT)]
        {
            let from = outer.address(1);
            let mut packet = frame(outer, from, outer.address(2), STAMP_PORT, &plain(1));
            packet[source..source + 2].copy_from_slice(&port.to_be_bytes());
            let (got, out) = run(programs.ingress.as_fd(), &packet, None);
            assert_eq!(got, verdict, "{outer:?} {port}");
            assert_eq!(out == packet, verdict == UNSPEC, "{outer:?} {port}");
        }
    }
}

/// The one's-complement sum over an IPv4 header; 0 modulo 0xffff if the checksum is correct.
fn header_sum(header: &[u8]) -> u32 {
    header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum()
}

#[test]
fn alone_compact_probes_are_answered_with_their_length_class_and_counters() {
    let Some(loaded) = alone(StampOptions { rate: 1_000, source_rate: 1_000, ..OPTIONS }) else {
        return;
    };
    let key = ProbeKey::default();
    for (index, outer) in (5..).zip(Outer::BOTH) {
        let header = Header::new(PacketType::Request, 3, index, 1 << 60);
        let ask = |seq: u32, padding: usize| {
            let probe = Probe { seq, t_sc: 9, sc: seq, t_ka_ms: 200, ..Probe::default() };
            let payload = [&probe.seal(&header, &key)[..], &vec![7; padding]].concat();
            let from = outer.address(1);
            let mut packet = frame(outer, from, outer.address(2), PORT, &payload);
            match outer {
                Outer::V4 => packet[15] = 46 << 2 | 1,
                Outer::V6 => packet[14..16].copy_from_slice(&[0x6b, 0x90]),
            }
            run(loaded.framed.as_fd(), &packet, None)
        };
        let at = outer.headers();
        // The third has overtaken the second.
        for (count, (seq, padding)) in (1..).zip([(7, 0), (9, 100), (8, 1), (60, 0)]) {
            let (verdict, out) = ask(seq, padding);
            assert_eq!((verdict, out.len()), (REDIRECT, at + 56 + padding), "{outer:?} {seq}");
            let answer = Probe::open(&out[at..at + 56], &key).unwrap();
            let told = Header::parse(&out[at..]).unwrap();
            assert_eq!(told, Header { packet_type: PacketType::Response, ..header });
            assert_eq!((answer.seq, answer.t_sc, answer.sc), (seq, 9, seq));
            assert_eq!((answer.r, answer.ss, answer.heard), (count, count, 1));
            let now = (monotonic().0 / 1_000) as u32;
            assert!(now.wrapping_sub(answer.t_ss) < 60_000_000 && answer.dt < 60_000_000);
            assert_eq!(out[at - 8..at - 4], [PORT.to_be_bytes(), 6000u16.to_be_bytes()].concat());
            match outer {
                Outer::V4 => assert_eq!((out[15], header_sum(&out[14..34]) % 0xffff), (46 << 2, 0)),
                Outer::V6 => assert_eq!(out[14..16], [0x6b, 0x80]),
            }
        }
        for seq in [7, 8, 9, 60, 28, 1] {
            assert_eq!(ask(seq, 0).0, SHOT, "{outer:?} {seq} came before, or is too old to tell");
        }
        assert_eq!(ask(29, 0).0, REDIRECT);
    }
    let count = loaded.maps.count();
    assert_eq!((count.probes, count.replayed, count.answered, count.limited), (10, 12, 0, 0));
}

#[test]
fn alone_what_is_no_valid_compact_probe_passes_as_it_is() {
    let Some(loaded) = alone(OPTIONS) else { return };
    let header = Header::new(PacketType::Request, 3, 5, 1);
    let probe = Probe { seq: 1, ..Probe::default() };
    for outer in Outer::BOTH {
        let packet =
            |payload: &[u8]| frame(outer, outer.address(1), outer.address(2), PORT, payload);
        let good = probe.seal(&header, &ProbeKey::default());
        let head = |head: Header| packet(&probe.seal(&head, &ProbeKey::default()));
        let mut odd = vec![
            packet(&good[..55]),
            packet(&probe.seal(&header, &ProbeKey([1; 16]))),
            head(Header { packet_type: PacketType::Response, ..header }),
            head(Header { flags: 1, ..header }),
            frame(outer, outer.address(1), outer.address(3), PORT, &good),
            frame(outer, outer.address(1), outer.address(2), PORT + 1, &good),
        ];
        for i in 0..56 {
            let mut bad = good;
            bad[i] ^= 0x20;
            odd.push(packet(&bad));
        }
        for (i, packet) in odd.into_iter().enumerate() {
            assert_eq!(
                run(loaded.framed.as_fd(), &packet, None),
                (UNSPEC, packet),
                "{outer:?} {i}"
            );
        }
    }
    assert_eq!(loaded.maps.count().probes, 0);
    let plain = frame(Outer::V4, Outer::V4.address(1), Outer::V4.address(2), STAMP_PORT, &plain(3));
    assert_eq!(run(loaded.framed.as_fd(), &plain, None).0, REDIRECT, "STAMP beside it");
}
