//! Hosts and an anchor with faulty links between them: part 1's machines on the simulator's model of the
//! packet path ([`crate::tunnel`]).
//!
//! ```text
//!   flows ─► HostEnd ── Access (interface, NAT, two faulty links) ── AnchorEnd ◄─ flows
//!               └────── signalling connection over one of them ──────┘
//! ```
//!
//! [`mod@reference`] knows what was really registered, given and broken; [`invariants`] and [`agreement`] hold
//! the machines against it.

mod access;
mod agreement;
mod faults;
mod invariants;
mod reference;
mod signal;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::{Rng, Span, Time};
use segue_ip::Input;
use segue_keepalive::Source;
use segue_tunnel::host::LEAST_INNER;
use segue_tunnel::{
    AnchorConfig, AnchorInput, AnchorOutput, ConnId, HostInput, HostOutput, Known, Pool, ProbeKind,
};
use segue_wire::Probe;
use segue_wire::signal::{FromAnchor, FromHost};

use self::access::{LARGE, Node, SILENT, host_config, shape_of};
use self::invariants::Watch;
use self::reference::Reference;
use super::agenda::Agenda;
use super::schedule::{FLOWS, Fault, QUIET_MS, Schedule};
use super::{Record, Violation, World};
use crate::tunnel::{
    AnchorEffect, AnchorEnd, Body, HostEffect, HostEnd, Inner, Message, Outer, Ride,
};

/// Port of the tunnels.
const PORT: u16 = 5005;
/// Where the anchor listens.
const ANCHOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), PORT);
/// Few, so that slots are used again within a run.
const MAX_SLOTS: u32 = 14;
/// A host without a sign of life for this long is forgotten; short, so that it happens within a run.
const EXPIRY: Span = Span::from_secs(6);
/// How long no host gets the address of a removed one; short, so that it ends within a run.
const REST: Span = Span::from_secs(2);
/// Packets of flows are counted in the last seconds of the quiet time, until the second span before the end.
const COUNTED: Span = Span::from_secs(5);
const IN_FLIGHT: Span = Span::from_secs(1);
/// Bytes of a packet of a flow without large ones.
const SMALL: u16 = 200;

/// What a packet of a flow says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    host: u8,
    flow: u8,
    counts: bool,
    /// Of those that count, from 0.
    number: u32,
}

enum Event {
    AtAnchor(SocketAddr, Message<Tag>),
    /// At a host's interface with this index and address.
    AtHost(usize, u32, SocketAddr, Message<Tag>),
    ToAnchor(ConnId, FromHost),
    /// `None`: the connection is closed.
    ToHost(ConnId, Option<FromAnchor>),
    Closed(ConnId),
    Handshake {
        host: usize,
        attempt: u64,
        interface: String,
    },
    LookAtConns,
    Flow(usize, usize, u32),
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Host(usize),
    Anchor,
}

/// The world. See the module's text.
pub struct Tunnels {
    hosts: Vec<Node>,
    anchor: AnchorEnd<Tag>,
    anchor_config: AnchorConfig,
    persisted: BTreeMap<String, Known>,
    conns: signal::Conns,
    queue: Agenda<Event>,
    /// Of seeds and signalling; each link has its own.
    rng: Rng,
    reference: Reference,
    watch: Watch,
    /// Flows' packets of this time count.
    counted: (Time, Time),
    /// Those that arrived: host, flow, number, and whether it went up.
    arrived: BTreeSet<(u8, u8, u32, bool)>,
    /// Those that were too large for a link.
    too_large: BTreeSet<(u8, u8, u32, bool)>,
    /// When a NAT chooses, its number; and new indices of interfaces.
    serial: u16,
    now: Time,
}

