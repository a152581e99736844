//! The bindings of flows to paths.

use std::collections::{BTreeMap, HashMap};

use segue_clock::{Span, Time};
use segue_wire::FlowKey;

use crate::{FLOWS_A_PAGE, FlowCount, FlowCursor, FlowEntry, FlowPage};

/// The bindings, bounded: the least recently used one is evicted.
pub(super) struct FlowTable {
    max: usize,
    /// Index of each flow in `entries`.
    places: HashMap<FlowKey, u32>,
    /// The capacity of `places` when it was created or last grew.
    room: usize,
    /// A flow keeps its index, on which pages rely.
    entries: Vec<Option<Entry>>,
    /// Unused indices.
    free: Vec<u32>,
    /// Order of use: the index of each flow by its `Entry::used`.
    order: BTreeMap<u64, u32>,
    uses: u64,
}

/// The path that a flow is bound to: its slot, and the cookie that its packets carry. The cookie is random and new for
/// each path, which distinguishes it from a later path in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub slot: u32,
    pub cookie: u64,
}

struct Entry {
    key: FlowKey,
    bound: Bound,
    packets: u64,
    bytes: u64,
    /// Packets received in the other direction.
    received_packets: u64,
    received_bytes: u64,
    /// Of `packets`, those that left on another path than the bound one.
    elsewhere: u32,
    /// Of `received_packets`, those that arrived on another path.
    received_elsewhere: u32,
    last_seen: Time,
    used: u64,
    /// The time of the last use.
    used_at: Time,
}

/// Idle time after which a flow may be replaced by a new one. If it resumes, it is learned again.
const IDLE: Span = Span::from_secs(180);

/// Most entries to examine for a page, including unused ones.
const PLACES_A_PAGE: usize = 16 * FLOWS_A_PAGE;

