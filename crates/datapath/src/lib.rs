//! The packet path of a daemon: one TUN device, encapsulation and decapsulation, counters, stamps,
//! probe answers. Two implementations of one trait: eBPF ([`ebpf`]) and user space ([`user`]).
//!
//! The daemon decides and calls [`Datapath`]; the datapath carries packets and reports through the
//! [`EventSink`]. A flow that has no binding reaches the daemon once, as [`Event::Miss`]; the daemon
//! binds it and gives the packet back with [`Datapath::inject`], so that the first packet is not lost.

pub mod ebpf;
pub mod user;

mod copies;
mod error;
mod misses;
mod paid;
mod types;

pub use ebpf::{StampAnswers, StampCounts, StampOptions};
pub use error::DatapathError;
pub use types::STAMP_TO_WIRE;
pub use types::{
    Event, EventSink, FLOW_PACE, FLOWS_A_PAGE, FLOWS_AT_ONCE, FlowCursor, FlowEntry, FlowPage,
    InnerEntry, Kind, MissPacket, PathConfig, PathCounters, ProbeEvent, ProbeKind, ProbeOrder,
    Reach, Reinjection, Role, Services, Setup, Via,
};

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_keepalive::Reading;
use segue_linux::link::Prefix;
use segue_wire::{DropReason, FlowKey, Size};

