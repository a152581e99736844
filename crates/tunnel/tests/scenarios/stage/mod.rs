//! Hosts and an anchor on a simulated network: each interface of a host has its own link to the node of the anchor and
//! the applications' peers. The same seed gives the same run.

mod apps;
mod checks;
mod config;
mod orders;
mod tap;

use std::cell::Ref;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::{Interface, Prefix};
use segue_netem::{Jitter, LinkSpec};
use segue_sim::net::{Change, Hop, LinkFault};
use segue_sim::packet::UDP;
use segue_sim::tunnel::{AnchorAgent, Enrolment, HostAgent, add_anchor, add_host};
use segue_sim::{AgentId, ChannelId, Network, NodeId};
use segue_tunnel::{AnchorConfig, ConnId, HostConfig};
use segue_wire::signal::FromAnchor;

pub(crate) use apps::App;
use apps::Sink;
pub(crate) use config::{ANCHOR, anchor_config, host_config, keepalive, ms, offer, secs};
pub(crate) use orders::stray;
pub(crate) use tap::Load;
use tap::{Tap, Tape};

/// Address of the applications' peers.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
const PEER_PORT: u16 = 7_000;
/// The next hop of hosts' interfaces.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// An end that acts more often than this at one instant is in an endless loop.
const MAX_STEPS: u32 = 1_000;

/// The directions of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    Both,
}

struct Link {
    name: String,
    up: ChannelId,
    down: ChannelId,
}

struct HostNode {
    node: NodeId,
    agent: AgentId,
    links: Vec<Link>,
    /// Sequence number of the last request by index and cookie. The receiver refuses anything older than the newest.
    asked: BTreeMap<(u32, u64), u32>,
}

pub(crate) struct Stage {
    network: Network,
    core: NodeId,
    anchor: AgentId,
    max_paths: u32,
    /// Receives the applications' uplink packets.
    peer: AgentId,
    tape: Tape,
    hosts: Vec<HostNode>,
    pub apps: Vec<App>,
    /// Number of connections opened by hand, and those that the anchor has closed since the last run.
    opened: u64,
    closed: Vec<ConnId>,
    /// True if a host was told of interfaces that it does not have.
    lied: bool,
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Stage {
        Stage::with_anchor(seed, anchor_config())
    }

    pub(crate) fn with_anchor(seed: u64, config: AnchorConfig) -> Stage {
        let mut network = Network::starting_at(Time(1_000_000_000), seed);
        let core = network.add_node("core");
        network.node_mut(core).addresses = vec![ANCHOR.ip(), PEER];
        let max_paths = config.max_paths;
        let agent = AnchorAgent::new(config, [], network.seed_of(1, 0));
        let anchor = add_anchor(&mut network, core, "anchor", agent, &pools(), |_| false);
        let tape = Tape::default();
        network.observe(Box::new(Tap(tape.clone())));
        let peer = network.add_agent(core, "peer", &[(UDP, PEER_PORT)], Sink::new(&tape));
        let (hosts, apps, opened, closed, lied) = (Vec::new(), Vec::new(), 0, Vec::new(), false);
        Stage { network, core, anchor, max_paths, peer, tape, hosts, apps, opened, closed, lied }
    }

    /// A registered host with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), two seconds after its start.
    pub(crate) fn two_paths(seed: u64, config: HostConfig) -> (Stage, usize) {
        Stage::two_paths_to(seed, config, anchor_config())
    }

    /// The same, with this configuration of the anchor.
    pub(crate) fn two_paths_to(
        seed: u64,
        config: HostConfig,
        anchor: AnchorConfig,
    ) -> (Stage, usize) {
        let mut stage = Stage::with_anchor(seed, anchor);
        let host = stage.add_host("alice", config);
        stage.add_link(host, "wifi", ms(10));
        stage.add_link(host, "lte", ms(30));
        stage.run_for(secs(2));
        assert!(stage.is_registered(host));
        (stage, host)
    }

    /// An enrolled host without interfaces.
    pub(crate) fn add_host(&mut self, name: &str, config: HostConfig) -> usize {
        let number = self.hosts.len();
        self.enrol(Enrolment::Begin(name.into()));
        let node = self.network.add_node(name);
        self.network.node_mut(node).forwards = false;
        let agent = HostAgent::new(name, config, self.network.seed_of(2, number as u32));
        let agent = add_host(&mut self.network, node, name, agent, &pools());
        let (links, asked) = (Vec::new(), BTreeMap::new());
        self.hosts.push(HostNode { node, agent, links, asked });
        number
    }

    /// Adds an interface with a link to the core.
    pub(crate) fn add_link(&mut self, host: usize, name: &str, one_way: Span) {
        self.add_jittery_link(host, name, one_way, Span::ZERO);
    }

