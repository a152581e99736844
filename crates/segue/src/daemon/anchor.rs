//! The anchor's daemon: drives [`Anchor`] with QUIC, a datapath, the store and the clock.

mod credentials;
mod enrolment;
mod ledger;
mod pools;
mod signal;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::unistd::Gid;
use segue_clock::{Span, Time};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{DatapathError, FlowCursor, LinuxDatapath, Reach, Role, Setup};
use segue_keepalive::Source;
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, Monitor};
use segue_store::{Embedded, StoreExt};
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, End, Known, Order, Pool, Turn,
};
use segue_wire::signal::{FromHost, WaysOut};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

pub use self::credentials::now_s;
use self::credentials::{Credentials, review_period};
pub use self::enrolment::{Enrolment, LINE_LIFETIME};
use self::enrolment::{LEASES, Lease, REST};
use self::ledger::{Ledger, Say};
use self::pools::Pools;
use self::signal::{Signal, SignalEvent};
use super::events::{Events, Trouble};
use super::packets::{self, Choice, MARK, Queue};
use super::stamp::{self, Stamp};
use super::turns::{Sources, Work};
use super::{HEARTBEAT, random_seed, scrape, status};
use crate::control::{self, Asked, FlowsPage, Request, Response, Status};
use crate::errors::Told;
use crate::locator::Locator;

/// Everything that an anchor daemon needs to know, validated.
pub struct Settings {
    /// Name of the tunnel device.
    pub device: String,
    /// MTU of the tunnel device in bytes.
    pub mtu: u32,
    /// UDP port of the tunnels.
    pub port: u16,
    /// UDP port of the signalling.
    pub signal_port: u16,
    /// Which datapath.
    pub datapath: Choice,
    /// The interfaces to serve; all that carry packets if empty.
    pub interfaces: Vec<String>,
    /// Addresses that join lines name; the anchor's own if empty.
    pub addresses: Vec<Locator>,
    /// Inner IPv4 addresses to give away.
    pub pool_v4: Option<Pool>,
    /// Inner IPv6 addresses to give away.
    pub pool_v6: Option<Pool>,
    /// Most paths of all hosts.
    pub max_paths: u32,
    /// Whether hosts may have paths with UPMT's packets.
    pub allow_upmt: bool,
    /// What hosts may reach.
    pub reach: Reach,
    /// Translate the pools where networks outside have no way to them.
    pub nat: bool,
    /// How to answer STAMP; `None` for not at all.
    pub stamp: Option<stamp::Settings>,
    /// How long a silent host keeps its registration.
    pub expiry: Span,
    /// How long a host's certificate is good.
    pub certificate_lifetime: Duration,
    /// File of the store.
    pub state: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it, beside root.
    pub control_group: Option<Gid>,
    /// Where metrics are served; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// Run before ordinary threads where the system allows it.
    pub realtime: bool,
}

struct Daemon {
    settings: Settings,
    end: End<Anchor, Box<dyn LinuxDatapath>>,
    pools: Pools,
    store: Arc<Embedded>,
    ledger: Ledger,
    enrolment: Enrolment,
    credentials: Credentials,
    signal: Signal,
    events: Events,
    trouble: Trouble,
    packets: Queue,
    stamp: Option<Stamp>,
    attached: BTreeSet<u32>,
    interfaces: Vec<Device>,
    started: Time,
}

/// Runs until SIGINT or SIGTERM.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    super::check_permission("run an anchor")?;
    let monitor = Monitor::new().await?;
    super::check_interfaces(&settings.interfaces, monitor.current())?;
    let (asked_in, asked) = mpsc::channel::<Asked>(16);
    scrape::start(settings.metrics, asked_in.clone())?;
    let _control = control::Server::start(&settings.control, settings.control_group, asked_in)?;
    let store = Arc::new(Embedded::open(&settings.state)?);
    let enrolment = Enrolment::load(store.as_ref())?;
    let (signal_in, signalled) = mpsc::channel(1_024);
    let signal = Signal::listen(settings.signal_port, &enrolment, signal_in)?;
    // Before the packet path's threads, which may run before ordinary ones.
    let ledger = Ledger::start(store.clone())?;
    let stamp = settings.stamp.as_ref().map(Stamp::start).transpose()?;
    let options = EbpfOptions {
        stamp: settings.stamp.as_ref().and_then(stamp::Settings::in_kernel),
        ..EbpfOptions::default()
    };
    let opened = packets::open(settings.datapath, &setup(&settings), options, settings.realtime)?;
    let (mut datapath, _reserved) = (opened.datapath, opened.reserved);
    let source = packets::source(datapath.as_ref());
    let pools = Pools::serve(&settings, datapath.as_mut())?;
    let machine = Anchor::new(machine_config(&settings, &store, source)?, random_seed()?);
    let mut daemon = Daemon {
        end: End::new(machine, datapath),
        pools,
        events: Events::default(),
        trouble: Trouble::default(),
        attached: BTreeSet::new(),
        interfaces: Vec::new(),
        started: monotonic(),
        packets: opened.events,
        stamp,
        store,
        ledger,
        enrolment,
        credentials: Credentials::default(),
        signal,
        settings,
    };
    daemon.on_interfaces(monitor.current());
    daemon.serve(Sources::new(signalled, asked, monitor)).await?;
    daemon.signal.close().await;
    Ok(())
}

