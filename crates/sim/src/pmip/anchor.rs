//! An anchor on a node: its machine, and the first packets of flows, which wait for a decision.

use alloc::collections::{BTreeMap, VecDeque};

use segue_clock::{Machine, Time};
use segue_ip::{FlowKey, Input, Output, Traffic};
use segue_node::{Carried, Node, NodeInput, NodeWish};
use segue_pmip::{Lma, LmaInput, LmaRecord, LmaWish, Report};
use segue_wire::DropReason;

use super::uses::of_role;
use crate::mih::Sources;
use crate::net::flow_key;
use crate::role::{Engine, datagram};
use crate::{Io, Packet};

/// Maximum number of waiting flows, and of waiting packets per flow; more are dropped. The daemon's relay has the same
/// limits.
const FLOWS: usize = 4_096;
const PACKETS: usize = 64;

/// The engine of an anchor: its node, the held packets, and source addresses.
pub struct Anchor(pub Node<Lma>, Asked, Sources);

/// Packets for which the node has no tunnel yet.
struct Asked {
    /// Held packets by flow, in order of arrival.
    waiting: BTreeMap<FlowKey, VecDeque<Packet>>,
    /// Number of dropped packets.
    refused: u64,
}

impl Anchor {
    /// An engine for a node that starts.
    pub(super) fn new(node: Node<Lma>, sources: Sources) -> Anchor {
        Anchor(node, Asked { waiting: BTreeMap::new(), refused: 0 }, sources)
    }

    /// Number of packets that wait for the machine.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.1.waiting.values().map(VecDeque::len).sum()
    }

    /// Number of dropped packets: the machine refused their flows, or there was no room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.1.refused
    }

    /// Carries out the machine's decision about a waiting flow.
    pub(super) fn settle(&mut self, io: &mut Io<'_>, wish: LmaWish) {
        match wish {
            // The flow is bound before this wish, so the node's tunnel takes these packets.
            LmaWish::Release(key) => {
                self.1.waiting.remove(&key).into_iter().flatten().for_each(|p| io.send(p));
            }
            LmaWish::Refuse(key) => {
                for packet in self.1.waiting.remove(&key).into_iter().flatten() {
                    self.1.refuse(io, packet, DropReason::NoBinding);
                }
            }
            // There is no external scheduler; the anchor decides by itself after a timeout.
            LmaWish::Decide(_)
            | LmaWish::Went { .. }
            | LmaWish::Ended(_)
            | LmaWish::Inspect(_)
            | LmaWish::Link { .. }
            | LmaWish::Interface { .. } => {}
            // There is no external authorization.
            LmaWish::Authorize { .. } | LmaWish::Bound { .. } | LmaWish::Unbound { .. } => {}
        }
    }

    /// Reports to the machine when flows last carried a packet.
    pub(super) fn inspect(&mut self, io: &Io<'_>, flows: &[FlowKey]) {
        let carried = |key: &FlowKey| {
            let last_sent = io.node.relay().and_then(|relay| relay.last_sent(&Traffic::Flow(*key)));
            (*key, Carried { last_sent, ..Carried::default() })
        };
        let carried = flows.iter().map(carried).collect();
        self.0.handle(io.now, Input::Own(NodeInput::Carried(carried)));
    }
}

impl Asked {
    fn refuse(&mut self, io: &mut Io<'_>, packet: Packet, why: DropReason) {
        self.refused += 1;
        io.refuse(packet, why);
    }

    /// Holds a packet; returns true if it is the first of its flow.
    fn keep(&mut self, io: &mut Io<'_>, key: FlowKey, packet: Packet) -> bool {
        let flows = self.waiting.len();
        let (room, is_first) = match self.waiting.get(&key) {
            Some(behind) => (behind.len() < PACKETS, false),
            None => (flows < FLOWS, true),
        };
        if !room {
            self.refuse(io, packet, DropReason::HoldFull);
            return false;
        }
        self.waiting.entry(key).or_default().push_back(packet);
        is_first
    }
}

impl Engine for Anchor {
    type Own = NodeInput<LmaInput>;
    type Wish = NodeWish<LmaWish>;
    type Report = Report;
    type Record = LmaRecord;

    /// Packets held by the previous engine are lost, and count as dropped.
    fn follows(&mut self, before: &Anchor) {
        self.1.refused = before.refused() + before.waiting() as u64;
    }

    fn handle(&mut self, now: Time, input: Input<NodeInput<LmaInput>, LmaRecord>) {
        if let Input::Interfaces(all) = &input {
            self.2.see(all);
        }
        self.0.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        if io.node.owns(packet.dst) {
            if let Some(datagram) = datagram(over, packet) {
                self.0.handle(io.now, Input::Datagram(datagram));
            }
            return;
        }
        let (key, dscp) = (flow_key(&packet), packet.dscp);
        if self.1.keep(io, key, packet) {
            self.0.handle(io.now, Input::Own(NodeInput::Own(LmaInput::Flow { key, dscp })));
        }
    }

    fn tick(&mut self, now: Time) {
        self.0.tick(now);
    }

    fn deadline(&self) -> Option<Time> {
        self.0.deadline().map(|(at, _)| at)
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<NodeWish<LmaWish>, Report, LmaRecord>> {
        of_role(&mut self.0, &self.2, io)
    }
}
