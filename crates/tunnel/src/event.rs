//! What the machines take and give.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use segue_clock::Time;
use segue_keepalive::Reading;
use segue_steering::Class;
use segue_wire::signal::{FromAnchor, FromHost, WaysOut};
use segue_wire::{FlowKey, TooBig};

use crate::{Carried, FlowCount, Order, ProbeEvent, Report, Ticket};

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
    Probe(ProbeEvent),
    /// What the datapath measured by itself on the path in this slot. Before a tick, for each path in
    /// [`crate::Host::due`].
    Reading(u32, Reading),
    /// What the path in this slot has carried. With each reading.
    Carried(u32, Carried),
    /// A test of the packet size of the path in this slot was answered: its token.
    Sized(u32, u32),
    /// What the packet path has counted of the flows of [`Order::CountFlows`], in their order.
    Counted(u32, Vec<Option<FlowCount>>),
    /// Several packets came in one piece on the path in this slot, and were refused.
    Uncut(u32),
    /// A router says that a packet was too big, and quotes it.
    TooBig(TooBig),
    /// The anchor's addresses, best first, with the port of its tunnels: its name resolves differently now.
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
    /// When flows were last seen, from the datapath's table.
    Flows {
        /// Some of them.
        seen: Vec<(FlowKey, Time)>,
        /// The last part: flows that are idle are forgotten.
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
    /// An order of the operator: turn probing of a path on or off.
    Keepalive {
        /// The path.
        path: String,
        /// Whether requests are sent.
        on: bool,
    },
    /// The daemon ends.
    Stop,
}

/// What a machine asks of what is around it.
#[derive(Clone, Debug)]
pub enum Output<O, P> {
    /// Of its packet path.
    Order(Order),
    /// Of its driver.
    Driver(segue_ip::Output<O, Report, P>),
}

impl<O, P> Output<O, P> {
    pub(crate) fn own(own: O) -> Output<O, P> {
        Output::Driver(segue_ip::Output::Own(own))
    }

    pub(crate) fn report(report: Report) -> Output<O, P> {
        Output::Driver(segue_ip::Output::Report(report))
    }
}

/// What a host asks of its driver.
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
    /// The largest inner packet that may enter the tunnel, in bytes.
    SetMtu(u16),
}

/// Why a host's registration ends by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its enrolment ended: its epoch is forgotten, and its addresses rest before another host gets them.
    Removed,
    /// The host will be enrolled anew: its epoch is forgotten, it keeps its addresses.
    Replaced,
    /// Its certificate expired: it keeps its epoch and addresses.
    Expired,
}

/// What happens to an anchor.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made one at a time; a box would cost more than it saves"
)]
pub enum AnchorInput {
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
    /// A connection ended or is useless.
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
    Probe(ProbeEvent),
    /// What the datapath measured by itself on the path in this slot. Before a tick, for each path in
    /// [`crate::Anchor::due`].
    Reading(u32, Reading),
    /// What the packet path has counted of the flows of [`Order::CountFlows`], in their order.
    Counted(u32, Vec<Option<FlowCount>>),
    /// Several packets came in one piece on the path in this slot, and were refused.
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

/// What an anchor asks of its driver.
#[derive(Clone, Debug)]
pub enum AnchorOutput {
    /// Send a message.
    Signal(ConnId, FromAnchor),
    /// End a connection after what was sent.
    Close(ConnId),
    /// The largest inner packet to send to an inner address, in bytes; `None` for what the tunnel device takes.
    SetMtu(IpAddr, Option<u16>),
}
