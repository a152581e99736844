//! What a daemon sets up around its tunnel device: addresses, routes and, at a host, the rules that
//! send traffic into the tunnel and the daemon's own outer packets around it.
//!
//! The rules are those familiar from WireGuard: traffic without the daemon's mark uses the tunnel's
//! table, unless the main table has something better than a default route. So neighbours on the
//! link stay reachable directly. Addresses and routes vanish with the device. Dropping [`Routing`]
//! removes the rules, and a host's start removes what a crash left.
//!
//! A host that fails closed does not consult the main table first: an attacker who answers its DHCP
//! requests could put better routes there. Tunnel destinations are unreachable whenever the
//! tunnel's table has no device for them. For IPv6 sockets bound to an interface the kernel skips
//! unreachable routes, so rules make the same destinations unreachable again. All of this survives
//! the process; it is removed when the daemon is told to end, or by `segue clean`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;
use std::path::Path;

use anyhow::Context;
use nix::errno::Errno;
use segue_clock::Time;
use segue_ip::{MAIN_TABLE, Prefix, Route, Rule, Then};
use segue_linux::LinuxError;
use segue_linux::link;
use segue_linux::route::{
    add_missing_route, add_missing_rule, add_rule, add_unreachable, delete_route, delete_rule,
    delete_unreachable, replace_route, rules, unreachables,
};
use segue_text::errors::{First, Told};
use tracing::{debug, warn};

use super::forwarding::Forwarding;
use super::number::Number;
use super::packets::MARK;
use super::seldom::Seldom;

/// Smallest MTU of a route that the kernel accepts, over IPv4 and IPv6.
const LEAST_MTU: [u32; 2] = [576, 1_280];
/// Routes to single hosts checked in one go: an anchor may have many, and none is urgent.
const LOOKED_AT: usize = 64;
/// Metric of the unreachable routes: any other route is better.
const LAST_METRIC: u32 = u32::MAX - 1;

/// The addresses, routes and rules of a daemon.
pub struct Routing {
    device: String,
    number: Number,
    at_anchor: bool,
    addresses: Vec<IpAddr>,
    /// The rules that were added.
    rules: Vec<Rule>,
    /// Destinations closed while there is no tunnel; `None` at a host that does not fail closed.
    closed: Option<Vec<Prefix>>,
    /// What an anchor's machine forwards.
    forwarding: Option<Forwarding>,
    /// What a host sends through the tunnel, or an anchor's pools.
    routes: Vec<Prefix>,
    /// The largest packet over IPv4, if that is below the minimum MTU that IPv6 demands of a
    /// device.
    mtu_v4: Option<u32>,
    /// The largest packets to hosts (anchor), if smaller than the device's.
    fitted: BTreeMap<IpAddr, u32>,
    /// The last of them that was checked.
    looked_at: Option<IpAddr>,
    /// Paces the log lines about what others have removed.
    told: Seldom,
}

impl Routing {
    /// Nothing set up yet at a host; removes what an earlier run left behind.
    pub fn at_host(device: &str) -> Routing {
        remove_rules(Number::of(device));
        remove_unreachable(Number::of(device));
        Routing::new(device, false)
    }

