//! The mobile access gateway: which hosts are at its accesses, and where their traffic goes.

mod advertise;
mod carried;
mod register;
mod state;
mod stays;
mod stored;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{DayClock, Deadline, Machine, Span, Time, Timers, UnixTime, earlier};
use segue_ip::{
    Datagram, Forward, Input, Interface, LinkEvent, MAIN_TABLE, Output, Port, Prefix, Source,
};
use segue_mobility::Retransmission;
use segue_wire::mobility::body::{BindingRevocation, Heartbeat};
use segue_wire::mobility::option::{AccessTechnology, Handoff};
use segue_wire::mobility::{Body, HeartbeatFlags, Message, MobilityOption, Profile};

use crate::heart::{self, Heart, Pulse};
use crate::message::{Registration, ends, read};
use crate::news::Why;
use crate::{LinkLayer, MOBILITY, NodeId, Refusal, Refused, Report};
use carried::Carried;
pub use state::StationState;
use stays::Stays;
pub use stored::StoredStation;

/// The address that every gateway has on every access link (RFC 6543).
pub const FIXED_LINK_LOCAL: Ipv6Addr =
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0200, 0x5eff, 0xfe00, 0x5213);
/// The link-layer address of every gateway on every access link (RFC 6543).
pub const FIXED_MAC: [u8; 6] = [0x00, 0x00, 0x5e, 0x00, 0x52, 0x13];

/// Most hosts of a gateway: each may have an update that is not acknowledged, and these are known by numbers of 16 bits.
pub const HOSTS_MAX: usize = 1 << 15;

/// What a gateway needs to know.
#[derive(Clone, Debug)]
pub struct MagConfig {
    /// Its accesses.
    pub accesses: Vec<Access>,
    /// The anchor of hosts whose identity names none.
    pub anchor: Ipv6Addr,
    /// Where anchors depart from the standards.
    pub profile: Profile,
    /// Who hosts are; `None`: its driver is asked ([`Wish::Identify`]).
    pub identities: Option<Identities>,
    /// The link-layer address that advertisements say the gateway has; `None`: hosts resolve it.
    pub mac: Option<[u8; 6]>,
    /// The MTU that it advertises, in bytes: what fits into the tunnel.
    pub mtu_bytes: u32,
    /// Name servers that it advertises.
    pub name_servers: Vec<Ipv6Addr>,
    /// Time between advertisements to a host.
    pub advertise_every: Span,
    /// Bounds of the lifetimes that it asks for, and the one for a host that has not stayed here yet.
    pub lifetime: Lifetimes,
    /// The routing table for what is for hosts.
    pub table: u32,
    /// Most hosts, at most [`HOSTS_MAX`].
    pub capacity: usize,
    /// How often it has started, this start included (RFC 5847).
    pub restart_counter: u32,
    /// Any number, another at each start: messages are numbered from there.
    pub seed: u64,
    /// The time of day.
    pub clock: DayClock,
}

impl MagConfig {
    /// With usual values, for hosts with this anchor.
    #[must_use]
    pub fn new(anchor: Ipv6Addr, accesses: Vec<Access>, clock: DayClock) -> MagConfig {
        MagConfig {
            accesses,
            anchor,
            profile: Profile::STRICT,
            identities: Some(Identities::default()),
            mac: Some(FIXED_MAC),
            mtu_bytes: 1_460,
            name_servers: Vec::new(),
            advertise_every: Span::from_secs(600),
            lifetime: Lifetimes::default(),
            table: MAIN_TABLE,
            capacity: HOSTS_MAX,
            restart_counter: 1,
            seed: 0,
            clock,
        }
    }
}

/// An access: a link to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The name of its interface.
    pub interface: String,
    /// Its kind.
    pub technology: AccessTechnology,
    /// The address that hosts there are registered at (Proxy-CoA).
    pub proxy_coa: Ipv6Addr,
    /// How a host that attaches came there, as far as the gateway can know (Handoff Indicator).
    pub handoff: Handoff,
    /// Who says that a host is there.
    pub by: AttachBy,
}

