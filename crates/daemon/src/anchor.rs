//! The anchor's daemon: drives [`Anchor`] with QUIC, a datapath, the store and the clock.

mod credentials;
mod enrolment;
mod pools;
mod signal;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use segue_clock::{Machine, Span};
use segue_datapath::ebpf::EbpfOptions;
use segue_datapath::{FlowCursor, Setup};
use segue_ip::{Input, Output};
use segue_keepalive::Source;
use segue_linux::clock::monotonic;
use segue_linux::monitor::Device;
use segue_store::{Embedded, StoreExt};
use segue_text::errors::Told;
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, End, Known, Pool, Turn,
};
use segue_wire::signal::{FromHost, WaysOut};
use tokio::sync::mpsc;
use tokio::time::Interval;
use tracing::warn;

pub use self::credentials::now_s;
use self::credentials::{Credentials, review_period};
pub use self::enrolment::{Enrolment, LINE_LIFETIME};
use self::enrolment::{LEASES, Lease, REST, encoded};
use self::pools::Pools;
use self::signal::{Signal, SignalEvent};
use super::ends::{TunnelEnd, Waiting};
use super::packets::{self, MARK};
use super::run::{self, Core, Role, Unwritten};
use super::stamp::{self, Stamp};
use super::{random_seed, scrape, status};
use crate::control::{
    FlowsPage, Response, Status, TunnelAnswer, TunnelRequest, TunnelStatus, Tunnels,
};
use crate::engine::ToLoop;
use crate::ledger::{Entry, Ledger, Table};
use crate::locator::Locator;
pub use crate::settings::Anchor as Settings;

/// The role of an anchor.
pub struct Daemon {
    settings: Settings,
    core: Core<TunnelEnd<Anchor>, Tunnels>,
    pools: Pools,
    store: Arc<Embedded>,
    enrolment: Enrolment,
    credentials: Credentials,
    /// When to review certificates.
    review: Interval,
    signal: Signal,
    stamp: Option<Stamp>,
    attached: BTreeSet<u32>,
    interfaces: Vec<Device>,
}

/// What an anchor does on its own.
pub enum Chore {
    /// Certificates may be due.
    Review,
}

