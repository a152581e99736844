//! Types of a daemon's datapath in addition to those common to every datapath.

use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_tunnel::datapath::{self, Missed, Role};
use segue_wire::FlowKey;

/// Settings of a datapath.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the TUN device, `segue0` by default. Must begin with `segue`.
    pub tun_name: String,
    /// MTU of the TUN device in bytes.
    pub tun_mtu: u32,
    /// Local UDP port of tunnel packets (the same at both ends).
    pub port: u16,
    /// The end of the tunnel.
    pub role: Role,
    /// Most paths at a time; slot numbers are smaller.
    pub max_paths: u32,
    /// Most flow bindings at a time; beyond that the least recently used is evicted.
    pub max_flows: u32,
    /// Firewall mark of outer packets, by which the host's routing rules let them pass.
    pub mark: u32,
}

/// The implementation that carries packets.
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

/// Destinations to which an anchor's hosts may begin flows. Replies to flows that others began always pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Inner addresses of hosts, including unassigned ones.
    pub hosts: bool,
    /// The anchor's own inner addresses.
    pub anchor: Services,
    /// All other destinations, as routed by the anchor's system; includes the anchor's other addresses.
    pub routed: bool,
}

impl Reach {
    /// No limit.
    pub(crate) const EVERYTHING: Reach = Reach { hosts: true, anchor: Services::All, routed: true };

    /// True if a host may begin a flow of this protocol to an address. `owner` is the owner of the address, if any;
    /// `of_pool` says whether an address without an owner lies in a pool.
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

/// The anchor's own services that hosts may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Services {
    /// None.
    Nothing,
    /// ICMP and ICMPv6.
    Ping,
    /// All.
    All,
}

/// Burst of flows that one inner address of an anchor's host may begin: a sixteenth of the table of an anchor's
/// daemon. Further flows are refused, so that one host cannot push out the flows of others.
pub const FLOWS_AT_ONCE: u32 = 65_536;
/// Interval of further flows after the burst.
pub const FLOW_PACE: Span = Span(1_000_000_000 / 1_024);

/// Time between the stamps of both ends and the wire that no stamp includes: the passage through drivers and, in user
/// space, the far end's send system call, plus rounding of four stamps to microseconds. In measurements with stamps
/// at both edges of a wire, nine tenths of the errors are below a third of this value (docs/measured.md, "Error of
/// round-trip times").
pub const STAMP_TO_WIRE: Span = Span::from_micros(100);

/// One flow binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// The flow, as its packets leave this end.
    pub key: FlowKey,
    /// The path it is bound to.
    pub slot: u32,
    /// Packets sent, over any path.
    pub packets: u64,
    /// Inner bytes of these packets.
    pub bytes: u64,
    /// Packets received in the other direction, over any path.
    pub received_packets: u64,
    /// Inner bytes of these packets.
    pub received_bytes: u64,
    /// When a packet was last sent, or last received if the binding was learned from it.
    pub last_seen: Time,
}

/// Most bindings in a page, and most examined for one: reading a page takes a millisecond or two.
pub(crate) const FLOWS_A_PAGE: usize = 512;

/// The start of a page of bindings; the default is the first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCursor(pub u64);

/// A page of a datapath's bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPage {
    /// The bindings.
    pub flows: Vec<FlowEntry>,
    /// The start of the next page; `None` after the last.
    pub next: Option<FlowCursor>,
}

/// A packet without a binding, as it came from the TUN device. Only its flow and DSCP are accessible.
#[derive(Debug)]
pub struct MissPacket {
    /// The packet's flow.
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

/// Events that the datapath reports.
pub type DatapathEvent = datapath::DatapathEvent<MissPacket>;

/// Receives the datapath's events. It is called from the datapath's threads and must not block.
pub type EventSink = Arc<dyn Fn(DatapathEvent) + Send + Sync>;
