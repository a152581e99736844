//! The mobile host's daemon: drives [`Host`] with netlink, QUIC, a datapath and the clock.

mod asked;
mod interfaces;
mod member;
mod names;
mod routes;
mod signal;
mod signalled;
mod start;
mod stations;
mod sweep;
mod translation;
mod translators;
mod unreached;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{FlowCursor, Kind};
use segue_ip::{Input, LinkEvent};
use segue_linux::clock::monotonic;
use segue_linux::monitor::{Device, RouterOptions};
use segue_tunnel::host::Path;
use segue_tunnel::{Host, HostInput, HostOutput, Report, Turn};
use segue_wire::DropReason;
use segue_wire::signal::WaysOut;
use tokio::sync::mpsc;

use self::member::Member;
pub use self::member::{Membership, membership};
use self::signal::{Signalling, SignallingEvent};
use self::stations::Stations;
use self::sweep::Sweep;
use self::translators::Translators;
use super::ends::{TunnelEnd, Waiting};
use super::kept::Kept;
use super::packets;
use super::past::Guard;
use super::routing::Routing;
use super::run::{self, Core, Role};
use super::status;
use crate::clamp::Clamp;
use crate::control::{
    PathSample, PathStatus, Response, TranslatorStatus, TroubleStatus, TunnelEvent, TunnelRequest,
    TunnelStatus, Tunnels,
};
use crate::ledger::{Entry, Ledger};
pub use crate::settings::Host as Settings;
use crate::wall::Reading;

/// Resolves an anchor's names with the name servers of these settings; each address has its name's port.
///
/// # Errors
/// The failures of each name server.
pub async fn resolve(
    names: &[(String, u16)],
    settings: &Settings,
    all: &[Device],
) -> anyhow::Result<Vec<SocketAddr>> {
    let wanted = &settings.common.interfaces;
    names::find(names, &names::name_servers(&settings.nameservers, all, wanted)).await
}

/// Queries name servers for the translators (NAT64) by which accesses without IPv4 reach these addresses of the anchor,
/// as a host with these settings would.
pub async fn translators(
    anchors: &[SocketAddr],
    settings: &Settings,
    all: &[Device],
) -> Vec<TranslatorStatus> {
    translators::ask_once(anchors, settings, all).await
}

impl Daemon {
    /// The anchor's tunnel port, if the host is registered and no path works.
    fn blocked(&self) -> Option<u16> {
        let machine = &self.core.end.machine;
        let works = |path: &Path| path.is_up() || path.is_unwatched();
        let none =
            machine.paths().next().is_some() && !machine.paths().any(|(_, path)| works(path));
        machine.anchor().filter(|_| none && machine.registered()).map(|anchor| anchor.port())
    }
}

/// The role of a mobile host.
pub struct Daemon {
    settings: Settings,
    core: Core<TunnelEnd<Host>, Tunnels>,
    member: Member,
    routing: Routing,
    guard: Option<Guard>,
    _clamp: Clamp,
    signalling: Signalling,
    /// The anchor's known addresses, and the present interfaces.
    anchors: Vec<SocketAddr>,
    seen: Vec<Device>,
    translators: Translators,
    /// The anchor's inner addresses.
    anchor_inner: Vec<IpAddr>,
    /// As reported by the anchor.
    ways_out: WaysOut,
    /// Interfaces that the datapath listens on, with the next hops it sends to there.
    attached: BTreeMap<u32, Vec<IpAddr>>,
    /// Logged lines about other programs' routing and unused interfaces.
    noted: BTreeSet<String>,
    sweep: Sweep,
    stations: Stations,
}

