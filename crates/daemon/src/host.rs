//! The mobile host's daemon: drives [`Host`] with netlink, QUIC, a datapath and the clock.

mod asked;
mod interfaces;
mod member;
mod names;
mod routes;
mod signal;
mod unreached;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{FlowCursor, Kind, Setup};
use segue_keepalive::Source;
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_tunnel::{End, Host, HostConfig, HostInput, HostOutput, Report, Turn};
use segue_wire::signal::{FromAnchor, FromHost, Refusal, WaysOut};
use segue_wire::{DropReason, TUNNEL_PORT};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::info;

use self::member::Member;
pub use self::member::{Membership, membership};
use self::signal::{Rejected, Signal, SignalEvent};
use super::ends::{TunnelEnd, Waiting};
use super::packets::{self, MARK};
use super::past::Guard;
use super::routing::Routing;
use super::run::{self, Core, Role};
use super::{random_seed, scrape, status};
use crate::control::{Response, Status, TroubleStatus, TunnelRequest, TunnelStatus, Tunnels};
use crate::ledger::{Entry, Ledger};
pub use crate::settings::Host as Settings;

/// How often the daemon scans the datapath's flow table.
const SWEEP: Duration = Duration::from_secs(5);
/// Outer headers over IPv4 (20 + 8 + 16) and IPv6 (40 + 8 + 16), in bytes.
const OVERHEAD: [u32; 2] = [44, 64];

/// The role of a mobile host.
pub struct Daemon {
    settings: Settings,
    core: Core<TunnelEnd<Host>, Tunnels>,
    member: Member,
    routing: Routing,
    guard: Option<Guard>,
    signal: Signal,
    /// The anchor's known addresses, and the present interfaces.
    anchors: Vec<SocketAddr>,
    seen: Vec<Device>,
    /// The anchor's inner addresses.
    anchor_inner: Vec<IpAddr>,
    /// As reported by the anchor.
    ways_out: WaysOut,
    /// Interfaces that the datapath listens on, with the next hops it sends to there.
    attached: BTreeMap<u32, Vec<IpAddr>>,
    /// Largest packet that the tunnel device takes.
    tun_mtu: u32,
    sweep: Interval,
    /// Where the scan of the flow table continues; `None` until the next [`SWEEP`].
    swept: Option<FlowCursor>,
}

fn setup(settings: &Settings, anchors: &[SocketAddr], has_names: bool) -> Setup {
    let v6 = has_names || anchors.iter().any(SocketAddr::is_ipv6);
    Setup {
        tun_name: settings.tunnel.device.clone(),
        tun_mtu: settings.mtu.unwrap_or(1_500 - OVERHEAD[usize::from(v6)]),
        port: settings.tunnel.port,
        role: segue_datapath::Role::Host,
        max_paths: segue_wire::MAX_PATHS as u32,
        max_flows: 65_536,
        mark: MARK,
    }
}

/// Tunnel address of the anchor that signals from here, until it names another port.
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
        port: settings.tunnel.port,
        path: settings.path.clone(),
        paths: settings.paths.clone(),
        steering: settings.steering.clone(),
        source,
    }
}

