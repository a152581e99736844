//! The addresses, routes and rules that a host sets up around its tunnel device: they send traffic into the tunnel, and
//! the daemon's own outer packets around it. [`Kept`] maintains them.
//!
//! The rules follow WireGuard's pattern: traffic without the daemon's mark uses the tunnel's table, unless the main
//! table has a route better than a default route. Neighbours on the link therefore stay reachable directly. Addresses
//! and routes vanish with the device; the next start removes rules that a crash left. Rules of other programs' tunnels
//! go first ([`rivals`](crate::rivals)).
//!
//! A host that fails closed does not consult the main table first: an attacker who answers its DHCP requests could put
//! better routes there. Tunnel destinations are unreachable whenever the tunnel's table has no device for them. For
//! IPv6 sockets bound to an interface the kernel skips unreachable routes, so rules make the same destinations
//! unreachable again. All of this survives the process; a regular shutdown or `segue clean` removes it.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use anyhow::Context;
use nix::errno::Errno;
use segue_ip::{Forward, Forwarding, MAIN_TABLE, Prefix, Route, Rule, Then};
use segue_linux::link;
use segue_linux::route::{delete_rule, rules, unreachables};
use segue_linux::{Kernel, LinuxError};
use segue_text::errors::{First, Told};
use tracing::{debug, warn};

use super::kept::Kept;
use super::number::{Claim, Number};
use super::packets::MARK;
use super::rivals::{PROTOCOL, Place, Rival};

/// Smallest MTU of a route that the kernel accepts, over IPv4 and IPv6.
pub(crate) const LEAST_MTU: [u32; 2] = [576, 1_280];
/// Metric of the unreachable routes: any other route is better.
pub(crate) const LAST_METRIC: u32 = u32::MAX - 1;

/// The addresses, routes and rules of a host.
pub(crate) struct Routing {
    device: String,
    number: Number,
    /// Reserves the number: no other host has it.
    _claim: Claim,
    addresses: Vec<IpAddr>,
    /// Destinations that use the tunnel.
    destinations: Vec<Prefix>,
    /// The host fails closed.
    closed: bool,
    /// The rule priority chosen by the operator.
    chosen: Option<u32>,
    /// The position of the rules among those of other programs.
    place: Place,
    /// MTU of IPv4 routes, if it is below the minimum MTU that IPv6 demands of the device.
    mtu_v4: Option<u32>,
}

impl Routing {
    /// Sets up nothing yet; removes what an earlier run left behind.
    pub(crate) fn open(device: &str, priority: Option<u32>) -> anyhow::Result<Routing> {
        let routing = Routing::new(device, false, priority)?;
        remove_rules(routing.number);
        remove_unreachable(routing.number);
        Ok(routing)
    }

    /// The same for a host that fails closed: from here on, traffic to `destinations` leaves only through the tunnel.
    /// Closed routes and rules of an earlier run stay in force throughout.
    pub(crate) fn closed(
        kept: &mut Kept,
        device: &str,
        destinations: &[Prefix],
        priority: Option<u32>,
    ) -> anyhow::Result<Routing> {
        let routing = Routing::new(device, true, priority)?;
        let (number, place) = (routing.number, routing.place);
        for destination in destinations {
            let part = Forward::Route(closing_route(number, *destination));
            match kept.put_lasting(part.clone()) {
                // A system without IPv6 has nothing to close.
                Err(error) if destination.addr.is_ipv6() && is_no_family(&error) => {
                    warn!("{error}");
                    kept.forget(&part);
                }
                put => put.context("fail_closed: the routes cannot be closed")?,
            }
        }
        let present = rules().context("fail_closed: the routing rules cannot be read")?;
        let wanted: Vec<Rule> =
            tunnel_rules(number, place).chain(closing_rules(place, destinations)).collect();
        for rule in &wanted {
            let part = Forward::Rule(rule.clone());
            match kept.put_lasting(part.clone()) {
                // If only IPv6 rules are unsupported, the routes alone do not close the host.
                Err(error) if rule.v6 && is_no_family(&error) && is_without_ipv6() => {
                    warn!("{error}");
                    kept.forget(&part);
                }
                put => put.context("fail_closed: cannot add the tunnel's routing rules")?,
            }
        }
        remove(own_rules(number, &present).into_iter().filter(|rule| !wanted.contains(rule)));
        remove_unreachable_but(number, destinations);
        Ok(routing)
    }

