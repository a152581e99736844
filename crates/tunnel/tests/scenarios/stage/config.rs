//! The settings of most scenarios.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::Span;
use segue_keepalive::Config as Keepalive;
use segue_tunnel::{AnchorConfig, HostConfig, PathConfig, Pool};
use segue_wire::signal::{PathOffer, Timescale};
use segue_wire::{Encapsulation, Mode};

/// Where the anchor listens.
pub(crate) const ANCHOR: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 5_005);

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

pub(crate) fn secs(s: u64) -> Span {
    Span::from_secs(s)
}

pub(crate) fn keepalive(k: u8, t_ka_ms: u64) -> Keepalive {
    Keepalive { k, t_ka: ms(t_ka_ms), ..Keepalive::default() }
}

pub(crate) fn host_config(k: u8, t_ka_ms: u64) -> HostConfig {
    HostConfig {
        anchor: vec![ANCHOR],
        epoch: 1,
        port: 5005,
        path: PathConfig {
            keepalive: keepalive(k, t_ka_ms),
            enabled: true,
            adaptive: None,
            price: 0.0,
            preference: 0.0,
            encapsulation: Encapsulation::Segue,
            source: None,
        },
        paths: BTreeMap::new(),
        steering: Default::default(),
        measured_by: segue_keepalive::MeasuredBy::Machine,
        largest: None,
    }
}

pub(crate) fn anchor_config() -> AnchorConfig {
    AnchorConfig {
        port: 5005,
        pool_v4: Pool::new("10.7.0.0/24".parse().unwrap()),
        pool_v6: None,
        max_paths: 64,
        expiry: secs(60),
        rest: secs(86_400),
        resting: Vec::new(),
        measured_by: segue_keepalive::MeasuredBy::Machine,
        largest: None,
        allow_upmt: false,
    }
}

/// A host's offer without a machine behind it.
pub(crate) fn offer(path: u8) -> PathOffer {
    PathOffer {
        path,
        name: format!("if{path}"),
        index: path.into(),
        cookie: 7,
        k: 3,
        t_ka_ms: 60,
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
