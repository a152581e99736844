//! What the machines take and give.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Probing, Reading, State};
use segue_steering::Class;
use segue_wire::signal::{FromAnchor, FromHost, Refusal, WaysOut};
use segue_wire::{FlowKey, Probe, ProbeKey, Size, TooBig};

use crate::Known;

/// An interface of the host that can carry a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its addresses of global scope.
    pub addresses: Vec<IpAddr>,
    /// Its gateways, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u32,
}

/// What a path has carried of data, at this end: up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of inner packets.
    pub bytes: [u64; 2],
    /// Packets, probes included, modulo 2³².
    pub packets: [u32; 2],
}

/// A path as the datapath shall have it. See `segue-datapath`'s type of the same fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSetup {
    /// Index that the other end wants to see.
    pub tx_index: u32,
    /// Cookie that the other end wants to see.
    pub tx_cookie: u64,
    /// Cookie that this end wants to see.
    pub rx_cookie: u64,
    /// Key of the probes.
    pub key: ProbeKey,
    /// Outer source; `None` until learned (anchor).
    pub local: Option<SocketAddr>,
    /// Outer destination; `None` until learned (anchor).
    pub remote: Option<SocketAddr>,
    /// Interface to send on; 0 until learned (anchor).
    pub ifindex: u32,
    /// Next hop; `None` leaves it to the routes.
    pub gateway: Option<IpAddr>,
    /// The host it belongs to (anchor); 0 at the host.
    pub owner: u32,
    /// How it is probed.
    pub probing: Probing,
}

/// Where packets bound to a path go instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The slot to use.
    pub slot: u32,
    /// Only this direction moved; the other end must not learn from it.
    pub one_way: bool,
}

/// Kind of an arriving probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Host to anchor.
    Request,
    /// Answer to a request.
    Response,
    /// Response without a request.
    Unsolicited,
}

/// An authenticated probe that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ProbeIn {
    /// The path's slot at this end.
    pub slot: u32,
    /// What it is.
    pub kind: ProbeKind,
    /// K from its header.
    pub k: u8,
    /// It is a request that reports the host's averages (flag REPORT).
    pub report: bool,
    /// Of a request: before how long, at most, the host heard another of its paths, which is in doubt
    /// ([`segue_wire::age`]); 0 while none is.
    pub age: u8,
    /// Its fields, stamp and counter.
    pub arrival: Arrival,
}

/// A probe to send: a request (host) or an unsolicited response (anchor). The datapath fills stamps
/// and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOut {
    /// The path's slot at this end.
    pub slot: u32,
    /// K for its header.
    pub k: u8,
    /// The fields that are not the datapath's.
    pub probe: Probe,
    /// t_Rc (request) or t_Rs (unsolicited) in microseconds modulo 2³².
    pub held_since: u32,
    /// A request that reports the host's averages: its flag REPORT.
    pub report: bool,
    /// A request that neither end counts as a packet: its flag QUESTION.
    pub question: bool,
    /// As [`ProbeIn::age`].
    pub age: u8,
}

/// What left on a path of which nothing shows that it arrived is to be sent a second time, over another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reinjection {
    /// The path in doubt.
    pub slot: u32,
    /// The path to use.
    pub over: u32,
    /// What left after this.
    pub since: Time,
}