/// For each family: everything if an interface other than the tunnel has a default route, otherwise
/// only the pool.
fn ways_out(all: &[Device], settings: &Settings) -> WaysOut {
    let tunnel = &settings.tunnel.device;
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

/// The connection that an output is for.
fn conn_of(output: &ToLoop<TunnelEnd<Anchor>>) -> Option<ConnId> {
    match output {
        Output::Own(AnchorOutput::Signal(conn, _) | AnchorOutput::Close(conn)) => Some(*conn),
        _ => None,
    }
}

fn answer(result: anyhow::Result<Response<Tunnels>>) -> Response<Tunnels> {
    result.unwrap_or_else(|error| Response::Error(Told(&error).to_string()))
}

fn setup(settings: &Settings) -> Setup {
    Setup {
        tun_name: settings.tunnel.device.clone(),
        tun_mtu: settings.mtu,
        port: settings.tunnel.port,
        role: segue_datapath::Role::Anchor,
        max_paths: settings.max_paths,
        max_flows: 1 << 20,
        mark: MARK,
    }
}

/// What earlier starts stored.
fn known_hosts(store: &Embedded) -> anyhow::Result<impl Iterator<Item = Known>> {
    let leases: Vec<(String, Lease)> =
        store.list_as(LEASES).context("the anchor's leases are unreadable")?;
    let known =
        |(name, lease): (String, Lease)| Known { name, epoch: lease.epoch, inner: lease.inner };
    Ok(leases.into_iter().map(known))
}

fn machine_config(
    settings: &Settings,
    store: &Embedded,
    source: Source,
) -> anyhow::Result<AnchorConfig> {
    let (now, now_s) = (monotonic(), credentials::now_s());
    let rest = |until_s: u64| now + Span::from_secs(until_s.saturating_sub(now_s));
    let resting = Enrolment::resting(store)?.into_iter().map(|(ip, until_s)| (ip, rest(until_s)));
    Ok(AnchorConfig {
        port: settings.tunnel.port,
        pool_v4: settings.pool_v4.clone(),
        pool_v6: settings.pool_v6.clone(),
        max_paths: settings.max_paths,
        expiry: settings.expiry,
        rest: Span::from_secs(REST.as_secs()),
        resting: resting.collect(),
        source,
        allow_upmt: settings.allow_upmt,
    })
}

impl Role for Daemon {
    const NAME: &'static str = "anchor";
    const TASK: &'static str = "run an anchor";
    const SIGNALS: usize = 1_024;
    type Settings = Settings;
    type Engine = TunnelEnd<Anchor>;
    type Words = Tunnels;
    type Signal = SignalEvent;
    type Chore = Chore;

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        settings: Settings,
        signals: mpsc::Sender<SignalEvent>,
    ) -> anyhow::Result<(Daemon, Waiting)> {
        let store = Arc::new(Embedded::open(&settings.state)?);
        let enrolment = Enrolment::load(store.as_ref())?;
        let signal = Signal::listen(settings.signal_port, &enrolment, signals)?;
        // Started before the packet path's threads, which may have a higher scheduling priority.
        let table = Table { name: LEASES, of: "registration" };
        let ledger = Ledger::start(store.clone(), table)?;
        let stamp = settings.stamp.as_ref().map(Stamp::start).transpose()?;
        let options = EbpfOptions {
            stamp: settings.stamp.as_ref().and_then(stamp::Settings::in_kernel),
            ..EbpfOptions::default()
        };
        let (datapath, realtime) = (settings.tunnel.datapath, settings.tunnel.realtime);
        let mut opened = packets::open(datapath, &setup(&settings), options, realtime)?;
        let pools = Pools::serve(&settings, opened.datapath.as_mut())?;
        let config = machine_config(&settings, &store, opened.source())?;
        let mut anchor = Anchor::new(config, random_seed()?);
        for known in known_hosts(&store)? {
            anchor.handle(monotonic(), Input::Record(known));
        }
        let (end, waiting) = TunnelEnd::new(anchor, opened);
        let daemon = Daemon {
            core: Core::new(end, ledger),
            pools,
            attached: BTreeSet::new(),
            interfaces: Vec::new(),
            stamp,
            store,
            enrolment,
            credentials: Credentials::default(),
            review: tokio::time::interval(review_period(settings.certificate_lifetime)),
            signal,
            settings,
        };
        Ok((daemon, waiting))
    }

    fn core(&mut self) -> &mut Core<TunnelEnd<Anchor>, Tunnels> {
        &mut self.core
    }

    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.pools.routing.look_after(monotonic());
        Ok(())
    }

    /// A failed output is logged and skipped: one host's trouble must not end the service for the
    /// others.
    fn apply(&mut self, output: AnchorOutput) -> anyhow::Result<()> {
        match output {
            AnchorOutput::Signal(conn, message) => self.signal.send(conn, message),
            AnchorOutput::Close(conn) => self.signal.close_after(conn),
            AnchorOutput::SetMtu(address, mtu) => {
                let (mtu, device) = (mtu.map(u32::from), self.settings.mtu);
                if let Err(error) = self.pools.routing.fit(address, mtu, device) {
                    self.core.trouble.tell(monotonic(), &error);
                }
            }
        }
        Ok(())
    }

    fn entry(&self, known: Known) -> anyhow::Result<Entry> {
        let seen_s = Some(credentials::now_s());
        let value = encoded(&Lease { epoch: known.epoch, inner: known.inner, seen_s })?;
        Ok(Entry { lane: known.name.clone(), key: known.name, value })
    }

    /// What a host hears waits for its own lease.
    fn lane(&self, output: &ToLoop<TunnelEnd<Anchor>>) -> Option<String> {
        Some(self.signal.host_of(conn_of(output)?)?.to_owned())
    }

    fn on_unwritten(&mut self, output: ToLoop<TunnelEnd<Anchor>>, why: Unwritten) {
        let why: &[u8] = match why {
            Unwritten::Failed => b"the anchor cannot write",
            Unwritten::TooMuch => b"too much waits for the anchor's disk",
        };
        if let Some(conn) = conn_of(&output) {
            self.signal.end(conn, why);
        }
    }

    fn on_signal(&mut self, event: SignalEvent) -> anyhow::Result<()> {
        match event {
            SignalEvent::Connected { conn, certificate, established } => {
                // TLS has asked too, but a moment has passed.
                let Some(host) = self.enrolment.name_of(&certificate) else {
                    established.refuse();
                    return Ok(());
                };
                self.signal.admit(conn, &host, established);
                self.on_shown(conn, &host, certificate);
                self.feed(AnchorInput::Connected { conn, host })
            }
            SignalEvent::Enrol { asked, from, back } => {
                let _ = back.send(self.on_enrol(&asked, from));
                Ok(())
            }
            SignalEvent::Message { conn, message: FromHost::Renew { request } } => {
                self.on_renew(conn, &request);
                Ok(())
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

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.interfaces = all.to_vec();
        self.feed(AnchorInput::WaysOut(ways_out(all, &self.settings)))?;
        let wanted = |d: &&Device| {
            let (listed, name) = (&self.settings.common.interfaces, &d.interface.name);
            d.up && !d.loopback
                && *name != self.settings.tunnel.device
                && (listed.is_empty() || listed.contains(name))
        };
        let wanted = all.iter().filter(wanted).map(|device| &device.interface);
        let present: BTreeMap<u32, String> = wanted.map(|i| (i.index, i.name.clone())).collect();
        for gone in self.attached.iter().filter(|index| !present.contains_key(index)) {
            self.core.end.datapath.detach(*gone);
        }
        self.attached.retain(|index| present.contains_key(index));
        for (index, name) in present {
            if self.attached.contains(&index) {
                continue;
            }
            match self.core.end.datapath.attach(index) {
                Ok(()) => {
                    self.attached.insert(index);
                }
                Err(error) => warn!("{name} cannot be served: {error}"),
            }
        }
        Ok(())
    }

    fn on_request(&mut self, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
        Ok(match request {
            TunnelRequest::Flows { from, host } => {
                let flows = self.flows(from, host.as_deref());
                answer(flows.map(|page| Response::Own(TunnelAnswer::Flows(page))))
            }
            TunnelRequest::Handover { .. } | TunnelRequest::Keepalive { .. } => {
                Response::Error("this is an anchor; its hosts decide on paths and handovers".into())
            }
            TunnelRequest::Enroll { name, addresses, valid_s } => {
                answer(self.enroll(&name, &addresses, valid_s).map(Response::Done))
            }
            TunnelRequest::Unenroll { name } => answer(self.unenroll(&name).map(Response::Done)),
            TunnelRequest::Enrolments => {
                let all = self.enrolments();
                answer(all.map(|all| Response::Own(TunnelAnswer::Enrolments(all))))
            }
        })
    }

    fn refresh(&mut self) -> anyhow::Result<()> {
        let slots = self.core.end.machine.paths().map(|(slot, _)| slot).collect();
        self.follow(Turn::reading(slots))
    }

    async fn chore(&mut self) -> Chore {
        self.review.tick().await;
        Chore::Review
    }

    fn on_chore(&mut self, Chore::Review: Chore) -> anyhow::Result<()> {
        self.review_certificates()
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.signal.close().await;
        Ok(())
    }

    fn metrics(status: &Status<Tunnels>) -> String {
        scrape::of_tunnels(status)
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> TunnelStatus {
        let pools = [&self.settings.pool_v4, &self.settings.pool_v6].into_iter().flatten();
        let common = self.core.end.status(&self.settings.tunnel.device);
        let End { machine: anchor, datapath, .. } = &mut *self.core.end;
        let (anchor, datapath) = (&*anchor, datapath.as_mut());
        let stamp = self.stamp.as_ref().map(Stamp::drops).unwrap_or_default();
        drops.extend(stamp.into_iter().map(|(reason, n)| (format!("stamp_{reason}"), n)));
        match datapath.stamp_limited() {
            0 => {}
            n => *drops.entry("stamp_rate_limit".into()).or_default() += n,
        }
        TunnelStatus {
            registered: true,
            inner: pools.map(|pool| pool.anchor().to_string()).collect(),
            hosts: status::hosts(anchor),
            paths: status::anchor_paths(anchor, datapath),
            ..common
        }
    }
}

impl Daemon {
    fn flows(&mut self, from: u64, host: Option<&str>) -> anyhow::Result<FlowsPage> {
        let owner = host
            .map(|name| {
                let owner = self.core.end.machine.owner(name);
                owner.with_context(|| format!("no host {name:?} is registered"))
            })
            .transpose()?;
        let End { machine, datapath, .. } = &mut *self.core.end;
        let from = FlowCursor(from);
        Ok(status::anchor_flows(machine, datapath.as_mut(), monotonic(), from, owner))
    }

    fn enroll(
        &mut self,
        name: &str,
        addresses: &[Locator],
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        let own = || {
            let all = self.interfaces.iter().map(|device| &device.interface);
            let global = all.filter(|i| i.name != self.settings.tunnel.device);
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
}
