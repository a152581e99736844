//! Flow bindings: which bindings carry a flow.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_wire::FlowKey;
use segue_wire::mobility::option::FlowStatus;
use segue_wire::mobility::{Family, Span, TrafficSelector};

/// The flow bindings of one mobile node (RFC 6089; the Flow Mobility Cache of RFC 7864), and the bindings that they
/// refer to by Binding Identifier (RFC 5648).
///
/// For each packet, the matching active flow binding with the lowest priority number decides. A flow binding is active
/// if it drops packets or names a registered binding. If none matches, the packet goes to the binding with the lowest
/// priority number. Do not look up mobility signalling here.
#[derive(Clone, Debug)]
pub struct FlowBindings {
    /// Maximum number of flow bindings, and of bindings.
    most: usize,
    /// Priorities of the registered bindings, by BID.
    bids: BTreeMap<u16, u8>,
    /// Flow bindings by priority.
    flows: BTreeMap<u16, FlowBinding>,
    /// Priorities of the flow bindings, by FID.
    priorities: BTreeMap<u16, u16>,
}

/// A flow binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowBinding {
    /// Flow identifier, not 0.
    pub fid: u16,
    /// Unique within the node, not 0; lower numbers come first.
    pub priority: u16,
    /// Selects the packets.
    pub selector: TrafficSelector,
    /// What to do with the packets.
    pub action: Action,
}

/// What to do with the packets of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send each to all of these bindings (BIDs) that are registered.
    Forward(BTreeSet<u16>),
    /// Drop all.
    Drop,
}

/// An update of a flow binding, from a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowUpdate {
    /// The flow binding; an unknown one is added.
    pub fid: u16,
    /// The new priority.
    pub priority: u16,
    /// The new selector; `None`: unchanged.
    pub selector: Option<TrafficSelector>,
    /// The new action; `None`: unchanged.
    pub action: Option<Action>,
}

/// The fields of a packet that traffic selectors examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// The flow key. A port of 0 means that the packet has none.
    pub key: FlowKey,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// IPv6 flow label. The key contains it only if the ports are unknown.
    pub flow_label: u32,
    /// IPsec Security Parameter Index.
    pub spi: Option<u32>,
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To each of these bindings, at least one.
    Forward {
        /// The flow binding that decided; `None` if none matched.
        fid: Option<u16>,
        /// BIDs of the bindings.
        bids: Vec<u16>,
    },
    /// Dropped by a flow binding.
    Drop {
        /// The flow binding.
        fid: u16,
    },
    /// Dropped: no binding is registered.
    Unreachable,
}

/// Returns true if the selector matches the packet.
#[must_use]
pub fn selects(selector: &TrafficSelector, packet: &Classified) -> bool {
    fn within<T: Copy + Ord>(span: Option<Span<T>>, value: Option<T>) -> bool {
        span.is_none_or(|span| value.is_some_and(|value| span.contains(value)))
    }
    let key = &packet.key;
    let family = if key.dst.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    let port = |port: u16| Some(port).filter(|port| *port != 0);
    let address = |span: Option<Span<IpAddr>>, addr| within(span, Some(addr));
    selector.family == family
        && address(selector.source_address, key.src)
        && address(selector.destination_address, key.dst)
        && within(selector.ipsec_spi, packet.spi)
        && within(selector.flow_label, Some(packet.flow_label))
        && within(selector.source_port, port(key.sport))
        && within(selector.destination_port, port(key.dport))
        && within(selector.dscp, Some(packet.dscp))
        && within(selector.protocol, Some(key.protocol))
}

impl FlowBindings {
    /// Creates an empty table for at most `most` flow bindings and `most` bindings.
    #[must_use]
    pub fn new(most: usize) -> FlowBindings {
        let (bids, flows, priorities) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        FlowBindings { most, bids, flows, priorities }
    }

    /// Registers a binding, or changes its priority (BID-PRI; lower numbers first). Returns false if there is no room
    /// for it.
    pub fn set_bid(&mut self, bid: u16, priority: u8) -> bool {
        let room = self.bids.contains_key(&bid) || self.bids.len() < self.most;
        room.then(|| self.bids.insert(bid, priority));
        room
    }

