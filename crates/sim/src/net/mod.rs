//! The network: nodes, channels between them, and what happens when.

mod channel;
mod node;
mod routes;
mod shortest;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_netem::{Counters, DropCause, LinkModel, LinkSpec, SpecError, Verdict};

pub use channel::{Channel, ChannelId};
pub use node::{Interface, Node, NodeId};
pub use routes::{Hop, Prefix, Routes, Rule};

use crate::agent::{Action, Agent, Io};
use crate::packet::{Body, Packet};
use crate::queue::EventQueue;
use crate::results::Results;

/// Which agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentId(pub u32);

/// Why a packet went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// On a link.
    Link(DropCause),
    /// A node has no route to its destination.
    NoRoute,
    /// Nobody at its destination listens to its port.
    NoListener,
    /// It passed too many routers.
    Ttl,
    /// It was sent over an interface that is attached to nothing.
    Detached,
}

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
}

struct Slot {
    name: String,
    node: NodeId,
    agent: Box<dyn Agent>,
    /// The earliest wake-up that is scheduled.
    armed: Option<Time>,
}

enum Event {
    /// A packet in flight comes out of a channel.
    Arrive(ChannelId, u32),
    Wake(AgentId),
    Change(u32),
}

struct InFlight {
    packet: Packet,
    start: Time,
}

/// Something that happens to the network at a time known before.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Both directions of the link, or one, are cut or mended.
    Cut(ChannelId, bool),
}

/// Packets that nodes dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No route.
    pub no_route: u64,
    /// No listener.
    pub no_listener: u64,
    /// Too many routers.
    pub ttl: u64,
    /// Interface attached to nothing.
    pub detached: u64,
}

