//! A network on virtual time: one anchor, any number of hosts, links with two directions, signalling
//! connections, and applications. The same seed gives the same run.

mod app;
mod checks;
mod link;
mod outputs;
mod signal;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use segue_clock::{Rng, Span, Time};
use segue_ip::Input;
use segue_keepalive::Config as Keepalive;
use segue_sim::tunnel::{AnchorEnd, Arrived, HostEnd, Inner, Message, Outer};
use segue_tunnel::{
    AnchorConfig, AnchorInput, ConnId, HostConfig, Known, PathConfig, Pool, Report,
};
use segue_wire::FlowKey;
use segue_wire::signal::{FromAnchor, FromHost};

pub(crate) use app::{App, Stream};
pub(crate) use checks::is_registered;
pub(crate) use link::{Link, Way};
use signal::Conn;

/// Where the anchor listens.
pub(crate) const ANCHOR: &str = "203.0.113.1:5005";
/// The application of packets that none has sent.
pub(crate) const NO_APP: usize = usize::MAX;
/// Length of an application's packets.
pub(crate) const BYTES: u32 = 1_000;
/// A machine that wants more ticks than this at one instant never comes to rest.
const MAX_TICKS: u32 = 200;

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

pub(crate) fn secs(s: u64) -> Span {
    Span::from_secs(s)
}

/// What a packet is to the application that sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    /// Which application.
    pub app: usize,
    /// Since which reset of the application's counts.
    pub round: u32,
}

/// A packet on the wire between the two ends.
pub(crate) type Packet = Message<Data>;

/// A host with what its driver has.
pub(crate) struct HostNode {
    pub name: String,
    pub end: HostEnd<Data>,
    pub links: Vec<Link>,
    pub reports: Vec<(Time, Report)>,
    /// The number of the last request by index and cookie. An end refuses what is older than the newest.
    asked: BTreeMap<(u32, u64), u32>,
    pub conn: Option<ConnId>,
    /// Number of the last round of connection attempts.
    attempt: u64,
    pub config: HostConfig,
}

enum Event {
    AtAnchor(SocketAddr, Packet),
    AtHost(usize, SocketAddr, Packet),
    ToAnchor(ConnId, FromHost),
    /// `None`: the connection is closed.
    ToHost(usize, ConnId, Option<FromAnchor>),
    Closed(ConnId),
    Handshake {
        host: usize,
        attempt: u64,
        interface: String,
    },
    CheckConns,
    App(usize),
}

/// Signalling messages and probes, in the current second and in the worst one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    second: u64,
    pub signals: u64,
    pub probes: u64,
    pub worst_signals: u64,
    pub worst_probes: u64,
}

pub(crate) struct Net {
    pub now: Time,
    pub anchor: AnchorEnd<Data>,
    pub anchor_reports: Vec<(Time, Report)>,
    pub anchor_config: AnchorConfig,
    pub hosts: Vec<HostNode>,
    pub apps: Vec<App>,
    pub enrolled: BTreeSet<String>,
    pub persisted: BTreeMap<String, Known>,
    pub load: Load,
    /// Probes that the packet paths kept to themselves.
    pub quiet: u64,
    /// Everything that the anchor said, in order.
    pub said: Vec<(ConnId, FromAnchor)>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    queue: BTreeMap<(Time, u64), Event>,
    serial: u64,
    rng: Rng,
    seeds: u64,
}

pub(crate) fn keepalive(k: u8, t_ka_ms: u64) -> Keepalive {
    Keepalive { k, t_ka: ms(t_ka_ms), ..Keepalive::default() }
}

pub(crate) fn host_config(k: u8, t_ka_ms: u64) -> HostConfig {
    HostConfig {
        anchor: vec![ANCHOR.parse().unwrap()],
        epoch: 1,
        port: 5005,
        path: PathConfig {
            keepalive: keepalive(k, t_ka_ms),
            enabled: true,
            adaptive: None,
            price: 0.0,
            preference: 0.0,
            encapsulation: segue_wire::Encapsulation::Segue,
        },
        paths: BTreeMap::new(),
        steering: segue_steering::Config::default(),
        measured_by: segue_keepalive::MeasuredBy::Machine,
    }
}

