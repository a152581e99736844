//! The mobile host's daemon: drives [`Host`] with netlink, QUIC, a datapath and the clock.

mod asked;
mod interfaces;
mod member;
mod names;
mod routes;
mod signal;
mod unreached;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use nix::unistd::Gid;
use segue_clock::{Machine, Time};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{
    Datapath, DatapathError, Event, FlowCursor, Kind, ProbeKind, ProbeOrder, Role, Setup,
};
use segue_keepalive::Source;
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::link::Prefix;
use segue_linux::monitor::{Interface, Monitor};
use segue_tunnel::{Host, HostConfig, HostInput, HostOutput, PathConfig, Report};
use segue_wire::signal::{FromAnchor, FromHost, Refusal, WaysOut};
use segue_wire::{DropReason, Size, TUNNEL_PORT};
use tokio::sync::mpsc;
use tracing::{debug, info};

use self::member::Member;
pub use self::member::{Membership, membership};
use self::signal::{Rejected, Signal, SignalEvent};
use super::events::{Events, Trouble};
use super::packets::{self, Choice, Held, MARK, Queue};
use super::past::Guard;
use super::routing::Routing;
use super::turns::{Sources, Work};
use super::{HEARTBEAT, random_seed, scrape, status};
use crate::control::{self, Asked, Status, TroubleStatus};
use crate::identity::Join;

/// Everything that a host daemon needs to know, validated.
pub struct Settings {
    /// The join line, if one is given: without, or with one that was used, the state says who the host is.
    pub join: Option<Join>,
    /// File of the host's state.
    pub state: PathBuf,
    /// Name of the tunnel device.
    pub device: String,
    /// MTU of the tunnel device; fitted to the outer families if not given.
    pub mtu: Option<u32>,
    /// Local UDP port of the tunnels.
    pub port: u16,
    /// Which datapath.
    pub datapath: Choice,
    /// What goes through the tunnel; `None` for everything that the anchor has a way out for.
    pub routes: Option<Vec<Prefix>>,
    /// Nothing of `routes` leaves but by the tunnel.
    pub fail_closed: bool,
    /// The interfaces to use; all that reach the anchor if empty.
    pub interfaces: Vec<String>,
    /// Name servers to ask where the anchor's name leads; those of the system if empty.
    pub nameservers: Vec<IpAddr>,
    /// Settings of paths.
    pub path: PathConfig,
    /// Settings by interface.
    pub paths: BTreeMap<String, PathConfig>,
    /// How flows are classed and moved.
    pub steering: segue_steering::Config,
    /// The control socket.
    pub control: PathBuf,
    /// The group that may use it, beside root.
    pub control_group: Option<Gid>,
    /// Where metrics are served; `None` for nowhere.
    pub metrics: Option<SocketAddr>,
    /// Run before ordinary threads where the system allows it.
    pub realtime: bool,
}

/// How often the datapath's flow table is looked at.
const SWEEP: Duration = Duration::from_secs(5);
/// Outer headers over IPv4 (20 + 8 + 16) and IPv6 (40 + 8 + 16), in bytes.
const OVERHEAD: [u32; 2] = [44, 64];

struct Daemon {
    settings: Settings,
    member: Member,
    machine: Host,
    datapath: Box<dyn Datapath>,
    routing: Routing,
    guard: Option<Guard>,
    held: Held,
    signal: Signal,
    events: Events,
    trouble: Trouble,
    /// Packets sent a second time.
    reinjected: u64,
    packets: Queue,
    /// Probes that the machine has ordered, to be sent in one go.
    orders: Vec<ProbeOrder>,
    /// Tests of packet sizes that it has ordered. They follow the probes, which show the anchor where answers go.
    tests: Vec<(u32, Size)>,
    /// Where the anchor is, as far as is known, and the interfaces that there are.
    anchors: Vec<SocketAddr>,
    seen: Vec<Interface>,
    /// The inner addresses that the datapath has, and those of the anchor.
    inner: Vec<IpAddr>,
    anchor_inner: Vec<IpAddr>,
    /// As the anchor has told.
    ways_out: WaysOut,
    /// Interfaces that the datapath listens on, and the neighbours by way of whom it sends there.
    attached: BTreeMap<u32, Vec<IpAddr>>,
    /// What the tunnel device takes at most.
    tun_mtu: u32,
    /// Where the flow table is looked at next; `None` until the next [`SWEEP`].
    swept: Option<FlowCursor>,
    started: Time,
}

