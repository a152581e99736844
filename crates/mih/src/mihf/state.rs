//! The state of a function: peers, links and their stations, and pending frames.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_mobility::Retransmission;
use segue_wire::mih::codes::{CommandList, EventList};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::{ParameterType, Threshold};
use segue_wire::mih::{Frame, MessageId};

use crate::Name;
use crate::config::{Forecasting, Remote, Transport};
use crate::event::Event;
use crate::forecast::Forecast;

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) transport: Transport,
}

/// Both ends of the path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Our address; unspecified where the node chooses.
    pub(super) local: IpAddr,
    pub(super) remote: Endpoint,
}

/// A known peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// A peer that is registered here.
    Client(Name),
    /// A function that we register at, by its index in the configuration.
    Function(usize),
}

/// The owner of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node.
    Own,
    /// A peer that is registered here.
    Client(Name),
    /// A function that we register at, by its index in the configuration.
    Function(usize),
}

impl Owner {
    pub(super) fn party(&self) -> Option<Party> {
        match self {
            Owner::Own => None,
            Owner::Client(name) => Some(Party::Client(name.clone())),
            Owner::Function(number) => Some(Party::Function(*number)),
        }
    }
}

/// A known link.
#[derive(Clone, Debug)]
pub struct Link {
    /// The owner; `None` if it has gone while others are still subscribed to the link.
    pub owner: Option<Owner>,
    /// The node that offered the link last.
    pub(super) node: Option<IpAddr>,
    /// The attached stations.
    pub stations: BTreeMap<LinkAddress, Station>,
    /// The supported commands.
    pub commands: CommandList,
    /// The subscribers and their events.
    pub(super) subscribed: BTreeMap<Party, EventList>,
    /// The events that the owner has confirmed to report.
    pub(super) told: EventList,
    /// A subscription request to the owner is pending.
    pub(super) asking: bool,
    /// Subscription requests that wait for the owner's answer.
    pub(super) waiting: Vec<Request>,
    pub(super) thresholds: Vec<Configured>,
    pub(super) forecasting: Option<Forecasting>,
}

impl Link {
    pub(super) fn of(owner: Owner) -> Link {
        Link {
            owner: Some(owner),
            node: None,
            stations: BTreeMap::new(),
            commands: CommandList(0),
            subscribed: BTreeMap::new(),
            told: EventList(0),
            asking: false,
            waiting: Vec::new(),
            thresholds: Vec::new(),
            forecasting: None,
        }
    }
}

/// An attached station.
#[derive(Clone, Debug)]
pub struct Station {
    /// When it was first reported.
    pub since: Time,
    /// A departure was announced and not cancelled.
    pub going_down: bool,
    /// The latest measurements, in the standard's units.
    pub values: Vec<(ParameterType, u16)>,
    /// It was reported since the last subscription.
    pub(super) fresh: bool,
    pub(super) forecast: Option<Forecast>,
}

/// Reporting of one parameter of a link.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    pub(super) parameter: ParameterType,
    pub(super) interval: Option<Span>,
    pub(super) thresholds: Vec<(Threshold, bool)>,
}

/// A peer that is registered here.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) at: Path,
    pub(super) until: Time,
}

/// Public view of a registered peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its MIHF ID.
    pub name: Name,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its transport.
    pub transport: Transport,
    /// When its registration expires.
    pub until: Time,
}

/// A function that we register at.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) remote: Remote,
    /// Its MIHF ID, once it has answered.
    pub(super) name: Option<Name>,
    pub(super) registered: bool,
    /// A registration request is pending.
    pub(super) asking: bool,
    /// Time of the last registration request.
    pub(super) asked_at: Time,
    /// [`Report::Silent`](crate::Report::Silent) was issued.
    pub(super) silent: bool,
    /// The events that it can report.
    pub(super) events: EventList,
}

/// A request to answer.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: Path,
    pub(super) name: Name,
    pub(super) message: MessageId,
    pub(super) transaction: u16,
    /// An acknowledgement was already sent, separately from the answer.
    pub(super) acknowledged: bool,
    /// The link of the request, for answers that name it.
    pub(super) link: Option<LinkId>,
}

/// The purpose of a pending frame.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Register(usize),
    Deregister,
    Discover(usize),
    Subscribe(LinkId, EventList),
    Unsubscribe(LinkId),
    Command(Asker),
    Event(Line),
    Answer,
}

/// A stream of events in which only the latest matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) party: Party,
    pub(super) link: LinkId,
    pub(super) station: Option<LinkAddress>,
    /// Parameters form a separate line.
    pub(super) parameters: bool,
}

/// The requester of a command.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    Operator(u64),
    Peer(Request),
}

impl Open {
    /// Queues an event. A Link_Up or Link_Down replaces all queued events; another event replaces the queued one of the
    /// same kind.
    pub(super) fn queue(&mut self, event: &Event) {
        if event.what.is_state() {
            self.next.clear();
        }
        self.next.retain(|waits| waits.what.kind() != event.what.kind());
        self.next.push(event.clone());
    }

    /// Whether a queued event makes the one in flight obsolete.
    pub(super) fn is_superseded(&self) -> bool {
        self.next.first().is_some_and(|next| next.what.is_state())
    }
}

/// The side that allocated the transaction ID: an answer carries the ID of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Ours,
    Theirs,
}

/// Identifies a pending frame: allocator, peer, and transaction ID.
pub(super) type Key = (Side, Endpoint, u16);

/// A frame that waits for an acknowledgement or an answer.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) to: Path,
    pub(super) frame: Frame,
    pub(super) sent_at: Time,
    pub(super) again: Retransmission,
    pub(super) acknowledged: bool,
    /// When to give up.
    pub(super) ends: Time,
    pub(super) purpose: Purpose,
    /// Queued events of its line.
    pub(super) next: Vec<Event>,
}

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Retransmit a frame, or give it up.
    Again(Key),
    /// Register, or renew the registration.
    Register(usize),
    /// Ask a function for its links.
    Discover(usize),
    /// A registration expires.
    Lapse(Name),
    /// Remove the stations that were not reported again.
    Settle(LinkId),
    /// Report a parameter.
    Report(LinkId, usize),
}

impl Task {
    pub(super) fn why(&self) -> &'static str {
        match self {
            Task::Again(_) => "a frame has no answer",
            Task::Register(_) => "a registration is due",
            Task::Discover(_) => "a function is to be asked for its links",
            Task::Lapse(_) => "a registration ends",
            Task::Settle(_) => "stations that were not told again have left",
            Task::Report(..) => "a parameter is to be reported",
        }
    }
}
