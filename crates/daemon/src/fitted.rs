//! Fits packets that enter a relay to its tunnels. The kernel's routes into the relay carry the MTU: the kernel then
//! informs senders of packets that are too large, fragments packets that may be fragmented, and lowers TCP's segment
//! sizes.
//!
//! A packet to a prefix may take any tunnel that accepts packets from that prefix, so the smallest of these tunnels
//! decides.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use segue_ip::{Forward, Port, Prefix, Route, Source};

use crate::routing::LEAST_MTU;

/// A route to set (true) or to remove.
pub(crate) type RouteChange = (Forward, bool);

/// Routes into a relay by the sizes of its tunnels.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// The routes that lead into the relay. A route to a single prefix is modelled on the first of its family.
    leads: Vec<Route>,
    /// MTU of the relay's device in bytes.
    device: u32,
    behind: BTreeMap<u32, BTreeSet<Prefix>>,
    tunnels: BTreeMap<Prefix, BTreeSet<u32>>,
    /// Sizes of tunnels that carry less than the device, by tunnel.
    sizes: BTreeMap<u32, u32>,
    routes: BTreeMap<Prefix, u32>,
    /// The size that was last logged for a peer.
    logged: BTreeMap<IpAddr, u32>,
}

impl Fitted {
    /// Nothing leads into the relay yet, and no prefix is behind any tunnel.
    #[must_use]
    pub(crate) fn new(device: u32) -> Fitted {
        Fitted {
            leads: Vec::new(),
            device,
            behind: BTreeMap::new(),
            tunnels: BTreeMap::new(),
            sizes: BTreeMap::new(),
            routes: BTreeMap::new(),
            logged: BTreeMap::new(),
        }
    }

    /// Adds a route that leads into the relay.
    pub(crate) fn lead(&mut self, route: Route) {
        self.leads.push(route);
    }

