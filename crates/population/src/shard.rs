//! One part of a population: its hosts, paths and anchors, with one event queue.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::{Span, Time};
use segue_ip::{Input, Interface, Output, Prefix};
use segue_keepalive::State;
use segue_tunnel::{
    AnchorConfig, AnchorInput, AnchorOutput, Cause, ConnId, HostConfig, HostInput, HostOutput,
    PathConfig, Pool, Report,
};
use segue_wire::Encapsulation;

use super::access::{Direction, Fate, Outage, SplitMix};
use super::places::{
    AnchorPlace, Connection, Flow, HostPlace, PathPlace, ShardEvent, SignalInFlight,
};
use super::spec::Spec;
use super::stats::Stats;
use super::store::Store;
use super::truth::{End, Truth};
use segue_sim::queue::EventQueue;
use segue_sim::tunnel::{
    AnchorEffect, AnchorEnd, Arrived, Body, HostEffect, HostEnd, Message, Outer,
};

/// UDP port of the tunnels.
const PORT: u16 = 4_754;
/// First address of paths, 11.0.0.0. Shards use the same addresses.
const FIRST_PATH: u32 = 0x0b00_0000;
/// First address of anchors, 198.18.0.0 (RFC 2544).
const FIRST_ANCHOR: u32 = 0xc612_0000;

/// Number of upcoming events that the queue keeps sorted.
const FORESEEN: usize = 400;

/// One part of a population. [`Shard::run_until`] advances it, [`Shard::finish`] returns its statistics.
pub struct Shard {
    pub(super) spec: Spec,
    pub(super) now: Time,
    /// Start of the measurement.
    pub(super) from: Time,
    pub(super) queue: EventQueue<ShardEvent>,
    pub(super) hosts: Vec<HostPlace>,
    pub(super) anchors: Vec<AnchorPlace>,
    /// The paths of a host are adjacent.
    pub(super) paths: Vec<PathPlace>,
    pub(super) flows: Vec<Flow>,
    pub(super) packets: Store<Message<u32>>,
    pub(super) signals: Store<SignalInFlight>,
    pub(super) stats: Stats,
    /// Number of the first host in the whole population.
    first: u32,
    /// Number of events until the next prefetch.
    pub(super) warm_in: usize,
    /// The packet paths measure for the machines.
    pub(super) reads: bool,
    pub(super) host_effects: Vec<HostEffect<u32>>,
    pub(super) anchor_effects: Vec<AnchorEffect<u32>>,
}

impl Shard {
    /// Creates part `number` of a population that has passed [`Spec::check`].
    #[must_use]
    pub fn new(spec: &Spec, number: u32) -> Shard {
        let (first, count) = spec.hosts_of(number);
        let anchors = spec.anchors_of(number);
        let from = spec.measured_from();
        let mut shard = Shard {
            now: Time::ZERO,
            from,
            queue: EventQueue::foreseeing(FORESEEN),
            hosts: Vec::with_capacity(count as usize),
            anchors: Vec::with_capacity(anchors as usize),
            paths: Vec::with_capacity(count as usize * spec.paths.len()),
            flows: Vec::new(),
            packets: Store::new(),
            signals: Store::new(),
            stats: Stats::new(spec.classes.len(), 0),
            first,
            warm_in: 0,
            reads: spec.measured_by == segue_keepalive::MeasuredBy::PacketPath,
            host_effects: Vec::new(),
            anchor_effects: Vec::new(),
            spec: spec.clone(),
        };
        let anchor_seed = SplitMix::new(spec.seed, 4, u64::from(number)).next();
        for anchor in 0..anchors {
            shard.add_anchor(seed(anchor_seed, 5, anchor), count.div_ceil(anchors));
        }
        let configs: Vec<_> = (0..anchors).map(|anchor| shard.host_config(anchor)).collect();
        for host in 0..count {
            shard.add_host(host, configs[shard.anchor_of(host)].clone());
        }
        shard.add_flows();
        shard
    }

