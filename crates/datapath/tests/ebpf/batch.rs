//! Requests of many paths at once.

use std::net::SocketAddr;
use std::ops::Range;

use segue_datapath::ebpf::Xdp;
use segue_datapath::{Datapath, PathSetup, ProbeKind, ProbeOrder};
use segue_wire::{DropReason, Probe};

use crate::options;
use crate::world::{Family, PORT, Wire, World, eventually, host_slot, may_run};

/// The first slot of the many paths; they share one wire and have the same slots at both ends.
const FIRST: u32 = 16;

fn set_many(world: &World, remote: u8, count: u32) {
    for slot in FIRST..FIRST + count {
        let (tx_cookie, rx_cookie) = (u64::from(slot) + (1 << 40), u64::from(slot) + (1 << 41));
        let host = PathSetup {
            tx_index: slot,
            tx_cookie,
            rx_cookie,
            remote: Some(SocketAddr::new(world.outer.outer(0, remote), PORT)),
            ..world.host_path(0)
        };
        let anchor = PathSetup {
            tx_index: slot,
            tx_cookie: rx_cookie,
            rx_cookie: tx_cookie,
            ..world.anchor_path(0)
        };
        world.host.datapath.lock().unwrap().set_path(slot, &host).unwrap();
        let mut datapath = world.anchor.datapath.lock().unwrap();
        datapath.set_path(slot, &anchor).unwrap();
        datapath.set_quiet(slot, true);
    }
}

fn order_many(world: &World, slots: impl Iterator<Item = u32>, question: bool) {
    let orders: Vec<ProbeOrder> = slots
        .map(|slot| ProbeOrder {
            question,
            ..ProbeOrder::plain(
                slot,
                ProbeKind::Request,
                3,
                Probe { t_ka_ms: 200, heard: 3, ..Probe::default() },
            )
        })
        .collect();
    world.host.datapath.lock().unwrap().send_probes(&orders).unwrap();
}

/// Every request that the wire did not lose is valid and arrives once, on each wire.
fn all_arrive(outer: Family, wire: Wire, xdp: Xdp, count: u32, rounds: u32) {
    let world = World::with_paths(outer, wire, 1, options(xdp), FIRST + count);
    world.probe(0, 1); // makes both ends learn their neighbours
    set_many(&world, 2, count);
    let received = |slots: Range<u32>| -> u64 {
        let mut anchor = world.anchor.datapath.lock().unwrap();
        slots.map(|slot| u64::from(anchor.counters(slot).rx_packets)).sum()
    };
    let lost = || world.host.lost_on_wire() + world.anchor.lost_on_wire();
    for round in 1..=rounds {
        // A veth ring holds 256 frames and drops the rest. Send in step with the receiver, so that the ring is empty
        // again even on a busy machine.
        for first in (FIRST..FIRST + count).step_by(192) {
            let slots = first..(first + 192).min(FIRST + count);
            let wanted = u64::from(round) * slots.len() as u64;
            order_many(&world, slots.clone(), false);
            eventually("every request's arrival", || received(slots.clone()) + lost() >= wanted);
        }
    }
    let sent = u64::from(count * rounds);
    let arrived = received(FIRST..FIRST + count);
    assert!(arrived >= sent * 9 / 10, "{arrived} of {sent}, {} lost on the wire", lost());
    assert_eq!(world.host.dropped(DropReason::NoRemote), 0);
    for reason in [DropReason::Mac, DropReason::Replay, DropReason::Cookie, DropReason::Field] {
        assert_eq!(world.anchor.dropped(reason), 0, "{reason:?}");
    }
    // Questions, which are not counted.
    order_many(&world, FIRST..FIRST + 192, true);
    for slot in FIRST..FIRST + count {
        let host = world.host.counters(slot);
        assert_eq!(host.tx_packets, rounds, "path {slot}");
        assert!(world.anchor.counters(slot).rx_packets <= rounds);
    }
}

#[test]
fn a_batch_of_requests_arrives_on_every_wire() {
    if !may_run() {
        return;
    }
    for (outer, wire, xdp) in [
        (Family::V4, Wire::NoChecksum, Xdp::On),
        (Family::V6, Wire::NoChecksum, Xdp::On),
        (Family::V4, Wire::Whole, Xdp::Auto),
    ] {
        all_arrive(outer, wire, xdp, 600, 2);
    }
}

#[test]
#[ignore = "ten thousand paths; make soak"]
fn the_requests_of_ten_thousand_paths_arrive() {
    if may_run() {
        all_arrive(Family::V4, Wire::Whole, Xdp::On, 10_000, 3);
    }
}

#[test]
fn a_batch_to_a_neighbour_that_is_not_there_goes_the_ordinary_way() {
    if !may_run() {
        return;
    }
    let world = World::with_paths(Family::V4, Wire::Whole, 1, options(Xdp::On), FIRST + 64);
    set_many(&world, 77, 64);
    order_many(&world, FIRST..FIRST + 64, false);
    for slot in FIRST..FIRST + 64 {
        assert_eq!(world.host.counters(slot).tx_packets, 1, "path {slot}");
    }
    assert_eq!(world.probe(0, 1).slot, host_slot(0));
}
