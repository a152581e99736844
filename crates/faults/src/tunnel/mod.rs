//! Hosts and an anchor on a [`Stage`]: the simulator's roles ([`segue_sim::tunnel`]), which the daemons' machines run in.
//!
//! ```text
//!   Apps ── HostAgent ══ stage: interfaces, faulty links, NATs ══ AnchorAgent ── Apps
//!                               │ Tap reads the bytes
//! ```
//!
//! [`mod@reference`] knows what was really registered, given and broken; [`invariants`] and [`agreement`] hold
//! the machines against it.

mod agreement;
mod apps;
mod invariants;
mod orders;
mod reference;
pub mod shape;
mod streams;
mod tap;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_clock::{Rng, Span, Time};
use segue_ip::Prefix;
use segue_keepalive::Config as Keepalive;
use segue_sim::packet::UDP;
use segue_sim::tunnel::{
    AnchorAgent, AnchorEnd, AnchorRole, HostAgent, HostEnd, HostRole, add_anchor, add_host,
};
use segue_sim::{AgentId, Packet};
use segue_steering::Class;
use segue_tunnel::host::LEAST_INNER;
use segue_tunnel::{AnchorConfig, Pool};
use segue_wire::FlowKey;

use self::apps::Apps;
use self::invariants::Watch;
use self::reference::Reference;
use self::shape::{HostSettings, Moved, Order, Settings, host_config};
use self::streams::Streams;
use self::tap::{Place, Tag, Tap, Tape, What};
use crate::agenda::Agenda;
use crate::protocol::Protocol;
use crate::schedule::{Entry, Fault, HostShape, Node, PathRef, PathShape, QUIET_MS, Way};
use crate::stage::{CORE, Scene, Stage, Staged, Touched, Truth};
use crate::{Record, Schedule, Violation, Words, World};
use segue_sim::net::LinkFault;

/// Port of the tunnels.
const PORT: u16 = 5005;
/// Where the anchor listens.
const ANCHOR: SocketAddr = SocketAddr::new(CORE, PORT);
/// With whom the hosts' applications talk, on the anchor's node.
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
/// Ports of the applications: the server's, and the first of a host.
const SERVER_PORT: u16 = 7_000;
const APP_PORT: u16 = 40_000;
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
/// Flows of each host.
const FLOWS: usize = 3;
/// The flow whose packets are as large as the tunnel takes.
const LARGE: usize = 1;
/// The flow that only comes down: the anchor learns nothing from it.
const SILENT: usize = 2;
/// A flow that sends nothing large over a path for this long has left it.
const PAUSE: Span = Span::from_millis(500);
/// Sizes that a narrowed link takes, or is said to: those of tunnels of many kinds, and one below any IPv6 link's.
const MTUS: [u16; 8] = [1_280, 1_330, 1_358, 1_400, 1_420, 1_492, 1_500, 1_000];

/// What a flow is like: distance of its packets and code point.
fn shape_of(flow: usize) -> (Span, u8) {
    // Voice (EF), bulk (CS1) and default.
    let (ms, dscp) = [(40, 46), (70, 8), (110, 0)][flow];
    (Span::from_millis(ms), dscp)
}

/// The class that its code point gives it.
fn class_of(flow: usize) -> Class {
    [Class::Voice, Class::Bulk, Class::Default][flow]
}

/// Hosts and an anchor as a protocol.
pub struct Tunnel;

