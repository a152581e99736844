//! Applies a node's tunnels and traffic bindings.

use segue_ip::{Forward, Traffic};
use segue_wire::DropReason;

use super::relay::Led;
use super::run::Step;
use super::{AgentId, Hop, Lost, Network, NodeId};
use crate::packet::Packet;

impl Network {
    /// Adds a part of a node's tunnel configuration, or removes it.
    pub(super) fn change_relay(
        &mut self,
        by: AgentId,
        node: NodeId,
        part: &Forward,
        present: bool,
    ) {
        let relay = self.nodes[node.0 as usize].relay.get_or_insert_default();
        let released = match (part, present) {
            (Forward::Tunnel(tunnel), true) => {
                relay.set_tunnel(*tunnel);
                return;
            }
            (Forward::Tunnel(tunnel), false) => return relay.remove_tunnel(tunnel.number),
            (Forward::Source(source), true) => return relay.allow(*source),
            (Forward::Source(source), false) => return relay.forbid(source),
            (Forward::Bind(binding), true) => relay.bind(self.now, by, *binding),
            (Forward::Bind(binding), false) => return relay.unbind(&binding.traffic),
            _ => return,
        };
        for packet in released {
            if let Forward::Bind(binding) = part {
                self.lead_packet_on(node, binding.traffic, packet);
            }
        }
    }

    /// Sends a packet to the exit of its binding.
    pub(super) fn lead_on(&mut self, node: NodeId, traffic: Traffic, number: u32) {
        if let Some(packet) = self.packets.take(number) {
            self.lead_packet_on(node, traffic, packet);
        }
    }

    fn lead_packet_on(&mut self, node: NodeId, traffic: Traffic, packet: Packet) {
        let at = &mut self.nodes[node.0 as usize];
        let Some(relay) = &mut at.relay else { return };
        match relay.lead(self.now, traffic, packet) {
            Led::Into(outer) => match at.way_out(&outer) {
                Some(Hop::Interface(index)) => {
                    let outer = self.packets.put(outer);
                    self.transmit(node, index, outer);
                }
                _ => self.note_drop(node, &outer, Lost::NoRoute),
            },
            Led::Over(index, packet) => {
                let packet = self.packets.put(packet);
                self.transmit(node, index, packet);
            }
            Led::Ask(agent, packet) => {
                self.todo.push_back(Step::Receive(agent, self.packets.put(packet)));
            }
            Led::Held => {}
            Led::Refused(packet, why) => self.note_drop(node, &packet, Lost::Relay(why)),
        }
    }

    /// Drops a packet that had been passed to an agent for a decision.
    pub(super) fn refuse_at(&mut self, node: NodeId, packet: u32, why: DropReason) {
        if let Some(relay) = &mut self.nodes[node.0 as usize].relay {
            relay.refuse(why, 1);
        }
        self.drop(node, packet, Lost::Relay(why));
    }

    /// Decapsulates a packet at the end of its tunnel.
    pub(super) fn take_out_at(&mut self, node: NodeId, tunnel: u32, number: u32) {
        let Some(relay) = &mut self.nodes[node.0 as usize].relay else { return };
        let Some(packet) = self.packets.take(number) else { return };
        match relay.take_out(tunnel, packet) {
            Ok(inner) => self.todo.push_back(Step::Deliver(node, self.packets.put(inner))),
            Err(packet) => self.note_drop(node, &packet, Lost::Relay(DropReason::InnerSource)),
        }
    }
}
