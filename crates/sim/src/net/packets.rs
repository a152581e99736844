//! The packets of a network, by number: only numbers move between agents, nodes and links, since a packet is large.

use alloc::vec::Vec;

use segue_clock::Time;

use super::ids::ChannelId;
use crate::packet::Packet;

/// A packet of the network.
pub(crate) struct InFlight {
    pub(crate) packet: Packet,
    /// The channel that carries it, and the start of its serialisation there; `None` at a node.
    pub(super) over: Option<(ChannelId, Time)>,
}

/// All packets. A number is used again once its packet is gone, the most recent one first.
#[derive(Default)]
pub(crate) struct Packets {
    all: Vec<Option<InFlight>>,
    free: Vec<u32>,
}

impl Packets {
    /// Stores a packet at a node.
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet) -> u32 {
        self.put_over(packet, None)
    }

    /// Stores a packet that a channel carries.
    #[inline]
    pub(super) fn put_over(&mut self, packet: Packet, over: Option<(ChannelId, Time)>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.all[number as usize] = Some(InFlight { packet, over });
        number
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut InFlight> {
        self.all[number as usize].as_mut()
    }

    /// Removes a packet.
    #[inline]
    pub(super) fn take(&mut self, number: u32) -> Option<Packet> {
        self.free.push(number);
        self.all[number as usize].take().map(|flying| flying.packet)
    }

    /// Removes the packets in a channel that started serialisation at a matching instant. Their numbers stay in use
    /// until their events are due.
    pub(super) fn lose(&mut self, id: ChannelId, lost: impl Fn(Time) -> bool) -> Vec<Packet> {
        let is_lost = |flying: &mut InFlight| {
            flying.over.is_some_and(|(over, start)| over == id && lost(start))
        };
        let gone = self.all.iter_mut().filter_map(|flying| flying.take_if(is_lost));
        gone.map(|flying| flying.packet).collect()
    }

    /// The packets in a channel.
    pub(super) fn over(&self, id: ChannelId) -> impl Iterator<Item = &Packet> {
        let flying = self.all.iter().flatten();
        let over = flying.filter(move |flying| flying.over.is_some_and(|(over, _)| over == id));
        over.map(|flying| &flying.packet)
    }
}
