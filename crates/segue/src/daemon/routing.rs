//! What a daemon sets up around its tunnel device: addresses, routes and, at a host, the rules that
//! send its traffic into the tunnel but its own outer packets past it.
//!
//! The rules are those that WireGuard's users know: traffic without the daemon's mark looks up the
//! tunnel's table, after the main table has been asked for anything better than a default route. So
//! neighbours on the link stay neighbours. Addresses and routes go with the device; the rules are
//! taken back when [`Routing`] is dropped, and a host's start takes back what a crash left.

use std::net::IpAddr;

use anyhow::Context;
use segue_linux::link::{self, Prefix};
use segue_linux::route::{MAIN_TABLE, Route, Rule, add_rule, delete_rule, replace_route, rules};
use tracing::warn;

use super::packets::MARK;

/// Routing table of the host's tunnel.
pub const TABLE: u32 = 0x5e60;
/// Priority of the first of the two rules.
const PRIORITY: u32 = 5_210;

/// The addresses, routes and rules of a daemon.
pub struct Routing {
    device: String,
    addresses: Vec<IpAddr>,
    rules: bool,
}

impl Routing {
    /// Nothing set up yet at a host; rules that an earlier run left behind are taken away.
    pub fn at_host(device: &str) -> Routing {
        remove_rules();
        Routing::at_anchor(device)
    }

    /// Nothing set up yet at an anchor. It sets no rules: those that there are belong to a host beside
    /// it, and stay.
    pub fn at_anchor(device: &str) -> Routing {
        Routing { device: device.to_owned(), addresses: Vec::new(), rules: false }
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
            for rule in host_rules() {
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
        if self.rules {
            remove_rules();
        }
    }
}

fn host_rules() -> Vec<Rule> {
    [false, true]
        .into_iter()
        .flat_map(|v6| {
            let main = Rule {
                v6,
                priority: PRIORITY,
                table: MAIN_TABLE,
                fwmark: None,
                invert: false,
                from: None,
                suppress_prefix_length: Some(0),
            };
            let tunnel = Rule {
                priority: PRIORITY + 1,
                table: TABLE,
                fwmark: Some(MARK),
                invert: true,
                suppress_prefix_length: None,
                ..main.clone()
            };
            [main, tunnel]
        })
        .collect()
}

/// Removes every rule that a host daemon sets; says how many there were.
pub fn remove_rules() -> usize {
    let ours = host_rules();
    let present = rules().unwrap_or_default();
    let mut removed = 0;
    for rule in present.iter().filter(|rule| ours.contains(rule)) {
        match delete_rule(rule) {
            Ok(()) => removed += 1,
            Err(error) => warn!("{error}"),
        }
    }
    removed
}