/// Who says that a host has attached or left; only one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachBy {
    /// The driver ([`MagInput::Attached`], [`MagInput::Detached`]): IEEE 802.21, or what its system tells.
    Driver,
    /// The host itself, by a router solicitation; it has left when the link goes down.
    Solicitation,
}

/// Who hosts are, by their link-layer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// Those that are known.
    pub known: BTreeMap<LinkLayer, Identity>,
    /// The realm of others, which are called by their link-layer addresses; `None`: they are refused.
    pub realm: Option<String>,
}

impl Default for Identities {
    fn default() -> Identities {
        Identities { known: BTreeMap::new(), realm: Some("segue.invalid".into()) }
    }
}

/// Who a host is, and what it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its MN-ID.
    pub node: NodeId,
    /// Its anchor; `None`: the gateway's usual one.
    pub anchor: Option<Ipv6Addr>,
    /// Prefixes that it is to ask for; none: any.
    pub prefixes: Vec<Prefix>,
}

/// Lifetimes that a gateway asks for. A host's is its mean stay at this gateway: the average of its stays so far, in which each
/// counts a quarter and those before it the rest; between the two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The shortest.
    pub shortest: Span,
    /// That of a host whose stays are not known.
    pub first: Span,
    /// The longest.
    pub longest: Span,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes {
            shortest: Span::from_secs(60),
            first: Span::from_secs(600),
            longest: Span::from_secs(3_600),
        }
    }
}

/// What a gateway's driver tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MagInput {
    /// It is this time of day: told now and then, and when somebody has set the clock.
    TimeOfDay(UnixTime),
    /// A host has attached to the access with this interface, or was heard there.
    Attached {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Its address of link scope, if that is known.
        link_local: Option<Ipv6Addr>,
    },
    /// It has left.
    Detached {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// Who it is; `None`: it may not be served.
    Identified {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Who.
        identity: Option<Identity>,
    },
}

/// What a gateway asks of its driver, beside what every role does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Find out who this is, and say it ([`MagInput::Identified`]).
    Identify {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// Have all hosts of this link show themselves, and say who was heard ([`MagInput::Attached`]).
    Ask {
        /// Index of the interface.
        interface: u32,
    },
    /// Send this to one station, whatever its destination is (RFC 6085).
    ToStation {
        /// Its link-layer address.
        mac: [u8; 6],
        /// With its checksum, and the interface.
        datagram: Datagram,
    },
}

/// What a gateway stores: who is at an access. A later record of the same place takes its place; `None` takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MagRecord {
    /// The name of the access's interface.
    pub access: String,
    /// The host's interface.
    pub station: LinkLayer,
    /// Who.
    pub stored: Option<StoredStation>,
}

/// What a gateway asks of its driver.
pub type MagOutput = Output<Wish, Report, MagRecord>;

/// A host's interface at an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Which of the configured accesses.
    pub access: usize,
    /// Who it is, once that is known.
    pub identity: Option<Identity>,
    /// Where it stands.
    pub state: StationState,
    /// What it was given.
    pub prefixes: Vec<Prefix>,
    /// Prefixes of the host's other interfaces, which are carried and not advertised (RFC 7864).
    pub off_link: Vec<Prefix>,
    /// Another access of the host is gone: it is to prefer this one.
    pub preferred: bool,
    /// It was to do so once.
    was_preferred: bool,
    /// When its registration ends.
    pub until: Time,
    /// When it attached.
    pub since: Time,
    /// When it was registered first.
    pub registered: Option<Time>,
    /// Its address of link scope, if it has shown it.
    link_local: Option<Ipv6Addr>,
    /// It was heard since its registration was last accepted.
    heard: bool,
    /// The last notification about it, and when it came.
    notified: Option<(u16, Time)>,
    /// The update that is not acknowledged: its number, when it was sent first, and its repetition.
    open: Option<(u16, Time, Retransmission)>,
    /// Updates that were repeated at once since the last one was accepted.
    hurried: u32,
    /// Solicitations since the last sign of life.
    probes: u32,
    /// What leads to it on its link, if that was given.
    neighbour: Option<Forward>,
    /// Prefixes that are carried for it now, its own and others.
    carries: BTreeSet<Prefix>,
}

