//! What lives on a node: the end of a tunnel, a transport connection, an application, a mobility protocol.

use core::any::Any;
use core::net::IpAddr;

use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::{Form, Forward, Forwarding, LinkEvent};
use segue_wire::DropReason;

use crate::net::{Channel, Node, NodeId, neighbour};
use crate::packet::Packet;
use crate::results::Results;

/// A program on a node. The network calls it with events that concern it and, after each call, carries out what it
/// requested in [`Io`]; then it arms [`deadline`](Agent::deadline).
pub trait Agent: Any {
    /// The run begins.
    fn start(&mut self, _io: &mut Io<'_>) {}

    /// A packet for one of its ports or its prefixes has arrived over the interface with the index `over`. `None`: it was
    /// sent by a program on this node, or came out of a tunnel.
    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet);

    /// Its deadline has come.
    fn wake(&mut self, _io: &mut Io<'_>) {}

    /// When to wake it.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Interfaces of its node came, went or changed their addresses, or the node's own addresses changed.
    fn interfaces_changed(&mut self, _io: &mut Io<'_>) {}

    /// Something happened to the link of an interface of its node. What that changed at the interfaces follows, in
    /// [`interfaces_changed`](Agent::interfaces_changed).
    fn link_changed(&mut self, _io: &mut Io<'_>, _event: LinkEvent) {}

    /// Another agent of its node moved flows of the node to another path.
    fn flows_moved(&mut self, _io: &mut Io<'_>) {}

    /// Adds what it holds at this instant to a time series; `name` is its name in the scenario.
    fn gauges(&self, _name: &str, _gauges: &mut Results) {}

    /// Adds its results to those of the run; `name` is its name in the scenario.
    fn report(&self, _name: &str, _now: Time, _results: &mut Results) {}
}

/// What an agent requests.
#[derive(Debug)]
pub enum Action {
    /// Send by the routes of the node.
    Send(Packet),
    /// Send over the interface with this index.
    SendOn(u32, Packet),
    /// Send over the interface with this index to the one at its other end alone.
    SendAlone(u32, Packet),
    /// Drop a packet that the tunnels of the node had asked about.
    Refuse(Packet, DropReason),
    /// Treat as if it had just arrived at the node: a packet that was taken out of a tunnel.
    Arrive(Packet),
    /// The node gets or loses this address.
    Address(IpAddr, bool),
    /// The node gets or loses this part of its forwarding.
    Forward(Forward, bool),
    /// The node's other agents hear that flows of the node took another path.
    FlowsMoved,
    /// A line of the event log.
    Log(String),
}

/// An agent's view of its node at one instant, and its requests.
pub struct Io<'a> {
    /// Virtual time.
    pub now: Time,
    /// The node it lives on.
    pub id: NodeId,
    /// The node's current interfaces, addresses and routes.
    pub node: &'a Node,
    pub(crate) nodes: &'a [Node],
    pub(crate) channels: &'a [Channel],
    pub(crate) actions: &'a mut Vec<Action>,
    /// The event log is read; if not, agents need not write lines for it.
    pub logged: bool,
}

impl Io<'_> {
    /// Sends a packet by the routes of the node.
    pub fn send(&mut self, packet: Packet) {
        self.actions.push(Action::Send(packet));
    }

    /// Sends a packet over the interface with this index, whatever the routes say. One of [link
    /// scope](crate::net::is_link_scope) that a router sends over its interface towards a radio reaches every radio in
    /// that cell.
    pub fn send_on(&mut self, interface: u32, packet: Packet) {
        self.actions.push(Action::SendOn(interface, packet));
    }

    /// Whether an interface is attached to something, and no carrier is missed there that it could miss.
    #[must_use]
    pub fn has_carrier(&self, interface: u32) -> bool {
        let Some(adapter) = self.node.adapter(interface) else { return false };
        let Some((there, index)) = self.other_end(interface) else { return false };
        let back = self.nodes[there.0 as usize].adapter(index).and_then(|other| other.out);
        let back = back.map(|back| &self.channels[back.0 as usize]);
        !adapter.senses || back.is_some_and(|back| !back.is_cut())
    }

    /// Sends a packet over the interface with this index to the one at its other end, whatever its destination is: a frame
    /// with a group's packet in it may be for one alone (RFC 6085).
    pub fn send_alone(&mut self, interface: u32, packet: Packet) {
        self.actions.push(Action::SendAlone(interface, packet));
    }

    /// Drops a packet that the tunnels of the node had asked about.
    pub fn refuse(&mut self, packet: Packet, why: DropReason) {
        self.actions.push(Action::Refuse(packet, why));
    }

    /// What is at the other end of an interface that is attached: a node, and the index of its interface.
    #[must_use]
    pub fn other_end(&self, interface: u32) -> Option<(NodeId, u32)> {
        let out = self.node.adapter(interface)?.out?;
        Some(self.channels[out.0 as usize].to)
    }

    /// The interface over which the one that has an address is reached without a router between: both ends of their link
    /// are attached to it at this instant.
    #[must_use]
    pub fn neighbour(&self, address: IpAddr) -> Option<u32> {
        neighbour(self.node, self.nodes, self.channels, address)
    }

    /// Hands the node a packet that came out of a tunnel.
    pub fn arrive(&mut self, packet: Packet) {
        self.actions.push(Action::Arrive(packet));
    }

    /// Reports to the other agents of the node that flows of it took another path.
    pub fn report_moved_flows(&mut self) {
        self.actions.push(Action::FlowsMoved);
    }

    /// Gives the node an address, or takes it away. Its other agents are told as if an interface had changed.
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
                self.actions.push(Action::Forward(part.clone(), present));
                return Ok(());
            }
        };
        Err(CannotForward(why))
    }

    /// Writes a line of the event log.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if self.logged {
            self.actions.push(Action::Log(line()));
        }
    }
}

/// Nodes have addresses, those that they answer for, and tables of routes with their rules.
impl Forwarding for Io<'_> {
    type Error = CannotForward;

    fn put(&mut self, part: &Forward) -> Result<(), CannotForward> {
        self.forward(part, true)
    }

    fn take_back(&mut self, part: &Forward) -> Result<(), CannotForward> {
        self.forward(part, false)
    }
}

/// Why a node cannot have a part of its forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotForward(pub &'static str);
