//! The media independent handover function of a node.

mod command;
mod exchange;
mod measure;
mod pass;
mod register;
mod seen;
mod state;
mod subscribe;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Deadline, Machine, Rng, Span, Time, Timers};
use segue_ip::{Datagram, Input, Output};
use segue_mobility::Retransmission;
use segue_wire::mih::codes::{EventList, Status};
use segue_wire::mih::identity::LinkId;
use segue_wire::mih::{Frame, MessageId, OctetString, Opcode, Payload, Tlv};

use crate::Name;
use crate::config::{MihfConfig, Transport};
use crate::event::Event;
use crate::io::{MihfInput, MihfOutput};
use crate::news::{Refusal, Refused, Report};
pub use command::AFTER_MAX_MS;
use seen::Seen;
use state::{Client, Endpoint, Key, Line, Open, Party, Path, Request, Side, Task, Upstream};
pub use state::{Link, Owner, Registered, Station};

/// Maximum number of registered peers.
const CLIENTS_MAX: usize = 1_024;
/// Maximum number of links.
const LINKS_MAX: usize = 4_096;
/// Maximum number of stations per link.
const STATIONS_MAX: usize = 4_096;
/// Limits for all peers at one address together, so that one node cannot exhaust the tables.
const CLIENTS_OF_NODE: usize = 64;
const LINKS_OF_NODE: usize = 512;
const STATIONS_OF_NODE: usize = 8_192;

/// The machine of a function.
pub struct Mihf {
    config: MihfConfig,
    clients: BTreeMap<Name, Client>,
    functions: Vec<Upstream>,
    links: BTreeMap<LinkId, Link>,
    open: BTreeMap<Key, Open>,
    /// The event in flight of each line.
    lines: BTreeMap<Line, Key>,
    seen: Seen,
    /// Smoothed round-trip time of each peer that has acknowledged a frame.
    round_trips: BTreeMap<Endpoint, Span>,
    timers: Timers<Task>,
    /// The last transaction ID, overall and per peer. The counters are separate so that IDs wrap later for each peer.
    transaction: u16,
    transactions: BTreeMap<Endpoint, u16>,
    /// Actions in progress on links of this node, and the requester.
    acting: BTreeMap<u64, command::Acting>,
    number: u64,
    refused: Refused,
    /// The last sender that was refused as [`Refusal::Stranger`].
    stranger: Option<IpAddr>,
    out: VecDeque<MihfOutput>,
}