/// Where a station is: index of the interface, link-layer address.
type Place = (u32, LinkLayer);

/// What falls due for a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// To ask again.
    Again,
    /// To see whether it is there, and renew.
    Renew,
    /// To look for an answer of the station.
    Probe,
    /// To advertise.
    Advertise,
    /// Its registration ends.
    End,
}

impl Task {
    const fn why(self) -> &'static str {
        match self {
            Task::Again => "to register again",
            Task::Renew => "to renew a registration",
            Task::Probe => "to solicit a host",
            Task::Advertise => "to advertise",
            Task::End => "a registration ends",
        }
    }
}

/// An anchor with hosts here.
#[derive(Clone, Debug)]
struct Anchor {
    heart: Heart,
    /// Tunnels to it by the address of this end, with the number of stations that use each.
    tunnels: BTreeMap<Ipv6Addr, (u32, usize)>,
}

/// The machine of a gateway.
pub struct Mag {
    config: MagConfig,
    /// Interfaces of accesses that are there: index, and which access.
    links: BTreeMap<u32, usize>,
    stations: BTreeMap<Place, Station>,
    /// Where each host is.
    nodes: BTreeMap<NodeId, BTreeSet<Place>>,
    /// Prefixes that are carried here.
    carried: BTreeMap<Prefix, Carried>,
    /// By the number of an update that is not acknowledged.
    open: BTreeMap<u16, Place>,
    timers: Timers<(Place, Task)>,
    anchors: BTreeMap<Ipv6Addr, Anchor>,
    beats: BTreeSet<(Time, Ipv6Addr)>,
    stays: Stays,
    /// Records of earlier starts, until the interfaces are known.
    records: Vec<MagRecord>,
    sequence: u16,
    tunnel: u32,
    refused: Refused,
    out: VecDeque<MagOutput>,
}

impl Mag {
    /// A gateway without hosts.
    #[must_use]
    pub fn new(config: MagConfig) -> Mag {
        Mag {
            links: BTreeMap::new(),
            stations: BTreeMap::new(),
            nodes: BTreeMap::new(),
            carried: BTreeMap::new(),
            open: BTreeMap::new(),
            timers: Timers::new(),
            anchors: BTreeMap::new(),
            beats: BTreeSet::new(),
            stays: Stays::new(config.capacity),
            records: Vec::new(),
            sequence: segue_clock::Rng::new(config.seed).next_u64() as u16,
            tunnel: 0,
            refused: Refused::new(),
            out: VecDeque::new(),
            config,
        }
    }

    /// What it knows.
    #[must_use]
    pub fn config(&self) -> &MagConfig {
        &self.config
    }

    /// Hosts at its accesses: the access, the host's interface, and what is known of it.
    pub fn stations(&self) -> impl Iterator<Item = (&Access, &LinkLayer, &Station)> {
        let all = self.stations.iter();
        all.map(|((_, station), at)| (&self.config.accesses[at.access], station, at))
    }

    /// Hosts that are served at the access with this interface.
    pub fn served_at(&self, interface: u32) -> impl Iterator<Item = &LinkLayer> {
        let all = self.stations.range((interface, LinkLayer::default())..);
        let here = all.take_while(move |((of, _), _)| *of == interface);
        here.filter(|(_, at)| at.state.is_served()).map(|((_, station), _)| station)
    }

    /// What it refused.
    #[must_use]
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    fn access(&self, interface: u32) -> Option<&Access> {
        self.config.accesses.get(*self.links.get(&interface)?)
    }

    fn refuse(&mut self, why: Refusal) {
        *self.refused.entry(why).or_default() += 1;
    }

