//! Answers hosts that ask for the packet counts of their flows.

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_wire::FlowKey;
use segue_wire::signal::{CountedFlow, FlowSeen, FromAnchor, MAX_COUNTED};

use super::Anchor;
use super::host::Counting;
use crate::{AnchorOutput, FlowCount, Order, Output};

/// Minimum time between two answers to one host. Hosts ask less often than this, and tolerate a missing answer.
const PACE: Span = Span::from_millis(10);

impl Anchor {
    /// Handles a host's request for the counts of its flows. Flows of other hosts yield no counts.
    pub(super) fn count_flows(&mut self, now: Time, owner: u32, round: u32, flows: &[CountedFlow]) {
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        let too_soon = host.counting.is_some_and(|last| now.since(last.at) < PACE);
        if flows.len() > MAX_COUNTED || too_soon {
            return;
        }
        host.counting = Some(Counting { at: now, round });
        // The keys as the anchor sees outgoing packets. A flow that is not the host's gets the unspecified destination,
        // which has no binding.
        let own = |flow: &CountedFlow| host.inner.contains(&flow.src);
        let key = |flow: &CountedFlow| {
            let key = FlowKey::from(flow).reversed();
            if own(flow) { key } else { FlowKey { dst: unspecified(key.dst), ..key } }
        };
        let flows = flows.iter().map(key).collect();
        self.out.push_back(Output::Order(Order::CountFlows(owner, flows)));
    }

    /// Sends the counts from the datapath to the host that asked.
    pub(super) fn on_counted(&mut self, owner: u32, counts: &[Option<FlowCount>]) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let (Some(conn), Some(Counting { round, .. })) = (host.conn, host.counting) else { return };
        let seen = |count: &Option<FlowCount>| {
            let count = count.as_ref()?;
            let path = self.slots.get(&count.slot).filter(|path| path.owner == owner)?;
            let FlowCount { sent, received, length, .. } = *count;
            let length = u16::try_from(length).unwrap_or(u16::MAX);
            Some(FlowSeen { path: Some(path.number), sent, received, length })
        };
        let counts: Vec<FlowSeen> =
            counts.iter().map(|count| seen(count).unwrap_or_default()).collect();
        let answer = FromAnchor::FlowCounts { round, counts };
        self.out.push_back(Output::own(AnchorOutput::Signal(conn, answer)));
    }
}

/// The unspecified address of the same family, which no host owns.
fn unspecified(address: core::net::IpAddr) -> core::net::IpAddr {
    match address {
        core::net::IpAddr::V4(_) => core::net::Ipv4Addr::UNSPECIFIED.into(),
        core::net::IpAddr::V6(_) => core::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}
