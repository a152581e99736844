//! The event loop, the path of a packet through a node, and calls of agents.

use alloc::vec::Vec;
use core::any::Any;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Forward, Traffic};
use segue_netem::{DropCause, Verdict};

use super::nat::{Inward, NatRefusal};
use super::node::is_link_scope;
use super::{AgentId, Change, ChannelId, Hop, Lost, Network, Node, NodeId};
use crate::agent::{Action, Agent, Io};
use crate::packet::Packet;

/// Maximum number of steps between the agents of one node (or within one agent) per event. A tunnel whose outer
/// packets lead back into it would continue forever.
const LOCAL_STEPS: u32 = 1_000;

/// Number of events at one instant after which a network is [stuck](Network::stuck).
pub const AT_ONCE: u64 = 10_000_000;

/// The kind of event that a step processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A packet came out of a channel.
    Arrival(ChannelId),
    /// An agent's deadline was reached.
    Wake(AgentId),
    /// A change was applied to the network.
    Change,
}

/// An event in the queue.
#[derive(Clone, Copy)]
pub(super) enum Due {
    /// A packet in flight comes out of a channel.
    Arrive(ChannelId, u32),
    Wake(AgentId),
    Change(u32),
}

/// Work left within an event. Deferred, so that no agent runs inside the call of another.
pub(super) enum Step {
    /// A packet that has arrived for the node itself, or for forwarding.
    Deliver(NodeId, u32),
    Receive(AgentId, u32),
    /// The addresses of its node changed.
    Addresses(AgentId),
    /// Flows of its node took another path.
    FlowsMoved(AgentId),
}

impl Network {
    /// Processes all events up to and including `end`.
    ///
    /// Stops early if virtual time does not advance, see [`stuck`](Self::stuck).
    pub fn run_until(&mut self, end: Time) {
        while self.step(end).is_some() {}
    }

    /// Processes the next event up to and including `end`, and returns its kind. Without such an event, advances
    /// the clock to `end` and returns `None`.
    pub fn step(&mut self, end: Time) -> Option<Happened> {
        if self.stuck() {
            return None;
        }
        if !self.started {
            self.start();
        }
        let Some((at, event)) = self.queue.pop_until(end) else {
            if end > self.now {
                (self.now, self.before_now) = (end, self.events);
            }
            return None;
        };
        if at > self.now {
            (self.now, self.before_now) = (at, self.events);
        }
        self.events += 1;
        let happened = match event {
            Due::Arrive(channel, packet) => {
                self.on_arrival(channel, packet);
                Happened::Arrival(channel)
            }
            Due::Wake(agent) => {
                self.on_wake(agent);
                Happened::Wake(agent)
            }
            Due::Change(number) => {
                self.on_change(self.changes[number as usize].clone());
                Happened::Change
            }
        };
        self.settle();
        Some(happened)
    }

    /// Starts the run by starting every agent. If not called, the run starts with the first step.
    pub fn start(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        for agent in 0..self.agents.len() {
            self.call(AgentId(agent as u32), |agent, io| agent.start(io));
            self.settle();
        }
    }

    /// Applies a change at once.
    pub fn happen(&mut self, change: Change) {
        self.on_change(change);
        self.settle();
    }