    fn report(&mut self, report: Report) {
        self.out.push_back(Output::Report(report));
    }

    fn send(&mut self, datagram: Option<Datagram>) {
        self.out.extend(datagram.map(Output::Send));
    }

    fn interfaces(&mut self, now: Time, all: &[Interface]) {
        let is_of = |interface: &Interface, access: &Access| access.interface == interface.name;
        let found = all.iter().filter_map(|interface| {
            let access = self.config.accesses.iter().position(|a| is_of(interface, a))?;
            Some((interface.index, access))
        });
        let links: BTreeMap<u32, usize> = found.collect();
        // An index may be another interface's by now.
        let other = |one: &BTreeMap<u32, usize>, than: &BTreeMap<u32, usize>| -> Vec<u32> {
            let differs = |(index, access): &(&u32, &usize)| than.get(index) != Some(access);
            one.iter().filter(differs).map(|(index, _)| *index).collect()
        };
        let (gone, new) = (other(&self.links, &links), other(&links, &self.links));
        gone.iter().for_each(|interface| self.all_leave(now, *interface));
        self.out.extend(gone.into_iter().flat_map(of_link).map(Output::Withdraw));
        self.links = links;
        self.out.extend(new.into_iter().flat_map(of_link).map(Output::Forward));
        let records = core::mem::take(&mut self.records);
        let restored = !records.is_empty();
        records.into_iter().for_each(|record| self.restore(now, record));
        if restored {
            self.greet();
        }
    }

    /// Tells anchors of hosts from before that this is another start: what they said of other accesses is forgotten.
    fn greet(&mut self) {
        let counter = self.config.restart_counter;
        let ends = self
            .anchors
            .iter()
            .flat_map(|(anchor, known)| known.tunnels.keys().map(move |own| (*own, *anchor)));
        let ends: Vec<(Ipv6Addr, Ipv6Addr)> = ends.collect();
        for (own, anchor) in ends {
            self.send(heart::response(None, counter, own, anchor));
        }
    }

    fn link(&mut self, now: Time, event: LinkEvent) {
        if let LinkEvent::Down { interface, .. } = event
            && self.access(interface).is_some_and(|a| a.by == AttachBy::Solicitation)
        {
            self.all_leave(now, interface);
        }
    }

    fn all_leave(&mut self, now: Time, interface: u32) {
        let here = self.stations.range((interface, LinkLayer::default())..);
        let here = here.map(|(place, _)| place).take_while(|(of, _)| *of == interface);
        let here: Vec<Place> = here.cloned().collect();
        here.into_iter().for_each(|place| self.detach(now, &place, Why::Detached));
    }

    fn take(&mut self, now: Time, came: &Datagram) -> Result<(), Refusal> {
        if came.protocol != MOBILITY {
            return self.discover(now, came);
        }
        let (from, to) = ends(came)?;
        // That of another gateway on the same node.
        if !self.config.accesses.iter().any(|access| access.proxy_coa == to) {
            return Ok(());
        }
        let profile = self.config.profile;
        let Message { body, options } = read(came, (from, to), &profile)?;
        match body {
            Body::BindingAcknowledgement(answer) => self.acknowledged(now, &answer, &options, from),
            Body::Heartbeat(beat) => self.on_beat(now, &beat, &options, from, to),
            _ if !self.anchors.contains_key(&from) => Err(Refusal::Stranger),
            Body::BindingRevocation(BindingRevocation::Indication(indication)) => {
                self.revoke(now, &indication, &options, from, to);
                Ok(())
            }
            Body::UpdateNotification(notification) => {
                self.notified(now, &notification, &options, from, to)
            }
            _ => Err(Refusal::NotServed),
        }
    }

