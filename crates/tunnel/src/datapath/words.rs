//! What the packet path and the machines say to each other of paths, probes and flows.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Probing};
use segue_wire::{FlowKey, Probe, ProbeKey, Size};

/// Which end of its paths a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The mobile host: sends requests, accepts inner packets *to* its own addresses.
    Host,
    /// The anchor: answers requests, accepts inner packets *from* the path's host, learns endpoints
    /// and return paths.
    Anchor,
}

/// One path, as this end uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSetup {
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

impl PathCounters {
    /// The counters that the machines use.
    #[must_use]
    pub fn carried(&self) -> Carried {
        let PathCounters { tx_packets, rx_packets, tx_bytes, rx_bytes, .. } = *self;
        Carried { bytes: [tx_bytes, rx_bytes], packets: [tx_packets, rx_packets] }
    }
}

/// What a path has carried of data, at this end: up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of inner packets.
    pub bytes: [u64; 2],
    /// Packets, probes included, modulo 2³².
    pub packets: [u32; 2],
}

/// What an end has counted of a flow since it was bound to its path. Packets of a super-packet count one by one. Counters
/// of packets wrap at 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// The path that it is bound to.
    pub slot: u32,
    /// Packets sent on that path.
    pub sent: u32,
    /// Packets of the other direction that came over that path.
    pub received: u32,
    /// Mean length of the packets sent, in bytes, on whatever path.
    pub length: u32,
}

/// Names a packet that the driver keeps until the machine says what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A probe to send. The datapath fills the stamps and counters of the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOrder {
    /// The path.
    pub slot: u32,
    /// [`ProbeKind::Request`] (host) or [`ProbeKind::Unsolicited`] (anchor).
    pub kind: ProbeKind,
    /// Goes into the header.
    pub k: u8,
    /// All fields that the datapath does not fill. Request: it fills `t_sc`, `sc` and `dt = t_sc − held_since`; on a
    /// path with rides it numbers requests, and fills the echoes, too. Unsolicited: `t_ss`, `ss`, `r` and `dt = t_ss −
    /// held_since`.
    pub probe: Probe,
    /// Request: t_Rc of the last response. Unsolicited: t_Rs of the last request. Microseconds
    /// modulo 2³².
    pub held_since: u32,
    /// A request that reports the host's averages: its flag REPORT.
    pub report: bool,
    /// A request that neither end counts as a packet, nor its response: its flag QUESTION. It never rides.
    pub question: bool,
    /// Age that a request's header states ([`segue_wire::age`]).
    pub age: u8,
}

impl ProbeOrder {
    /// A probe that echoes no stamp, states no age, and is neither a report nor a question.
    #[must_use]
    pub const fn plain(slot: u32, kind: ProbeKind, k: u8, probe: Probe) -> ProbeOrder {
        ProbeOrder { slot, kind, k, probe, held_since: 0, report: false, question: false, age: 0 }
    }
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
    /// Its fields, stamp and counter.
    pub arrival: Arrival,
    /// Outer source.
    pub remote: SocketAddr,
    /// The kernel stamped the arrival; else this process, when it came to it.
    pub kernel_stamp: bool,
}

/// An order of a machine to its packet path. A [`crate::End`] carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Set a path up or change it.
    SetPath(u32, PathSetup),
    /// Take a path down.
    RemovePath(u32),
    /// Send what is bound to a path over another one.
    SetVia(u32, Option<Via>),
    /// Whether to keep probes that say nothing new from the machine.
    SetQuiet(u32, bool),
    /// A path was declared down after this silence, or is up: for a packet path that measures.
    SetDown(u32, Option<Span>),
    /// Whether the host says that it does not hear a path: for a packet path that measures (anchor).
    SetDeaf(u32, bool),
    /// The `heard` word of these paths' answers (anchor), or of their requests that ride (host).
    SetHeard(Vec<u32>, u16),
    /// An inner address belongs to a host (anchor).
    SetInner(IpAddr, u32),
    /// No host has an inner address any more (anchor).
    RemoveInner(IpAddr),
    /// Send one by one on a path.
    SetOneByOne(u32),
    /// Send a second time what the packet path has kept.
    Reinject(Reinjection),
    /// Send a probe.
    SendProbe(ProbeOrder),
    /// Send a test of a path's packet size with this code point (host).
    TestSize(u32, Size, u8),
    /// Bind a flow to a path.
    Bind(FlowKey, u32),
    /// Forget a binding (host).
    Unbind(FlowKey),
    /// Count the packets of these flows. What comes back repeats the number.
    CountFlows(u32, Vec<FlowKey>),
    /// Send a held packet.
    Inject(Ticket),
    /// Drop a held packet.
    Discard(Ticket),
}