impl Protocol for Tunnel {
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn fixed(&self) -> &'static [&'static str] {
        &["anchor"]
    }

    /// One to three hosts with two or three paths each; probes that ride at two hosts of five.
    fn draw(&self, rng: &mut Rng) -> (Vec<String>, Vec<HostShape>) {
        let host = |rng: &mut Rng| HostShape {
            settings: HostSettings::draw(rng).to_string(),
            paths: (0..2 + rng.below(2)).map(|_| PathShape::draw(rng)).collect(),
        };
        let settings = Settings::draw(rng).lines();
        (settings, (0..1 + rng.below(3)).map(|_| host(rng)).collect())
    }

    fn draw_order(&self, rng: &mut Rng, at: PathRef) -> Option<String> {
        Some(Order::draw(rng, at).to_string())
    }

    /// The first flow of each host runs. In two of five runs, links change their MTU, or are said to, one to six times;
    /// the first path of a host always takes a handshake of QUIC.
    fn draw_more(&self, seed: u64, hosts: &[HostShape], quiet_ms: u64, entries: &mut Vec<Entry>) {
        let own = |at_ms, order: Order| Entry { at_ms, fault: Fault::Own(order.to_string()) };
        entries.extend((0..hosts.len()).map(|host| own(1_000, Order::Flow(host, 0, true))));
        let mut rng = Rng::new(seed ^ 0x7369_7a65);
        if !rng.chance(0.4) {
            return;
        }
        for _ in 0..1 + rng.below(6) {
            let (at, way) = (PathRef::draw(&mut rng, hosts), Way::draw(&mut rng));
            let sizes = MTUS.len() as u64 - u64::from(at.path == 0);
            let mtu = MTUS[rng.below(sizes) as usize];
            let at_ms = 1_000 + rng.below(quiet_ms - 1_000);
            entries.push(match rng.chance(0.8) {
                true => Entry { at_ms, fault: Fault::Link(at, way, LinkFault::Narrow(mtu)) },
                false => own(at_ms, Order::TooBig(at, way, mtu)),
            });
        }
    }

    fn check_setting(&self, words: &mut Words<'_>) -> Result<(), String> {
        Settings::default().take(words)
    }

    fn check_host(&self, words: &mut Words<'_>) -> Result<(), String> {
        HostSettings::read(words).map(drop)
    }

    fn check_order(&self, words: &mut Words<'_>, hosts: &[HostShape]) -> Result<(), String> {
        Order::read(words, hosts).map(drop)
    }

    fn simpler(&self, schedule: &Schedule) -> Vec<Schedule> {
        let plain = Settings::default().lines();
        let mut simpler = Vec::from([Schedule { settings: plain, ..schedule.clone() }]);
        for host in 0..schedule.hosts.len() {
            let mut candidate = schedule.clone();
            let shape = &mut candidate.hosts[host];
            let period = HostSettings::of(shape).period;
            let plain = HostSettings { period, ..HostSettings::default() };
            shape.settings = plain.to_string();
            simpler.push(candidate);
        }
        simpler
    }

    fn world(&self, schedule: &Schedule, start: Time) -> Box<dyn World> {
        Box::new(Staged(Tunnels::new(schedule, start)))
    }
}

/// A host, and what is known of it beside the machine.
struct Host {
    name: String,
    keepalive: Keepalive,
    follows_use: bool,
    agent: AgentId,
    apps: AgentId,
    copy: AgentId,
    enrolled: bool,
    worn: bool,
    /// What the operator has ordered and not ended, by flow and by class.
    pins: ([Option<usize>; FLOWS], [Option<usize>; Class::ALL.len()]),
    flows: [Flow; FLOWS],
    /// Over which slot each flow goes up, and since when.
    routes: [(Option<u32>, Time); FLOWS],
    paths: Vec<Path>,
    /// When a probe was last lost on a packet that was too large.
    lost_probe: Time,
    /// Since when nothing has happened to it and signalling stands, and from when on what was under way then has arrived.
    settled: Option<(Time, Time)>,
}

/// What is known of a path of a host.
#[derive(Clone, Copy)]
struct Path {
    /// Since when the operator's setting stands.
    keepalive: (bool, Time),
    /// By direction, since when data have been lost for their size and none of their flow has passed, and when last.
    too_large: [Option<(Time, Time)>; 2],
    /// When one was last lost on its way up.
    lost_up: Option<Time>,
}

/// Two streams, up and down, of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    runs: bool,
    /// How often it began.
    round: u32,
    /// Packets sent in the last seconds of the quiet time, up and down, and how many of those arrived.
    sent: [u32; 2],
    received: [u32; 2],
}

