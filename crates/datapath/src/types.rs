//! The words of the [`crate::Datapath`] trait.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_keepalive::Probing;
use segue_wire::{FlowKey, Probe, ProbeKey};

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
    /// Most flow bindings at a time; the least recently used gives way.
    pub max_flows: u32,
    /// Firewall mark that outer packets carry, so that the host's routing rules let them pass.
    pub mark: u32,
}

/// Which end of its paths a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The mobile host: sends requests, accepts inner packets *to* its own addresses.
    Host,
    /// The anchor: answers requests, accepts inner packets *from* the path's host, learns endpoints
    /// and return paths.
    Anchor,
}

/// Which implementation carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// eBPF at TC, with decapsulation in XDP on at least one interface or not.
    Ebpf {
        /// XDP decapsulates on at least one attached interface.
        xdp: bool,
    },
    /// TUN descriptor and UDP sockets.
    User,
}

/// One path, as this end uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Index that the other end wants to see.
    pub tx_index: u32,
    /// Cookie that the other end wants to see.
    pub tx_cookie: u64,
    /// Cookie that this end wants to see.
    pub rx_cookie: u64,
    /// Key of the path's probes.
    pub key: ProbeKey,
    /// Outer source; `None` at an anchor until learned.
    pub local: Option<SocketAddr>,
    /// Outer destination; `None` at an anchor until a valid probe request shows it.
    pub remote: Option<SocketAddr>,
    /// Interface to send on; 0 at an anchor until learned.
    pub ifindex: u32,
    /// Next hop, of the outer family; `None` leaves it to the kernel's routes.
    pub gateway: Option<IpAddr>,
    /// The host that the path belongs to (anchor); 0 at the host.
    pub owner: u32,
    /// How it is probed.
    pub probing: Probing,
}

/// To whom an inner address belongs: at an anchor the host that may send from it, or the anchor itself
/// (owner 0); at a host itself (owner 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerEntry {
    /// The owner, as in [`PathConfig::owner`].
    pub owner: u32,
}

/// What an anchor's hosts may begin flows to. Answers to what others began pass in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Inner addresses of hosts, those included that nobody has at the moment.
    pub hosts: bool,
    /// The anchor's own inner addresses.
    pub anchor: Services,
    /// Everything else, as the anchor's system routes it; its other addresses are part of that.
    pub routed: bool,
}

impl Reach {
    /// No limit.
    pub const EVERYTHING: Reach = Reach { hosts: true, anchor: Services::All, routed: true };

    /// Whether a host may begin a flow of this protocol to an address that belongs to `owner`, or to nobody and
    /// is `of_pool` or not.
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

/// Where packets of a path go instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The path to use.
    pub slot: u32,
    /// Mark the packets `DATA_ONE_WAY`: only this direction moved, the other end must not learn.
    pub one_way: bool,
}

/// What left on a path that follows its use, to be sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reinjection {
    /// The path on which it left.
    pub slot: u32,
    /// The path to use, of the same owner.
    pub over: u32,
    /// What left after this, as far as there are copies ([`segue_keepalive::Copies`]).
    pub since: Time,
}

/// Packets and bytes (outer IP packet lengths not included: inner bytes) of a path. Packet counters
/// count probes too, but for questions and their answers, wrap at 2³² and are what probes carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Packets sent (Sc at the host, Ss at the anchor).
    pub tx_packets: u32,
    /// Packets received (Rc at the host, Rs at the anchor).
    pub rx_packets: u32,
    /// Inner bytes sent.
    pub tx_bytes: u64,
    /// Inner bytes received.
    pub rx_bytes: u64,
    /// The remote end, learned or configured.
    pub remote: Option<SocketAddr>,
}

/// One flow binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// The flow, as its packets leave this end.
    pub key: FlowKey,
    /// The path it is bound to.
    pub slot: u32,
    /// Packets sent since it was bound.
    pub packets: u64,
    /// Inner bytes sent since it was bound.
    pub bytes: u64,
    /// When a packet was last sent or learned from.
    pub last_seen: Time,
}

/// Most bindings in a page of them, and most that are looked at for one: a page takes a millisecond or two.
pub const FLOWS_A_PAGE: usize = 512;

/// Flows that may begin from one inner address of an anchor's host at once: a sixteenth of the table of an
/// anchor's daemon. Further ones are refused, since one host must not push the others' flows out of it.
pub const FLOWS_AT_ONCE: u32 = 65_536;
/// From one flow to the next after that.
pub const FLOW_PACE: Span = Span(1_000_000_000 / 1_024);

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

