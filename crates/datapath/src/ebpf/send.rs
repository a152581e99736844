//! Outgoing probes: those with the same next hop leave together, all others as packets through the TUN device's
//! program.

use segue_wire::DropReason;

use super::Ebpf;
use super::batch::{Hop, ORDERS_MIN};
use super::convert::{PATH_RIDES, family, kernel_order};
use super::reader::outer_ethertype;
use crate::{Datapath, ProbeKind, ProbeOrder, Role};

impl Ebpf {
    /// Sends the ordered probes; counts orders for missing paths ([`DropReason::NoRemote`]).
    pub(super) fn send(&mut self, orders: &[ProbeOrder]) {
        let mut alone = Vec::new();
        let mut together: Vec<(Hop, Vec<&ProbeOrder>)> = Vec::new();
        let batches = self.can_batch(orders);
        for order in orders {
            let exit = self.exits.get(order.slot);
            if exit.is_none() && !self.paths.contains_key(&order.slot) {
                self.shore.drops.add(DropReason::NoRemote, 1);
                continue;
            }
            let may_batch = batches && order.kind == ProbeKind::Request;
            let hop = exit.filter(|_| may_batch).map(|exit| exit.hop);
            if exit.is_some_and(|exit| exit.rides) {
                self.hear(order);
            }
            match (hop, together.last_mut()) {
                (Some(hop), Some((last, orders))) if *last == hop => orders.push(order),
                (Some(hop), _) => together.push((hop, vec![order])),
                (None, _) => alone.push(order),
            }
        }
        // Groups the runs of orders by next hop.
        together.sort_by_key(|(hop, _)| *hop);
        together.dedup_by(|(hop, later), (kept, orders)| {
            let same = hop == kept;
            if same {
                orders.append(later);
            }
            same
        });
        for (hop, orders) in together {
            // The first resolves the neighbour and keeps it fresh.
            let ahead = if orders.len() < ORDERS_MIN { orders.len() } else { 1 };
            let (first, rest) = orders.split_at(ahead);
            self.send_alone(first);
            for chunk in rest.chunks(self.batch.room()) {
                if !self.batch.send(hop, chunk) {
                    alone.extend(chunk);
                }
            }
        }
        self.send_alone(&alone);
    }

    /// True if this number of orders may justify a batch.
    fn can_batch(&self, orders: &[ProbeOrder]) -> bool {
        self.shore.role == Role::Host && orders.len() >= ORDERS_MIN
    }

    /// Sends probes through the TUN device's program, one packet each.
    fn send_alone(&self, orders: &[&ProbeOrder]) {
        let packets: Vec<_> =
            orders.iter().map(|o| (kernel_order(o), self.ethertype(o.slot))).collect();
        self.shore.send_probes(&packets);
    }

    /// The outer EtherType of a probe on a path, which the packet with its order must carry. Reads the path's state
    /// only if the path has no configured remote address.
    pub(super) fn ethertype(&self, slot: u32) -> u16 {
        let known = self.paths.get(&slot).and_then(|path| path.remote);
        let remote = known.or_else(|| self.remote(slot, &self.shore.tables.state(slot)));
        outer_ethertype(remote.map_or(4, |remote| family(remote.ip()) as u8))
    }

    /// Makes requests that ride report the same `heard` word as the last ordered request.
    fn hear(&mut self, order: &ProbeOrder) {
        let rides = self.paths.get(&order.slot).map_or(0, |path| path.config.flags) & PATH_RIDES;
        if rides != 0 && order.kind == ProbeKind::Request {
            self.set_heard(&[order.slot], order.probe.heard);
        }
    }
}
