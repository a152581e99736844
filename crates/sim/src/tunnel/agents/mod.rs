//! Tunnel ends as agents of a [`Network`].
//!
//! ```text
//!   applications ── inner address ─► HostAgent ══ bytes, inner packets ══════════► AnchorAgent ─► networks
//!   (on the host's node)   rule      (sends over an interface)            (owns the pool)
//! ```
//!
//! An application on the host uses the inner address as its source. It learns the address from its node: once the
//! anchor has assigned it, the host's agent adds it to the node ([`crate::Io::set_address`]), and
//! [`crate::Agent::interfaces_changed`] notifies the application. An application that knows the address
//! beforehand (an anchor assigns known hosts their former address) can use it at once: its packets wait for the
//! first path.

mod anchor;
mod engine;
mod host;
mod signalling;

use alloc::boxed::Box;
use alloc::string::String;

use segue_ip::Prefix;

use super::signal;
use crate::net::{Hop, Rule};
use crate::packet::UDP;
use crate::{AgentId, Network, NodeId};

pub use anchor::{AnchorAgent, AnchorOrder, AnchorRole, Enrolment};
pub use engine::{Tunnels, Wish};
pub use host::{HostAgent, HostOrder, HostRole};

/// Adds a host to a node. Packets with a source in one of `pools`, from which its anchor assigns addresses, are
/// routed to the host's agent.
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

/// Adds an anchor to a node. Packets to `pools`, from which it assigns addresses, are routed to the anchor from
/// everywhere.
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
