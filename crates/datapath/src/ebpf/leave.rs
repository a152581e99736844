//! Probes at the last hook before the driver: their times are updated to that moment, and nothing else
//! changes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use segue_wire::header::flags::RIDE_RESPONSE;
use segue_wire::{Header, PacketType, Probe};

use super::packets::{
    KEY, Lab, Outer, PEER_COOKIE, PEER_INDEX, PORT, REDIRECT, SLOT, UNSPEC, frame, header, ordered,
};
use super::reflect::udp_sum;
use super::*;
use crate::ProbeKind;

/// The start of struct __sk_buff, up to the control block; indices of the mark and the block.
type Context = [u32; 17];
const MARK: usize = 2;
const CB: usize = 12;

/// Runs a program once on a frame with a context; updates the context.
fn run(program: BorrowedFd<'_>, frame: &[u8], context: &mut Context) -> (i32, Vec<u8>) {
    let (mut out, given) = (vec![0u8; 4096], *context);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ctx_in: given.as_ptr().cast(),
        ctx_size_in: size_of_val(&given) as u32,
        ctx_out: context.as_mut_ptr().cast(),
        ctx_size_out: size_of_val(context) as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: all buffers that the options name outlive the call, with the lengths given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    // The kernel returns this error if the context is longer than its buffer, which it fills.
    assert!(result == 0 || result == -libc::ENOSPC, "test run: {result}");
    out.truncate(options.data_size_out as usize);
    (options.retval as i32, out)
}

/// Passes a frame with this control block through the last hook.
fn leave(lab: &Lab, frame: &[u8], block: [u32; 3]) -> Vec<u8> {
    let mut context = Context::default();
    context[CB..CB + 3].copy_from_slice(&block);
    let (verdict, out) = run(lab.programs.leave.as_fd(), frame, &mut context);
    assert_eq!(verdict, UNSPEC);
    out
}

/// An ordered probe with its control block, as sent by the TUN device's program.
fn sent(lab: &Lab, role: Role, outer: Outer) -> (Vec<u8>, [u32; 3]) {
    let kind = match role {
        Role::Host => ProbeKind::Request,
        Role::Anchor => ProbeKind::Unsolicited,
    };
    let order = ordered(lab, role, kind, outer, Probe { t_ka_ms: 200, ..Probe::default() });
    let mut context = Context::default();
    context[MARK] = MARK_PROBE;
    let (verdict, out) = run(lab.programs.egress.as_fd(), &order, &mut context);
    assert_eq!(verdict, REDIRECT);
    (out, [context[CB], context[CB + 1], context[CB + 2]])
}

/// Checks a probe after a wait: its own stamp, and the hold time of its echo, have grown by the wait.
fn expect_later(before: Probe, after: Probe, response: bool) {
    let own = |probe: &Probe| if response { probe.t_ss } else { probe.t_sc };
    let waited = own(&after).wrapping_sub(own(&before));
    assert!((3_000..60_000_000).contains(&waited), "{waited} µs of 3 ms and more");
    let dt = if before.t_ss == 0 { 0 } else { before.dt.wrapping_add(waited) };
    let expected = match response {
        true => Probe { t_ss: after.t_ss, dt, ..before },
        false => Probe { t_sc: after.t_sc, dt, ..before },
    };
    assert_eq!(after, expected);
}

#[test]
fn what_a_probe_waits_before_the_driver_is_not_in_its_times() {
    for role in [Role::Host, Role::Anchor] {
        let Some(lab) = Lab::new(role) else { return };
        for outer in Outer::BOTH {
            let (frame, block) = sent(&lab, role, outer);
            let at = outer.headers();
            let mut last = frame;
            // Twice, because the underlying device may have these programs too.
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(3));
                let out = leave(&lab, &last, block);
                let [before, after] = [&last, &out].map(|f| Probe::open(&f[at..], &KEY).unwrap());
                expect_later(before, after, role == Role::Anchor);
                assert_eq!(out[..at - 2], last[..at - 2], "headers");
                assert_eq!(out[at..at + Header::LEN], last[at..at + Header::LEN]);
                assert_eq!(udp_sum(outer, &out), 0xffff, "{outer:?} {role:?}");
                last = out;
            }
        }
    }
}

#[test]
fn a_ride_is_stamped_again_without_a_word_of_its_packet() {
    for (role, flags) in [(Role::Host, 0), (Role::Anchor, RIDE_RESPONSE)] {
        let Some(lab) = Lab::new(role) else { return };
        for outer in Outer::BOTH {
            let (_, [magic, ..]) = sent(&lab, role, outer);
            let now_us = (monotonic().0 / 1000) as u32;
            let before = Probe { seq: 9, t_sc: now_us, t_ss: now_us, dt: 7, ..Probe::default() };
            let head = header(PacketType::Ride);
            let head = Header { flags, index: PEER_INDEX, cookie: PEER_COOKIE, ..head };
            let payload =
                [&before.seal(&head, &KEY)[..], b"an inner packet of odd length"].concat();
            let frame = frame(outer, outer.address(2), outer.address(1), PORT, &payload);
            std::thread::sleep(Duration::from_millis(3));
            let out = leave(&lab, &frame, [magic, SLOT, payload.len() as u32]);
            let at = outer.headers();
            let (after, inner) = Probe::open_ride(&out[at..], &KEY).unwrap();
            expect_later(before, after, role == Role::Anchor);
            assert_eq!(inner, b"an inner packet of odd length");
            assert_eq!(
                out[..at + Header::LEN],
                frame[..at + Header::LEN],
                "no checksum, as before"
            );
        }
    }
}

#[test]
fn packets_of_others_pass_the_last_hook_as_they_are() {
    let Some(lab) = Lab::new(Role::Host) else { return };
    for outer in Outer::BOTH {
        let (frame, [magic, slot, tail]) = sent(&lab, Role::Host, outer);
        assert_eq!((slot, tail as usize), (SLOT, Probe::PACKET_LEN));
        let len = frame.len() as u32;
        let blocks = [
            [0, 0, 0],
            [magic ^ 1, slot, tail],
            [magic, slot + 1, tail],
            [magic, u32::MAX, tail],
            [magic, slot, tail - 1],
            [magic, slot, tail + 1],
            [magic, slot, 0],
            [magic, slot, len - 7],
            [magic, slot, len + 1],
            [magic, slot, u32::MAX],
        ];
        for block in blocks {
            assert_eq!(leave(&lab, &frame, block), frame, "{block:x?}");
        }
        // The mark alone does not make a packet ours.
        let at = outer.headers();
        for other in [at + 4, at + 15] {
            let mut frame = frame.clone();
            frame[other] ^= 1;
            assert_eq!(leave(&lab, &frame, [magic, slot, tail]), frame);
        }
        assert_ne!(leave(&lab, &frame, [magic, slot, tail]), frame, "a probe of ours");
        lab.tables.set_path(SLOT, &path_config::default()).unwrap();
        assert_eq!(leave(&lab, &frame, [magic, slot, tail]), frame, "its path is gone");
    }
    assert!(lab.tables.drops().is_empty());
}
