//! The programs' maps with typed keys and values.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_clock::Time;
use segue_ip::Prefix;
use segue_linux::clock::{monotonic, tai_offset_ns};
use segue_wire::{DropReason, FlowKey};

use super::convert::{PATH_USED, PATH_VIA, generation, kernel_denied, kernel_pool};
use super::pages;
use super::skel::{
    copies, flow_key, flow_value, held, host_route, host_state, inner_key, inner_owner, inner_pool,
    local_address, own_device, path_config, path_state, scale, sign_of_life,
};
use super::states::States;
use crate::locals;
use crate::maps::{Shared, get, mapped, put, refused};
use crate::paid::Paid;
use crate::sync::lock;
use crate::{DatapathError, FlowCount, FlowCursor, FlowEntry, FlowPage, Reach};

/// `LOCALS_MAX` of segue.bpf.h, the entries of `segue_locals`.
pub(super) const LOCALS_MAX: u16 = 4096;
/// `POOLS` of segue.bpf.h.
pub(super) const POOLS: usize = 2;
/// `DEVICES_MAX` of segue.bpf.h.
pub(super) const DEVICES_MAX: u32 = 64;

/// Handles to the maps; usable from any thread.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) paths: MapHandle,
    pub(super) state: MapHandle,
    /// The states, mapped into memory.
    pub(super) states: States,
    pub(super) host: MapHandle,
    pub(super) routes: MapHandle,
    pub(super) scales: MapHandle,
    pub(super) flows: MapHandle,
    pub(super) inner: MapHandle,
    /// Flow quota used by addresses without an owner.
    pub(super) paid: Mutex<Paid>,
    pub(super) locals: MapHandle,
    pub(super) addresses: MapHandle,
    pub(super) numbers: Mutex<Numbers>,
    /// Held while the addresses are read and written, so that an older reading cannot overwrite a newer one.
    pub(super) refreshing: Mutex<()>,
    pub(super) devices: MapHandle,
    pub(super) drops: MapHandle,
    pub(super) alive: MapHandle,
    /// What hosts may not reach, and the pools of their addresses; sent to the programs with each heartbeat.
    pub(super) reach: Mutex<KernelReach>,
    pub(super) events: MapHandle,
    pub(super) held: MapHandle,
    pub(super) copies: MapHandle,
}

/// What hosts may not reach, and the pools, in the format of the programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelReach {
    denied: u64,
    pools: [inner_pool; POOLS],
}

impl Default for KernelReach {
    fn default() -> KernelReach {
        KernelReach { denied: 0, pools: [kernel_pool(None); POOLS] }
    }
}

/// The numbers by which the programs know this machine's addresses.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    of: BTreeMap<IpAddr, u16>,
    /// The most recent number: a freed number is reused as late as possible, because a path may still refer to
    /// it.
    last: u16,
}

impl Numbers {
    /// A free number, 1 to 4096; `None` if all are in use.
    fn free(&mut self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.of.values().copied().collect();
        let after = (1..=LOCALS_MAX).map(|step| (self.last + step - 1) % LOCALS_MAX + 1);
        self.last = after.into_iter().find(|number| !taken.contains(number))?;
        Some(self.last)
    }
}

impl Tables {
    /// Makes the XDP program accept packets to this hardware address of a device; false if the entry belongs to
    /// another device.
    pub(super) fn set_device(&self, ifindex: u32, address: [u8; 6]) -> Result<bool, DatapathError> {
        const WHAT: &str = "write a device's hardware address";
        let key = ifindex % DEVICES_MAX;
        let entry = get::<_, own_device>(&self.devices, &key).unwrap_or_default();
        if entry.ifindex != 0 && entry.ifindex != ifindex {
            return Ok(false);
        }
        put(&self.devices, WHAT, &key, &own_device { ifindex, address, reserved: [0; 2] })?;
        Ok(true)
    }

    /// Makes the XDP program pass everything that arrives on a device.
    pub(super) fn remove_device(&self, ifindex: u32) {
        let key = ifindex % DEVICES_MAX;
        let own = get::<_, own_device>(&self.devices, &key).is_some_and(|d| d.ifindex == ifindex);
        if own {
            let _ = put(&self.devices, "forget a device", &key, &own_device::default());
        }
    }

    pub(super) fn set_path(&self, slot: u32, path: &path_config) -> Result<(), DatapathError> {
        put(&self.paths, "write a path", &slot, path)
    }

    pub(super) fn set_state(&self, slot: u32, state: &path_state) -> Result<(), DatapathError> {
        put(&self.state, "clear a path's state", &slot, state)
    }

    pub(super) fn state(&self, slot: u32) -> path_state {
        self.states.read(slot).unwrap_or_default()
    }

    /// The state that exists only at a host; `None` for a slot outside its table, which has one entry at an
    /// anchor.
    pub(super) fn host(&self, slot: u32) -> Option<host_state> {
        get(&self.host, &slot)
    }

