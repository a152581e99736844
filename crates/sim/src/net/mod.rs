//! The network: nodes, the channels between them, and the order of events.

mod attachment;
mod bound;
mod channel;
mod faulty;
mod ids;
mod link;
mod lost;
mod nat;
mod node;
mod packets;
mod policy;
mod relay;
mod routes;
mod run;
mod shortest;
mod translation;
mod wireless;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::net::IpAddr;

use segue_clock::{Rng, Time};
use segue_ip::Interface;
use segue_netem::{Counters, LinkModel, LinkSpec, SpecError};

pub use channel::Channel;
pub use faulty::{FaultyLink, LinkFault, Looks, PacketFilter};
pub use ids::{AgentId, CellId, ChannelId, NodeId, RadioId};
pub use lost::{Lost, Refused};
pub use nat::{Behaviour, Nat, NatConfig, NatCounters, NatError, NatRefusal};
pub(crate) use node::neighbour;
pub use node::{Adapter, Node, is_link_scope};
pub(crate) use packets::Packets;
pub use policy::Policy;
pub use relay::Relay;
pub(crate) use relay::flow_key;
pub use routes::{Hop, Routes, Rule};
pub use run::{AT_ONCE, Happened};
pub use segue_netem::Walk;
pub use wireless::{CellConfig, RadioConfig, WirelessError};

use crate::agent::{Action, Agent};
use crate::packet::Packet;
use crate::queue::EventQueue;
use crate::results::Results;
use lost::MTU_BYTES;
use run::{Due, Step};
use wireless::Wireless;

/// Observes the simulation. An observer cannot change anything, so a run with and without one is the same.
pub trait Observer {
    /// A packet was given to a channel; `at` is its arrival time, or the reason of its loss.
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>);
    /// A packet came out of a channel.
    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet);
    /// A node dropped a packet, or a channel was cut while it waited there.
    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost);
    /// A node writes a line to the event log.
    fn said(&mut self, now: Time, node: NodeId, line: &str);
    /// Returns true if the observer reads the event log; otherwise nodes need not write to it.
    fn listens(&self) -> bool {
        true
    }
}

struct Slot {
    name: String,
    node: NodeId,
    agent: Box<dyn Agent>,
    /// The earliest scheduled wake-up.
    armed: Option<Time>,
}

/// A change to the network, scheduled or applied at once ([`Network::happen`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Cut (true) or mend (false) one direction of a link.
    Cut(ChannelId, bool),
    /// Attach a radio to a cell; if the radio has reached its limit, it leaves its oldest cell.
    Attach(RadioId, CellId),
    /// Detach a radio from a cell.
    Detach(RadioId, CellId),
    /// Announce to a radio in a cell, and to the cell's router, that the radio will leave at this instant. The
    /// detachment itself is a separate change.
    Announce(RadioId, CellId, Time),
    /// The translator of this node forgets its mappings and changes to this outside address, if one is given;
    /// routes to the old address lead to the new one. No node may own the new address yet.
    RebindNat(NodeId, Option<IpAddr>),
    /// A fault of one direction of a link that was [made faulty](Network::make_faulty) before.
    Fault(ChannelId, LinkFault),
    /// Unplug the interface at which the first of these directions begins. Packets in flight towards it are lost.
    Unplug(ChannelId, ChannelId),
    /// Plug the interface in again under the next index, as a kernel does.
    Plug(ChannelId, ChannelId),
    /// A node stalls until this time: arriving packets wait, and so do its agents' deadlines.
    Stall(NodeId, Time),
    /// Replace the addresses of an interface.
    Renumber(NodeId, u32, Vec<IpAddr>),
}

/// Nodes, channels, agents and pending events.
pub struct Network {
    now: Time,
    queue: EventQueue<Due>,
    nodes: Vec<Node>,
    channels: Vec<Channel>,
    agents: Vec<Slot>,
    changes: Vec<Change>,
    packets: Packets,
    actions: Vec<Action>,
    todo: VecDeque<Step>,
    wireless: Wireless,
    observer: Option<Box<dyn Observer>>,
    refused: Refused,
    seed: u64,
    events: u64,
    /// Number of events before the current instant.
    before_now: u64,
    started: bool,
}

