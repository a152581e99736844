//! Tests of the anchor's machine with handmade inputs.

extern crate std;

mod addresses;
mod reinject;
mod scale;

use alloc::format;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_keepalive::{Arrival, MeasuredBy};
use segue_wire::signal::{PathOffer, Timescale};
use segue_wire::{Encapsulation, Mode, Probe};

use crate::{AnchorConfig, Pool, ProbeEvent, ProbeKind};

fn config(max_paths: u32) -> AnchorConfig {
    AnchorConfig {
        port: 5005,
        pool_v4: Pool::new(Prefix::new([10, 0, 0, 0], 8)),
        pool_v6: None,
        max_paths,
        expiry: Span::from_secs(60),
        rest: Span::from_secs(60),
        resting: Vec::new(),
        measured_by: MeasuredBy::Machine,
        largest: None,
        allow_upmt: false,
    }
}

fn offer(path: u8) -> PathOffer {
    PathOffer {
        path,
        name: format!("if{path}"),
        index: u32::from(path),
        cookie: 7,
        k: 3,
        t_ka_ms: 200,
        mode: Mode::Both,
        rides: false,
        encapsulation: Encapsulation::Segue,
        n: 10,
        taus: [Timescale::symmetric(1_000); 2],
        follows_use: false,
        largest: 1_456,
        v6: false,
        checksums: false,
    }
}

/// A request on the path in this slot; `received` is the datapath's packet counter at its arrival.
fn request(slot: u32, at: Time, received: u32, probe: Probe) -> ProbeEvent {
    ProbeEvent {
        slot,
        kind: ProbeKind::Request,
        k: 3,
        report: false,
        age: 0,
        arrival: Arrival::new(probe, at, received),
        remote: ([192, 0, 2, 1], 5005).into(),
        kernel_stamp: true,
    }
}