/// Runs until SIGINT or SIGTERM.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    super::check_permission("run a host")?;
    let monitor = Monitor::new().await?;
    super::check_interfaces(&settings.interfaces, monitor.current())?;
    let (asked_in, asked) = mpsc::channel::<Asked>(16);
    scrape::start(settings.metrics, asked_in.clone())?;
    let _control = control::Server::start(&settings.control, settings.control_group, asked_in)?;
    let (signal_in, signalled) = mpsc::channel(256);
    let member = Member::open(&settings.state, settings.join.clone())?;
    let anchors = member.anchors();
    let signal = Signal::new(anchors.clone(), member.join().names(), member.shown()?, signal_in)?;
    let routing = match settings.fail_closed {
        true => Routing::at_closed_host(&settings.device, &routes::wanted(&settings))?,
        false => Routing::at_host(&settings.device),
    };
    let setup = setup(&settings, &anchors, signal.has_names());
    let opened =
        packets::open(settings.datapath, &setup, EbpfOptions::default(), settings.realtime)?;
    let (datapath, _reserved) = (opened.datapath, opened.reserved);
    let source = packets::source(datapath.as_ref());
    let epoch = member.next_epoch(realtime_ns());
    let mut daemon = Daemon {
        machine: Host::new(machine_config(&settings, &anchors, source, epoch), random_seed()?),
        routing,
        guard: Guard::at_start(&settings.device, datapath.kind() == Kind::User),
        signal,
        held: Held::default(),
        events: Events::default(),
        trouble: Trouble::default(),
        reinjected: 0,
        anchors,
        seen: Vec::new(),
        inner: Vec::new(),
        anchor_inner: Vec::new(),
        ways_out: WaysOut { v4: 0, v6: 0 },
        attached: BTreeMap::new(),
        tun_mtu: setup.tun_mtu,
        swept: None,
        started: monotonic(),
        packets: opened.events,
        orders: Vec::new(),
        tests: Vec::new(),
        datapath,
        member,
        settings,
    };
    daemon.on_interfaces(monitor.current())?;
    daemon.serve(Sources::new(signalled, asked, monitor)).await?;
    daemon.feed(HostInput::Stop)?;
    daemon.signal.close().await;
    daemon.routing.open();
    Ok(())
}

fn setup(settings: &Settings, anchors: &[SocketAddr], has_names: bool) -> Setup {
    let v6 = has_names || anchors.iter().any(SocketAddr::is_ipv6);
    Setup {
        tun_name: settings.device.clone(),
        tun_mtu: settings.mtu.unwrap_or(1_500 - OVERHEAD[usize::from(v6)]),
        port: settings.port,
        role: Role::Host,
        max_paths: segue_wire::MAX_PATHS as u32,
        max_flows: 65_536,
        mark: MARK,
    }
}

/// Where the tunnels of an anchor go that signals here, until it says another port.
fn tunnel_of(anchor: &SocketAddr) -> SocketAddr {
    (anchor.ip(), TUNNEL_PORT).into()
}

fn machine_config(
    settings: &Settings,
    anchors: &[SocketAddr],
    source: Source,
    epoch: u64,
) -> HostConfig {
    HostConfig {
        anchor: anchors.iter().map(tunnel_of).collect(),
        epoch,
        port: settings.port,
        path: settings.path.clone(),
        paths: settings.paths.clone(),
        steering: settings.steering.clone(),
        source,
    }
}