/// Puts a host's agents on the stage.
fn add_mobile(
    stage: &mut Stage,
    number: usize,
    name: String,
    shape: &HostShape,
    settings: Settings,
    pools: &[Prefix],
) -> Host {
    let own = HostSettings::of(shape);
    let config = host_config(own, settings);
    let keepalive = config.path.keepalive.clone();
    let seed = stage.network.seed_of(2, number as u32);
    let (node, start) = (stage.hosts[number].node, stage.network.now());
    let agent = HostAgent::new(name.clone(), config, seed);
    let agent = add_host(&mut stage.network, node, name.clone(), agent, pools);
    stage.cast::<HostRole>(Node::Host(number), agent);
    let ports = [0, 1, 2].map(|flow| (UDP, APP_PORT + flow));
    let apps = stage.add_agent(Node::Host(number), &ports, Apps::default());
    let copy = orders::add_copy(stage, number, name.clone());
    let path = Path { keepalive: (true, start), too_large: [None; 2], lost_up: None };
    Host {
        name,
        keepalive,
        follows_use: settings.follows_use,
        agent,
        apps,
        copy,
        enrolled: true,
        worn: own.worn,
        pins: Default::default(),
        flows: [Flow::default(); FLOWS],
        routes: [(None, start); FLOWS],
        paths: Vec::from_iter(shape.paths.iter().map(|_| path)),
        lost_probe: start,
        settled: None,
    }
}

/// The scene. See the module's text.
struct Tunnels {
    stage: Stage,
    tape: Rc<RefCell<Tape>>,
    shapes: Vec<HostShape>,
    hosts: Vec<Host>,
    anchor: AgentId,
    server: AgentId,
    /// When flows send: host, flow, and which round of it.
    queue: Agenda<(usize, usize, u32)>,
    /// The packet paths measure.
    readings: bool,
    reference: Reference,
    streams: Streams,
    watch: Watch,
    /// Flows' packets of this time count.
    counted: (Time, Time),
    /// Those that arrived, and those that were too large for a link.
    arrived: BTreeSet<Tag>,
    too_large: BTreeSet<Tag>,
}

impl Tunnels {
    /// The network of a schedule at `start`.
    fn new(schedule: &Schedule, start: Time) -> Tunnels {
        let settings = Settings::of(schedule);
        let mut stage = Stage::new(schedule, start);
        let (tap, tape) = Tap::new(stage.paths().to_vec(), stage.core);
        stage.network.observe(Box::new(tap));
        let pool = Pool::new(Ipv4Addr::new(10, 7, 0, 0).into(), 28);
        let pools = [Prefix::new(Ipv4Addr::new(10, 7, 0, 0), 28)];
        let config = AnchorConfig {
            port: PORT,
            pool_v4: pool,
            pool_v6: None,
            max_paths: MAX_SLOTS,
            expiry: EXPIRY,
            rest: REST,
            resting: Vec::new(),
            source: settings.source(),
            allow_upmt: false,
        };
        let names: Vec<String> = (0..stage.hosts.len()).map(|host| format!("host{host}")).collect();
        let agent = AnchorAgent::new(config, names.iter().cloned(), stage.network.seed_of(1, 0));
        let core = stage.core;
        let anchor = add_anchor(&mut stage.network, core, "anchor", agent, &pools, |_| false);
        stage.cast::<AnchorRole>(Node::Fixed(0), anchor);
        stage.network.node_mut(core).addresses.push(SERVER);
        let server = stage.add_agent(Node::Fixed(1), &[(UDP, SERVER_PORT)], Apps::default());
        let hosts = names.into_iter().zip(&schedule.hosts).enumerate();
        let hosts = hosts.map(|(number, (name, shape))| {
            add_mobile(&mut stage, number, name, shape, settings, &pools)
        });
        let hosts: Vec<Host> = hosts.collect();
        stage.network.start();
        let end = start + Span::from_millis(schedule.end_ms());
        let mut tunnels = Tunnels {
            watch: Watch::new(&hosts, end - Span::from_millis(QUIET_MS)),
            reference: Reference::new(hosts.len(), start),
            streams: Streams::default(),
            readings: settings.readings,
            stage,
            tape,
            shapes: schedule.hosts.clone(),
            hosts,
            anchor,
            server,
            queue: Agenda::new(),
            counted: (end - COUNTED, end - IN_FLIGHT),
            arrived: BTreeSet::new(),
            too_large: BTreeSet::new(),
        };
        for host in 0..tunnels.hosts.len() {
            tunnels.wear(host);
        }
        tunnels
    }

    fn host_agent(&self, host: usize) -> &HostAgent {
        self.stage.agent(self.hosts[host].agent)
    }

    fn host_end(&self, host: usize) -> &HostEnd<Packet> {
        self.host_agent(host).end()
    }

