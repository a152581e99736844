//! The packet path of a daemon: one TUN device, encapsulation and decapsulation, counters, stamps,
//! probe answers. Two implementations of one trait: eBPF ([`ebpf`]) and user space ([`user`]). Beside it
//! the relay ([`relay`]), for tunnels without paths and probes.
//!
//! The daemon decides and calls [`Datapath`]; the datapath carries packets and reports through the
//! [`EventSink`]. A flow that has no binding reaches the daemon once, as [`DatapathEvent::Miss`]; the daemon
//! binds it and gives the packet back with [`Datapath::inject`], so that the first packet is not lost.

pub mod ebpf;
pub mod relay;
pub mod user;

mod access;
mod attach;
mod checksum;
mod copies;
mod device;
mod drops;
mod error;
mod locals;
mod maps;
mod misses;
mod option;
mod paid;
mod sync;
mod types;
mod worker;

pub use access::ByAccess;
pub use ebpf::{StampAnswers, StampCounts, StampOptions};
pub use error::DatapathError;
pub use segue_tunnel::datapath::{
    Datapath, FlowCount, PathCounters, PathSetup, ProbeEvent, ProbeKind, ProbeOrder, Reinjection,
    Role, Via,
};
use types::FLOWS_A_PAGE;
pub use types::{
    DatapathEvent, EventSink, FLOW_PACE, FLOWS_AT_ONCE, FlowCursor, FlowEntry, FlowPage, Kind,
    MissPacket, Reach, STAMP_TO_WIRE, Services, Setup,
};

use std::collections::BTreeMap;

use segue_ip::Prefix;
use segue_wire::DropReason;

/// What a daemon asks of a packet path beyond what every driver asks.
pub trait LinuxDatapath: Datapath<Error = DatapathError, Packet = MissPacket> + Send {
    /// Which implementation this is, for status output.
    fn kind(&self) -> Kind;
    /// Index of the TUN device.
    fn tun_ifindex(&self) -> u32;
    /// Starts receiving tunnel packets on an interface, with or without Ethernet frames; does nothing if it already
    /// receives there.
    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError>;
    /// Stops receiving tunnel packets on an interface; does nothing if it is not attached or gone.
    fn detach(&mut self, ifindex: u32);
    /// Sets what hosts may reach (anchor); everything until it is called. An address of `pools`, of which there is at
    /// most one of each family, counts as a host's even while unassigned.
    fn set_reach(&mut self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError>;
    /// A page of the bindings, including those learned from arriving packets: those behind `from`, in an order of the
    /// datapath's own, at most [`FLOWS_A_PAGE`]. With `owner`, only flows over paths of that host (anchor), so a page
    /// may be empty and not the last. A binding that stays while pages are taken is in exactly one of them; one whose
    /// path is gone is in none.
    fn flow_page(&mut self, from: FlowCursor, owner: Option<u32>) -> FlowPage;
    /// All bindings in one go. With many bindings that takes seconds: a daemon takes pages.
    fn flows(&mut self) -> Vec<FlowEntry> {
        let (mut all, mut from) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = from {
            let page = self.flow_page(cursor, None);
            all.extend(page.flows);
            from = page.next;
        }
        all
    }
    /// Refused packets by reason, those above zero.
    fn drops(&mut self) -> BTreeMap<DropReason, u64>;
    /// STAMP requests left unanswered because of a rate limit, where this datapath answers them.
    fn stamp_limited(&self) -> u64 {
        0
    }
    /// Whether packets are still carried.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] once a thread that carries them has ended: nothing brings it back.
    fn carries(&self) -> Result<(), DatapathError>;
}

/// Seconds without [`Datapath::heartbeat`] after which the programs in the kernel let every packet
/// pass as if they were not there.
pub(crate) const HEARTBEAT_TIMEOUT_S: u64 = 3;
