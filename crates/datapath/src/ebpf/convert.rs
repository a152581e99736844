//! The words of the trait as the programs' types.

use std::net::IpAddr;

use super::skel::{endpoint, path_config, probe_data, probe_order};
use super::tables::mapped;
use crate::{PathConfig, ProbeKind, ProbeOrder};

/// `PATH_USED` of segue.bpf.h.
pub(super) const PATH_USED: u32 = 1;

/// A path as the programs read it.
pub(super) fn kernel_path(config: &PathConfig) -> path_config {
    let (low, high) = config.key.0.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
    path_config {
        flags: PATH_USED,
        owner: config.owner,
        tx_index: config.tx_index.to_be(),
        via_slot: 0,
        tx_cookie: config.tx_cookie.to_be(),
        rx_cookie: config.rx_cookie.to_be(),
        key0: word(low),
        key1: word(high),
        endpoint: kernel_endpoint(config),
        gateway: config.gateway.map(mapped).unwrap_or_default(),
        heard: 0,
        gateway_family: config.gateway.map_or(0, family),
        reserved: [0; 5],
    }
}

/// Addresses of both ends and of one family, or none.
fn kernel_endpoint(config: &PathConfig) -> endpoint {
    match (config.local, config.remote) {
        (Some(local), Some(remote)) if family(local.ip()) == family(remote.ip()) => endpoint {
            local: mapped(local.ip()),
            remote: mapped(remote.ip()),
            ifindex: config.ifindex,
            remote_port: remote.port().to_be(),
            family: family(remote.ip()),
            reserved: 0,
        },
        _ => endpoint::default(),
    }
}

fn family(address: IpAddr) -> u8 {
    match address.to_canonical() {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}

/// A probe to send as the programs read it.
pub(super) fn kernel_order(order: &ProbeOrder) -> probe_order {
    let p = &order.probe;
    probe_order {
        slot: order.slot,
        held_since: order.held_since,
        kind: match order.kind {
            ProbeKind::Request => 0,
            ProbeKind::Response | ProbeKind::Unsolicited => 2,
        },
        k: order.k,
        reserved: [0; 6],
        probe: probe_data {
            seq: p.seq.to_be(),
            t_sc: p.t_sc.to_be(),
            t_ss: p.t_ss.to_be(),
            dt: p.dt.to_be(),
            sc: p.sc.to_be(),
            ss: p.ss.to_be(),
            r: p.r.to_be(),
            heard: p.heard.to_be(),
            t_ka_ms: p.t_ka_ms.to_be(),
        },
        reserved_mac: 0,
    }
}
