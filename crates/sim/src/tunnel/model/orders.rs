//! The [`Datapath`] interface of the model, common to every packet path.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;

use segue_clock::Time;
use segue_keepalive::Reading;
use segue_tunnel::datapath::{Datapath, Missed, PathCounters};
use segue_tunnel::{FlowCount, PathSetup, ProbeOrder, Reinjection, Ticket, Via};
use segue_wire::{FlowKey, Size};

use super::super::message::{Body, Message, Outer};
use super::super::slot::Slot;
use super::{Bound, Inner, Model, Wrong};

/// The first packet of a flow without a binding. The model holds it and its successors.
#[derive(Clone, Copy, Debug)]
pub struct Unbound {
    pub(super) ticket: Ticket,
    pub(super) key: FlowKey,
    pub(super) dscp: u8,
}

impl Missed for Unbound {
    fn key(&self) -> FlowKey {
        self.key
    }

    fn dscp(&self) -> u8 {
        self.dscp
    }
}

/// Invalid orders are noted in [`Model::wrong`].
impl<P: Clone> Datapath for Model<P> {
    type Error = Infallible;
    type Packet = Unbound;

    fn set_path(&mut self, slot: u32, setup: &PathSetup) -> Result<(), Infallible> {
        let lacks = setup.local.is_none() || setup.remote.is_none() || setup.ifindex == 0;
        if lacks && !self.is_anchor {
            self.note(Wrong::NoEnds(slot));
        }
        let place = slot as usize;
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        let cookies = |setup: &PathSetup| (setup.rx_cookie, setup.tx_cookie);
        match &mut self.slots[place] {
            Some(old) if cookies(&old.setup) == cookies(setup) => old.setup = setup.clone(),
            old => {
                // A redirection outlives the path: the machine has to end it.
                let via = old.as_ref().and_then(|old| old.via);
                self.set_timer(slot, None);
                self.slots[place] = Some(Box::new(Slot::new(setup.clone(), via, self.measures)));
            }
        }
        self.set_rides(slot);
        Ok(())
    }

    fn remove_path(&mut self, slot: u32) {
        self.set_timer(slot, None);
        let removed = self.slots.get_mut(slot as usize).and_then(Option::take);
        self.copies.remove(&slot);
        if removed.is_none() {
            self.note(Wrong::NoPath(slot));
        }
        // An anchor would have to search all paths of all hosts; its harness does that.
        if !self.is_anchor
            && let Some(user) = self.user_of(slot)
        {
            self.note(Wrong::StillUsed(slot, user));
        }
    }

    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), Infallible> {
        if let Some(via) = via {
            if self.path(via.slot).is_none() {
                self.note(Wrong::NoPath(via.slot));
            }
            if via.slot == slot {
                self.note(Wrong::ViaItself(slot));
            }
        }
        if let Some(path) = self.path_mut(slot) {
            path.via = via;
        }
        Ok(())
    }

    fn reinject(&mut self, order: Reinjection) -> usize {
        let owner = |slot: u32| self.path(slot).map(|path| path.setup.owner);
        if owner(order.over).is_none() || owner(order.slot) != owner(order.over) {
            self.note(Wrong::NoPath(order.over));
            return 0;
        }
        let last_seen = |inner: &Inner<P>| self.flows.get(&inner.key).map(|bound| bound.seen);
        let copies = self.copies.get_mut(&order.slot);
        let packets = copies.map(|copies| copies.take_since(order.since, last_seen));
        let hop = (order.over, true);
        let packets = packets.into_iter().flatten();
        let sent: Vec<_> =
            packets.filter_map(|inner| self.send_over(self.now, hop, inner)).collect();
        let count = sent.len();
        self.sent.extend(sent);
        count
    }

    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), Infallible> {
        self.inner.insert(address, owner);
        Ok(())
    }

    fn remove_inner(&mut self, address: IpAddr) {
        self.mtus.remove(&address);
        if self.inner.remove(&address).is_none() {
            self.note(Wrong::NoAddress(address));
        }
    }

    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), Infallible> {
        let Some(setup) = self.path(slot).map(|path| &path.setup) else {
            self.note(Wrong::Bound(key, slot));
            return Ok(());
        };
        let (cookie, owner) = (setup.rx_cookie, setup.owner);
        if self.is_anchor && self.inner.get(&key.dst) != Some(&owner) {
            self.note(Wrong::OthersPath(key, slot));
            return Ok(());
        }
        let seen = self.flows.get(&key).map_or(self.now, |bound| bound.seen);
        self.flows.insert(key, Bound { slot, cookie, seen, sent: 0, bytes: 0, received: 0 });
        Ok(())
    }

    fn unbind_flow(&mut self, key: &FlowKey) {
        self.flows.remove(key);
    }

    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount> {
        let bound = *self.flows.get(key)?;
        let Bound { slot, sent, bytes, received, .. } = bound;
        let length = bytes.checked_div(sent.into()).unwrap_or(0) as u32;
        Some(FlowCount { slot, sent, received, length })
    }

    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), Infallible> {
        for order in orders {
            let sent = self.probe(order);
            self.sent.extend(sent);
        }
        Ok(())
    }

    fn test_size(&mut self, slot: u32, size: Size, dscp: u8) {
        let is_anchor = self.is_anchor;
        let Some(path) = self.path_mut(slot) else { return };
        let Some(outer) = path.outer(is_anchor) else { return };
        let message = path.message(Body::Size { size, dscp, key: path.setup.key });
        self.sent.push((outer, message));
    }

    fn set_heard(&mut self, slots: &[u32], word: u16) {
        for slot in slots {
            if let Some(path) = self.path_mut(*slot) {
                path.heard = word;
            }
        }
    }

    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        if !self.measures {
            self.note(Wrong::Quiet(slot));
        }
        if let Some(path) = self.path_mut(slot)
            && let Some(meter) = &mut path.meter
        {
            meter.quiet = quiet;
        }
    }

    fn set_one_by_one(&mut self, slot: u32) {
        if let Some(path) = self.path_mut(slot) {
            path.one_by_one = true;
        }
    }

    fn reading(&mut self, slot: u32) -> Option<Reading> {
        self.reading_at(self.now, slot)
    }

    fn measures(&self) -> bool {
        self.measures
    }

    fn sweep(&mut self, now: Time) -> Option<Time> {
        self.sweep_held(now)
    }

    fn inject(&mut self, packet: Unbound) {
        for inner in self.take_held(packet.ticket) {
            let sent = self.send_bound(self.now, inner);
            self.sent.extend(sent);
        }
    }

    fn refuse(&mut self, packet: Unbound) {
        self.take_held(packet.ticket);
    }

    fn is_set(&self, slot: u32) -> bool {
        self.path(slot).is_some()
    }

    fn counters(&mut self, slot: u32) -> PathCounters {
        self.path(slot).map_or_else(PathCounters::default, |path| PathCounters {
            tx_packets: path.tx,
            rx_packets: path.rx,
            tx_bytes: path.bytes[0],
            rx_bytes: path.bytes[1],
            remote: path.setup.remote,
        })
    }
}