impl Tunnels {
    /// The network of a schedule at `start`.
    #[must_use]
    pub fn new(schedule: &Schedule, start: Time) -> Tunnels {
        let mut rng = Rng::new(schedule.seed);
        let source = if schedule.readings { Source::Readings } else { Source::Probes };
        let anchor_config = AnchorConfig {
            port: PORT,
            pool_v4: Pool::new(Ipv4Addr::new(10, 7, 0, 0).into(), 28),
            pool_v6: None,
            max_paths: MAX_SLOTS,
            expiry: EXPIRY,
            rest: REST,
            resting: Vec::new(),
            source,
            allow_upmt: false,
        };
        let mut hosts = Vec::new();
        for (index, shape) in schedule.hosts.iter().enumerate() {
            let config = host_config(shape, 1_000, source, schedule.follows_use);
            let seeds = [seed(&mut rng), seed(&mut rng)];
            hosts.push(Node::new(index, shape, config, seeds, start));
        }
        let mut queue = Agenda::new();
        queue.schedule(start, Event::LookAtConns);
        let end = start + Span::from_millis(schedule.end_ms());
        let quiet = Span::from_millis(QUIET_MS);
        let mut tunnels = Tunnels {
            anchor: AnchorEnd::new(anchor_config.clone(), seed(&mut rng)),
            anchor_config,
            persisted: BTreeMap::new(),
            conns: signal::Conns::default(),
            queue,
            rng,
            reference: Reference::new(&hosts, start),
            watch: Watch::new(&hosts, end - quiet, start),
            counted: (end - COUNTED, end - IN_FLIGHT),
            arrived: BTreeSet::new(),
            too_large: BTreeSet::new(),
            hosts,
            serial: 0,
            now: start,
        };
        for host in 0..tunnels.hosts.len() {
            let announced = tunnels.announce(start, host);
            debug_assert_eq!(announced, Ok(()), "nothing can be wrong yet");
        }
        tunnels
    }

    /// Tells a host which interfaces there are.
    fn announce(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let interfaces = self.hosts[host].interfaces();
        self.tell_host(now, host, Input::Interfaces(interfaces))
    }

    fn tell_host(
        &mut self,
        now: Time,
        host: usize,
        input: impl Into<Input<HostInput, Infallible>>,
    ) -> Result<(), Violation> {
        let mut effects = Vec::new();
        self.hosts[host].end.handle(now, input, &mut effects);
        self.host_effects(now, host, effects)
    }

    fn tell_anchor(&mut self, now: Time, input: AnchorInput) -> Result<(), Violation> {
        let mut effects = Vec::new();
        self.anchor.handle(now, input, &mut effects);
        self.anchor_effects(now, effects)
    }

    fn host_effects(
        &mut self,
        now: Time,
        host: usize,
        effects: Vec<HostEffect<Tag>>,
    ) -> Result<(), Violation> {
        let orders = effects.iter().filter(|effect| invariants::is_order(effect)).count();
        self.watch.on_outputs(Who::Host(host), orders)?;
        for effect in effects {
            match effect {
                HostEffect::Transmit(outer, message) => {
                    self.watch.on_host_sends(now, &self.hosts[host], host, &message)?;
                    self.transmit_up(now, host, outer, message);
                }
                HostEffect::Deliver(inner, _) => self.delivered(inner.payload, false),
                HostEffect::Own(HostOutput::Connect { interfaces }) => {
                    self.watch.on_signal(now, host)?;
                    self.connect(now, host, &interfaces);
                }
                HostEffect::Own(HostOutput::MoveSignal { interface }) => {
                    self.watch.on_signal(now, host)?;
                    self.move_signal(now, host, interface);
                }
                HostEffect::Own(HostOutput::Signal(message)) => {
                    self.watch.on_signal(now, host)?;
                    self.message_from_host(now, host, message);
                }
                HostEffect::Own(HostOutput::Addresses { .. } | HostOutput::SetMtu(_))
                | HostEffect::Report(_)
                | HostEffect::Send(_)
                | HostEffect::Forward(..) => {}
            }
        }
        self.watch.check_host(now, host, &self.hosts[host])
    }

    fn anchor_effects(
        &mut self,
        now: Time,
        effects: Vec<AnchorEffect<Tag>>,
    ) -> Result<(), Violation> {
        self.watch.on_outputs(Who::Anchor, effects.len())?;
        for effect in effects {
            match effect {
                AnchorEffect::Transmit(outer, message) => {
                    self.watch.on_anchor_sends(now, &message)?;
                    self.transmit_down(now, outer, message);
                }
                AnchorEffect::Deliver(inner, _) => self.delivered(inner.payload, true),
                AnchorEffect::Own(AnchorOutput::Signal(conn, message)) => {
                    if let Some(host) = self.conns.host_of(conn) {
                        self.watch.on_signal(now, host)?;
                        let known = self.persisted.get(&self.hosts[host].name);
                        let node = &self.hosts[host];
                        let running = (node.conn == Some(conn)).then_some(node.config.epoch);
                        self.reference.on_signal(now, conn, host, &message, (known, running))?;
                    }
                    self.message_from_anchor(now, conn, message);
                }
                AnchorEffect::Own(AnchorOutput::Close(conn)) => self.close(now, conn),
                AnchorEffect::Persist(known) => {
                    self.persisted.insert(known.name.clone(), known);
                }
                AnchorEffect::Own(AnchorOutput::SetMtu(..))
                | AnchorEffect::Report(_)
                | AnchorEffect::Send(_)
                | AnchorEffect::Forward(..) => {}
            }
        }
        self.watch.check_anchor(now, &self.anchor)
    }

