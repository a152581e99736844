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
//! it. Over IPv6 the kernel passes over what is unreachable where a socket insists on an interface, so that rules make the
//! same destinations unreachable once more. All of it outlives the process, and go when it is told to end, or with `segue clean`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use anyhow::Context;
use nix::errno::Errno;
use segue_linux::LinuxError;
use segue_linux::link::{self, Prefix};
use segue_linux::route::{
    MAIN_TABLE, Route, Rule, Then, add_rule, add_unreachable, delete_route, delete_rule,
    delete_unreachable, replace_route, rules, unreachables,
};
use tracing::{debug, warn};

use super::forwarding::Forwarding;
use super::packets::MARK;
use crate::errors::Told;

/// Routing table of the host's tunnel.
pub const TABLE: u32 = 0x5e60;
/// Priority of the first of the two rules.
const PRIORITY: u32 = 5_210;
/// Priorities of the rules that close IPv6 for sockets that insist on an interface: what passes them, what does not,
/// and where the search goes on.
const PASSES: u32 = PRIORITY + 2;
const CLOSED: u32 = PRIORITY + 3;
const ON: u32 = PRIORITY + 4;
/// What the kernel takes for the MTU of a route, over IPv4 and IPv6.
const LEAST_MTU: [u32; 2] = [576, 1_280];
/// Metric of what is unreachable without the tunnel: any other route is better.
const LAST_METRIC: u32 = u32::MAX - 1;