/// Everything of a family for which an interface other than the tunnel has a default route, and its pool otherwise.
fn ways_out(all: &[Device], settings: &Settings) -> WaysOut {
    let tunnel = &settings.device;
    let others = all.iter().filter(|d| d.up && !d.loopback && d.interface.name != *tunnel);
    let destinations = others.flat_map(|d| &d.routes).map(|route| route.destination);
    let defaults = destinations.filter(|to| to.len == 0);
    let leads = |v6| defaults.clone().any(|to| to.addr.is_ipv6() == v6);
    let of = |v6, pool: &Option<Pool>| match pool {
        Some(pool) if !leads(v6) => pool.prefix(),
        _ => 0,
    };
    WaysOut { v4: of(false, &settings.pool_v4), v6: of(true, &settings.pool_v6) }
}

fn answer(result: anyhow::Result<Response>) -> Response {
    result.unwrap_or_else(|error| Response::Error(Told(&error).to_string()))
}

fn setup(settings: &Settings) -> Setup {
    Setup {
        tun_name: settings.device.clone(),
        tun_mtu: settings.mtu,
        port: settings.port,
        role: Role::Anchor,
        max_paths: settings.max_paths,
        max_flows: 1 << 20,
        mark: MARK,
    }
}

fn machine_config(
    settings: &Settings,
    store: &Embedded,
    source: Source,
) -> anyhow::Result<AnchorConfig> {
    let leases: Vec<(String, Lease)> =
        store.list_as(LEASES).context("the anchor's leases are unreadable")?;
    let known = leases
        .into_iter()
        .map(|(name, lease)| Known { name, epoch: lease.epoch, inner: lease.inner })
        .collect();
    let (now, now_s) = (monotonic(), credentials::now_s());
    let rest = |until_s: u64| now + Span::from_secs(until_s.saturating_sub(now_s));
    let resting = Enrolment::resting(store)?.into_iter().map(|(ip, until_s)| (ip, rest(until_s)));
    Ok(AnchorConfig {
        port: settings.port,
        pool_v4: settings.pool_v4.clone(),
        pool_v6: settings.pool_v6.clone(),
        max_paths: settings.max_paths,
        expiry: settings.expiry,
        known,
        rest: Span::from_secs(REST.as_secs()),
        resting: resting.collect(),
        source,
        allow_upmt: settings.allow_upmt,
    })
}

impl Daemon {
    /// Does what its sources bring until it is told to end.
    async fn serve(&mut self, mut sources: Sources<SignalEvent>) -> anyhow::Result<()> {
        let mut interrupt = super::termination()?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut review = tokio::time::interval(review_period(self.settings.certificate_lifetime));
        loop {
            let deadline = self.end.deadline().map(|(at, _)| at);
            tokio::select! {
                // Of those that are ready one at random: none can keep another from its turn.
                _ = interrupt.recv() => break,
                _ = heartbeat.tick() => {
                    self.end.datapath.heartbeat();
                    self.end.datapath.carries()?;
                    self.ledger.writes()?;
                    self.pools.routing.look_after(monotonic());
                }
                () = super::until(deadline) => self.on_deadline(),
                () = self.ledger.told() => self.on_written(),
                works = sources.turn(&mut self.packets) => {
                    works.into_iter().try_for_each(|work| self.on_work(work))?;
                    // The runtime's other tasks have theirs.
                    tokio::task::yield_now().await;
                }
                _ = review.tick() => self.review_certificates(),
            }
        }
        Ok(())
    }

    fn on_deadline(&mut self) {
        let waiting = self.packets.waiting();
        self.follow(Turn::at_deadline(waiting));
    }

