//! The interface between a relay's bookkeeping and its datapath: programs in the kernel, or user space.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use segue_ip::{Exit, Prefix, Source, Sources, Traffic, Tunnel};
use segue_linux::route::Hop;
use segue_wire::{DropReason, FlowKey};

use super::words::{Carried, Count, RelaySink};
use crate::DatapathError;
use crate::device::Tun;

/// The destination of bound traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) exit: Exit,
    /// Slot of the tunnel that the exit names; outside the table if there is no such tunnel, so that the traffic is
    /// refused.
    pub(super) slot: u32,
    /// The queue in which held or asked-about packets wait.
    pub(super) queue: u32,
    /// The traffic was held until now: send the waiting packets first.
    pub(super) releasing: bool,
}

/// Why a packet waits, and in which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Held(u32),
    Asked(u32),
}

/// Carries a relay's packets. Routes lead them to its TUN device; packets that it cannot send by itself, or must not
/// send yet, are read from that device.
pub(super) trait Plane: Send + Sync {
    /// The TUN device.
    fn tun(&self) -> &Tun;

    /// Starts to decapsulate tunnel packets that arrive on an interface.
    fn attach(&self, ifindex: u32) -> Result<(), DatapathError>;

    /// Stops decapsulating on an interface.
    fn detach(&self, ifindex: u32);

    /// Signals that the driver is alive.
    fn beat(&self) -> Result<(), DatapathError>;

    /// Reads this machine's addresses again after a change.
    fn refresh(&self) -> Result<(), DatapathError>;

    /// Puts a tunnel into a slot, with its hop. The counters of the `old` tunnel in the slot carry over.
    fn set_tunnel(
        &self,
        slot: u32,
        tunnel: &Tunnel,
        hop: Option<Hop>,
        old: Option<&Tunnel>,
    ) -> Result<(), DatapathError>;

    /// Empties a slot.
    fn remove_tunnel(&self, slot: u32, tunnel: &Tunnel) -> Result<(), DatapathError>;

    /// Changes a tunnel's hop; `None` if it has no route.
    fn set_hop(&self, slot: u32, hop: Option<Hop>) -> Result<(), DatapathError>;

    /// The counters of the tunnel in a slot.
    fn tunnel_carried(&self, slot: u32) -> Carried;

    /// Allows packets from a source to arrive through a tunnel, which is in this slot, or over a link. A link with at
    /// least one source is checked.
    fn allow(&self, source: &Source, slot: u32) -> Result<(), DatapathError>;

    /// Withdraws a permission; `rest` are the remaining ones. A link without sources is not checked.
    fn forbid(&self, source: &Source, slot: u32, rest: &Sources);

    /// Binds traffic. If it `was` bound before, its counters carry over.
    fn bind(&self, traffic: &Traffic, way: Way, was: bool) -> Result<(), DatapathError>;

    /// Removes the binding of traffic.
    fn unbind(&self, traffic: &Traffic);

    /// The counters of bound traffic.
    fn traffic_carried(&self, traffic: &Traffic) -> Carried;

    /// Starts to count the packets of a prefix.
    fn count(&self, prefix: Prefix) -> Result<(), DatapathError>;

    /// Stops counting a prefix.
    fn count_no_more(&self, prefix: Prefix);

    /// The counters of a counted prefix.
    fn counted(&self, prefix: Prefix) -> Count;

    /// The queue in which a packet of this flow, with its virtio header, must wait; `None` if it can be sent.
    fn waits(&self, key: &FlowKey, bytes: &[u8]) -> Option<Waits>;

    /// Resets the packet count of a queue.
    fn begin_queue(&self, queue: u32) -> Result<(), DatapathError>;

    /// Reports how many packets of a queue were read and then given back or dropped.
    fn set_returned(&self, queue: u32, packets: u32) -> Result<(), DatapathError>;

    /// Sends packets, each with its virtio header, to the exits of their bindings.
    fn send(&self, packets: &[&[u8]]);

    /// Refused packets by reason.
    fn drops(&self) -> BTreeMap<DropReason, u64>;

    /// The arrivals other than those of the TUN device, for the relay's thread.
    fn arrivals<'a>(&'a self, sink: &'a RelaySink) -> Result<Box<dyn Arrivals + 'a>, String>;
}

/// Arrivals other than those of the TUN device: messages for the daemon, or tunnel packets.
pub(super) trait Arrivals {
    /// Readable when something has arrived.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Handles all pending arrivals. A packet that came out of a tunnel and is bound again goes to `turn`, with a
    /// virtio header. An error ends the relay.
    fn take(&mut self, turn: &dyn Fn(&[u8])) -> Result<(), String>;
}
