//! Hosts and an anchor on a network of the simulator: each interface of a host has a link of its own to the node where
//! the anchor and the applications' peers are. The same seed gives the same run.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::{Jitter, LinkSpec};
use segue_sim::net::{Change, Hop, LinkFault};
use segue_sim::packet::UDP;
use segue_sim::tunnel::{AnchorAgent, Enrolment, HostAgent, add_anchor, add_host};
use segue_sim::{Agent, AgentId, ChannelId, Io, Network, NodeId, Packet, Payload, Results};
use segue_tunnel::HostConfig;
use segue_wire::FlowKey;

use crate::net::{BYTES, Data, Stream, Way, anchor_config, ms, secs};

/// Where the applications' peers are.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
const PEER_PORT: u16 = 7_000;
/// An end that acts more often than this at one instant never comes to rest.
const MAX_STEPS: u32 = 1_000;

impl Payload for Data {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(*self)
    }

    fn write(&self, _packet: &Packet, _image: &mut Vec<u8>) {}
}

/// Keeps what arrives, until it is looked at.
#[derive(Default)]
struct Sink(Vec<(Time, Data)>);

impl Agent for Sink {
    fn start(&mut self, _io: &mut Io<'_>) {}

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.0.push((io.now, *packet.value().expect("the packet of an application")));
    }

    fn wake(&mut self, _io: &mut Io<'_>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn report(&self, _name: &str, _now: Time, _results: &mut Results) {}

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
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
}

/// A pair of streams, up and down, of one flow, with a fixed pace.
pub(crate) struct App {
    host: usize,
    /// As packets of the host carry it.
    pub key: FlowKey,
    dscp: u8,
    pub interval: Span,
    /// When it sends next.
    next: Option<Time>,
    round: u32,
    sink: AgentId,
    pub up: Stream,
    pub down: Stream,
}

pub(crate) struct Stage {
    network: Network,
    core: NodeId,
    anchor: AgentId,
    /// What applications send up arrives there.
    peer: AgentId,
    hosts: Vec<HostNode>,
    pub apps: Vec<App>,
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Stage {
        let mut network = Network::starting_at(Time(1_000_000_000), seed);
        let core = network.add_node("core");
        network.node_mut(core).addresses = vec![Ipv4Addr::new(203, 0, 113, 1).into(), PEER];
        let agent = AnchorAgent::new(anchor_config(), [], network.seed_of(1, 0));
        let anchor = add_anchor(&mut network, core, "anchor", agent, &[pool()], |_| false);
        let sink = Box::new(Sink::default());
        let peer = network.add_agent(core, "peer", &[(UDP, PEER_PORT)], sink);
        Stage { network, core, anchor, peer, hosts: Vec::new(), apps: Vec::new() }
    }

    /// A registered host with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), two seconds after its start.
    pub(crate) fn two_paths(seed: u64, config: HostConfig) -> (Stage, usize) {
        let mut stage = Stage::new(seed);
        let host = stage.add_host("alice", config);
        stage.add_link(host, "wifi", ms(10), Span::ZERO);
        stage.add_link(host, "lte", ms(30), Span::ZERO);
        stage.run_for(secs(2));
        assert!(stage.host(host).end().machine.registered());
        (stage, host)
    }

    /// An enrolled host without interfaces.
    pub(crate) fn add_host(&mut self, name: &str, config: HostConfig) -> usize {
        let number = self.hosts.len();
        let enrol = Enrolment::Begin(name.into());
        self.network.command(self.anchor, |anchor: &mut AnchorAgent, io| {
            anchor.obey(io, segue_sim::role::Order::Own(enrol));
        });
        let node = self.network.add_node(name);
        self.network.node_mut(node).forwards = false;
        let agent = HostAgent::new(name, config, self.network.seed_of(2, number as u32));
        let agent = add_host(&mut self.network, node, name, agent, &[pool()]);
        self.hosts.push(HostNode { node, agent, links: Vec::new() });
        number
    }

    /// An interface with a link to the core: packets take `one_way` and up to `jitter` more, in their order.
    pub(crate) fn add_link(&mut self, host: usize, name: &str, one_way: Span, jitter: Span) {
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
        let address = IpAddr::from([198, 51, host as u8, index as u8]);
        let routes = &mut self.network.node_mut(self.core).routes;
        routes.set(Prefix::host(address), Hop::Interface(there));
        self.network.happen(Change::Renumber(node, index, vec![address]));
        self.hosts[host].links.push(Link { name: name.into(), up, down });
    }

