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
use segue_clock::Time;
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{DatapathError, FlowCursor, Kind, LinuxDatapath, Role, Setup};
use segue_ip::Prefix;
use segue_keepalive::Source;
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::{Device, Monitor};
use segue_tunnel::{End, Host, HostConfig, HostInput, HostOutput, PathConfig, Report, Turn};
use segue_wire::signal::{FromAnchor, FromHost, Refusal, WaysOut};
use segue_wire::{DropReason, TUNNEL_PORT};
use tokio::sync::mpsc;
use tracing::info;

use self::member::Member;
pub use self::member::{Membership, membership};
use self::signal::{Rejected, Signal, SignalEvent};
use super::events::{Events, Trouble};
use super::packets::{self, Choice, MARK, Queue};
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
    end: End<Host, Box<dyn LinuxDatapath>>,
    routing: Routing,
    guard: Option<Guard>,
    signal: Signal,
    events: Events,
    trouble: Trouble,
    packets: Queue,
    /// Where the anchor is, as far as is known, and the interfaces that there are.
    anchors: Vec<SocketAddr>,
    seen: Vec<Device>,
    /// The anchor's inner addresses.
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
    let machine = Host::new(machine_config(&settings, &anchors, source, epoch), random_seed()?);
    let guard = Guard::at_start(&settings.device, datapath.kind() == Kind::User);
    let mut daemon = Daemon {
        end: End::new(machine, datapath),
        routing,
        guard,
        signal,
        events: Events::default(),
        trouble: Trouble::default(),
        anchors,
        seen: Vec::new(),
        anchor_inner: Vec::new(),
        ways_out: WaysOut { v4: 0, v6: 0 },
        attached: BTreeMap::new(),
        tun_mtu: setup.tun_mtu,
        swept: None,
        started: monotonic(),
        packets: opened.events,
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
            let deadline = self.end.deadline().map(|(at, _)| at);
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

    fn on_deadline(&mut self) -> anyhow::Result<()> {
        let waiting = self.packets.waiting();
        self.follow(Turn::at_deadline(waiting))
    }

    /// The one time in a second at which the daemon wakes though all requests ride.
    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.end.datapath.heartbeat();
        self.end.datapath.carries()?;
        self.routing.look_after(monotonic());
        self.follow(Turn::reading(self.end.machine.carried()))
    }

    /// Gives the machine an input and does what it says.
    fn feed(&mut self, input: HostInput) -> anyhow::Result<()> {
        let turn = self.end.handle(monotonic(), input);
        self.follow(turn)
    }

    /// Does what the machine says. What the datapath cannot do is told and left undone; an error is what leaves the
    /// host without a tunnel.
    fn follow(&mut self, mut turn: Turn<DatapathError>) -> anyhow::Result<()> {
        while let Some(output) = self.end.poll(&mut turn, monotonic) {
            self.apply(output)?;
        }
        packets::tell(turn.failures, &mut self.trouble);
        Ok(())
    }

    fn apply(&mut self, output: HostOutput) -> anyhow::Result<()> {
        match output {
            HostOutput::Connect { interfaces } => {
                self.signal.connect(&interfaces);
                self.look_up();
            }
            HostOutput::MoveSignal { interface } => self.signal.move_to(&interface),
            HostOutput::Signal(message) => self.signal.send(message),
            HostOutput::Addresses { inner, anchor } => {
                self.guard.iter().for_each(|guard| guard.set_host(&inner));
                self.anchor_inner = anchor;
                self.routing.set_host(&inner, &self.routes())?;
            }
            HostOutput::SetMtu(mtu) => {
                self.routing.set_mtu(u32::from(mtu).min(self.tun_mtu))?;
            }
            HostOutput::Report(report) => {
                self.events.note(monotonic(), &report);
                // Who holds the registration may go away.
                if let Report::Refused { reason, .. } = report
                    && reason != Refusal::Held
                    && self.end.machine.inner().is_empty()
                {
                    bail!("the anchor refused this host: {reason}");
                }
            }
        }
        Ok(())
    }

    fn on_work(&mut self, work: Work<SignalEvent>) -> anyhow::Result<()> {
        match work {
            Work::Packet(event) => {
                let turn = self.end.on_event(monotonic(), event);
                self.follow(turn)
            }
            Work::Signal(event) => self.on_signal_event(event),
            Work::Asked((request, back)) => self.on_request(&request, back),
            Work::TooBig(said) => self.feed(HostInput::TooBig(said)),
            Work::Interfaces(all) => self.on_interfaces(&all?),
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
        if self.end.machine.inner().is_empty() {
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
        let page = self.end.datapath.flow_page(from, None);
        self.swept = page.next;
        let seen = page.flows.iter().map(|flow| (flow.key, flow.last_seen)).collect();
        self.feed(HostInput::Flows { seen, last: page.next.is_none() })
    }

    fn status(&mut self, events_from: u64) -> Status {
        let now = monotonic();
        let classes = segue_steering::Class::ALL.into_iter().filter_map(|class| {
            let current = self.end.machine.steering().current(class)?;
            let path = self.end.machine.paths().find(|(number, _)| *number == current.0)?.1;
            Some((class.name().to_owned(), path.name().to_owned()))
        });
        let classes = classes.collect();
        let mut drops = packets::drops(self.end.datapath.as_mut(), &self.packets);
        // Whether an answer was seen before, who measures knows: a datapath that does has counted it.
        let clients = self.end.machine.paths().filter_map(|(_, path)| path.client());
        let repeated: u64 = clients.map(|client| client.estimates().duplicates).sum();
        if repeated > 0 && !self.end.datapath.measures() {
            *drops.entry(DropReason::Replay.name().to_owned()).or_default() += repeated;
        }
        Status {
            role: "host".into(),
            name: self.member.join().name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            datapath: packets::kind_name(self.end.datapath.kind()).into(),
            device: self.settings.device.clone(),
            registered: self.end.machine.registered(),
            anchor: self.end.machine.anchor().map(|anchor| anchor.to_string()),
            inner: self.end.machine.inner().iter().map(ToString::to_string).collect(),
            signalling: self.end.machine.signal_interface().map(str::to_owned),
            trouble: self.signal.why_unreached().map(|(why, at)| TroubleStatus {
                why: why.to_owned(),
                ago_s: now.since(at).as_secs_f64(),
            }),
            now_ns: now.0,
            uptime_s: now.since(self.started).as_secs_f64(),
            hosts: Vec::new(),
            paths: status::host_paths(&self.end.machine, self.end.datapath.as_mut(), now),
            classes,
            orders: self
                .end
                .machine
                .orders()
                .map(|(class, path)| (class.name().to_owned(), path.to_owned()))
                .collect(),
            drops,
            reinjected: self.end.reinjected(),
            events: self.events.since(events_from),
            next_event: self.events.next(),
        }
    }
}
