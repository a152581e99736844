//! Assigns flows to the interfaces of their host: the flow scheduler of paper 3, section III.B.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::Bound;

use segue_clock::{Span, Time};
use segue_ip::{Binding as Bind, Exit, FlowKey, Forward, Output, Prefix, Traffic};

use segue_clock::planted::fault;

use super::Lma;
use super::config::{Rated, Schedule, Worth};
use super::io::LmaWish;
use super::state::{Flow, INSPECTION, Ordered, Placed};
use crate::news::Cause;
use crate::{NodeId, Report};

/// How long to wait for the external scheduler. After that the anchor's schedule applies.
pub const DECISION: Span = Span::from_millis(20);
/// Flows inspected at a time.
const INSPECTED: usize = 4_096;

impl Lma {
    /// All individually placed flows.
    pub fn flows(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        self.flows.iter()
    }

    /// An individually placed flow.
    #[must_use]
    pub fn flow(&self, key: &FlowKey) -> Option<&Flow> {
        self.flows.get(key)
    }

    /// Handles the first packet of a flow, which is held.
    pub(super) fn on_flow(&mut self, now: Time, key: FlowKey, dscp: u8) {
        let Some((prefix, node)) = self.owner(&key) else {
            self.out.push_back(Output::Own(LmaWish::Refuse(key)));
            return;
        };
        let usable = self.usable(&node, prefix);
        if usable.is_empty() {
            self.out.push_back(Output::Own(LmaWish::Refuse(key)));
            return;
        }
        if self.flows.contains_key(&key) {
            // While the external scheduler decides, the packet stays held until the deadline.
            if self.undecided.get(&key).is_none() {
                self.lead(&key);
                self.out.push_back(Output::Own(LmaWish::Release(key)));
            }
            return;
        }
        if self.flows.len() >= self.config.max_flows {
            self.make_room(&node);
        }
        let why = Placed::Rule;
        let session = self.schedule(now, prefix, &key, dscp, &usable);
        let (node_of, since, choices) = (node.clone(), now, usable.len());
        let (ordered, tunnel) = (None, None);
        let flow = Flow { node: node_of, session, why, since, dscp, ordered, choices, tunnel };
        self.by_age.insert((now, key));
        self.of_host(now, &node, &key);
        self.flows.insert(key, flow);
        *self.loads.entry(session).or_default() += 1;
        if self.deciding && usable.len() > 1 {
            self.undecided.set(key, now + DECISION);
            self.out.push_back(Output::Own(LmaWish::Decide(key)));
            return;
        }
        self.lead(&key);
        self.out.push_back(Output::Own(LmaWish::Release(key)));
    }

    /// Handles a decision: places a flow on the host's binding with this BID, or by the anchor's schedule if `None`.
    /// Returns false if the flow is unknown or cannot go there.
    pub(super) fn place(&mut self, now: Time, key: &FlowKey, bid: Option<u16>) -> bool {
        let Some((prefix, node)) = self.owner(key) else { return false };
        let usable = self.usable(&node, prefix);
        let by_bid = |bid: u16| {
            let of =
                |number: &&u32| self.sessions.get(number).is_some_and(|at| at.value.bid == bid);
            usable.iter().find(of).copied()
        };
        let placed = match bid {
            Some(bid) => by_bid(bid).map(|session| (session, Placed::Decision)),
            None if usable.is_empty() => None,
            None => {
                let dscp = self.flows.get(key).map_or(0, |flow| flow.dscp);
                Some((self.schedule(now, prefix, key, dscp, &usable), Placed::Rule))
            }
        };
        let Some((session, why)) = placed else { return false };
        let link_layer = self.sessions.get(&session).map(|at| at.value.link_layer.clone());
        let Some(flow) = self.flows.get_mut(key) else { return false };
        let ordered = link_layer.map(|link_layer| Ordered { session, link_layer });
        flow.ordered = ordered.filter(|_| why == Placed::Decision);
        if self.assign(key, session, why) {
            self.tell_went(key, false);
        }
        self.gone.clear();
        self.decided(key);
        true
    }

