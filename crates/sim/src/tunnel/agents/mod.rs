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
use alloc::string::String;

use segue_ip::Prefix;

use super::signal;
use crate::net::{Hop, Rule};
use crate::packet::UDP;
use crate::{AgentId, Network, NodeId};

pub use anchor::{AnchorAgent, AnchorOrder, AnchorRole, Enrolment};
pub use engine::{Tunnels, Wish};
pub use host::{HostAgent, HostOrder, HostRole};

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