    fn transmit_up(&mut self, now: Time, host: usize, outer: Outer, message: Message<Tag>) {
        let accesses = &mut self.hosts[host].accesses;
        let Some(access) = accesses.iter_mut().find(|access| {
            access.absent_since.is_none()
                && access.ifindex == outer.ifindex
                && access.inside == outer.local.ip()
        }) else {
            return;
        };
        let (tag, bytes) = (tag_of(&message), message.bytes(outer.remote.ip()));
        let carriage = access.carry(now, true, bytes, tag.is_some_and(is_large));
        for at in carriage.arrivals.into_iter().flatten() {
            self.queue.schedule(at, Event::AtAnchor(access.outside, message.clone()));
        }
        if let Some(tag) = tag.filter(|tag| tag.counts && carriage.too_large) {
            self.too_large.insert((tag.host, tag.flow, tag.number, true));
        }
    }

    fn transmit_down(&mut self, now: Time, outer: Outer, message: Message<Tag>) {
        for (host, node) in self.hosts.iter_mut().enumerate() {
            let there =
                |a: &&mut access::Access| a.absent_since.is_none() && a.outside == outer.remote;
            let Some(access) = node.accesses.iter_mut().find(there) else { continue };
            let to = SocketAddr::new(access.inside, PORT);
            let (tag, bytes) = (tag_of(&message), message.bytes(to.ip()));
            let carriage = access.carry(now, false, bytes, tag.is_some_and(is_large));
            for at in carriage.arrivals.into_iter().flatten() {
                let message = message.clone();
                self.queue.schedule(at, Event::AtHost(host, access.ifindex, to, message));
            }
            if let Some(tag) = tag.filter(|tag| tag.counts && carriage.too_large) {
                self.too_large.insert((tag.host, tag.flow, tag.number, false));
            }
            return;
        }
    }

    fn delivered(&mut self, tag: Tag, up: bool) {
        // What was sent twice in doubt may arrive twice.
        if tag.counts && self.arrived.insert((tag.host, tag.flow, tag.number, up)) {
            let flow = &mut self.hosts[usize::from(tag.host)].flows[usize::from(tag.flow)];
            let count = if up { &mut flow.up } else { &mut flow.down };
            count.received += 1;
        }
    }

    fn run_flow(
        &mut self,
        now: Time,
        host: usize,
        flow: usize,
        round: u32,
    ) -> Result<(), Violation> {
        let node = &mut self.hosts[host];
        if !node.flows[flow].runs || node.flows[flow].round != round {
            return Ok(());
        }
        let (pace, dscp) = shape_of(flow);
        self.queue.schedule(now + pace, Event::Flow(host, flow, round));
        let Some(key) = node.key(flow) else { return Ok(()) };
        let counts = (self.counted.0..self.counted.1).contains(&now);
        let number = node.flows[flow].down.sent;
        let tag = Tag { host: host as u8, flow: flow as u8, counts, number };
        let sizes = [node.end.datapath.mtu(), self.anchor.datapath.mtu_to(key.src)];
        let sizes = sizes.map(|mtu| if is_large(tag) { mtu.unwrap_or(LEAST_INNER) } else { SMALL });
        let inner = |key, bytes: u16| Inner { key, dscp, bytes: bytes.into(), payload: tag };
        let goes_up = flow != SILENT;
        if counts {
            node.flows[flow].up.sent += u32::from(goes_up);
            node.flows[flow].down.sent += 1;
        }
        if goes_up {
            let mut effects = Vec::new();
            node.end.send(now, inner(key, sizes[0]), &mut effects);
            self.host_effects(now, host, effects)?;
        }
        let mut effects = Vec::new();
        self.anchor.send(now, inner(key.reversed(), sizes[1]), &mut effects);
        self.anchor_effects(now, effects)
    }