    fn add_anchor(&mut self, seed: [u8; 32], hosts: u32) {
        let config = AnchorConfig {
            port: PORT,
            pool_v4: Pool::new(Prefix::new([10, 0, 0, 0], 8)),
            pool_v6: None,
            max_paths: hosts * self.spec.paths.len() as u32 + 1,
            expiry: Span::from_secs(3_600),
            rest: Span::ZERO,
            resting: Vec::new(),
            measured_by: self.spec.measured_by,
            largest: None,
            allow_upmt: false,
        };
        let end = AnchorEnd::new(config, seed);
        self.anchors.push(AnchorPlace::new(end));
    }

    /// The configuration that all hosts of an anchor share.
    fn host_config(&self, anchor: u32) -> Arc<HostConfig> {
        Arc::new(HostConfig {
            anchor: alloc::vec![self.anchor_address(anchor)],
            epoch: 1,
            port: PORT,
            path: PathConfig {
                keepalive: self.spec.keepalive(),
                enabled: true,
                adaptive: None,
                price: 0.0,
                preference: 0.0,
                encapsulation: Encapsulation::Segue,
                source: None,
            },
            paths: alloc::collections::BTreeMap::new(),
            steering: Arc::default(),
            measured_by: self.spec.measured_by,
            largest: None,
        })
    }

    fn add_host(&mut self, host: u32, config: Arc<HostConfig>) {
        let number = self.first + host;
        let end = HostEnd::new(config, seed(self.spec.seed, 6, number));
        self.hosts.push(HostPlace { end, connection: Connection::default(), armed: None });
        for (place, class) in self.spec.paths.iter().enumerate() {
            let class = &self.spec.classes[*class];
            let path = u64::from(number) * segue_wire::MAX_PATHS as u64 + place as u64;
            let seed = self.spec.seed;
            self.paths.push(PathPlace {
                up: Direction::new(class, seed, path * 2),
                down: Direction::new(class, seed, path * 2 + 1),
                outage: Outage::new(class.outages, self.from, seed, path),
                truth: Truth::default(),
            });
        }
        let start =
            SplitMix::new(self.spec.seed, 7, u64::from(number)).below(self.spec.start_over.0);
        self.queue.schedule(Time(start), ShardEvent::Start(host));
    }

