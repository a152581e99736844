//! Programs on a node: tunnel ends, transport connections, applications and mobility protocols.

use core::any::Any;
use core::net::IpAddr;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::{Form, Forward, Forwarding, LinkEvent, Prefix};
use segue_wire::DropReason;

use crate::net::{Channel, Node, NodeId, Packets, neighbour};
use crate::packet::Packet;
use crate::results::Results;

/// A program on a node. The network calls it for every event that concerns it. After each call the network
/// carries out the requests in [`Io`] and arms [`deadline`](Agent::deadline).
pub trait Agent: Any {
    /// Called once when the run begins.
    fn start(&mut self, _io: &mut Io<'_>) {}

    /// A packet for one of its ports or prefixes has arrived over the interface with index `over`. `None`: the
    /// packet was sent by a program on this node, or came out of a tunnel.
    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet);

    /// The deadline has been reached.
    fn wake(&mut self, _io: &mut Io<'_>) {}

    /// Time of the next [`wake`](Agent::wake).
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Interfaces of its node appeared, disappeared or changed addresses, or the node's own addresses changed.
    fn interfaces_changed(&mut self, _io: &mut Io<'_>) {}

    /// Something happened to the link of an interface of its node. If this changes the interface itself, a call
    /// of [`interfaces_changed`](Agent::interfaces_changed) follows.
    fn link_changed(&mut self, _io: &mut Io<'_>, _event: LinkEvent) {}

    /// Another agent of its node moved flows of the node to another path.
    fn flows_moved(&mut self, _io: &mut Io<'_>) {}

    /// Adds its current values to a time series; `name` is the agent's name in the scenario.
    fn gauges(&self, _name: &str, _gauges: &mut Results) {}

    /// Adds its results to those of the run; `name` is the agent's name in the scenario.
    fn report(&self, _name: &str, _now: Time, _results: &mut Results) {}
}

/// A request from an agent to the network. Packets are named by their numbers.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send according to the node's routes.
    Send(u32),
    /// Send over the interface with this index.
    SendOn(u32, u32),
    /// Send over the interface with this index, to the other end of its link only.
    SendAlone(u32, u32),
    /// Drop a packet that the node's relay had passed to the agent for a decision.
    Refuse(u32, DropReason),
    /// Process a decapsulated packet as if it had just arrived at the node.
    Arrive(u32),
    /// Add (true) or remove this address of the node.
    Address(IpAddr, bool),
    /// Add (true) or remove this part of the node's forwarding. Boxed, since it is large and rare.
    Forward(Box<Forward>, bool),
    /// Count the traffic of this prefix through the node's tunnels (true), or no longer. Boxed likewise.
    Count(Box<Prefix>, bool),
    /// Notify the node's other agents that flows of the node took another path.
    FlowsMoved,
    /// Write a line to the event log.
    Log(String),
}

/// An agent's view of its node at one instant, and the requests it makes.
pub struct Io<'a> {
    /// Virtual time.
    pub now: Time,
    /// The node on which the agent runs.
    pub id: NodeId,
    /// The node's current interfaces, addresses and routes.
    pub node: &'a Node,
    pub(crate) nodes: &'a [Node],
    pub(crate) channels: &'a [Channel],
    pub(crate) packets: &'a mut Packets,
    pub(crate) actions: &'a mut Vec<Action>,
    /// True if an observer reads the event log; otherwise agents need not format lines for it.
    pub logged: bool,
}

impl Io<'_> {
    /// Sends a packet according to the node's routes.
    pub fn send(&mut self, packet: Packet) {
        self.actions.push(Action::Send(self.packets.put(packet)));
    }

    /// Sends a packet over the interface with this index and ignores the routes. A
    /// [link-scope](crate::net::is_link_scope) packet that a router sends over its interface towards a radio
    /// reaches every radio in that cell.
    pub fn send_on(&mut self, interface: u32, packet: Packet) {
        self.actions.push(Action::SendOn(interface, self.packets.put(packet)));
    }

    /// Returns true if the interface is attached and, if it can sense a carrier, the carrier is present.
    #[must_use]
    pub fn has_carrier(&self, interface: u32) -> bool {
        let Some(adapter) = self.node.adapter(interface) else { return false };
        let Some((there, index)) = self.other_end(interface) else { return false };
        let back = self.nodes[there.0 as usize].adapter(index).and_then(|other| other.out);
        let back = back.map(|back| &self.channels[back.0 as usize]);
        !adapter.senses || back.is_some_and(|back| !back.is_cut())
    }

    /// Sends a packet over the interface with this index to the other end of its link only, whatever the packet's
    /// destination: a unicast frame may carry a multicast packet (RFC 6085).
    pub fn send_alone(&mut self, interface: u32, packet: Packet) {
        self.actions.push(Action::SendAlone(interface, self.packets.put(packet)));
    }

    /// Drops a packet that the node's relay had passed to the agent for a decision.
    pub fn refuse(&mut self, packet: Packet, why: DropReason) {
        self.actions.push(Action::Refuse(self.packets.put(packet), why));
    }

    /// The node at the other end of an attached interface, and the index of its interface there.
    #[must_use]
    pub fn other_end(&self, interface: u32) -> Option<(NodeId, u32)> {
        let out = self.node.adapter(interface)?.out?;
        Some(self.channels[out.0 as usize].to)
    }

    /// The interface over which the owner of `address` is reached without a router in between, if both ends of
    /// that link are attached at this instant.
    #[must_use]
    pub fn neighbour(&self, address: IpAddr) -> Option<u32> {
        neighbour(self.node, self.nodes, self.channels, address)
    }

    /// Passes a decapsulated packet to the node.
    pub fn arrive(&mut self, packet: Packet) {
        self.actions.push(Action::Arrive(self.packets.put(packet)));
    }

    /// Counts the traffic of a prefix through the node's tunnels, or no longer: see
    /// [`Relay::counted`](crate::net::Relay::counted).
    pub fn count(&mut self, prefix: Prefix, present: bool) {
        self.actions.push(Action::Count(Box::new(prefix), present));
    }

    /// Notifies the node's other agents that some of its flows took another path.
    pub fn report_moved_flows(&mut self) {
        self.actions.push(Action::FlowsMoved);
    }

    /// Adds an address to the node or removes it. Its other agents are notified as if an interface had changed.
    pub fn set_address(&mut self, address: IpAddr, present: bool) {
        self.actions.push(Action::Address(address, present));
    }

    fn forward(&mut self, part: &Forward, present: bool) -> Result<(), CannotForward> {
        let why = match part {
            Forward::Address { interface, .. }
            | Forward::Proxy { interface, .. }
            | Forward::Neighbour { interface, .. }
                if self.node.adapter(*interface).is_none() =>
            {
                "there is no such interface"
            }
            Forward::Route(route) if route.unreachable => "nodes have no routes that refuse",
            Forward::Route(route) if self.node.way_of(route).is_none() => {
                "no interface leads there"
            }
            Forward::Rule(rule) if rule.fwmark.is_some() => "packets have no marks",
            Forward::Rule(rule) if rule.suppress_prefix_length.is_some() => {
                "results are not ignored by their length"
            }
            Forward::Tunnel(tunnel) if matches!(tunnel.form, Form::Optimized { .. }) => {
                "packets have no extension headers"
            }
            _ => {
                self.actions.push(Action::Forward(Box::new(part.clone()), present));
                return Ok(());
            }
        };
        Err(CannotForward(why))
    }

    /// Writes a line to the event log.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if self.logged {
            self.actions.push(Action::Log(line()));
        }
    }
}

/// Nodes support addresses, proxied addresses, and routing tables with rules.
impl Forwarding for Io<'_> {
    type Error = CannotForward;

    fn put(&mut self, part: &Forward) -> Result<(), CannotForward> {
        self.forward(part, true)
    }

    fn take_back(&mut self, part: &Forward) -> Result<(), CannotForward> {
        self.forward(part, false)
    }
}

/// Why a node cannot install a part of its forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotForward(pub &'static str);