impl Network {
    /// An empty network at time 0. All randomness derives from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            now: Time::ZERO,
            queue: EventQueue::new(),
            nodes: Vec::new(),
            channels: Vec::new(),
            agents: Vec::new(),
            changes: Vec::new(),
            packets: Packets::default(),
            actions: Vec::new(),
            todo: VecDeque::new(),
            wireless: Wireless::default(),
            observer: None,
            refused: Refused::default(),
            seed,
            events: 0,
            before_now: 0,
            started: false,
        }
    }

    /// An empty network whose clock begins at `start`.
    #[must_use]
    pub fn starting_at(start: Time, seed: u64) -> Network {
        Network { now: start, ..Network::new(seed) }
    }

    /// Adds a node.
    pub fn add_node(&mut self, name: impl Into<String>) -> NodeId {
        self.nodes.push(Node::new(name.into()));
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds an unattached interface and returns its index.
    pub fn add_interface(&mut self, node: NodeId, name: impl Into<String>) -> u32 {
        let adapters = &mut self.nodes[node.0 as usize].adapters;
        let index = adapters.len() as u32 + 1;
        let (name, mtu_bytes) = (name.into(), MTU_BYTES);
        let interface = Interface { name, index, mtu_bytes, ..Interface::default() };
        adapters.push(Adapter { interface, ..Adapter::default() });
        index
    }

    /// Connects two interfaces. Returns the direction away from the first and the one away from the second.
    ///
    /// # Errors
    /// Invalid link parameters.
    pub fn connect(
        &mut self,
        a: (NodeId, u32),
        b: (NodeId, u32),
        there: LinkSpec,
        back: LinkSpec,
    ) -> Result<(ChannelId, ChannelId), SpecError> {
        let there = self.add_channel(a, b, there)?;
        let back = self.add_channel(b, a, back)?;
        self.node_mut(a.0).adapters[a.1 as usize - 1].out = Some(there);
        self.node_mut(b.0).adapters[b.1 as usize - 1].out = Some(back);
        Ok((there, back))
    }

    fn add_channel(
        &mut self,
        from: (NodeId, u32),
        to: (NodeId, u32),
        spec: LinkSpec,
    ) -> Result<ChannelId, SpecError> {
        // A channel's random sequence depends on its index, so that other channels do not affect it.
        let seed = self.seed_of(0x6368_616e, self.channels.len() as u32);
        let model = LinkModel::new(spec, seed, self.now)?;
        Ok(self.push_channel(Channel::new(from, to, model)))
    }

    fn push_channel(&mut self, channel: Channel) -> ChannelId {
        self.channels.push(channel);
        ChannelId(self.channels.len() as u32 - 1)
    }

    /// A seed for the object of this kind and number, derived from the run's seed only.
    #[must_use]
    pub fn seed_of(&self, kind: u64, number: u32) -> u64 {
        // Mixed one after the other, so that no two inputs cancel out.
        let mixed = Rng::new(self.seed).next_u64() ^ kind;
        Rng::new(Rng::new(mixed).next_u64() ^ u64::from(number)).next_u64()
    }

    /// Adds an agent that listens to these protocols and ports on a node.
    pub fn add_agent(
        &mut self,
        node: NodeId,
        name: impl Into<String>,
        ports: &[(u8, u16)],
        agent: Box<dyn Agent>,
    ) -> AgentId {
        let id = AgentId(self.agents.len() as u32);
        self.agents.push(Slot { name: name.into(), node, agent, armed: None });
        let known = &mut self.nodes[node.0 as usize].ports;
        known.extend(ports.iter().map(|port| (*port, id)));
        known.sort_unstable();
        id
    }

    /// Schedules a change of the network at `at`.
    pub fn schedule(&mut self, at: Time, change: Change) {
        self.changes.push(change);
        self.queue.schedule(at, Due::Change(self.changes.len() as u32 - 1));
    }

    /// Installs the observer.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// A node, for changes of its addresses or routes.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// All nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// A channel.
    #[must_use]
    pub fn channel(&self, id: ChannelId) -> &Channel {
        &self.channels[id.0 as usize]
    }

    /// Counters of a channel. Packets in flight do not count as delivered.
    #[must_use]
    pub fn counters(&self, id: ChannelId) -> Counters {
        let mut counters = self.channel(id).counters();
        for packet in self.packets.over(id) {
            let bytes = u64::from(packet.bytes);
            counters.delivered = counters.delivered.saturating_sub(1);
            counters.delivered_bytes = counters.delivered_bytes.saturating_sub(bytes);
        }
        counters
    }

    /// All channels, in the order in which they were created.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        self.channels.iter().enumerate().map(|(i, channel)| (ChannelId(i as u32), channel))
    }

    /// An agent, for a caller that knows its type.
    #[must_use]
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        (&*self.agents[id.0 as usize].agent as &dyn Any).downcast_ref()
    }

    /// An agent, for changes before the run.
    pub fn agent_mut<A: Agent>(&mut self, id: AgentId) -> Option<&mut A> {
        (&mut *self.agents[id.0 as usize].agent as &mut dyn Any).downcast_mut()
    }

    /// Packets that nodes dropped, by reason.
    #[must_use]
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Current values of every agent, in the order in which agents were added.
    #[must_use]
    pub fn gauges(&self) -> Results {
        let mut gauges = Results::new();
        self.agents.iter().for_each(|slot| slot.agent.gauges(&slot.name, &mut gauges));
        gauges
    }

    /// Results of every agent, in the order in which agents were added.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new();
        for slot in &self.agents {
            slot.agent.report(&slot.name, self.now, &mut results);
        }
        results
    }
}