    fn new(device: &str, closed: bool, chosen: Option<u32>) -> anyhow::Result<Routing> {
        let number = Number::of(device);
        let place = Place::of(number, chosen, closed, &[]);
        Ok(Routing {
            chosen,
            place,
            device: device.to_owned(),
            number,
            _claim: number.claim()?,
            addresses: Vec::new(),
            destinations: Vec::new(),
            closed,
            mtu_v4: None,
        })
    }

    /// Opens a closed host again, at a regular shutdown.
    pub(crate) fn end(&self, kept: &mut Kept) {
        if self.closed {
            kept.forget_lasting();
            remove_rules(self.number);
            remove_unreachable(self.number);
        }
    }

    /// Sets the inner addresses, and sends traffic to these destinations, and no others, through the tunnel.
    pub(crate) fn set(
        &mut self,
        kept: &mut Kept,
        inner: &[IpAddr],
        destinations: &[Prefix],
    ) -> anyhow::Result<()> {
        let before = self.routes()?;
        let had = self.addresses.clone();
        if inner.iter().any(IpAddr::is_ipv6)
            && let Err(error) = link::enable_ipv6(&self.device)
        {
            debug!("{error}");
        }
        set_addresses(kept, &self.device, &mut self.addresses, inner)?;
        self.destinations = destinations.to_vec();
        let now = self.routes()?;
        let stays = |old: &Route| now.iter().any(|new| new.destination == old.destination);
        for old in before.into_iter().filter(|old| !stays(old)) {
            kept.take_back(&Forward::Route(old))?;
        }
        put_routes(kept, now)?;
        let sources: Vec<Rule> = self.number.sources(inner).collect();
        for rule in self.number.sources(&had).filter(|rule| !sources.contains(rule)) {
            kept.take_back(&Forward::Rule(rule))?;
        }
        let ways = if self.closed { Vec::new() } else { self.rules() };
        put_rules(kept, ways.into_iter().chain(sources))
    }

    /// The rules of a host that does not fail closed.
    fn rules(&self) -> Vec<Rule> {
        main_rules(self.place).chain(tunnel_rules(self.number, self.place)).collect()
    }

    /// Moves the rules behind those of other programs' tunnels, or back, unless the operator chose the priority or the
    /// host fails closed. Returns their position.
    pub(crate) fn make_way(&mut self, kept: &mut Kept, rivals: &[Rival]) -> anyhow::Result<Place> {
        let place = Place::of(self.number, self.chosen, self.closed, rivals);
        if place != self.place {
            let old = self.rules();
            self.place = place;
            if !self.addresses.is_empty() {
                let new = self.rules();
                put_rules(kept, new.iter().cloned())?;
                for rule in old.into_iter().filter(|rule| !new.contains(rule)) {
                    kept.take_back(&Forward::Rule(rule))?;
                }
            }
        }
        Ok(place)
    }

    /// The routes into the tunnel, for the address families in which it has an address.
    fn routes(&self) -> anyhow::Result<Vec<Route>> {
        if self.addresses.is_empty() {
            return Ok(Vec::new());
        }
        let index = link::index_of(&self.device)?;
        let route = |destination: &Prefix| {
            let v4 = destination.addr.is_ipv4();
            let source = self.addresses.iter().find(|own| own.is_ipv4() == v4)?;
            Some(Route {
                source: Some(*source),
                mtu_bytes: self.mtu_v4.filter(|_| v4),
                ..Route::on(*destination, index).table(self.number.table())
            })
        };
        Ok(self.destinations.iter().filter_map(route).collect())
    }

    /// Limits packets into the tunnel to `mtu` bytes. The kernel informs the senders: local sockets directly, forwarded
    /// sources by ICMP, and the far end of a TCP connection through the announced segment size.
    pub(crate) fn set_mtu(&mut self, kept: &mut Kept, mtu: u32) -> anyhow::Result<()> {
        let device = mtu.max(LEAST_MTU[1]);
        link::set_mtu(&self.device, device)
            .with_context(|| format!("cannot set the MTU of {} to {device}", self.device))?;
        let mtu_v4 = Some(mtu.max(LEAST_MTU[0])).filter(|mtu| *mtu < device);
        if mtu_v4 != self.mtu_v4 {
            self.mtu_v4 = mtu_v4;
            put_routes(kept, self.routes()?)?;
        }
        Ok(())
    }
}

/// Adds the rules of each family that the system supports.
fn put_rules(kept: &mut Kept, rules: impl IntoIterator<Item = Rule>) -> anyhow::Result<()> {
    let without_ipv6 = is_without_ipv6();
    for rule in rules.into_iter().filter(|rule| !rule.v6 || !without_ipv6) {
        let put = kept.put(Forward::Rule(rule));
        put.context("cannot add the tunnel's routing rules")?;
    }
    Ok(())
}

