//! Hosts and an anchor on a network of the simulator: each interface of a host has a link of its own to the node where
//! the anchor and the applications' peers are. The same seed gives the same run.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_netem::{Jitter, LinkSpec};
use segue_sim::net::{Change, Hop, LinkFault, Lost};
use segue_sim::packet::UDP;
use segue_sim::role::Order;
use segue_sim::tunnel::{AnchorAgent, Enrolment, HostAgent, add_anchor, add_host};
use segue_sim::{Agent, AgentId, ChannelId, Io, Network, NodeId, Observer, Packet, Payload};
use segue_steering::Class;
use segue_tunnel::{AnchorConfig, Cause, HostConfig, HostInput, Report};
use segue_wire::FlowKey;

use crate::net::{BYTES, Data, NO_APP, Stream, Way, anchor_config, ms, secs};

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

/// The direction of a link that something came out of last.
type Last = Rc<Cell<ChannelId>>;

/// Sees over which link a packet comes.
struct Watch(Last);

impl Observer for Watch {
    fn arrived(&mut self, _now: Time, channel: ChannelId, _packet: &Packet) {
        self.0.set(channel);
    }

    fn sent(&mut self, _: Time, _: ChannelId, _: &Packet, _: Result<Time, Lost>) {}

    fn dropped(&mut self, _: Time, _: NodeId, _: &Packet, _: Lost) {}

    fn said(&mut self, _: Time, _: NodeId, _: &str) {}

    fn listens(&self) -> bool {
        false
    }
}

/// Keeps what arrives, with the direction of the link that it came over, until it is looked at.
struct Sink {
    got: Vec<(Time, ChannelId, Data)>,
    last: Last,
}

impl Agent for Sink {
    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        self.got.push((
            io.now,
            self.last.get(),
            *packet.value().expect("the packet of an application"),
        ));
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
    pub running: bool,
    /// When it sends next.
    next: Time,
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
    last: Last,
    hosts: Vec<HostNode>,
    pub apps: Vec<App>,
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Stage {
        Stage::with_anchor(seed, anchor_config())
    }

    pub(crate) fn with_anchor(seed: u64, config: AnchorConfig) -> Stage {
        let mut network = Network::starting_at(Time(1_000_000_000), seed);
        let core = network.add_node("core");
        network.node_mut(core).addresses = vec![Ipv4Addr::new(203, 0, 113, 1).into(), PEER];
        let agent = AnchorAgent::new(config, [], network.seed_of(1, 0));
        let anchor = add_anchor(&mut network, core, "anchor", agent, &[pool()], |_| false);
        let last = Rc::new(Cell::new(ChannelId(0)));
        network.observe(Box::new(Watch(last.clone())));
        let sink = Box::new(Sink { got: Vec::new(), last: last.clone() });
        let peer = network.add_agent(core, "peer", &[(UDP, PEER_PORT)], sink);
        Stage { network, core, anchor, peer, last, hosts: Vec::new(), apps: Vec::new() }
    }

    /// A registered host with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), two seconds after its start.
    pub(crate) fn two_paths(seed: u64, config: HostConfig) -> (Stage, usize) {
        let mut stage = Stage::new(seed);
        let host = stage.add_host("alice", config);
        stage.add_link(host, "wifi", ms(10));
        stage.add_link(host, "lte", ms(30));
        stage.run_for(secs(2));
        assert!(stage.host(host).end().machine.registered());
        (stage, host)
    }

    /// An enrolled host without interfaces.
    pub(crate) fn add_host(&mut self, name: &str, config: HostConfig) -> usize {
        let number = self.hosts.len();
        let enrol = Enrolment::Begin(name.into());
        self.network.command(self.anchor, |anchor: &mut AnchorAgent, io| {
            anchor.obey(io, Order::Own(enrol));
        });
        let node = self.network.add_node(name);
        self.network.node_mut(node).forwards = false;
        let agent = HostAgent::new(name, config, self.network.seed_of(2, number as u32));
        let agent = add_host(&mut self.network, node, name, agent, &[pool()]);
        self.hosts.push(HostNode { node, agent, links: Vec::new() });
        number
    }

    /// An interface with a link to the core.
    pub(crate) fn add_link(&mut self, host: usize, name: &str, one_way: Span) {
        self.add_jittery_link(host, name, one_way, Span::ZERO);
    }

