//! A host with Wi-Fi and cellular, a core, an anchor and a correspondent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_keepalive::{Aims, Config as Keepalive, MeasuredBy};
use segue_netem::{Jitter, LinkSpec, Loss};
use segue_sim::net::{CellConfig, Change, NatConfig, RadioConfig, Walk};
use segue_sim::tunnel::{AnchorAgent, HostAgent, add_anchor, add_host};
use segue_sim::{AgentId, ChannelId, Network, NodeId};
use segue_tunnel::{AnchorConfig, HostConfig, Known, PathConfig, Pool};
use segue_wire::FlowKey;

use crate::talk::Talker;

pub(crate) const MS: fn(u64) -> Span = Span::from_millis;
pub(crate) const SECS: fn(u64) -> Span = Span::from_secs;
/// The first address that the anchor assigns.
pub(crate) const INNER: &str = "10.7.0.2";
pub(crate) const SERVER: &str = "192.0.2.99";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn pool() -> Prefix {
    Prefix::new(ip("10.7.0.0"), 24)
}

/// Parameters of a world.
#[derive(Clone)]
pub(crate) struct Setup {
    pub seed: u64,
    pub measured_by: MeasuredBy,
    pub k: u8,
    pub t_ka: Span,
    /// Probes ride on data.
    pub rides: bool,
    pub jitter: Span,
    pub known: Vec<Known>,
    pub enrolled: bool,
    pub wifi: Wifi,
    /// Default settings: they follow the measurements and the use of a path.
    pub adaptive: bool,
    /// Loss probability of each direction of an access link.
    pub loss: f64,
    /// One-way delay of the cellular link in milliseconds.
    pub lte_ms: u64,
    /// The Wi-Fi link; by default 20 Mbit/s and 10 ms.
    pub wifi_link: Option<LinkSpec>,
}

/// Kind of Wi-Fi access.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Wifi {
    /// A fixed address.
    Fixed,
    /// Behind a translator.
    Nat,
    /// Two cells with separate prefixes: the host moves to the second after ten seconds, with two seconds in
    /// neither.
    Cells,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            seed: 1,
            measured_by: MeasuredBy::Machine,
            k: 3,
            t_ka: MS(60),
            rides: false,
            jitter: Span::ZERO,
            known: Vec::new(),
            enrolled: true,
            wifi: Wifi::Fixed,
            adaptive: false,
            loss: 0.0,
            lte_ms: 30,
            wifi_link: None,
        }
    }
}

pub(crate) struct World {
    pub network: Network,
    pub mobile: NodeId,
    pub server: NodeId,
    pub wifi_router: NodeId,
    pub host: AgentId,
    pub anchor: AgentId,
    /// Both directions of the access links.
    pub access: BTreeMap<&'static str, [ChannelId; 2]>,
}

fn link(ms: u64, jitter: Span) -> LinkSpec {
    let jitter = if jitter == Span::ZERO { Jitter::None } else { Jitter::Uniform(jitter) };
    LinkSpec { rate_bps: Some(20_000_000), delay: MS(ms), jitter, ..LinkSpec::default() }
}

/// Round-trip time over an access link with this one-way delay in milliseconds, including serialisation.
pub(crate) fn rtt(one_way: u64, jitter: Span) -> Span {
    MS(2 * (one_way + 2) + 1) + jitter * 2
}

impl World {
    pub(crate) fn new(setup: &Setup) -> World {
        World::with(setup, |_| {}, |_| {})
    }