impl<P: Clone> Model<P> {
    /// Measurements of a path up to `now`, if this end measures, and its data traffic.
    #[must_use]
    pub fn reading_at(&self, now: Time, slot: u32) -> Option<Reading> {
        let path = self.path(slot)?;
        let traffic = path.traffic.as_deref().copied().unwrap_or_default();
        let rides = path.rides.as_deref();
        let Some(meter) = &path.meter else {
            let calls = !self.is_anchor && path.setup.probing.follows_use;
            let reading = match rides {
                Some(rides) => rides.reading(),
                None if calls => Reading::default(),
                None => return None,
            };
            return Some(Reading { at: now, traffic, ..reading });
        };
        let (rode, watched) = rides.map_or((0, None), |rides| (rides.rode, rides.watched));
        Some(Reading { traffic, rode, watched, ..meter.reading(now) })
    }

    /// Builds a probe that the machine orders; `None` while its destination is unknown.
    fn probe(&mut self, order: &ProbeOrder) -> Option<(Outer, Message<P>)> {
        let (now, is_anchor, measures) = (self.now, self.is_anchor, self.measures);
        let path = self.path_mut(order.slot)?;
        let outer = path.outer(is_anchor)?;
        path.tx = path.tx.wrapping_add(u32::from(!order.question));
        let mut probe = order.probe;
        let us = now.micros32();
        probe.dt = us.wrapping_sub(order.held_since);
        if let Some(meter) = &mut path.meter {
            probe.dt = us.wrapping_sub(meter.held_since());
            meter.on_order(now, is_anchor, &mut probe);
        }
        if is_anchor {
            (probe.t_ss, probe.ss, probe.r) = (us, path.tx, path.rx);
        } else {
            (probe.t_sc, probe.sc) = (us, path.tx);
            path.heard = probe.heard;
            if let Some(rides) = path.rides.as_deref_mut() {
                rides.goes_alone(now);
                if !measures {
                    rides.number(now, &mut probe);
                }
                if order.report {
                    (probe.ss, probe.r) = (order.probe.ss, order.probe.r);
                }
                self.set_timer(order.slot, None);
            }
        }
        let path = self.path_mut(order.slot)?;
        let ProbeOrder { kind, k, report, question, age, .. } = *order;
        let key = path.setup.key;
        Some((outer, path.message(Body::Probe { kind, k, report, question, age, probe, key })))
    }
}
