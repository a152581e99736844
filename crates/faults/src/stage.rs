//! A simulated network with faults: hosts with a separate access network per interface, and a core with the other
//! agents.
//!
//! ```text
//!   host ── if0 ══ faulty link ══ NAT ──┐
//!        ── if1 ══ faulty link ══ NAT ──┼── core
//! ```
//!
//! A [`Scene`] puts its agents on these nodes and watches them; [`Staged`] turns it into a [`World`].

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::LinkSpec;
use segue_sim::net::{Change, Happened, Hop, LinkFault, NatConfig};
use segue_sim::role::Order;
use segue_sim::{Agent, AgentId, Network, NodeId, Role, RoleAgent};

use crate::fault::{Fault, Node, PathRef, PathShape};
use crate::truth::{Access, Still, Truth};
use crate::{Record, Schedule, Violation, World};

/// Address of the core.
pub const CORE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
/// IPv6 address of the core.
pub const CORE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// Channels per path: both directions of its two links.
const CHANNELS: usize = 4;
/// An agent that wakes more often than this at one instant is considered to be in an endless loop.
const MAX_WAKES: u32 = 50;

/// A protocol on a stage: its reference model and invariants.
pub trait Scene {
    /// The stage.
    fn stage(&self) -> &Stage;

    /// The stage, for modification.
    fn stage_mut(&mut self) -> &mut Stage;

    /// Time of the next event of the scene itself, such as a packet of an application.
    fn next(&self) -> Option<Time> {
        None
    }

    /// Processes that event. Returns the nodes it concerns.
    fn happen(&mut self, _now: Time, _record: &mut Record) -> Touched {
        Touched::All
    }

    /// Called before the stage injects a fault.
    fn on_fault(&mut self, _now: Time, _fault: &Fault) {}

    /// Called after a node has restarted.
    fn restarted(&mut self, _now: Time, _node: Node) {}

    /// Carries out an order of the protocol, in the protocol's own words.
    fn order(&mut self, _now: Time, _order: &str) {}

    /// Mends the protocol's own faults, when everything is mended.
    fn mend(&mut self, _now: Time) {}

    /// Called when the quiet time begins.
    fn quiet(&mut self, _now: Time) {}

    /// Checks the invariants after an event, for the nodes it concerns.
    ///
    /// # Errors
    /// The violated invariant.
    fn check(&mut self, now: Time, at: Touched, record: &mut Record) -> Result<(), Violation>;

    /// Checks the invariants of the end.
    ///
    /// # Errors
    /// The violated invariant.
    fn finish(&mut self, now: Time) -> Result<(), Violation>;

    /// The state of the machines as text, for the analysis of a failure.
    fn describe(&self) -> String;
}

/// The nodes that an event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// Any node.
    All,
    /// This host.
    Host(usize),
    /// The core, with a packet of this host.
    Core(usize),
    /// The core and this host.
    Both(usize),
}

impl Touched {
    /// The hosts concerned, out of `all`.
    #[must_use]
    pub fn hosts(self, all: usize) -> core::ops::Range<usize> {
        match self {
            Touched::All => 0..all,
            Touched::Host(host) | Touched::Core(host) | Touched::Both(host) => host..host + 1,
        }
    }
}

/// A host.
pub struct Host {
    /// Its node.
    pub node: NodeId,
    /// Its interfaces.
    pub accesses: Vec<Access>,
    /// Its last start.
    pub began: Time,
    /// Time of the last fault that concerns it.
    pub disturbed: Time,
    /// Its stalls.
    pub still: Still,
}

/// An agent that can be restarted.
struct Actor {
    agent: AgentId,
    restart: fn(&mut Network, AgentId),
}

/// The network of a schedule, and the ground truth about it.
pub struct Stage {
    /// The network.
    pub network: Network,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// The node of all other agents.
    pub core: NodeId,
    /// Stalls of the core.
    pub still: Still,
    actors: Vec<(Node, Actor)>,
    /// In the order of their channels.
    paths: Vec<PathRef>,
    /// Counter for new addresses of interfaces and translators.
    serial: u16,
    wakes: (Time, Option<AgentId>, u32),
}

