//! Keeps the kernel's routes, rules and addresses as the daemon wants them: installs them, restores them when others
//! have removed them, and removes them at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

use nix::errno::Errno;
use segue_clock::Time;
use segue_ip::{Forward, Forwarding, Prefix, Route, Rule};
use segue_linux::route::{add_missing_route, add_missing_rule, replace_route, rules};
use segue_linux::{Kernel, LinuxError, link, neighbour};
use segue_text::errors::{First, Told};
use tracing::warn;

use crate::seldom::Seldom;

/// Routes to single hosts checked at a time: there may be many, and none is urgent.
const LOOKED_AT: usize = 64;

/// The parts of forwarding that a daemon has installed in the kernel. Dropping this removes them.
///
/// A part that the kernel refuses is kept too, and tried again later.
#[derive(Default)]
pub struct Kept {
    addresses: Vec<(u32, Prefix)>,
    rules: Vec<Rule>,
    routes: BTreeMap<Place, Route>,
    proxies: BTreeSet<(u32, IpAddr)>,
    neighbours: BTreeMap<(u32, IpAddr), [u8; 6]>,
    /// The parts that remain when this is dropped.
    lasting: Vec<Forward>,
    /// The route to a single host at which the last check ended.
    looked_at: Option<Place>,
    /// Rate-limits the log lines about parts that others have removed.
    told: Seldom,
}

/// The identity of a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Routes to single hosts, and to networks small enough for one host, sort last.
    single: bool,
    table: u32,
    destination: Prefix,
    metric: Option<u32>,
}

impl Place {
    fn of(route: &Route) -> Place {
        let Route { destination, table, metric, .. } = *route;
        let single = destination.is_host() || destination.addr.is_ipv6() && destination.len >= 64;
        Place { single, table, destination: destination.network(), metric }
    }
}

