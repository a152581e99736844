//! Addresses, ports, times and flows of every run.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use segue_clock::Span;
use segue_sim::net::PacketFilter;
use segue_steering::Class;

use crate::stage::{CORE, CORE_V6};

/// Port of the tunnels.
pub(super) const PORT: u16 = 5005;
/// Where the anchor listens.
pub(super) const ANCHOR: SocketAddr = SocketAddr::new(CORE, PORT);
pub(super) const ANCHOR_V6: SocketAddr = SocketAddr::new(CORE_V6, PORT);
/// With whom the hosts' applications talk, on the anchor's node.
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
pub(super) const SERVER_V6: IpAddr =
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 99));
/// Ports of the applications: the server's, and the first of a host.
pub(super) const SERVER_PORT: u16 = 7_000;
pub(super) const APP_PORT: u16 = 40_000;
/// Length of the pool's prefix of IPv4, and hosts that have an address in it. Few, so that addresses come round within a run.
pub(super) const POOL_LEN: u8 = 29;
pub(super) const POOL_HOSTS: usize = 5;
pub(super) const POOL_LEN_V6: u8 = 125;
/// Few, so that slots are used again within a run.
pub(super) const MAX_SLOTS: u32 = 14;
/// A host without a sign of life for this long is forgotten; short, so that it happens within a run.
pub(super) const EXPIRY: Span = Span::from_secs(6);
/// How long no host gets the address of a removed one; short, so that it ends within a run.
pub(super) const REST: Span = Span::from_secs(2);
/// Packets of flows are counted in the last seconds of the quiet time, until the second span before the end.
pub(super) const COUNTED: Span = Span::from_secs(5);
pub(super) const IN_FLIGHT: Span = Span::from_secs(1);
/// Bytes of a packet of a flow without large ones.
pub(super) const SMALL: u16 = 200;
/// Flows of each host.
pub(super) const FLOWS: usize = 3;
/// The flow whose packets are as large as the tunnel takes.
pub(super) const LARGE: usize = 1;
/// The flow that only comes down, over IPv6: the anchor learns nothing from it.
pub(super) const SILENT: usize = 2;
/// A flow that sends nothing large over a path for this long has left it.
pub(super) const PAUSE: Span = Span::from_millis(500);

/// What a flow is like: distance of its packets and code point.
pub(super) fn shape_of(flow: usize) -> (Span, u8) {
    // Voice (EF), bulk (CS1) and default.
    let (ms, dscp) = [(40, 46), (70, 8), (110, 0)][flow];
    (Span::from_millis(ms), dscp)
}

/// Whether a filter drops a flow's packets.
pub(super) fn hits(filter: PacketFilter, flow: usize) -> bool {
    match filter {
        PacketFilter::Port(port) => [APP_PORT + flow as u16, SERVER_PORT].contains(&port),
        PacketFilter::CodePoint(dscp) => dscp == shape_of(flow).1,
        PacketFilter::Length(..) => true,
    }
}

/// The class that its code point gives it.
pub(super) fn class_of(flow: usize) -> Class {
    [Class::Voice, Class::Bulk, Class::Default][flow]
}