    pub(super) fn clear_host(&self, slot: u32) -> Result<(), DatapathError> {
        put(&self.host, "clear a path's state", &slot, &host_state::default())
    }

    pub(super) fn set_route(&self, slot: u32, route: &host_route) -> Result<(), DatapathError> {
        put(&self.routes, "write a path's route", &slot, route)
    }

    pub(super) fn set_scale(&self, entry: u32, scale: &scale) -> Result<(), DatapathError> {
        put(&self.scales, "write time constants", &entry, scale)
    }

    /// Sets the owner of an address. The address keeps its used flow quota, even if its host changes.
    pub(super) fn set_inner(&self, address: IpAddr, owner: u32) -> Result<(), DatapathError> {
        let key = inner_key { address: mapped(address) };
        let before = get::<_, inner_owner>(&self.inner, &key);
        if before.is_some_and(|before| before.owner == owner) {
            return Ok(());
        }
        let mut paid = lock(&self.paid);
        let gone = || paid.take(address).0;
        let paid_ns = before.map_or_else(gone, |before| before.paid_ns);
        let entry = inner_owner { owner, paid_ns, ..inner_owner::default() };
        put(&self.inner, "write an inner address", &key, &entry)
    }

    /// The owner of an inner address.
    pub(super) fn owner_of(&self, address: IpAddr) -> Option<u32> {
        let key = inner_key { address: mapped(address) };
        get::<_, inner_owner>(&self.inner, &key).map(|inner| inner.owner)
    }

    pub(super) fn remove_inner(&self, address: IpAddr) {
        let key = inner_key { address: mapped(address) };
        let before = get::<_, inner_owner>(&self.inner, &key);
        let now = monotonic();
        if let Some(until) = before.map(|before| Time(before.paid_ns)).filter(|at| *at > now) {
            *lock(&self.paid).of(address, now) = until;
        }
        // It is fine if the address has already gone.
        let _ = self.inner.delete(key.bytes());
    }

    /// Updates the programs' table with the addresses in the calling thread's namespace. Addresses that stay are
    /// never missing in the meantime.
    pub(super) fn refresh_locals(&self) -> Result<(), DatapathError> {
        let _alone = lock(&self.refreshing);
        self.set_locals(&locals::present()?)
    }

    pub(super) fn set_locals(&self, present: &BTreeSet<IpAddr>) -> Result<(), DatapathError> {
        present.iter().try_for_each(|address| self.add_local(*address).map(drop))?;
        let mut numbers = lock(&self.numbers);
        numbers.of.retain(|address, number| {
            let stays = present.contains(address);
            if !stays {
                // It is fine if the address has already gone; overwriting an existing entry cannot fail.
                let address = mapped(*address);
                let _ = self.locals.delete(inner_key { address }.bytes());
                let gone = local_address { address, present: 0 };
                let _ = put(&self.addresses, "", &u32::from(*number), &gone);
            }
            stays
        });
        Ok(())
    }

    /// The number of a local address; assigns one if the address has none.
    pub(super) fn add_local(&self, address: IpAddr) -> Result<u16, DatapathError> {
        const WHAT: &str = "write an address of this machine";
        let address = address.to_canonical();
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.of.get(&address) {
            return Ok(*number);
        }
        let full =
            || DatapathError::Kernel { what: WHAT, source: io::ErrorKind::OutOfMemory.into() };
        let number = numbers.free().ok_or_else(full)?;
        let words = mapped(address);
        let entry = local_address { address: words, present: 1 };
        put(&self.addresses, WHAT, &u32::from(number), &entry)?;
        let key = inner_key { address: words };
        put(&self.locals, WHAT, &key, &u32::from(number))?;
        numbers.of.insert(address, number);
        Ok(number)
    }

    /// The address with a number; unspecified if there is none.
    #[cfg(test)]
    pub(super) fn local(&self, number: u16) -> IpAddr {
        crate::maps::unmapped(
            get::<_, local_address>(&self.addresses, &u32::from(number))
                .unwrap_or_default()
                .address,
        )
    }

    pub(super) fn bind(
        &self,
        key: &FlowKey,
        slot: u32,
        generation: u32,
        now: Time,
    ) -> Result<(), DatapathError> {
        let key = flow_key::from(key);
        let value = match get::<_, flow_value>(&self.flows, &key) {
            // Moving a flow must not disturb it. Packets that the programs count during the move are missing from
            // the counters.
            Some(old) => flow_value {
                slot,
                generation,
                elsewhere: old.packets as u32,
                received_elsewhere: old.received_packets as u32,
                ..old
            },
            None => flow_value { slot, generation, last_seen_ns: now.0, ..Default::default() },
        };
        put(&self.flows, "bind a flow", &key, &value)
    }

    pub(super) fn unbind(&self, key: &FlowKey) {
        let _ = self.flows.delete(flow_key::from(key).bytes());
    }

    /// When a packet of a flow was last sent or received, on the programs' clock.
    pub(super) fn last_seen(&self, key: &FlowKey) -> Option<Time> {
        let flow = get::<_, flow_value>(&self.flows, &flow_key::from(key))?;
        Some(Time(flow.last_seen_ns))
    }

