//! Ground truth about interfaces, links and nodes, independent of the machines.

use alloc::string::String;

use segue_clock::{Span, Time};
use segue_sim::net::FaultyLink;
use segue_sim::{ChannelId, NodeId};

/// An interface of a host and the access network behind it.
pub struct Access {
    /// Name of the interface.
    pub name: String,
    /// The direction away from the host.
    pub up: ChannelId,
    /// The direction to the host.
    pub down: ChannelId,
    /// The router of the access network; for IPv4 it is a translator.
    pub router: NodeId,
    pub(crate) v6: bool,
    /// Set while the interface is gone, to the time at which it went.
    pub absent_since: Option<Time>,
    /// When the interface last appeared, disappeared, or changed its own or its NAT's address.
    pub changed: Time,
}

/// Stalls of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Still {
    /// End of the last stall.
    pub until: Time,
    /// Total duration of all stalls.
    pub lasted: Span,
}

impl Still {
    /// Stalls the node unless it is stalled already. Returns true if the stall begins.
    pub(crate) fn stall(&mut self, now: Time, lasts: Span) -> bool {
        let begins = self.until <= now;
        if begins {
            *self = Still { until: now + lasts, lasted: self.lasted + lasts };
        }
        begins
    }
}

/// An access with the ground truth about its link.
#[derive(Clone, Copy)]
pub struct Truth<'a> {
    /// The access.
    pub access: &'a Access,
    /// The direction away from the host.
    pub up: &'a FaultyLink,
    /// The direction to the host.
    pub down: &'a FaultyLink,
    /// Total time that packets may have waited at stalled ends.
    pub waits: Span,
}

impl Truth<'_> {
    /// Time since when nothing that the host sends arrives.
    #[must_use]
    pub fn uplink_dead_since(&self) -> Option<Time> {
        self.access.absent_since.into_iter().chain(self.up.dead_since()).min()
    }

    /// Time since when nothing arrives at the host.
    #[must_use]
    pub fn downlink_dead_since(&self) -> Option<Time> {
        self.access.absent_since.into_iter().chain(self.down.dead_since()).min()
    }

    /// Returns true if one direction is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.uplink_dead_since().is_some() || self.downlink_dead_since().is_some()
    }

    /// Time since when the path has been unchanged and free of faults; `None` while it has a fault.
    #[must_use]
    pub fn clean_since(&self) -> Option<Time> {
        if self.access.absent_since.is_some() {
            return None;
        }
        Some(self.up.clean_since()?.max(self.down.clean_since()?).max(self.access.changed))
    }

    /// The smallest and largest RTT that the links and stalled ends can have caused.
    #[must_use]
    pub fn rtt(&self) -> (Span, Span) {
        let (up, down) = (self.up.delays(), self.down.delays());
        (up.0 + down.0, up.1 + down.1 + self.waits)
    }
}
