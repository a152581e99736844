//! Requests of many paths in one call: the kernel creates frames and runs `segue_send` on each, which writes the next
//! order's request into the frame and passes it to the access interface's driver.
//!
//! This is far cheaper than a packet through the TUN device, but it skips queueing disciplines, needs drivers that
//! accept frames (`ndo_xdp_xmit`), and does not wait for an unknown neighbour. The caller therefore sends the first
//! request of each next hop in the ordinary way, which resolves the neighbour and keeps it fresh.

use std::io;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::mman::{MapFlags as Sharing, ProtFlags, mmap, munmap};
use segue_linux::netns::Netns;

use super::features::takes_frames;
use super::neighbour::frame_addresses;
use super::skel::{batch, batch_order};
use crate::maps::Shared;
use crate::{DatapathError, ProbeOrder};

/// Most orders in one call. Starting a call costs as much as some hundred requests: the kernel patches its own code
/// to reach the program, and interrupts all processors to do so.
pub(super) const ORDERS_MAX: u32 = 16_384;
/// Fewest orders that justify a call.
pub(super) const ORDERS_MIN: usize = 32;
/// Frames that the kernel creates and sends at a time; a veth pair has room for 256.
const FRAMES: u32 = 64;
/// Ethernet, IP and UDP headers and the probe.
const FRAME_V4: usize = 14 + 20 + 8 + segue_wire::Probe::PACKET_LEN;
const FRAME_V6: usize = FRAME_V4 + 20;

/// The properties that paths must share for their frames to leave in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hop {
    pub(super) ifindex: u32,
    /// The gateway, or the remote end itself.
    pub(super) next: IpAddr,
    /// The outer packets are IPv6.
    pub(super) v6: bool,
}

/// The way on which a path's requests leave in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) hop: Hop,
    /// Probes may ride on data.
    pub(super) rides: bool,
}

/// The exits of a host's paths by slot: a vector, because many are read in order.
#[derive(Debug, Default)]
pub(super) struct Exits(Vec<Option<Exit>>);

impl Exits {
    pub(super) fn get(&self, slot: u32) -> Option<Exit> {
        *self.0.get(slot as usize)?
    }

    pub(super) fn set(&mut self, slot: u32, exit: Option<Exit>) {
        let at = slot as usize;
        if exit.is_some() && self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if let Some(known) = self.0.get_mut(at) {
            *known = exit;
        }
    }
}

/// The table of orders, mapped into this process.
#[derive(Debug)]
struct Orders {
    memory: NonNull<batch_order>,
    len: usize,
}

// SAFETY: only this value has the mapping, which is valid in every thread of the process.
unsafe impl Send for Orders {}

impl Orders {
    fn map(table: &MapHandle) -> io::Result<Orders> {
        let len = table.max_entries() as usize;
        let bytes = NonZeroUsize::new(len * size_of::<batch_order>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let memory =
            unsafe { mmap(None, bytes, protection, Sharing::MAP_SHARED, table.as_fd(), 0) }?;
        Ok(Orders { memory: memory.cast(), len })
    }

    fn write(&mut self, at: usize, order: batch_order) {
        assert!(at < self.len);
        // SAFETY: within the mapping by the line above. The program reads it only during a call of
        // `Batch::send`, which borrows this mutably.
        unsafe { self.memory.add(at).write(order) };
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing refers to it any more. The kernel refuses only a
        // range that was not mapped.
        let _ = unsafe { munmap(self.memory.cast(), self.len * size_of::<batch_order>()) };
    }
}

/// The program and its tables.
#[derive(Debug)]
pub(super) struct Batch {
    program: OwnedFd,
    orders: Orders,
    state: MapHandle,
    /// The namespace of the paths' interfaces.
    netns: Netns,
}

impl Batch {
    /// The program that turns orders into frames.
    #[cfg(test)]
    pub(super) fn program(&self) -> std::os::fd::BorrowedFd<'_> {
        self.program.as_fd()
    }

    pub(super) fn new(
        program: OwnedFd,
        orders: &MapHandle,
        state: MapHandle,
    ) -> Result<Batch, DatapathError> {
        let failed = |source| DatapathError::Kernel { what: "share the table of orders", source };
        let netns = Netns::current().map_err(|e| failed(io::Error::other(e.to_string())))?;
        Ok(Batch { program, orders: Orders::map(orders).map_err(failed)?, state, netns })
    }

    /// How many orders fit in one call.
    pub(super) fn room(&self) -> usize {
        self.orders.len
    }

    /// Sends requests over one next hop, at most [`Batch::room`]. False if that is not possible; nothing has been
    /// sent in that case.
    pub(super) fn send(&mut self, hop: Hop, orders: &[&ProbeOrder]) -> bool {
        for (at, order) in orders.iter().enumerate() {
            self.orders.write(at, batch_order_of(order));
        }
        let (program, state) = (&self.program, &self.state);
        // The kernel uses the caller's namespace.
        let sent = self.netns.run(|| {
            takes_frames(hop.ifindex).unwrap_or(false)
                && call(program, state, hop, orders.len() as u32).unwrap_or_else(|error| {
                    tracing::debug!(%error, "no batch of requests");
                    false
                })
        });
        sent.unwrap_or(false)
    }
}

/// Runs the program for each order; false if the next hop's hardware address is unknown.
fn call(program: &OwnedFd, state: &MapHandle, hop: Hop, orders: u32) -> io::Result<bool> {
    let Some([source, destination]) = frame_addresses(hop.ifindex, hop.next)? else {
        return Ok(false);
    };
    let begun = batch { next: 0, orders, source, destination };
    state
        .update(0u32.bytes(), begun.bytes(), MapFlags::ANY)
        .map_err(|e| io::Error::other(e.to_string()))?;
    let frame = [0; FRAME_V6];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: if hop.v6 { FRAME_V6 } else { FRAME_V4 } as u32,
        repeat: orders as i32,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: FRAMES,
        ..Default::default()
    };
    // SAFETY: the frame that the options name outlives the call, and is at least as long.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(true) }
}

fn batch_order_of(order: &ProbeOrder) -> batch_order {
    batch_order {
        slot: order.slot,
        heard: order.probe.heard,
        t_ka_ms: order.probe.t_ka_ms,
        k: order.k,
        age: order.age,
        question: order.question.into(),
        reserved: [0; 5],
    }
}