impl Role for Daemon {
    const NAME: &'static str = "host";
    const TASK: &'static str = "run a host";
    type Settings = Settings;
    type Engine = TunnelEnd<Host>;
    type Words = Tunnels;
    type Signal = SignalEvent;
    /// A scan of the flow table, from this position on.
    type Chore = FlowCursor;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        settings: Settings,
        signals: mpsc::Sender<SignalEvent>,
    ) -> anyhow::Result<(Daemon, Waiting)> {
        let member = Member::open(&settings.state, settings.join.clone())?;
        let anchors = member.anchors();
        let signal = Signal::new(anchors.clone(), member.join().names(), member.shown()?, signals)?;
        let device = &settings.tunnel.device;
        let routing = match settings.fail_closed {
            true => Routing::at_closed_host(device, &routes::wanted(&settings))?,
            false => Routing::at_host(device),
        };
        let setup = setup(&settings, &anchors, signal.has_names());
        let epoch = member.next_epoch(realtime_ns());
        let opened = packets::open(
            settings.tunnel.datapath,
            &setup,
            EbpfOptions::default(),
            settings.tunnel.realtime,
        )?;
        let config = machine_config(&settings, &anchors, opened.source(), epoch);
        let (end, waiting) = TunnelEnd::new(Host::new(config, random_seed()?), opened);
        let core = Core::new(end, Ledger::without_store());
        let mut sweep = tokio::time::interval(SWEEP);
        // Even if a scan takes longer than the period, there is a pause before the next.
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let guard = Guard::at_start(device, core.end.datapath.kind() == Kind::User);
        let daemon = Daemon {
            core,
            routing,
            guard,
            signal,
            anchors,
            seen: Vec::new(),
            anchor_inner: Vec::new(),
            ways_out: WaysOut { v4: 0, v6: 0 },
            attached: BTreeMap::new(),
            tun_mtu: setup.tun_mtu,
            sweep,
            swept: None,
            member,
            settings,
        };
        Ok((daemon, waiting))
    }

    fn core(&mut self) -> &mut Core<TunnelEnd<Host>, Tunnels> {
        &mut self.core
    }

    /// Once a second; the only regular wakeup while all requests ride on data.
    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.routing.look_after(monotonic());
        let carried = self.core.end.machine.carried();
        self.follow(Turn::reading(carried))
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
        }
        Ok(())
    }

    fn entry(&self, record: Infallible) -> anyhow::Result<Entry> {
        match record {}
    }

    fn on_report(&mut self, report: &Report) -> anyhow::Result<()> {
        // The present holder of the registration may leave.
        if let Report::Refused { reason, .. } = report
            && *reason != Refusal::Held
            && self.core.end.machine.inner().is_empty()
        {
            bail!("the anchor refused this host: {reason}");
        }
        Ok(())
    }

    fn on_signal(&mut self, event: SignalEvent) -> anyhow::Result<()> {
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

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.use_interfaces(all)
    }

    fn on_request(&mut self, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
        self.answer(request)
    }

    fn refresh(&mut self) -> anyhow::Result<()> {
        let paths = self.core.end.machine.paths();
        let slots = paths.map(|(number, _)| u32::from(number)).collect();
        self.follow(Turn::reading(slots))
    }

    async fn chore(&mut self) -> FlowCursor {
        if self.swept.is_none() {
            self.sweep.tick().await;
        }
        self.swept.unwrap_or_default()
    }

    /// Scans one page of the flow table; later turns scan the rest.
    fn on_chore(&mut self, from: FlowCursor) -> anyhow::Result<()> {
        let page = self.core.end.datapath.flow_page(from, None);
        self.swept = page.next;
        let seen = page.flows.iter().map(|flow| (flow.key, flow.last_seen)).collect();
        self.feed(HostInput::Flows { seen, last: page.next.is_none() })
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.feed(HostInput::Stop)?;
        self.signal.close().await;
        self.routing.open();
        Ok(())
    }

    fn name(&self) -> String {
        self.member.join().name.clone()
    }

    fn metrics(status: &Status<Tunnels>) -> String {
        scrape::of_tunnels(status)
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> TunnelStatus {
        let now = monotonic();
        let common = self.core.end.status(&self.settings.tunnel.device);
        let End { machine: host, datapath, .. } = &mut *self.core.end;
        let (host, datapath) = (&*host, datapath.as_mut());
        let classes = segue_steering::Class::ALL.into_iter().filter_map(|class| {
            let current = host.steering().current(class)?;
            let path = host.paths().find(|(number, _)| *number == current.0)?.1;
            Some((class.name().to_owned(), path.name().to_owned()))
        });
        // Only the measuring side recognises duplicate answers: a datapath that measures has
        // counted them.
        let clients = host.paths().filter_map(|(_, path)| path.client());
        let repeated: u64 = clients.map(|client| client.estimates().duplicates).sum();
        if repeated > 0 && !datapath.measures() {
            *drops.entry(DropReason::Replay.name().to_owned()).or_default() += repeated;
        }
        let orders = host.orders().map(|(class, path)| (class.name().to_owned(), path.to_owned()));
        TunnelStatus {
            registered: host.registered(),
            anchor: host.anchor().map(|anchor| anchor.to_string()),
            inner: host.inner().iter().map(ToString::to_string).collect(),
            signalling: host.signal_interface().map(str::to_owned),
            trouble: self.signal.why_unreached().map(|(why, at)| TroubleStatus {
                why: why.to_owned(),
                ago_s: now.since(at).as_secs_f64(),
            }),
            paths: status::host_paths(host, datapath, now),
            classes: classes.collect(),
            orders: orders.collect(),
            ..common
        }
    }
}

impl Daemon {
    /// If the host has registered before, it logs the problem and carries on with what it has;
    /// otherwise the daemon ends.
    fn on_rejected(&mut self, why: Rejected) -> anyhow::Result<()> {
        let advice = self.member.advice(why);
        if self.core.end.machine.inner().is_empty() {
            bail!(advice);
        }
        self.core.trouble.tell(monotonic(), &anyhow::anyhow!(advice));
        Ok(())
    }

    /// The certificate is due for renewal. After a failure the anchor asks again.
    fn renew(&mut self) {
        match self.member.renewal() {
            Ok(request) => self.signal.send(FromHost::Renew { request }),
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }

    fn on_renewed(&mut self, certificate: Vec<u8>) {
        match self.member.renewed(certificate).and_then(|()| self.member.shown()) {
            Ok(shown) => {
                self.signal.show(shown);
                info!("the host's certificate was renewed");
            }
            Err(error) => self.core.trouble.tell(monotonic(), &error),
        }
    }
}
