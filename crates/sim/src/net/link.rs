//! Link events for the agents of a node, link faults, and link-scope packets.

use core::net::IpAddr;

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::{DownReason, LinkEvent};

use super::{AgentId, CellId, ChannelId, FaultyLink, Network, NodeId, RadioId, neighbour};

impl Network {
    /// Makes one direction of a link faulty, and delays its packets by `delay` in addition to the link's own
    /// delay.
    pub fn make_faulty(&mut self, id: ChannelId, delay: Span) {
        let seed = self.seed_of(0x6661_756c, id.0);
        let link = FaultyLink::new(delay, seed, self.now);
        self.channels[id.0 as usize].faults = Some(Box::new(link));
    }

    /// Makes one direction of a link [stall](segue_netem::LinkModel::stall). Call it before the run: packets in
    /// flight keep their times.
    pub fn stall(&mut self, id: ChannelId, from: Time, until: Time) {
        self.channels[id.0 as usize].stall(from, until);
    }

    /// Like [`Io::neighbour`](crate::Io::neighbour), for callers outside of agents.
    #[must_use]
    pub fn neighbour(&self, node: NodeId, address: IpAddr) -> Option<u32> {
        neighbour(self.node(node), &self.nodes, &self.channels, address)
    }

    /// Notifies the agents of a node of a link event, once the run has begun.
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

    /// Notifies both ends of an air link.
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

    /// Notifies the receiver of a channel that was cut or mended, if its interface senses the carrier.
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

    /// Removes the interface at which `out` begins; `back` is the opposite direction.
    pub(super) fn unplug(&mut self, out: ChannelId, back: ChannelId) {
        let (node, index) = self.channel(out).from;
        if self.node_mut(node).adapter_mut(index).out.take().is_none() {
            return;
        }
        self.channels[back.0 as usize].deaf = true;
        self.lose_in_flight(back, |_| true);
        self.tell_interfaces(node);
    }

    /// Re-inserts the interface under a new index.
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

    /// Announces to both ends that a radio will leave a cell, if it is attached there.
    pub(super) fn announce(&mut self, radio: RadioId, cell: CellId, at: Time) {
        let Some(ends) = self.air_ends(radio, cell) else { return };
        let ms = at.since(self.now).0 / 1_000_000;
        let within_ms = u16::try_from(ms).unwrap_or(u16::MAX);
        let going = |interface, poa| LinkEvent::GoingDown { interface, poa, within_ms };
        self.tell_air(cell, ends, going);
    }

    /// Delivers a link-scope packet to every agent of the node that listens on its port. The packet is not
    /// forwarded.
    pub(super) fn deliver_on_link(&mut self, node: NodeId, over: Option<u32>, number: u32) {
        let Some(packet) = self.packets.take(number) else { return };
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