    fn anchor_agent(&self) -> &AnchorAgent {
        self.stage.agent(self.anchor)
    }

    fn anchor_end(&self) -> &AnchorEnd<Packet> {
        self.anchor_agent().end()
    }

    /// The truth of a path of a host's machine, by its number.
    fn truth_of(&self, host: usize, slot: u32) -> Option<(PathRef, Truth<'_>)> {
        let (_, path) = self.host_end(host).machine.paths().find(|(n, _)| u32::from(*n) == slot)?;
        let accesses = &self.stage.hosts[host].accesses;
        let path = accesses.iter().position(|access| access.name == path.name())?;
        let at = PathRef { host, path };
        Some((at, self.stage.truth(at)))
    }

    /// A flow as the host's packets carry it; `None` before the host has an address.
    fn key(&self, host: usize, flow: usize) -> Option<FlowKey> {
        let src = *self.host_end(host).machine.inner().first()?;
        let (sport, dport) = (APP_PORT + flow as u16, SERVER_PORT);
        Some(FlowKey { src, dst: SERVER, sport, dport, protocol: UDP, label: 0 })
    }

    fn run_flow(&mut self, now: Time, host: usize, flow: usize) {
        let (pace, dscp) = shape_of(flow);
        let round = self.hosts[host].flows[flow].round;
        self.queue.schedule(now + pace, (host, flow, round));
        let Some(key) = self.key(host, flow) else { return };
        let counts = (self.counted.0..self.counted.1).contains(&now);
        let sizes =
            [self.host_end(host).datapath.mtu(), self.anchor_end().datapath.mtu_to(key.src)];
        let ends = [(key.src, key.sport), (key.dst, key.dport)];
        for (way, up) in [true, false].into_iter().enumerate() {
            if up && flow == SILENT {
                continue;
            }
            let state = &mut self.hosts[host].flows[flow];
            let number = state.sent[way];
            state.sent[way] += u32::from(counts);
            let tag = Tag { host: host as u8, flow: flow as u8, counts, number, up };
            let bytes = if flow == LARGE { sizes[way].unwrap_or(LEAST_INNER) } else { SMALL };
            let (from, to) = (ends[way], ends[1 - way]);
            let packet = Packet { dscp, ..Packet::new(UDP, from, to, bytes.into(), tag) };
            let apps = if up { self.hosts[host].apps } else { self.server };
            self.stage.command(apps, |_: &mut Apps, io| io.send(packet));
        }
    }

    /// What has arrived at the applications.
    fn take_arrived(&mut self, apps: AgentId) {
        let Some(apps) = self.stage.network.agent_mut::<Apps>(apps) else { return };
        for tag in apps.arrived.drain(..) {
            // What was sent twice in doubt may arrive twice.
            if tag.counts && self.arrived.insert(tag) {
                let flow = &mut self.hosts[usize::from(tag.host)].flows[usize::from(tag.flow)];
                flow.received[usize::from(!tag.up)] += 1;
            }
        }
    }

    /// What passed on the links since the last look.
    fn look_at_packets(&mut self, now: Time, record: &mut Record) -> Result<(), Violation> {
        let seen = core::mem::take(&mut self.tape.borrow_mut().seen);
        self.watch.begin();
        for sighting in &seen {
            record.detail(now, || tap::text(sighting));
            let (at, place, what) = sighting;
            match what {
                What::Data(tag, rode) => self.note_size(now, *at, *place, *tag, *rode),
                What::Tunnel { header, probe, tag } => {
                    self.watch_tunnel(now, *at, *place, header, probe.as_ref(), tag.is_some())?;
                }
                What::Signal(datagram) => self.watch_signal(now, *at, *place, datagram)?,
            }
        }
        self.watch.expect_few_outputs()?;
        // Its room is used again.
        let mut tape = self.tape.borrow_mut();
        tape.seen = seen;
        tape.seen.clear();
        Ok(())
    }

