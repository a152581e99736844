//! Conversions from the trait's types to the programs'.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_keepalive::Tau;
use segue_wire::{Mode, Probe, Size};

use super::skel::{
    denied, endpoint, host_route, inner_pool, path_config, path_flag, path_mode, probe_data,
    probe_event, probe_kind, probe_order, scale,
};
use crate::maps::mapped;
use crate::{PathSetup, ProbeKind, ProbeOrder, Reach, Services};

/// `MODE_SHIFT`, `SILENCE_TURN` and `SILENCE_UNIT_US` of segue.bpf.h.
pub(super) const MODE_SHIFT: u8 = 6;
pub(super) const SILENCE_TURN: u8 = 0x80;
pub(super) const SILENCE_UNIT_US: f64 = 4_000.0;

pub(super) const PATH_USED: u8 = path_flag::PATH_USED.0 as u8;
pub(super) const PATH_VIA: u8 = path_flag::PATH_VIA.0 as u8;
pub(super) const PATH_ONE_WAY: u8 = path_flag::PATH_ONE_WAY.0 as u8;
pub(super) const PATH_RIDES: u8 = path_flag::PATH_RIDES.0 as u8;
pub(super) const PATH_FOLLOWS_USE: u8 = path_flag::PATH_FOLLOWS_USE.0 as u8;
pub(super) const PATH_CHECKSUMS: u8 = path_flag::PATH_CHECKSUMS.0 as u8;
pub(super) const PATH_DEAF: u8 = path_flag::PATH_DEAF.0 as u8;
pub(super) const PATH_QUIET: u8 = path_flag::PATH_QUIET.0 as u8;

/// A path in the format of the programs; `scale` is the index of its time constants.
pub(super) fn kernel_path(config: &PathSetup, scale: u8) -> path_config {
    let (low, high) = config.key.0.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
    let probing = &config.probing;
    path_config {
        owner: config.owner,
        tx_index: config.tx_index.to_be(),
        tx_cookie: config.tx_cookie.to_be(),
        rx_cookie: config.rx_cookie.to_be(),
        key0: word(low),
        key1: word(high),
        via_slot: 0,
        t_ka_us: u32::try_from(probing.t_ka.0 / 1000).unwrap_or(u32::MAX),
        n: u16::try_from(probing.n).unwrap_or(u16::MAX),
        flags: PATH_USED
            | if probing.rides { PATH_RIDES } else { 0 }
            | if probing.follows_use { PATH_FOLLOWS_USE } else { 0 }
            | if probing.checksums { PATH_CHECKSUMS } else { 0 },
        scale: scale | (kernel_mode(probing.mode).0 as u8) << MODE_SHIFT,
        heard: 0,
        k: probing.k,
        silence: 0,
    }
}

/// The silence at which a path was declared down, as the low bits of `silence`: within 4.4 %, at least 4 ms and at
/// most 220 s.
pub(super) fn kernel_silence(silence: Span) -> u8 {
    let units = silence.as_secs_f64() * 1e6 / SILENCE_UNIT_US;
    (units.log2() * 8.0 + 1.0).round().clamp(1.0, f64::from(SILENCE_TURN - 1)) as u8
}

/// `generation_of` of common.bpf.h: distinguishes a path from earlier ones in its slot.
pub(super) fn generation(path: &path_config) -> u32 {
    (path.rx_cookie >> 32) as u32
}

/// A network of inner addresses in the format of the programs; without a network, one that matches nothing.
pub(super) fn kernel_pool(pool: Option<&Prefix>) -> inner_pool {
    let Some(Prefix { addr, len }) = pool else {
        return inner_pool { address: [u32::MAX; 4], mask: [0; 4] };
    };
    let len = u32::from(*len) + if addr.is_ipv4() { 96 } else { 0 };
    let mask = mapped(Ipv6Addr::from(u128::MAX.checked_shl(128 - len).unwrap_or(0)).into());
    let address = mapped(*addr);
    inner_pool { address: std::array::from_fn(|i| address[i] & mask[i]), mask }
}

