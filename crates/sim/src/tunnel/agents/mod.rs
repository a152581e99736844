//! The ends of the tunnels as agents of a [`Network`].
//!
//! ```text
//!   applications ── inner address ─► HostAgent ══ bytes, inner packets ══════════► AnchorAgent ─► networks
//!   (on the host's node)   rule      (sends over an interface)            (owns the pool)
//! ```
//!
//! An application on the host has the inner address as its source. It learns it from its node: once the anchor has
//! given the host the address, the host's agent gives it to the node ([`crate::Io::set_address`]), and
//! [`crate::Agent::interfaces_changed`] tells. An application that knows the address beforehand (an anchor gives a
//! known host its former address) can use it at once: its packets wait for the first path.

mod anchor;
mod engine;
mod host;
mod signalling;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::net::{IpAddr, SocketAddr};

use segue_clock::Time;
use segue_ip::Prefix;
use segue_tunnel::Report;
use segue_wire::FlowKey;

use super::{Inner, Message, bytes, signal};
use crate::net::{Hop, Rule};
use crate::packet::{Raw, UDP};
use crate::{AgentId, Network, NodeId, Packet};

pub use anchor::{AnchorAgent, AnchorOrder, AnchorRole, Enrolment};
pub use engine::{Tunnels, Wish};
pub use host::{HostAgent, HostOrder, HostRole};
pub use signalling::Signalling;

/// Puts a host on a node. Packets whose source is in one of `pools`, the addresses that its anchor gives away, go to
/// it.
pub fn add_host(
    network: &mut Network,
    node: NodeId,
    name: impl Into<String>,
    agent: HostAgent,
    pools: &[Prefix],
) -> AgentId {
    let port = agent.port();
    let ports = [(UDP, port), (UDP, signal::SIGNAL_PORT)];
    let id = network.add_agent(node, name, &ports, Box::new(agent));
    for pool in pools {
        let rule = Rule { from: Some(*pool), ..Rule::all(Hop::Agent(id)) };
        network.node_mut(node).routes.add_rule(rule);
    }
    id
}

/// Puts an anchor on a node. Packets to `pools`, the addresses that it gives away, go there from everywhere.
pub fn add_anchor(
    network: &mut Network,
    node: NodeId,
    name: impl Into<String>,
    agent: AnchorAgent,
    pools: &[Prefix],
    transit: impl Fn(NodeId) -> bool,
) -> AgentId {
    let ports = [(UDP, agent.port()), (UDP, signal::SIGNAL_PORT)];
    let id = network.add_agent(node, name, &ports, Box::new(agent));
    for pool in pools {
        network.route_prefix(*pool, node, &transit);
        let rule = Rule { to: Some(*pool), ..Rule::all(Hop::Agent(id)) };
        network.node_mut(node).routes.add_rule(rule);
    }
    id
}

/// The flow of a packet, as the packet paths see it.
#[must_use]
pub fn flow_key(packet: &Packet) -> FlowKey {
    let (sport, dport) = packet.ports;
    let label = if (sport, dport) == (0, 0) { packet.label } else { 0 };
    FlowKey { src: packet.src, dst: packet.dst, sport, dport, protocol: packet.protocol, label }
}

pub(super) fn inner(packet: Packet) -> Inner<Packet> {
    Inner { key: flow_key(&packet), dscp: packet.dscp, bytes: packet.bytes, payload: packet }
}

/// A message between these ends as a packet. Data has the code point of what is in it (RFC 2983: uniform).
fn tunnelled(now: Time, from: SocketAddr, to: SocketAddr, message: Message<Packet>) -> Packet {
    let dscp = message.inner().map_or(0, |inner| inner.dscp);
    let (bytes, inner) = bytes::seal(message);
    let packet = Packet::carrying(place(from), place(to), bytes, inner);
    Packet { dscp, sent: now, ..packet }
}

fn signalled(now: Time, from: SocketAddr, to: SocketAddr, datagram: &signal::Datagram) -> Packet {
    Packet { sent: now, ..Packet::udp(place(from), place(to), datagram.encode()) }
}

fn place(end: SocketAddr) -> (IpAddr, u16) {
    (end.ip(), end.port())
}

/// What came for an end, from where and to which of its addresses.
enum Came {
    Tunnel(SocketAddr, SocketAddr, Raw),
    Signal(SocketAddr, SocketAddr, signal::Datagram),
}

/// Reads a packet to an end; `None` for what neither tunnels nor signalling send.
fn came(packet: Packet) -> Option<Came> {
    let (sport, dport) = packet.ports;
    let (from, to) = ((packet.src, sport).into(), (packet.dst, dport).into());
    let raw = *packet.into_value::<Raw>().ok()?;
    if dport == signal::SIGNAL_PORT {
        return Some(Came::Signal(from, to, signal::Datagram::decode(&raw.bytes)?));
    }
    Some(Came::Tunnel(from, to, raw))
}

/// A line of the event log.
fn line(report: &Report) -> String {
    let of = |host: &String| if host.is_empty() { String::new() } else { format!("{host}: ") };
    match report {
        Report::Registered { host, inner } => {
            let inner: alloc::vec::Vec<String> = inner.iter().map(ToString::to_string).collect();
            format!("{}registered with {}", of(host), inner.join(", "))
        }
        Report::Refused { host, reason } => format!("{}refused: {reason}", of(host)),
        Report::Gone { host } => format!("{}gone", of(host)),
        Report::PathAdded { host, path } => format!("{}path {path} added", of(host)),
        Report::PathRemoved { host, path } => format!("{}path {path} removed", of(host)),
        Report::PathState { host, path, state, heard, silent, bound } => {
            let heard = if *heard { "" } else { ", downlink not heard" };
            let silent = silent.map_or_else(String::new, |s| format!(", silent for {s}"));
            format!("{}path {path} {state:?}{heard}{silent}, bound {bound}", of(host))
        }
        Report::PathMtu { path, up, down } => {
            format!("path {path} takes {up} bytes up, {down} down")
        }
        Report::PathDoubt { host, path } => format!("{}path {path} in doubt", of(host)),
        Report::Handover { host, class, from, to, cause, flows } => {
            let class =
                class.map_or_else(String::new, |class| format!(" of class {}", class.name()));
            format!("{}{flows} flows{class} from {from} to {to}: {}", of(host), cause.name())
        }
    }
}
