//! Addresses, ports, times and flows common to all runs.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use segue_clock::Span;
use segue_sim::net::PacketFilter;
use segue_steering::Class;

use crate::stage::{CORE, CORE_V6};

/// Port of the tunnels.
pub(super) const PORT: u16 = 5005;
/// Address on which the anchor listens.
pub(super) const ANCHOR: SocketAddr = SocketAddr::new(CORE, PORT);
pub(super) const ANCHOR_V6: SocketAddr = SocketAddr::new(CORE_V6, PORT);
/// The correspondent of the hosts' applications, on the anchor's node.
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
pub(super) const SERVER_V6: IpAddr =
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 99));
/// Ports of the applications: the server's, and the first of a host.
pub(super) const SERVER_PORT: u16 = 7_000;
pub(super) const APP_PORT: u16 = 40_000;
/// Length of the IPv4 pool's prefix, and number of host addresses in it. Small, so that addresses are reused
/// within a run.
pub(super) const POOL_LEN: u8 = 29;
pub(super) const POOL_HOSTS: usize = 5;
pub(super) const POOL_LEN_V6: u8 = 125;
/// Small, so that slots are reused within a run.
pub(super) const MAX_SLOTS: u32 = 14;
/// The anchor forgets a host without a sign of life for this long; short, so that it happens within a run.
pub(super) const EXPIRY: Span = Span::from_secs(6);
/// Time for which a removed host's address is not reassigned; short, so that it ends within a run.
pub(super) const REST: Span = Span::from_secs(2);
/// Flow packets are counted in the last seconds of the quiet time, up to `IN_FLIGHT` before the end.
pub(super) const COUNTED: Span = Span::from_secs(5);
pub(super) const IN_FLIGHT: Span = Span::from_secs(1);
/// Packet size of flows without large packets, in bytes.
pub(super) const SMALL: u16 = 200;
/// Flows per host.
pub(super) const FLOWS: usize = 3;
/// The flow whose packets are as large as the tunnel permits.
pub(super) const LARGE: usize = 1;
/// The flow that is downlink only, over IPv6: the anchor learns no path from it.
pub(super) const SILENT: usize = 2;
/// A flow that sends no large packet over a path for this long is considered to have left it.
pub(super) const PAUSE: Span = Span::from_millis(500);

/// Packet interval and code point of a flow.
pub(super) fn shape_of(flow: usize) -> (Span, u8) {
    // Voice (EF), bulk (CS1) and default.
    let (ms, dscp) = [(40, 46), (70, 8), (110, 0)][flow];
    (Span::from_millis(ms), dscp)
}

/// Returns true if a filter drops a flow's packets.
pub(super) fn hits(filter: PacketFilter, flow: usize) -> bool {
    match filter {
        PacketFilter::Port(port) => [APP_PORT + flow as u16, SERVER_PORT].contains(&port),
        PacketFilter::CodePoint(dscp) => dscp == shape_of(flow).1,
        PacketFilter::Length(..) => true,
    }
}

/// The traffic class that the flow's code point selects.
pub(super) fn class_of(flow: usize) -> Class {
    [Class::Voice, Class::Bulk, Class::Default][flow]
}