    fn on_beat(
        &mut self,
        now: Time,
        beat: &Heartbeat,
        options: &[MobilityOption],
        from: Ipv6Addr,
        to: Ipv6Addr,
    ) -> Result<(), Refusal> {
        if !beat.flags.contains(HeartbeatFlags::RESPONSE) {
            // It may ask for hosts that this start does not know.
            if from != self.config.anchor && !self.anchors.contains_key(&from) {
                return Err(Refusal::Stranger);
            }
            let counter = self.config.restart_counter;
            self.send(heart::response(Some(beat.sequence), counter, to, from));
            return Ok(());
        }
        let anchor = self.anchors.get_mut(&from).ok_or(Refusal::Stranger)?;
        let counter = Registration::of(options).restart_counter;
        self.beats.remove(&(anchor.heart.deadline(), from));
        let pulse = anchor.heart.on_response(now, beat, counter);
        self.beats.insert((anchor.heart.deadline(), from));
        self.beat(now);
        match pulse.ok_or(Refusal::Stale)? {
            Some(Pulse::Restarted) => {
                self.report(Report::Restarted { peer: from });
                self.register_again(now, from);
            }
            Some(Pulse::Back) => self.report(Report::Answers { peer: from }),
            Some(Pulse::Silent) | None => {}
        }
        Ok(())
    }

    fn beat(&mut self, now: Time) {
        while let Some((_, address)) = self.beats.first().copied().filter(|(at, _)| *at <= now) {
            self.beats.pop_first();
            let Some(anchor) = self.anchors.get_mut(&address) else { continue };
            let (ask, pulse) = anchor.heart.tick(now);
            self.beats.insert((anchor.heart.deadline(), address));
            let own = anchor.tunnels.keys().next().copied();
            let request = ask.zip(own).and_then(|(n, own)| heart::request(n, own, address));
            self.send(request);
            if pulse == Some(Pulse::Silent) {
                self.report(Report::Silent { peer: address });
            }
        }
    }

    fn due(&mut self, now: Time, place: &Place, task: Task) {
        match task {
            Task::Again => self.again(now, place),
            Task::Renew => self.renew(now, place),
            Task::Probe => self.probe(now, place),
            Task::Advertise => self.advertise(now, place),
            Task::End => self.over(now, place),
        }
    }
}

/// What the link of an access has: the address that every gateway has there, and a source that lets nobody's packets through, so
/// that what comes over it is checked from the beginning.
fn of_link(interface: u32) -> [Forward; 2] {
    let prefix = Prefix::new(FIXED_LINK_LOCAL, 64);
    let source = Source { port: Port::Link(interface), prefix: prefix.network() };
    [Forward::Address { interface, prefix }, Forward::Source(source)]
}

impl Machine for Mag {
    type Input = Input<MagInput, MagRecord>;
    type Output = MagOutput;

    fn handle(&mut self, now: Time, input: Self::Input) {
        if let Input::Record(record) = input {
            self.records.push(record);
            return;
        }
        self.tick(now);
        match input {
            Input::Interfaces(all) => self.interfaces(now, &all),
            Input::Link(event) => self.link(now, event),
            Input::Datagram(came) => {
                if let Err(why) = self.take(now, &came) {
                    self.refuse(why);
                }
            }
            Input::Own(MagInput::TimeOfDay(day)) => self.config.clock = DayClock::new(now, day),
            Input::Own(MagInput::Attached { interface, station, link_local }) => {
                self.attach(now, (interface, station), link_local);
            }
            Input::Own(MagInput::Detached { interface, station }) => {
                self.detach(now, &(interface, station), Why::Detached);
            }
            Input::Own(MagInput::Identified { interface, station, identity }) => {
                self.identified(now, (interface, station), identity);
            }
            Input::Record(_) => {}
        }
    }

    fn tick(&mut self, now: Time) {
        while let Some((place, task)) = self.timers.pop_due(now) {
            self.due(now, &place, task);
        }
        self.beat(now);
    }

    fn poll(&mut self) -> Option<MagOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let timer = self.timers.next().map(|(at, (_, task))| (at, task.why()));
        earlier(timer, self.beats.first().map(|(at, _)| (*at, "a heartbeat is due")))
    }
}