    fn happen(&mut self, now: Time, event: Event) -> Result<(), Violation> {
        match event {
            Event::AtAnchor(from, message) => {
                let mut effects = Vec::new();
                self.watch.on_anchor_receives(now, &self.anchor, &message);
                self.anchor.receive(now, from, ANCHOR, message, &mut effects);
                self.anchor_effects(now, effects)
            }
            Event::AtHost(host, ifindex, to, message) => {
                let node = &mut self.hosts[host];
                let there = node.accesses.iter().any(|access| {
                    access.absent_since.is_none()
                        && (access.ifindex, access.inside) == (ifindex, to.ip())
                });
                if !there {
                    return Ok(());
                }
                let mut effects = Vec::new();
                node.end.receive(now, ANCHOR, to, message, &mut effects);
                self.host_effects(now, host, effects)
            }
            Event::ToAnchor(conn, message) => self.message_at_anchor(now, conn, message),
            Event::ToHost(conn, message) => self.message_at_host(now, conn, message),
            Event::Closed(conn) => self.tell_anchor(now, AnchorInput::Disconnected { conn }),
            Event::Handshake { host, attempt, interface } => {
                self.handshake_done(now, host, attempt, interface)
            }
            Event::LookAtConns => self.look_at_conns(now),
            Event::Flow(host, flow, round) => self.run_flow(now, host, flow, round),
        }
    }

    /// The earliest deadline and whose it is.
    fn deadline(&self) -> Option<(Time, Who)> {
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.filter_map(|(i, node)| Some((node.end.deadline()?, Who::Host(i))));
        let anchor = self.anchor.deadline().map(|at| (at, Who::Anchor));
        hosts.chain(anchor).min_by_key(|(at, _)| *at)
    }

    fn tick(&mut self, now: Time, who: Who) -> Result<(), Violation> {
        self.watch.on_tick(now, who)?;
        match who {
            Who::Host(host) => {
                let mut effects = Vec::new();
                self.hosts[host].end.tick(now, &mut effects);
                self.host_effects(now, host, effects)
            }
            Who::Anchor => {
                let mut effects = Vec::new();
                self.anchor.tick(now, &mut effects);
                self.anchor_effects(now, effects)
            }
        }
    }

    fn restart_host(&mut self, now: Time, host: usize) -> Result<(), Violation> {
        let seed = seed(&mut self.rng);
        let node = &mut self.hosts[host];
        node.config.epoch += 1_000;
        node.end = HostEnd::new(node.config.clone(), seed);
        node.conn = None;
        node.attempt += 1;
        node.began = now;
        for access in &mut node.accesses {
            access.keepalive = (true, now);
        }
        self.conns.host_forgets(host);
        self.watch.host_began(host);
        self.announce(now, host)
    }

    fn restart_anchor(&mut self, now: Time) {
        let resting = self.reference.resting().to_vec();
        let config = AnchorConfig { resting, ..self.anchor_config.clone() };
        self.anchor = AnchorEnd::new(config, seed(&mut self.rng));
        self.anchor.recall(now, self.persisted.values().cloned());
        self.conns.anchor_forgets();
        self.reference.anchor_began(now);
        self.watch.anchor_began();
    }

    /// Signalling between the ends stands, in the eyes of both, and is carried.
    fn registered(&self, host: usize) -> bool {
        let node = &self.hosts[host];
        let at_anchor = self.anchor.machine.hosts().find(|known| known.name == node.name);
        node.end.machine.registered()
            && node.conn.is_some_and(|id| self.conns.is_carried(id, &node.accesses))
            && at_anchor.is_some_and(|known| known.conn == node.conn)
    }
}

impl World for Tunnels {
    fn next(&self) -> Option<Time> {
        let deadline = self.deadline().map(|(at, _)| at.max(self.now));
        deadline.into_iter().chain(self.queue.next_at()).min()
    }

    fn step(&mut self, now: Time, record: &mut Record) -> Result<(), Violation> {
        self.now = now;
        // What has arrived goes before a tick that is due.
        if let Some((_, event)) = self.queue.pop_until(now) {
            record.note(now, &words(&event), || text(&event));
            return self.happen(now, event);
        }
        let Some((_, who)) = self.deadline() else { return Ok(()) };
        let number = match who {
            Who::Host(host) => host as u64,
            Who::Anchor => u64::MAX,
        };
        record.note(now, &[8, number], || match who {
            Who::Host(host) => format!("tick of host {host}"),
            Who::Anchor => "tick of the anchor".into(),
        });
        self.tick(now, who)
    }