    /// The same at a host that fails closed: from here on, traffic to `routes` leaves only through
    /// the tunnel. What an earlier such run left stays in force throughout.
    pub fn at_closed_host(device: &str, routes: &[Prefix]) -> anyhow::Result<Routing> {
        let number = Number::of(device);
        let mut closed = Vec::new();
        for destination in routes {
            match add_unreachable(*destination, number.table(), LAST_METRIC) {
                // A system without IPv6 has nothing to close.
                Err(error) if destination.addr.is_ipv6() && is_no_family(&error) => {
                    warn!("{error}");
                }
                added => {
                    added.context("fail_closed: the routes cannot be closed")?;
                    closed.push(*destination);
                }
            }
        }
        let present = rules().context("fail_closed: the routing rules cannot be read")?;
        let mut wanted: Vec<Rule> =
            tunnel_rules(number).chain(closing_rules(number, routes)).collect();
        let mut refused = Vec::new();
        for rule in wanted.iter().filter(|rule| !present.contains(rule)) {
            match add_rule(rule) {
                // If only IPv6 rules are unsupported, the routes by themselves do not close it.
                Err(error) if rule.v6 && is_no_family(&error) && is_without_ipv6() => {
                    warn!("{error}");
                    refused.push(rule.clone());
                }
                added => added.context("fail_closed: cannot add the tunnel's routing rules")?,
            }
        }
        wanted.retain(|rule| !refused.contains(rule));
        remove(present.iter().filter(|rule| is_of(number, rule) && !wanted.contains(rule)));
        remove_unreachable_but(number, routes);
        let mut routing = Routing::new(device, false);
        (routing.rules, routing.closed) = (wanted, Some(closed));
        Ok(routing)
    }

    /// Nothing set up yet at an anchor. A host's rules belong to a host on the same machine, and
    /// stay.
    pub fn at_anchor(device: &str) -> Routing {
        Routing::new(device, true)
    }

    fn new(device: &str, at_anchor: bool) -> Routing {
        Routing {
            device: device.to_owned(),
            number: Number::of(device),
            at_anchor,
            addresses: Vec::new(),
            rules: Vec::new(),
            closed: None,
            forwarding: None,
            routes: Vec::new(),
            mtu_v4: None,
            fitted: BTreeMap::new(),
            looked_at: None,
            told: Seldom::default(),
        }
    }

    /// Opens a closed host again, because the daemon was told to end.
    pub fn open(&mut self) {
        if self.closed.is_some() {
            remove_rules(self.number);
            remove_unreachable(self.number);
        }
    }

    /// Sets the host's inner addresses and sends `routes`, and nothing else, through the tunnel.
    pub fn set_host(&mut self, inner: &[IpAddr], routes: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(inner)?;
        for old in self.routes.iter().filter(|old| !routes.contains(old)) {
            // A route whose source address was removed has gone with it.
            if let Err(error) = delete_route(&self.onto(*old)?.table(self.number.table())) {
                debug!("{error}");
            }
        }
        self.routes = routes.to_vec();
        self.set_routes()?;
        if self.rules.is_empty() {
            let without_ipv6 = is_without_ipv6();
            for rule in host_rules(self.number).filter(|rule| !rule.v6 || !without_ipv6) {
                add_rule(&rule).context("cannot add the tunnel's routing rules")?;
                self.rules.push(rule);
            }
        }
        self.set_sources(inner)
    }

    /// Has packets from the inner addresses use this host's table, beside other hosts.
    fn set_sources(&mut self, inner: &[IpAddr]) -> anyhow::Result<()> {
        let number = self.number;
        let wanted: Vec<Rule> = number.sources(inner).collect();
        let stays = |rule: &Rule| !number.has_source(rule) || wanted.contains(rule);
        remove(self.rules.extract_if(.., |rule| !stays(rule)).collect::<Vec<_>>().iter());
        for rule in wanted.into_iter().filter(|rule| !rule.v6 || !is_without_ipv6()) {
            if !self.rules.contains(&rule) {
                add_missing_rule(&rule).context("cannot add the tunnel's routing rules")?;
                self.rules.push(rule);
            }
        }
        Ok(())
    }

    /// A route out of the tunnel device.
    fn onto(&self, destination: Prefix) -> anyhow::Result<Route> {
        Ok(Route::on(destination, link::index_of(&self.device)?))
    }

    fn set_routes(&self) -> anyhow::Result<()> {
        self.each_route(|route| Ok(replace_route(route)?))
    }