    /// Kills or revives directions of a link.
    pub(crate) fn set_alive(&mut self, host: usize, name: &str, way: Way, alive: bool) {
        let fault = if alive { LinkFault::Mend } else { LinkFault::Cut };
        let link = self.hosts[host].links.iter().find(|link| link.name == name).unwrap();
        for (channel, other) in [(link.up, Way::Down), (link.down, Way::Up)] {
            if way != other {
                self.network.happen(Change::Fault(channel, fault));
            }
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    pub(crate) fn host(&self, host: usize) -> &HostAgent {
        self.network.agent(self.hosts[host].agent).unwrap()
    }

    pub(crate) fn anchor(&self) -> &AnchorAgent {
        self.network.agent(self.anchor).unwrap()
    }

    /// 50 packets a second both ways, marked EF, from now on.
    pub(crate) fn add_voice(&mut self, host: usize) -> usize {
        let src = self.host(host).end().machine.inner()[0];
        let app = self.apps.len();
        let sport = 40_000 + app as u16;
        let (dst, dport) = (PEER, PEER_PORT);
        let key = FlowKey { src, dst, sport, dport, protocol: UDP, label: 0 };
        let (node, sink) = (self.hosts[host].node, Box::new(Sink::default()));
        let sink = self.network.add_agent(node, format!("app{app}"), &[(UDP, sport)], sink);
        let (up, down, next) = (Stream::default(), Stream::default(), Some(self.now()));
        let (interval, round, dscp) = (ms(20), 0, 46);
        self.apps.push(App { host, key, dscp, interval, next, round, sink, up, down });
        app
    }

    pub(crate) fn reset_streams(&mut self) {
        for app in &mut self.apps {
            app.round += 1;
            app.up.reset();
            app.down.reset();
        }
    }

    /// The interface over which a flow's packets go up, and down, by the two flow tables.
    pub(crate) fn routes(&self, app: usize) -> (Option<String>, Option<String>) {
        let App { host, key, .. } = &self.apps[app];
        let (host, anchor) = (self.host(*host).end(), self.anchor().end());
        let up = host.datapath.route(key).and_then(|slot| {
            host.machine.paths().find(|(n, _)| u32::from(*n) == slot).map(|(_, p)| p.name().into())
        });
        let down = anchor.datapath.route(&key.reversed());
        (up, down.and_then(|slot| anchor.machine.path(slot)).map(|path| path.name.clone()))
    }

    /// Both directions of the flow use this interface.
    pub(crate) fn flows_use(&self, app: usize, interface: &str) -> bool {
        self.routes(app) == (Some(interface.into()), Some(interface.into()))
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        let end = self.now() + span;
        let mut at_once = (self.now(), 0);
        loop {
            let app = (0..self.apps.len()).filter_map(|app| Some((self.apps[app].next?, app)));
            let app = app.filter(|(at, _)| *at <= end).min();
            if self.network.step(app.map_or(end, |(at, _)| at)).is_none() {
                let Some((_, app)) = app else { break };
                self.run_app(app);
            }
            at_once =
                if at_once.0 == self.now() { (at_once.0, at_once.1 + 1) } else { (self.now(), 0) };
            assert!(at_once.1 < MAX_STEPS, "an end never comes to rest");
            self.check();
        }
        self.collect();
    }

    fn run_app(&mut self, app: usize) {
        let App { key, dscp, interval, next, round, sink, up, down, .. } = &mut self.apps[app];
        *next = next.map(|at| at + *interval);
        let (dscp, data) = (*dscp, Data { app, round: *round });
        for (key, from, stream) in [(*key, *sink, up), (key.reversed(), self.peer, down)] {
            if stream.silent {
                continue;
            }
            stream.sent += 1;
            let (from_end, to_end) = ((key.src, key.sport), (key.dst, key.dport));
            let packet = Packet::new(UDP, from_end, to_end, BYTES, data);
            self.network.command(from, |_: &mut Sink, io| {
                io.send(Packet { dscp, sent: io.now, ..packet });
            });
        }
    }

    /// Notes what has arrived at applications.
    fn collect(&mut self) {
        let mut take = |sink| std::mem::take(&mut self.network.agent_mut::<Sink>(sink).unwrap().0);
        for (at, data) in take(self.peer) {
            let app = &mut self.apps[data.app];
            app.up.arrived(at, "", data.round == app.round);
        }
        for app in &mut self.apps {
            for (at, data) in take(app.sink) {
                app.down.arrived(at, "", data.round == app.round);
            }
        }
    }

    /// What holds at every instant.
    fn check(&self) {
        let anchor = self.anchor().end();
        assert_eq!(anchor.wrong(), None);
        let own = anchor.datapath.flows_reach_their_hosts();
        assert!(own, "a flow goes over a path of another host than its destination's");
        for host in 0..self.hosts.len() {
            let end = self.host(host).end();
            assert_eq!(end.wrong(), None, "host {host}");
            assert!(end.datapath.bindings_hold(), "a flow is bound to a path that is gone");
            let numbers: Vec<u8> = end.machine.paths().map(|(number, _)| number).collect();
            for (key, flow) in end.machine.flows() {
                assert!(numbers.contains(&flow.path), "{key} is bound to path {}", flow.path);
            }
        }
    }
}

/// The addresses that the anchor gives away.
fn pool() -> Prefix {
    Prefix::new(Ipv4Addr::new(10, 7, 0, 0), 24)
}
