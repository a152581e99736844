//! The relay's maps with typed keys and values, and its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use segue_clock::Time;
use segue_ip::{Prefix, Traffic};
use segue_linux::clock::tai_offset_ns;
use segue_wire::{DropReason, FlowKey};

use super::skel::{
    ASK, HOLD, OpenRelaySkel, RelaySkelBuilder, flow_key, inner_key, kernel_counts, kernel_prefix,
    relay_count, relay_direction, relay_end, relay_exit, relay_source, relay_tunnel, sign_of_life,
    whole,
};
use super::words::{RelayRoom, RelaySetup};
use crate::DatapathError;
use crate::locals;
use crate::maps::{get, kernel, mapped, put, refused, take};
use crate::sync::lock;

/// `QUEUES` of relay.bpf.h.
const QUEUES: u32 = 65_536;

/// The loaded programs.
pub(super) struct Programs {
    pub(super) egress: OwnedFd,
    pub(super) ingress: OwnedFd,
    /// Ingress program of interfaces without a frame header.
    pub(super) bare: OwnedFd,
}

/// Handles to the maps; usable from any thread.
#[derive(Debug)]
pub(super) struct Tables {
    tunnels: MapHandle,
    ends: MapHandle,
    sources: MapHandle,
    links: MapHandle,
    flows: MapHandle,
    prefixes: MapHandle,
    counts: MapHandle,
    locals: MapHandle,
    /// The local addresses that the programs have been given.
    known: Mutex<BTreeSet<IpAddr>>,
    passed: MapHandle,
    returned: MapHandle,
    drops: MapHandle,
    alive: MapHandle,
    pub(super) messages: MapHandle,
}

/// Loads the programs for a TUN device.
pub(super) fn load(
    setup: &RelaySetup,
    tun_ifindex: u32,
) -> Result<(Programs, Tables), DatapathError> {
    let mut storage = MaybeUninit::uninit();
    let mut open = RelaySkelBuilder::default()
        .open(&mut storage)
        .map_err(|e| kernel("open the relay's programs", &e))?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.mark = setup.mark;
        rodata.tun_ifindex = tun_ifindex;
        rodata.label_beside_ports = setup.labels.into();
        rodata.counted = kernel_counts(setup.counts);
    }
    size_tables(&mut open, &setup.room).map_err(|e| kernel("size the relay's tables", &e))?;
    let skel = open.load().map_err(|e| kernel("load the relay's programs", &e))?;
    let fd = |program: &dyn AsFd| {
        program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| DatapathError::Kernel { what: "keep a program", source })
    };
    let kept = |map| MapHandle::try_from(map).map_err(|e| kernel("keep a table", &e));
    let programs = Programs {
        egress: fd(&skel.progs.relay_egress)?,
        ingress: fd(&skel.progs.relay_ingress)?,
        bare: fd(&skel.progs.relay_bare)?,
    };
    let maps = &skel.maps;
    let tables = Tables {
        tunnels: kept(&maps.relay_tunnels)?,
        ends: kept(&maps.relay_ends)?,
        sources: kept(&maps.relay_sources)?,
        links: kept(&maps.relay_links)?,
        flows: kept(&maps.relay_flows)?,
        prefixes: kept(&maps.relay_prefixes)?,
        counts: kept(&maps.relay_counts)?,
        locals: kept(&maps.relay_locals)?,
        known: Mutex::default(),
        passed: kept(&maps.relay_passed)?,
        returned: kept(&maps.relay_returned)?,
        drops: kept(&maps.segue_drops)?,
        alive: kept(&maps.segue_alive)?,
        messages: kept(&maps.relay_messages)?,
    };
    Ok((programs, tables))
}

fn size_tables(open: &mut OpenRelaySkel<'_>, room: &RelayRoom) -> Result<(), libbpf_rs::Error> {
    open.maps.relay_tunnels.set_max_entries(room.tunnels.max(1))?;
    open.maps.relay_ends.set_max_entries(room.tunnels.max(1))?;
    open.maps.relay_sources.set_max_entries(room.sources.max(1))?;
    open.maps.relay_links.set_max_entries(room.links.max(1))?;
    open.maps.relay_flows.set_max_entries(room.flows.max(1))?;
    open.maps.relay_counts.set_max_entries(room.prefixes.max(1))?;
    open.maps.relay_prefixes.set_max_entries(room.prefixes.max(1))
}

impl Tables {
    pub(super) fn set_tunnel(&self, slot: u32, to: &relay_tunnel) -> Result<(), DatapathError> {
        put(&self.tunnels, "write a tunnel", &slot, to)
    }

    pub(super) fn tunnel(&self, slot: u32) -> Option<relay_tunnel> {
        get(&self.tunnels, &slot)
    }

    pub(super) fn set_end(&self, end: &relay_end, slot: u32) -> Result<(), DatapathError> {
        put(&self.ends, "write the end of a tunnel", end, &slot)
    }

    pub(super) fn remove_end(&self, end: &relay_end) {
        take(&self.ends, end);
    }