    /// Gives an order to an agent at once, for a caller that knows its type.
    pub fn command<A: Agent>(&mut self, id: AgentId, order: impl FnOnce(&mut A, &mut Io<'_>)) {
        self.call(id, |agent, io| {
            if let Some(agent) = (agent as &mut dyn Any).downcast_mut() {
                order(agent, io);
            }
        });
        self.settle();
    }

    /// Returns true if more than [`AT_ONCE`] events happened at one instant: packets that circulate over links
    /// without delay and rate limit never let time advance.
    #[must_use]
    pub fn stuck(&self) -> bool {
        self.events - self.before_now > AT_ONCE
    }

    /// Completes the remaining work of an event; usually there is nothing to do.
    #[inline]
    fn settle(&mut self) {
        let mut steps = 0;
        while let Some(step) = self.todo.pop_front() {
            steps += 1;
            self.take_step(step, steps > LOCAL_STEPS);
        }
    }

    fn take_step(&mut self, step: Step, too_many: bool) {
        match step {
            Step::Deliver(node, packet) if too_many => self.drop(node, packet, Lost::Loop),
            Step::Receive(id, packet) if too_many => {
                self.drop(self.agents[id.0 as usize].node, packet, Lost::Loop);
            }
            Step::Addresses(_) | Step::FlowsMoved(_) if too_many => {}
            Step::Deliver(node, packet) => self.deliver(node, packet),
            Step::Receive(id, packet) => self.hand_to(id, None, packet),
            Step::Addresses(id) => self.call(id, |agent, io| agent.interfaces_changed(io)),
            Step::FlowsMoved(id) => self.call(id, |agent, io| agent.flows_moved(io)),
        }
    }

    fn on_change(&mut self, change: Change) {
        match change {
            Change::Cut(channel, true) => {
                if self.channels[channel.0 as usize].cut(self.now) {
                    self.tell_carrier(channel, false);
                }
            }
            Change::Cut(channel, false) => {
                if let Some(since) = self.channels[channel.0 as usize].mend() {
                    let now = self.now;
                    self.lose_in_flight(channel, |start| since <= start && start < now);
                    self.tell_carrier(channel, true);
                }
            }
            Change::Attach(radio, cell) => self.attach(radio, cell),
            Change::Detach(radio, cell) => self.detach(radio, cell),
            Change::Announce(radio, cell, at) => self.announce(radio, cell, at),
            Change::RebindNat(node, address) => self.rebind(node, address),
            Change::Fault(channel, fault) => {
                if let Some(link) = &mut self.channels[channel.0 as usize].faults {
                    link.inject(self.now, fault);
                }
            }
            Change::Unplug(out, back) => self.unplug(out, back),
            Change::Plug(out, back) => self.plug(out, back),
            Change::Stall(node, until) => self.node_mut(node).stalled = until,
            Change::Renumber(node, index, addresses) => {
                self.node_mut(node).adapter_mut(index).interface.addresses = addresses;
                self.tell_interfaces(node);
            }
        }
    }

    /// Drops packets in flight in a channel that started serialisation at a matching instant.
    pub(super) fn lose_in_flight(&mut self, id: ChannelId, lost: impl Fn(Time) -> bool) {
        let sender = self.channels[id.0 as usize].from.0;
        for packet in self.packets.lose(id, lost) {
            self.channels[id.0 as usize].withdraw(packet.bytes);
            self.note_drop(sender, &packet, Lost::Link(DropCause::Silent));
        }
    }

    fn on_wake(&mut self, id: AgentId) {
        let slot = &mut self.agents[id.0 as usize];
        if slot.armed != Some(self.now) {
            return;
        }
        let resumes = self.nodes[slot.node.0 as usize].stalled;
        if resumes > self.now {
            slot.armed = Some(resumes);
            self.queue.schedule(resumes, Due::Wake(id));
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
        let Some(flying) = self.packets.get_mut(number) else {
            // It was lost on the way.
            self.packets.take(number);
            return;
        };
        let channel = &mut self.channels[id.0 as usize];
        let (sender, (node, over)) = (channel.from.0, channel.to);
        if flying.over.is_some_and(|(_, start)| !channel.arrives(start)) {
            channel.withdraw(flying.packet.bytes);
            self.drop(sender, number, Lost::Link(DropCause::Silent));
            return;
        }
        let at = &mut self.nodes[node.0 as usize];
        if at.stalled > self.now {
            self.queue.schedule(at.stalled, Due::Arrive(id, number));
            return;
        }
        if let Some(observer) = &mut self.observer {
            observer.arrived(self.now, id, &flying.packet);
        }
        let fate = fate(at, self.now, Some(over), &mut flying.packet);
        self.undergo(node, Some(over), number, fate);
    }

    /// Handles a packet that came out of a tunnel at a node, or that the node sent to itself.
    fn deliver(&mut self, node: NodeId, number: u32) {
        let Some(flying) = self.packets.get_mut(number) else { return };
        let fate = fate(&mut self.nodes[node.0 as usize], self.now, None, &mut flying.packet);
        self.undergo(node, None, number, fate);
    }

    /// Carries out the fate of a packet at a node.
    fn undergo(&mut self, node: NodeId, over: Option<u32>, number: u32, fate: Fate) {
        match fate {
            Fate::Agent(id) => self.hand_to(id, over, number),
            Fate::Unclaimed => self.unclaimed(node, over, number),
            Fate::Listeners => self.deliver_on_link(node, over, number),
            Fate::Over(index) => self.transmit(node, index, number),
            Fate::Out(tunnel) => self.take_out_at(node, tunnel, number),
            Fate::Bound(traffic) => self.lead_on(node, traffic, number),
            Fate::Lost(why) => self.drop(node, number, why),
        }
    }

    /// Passes a packet to an agent.
    fn hand_to(&mut self, id: AgentId, over: Option<u32>, number: u32) {
        if let Some(packet) = self.packets.take(number) {
            self.call(id, |agent, io| agent.receive(io, over, packet));
        }
    }

    /// Drops a packet for the node itself without a listening agent.
    fn unclaimed(&mut self, node: NodeId, over: Option<u32>, number: u32) {
        let Some(flying) = self.packets.get_mut(number) else { return };
        let nat = &mut self.nodes[node.0 as usize].nat;
        let unmapped = nat.as_mut().is_some_and(|nat| nat.unclaimed(over, &flying.packet));
        let why = if unmapped { Lost::Nat(NatRefusal::NoMapping) } else { Lost::NoListener };
        self.drop(node, number, why);
    }

    /// Sends an agent's packet according to its node's routes, but never back to the agent itself.
    fn send(&mut self, node: NodeId, from: AgentId, number: u32) {
        let Some(flying) = self.packets.get_mut(number) else { return };
        let (at, packet) = (&self.nodes[node.0 as usize], &flying.packet);
        if at.owns(packet.dst) {
            self.todo.push_back(Step::Deliver(node, number));
            return;
        }
        if let Some(traffic) = at.relay().and_then(|relay| relay.binding_of(packet)) {
            self.lead_on(node, traffic, number);
            return;
        }
        match at.way_out(packet) {
            Some(Hop::Interface(index)) => self.transmit(node, index, number),
            Some(Hop::Agent(agent)) if from != agent => {
                self.todo.push_back(Step::Receive(agent, number));
            }
            Some(Hop::Agent(_) | Hop::Reject) | None => self.drop(node, number, Lost::NoRoute),
        }
    }

    pub(super) fn transmit(&mut self, node: NodeId, index: u32, number: u32) {
        let adapter = self.nodes[node.0 as usize].adapter(index);
        if adapter.is_some_and(|adapter| adapter.air) && self.transmit_to_all(node, index, number) {
            return;
        }
        self.transmit_alone(node, index, number);
    }

    /// Sends a link-scope packet over a router's interface to every radio in its cell. Returns false for other packets
    /// and interfaces.
    fn transmit_to_all(&mut self, node: NodeId, index: u32, number: u32) -> bool {
        let Some(flying) = self.packets.get_mut(number) else { return false };
        if !is_link_scope(flying.packet.dst) {
            return false;
        }
        let Some(radios) = self.radios_beside(node, index) else { return false };
        let Some(packet) = self.packets.take(number) else { return false };
        for channel in radios {
            let number = self.packets.put(packet.clone());
            self.offer(channel, number);
        }
        true
    }

    /// Sends a packet over an interface to the other end of its link only.
    fn transmit_alone(&mut self, node: NodeId, index: u32, number: u32) {
        match self.nodes[node.0 as usize].adapter(index).and_then(|adapter| adapter.out) {
            Some(id) => self.offer(id, number),
            None => self.drop(node, number, Lost::Detached),
        }
    }

    /// Offers a packet to a channel.
    fn offer(&mut self, id: ChannelId, number: u32) {
        let Some(flying) = self.packets.get_mut(number) else { return };
        let channel = &mut self.channels[id.0 as usize];
        let (at, copy) = match channel.offer(self.now, flying.packet.bytes) {
            Verdict::Deliver { start, at } => {
                flying.over = Some((id, start));
                channel.befalls(at, &flying.packet)
            }
            Verdict::Drop(cause) => (Err(Lost::Link(cause)), None),
        };
        if let Some(observer) = &mut self.observer {
            observer.sent(self.now, id, &flying.packet, at);
        }
        if let Some(copy) = copy {
            let (packet, over) = (flying.packet.clone(), flying.over);
            let number = self.packets.put_over(packet, over);
            self.queue.schedule(copy, Due::Arrive(id, number));
        }
        match at {
            Ok(at) => self.queue.schedule(at, Due::Arrive(id, number)),
            Err(_) => drop(self.packets.take(number)),
        }
    }

    pub(super) fn drop(&mut self, node: NodeId, number: u32, why: Lost) {
        if let Some(packet) = self.packets.take(number) {
            self.note_drop(node, &packet, why);
        }
    }

    /// Counts a packet that is gone.
    pub(super) fn note_drop(&mut self, node: NodeId, packet: &Packet, why: Lost) {
        self.refused.count(why);
        self.nodes[node.0 as usize].not_forwarded += u64::from(why == Lost::NotForwarded);
        if let Some(observer) = &mut self.observer {
            observer.dropped(self.now, node, packet, why);
        }
    }

    pub(super) fn say(&mut self, node: NodeId, line: impl FnOnce() -> alloc::string::String) {
        if let Some(observer) = &mut self.observer {
            observer.said(self.now, node, &line());
        }
    }

    /// Notifies the agents of a node that its interfaces have changed. Does nothing before the run begins, since
    /// agents have not seen the interfaces yet.
    pub(super) fn tell_interfaces(&mut self, node: NodeId) {
        if !self.started {
            return;
        }
        for id in 0..self.agents.len() {
            if self.agents[id].node == node {
                self.call(AgentId(id as u32), |agent, io| agent.interfaces_changed(io));
            }
        }
    }

    /// Calls an agent and carries out its requests in order. Notifications to other agents of its node wait until
    /// the call has returned.
    pub(super) fn call(&mut self, id: AgentId, call: impl FnOnce(&mut dyn Agent, &mut Io<'_>)) {
        let mut actions = core::mem::take(&mut self.actions);
        let slot = &mut self.agents[id.0 as usize];
        let node = slot.node;
        let mut io = Io {
            now: self.now,
            id: node,
            node: &self.nodes[node.0 as usize],
            nodes: &self.nodes,
            channels: &self.channels,
            packets: &mut self.packets,
            actions: &mut actions,
            logged: self.observer.as_ref().is_some_and(|observer| observer.listens()),
        };
        call(slot.agent.as_mut(), &mut io);
        self.arm(id);
        if !actions.is_empty() {
            self.carry_out(id, node, &mut actions);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, id: AgentId, node: NodeId, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Send(packet) => self.send(node, id, packet),
                Action::SendOn(index, packet) => self.transmit(node, index, packet),
                Action::SendAlone(index, packet) => self.transmit_alone(node, index, packet),
                Action::Refuse(packet, why) => self.refuse_at(node, packet, why),
                Action::Arrive(packet) => self.todo.push_back(Step::Deliver(node, packet)),
                Action::Address(address, present) => self.set_address(id, address, present),
                Action::Forward(part, present) => self.forward(id, &part, present),
                Action::Count(prefix, present) => {
                    let relay = self.nodes[node.0 as usize].relay.get_or_insert_default();
                    relay.count(*prefix, present);
                }
                Action::FlowsMoved => self.do_at_others(id, Step::FlowsMoved),
                Action::Log(line) => self.say(node, || line),
            }
        }
    }

    /// Adds an address to an agent's node or removes it, and notifies the node's other agents.
    fn set_address(&mut self, from: AgentId, address: IpAddr, present: bool) {
        let node = self.agents[from.0 as usize].node;
        let addresses = &mut self.nodes[node.0 as usize].addresses;
        if addresses.contains(&address) == present {
            return;
        }
        addresses.retain(|known| *known != address);
        addresses.extend(present.then_some(address));
        self.do_at_others(from, Step::Addresses);
    }

    /// Schedules a step for the other agents on an agent's node.
    fn do_at_others(&mut self, from: AgentId, step: impl Fn(AgentId) -> Step) {
        let node = self.agents[from.0 as usize].node;
        let others = self.agents.iter().zip(0..).filter(|(slot, _)| slot.node == node);
        let others = others.map(|(_, id)| AgentId(id)).filter(|id| *id != from);
        self.todo.extend(others.map(step));
    }

    /// Adds a part of a node's forwarding or removes it. The caller has checked that the node supports it.
    fn forward(&mut self, by: AgentId, part: &Forward, present: bool) {
        let node = self.agents[by.0 as usize].node;
        let at = &mut self.nodes[node.0 as usize];
        match part {
            Forward::Address { interface, prefix } => {
                let addresses = &mut at.adapter_mut(*interface).interface.addresses;
                if addresses.contains(&prefix.addr) == present {
                    return;
                }
                addresses.retain(|known| *known != prefix.addr);
                addresses.extend(present.then_some(prefix.addr));
                let agents = self.agents.iter().zip(0..).filter(|(slot, _)| slot.node == node);
                self.todo.extend(agents.map(|(_, id)| Step::Addresses(AgentId(id))));
            }
            Forward::Route(route) => match at.way_of(route).filter(|_| present) {
                Some(index) => at.table(route.table).set(route.destination, Hop::Interface(index)),
                None => at.table(route.table).remove(route.destination),
            },
            Forward::Rule(rule) if present => at.policy.add(rule),
            Forward::Rule(rule) => at.policy.remove(rule),
            Forward::Proxy { interface, address } => {
                let proxied = &mut at.adapter_mut(*interface).proxied;
                proxied.retain(|known| known != address);
                proxied.extend(present.then_some(*address));
            }
            // There is no neighbour resolution in the simulator.
            Forward::Neighbour { .. } => {}
            Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_) => {
                self.change_relay(by, node, part, present);
            }
        }
    }

    /// Schedules a wake-up at an agent's deadline, unless an earlier one is scheduled.
    fn arm(&mut self, id: AgentId) {
        let slot = &mut self.agents[id.0 as usize];
        let Some(at) = slot.agent.deadline() else { return };
        let at = at.max(self.now);
        if slot.armed.is_none_or(|armed| at < armed) {
            slot.armed = Some(at);
            self.queue.schedule(at, Due::Wake(id));
        }
    }
}

/// Treatment of a packet that has reached a node.
enum Fate {
    /// Pass it to an agent there.
    Agent(AgentId),
    /// Drop it: it is for this node, but no agent listens.
    Unclaimed,
    /// Pass it to all agents that listen on this link.
    Listeners,
    /// Forward it over this interface.
    Over(u32),
    /// Drop it.
    Lost(Lost),
    /// Decapsulate it from this tunnel.
    Out(u32),
    /// Send it to the exit of this binding.
    Bound(Traffic),
}

/// Decides the fate of a packet that reached a node over an interface or out of a tunnel. Forwarding decrements
/// its hop limit, and a translator rewrites its addresses.
fn fate(at: &mut Node, now: Time, over: Option<u32>, packet: &mut Packet) -> Fate {
    if let Some(nat) = &mut at.nat
        && let Inward::Refused(cause) = nat.inward(now, over, packet)
    {
        return Fate::Lost(Lost::Nat(cause));
    }
    if at.owns(packet.dst) {
        if let Some(tunnel) = at.relay().and_then(|relay| relay.tunnel_of(packet)) {
            return Fate::Out(tunnel);
        }
        let agent = at.agent_at(packet.protocol, packet.ports.1);
        return agent.map_or(Fate::Unclaimed, Fate::Agent);
    }
    if is_link_scope(packet.dst) {
        return Fate::Listeners;
    }
    if !at.forwards {
        return Fate::Lost(Lost::NotForwarded);
    }
    if packet.ttl <= 1 {
        return Fate::Lost(Lost::Ttl);
    }
    packet.ttl -= 1;
    if let Some(relay) = &mut at.relay
        && let Some(bound) = relay.leads(over, packet)
    {
        return bound.map_or_else(|why| Fate::Lost(Lost::Relay(why)), Fate::Bound);
    }
    match at.way_on(over, packet) {
        Some(Hop::Interface(index)) => {
            if let Some(nat) = &mut at.nat
                && let Err(cause) = nat.outward(now, over, index, packet)
            {
                return Fate::Lost(Lost::Nat(cause));
            }
            Fate::Over(index)
        }
        Some(Hop::Agent(agent)) => Fate::Agent(agent),
        Some(Hop::Reject) | None => Fate::Lost(Lost::NoRoute),
    }
}