    /// Gives the machine an input and does what it says.
    fn feed(&mut self, input: AnchorInput) {
        let turn = self.end.handle(monotonic(), input);
        self.follow(turn);
    }

    /// Does what the machine says. What cannot be done is told and left undone: one host's trouble must not end the
    /// service of all others.
    fn follow(&mut self, mut turn: Turn<DatapathError>) {
        loop {
            let Daemon { end, packets, pools, settings, trouble, .. } = self;
            let output = end.poll_with(&mut turn, monotonic, |order| match order {
                Order::SetPath(slot, path) => packets.shares.give(*slot, path.owner),
                Order::RemovePath(slot) => packets.shares.take_back(*slot),
                Order::RemoveInner(address) => {
                    if let Err(error) = pools.routing.fit(*address, None, settings.mtu) {
                        trouble.tell(monotonic(), &error);
                    }
                }
                _ => {}
            });
            let Some(output) = output else { break };
            if let Err(error) = self.apply(output) {
                self.trouble.tell(monotonic(), &error);
            }
        }
        packets::tell(turn.failures, &mut self.trouble);
    }

    fn apply(&mut self, output: AnchorOutput) -> anyhow::Result<()> {
        match output {
            AnchorOutput::Signal(conn, message) => self.say(conn, Say::Message(message)),
            AnchorOutput::Close(conn) => self.say(conn, Say::Close),
            AnchorOutput::SetMtu(address, mtu) => {
                self.pools.routing.fit(address, Some(mtu.into()), self.settings.mtu)?;
            }
            AnchorOutput::Persist(known) => {
                let seen_s = Some(credentials::now_s());
                let lease = Lease { epoch: known.epoch, inner: known.inner, seen_s };
                self.ledger.put(&known.name, lease);
            }
            AnchorOutput::Report(report) => self.events.note(monotonic(), &report),
        }
        Ok(())
    }

    /// Says something to a host, once what it follows from is on disk.
    fn say(&mut self, conn: ConnId, say: Say) {
        match self.signal.host_of(conn) {
            Some(host) if self.ledger.is_open(host) => {
                if !self.ledger.hold(host, conn, say) {
                    self.signal.end(conn, b"too much waits for the anchor's disk");
                }
            }
            _ => self.signal.say(conn, say),
        }
    }

    /// Leases are on disk, or cannot be.
    fn on_written(&mut self) {
        let outcome = self.ledger.outcome();
        if let Some(error) = outcome.error {
            self.trouble.tell(monotonic(), &error);
        }
        for (conn, say) in outcome.said {
            self.signal.say(conn, say);
        }
        for conn in outcome.failed {
            self.signal.end(conn, b"the anchor cannot write");
        }
    }

    /// Until this is over nothing of leases is on its way to the store.
    fn settle(&mut self) {
        self.ledger.settle();
        self.on_written();
    }

    fn on_work(&mut self, work: Work<SignalEvent>) -> anyhow::Result<()> {
        match work {
            Work::Packet(event) => {
                let turn = self.end.on_event(monotonic(), event);
                self.follow(turn);
            }
            Work::Signal(event) => self.on_signal_event(event),
            Work::Asked((request, back)) => self.on_request(&request, back),
            Work::TooBig(said) => self.feed(AnchorInput::TooBig(said)),
            Work::Interfaces(all) => self.on_interfaces(&all?),
        }
        Ok(())
    }

    fn on_signal_event(&mut self, event: SignalEvent) {
        match event {
            SignalEvent::Connected { conn, certificate, established } => {
                // TLS has asked too, but a moment has passed.
                let Some(host) = self.enrolment.name_of(&certificate) else {
                    established.refuse();
                    return;
                };
                self.signal.admit(conn, &host, established);
                self.on_shown(conn, &host, certificate);
                self.feed(AnchorInput::Connected { conn, host })
            }
            SignalEvent::Enrol { asked, from, back } => {
                let _ = back.send(self.on_enrol(&asked, from));
            }
            SignalEvent::Message { conn, message: FromHost::Renew { request } } => {
                self.on_renew(conn, &request);
            }
            SignalEvent::Message { conn, message } => {
                self.feed(AnchorInput::Signal { conn, message })
            }
            SignalEvent::Closed { conn } => {
                self.on_hidden(conn);
                self.signal.forget(conn);
                self.feed(AnchorInput::Disconnected { conn })
            }
        }
    }