    /// Handles each route into the tunnel, even if another fails. A host has only those of families
    /// in which it has an address.
    fn each_route(&self, mut put: impl FnMut(&Route) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut first = First::default();
        for destination in &self.routes {
            let mut route = self.onto(*destination)?;
            if !self.at_anchor {
                let mut own = self.addresses.iter();
                route.source = own.find(|a| a.is_ipv4() == destination.addr.is_ipv4()).copied();
                if route.source.is_none() {
                    continue;
                }
                route.mtu_bytes = self.mtu_v4.filter(|_| destination.addr.is_ipv4());
                route = route.table(self.number.table());
            }
            let done = put(&route);
            first.note(done.with_context(|| format!("cannot route {destination} into the tunnel")));
        }
        first.result()
    }

    /// Restores what others have removed, and logs it: network managers remove foreign rules and
    /// routes, an operator flushes a table, a device that was briefly down has lost its IPv6
    /// addresses.
    pub fn look_after(&mut self, now: Time) {
        let mut back = Vec::new();
        let mended = self.mend(&mut back);
        if !back.is_empty() {
            back.sort_unstable();
            back.dedup();
            let line = format!("somebody removed {} of the tunnel: put back", back.join(", "));
            if self.told.is_due(now, &line) {
                warn!("{line}");
            }
        }
        if let Err(error) = mended {
            let down = error.downcast_ref::<LinuxError>().and_then(LinuxError::errno)
                == Some(Errno::ENETDOWN);
            let device = &self.device;
            let line = match down {
                true => format!(
                    "{device} is switched off, so that nothing goes through the tunnel: ip link set {device} up"
                ),
                false => Told(&error).to_string(),
            };
            if self.told.is_due(now, &line) {
                warn!("{line}");
            }
        }
    }

    /// Restores what is missing; one failure does not keep the rest from being restored.
    fn mend(&mut self, back: &mut Vec<&'static str>) -> anyhow::Result<()> {
        let mut first = First::default();
        let present = rules().context("the routing rules cannot be read");
        if let Some(present) = first.note(present) {
            for rule in self.rules.iter().filter(|rule| !present.contains(rule)) {
                let new = add_missing_rule(rule).context("cannot add the tunnel's routing rules");
                if first.note(new) == Some(true) {
                    back.push("routing rules");
                }
            }
            if let Some(forwarding) = &self.forwarding {
                first.note(forwarding.mend(&present, back));
            }
        }
        for destination in self.closed.iter().flatten() {
            let closed = add_unreachable(*destination, self.number.table(), LAST_METRIC);
            if first.note(closed.context("fail_closed: the routes cannot be closed")) == Some(true)
            {
                back.push("routes");
            }
        }
        let addresses = self.mend_addresses(&mut first);
        if addresses {
            back.push("inner addresses");
            // With an address, the kernel dropped it as the source of routes; with the last of a
            // family, all of the family's routes.
            first.note(self.set_routes());
        }
        let mut lost = false;
        first.note(self.each_route(|route| {
            lost |= add_missing_route(route)?;
            Ok(())
        }));
        lost |= self.mend_fitted(lost || addresses, &mut first);
        if lost {
            back.push("routes");
        }
        first.result()
    }

    /// Restores the inner addresses; returns whether any was missing.
    fn mend_addresses(&self, first: &mut First) -> bool {
        let there = || Ok((link::index_of(&self.device)?, link::addresses()?));
        let Some((index, there)) = first.note(there()) else { return false };
        let mut lost = false;
        for own in self.addresses.iter().map(|own| Prefix::host(*own)) {
            if !there.iter().any(|one| one.index == index && one.prefix == own) {
                let added = link::add_address(&self.device, own)
                    .with_context(|| format!("cannot give {} to {}", own.addr, self.device));
                lost |= first.note(added).is_some();
            }
        }
        lost
    }

    /// Restores routes to single hosts; returns whether any was missing. It checks only some, or
    /// `all` if other things were removed.
    fn mend_fitted(&mut self, all: bool, first: &mut First) -> bool {
        let after = self.looked_at.filter(|_| !all).map_or(Bound::Unbounded, Bound::Excluded);
        let most = if all { usize::MAX } else { LOOKED_AT };
        let (mut lost, mut seen, mut last) = (false, 0, None);
        for (address, mtu) in self.fitted.range((after, Bound::Unbounded)).take(most) {
            let new = self
                .onto(Prefix::host(*address))
                .and_then(|route| Ok(add_missing_route(&Route { mtu_bytes: Some(*mtu), ..route })?))
                .with_context(|| format!("cannot route {address} by itself"));
            lost |= first.note(new) == Some(true);
            (seen, last) = (seen + 1, Some(*address));
        }
        // After the last, start again at the first.
        self.looked_at = last.filter(|_| seen == most);
        lost
    }

