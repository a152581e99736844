//! Serves an anchor's inner addresses: the packet path, routes and forwarding, and the guard or
//! translation by the system's packet filter where needed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Context;
use segue_clock::Time;
use segue_datapath::{Kind, LinuxDatapath};
use segue_ip::{Forward, MAIN_TABLE, Prefix, Route};
use segue_linux::link;
use segue_text::errors::First;
use segue_tunnel::Pool;

use super::Settings;
use crate::clamp::Clamp;
use crate::forwarding::Forwarding;
use crate::kept::Kept;
use crate::nat::Nat;
use crate::past::Guard;
use crate::routing::{LEAST_MTU, put_routes, set_addresses};

/// The services for the pools. Dropping this removes all of them.
pub(super) struct Pools {
    // Dropped first: forwarding ends before the translation does.
    forwarding: Forwarding,
    device: String,
    /// The size limits of packets to hosts, if below the device's MTU.
    fitted: BTreeMap<IpAddr, u32>,
    _nat: Option<Nat>,
    _guard: Option<Guard>,
    _clamp: Clamp,
}

impl Pools {
    /// Sets up the packet path and the system for the pools.
    pub(super) fn serve(
        settings: &Settings,
        datapath: &mut dyn LinuxDatapath,
        kept: &mut Kept,
    ) -> anyhow::Result<Pools> {
        let pools: Vec<&Pool> =
            [&settings.pool_v4, &settings.pool_v6].into_iter().flatten().collect();
        let own: Vec<IpAddr> = pools.iter().map(|pool| pool.anchor()).collect();
        let networks: Vec<Prefix> = pools.iter().map(|pool| pool.prefix()).collect();
        datapath.set_reach(settings.reach, &networks)?;
        own.iter().try_for_each(|own| datapath.set_inner(*own, 0))?;
        let guard = Guard::at_start(&settings.tunnel.device, datapath.kind() == Kind::User);
        guard.iter().for_each(|guard| guard.set_anchor(&networks));
        // Translation comes first, so that nothing is forwarded untranslated.
        let nat = Nat::start(&settings.tunnel.device, &networks, settings.nat)?;
        let device = settings.tunnel.device.clone();
        set_addresses(kept, &device, &mut Vec::new(), &own)?;
        let index = link::index_of(&device)?;
        put_routes(kept, networks.iter().map(|pool| Route::on(*pool, index)))?;
        let forwarding = Forwarding::start(kept, &device, &networks)?;
        let (fitted, clamp) = (BTreeMap::new(), Clamp::start(&device));
        Ok(Pools { forwarding, device, fitted, _nat: nat, _guard: guard, _clamp: clamp })
    }

    /// Called once a second.
    pub(super) fn look_after(&mut self, now: Time) {
        self.forwarding.look_after(now);
    }

    /// Limits packets to a host's inner address to `mtu` bytes, on a device with an MTU of `most` bytes; `None` lifts
    /// the limit.
    pub(super) fn fit(
        &mut self,
        kept: &mut Kept,
        address: IpAddr,
        mtu: Option<u32>,
        most: u32,
    ) -> anyhow::Result<()> {
        let least = LEAST_MTU[usize::from(address.is_ipv6())];
        let mtu_bytes = mtu.map(|mtu| mtu.max(least)).filter(|mtu| *mtu < most);
        if self.fitted.get(&address).copied() == mtu_bytes {
            return Ok(());
        }
        match mtu_bytes {
            Some(mtu) => self.fitted.insert(address, mtu),
            None => self.fitted.remove(&address),
        };
        let index = link::index_of(&self.device)?;
        // Forwarded packets may use another table than this machine's own packets.
        let forwarded = self.forwarding.table(address.is_ipv6());
        let mut first = First::default();
        for table in [MAIN_TABLE].into_iter().chain(forwarded) {
            let route = Route::on(Prefix::host(address), index).table(table);
            let part = Forward::Route(Route { mtu_bytes, ..route });
            let done = match mtu_bytes {
                Some(_) => kept.put(part),
                None => kept.take_back(&part),
            };
            first.note(
                done.with_context(|| format!("cannot fit packets to {address} to its paths")),
            );
        }
        first.result()
    }
}
