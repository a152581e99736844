//! The reflector behind the tunnel's ingress program, under `BPF_PROG_TEST_RUN`, with the wire crate as
//! the judge.

use segue_wire::stamp::{Reply, SenderPacket, Timestamp};

use super::*;
use crate::ebpf::packets::{ARRIVED_ON, Outer, PORT, REDIRECT, frame, run};
use crate::ebpf::tables::Tables;
use crate::ebpf::{Programs, load};
use crate::{Role, Setup};

const STAMP_PORT: u16 = 862;
const RATE: u32 = 5;
const UNSPEC: i32 = -1;
const SHOT: i32 = 2;

/// The programs of an anchor that answers STAMP; `None` without the privilege to load them.
fn anchor() -> Option<(Programs, Tables)> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: the eBPF programs need root");
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
    let stamp = StampOptions { port: STAMP_PORT, stateful: true, rate: RATE };
    let (programs, tables, _) = load(&setup, ARRIVED_ON, Some(stamp)).unwrap();
    tables.set_locals(&Outer::BOTH.map(|outer| outer.address(2)).into()).unwrap();
    Some((programs, tables))
}

/// The verdict on a request of `len` bytes, all zero behind the base packet, and the frame afterwards.
fn ask(programs: &Programs, outer: Outer, seq: u32, rest: &[u8]) -> (i32, Vec<u8>) {
    let packet = SenderPacket { seq, timestamp: Timestamp(7 << 32), ssid: 9, ..Default::default() };
    let mut request = vec![0; segue_wire::stamp::BASE_LEN];
    packet.emit(None, &mut request).unwrap();
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
        // Each session has numbers of its own, and its padding comes back.
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
fn behind_the_tunnel_no_more_are_answered_in_a_second_than_told() {
    let Some((programs, _tables)) = anchor() else { return };
    programs.stamp.set_clock().unwrap();
    let verdicts: Vec<i32> = (0..20).map(|seq| ask(&programs, Outer::V4, seq, &[]).0).collect();
    let answered = verdicts.iter().filter(|verdict| **verdict == REDIRECT).count();
    // Two seconds may have a part in it.
    assert!((5..=10).contains(&answered), "{verdicts:?}");
    assert!(verdicts.iter().all(|verdict| [REDIRECT, SHOT].contains(verdict)), "{verdicts:?}");
    let count = programs.stamp.count();
    assert_eq!((count.answered, count.limited), (answered as u64, 20 - answered as u64));
}