/// The addresses, routes and rules of a daemon.
pub struct Routing {
    device: String,
    addresses: Vec<IpAddr>,
    rules: bool,
    /// Whether traffic stays away while there is no tunnel.
    closed: bool,
    /// What an anchor's machine forwards.
    forwarding: Option<Forwarding>,
    /// What a host sends through the tunnel.
    routes: Vec<Prefix>,
    /// The largest packet over IPv4, where that is smaller than IPv6 allows a device to say.
    mtu_v4: Option<u32>,
    /// The largest packets to hosts (anchor), where they are smaller than the device's.
    fitted: BTreeMap<IpAddr, u32>,
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
                Err(error) if destination.addr.is_ipv6() && is_no_family(&error) => {
                    warn!("{error}");
                }
                closed => closed.context("fail_closed: the routes cannot be closed")?,
            }
        }
        let present = rules().context("fail_closed: the routing rules cannot be read")?;
        let wanted: Vec<Rule> = tunnel_rules().chain(closing_rules(routes)).collect();
        for rule in wanted.iter().filter(|rule| !present.contains(rule)) {
            match add_rule(rule) {
                // Where only rules of IPv6 are missing, the routes alone do not close it.
                Err(error) if rule.v6 && is_no_family(&error) && is_without_ipv6() => {
                    warn!("{error}");
                }
                added => added.context("fail_closed: cannot add the tunnel's routing rules")?,
            }
        }
        remove(present.iter().filter(|rule| is_ours(rule) && !wanted.contains(rule)));
        remove_unreachable_but(routes);
        let mut routing = Routing::at_anchor(device);
        (routing.rules, routing.closed) = (true, true);
        Ok(routing)
    }

    /// Nothing set up yet at an anchor. A host's rules belong to a host beside it, and stay.
    pub fn at_anchor(device: &str) -> Routing {
        let (device, addresses) = (device.to_owned(), Vec::new());
        Routing {
            device,
            addresses,
            rules: false,
            closed: false,
            forwarding: None,
            routes: Vec::new(),
            mtu_v4: None,
            fitted: BTreeMap::new(),
        }
    }

    /// The daemon ends because it was told to: a closed host is open again.
    pub fn open(&mut self) {
        if self.closed {
            remove_rules();
            remove_unreachable();
        }
    }

    /// Gives the host its inner addresses and sends `routes` through the tunnel, and nothing else.
    pub fn set_host(&mut self, inner: &[IpAddr], routes: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(inner)?;
        for old in self.routes.iter().filter(|old| !routes.contains(old)) {
            // One whose address went has gone with it.
            if let Err(error) = delete_route(&Route::on(*old, &self.device)?.table(TABLE)) {
                debug!("{error}");
            }
        }
        self.routes = routes.to_vec();
        self.set_routes()?;
        if !self.rules {
            let without_ipv6 = is_without_ipv6();
            for rule in main_rules().chain(tunnel_rules()).filter(|rule| !rule.v6 || !without_ipv6)
            {
                add_rule(&rule).context("cannot add the tunnel's routing rules")?;
            }
            self.rules = true;
        }
        Ok(())
    }

    fn set_routes(&self) -> anyhow::Result<()> {
        for destination in &self.routes {
            let mut own = self.addresses.iter();
            let source = own.find(|a| a.is_ipv4() == destination.addr.is_ipv4());
            let Some(source) = source else { continue };
            let mut route = Route::on(*destination, &self.device)?.table(TABLE);
            route.source = Some(*source);
            route.mtu = self.mtu_v4.filter(|_| destination.addr.is_ipv4());
            replace_route(&route)
                .with_context(|| format!("cannot route {destination} into the tunnel"))?;
        }
        Ok(())
    }

    /// Lets packets of `mtu` bytes at most into a host's tunnel. The kernel says so to whoever sends: to sockets, to
    /// what it forwards for by ICMP, and to the far end of a connection by the segments that it asks for.
    pub fn set_mtu(&mut self, mtu: u32) -> anyhow::Result<()> {
        let device = mtu.max(LEAST_MTU[1]);
        link::set_mtu(&self.device, device)
            .with_context(|| format!("cannot set the MTU of {} to {device}", self.device))?;
        let mtu_v4 = Some(mtu.max(LEAST_MTU[0])).filter(|mtu| *mtu < device);
        if mtu_v4 != self.mtu_v4 {
            self.mtu_v4 = mtu_v4;
            self.set_routes()?;
        }
        Ok(())
    }

    /// Lets packets of `mtu` bytes at most to a host's inner address, at an anchor whose device takes `device` bytes;
    /// `None` where nothing smaller is wanted any more.
    pub fn fit(&mut self, address: IpAddr, mtu: Option<u32>, device: u32) -> anyhow::Result<()> {
        let least = LEAST_MTU[usize::from(address.is_ipv6())];
        let mtu = mtu.map(|mtu| mtu.max(least)).filter(|mtu| *mtu < device);
        if self.fitted.get(&address).copied() == mtu {
            return Ok(());
        }
        let route = Route { mtu, ..Route::on(Prefix::host(address), &self.device)? };
        match mtu {
            Some(mtu) => {
                replace_route(&route)
                    .with_context(|| format!("cannot route {address} by itself"))?;
                self.fitted.insert(address, mtu);
            }
            None => {
                self.fitted.remove(&address);
                delete_route(&route)
                    .with_context(|| format!("cannot take the route to {address} back"))?;
            }
        }
        Ok(())
    }

    /// Gives the anchor its inner addresses, routes the pools into the tunnel and lets packets be
    /// forwarded to it and from it.
    pub fn set_anchor(&mut self, own: &[IpAddr], pools: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(own)?;
        for pool in pools {
            replace_route(&Route::on(*pool, &self.device)?)
                .with_context(|| format!("cannot route {pool} into the tunnel"))?;
        }
        self.forwarding = Some(Forwarding::start(&self.device, pools)?);
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
                    warn!("{}", Told(&error));
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

/// Then those that close IPv6 for these destinations. What is marked passes, and what goes to a neighbour by its
/// address on the link: no route leads that elsewhere.
fn closing_rules(routes: &[Prefix]) -> Vec<Rule> {
    let closed = routes.iter().filter(|route| route.addr.is_ipv6());
    // Compared with what the kernel has.
    let closed: Vec<Prefix> = closed.map(Prefix::network).flat_map(halves).collect();
    if closed.is_empty() {
        return Vec::new();
    }
    let link_local = Prefix::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    let pass = Rule { v6: true, priority: PASSES, then: Then::Goto(ON), ..Rule::default() };
    let mut all = vec![
        Rule { priority: ON, then: Then::Nothing, ..pass.clone() },
        Rule { fwmark: Some(MARK), ..pass.clone() },
        Rule { to: Some(link_local), ..pass.clone() },
    ];
    all.extend(closed.into_iter().map(|route| Rule {
        priority: CLOSED,
        to: Some(route),
        then: Then::Unreachable,
        ..pass.clone()
    }));
    all
}

/// The kernel takes a rule for every destination for the same as one for some that is there already, and refuses it.
fn halves(route: Prefix) -> Vec<Prefix> {
    if route.len > 0 {
        return vec![route];
    }
    [0, 0x8000].map(|first| Prefix::new(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), 1)).into()
}

