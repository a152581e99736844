//! What a function knows: who speaks to it, links and their stations, and frames without an answer.

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

/// Where somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) transport: Transport,
}

/// Both ends of the way to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// Our address, unspecified where the node chooses.
    pub(super) local: IpAddr,
    pub(super) remote: Endpoint,
}

/// Who speaks to this function, once it is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// Somebody who has registered here.
    Client(Name),
    /// A function where this one is registered, by its place in the configuration.
    Function(usize),
}

/// Whose a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This function's own.
    Own,
    /// Somebody's who has registered here.
    Client(Name),
    /// A function's where this one is registered, by its place in the configuration.
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

/// A link that is known.
#[derive(Clone, Debug)]
pub struct Link {
    /// Whose it is; `None`: somebody's who is gone, while others are still subscribed to it.
    pub owner: Option<Owner>,
    /// The node from where it was offered last.
    pub(super) node: Option<IpAddr>,
    /// Who is attached.
    pub stations: BTreeMap<LinkAddress, Station>,
    /// What can be ordered of it.
    pub commands: CommandList,
    /// Who is subscribed, and to what.
    pub(super) subscribed: BTreeMap<Party, EventList>,
    /// What the owner has confirmed that it tells.
    pub(super) told: EventList,
    /// Whether it is being asked for more.
    pub(super) asking: bool,
    /// Subscribers that wait for the owner's answer.
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

/// A station that is attached.
#[derive(Clone, Debug)]
pub struct Station {
    /// Since when it is known.
    pub since: Time,
    /// Whether it is about to leave.
    pub going_down: bool,
    /// What was measured last, in the standard's units.
    pub values: Vec<(ParameterType, u16)>,
    /// Whether it was told of since the last subscription.
    pub(super) fresh: bool,
    pub(super) forecast: Option<Forecast>,
}

/// When a parameter of a link is reported.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    pub(super) parameter: ParameterType,
    pub(super) interval: Option<Span>,
    pub(super) thresholds: Vec<(Threshold, bool)>,
}

/// Somebody who has registered here.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) at: Path,
    pub(super) until: Time,
}

/// Somebody who has registered here, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: Name,
    /// Where it is.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// How it speaks.
    pub transport: Transport,
    /// Until when its registration counts.
    pub until: Time,
}

/// A function where this one registers.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) remote: Remote,
    /// Its name, once it has answered.
    pub(super) name: Option<Name>,
    pub(super) registered: bool,
    /// Whether a registration is under way.
    pub(super) asking: bool,
    /// When it was asked last.
    pub(super) asked_at: Time,
    /// It was told that it does not answer.
    pub(super) silent: bool,
    /// Events that it has links for.
    pub(super) events: EventList,
}

/// A request that is to be answered.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: Path,
    pub(super) name: Name,
    pub(super) message: MessageId,
    pub(super) transaction: u16,
    /// Whether it was acknowledged by itself.
    pub(super) acknowledged: bool,
    /// The link that it is about, if its answer names it.
    pub(super) link: Option<LinkId>,
}

/// What a frame that has no answer yet was sent for.
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

/// Events of which only the newest counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) party: Party,
    pub(super) link: LinkId,
    pub(super) station: Option<LinkAddress>,
    /// Parameters have a line of their own.
    pub(super) parameters: bool,
}

/// Who has given a command.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    Operator(u64),
    Peer(Request),
}

impl Open {
    /// Has an event wait. One that says where a station is takes the place of all that wait; another one that of the last of
    /// its kind.
    pub(super) fn queue(&mut self, event: &Event) {
        if event.what.is_state() {
            self.next.clear();
        }
        self.next.retain(|waits| waits.what.kind() != event.what.kind());
        self.next.push(event.clone());
    }

    /// Whether what waits makes this one needless.
    pub(super) fn is_superseded(&self) -> bool {
        self.next.first().is_some_and(|next| next.what.is_state())
    }
}

/// Who has numbered a frame: an answer has its asker's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Ours,
    Theirs,
}

/// Which frame, to whom.
pub(super) type Key = (Side, Endpoint, u16);

/// A frame that has no acknowledgement or no answer yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) to: Path,
    pub(super) frame: Frame,
    pub(super) sent_at: Time,
    pub(super) again: Retransmission,
    pub(super) acknowledged: bool,
    /// When it is given up.
    pub(super) ends: Time,
    pub(super) purpose: Purpose,
    /// Events that go next in its line.
    pub(super) next: Vec<Event>,
}

/// What is due at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// A frame has no acknowledgement or answer.
    Again(Key),
    /// A registration is to be made or renewed.
    Register(usize),
    /// A function's links are to be asked for.
    Discover(usize),
    /// A registration ends.
    Lapse(Name),
    /// Stations that were not told again have left.
    Settle(LinkId),
    /// A parameter is to be reported.
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