    /// A world with additional setup of host and anchor.
    pub(crate) fn with(
        setup: &Setup,
        at_host: impl FnOnce(&mut HostAgent),
        at_anchor: impl FnOnce(&mut AnchorAgent),
    ) -> World {
        let mut network = Network::new(setup.seed);
        let [mobile, wifi, lte, core, anchor, server] =
            ["mobile", "wifi-router", "lte-router", "core", "anchor", "server"]
                .map(|name| network.add_node(name));
        let mut access = BTreeMap::new();
        for (name, router, ms, address) in
            [("wifi", wifi, 10, "10.1.0.2"), ("lte", lte, setup.lte_ms, "10.2.0.2")]
        {
            let own = network.add_interface(mobile, name);
            if name == "wifi" && setup.wifi == Wifi::Cells {
                continue;
            }
            let there = network.add_interface(router, "access");
            let loss = if setup.loss > 0.0 { Loss::Bernoulli(setup.loss) } else { Loss::None };
            let spec = LinkSpec { loss, ..link(ms, setup.jitter) };
            let spec = setup.wifi_link.clone().filter(|_| name == "wifi").unwrap_or(spec);
            let (up, down) =
                network.connect((mobile, own), (router, there), spec.clone(), spec).unwrap();
            network.node_mut(mobile).adapters[own as usize - 1]
                .interface
                .addresses
                .push(ip(address));
            access.insert(name, [up, down]);
        }
        for node in [wifi, lte, anchor, server] {
            let own = network.add_interface(node, "core");
            let there = network.add_interface(core, "link");
            let spec = LinkSpec { rate_bps: Some(1_000_000_000), ..link(1, Span::ZERO) };
            network.connect((node, own), (core, there), spec.clone(), spec).unwrap();
        }
        if setup.wifi == Wifi::Nat {
            network.node_mut(wifi).addresses.push(ip("198.51.100.1"));
            network.add_nat(wifi, NatConfig::new(vec![1], ip("198.51.100.1"))).unwrap();
        }
        network.node_mut(anchor).addresses.push(ip("203.0.113.1"));
        network.node_mut(server).addresses.push(ip(SERVER));
        let transit = |node| node != mobile && node != server;
        network.route_all(transit);
        if setup.wifi == Wifi::Cells {
            walk(&mut network, setup, mobile, [wifi, core]);
            network.route_cells(transit);
        }
        let mut agent = HostAgent::new("alice", host_config(setup), setup.seed ^ 77);
        at_host(&mut agent);
        let host = add_host(&mut network, mobile, "alice", agent, &[pool()]);
        let names = setup.enrolled.then(|| "alice".to_owned());
        let mut agent = AnchorAgent::new(anchor_config(setup), names, setup.seed ^ 99);
        agent.recall(setup.known.clone());
        at_anchor(&mut agent);
        let anchor = add_anchor(&mut network, anchor, "anchor", agent, &[pool()], transit);
        World { network, mobile, server, wifi_router: wifi, host, anchor, access }
    }

    /// Adds telephony between host and correspondent; returns their agents.
    pub(crate) fn talk(&mut self, port: u16, until: Time) -> [AgentId; 2] {
        self.talk_as(46, port, until)
    }

    /// Telephony with this code point.
    pub(crate) fn talk_as(&mut self, dscp: u8, port: u16, until: Time) -> [AgentId; 2] {
        self.talkers(MS(20), dscp, port, [until, until])
    }

    /// Unmarked traffic with this interval; each end sends until its own time.
    pub(crate) fn talk_every(
        &mut self,
        interval: Span,
        port: u16,
        until: [Time; 2],
    ) -> [AgentId; 2] {
        self.talkers(interval, 0, port, until)
    }

    /// Telephony that starts at `from`.
    pub(crate) fn talk_from(&mut self, from: Time, port: u16) -> [AgentId; 2] {
        let ends = self.talk(port, Time(u64::MAX));
        ends.into_iter().for_each(|end| self.begin_at(end, from));
        ends
    }

    /// Makes one end start at `from`.
    pub(crate) fn begin_at(&mut self, end: AgentId, from: Time) {
        self.talker_mut(end).from = from;
    }

    pub(crate) fn talker_mut(&mut self, id: AgentId) -> &mut Talker {
        self.network.agent_mut(id).unwrap()
    }

    /// Traffic with this interval and code point; each end sends until its own time.
    pub(crate) fn talkers(
        &mut self,
        every: Span,
        dscp: u8,
        port: u16,
        until: [Time; 2],
    ) -> [AgentId; 2] {
        let mut first = Talker::new(pool(), port, Some((ip(SERVER), port)), every);
        let mut second = Talker::new(Prefix::host(ip(SERVER)), port, None, every);
        [first.until, second.until] = until;
        (first.dscp, second.dscp) = (dscp, dscp);
        [(self.mobile, first), (self.server, second)].map(|(node, talker)| {
            self.network.add_agent(node, format!("talk{port}"), &[(17, port)], Box::new(talker))
        })
    }

