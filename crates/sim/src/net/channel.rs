//! One direction of a link.

use alloc::boxed::Box;

use segue_clock::Time;
use segue_netem::{DropCause, LinkModel, Verdict};

use super::faulty::{FaultyLink, Looks};
use super::ids::NodeId;
use super::lost::Lost;
use crate::packet::Packet;

/// One direction of a link between two nodes.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The node that sends into it, and its interface.
    pub from: (NodeId, u32),
    /// The node at its end, and its interface.
    pub to: (NodeId, u32),
    model: LinkModel,
    /// Since when it is cut. What starts serialisation while it is cut is lost, what is on the wire
    /// arrives.
    cut: Option<Time>,
    /// The interface at its end is away.
    pub(super) deaf: bool,
    pub(super) faults: Option<Box<FaultyLink>>,
}

impl Channel {
    pub(super) fn new(from: (NodeId, u32), to: (NodeId, u32), model: LinkModel) -> Channel {
        Channel { from, to, model, cut: None, deaf: false, faults: None }
    }

    /// What the link model counted. A packet that waits while its channel is cut counts as delivered until
    /// its fate is known: the mending, its arrival, or the end of its attachment.
    #[must_use]
    pub fn counters(&self) -> segue_netem::Counters {
        self.model.counters()
    }

    /// Packets that wait for serialisation.
    #[must_use]
    pub fn waiting(&self, now: Time) -> usize {
        self.model.waiting(now)
    }

    /// What it is like.
    #[must_use]
    pub fn spec(&self) -> &segue_netem::LinkSpec {
        self.model.spec()
    }

    /// Its faults, where it can have some ([`make_faulty`](super::Network::make_faulty)).
    #[must_use]
    pub fn faults(&self) -> Option<&FaultyLink> {
        self.faults.as_deref()
    }

    pub(super) fn offer(&mut self, now: Time, bytes: u32) -> Verdict {
        match self.model.offer(now, bytes) {
            // One that waits may start when the channel is whole again.
            Verdict::Deliver { start, .. } if self.cut.is_some() && start <= now => {
                self.model.withdraw(bytes);
                Verdict::Drop(DropCause::Silent)
            }
            Verdict::Deliver { .. } if self.deaf => {
                self.model.withdraw(bytes);
                Verdict::Drop(DropCause::Silent)
            }
            verdict => verdict,
        }
    }

    /// What its faults do to a packet that its model lets arrive at this instant: when it does, or why not, and when a copy
    /// does.
    pub(super) fn befalls(
        &mut self,
        at: Time,
        packet: &Packet,
    ) -> (Result<Time, Lost>, Option<Time>) {
        let Some(faults) = &mut self.faults else { return (Ok(at), None) };
        let fate = faults.send(at, &Looks::of(packet));
        if fate.0.is_err() {
            self.model.withdraw(packet.bytes);
        }
        fate
    }

    /// Whether it is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Cuts it; whether it was whole.
    pub(super) fn cut(&mut self, now: Time) -> bool {
        let whole = self.cut.is_none();
        self.cut.get_or_insert(now);
        whole
    }

    /// Mends it; since when it was cut. Packets in flight that started since then are for the caller to
    /// [`withdraw`](Self::withdraw).
    pub(super) fn mend(&mut self) -> Option<Time> {
        self.cut.take()
    }

    /// Whether a packet in flight that started serialisation at `start` arrives.
    pub(super) fn arrives(&self, start: Time) -> bool {
        self.cut.is_none_or(|cut| start < cut)
    }

    pub(super) fn stall(&mut self, from: Time, until: Time) {
        self.model.stall(from, until);
    }

    /// Forgets what waits; the caller withdraws it.
    pub(super) fn flush(&mut self, now: Time) {
        self.model.flush(now);
    }

    /// Counts a packet in flight as silenced.
    pub(super) fn withdraw(&mut self, bytes: u32) {
        self.model.withdraw(bytes);
    }
}