/// Whether a host daemon sets such rules.
fn is_ours(rule: &Rule) -> bool {
    let closing = rule.v6 && (PASSES..=ON).contains(&rule.priority) && rule.then != Then::Lookup;
    closing || main_rules().chain(tunnel_rules()).any(|one| one == *rule)
}

/// How many rules there are that a host daemon sets.
pub fn count_rules() -> usize {
    rules().unwrap_or_default().iter().filter(|rule| is_ours(rule)).count()
}

/// Removes every rule that a host daemon sets; says how many there were.
pub fn remove_rules() -> usize {
    remove(rules().unwrap_or_default().iter().filter(|rule| is_ours(rule)))
}

fn remove<'a>(rules: impl Iterator<Item = &'a Rule>) -> usize {
    let told = |rule| delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok();
    rules.filter(|rule| told(rule)).count()
}

/// Whether this network namespace has no IPv6 at all.
fn is_without_ipv6() -> bool {
    !Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// Whether the kernel knows no such family: it says the one of rules and the other of routes.
fn is_no_family(error: &LinuxError) -> bool {
    matches!(error.errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP))
}

/// Removes what a host that failed closed made unreachable; says how many there were.
pub fn remove_unreachable() -> usize {
    remove_unreachable_but(&[])
}

fn remove_unreachable_but(wanted: &[Prefix]) -> usize {
    let is_wanted = |old: &Prefix| wanted.iter().any(|prefix| prefix.network() == *old);
    let closed = unreachables(TABLE, LAST_METRIC).unwrap_or_default();
    let opened = |prefix: &Prefix| {
        let opened = delete_unreachable(*prefix, TABLE, LAST_METRIC);
        opened.inspect_err(|error| warn!("{error}")).is_ok()
    };
    closed.iter().filter(|old| !is_wanted(old)).filter(|old| opened(old)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    use segue_linux::netns::Netns;

    /// Runs `test` in a namespace of its own.
    fn alone(name: &str, test: impl FnOnce() + Send) {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let node = Netns::create(&format!("segue-t{}-{name}", std::process::id())).unwrap();
        node.run(test).unwrap();
    }

    fn prefixes(all: &[&str]) -> Vec<Prefix> {
        all.iter().map(|prefix| prefix.parse().unwrap()).collect()
    }

    fn closed() -> Vec<Prefix> {
        let mut all = unreachables(TABLE, LAST_METRIC).unwrap();
        all.sort_by_key(|prefix| (prefix.addr, prefix.len));
        all
    }

    #[test]
    fn what_an_earlier_run_closed_and_this_one_does_not_want_is_opened() {
        alone("closed", || {
            // As a crash leaves it: a closed host's routing takes nothing back when it is dropped.
            let everything = prefixes(&["0.0.0.0/0", "10.0.0.0/9", "::/0", "fd07::/16"]);
            Routing::at_closed_host("segue0", &everything).unwrap();
            assert_eq!(closed(), everything);
            // Host bits are as the operator wrote them.
            let fewer = prefixes(&["10.1.2.3/8", "fd07::1/16"]);
            Routing::at_closed_host("segue0", &fewer).unwrap();
            assert_eq!(closed(), prefixes(&["10.0.0.0/8", "fd07::/16"]));
            Routing::at_closed_host("segue0", &everything).unwrap().open();
            assert_eq!(closed(), []);
        });
    }

    #[test]
    fn only_a_family_that_the_system_has_not_is_left_open() {
        let refused = |errno| LinuxError::Refused {
            what: String::new(),
            source: std::io::Error::from_raw_os_error(errno as i32),
        };
        for (errno, open) in [
            (Errno::EAFNOSUPPORT, true),
            (Errno::EOPNOTSUPP, true),
            (Errno::EPERM, false),
            (Errno::EINVAL, false),
            (Errno::ENOMEM, false),
            (Errno::ENODEV, false),
        ] {
            assert_eq!(is_no_family(&refused(errno)), open, "{errno}");
        }
    }
}