impl Stage {
    /// The nodes and links of a schedule at `start`, without agents.
    #[must_use]
    pub fn new(schedule: &Schedule, start: Time) -> Stage {
        let mut network = Network::starting_at(start, schedule.seed);
        let core = network.add_node("core");
        network.node_mut(core).addresses.extend([CORE, CORE_V6]);
        let mut stage = Stage {
            network,
            hosts: Vec::new(),
            core,
            still: Still::default(),
            actors: Vec::new(),
            paths: Vec::new(),
            serial: 0,
            wakes: (start, None, 0),
        };
        for (number, shape) in schedule.hosts.iter().enumerate() {
            let node = stage.network.add_node(format!("host{number}"));
            stage.network.node_mut(node).forwards = false;
            let (began, disturbed, still) = (start, start, Still::default());
            let mut host = Host { node, accesses: Vec::new(), began, disturbed, still };
            for (path, shape) in shape.paths.iter().enumerate() {
                let at = PathRef { host: number, path };
                host.accesses.push(stage.access_network(node, at, shape, start));
                stage.paths.push(at);
            }
            stage.hosts.push(host);
        }
        stage
    }

    fn access_network(
        &mut self,
        node: NodeId,
        at: PathRef,
        shape: &PathShape,
        now: Time,
    ) -> Access {
        let net = &mut self.network;
        let router = net.add_node(format!("nat{at}"));
        let name = format!("if{}", at.path);
        let own = net.add_interface(node, name.clone());
        let [inner, outer] = ["inside", "outside"].map(|side| net.add_interface(router, side));
        let there = net.add_interface(self.core, format!("to{at}"));
        let mut connect = |a, b| {
            let (spec, back) = (LinkSpec::default(), LinkSpec::default());
            net.connect(a, b, spec, back).expect("a link without delay and rate is one")
        };
        let (up, down) = connect((node, own), (router, inner));
        connect((router, outer), (self.core, there));
        net.make_faulty(up, Span::from_millis(shape.up_ms.into()));
        net.make_faulty(down, Span::from_millis(shape.down_ms.into()));
        let v6 = shape.v6;
        let inside = match v6 {
            true => inside_v6(at, 0),
            false => Ipv4Addr::new(198, 18, at.host as u8, at.path as u8 + 1).into(),
        };
        let interface = &mut net.node_mut(node).adapters[own as usize - 1].interface;
        interface.addresses.push(inside);
        let at_router = net.node_mut(router);
        let core = if v6 { CORE_V6 } else { CORE };
        at_router.routes.set(Prefix::host(core), Hop::Interface(outer));
        at_router.routes.set(Prefix::default_of(v6), Hop::Interface(inner));
        let mut behind = Prefix { addr: inside, len: 64 };
        if !v6 {
            let outside = outside(at, 0);
            at_router.addresses.push(outside);
            net.add_nat(router, NatConfig::new(Vec::from([inner]), outside))
                .expect("its parameters are those of a translator");
            behind = Prefix::host(outside);
        }
        net.node_mut(self.core).routes.set(behind, Hop::Interface(there));
        Access { name, up, down, router, v6, absent_since: None, changed: now }
    }

    /// Adds an agent that listens to these protocols and ports to a host or to the core.
    pub fn add_agent(&mut self, node: Node, ports: &[(u8, u16)], agent: impl Agent) -> AgentId {
        let (id, name) = match node {
            Node::Host(host) => (self.hosts[host].node, format!("host{host}")),
            Node::Fixed(number) => (self.core, format!("core{number}")),
        };
        self.network.add_agent(id, name, ports, Box::new(agent))
    }

    /// Assigns an agent to a node of the schedule; it restarts with that node.
    pub fn cast<R: Role>(&mut self, node: Node, agent: AgentId) {
        let restart = |network: &mut Network, agent| {
            network.command(agent, |agent: &mut RoleAgent<R>, io| {
                agent.obey(io, Order::Restart(Span::ZERO));
            });
        };
        self.actors.push((node, Actor { agent, restart }));
    }

    /// The nodes that an event concerns; `None` for routers, which only forward.
    fn touched(&self, happened: Happened) -> Option<Touched> {
        let channel = match happened {
            Happened::Arrival(channel) => channel,
            Happened::Wake(agent) => {
                let known = self.actors.iter().find(|(_, actor)| actor.agent == agent);
                return Some(match known {
                    Some((Node::Host(host), _)) => Touched::Host(*host),
                    _ => Touched::All,
                });
            }
            Happened::Change => return Some(Touched::All),
        };
        let path = self.paths.get(channel.0 as usize / CHANNELS);
        match (path, channel.0 as usize % CHANNELS) {
            (Some(at), 1) => Some(Touched::Host(at.host)),
            (Some(at), 2) => Some(Touched::Core(at.host)),
            (Some(_), _) => None,
            (None, _) => Some(Touched::All),
        }
    }

