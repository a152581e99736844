//! A host's machine and datapath setup at startup.

use std::net::SocketAddr;

use segue_datapath::{Role, Setup};
use segue_keepalive::MeasuredBy;
use segue_linux::clock::realtime_ns;
use segue_tunnel::{Host, HostConfig};
use segue_wire::TUNNEL_PORT;

use super::member::Member;
use crate::random_seed;
use crate::settings::Host as Settings;

/// Outer headers over IPv4 (20 + 8 + 16) and IPv6 (40 + 8 + 16), in bytes.
const OVERHEAD: [u32; 2] = [44, 64];

/// Most flows in its packet path at a time.
const FLOWS: u32 = 65_536;

/// The setup of its datapath.
pub(super) fn setup(settings: &Settings, anchors: &[SocketAddr], has_names: bool) -> Setup {
    let v6 = has_names || anchors.iter().any(SocketAddr::is_ipv6);
    let mtu = settings.mtu.unwrap_or(1_500 - OVERHEAD[usize::from(v6)]);
    settings.tunnel.setup(Role::Host, mtu, (segue_wire::MAX_PATHS as u32, FLOWS))
}

/// The tunnel address of an anchor that signals from here, until it announces another port.
pub(super) fn tunnel_of(anchor: &SocketAddr) -> SocketAddr {
    (anchor.ip(), TUNNEL_PORT).into()
}

/// The machine.
pub(super) fn machine(
    settings: &Settings,
    anchors: &[SocketAddr],
    measured_by: MeasuredBy,
    member: &Member,
    tun_mtu: u32,
) -> anyhow::Result<Host> {
    let config = HostConfig {
        anchor: anchors.iter().map(tunnel_of).collect(),
        epoch: member.next_epoch(realtime_ns()),
        port: settings.tunnel.port,
        path: settings.path.clone(),
        paths: settings.paths.clone(),
        steering: settings.steering.clone().into(),
        measured_by,
        largest: u16::try_from(tun_mtu).ok(),
    };
    Ok(Host::new(config, random_seed()?))
}
