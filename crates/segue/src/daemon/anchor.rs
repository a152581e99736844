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
use segue_clock::{Machine, Span, Time};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{
    Datapath, Event, FlowCursor, InnerEntry, ProbeKind, ProbeOrder, Reach, Role, Setup,
};
use segue_keepalive::Source;
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Interface, Monitor};
use segue_store::{Embedded, StoreExt};
use segue_tunnel::{Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, Known, Pool};
use segue_wire::signal::{FromHost, WaysOut};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

pub use self::credentials::now_s;
use self::credentials::{Credentials, review_period};
pub use self::enrolment::{Enrolment, LINE_LIFETIME};
use self::enrolment::{LEASES, Lease, REST};
use self::ledger::{Ledger, Say};
use self::pools::Pools;
use self::signal::{Signal, SignalEvent};
use super::events::{Events, Trouble};
use super::packets::{self, Choice, Held, MARK, Queue};
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
    machine: Anchor,
    datapath: Box<dyn Datapath>,
    pools: Pools,
    held: Held,
    store: Arc<Embedded>,
    ledger: Ledger,
    enrolment: Enrolment,
    credentials: Credentials,
    signal: Signal,
    events: Events,
    trouble: Trouble,
    /// Packets sent a second time.
    reinjected: u64,
    packets: Queue,
    /// Probes that the machine has ordered, to be sent in one go.
    orders: Vec<ProbeOrder>,
    /// Paths on which probes ride, and when the datapath wants the sweep of responses that wait for it.
    riding: BTreeSet<u32>,
    sweep_at: Option<Time>,
    stamp: Option<Stamp>,
    attached: BTreeSet<u32>,
    interfaces: Vec<Interface>,
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
    let mut daemon = Daemon {
        machine: Anchor::new(machine_config(&settings, &store, source)?, random_seed()?),
        pools,
        held: Held::default(),
        events: Events::default(),
        trouble: Trouble::default(),
        reinjected: 0,
        attached: BTreeSet::new(),
        interfaces: Vec::new(),
        started: monotonic(),
        packets: opened.events,
        orders: Vec::new(),
        riding: BTreeSet::new(),
        sweep_at: None,
        stamp,
        datapath,
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
fn ways_out(all: &[Interface], settings: &Settings) -> WaysOut {
    let device = &settings.device;
    let others = all.iter().filter(|i| i.up && !i.loopback && i.name != *device);
    let defaults = others.flat_map(|i| &i.routes).filter(|route| route.prefix_len == 0);
    let leads = |v6| defaults.clone().any(|route| route.prefix.is_ipv6() == v6);
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
            let deadline = self.deadline();
            tokio::select! {
                // Of those that are ready one at random: none can keep another from its turn.
                _ = interrupt.recv() => break,
                _ = heartbeat.tick() => {
                    self.datapath.heartbeat();
                    self.datapath.carries()?;
                    self.ledger.writes()?;
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

    /// When the machine or the datapath wants to be called.
    fn deadline(&self) -> Option<Time> {
        let machine = self.machine.deadline().map(|(at, _)| at);
        [machine, self.sweep_at].into_iter().flatten().min()
    }

    /// Probes that have come go before time-outs, and what the datapath knows of the paths that are due:
    /// a late daemon must not take its own lateness for silence.
    fn on_deadline(&mut self) {
        for probe in self.packets.waiting() {
            self.handle(AnchorInput::Probe(packets::probe_in(&probe)));
        }
        let due = self.machine.due(monotonic());
        self.read(&due);
        self.handle(AnchorInput::Tick);
        self.send_probes();
        self.sweep_responses();
    }

    /// Sends the responses that have waited long enough for a ride. Asked too after each request: it may be
    /// the first whose response waits.
    fn sweep_responses(&mut self) {
        let now = monotonic();
        if !self.riding.is_empty() && self.sweep_at.is_none_or(|at| at <= now) {
            self.sweep_at = self.datapath.sweep(now);
        }
    }

    /// Gives the machine what the datapath has measured on these paths.
    fn read(&mut self, slots: &[u32]) {
        for (n, slot) in slots.iter().enumerate() {
            if n % packets::PASS == packets::PASS - 1 {
                self.datapath.heartbeat();
            }
            if let Some(reading) = self.datapath.reading(*slot) {
                self.handle(AnchorInput::Reading(*slot, reading));
            }
        }
    }

    /// Gives the machine an input and does what it says.
    fn feed(&mut self, input: AnchorInput) {
        self.handle(input);
        self.send_probes();
    }

    /// As [`Daemon::feed`], but keeps the probes that are to be sent. What cannot be done is told and left
    /// undone: one host's trouble must not end the service of all others.
    fn handle(&mut self, input: AnchorInput) {
        let now = monotonic();
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            if let AnchorOutput::SendProbe(probe) = output {
                self.orders.push(packets::order(&probe, ProbeKind::Unsolicited));
            } else if let Err(error) = self.apply(now, output) {
                self.trouble.tell(now, &error);
            }
        }
    }

    fn send_probes(&mut self) {
        let orders = std::mem::take(&mut self.orders);
        if !orders.is_empty()
            && let Err(error) = self.datapath.send_probes(&orders)
        {
            debug!("responses not sent: {error}");
        }
    }

    fn apply(&mut self, now: Time, output: AnchorOutput) -> anyhow::Result<()> {
        match output {
            AnchorOutput::Signal(conn, message) => self.say(conn, Say::Message(message)),
            AnchorOutput::Close(conn) => self.say(conn, Say::Close),
            AnchorOutput::SetPath(slot, path) => {
                if path.probing.rides {
                    self.riding.insert(slot);
                } else {
                    self.riding.remove(&slot);
                }
                self.packets.shares.give(slot, path.owner);
                self.datapath.set_path(slot, &packets::path_config(&path))?;
            }
            AnchorOutput::RemovePath(slot) => {
                self.riding.remove(&slot);
                self.packets.shares.take_back(slot);
                self.datapath.remove_path(slot);
            }
            AnchorOutput::SetQuiet(slot, quiet) => self.datapath.set_quiet(slot, quiet),
            AnchorOutput::SetDown(slot, silence) => self.datapath.set_down(slot, silence),
            AnchorOutput::SetDeaf(slot, deaf) => self.datapath.set_deaf(slot, deaf),
            AnchorOutput::Reinject(order) => {
                self.reinjected += self.datapath.reinject(packets::reinjection(order)) as u64;
            }
            AnchorOutput::SetOneByOne(slot) => self.datapath.set_one_by_one(slot),
            AnchorOutput::SetVia(slot, via) => self.datapath.set_via(slot, packets::via(via))?,
            AnchorOutput::SetHeard(slots, word) => self.datapath.set_heard(&slots, word),
            AnchorOutput::SetInner(address, owner) => {
                self.datapath.set_inner(address, InnerEntry { owner })?;
            }
            AnchorOutput::SetMtu(address, mtu) => {
                self.pools.routing.fit(address, Some(mtu.into()), self.settings.mtu)?;
            }
            AnchorOutput::RemoveInner(address) => {
                self.datapath.remove_inner(address);
                self.pools.routing.fit(address, None, self.settings.mtu)?;
            }
            AnchorOutput::SendProbe(_) => {}
            AnchorOutput::Bind(key, slot) => self.datapath.bind_flow(key, slot)?,
            AnchorOutput::Inject(ticket) => {
                if let Some(packet) = self.held.take(ticket) {
                    self.datapath.inject(packet);
                }
            }
            AnchorOutput::Discard(ticket) => {
                if let Some(packet) = self.held.take(ticket) {
                    self.datapath.refuse(packet);
                }
            }
            AnchorOutput::Persist(known) => {
                let seen_s = Some(credentials::now_s());
                let lease = Lease { epoch: known.epoch, inner: known.inner, seen_s };
                self.ledger.put(&known.name, lease);
            }
            AnchorOutput::Report(report) => self.events.note(now, &report),
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
            Work::Packet(event) => self.on_packet_event(event),
            Work::Signal(event) => self.on_signal_event(event),
            Work::Asked((request, back)) => self.on_request(&request, back),
            Work::TooBig(said) => self.feed(AnchorInput::TooBig(said)),
            Work::Interfaces(all) => self.on_interfaces(&all?),
        }
        Ok(())
    }

    fn on_packet_event(&mut self, event: Event) {
        match event {
            Event::Probe(probe) => {
                self.feed(AnchorInput::Probe(packets::probe_in(&probe)));
                self.sweep_responses();
            }
            Event::Miss(packet) => {
                let key = packet.key;
                let ticket = self.held.keep(packet);
                self.feed(AnchorInput::Miss { key, ticket })
            }
            Event::Uncut(slot) => self.feed(AnchorInput::Uncut(slot)),
            Event::Look(_) | Event::Size(..) => {} // of hosts alone
        }
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

    fn on_interfaces(&mut self, all: &[Interface]) {
        self.interfaces = all.to_vec();
        self.feed(AnchorInput::WaysOut(ways_out(all, &self.settings)));
        let wanted = |i: &&Interface| {
            let listed = &self.settings.interfaces;
            i.up && !i.loopback
                && i.name != self.settings.device
                && (listed.is_empty() || listed.contains(&i.name))
        };
        let present: BTreeMap<u32, String> =
            all.iter().filter(wanted).map(|i| (i.index, i.name.clone())).collect();
        for gone in self.attached.iter().filter(|index| !present.contains_key(index)) {
            self.datapath.detach(*gone);
        }
        self.attached.retain(|index| present.contains_key(index));
        for (index, name) in present {
            if self.attached.contains(&index) {
                continue;
            }
            match self.datapath.attach(index) {
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
                let slots: Vec<u32> = self.machine.paths().map(|(slot, _)| slot).collect();
                self.read(&slots);
                self.send_probes();
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
                let owner = self.machine.owner(name);
                owner.with_context(|| format!("no host {name:?} is registered"))
            })
            .transpose()?;
        let (datapath, from) = (self.datapath.as_mut(), FlowCursor(from));
        Ok(status::anchor_flows(&self.machine, datapath, monotonic(), from, owner))
    }

    fn enroll(
        &mut self,
        name: &str,
        addresses: &[Locator],
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        let own = || {
            let global = self.interfaces.iter().filter(|i| i.name != self.settings.device);
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
        let mut drops = packets::drops(self.datapath.as_mut(), &self.packets);
        let stamp = self.stamp.as_ref().map(Stamp::drops).unwrap_or_default();
        drops.extend(stamp.into_iter().map(|(reason, n)| (format!("stamp_{reason}"), n)));
        match self.datapath.stamp_limited() {
            0 => {}
            n => *drops.entry("stamp_rate_limit".into()).or_default() += n,
        }
        Status {
            role: "anchor".into(),
            name: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            datapath: packets::kind_name(self.datapath.kind()).into(),
            device: self.settings.device.clone(),
            registered: true,
            anchor: None,
            inner,
            signalling: None,
            trouble: None,
            now_ns: now.0,
            uptime_s: now.since(self.started).as_secs_f64(),
            hosts: status::hosts(&self.machine),
            paths: status::anchor_paths(&self.machine, self.datapath.as_mut()),
            classes: BTreeMap::new(),
            drops,
            orders: BTreeMap::new(),
            reinjected: self.reinjected,
            events: self.events.since(events_from),
            next_event: self.events.next(),
        }
    }
}
