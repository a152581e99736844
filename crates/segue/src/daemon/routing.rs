//! What a daemon sets up around its tunnel device: addresses, routes and, at a host, the rules that
//! send its traffic into the tunnel but its own outer packets past it.
//!
//! The rules are those that WireGuard's users know: traffic without the daemon's mark looks up the
//! tunnel's table, after the main table has been asked for anything better than a default route. So
//! neighbours on the link stay neighbours. Addresses and routes go with the device; the rules are
//! taken back when [`Routing`] is dropped, and a host's start takes back what a crash left.
//!
//! A host that is to fail closed does not ask the main table first, where whoever answers its DHCP requests could
//! put better routes, and what belongs into the tunnel is unreachable wherever the tunnel's table has no device for
//! it. Both outlive the process, and go when it is told to end, or with `segue clean`.

use std::net::IpAddr;

use anyhow::Context;
use segue_linux::link::{self, Prefix};
use segue_linux::route::{
    MAIN_TABLE, Route, Rule, add_rule, add_unreachable, delete_rule, delete_unreachable,
    replace_route, rules, unreachables,
};
use tracing::warn;

use super::packets::MARK;

/// Routing table of the host's tunnel.
pub const TABLE: u32 = 0x5e60;
/// Priority of the first of the two rules.
const PRIORITY: u32 = 5_210;
/// Metric of what is unreachable without the tunnel: any other route is better.
const LAST_METRIC: u32 = u32::MAX - 1;

/// The addresses, routes and rules of a daemon.
pub struct Routing {
    device: String,
    addresses: Vec<IpAddr>,
    rules: bool,
    /// Whether traffic stays away while there is no tunnel.
    closed: bool,
}

impl Routing {
    /// Nothing set up yet at a host; what an earlier run left behind is taken away.
    pub fn at_host(device: &str) -> Routing {
        remove_rules();
        remove_unreachable();
        Routing::at_anchor(device)
    }

    /// The same at a host that is to fail closed: from here on nothing of `routes` leaves but by the tunnel. What
    /// an earlier run of this kind left is never taken away in between.
    pub fn at_closed_host(device: &str, routes: &[Prefix]) -> anyhow::Result<Routing> {
        for destination in routes {
            match add_unreachable(*destination, TABLE, LAST_METRIC) {
                // A system without IPv6 has nothing to close.
                Err(error) if destination.addr.is_ipv6() => warn!("{error}"),
                closed => closed.context("fail_closed: the routes cannot be closed")?,
            }
        }
        let present = rules().context("fail_closed: the routing rules cannot be read")?;
        for rule in tunnel_rules().filter(|rule| !present.contains(rule)) {
            add_rule(&rule).context("fail_closed: cannot add the tunnel's routing rules")?;
        }
        remove(present.iter().filter(|rule| main_rules().any(|main| main == **rule)));
        let mut routing = Routing::at_anchor(device);
        (routing.rules, routing.closed) = (true, true);
        Ok(routing)
    }

    /// Nothing set up yet at an anchor. It sets no rules: those that there are belong to a host beside
    /// it, and stay.
    pub fn at_anchor(device: &str) -> Routing {
        Routing { device: device.to_owned(), addresses: Vec::new(), rules: false, closed: false }
    }

    /// The daemon ends because it was told to: a closed host is open again.
    pub fn open(&mut self) {
        if self.closed {
            remove_rules();
            remove_unreachable();
        }
    }

    /// Gives the host its inner addresses and sends `routes` through the tunnel.
    pub fn set_host(&mut self, inner: &[IpAddr], routes: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(inner)?;
        for destination in routes {
            let mut own = self.addresses.iter();
            let source = own.find(|a| a.is_ipv4() == destination.addr.is_ipv4());
            let Some(source) = source else { continue };
            let mut route = Route::on(*destination, &self.device)?.table(TABLE);
            route.source = Some(*source);
            replace_route(&route)
                .with_context(|| format!("cannot route {destination} into the tunnel"))?;
        }
        if !self.rules {
            for rule in main_rules().chain(tunnel_rules()) {
                add_rule(&rule).context("cannot add the tunnel's routing rules")?;
            }
            self.rules = true;
        }
        Ok(())
    }

    /// Gives the anchor its inner addresses, routes the pools into the tunnel and lets packets be
    /// forwarded.
    pub fn set_anchor(&mut self, own: &[IpAddr], pools: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(own)?;
        for pool in pools {
            replace_route(&Route::on(*pool, &self.device)?)
                .with_context(|| format!("cannot route {pool} into the tunnel"))?;
        }
        if pools.iter().any(|pool| pool.addr.is_ipv4()) {
            link::sysctl("net.ipv4.ip_forward", "1").context("cannot switch forwarding on")?;
        }
        if pools.iter().any(|pool| pool.addr.is_ipv6()) {
            link::sysctl("net.ipv6.conf.all.forwarding", "1")
                .context("cannot switch forwarding on")?;
        }
        Ok(())
    }

    /// A system that has one family switched off goes without it.
    fn set_addresses(&mut self, wanted: &[IpAddr]) -> anyhow::Result<()> {
        for old in self.addresses.iter().filter(|old| !wanted.contains(old)) {
            if let Err(error) = link::delete_address(&self.device, Prefix::host(*old)) {
                warn!("{error}");
            }
        }
        let mut refused = None;
        let mut had = std::mem::take(&mut self.addresses);
        had.retain(|old| wanted.contains(old));
        for new in wanted {
            if had.contains(new) {
                self.addresses.push(*new);
                continue;
            }
            let added = link::add_address(&self.device, Prefix::host(*new));
            match added.with_context(|| format!("cannot give {new} to {}", self.device)) {
                Ok(()) => self.addresses.push(*new),
                Err(error) => {
                    warn!("{error:#}");
                    refused = Some(error);
                }
            }
        }
        match refused {
            Some(error) if self.addresses.is_empty() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        // A closed host stays closed when its daemon fails.
        if self.rules && !self.closed {
            remove_rules();
        }
    }
}

/// What is not marked asks the main table for anything better than a default route.
fn main_rules() -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(|v6| Rule {
        v6,
        priority: PRIORITY,
        table: MAIN_TABLE,
        suppress_prefix_length: Some(0),
        ..Rule::default()
    })
}

/// Then the tunnel's.
fn tunnel_rules() -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(|v6| Rule {
        v6,
        priority: PRIORITY + 1,
        table: TABLE,
        fwmark: Some(MARK),
        invert: true,
        ..Rule::default()
    })
}

/// Removes every rule that a host daemon sets; says how many there were.
pub fn remove_rules() -> usize {
    let ours = |rule: &&Rule| main_rules().chain(tunnel_rules()).any(|one| one == **rule);
    remove(rules().unwrap_or_default().iter().filter(ours))
}

fn remove<'a>(rules: impl Iterator<Item = &'a Rule>) -> usize {
    let told = |rule| delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok();
    rules.filter(|rule| told(rule)).count()
}

/// Removes what a host that failed closed made unreachable; says how many there were.
pub fn remove_unreachable() -> usize {
    let closed = unreachables(TABLE, LAST_METRIC).unwrap_or_default();
    let opened = |prefix: &Prefix| {
        let opened = delete_unreachable(*prefix, TABLE, LAST_METRIC);
        opened.inspect_err(|error| warn!("{error}")).is_ok()
    };
    closed.iter().filter(|prefix| opened(prefix)).count()
}