pub(crate) fn anchor_config() -> AnchorConfig {
    AnchorConfig {
        port: 5005,
        pool_v4: Pool::new(Ipv4Addr::new(10, 7, 0, 0).into(), 24),
        pool_v6: None,
        max_paths: 64,
        expiry: secs(60),
        rest: secs(86_400),
        resting: Vec::new(),
        measured_by: segue_keepalive::MeasuredBy::Machine,
        allow_upmt: false,
    }
}

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        Net::with_anchor(seed, anchor_config())
    }

    pub(crate) fn with_anchor(seed: u64, config: AnchorConfig) -> Net {
        let mut net = Net {
            now: Time(1_000_000_000),
            anchor: AnchorEnd::new(config.clone(), [1; 32]),
            anchor_reports: Vec::new(),
            anchor_config: config,
            hosts: Vec::new(),
            apps: Vec::new(),
            enrolled: BTreeSet::new(),
            persisted: BTreeMap::new(),
            load: Load::default(),
            quiet: 0,
            said: Vec::new(),
            conns: BTreeMap::new(),
            next_conn: 1,
            queue: BTreeMap::new(),
            serial: 0,
            rng: Rng::new(seed),
            seeds: seed,
        };
        net.schedule(net.now + ms(100), Event::CheckConns);
        net
    }

    pub(crate) fn add_host(&mut self, name: &str, config: HostConfig) -> usize {
        self.enrolled.insert(name.into());
        let seed = self.next_seed();
        self.hosts.push(HostNode {
            name: name.into(),
            end: HostEnd::new(config.clone(), seed),
            links: Vec::new(),
            reports: Vec::new(),
            asked: BTreeMap::new(),
            conn: None,
            attempt: 0,
            config,
        });
        self.hosts.len() - 1
    }

    fn next_seed(&mut self) -> [u8; 32] {
        self.seeds += 1;
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.seeds.to_le_bytes());
        seed
    }

    pub(crate) fn add_link(&mut self, host: usize, name: &str, one_way: Span) {
        let ifindex = self.hosts[host].links.len() as u32 + 1;
        let address = Ipv4Addr::new(198, 51, host as u8, ifindex as u8);
        self.hosts[host].links.push(Link::new(name, ifindex, address.into(), one_way));
    }

    /// A registered host with Wi-Fi (20 ms RTT) and LTE (60 ms RTT), two seconds after its start.
    pub(crate) fn two_paths(seed: u64, config: HostConfig) -> (Net, usize) {
        let mut net = Net::new(seed);
        let host = net.add_host("alice", config);
        net.add_link(host, "wifi", ms(10));
        net.add_link(host, "lte", ms(30));
        net.announce(host);
        net.run_for(secs(2));
        assert!(net.hosts[host].end.machine.registered());
        (net, host)
    }

    pub(crate) fn link(&mut self, host: usize, name: &str) -> &mut Link {
        self.hosts[host].links.iter_mut().find(|link| link.name == name).unwrap()
    }

    /// Kills or revives directions of a link.
    pub(crate) fn set_alive(&mut self, host: usize, name: &str, way: Way, alive: bool) {
        let link = self.link(host, name);
        if way != Way::Down {
            link.up.alive = alive;
        }
        if way != Way::Up {
            link.down.alive = alive;
        }
    }

    /// Tells the host which interfaces there are.
    pub(crate) fn announce(&mut self, host: usize) {
        let present = self.hosts[host].links.iter().filter(|link| link.present);
        let interfaces = present.map(Link::interface).collect();
        self.tell_host(host, Input::Interfaces(interfaces));
    }

    /// A flow of `interval` with both directions, from now on.
    pub(crate) fn add_app(&mut self, host: usize, sport: u16, dscp: u8, interval: Span) -> usize {
        let src = *self.hosts[host].end.machine.inner().first().expect("registered before");
        let key = FlowKey {
            src,
            dst: Ipv4Addr::new(192, 0, 2, 99).into(),
            sport,
            dport: 7000,
            protocol: 17,
            label: 0,
        };
        let (up, down) = (Stream::default(), Stream::default());
        self.apps.push(App { host, key, dscp, interval, running: true, round: 0, up, down });
        let app = self.apps.len() - 1;
        self.schedule(self.now, Event::App(app));
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

    pub(crate) fn reset_streams(&mut self) {
        for app in &mut self.apps {
            app.round += 1;
            app.up.reset();
            app.down.reset();
        }
    }

    /// Ends the applications and lets everything in flight arrive.
    pub(crate) fn stop_apps(&mut self) {
        for app in &mut self.apps {
            app.running = false;
        }
        self.run_for(ms(500));
    }

    /// The interface over which a flow's packets go up, and down, by the two flow tables.
    pub(crate) fn routes(&self, app: usize) -> (Option<String>, Option<String>) {
        let App { host, key, .. } = &self.apps[app];
        let host = &self.hosts[*host].end;
        let up = host.datapath.route(key).and_then(|slot| {
            host.machine.paths().find(|(n, _)| u32::from(*n) == slot).map(|(_, p)| p.name().into())
        });
        let down = self.anchor.datapath.route(&key.reversed());
        (up, down.and_then(|slot| self.anchor.machine.path(slot)).map(|path| path.name.clone()))
    }

    /// Both directions of the flow use this interface.
    pub(crate) fn flows_use(&self, app: usize, interface: &str) -> bool {
        self.routes(app) == (Some(interface.into()), Some(interface.into()))
    }

    /// A new anchor in the place of the old one, with what that wrote down.
    pub(crate) fn restart_anchor(&mut self) {
        let seed = self.next_seed();
        self.anchor = AnchorEnd::new(self.anchor_config.clone(), seed);
        self.anchor.recall(self.now, self.persisted.values().cloned());
        for conn in self.conns.values_mut() {
            conn.orphaned = true;
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.queue.insert((at, self.serial), event);
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Runs in small steps until `done` or for at most `span`; whether it is done.
    pub(crate) fn run_while_not(&mut self, span: Span, done: impl Fn(&Net) -> bool) -> bool {
        let end = self.now + span;
        while !done(self) {
            if self.now >= end {
                return false;
            }
            self.run_for(ms(1));
        }
        true
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        let mut ticks = 0;
        loop {
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            let (due, node) = self.next_deadline();
            let tick_first = due.is_some_and(|due| event.is_none_or(|at| due <= at));
            let Some(next) = (if tick_first { due } else { event }).filter(|at| *at <= end) else {
                break;
            };
            ticks = if next > self.now { 0 } else { ticks + u32::from(tick_first) };
            assert!(ticks < MAX_TICKS, "node {node:?} never comes to rest");
            self.now = self.now.max(next);
            if tick_first {
                match node {
                    Some(host) => self.tick_host(host),
                    None => self.tick_anchor(),
                }
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.happen(event);
            }
        }
        self.now = end;
    }

    /// The earliest deadline and whose it is; `None` for the anchor.
    fn next_deadline(&self) -> (Option<Time>, Option<usize>) {
        let mut best = (self.anchor.deadline(), None);
        for (i, host) in self.hosts.iter().enumerate() {
            if let Some(at) = host.end.deadline()
                && best.0.is_none_or(|known| at < known)
            {
                best = (Some(at), Some(i));
            }
        }
        best
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::AtAnchor(from, packet) => self.arrive_at_anchor(from, packet),
            Event::AtHost(host, to, packet) => self.arrive_at_host(host, to, packet),
            Event::App(app) => self.run_app(app),
            Event::ToAnchor(conn, message) => {
                self.count(1, 0);
                if self.conns.get(&conn).is_some_and(|c| !c.orphaned && !c.closed) {
                    self.tell_anchor(AnchorInput::Signal { conn, message });
                }
            }
            Event::ToHost(host, conn, message) => self.message_at_host(host, conn, message),
            Event::Closed(conn) => self.tell_anchor(AnchorInput::Disconnected { conn }),
            Event::Handshake { host, attempt, interface } => {
                self.handshake_done(host, attempt, interface);
            }
            Event::CheckConns => self.check_conns(),
        }
    }

    fn run_app(&mut self, app: usize) {
        let App { host, key, dscp, interval, running, round, up, down } = &mut self.apps[app];
        if !*running {
            return;
        }
        let (host, interval, round) = (*host, *interval, *round);
        let payload = Data { app, round };
        let packet = |key: FlowKey| Inner { key, dscp: *dscp, bytes: BYTES, payload };
        let upward = (!up.silent).then(|| packet(*key));
        let downward = (!down.silent).then(|| packet(key.reversed()));
        up.sent += u64::from(upward.is_some());
        down.sent += u64::from(downward.is_some());
        self.schedule(self.now + interval, Event::App(app));
        if let Some(data) = upward {
            self.send_from_host(host, data);
        }
        if let Some(data) = downward {
            self.send_from_anchor(data);
        }
    }

    fn send_from_host(&mut self, host: usize, inner: Inner<Data>) {
        self.at_host(host, |end, now, effects| end.send(now, inner, effects));
    }

    fn send_from_anchor(&mut self, inner: Inner<Data>) {
        self.at_anchor(|end, now, effects| end.send(now, inner, effects));
    }

    fn transmit_up(&mut self, host: usize, outer: &Outer, packet: Packet) {
        let bytes = packet.bytes(outer.local.ip());
        let links = &mut self.hosts[host].links;
        let Some(link) = links.iter_mut().find(|link| {
            link.present && link.ifindex == outer.ifindex && link.address == outer.local.ip()
        }) else {
            return;
        };
        if let Some(at) = link.up.transmit(self.now, bytes, &mut self.rng) {
            self.schedule(at, Event::AtAnchor(outer.local, packet));
        }
    }

    fn transmit_down(&mut self, to: SocketAddr, packet: Packet) {
        let (now, bytes, rng) = (self.now, packet.bytes(to.ip()), &mut self.rng);
        let arrival = self.hosts.iter_mut().enumerate().find_map(|(host, node)| {
            let link = node.links.iter_mut().find(|l| l.present && l.address == to.ip())?;
            Some((host, link.down.transmit(now, bytes, rng)?))
        });
        if let Some((host, at)) = arrival {
            self.schedule(at, Event::AtHost(host, to, packet));
        }
    }

    fn arrive_at_anchor(&mut self, from: SocketAddr, packet: Packet) {
        let to = ANCHOR.parse().unwrap();
        let arrived = self.at_anchor(|end, now, out| end.receive(now, from, to, packet, out));
        if arrived == Arrived::Probe {
            self.check_anchor();
        }
        self.count_arrival(arrived);
    }

    fn arrive_at_host(&mut self, host: usize, to: SocketAddr, packet: Packet) {
        let from = ANCHOR.parse().unwrap();
        let arrived = self.at_host(host, |end, now, out| end.receive(now, from, to, packet, out));
        if arrived == Arrived::Probe {
            self.check_host(host);
        }
        self.count_arrival(arrived);
    }

    fn count_arrival(&mut self, arrived: Arrived) {
        self.count(0, u64::from(matches!(arrived, Arrived::Probe | Arrived::Quiet)));
        self.quiet += u64::from(arrived == Arrived::Quiet);
    }

    pub(crate) fn count(&mut self, signals: u64, probes: u64) {
        let load = &mut self.load;
        let second = self.now.0 / 1_000_000_000;
        if second != load.second {
            (load.second, load.signals, load.probes) = (second, 0, 0);
        }
        load.signals += signals;
        load.probes += probes;
        load.worst_signals = load.worst_signals.max(load.signals);
        load.worst_probes = load.worst_probes.max(load.probes);
    }
}