/// Names a packet that the driver keeps until the machine says what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Names a signalling connection at the anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What happens to a host.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made one at a time; a box would cost more than it saves"
)]
pub enum HostInput {
    /// The deadline has come.
    Tick,
    /// The interfaces that can carry paths, all of them, best first.
    Interfaces(Vec<Interface>),
    /// Signalling stands, over the named interface.
    SignalUp {
        /// Interface that carried the handshake.
        interface: String,
        /// The anchor's address that answered, with the tunnel port.
        anchor: SocketAddr,
    },
    /// Signalling broke.
    SignalDown,
    /// A message of the anchor.
    Signal(FromAnchor),
    /// A probe arrived.
    Probe(ProbeIn),
    /// What the datapath measured by itself on the path in this slot. Before a tick, for each path in
    /// [`crate::Host::due`].
    Reading(u32, Reading),
    /// What the path in this slot has carried. With each reading.
    Carried(u32, Carried),
    /// A test of the packet size of the path in this slot was answered: its token.
    Sized(u32, u32),
    /// Several packets came in one piece on the path in this slot, and cannot be taken.
    Uncut(u32),
    /// A router says that a packet was too big, and quotes it.
    TooBig(TooBig),
    /// The anchor's addresses, best first, with the port of its tunnels: its name leads elsewhere now.
    Anchor(Vec<SocketAddr>),
    /// A flow has no binding; the driver holds its packet.
    Miss {
        /// The flow.
        key: FlowKey,
        /// Its code point.
        dscp: u8,
        /// The packet held.
        ticket: Ticket,
    },
    /// Which flows were seen when, from the datapath's table.
    Flows {
        /// Some of them.
        seen: Vec<(FlowKey, Time)>,
        /// The last ones: flows that are idle are forgotten.
        last: bool,
    },
    /// An order of the operator: move one flow, a class or everything to an interface, or leave it
    /// to the steering again.
    Handover {
        /// One flow; `None` for a class or all.
        flow: Option<FlowKey>,
        /// A class; `None` for all, if no flow is given.
        class: Option<Class>,
        /// The interface; `None` to end an earlier order.
        to: Option<String>,
    },
    /// An order of the operator: probe a path or not.
    Keepalive {
        /// The path.
        path: String,
        /// Whether requests are sent.
        on: bool,
    },
    /// The daemon ends.
    Stop,
}

/// What a host wants done or known.
#[derive(Clone, Debug)]
pub enum HostOutput {
    /// Set signalling up over any of these interfaces, in this order of preference, at once.
    Connect {
        /// Interfaces by name.
        interfaces: Vec<String>,
    },
    /// Move the signalling connection to another interface.
    MoveSignal {
        /// Its name.
        interface: String,
    },
    /// Send a message to the anchor.
    Signal(FromHost),
    /// The inner addresses are these.
    Addresses {
        /// The host's own.
        inner: Vec<IpAddr>,
        /// The anchor's.
        anchor: Vec<IpAddr>,
    },
    /// Set a path up or change it.
    SetPath(u32, PathSetup),
    /// Take a path down.
    RemovePath(u32),
    /// Send what is bound to a path over another one.
    SetVia(u32, Option<Redirect>),
    /// Whether the datapath keeps probes that say nothing new to itself.
    SetQuiet(u32, bool),
    /// A path was declared down after so long a silence, or is up: for a datapath that measures.
    SetDown(u32, Option<Span>),
    /// Send one by one on a path.
    SetOneByOne(u32),
    /// Send a second time what the datapath has kept.
    Reinject(Reinjection),
    /// Send a request.
    SendProbe(ProbeOut),
    /// Send a test of the packet size of the path in this slot.
    TestSize(u32, Size),
    /// The largest inner packet that is to enter the tunnel, in bytes.
    SetMtu(u16),
    /// Bind a flow to a path.
    Bind(FlowKey, u32),
    /// Forget a binding.
    Unbind(FlowKey),
    /// Send a held packet.
    Inject(Ticket),
    /// Drop a held packet.
    Discard(Ticket),
    /// Something to tell.
    Report(Report),
}

/// Why a host's registration ends by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its enrolment ended: its epoch is forgotten, and its addresses rest before another host gets them.
    Removed,
    /// It is to be enrolled anew: its epoch is forgotten, its addresses stay its own.
    Replaced,
    /// Its certificate expired: epoch and addresses stay its own.
    Expired,
}

/// What happens to an anchor.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made one at a time; a box would cost more than it saves"
)]
pub enum AnchorInput {
    /// The deadline has come.
    Tick,
    /// A host has a connection; its name is authenticated.
    Connected {
        /// The connection.
        conn: ConnId,
        /// The enrolled name.
        host: String,
    },
    /// A message of a host.
    Signal {
        /// The connection.
        conn: ConnId,
        /// The message.
        message: FromHost,
    },
    /// A connection ended or is of no use.
    Disconnected {
        /// The connection.
        conn: ConnId,
    },
    /// A host's registration ends by order.
    End {
        /// Its name.
        host: String,
        /// Why.
        why: Ending,
    },
    /// A probe arrived (a request has been answered).
    Probe(ProbeIn),
    /// What the datapath measured by itself on the path in this slot. Before a tick, for each path in
    /// [`crate::Anchor::due`].
    Reading(u32, Reading),
    /// Several packets came in one piece on the path in this slot, and cannot be taken.
    Uncut(u32),
    /// A flow has no binding; the driver holds its packet.
    Miss {
        /// The flow.
        key: FlowKey,
        /// The packet held.
        ticket: Ticket,
    },
    /// The families for which there is a default route, at the start and after each change.
    WaysOut(WaysOut),
    /// A router says that a packet was too big, and quotes it.
    TooBig(TooBig),
}

