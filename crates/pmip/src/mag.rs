//! The mobile access gateway: registers the hosts at its accesses and forwards their traffic.

mod advertise;
mod anchors;
mod carried;
mod config;
mod identify;
mod io;
mod newcomers;
mod register;
mod state;
mod station;
mod stays;
mod stored;
mod told;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{DayClock, Deadline, Machine, Time, Timers, earlier};
use segue_ip::{Datagram, Forward, Input, Interface, LinkEvent, Output, Port, Prefix, Source};
use segue_wire::mobility::body::BindingRevocation;
use segue_wire::mobility::{Body, Message};

use crate::heart::Hearts;
use crate::keepalive::Answers;
use crate::message::{Registration, read};
use crate::news::Why;
use crate::peer::{Ends, UDP};
use crate::{LinkLayer, MOBILITY, NodeId, Refusal, Refused, Report};
pub use config::{
    Access, AttachBy, Encapsulation, FIXED_LINK_LOCAL, FIXED_MAC, HOSTS_MAX, Identities, Identity,
    Lifetimes, MagConfig,
};
pub use io::{MagInput, MagOutput, MagRecord, StoredStation, Wish};
use newcomers::Newcomers;
pub use state::StationState;
pub use station::Station;
use station::{Anchor, Carried, Place, Task};
use stays::Stays;

/// The state machine of a gateway.
pub struct Mag {
    config: MagConfig,
    /// Present access interfaces: interface index, and index of the access in the configuration.
    links: BTreeMap<u32, usize>,
    stations: BTreeMap<Place, Station>,
    /// The stations of each host.
    nodes: BTreeMap<NodeId, BTreeSet<Place>>,
    /// Prefixes that are forwarded here.
    carried: BTreeMap<Prefix, Carried>,
    /// Stations by the sequence number of their unacknowledged update.
    open: BTreeMap<u16, Place>,
    timers: Timers<(Place, Task)>,
    anchors: BTreeMap<IpAddr, Anchor>,
    /// Answering ends of keepalives, by anchor and own address.
    answers: BTreeMap<(IpAddr, IpAddr), Answers>,
    hearts: Hearts<IpAddr>,
    /// When to send the next NAT keepalive, by own address and anchor.
    keepalives: Timers<(IpAddr, IpAddr)>,
    stays: Stays,
    newcomers: Newcomers,
    /// Stations whose registrations an anchor has revoked, and until when their packets do not attach them again.
    revoked: BTreeMap<LinkLayer, Time>,
    /// Records of earlier starts, held until the interfaces are known.
    records: Vec<MagRecord>,
    sequence: u16,
    tunnel: u32,
    /// Maximum inner packet size of tunnels in bytes, where known.
    sizes: BTreeMap<u32, u32>,
    refused: Refused,
    out: VecDeque<MagOutput>,
}