/// Adds each route, even if another fails.
pub(crate) fn put_routes(
    kept: &mut Kept,
    routes: impl IntoIterator<Item = Route>,
) -> anyhow::Result<()> {
    let mut first = First::default();
    for route in routes {
        let put = kept.put(Forward::Route(route));
        first.note(
            put.with_context(|| format!("cannot route {} into the tunnel", route.destination)),
        );
    }
    first.result()
}

/// Sets the inner addresses of a device, and removes others. Skips a family that the system has switched off.
pub(crate) fn set_addresses(
    kept: &mut Kept,
    device: &str,
    current: &mut Vec<IpAddr>,
    wanted: &[IpAddr],
) -> anyhow::Result<()> {
    let interface = link::index_of(device)?;
    let part = |address: &IpAddr| Forward::Address { interface, prefix: Prefix::host(*address) };
    for old in current.extract_if(.., |old| !wanted.contains(old)) {
        if let Err(error) = kept.take_back(&part(&old)) {
            warn!("{error}");
        }
    }
    let mut refused = None;
    for new in wanted.iter().filter(|new| !current.contains(new)).copied().collect::<Vec<_>>() {
        match kept.put(part(&new)).with_context(|| format!("cannot give {new} to {device}")) {
            Ok(()) => current.push(new),
            Err(error) => {
                warn!("{}", Told(&error));
                kept.forget(&part(&new));
                refused = Some(error);
            }
        }
    }
    match refused {
        Some(error) if current.is_empty() => Err(error),
        _ => Ok(()),
    }
}

/// Makes a destination unreachable while the tunnel's table has no other route to it.
fn closing_route(number: Number, destination: Prefix) -> Route {
    Route::unreachable(destination).table(number.table()).metric(LAST_METRIC)
}

/// Rules by which unmarked packets use the main table, except for its default routes.
fn main_rules(place: Place) -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(move |v6| Rule {
        v6,
        priority: place.main,
        table: MAIN_TABLE,
        suppress_prefix_length: Some(0),
        protocol: PROTOCOL,
        ..Rule::default()
    })
}

/// Rules by which the remaining unmarked packets use the tunnel's table.
fn tunnel_rules(number: Number, place: Place) -> impl Iterator<Item = Rule> {
    [false, true].into_iter().map(move |v6| Rule {
        v6,
        priority: place.tunnel,
        table: number.table(),
        fwmark: Some(MARK),
        invert: true,
        protocol: PROTOCOL,
        ..Rule::default()
    })
}

/// Priorities of the rules that close IPv6 for sockets bound to an interface: packets that pass, packets that are
/// refused, and the target where the lookup continues.
fn closing_priorities(tunnel: u32) -> [u32; 3] {
    [1, 2, 3].map(|n| tunnel + n)
}

/// The rules that close IPv6 for these destinations. Marked packets pass, and so do packets to a neighbour's link-local
/// address, which no route can divert.
fn closing_rules(place: Place, routes: &[Prefix]) -> Vec<Rule> {
    let [passes, refuses, on] = closing_priorities(place.tunnel);
    let closed = routes.iter().filter(|route| route.addr.is_ipv6());
    // In network form, to match the rules that the kernel lists.
    let closed: Vec<Prefix> = closed.map(Prefix::network).flat_map(halves).collect();
    if closed.is_empty() {
        return Vec::new();
    }
    let link_local = Prefix::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
    let pass = Rule {
        v6: true,
        priority: passes,
        then: Then::Goto(on),
        protocol: PROTOCOL,
        ..Rule::default()
    };
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

/// Splits a prefix that covers every destination: the kernel takes such a rule for a duplicate of an existing rule for
/// some destinations, and refuses it.
fn halves(route: Prefix) -> Vec<Prefix> {
    if route.len > 0 {
        return vec![route];
    }
    [0, 0x8000].map(|first| Prefix::new(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0), 1)).into()
}