    pub(crate) fn run(&mut self, until: Time) {
        self.network.run_until(until);
        assert_eq!(self.host().end().wrong(), None);
        assert_eq!(self.anchor().end().wrong(), None);
        assert!(self.host().end().datapath.bindings_hold());
    }

    pub(crate) fn talker(&self, id: AgentId) -> &Talker {
        self.network.agent(id).unwrap()
    }

    pub(crate) fn host(&self) -> &HostAgent {
        self.network.agent(self.host).unwrap()
    }

    pub(crate) fn anchor(&self) -> &AnchorAgent {
        self.network.agent(self.anchor).unwrap()
    }

    /// Cuts an access link at `from`, and mends it at `until`.
    pub(crate) fn cut(&mut self, name: &str, from: Time, until: Option<Time>) {
        self.cut_ways(name, [true, true], from, until);
    }

    /// Cuts the uplink, the downlink or both.
    pub(crate) fn cut_ways(
        &mut self,
        name: &str,
        ways: [bool; 2],
        from: Time,
        until: Option<Time>,
    ) {
        let cut = self.access[name].into_iter().zip(ways).filter(|(_, way)| *way);
        for (channel, _) in cut {
            self.network.schedule(from, Change::Cut(channel, true));
            if let Some(until) = until {
                self.network.schedule(until, Change::Cut(channel, false));
            }
        }
    }

    /// The interface over which the host sends a talker's packets.
    pub(crate) fn way_of(&self, talker: AgentId) -> Option<String> {
        let talker = self.talker(talker);
        let (dst, dport) = talker.peer?;
        self.way_of_flow(&FlowKey {
            src: talker.source?,
            dst,
            sport: talker.port,
            dport,
            protocol: 17,
            label: 0,
        })
    }

    /// The interface over which the host sends a flow.
    pub(crate) fn way_of_flow(&self, key: &FlowKey) -> Option<String> {
        let end = self.host().end();
        let slot = end.datapath.route(key)?;
        let mut paths = end.machine.paths();
        paths.find(|(n, _)| u32::from(*n) == slot).map(|(_, path)| path.name().to_owned())
    }
}

/// Turns the first interface of `mobile` into a radio that moves from one router's cell to the other's.
fn walk(network: &mut Network, setup: &Setup, mobile: NodeId, routers: [NodeId; 2]) {
    let cells = routers.into_iter().zip(["10.1.0.0", "10.3.0.0"]).map(|(router, prefix)| {
        let prefix = Prefix::new(ip(prefix), 24);
        let (down, up) = (link(10, setup.jitter), link(10, setup.jitter));
        let (prefix, gateway) = (Some(prefix), prefix.nth(1));
        network.add_cell(CellConfig { router, gateway, prefix, down, up }).unwrap()
    });
    let cells = cells.collect();
    let radio = RadioConfig { node: mobile, interface: 1, at_once: 1 };
    let radio = network.add_radio(radio).unwrap();
    let walk = Walk { gap: SECS(2), ..Walk::new(cells, SECS(10), 1) };
    network.walk(radio, &walk).unwrap();
}

pub(crate) fn host_config(setup: &Setup) -> HostConfig {
    HostConfig {
        anchor: vec!["203.0.113.1:5005".parse().unwrap()],
        epoch: 1,
        port: 5005,
        path: PathConfig {
            keepalive: Keepalive {
                k: setup.k,
                t_ka: setup.t_ka,
                rides: setup.rides,
                ..Keepalive::default()
            },
            enabled: true,
            adaptive: setup.adaptive.then(Aims::default),
            price: 0.0,
            preference: 0.0,
            encapsulation: segue_wire::Encapsulation::Segue,
            source: None,
        },
        paths: BTreeMap::new(),
        steering: Default::default(),
        measured_by: setup.measured_by,
        largest: None,
    }
}

fn anchor_config(setup: &Setup) -> AnchorConfig {
    AnchorConfig {
        port: 5005,
        pool_v4: Pool::new(Prefix::new([10, 7, 0, 0], 24)),
        pool_v6: None,
        max_paths: 64,
        expiry: SECS(60),
        rest: Span::ZERO,
        resting: Vec::new(),
        measured_by: setup.measured_by,
        largest: None,
        allow_upmt: false,
    }
}
