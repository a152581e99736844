//! What a relay's bookkeeping asks of whoever carries the packets: the programs in the kernel, or user space.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use segue_ip::{Exit, Prefix, Source, Sources, Traffic, Tunnel};
use segue_linux::route::Hop;
use segue_wire::{DropReason, FlowKey};

use super::words::{Carried, Count, RelaySink};
use crate::DatapathError;
use crate::device::Tun;

/// Where traffic is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) exit: Exit,
    /// Of the tunnel that the exit names; beyond the table if there is none, so that what goes there is refused.
    pub(super) slot: u32,
    /// Where what is held, or asked about, waits.
    pub(super) queue: u32,
    /// The traffic was held until now: what waits goes first.
    pub(super) releasing: bool,
}

/// Why a packet waits, and in which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Held(u32),
    Asked(u32),
}

/// Who carries a relay's packets. Routes lead them to its TUN device; what it cannot send by itself, or must not yet, is
/// read there.
pub(super) trait Plane: Send + Sync {
    /// The device.
    fn tun(&self) -> &Tun;

    /// Takes packets out of tunnels that arrive on an interface.
    fn attach(&self, ifindex: u32) -> Result<(), DatapathError>;

    /// Stops that.
    fn detach(&self, ifindex: u32);

    /// Says that the driver lives.
    fn beat(&self) -> Result<(), DatapathError>;

    /// Addresses of this machine may have come or gone.
    fn refresh(&self) -> Result<(), DatapathError>;

    /// Puts a tunnel into a slot, from which it leaves by this hop. What the `old` one there has carried is counted on.
    fn set_tunnel(
        &self,
        slot: u32,
        tunnel: &Tunnel,
        hop: Option<Hop>,
        old: Option<&Tunnel>,
    ) -> Result<(), DatapathError>;

    /// Empties a slot.
    fn remove_tunnel(&self, slot: u32, tunnel: &Tunnel) -> Result<(), DatapathError>;

    /// Has a tunnel leave by another hop, or by none.
    fn set_hop(&self, slot: u32, hop: Option<Hop>) -> Result<(), DatapathError>;

    /// What the tunnel in a slot has carried.
    fn tunnel_carried(&self, slot: u32) -> Carried;

    /// Lets a tunnel, which is in this slot, or a link bring packets from a source. A link is checked from then on.
    fn allow(&self, source: &Source, slot: u32) -> Result<(), DatapathError>;

    /// Takes that back; `rest` are those that stay. A link without any is not checked any more.
    fn forbid(&self, source: &Source, slot: u32, rest: &Sources);

    /// Binds traffic. If it `was` bound, what it has carried is counted on.
    fn bind(&self, traffic: &Traffic, way: Way, was: bool) -> Result<(), DatapathError>;

    /// Binds traffic to nothing.
    fn unbind(&self, traffic: &Traffic);

    /// What bound traffic has carried.
    fn traffic_carried(&self, traffic: &Traffic) -> Carried;

    /// Begins to count the packets of a prefix.
    fn count(&self, prefix: Prefix) -> Result<(), DatapathError>;

    /// Ends that.
    fn count_no_more(&self, prefix: Prefix);

    /// What a prefix that is counted has carried.
    fn counted(&self, prefix: Prefix) -> Count;

    /// Whether a packet of this flow, with its virtio header, is to wait; if not, it is to be sent.
    fn waits(&self, key: &FlowKey, bytes: &[u8]) -> Option<Waits>;

    /// Begins to count the packets of a queue.
    fn begin_queue(&self, queue: u32) -> Result<(), DatapathError>;

    /// Says how many packets of a queue were read, all of which have been given back or dropped.
    fn set_returned(&self, queue: u32, packets: u32) -> Result<(), DatapathError>;

    /// Sends packets with their virtio headers where they are bound to.
    fn send(&self, packets: &[&[u8]]);

    /// Refused packets by reason.
    fn drops(&self) -> BTreeMap<DropReason, u64>;

    /// What arrives beside the device, for the thread that serves this.
    fn arrivals<'a>(&'a self, sink: &'a RelaySink) -> Result<Box<dyn Arrivals + 'a>, String>;
}

/// Packets that arrive beside the TUN device: for the daemon, or out of tunnels.
pub(super) trait Arrivals {
    /// Readable when there are some.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Takes those that wait. What came out of a tunnel and is bound again, it gives to `turn`, with a virtio header. An
    /// error ends the relay.
    fn take(&mut self, turn: &dyn Fn(&[u8])) -> Result<(), String>;
}