impl Role for Daemon {
    const NAME: &'static str = "host";
    const TASK: &'static str = "run a host";
    type Settings = Settings;
    type Engine = TunnelEnd<Host>;
    type Words = Tunnels;
    type Signalling = SignallingEvent;
    /// A scan of the flow table, from this position on.
    type Chore = FlowCursor;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        settings: Settings,
        signalling: mpsc::Sender<SignallingEvent>,
    ) -> anyhow::Result<(Daemon, Waiting)> {
        let member = Member::open(&settings.state, settings.join.clone())?;
        let anchors = member.anchors();
        let signalling =
            Signalling::new(anchors.clone(), member.join().names(), member.shown()?, signalling)?;
        let device = &settings.tunnel.device;
        let mut kept = Kept::default();
        let routing = match settings.fail_closed {
            true => {
                let wanted = routes::wanted(&settings);
                Routing::closed(&mut kept, device, &wanted, settings.priority)?
            }
            false => Routing::open(device, settings.priority)?,
        };
        let setup = start::setup(&settings, &anchors, signalling.has_names());
        let opened = packets::open(&settings.tunnel, &setup, EbpfOptions::default())?;
        let measured_by = opened.measured_by();
        let machine = start::machine(&settings, &anchors, measured_by, &member, setup.tun_mtu)?;
        let (end, waiting) = TunnelEnd::new(machine, opened);
        let core = Core::new(end, Ledger::without_store()).keeping(kept);
        let guard = Guard::at_start(device, core.end.datapath.kind() == Kind::User);
        let daemon = Daemon {
            core,
            routing,
            guard,
            _clamp: Clamp::start(device),
            signalling,
            anchors,
            seen: Vec::new(),
            translators: Translators::default(),
            anchor_inner: Vec::new(),
            ways_out: WaysOut { v4: 0, v6: 0 },
            attached: BTreeMap::new(),
            noted: BTreeSet::new(),
            sweep: Sweep::new(),
            stations: Stations::default(),
            member,
            settings,
        };
        Ok((daemon, waiting))
    }

    fn core(&mut self) -> &mut Core<TunnelEnd<Host>, Tunnels> {
        &mut self.core
    }

    /// Runs once a second; the only regular wakeup while all requests ride on data.
    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.expire_translators()?;
        self.signalling.set_blocked(self.blocked());
        // An interface that is an access point for others has no path.
        let paths: BTreeSet<&str> = self.core.end.machine.paths().map(|(_, p)| p.name()).collect();
        let used = self.seen.iter().filter(|device| paths.contains(&*device.interface.name));
        for (text, path, wifi) in self.stations.look(used) {
            let about = TunnelEvent { path, wifi, ..TunnelEvent::default() };
            self.core.events.tell(&Reading::now(), "wifi", text, about);
        }
        let carried = self.core.end.machine.carried();
        self.follow(Turn::reading(carried))
    }

    fn apply(&mut self, output: HostOutput) -> anyhow::Result<()> {
        match output {
            HostOutput::Connect { interfaces } => {
                self.signalling.connect(&interfaces);
                self.look_up();
            }
            HostOutput::MoveSignal { interface } => {
                let mut paths = self.core.end.machine.paths();
                let path = paths.find(|(_, path)| path.name() == interface);
                self.signalling.move_to(&interface, path.map(|(_, path)| path.local()));
            }
            HostOutput::Signal(message) => self.signalling.send(message),
            HostOutput::Addresses { inner, anchor } => {
                self.guard.iter().for_each(|guard| guard.set_host(&inner));
                self.anchor_inner = anchor;
                self.set_routes(&inner)?;
            }
            HostOutput::SetMtu(mtu) => self.set_mtu(mtu)?,
        }
        Ok(())
    }

    fn entry(&self, record: Infallible) -> anyhow::Result<Entry> {
        match record {}
    }

    fn on_report(&mut self, report: &Report) -> anyhow::Result<()> {
        self.check_refusal(report)
    }

    fn on_signalling(&mut self, event: SignallingEvent) -> anyhow::Result<()> {
        self.on_signalled(event)
    }

    fn on_link(&mut self, event: LinkEvent) -> anyhow::Result<()> {
        if let LinkEvent::Down { interface, .. } = event {
            self.forget_advertised(interface);
        }
        self.feed(Input::Link(event))
    }

    fn on_advertised(&mut self, options: &RouterOptions) -> anyhow::Result<()> {
        self.on_router_options(options)
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.use_interfaces(all)
    }

    fn on_rules(&mut self) -> anyhow::Result<()> {
        let seen = std::mem::take(&mut self.seen);
        self.use_interfaces(&seen)
    }

    fn on_request(&mut self, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
        self.answer(request)
    }

    async fn chore(&mut self) -> FlowCursor {
        self.sweep.due().await
    }

    /// Scans one page of the flow table; later turns scan the rest.
    fn on_chore(&mut self, from: FlowCursor) -> anyhow::Result<()> {
        let page = self.core.end.datapath.flow_page(from, None);
        self.sweep.read(page.next);
        let seen = page.flows.iter().map(|flow| (flow.key, flow.last_seen)).collect();
        self.feed(HostInput::Flows { seen, last: page.next.is_none() })
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.feed(HostInput::Stop)?;
        self.signalling.close().await;
        self.routing.end(&mut self.core.kept);
        Ok(())
    }

    /// A sample of each path.
    fn samples(&mut self) -> Vec<(String, TunnelEvent)> {
        let indices: BTreeMap<&str, u32> =
            self.seen.iter().map(|d| (&*d.interface.name, d.interface.index)).collect();
        let paths = self.core.end.status(&self.settings.tunnel.device).paths;
        let of = |path: PathStatus| {
            let sample = PathSample::from(&path);
            let wifi = indices.get(&*path.name).and_then(|index| self.stations.of(*index)).cloned();
            let at = wifi.iter().map(|wifi| format!(", access point {wifi}")).collect::<String>();
            let text = format!("path {}: {sample}{at}", path.name);
            let (path, sample) = (path.name, Some(sample));
            (text, TunnelEvent { path, sample, wifi, ..TunnelEvent::default() })
        };
        paths.into_iter().map(of).collect()
    }

    fn name(&self) -> String {
        self.member.join().name.clone()
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> TunnelStatus {
        let now = monotonic();
        let common = self.core.end.status(&self.settings.tunnel.device);
        match status::repeated(&self.core.end) {
            0 => {}
            n => *drops.entry(DropReason::Replay.name().to_owned()).or_default() += n,
        }
        let translators = self.translators.status();
        // If an access lacks a translator, the last noted reason describes that.
        let trouble =
            self.signalling.why_unreached(!translators.is_empty()).map(|(why, at)| TroubleStatus {
                why: why.to_owned(),
                ago_s: now.since(at).as_secs_f64(),
                rejected: self.signalling.is_rejected(),
            });
        TunnelStatus { trouble, translators, ..status::of_host(&mut self.core.end, common, now) }
    }
}