    /// Lets packets of `mtu` bytes at most into a host's tunnel. The kernel tells the senders:
    /// local sockets directly, forwarded sources by ICMP, and a connection's far end through the
    /// announced segment size.
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
    /// `None` lifts the limit.
    pub fn fit(&mut self, address: IpAddr, mtu: Option<u32>, device: u32) -> anyhow::Result<()> {
        let least = LEAST_MTU[usize::from(address.is_ipv6())];
        let mtu = mtu.map(|mtu| mtu.max(least)).filter(|mtu| *mtu < device);
        if self.fitted.get(&address).copied() == mtu {
            return Ok(());
        }
        let route = Route { mtu_bytes: mtu, ..self.onto(Prefix::host(address))? };
        match mtu {
            Some(mtu) => {
                // `look_after` retries a failure.
                self.fitted.insert(address, mtu);
                replace_route(&route)
                    .with_context(|| format!("cannot route {address} by itself"))?;
            }
            None => {
                self.fitted.remove(&address);
                match delete_route(&route) {
                    Err(error) if link::is_gone(&error) => {}
                    deleted => deleted
                        .with_context(|| format!("cannot take the route to {address} back"))?,
                }
            }
        }
        Ok(())
    }

    /// Sets the anchor's inner addresses, routes the pools into the tunnel and allows forwarding
    /// into and out of it.
    pub fn set_anchor(&mut self, own: &[IpAddr], pools: &[Prefix]) -> anyhow::Result<()> {
        self.set_addresses(own)?;
        self.routes = pools.to_vec();
        self.set_routes()?;
        self.forwarding = Some(Forwarding::start(&self.device, pools)?);
        Ok(())
    }

    /// Skips a family that the system has switched off.
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
        if !self.rules.is_empty() && self.closed.is_none() {
            remove_rules(self.number);
        }
    }
}

/// Unmarked packets use the main table, except for its default routes.
fn main_rules(number: Number) -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(move |v6| Rule {
        v6,
        priority: number.priority(),
        table: MAIN_TABLE,
        suppress_prefix_length: Some(0),
        ..Rule::default()
    })
}

/// Then they use the tunnel's table.
fn tunnel_rules(number: Number) -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(move |v6| Rule {
        v6,
        priority: number.priority() + 1,
        table: number.table(),
        fwmark: Some(MARK),
        invert: true,
        ..Rule::default()
    })
}

fn host_rules(number: Number) -> impl Iterator<Item = Rule> {
    main_rules(number).chain(tunnel_rules(number))
}

/// Priorities of the rules that close IPv6 for sockets bound to an interface: what passes, what
/// does not, and where the lookup continues.
fn closing_priorities(number: Number) -> [u32; 3] {
    [2, 3, 4].map(|n| number.priority() + n)
}

/// Then the rules that close IPv6 for these destinations. Marked packets pass, and so do packets to
/// a neighbour's link-local address, which no route can divert.
fn closing_rules(number: Number, routes: &[Prefix]) -> Vec<Rule> {
    let [passes, refuses, on] = closing_priorities(number);
    let closed = routes.iter().filter(|route| route.addr.is_ipv6());
    // Compare with what the kernel has.
    let closed: Vec<Prefix> = closed.map(Prefix::network).flat_map(halves).collect();
    if closed.is_empty() {
        return Vec::new();
    }
    let link_local = Prefix::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    let pass = Rule { v6: true, priority: passes, then: Then::Goto(on), ..Rule::default() };
    let mut all = vec![
        Rule { priority: on, then: Then::Nothing, ..pass.clone() },
        Rule { fwmark: Some(MARK), ..pass.clone() },
        Rule { to: Some(link_local), ..pass.clone() },
    ];
    all.extend(closed.into_iter().map(|route| Rule {
        priority: refuses,
        to: Some(route),
        then: Then::Unreachable,
        ..pass.clone()
    }));
    all
}

