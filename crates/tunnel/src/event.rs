//! Inputs and outputs of the machines.

use alloc::boxed::Box;
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

/// Inputs of a host's machine.
#[derive(Clone, Debug)]
pub enum HostInput {
    /// The signalling connection is established, over the named interface.
    SignalUp {
        /// Interface that carried the handshake.
        interface: String,
        /// The anchor's address that answered, with the tunnel port.
        anchor: SocketAddr,
    },
    /// The signalling connection broke.
    SignalDown,
    /// A message of the anchor.
    Signal(FromAnchor),
    /// A probe arrived.
    Probe(ProbeEvent),
    /// Measurements of the datapath for the path in this slot. Given before a tick for each path in
    /// [`crate::Host::due`].
    Reading(u32, Box<Reading>),
    /// The counters of the path in this slot. Given with each reading.
    Carried(u32, Carried),
    /// A test of the packet size was answered: the slot and the test's token.
    Sized(u32, u32),
    /// The datapath's counts for the flows of [`Order::CountFlows`], in the same order.
    Counted(u32, Vec<Option<FlowCount>>),
    /// Several unsegmented super-packets arrived on the path in this slot and were refused.
    Uncut(u32),
    /// A router reported that a packet was too big, and quoted it.
    TooBig(TooBig),
    /// The anchor's name now resolves to these addresses, best first, with the port of the tunnels.
    Anchor(Vec<SocketAddr>),
    /// A flow has no binding, and the driver holds a packet of it.
    Miss {
        /// The flow.
        key: FlowKey,
        /// The packet's code point.
        dscp: u8,
        /// The held packet.
        ticket: Ticket,
    },
    /// When flows were last seen, from the datapath's table.
    Flows {
        /// Some of the flows.
        seen: Vec<(FlowKey, Time)>,
        /// True for the last part: the host then forgets idle flows.
        last: bool,
    },
    /// The operator moves one flow, a class or everything to an interface, or returns it to the steering.
    Handover {
        /// One flow; `None` for a class or all flows.
        flow: Option<FlowKey>,
        /// A class; `None` for all classes, if no flow is given.
        class: Option<Class>,
        /// The interface; `None` cancels an earlier order.
        to: Option<String>,
    },
    /// The operator switches probing of a path on or off.
    Keepalive {
        /// The path's name.
        path: String,
        /// True if requests are sent.
        on: bool,
    },
    /// The daemon stops.
    Stop,
}

/// Outputs of a machine.
#[derive(Clone, Debug)]
pub enum Output<O, P> {
    /// For its packet path.
    Order(Order),
    /// For its driver.
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

/// Outputs of a host's machine for its driver.
#[derive(Clone, Debug)]
pub enum HostOutput {
    /// Establish signalling over any of these interfaces: try all at once, in this order of preference.
    Connect {
        /// Names of the interfaces.
        interfaces: Vec<String>,
    },
    /// Move the signalling connection to another interface.
    MoveSignal {
        /// Name of the interface.
        interface: String,
    },
    /// Send a message to the anchor.
    Signal(FromHost),
    /// The inner addresses have changed to these.
    Addresses {
        /// The host's own.
        inner: Vec<IpAddr>,
        /// The anchor's.
        anchor: Vec<IpAddr>,
    },
    /// The largest inner packet that may enter the tunnel, in bytes.
    SetMtu(u16),
}

/// Why a registration is ended administratively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The host's enrolment ended: its epoch is forgotten, and its addresses are withheld for a while before another
    /// host gets them.
    Removed,
    /// The host will be enrolled anew: its epoch is forgotten, but it keeps its addresses.
    Replaced,
    /// Its certificate expired: it keeps its epoch and addresses.
    Expired,
}

/// Inputs of an anchor's machine.
#[derive(Clone, Debug)]
pub enum AnchorInput {
    /// A host has connected; its name is authenticated.
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
    /// A connection ended or became useless.
    Disconnected {
        /// The connection.
        conn: ConnId,
    },
    /// End a host's registration.
    End {
        /// The host's name.
        host: String,
        /// The reason.
        why: Ending,
    },
    /// A probe arrived (a request has been answered).
    Probe(ProbeEvent),
    /// Measurements of the datapath for the path in this slot. Given before a tick for each path in
    /// [`crate::Anchor::due`].
    Reading(u32, Box<Reading>),
    /// The datapath's counts for the flows of [`Order::CountFlows`], in the same order.
    Counted(u32, Vec<Option<FlowCount>>),
    /// Several unsegmented super-packets arrived on the path in this slot and were refused.
    Uncut(u32),
    /// A flow has no binding, and the driver holds a packet of it.
    Miss {
        /// The flow.
        key: FlowKey,
        /// The held packet.
        ticket: Ticket,
    },
    /// The address families with a default route, at the start and after each change.
    WaysOut(WaysOut),
    /// A router reported that a packet was too big, and quoted it.
    TooBig(TooBig),
}

/// Outputs of an anchor's machine for its driver.
#[derive(Clone, Debug)]
pub enum AnchorOutput {
    /// Send a message.
    Signal(ConnId, FromAnchor),
    /// Close a connection once pending messages are sent.
    Close(ConnId),
    /// The largest inner packet to send to an inner address, in bytes; `None` for the tunnel device's own limit.
    SetMtu(IpAddr, Option<u16>),
}