/// What an anchor wants done or known.
#[derive(Clone, Debug)]
pub enum AnchorOutput {
    /// Send a message.
    Signal(ConnId, FromAnchor),
    /// End a connection after what was sent.
    Close(ConnId),
    /// Set a path up or change it.
    SetPath(u32, PathSetup),
    /// Take a path down.
    RemovePath(u32),
    /// Send what is bound to a path over another one.
    SetVia(u32, Option<Redirect>),
    /// Whether the datapath keeps probes that say nothing new to itself.
    SetQuiet(u32, bool),
    /// A path was declared down after so long a silence, or is up: for a datapath that measures.
    SetDown(u32, Option<Span>),
    /// Whether the host says that it does not hear a path: for a datapath that measures.
    SetDeaf(u32, bool),
    /// The `heard` word of these paths' answers.
    SetHeard(Vec<u32>, u16),
    /// An inner address belongs to a host.
    SetInner(IpAddr, u32),
    /// The largest inner packet that is to be sent to an inner address, in bytes.
    SetMtu(IpAddr, u16),
    /// An inner address belongs to nobody.
    RemoveInner(IpAddr),
    /// Send one by one on a path.
    SetOneByOne(u32),
    /// Send a second time what the datapath has kept.
    Reinject(Reinjection),
    /// Send an unsolicited response.
    SendProbe(ProbeOut),
    /// Bind a flow to a path.
    Bind(FlowKey, u32),
    /// Send a held packet.
    Inject(Ticket),
    /// Drop a held packet: its destination belongs to no reachable host.
    Discard(Ticket),
    /// Write this down before anything said after it is sent.
    Persist(Known),
    /// Something to tell.
    Report(Report),
}

/// Why flows moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Neither direction of the old path lives.
    Down,
    /// The old path's uplink is dead.
    UplinkDown,
    /// The old path's downlink is dead.
    DownlinkDown,
    /// Another path is better.
    Better,
    /// The operator said so.
    Requested,
    /// The interface is gone.
    InterfaceGone,
}

impl Cause {
    /// The name used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Down => "down",
            Cause::UplinkDown => "uplink_down",
            Cause::DownlinkDown => "downlink_down",
            Cause::Better => "better",
            Cause::Requested => "requested",
            Cause::InterfaceGone => "interface_gone",
        }
    }
}

/// Something a person, a log or a report wants to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The registration stands (host) or a host registered (anchor).
    Registered {
        /// The host's name; empty at the host itself.
        host: String,
        /// Its inner addresses.
        inner: Vec<IpAddr>,
    },
    /// The anchor refused.
    Refused {
        /// The host's name; empty at the host itself.
        host: String,
        /// Why.
        reason: Refusal,
    },
    /// A host is gone (anchor).
    Gone {
        /// Its name.
        host: String,
    },
    /// A path was set up.
    PathAdded {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
    },
    /// A path was taken down.
    PathRemoved {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
    },
    /// A path's state changed: at the host the round trip, at the anchor the uplink.
    PathState {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
        /// The new state.
        state: State,
        /// At the host whether the downlink is heard, at the anchor whether it goes over this path
        /// (is not redirected).
        heard: bool,
        /// Time since the last sign of life, for a path that went down.
        silent: Option<Span>,
        /// T_Rmax of eq. 1 with the path's K, T_KA and largest RTT.
        bound: Span,
    },
    /// Something was due on a path and did not come (host): questions are under way. Not every doubt is told.
    PathDoubt {
        /// The host's name; empty at the host itself.
        host: String,
        /// The path's name.
        path: String,
    },
    /// A path takes other sizes than was known (host): the largest IP packet of each direction, in bytes.
    PathMtu {
        /// The path's name.
        path: String,
        /// Host to anchor.
        up: u16,
        /// Anchor to host.
        down: u16,
    },
    /// Flows moved.
    Handover {
        /// The host's name; empty at the host itself.
        host: String,
        /// The class, `None` for all flows of the path.
        class: Option<Class>,
        /// From this path.
        from: String,
        /// To this path.
        to: String,
        /// Why.
        cause: Cause,
        /// How many flows were on the path, or of the class; 0 at an anchor, which does not know.
        flows: usize,
    },
}