    fn on_interfaces(&mut self, all: &[Device]) {
        self.interfaces = all.to_vec();
        self.feed(AnchorInput::WaysOut(ways_out(all, &self.settings)));
        let wanted = |d: &&Device| {
            let (listed, name) = (&self.settings.interfaces, &d.interface.name);
            d.up && !d.loopback
                && *name != self.settings.device
                && (listed.is_empty() || listed.contains(name))
        };
        let wanted = all.iter().filter(wanted).map(|device| &device.interface);
        let present: BTreeMap<u32, String> = wanted.map(|i| (i.index, i.name.clone())).collect();
        for gone in self.attached.iter().filter(|index| !present.contains_key(index)) {
            self.end.datapath.detach(*gone);
        }
        self.attached.retain(|index| present.contains_key(index));
        for (index, name) in present {
            if self.attached.contains(&index) {
                continue;
            }
            match self.end.datapath.attach(index) {
                Ok(()) => {
                    self.attached.insert(index);
                }
                Err(error) => warn!("{name} cannot be served: {error}"),
            }
        }
    }

    fn on_request(&mut self, request: &Request, back: oneshot::Sender<Response>) {
        let response = match request {
            Request::Status { events_from } => {
                let slots: Vec<u32> = self.end.machine.paths().map(|(slot, _)| slot).collect();
                self.follow(Turn::reading(slots));
                Response::Status(Box::new(self.status(*events_from)))
            }
            Request::Flows { from, host } => {
                answer(self.flows(*from, host.as_deref()).map(Response::Flows))
            }
            Request::Handover { .. } | Request::Keepalive { .. } => {
                Response::Error("this is an anchor; its hosts decide on paths and handovers".into())
            }
            Request::Enroll { name, addresses, valid_s } => {
                answer(self.enroll(name, addresses, *valid_s).map(Response::Done))
            }
            Request::Unenroll { name } => answer(self.unenroll(name).map(Response::Done)),
            Request::Enrolments => answer(self.enrolments().map(Response::Enrolments)),
        };
        let _ = back.send(response);
    }

    fn flows(&mut self, from: u64, host: Option<&str>) -> anyhow::Result<FlowsPage> {
        let owner = host
            .map(|name| {
                let owner = self.end.machine.owner(name);
                owner.with_context(|| format!("no host {name:?} is registered"))
            })
            .transpose()?;
        let (datapath, from) = (self.end.datapath.as_mut(), FlowCursor(from));
        Ok(status::anchor_flows(&self.end.machine, datapath, monotonic(), from, owner))
    }

    fn enroll(
        &mut self,
        name: &str,
        addresses: &[Locator],
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        let own = || {
            let all = self.interfaces.iter().map(|device| &device.interface);
            let global = all.filter(|i| i.name != self.settings.device);
            let port = self.settings.signal_port;
            let all = global.flat_map(|i| &i.addresses);
            all.map(|a| Locator::Address(SocketAddr::new(*a, port))).collect()
        };
        let addresses: Vec<Locator> = match (addresses, &self.settings.addresses) {
            ([], configured) if !configured.is_empty() => configured.clone(),
            ([], _) => own(),
            (given, _) => given.to_vec(),
        };
        self.invite(name, addresses, valid_s)
    }

    fn status(&mut self, events_from: u64) -> Status {
        let now = monotonic();
        let pools = [&self.settings.pool_v4, &self.settings.pool_v6].into_iter().flatten();
        let inner = pools.map(|pool| pool.anchor().to_string()).collect();
        let mut drops = packets::drops(self.end.datapath.as_mut(), &self.packets);
        let stamp = self.stamp.as_ref().map(Stamp::drops).unwrap_or_default();
        drops.extend(stamp.into_iter().map(|(reason, n)| (format!("stamp_{reason}"), n)));
        match self.end.datapath.stamp_limited() {
            0 => {}
            n => *drops.entry("stamp_rate_limit".into()).or_default() += n,
        }
        Status {
            role: "anchor".into(),
            name: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            datapath: packets::kind_name(self.end.datapath.kind()).into(),
            device: self.settings.device.clone(),
            registered: true,
            anchor: None,
            inner,
            signalling: None,
            trouble: None,
            now_ns: now.0,
            uptime_s: now.since(self.started).as_secs_f64(),
            hosts: status::hosts(&self.end.machine),
            paths: status::anchor_paths(&self.end.machine, self.end.datapath.as_mut()),
            classes: BTreeMap::new(),
            drops,
            orders: BTreeMap::new(),
            reinjected: self.end.reinjected(),
            events: self.events.since(events_from),
            next_event: self.events.next(),
        }
    }
}
