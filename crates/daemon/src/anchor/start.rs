//! An anchor's machine and datapath setup at startup.

use anyhow::Context;
use segue_clock::{Machine, Span, UnixTime};
use segue_datapath::{Role, Setup};
use segue_ip::Input;
use segue_keepalive::MeasuredBy;
use segue_linux::clock::{monotonic, realtime};
use segue_store::{Embedded, StoreExt};
use segue_tunnel::{Anchor, AnchorConfig, Known};

use super::enrolment::{Enrolment, LEASES, Lease, REST};
use crate::random_seed;
use crate::settings::Anchor as Settings;

/// The setup of its datapath.
pub(super) fn setup(settings: &Settings) -> Setup {
    settings.tunnel.setup(Role::Anchor, settings.mtu, (settings.max_paths, 1 << 20))
}

/// The hosts that earlier starts stored.
fn known_hosts(store: &Embedded) -> anyhow::Result<impl Iterator<Item = Known>> {
    let leases: Vec<(String, Lease)> =
        store.list_as(LEASES).context("the anchor's leases are unreadable")?;
    let known =
        |(name, lease): (String, Lease)| Known { name, epoch: lease.epoch, inner: lease.inner };
    Ok(leases.into_iter().map(known))
}

/// The machine, with the hosts from the store.
pub(super) fn machine(
    settings: &Settings,
    store: &Embedded,
    measured_by: MeasuredBy,
) -> anyhow::Result<Anchor> {
    let (now, today) = (monotonic(), realtime());
    let rest = |until_s: u64| now + UnixTime::from_secs(until_s).since(today);
    let resting = Enrolment::resting(store)?.into_iter().map(|(ip, until_s)| (ip, rest(until_s)));
    let config = AnchorConfig {
        port: settings.tunnel.port,
        pool_v4: settings.pool_v4,
        pool_v6: settings.pool_v6,
        max_paths: settings.max_paths,
        expiry: settings.expiry,
        rest: Span::from_secs(REST.as_secs()),
        resting: resting.collect(),
        measured_by,
        largest: u16::try_from(settings.mtu).ok(),
        allow_upmt: settings.allow_upmt,
    };
    let mut anchor = Anchor::new(config, random_seed()?);
    for known in known_hosts(store)? {
        anchor.handle(now, Input::Record(known));
    }
    Ok(anchor)
}