/// The rules among `all` that the host daemon of this number has set.
fn own_rules(number: Number, all: &[Rule]) -> Vec<&Rule> {
    let ours = |rule: &&Rule| rule.protocol == PROTOCOL;
    let tunnel = all.iter().filter(ours).filter(|rule| rule.table == number.table());
    let places: Vec<u32> = tunnel.map(|rule| rule.priority).collect();
    // Rules that do not name the host by themselves are also found at their default place if the tunnel's rule is gone.
    let near = |rule: &Rule| match rule.then {
        Then::Lookup => {
            let mut near = places.iter().flat_map(|tunnel| [tunnel - 1, *tunnel]);
            let is_near = rule.priority == number.priority() || near.any(|at| at == rule.priority);
            rule.table == MAIN_TABLE && is_near
        }
        _ => {
            let usual = number.closed_priority() + 1;
            let mut tunnels = places.iter().chain([&usual]);
            rule.v6 && tunnels.any(|tunnel| closing_priorities(*tunnel).contains(&rule.priority))
        }
    };
    let is_own = |rule: &&Rule| {
        let tunnel = rule.table == number.table() && rule.then == Then::Lookup;
        number.has_source(rule) || rule.protocol == PROTOCOL && (tunnel || near(rule))
    };
    all.iter().filter(is_own).collect()
}

/// The numbers of host daemons that have rules or closed routes here, running or not.
pub fn numbers() -> Vec<Number> {
    let (rules, closed) = (rules().unwrap_or_default(), unreachables().unwrap_or_default());
    let has = |number: &Number| {
        !own_rules(*number, &rules).is_empty()
            || closed.iter().any(|route| is_closing(*number, route))
    };
    Number::all().filter(has).collect()
}

/// The number of rules that a host daemon has set.
pub fn count_rules(number: Number) -> usize {
    own_rules(number, &rules().unwrap_or_default()).len()
}

/// Removes every rule that a host daemon has set; returns their number.
pub fn remove_rules(number: Number) -> usize {
    remove(own_rules(number, &rules().unwrap_or_default()).into_iter())
}

/// Removes rules; returns the number removed.
pub(crate) fn remove<'a>(rules: impl Iterator<Item = &'a Rule>) -> usize {
    let told = |rule| delete_rule(rule).inspect_err(|error| warn!("{error}")).is_ok();
    rules.filter(|rule| told(rule)).count()
}

/// Returns whether this network namespace has no IPv6 at all.
fn is_without_ipv6() -> bool {
    !Path::new("/proc/thread-self/net/if_inet6").exists()
}

/// Returns whether the kernel lacks the address family. Rules and routes fail with different errors.
fn is_no_family(error: &LinuxError) -> bool {
    matches!(error.errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP))
}

/// Removes the unreachable routes of a host that failed closed; returns their number.
pub fn remove_unreachable(number: Number) -> usize {
    remove_unreachable_but(number, &[])
}

/// Returns whether the host daemon of this number uses this route to close a destination.
fn is_closing(number: Number, route: &Route) -> bool {
    (route.table, route.metric) == (number.table(), Some(LAST_METRIC))
}

/// The destinations that the host daemon of this number has closed.
fn closed_by(number: Number) -> segue_linux::error::Result<Vec<Prefix>> {
    let own = unreachables()?.into_iter().filter(|route| is_closing(number, route));
    Ok(own.map(|route| route.destination).collect())
}

fn remove_unreachable_but(number: Number, wanted: &[Prefix]) -> usize {
    let is_wanted = |old: &Prefix| wanted.iter().any(|prefix| prefix.network() == *old);
    let closed = closed_by(number).unwrap_or_default();
    let opened = |prefix: &Prefix| {
        let opened = Kernel.take_back(&Forward::Route(closing_route(number, *prefix)));
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

    /// Starts a closed host, and drops it as in a crash.
    fn close(destinations: &[Prefix]) {
        Routing::closed(&mut Kept::default(), "segue0", destinations, None).unwrap();
    }

    fn closed() -> Vec<Prefix> {
        let mut all = closed_by(Number::of("segue0")).unwrap();
        all.sort_by_key(|prefix| (prefix.addr, prefix.len));
        all
    }

    #[test]
    fn what_an_earlier_run_closed_and_this_one_does_not_want_is_opened() {
        alone("closed", || {
            // As after a crash: dropping the routing of a closed host removes nothing.
            let everything = prefixes(&["0.0.0.0/0", "10.0.0.0/9", "::/0", "fd07::/16"]);
            close(&everything);
            assert_eq!(closed(), everything);
            // The operator may leave host bits set.
            let fewer = prefixes(&["10.1.2.3/8", "fd07::1/16"]);
            close(&fewer);
            assert_eq!(closed(), prefixes(&["10.0.0.0/8", "fd07::/16"]));
            let mut kept = Kept::default();
            Routing::closed(&mut kept, "segue0", &everything, None).unwrap().end(&mut kept);
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