    fn inject(&mut self, now: Time, fault: &Fault, _: &mut Record) -> Result<(), Violation> {
        self.now = now;
        self.on_fault(now, fault)
    }

    fn check(&mut self, now: Time) -> Result<(), Violation> {
        for host in 0..self.hosts.len() {
            let registered = self.registered(host);
            self.reference.note_registered(now, host, registered);
        }
        self.expect_no_flow_on_a_dead_path(now)?;
        self.expect_large_packets_pass()?;
        self.expect_answers(now)?;
        self.expect_agreement(now)
    }

    fn finish(&mut self, now: Time) -> Result<(), Violation> {
        self.expect_recovered(now)
    }

    fn describe(&self) -> String {
        agreement::describe(self)
    }
}

fn seed(rng: &mut Rng) -> [u8; 32] {
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    seed
}

/// What a packet of a flow says about itself.
fn tag_of(message: &Message<Tag>) -> Option<Tag> {
    message.inner().map(|inner| inner.payload)
}

fn is_large(tag: Tag) -> bool {
    usize::from(tag.flow) == LARGE
}

fn words(event: &Event) -> [u64; 4] {
    let packet = |message: &Message<Tag>| match &message.body {
        Body::Data { inner, .. } => u64::from(inner.payload.flow),
        Body::Probe { probe, .. } => 1 << 32 | u64::from(probe.seq),
        Body::Ride(ride) => {
            u64::from(3 + ride.inner.payload.flow) << 32 | u64::from(ride.probe.seq)
        }
        Body::Size { size, .. } => 2 << 32 | u64::from(size.token),
    };
    match event {
        Event::AtAnchor(_, message) => [1, message.index.into(), message.cookie, packet(message)],
        Event::AtHost(host, _, _, message) => [2, *host as u64, message.cookie, packet(message)],
        Event::ToAnchor(conn, _) => [3, conn.0, 0, 0],
        Event::ToHost(conn, _) => [4, conn.0, 0, 0],
        Event::Closed(conn) => [5, conn.0, 0, 0],
        Event::Handshake { host, attempt, .. } => [6, *host as u64, *attempt, 0],
        Event::LookAtConns => [7, 0, 0, 0],
        Event::Flow(host, flow, round) => [9, *host as u64, *flow as u64, (*round).into()],
    }
}

fn text(event: &Event) -> String {
    let data = |inner: &Inner<Tag>, one_way: bool| {
        let one_way = if one_way { ", one way" } else { "" };
        format!("data of flow {}.{}{one_way}", inner.payload.host, inner.payload.flow)
    };
    let says =
        |kind: ProbeKind, probe: &Probe| format!("{kind:?} {}, heard {:b}", probe.seq, probe.heard);
    let packet = |message: &Message<Tag>| match &message.body {
        Body::Data { inner, one_way, .. } => data(inner, *one_way),
        Body::Probe { kind, probe, .. } => says(*kind, probe),
        Body::Ride(ride) => {
            let Ride { inner, one_way, kind, probe, .. } = &**ride;
            format!("{} with {}", data(inner, *one_way), says(*kind, probe))
        }
        Body::Size { size, .. } => format!("{size:?}"),
    };
    match event {
        Event::AtAnchor(from, message) => {
            format!("from {from} at the anchor's slot {}: {}", message.index, packet(message))
        }
        Event::AtHost(host, _, to, message) => {
            let slot = message.index;
            format!("to {to} at host {host}'s path {slot}: {}", packet(message))
        }
        Event::ToAnchor(conn, message) => format!("{conn:?} at the anchor: {message:?}"),
        Event::ToHost(conn, message) => format!("{conn:?} at the host: {message:?}"),
        Event::Closed(conn) => format!("{conn:?} closed at the anchor"),
        Event::Handshake { host, interface, .. } => {
            format!("handshake of host {host} over {interface}")
        }
        Event::LookAtConns => "look at the connections".into(),
        Event::Flow(host, flow, _) => format!("flow {host}.{flow} sends"),
    }
}

/// All flows by number.
fn all_flows() -> core::ops::Range<usize> {
    0..FLOWS
}