/// A probe to send. The datapath fills the stamps and counters of the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOrder {
    /// The path.
    pub slot: u32,
    /// [`ProbeKind::Request`] (host) or [`ProbeKind::Unsolicited`] (anchor).
    pub kind: ProbeKind,
    /// Goes into the header.
    pub k: u8,
    /// All fields that are not the datapath's. Request: it fills `t_sc`, `sc` and
    /// `dt = t_sc − held_since`; on a path with rides it numbers requests, and fills the echoes, too.
    /// Unsolicited: `t_ss`, `ss`, `r` and `dt = t_ss − held_since`.
    pub probe: Probe,
    /// Request: t_Rc of the last response. Unsolicited: t_Rs of the last request. Microseconds
    /// modulo 2³².
    pub held_since: u32,
    /// A request that reports the host's averages: its flag REPORT.
    pub report: bool,
    /// A request that neither end counts as a packet, nor the response to it: its flag QUESTION. It leaves alone.
    pub question: bool,
    /// Age that a request's header states ([`segue_wire::age`]).
    pub age: u8,
}

/// Which kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Host to anchor.
    Request,
    /// The answer to a request. Sent by the datapath itself, never ordered.
    Response,
    /// A response that no request asked for.
    Unsolicited,
}

/// A valid probe that arrived: authenticated, with a cookie that fits, and (request) newer than any
/// before it on its path, so that it may count for liveness. At an anchor the datapath has answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// The path.
    pub slot: u32,
    /// What it is.
    pub kind: ProbeKind,
    /// K from its header.
    pub k: u8,
    /// A request that reports the host's averages (flag REPORT).
    pub report: bool,
    /// Age that the header of a request states ([`segue_wire::age`]); 0 of others, and of one that rode.
    pub age: u8,
    /// Its fields.
    pub probe: Probe,
    /// When it arrived, monotonic clock; kernel stamp if `kernel_stamp`.
    pub at: Time,
    /// This end's receive counter at that moment, the probe included unless it is a question or answers one.
    pub received: u32,
    /// Outer source.
    pub remote: SocketAddr,
    /// `at` was taken by the kernel on arrival.
    pub kernel_stamp: bool,
    /// A response only: when its request really left, where the kernel told (user-space path);
    /// `None` where `t_sc` was stamped by the kernel itself.
    pub sent_at: Option<Time>,
    /// How far the round-trip time that it shows may be off, by what is known of the stamps used; see
    /// [`STAMP_TO_WIRE`].
    pub uncertainty: Span,
}

/// What lies between the stamps of both ends and the wire, and no stamp tells: the way through drivers
/// and, in user space, the far end's system call that sends; with the rounding of four stamps to
/// microseconds. Nine tenths of what was measured against stamps at both edges of a wire stay below a third
/// of it (docs/measured.md, "Error of round-trip times").
pub const STAMP_TO_WIRE: Span = Span::from_micros(100);

/// A packet without a binding, as it came from the TUN device. Opaque but for its flow.
#[derive(Debug)]
pub struct MissPacket {
    /// Its flow.
    pub key: FlowKey,
    /// Its differentiated services code point.
    pub dscp: u8,
    /// The packet with its virtio network header, as read from the TUN device.
    pub(crate) bytes: Vec<u8>,
}

/// What the datapath reports.
#[derive(Debug)]
pub enum Event {
    /// A probe arrived.
    Probe(ProbeEvent),
    /// A packet has no binding. At most one event for a flow until it is injected or 100 ms have passed; the
    /// datapath keeps up to 64 further packets of that flow and sends them with it.
    Miss(MissPacket),
    /// A [reading] of the path in this slot is due: data follow a silence where the path
    /// [asks for that](segue_keepalive::Probing::follows_use), or requests have ceased to ride, or responses to come, and
    /// [`watched`] has come.
    ///
    /// [reading]: crate::Datapath::reading
    /// [`watched`]: segue_keepalive::Reading::watched
    Look(u32),
    /// Several packets came in one piece on the path in this slot, which no device had cut, and were refused
    /// ([`segue_wire::DropReason::Uncut`]). Not every one is told.
    Uncut(u32),
    /// A test of the packet size on the path in this slot has been answered (host): its token.
    Size(u32, u32),
}

/// Takes the datapath's events; called from its threads, must not block.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;