impl Mihf {
    /// A function without registrations.
    #[must_use]
    pub fn new(config: MihfConfig) -> Mihf {
        let mut timers = Timers::new();
        let upstream = |remote| Upstream {
            remote,
            name: None,
            registered: false,
            asking: false,
            asked_at: Time::ZERO,
            silent: false,
            events: EventList(0),
        };
        let functions: Vec<Upstream> = config.functions.iter().copied().map(upstream).collect();
        (0..functions.len()).for_each(|n| timers.set(Task::Register(n), Time::ZERO));
        let own = config.links.iter().map(|own| {
            let link = Link {
                commands: own.commands,
                forecasting: own.forecasting,
                ..Link::of(Owner::Own)
            };
            (own.id.clone(), link)
        });
        Mihf {
            clients: BTreeMap::new(),
            functions,
            links: own.collect(),
            open: BTreeMap::new(),
            lines: BTreeMap::new(),
            seen: Seen::default(),
            round_trips: BTreeMap::new(),
            timers,
            transaction: Rng::new(config.seed).next_u64() as u16 & 0xfff,
            transactions: BTreeMap::new(),
            acting: BTreeMap::new(),
            number: 0,
            refused: Refused::new(),
            stranger: None,
            out: VecDeque::new(),
            config,
        }
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &MihfConfig {
        &self.config
    }

    /// The known links.
    #[must_use]
    pub fn links(&self) -> &BTreeMap<LinkId, Link> {
        &self.links
    }

    /// The peers that are registered here.
    pub fn registered(&self) -> impl Iterator<Item = Registered> {
        self.clients.iter().map(|(name, client)| Registered {
            name: name.clone(),
            address: client.at.remote.address,
            port: client.at.remote.port,
            transport: client.at.remote.transport,
            until: client.until,
        })
    }

    /// The functions to register at: the configuration, the name if known, and whether we are registered.
    pub fn functions(&self) -> impl Iterator<Item = (&crate::Remote, Option<&Name>, bool)> {
        self.functions.iter().map(|of| (&of.remote, of.name.as_ref(), of.registered))
    }

    /// The subscribers of a link, and their events. Functions that have not told their name are left out.
    #[must_use]
    pub fn subscribed(&self, link: &Link) -> Vec<(Name, EventList)> {
        let name = |party: &Party| match party {
            Party::Client(name) => Some(name.clone()),
            Party::Function(number) => self.functions[*number].name.clone(),
        };
        let all = link.subscribed.iter();
        all.filter_map(|(party, events)| Some((name(party)?, *events))).collect()
    }

    /// Whether the event concerns the link that its station attached to last: a previous link may report its loss late.
    /// False without a station; true if the station is attached nowhere.
    #[must_use]
    pub fn is_newest(&self, event: &Event) -> bool {
        let Some(station) = &event.station else { return false };
        let all = self.links.iter();
        let there = all.filter_map(|(id, link)| Some((link.stations.get(station)?.since, id)));
        there.max_by_key(|(since, _)| *since).is_none_or(|(_, id)| *id == event.link)
    }

    /// Refused frames and events, by reason.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// The address of the last sender that was refused as [`Refusal::Stranger`].
    #[must_use]
    pub fn stranger(&self) -> Option<IpAddr> {
        self.stranger
    }

    fn refuse(&mut self, why: Refusal) {
        *self.refused.entry(why).or_default() += 1;
    }

    fn report(&mut self, report: Report) {
        self.out.push_back(Output::Report(report));
    }

    /// Whether a node at this address may register here.
    fn may_register(&self, address: IpAddr) -> bool {
        self.config.peers.iter().any(|prefix| prefix.contains(address))
    }

    /// The sender of a frame, if it is a configured function or registered from this endpoint.
    fn party(&self, from: Endpoint, name: &Name) -> Option<Party> {
        let of = |function: &Upstream| {
            let remote = function.remote;
            (remote.address, remote.port, remote.transport)
                == (from.address, from.port, from.transport)
        };
        if let Some(number) = self.functions.iter().position(of) {
            return Some(Party::Function(number));
        }
        let client = self.clients.get(name)?;
        (client.at.remote == from).then(|| Party::Client(name.clone()))
    }

    /// The path to a party, and its name (empty if unknown).
    fn way(&self, party: &Party) -> Option<(Path, Name)> {
        match party {
            Party::Client(name) => Some((self.clients.get(name)?.at, name.clone())),
            Party::Function(number) => {
                let function = self.functions.get(*number)?;
                let remote = function.remote;
                let (address, port, transport) = (remote.address, remote.port, remote.transport);
                let local = match address {
                    IpAddr::V4(_) => core::net::Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => core::net::Ipv6Addr::UNSPECIFIED.into(),
                };
                let path = Path { local, remote: Endpoint { address, port, transport } };
                Some((path, function.name.clone().unwrap_or_default()))
            }
        }
    }

    fn take(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        let transport = Transport::of(came.protocol).ok_or(Refusal::Malformed)?;
        let remote = Endpoint { address: came.from.0, port: came.from.1, transport };
        let of_function = self.functions.iter().any(|f| f.remote.address == remote.address);
        if !of_function && !self.may_register(remote.address) {
            self.stranger = Some(remote.address);
            return Err(Refusal::Stranger);
        }
        // The stream has ended.
        if transport == Transport::Tcp && came.bytes.is_empty() {
            self.closed(now, remote);
            return Ok(());
        }
        let frame = Frame::parse(&came.bytes, &self.config.profile);
        let frame = frame.map_err(|_| Refusal::Malformed)?;
        let Payload::Tlvs(tlvs) = &frame.payload else { return Err(Refusal::Fragment) };
        let [Tlv::SourceMihfId(name), Tlv::DestinationMihfId(to), ..] = &tlvs[..] else {
            return Err(Refusal::Malformed);
        };
        // The destination is empty while the sender does not know our name.
        if !to.0.is_empty() && *to != self.config.name {
            return Err(Refusal::Destination);
        }
        if name.0.is_empty() || *name == self.config.name {
            return Err(Refusal::Malformed);
        }
        let path = Path { local: came.to.0, remote };
        if frame.ack_rsp {
            let is_answer = frame.message_id.opcode() == Opcode::RESPONSE && tlvs.len() == 2;
            let side = if is_answer { Side::Theirs } else { Side::Ours };
            self.on_acknowledgement(now, &path, (side, remote, frame.transaction_id));
            if tlvs.len() == 2 {
                return Ok(());
            }
        }
        let is_event = frame.message_id.opcode() == Opcode::INDICATION;
        let party = self.party(remote, name);
        // Refused before it is recorded as seen: the sender repeats it after it has registered.
        if is_event && party.is_none() {
            return Err(Refusal::NotRegistered);
        }
        let acknowledges = frame.ack_req && transport == Transport::Udp;
        let number = (frame.message_id, frame.transaction_id);
        if acknowledges && self.seen.is_repeated(now, remote, number) {
            self.acknowledge(&path, name, &frame);
            return Ok(());
        }
        self.heed(now, &path, (name, party), &frame, acknowledges)
    }

    /// Processes a frame that is not a duplicate.
    fn heed(
        &mut self,
        now: Time,
        path: &Path,
        (name, party): (&Name, Option<Party>),
        frame: &Frame,
        acknowledges: bool,
    ) -> Result<(), Refusal> {
        let rest = frame.tlvs().get(2..).unwrap_or_default();
        match frame.message_id.opcode() {
            Opcode::REQUEST => {
                let mut request = Request {
                    path: *path,
                    name: name.clone(),
                    message: frame.message_id,
                    transaction: frame.transaction_id,
                    acknowledged: !acknowledges,
                    link: link_of(rest),
                };
                let done = self.serve(now, &request, rest)?;
                match done {
                    Served::Now(answer) => self.answer(now, &request, answer),
                    Served::Answered => {}
                    Served::Later => {
                        if acknowledges {
                            request.acknowledged = true;
                            self.acknowledge(path, name, frame);
                        }
                    }
                }
                Ok(())
            }
            Opcode::RESPONSE => {
                if acknowledges {
                    self.acknowledge(path, name, frame);
                }
                self.on_answer(now, path, name, frame, rest)
            }
            Opcode::INDICATION => {
                let party = party.ok_or(Refusal::NotRegistered)?;
                if acknowledges {
                    self.acknowledge(path, name, frame);
                }
                let event = Event::read(frame.message_id, rest).ok_or(Refusal::NotServed)?;
                self.told(now, &party, event)
            }
            _ => Err(Refusal::NotServed),
        }
    }

    /// Executes a request.
    fn serve(&mut self, now: Time, request: &Request, tlvs: &[Tlv]) -> Result<Served, Refusal> {
        let (remote, name) = (request.path.remote, &request.name);
        match request.message {
            MessageId::REGISTER => self.register(now, request, tlvs),
            MessageId::CAPABILITY_DISCOVER => Ok(Served::Now(self.capabilities(remote.transport))),
            other => {
                let Some(party) = self.party(remote, name) else {
                    self.refuse(Refusal::NotRegistered);
                    let status = Tlv::Status(Status::AUTHORIZATION_FAILURE);
                    return Ok(Served::Now(Vec::from([status])));
                };
                match other {
                    MessageId::DEREGISTER => {
                        self.forget(now, &party);
                        Ok(Served::Now(Vec::from([Tlv::Status(Status::SUCCESS)])))
                    }
                    MessageId::EVENT_SUBSCRIBE => self.subscribe(now, request, party, tlvs),
                    MessageId::EVENT_UNSUBSCRIBE => self.unsubscribe(now, &party, tlvs),
                    _ => self.commanded(now, request, tlvs),
                }
            }
        }
    }

    fn due(&mut self, now: Time, task: Task) {
        match task {
            Task::Again(key) => self.again(now, key),
            Task::Register(number) => self.register_at(now, number),
            Task::Discover(number) => self.discover(now, number),
            Task::Lapse(name) => self.forget(now, &Party::Client(name)),
            Task::Settle(link) => self.settle(now, &link),
            Task::Report(link, which) => self.report_regularly(now, &link, which),
        }
    }
}

/// The link that a request concerns.
fn link_of(tlvs: &[Tlv]) -> Option<LinkId> {
    tlvs.iter().find_map(|tlv| match tlv {
        Tlv::LinkIdentifier(tuple) => Some(tuple.link.clone()),
        _ => None,
    })
}

/// The outcome of a request.
enum Served {
    /// Answer now, with these TLVs.
    Now(Vec<Tlv>),
    /// Already answered.
    Answered,
    /// Answered later, when another party has answered.
    Later,
}

impl Machine for Mihf {
    type Input = Input<MihfInput, core::convert::Infallible>;
    type Output = MihfOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        self.tick(now);
        match input {
            Input::Datagram(came) => {
                if let Err(why) = self.take(now, &came) {
                    self.refuse(why);
                }
            }
            Input::Own(MihfInput::Event(event)) => {
                if let Err(why) = self.happened(now, event) {
                    self.refuse(why);
                }
            }
            Input::Own(MihfInput::Measured { link, station, values }) => {
                if let Err(why) = self.measured(now, &link, station.as_ref(), &values) {
                    self.refuse(why);
                }
            }
            Input::Own(MihfInput::Command { number, command }) => {
                self.ordered(now, number, command);
            }
            Input::Own(MihfInput::Acted { number, result }) => self.acted(now, number, result),
            Input::Own(MihfInput::Leave) => self.leave(now),
            Input::Interfaces(_) | Input::Link(_) => {}
            Input::Record(none) => match none {},
        }
    }

    fn tick(&mut self, now: Time) {
        while let Some(task) = self.timers.pop_due(now) {
            self.due(now, task);
        }
    }

    fn poll(&mut self) -> Option<MihfOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        self.timers.next().map(|(at, task)| (at, task.why()))
    }
}