    /// Reports flows that moved to another gateway.
    pub(super) fn tell_gone(&mut self, now: Time, node: &NodeId, cause: Cause) {
        for ((from, to), flows) in core::mem::take(&mut self.gone) {
            self.report(Report::Handover { node: node.clone(), cause, from, to, flows, at: now });
        }
    }

    /// Assigns a flow to a binding, for this reason. Returns whether that changed anything.
    pub(super) fn assign(&mut self, key: &FlowKey, session: u32, why: Placed) -> bool {
        let Some(flow) = self.flows.get_mut(key) else { return false };
        let reason = core::mem::replace(&mut flow.why, why);
        let before = core::mem::replace(&mut flow.session, session);
        if (before, reason) == (session, why) {
            return false;
        }
        let gateway = |number: u32| self.sessions.get(&number).map(|at| at.peer);
        if before != session
            && let Some(way) = gateway(before).zip(gateway(session))
        {
            *self.gone.entry(way).or_default() += 1;
        }
        *self.loads.entry(session).or_default() += 1;
        self.unload(before);
        true
    }

    /// Reports a flow's way to the external scheduler; skipped while its first packet is held, since the release is
    /// reported then.
    pub(super) fn tell_went(&mut self, key: &FlowKey, asked: bool) {
        if self.undecided.get(key).is_none() {
            self.out.push_back(Output::Own(LmaWish::Went { key: *key, asked }));
        }
    }

    /// Counts one flow less on a binding.
    fn unload(&mut self, session: u32) {
        if let Some(load) = self.loads.get_mut(&session) {
            *load -= 1;
            if *load == 0 {
                self.loads.remove(&session);
            }
        }
    }

    /// Places flows whose deadline for a decision has passed.
    pub(super) fn decide_alone(&mut self, now: Time) {
        while let Some(key) = self.undecided.pop_due(now) {
            self.lead(&key);
            self.out.push_back(Output::Own(LmaWish::Release(key)));
        }
    }

    /// Binds a flow to its tunnel and releases its held first packet.
    fn decided(&mut self, key: &FlowKey) {
        self.lead(key);
        if self.undecided.get(key).is_some() {
            self.undecided.cancel(key);
            self.out.push_back(Output::Own(LmaWish::Release(*key)));
        }
    }

    /// Has the next flows in order inspected, so that idle ones are found.
    pub(super) fn inspect(&mut self, now: Time) {
        if self.inspect_at.is_none_or(|at| now < at) {
            return;
        }
        self.inspect_at = Some(now + INSPECTION);
        let from = self.inspected.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.flows.range((from, Bound::Unbounded)).map(|(key, _)| *key);
        let next: Vec<FlowKey> = next.take(INSPECTED).collect();
        self.inspected = next.last().copied().filter(|_| next.len() == INSPECTED);
        if !next.is_empty() {
            self.out.push_back(Output::Own(LmaWish::Inspect(next)));
        }
    }

    /// Forgets the flows that have been idle for too long.
    pub(super) fn last_sent(&mut self, now: Time, flows: &[(FlowKey, Option<Time>)]) {
        for (key, last) in flows {
            let Some(flow) = self.flows.get(key) else { continue };
            let active = last.map_or(flow.since, |last| last.max(flow.since));
            if now.since(active) >= self.config.flow_idle {
                self.forget_flow(key);
            }
        }
    }

    fn forget_flow(&mut self, key: &FlowKey) {
        let Some(flow) = self.flows.remove(key) else { return };
        self.by_age.remove(&(flow.since, *key));
        self.unload(flow.session);
        if let Some(host) = self.hosts.get_mut(&flow.node)
            && host.flows.remove(&(flow.since, *key))
        {
            self.busy -= usize::from(host.flows.is_empty());
            if host.flows.is_empty() {
                host.steering = None;
            }
        }
        if self.undecided.get(key).is_some() {
            self.undecided.cancel(key);
            self.out.push_back(Output::Own(LmaWish::Refuse(*key)));
        }
        if let Some(tunnel) = flow.tunnel {
            let (traffic, exit) = (Traffic::Flow(*key), Exit::Tunnel(tunnel));
            self.out.push_back(Output::Withdraw(Forward::Bind(Bind { traffic, exit })));
        }
        self.out.push_back(Output::Own(LmaWish::Ended(*key)));
    }