    /// The same, with up to `jitter` of additional delay; packets stay in order.
    pub(crate) fn add_jittery_link(
        &mut self,
        host: usize,
        name: &str,
        one_way: Span,
        jitter: Span,
    ) {
        let node = self.hosts[host].node;
        let index = self.network.add_interface(node, name);
        let there = self.network.add_interface(self.core, format!("{host}{name}"));
        let delay = one_way + jitter.half();
        let spec =
            LinkSpec { delay, jitter: Jitter::Uniform(jitter.half()), ..LinkSpec::default() };
        let ends = ((node, index), (self.core, there));
        let (up, down) = self.network.connect(ends.0, ends.1, spec.clone(), spec).unwrap();
        for channel in [up, down] {
            self.network.make_faulty(channel, Span::ZERO);
        }
        self.hosts[host].links.push(Link { name: name.into(), up, down });
        self.interface(host, name).gateways = vec![GATEWAY];
        self.renumber(host, name, IpAddr::from([198, 51, host as u8, index as u8]));
    }

    fn link(&self, host: usize, name: &str) -> &Link {
        self.hosts[host].links.iter().find(|link| link.name == name).unwrap()
    }

    /// An interface of a host, to be changed without notifying the host.
    pub(crate) fn interface(&mut self, host: usize, name: &str) -> &mut Interface {
        let (node, index) = self.network.channel(self.link(host, name).up).from;
        &mut self.network.node_mut(node).adapters[index as usize - 1].interface
    }

    /// Replaces the addresses of an interface by this one.
    pub(crate) fn renumber(&mut self, host: usize, name: &str, address: IpAddr) {
        let up = self.network.channel(self.link(host, name).up);
        let ((node, index), (core, there)) = (up.from, up.to);
        let routes = &mut self.network.node_mut(core).routes;
        routes.set(Prefix::host(address), Hop::Interface(there));
        self.network.happen(Change::Renumber(node, index, vec![address]));
        self.check();
    }

    /// Starts or ends a fault of one or both directions of a link.
    pub(crate) fn fault(&mut self, host: usize, name: &str, way: Way, fault: LinkFault) {
        let &Link { up, down, .. } = self.link(host, name);
        for (channel, other) in [(up, Way::Down), (down, Way::Up)] {
            if way != other {
                self.network.happen(Change::Fault(channel, fault));
            }
        }
    }

    /// Cuts or restores one or both directions of a link.
    pub(crate) fn set_alive(&mut self, host: usize, name: &str, way: Way, alive: bool) {
        let fault = if alive { LinkFault::Mend } else { LinkFault::Cut };
        self.fault(host, name, way, fault);
    }

    /// Removes an interface, or restores it under a new index.
    pub(crate) fn set_present(&mut self, host: usize, name: &str, present: bool) {
        let &Link { up, down, .. } = self.link(host, name);
        let change = if present { Change::Plug(up, down) } else { Change::Unplug(up, down) };
        self.network.happen(change);
        self.check();
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    pub(crate) fn host(&self, host: usize) -> &HostAgent {
        self.network.agent(self.hosts[host].agent).unwrap()
    }

    pub(crate) fn is_registered(&self, host: usize) -> bool {
        self.host(host).end().machine.registered()
    }

    pub(crate) fn anchor(&self) -> &AnchorAgent {
        self.network.agent(self.anchor).unwrap()
    }

    /// The number of the host's current connection.
    pub(crate) fn connection(&self, host: usize) -> Option<u64> {
        self.host(host).signal().current().map(|(conn, _)| conn.id())
    }

    /// The anchor's connection of the host with this name.
    pub(crate) fn conn_of(&self, name: &str) -> Option<ConnId> {
        self.anchor().end().machine.hosts().find(|host| host.name == name)?.conn
    }

    pub(crate) fn load(&self) -> Load {
        self.tape.borrow().load
    }

    /// All messages that the anchor has sent over connections of hosts.
    pub(crate) fn said(&self) -> Ref<'_, [FromAnchor]> {
        Ref::map(self.tape.borrow(), |seen| &seen.said[..])
    }

    /// Runs in small steps until `done`, or for at most `span`. Returns whether it is done.
    pub(crate) fn run_while_not(&mut self, span: Span, done: impl Fn(&Stage) -> bool) -> bool {
        let end = self.now() + span;
        while !done(self) {
            if self.now() >= end {
                return false;
            }
            self.run_for(ms(1));
        }
        true
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        self.run_until(self.now() + span);
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        self.tell_of_closed();
        let mut steps = 0;
        loop {
            let running = self.apps.iter().enumerate().filter(|(_, app)| app.running);
            let app = running.map(|(number, app)| (app.next, number)).min();
            let app = app.filter(|(at, _)| *at <= end);
            let before = self.now();
            if self.network.step(app.map_or(end, |(at, _)| at)).is_none() {
                let Some((_, app)) = app else { break };
                self.run_app(app);
            }
            steps = if self.now() > before { 0 } else { steps + 1 };
            assert!(steps < MAX_STEPS, "an end never comes to rest");
            self.check();
        }
        self.collect();
    }
}

/// The prefixes of the anchor's pools.
fn pools() -> [Prefix; 2] {
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
    [Prefix::new(Ipv4Addr::new(10, 7, 0, 0), 24), Prefix::new(v6, 64)]
}