impl FlowTable {
    /// An empty table for at most `max` flows (at least one).
    pub(super) fn new(max: u32) -> FlowTable {
        FlowTable {
            max: (max as usize).max(1),
            places: HashMap::new(),
            room: 0,
            entries: Vec::new(),
            free: Vec::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Binds a flow. Its counters carry over to a new path.
    pub(super) fn bind(&mut self, key: FlowKey, bound: Bound, now: Time) {
        self.uses += 1;
        let used = self.uses;
        if let Some((place, entry)) = self.entry(&key) {
            let before = entry.used;
            if entry.bound != bound {
                entry.bound = bound;
                entry.elsewhere = entry.packets as u32;
                entry.received_elsewhere = entry.received_packets as u32;
            }
            (entry.used, entry.used_at) = (used, now);
            self.order.remove(&before);
            self.order.insert(used, place);
            return;
        }
        // Drop up to two finished flows for each new one, so that the table shrinks to what is in use.
        for _ in 0..2 {
            let full = self.places.len() >= self.max;
            match self.oldest() {
                Some((oldest, at)) if full || now.since(at) > IDLE => self.unbind(&oldest),
                _ => break,
            }
        }
        let entry = Some(Entry {
            key,
            bound,
            packets: 0,
            bytes: 0,
            received_packets: 0,
            received_bytes: 0,
            elsewhere: 0,
            received_elsewhere: 0,
            last_seen: now,
            used,
            used_at: now,
        });
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.make_room();
        self.places.insert(key, place);
        self.order.insert(used, place);
    }

    /// Removed flows leave tombstones in a hash table, which count as full until the table is rebuilt in the same
    /// memory. Otherwise the table would double as soon as more than half of it is in use.
    fn make_room(&mut self) {
        let flows = self.places.len();
        if flows < self.places.capacity() {
            self.room = self.room.max(self.places.capacity());
        } else if flows < self.room / 8 * 7 {
            self.places.clear();
            let all = self.entries.iter().zip(0..);
            let all = all.filter_map(|(entry, place)| Some((entry.as_ref()?.key, place)));
            self.places.extend(all);
        }
    }

    /// The least recently used flow, and the time of its last use.
    fn oldest(&self) -> Option<(FlowKey, Time)> {
        let (_, place) = self.order.first_key_value()?;
        let entry = self.entries.get(*place as usize)?.as_ref()?;
        Some((entry.key, entry.used_at))
    }

    fn entry(&mut self, key: &FlowKey) -> Option<(u32, &mut Entry)> {
        let place = *self.places.get(key)?;
        Some((place, self.entries.get_mut(place as usize)?.as_mut()?))
    }

    /// The path of a flow; `None` if it is not bound.
    pub(super) fn bound(&self, key: &FlowKey) -> Option<Bound> {
        let place = *self.places.get(key)?;
        self.entries.get(place as usize)?.as_ref().map(|entry| entry.bound)
    }

    /// When a packet of a flow was last sent or received.
    pub(super) fn last_seen(&self, key: &FlowKey) -> Option<Time> {
        let place = *self.places.get(key)?;
        self.entries.get(place as usize)?.as_ref().map(|entry| entry.last_seen)
    }

    /// This end's counters of a flow since it was bound; `None` if it is not bound.
    pub(super) fn count(&self, key: &FlowKey) -> Option<FlowCount> {
        let place = *self.places.get(key)?;
        let entry = self.entries.get(place as usize)?.as_ref()?;
        let sent = (entry.packets as u32).wrapping_sub(entry.elsewhere);
        let received = (entry.received_packets as u32).wrapping_sub(entry.received_elsewhere);
        let Entry { bound: Bound { slot, .. }, packets, bytes, .. } = *entry;
        let length = bytes.checked_div(packets).unwrap_or(0) as u32;
        Some(FlowCount { slot, sent, received, length })
    }

    /// Counts packets and bytes of a flow's other direction that arrived on a path. `last` is the flow of the previous
    /// packet and its index, because most packets belong to the same flow.
    pub(super) fn received(
        &mut self,
        last: &mut Option<(FlowKey, u32)>,
        key: &FlowKey,
        over: Bound,
        (packets, bytes): (u32, u64),
    ) {
        let place = match *last {
            Some((of, place)) if of == *key => Some(place),
            _ => self.places.get(key).copied(),
        };
        let entry = place.and_then(|place| self.entries.get_mut(place as usize)?.as_mut());
        *last = place.map(|place| (*key, place));
        let Some(entry) = entry.filter(|entry| entry.key == *key) else { return };
        entry.received_packets += u64::from(packets);
        entry.received_bytes += bytes;
        if entry.bound != over {
            entry.received_elsewhere = entry.received_elsewhere.wrapping_add(packets);
        }
    }

    /// Counts packets that a flow sends on the path in this slot.
    pub(super) fn sent(&mut self, key: &FlowKey, slot: u32, packets: u64, bytes: u64, now: Time) {
        let used = self.uses;
        let Some((place, entry)) = self.entry(key) else { return };
        entry.packets += packets;
        entry.bytes += bytes;
        if entry.bound.slot != slot {
            entry.elsewhere = entry.elsewhere.wrapping_add(packets as u32);
        }
        (entry.last_seen, entry.used_at) = (now, now);
        let before = entry.used;
        if before != used {
            entry.used = used + 1;
            self.uses = used + 1;
            self.order.remove(&before);
            self.order.insert(used + 1, place);
        }
    }

    /// Removes a binding.
    pub(super) fn unbind(&mut self, key: &FlowKey) {
        let Some(place) = self.places.remove(key) else { return };
        if let Some(entry) = self.entries[place as usize].take() {
            self.order.remove(&entry.used);
            self.free.push(place);
        }
    }

    /// A page of the bindings that `wanted` accepts, and the start of the next page.
    pub(super) fn page(&self, from: FlowCursor, wanted: impl Fn(Bound) -> bool) -> FlowPage {
        let begin = usize::try_from(from.0).unwrap_or(usize::MAX).min(self.entries.len());
        let end = self.entries.len().min(begin + PLACES_A_PAGE);
        let mut flows = Vec::new();
        for (n, entry) in self.entries[begin..end].iter().enumerate() {
            let Some(e) = entry.as_ref().filter(|entry| wanted(entry.bound)) else { continue };
            if flows.len() == FLOWS_A_PAGE {
                return FlowPage { flows, next: Some(FlowCursor((begin + n) as u64)) };
            }
            flows.push(FlowEntry {
                key: e.key,
                slot: e.bound.slot,
                packets: e.packets,
                bytes: e.bytes,
                received_packets: e.received_packets,
                received_bytes: e.received_bytes,
                last_seen: e.last_seen,
            });
        }
        let more = end < self.entries.len();
        FlowPage { flows, next: more.then_some(FlowCursor(end as u64)) }
    }

    /// All bindings.
    pub(super) fn list(&self) -> Vec<FlowEntry> {
        let (mut all, mut from) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = from {
            let page = self.page(cursor, |_| true);
            all.extend(page.flows);
            from = page.next;
        }
        all
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
    fn every_flow_is_in_one_page_though_flows_are_used_come_and_go_meanwhile() {
        let flow = |n: u32| FlowKey { label: n, ..key(7) };
        let mut table = FlowTable::new(100_000);
        for n in 0..90_000 {
            table.bind(flow(n), path(n % 3), Time(0));
        }
        // Whole pages of unused entries.
        for n in 20_000..60_000 {
            table.unbind(&flow(n));
        }
        let (mut seen, mut pages) = (BTreeMap::new(), 0);
        let mut from = Some(FlowCursor::default());
        while let Some(cursor) = from {
            let page = table.page(cursor, |bound| bound.slot != 2);
            assert!(page.flows.len() <= FLOWS_A_PAGE);
            assert!(page.flows.iter().all(|flow| flow.slot != 2));
            page.flows.iter().for_each(|flow| *seen.entry(flow.key.label).or_insert(0) += 1);
            for n in 0..100 {
                table.sent(&flow(80_000 + pages * 37 + n), 0, 1, 1, Time(1));
                table.bind(flow(200_000 + pages * 100 + n), path(0), Time(1));
            }
            pages += 1;
            from = page.next;
        }
        let stayed = (0..20_000).chain(60_000..90_000).filter(|n| n % 3 != 2);
        for n in stayed {
            assert_eq!(seen.remove(&n), Some(1), "flow {n}");
        }
        assert!(seen.keys().all(|n| *n >= 200_000), "those that came meanwhile");
    }

    #[test]
    fn flows_that_come_and_go_take_no_more_room_than_those_of_three_minutes() {
        let flow = |n: u32| FlowKey { label: n, ..key(7) };
        let second = |n: u32| Time(u64::from(n) * 1_000_000_000);
        let mut table = FlowTable::new(100_000);
        for n in 0..20_000 {
            table.bind(flow(n), path(0), second(n / 10));
            // One is used throughout, one is only received.
            table.sent(&flow(0), 0, 1, 1, second(n / 10));
            table.bind(flow(1), path(0), second(n / 10));
        }
        assert!(table.entries.len() < 1_900, "{}", table.entries.len());
        assert!(table.bound(&flow(0)).is_some() && table.bound(&flow(1)).is_some());
        assert!(table.bound(&flow(2)).is_none());
        // A flow that ended long ago stays until another one begins.
        table.sent(&flow(0), 0, 1, 1, second(100_000));
        assert!(table.bound(&flow(1)).is_some());
    }

    #[test]
    fn as_many_flows_as_before_take_no_more_room() {
        let flow = |n: u32| FlowKey { label: n, ..key(7) };
        let mut table = FlowTable::new(100_000);
        let mut room = Vec::new();
        for round in 0..100 {
            let now = Time(round * 200_000_000_000);
            for n in 0..20_000 {
                table.bind(flow(round as u32 * 20_000 + n), path(0), now);
            }
            room.push(table.places.capacity());
        }
        // 32 768 buckets, seven in eight of which can be used.
        assert!(room.iter().all(|room| *room <= 28_672), "{room:?}");
        assert_eq!(table.list().len(), 20_000);
    }

    #[test]
    fn the_least_recently_used_flow_gives_way() {
        let mut table = FlowTable::new(2);
        table.bind(key(1), path(1), Time(1));
        table.bind(key(2), path(2), Time(2));
        table.sent(&key(1), 0, 1, 100, Time(3));
        table.bind(key(3), path(3), Time(4));
        assert_eq!(table.bound(&key(2)), None);
        assert_eq!(table.bound(&key(1)), Some(path(1)));
        assert_eq!(table.list().len(), 2);
        assert_eq!(table.list()[0].bytes, 100);
    }

    #[test]
    fn the_counts_of_a_flow_go_on_over_a_move_and_those_of_its_path_begin_anew() {
        let mut table = FlowTable::new(2);
        table.bind(key(1), path(1), Time(1));
        table.sent(&key(1), 0, 2, 100, Time(3));
        table.bind(key(1), path(1), Time(4));
        assert_eq!(table.list()[0].packets, 2);
        table.received(&mut None, &key(1), path(1), (3, 300));
        // One arrives late over another path.
        table.received(&mut None, &key(1), path(2), (1, 60));
        let of_path = |table: &FlowTable| {
            let FlowCount { slot, sent, received, .. } = table.count(&key(1)).unwrap();
            (slot, sent, received)
        };
        let all = |table: &FlowTable| {
            let entry = table.list()[0];
            (entry.packets, entry.bytes, entry.received_packets, entry.received_bytes)
        };
        assert_eq!((all(&table), of_path(&table)), ((2, 100, 4, 360), (1, 0, 3)));
        table.bind(key(1), path(2), Time(5));
        assert_eq!((all(&table), of_path(&table)), ((2, 100, 4, 360), (2, 0, 0)));
        let later = Bound { cookie: 1, ..path(2) };
        table.sent(&key(1), 2, 1, 100, Time(6));
        table.received(&mut None, &key(1), path(2), (1, 60));
        assert_eq!((all(&table), of_path(&table)), ((3, 200, 5, 420), (2, 1, 1)));
        table.bind(key(1), later, Time(7));
        assert_eq!((all(&table), of_path(&table)), ((3, 200, 5, 420), (2, 0, 0)));
        assert_eq!(table.bound(&key(1)), Some(later));
        table.unbind(&key(1));
        assert!(table.list().is_empty() && table.order.is_empty());
    }
}
