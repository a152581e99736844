//! The network: nodes, channels between them, and what happens when.

mod attachment;
mod bound;
mod channel;
mod faulty;
mod ids;
mod link;
mod lost;
mod nat;
mod node;
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
use run::{Due, InFlight, Step};
use wireless::Wireless;

/// Sees what happens. It cannot change anything, so that a run with it and one without are the same.
pub trait Observer {
    /// A packet was given to a channel; `at` is when it will have arrived, or why it will not.
    fn sent(&mut self, now: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>);
    /// A packet came out of a channel.
    fn arrived(&mut self, now: Time, channel: ChannelId, packet: &Packet);
    /// A node dropped a packet, or a channel was cut while it waited there.
    fn dropped(&mut self, now: Time, node: NodeId, packet: &Packet, why: Lost);
    /// A node has something to tell.
    fn said(&mut self, now: Time, node: NodeId, line: &str);
    /// Whether it listens to that; if not, nodes need not say it.
    fn listens(&self) -> bool {
        true
    }
}

struct Slot {
    name: String,
    node: NodeId,
    agent: Box<dyn Agent>,
    /// The earliest wake-up that is scheduled.
    armed: Option<Time>,
}

/// Something that happens to the network, at a time known before or at once ([`Network::happen`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// One direction of a link is cut or mended.
    Cut(ChannelId, bool),
    /// A radio attaches to a cell; if it is attached to as many as it can be, it leaves the oldest.
    Attach(RadioId, CellId),
    /// A radio leaves a cell.
    Detach(RadioId, CellId),
    /// A radio in a cell, and the cell's router, learn that it will leave at this instant. It is left to another change
    /// that it does.
    Announce(RadioId, CellId, Time),
    /// The translator of this node forgets its mappings, and has this outside address from then on; routes
    /// to the old one lead to the new one. It must be an address that no node has.
    RebindNat(NodeId, Option<IpAddr>),
    /// A fault of one direction of a link, which was [made faulty](Network::make_faulty) before.
    Fault(ChannelId, LinkFault),
    /// The interface goes from which the first of these directions of a link leads away, and with it what is under way to it.
    Unplug(ChannelId, ChannelId),
    /// It comes back under the next index, as in a kernel.
    Plug(ChannelId, ChannelId),
    /// A node stands still until then: what arrives waits, and so do its agents' times.
    Stall(NodeId, Time),
    /// An interface has these addresses from now on.
    Renumber(NodeId, u32, Vec<IpAddr>),
}

/// Nodes, channels, agents, and the events to come.
pub struct Network {
    now: Time,
    queue: EventQueue<Due>,
    nodes: Vec<Node>,
    channels: Vec<Channel>,
    agents: Vec<Slot>,
    changes: Vec<Change>,
    flight: Vec<Option<InFlight>>,
    free: Vec<u32>,
    actions: Vec<Action>,
    todo: VecDeque<Step>,
    wireless: Wireless,
    observer: Option<Box<dyn Observer>>,
    refused: Refused,
    seed: u64,
    events: u64,
    /// How many of them came before the instant that it is.
    before_now: u64,
    started: bool,
}

impl Network {
    /// An empty network at time 0. Everything random in it comes from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            now: Time::ZERO,
            queue: EventQueue::new(),
            nodes: Vec::new(),
            channels: Vec::new(),
            agents: Vec::new(),
            changes: Vec::new(),
            flight: Vec::new(),
            free: Vec::new(),
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

    /// An empty network whose time begins at `start`.
    #[must_use]
    pub fn starting_at(start: Time, seed: u64) -> Network {
        Network { now: start, ..Network::new(seed) }
    }

    /// Adds a node.
    pub fn add_node(&mut self, name: impl Into<String>) -> NodeId {
        self.nodes.push(Node::new(name.into()));
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds an interface that is attached to nothing; its index.
    pub fn add_interface(&mut self, node: NodeId, name: impl Into<String>) -> u32 {
        let adapters = &mut self.nodes[node.0 as usize].adapters;
        let index = adapters.len() as u32 + 1;
        let (name, mtu_bytes) = (name.into(), MTU_BYTES);
        let interface = Interface { name, index, mtu_bytes, ..Interface::default() };
        adapters.push(Adapter { interface, ..Adapter::default() });
        index
    }

    /// Connects two interfaces; the directions away from the first and from the second.
    ///
    /// # Errors
    /// A parameter that makes no link.
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
        // A channel's sequence depends on its place, so that another channel does not change it.
        let seed = self.seed_of(0x6368_616e, self.channels.len() as u32);
        let model = LinkModel::new(spec, seed, self.now)?;
        Ok(self.push_channel(Channel::new(from, to, model)))
    }

    fn push_channel(&mut self, channel: Channel) -> ChannelId {
        self.channels.push(channel);
        ChannelId(self.channels.len() as u32 - 1)
    }

    /// A seed for something of this kind and number, which depends on nothing else but the run's seed.
    #[must_use]
    pub fn seed_of(&self, kind: u64, number: u32) -> u64 {
        // One after the other, so that no two of them make up for each other.
        let mixed = Rng::new(self.seed).next_u64() ^ kind;
        Rng::new(Rng::new(mixed).next_u64() ^ u64::from(number)).next_u64()
    }

    /// Adds an agent to a node, listening to these protocols and ports.
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

    /// Lets something happen to the network at `at`.
    pub fn schedule(&mut self, at: Time, change: Change) {
        self.changes.push(change);
        self.queue.schedule(at, Due::Change(self.changes.len() as u32 - 1));
    }

    /// Who sees what happens.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// A node, to change its addresses or routes.
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

    /// What a channel counted. Packets that are still on their way are not delivered.
    #[must_use]
    pub fn counters(&self, id: ChannelId) -> Counters {
        let mut counters = self.channel(id).counters();
        for flying in self.flight.iter().flatten().filter(|flying| flying.channel == id) {
            let bytes = u64::from(flying.packet.bytes);
            counters.delivered = counters.delivered.saturating_sub(1);
            counters.delivered_bytes = counters.delivered_bytes.saturating_sub(bytes);
        }
        counters
    }

    /// All channels, in the order in which they were made.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        self.channels.iter().enumerate().map(|(i, channel)| (ChannelId(i as u32), channel))
    }

    /// An agent, for a caller that knows its type.
    #[must_use]
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        (&*self.agents[id.0 as usize].agent as &dyn Any).downcast_ref()
    }

    /// An agent, to change it before the run.
    pub fn agent_mut<A: Agent>(&mut self, id: AgentId) -> Option<&mut A> {
        (&mut *self.agents[id.0 as usize].agent as &mut dyn Any).downcast_mut()
    }

    /// Packets that nodes dropped.
    #[must_use]
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many events have happened.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What every agent holds at this instant, in the order in which they were added.
    #[must_use]
    pub fn gauges(&self) -> Results {
        let mut gauges = Results::new();
        self.agents.iter().for_each(|slot| slot.agent.gauges(&slot.name, &mut gauges));
        gauges
    }

    /// What every agent found, in the order in which they were added.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new();
        for slot in &self.agents {
            slot.agent.report(&slot.name, self.now, &mut results);
        }
        results
    }
}