    fn of_host(&mut self, now: Time, node: &NodeId, key: &FlowKey) {
        if let Some(host) = self.hosts.get_mut(node) {
            self.busy += usize::from(host.flows.is_empty());
            host.flows.insert((now, *key));
        }
    }

    /// Evicts one flow in favour of one of this host: the host's own oldest if the host has its share of the table, or
    /// the oldest of all.
    fn make_room(&mut self, node: &NodeId) {
        let share = self.config.max_flows / self.busy.max(1);
        let own = self.hosts.get(node).map(|host| &host.flows);
        let own = own.filter(|own| own.len() >= share).and_then(BTreeSet::first);
        if let Some((_, oldest)) = own.or(self.by_age.first()).copied() {
            self.forget_flow(&oldest);
        }
    }

    /// Moves a host's flows off bindings that can no longer carry them, and forgets flows that no binding can carry.
    pub(super) fn follow_flows(&mut self, now: Time, node: &NodeId) {
        let Some(host) = self.hosts.get(node).filter(|_| !fault(43)) else { return };
        let keys: Vec<FlowKey> = host.flows.iter().map(|(_, key)| *key).collect();
        for key in keys {
            let Some((prefix, _)) = self.owner(&key) else {
                self.forget_flow(&key);
                continue;
            };
            let usable = self.usable(node, prefix);
            if usable.is_empty() {
                self.forget_flow(&key);
                continue;
            }
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            let more = usable.len() > core::mem::replace(&mut flow.choices, usable.len());
            let Some(flow) = self.flows.get(&key) else { continue };
            let (dscp, is_ordered) = (flow.dscp, flow.ordered.is_some());
            let there = flow.ordered.as_ref().and_then(|ordered| self.among(ordered, &usable));
            let stays = usable.contains(&flow.session);
            let returns = self.config.schedule.returns(flow.why);
            let goes = if let Some(session) = there.filter(|_| !fault(50)) {
                Some((session, Placed::Decision))
            } else if !stays || returns {
                let session = self.schedule(now, prefix, &key, dscp, &usable);
                let is_own = self.holds(session, prefix) || self.config.schedule.is_anywhere();
                let is_rule = is_own && !is_ordered;
                Some((session, if is_rule { Placed::Rule } else { Placed::Moved }))
            } else {
                None
            };
            let changed = goes.is_some_and(|(session, why)| self.assign(&key, session, why));
            let asked = self.deciding && there.is_none() && usable.len() > 1;
            let again = asked && more && !is_ordered;
            if changed || again {
                self.tell_went(&key, asked);
            }
            if self.undecided.get(&key).is_none() {
                self.lead(&key);
            }
        }
    }

    /// Binds a flow to the tunnel of its binding.
    pub(super) fn lead(&mut self, key: &FlowKey) {
        let Some(flow) = self.flows.get(key) else { return };
        let tunnel = self.tunnel_of(flow.session);
        if flow.tunnel == tunnel {
            return;
        }
        let Some((flow, number)) = self.flows.get_mut(key).zip(tunnel) else { return };
        flow.tunnel = tunnel;
        let (traffic, exit) = (Traffic::Flow(*key), Exit::Tunnel(number));
        self.out.push_back(Output::Forward(Forward::Bind(Bind { traffic, exit })));
    }

    /// The prefix that a flow goes to, and the host that holds it.
    fn owner(&self, key: &FlowKey) -> Option<(Prefix, NodeId)> {
        let prefix = Prefix::new(key.dst, self.part_length()).network();
        let (node, _) = self.leases.whose(prefix)?;
        Some((prefix, node.clone()))
    }

    /// Numbers of a host's bindings that can carry traffic to a prefix, in order.
    pub(super) fn usable(&self, node: &NodeId, prefix: Prefix) -> Vec<u32> {
        let Some(host) = self.hosts.get(node) else { return Vec::new() };
        let can = |number: &u32| {
            let session = self.sessions.get(number).map(|at| &at.value);
            session.is_some_and(|session| session.carries(prefix))
        };
        self.lasting(self.active(host).into_iter().map(|(number, _)| number).filter(can).collect())
    }

