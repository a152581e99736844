//! Packet size tests under `BPF_PROG_TEST_RUN`.

use std::cell::RefCell;

use libbpf_rs::RingBufferBuilder;
use segue_wire::{DropReason, Header, PacketType, Size};

use super::packets::{KEY, Lab, Outer, SHOT, SLOT, header, to_us};
use super::skel::{probe_event, probe_kind};
use crate::Role;
use crate::maps::Shared;

/// A frame with this traffic class in its outer header.
fn marked(outer: Outer, mut frame: Vec<u8>, class: u8) -> Vec<u8> {
    match outer {
        Outer::V4 => frame[15] = class,
        Outer::V6 => (frame[14], frame[15]) = (0x60 | class >> 4, class << 4),
    }
    frame
}

#[test]
fn a_test_of_the_size_goes_to_the_daemon_uncounted_and_what_is_not_as_it_says_is_refused() {
    let Some(lab) = Lab::new(Role::Anchor) else { return };
    let sealed = |size: Size| {
        let mut packet = Vec::new();
        size.seal(&Header { k: 0, ..header(PacketType::Size) }, &KEY, &mut packet);
        packet
    };
    let good = sealed(Size { token: 9, size: 1_400, answer: 60 });
    let told = RefCell::new(Vec::new());
    let mut builder = RingBufferBuilder::new();
    let take = |bytes: &[u8]| {
        let event = probe_event::from_bytes(bytes).unwrap();
        let probe = &event.probe;
        told.borrow_mut().push((event.slot, event.kind, probe.seq, probe.t_sc, event.received));
        0
    };
    builder.add(&lab.tables.events, take).unwrap();
    let events = builder.build().unwrap();
    for outer in Outer::BOTH {
        let class = 46 << 2;
        assert_eq!(lab.ingress(&marked(outer, to_us(outer, &good), class)).0, SHOT);
        events.consume().unwrap();
        let kind = probe_kind::KIND_SIZE.0 as u8;
        let seen = (SLOT, kind, 9u32.to_be(), (1_400u32 << 16 | 60).to_be(), class.into());
        assert_eq!(told.take(), [seen], "{outer:?}");
        assert!(lab.tables.drops().is_empty());
        assert_eq!((lab.state().rx_packets, lab.state().received), (0, 0));
    }
    let mut forged = good.clone();
    forged[16] ^= 1;
    let mut flagged = good.clone();
    flagged[1] = 1;
    let bad = [
        (good[..1_399].to_vec(), DropReason::Field),
        ([&good[..], &[0]].concat(), DropReason::Field),
        (good[..55].to_vec(), DropReason::Truncated),
        (forged, DropReason::Mac),
        (flagged, DropReason::Field),
    ];
    for (n, (packet, reason)) in bad.iter().enumerate() {
        let before = lab.tables.drops().get(reason).copied().unwrap_or(0);
        assert_eq!(lab.ingress(&to_us(Outer::V4, packet)).0, SHOT, "{n}");
        assert_eq!(lab.tables.drops().get(reason), Some(&(before + 1)), "{n}");
    }
    events.consume().unwrap();
    assert!(told.take().is_empty());
}