/// What a daemon asks of the packet path. Slots number the paths of this end; a path's slot is the
/// tunnel index under which this end receives.
pub trait Datapath: Send {
    /// Which implementation this is, for status output.
    fn kind(&self) -> Kind;
    /// Index of the TUN device.
    fn tun_ifindex(&self) -> u32;
    /// Starts to receive tunnel packets on an interface, with Ethernet frames or without; does nothing if
    /// it already does.
    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError>;
    /// Stops to receive tunnel packets on an interface; does nothing if it does not, or is gone.
    fn detach(&mut self, ifindex: u32);
    /// Sets a path up, or changes it; counters and learned endpoint of a path with unchanged cookies
    /// survive.
    fn set_path(&mut self, slot: u32, config: &PathConfig) -> Result<(), DatapathError>;
    /// Takes a path down. Flows bound to it miss from then on.
    fn remove_path(&mut self, slot: u32);
    /// Sends what is bound to `slot` over another path of the same owner, at once and for all flows; `None`
    /// ends that.
    fn set_via(&mut self, slot: u32, via: Option<Via>) -> Result<(), DatapathError>;
    /// Sends a second time, over another path, the copies of what left on one, each at most once. The packets are
    /// marked one-way: the other end learns nothing from them. Answers how many there were.
    fn reinject(&mut self, order: Reinjection) -> usize;
    /// Says to whom an inner address belongs (see [`InnerEntry`]).
    fn set_inner(&mut self, address: IpAddr, entry: InnerEntry) -> Result<(), DatapathError>;
    /// What hosts may reach (anchor); everything until it is said. An address of `pools`, of which there is at most
    /// one of each family, is a host's also while nobody has it.
    fn set_reach(&mut self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError>;
    /// Forgets an inner address.
    fn remove_inner(&mut self, address: IpAddr);
    /// Binds a flow, as seen by packets leaving this end through the TUN device, to a path. The binding ends
    /// with that path, also where another one takes its slot; an anchor binds to paths of the host that has
    /// the flow's destination alone.
    fn bind_flow(&mut self, key: FlowKey, slot: u32) -> Result<(), DatapathError>;
    /// Removes a binding.
    fn unbind_flow(&mut self, key: &FlowKey);
    /// Some of the bindings, those learned from arriving packets included: what lies behind `from`, in an
    /// order of the datapath's own, [`FLOWS_A_PAGE`] at most. With `owner`, only flows over paths of that host
    /// (anchor), so that a page may be empty and not the last. A binding that stays while pages are taken is
    /// in one of them, once; one whose path is gone is in none.
    fn flow_page(&mut self, from: FlowCursor, owner: Option<u32>) -> FlowPage;
    /// All bindings in one go. That takes seconds where there are many: a daemon takes pages.
    fn flows(&mut self) -> Vec<FlowEntry> {
        let (mut all, mut from) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = from {
            let page = self.flow_page(cursor, None);
            all.extend(page.flows);
            from = page.next;
        }
        all
    }
    /// Stamps and sends probes, all in one go.
    fn send_probes(&mut self, orders: &[ProbeOrder]) -> Result<(), DatapathError>;
    /// Sends a test of a path's packet size (host); an anchor's datapath answers it. Not on paths with UPMT's packets.
    fn test_size(&mut self, slot: u32, test: Size);
    /// The `heard` word that answers, unsolicited responses and requests that ride carry from now on on
    /// these paths. An ordered request sets it too.
    fn set_heard(&mut self, slots: &[u32], heard: u16);
    /// Whether probes that say nothing new are kept from the daemon (a datapath that measures by
    /// itself only). A new path is not quiet.
    fn set_quiet(&mut self, slot: u32, quiet: bool) {
        let _ = (slot, quiet);
    }
    /// Says that a path has been declared down, after so long a `silence`, or is up (`None`), to a datapath
    /// that measures by itself: what is lost meanwhile is in no average of loss. A new path is up.
    fn set_down(&mut self, slot: u32, silence: Option<Span>) {
        let _ = (slot, silence);
    }
    /// Says whether the host hears nothing on a path of an anchor, though its own packets come, to a datapath that
    /// measures by itself: what is lost meanwhile is in no average of the way down. It lasts beyond a time in which
    /// the path is down.
    fn set_deaf(&mut self, slot: u32, deaf: bool) {
        let _ = (slot, deaf);
    }
    /// Sends what leaves on a path one by one: its other end gets in one piece what a device should cut. It lasts as
    /// long as the path.
    fn set_one_by_one(&mut self, slot: u32) {
        let _ = slot;
    }
    /// What the datapath has done and measured by itself; `None` if neither, or without such a path.
    /// Where it does not [measure](Datapath::measures) but lets probes ride, only `sent`, `rode` and
    /// `last_sent` mean something.
    fn reading(&mut self, slot: u32) -> Option<Reading> {
        let _ = slot;
        None
    }
    /// Whether a [`reading`](Datapath::reading) has estimates: the daemon's machines are then made with
    /// [`segue_keepalive::Source::Readings`].
    fn measures(&self) -> bool {
        false
    }
    /// Sends the responses that have waited T_KA for a ride in vain, all in one go. Returns when to call
    /// again; `None` while no response waits.
    fn sweep(&mut self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }
    /// Sends a packet that had missed. Without a binding for its flow by now it is dropped and counted.
    fn inject(&mut self, packet: MissPacket);
    /// Drops and counts a packet that had missed and those that wait behind it. For a moment its flow, at an
    /// anchor all to the same host, does not miss again but is dropped.
    fn refuse(&mut self, packet: MissPacket);
    /// Counters of a path, zero for an unknown one.
    fn counters(&mut self, slot: u32) -> PathCounters;
    /// Refused packets by reason, those above zero.
    fn drops(&mut self) -> BTreeMap<DropReason, u64>;
    /// STAMP requests that got no answer because of a rate, where this datapath answers them.
    fn stamp_limited(&self) -> u64 {
        0
    }
    /// Says that the daemon is alive; to be called once a second. When it stops, packets pass this
    /// datapath untouched after [`HEARTBEAT_TIMEOUT_S`].
    fn heartbeat(&mut self);
    /// Whether packets are still carried.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] once a thread that carries them has ended: nothing brings it back.
    fn carries(&self) -> Result<(), DatapathError>;
}

/// Seconds without [`Datapath::heartbeat`] after which the programs in the kernel let every packet
/// pass as if they were not there.
pub const HEARTBEAT_TIMEOUT_S: u64 = 3;
