//! Types that the packet path and the machines exchange: paths, probes and flows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Probing};
use segue_wire::{FlowKey, Probe, ProbeKey, Size};

/// The role of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The mobile host: sends requests, accepts inner packets *to* its own addresses.
    Host,
    /// The anchor: answers requests, accepts inner packets *from* the path's host, learns endpoints
    /// and return paths.
    Anchor,
}

/// The setup of one path at this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSetup {
    /// Index that the peer expects.
    pub tx_index: u32,
    /// Cookie that the peer expects.
    pub tx_cookie: u64,
    /// Cookie that this end expects.
    pub rx_cookie: u64,
    /// Key of the path's probes.
    pub key: ProbeKey,
    /// Outer source; `None` at an anchor until learned.
    pub local: Option<SocketAddr>,
    /// Outer destination; `None` at an anchor until a valid probe request reveals it.
    pub remote: Option<SocketAddr>,
    /// Interface to send on; 0 at an anchor until learned.
    pub ifindex: u32,
    /// Next hop, of the outer family; `None` leaves it to the kernel's routes.
    pub gateway: Option<IpAddr>,
    /// Number of the host that owns the path (anchor); 0 at the host.
    pub owner: u32,
    /// Probing settings.
    pub probing: Probing,
}

/// The redirection of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The path to use.
    pub slot: u32,
    /// Mark the packets `DATA_ONE_WAY`: only this direction moved, and the peer must not learn from them.
    pub one_way: bool,
}

/// An order to send packets again that left on a path that follows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reinjection {
    /// The path on which they left.
    pub slot: u32,
    /// The path to use, of the same owner.
    pub over: u32,
    /// Only packets that left after this instant, as far as copies exist ([`segue_keepalive::Copies`]).
    pub since: Time,
}

/// Packet and byte counters of a path. Bytes are those of inner packets, without outer headers. Packet counters include
/// probes, except questions and their answers; they wrap at 2³² and are the counters that probes carry.
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

impl PathCounters {
    /// The subset that the machines use.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let PathCounters { tx_packets, rx_packets, tx_bytes, rx_bytes, .. } = *self;
        Carried { bytes: [tx_bytes, rx_bytes], packets: [tx_packets, rx_packets] }
    }
}

/// Data carried by a path at this end: up, then down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of inner packets.
    pub bytes: [u64; 2],
    /// Packets, probes included, modulo 2³².
    pub packets: [u32; 2],
}

/// Counts of a flow at one end since it was bound to its path. Each packet of a super-packet counts. Packet counters
/// wrap at 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// The slot of the path that it is bound to.
    pub slot: u32,
    /// Packets sent on that path.
    pub sent: u32,
    /// Packets of the opposite direction that arrived on that path.
    pub received: u32,
    /// Mean length of the packets sent on any path, in bytes.
    pub length: u32,
}

/// Names a packet that the driver holds until the machine decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A probe to send. The datapath fills the stamps and counters of the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOrder {
    /// The path.
    pub slot: u32,
    /// [`ProbeKind::Request`] (host) or [`ProbeKind::Unsolicited`] (anchor).
    pub kind: ProbeKind,
    /// K, for the header.
    pub k: u8,
    /// All fields that the datapath does not fill. Request: the datapath fills `t_sc`, `sc` and `dt = t_sc −
    /// held_since`; on a path with rides it also numbers requests and fills the echoes. Unsolicited: it fills `t_ss`,
    /// `ss`, `r` and `dt = t_ss − held_since`.
    pub probe: Probe,
    /// Request: t_Rc of the last response. Unsolicited: t_Rs of the last request. In microseconds modulo 2³².
    pub held_since: u32,
    /// True if this request reports the host's averages (flag REPORT).
    pub report: bool,
    /// True if this request is a question (flag QUESTION): neither end counts it or its response as a packet, and it
    /// never rides.
    pub question: bool,
    /// The age in a request's header ([`segue_wire::age`]).
    pub age: u8,
}

impl ProbeOrder {
    /// A probe that echoes no stamp, states no age, and is neither a report nor a question.
    #[must_use]
    pub const fn plain(slot: u32, kind: ProbeKind, k: u8, probe: Probe) -> ProbeOrder {
        ProbeOrder { slot, kind, k, probe, held_since: 0, report: false, question: false, age: 0 }
    }
}

/// Kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Host to anchor.
    Request,
    /// The answer to a request. Sent by the datapath itself, never ordered.
    Response,
    /// A response that no request asked for.
    Unsolicited,
}

/// A valid probe that arrived: authenticated, with a matching cookie, and (request) newer than any before it on its
/// path, so that it may count for liveness. The anchor's datapath has already answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEvent {
    /// The path.
    pub slot: u32,
    /// Its kind.
    pub kind: ProbeKind,
    /// K from its header.
    pub k: u8,
    /// True if this request reports the host's averages (flag REPORT).
    pub report: bool,
    /// The age in a request's header ([`segue_wire::age`]); 0 for other probes and for one that rode.
    pub age: u8,
    /// Its fields, arrival time and receive counter.
    pub arrival: Arrival,
    /// Outer source.
    pub remote: SocketAddr,
    /// True if the kernel stamped the arrival; otherwise this process did when it read the packet.
    pub kernel_stamp: bool,
}

/// A machine's order to its packet path, carried out by [`crate::End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Set up or change a path.
    SetPath(u32, Box<PathSetup>),
    /// Remove a path.
    RemovePath(u32),
    /// Redirect a path, or end the redirection.
    SetVia(u32, Option<Via>),
    /// Keep probes without news from the machine, or report each one again.
    SetQuiet(u32, bool),
    /// A path was declared down after this silence, or is up: for a packet path that measures.
    SetDown(u32, Option<Span>),
    /// The host reports a path as unheard, or as heard again: for a packet path that measures (anchor).
    SetDeaf(u32, bool),
    /// The `heard` word of these paths' answers (anchor) or of their requests that ride (host).
    SetHeard(Vec<u32>, u16),
    /// Set the owner of an inner address.
    SetInner(IpAddr, u32),
    /// Remove an inner address.
    RemoveInner(IpAddr),
    /// Send one by one on a path.
    SetOneByOne(u32),
    /// Send the packet path's copies again.
    Reinject(Reinjection),
    /// Send a probe.
    SendProbe(ProbeOrder),
    /// Send a test of a path's packet size with this code point (host).
    TestSize(u32, Size, u8),
    /// Bind a flow to a path.
    Bind(FlowKey, u32),
    /// Remove a binding (host).
    Unbind(FlowKey),
    /// Count the packets of these flows. The answer repeats the number.
    CountFlows(u32, Vec<FlowKey>),
    /// Send a held packet.
    Inject(Ticket),
    /// Drop a held packet.
    Discard(Ticket),
}