    /// Numbers of the bindings that can carry a flow, in order.
    pub(super) fn flow_usable(&self, key: &FlowKey) -> Vec<u32> {
        self.owner(key).map_or(Vec::new(), |(prefix, node)| self.usable(&node, prefix))
    }

    /// The cheapest usable binding; among equally cheap ones the most preferred, then `own`, then the first.
    fn preferred(&self, own: u32, usable: &[u32]) -> u32 {
        let mut best = (own, self.worth(own));
        for number in usable.iter().copied() {
            let worth = self.worth(number);
            let cheaper = best.1.price.total_cmp(&worth.price);
            if cheaper.then(worth.preference.total_cmp(&best.1.preference)).is_gt() {
                best = (number, worth);
            }
        }
        best.0
    }

    /// Configured price and preference of a binding's access.
    pub(super) fn worth(&self, number: u32) -> Worth {
        let Some(at) = self.sessions.get(&number) else { return Worth::default() };
        let is_it = |rated: &&Rated| {
            rated.access.is_none_or(|access| access == at.value.access)
                && rated.gateway.is_none_or(|prefix| prefix.contains(at.peer.address))
        };
        self.config.accesses.iter().find(is_it).map_or(Worth::default(), |rated| rated.worth)
    }

    /// The usable binding of the ordered interface, if there is one.
    fn among(&self, ordered: &Ordered, usable: &[u32]) -> Option<u32> {
        let is_it = |number: &&u32| {
            let named = || self.sessions.get(number).map(|at| &at.value.link_layer);
            let is_named = || ordered.link_layer.is_known() && named() == Some(&ordered.link_layer);
            **number == ordered.session || is_named()
        };
        usable.iter().find(is_it).copied()
    }

    fn holds(&self, session: u32, prefix: Prefix) -> bool {
        self.holders.get(&prefix).is_some_and(|all| all.contains(&session))
    }

    /// Chooses one of the usable bindings for a flow.
    fn schedule(
        &mut self,
        now: Time,
        prefix: Prefix,
        key: &FlowKey,
        dscp: u8,
        usable: &[u32],
    ) -> u32 {
        let own = usable.iter().copied().find(|number| self.holds(*number, prefix));
        let first = own.unwrap_or(usable[0]);
        match self.config.schedule {
            Schedule::Static => first,
            Schedule::Preferred => self.preferred(first, usable),
            Schedule::Hash => {
                let mut hasher = Fnv::default();
                (key.src, key.sport, key.dport, key.protocol, key.label).hash(&mut hasher);
                usable[(hasher.finish() % usable.len() as u64) as usize]
            }
            Schedule::Random => usable[(self.rng.next_u64() % usable.len() as u64) as usize],
            Schedule::Quality => {
                let node = self.owner(key).map(|(_, node)| node);
                let best = node.and_then(|node| self.best(now, &node, key, dscp));
                // The best binding overall may be unable to carry this prefix.
                best.filter(|best| usable.contains(best)).unwrap_or(first)
            }
            Schedule::LeastLoaded => {
                let there = |number: &u32| self.loads.get(number).copied().unwrap_or(0);
                usable.iter().copied().min_by_key(there).unwrap_or(first)
            }
        }
    }
}

impl Schedule {
    /// Returns true if a flow that is placed for this reason is scheduled again when the host's interfaces change.
    fn returns(self, why: Placed) -> bool {
        match self {
            Schedule::Static => why == Placed::Moved,
            Schedule::Preferred => true,
            Schedule::Hash | Schedule::Random | Schedule::LeastLoaded | Schedule::Quality => false,
        }
    }

    /// Returns true if the schedule may choose any interface, even one that does not hold the flow's prefix.
    fn is_anywhere(self) -> bool {
        matches!(self, Schedule::Quality | Schedule::Preferred)
    }
}

/// FNV-1a: the result is the same on all platforms and in all builds.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // For short inputs the low bits differ too little, so mix in the high ones.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