    /// The programs' counters of a flow since it was bound, with the mean length of its packets since it began, and the
    /// generation of its path.
    pub(super) fn count_flow(&self, key: &FlowKey) -> Option<(u32, FlowCount)> {
        let flow = get::<_, flow_value>(&self.flows, &flow_key::from(key))?;
        let flow_value { slot, packets, bytes, received_packets, .. } = flow;
        let sent = (packets as u32).wrapping_sub(flow.elsewhere);
        let received = (received_packets as u32).wrapping_sub(flow.received_elsewhere);
        let length = bytes.checked_div(packets).unwrap_or(0);
        Some((flow.generation, FlowCount { slot, sent, received, length: length as u32 }))
    }

    /// The path on which the programs would send a packet of this flow.
    pub(super) fn carrier(&self, key: &FlowKey) -> Option<path_config> {
        let path = |slot: &u32| {
            get::<_, path_config>(&self.paths, slot).filter(|path| path.flags & PATH_USED != 0)
        };
        let flow = get::<_, flow_value>(&self.flows, &flow_key::from(key))?;
        let bound = path(&flow.slot).filter(|path| generation(path) == flow.generation)?;
        if bound.flags & PATH_VIA == 0 {
            return Some(bound);
        }
        path(&bound.via_slot).filter(|via| via.owner == bound.owner)
    }

    /// A page of the flows whose slot and generation are `wanted`.
    pub(super) fn flow_page(
        &self,
        from: FlowCursor,
        wanted: impl Fn(u32, u32) -> bool,
    ) -> FlowPage {
        let (raw, next) = pages::page(&self.flows, from);
        let wanted = raw.iter().filter(|(_, flow)| wanted(flow.slot, flow.generation));
        let entry = |(key, flow): &(flow_key, flow_value)| FlowEntry {
            key: FlowKey::from(key),
            slot: flow.slot,
            packets: flow.packets,
            bytes: flow.bytes,
            received_packets: flow.received_packets,
            received_bytes: flow.received_bytes,
            last_seen: Time(flow.last_seen_ns),
        };
        FlowPage { flows: wanted.map(entry).collect(), next }
    }

    #[cfg(test)]
    pub(super) fn flows(&self) -> Vec<FlowEntry> {
        let (mut all, mut from) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = from {
            let page = self.flow_page(cursor, |_, _| true);
            all.extend(page.flows);
            from = page.next;
        }
        all
    }

    pub(super) fn drops(&self) -> BTreeMap<DropReason, u64> {
        refused(&self.drops)
    }

    /// The next response that the programs have begun to hold, oldest first; `None` if all have been returned.
    pub(super) fn pop_held(&self) -> Option<held> {
        // A queue has no keys.
        Shared::from_bytes(&self.held.lookup_and_delete(&[]).ok()??)
    }

    /// Makes the programs keep copies of the data sent on a path. Without room in the table nothing is copied.
    pub(super) fn keep_copies(&self, slot: u32) {
        // An existing entry is left unchanged.
        let none = [0; size_of::<copies>()];
        let _ = self.copies.update(slot.bytes(), &none, MapFlags::NO_EXIST);
    }

    /// The copies of the last data sent on a path.
    pub(super) fn copies(&self, slot: u32) -> Option<Box<copies>> {
        get(&self.copies, &slot).map(Box::new)
    }

    pub(super) fn drop_copies(&self, slot: u32) {
        // It is fine if the path has no copies.
        let _ = self.copies.delete(slot.bytes());
    }

    /// Limits what hosts may reach, with effect from the next heartbeat.
    pub(super) fn set_reach(&self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError> {
        if pools.len() > POOLS {
            return Err(DatapathError::Full { what: "pool" });
        }
        let denied = kernel_denied(reach);
        let pools = std::array::from_fn(|i| kernel_pool(pools.get(i)));
        let reach = KernelReach { denied, pools };
        *lock(&self.reach) = reach;
        Ok(())
    }

    pub(super) fn set_alive(&self, now: Time) -> Result<(), DatapathError> {
        let KernelReach { denied, pools } = *lock(&self.reach);
        let sign = sign_of_life { at_ns: now.0, tai_offset_ns: tai_offset_ns(), denied, pools };
        put(&self.alive, "write the heartbeat", &0u32, &sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_keys_survive_the_way_to_the_programs_and_back() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "2001:db8::2")] {
            let key = FlowKey {
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
                sport: 1024,
                dport: 80,
                protocol: 6,
                label: 0xa_bcde,
            };
            assert_eq!(FlowKey::from(&flow_key::from(&key)), key);
        }
        let words = mapped("10.0.0.1".parse().unwrap());
        assert_eq!(words[2].to_ne_bytes(), [0, 0, 0xff, 0xff]);
        assert_eq!(words[3].to_ne_bytes(), [10, 0, 0, 1]);
    }
}
