//! The destinations that a host sends through the tunnel.

use std::net::IpAddr;

use segue_ip::Prefix;
use segue_wire::signal::WaysOut;
use tracing::info;

use super::{Daemon, Settings};

/// Destinations that the operator wants in the tunnel, even if the anchor cannot reach them.
pub(super) fn wanted(settings: &Settings) -> Vec<Prefix> {
    let everything = || [false, true].map(Prefix::default_of).into();
    settings.routes.clone().unwrap_or_else(everything)
}

/// Destinations that the anchor can reach: prefixes around its inner addresses.
fn by_default(ways_out: WaysOut, anchor: &[IpAddr]) -> Vec<Prefix> {
    let mut all = Vec::new();
    for (v6, length) in [(false, ways_out.v4), (true, ways_out.v6)] {
        if length == 0 {
            all.push(Prefix::default_of(v6));
        } else {
            let own = anchor.iter().filter(|address| address.is_ipv6() == v6);
            all.extend(own.map(|own| Prefix::new(*own, length).network()));
        }
    }
    all
}

impl Daemon {
    /// The routes in force: the operator's, or else those that the anchor can reach.
    pub(super) fn routes(&self) -> Vec<Prefix> {
        let routes = self.settings.routes.clone();
        routes.unwrap_or_else(|| by_default(self.ways_out, &self.anchor_inner))
    }

    /// Sets the inner addresses, and routes the destinations through the tunnel.
    pub(super) fn set_routes(&mut self, inner: &[IpAddr]) -> anyhow::Result<()> {
        let destinations = self.routes();
        self.routing.set(&mut self.core.kept, inner, &destinations)
    }

    /// Limits packets into the tunnel to this size in bytes.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> anyhow::Result<()> {
        self.routing.set_mtu(&mut self.core.kept, mtu.into())
    }

    /// Handles the anchor's report of what it can reach.
    pub(super) fn on_ways_out(&mut self, ways_out: WaysOut) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.ways_out, ways_out);
        if self.settings.routes.is_some() || before == ways_out {
            return Ok(());
        }
        let families =
            [("IPv4", before.v4, ways_out.v4), ("IPv6", before.v6, ways_out.v6)].into_iter();
        for (family, _, length) in families.filter(|(_, before, now)| before != now) {
            if length == 0 {
                info!(
                    "the anchor has a default route for {family} again, which goes through the tunnel"
                );
            } else {
                info!(
                    "the anchor has no default route for {family}, of which only packets to it and its hosts go \
                     through the tunnel"
                );
            }
        }
        match self.core.end.machine.inner().to_vec() {
            inner if inner.is_empty() => Ok(()),
            inner => self.set_routes(&inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_anchor_does_not_lead_to_stays_outside_but_for_its_pool() {
        let anchor: [IpAddr; 2] = ["10.64.0.1", "fd5e::1"].map(|a| a.parse().unwrap());
        let routes = |v4, v6| {
            let all = by_default(WaysOut { v4, v6 }, &anchor);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(routes(0, 0), ["0.0.0.0/0", "::/0"]);
        assert_eq!(routes(0, 64), ["0.0.0.0/0", "fd5e::/64"]);
        assert_eq!(routes(16, 64), ["10.64.0.0/16", "fd5e::/64"]);
        assert_eq!(routes(255, 255), ["10.64.0.1/32", "fd5e::1/128"]);
    }
}
