//! The anchor's daemon: drives [`Anchor`] with QUIC, a datapath, the store and the clock.

mod asked;
mod credentials;
mod enrolment;
mod interfaces;
mod pools;
mod signal;
mod signalled;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_datapath::ebpf::EbpfOptions;
use segue_ip::{After, Output, Subject};
use segue_linux::clock::{monotonic, realtime_s};
use segue_linux::link;
use segue_linux::monitor::Device;
use segue_store::Embedded;
use segue_tunnel::{Anchor, AnchorOutput, ConnId, Known};
use tokio::sync::mpsc;
use tokio::time::Interval;
use tracing::warn;

use self::credentials::{Credentials, review_period};
pub use self::enrolment::{Enrolment, LINE_LIFETIME};
use self::enrolment::{LEASES, Lease, encoded};
use self::pools::Pools;
use self::signal::{Signalling, SignallingEvent};
use super::ends::{TunnelEnd, Waiting};
use super::kept::Kept;
use super::packets;
use super::run::{self, Core, Role, Unwritten};
use super::stamp::{self, Stamp};
use super::status;
use crate::control::{Response, TunnelRequest, TunnelStatus, Tunnels};
use crate::engine::ToLoop;
use crate::ledger::{Entry, Ledger, StoreTable};
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
    signalling: Signalling,
    stamp: Option<Stamp>,
    attached: BTreeSet<u32>,
    interfaces: Vec<Device>,
}

/// The connection that an output is for.
fn conn_of(output: &ToLoop<TunnelEnd<Anchor>>) -> Option<ConnId> {
    match output {
        Output::Own(AnchorOutput::Signal(conn, _) | AnchorOutput::Close(conn)) => Some(*conn),
        _ => None,
    }
}

impl Role for Daemon {
    const NAME: &'static str = "anchor";
    const TASK: &'static str = "run an anchor";
    const SIGNALLED: usize = 1_024;
    type Settings = Settings;
    type Engine = TunnelEnd<Anchor>;
    type Words = Tunnels;
    type Signalling = SignallingEvent;
    /// A review of certificates.
    type Chore = ();

    fn common(settings: &Settings) -> run::Settings {
        settings.common.clone()
    }

    fn start(
        mut settings: Settings,
        signalling: mpsc::Sender<SignallingEvent>,
    ) -> anyhow::Result<(Daemon, Waiting)> {
        let store = Arc::new(Embedded::open(&settings.state)?);
        let enrolment = Enrolment::load(store.as_ref())?;
        let signalling = Signalling::listen(settings.signal_port, &enrolment, signalling)?;
        // Started before the packet path's threads, which may have a higher scheduling priority.
        let table = StoreTable { name: LEASES, of: "registration" };
        let ledger = Ledger::start(store.clone(), table)?;
        let stamp = settings.stamp.as_ref().map(Stamp::start).transpose()?;
        let options = EbpfOptions {
            stamp: settings.stamp.as_ref().and_then(stamp::Settings::in_kernel),
            ..EbpfOptions::default()
        };
        let mut opened = packets::open(&settings.tunnel, &start::setup(&settings), options)?;
        let mut kept = Kept::default();
        // With IPv6 switched off, a machine serves hosts over IPv4; enable IPv6 at least on its tunnel device, if
        // possible.
        if let Some(pool) = &settings.pool_v6
            && let Err(error) = link::enable_ipv6(&settings.tunnel.device)
        {
            warn!("hosts get no addresses of {}: {error}", pool.prefix());
            settings.pool_v6 = None;
        }
        let pools = Pools::serve(&settings, opened.datapath.as_mut(), &mut kept)?;
        let machine = start::machine(&settings, &store, opened.measured_by())?;
        let (end, waiting) = TunnelEnd::new(machine, opened);
        let daemon = Daemon {
            core: Core::new(end, ledger).keeping(kept),
            pools,
            attached: BTreeSet::new(),
            interfaces: Vec::new(),
            stamp,
            store,
            enrolment,
            credentials: Credentials::default(),
            review: tokio::time::interval(review_period(settings.certificate_lifetime)),
            signalling,
            settings,
        };
        Ok((daemon, waiting))
    }

    fn core(&mut self) -> &mut Core<TunnelEnd<Anchor>, Tunnels> {
        &mut self.core
    }

    fn on_heartbeat(&mut self) -> anyhow::Result<()> {
        self.pools.look_after(monotonic());
        Ok(())
    }

    /// A failed output is logged and skipped: one host's trouble must not end the service for the
    /// others.
    fn apply(&mut self, output: AnchorOutput) -> anyhow::Result<()> {
        match output {
            AnchorOutput::Signal(conn, message) => self.signalling.send(conn, message),
            AnchorOutput::Close(conn) => self.signalling.close_after(conn),
            AnchorOutput::SetMtu(address, mtu) => {
                let (mtu, device) = (mtu.map(u32::from), self.settings.mtu);
                let fitted = self.pools.fit(&mut self.core.kept, address, mtu, device);
                self.core.trouble.note(monotonic(), fitted);
            }
        }
        Ok(())
    }

    fn entry(&self, known: Known) -> anyhow::Result<Entry> {
        let seen_s = Some(realtime_s());
        let value = encoded(&Lease { epoch: known.epoch, inner: known.inner, seen_s })?;
        Ok(Entry { subject: Subject::from(&*known.name), key: known.name, value: Some(value) })
    }

    /// A message to a host waits for that host's lease.
    fn after(&self, output: &ToLoop<TunnelEnd<Anchor>>) -> After {
        Some(self.signalling.host_of(conn_of(output)?)?.into())
    }

    fn on_unwritten(&mut self, output: ToLoop<TunnelEnd<Anchor>>, why: Unwritten) {
        let why: &[u8] = match why {
            Unwritten::Failed => b"the anchor cannot write",
            Unwritten::TooMuch => b"too much waits for the anchor's disk",
        };
        if let Some(conn) = conn_of(&output) {
            self.signalling.end(conn, why);
        }
    }

    fn on_signalling(&mut self, event: SignallingEvent) -> anyhow::Result<()> {
        self.on_signalled(event)
    }

    fn on_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
        self.use_interfaces(all)
    }

    fn on_request(&mut self, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
        Ok(self.answer(request))
    }

    async fn chore(&mut self) {
        self.review.tick().await;
    }

    fn on_chore(&mut self, (): ()) -> anyhow::Result<()> {
        self.review_certificates()
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.signalling.close().await;
        Ok(())
    }

    fn status(&mut self, drops: &mut BTreeMap<String, u64>) -> TunnelStatus {
        let stamp = self.stamp.as_ref().map(Stamp::drops).unwrap_or_default();
        drops.extend(stamp.into_iter().map(|(reason, n)| (format!("stamp_{reason}"), n)));
        match self.core.end.datapath.stamp_limited() {
            0 => {}
            n => *drops.entry("stamp_rate_limit".into()).or_default() += n,
        }
        let pools = [&self.settings.pool_v4, &self.settings.pool_v6].into_iter().flatten();
        let inner = pools.map(|pool| pool.anchor().to_string()).collect();
        let common = self.core.end.status(&self.settings.tunnel.device);
        TunnelStatus { registered: true, inner, ..status::of_anchor(&mut self.core.end, common) }
    }
}
