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
    /// Set while the channel is cut, to the time of the cut. Packets that start serialisation while it is cut are
    /// lost; packets on the wire arrive.
    cut: Option<Time>,
    /// The receiving interface is unplugged.
    pub(super) deaf: bool,
    pub(super) faults: Option<Box<FaultyLink>>,
}

impl Channel {
    pub(super) fn new(from: (NodeId, u32), to: (NodeId, u32), model: LinkModel) -> Channel {
        Channel { from, to, model, cut: None, deaf: false, faults: None }
    }

    /// Counters of the link model. A packet that waits while the channel is cut counts as delivered until its
    /// fate is known: when the channel is mended, the packet arrives, or the attachment ends.
    #[must_use]
    pub fn counters(&self) -> segue_netem::Counters {
        self.model.counters()
    }

    /// Number of packets that wait for serialisation.
    #[must_use]
    pub fn waiting(&self, now: Time) -> usize {
        self.model.waiting(now)
    }

    /// The parameters of the link.
    #[must_use]
    pub fn spec(&self) -> &segue_netem::LinkSpec {
        self.model.spec()
    }

    /// Its faults, if it was [made faulty](super::Network::make_faulty).
    #[must_use]
    pub fn faults(&self) -> Option<&FaultyLink> {
        self.faults.as_deref()
    }

    #[inline]
    pub(super) fn offer(&mut self, now: Time, bytes: u32) -> Verdict {
        match self.model.offer(now, bytes) {
            // A waiting packet may start after the channel has been mended.
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

    /// Applies faults to a packet that the link model would deliver at `at`. Returns the arrival time or the
    /// reason of the loss, and the arrival time of a duplicate.
    #[inline]
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

    /// Returns true while the channel is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Cuts the channel. Returns true if it was whole.
    pub(super) fn cut(&mut self, now: Time) -> bool {
        let whole = self.cut.is_none();
        self.cut.get_or_insert(now);
        whole
    }

    /// Mends the channel. Returns the time at which it was cut. The caller must [`withdraw`](Self::withdraw)
    /// packets in flight that started since then.
    pub(super) fn mend(&mut self) -> Option<Time> {
        self.cut.take()
    }

    /// Returns true if a packet in flight that started serialisation at `start` arrives.
    pub(super) fn arrives(&self, start: Time) -> bool {
        self.cut.is_none_or(|cut| start < cut)
    }

    pub(super) fn stall(&mut self, from: Time, until: Time) {
        self.model.stall(from, until);
    }

    /// Removes waiting packets from the model; the caller withdraws them.
    pub(super) fn flush(&mut self, now: Time) {
        self.model.flush(now);
    }

    /// Counts a packet in flight as silently lost.
    pub(super) fn withdraw(&mut self, bytes: u32) {
        self.model.withdraw(bytes);
    }
}