    /// A packet of a flow met the size of a link.
    fn note_size(&mut self, now: Time, at: PathRef, place: Place, tag: Tag, rode: bool) {
        let (Place::TooLarge(up) | Place::Fits(up)) = place else { return };
        let too_large = place == Place::TooLarge(up);
        if too_large && rode {
            self.hosts[at.host].lost_probe = now;
        }
        if usize::from(tag.flow) == LARGE {
            let path = &mut self.hosts[at.host].paths[at.path];
            let lost = &mut path.too_large[usize::from(!up)];
            let since = lost.filter(|(_, last)| now.since(*last) < PAUSE).map_or(now, |(at, _)| at);
            *lost = too_large.then_some((since, now));
            if too_large && up {
                path.lost_up = Some(now);
            }
        }
        if too_large && tag.counts {
            self.too_large.insert(tag);
        }
    }
}

impl Scene for Tunnels {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn next(&self) -> Option<Time> {
        self.queue.next_at()
    }

    fn happen(&mut self, now: Time, record: &mut Record) -> Touched {
        let next = self.queue.pop_until(now);
        let Some((_, (host, flow, round))) = next else { return Touched::All };
        record.note(now, &[9, host as u64, flow as u64], || format!("flow {host}.{flow} sends"));
        let state = &self.hosts[host].flows[flow];
        if state.runs && state.round == round {
            self.run_flow(now, host, flow);
        }
        Touched::Both(host)
    }

    fn on_fault(&mut self, now: Time, fault: &Fault) {
        self.watch.on_fault(now, fault.host());
        if let Fault::Rename(at) = fault {
            let name = &self.stage.hosts[at.host].accesses[at.path].name;
            let paths = self.host_end(at.host).machine.paths();
            let number = paths.filter(|(_, path)| path.name() == name).map(|(n, _)| n).next();
            if let Some(number) = number {
                self.watch.path_gone(at.host, number);
            }
            let host = &mut self.hosts[at.host];
            host.paths[at.path].keepalive = (true, now);
            // What was ordered of an interface ends with it.
            let (flows, classes) = &mut host.pins;
            for pin in flows.iter_mut().chain(classes) {
                *pin = pin.filter(|path| *path != at.path);
            }
        }
    }

    fn restarted(&mut self, now: Time, node: Node) {
        match node {
            Node::Host(host) => {
                for path in &mut self.hosts[host].paths {
                    path.keepalive = (true, now);
                }
                self.hosts[host].pins = Default::default();
                self.wear(host);
                self.watch.host_began(host);
            }
            Node::Fixed(_) => {
                self.reference.anchor_began(now);
                self.watch.anchor_began();
            }
        }
    }

    fn order(&mut self, now: Time, order: &str) {
        if let Ok(order) = Order::read(&mut Words::of(order), &self.shapes) {
            self.obey(now, order);
        }
    }

    fn mend(&mut self, now: Time) {
        for host in 0..self.hosts.len() {
            self.obey(now, Order::Enrol(host));
            for path in 0..self.hosts[host].paths.len() {
                self.obey(now, Order::Keepalive(PathRef { host, path }, true));
            }
            self.obey(now, Order::Handover(host, Moved::All, None));
        }
    }

    fn quiet(&mut self, now: Time) {
        for host in 0..self.hosts.len() {
            for flow in 0..FLOWS {
                self.obey(now, Order::Flow(host, flow, true));
            }
        }
    }

    fn check(&mut self, now: Time, at: Touched, record: &mut Record) -> Result<(), Violation> {
        self.look_at_packets(now, record)?;
        let hosts = at.hosts(self.hosts.len());
        for host in hosts.clone().filter(|_| !matches!(at, Touched::Core(_))) {
            self.check_host(now, host)?;
            self.take_arrived(self.hosts[host].apps);
        }
        if !matches!(at, Touched::Host(_)) {
            self.check_anchor(now)?;
            self.take_arrived(self.server);
        }
        self.expect_answers(now)?;
        for host in hosts {
            let copy = self.stage.agent::<apps::Copy>(self.hosts[host].copy);
            Violation::unless(!copy.registered, "epochs grow", || {
                format!("an old copy of host {host} is registered")
            })?;
            let stands = self.signalling_stands(host);
            self.reference.note_registered(now, host, stands);
            self.expect_no_flow_on_a_dead_path(now, host)?;
            self.expect_agreement(now, host)?;
        }
        Ok(())
    }

    fn finish(&mut self, now: Time) -> Result<(), Violation> {
        self.expect_recovered(now)
    }

    fn describe(&self) -> String {
        agreement::describe(self)
    }
}