impl Mag {
    /// Creates a gateway without hosts.
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
            answers: BTreeMap::new(),
            hearts: Hearts::default(),
            keepalives: Timers::new(),
            stays: Stays::new(config.capacity),
            newcomers: Newcomers::default(),
            revoked: BTreeMap::new(),
            records: Vec::new(),
            sequence: segue_clock::Rng::new(config.seed).next_u64() as u16,
            tunnel: 0,
            sizes: BTreeMap::new(),
            refused: Refused::new(),
            out: VecDeque::new(),
            config,
        }
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &MagConfig {
        &self.config
    }

    /// The configured anchors, and other anchors of hosts that are here.
    pub fn anchors(&self) -> impl Iterator<Item = IpAddr> {
        self.config.anchors().chain(self.anchors.keys().copied())
    }

    /// All stations: the access, the link-layer identifier, and the state.
    pub fn stations(&self) -> impl Iterator<Item = (&Access, &LinkLayer, &Station)> {
        let all = self.stations.iter();
        all.map(|((_, station), at)| (&self.config.accesses[at.access], station, at))
    }

    /// The station with this link-layer identifier at the access with this interface index.
    #[must_use]
    pub fn station(&self, interface: u32, station: &LinkLayer) -> Option<(&Access, &Station)> {
        let at = self.stations.get(&(interface, station.clone()))?;
        Some((&self.config.accesses[at.access], at))
    }

    /// Link-layer identifiers of the served stations at the access with this interface index.
    pub fn served_at(&self, interface: u32) -> impl Iterator<Item = &LinkLayer> {
        let all = self.stations.range((interface, LinkLayer::default())..);
        let here = all.take_while(move |((of, _), _)| *of == interface);
        here.filter(|(_, at)| at.state.is_served()).map(|((_, station), _)| station)
    }

    /// Counts of refused messages.
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
        // Nothing that a gateway sends depends on its records.
        self.out.extend(datagram.map(|datagram| Output::Send(datagram, None)));
    }

    fn interfaces(&mut self, now: Time, all: &[Interface]) {
        let is_of = |interface: &Interface, access: &Access| access.interface == interface.name;
        let found = all.iter().filter_map(|interface| {
            let access = self.config.accesses.iter().position(|a| is_of(interface, a))?;
            Some((interface.index, access))
        });
        let links: BTreeMap<u32, usize> = found.collect();
        // The same index may belong to another interface by now.
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

    fn link(&mut self, now: Time, event: LinkEvent) {
        // Stations that are heard after a link has come up are attached to it.
        if let LinkEvent::Up { interface, .. } = event
            && self.access(interface).is_some_and(|a| a.by == AttachBy::Driver)
        {
            self.revoked.clear();
        }
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
        if ![MOBILITY, UDP].contains(&came.protocol) {
            return self.discover(now, came);
        }
        // Anchors are never behind an access: a host there forges an anchor's address.
        if came.interface.is_some_and(|interface| self.links.contains_key(&interface)) {
            return Err(Refusal::FromHost);
        }
        let ends = Ends::of(came)?;
        let (from, to) = (ends.peer.0, ends.own.0);
        // For another gateway on the same node.
        if !self.config.accesses.iter().any(|access| access.proxy_coa == to) {
            return Ok(());
        }
        let profile = self.config.profile;
        let Message { body, options } = read(came, ends, &profile)?;
        match body {
            Body::BindingAcknowledgement(answer) => {
                self.acknowledged(now, &answer, &options, (from, to))
            }
            Body::Heartbeat(beat) => self.on_beat(now, &beat, &Registration::of(&options), ends),
            // The configured anchor may ask about a host that is forgotten here, and gets an answer.
            _ if !self.anchors.contains_key(&from) && from != self.config.anchor => {
                Err(Refusal::Stranger)
            }
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

/// Forwarding state of an access link: the address that all gateways share, and a link-local source prefix. The latter
/// lets no forwarded packet through, so that source checks apply to the link from the start.
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
            Input::Own(MagInput::Heard { interface, station, link_local }) => {
                self.heard(now, (interface, station), link_local);
            }
            Input::Own(MagInput::Solicited { interface, station, link_local }) => {
                self.solicited(now, (interface, station), link_local);
            }
            Input::Own(MagInput::Detached { interface, station }) => {
                self.detach(now, &(interface, station), Why::Detached);
            }
            Input::Own(MagInput::Identified { interface, station, identity }) => {
                self.identified(now, (interface, station), identity);
            }
            Input::Own(MagInput::TunnelSize { tunnel, bytes }) => {
                self.resized(now, tunnel, bytes);
            }
            Input::Record(_) => {}
        }
    }

    fn tick(&mut self, now: Time) {
        while let Some((place, task)) = self.timers.pop_due(now) {
            self.due(now, &place, task);
        }
        self.beat(now);
        self.keep_alive(now);
    }

    fn poll(&mut self) -> Option<MagOutput> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let timer = self.timers.next().map(|(at, (_, task))| (at, task.why()));
        let keepalive = self.keepalives.next().map(|(at, _)| (at, "a NAT is to be kept open"));
        earlier(earlier(timer, keepalive), self.hearts.deadline())
    }
}
