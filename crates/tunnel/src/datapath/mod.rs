//! The packet path as the machines and their drivers see it: its types and its operations.
//!
//! The eBPF programs, the threads in user space and the simulator's model implement [`Datapath`]. A packet path carries
//! packets and reports through [`DatapathEvent`]s; its driver decides.

mod boxed;
mod words;

pub use words::*;

use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_keepalive::Reading;
use segue_wire::{FlowKey, Size};

/// A packet whose flow has no binding.
pub trait Missed {
    /// Its flow.
    fn key(&self) -> FlowKey;
    /// Its differentiated services code point.
    fn dscp(&self) -> u8;
}

/// The operations of a packet path. Slots number the paths of this end: a path's slot is the tunnel index under which
/// this end receives.
pub trait Datapath {
    /// Why an operation failed. A failed operation has had no effect.
    type Error;
    /// A packet without a binding, which the driver holds until its machine has decided.
    type Packet: Missed;

    /// Sets up or changes a path. If the cookies are unchanged, counters and the learned endpoint survive.
    fn set_path(&mut self, slot: u32, config: &PathSetup) -> Result<(), Self::Error>;
    /// Removes a path. Flows bound to it miss from then on.
    fn remove_path(&mut self, slot: u32);
    /// Redirects everything bound to `slot` to another path of the same owner, at once for all flows; `None` ends the
    /// redirection.
    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), Self::Error>;
    /// Sends copies of packets that left on one path again over another, each copy at most once. The packets are marked
    /// one-way, so the peer learns nothing from them. Returns the number of packets sent.
    fn reinject(&mut self, order: Reinjection) -> usize;
    /// Sets the owner of an inner address. At an anchor: the host that may send from it ([`PathSetup::owner`]), or 0
    /// for the anchor itself. At a host: always 0.
    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), Self::Error>;
    /// Removes an inner address.
    fn remove_inner(&mut self, address: IpAddr);
    /// Binds a flow, as seen in packets that leave this end through the TUN device, to a path. The binding ends with
    /// that path, even if another path reuses its slot. An anchor binds a flow only to paths of the host that owns its
    /// destination.
    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), Self::Error>;
    /// Removes a binding.
    fn unbind_flow(&mut self, key: &FlowKey);
    /// The counts of a flow since it was bound to its path; `None` if it has no binding.
    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount>;
    /// Stamps and sends probes in one batch.
    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), Self::Error>;
    /// Sends a test of a path's packet size with this code point (host); an anchor's datapath answers with the same
    /// one. Paths in UPMT format have no size tests.
    fn test_size(&mut self, slot: u32, test: Size, dscp: u8);
    /// Sets the `heard` word of answers, unsolicited responses and requests that ride, on these paths. An ordered
    /// request sets it too.
    fn set_heard(&mut self, slots: &[u32], heard: u16);
    /// Sets whether the datapath keeps probes without news to itself, instead of reporting each (only a datapath that
    /// measures by itself). A new path is not quiet.
    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        let _ = (slot, quiet);
    }
    /// Tells a datapath that measures by itself that a path was declared down after this `silence`, or that it is up
    /// (`None`). Averages of loss exclude packets lost while the path is down. A new path is up.
    fn set_down(&mut self, slot: u32, silence: Option<Span>) {
        let _ = (slot, silence);
    }
    /// Tells a datapath that measures by itself whether a host hears nothing on a path although its own packets arrive
    /// (anchor). Downlink averages exclude packets lost meanwhile. The setting survives an outage of the path.
    fn set_deaf(&mut self, slot: u32, deaf: bool) {
        let _ = (slot, deaf);
    }
    /// Sends packets on a path one by one, because the peer receives super-packets unsegmented. Lasts as long as the
    /// path.
    fn set_one_by_one(&mut self, slot: u32) {
        let _ = slot;
    }
    /// Work and measurements of the datapath itself; `None` if neither, or if the path does not exist. A datapath that
    /// lets probes ride but does not [measure](Datapath::measures) sets only `sent`, `rode` and `last_sent`.
    fn reading(&mut self, slot: u32) -> Option<Reading> {
        let _ = slot;
        None
    }
    /// Returns whether a [`reading`](Datapath::reading) has estimates. The daemon's machines must then be created with
    /// [`segue_keepalive::MeasuredBy::PacketPath`].
    fn measures(&self) -> bool {
        false
    }
    /// Sends the responses that have waited T_KA for a ride, in one batch. Returns when to call it again; `None` if no
    /// response waits.
    fn sweep(&mut self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }
    /// Signals that the driver is alive. Call it once a second, also between the readings of very many paths. Some time
    /// after the last call, programs in the kernel let packets pass untouched.
    fn heartbeat(&mut self) {}
    /// Sends a packet that had missed. If its flow still has no binding, the packet is dropped and counted.
    fn inject(&mut self, packet: Self::Packet);
    /// Drops and counts a packet that had missed, along with the packets queued behind it. For a moment, further
    /// packets of the flow (at an anchor, all packets to the same host) are dropped without a miss.
    fn refuse(&mut self, packet: Self::Packet);
    /// Returns whether a slot has a path.
    fn is_set(&self, slot: u32) -> bool;
    /// Counters of a path; all zero for an unknown slot.
    fn counters(&mut self, slot: u32) -> PathCounters;
}

/// Events of the datapath.
#[derive(Debug)]
pub enum DatapathEvent<P> {
    /// A probe arrived.
    Probe(ProbeEvent),
    /// A packet has no binding. Each flow causes at most one event until the packet is injected or 100 ms have passed;
    /// meanwhile the datapath queues up to 64 further packets of the flow and sends them with it.
    Miss(P),
    /// A [reading] of the path in this slot is due, for one of two reasons: data follow a silence and the path
    /// [requires that](segue_keepalive::Probing::follows_use), or [`watched`] has passed because requests no longer
    /// ride or responses no longer arrive.
    ///
    /// [reading]: Datapath::reading
    /// [`watched`]: segue_keepalive::Reading::watched
    Look(u32),
    /// Several unsegmented super-packets arrived on the path in this slot and were refused
    /// ([`segue_wire::DropReason::Uncut`]). Not every one is reported.
    Uncut(u32),
    /// A test of the packet size was answered (host): the slot and the test's token.
    Size(u32, u32),
}
