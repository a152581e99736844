//! The eBPF datapath on this kernel, with real devices and packets in separate namespaces. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panic, as tests do")]

mod bare;
mod batch;
mod checksums;
mod crash;
mod differential;
mod forward;
mod hostile;
#[path = "../user_lab/local.rs"]
mod local;
mod measure;
mod modes;
mod moves;
#[path = "../user_lab/raw.rs"]
mod raw;
mod reinject;
#[path = "../reinjection/mod.rs"]
mod reinjection;
mod reuse;
mod rides;
mod stage;
mod traffic;
mod wire;
mod world;

use segue_datapath::ebpf::{EbpfOptions, Xdp};
use segue_datapath::{Datapath, ProbeKind};
use traffic::{bulk_tcp, datagrams};
use world::{Family, Wire, World, anchor_slot, eventually, host_slot, may_run};

fn options(xdp: Xdp) -> EbpfOptions {
    EbpfOptions { xdp, ..EbpfOptions::default() }
}

#[test]
fn requests_are_answered_in_the_kernel_with_times_and_counters_that_fit() {
    if !may_run() {
        return;
    }
    for outer in Family::BOTH {
        let world = World::new(outer, Wire::Whole, 1, EbpfOptions::default());
        world.anchor.datapath.lock().unwrap().set_heard(&[anchor_slot(0)], 0x8001);
        for seq in 1..=3 {
            let back = world.probe(0, seq);
            assert_eq!(back.kind, ProbeKind::Response);
            assert_eq!((back.arrival.probe.seq, back.k, back.arrival.probe.t_ka_ms), (seq, 3, 200));
            assert_eq!(
                (back.arrival.probe.sc, back.arrival.probe.ss, back.arrival.probe.r),
                (seq, seq, seq)
            );
            assert_eq!((back.arrival.received, back.arrival.probe.heard), (seq, 0x8001));
            let whole_us = (back.arrival.at.0 / 1000) as u32;
            let rtt_us =
                whole_us.wrapping_sub(back.arrival.probe.t_sc).wrapping_sub(back.arrival.probe.dt);
            println!("{outer:?} seq {seq}: RTT {rtt_us} us, held {} us", back.arrival.probe.dt);
            assert!(rtt_us < 1_000_000 && back.arrival.probe.dt < 1_000_000);
        }
        let seen = world.anchor.wait_for_probe(|e| e.arrival.probe.seq == 3);
        assert_eq!(
            (seen.kind, seen.slot, seen.arrival.received),
            (ProbeKind::Request, anchor_slot(0), 3)
        );
        assert_eq!(seen.remote, world.host_path(0).local.unwrap());
    }
}

fn carries_everything(outer: Family, wire: Wire, xdp: Xdp) {
    if !may_run() {
        return;
    }
    let world = World::ready(outer, wire, 1, options(xdp));
    let (host, anchor) = (&world.host.ns, &world.anchor.ns);
    for inner in Family::BOTH {
        let to = inner.inner(2);
        bulk_tcp(host, anchor, to, 4 << 20);
        assert_eq!(datagrams(host, anchor, to, 200, 700, 1).len(), 200, "{inner:?} datagrams");
        assert_eq!(datagrams(host, anchor, to, 200, 700, 20).len(), 200, "{inner:?} UDP GSO");
    }
    // Everything is acknowledged, so it has arrived, except copies that were lost on a busy machine because the ring
    // between the two devices was full; TCP has retransmitted those.
    let mut seen = String::new();
    eventually("agreement of the counters", || {
        let (a, b) = (world.host.counters(host_slot(0)), world.anchor.counters(anchor_slot(0)));
        let lost = world.host.lost_on_wire() + world.anchor.lost_on_wire();
        seen = format!("{outer:?} {wire:?}: {a:?} {b:?}, {lost} lost on the wire");
        let missing = |sent: u32, received| sent.checked_sub(received).map(u64::from);
        let both = missing(a.tx_packets, b.rx_packets).zip(missing(b.tx_packets, a.rx_packets));
        let bytes = (a.tx_bytes, b.tx_bytes) == (b.rx_bytes, a.rx_bytes) || lost > 0;
        bytes && both.is_some_and(|(up, down)| up + down <= lost)
    });
    println!("{seen}");
}

#[test]
fn ipv4_carries_everything_with_offloads_whole() {
    carries_everything(Family::V4, Wire::Whole, Xdp::Off);
}
#[test]
fn ipv4_carries_everything_without_segmentation_offload() {
    carries_everything(Family::V4, Wire::NoGso, Xdp::Off);
}
#[test]
fn ipv4_carries_everything_without_checksum_offload() {
    carries_everything(Family::V4, Wire::NoChecksum, Xdp::Off);
}
#[test]
fn ipv6_carries_everything_with_offloads_whole() {
    carries_everything(Family::V6, Wire::Whole, Xdp::Off);
}
#[test]
fn ipv6_carries_everything_without_segmentation_offload() {
    carries_everything(Family::V6, Wire::NoGso, Xdp::Off);
}
#[test]
fn ipv6_carries_everything_without_checksum_offload() {
    carries_everything(Family::V6, Wire::NoChecksum, Xdp::Off);
}
#[test]
fn xdp_carries_everything_over_ipv4() {
    carries_everything(Family::V4, Wire::NoGso, Xdp::On);
}
#[test]
fn xdp_carries_everything_over_ipv6() {
    carries_everything(Family::V6, Wire::NoChecksum, Xdp::On);
}