    /// Removes a binding. Flow bindings still name it, in case it is registered again.
    pub fn remove_bid(&mut self, bid: u16) {
        self.bids.remove(&bid);
    }

    /// The registered bindings, with their priorities.
    pub fn bids(&self) -> impl Iterator<Item = (u16, u8)> {
        self.bids.iter().map(|(bid, priority)| (*bid, *priority))
    }

    /// The flow bindings, by priority.
    pub fn iter(&self) -> impl Iterator<Item = &FlowBinding> {
        self.flows.values()
    }

    /// Decides where a packet goes.
    #[must_use]
    pub fn verdict(&self, packet: &Classified) -> Verdict {
        for flow in self.flows.values().filter(|flow| selects(&flow.selector, packet)) {
            let Action::Forward(bids) = &flow.action else {
                return Verdict::Drop { fid: flow.fid };
            };
            let live = bids.iter().copied().filter(|bid| self.bids.contains_key(bid));
            let bids: Vec<u16> = live.collect();
            if !bids.is_empty() {
                return Verdict::Forward { fid: Some(flow.fid), bids };
            }
        }
        let best = self.bids.iter().map(|(bid, priority)| (*priority, *bid)).min();
        best.map_or(Verdict::Unreachable, |(_, bid)| Verdict::Forward {
            fid: None,
            bids: Vec::from([bid]),
        })
    }

    /// Applies a message that lists all flow bindings: removes those that it neither updates nor keeps (`kept`, its
    /// Flow Summary). The statuses are those of [`update`](FlowBindings::update), and FID_NOT_FOUND for an unknown FID
    /// in `kept`.
    pub fn replace(&mut self, updates: &[FlowUpdate], kept: &[u16]) -> Vec<(u16, FlowStatus)> {
        let named: BTreeSet<u16> =
            updates.iter().map(|u| u.fid).chain(kept.iter().copied()).collect();
        self.flows.retain(|_, flow| named.contains(&flow.fid));
        self.priorities.retain(|fid, _| named.contains(fid));
        let unknown = kept.iter().filter(|fid| !self.priorities.contains_key(fid));
        let mut statuses: Vec<_> = unknown.map(|fid| (*fid, FlowStatus::FID_NOT_FOUND)).collect();
        statuses.extend(self.update(updates));
        statuses
    }

    /// Adds and changes flow bindings. Returns a status for each update:
    ///
    /// - MALFORMED: the FID or the priority is 0, the message updates the FID twice, or the list of bindings is empty;
    /// - BID_NOT_FOUND: a named binding is not registered;
    /// - FID_NOT_FOUND: unknown FID, and the update lacks fields that a new flow binding needs;
    /// - REJECTED: another flow binding has the priority, or the table is full.
    ///
    /// One message may exchange priorities between flow bindings. A flow binding whose update is refused stays
    /// unchanged, unless another one has taken its priority.
    pub fn update(&mut self, updates: &[FlowUpdate]) -> Vec<(u16, FlowStatus)> {
        let mut before: BTreeMap<u16, FlowBinding> = updates
            .iter()
            .filter_map(|update| Some((update.fid, self.take(update.fid)?)))
            .collect();
        let mut statuses = Vec::with_capacity(updates.len());
        for update in updates {
            // Existing flow bindings keep their room until their own update is processed.
            let room = self.most - self.flows.len() - before.len();
            let made = self.made(update, before.get(&update.fid), room);
            statuses.push((update.fid, made.as_ref().err().copied().unwrap_or_default()));
            if let Ok(flow) = made {
                before.remove(&flow.fid);
                self.put(flow);
            }
        }
        for (_, flow) in before {
            if !self.flows.contains_key(&flow.priority) && !self.priorities.contains_key(&flow.fid)
            {
                self.put(flow);
            }
        }
        statuses
    }

