//! One direction of a link.

use alloc::vec::Vec;

use segue_clock::Time;
use segue_netem::{LinkModel, Verdict};

use super::NodeId;

/// Which direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

/// One direction of a link between two nodes.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The node that sends into it, and its interface.
    pub from: (NodeId, u32),
    /// The node at its end, and its interface.
    pub to: (NodeId, u32),
    pub(super) model: LinkModel,
    /// When it was cut and mended. What starts serialisation while it is cut is lost, what is on the wire
    /// arrives; the fate of a packet is settled at its arrival, since a cut may come while it waits.
    cuts: Vec<(Time, Option<Time>)>,
}

impl Channel {
    pub(super) fn new(from: (NodeId, u32), to: (NodeId, u32), model: LinkModel) -> Channel {
        Channel { from, to, model, cuts: Vec::new() }
    }

    /// What the link model counted.
    #[must_use]
    pub fn counters(&self) -> segue_netem::Counters {
        self.model.counters()
    }

    pub(super) fn offer(&mut self, now: Time, bytes: u32) -> Verdict {
        self.model.offer(now, bytes)
    }

    /// Cuts it or mends it. Nothing changes if it is so already.
    pub(super) fn set_cut(&mut self, now: Time, cut: bool) {
        self.model.set_silent(cut);
        match (self.cuts.last_mut(), cut) {
            (Some((_, mended @ None)), false) => *mended = Some(now),
            (Some((_, None)), true) | (None, false) | (Some((_, Some(_))), false) => {}
            (_, true) => self.cuts.push((now, None)),
        }
    }

    /// Whether a packet of `bytes` bytes that was accepted and started serialisation at `start` arrives.
    pub(super) fn arrives(&mut self, start: Time, bytes: u32) -> bool {
        // Packets start in order: no later one can have started before a cut that ended by then.
        let passed = |cut: &(Time, Option<Time>)| cut.1.is_some_and(|mended| mended <= start);
        self.cuts.retain(|cut| !passed(cut));
        let lost = self.cuts.first().is_some_and(|(cut, _)| *cut <= start);
        if lost {
            self.model.withdraw(bytes);
        }
        !lost
    }
}

impl Channel {
    /// What it is like.
    #[must_use]
    pub fn spec(&self) -> &segue_netem::LinkSpec {
        self.model.spec()
    }
}
