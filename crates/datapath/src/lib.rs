//! The datapath of a daemon: one TUN device, encapsulation and decapsulation, counters, stamps, and answers to
//! probes. There are two implementations of one trait: eBPF ([`ebpf`]) and user space ([`user`]). The relay
//! ([`relay`]) is separate, for tunnels without paths and probes.
//!
//! The daemon decides and calls [`Datapath`]; the datapath carries packets and reports through the [`EventSink`]. A
//! flow without a binding is reported to the daemon once, as [`DatapathEvent::Miss`]; the daemon binds it and gives
//! the packet back with [`Datapath::inject`], so that the first packet is not lost.

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

/// The operations of a daemon's datapath in addition to those that every driver needs.
pub trait LinuxDatapath: Datapath<Error = DatapathError, Packet = MissPacket> + Send {
    /// The implementation, for status output.
    fn kind(&self) -> Kind;
    /// Index of the TUN device.
    fn tun_ifindex(&self) -> u32;
    /// Starts to receive tunnel packets on an interface, with or without Ethernet frames. Does nothing if the
    /// interface is attached already.
    fn attach(&mut self, ifindex: u32) -> Result<(), DatapathError>;
    /// Stops receiving tunnel packets on an interface. Does nothing if it is not attached or has disappeared.
    fn detach(&mut self, ifindex: u32);
    /// Limits the destinations that hosts may reach (anchor); everything is permitted until the first call. An
    /// address in `pools`, which has at most one prefix of each family, counts as a host's address even while
    /// unassigned.
    fn set_reach(&mut self, reach: Reach, pools: &[Prefix]) -> Result<(), DatapathError>;
    /// A page of the bindings, including those learned from arriving packets: at most [`FLOWS_A_PAGE`] after `from`,
    /// in an internal order. `owner` selects the flows over paths of one host (anchor), so a page may be empty
    /// without being the last. A binding that exists during the whole listing is in exactly one page; a binding whose
    /// path is gone is in none.
    fn flow_page(&mut self, from: FlowCursor, owner: Option<u32>) -> FlowPage;
    /// All bindings at once. This takes seconds with many bindings, so daemons read pages.
    fn flows(&mut self) -> Vec<FlowEntry> {
        let (mut all, mut from) = (Vec::new(), Some(FlowCursor::default()));
        while let Some(cursor) = from {
            let page = self.flow_page(cursor, None);
            all.extend(page.flows);
            from = page.next;
        }
        all
    }
    /// Refused packets by reason; reasons with a count of zero are left out.
    fn drops(&mut self) -> BTreeMap<DropReason, u64>;
    /// STAMP requests left unanswered because of a rate limit, if this datapath answers STAMP.
    fn stamp_limited(&self) -> u64 {
        0
    }
    /// Checks that packets are still carried.
    ///
    /// # Errors
    /// [`DatapathError::Ended`] once a thread of the datapath has ended; it is not restarted.
    fn carries(&self) -> Result<(), DatapathError>;
}

/// Seconds without [`Datapath::heartbeat`] after which the programs in the kernel let every packet pass as if they
/// were absent.
pub(crate) const HEARTBEAT_TIMEOUT_S: u64 = 3;
