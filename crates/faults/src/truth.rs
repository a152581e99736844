//! What is really so of interfaces, links and nodes, whatever the machines believe.

use alloc::string::String;

use segue_clock::{Span, Time};
use segue_sim::net::FaultyLink;
use segue_sim::{ChannelId, NodeId};

/// An interface of a host and the access network behind it.
pub struct Access {
    /// Of the interface.
    pub name: String,
    /// The directions of its link: away from the host, and to it.
    pub up: ChannelId,
    /// See `up`.
    pub down: ChannelId,
    /// The access network's router; of IPv4 it is a translator.
    pub router: NodeId,
    pub(crate) v6: bool,
    /// Since when the interface has been gone.
    pub absent_since: Option<Time>,
    /// When the interface came, went, or changed its address or the NAT's.
    pub changed: Time,
}

/// How long a node has stood still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Still {
    /// Until when it last did, or does.
    pub until: Time,
    /// For how long in all.
    pub lasted: Span,
}

impl Still {
    /// It stands still from now on, unless it does already; whether it begins to.
    pub(crate) fn stall(&mut self, now: Time, lasts: Span) -> bool {
        let begins = self.until <= now;
        if begins {
            *self = Still { until: now + lasts, lasted: self.lasted + lasts };
        }
        begins
    }
}

/// An access with the truth about its link.
#[derive(Clone, Copy)]
pub struct Truth<'a> {
    /// The access.
    pub access: &'a Access,
    /// The direction away from the host.
    pub up: &'a FaultyLink,
    /// The direction to it.
    pub down: &'a FaultyLink,
    /// How long packets may have waited at either end.
    pub waits: Span,
}

impl Truth<'_> {
    /// Since when nothing that the host sends arrives.
    #[must_use]
    pub fn uplink_dead_since(&self) -> Option<Time> {
        self.access.absent_since.into_iter().chain(self.up.dead_since()).min()
    }

    /// Since when nothing arrives at the host.
    #[must_use]
    pub fn downlink_dead_since(&self) -> Option<Time> {
        self.access.absent_since.into_iter().chain(self.down.dead_since()).min()
    }

    /// Whether nothing arrives in one direction.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.uplink_dead_since().is_some() || self.downlink_dead_since().is_some()
    }

    /// Since when the path has been unchanged and without any fault; `None` while it has one.
    #[must_use]
    pub fn clean_since(&self) -> Option<Time> {
        if self.access.absent_since.is_some() {
            return None;
        }
        Some(self.up.clean_since()?.max(self.down.clean_since()?).max(self.access.changed))
    }

    /// The smallest and the largest RTT that its links, and ends that stood still, can have caused.
    #[must_use]
    pub fn rtt(&self) -> (Span, Span) {
        let (up, down) = (self.up.delays(), self.down.delays());
        (up.0 + down.0, up.1 + down.1 + self.waits)
    }
}