    /// Starts to count the packets from and to a prefix.
    pub(super) fn count(&self, prefix: Prefix) -> Result<(), DatapathError> {
        let Some(key) = kernel_prefix(&Traffic::To(prefix)) else { return Ok(()) };
        put(&self.counts, "count a prefix", &key, &relay_count::default())
    }

    pub(super) fn count_no_more(&self, prefix: Prefix) {
        if let Some(key) = kernel_prefix(&Traffic::To(prefix)) {
            take(&self.counts, &key);
        }
    }

    pub(super) fn counted(&self, prefix: Prefix) -> relay_count {
        let key = kernel_prefix(&Traffic::To(prefix));
        key.and_then(|key| get(&self.counts, &key)).unwrap_or_default()
    }

    pub(super) fn set_source(&self, source: &relay_source) -> Result<(), DatapathError> {
        put(&self.sources, "allow an inner source", source, &1u32)
    }

    pub(super) fn remove_source(&self, source: &relay_source) {
        take(&self.sources, source);
    }

    pub(super) fn check_link(&self, interface: u32) -> Result<(), DatapathError> {
        put(&self.links, "have a link checked", &interface, &1u32)
    }

    pub(super) fn check_link_no_more(&self, interface: u32) {
        take(&self.links, &interface);
    }

    /// Binds traffic. If it `was` bound before, its counters carry over.
    pub(super) fn bind(
        &self,
        traffic: &Traffic,
        exit: relay_exit,
        was: bool,
    ) -> Result<(), DatapathError> {
        const WHAT: &str = "bind traffic";
        let old = self.exit(traffic).filter(|_| was).unwrap_or_default();
        let relay_exit { packets, bytes, last_seen_ns, received_packets, received_bytes, .. } = old;
        let exit =
            relay_exit { packets, bytes, last_seen_ns, received_packets, received_bytes, ..exit };
        match (traffic, kernel_prefix(traffic)) {
            (_, Some(prefix)) => put(&self.prefixes, WHAT, &prefix, &exit),
            (Traffic::Flow(key), None) => put(&self.flows, WHAT, &flow_key::from(key), &exit),
            _ => Ok(()),
        }
    }

    pub(super) fn unbind(&self, traffic: &Traffic) {
        match (traffic, kernel_prefix(traffic)) {
            (_, Some(prefix)) => take(&self.prefixes, &prefix),
            (Traffic::Flow(key), None) => take(&self.flows, &flow_key::from(key)),
            _ => {}
        }
    }

    /// The binding of this traffic; for a prefix without one, the binding of the longest prefix that contains it.
    pub(super) fn exit(&self, traffic: &Traffic) -> Option<relay_exit> {
        match (traffic, kernel_prefix(traffic)) {
            (_, Some(prefix)) => get(&self.prefixes, &prefix),
            (Traffic::Flow(key), None) => get(&self.flows, &flow_key::from(key)),
            _ => None,
        }
    }

    /// The binding that explains why the programs passed a packet to user space: one that holds the packet, or one that
    /// asks about it. `None` if the binding has changed since.
    pub(super) fn left_to_us(&self, key: &FlowKey) -> Option<relay_exit> {
        let ours = |exit: &relay_exit| matches!(exit.kind, HOLD | ASK);
        if let Some(exit) = get::<_, relay_exit>(&self.flows, &flow_key::from(key)) {
            return Some(exit).filter(ours);
        }
        let to = get(&self.prefixes, &whole(relay_direction::RELAY_TO, key.dst)).filter(ours);
        to.or_else(|| get(&self.prefixes, &whole(relay_direction::RELAY_FROM, key.src)))
            .filter(ours)
    }

    /// Updates the programs' table with the addresses of the calling thread's namespace.
    pub(super) fn refresh_locals(&self) -> Result<(), DatapathError> {
        let mut known = lock(&self.known);
        let present = locals::present()?;
        let key = |address: &IpAddr| inner_key { address: mapped(*address) };
        for address in present.difference(&known) {
            put(&self.locals, "write an address of this machine", &key(address), &1u32)?;
        }
        known.difference(&present).for_each(|address| take(&self.locals, &key(address)));
        *known = present;
        Ok(())
    }

    /// Resets the packet count of a queue.
    pub(super) fn begin_queue(&self, queue: u32) -> Result<(), DatapathError> {
        // An earlier queue may have had the same number modulo QUEUES.
        let number = queue % QUEUES;
        put(&self.returned, "begin a queue", &number, &0u32)?;
        put(&self.passed, "begin a queue", &number, &0u32)
    }

    /// Reports how many packets of a queue user space has read and then given back or dropped.
    pub(super) fn set_returned(&self, queue: u32, packets: u32) -> Result<(), DatapathError> {
        put(&self.returned, "release a queue", &(queue % QUEUES), &packets)
    }

    pub(super) fn drops(&self) -> BTreeMap<DropReason, u64> {
        refused(&self.drops)
    }

    pub(super) fn set_alive(&self, now: Time) -> Result<(), DatapathError> {
        let tai_offset_ns = tai_offset_ns();
        let sign = sign_of_life { at_ns: now.0, tai_offset_ns, ..sign_of_life::default() };
        put(&self.alive, "write the heartbeat", &0u32, &sign)
    }
}
