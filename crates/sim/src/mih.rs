//! IEEE 802.21 on simulated nodes.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Datagram, Input, Interface, LinkEvent, Output};
use segue_mih::{Event, Mihf, MihfConfig, MihfInput, MihfWish, Report, What};
use segue_wire::mih::codes::{LinkDownReason, LinkGoingDownReason};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::ParameterType;

use crate::net::{Adapter, CellId};
use crate::packet::{Packet, UDP};
use crate::present::Present;
use crate::role::{Engine, Pure, Role, RoleAgent, Start};
use crate::{AgentId, Io, Network, NodeId, Results};

/// Adds a function to a node.
pub fn add_mihf(
    network: &mut Network,
    node: NodeId,
    name: impl Into<String>,
    agent: RoleAgent<MihfRole>,
) -> AgentId {
    let port = (UDP, agent.role().config.port);
    network.add_agent(node, name, &[port], Box::new(agent))
}

/// The interface of an adapter under its cell's name, if the cell is one of `cells`.
pub(crate) fn seen_as(cells: &BTreeMap<CellId, String>, adapter: &Adapter) -> Option<Interface> {
    let name = cells.get(&adapter.of_cell?)?.clone();
    Some(Interface { name, ..adapter.interface.clone() })
}

/// The role of a function. Each start sets a new seed.
pub struct MihfRole {
    /// Machine settings, except the seed.
    pub config: MihfConfig,
    /// Cells that are links of this function, with the names of their interfaces.
    pub cells: BTreeMap<CellId, String>,
    /// Links that the function observes itself, by interface name; orders report events of other links.
    pub links: BTreeMap<String, LinkId>,
    /// Measurements of its links, ordered by time.
    pub course: Vec<Measurement>,
    /// Events received since the last start that match its interests.
    pub heard: Vec<Event>,
}

impl MihfRole {
    /// A function without received events.
    #[must_use]
    pub fn new(config: MihfConfig) -> MihfRole {
        let (cells, links) = (BTreeMap::new(), BTreeMap::new());
        MihfRole { config, cells, links, course: Vec::new(), heard: Vec::new() }
    }
}

/// The quality of a link from a point in time on, for every attached station. Parameters that are not listed keep their
/// values.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// When it takes effect.
    pub at: Time,
    /// The link.
    pub link: LinkId,
    /// Parameters and their values, in the machine's encoding.
    pub values: Vec<(ParameterType, u16)>,
}

/// A function, and the links that it observes.
pub struct MihfEngine {
    pure: Pure<Mihf>,
    watch: Watch,
    sources: Sources,
}

/// Source addresses for messages over UDP: the addresses of the node by interface. A message without a source address is
/// sent from the first one that can reach its destination; a function's answer over the interface with its address.
pub(crate) struct Sources {
    /// The function's port, if there is one.
    port: Option<u16>,
    own: Vec<(u32, IpAddr)>,
}

impl Sources {
    /// Before the interfaces are known.
    pub(crate) fn of_port(port: Option<u16>) -> Sources {
        Sources { port, own: Vec::new() }
    }

    /// Notes the addresses of interfaces.
    pub(crate) fn see(&mut self, all: &[Interface]) {
        let of = |interface: &Interface| {
            let index = interface.index;
            interface.addresses.clone().into_iter().map(move |address| (index, address))
        };
        self.own = all.iter().flat_map(of).collect();
    }

    /// Chooses the interface and the source address of a message.
    pub(crate) fn choose(&self, io: &Io<'_>, datagram: &mut Datagram) {
        let (from, to) = (datagram.from.0, datagram.to.0);
        let is_own = from.is_unspecified() || Some(datagram.from.1) == self.port;
        if datagram.protocol != UDP || !is_own {
            return;
        }
        let fits =
            |(_, own): &&(u32, IpAddr)| *own == from || from.is_unspecified() && reaches(*own, to);
        if let Some((index, own)) = self.own.iter().find(fits) {
            (datagram.interface, datagram.from.0) = (Some(*index), *own);
        } else if from.is_unspecified() {
            let mut own = io.node.addresses.iter();
            let own = own.find(|own| own.is_ipv4() == to.is_ipv4());
            datagram.from.0 = own.copied().unwrap_or(from);
        }
    }
}

/// The observed links.
#[derive(Default)]
struct Watch {
    links: BTreeMap<String, LinkId>,
    /// Their interfaces, including removed ones.
    known: BTreeMap<u32, LinkId>,
    /// Their existing interfaces.
    there: Vec<u32>,
    here: Present,
    /// Predicted link losses: (interface, time until then in ms).
    foretold: Vec<(u32, u16)>,
    /// The state of a link may have changed.
    looks: bool,
    /// Future measurements.
    course: VecDeque<Measurement>,
    /// Past measurements by link, oldest first.
    measured: BTreeMap<LinkId, Vec<(ParameterType, u16)>>,
}

impl Watch {
    /// Applies the measurements that are due, for each attached station.
    fn measure(&mut self, now: Time) -> Vec<MihfInput> {
        let mut inputs = Vec::new();
        while self.course.front().is_some_and(|next| next.at <= now) {
            let Some(Measurement { link, values, .. }) = self.course.pop_front() else { break };
            let stations = self.known.iter().filter(|(_, known)| **known == link);
            inputs.extend(stations.filter_map(|(index, _)| {
                let station = Some(LinkAddress::mac(self.here.at(*index)?));
                Some(MihfInput::Measured { link: link.clone(), station, values: values.clone() })
            }));
            let latest = self.measured.entry(link).or_default();
            latest.retain(|(parameter, _)| values.iter().all(|(newer, _)| newer != parameter));
            latest.extend(values);
        }
        inputs
    }