    /// An access of a host with its ground truth.
    #[must_use]
    pub fn truth(&self, at: PathRef) -> Truth<'_> {
        let host = &self.hosts[at.host];
        let access = &host.accesses[at.path];
        let link = |channel| self.network.channel(channel).faults().expect("it was made faulty");
        let waits = host.still.lasted + self.still.lasted;
        Truth { access, up: link(access.up), down: link(access.down), waits }
    }

    /// End of the last stall of this host or the core.
    #[must_use]
    pub fn resumed(&self, host: usize) -> Time {
        self.hosts[host].still.until.max(self.still.until)
    }

    /// All paths of all hosts, in the order of their channels.
    #[must_use]
    pub fn paths(&self) -> &[PathRef] {
        &self.paths
    }

    /// The ground truth of all paths of a host.
    pub fn truths(&self, host: usize) -> impl Iterator<Item = Truth<'_>> + Clone {
        (0..self.hosts[host].accesses.len()).map(move |path| self.truth(PathRef { host, path }))
    }

    /// The largest RTT of all paths of a host.
    #[must_use]
    pub fn rtt_max(&self, host: usize) -> Span {
        self.truths(host).map(|truth| truth.rtt().1).max().unwrap_or_default()
    }

    /// Gives an agent an order.
    pub fn command<A: Agent>(
        &mut self,
        agent: AgentId,
        order: impl FnOnce(&mut A, &mut segue_sim::Io<'_>),
    ) {
        self.network.command(agent, order);
    }

    /// An agent of a known type.
    ///
    /// # Panics
    /// If the agent has another type.
    #[must_use]
    pub fn agent<A: Agent>(&self, id: AgentId) -> &A {
        self.network.agent(id).expect("an agent of this type was added")
    }

    fn inject(&mut self, now: Time, fault: &Fault) {
        match *fault {
            Fault::Link(at, way, fault) => {
                let Access { up, down, .. } = self.hosts[at.host].accesses[at.path];
                for (channel, hit) in [(up, way.up()), (down, way.down())] {
                    if hit {
                        self.network.happen(Change::Fault(channel, fault));
                    }
                }
            }
            Fault::CutAll(host) => self.on_all(host, LinkFault::Cut),
            Fault::Gone(at) => {
                let access = &mut self.hosts[at.host].accesses[at.path];
                if access.absent_since.is_none() {
                    (access.absent_since, access.changed) = (Some(now), now);
                    let change = Change::Unplug(access.up, access.down);
                    self.network.happen(change);
                }
            }
            Fault::Back(at) => {
                let access = &mut self.hosts[at.host].accesses[at.path];
                if access.absent_since.take().is_some() {
                    access.changed = now;
                    let change = Change::Plug(access.up, access.down);
                    self.network.happen(change);
                }
            }
            Fault::Renumber(at) => self.renumber(now, at),
            Fault::Rename(at) => self.rename(now, at),
            Fault::Rebind(at) if self.hosts[at.host].accesses[at.path].v6 => {}
            Fault::Rebind(at) => {
                self.serial += 1;
                let to = outside(at, self.serial);
                let access = &mut self.hosts[at.host].accesses[at.path];
                access.changed = now;
                self.network.happen(Change::RebindNat(access.router, Some(to)));
            }
            Fault::Restart(node) => {
                let known = self.actors.iter().find(|(known, _)| *known == node);
                if let Some((_, actor)) = known {
                    (actor.restart)(&mut self.network, actor.agent);
                }
                if let Node::Host(host) = node {
                    self.hosts[host].began = now;
                }
            }
            Fault::MendAll => {
                for host in 0..self.hosts.len() {
                    self.hosts[host].disturbed = now;
                    self.on_all(host, LinkFault::Mend);
                    for path in 0..self.hosts[host].accesses.len() {
                        self.inject(now, &Fault::Back(PathRef { host, path }));
                    }
                }
            }
            Fault::Stall(node, ms) => self.stall(now, node, Span::from_millis(ms.into())),
            Fault::Own(_) => {}
        }
    }

    /// Assigns a new address of the same family to the interface.
    fn renumber(&mut self, now: Time, at: PathRef) {
        self.serial += 1;
        let [high, low] = self.serial.to_be_bytes();
        let access = &mut self.hosts[at.host].accesses[at.path];
        access.changed = now;
        let (node, index) = self.network.channel(access.up).from;
        let inside = match access.v6 {
            true => inside_v6(at, self.serial),
            false => Ipv4Addr::new(172, 16 + at.host as u8, high, low).into(),
        };
        self.network.happen(Change::Renumber(node, index, Vec::from([inside])));
    }

    /// Stalls a node unless it is stalled already.
    fn stall(&mut self, now: Time, node: Node, lasts: Span) {
        let (still, node) = match node {
            Node::Host(host) => {
                let host = &mut self.hosts[host];
                (&mut host.still, host.node)
            }
            Node::Fixed(_) => (&mut self.still, self.core),
        };
        if still.stall(now, lasts) {
            self.network.happen(Change::Stall(node, now + lasts));
        }
    }

    /// Replaces the interface by one with another name. If the interface is away, only its name changes.
    fn rename(&mut self, now: Time, at: PathRef) {
        self.serial += 1;
        let access = &mut self.hosts[at.host].accesses[at.path];
        access.name = format!("if{}-{}", at.path, self.serial);
        access.changed = now;
        let (name, up, down) = (access.name.clone(), access.up, access.down);
        let present = access.absent_since.is_none();
        self.network.happen(Change::Unplug(up, down));
        let (node, index) = self.network.channel(up).from;
        self.network.node_mut(node).adapters[index as usize - 1].interface.name = name;
        if present {
            self.network.happen(Change::Plug(up, down));
        }
    }

    fn on_all(&mut self, host: usize, fault: LinkFault) {
        for path in 0..self.hosts[host].accesses.len() {
            let Access { up, down, .. } = self.hosts[host].accesses[path];
            for channel in [up, down] {
                self.network.happen(Change::Fault(channel, fault));
            }
        }
    }

    /// Counts wake-ups of one agent at the same instant.
    fn expect_rest(&mut self, now: Time, woken: AgentId) -> Result<(), Violation> {
        let again = (self.wakes.0, self.wakes.1) == (now, Some(woken));
        self.wakes = (now, Some(woken), if again { self.wakes.2 + 1 } else { 0 });
        Violation::unless(self.wakes.2 <= MAX_WAKES, "storm", || {
            format!("{:?} never comes to rest", self.touched(Happened::Wake(woken)))
        })
    }
}