    /// The same, where packets take up to `jitter` longer, in their order.
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
        let address = IpAddr::from([198, 51, host as u8, index as u8]);
        let routes = &mut self.network.node_mut(self.core).routes;
        routes.set(Prefix::host(address), Hop::Interface(there));
        self.network.happen(Change::Renumber(node, index, vec![address]));
        self.hosts[host].links.push(Link { name: name.into(), up, down });
    }

    fn link(&self, host: usize, name: &str) -> &Link {
        self.hosts[host].links.iter().find(|link| link.name == name).unwrap()
    }

    fn fault(&mut self, host: usize, name: &str, way: Way, fault: LinkFault) {
        let &Link { up, down, .. } = self.link(host, name);
        for (channel, other) in [(up, Way::Down), (down, Way::Up)] {
            if way != other {
                self.network.happen(Change::Fault(channel, fault));
            }
        }
    }

    /// Kills directions of a link, or revives them.
    pub(crate) fn set_alive(&mut self, host: usize, name: &str, way: Way, alive: bool) {
        let fault = if alive { LinkFault::Mend } else { LinkFault::Cut };
        self.fault(host, name, way, fault);
    }

    /// An interface goes, or comes back.
    pub(crate) fn set_present(&mut self, host: usize, name: &str, present: bool) {
        let &Link { up, down, .. } = self.link(host, name);
        let change = if present { Change::Plug(up, down) } else { Change::Unplug(up, down) };
        self.network.happen(change);
    }

    pub(crate) fn tell_host(&mut self, host: usize, input: HostInput) {
        let order = Order::Own(Box::new(input));
        self.network.command(self.hosts[host].agent, |agent: &mut HostAgent, io| {
            agent.obey(io, order);
        });
        self.check();
    }

    pub(crate) fn handover(
        &mut self,
        host: usize,
        flow: Option<FlowKey>,
        class: Option<Class>,
        to: Option<&str>,
    ) {
        let to = to.map(String::from);
        self.tell_host(host, HostInput::Handover { flow, class, to });
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

    /// A flow of `interval` with both directions, from now on.
    pub(crate) fn add_app(&mut self, host: usize, sport: u16, dscp: u8, interval: Span) -> usize {
        let src = self.host(host).end().machine.inner()[0];
        let (dst, dport) = (PEER, PEER_PORT);
        let key = FlowKey { src, dst, sport, dport, protocol: UDP, label: 0 };
        let (node, app) = (self.hosts[host].node, self.apps.len());
        let sink = Box::new(Sink { got: Vec::new(), last: self.last.clone() });
        let sink = self.network.add_agent(node, format!("app{app}"), &[(UDP, sport)], sink);
        let (up, down, next) = (Stream::default(), Stream::default(), self.now());
        let (running, round) = (true, 0);
        let new = App { host, key, dscp, interval, running, next, round, sink, up, down };
        self.apps.push(new);
        app
    }

    /// 50 packets a second both ways, marked EF.
    pub(crate) fn add_voice(&mut self, host: usize) -> usize {
        let sport = 40_000 + self.apps.len() as u16;
        self.add_app(host, sport, 46, ms(20))
    }

    /// 200 packets a second both ways, marked CS1.
    pub(crate) fn add_bulk(&mut self, host: usize) -> usize {
        let sport = 40_000 + self.apps.len() as u16;
        self.add_app(host, sport, 8, ms(5))
    }

    /// Ends the applications and lets everything in flight arrive.
    pub(crate) fn stop_apps(&mut self) {
        for app in &mut self.apps {
            app.running = false;
        }
        self.run_for(ms(500));
    }

    /// A packet of a flow that no application has.
    pub(crate) fn miss_at_anchor(&mut self, key: FlowKey) {
        let data = Data { app: NO_APP, round: 0 };
        self.send(self.peer, key, 0, data);
    }

    fn send(&mut self, from: AgentId, key: FlowKey, dscp: u8, data: Data) {
        let packet = Packet::new(UDP, (key.src, key.sport), (key.dst, key.dport), BYTES, data);
        self.network.command(from, |_: &mut Sink, io| {
            io.send(Packet { dscp, sent: io.now, ..packet });
        });
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

    /// Runs in small steps until `done` or for at most `span`; whether it is done.
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
        let end = self.now() + span;
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

    fn run_app(&mut self, number: usize) {
        let (now, peer) = (self.now(), self.peer);
        let App { key, dscp, interval, next, round, sink, up, down, .. } = &mut self.apps[number];
        *next = now + *interval;
        let (dscp, data) = (*dscp, Data { app: number, round: *round });
        let both = [(*key, *sink, up), (key.reversed(), peer, down)];
        let said = both.map(|(key, from, stream)| {
            stream.sent += u64::from(!stream.silent);
            (!stream.silent).then_some((key, from))
        });
        for (key, from) in said.into_iter().flatten() {
            self.send(from, key, dscp, data);
        }
    }

    /// Notes what has arrived at applications.
    fn collect(&mut self) {
        let sinks = self.apps.iter().map(|app| app.sink).chain([self.peer]);
        for sink in sinks.collect::<Vec<_>>() {
            let got = std::mem::take(&mut self.network.agent_mut::<Sink>(sink).unwrap().got);
            for (at, channel, data) in got {
                let Some(app) = self.apps.get_mut(data.app) else { continue };
                let links = &self.hosts[app.host].links;
                let over = links.iter().find(|link| [link.up, link.down].contains(&channel));
                let stream = if sink == self.peer { &mut app.up } else { &mut app.down };
                stream.arrived(at, &over.unwrap().name, data.round == app.round);
            }
        }
    }

    /// No path of either end sends its packets over another one.
    pub(crate) fn expect_no_redirections(&self) {
        for host in 0..self.hosts.len() {
            for (number, path) in self.host(host).end().machine.paths() {
                assert_eq!(path.via(), None, "host {host}, path {number}");
            }
        }
        for (slot, path) in self.anchor().end().machine.paths() {
            assert_eq!(path.via(), None, "anchor, path {slot}");
        }
    }

    /// Why the flows of a host moved, each time.
    pub(crate) fn causes(&self, host: usize) -> Vec<Cause> {
        let cause = |report: &Report| match report {
            Report::Handover { cause, flows, .. } if *flows > 0 => Some(*cause),
            _ => None,
        };
        self.host(host).reports().iter().filter_map(|(_, report)| cause(report)).collect()
    }

    /// Packets that the host's paths have received since they were set up.
    pub(crate) fn probes_heard(&self, host: usize) -> u32 {
        self.host(host).end().datapath.received()
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