/// Splits a prefix of every destination: the kernel takes such a rule for a duplicate of one that
/// exists for some, and refuses it.
fn halves(route: Prefix) -> Vec<Prefix> {
    if route.len > 0 {
        return vec![route];
    }
    [0, 0x8000].map(|first| Prefix::new(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), 1)).into()
}

/// Whether the host daemon of this number sets such rules.
fn is_of(number: Number, rule: &Rule) -> bool {
    let is_closing = closing_priorities(number).contains(&rule.priority);
    let closes = rule.v6 && is_closing && rule.then != Then::Lookup;
    closes || number.has_source(rule) || host_rules(number).any(|one| one == *rule)
}

/// The numbers of host daemons that have left rules or closed routes, running or not.
pub fn numbers() -> Vec<Number> {
    let (rules, closed) =
        (rules().unwrap_or_default(), unreachables(LAST_METRIC).unwrap_or_default());
    let has = |number: &Number| {
        rules.iter().any(|rule| is_of(*number, rule))
            || closed.iter().any(|route| route.table == number.table())
    };
    Number::all().filter(has).collect()
}

/// The number of rules set by a host daemon.
pub fn count_rules(number: Number) -> usize {
    rules().unwrap_or_default().iter().filter(|rule| is_of(number, rule)).count()
}

/// Removes every rule set by a host daemon; returns how many there were.
pub fn remove_rules(number: Number) -> usize {
    remove(rules().unwrap_or_default().iter().filter(|rule| is_of(number, rule)))
}

fn remove<'a>(rules: impl Iterator<Item = &'a Rule>) -> usize {
    let told = |rule| delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok();
    rules.filter(|rule| told(rule)).count()
}

/// Whether this network namespace has no IPv6 at all.
fn is_without_ipv6() -> bool {
    !Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// Whether the kernel lacks the family: rules and routes fail with different errors.
fn is_no_family(error: &LinuxError) -> bool {
    matches!(error.errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP))
}

/// Removes the unreachable routes of a host that failed closed; returns how many there were.
pub fn remove_unreachable(number: Number) -> usize {
    remove_unreachable_but(number, &[])
}

/// The destinations that the host daemon of this number has closed.
fn closed_by(number: Number) -> segue_linux::error::Result<Vec<Prefix>> {
    let own = unreachables(LAST_METRIC)?.into_iter().filter(|route| route.table == number.table());
    Ok(own.map(|route| route.destination).collect())
}

fn remove_unreachable_but(number: Number, wanted: &[Prefix]) -> usize {
    let is_wanted = |old: &Prefix| wanted.iter().any(|prefix| prefix.network() == *old);
    let closed = closed_by(number).unwrap_or_default();
    let opened = |prefix: &Prefix| {
        let opened = delete_unreachable(*prefix, number.table(), LAST_METRIC);
        opened.inspect_err(|error| warn!("{error}")).is_ok()
    };
    closed.iter().filter(|old| !is_wanted(old)).filter(|old| opened(old)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    use segue_linux::netns::Netns;

    /// Runs `test` in its own namespace.
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
        let mut all = closed_by(Number::of("segue0")).unwrap();
        all.sort_by_key(|prefix| (prefix.addr, prefix.len));
        all
    }

    #[test]
    fn what_an_earlier_run_closed_and_this_one_does_not_want_is_opened() {
        alone("closed", || {
            // As after a crash: dropping a closed host's routing removes nothing.
            let everything = prefixes(&["0.0.0.0/0", "10.0.0.0/9", "::/0", "fd07::/16"]);
            Routing::at_closed_host("segue0", &everything).unwrap();
            assert_eq!(closed(), everything);
            // The operator may leave host bits set.
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