impl Daemon {
    /// Takes turns until SIGINT or SIGTERM.
    async fn serve(&mut self, mut sources: Sources<SignalEvent>) -> anyhow::Result<()> {
        let mut interrupt = super::termination()?;
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let deadline = self.machine.deadline().map(|(at, _)| at);
            tokio::select! {
                // Of those that are ready one at random: none can keep another from its turn.
                _ = interrupt.recv() => return Ok(()),
                _ = heartbeat.tick() => self.on_heartbeat()?,
                () = super::until(deadline) => self.on_deadline()?,
                _ = sweep.tick() => self.swept = self.swept.or_else(|| Some(FlowCursor::default())),
                from = super::at_once(self.swept) => {
                    self.sweep(from)?;
                    tokio::task::yield_now().await;
                }
                works = sources.turn(&mut self.packets) => {
                    works.into_iter().try_for_each(|work| self.on_work(work))?;
                    // The runtime's other tasks have theirs.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Probes that have come go before time-outs, and what the datapath knows of the paths that are due:
    /// a late daemon must not take its own lateness for silence.
    fn on_deadline(&mut self) -> anyhow::Result<()> {
        for probe in self.packets.waiting() {
            self.handle(HostInput::Probe(packets::probe_in(&probe)))?;
        }
        let due = self.machine.due(monotonic());
        self.read(&due)?;
        self.handle(HostInput::Tick)?;
        self.send_probes();
        Ok(())
    }

    /// The one time in a second at which the daemon wakes though all requests ride.
    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.datapath.heartbeat();
        self.datapath.carries()?;
        let carried = self.machine.carried();
        self.read(&carried)?;
        self.send_probes();
        Ok(())
    }

    /// Gives the machine what the datapath has measured on these paths.
    fn read(&mut self, slots: &[u32]) -> anyhow::Result<()> {
        for slot in slots {
            if let Some(reading) = self.datapath.reading(*slot) {
                self.handle(HostInput::Reading(*slot, reading))?;
            }
            let counters = self.datapath.counters(*slot);
            self.handle(HostInput::Carried(*slot, packets::carried(&counters)))?;
        }
        Ok(())
    }

    /// Gives the machine an input and does what it says.
    fn feed(&mut self, input: HostInput) -> anyhow::Result<()> {
        self.handle(input)?;
        self.send_probes();
        Ok(())
    }

    /// As [`Daemon::feed`], but keeps the probes that are to be sent. What the datapath cannot do is told
    /// and left undone; an error is what leaves the host without a tunnel.
    fn handle(&mut self, input: HostInput) -> anyhow::Result<()> {
        let now = monotonic();
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            if let HostOutput::SendProbe(probe) = output {
                self.orders.push(packets::order(&probe, ProbeKind::Request));
            } else if let Err(error) = self.apply(now, output) {
                if error.is::<DatapathError>() {
                    self.trouble.tell(now, &error);
                } else {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn send_probes(&mut self) {
        let orders = std::mem::take(&mut self.orders);
        if !orders.is_empty()
            && let Err(error) = self.datapath.send_probes(&orders)
        {
            debug!("probes not sent: {error}");
        }
        for (slot, test) in std::mem::take(&mut self.tests) {
            self.datapath.test_size(slot, test);
        }
    }

    fn apply(&mut self, now: Time, output: HostOutput) -> anyhow::Result<()> {
        match output {
            HostOutput::Connect { interfaces } => {
                self.signal.connect(&interfaces);
                self.look_up();
            }
            HostOutput::MoveSignal { interface } => self.signal.move_to(&interface),
            HostOutput::Signal(message) => self.signal.send(message),
            HostOutput::Addresses { inner, anchor } => {
                for old in self.inner.iter().filter(|old| !inner.contains(old)) {
                    self.datapath.remove_inner(*old);
                }
                self.inner.clone_from(&inner);
                for address in &inner {
                    self.datapath.set_inner(*address, segue_datapath::InnerEntry { owner: 0 })?;
                }
                self.guard.iter().for_each(|guard| guard.set_host(&inner));
                self.anchor_inner = anchor;
                self.routing.set_host(&inner, &self.routes())?;
            }
            HostOutput::SetMtu(mtu) => {
                self.routing.set_mtu(u32::from(mtu).min(self.tun_mtu))?;
            }
            HostOutput::TestSize(slot, test) => self.tests.push((slot, test)),
            HostOutput::SetPath(slot, path) => {
                self.datapath.set_path(slot, &packets::path_config(&path))?;
            }
            HostOutput::RemovePath(slot) => self.datapath.remove_path(slot),
            HostOutput::SetQuiet(slot, quiet) => self.datapath.set_quiet(slot, quiet),
            HostOutput::SetDown(slot, silence) => self.datapath.set_down(slot, silence),
            HostOutput::Reinject(order) => {
                self.reinjected += self.datapath.reinject(packets::reinjection(order)) as u64;
            }
            HostOutput::SetOneByOne(slot) => self.datapath.set_one_by_one(slot),
            HostOutput::SetVia(slot, via) => self.datapath.set_via(slot, packets::via(via))?,
            HostOutput::SendProbe(_) => {}
            HostOutput::Bind(key, slot) => self.datapath.bind_flow(key, slot)?,
            HostOutput::Unbind(key) => self.datapath.unbind_flow(&key),
            HostOutput::Inject(ticket) => {
                if let Some(packet) = self.held.take(ticket) {
                    self.datapath.inject(packet);
                }
            }
            HostOutput::Discard(ticket) => {
                if let Some(packet) = self.held.take(ticket) {
                    self.datapath.refuse(packet);
                }
            }
            HostOutput::Report(report) => {
                self.events.note(now, &report);
                // Who holds the registration may go away.
                if let Report::Refused { reason, .. } = report
                    && reason != Refusal::Held
                    && self.machine.inner().is_empty()
                {
                    bail!("the anchor refused this host: {reason}");
                }
            }
        }
        Ok(())
    }

    fn on_work(&mut self, work: Work<SignalEvent>) -> anyhow::Result<()> {
        match work {
            Work::Packet(event) => self.on_packet_event(event),
            Work::Signal(event) => self.on_signal_event(event),
            Work::Asked((request, back)) => self.on_request(&request, back),
            Work::TooBig(said) => self.feed(HostInput::TooBig(said)),
            Work::Interfaces(all) => self.on_interfaces(&all?),
        }
    }

    fn on_packet_event(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Probe(probe) => self.feed(HostInput::Probe(packets::probe_in(&probe))),
            Event::Uncut(slot) => self.feed(HostInput::Uncut(slot)),
            Event::Size(slot, token) => self.feed(HostInput::Sized(slot, token)),
            Event::Look(slot) => {
                self.read(&[slot])?;
                self.send_probes();
                Ok(())
            }
            Event::Miss(packet) => {
                let (key, dscp) = (packet.key, packet.dscp);
                let ticket = self.held.keep(packet);
                self.feed(HostInput::Miss { key, dscp, ticket })
            }
        }
    }

    fn on_signal_event(&mut self, event: SignalEvent) -> anyhow::Result<()> {
        match &event {
            SignalEvent::Enrolled { certificate } => {
                self.member.enrolled(certificate.clone())?;
                self.signal.show(self.member.shown()?);
                info!("enrolled as {}", self.member.join().name);
            }
            SignalEvent::Connected { round, established } if self.signal.is_present(*round) => {
                self.on_reached(established.anchor);
            }
            SignalEvent::Found { addresses } => self.on_found(addresses)?,
            SignalEvent::Rejected { round, why } if self.signal.is_present(*round) => {
                self.on_rejected(*why)?;
            }
            SignalEvent::Message { round, message } if self.signal.is_present(*round) => {
                match message {
                    FromAnchor::Registered { .. } => self.signal.registered(),
                    FromAnchor::Renew => self.renew(),
                    FromAnchor::Renewed { certificate } => self.on_renewed(certificate.clone()),
                    FromAnchor::WaysOut(ways_out) => self.on_ways_out(*ways_out)?,
                    _ => {}
                }
            }
            _ => {}
        }
        match self.signal.filter(event) {
            Some(input) => self.feed(input),
            None => Ok(()),
        }
    }

    /// A host that has registered before goes on with what it has, and says what is wrong; one that has not, ends.
    fn on_rejected(&mut self, why: Rejected) -> anyhow::Result<()> {
        let advice = self.member.advice(why);
        if self.machine.inner().is_empty() {
            bail!(advice);
        }
        self.trouble.tell(monotonic(), &anyhow::anyhow!(advice));
        Ok(())
    }

    /// The certificate is due. What fails is tried again: the anchor asks again.
    fn renew(&mut self) {
        match self.member.renewal() {
            Ok(request) => self.signal.send(FromHost::Renew { request }),
            Err(error) => self.trouble.tell(monotonic(), &error),
        }
    }

    fn on_renewed(&mut self, certificate: Vec<u8>) {
        match self.member.renewed(certificate).and_then(|()| self.member.shown()) {
            Ok(shown) => {
                self.signal.show(shown);
                info!("the host's certificate was renewed");
            }
            Err(error) => self.trouble.tell(monotonic(), &error),
        }
    }

    /// Looks at a page of the flow table. The rest of it has its turns.
    fn sweep(&mut self, from: FlowCursor) -> anyhow::Result<()> {
        let page = self.datapath.flow_page(from, None);
        self.swept = page.next;
        let seen = page.flows.iter().map(|flow| (flow.key, flow.last_seen)).collect();
        self.feed(HostInput::Flows { seen, last: page.next.is_none() })
    }

    fn status(&mut self, events_from: u64) -> Status {
        let now = monotonic();
        let classes = segue_steering::Class::ALL.into_iter().filter_map(|class| {
            let current = self.machine.steering().current(class)?;
            let path = self.machine.paths().find(|(number, _)| *number == current.0)?.1;
            Some((class.name().to_owned(), path.name().to_owned()))
        });
        let classes = classes.collect();
        let mut drops = packets::drops(self.datapath.as_mut(), &self.packets);
        // Whether an answer was seen before, who measures knows: a datapath that does has counted it.
        let clients = self.machine.paths().filter_map(|(_, path)| path.client());
        let repeated: u64 = clients.map(|client| client.estimates().duplicates).sum();
        if repeated > 0 && !self.datapath.measures() {
            *drops.entry(DropReason::Replay.name().to_owned()).or_default() += repeated;
        }
        Status {
            role: "host".into(),
            name: self.member.join().name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            datapath: packets::kind_name(self.datapath.kind()).into(),
            device: self.settings.device.clone(),
            registered: self.machine.registered(),
            anchor: self.machine.anchor().map(|anchor| anchor.to_string()),
            inner: self.machine.inner().iter().map(ToString::to_string).collect(),
            signalling: self.machine.signal_interface().map(str::to_owned),
            trouble: self.signal.why_unreached().map(|(why, at)| TroubleStatus {
                why: why.to_owned(),
                ago_s: now.since(at).as_secs_f64(),
            }),
            now_ns: now.0,
            uptime_s: now.since(self.started).as_secs_f64(),
            hosts: Vec::new(),
            paths: status::host_paths(&self.machine, self.datapath.as_mut(), now),
            classes,
            orders: self
                .machine
                .orders()
                .map(|(class, path)| (class.name().to_owned(), path.to_owned()))
                .collect(),
            drops,
            reinjected: self.reinjected,
            events: self.events.since(events_from),
            next_event: self.events.next(),
        }
    }
}