/// An address for a host's interface that is routed to this path.
fn inside_v6(at: PathRef, choice: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 1 + at.host as u16, at.path as u16, 0, 0, choice, 1).into()
}

/// The source address that the core sees for this choice of a NAT.
pub(crate) fn outside(at: PathRef, choice: u16) -> IpAddr {
    let [high, low] = choice.to_be_bytes();
    Ipv4Addr::new(100, 64 + (at.host * 8 + at.path) as u8, high, low).into()
}

/// A scene as a world.
pub struct Staged<S>(pub S);

impl<S: Scene> Staged<S> {
    fn happened(
        &mut self,
        now: Time,
        happened: Happened,
        record: &mut Record,
    ) -> Result<(), Violation> {
        let stage = self.0.stage_mut();
        if let Happened::Wake(agent) = happened {
            stage.expect_rest(now, agent)?;
        }
        let Some(at) = stage.touched(happened) else { return Ok(()) };
        let words = match happened {
            Happened::Arrival(channel) => [1, channel.0.into()],
            Happened::Wake(agent) => [2, agent.0.into()],
            Happened::Change => [3, 0],
        };
        record.note(now, &words, || match happened {
            Happened::Arrival(_) => format!("a packet at {at:?}"),
            _ => format!("tick of {at:?}"),
        });
        self.0.check(now, at, record)
    }
}

impl<S: Scene> World for Staged<S> {
    fn now(&self) -> Time {
        self.0.stage().network.now()
    }

    fn step(&mut self, end: Time, record: &mut Record) -> Result<bool, Violation> {
        let own = self.0.next().filter(|at| *at <= end);
        let network = &mut self.0.stage_mut().network;
        let happened = network.step(own.unwrap_or(end));
        let now = network.now();
        match happened {
            Some(happened) => self.happened(now, happened, record)?,
            None if network.stuck() => {
                return Err(Violation::new("storm", "time stands still".to_string()));
            }
            None if own.is_some() => {
                let at = self.0.happen(now, record);
                self.0.check(now, at, record)?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    fn inject(&mut self, fault: &Fault, record: &mut Record) -> Result<(), Violation> {
        let now = self.now();
        if let Some(host) = fault.host().and_then(|host| self.0.stage_mut().hosts.get_mut(host)) {
            host.disturbed = now;
        }
        self.0.on_fault(now, fault);
        self.0.stage_mut().inject(now, fault);
        match fault {
            Fault::Restart(node) => self.0.restarted(now, *node),
            Fault::Own(order) => self.0.order(now, order),
            Fault::MendAll => self.0.mend(now),
            _ => {}
        }
        self.0.check(now, Touched::All, record)
    }

    fn quiet(&mut self) -> Result<(), Violation> {
        let now = self.now();
        self.0.quiet(now);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Violation> {
        let now = self.now();
        self.0.finish(now)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}
