//! The packet path as the machines and their drivers see it: its words, and what it is asked to do.
//!
//! Programs in the kernel, threads in user space and the simulator's model implement [`Datapath`]. It carries packets and
//! reports through [`DatapathEvent`]s; its driver decides.

mod boxed;
mod words;

pub use words::*;

use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_keepalive::Reading;
use segue_wire::{FlowKey, Size};

/// A packet without a binding.
pub trait Missed {
    /// Its flow.
    fn key(&self) -> FlowKey;
    /// Its differentiated services code point.
    fn dscp(&self) -> u8;
}

/// What is asked of a packet path. Slots number the paths of this end; a path's slot is the tunnel index under which
/// this end receives.
pub trait Datapath {
    /// Why an order cannot be obeyed; the datapath then applied none of it.
    type Error;
    /// A packet without a binding, which the driver keeps until its machine has decided.
    type Packet: Missed;

    /// Sets a path up, or changes it; counters and learned endpoint of a path with unchanged cookies
    /// survive.
    fn set_path(&mut self, slot: u32, config: &PathSetup) -> Result<(), Self::Error>;
    /// Takes a path down. Flows bound to it miss from then on.
    fn remove_path(&mut self, slot: u32);
    /// Sends what is bound to `slot` over another path of the same owner, at once and for all flows; `None`
    /// ends that.
    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), Self::Error>;
    /// Sends a second time, over another path, the copies of what left on one, each at most once. The packets are
    /// marked one-way: the other end learns nothing from them. Answers how many there were.
    fn reinject(&mut self, order: Reinjection) -> usize;
    /// Says who owns an inner address: at an anchor the host that may send from it ([`PathSetup::owner`]), or the
    /// anchor itself (0); at a host the host itself (0).
    fn set_inner(&mut self, address: IpAddr, owner: u32) -> Result<(), Self::Error>;
    /// Forgets an inner address.
    fn remove_inner(&mut self, address: IpAddr);
    /// Binds a flow, as seen by packets leaving this end through the TUN device, to a path. The binding ends with that
    /// path, even if another path takes its slot. An anchor binds only to paths of the host that has the flow's
    /// destination.
    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), Self::Error>;
    /// Removes a binding.
    fn unbind_flow(&mut self, key: &FlowKey);
    /// What this end has counted of a flow since it was bound to its path; `None` if it is bound to none.
    fn count_flow(&mut self, key: &FlowKey) -> Option<FlowCount>;
    /// Stamps and sends probes, all in one go.
    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), Self::Error>;
    /// Sends a test of a path's packet size with this code point (host); an anchor's datapath answers it with the same.
    /// Not on paths with UPMT's packets.
    fn test_size(&mut self, slot: u32, test: Size, dscp: u8);
    /// The `heard` word that answers, unsolicited responses and requests that ride carry from now on on
    /// these paths. An ordered request sets it too.
    fn set_heard(&mut self, slots: &[u32], heard: u16);
    /// Whether the datapath keeps probes that say nothing new from the daemon (only a datapath that measures by
    /// itself). A new path is not quiet.
    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        let _ = (slot, quiet);
    }
    /// Tells a datapath that measures by itself that a path has been declared down after this `silence`, or is up
    /// (`None`): averages of loss leave out packets lost meanwhile. A new path is up.
    fn set_down(&mut self, slot: u32, silence: Option<Span>) {
        let _ = (slot, silence);
    }
    /// Says whether the host hears nothing on a path of an anchor, though its own packets come, to a datapath that
    /// measures by itself: what is lost meanwhile is in no average of the way down. It lasts beyond a time in which
    /// the path is down.
    fn set_deaf(&mut self, slot: u32, deaf: bool) {
        let _ = (slot, deaf);
    }
    /// Sends packets on a path one by one: the other end receives whole what a device should cut. Lasts as long as the
    /// path.
    fn set_one_by_one(&mut self, slot: u32) {
        let _ = slot;
    }
    /// What the datapath has done and measured by itself; `None` if neither, or if the path does not exist. Where it
    /// does not [measure](Datapath::measures) but lets probes ride, only `sent`, `rode` and `last_sent` mean something.
    fn reading(&mut self, slot: u32) -> Option<Reading> {
        let _ = slot;
        None
    }
    /// Whether a [`reading`](Datapath::reading) has estimates: the daemon's machines are then made with
    /// [`segue_keepalive::MeasuredBy::PacketPath`].
    fn measures(&self) -> bool {
        false
    }
    /// Sends the responses that have waited T_KA without a ride, all in one go. Returns when to call again; `None`
    /// while no response waits.
    fn sweep(&mut self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }
    /// Says that the driver lives; to be called once a second, also between the readings of very many paths. When it
    /// stops, programs in the kernel let packets pass untouched after a while.
    fn heartbeat(&mut self) {}
    /// Sends a packet that had missed. Without a binding for its flow by now it is dropped and counted.
    fn inject(&mut self, packet: Self::Packet);
    /// Drops and counts a packet that had missed and those that wait behind it. For a moment its flow, at an
    /// anchor all to the same host, does not miss again but is dropped.
    fn refuse(&mut self, packet: Self::Packet);
    /// Whether there is a path in a slot.
    fn is_set(&self, slot: u32) -> bool;
    /// Counters of a path, zero for an unknown one.
    fn counters(&mut self, slot: u32) -> PathCounters;
}

/// What the datapath reports.
#[derive(Debug)]
pub enum DatapathEvent<P> {
    /// A probe arrived.
    Probe(ProbeEvent),
    /// A packet has no binding. At most one event for a flow until it is injected or 100 ms have passed; the
    /// datapath keeps up to 64 further packets of that flow and sends them with it.
    Miss(P),
    /// A [reading] of the path in this slot is due: data follow a silence where the path
    /// [asks for that](segue_keepalive::Probing::follows_use), or requests have ceased to ride, or responses to come, and
    /// [`watched`] has come.
    ///
    /// [reading]: Datapath::reading
    /// [`watched`]: segue_keepalive::Reading::watched
    Look(u32),
    /// Several packets came in one piece on the path in this slot, which no device had cut, and were refused
    /// ([`segue_wire::DropReason::Uncut`]). Not every one is told.
    Uncut(u32),
    /// A test of the packet size on the path in this slot has been answered (host): its token.
    Size(u32, u32),
}