    /// Processes all events up to `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some((now, event)) = self.queue.pop_until(end) {
            self.warm_some();
            self.now = now;
            self.stats.events += 1;
            self.happen(event);
        }
        self.now = end;
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.stats.events
    }

    fn happen(&mut self, event: ShardEvent) {
        match event {
            ShardEvent::Start(host) => self.start(host),
            ShardEvent::Host(host) => self.on_host_deadline(host),
            ShardEvent::Anchor(anchor) => self.on_anchor_deadline(anchor),
            ShardEvent::Up { path, packet } => self.arrive_at_anchor(path, packet),
            ShardEvent::Down { path, packet } => self.arrive_at_host(path, packet),
            ShardEvent::Signal(signal) => self.on_signal(signal),
            ShardEvent::Flow(flow) => self.on_flow(flow),
            ShardEvent::Order(flow) => self.on_order(flow),
        }
    }

    fn start(&mut self, host: u32) {
        let classes = self.spec.paths.iter().enumerate();
        let interfaces = classes.map(|(place, class)| Interface {
            name: self.spec.classes[*class].name.clone(),
            index: place as u32 + 1,
            addresses: alloc::vec![path_address(self.path(host, place)).ip()],
            gateways: Vec::new(),
            mtu_bytes: 1_500,
            ..Interface::default()
        });
        let interfaces = interfaces.collect();
        self.tell_host(host, Input::Interfaces(interfaces));
    }

    /// Index of a host's path in the shard.
    pub(super) fn path(&self, host: u32, place: usize) -> u32 {
        host * self.spec.paths.len() as u32 + place as u32
    }

    pub(super) fn host_of(&self, path: u32) -> u32 {
        path / self.spec.paths.len() as u32
    }

    pub(super) fn class_of(&self, path: u32) -> usize {
        self.spec.paths[path as usize % self.spec.paths.len()]
    }

    pub(super) fn anchor_of(&self, host: u32) -> usize {
        host as usize % self.anchors.len()
    }

    pub(super) fn anchor_address(&self, host: u32) -> SocketAddr {
        let number = FIRST_ANCHOR + self.anchor_of(host) as u32;
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from(number)), PORT)
    }

    fn on_host_deadline(&mut self, host: u32) {
        let place = &mut self.hosts[host as usize];
        if place.armed != Some(self.now) {
            return;
        }
        place.armed = None;
        if place.end.deadline().is_some_and(|at| at <= self.now) {
            place.end.tick(self.now, &mut self.host_effects);
            self.follow_host(host);
        } else {
            self.arm_host(host);
        }
    }

    pub(super) fn tell_host(&mut self, host: u32, input: impl Into<Input<HostInput, Infallible>>) {
        self.hosts[host as usize].end.handle(self.now, input, &mut self.host_effects);
        self.follow_host(host);
    }

    /// Carries out what a host's end requests, and schedules its deadline.
    pub(super) fn follow_host(&mut self, host: u32) {
        let mut effects = core::mem::take(&mut self.host_effects);
        for effect in effects.drain(..) {
            self.host_effect(host, effect);
        }
        self.host_effects = effects;
        self.arm_host(host);
    }

    fn arm_host(&mut self, host: u32) {
        let place = &mut self.hosts[host as usize];
        let Some(at) = place.end.deadline() else { return };
        if place.armed.is_none_or(|armed| at < armed) {
            let at = at.max(self.now);
            place.armed = Some(at);
            self.queue.schedule(at, ShardEvent::Host(host));
        }
    }

    fn host_effect(&mut self, host: u32, effect: HostEffect<u32>) {
        match effect {
            HostEffect::Transmit(outer, message) => self.transmit_up(&outer, message),
            HostEffect::Deliver(inner, place) => self.delivered(inner.payload, false, place),
            HostEffect::Ask(Output::Own(HostOutput::Connect { interfaces })) => {
                self.connect(host, &interfaces)
            }
            HostEffect::Ask(Output::Own(HostOutput::MoveSignal { interface })) => {
                self.move_signal(host, &interface)
            }
            HostEffect::Ask(Output::Own(HostOutput::Signal(message))) => {
                self.signal_up(host, message)
            }
            HostEffect::Ask(Output::Report(report)) => self.host_report(host, &report),
            HostEffect::Ask(_) => {}
        }
    }

    fn host_report(&mut self, host: u32, report: &Report) {
        match report {
            Report::PathState { path, state, silent, .. } => {
                self.on_state(host, End::Host, path, (*state, *silent));
            }
            Report::Handover { cause, .. } if self.now >= self.from => {
                let place = Cause::ALL.iter().position(|known| known == cause);
                self.stats.handovers[place.expect("every cause is in the list")] += 1;
            }
            _ => {}
        }
    }

    fn on_state(&mut self, host: u32, end: End, name: &str, state: (State, Option<Span>)) {
        let named = |class: &&usize| self.spec.classes[**class].name == name;
        let place = self.spec.paths.iter().position(|class| named(&class));
        let Some(place) = place else { return };
        let path = self.path(host, place);
        self.pass_outages(path);
        let class = self.class_of(path);
        let end_of_run = Time::ZERO + self.spec.duration;
        let last = end_of_run - bound(&self.spec, class);
        let place = &mut self.paths[path as usize];
        let world = (&place.outage, &self.spec.classes[class], (self.from, last));
        place.truth.on_state(self.now, end, state, world, &mut self.stats.classes[class]);
    }

    /// Passes the outages of a path up to now.
    pub(super) fn pass_outages(&mut self, path: u32) {
        let number = self.class_of(path);
        let class = &self.spec.classes[number];
        let place = &mut self.paths[path as usize];
        while let Some(over) = place.outage.pass(self.now, class.outages) {
            let bound = bound(&self.spec, number);
            place.truth.on_over(over, bound, class, &mut self.stats.classes[number]);
        }
    }

    fn on_anchor_deadline(&mut self, anchor: u32) {
        let place = &mut self.anchors[anchor as usize];
        if place.armed != Some(self.now) {
            return;
        }
        place.armed = None;
        if place.end.deadline().is_some_and(|at| at <= self.now) {
            place.end.tick(self.now, &mut self.anchor_effects);
            self.follow_anchor(anchor as usize);
        } else {
            self.arm_anchor(anchor as usize);
        }
    }

    pub(super) fn tell_anchor(&mut self, anchor: usize, input: AnchorInput) {
        self.anchors[anchor].end.handle(self.now, input, &mut self.anchor_effects);
        self.follow_anchor(anchor);
    }

    /// Carries out what an anchor's end requests, and schedules its deadline.
    pub(super) fn follow_anchor(&mut self, anchor: usize) {
        let mut effects = core::mem::take(&mut self.anchor_effects);
        for effect in effects.drain(..) {
            match effect {
                AnchorEffect::Transmit(outer, message) => self.transmit_down(&outer, message),
                AnchorEffect::Deliver(inner, slot) => {
                    let number = self.anchors[anchor].end.machine.path(slot).map(|p| p.number);
                    self.delivered(inner.payload, true, number.unwrap_or(0).into());
                }
                AnchorEffect::Ask(Output::Own(AnchorOutput::Signal(ConnId(host), message))) => {
                    self.signal_down(host as u32, Some(message));
                }
                AnchorEffect::Ask(Output::Own(AnchorOutput::Close(conn))) => {
                    self.signal_down(conn.0 as u32, None);
                    self.tell_anchor(anchor, AnchorInput::Disconnected { conn });
                }
                AnchorEffect::Ask(Output::Report(report)) => self.anchor_report(&report),
                AnchorEffect::Ask(_) => {}
            }
        }
        self.anchor_effects = effects;
        self.arm_anchor(anchor);
    }

    fn arm_anchor(&mut self, anchor: usize) {
        let place = &mut self.anchors[anchor];
        let Some(at) = place.end.deadline() else { return };
        if place.armed.is_none_or(|armed| at < armed) {
            let at = at.max(self.now);
            place.armed = Some(at);
            self.queue.schedule(at, ShardEvent::Anchor(anchor as u32));
        }
    }

    fn anchor_report(&mut self, report: &Report) {
        match report {
            Report::PathState { host, path, state, silent, .. } => {
                if let Some(host) = host.strip_prefix('h').and_then(|host| host.parse().ok()) {
                    self.on_state(host, End::Anchor, path, (*state, *silent));
                }
            }
            Report::Handover { .. } if self.now >= self.from => self.stats.redirected += 1,
            _ => {}
        }
    }

    fn transmit_up(&mut self, outer: &Outer, message: Message<u32>) {
        let path = path_number(outer.local);
        let is_probe = message.is_probe();
        self.stats.requests_sent += u64::from(is_probe && self.now >= self.from);
        let fate = self.offer(path, true);
        if let Fate::Arrives(at) = fate {
            let packet = self.packets.put(message);
            self.queue.schedule(at, ShardEvent::Up { path, packet });
        } else if is_probe {
            self.note_exchange(path, fate);
        }
    }

    fn transmit_down(&mut self, outer: &Outer, message: Message<u32>) {
        let path = path_number(outer.remote);
        let answers = is_answer(&message);
        let fate = self.offer(path, false);
        if let Fate::Arrives(at) = fate {
            let packet = self.packets.put(message);
            self.queue.schedule(at, ShardEvent::Down { path, packet });
        }
        if answers {
            self.note_exchange(path, fate);
        }
    }

    /// Offers a packet to one direction of a path.
    fn offer(&mut self, path: u32, up: bool) -> Fate {
        if self.paths[path as usize].outage.end <= self.now {
            self.pass_outages(path);
        }
        let class = &self.spec.classes[self.class_of(path)];
        let place = &mut self.paths[path as usize];
        let silenced = || class.outages.is_some_and(|outages| outages.silences(up));
        let silent = place.outage.covers(self.now) && silenced();
        let direction = if up { &mut place.up } else { &mut place.down };
        direction.offer(self.now, class, silent)
    }

    /// Records the outcome of an exchange: its request was lost, or its response was sent with this fate.
    fn note_exchange(&mut self, path: u32, fate: Fate) {
        if self.now < self.from {
            return;
        }
        let class = self.class_of(path);
        let place = &mut self.paths[path as usize];
        match fate {
            Fate::Silent => place.truth.on_silence(),
            Fate::Arrives(_) | Fate::Lost => {
                let (answered, stats) = (fate != Fate::Lost, &mut self.stats.classes[class]);
                place.truth.on_exchange(answered, self.spec.k, stats);
            }
        }
    }

    fn arrive_at_anchor(&mut self, path: u32, packet: u32) {
        let message = self.packets.take(packet);
        let host = self.host_of(path);
        let (anchor, to) = (self.anchor_of(host), self.anchor_address(host));
        let place = &mut self.anchors[anchor];
        let effects = &mut self.anchor_effects;
        let arrived = place.end.receive(self.now, path_address(path), to, message, effects);
        match arrived {
            Arrived::Data | Arrived::Size => {}
            Arrived::Refused => self.stats.refused += 1,
            Arrived::Probe | Arrived::Quiet => place.count(self.now, self.from, (1, 0)),
        }
        self.follow_anchor(anchor);
    }

    fn arrive_at_host(&mut self, path: u32, packet: u32) {
        let message = self.packets.take(packet);
        let host = self.host_of(path);
        let from = self.anchor_address(host);
        let end = &mut self.hosts[host as usize].end;
        let effects = &mut self.host_effects;
        match end.receive(self.now, from, path_address(path), message, effects) {
            // The packet path handled it without notifying the machine or the driver.
            Arrived::Quiet => {
                self.stats.kept += 1;
                return;
            }
            Arrived::Probe => self.stats.seen += 1,
            Arrived::Refused => self.stats.refused += 1,
            Arrived::Data | Arrived::Size => {}
        }
        self.follow_host(host);
    }

    /// Ends the run and returns the statistics. Packets in flight are ignored.
    #[must_use]
    pub fn finish(mut self) -> Stats {
        for path in 0..self.paths.len() as u32 {
            self.pass_outages(path);
            let place = &self.paths[path as usize];
            let up = |end| place.truth.is_up(end);
            let well = up(End::Host) && up(End::Anchor) || place.outage.covers(self.now);
            self.stats.accounted += u64::from(well);
        }
        for place in &self.hosts {
            self.stats.registered += u64::from(!place.end.machine.inner().is_empty());
            self.stats.wrong += u64::from(place.end.wrong().is_some());
        }
        for place in &mut self.anchors {
            self.stats.wrong += u64::from(place.end.wrong().is_some());
            place.count(self.now, self.from, (0, 0));
            self.stats.anchors.push(place.load);
        }
        self.stats
    }

    /// Virtual time up to which all events have been processed.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }
}

/// T_Rmax of eq. 1 for a path of a class.
pub(super) fn bound(spec: &Spec, class: usize) -> Span {
    let class = &spec.classes[class];
    spec.keepalive().t_r_max((class.delay + class.jitter) * 2)
}

/// Returns true for a response to a request, and false for an unsolicited one.
fn is_answer(message: &Message<u32>) -> bool {
    matches!(message.body, Body::Probe { kind: segue_tunnel::ProbeKind::Response, .. })
}

pub(super) fn path_address(path: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(FIRST_PATH + path)), PORT)
}

fn path_number(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(address) => u32::from(address) - FIRST_PATH,
        IpAddr::V6(_) => unreachable!("paths have addresses of IPv4"),
    }
}

/// Name of a host at its anchor.
pub(super) fn host_name(host: u32) -> alloc::string::String {
    format!("h{host}")
}

/// Seed of a machine.
fn seed(seed: u64, kind: u64, number: u32) -> [u8; 32] {
    let mut mix = SplitMix::new(seed, kind, u64::from(number));
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&mix.next().to_le_bytes());
    }
    bytes
}
