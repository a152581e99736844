//! The mobile host's daemon: drives [`Host`] with netlink, QUIC, a datapath and the clock.

mod asked;
mod credentials;
mod interfaces;
mod member;
mod names;
mod routes;
mod signal;
mod start;
mod unreached;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{FlowCursor, Kind};
use segue_linux::clock::{monotonic, realtime_ns};
use segue_linux::monitor::Device;
use segue_tunnel::{Host, HostInput, HostOutput, Report, Turn};
use segue_wire::DropReason;
use segue_wire::signal::{FromAnchor, Refusal, WaysOut};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::info;

use self::member::Member;
pub use self::member::{Membership, membership};
use self::signal::{Signal, SignalEvent};
use super::ends::{TunnelEnd, Waiting};
use super::packets::{self};
use super::past::Guard;
use super::routing::Routing;
use super::run::{self, Core, Role};
use super::{random_seed, scrape, status};
use crate::control::{Response, Status, TroubleStatus, TunnelRequest, TunnelStatus, Tunnels};
use crate::ledger::{Entry, Ledger};
pub use crate::settings::Host as Settings;

/// How often the daemon scans the datapath's flow table.
const SWEEP: Duration = Duration::from_secs(5);
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
        let setup = start::setup(&settings, &anchors, signal.has_names());
        let epoch = member.next_epoch(realtime_ns());
        let opened = packets::open(&settings.tunnel, &setup, EbpfOptions::default())?;
        let config = start::machine(&settings, &anchors, opened.source(), epoch);
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
        match status::repeated(&self.core.end) {
            0 => {}
            n => *drops.entry(DropReason::Replay.name().to_owned()).or_default() += n,
        }
        let trouble = self.signal.why_unreached().map(|(why, at)| TroubleStatus {
            why: why.to_owned(),
            ago_s: now.since(at).as_secs_f64(),
        });
        TunnelStatus { trouble, ..status::of_host(&mut self.core.end, common, now) }
    }
}
