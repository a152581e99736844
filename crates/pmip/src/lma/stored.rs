//! Persistent state of an anchor.

use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::Output;
use segue_mobility::{Binding, Entered, SequenceOrder, TimestampOrder};

use segue_clock::planted::fault;

use super::Lma;
use super::io::{LmaRecord, StoredLease, StoredSession};
use super::state::{LinkQuality, Order, Roams, SESSION, Session, SessionState, Way};
use crate::news::Why;
use crate::{DATA_PORT, NodeId, PeerAddress};

impl Lma {
    pub(super) fn stored(&self, at: &Binding<PeerAddress, Session>) -> StoredSession {
        let Session { node, link_layer, access, prefixes, bid, state, order, .. } = &at.value;
        let way = self.peers.get(&at.peer).map(|peer| peer.way);
        StoredSession {
            node: node.clone(),
            link_layer: link_layer.clone(),
            access: *access,
            prefixes: prefixes.clone(),
            bid: *bid,
            leaving: *state == SessionState::Leaving,
            gateway: at.peer,
            port: way.map_or(0, |way| way.port),
            in_udp: way.is_some_and(|way| way.data.is_some()),
            gre: at.value.gre.map(|gre| gre.send),
            link_local: at.value.link_local,
            until: self.config.clock.at(at.until),
            timestamp: order.timestamp.last(),
            sequence: order.sequence.last(),
        }
    }

    /// Restores a record of an earlier start. Expired bindings are dropped; their gateways register again.
    pub(super) fn restore(&mut self, now: Time, record: LmaRecord) {
        match record {
            LmaRecord::Session(number, Some(stored)) => self.restore_session(now, number, stored),
            LmaRecord::Lease(prefix, Some(StoredLease { node, link_layer, rests })) => {
                let key = (node.clone(), link_layer.clone());
                if fault(44) {
                    return;
                }
                let Some(until) = rests else {
                    if self.leases.restore(key, prefix, None).is_some() {
                        let host = self.hosts.entry(node.clone()).or_default();
                        host.prefixes.insert(prefix, link_layer);
                        self.follow_if_bound(now, &node);
                    }
                    return;
                };
                // The clock may have been wrong, so the hold time is capped.
                let until = self.config.clock.when(until, now).min(now + self.config.prefix_hold);
                if until <= now || self.leases.rest(key, prefix, until).is_none() {
                    self.out.push_back(Output::Persist(LmaRecord::Lease(prefix, None)));
                }
            }
            LmaRecord::Session(_, None) | LmaRecord::Lease(_, None) => {}
        }
    }

    fn restore_session(&mut self, now: Time, number: u32, stored: StoredSession) {
        // The clock may have been wrong, so the lifetime is capped.
        let until = self.config.clock.when(stored.until, now);
        let until = until.min(now + self.config.longest.span());
        if until <= now {
            self.out.push_back(Output::Persist(LmaRecord::Session(number, None)));
            return;
        }
        let timestamp = stored.timestamp.map_or(TimestampOrder::new(), TimestampOrder::behind);
        let sequence = stored.sequence.map_or(SequenceOrder::new(), SequenceOrder::behind);
        let state = if stored.leaving { SessionState::Leaving } else { SessionState::Active };
        let StoredSession { node, link_layer, access, prefixes, bid, gateway, .. } = stored;
        let of_it = link_layer.clone();
        let value = Session {
            node: node.clone(),
            link_layer,
            access,
            prefixes: prefixes.clone(),
            bid,
            state,
            since: now,
            leaves: None,
            link: LinkQuality::default(),
            link_told: now,
            steady: now,
            order: Order { timestamp, sequence },
            gre: None,
            link_local: stored.link_local,
            told: None,
            asked: None,
            roams: Roams::default(),
        };
        let displaced = match self.sessions.enter(number, Binding { peer: gateway, until, value }) {
            Err(_) => return,
            Ok(Entered::Displaced(other, binding)) => Some((other, binding)),
            Ok(Entered::New | Entered::Replaced(_)) => None,
        };
        self.numbers[SESSION] = self.numbers[SESSION].max(number.into());
        for prefix in prefixes {
            self.holders.entry(prefix).or_default().insert(number);
        }
        self.enter_link_layer(&of_it, number);
        let data = stored.in_udp.then_some(DATA_PORT);
        self.reach(now, gateway, Way { port: stored.port, data });
        self.encapsulate(number, stored.gre);
        self.hosts.entry(node.clone()).or_default().sessions.insert(number);
        if let Some((other, binding)) = displaced {
            self.ended(now, other, binding, Why::Displaced);
        }
        self.follow(now, &node);
    }

    /// During the restore, a host may have prefixes before it has a binding.
    fn follow_if_bound(&mut self, now: Time, node: &NodeId) {
        if self.hosts.get(node).is_some_and(|host| !host.sessions.is_empty()) {
            self.follow(now, node);
        }
    }

    /// All records are restored: reserve the prefixes of hosts without a binding.
    pub(super) fn settle(&mut self, now: Time) {
        let unbound = self.hosts.iter().filter(|(_, host)| host.sessions.is_empty());
        let unbound: Vec<NodeId> = unbound.map(|(node, _)| node.clone()).collect();
        unbound.iter().for_each(|node| self.follow(now, node));
    }
}
