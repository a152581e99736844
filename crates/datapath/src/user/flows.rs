//! Which flow takes which path.

use std::collections::{BTreeMap, HashMap};

use segue_clock::Time;
use segue_wire::FlowKey;

use crate::FlowEntry;

/// The bindings, bounded: the least recently used gives way.
pub struct FlowTable {
    max: usize,
    entries: HashMap<FlowKey, Entry>,
    /// Use order: `Entry::used` of each flow.
    order: BTreeMap<u64, FlowKey>,
    uses: u64,
}

/// A path that a flow is bound to: the slot, and the cookie that its packets bring, which is random and new
/// with each path, so that a later one in the slot is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub slot: u32,
    pub cookie: u64,
}

struct Entry {
    bound: Bound,
    packets: u64,
    bytes: u64,
    last_seen: Time,
    used: u64,
}

impl FlowTable {
    /// An empty table of at most `max` flows (at least one).
    pub fn new(max: u32) -> FlowTable {
        FlowTable {
            max: (max as usize).max(1),
            entries: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Binds a flow. What it has sent starts at zero if the path is another one.
    pub fn bind(&mut self, key: FlowKey, bound: Bound, now: Time) {
        self.uses += 1;
        let used = self.uses;
        if let Some(entry) = self.entries.get_mut(&key) {
            self.order.remove(&entry.used);
            if entry.bound != bound {
                (entry.bound, entry.packets, entry.bytes) = (bound, 0, 0);
            }
            (entry.last_seen, entry.used) = (now, used);
        } else {
            if self.entries.len() >= self.max
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.entries.remove(&oldest);
            }
            self.entries.insert(key, Entry { bound, packets: 0, bytes: 0, last_seen: now, used });
        }
        self.order.insert(used, key);
    }

    /// The path of a flow, `None` if it is not bound.
    pub fn bound(&self, key: &FlowKey) -> Option<Bound> {
        self.entries.get(key).map(|entry| entry.bound)
    }

    /// Notes packets that a flow sends.
    pub fn sent(&mut self, key: &FlowKey, packets: u64, bytes: u64, now: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.packets += packets;
        entry.bytes += bytes;
        entry.last_seen = now;
        if entry.used != self.uses {
            self.order.remove(&entry.used);
            self.uses += 1;
            entry.used = self.uses;
            self.order.insert(entry.used, *key);
        }
    }

    /// Removes a binding.
    pub fn unbind(&mut self, key: &FlowKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
        }
    }

    /// All bindings, the least recently used first.
    pub fn list(&self) -> Vec<FlowEntry> {
        let entry = |key: &FlowKey| {
            let e = self.entries.get(key)?;
            let (slot, packets, bytes, last_seen) = (e.bound.slot, e.packets, e.bytes, e.last_seen);
            Some(FlowEntry { key: *key, slot, packets, bytes, last_seen })
        };
        self.order.values().filter_map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u16) -> FlowKey {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        FlowKey { src: address, dst: address, sport: n, dport: 1, protocol: 17, label: 0 }
    }

    fn path(slot: u32) -> Bound {
        Bound { slot, cookie: 0 }
    }

    #[test]
    fn the_least_recently_used_flow_gives_way() {
        let mut table = FlowTable::new(2);
        table.bind(key(1), path(1), Time(1));
        table.bind(key(2), path(2), Time(2));
        table.sent(&key(1), 1, 100, Time(3));
        table.bind(key(3), path(3), Time(4));
        assert_eq!(table.bound(&key(2)), None);
        assert_eq!(table.bound(&key(1)), Some(path(1)));
        assert_eq!(table.list().len(), 2);
        assert_eq!(table.list()[0].bytes, 100);
    }

    #[test]
    fn a_flow_that_moves_counts_from_zero_and_one_that_is_bound_again_goes_on() {
        let mut table = FlowTable::new(2);
        table.bind(key(1), path(1), Time(1));
        table.sent(&key(1), 2, 100, Time(3));
        table.bind(key(1), path(1), Time(4));
        assert_eq!(table.list()[0].packets, 2);
        table.bind(key(1), path(2), Time(5));
        assert_eq!((table.list()[0].packets, table.list()[0].slot), (0, 2));
        let later = Bound { cookie: 1, ..path(2) };
        table.sent(&key(1), 1, 100, Time(6));
        table.bind(key(1), later, Time(7));
        assert_eq!((table.list()[0].packets, table.bound(&key(1))), (0, Some(later)));
        table.unbind(&key(1));
        assert!(table.list().is_empty() && table.order.is_empty());
    }
}