impl Kept {
    /// Installs a part in the kernel.
    pub fn put(&mut self, part: Forward) -> Result<(), LinuxError> {
        let done = Kernel.put(&part);
        match part {
            Forward::Address { interface, prefix } => {
                if !self.addresses.contains(&(interface, prefix)) {
                    self.addresses.push((interface, prefix));
                }
            }
            Forward::Rule(rule) => {
                if !self.rules.contains(&rule) {
                    self.rules.push(rule);
                }
            }
            Forward::Route(route) => {
                self.routes.insert(Place::of(&route), route);
            }
            Forward::Proxy { interface, address } => {
                self.proxies.insert((interface, address));
            }
            Forward::Neighbour { interface, address, mac } => {
                self.neighbours.insert((interface, address), mac);
            }
            // No other program removes parts of a packet path.
            Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_) => {}
        }
        done
    }

    /// Installs a part that remains when this is dropped. The caller has to remove it.
    pub fn put_lasting(&mut self, part: Forward) -> Result<(), LinuxError> {
        if !self.lasting.contains(&part) {
            self.lasting.push(part.clone());
        }
        self.put(part)
    }

    /// Removes a part.
    pub fn take_back(&mut self, part: &Forward) -> Result<(), LinuxError> {
        self.forget(part);
        Kernel.take_back(part)
    }

    /// Stops maintaining a part, and leaves it in place.
    pub fn forget(&mut self, part: &Forward) {
        match part {
            Forward::Address { interface, prefix } => {
                self.addresses.retain(|known| *known != (*interface, *prefix));
            }
            Forward::Rule(rule) => self.rules.retain(|known| known != rule),
            Forward::Route(route) => drop(self.routes.remove(&Place::of(route))),
            Forward::Proxy { interface, address } => {
                self.proxies.remove(&(*interface, *address));
            }
            Forward::Neighbour { interface, address, .. } => {
                self.neighbours.remove(&(*interface, *address));
            }
            Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_) => {}
        }
        self.lasting.retain(|known| known != part);
    }

    /// Stops maintaining all lasting parts, and leaves them in place.
    pub fn forget_lasting(&mut self) {
        std::mem::take(&mut self.lasting).iter().for_each(|part| self.forget(part));
    }

    /// Restores parts that others have removed, and logs it: network managers remove foreign rules and routes, an
    /// operator flushes a table, a device that was briefly down has lost its IPv6 addresses.
    pub fn look_after(&mut self, now: Time) {
        let (mut first, mut back) = (First::default(), Vec::new());
        self.mend(&mut first, &mut back);
        if !back.is_empty() {
            let line =
                format!("somebody removed {} that this daemon had set: put back", back.join(", "));
            self.tell(now, line);
        }
        if let Err(error) = first.result() {
            let down = error.downcast_ref::<LinuxError>().and_then(LinuxError::errno)
                == Some(Errno::ENETDOWN);
            match down.then(|| self.switched_off()).flatten() {
                Some(device) => self.tell(
                    now,
                    format!(
                        "{device} is switched off, so that nothing leaves over it: ip link set {device} up"
                    ),
                ),
                None => self.tell(now, Told(&error).to_string()),
            }
        }
    }

    fn tell(&mut self, now: Time, line: String) {
        if self.told.is_due(now, &line) {
            warn!("{line}");
        }
    }

    /// The name of an interface that has routes of ours and is down.
    fn switched_off(&self) -> Option<String> {
        let is_used = |index: u32| self.routes.values().any(|route| route.index == index);
        let all = link::links().ok()?;
        all.into_iter().find(|link| !link.up && is_used(link.index)).map(|link| link.name)
    }

    /// Restores missing parts; a failure does not stop the others. Adds the restored kinds to `back`.
    fn mend(&mut self, first: &mut First, back: &mut Vec<&'static str>) {
        if self.mend_rules(first) {
            back.push("routing rules");
        }
        if self.mend_proxies(first) {
            back.push("addresses that it answers for");
        }
        if self.mend_neighbours(first) {
            back.push("neighbours");
        }
        let addresses = self.mend_addresses(first);
        if addresses {
            back.push("addresses");
            // When an address is removed, the kernel drops it as the source of routes; with the last address of a
            // family, it removes all of the family's routes.
            for route in self.routes.values() {
                first.note(replace_route(route));
            }
            return;
        }
        let general = self.routes.range(..).take_while(|(place, _)| !place.single);
        let mut lost = false;
        for (_, route) in general {
            lost |= first.note(add_missing_route(route)) == Some(true);
        }
        if self.mend_single(lost, first) || lost {
            back.push("routes");
        }
    }

    fn mend_rules(&self, first: &mut First) -> bool {
        let present = if self.rules.is_empty() { Some(Vec::new()) } else { first.note(rules()) };
        let Some(present) = present else { return false };
        let mut lost = false;
        for rule in self.rules.iter().filter(|rule| !present.contains(rule)) {
            lost |= first.note(add_missing_rule(rule)) == Some(true);
        }
        lost
    }

    fn mend_proxies(&self, first: &mut First) -> bool {
        let there = if self.proxies.is_empty() { None } else { first.note(neighbour::proxies()) };
        let Some(there) = there else { return false };
        let there: BTreeSet<(u32, IpAddr)> = there.into_iter().collect();
        let mut lost = false;
        for (interface, address) in self.proxies.difference(&there).copied() {
            lost |= first.note(Kernel.put(&Forward::Proxy { interface, address })).is_some();
        }
        lost
    }

    fn mend_neighbours(&self, first: &mut First) -> bool {
        if self.neighbours.is_empty() {
            return false;
        }
        let Some(there) = first.note(neighbour::known_ones()) else { return false };
        let there: BTreeSet<(u32, IpAddr)> = there.into_iter().collect();
        let mut lost = false;
        for (place, mac) in self.neighbours.iter().filter(|(place, _)| !there.contains(place)) {
            let (interface, address) = *place;
            let part = Forward::Neighbour { interface, address, mac: *mac };
            lost |= first.note(Kernel.put(&part)).is_some();
        }
        lost
    }

    fn mend_addresses(&self, first: &mut First) -> bool {
        if self.addresses.is_empty() {
            return false;
        }
        let Some(there) = first.note(link::addresses()) else { return false };
        let is_there =
            |own: &(u32, Prefix)| there.iter().any(|one| (one.index, one.prefix) == *own);
        let mut lost = false;
        for (interface, prefix) in self.addresses.iter().copied().filter(|own| !is_there(own)) {
            lost |= first.note(Kernel.put(&Forward::Address { interface, prefix })).is_some();
        }
        lost
    }

    /// Checks routes to single hosts, either the next [`LOOKED_AT`] or `all`.
    fn mend_single(&mut self, all: bool, first: &mut First) -> bool {
        let begin =
            Place { single: true, table: 0, destination: Prefix::default_of(false), metric: None };
        let after = self.looked_at.filter(|_| !all);
        let after = after.map_or(Bound::Included(begin), Bound::Excluded);
        let most = if all { usize::MAX } else { LOOKED_AT };
        let (mut lost, mut seen, mut last) = (false, 0, None);
        for (place, route) in self.routes.range((after, Bound::Unbounded)).take(most) {
            lost |= first.note(add_missing_route(route)) == Some(true);
            (seen, last) = (seen + 1, Some(*place));
        }
        // After the last route, start again at the first.
        self.looked_at = last.filter(|_| seen == most);
        lost
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.forget_lasting();
        let routes = std::mem::take(&mut self.routes).into_values().map(Forward::Route);
        let rules = std::mem::take(&mut self.rules).into_iter().rev().map(Forward::Rule);
        let addresses = std::mem::take(&mut self.addresses).into_iter();
        let addresses = addresses.map(|(interface, prefix)| Forward::Address { interface, prefix });
        let proxies = std::mem::take(&mut self.proxies).into_iter();
        let proxies = proxies.map(|(interface, address)| Forward::Proxy { interface, address });
        let neighbours = std::mem::take(&mut self.neighbours).into_iter();
        let neighbours = neighbours.map(|((interface, address), mac)| Forward::Neighbour {
            interface,
            address,
            mac,
        });
        for part in proxies.chain(rules).chain(routes).chain(neighbours).chain(addresses) {
            if let Err(error) = Kernel.take_back(&part) {
                warn!("{error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use segue_linux::clock::monotonic;

    use super::*;

    #[test]
    fn addresses_that_it_answers_for_come_back_when_others_remove_them_and_go_at_the_end() {
        // The namespace lives and dies with this thread.
        let thread = std::thread::spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                println!("skipped: a new network namespace needs root");
                return;
            }
            link::create_veth("sgk0", "sgk1", None).unwrap();
            link::set_up("sgk0", true).unwrap();
            let index = link::index_of("sgk0").unwrap();
            let proxies: [(u32, IpAddr); 2] =
                ["fd61::7", "10.61.0.7"].map(|address| (index, address.parse().unwrap()));
            let there = || BTreeSet::from_iter(neighbour::proxies().unwrap());
            let mut kept = Kept::default();
            for (interface, address) in proxies {
                kept.put(Forward::Proxy { interface, address }).unwrap();
            }
            assert_eq!(there(), proxies.into());
            // A device that was briefly down has lost them.
            link::set_up("sgk0", false).unwrap();
            link::set_up("sgk0", true).unwrap();
            assert!(there().is_empty());
            kept.look_after(monotonic());
            assert_eq!(there(), proxies.into());
            let (interface, address) = proxies[0];
            kept.take_back(&Forward::Proxy { interface, address }).unwrap();
            kept.look_after(monotonic());
            assert_eq!(there(), [proxies[1]].into());
            drop(kept);
            assert!(there().is_empty());
        });
        thread.join().unwrap();
    }
}
