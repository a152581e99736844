//! What the packet paths of a daemon have beyond the common types of every packet path.

use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_tunnel::datapath::{self, Missed, Role};
use segue_wire::FlowKey;

/// How to set a datapath up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the TUN device, `segue0` by default. Must begin with `segue`.
    pub tun_name: String,
    /// MTU of the TUN device in bytes.
    pub tun_mtu: u32,
    /// Local UDP port of tunnel packets (both ends use one).
    pub port: u16,
    /// Which end this is.
    pub role: Role,
    /// Most paths at a time; slots are below it.
    pub max_paths: u32,
    /// Most flow bindings at a time; the least recently used is evicted.
    pub max_flows: u32,
    /// Firewall mark that outer packets carry, so that the host's routing rules let them pass.
    pub mark: u32,
}

/// Which implementation carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// eBPF at TC, possibly with decapsulation in XDP.
    Ebpf {
        /// XDP decapsulates on at least one attached interface.
        xdp: bool,
    },
    /// TUN descriptor and UDP sockets.
    User,
}

/// Where an anchor's hosts may begin flows to. Answers to flows that others began always pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Inner addresses of hosts, including unassigned ones.
    pub hosts: bool,
    /// The anchor's own inner addresses.
    pub anchor: Services,
    /// Everything else, as the anchor's system routes it; its other addresses are part of that.
    pub routed: bool,
}

impl Reach {
    /// No limit.
    pub(crate) const EVERYTHING: Reach = Reach { hosts: true, anchor: Services::All, routed: true };

    /// Whether a host may begin a flow of this protocol to an address. `owner` owns it, if it has an owner; `of_pool`
    /// says whether an address without one lies in a pool.
    #[must_use]
    pub fn allows(&self, owner: Option<u32>, of_pool: bool, protocol: u8) -> bool {
        const ICMP: [u8; 2] = [1, 58];
        match owner {
            None if of_pool => self.hosts,
            None => self.routed,
            Some(0) => match self.anchor {
                Services::Nothing => false,
                Services::Ping => ICMP.contains(&protocol),
                Services::All => true,
            },
            Some(_) => self.hosts,
        }
    }
}

/// What of the anchor's own services hosts may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Services {
    /// None.
    Nothing,
    /// ICMP and ICMPv6.
    Ping,
    /// All.
    All,
}

/// Flows that one inner address of an anchor's host may begin at once: a sixteenth of the table of an anchor's
/// daemon. Further ones are refused: one host must not push the others' flows out of it.
pub const FLOWS_AT_ONCE: u32 = 65_536;
/// From one flow to the next after that.
pub const FLOW_PACE: Span = Span(1_000_000_000 / 1_024);

/// Time between the stamps of both ends and the wire that no stamp shows: the way through drivers and, in user space,
/// the far end's sending system call, plus the rounding of four stamps to microseconds. Nine tenths of what was
/// measured against stamps at both edges of a wire stay below a third of it (docs/measured.md, "Error of round-trip
/// times").
pub const STAMP_TO_WIRE: Span = Span::from_micros(100);

/// One flow binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// The flow, as its packets leave this end.
    pub key: FlowKey,
    /// The path it is bound to.
    pub slot: u32,
    /// Packets sent, on whatever path.
    pub packets: u64,
    /// Inner bytes of these.
    pub bytes: u64,
    /// Packets of the other direction, over whatever path.
    pub received_packets: u64,
    /// Inner bytes of these.
    pub received_bytes: u64,
    /// When a packet was last sent or learned from.
    pub last_seen: Time,
}

/// Most bindings in a page, and most examined for one: a page takes a millisecond or two.
pub(crate) const FLOWS_A_PAGE: usize = 512;

/// Where a page of bindings begins; the default is the beginning of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCursor(pub u64);

/// Some of a datapath's bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPage {
    /// The bindings.
    pub flows: Vec<FlowEntry>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<FlowCursor>,
}

/// A packet without a binding, as it came from the TUN device. Only its flow is visible.
#[derive(Debug)]
pub struct MissPacket {
    /// Its flow.
    pub key: FlowKey,
    /// Its differentiated services code point.
    pub dscp: u8,
    /// The packet with its virtio network header, as read from the TUN device.
    pub(crate) bytes: Vec<u8>,
}

impl Missed for MissPacket {
    fn key(&self) -> FlowKey {
        self.key
    }

    fn dscp(&self) -> u8 {
        self.dscp
    }
}

/// What the datapath reports.
pub type DatapathEvent = datapath::DatapathEvent<MissPacket>;

/// Takes the datapath's events; called from its threads, must not block.
pub type EventSink = Arc<dyn Fn(DatapathEvent) + Send + Sync>;