    /// The flow binding that results from an update.
    fn made(
        &self,
        update: &FlowUpdate,
        before: Option<&FlowBinding>,
        room: usize,
    ) -> Result<FlowBinding, FlowStatus> {
        let FlowUpdate { fid, priority, selector, action } = update;
        if *fid == 0 || *priority == 0 || self.priorities.contains_key(fid) {
            return Err(FlowStatus::MALFORMED);
        }
        let selector = selector.as_ref().or(before.map(|flow| &flow.selector));
        let action = action.as_ref().or(before.map(|flow| &flow.action));
        let (selector, action) = selector.zip(action).ok_or(FlowStatus::FID_NOT_FOUND)?;
        if let Action::Forward(bids) = action
            && update.action.is_some()
        {
            if bids.is_empty() {
                return Err(FlowStatus::MALFORMED);
            }
            if !bids.iter().all(|bid| self.bids.contains_key(bid)) {
                return Err(FlowStatus::BID_NOT_FOUND);
            }
        }
        if self.flows.contains_key(priority) || before.is_none() && room == 0 {
            return Err(FlowStatus::REJECTED);
        }
        let (selector, action) = (selector.clone(), action.clone());
        Ok(FlowBinding { fid: *fid, priority: *priority, selector, action })
    }

    fn put(&mut self, flow: FlowBinding) {
        self.priorities.insert(flow.fid, flow.priority);
        self.flows.insert(flow.priority, flow);
    }

    fn take(&mut self, fid: u16) -> Option<FlowBinding> {
        self.flows.remove(&self.priorities.remove(&fid)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(dst: &str, dport: u16) -> Classified {
        let (src, dst): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), dst.parse().unwrap());
        let key = FlowKey { src, dst, sport: 80, dport, protocol: 6, label: 0 };
        Classified { key, dscp: 46, flow_label: 7, spi: None }
    }

    fn packet(dport: u16) -> Classified {
        flow("2001:db8::2", dport)
    }

    fn selector(ports: (u16, u16)) -> TrafficSelector {
        let destination_port = Some(Span::range(ports.0, ports.1));
        TrafficSelector { destination_port, ..TrafficSelector::any(Family::Ipv6) }
    }

    fn to(bids: &[u16]) -> Option<Action> {
        Some(Action::Forward(bids.iter().copied().collect()))
    }

    fn update(fid: u16, priority: u16, ports: (u16, u16), bids: &[u16]) -> FlowUpdate {
        FlowUpdate { fid, priority, selector: Some(selector(ports)), action: to(bids) }
    }

    /// Bindings 1, 2 and 3; 2 is the best.
    fn bindings() -> FlowBindings {
        let mut bindings = FlowBindings::new(4);
        for (bid, priority) in [(1, 20), (2, 10), (3, 20)] {
            assert!(bindings.set_bid(bid, priority));
        }
        bindings
    }

    fn update_all(bindings: &mut FlowBindings, updates: &[FlowUpdate]) -> Vec<u8> {
        let statuses = bindings.update(updates);
        assert!(statuses.iter().map(|(fid, _)| *fid).eq(updates.iter().map(|u| u.fid)));
        statuses.into_iter().map(|(_, status)| status.0).collect()
    }

    /// The flow binding that decides about a packet to this port, and the BIDs it goes to.
    fn way(bindings: &FlowBindings, dport: u16) -> (Option<u16>, Vec<u16>) {
        match bindings.verdict(&packet(dport)) {
            Verdict::Forward { fid, bids } => (fid, bids),
            Verdict::Drop { fid } => (Some(fid), Vec::new()),
            Verdict::Unreachable => (None, Vec::new()),
        }
    }

    /// Priorities and FIDs, by priority.
    fn order(bindings: &FlowBindings) -> Vec<(u16, u16)> {
        bindings.iter().map(|flow| (flow.priority, flow.fid)).collect()
    }