    /// The current measurement for a station that has just attached.
    fn measured_of(&self, event: &Event) -> Option<MihfInput> {
        let values = self.measured.get(&event.link).filter(|_| event.what == What::Up)?.clone();
        let (link, station) = (event.link.clone(), event.station.clone());
        Some(MihfInput::Measured { link, station, values })
    }

    fn note(&mut self, input: &Input<MihfInput, Infallible>) {
        match input {
            Input::Interfaces(all) => {
                let own = all.iter().filter_map(|interface| {
                    Some((interface.index, self.links.get(&interface.name)?.clone()))
                });
                let own: Vec<(u32, LinkId)> = own.collect();
                self.there = own.iter().map(|(index, _)| *index).collect();
                self.known.extend(own);
            }
            Input::Link(LinkEvent::GoingDown { interface, within_ms, .. }) => {
                self.foretold.push((*interface, *within_ms));
            }
            Input::Link(_) => {}
            _ => return,
        }
        self.looks = true;
    }

    /// Events at the observed links since the last call.
    fn look(&mut self, io: &Io<'_>) -> Vec<Event> {
        if !core::mem::take(&mut self.looks) {
            return Vec::new();
        }
        let (left, came) = self.here.look(io, self.there.iter().copied());
        let down = What::Down(LinkDownReason::EXPLICIT_DISCONNECT);
        let mut all: Vec<(u32, [u8; 6], What)> =
            left.into_iter().map(|(at, mac)| (at, mac, down.clone())).collect();
        all.extend(came.into_iter().map(|(at, mac)| (at, mac, What::Up)));
        for (at, within_ms) in core::mem::take(&mut self.foretold) {
            let reason = LinkGoingDownReason::LINK_PARAMETER_DEGRADING;
            let what = What::GoingDown { within_ms, reason };
            all.extend(self.here.at(at).map(|mac| (at, mac, what)));
        }
        let event = |(at, mac, what): (u32, [u8; 6], What)| {
            let link = self.known.get(&at)?.clone();
            Some(Event { link, station: Some(LinkAddress::mac(mac)), what })
        };
        all.into_iter().filter_map(event).collect()
    }
}

impl MihfEngine {
    fn new(config: MihfConfig, watch: Watch) -> MihfEngine {
        let sources = Sources::of_port(Some(config.port));
        MihfEngine { pure: Pure(Mihf::new(config)), watch, sources }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Mihf {
        &self.pure.0
    }
}

impl Engine for MihfEngine {
    type Own = MihfInput;
    type Wish = MihfWish;
    type Report = Report;
    type Record = Infallible;

    fn handle(&mut self, now: Time, input: Input<MihfInput, Infallible>) {
        if let Input::Interfaces(all) = &input {
            self.sources.see(all);
        }
        self.watch.note(&input);
        self.pure.handle(now, input);
    }

    fn receive(&mut self, io: &mut Io<'_>, over: Option<u32>, packet: Packet) {
        self.pure.receive(io, over, packet);
    }

    fn tick(&mut self, now: Time) {
        self.pure.tick(now);
    }

    fn deadline(&self) -> Option<Time> {
        let measured = self.watch.course.front().map(|next| next.at);
        self.pure.deadline().into_iter().chain(measured).min()
    }

    fn poll(&mut self, io: &mut Io<'_>) -> Option<Output<MihfWish, Report, Infallible>> {
        for event in self.watch.look(io) {
            let measured = self.watch.measured_of(&event);
            self.pure.handle(io.now, Input::Own(MihfInput::Event(event)));
            measured.into_iter().for_each(|own| self.pure.handle(io.now, Input::Own(own)));
        }
        for measured in self.watch.measure(io.now) {
            self.pure.handle(io.now, Input::Own(measured));
        }
        let mut output = self.pure.poll(io)?;
        if let Output::Send(datagram, _) = &mut output {
            self.sources.choose(io, datagram);
        }
        Some(output)
    }
}

/// True if `own` is a valid source address for `to`. A gateway's link-local address at its accesses reaches only its
/// link.
fn reaches(own: IpAddr, to: IpAddr) -> bool {
    let of_link = |address: IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    own.is_ipv4() == to.is_ipv4() && of_link(own) == of_link(to)
}

impl Role for MihfRole {
    type Engine = MihfEngine;
    type Order = MihfInput;

    fn start(&mut self, start: &Start) -> MihfEngine {
        self.heard.clear();
        let seed = start.rng().next_u64();
        let course = self.course.clone().into();
        let watch = Watch { links: self.links.clone(), course, ..Watch::default() };
        MihfEngine::new(MihfConfig { seed, ..self.config.clone() }, watch)
    }

    /// A cell has one interface per radio; all of them belong to the cell's link.
    fn sees(&self, adapter: &Adapter) -> Option<Interface> {
        seen_as(&self.cells, adapter).or_else(|| Some(adapter.interface.clone()))
    }

    fn order(agent: &mut RoleAgent<MihfRole>, io: &mut Io<'_>, order: MihfInput) {
        agent.handle(io, Input::Own(order));
    }

    fn apply(&mut self, _io: &mut Io<'_>, _engine: &mut MihfEngine, wish: MihfWish) {
        match wish {
            MihfWish::Event(event) => self.heard.push(event),
            // Simulated links execute no actions, and there is no operator.
            MihfWish::Act { .. } | MihfWish::Answered { .. } => {}
        }
    }

    fn key(never: &Infallible) -> String {
        match *never {}
    }

    fn results(agent: &RoleAgent<MihfRole>, name: &str, results: &mut Results) {
        let mihf = agent.engine().machine();
        let stations: usize = mihf.links().values().map(|link| link.stations.len()).sum();
        results.int(format!("{name}.stations"), stations as u64);
        results.int(format!("{name}.starts"), agent.starts());
    }
}
