//! The anchor's interfaces: which of them it serves, and where they lead.

use std::collections::BTreeMap;

use segue_linux::monitor::Device;
use segue_tunnel::{AnchorInput, Pool};
use segue_wire::signal::WaysOut;
use tracing::warn;

use super::{Daemon, Settings};
use crate::run::Role;

/// For each family: everything if an interface other than the tunnel has a default route, otherwise
/// only the pool.
fn ways_out(all: &[Device], settings: &Settings) -> WaysOut {
    let tunnel = &settings.tunnel.device;
    let others = all.iter().filter(|d| d.up && !d.loopback && d.interface.name != *tunnel);
    let destinations = others.flat_map(|d| &d.routes).map(|route| route.destination);
    let defaults = destinations.filter(|to| to.len == 0);
    let leads = |v6| defaults.clone().any(|to| to.addr.is_ipv6() == v6);
    let of = |v6, pool: &Option<Pool>| match pool {
        Some(pool) if !leads(v6) => pool.prefix().len,
        _ => 0,
    };
    WaysOut { v4: of(false, &settings.pool_v4), v6: of(true, &settings.pool_v6) }
}

impl Daemon {
    pub(super) fn use_interfaces(&mut self, all: &[Device]) -> anyhow::Result<()> {
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
}