/// Bits for the destinations that hosts may not reach.
pub(super) fn kernel_denied(reach: Reach) -> u64 {
    let deny = |allowed: bool, bit: denied| if allowed { 0 } else { u64::from(bit.0) };
    deny(reach.hosts, denied::DENY_HOSTS)
        | deny(reach.anchor == Services::All, denied::DENY_ANCHOR)
        | deny(reach.anchor != Services::Nothing, denied::DENY_PING)
        | deny(reach.routed, denied::DENY_ROUTED)
}

fn kernel_mode(mode: Mode) -> path_mode {
    match mode {
        Mode::Both => path_mode::MODE_BOTH,
        Mode::Client => path_mode::MODE_CLIENT,
        Mode::Reports => path_mode::MODE_REPORTS,
        Mode::RoundTripLoss => path_mode::MODE_ROUND_TRIP_LOSS,
    }
}

/// Time constants in the format of the programs.
pub(super) fn kernel_scale(taus: &[Tau; 2]) -> scale {
    scale { rise: taus.map(|tau| rate(tau.rise)), fall: taus.map(|tau| rate(tau.fall)) }
}

/// 2⁴⁸/τ with τ in microseconds; all ones for zero: the average then follows the sample.
fn rate(tau: Span) -> u64 {
    if tau == Span::ZERO {
        return u64::MAX;
    }
    let ns = u128::from(tau.0.max(1000));
    (((1000u128 << 48) + ns / 2) / ns) as u64
}

/// The addresses of both ends, if both are known and of the same family.
pub(super) fn both_ends(config: &PathSetup) -> Option<(SocketAddr, SocketAddr)> {
    let (local, remote) = config.local.zip(config.remote)?;
    (family(local.ip()) == family(remote.ip())).then_some((local, remote))
}

/// The destination of packets; `local` is the number of this end's address.
pub(super) fn kernel_endpoint(remote: SocketAddr, ifindex: u32, local: u16) -> endpoint {
    endpoint { remote: mapped(remote.ip()), ifindex, remote_port: remote.port().to_be(), local }
}

/// A host's route to the path's remote end.
pub(super) fn kernel_route(endpoint: endpoint, gateway: Option<IpAddr>) -> host_route {
    host_route {
        endpoint,
        gateway: gateway.map(mapped).unwrap_or_default(),
        gateway_family: gateway.map_or(0, family),
        reserved: 0,
    }
}

/// 4 or 6.
pub(super) fn family(address: IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}

/// The response to a request that the programs could not turn into its own response.
pub(super) fn kernel_answer(request: &probe_event) -> probe_order {
    probe_order {
        slot: request.slot,
        held_since: Time(request.at_ns).micros32(),
        kind: probe_kind::KIND_RESPONSE.0 as u8,
        k: request.k,
        swept: 0,
        age: 0,
        tos: 0,
        reserved: [0; 2],
        question: 0, // the request rode, and a question is always answered in place
        probe: probe_data { r: request.received.to_be(), ..request.probe },
        reserved_mac: 0,
    }
}

/// The response that a path still holds, if its time is up.
pub(super) fn kernel_sweep(slot: u32) -> probe_order {
    let kind = probe_kind::KIND_RESPONSE.0 as u8;
    probe_order { slot, kind, swept: 1, ..probe_order::default() }
}

/// A packet size test of a path, or the answer to one.
pub(super) fn kernel_size(slot: u32, size: Size, dscp: u8) -> probe_order {
    let kind = probe_kind::KIND_SIZE.0 as u8;
    let Probe { seq, t_sc, .. } = size.words();
    let probe = probe_data { seq: seq.to_be(), t_sc: t_sc.to_be(), ..probe_data::default() };
    probe_order { slot, kind, tos: dscp << 2, probe, ..probe_order::default() }
}

/// A probe to send, in the format of the programs.
pub(super) fn kernel_order(order: &ProbeOrder) -> probe_order {
    let p = &order.probe;
    probe_order {
        slot: order.slot,
        held_since: order.held_since,
        kind: match order.kind {
            ProbeKind::Request => probe_kind::KIND_REQUEST.0 as u8,
            ProbeKind::Response | ProbeKind::Unsolicited => probe_kind::KIND_UNSOLICITED.0 as u8,
        },
        k: order.k,
        swept: 0,
        age: order.age,
        tos: 0,
        reserved: [0; 2],
        question: order.question.into(),
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
