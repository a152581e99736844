//! Loads the programs: sets their constants and the sizes of their tables, and keeps handles to both.

use std::hash::BuildHasher;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use segue_linux::clock::realtime_ns;

use super::batch::{Batch, ORDERS_MAX};
use super::skel::{OpenSegueSkel, SegueSkelBuilder};
use super::stamp::{StampMaps, StampOptions};
use super::states::States;
use super::tables::Tables;
use crate::maps::kernel;
use crate::{DatapathError, Role, Setup};

/// `COPIED_PATHS` of segue.bpf.h.
pub(super) const COPIED_PATHS: u32 = 4_096;
/// Minimum capacity for inner addresses.
const INNER_MIN: u32 = 64;
/// One path in this many may have a response that waits for a ride.
const HELD_SHARE: u32 = 4;

/// The loaded programs, and the maps that the kernel would empty without a reference.
pub(super) struct Programs {
    pub(super) egress: OwnedFd,
    pub(super) ingress: OwnedFd,
    /// Ingress program of interfaces without a frame header.
    pub(super) bare: OwnedFd,
    /// Egress program of access interfaces.
    pub(super) leave: OwnedFd,
    pub(super) xdp: OwnedFd,
    /// The programs that ingress tail-calls; the kernel empties this map when its last reference goes.
    pub(super) _reflectors: MapHandle,
    /// Timers that watch rides; the kernel cancels them when the map's last reference goes.
    _watches: MapHandle,
    pub(super) stamp: StampMaps,
}

/// Loads the programs for a TUN device.
pub(super) fn load(
    setup: &Setup,
    tun_ifindex: u32,
    stamp: Option<StampOptions>,
) -> Result<(Programs, Tables, Batch), DatapathError> {
    let mut storage = MaybeUninit::uninit();
    let mut open = SegueSkelBuilder::default()
        .open(&mut storage)
        .map_err(|e| kernel("open the eBPF programs", &e))?;
    set_constants(&mut open, setup, tun_ifindex, stamp);
    size_tables(&mut open, setup, stamp)?;
    let skel = open.load().map_err(|e| kernel("load the eBPF programs", &e))?;
    let fd = |program: &dyn AsFd| {
        program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|source| DatapathError::Kernel { what: "keep an eBPF program", source })
    };
    let kept = |map| MapHandle::try_from(map).map_err(|e| kernel("keep an eBPF table", &e));
    let programs = Programs {
        egress: fd(&skel.progs.segue_egress)?,
        ingress: fd(&skel.progs.segue_ingress)?,
        leave: fd(&skel.progs.segue_leave)?,
        bare: fd(&skel.progs.segue_bare)?,
        xdp: fd(&skel.progs.segue_xdp)?,
        _reflectors: kept(&skel.maps.segue_reflectors)?,
        _watches: kept(&skel.maps.segue_watches)?,
        stamp: StampMaps {
            clocks: kept(&skel.maps.stamp_clocks)?,
            counts: kept(&skel.maps.stamp_counts)?,
        },
    };
    let maps = &skel.maps;
    let send = fd(&skel.progs.segue_send)?;
    let batch = Batch::new(send, &kept(&maps.segue_orders)?, kept(&maps.segue_batch)?)?;
    let state = kept(&maps.segue_state)?;
    let states = States::map(&state)
        .map_err(|source| DatapathError::Kernel { what: "share the paths' state", source })?;
    let tables = Tables {
        paths: kept(&maps.segue_paths)?,
        state,
        states,
        host: kept(&maps.segue_host)?,
        routes: kept(&maps.segue_routes)?,
        scales: kept(&maps.segue_scales)?,
        flows: kept(&maps.segue_flows)?,
        inner: kept(&maps.segue_inner)?,
        paid: Mutex::default(),
        locals: kept(&maps.segue_locals)?,
        addresses: kept(&maps.segue_addresses)?,
        numbers: Mutex::default(),
        devices: kept(&maps.segue_devices)?,
        refreshing: Mutex::default(),
        drops: kept(&maps.segue_drops)?,
        alive: kept(&maps.segue_alive)?,
        reach: Mutex::default(),
        events: kept(&maps.segue_events)?,
        held: kept(&maps.segue_held)?,
        copies: kept(&maps.segue_copies)?,
    };
    Ok((programs, tables, batch))
}

fn set_constants(
    open: &mut OpenSegueSkel<'_>,
    setup: &Setup,
    tun_ifindex: u32,
    stamp: Option<StampOptions>,
) {
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.port = setup.port.to_be();
        rodata.is_anchor = u8::from(setup.role == Role::Anchor);
        rodata.mark = setup.mark;
        rodata.tun_ifindex = tun_ifindex;
        if let Some(stamp) = stamp {
            rodata.stamp_port = stamp.port.to_be();
            rodata.stamp_stateful = u8::from(stamp.stateful);
            rodata.stamp_rate = stamp.rate;
            rodata.stamp_source_rate = stamp.source_rate;
            rodata.stamp_class = stamp.class();
        }
        rodata.challenge_key = std::array::from_fn(|_| secret());
        // Must only be non-zero and differ from other programs' metadata.
        rodata.meta_magic = (realtime_ns() as u32 ^ std::process::id().rotate_left(16)) | 1;
    }
}

/// A word that no other process can know: the keys of the standard library's hasher are random numbers
/// from the kernel.
fn secret() -> u64 {
    std::hash::RandomState::new().hash_one(0u8)
}

fn size_tables(
    open: &mut OpenSegueSkel<'_>,
    setup: &Setup,
    stamp: Option<StampOptions>,
) -> Result<(), DatapathError> {
    let sized = |result: Result<(), libbpf_rs::Error>| {
        result.map_err(|e| kernel("size the eBPF tables", &e))
    };
    sized(open.maps.segue_paths.set_max_entries(setup.max_paths.max(1)))?;
    sized(open.maps.segue_state.set_max_entries(setup.max_paths.max(1)))?;
    // Tables that only a host needs.
    let at_host = if setup.role == Role::Host { setup.max_paths.max(1) } else { 1 };
    sized(open.maps.segue_host.set_max_entries(at_host))?;
    sized(open.maps.segue_routes.set_max_entries(at_host))?;
    sized(open.maps.segue_watches.set_max_entries(at_host))?;
    sized(open.maps.segue_orders.set_max_entries(at_host.min(ORDERS_MAX)))?;
    // Needed only by an anchor: responses that wait for a ride. Without room, a response leaves at once.
    let at_anchor = if setup.role == Role::Anchor { setup.max_paths / HELD_SHARE + 1 } else { 1 };
    sized(open.maps.segue_held.set_max_entries(at_anchor))?;
    // As many hosts as paths, each with one address of either family.
    let inner = setup.max_paths.saturating_mul(2).max(INNER_MIN);
    sized(open.maps.segue_inner.set_max_entries(inner))?;
    sized(open.maps.segue_copies.set_max_entries(setup.max_paths.clamp(1, COPIED_PATHS)))?;
    sized(open.maps.segue_flows.set_max_entries(setup.max_flows.max(1)))?;
    if stamp.is_none() {
        sized(open.maps.stamp_sessions.set_max_entries(1))?;
        sized(open.maps.stamp_sources.set_max_entries(1))?;
    }
    Ok(())
}

/// True if a test may load programs; prints a note otherwise.
#[cfg(test)]
pub(super) fn may_load() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: the eBPF programs need root");
    }
    root
}
