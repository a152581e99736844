//! What the agents of a node hear of its links, their faults, and packets of link scope.

use core::net::IpAddr;

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::{DownReason, LinkEvent};

use super::{AgentId, CellId, ChannelId, FaultyLink, Network, NodeId, RadioId, neighbour};
use crate::packet::Packet;

impl Network {
    /// Makes a direction of a link faulty, and delays its packets by this much beside its own delay.
    pub fn make_faulty(&mut self, id: ChannelId, delay: Span) {
        let seed = self.seed_of(0x6661_756c, id.0);
        let link = FaultyLink::new(delay, seed, self.now);
        self.channels[id.0 as usize].faults = Some(Box::new(link));
    }

    /// Lets a direction of a link [stall](segue_netem::LinkModel::stall). It must be told before the run: packets that are
    /// under way keep their times.
    pub fn stall(&mut self, id: ChannelId, from: Time, until: Time) {
        self.channels[id.0 as usize].stall(from, until);
    }

    /// As [`Io::neighbour`](crate::Io::neighbour), from outside.
    #[must_use]
    pub fn neighbour(&self, node: NodeId, address: IpAddr) -> Option<u32> {
        neighbour(self.node(node), &self.nodes, &self.channels, address)
    }

    /// Tells the agents of a node what happened to a link of it, once the run has begun.
    pub(super) fn tell_link(&mut self, node: NodeId, event: LinkEvent) {
        if !self.started {
            return;
        }
        for id in 0..self.agents.len() {
            if self.agents[id].node == node {
                self.call(AgentId(id as u32), |agent, io| agent.link_changed(io, event));
            }
        }
    }

    /// Tells both ends of an air link.
    pub(super) fn tell_air(
        &mut self,
        cell: CellId,
        ends: [(NodeId, u32); 2],
        event: impl Fn(u32, Option<u64>) -> LinkEvent,
    ) {
        for (node, interface) in ends {
            self.tell_link(node, event(interface, Some(cell.0.into())));
        }
    }

    /// A channel was cut or mended: its receiver is told if it can notice.
    pub(super) fn tell_carrier(&mut self, id: ChannelId, whole: bool) {
        let (node, interface) = self.channel(id).to;
        if !self.node(node).adapter(interface).is_some_and(|adapter| adapter.senses) {
            return;
        }
        let (poa, why) = (None, DownReason::PacketTimeout);
        self.tell_link(
            node,
            match whole {
                true => LinkEvent::Up { interface, poa },
                false => LinkEvent::Down { interface, poa, why },
            },
        );
    }

    /// The interface from which `out` leads away goes; `back` leads to it.
    pub(super) fn unplug(&mut self, out: ChannelId, back: ChannelId) {
        let (node, index) = self.channel(out).from;
        if self.node_mut(node).adapter_mut(index).out.take().is_none() {
            return;
        }
        self.channels[back.0 as usize].deaf = true;
        self.lose_in_flight(back, |_| true);
        self.tell_interfaces(node);
    }

    /// It comes back under another index.
    pub(super) fn plug(&mut self, out: ChannelId, back: ChannelId) {
        let (node, index) = self.channel(out).from;
        let adapters = &mut self.node_mut(node).adapters;
        if adapters[index as usize - 1].out.is_some() {
            return;
        }
        let mut adapter = core::mem::take(&mut adapters[index as usize - 1]);
        let new = adapters.len() as u32 + 1;
        (adapter.interface.index, adapter.out) = (new, Some(out));
        adapters.push(adapter);
        self.channels[out.0 as usize].from = (node, new);
        let back = &mut self.channels[back.0 as usize];
        (back.to, back.deaf) = ((node, new), false);
        self.tell_interfaces(node);
    }

    /// Tells both ends that a radio will leave a cell, if it is there.
    pub(super) fn announce(&mut self, radio: RadioId, cell: CellId, at: Time) {
        let Some(ends) = self.air_ends(radio, cell) else { return };
        let ms = at.since(self.now).0 / 1_000_000;
        let within_ms = u16::try_from(ms).unwrap_or(u16::MAX);
        let going = |interface, poa| LinkEvent::GoingDown { interface, poa, within_ms };
        self.tell_air(cell, ends, going);
    }

    /// A packet of link scope has reached a node: every agent that listens on its port gets it, and it goes no further.
    pub(super) fn deliver_on_link(&mut self, node: NodeId, over: Option<u32>, packet: &Packet) {
        let listens = |(protocol, port): (u8, u16)| {
            protocol == packet.protocol && (port == packet.ports.1 || port == 0)
        };
        let known = self.node(node).ports.iter().filter(|(key, _)| listens(*key));
        let mut agents: Vec<AgentId> = known.map(|(_, agent)| *agent).collect();
        agents.sort_unstable();
        agents.dedup();
        for id in agents {
            self.call(id, |agent, io| agent.receive(io, over, packet.clone()));
        }
    }
}
