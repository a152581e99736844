//! Flows of a population: periodic packets in both directions, so that handovers have something to move, and a
//! measurement of the gaps that handovers leave.

use core::net::{IpAddr, Ipv4Addr};

use segue_clock::Span;
use segue_tunnel::HostInput;
use segue_wire::FlowKey;

use super::access::SplitMix;
use super::places::{Flow, ShardEvent};
use super::shard::Shard;
use segue_sim::tunnel::Inner;

/// The peer of all flows: a documentation address (RFC 5737).
const CORRESPONDENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
/// DSCP of voice, expedited forwarding (RFC 3246).
const EXPEDITED: u8 = 46;

impl Shard {
    /// Gives a fraction of the hosts a flow, evenly spread over their numbers.
    pub(super) fn add_flows(&mut self) {
        let Some(flows) = self.spec.flows else { return };
        let step = |host: usize| libm::floor(host as f64 * flows.share) as u64;
        for host in (0..self.hosts.len()).filter(|host| step(host + 1) > step(*host)) {
            let number = self.flows.len() as u32;
            let mut orders = SplitMix::new(self.spec.seed, 8, host as u64);
            let start = self.from + Span(orders.below(flows.interval.0));
            self.queue.schedule(start, ShardEvent::Flow(number));
            if let Some(every) = self.spec.planned_every {
                let at = self.from + orders.exponential(every);
                self.queue.schedule(at, ShardEvent::Order(number));
            }
            self.flows.push(Flow { host: host as u32, orders, ordered: 0, last: [None; 2] });
        }
        self.stats.flows.flows = self.flows.len() as u64;
    }

    /// Sends one packet in each direction.
    pub(super) fn on_flow(&mut self, number: u32) {
        let Some(flows) = self.spec.flows else { return };
        self.queue.schedule(self.now + flows.interval, ShardEvent::Flow(number));
        let host = self.flows[number as usize].host;
        let place = &mut self.hosts[host as usize];
        let Some(src) = place.end.machine.inner().first().copied() else { return };
        // All flows have the same ports: `payload` identifies the flow.
        let key = FlowKey {
            src,
            dst: CORRESPONDENT,
            sport: 40_000,
            dport: 7_000,
            protocol: 17,
            label: 0,
        };
        let inner = Inner { key, dscp: EXPEDITED, bytes: flows.bytes, payload: number };
        self.stats.flows.sent += 2;
        place.end.send(self.now, inner, &mut self.host_effects);
        self.follow_host(host);
        let anchor = self.anchor_of(host);
        let inner = Inner { key: key.reversed(), ..inner };
        self.anchors[anchor].end.send(self.now, inner, &mut self.anchor_effects);
        self.follow_anchor(anchor);
    }

    /// Handles the arrival of a flow's packet over one of the host's paths.
    pub(super) fn delivered(&mut self, number: u32, up: bool, place: u32) {
        let Some(flows) = self.spec.flows else { return };
        self.stats.flows.delivered += 1;
        let flow = &mut self.flows[number as usize];
        let last = flow.last[usize::from(up)].replace((self.now, place));
        let host = flow.host;
        let Some((at, from)) = last.filter(|(_, from)| *from != place) else { return };
        let gap = self.now.since(at + flows.interval).0 / 1_000;
        let gap = u32::try_from(gap).unwrap_or(u32::MAX);
        let old = self.path(host, from as usize);
        self.pass_outages(old);
        let outage = &self.paths[old as usize].outage;
        let stats = &mut self.stats.flows;
        // The old path had an outage since its last packet, which may still last.
        let failed = outage.covers(self.now) || outage.before > at;
        if failed { &mut stats.interruptions } else { &mut stats.planned }.push(gap);
    }

    /// Orders the host to use its next path for all flows.
    pub(super) fn on_order(&mut self, number: u32) {
        let Some(every) = self.spec.planned_every else { return };
        let flow = &mut self.flows[number as usize];
        flow.ordered = (flow.ordered + 1) % self.spec.paths.len() as u8;
        let (host, ordered) = (flow.host, usize::from(flow.ordered));
        let next = self.now + flow.orders.exponential(every);
        self.queue.schedule(next, ShardEvent::Order(number));
        let to = Some(self.spec.classes[self.spec.paths[ordered]].name.clone());
        self.tell_host(host, HostInput::Handover { flow: None, class: None, to });
    }
}