    #[test]
    fn each_field_of_a_selector_counts_and_one_that_is_not_there_takes_all() {
        let any = TrafficSelector::any(Family::Ipv6);
        let at = |text: &str| Span::one(text.parse::<IpAddr>().unwrap());
        let own = Classified { spi: Some(9), ..packet(443) };
        let some = |takes, selector: TrafficSelector| {
            assert_eq!(selects(&selector, &own), takes, "{selector:?}");
        };
        some(true, any.clone());
        some(false, TrafficSelector::any(Family::Ipv4));
        for (takes, address) in [(true, "2001:db8::1"), (false, "2001:db8::2")] {
            some(takes, TrafficSelector { source_address: Some(at(address)), ..any.clone() });
            some(!takes, TrafficSelector { destination_address: Some(at(address)), ..any.clone() });
        }
        for (takes, n) in [(true, 0), (false, 1)] {
            some(takes, TrafficSelector { ipsec_spi: Some(Span::one(9 + n)), ..any.clone() });
            some(takes, TrafficSelector { flow_label: Some(Span::one(7 + n)), ..any.clone() });
            let port = |port: u16| Some(Span::range(port + n as u16, u16::MAX));
            some(takes, TrafficSelector { source_port: port(80), ..any.clone() });
            some(takes, TrafficSelector { destination_port: port(443), ..any.clone() });
            let byte = |byte: u8| Some(Span::one(byte + n as u8));
            some(takes, TrafficSelector { dscp: byte(46), ..any.clone() });
            some(takes, TrafficSelector { protocol: byte(6), ..any.clone() });
        }
        // A packet without a port or SPI matches no range of them.
        assert!(!selects(&selector((0, u16::MAX)), &packet(0)));
        let spi = TrafficSelector { ipsec_spi: Some(Span::range(0, u32::MAX)), ..any };
        assert!(selects(&spi, &own) && !selects(&spi, &packet(443)));
        let mut v4 = packet(443);
        (v4.key.src, v4.key.dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        assert!(
            selects(&TrafficSelector::any(Family::Ipv4), &v4) && !selects(&selector((0, 999)), &v4)
        );
    }

    #[test]
    fn the_lowest_priority_number_decides_and_without_a_flow_binding_the_best_binding() {
        let mut bindings = bindings();
        let updates = [
            update(10, 7, (0, 999), &[1]),
            update(11, 5, (400, 500), &[3, 1]),
            FlowUpdate { action: Some(Action::Drop), ..update(12, 6, (450, 600), &[]) },
        ];
        assert_eq!(update_all(&mut bindings, &updates), [0, 0, 0]);
        assert_eq!(order(&bindings), [(5, 11), (6, 12), (7, 10)]);
        assert_eq!(way(&bindings, 399), (Some(10), [1].into()));
        assert_eq!(way(&bindings, 450), (Some(11), [1, 3].into()));
        assert_eq!(way(&bindings, 501), (Some(12), [].into()));
        assert_eq!(way(&bindings, 1_000), (None, [2].into()));
        bindings.remove_bid(2);
        assert_eq!(way(&bindings, 1_000), (None, [1].into()), "the lower BID of equal priorities");
    }

    #[test]
    fn a_flow_binding_is_inactive_while_none_of_its_bindings_is_registered() {
        let mut bindings = bindings();
        update_all(
            &mut bindings,
            &[update(10, 5, (1, 500), &[1, 3]), update(11, 6, (1, 999), &[3])],
        );
        bindings.remove_bid(1);
        assert_eq!(way(&bindings, 80), (Some(10), [3].into()));
        bindings.remove_bid(3);
        assert_eq!(way(&bindings, 80), (None, [2].into()));
        assert!(bindings.set_bid(3, 1));
        assert_eq!(way(&bindings, 80), (Some(10), [3].into()));
        bindings.remove_bid(2);
        bindings.remove_bid(3);
        assert_eq!(bindings.verdict(&packet(80)), Verdict::Unreachable);
    }

    #[test]
    fn an_update_changes_what_it_says_and_keeps_the_rest() {
        let mut bindings = bindings();
        update_all(&mut bindings, &[update(10, 5, (1, 500), &[1]), update(11, 6, (1, 999), &[3])]);
        let same = FlowUpdate { fid: 10, priority: 5, selector: None, action: None };
        let moved = FlowUpdate { action: to(&[2]), ..same.clone() };
        let wider = FlowUpdate { selector: Some(selector((1, 800))), ..same.clone() };
        assert_eq!(update_all(&mut bindings, &[same]), [0]);
        assert_eq!(way(&bindings, 500), (Some(10), [1].into()));
        assert_eq!(update_all(&mut bindings, &[moved]), [0]);
        assert_eq!(way(&bindings, 500), (Some(10), [2].into()));
        assert_eq!(update_all(&mut bindings, &[wider]), [0]);
        assert_eq!(way(&bindings, 800), (Some(10), [2].into()));
        // Two flow bindings exchange priorities.
        let place = |fid, priority| FlowUpdate { fid, priority, selector: None, action: None };
        assert_eq!(update_all(&mut bindings, &[place(10, 6), place(11, 5)]), [0, 0]);
        assert_eq!(order(&bindings), [(5, 11), (6, 10)]);
        // An update without an action does not fail because of a removed binding.
        bindings.remove_bid(2);
        assert_eq!(update_all(&mut bindings, &[place(10, 9)]), [0]);
        assert_eq!(order(&bindings), [(5, 11), (9, 10)]);
    }

    #[test]
    fn what_cannot_be_is_refused_and_leaves_the_flow_binding_as_it_was() {
        let mut bindings = bindings();
        let first = [update(10, 5, (1, 500), &[1]), update(11, 6, (1, 999), &[3])];
        update_all(&mut bindings, &first);
        let part = FlowUpdate { selector: None, ..update(12, 7, (1, 1), &[1]) };
        for (updates, expected) in [
            (&[update(0, 7, (1, 1), &[1])][..], &[130][..]),
            (&[update(12, 0, (1, 1), &[1])], &[130]),
            (&[update(12, 7, (1, 1), &[])], &[130]),
            (&[update(12, 7, (1, 1), &[1, 4])], &[131]),
            (&[part], &[132]),
            (&[update(12, 6, (1, 1), &[1])], &[129]),
            (&[update(10, 6, (1, 1), &[1])], &[129]),
            (&[update(10, 7, (1, 1), &[4])], &[131]),
            (&[FlowUpdate { fid: 12, action: None, ..first[0].clone() }], &[132]),
            (&[first[0].clone(), first[0].clone()], &[0, 130]),
        ] {
            assert_eq!(update_all(&mut bindings, updates), expected, "{updates:?}");
            assert_eq!(order(&bindings), [(5, 10), (6, 11)], "{updates:?}");
            assert_eq!(way(&bindings, 500), (Some(10), [1].into()));
        }
        // Another flow binding has taken its priority.
        let both = [update(11, 5, (1, 1), &[1]), update(10, 7, (1, 1), &[9])];
        assert_eq!(update_all(&mut bindings, &both), [0, 131]);
        assert_eq!(order(&bindings), [(5, 11)]);
    }

    #[test]
    fn a_message_that_says_all_ends_what_it_does_not_name() {
        let mut bindings = bindings();
        let flow = |fid| update(fid, fid, (1, 1), &[1]);
        update_all(&mut bindings, &[flow(1), flow(2), flow(3)]);
        let fid = |status: FlowStatus| move |fid| (fid, status);
        let refused = bindings.replace(&[flow(4), update(2, 9, (2, 2), &[1])], &[3, 7]);
        let expected = [fid(FlowStatus::FID_NOT_FOUND)(7), (4, FlowStatus(0)), (2, FlowStatus(0))];
        assert_eq!(refused, expected);
        assert_eq!(order(&bindings), [(3, 3), (4, 4), (9, 2)]);
        assert_eq!(bindings.replace(&[], &[]), []);
        assert_eq!(order(&bindings), []);
    }

    #[test]
    fn there_are_no_more_than_there_is_room_for_even_if_updates_are_refused() {
        let mut bindings = bindings();
        let flow = |fid| update(fid, fid, (1, 1), &[1]);
        let all: Vec<FlowUpdate> = (1..=6).map(flow).collect();
        assert_eq!(update_all(&mut bindings, &all), [0, 0, 0, 0, 129, 129]);
        // A flow binding whose update is refused keeps its room.
        let updates = [flow(5), update(1, 1, (1, 1), &[9]), update(2, 8, (1, 1), &[1])];
        assert_eq!(update_all(&mut bindings, &updates), [129, 131, 0]);
        assert_eq!(order(&bindings), [(1, 1), (3, 3), (4, 4), (8, 2)]);
        assert!(bindings.set_bid(4, 1) && !bindings.set_bid(5, 1) && bindings.set_bid(4, 2));
        assert_eq!(bindings.bids().collect::<Vec<_>>(), [(1, 20), (2, 10), (3, 20), (4, 2)]);
    }
}