    /// MTU of the relay's device in bytes.
    #[must_use]
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// A part of the relay's forwarding is installed or removed.
    pub(crate) fn carry(&mut self, part: &Forward, given: bool) -> Vec<RouteChange> {
        match part {
            Forward::Source(Source { port: Port::Tunnel(number), prefix }) => {
                let prefix = prefix.network();
                let (behind, tunnels) = (
                    self.behind.entry(*number).or_default(),
                    self.tunnels.entry(prefix).or_default(),
                );
                if given {
                    behind.insert(prefix);
                    tunnels.insert(*number);
                } else {
                    behind.remove(&prefix);
                    tunnels.remove(number);
                }
                self.fit(prefix).into_iter().collect()
            }
            // The sources of a tunnel are removed with it.
            Forward::Tunnel(tunnel) if !given => {
                self.sizes.remove(&tunnel.number);
                let behind = self.behind.remove(&tunnel.number).unwrap_or_default();
                for prefix in &behind {
                    self.tunnels.entry(*prefix).or_default().remove(&tunnel.number);
                }
                behind.into_iter().filter_map(|prefix| self.fit(prefix)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A tunnel carries inner packets of this size; `None` if unknown.
    pub(crate) fn resize(&mut self, number: u32, bytes: Option<u32>) -> Vec<RouteChange> {
        match bytes.filter(|bytes| *bytes < self.device) {
            Some(bytes) => self.sizes.insert(number, bytes),
            None => self.sizes.remove(&number),
        };
        let behind = self.behind.get(&number).cloned().unwrap_or_default();
        behind.into_iter().filter_map(|prefix| self.fit(prefix)).collect()
    }

    /// Returns whether a tunnel size of this peer should be logged: the first one below the device's MTU, and each
    /// change.
    pub(crate) fn is_news(&mut self, peer: IpAddr, bytes: u32) -> bool {
        let before = self.logged.insert(peer, bytes).unwrap_or(self.device);
        before.min(self.device) != bytes.min(self.device)
    }

    fn fit(&mut self, prefix: Prefix) -> Option<RouteChange> {
        let tunnels = self.tunnels.get(&prefix).cloned().unwrap_or_default();
        if tunnels.is_empty() {
            self.tunnels.remove(&prefix);
        }
        let least = LEAST_MTU[usize::from(prefix.addr.is_ipv6())];
        let smallest = tunnels.iter().filter_map(|number| self.sizes.get(number)).min();
        let wanted = smallest.map(|bytes| (*bytes).max(least)).filter(|bytes| *bytes < self.device);
        if self.routes.get(&prefix).copied() == wanted {
            return None;
        }
        match wanted {
            Some(bytes) => self.routes.insert(prefix, bytes),
            None => self.routes.remove(&prefix),
        };
        let same = |lead: &&Route| lead.destination.network() == prefix;
        let family = |lead: &&Route| lead.destination.addr.is_ipv6() == prefix.addr.is_ipv6();
        let lead = self.leads.iter().find(same).or_else(|| self.leads.iter().find(family))?;
        let is_lead = same(&lead);
        let route = Route { destination: prefix, mtu_bytes: wanted, ..*lead };
        Some((Forward::Route(route), wanted.is_some() || is_lead))
    }
}

#[cfg(test)]
mod tests {
    use segue_ip::{Form, Tunnel};

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn source(number: u32, of: &str) -> Forward {
        Forward::Source(Source { port: Port::Tunnel(number), prefix: prefix(of) })
    }

    /// The sizes of routes to prefixes, and the routes that are removed.
    fn shown(changes: Vec<RouteChange>) -> Vec<(String, Option<u32>, bool)> {
        let each = |(part, given)| match part {
            Forward::Route(Route { destination, mtu_bytes, table: 99, index: 7, .. }) => {
                (destination.to_string(), mtu_bytes, given)
            }
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(each).collect()
    }

    fn fitted(lead: &str) -> Fitted {
        let mut all = Fitted::new(1_452);
        all.lead(Route::on(prefix(lead), 7).table(99));
        all
    }

    fn set(of: &str, bytes: u32) -> (String, Option<u32>, bool) {
        (of.to_owned(), Some(bytes), true)
    }

    #[test]
    fn a_prefix_takes_what_the_smallest_of_its_tunnels_takes() {
        let (mut all, host) = (fitted("2001:db8::/48"), "2001:db8:0:1::/64");
        assert_eq!(shown(all.carry(&source(1, host), true)), []);
        assert_eq!(shown(all.resize(1, Some(1_460))), [], "the device takes less");
        assert_eq!(shown(all.resize(1, Some(1_360))), [set(host, 1_360)]);
        assert_eq!(shown(all.resize(2, Some(1_320))), []);
        assert_eq!(shown(all.carry(&source(2, host), true)), [set(host, 1_320)]);
        assert_eq!(shown(all.carry(&source(2, host), false)), [set(host, 1_360)]);
        assert_eq!(shown(all.resize(1, Some(900))), [set(host, 1_280)], "IPv6 has no less");
        assert_eq!(shown(all.resize(1, None)), [(host.to_owned(), None, false)]);
        assert_eq!(shown(all.resize(1, Some(1_400))), [set(host, 1_400)]);
        let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|a| a.parse().unwrap());
        let tunnel = Tunnel { number: 1, local, remote, interface: None, form: Form::Ip };
        let gone = all.carry(&Forward::Tunnel(tunnel), false);
        assert_eq!(shown(gone), [(host.to_owned(), None, false)]);
        assert!(all.behind.values().all(BTreeSet::is_empty) && all.tunnels.is_empty());
    }

    #[test]
    fn the_route_into_the_relay_itself_stays() {
        let mut all = fitted("::/0");
        all.carry(&source(1, "::/0"), true);
        assert_eq!(shown(all.resize(1, Some(1_360))), [set("::/0", 1_360)]);
        assert_eq!(shown(all.resize(1, Some(1_460))), [("::/0".to_owned(), None, true)]);
    }

    #[test]
    fn each_size_of_a_peer_is_logged_once() {
        let mut all = fitted("::/0");
        let peer = "2001:db8::2".parse().unwrap();
        let news = [1_460, 1_452, 1_360, 1_360, 1_460].map(|bytes| all.is_news(peer, bytes));
        assert_eq!(news, [false, false, true, false, true]);
    }
}
