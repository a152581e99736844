//! Serves an anchor's inner addresses: the packet path, routes and forwarding, and the guard or
//! translation by the system's packet filter where needed.

use std::net::IpAddr;

use segue_datapath::{Kind, LinuxDatapath};
use segue_ip::Prefix;
use segue_tunnel::Pool;

use super::Settings;
use crate::nat::Nat;
use crate::past::Guard;
use crate::routing::Routing;

/// Dropping this removes all of it.
pub(super) struct Pools {
    // Dropped first: forwarding ends before the translation does.
    pub routing: Routing,
    _nat: Option<Nat>,
    _guard: Option<Guard>,
}

impl Pools {
    /// Makes the packet path and the system serve the pools.
    pub(super) fn serve(
        settings: &Settings,
        datapath: &mut dyn LinuxDatapath,
    ) -> anyhow::Result<Pools> {
        let pools: Vec<&Pool> =
            [&settings.pool_v4, &settings.pool_v6].into_iter().flatten().collect();
        let own: Vec<IpAddr> = pools.iter().map(|pool| pool.anchor()).collect();
        let networks: Vec<Prefix> =
            pools.iter().map(|pool| Prefix::new(pool.network(), pool.prefix())).collect();
        datapath.set_reach(settings.reach, &networks)?;
        own.iter().try_for_each(|own| datapath.set_inner(*own, 0))?;
        let guard = Guard::at_start(&settings.tunnel.device, datapath.kind() == Kind::User);
        guard.iter().for_each(|guard| guard.set_anchor(&networks));
        // Translation comes first, so that nothing is forwarded untranslated.
        let nat = Nat::start(&settings.tunnel.device, &networks, settings.nat)?;
        let mut routing = Routing::at_anchor(&settings.tunnel.device);
        routing.set_anchor(&own, &networks)?;
        Ok(Pools { routing, _nat: nat, _guard: guard })
    }
}