/// Nodes, channels, agents, and the events to come.
pub struct Network {
    now: Time,
    queue: EventQueue<Event>,
    nodes: Vec<Node>,
    channels: Vec<Channel>,
    agents: Vec<Slot>,
    changes: Vec<Change>,
    flight: Vec<Option<InFlight>>,
    free: Vec<u32>,
    actions: Vec<Action>,
    observer: Option<Box<dyn Observer>>,
    refused: Refused,
    seed: u64,
    events: u64,
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
            observer: None,
            refused: Refused::default(),
            seed,
            events: 0,
            started: false,
        }
    }

    /// Adds a node.
    pub fn add_node(&mut self, name: impl Into<String>) -> NodeId {
        self.nodes.push(Node::new(name.into()));
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds an interface that is attached to nothing; its index.
    pub fn add_interface(&mut self, node: NodeId, name: impl Into<String>) -> u32 {
        let interfaces = &mut self.nodes[node.0 as usize].interfaces;
        let (addresses, gateway, out) = (Vec::new(), None, None);
        interfaces.push(Interface { name: name.into(), addresses, gateway, out });
        interfaces.len() as u32
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
        self.node_mut(a.0).interfaces[a.1 as usize - 1].out = Some(there);
        self.node_mut(b.0).interfaces[b.1 as usize - 1].out = Some(back);
        Ok((there, back))
    }

    fn add_channel(
        &mut self,
        from: (NodeId, u32),
        to: (NodeId, u32),
        spec: LinkSpec,
    ) -> Result<ChannelId, SpecError> {
        let number = self.channels.len() as u32;
        // A channel's sequence depends on its place, so that another channel does not change it.
        let seed = self.seed_of(0x6368_616e, number);
        self.channels.push(Channel::new(from, to, LinkModel::new(spec, seed, self.now)?));
        Ok(ChannelId(number))
    }

    /// A seed for something of this kind and number, which depends on nothing else but the run's seed.
    #[must_use]
    pub fn seed_of(&self, kind: u64, number: u32) -> u64 {
        segue_clock::Rng::new(self.seed ^ (kind << 32) ^ u64::from(number)).next_u64()
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
        self.queue.schedule(at, Event::Change(self.changes.len() as u32 - 1));
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

    /// What a channel's link model counted.
    #[must_use]
    pub fn counters(&self, id: ChannelId) -> Counters {
        self.channel(id).counters()
    }

    /// An agent, for whoever knows what it is.
    #[must_use]
    pub fn agent<A: Agent>(&self, id: AgentId) -> Option<&A> {
        self.agents[id.0 as usize].agent.as_any().downcast_ref()
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

    /// What every agent found, in the order in which they were added.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new();
        for slot in &self.agents {
            slot.agent.report(&slot.name, self.now, &mut results);
        }
        results
    }

    /// Lets everything happen up to and at `end`.
    pub fn run_until(&mut self, end: Time) {
        if !self.started {
            self.started = true;
            for agent in 0..self.agents.len() {
                self.call(AgentId(agent as u32), |agent, io| agent.start(io));
            }
        }
        while let Some((at, event)) = self.queue.pop_until(end) {
            self.now = at;
            self.events += 1;
            match event {
                Event::Arrive(channel, packet) => self.on_arrival(channel, packet),
                Event::Wake(agent) => self.on_wake(agent),
                Event::Change(number) => self.on_change(number),
            }
        }
        self.now = end;
    }

    fn on_change(&mut self, number: u32) {
        match self.changes[number as usize].clone() {
            Change::Cut(channel, cut) => {
                self.channels[channel.0 as usize].set_cut(self.now, cut);
            }
        }
    }

    fn on_wake(&mut self, id: AgentId) {
        let slot = &mut self.agents[id.0 as usize];
        if slot.armed != Some(self.now) {
            return;
        }
        slot.armed = None;
        if slot.agent.deadline().is_some_and(|at| at <= self.now) {
            self.call(id, |agent, io| agent.wake(io));
        } else {
            self.arm(id);
        }
    }

    fn on_arrival(&mut self, id: ChannelId, number: u32) {
        let Some(InFlight { packet, start }) = self.flight[number as usize].take() else { return };
        self.free.push(number);
        let channel = &mut self.channels[id.0 as usize];
        let (sender, node) = (channel.from.0, channel.to.0);
        if !channel.arrives(start, packet.bytes) {
            self.drop(sender, &packet, Lost::Link(DropCause::Silent));
            return;
        }
        if let Some(observer) = &mut self.observer {
            observer.arrived(self.now, id, &packet);
        }
        self.deliver(node, packet);
    }

    /// A packet has reached a node: it is for somebody there, or goes on.
    fn deliver(&mut self, node: NodeId, mut packet: Packet) {
        let at = &self.nodes[node.0 as usize];
        if at.owns(packet.dst) {
            match at.agent_at(packet.protocol(), packet.ports().1) {
                Some(agent) => self.call(agent, |agent, io| agent.receive(io, packet)),
                None => self.drop(node, &packet, Lost::NoListener),
            }
            return;
        }
        if packet.ttl <= 1 {
            self.drop(node, &packet, Lost::Ttl);
            return;
        }
        packet.ttl -= 1;
        self.route(node, packet, None);
    }

    /// Sends a packet by the routes of a node; not back to the agent that it comes from.
    fn route(&mut self, node: NodeId, packet: Packet, from: Option<AgentId>) {
        let at = &self.nodes[node.0 as usize];
        if at.owns(packet.dst) {
            self.deliver(node, packet);
            return;
        }
        match at.routes.look_up(&packet) {
            Some(Hop::Interface(index)) => self.transmit(node, index, packet),
            Some(Hop::Agent(agent)) if from != Some(agent) => {
                self.call(agent, |agent, io| agent.receive(io, packet));
            }
            Some(Hop::Agent(_) | Hop::Reject) | None => self.drop(node, &packet, Lost::NoRoute),
        }
    }

    fn transmit(&mut self, node: NodeId, index: u32, packet: Packet) {
        let out = self.nodes[node.0 as usize].interface(index).and_then(|i| i.out);
        let Some(id) = out else {
            self.drop(node, &packet, Lost::Detached);
            return;
        };
        let verdict = self.channels[id.0 as usize].offer(self.now, packet.bytes);
        if let Some(observer) = &mut self.observer {
            let at = match verdict {
                Verdict::Deliver { at, .. } => Ok(at),
                Verdict::Drop(cause) => Err(Lost::Link(cause)),
            };
            observer.sent(self.now, id, &packet, at);
        }
        if let Verdict::Deliver { start, at } = verdict {
            let flying = Some(InFlight { packet, start });
            let number = match self.free.pop() {
                Some(number) => {
                    self.flight[number as usize] = flying;
                    number
                }
                None => {
                    self.flight.push(flying);
                    self.flight.len() as u32 - 1
                }
            };
            self.queue.schedule(at, Event::Arrive(id, number));
        }
    }

    fn drop(&mut self, node: NodeId, packet: &Packet, why: Lost) {
        match why {
            Lost::NoRoute => self.refused.no_route += 1,
            Lost::NoListener => self.refused.no_listener += 1,
            Lost::Ttl => self.refused.ttl += 1,
            Lost::Detached => self.refused.detached += 1,
            Lost::Link(_) => {}
        }
        if let Some(observer) = &mut self.observer {
            observer.dropped(self.now, node, packet, why);
        }
    }

    /// Calls an agent and carries out what it asks for.
    fn call(&mut self, id: AgentId, call: impl FnOnce(&mut dyn Agent, &mut Io<'_>)) {
        let mut actions = core::mem::take(&mut self.actions);
        let slot = &mut self.agents[id.0 as usize];
        let node = slot.node;
        let mut io = Io {
            now: self.now,
            id: node,
            node: &self.nodes[node.0 as usize],
            actions: &mut actions,
            logged: self.observer.is_some(),
        };
        call(slot.agent.as_mut(), &mut io);
        self.arm(id);
        for action in actions.drain(..) {
            match action {
                Action::Send(packet) => self.route(node, packet, Some(id)),
                Action::SendOn(index, packet) => self.transmit(node, index, packet),
                Action::Arrive(packet) => self.deliver(node, packet),
                Action::Address(address, present) => self.set_address(id, address, present),
                Action::Log(line) => {
                    if let Some(observer) = &mut self.observer {
                        observer.said(self.now, node, &line);
                    }
                }
            }
        }
        self.actions = actions;
    }

    /// Gives the node of an agent an address or takes it away, and tells its other agents.
    fn set_address(&mut self, from: AgentId, address: IpAddr, present: bool) {
        let node = self.agents[from.0 as usize].node;
        let addresses = &mut self.nodes[node.0 as usize].addresses;
        if addresses.contains(&address) == present {
            return;
        }
        addresses.retain(|known| *known != address);
        addresses.extend(present.then_some(address));
        for other in 0..self.agents.len() {
            if self.agents[other].node == node && other != from.0 as usize {
                self.call(AgentId(other as u32), |agent, io| agent.interfaces_changed(io));
            }
        }
    }

    /// Schedules a wake-up at an agent's deadline, unless one comes at or before it.
    fn arm(&mut self, id: AgentId) {
        let slot = &mut self.agents[id.0 as usize];
        let Some(at) = slot.agent.deadline() else { return };
        let at = at.max(self.now);
        if slot.armed.is_none_or(|armed| at < armed) {
            slot.armed = Some(at);
            self.queue.schedule(at, Event::Wake(id));
        }
    }
}

/// An IP-in-IP packet around another (RFC 2003, RFC 2473).
#[must_use]
pub fn encapsulate(src: IpAddr, dst: IpAddr, inner: Packet) -> Packet {
    let header = if src.is_ipv4() { 20 } else { 40 };
    Packet {
        src,
        dst,
        bytes: inner.bytes + header,
        ttl: crate::packet::TTL,
        dscp: inner.dscp,
        label: inner.label,
        sent: inner.sent,
        body: Body::Encapsulated(Box::new(inner)),
    }
}
