//! Forwarding state of a gateway, by prefix. Stations of one host may share a prefix; one that leaves takes nothing
//! away from another.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Binding as Bind, Exit, Forward, Output, Port, Prefix, Route, Source, Traffic};

use super::Mag;
use super::station::Place;
impl Mag {
    /// Installs the forwarding state that a station needs and withdraws the rest.
    pub(super) fn follow(&mut self, place: &Place) {
        let Some(at) = self.stations.get(place) else { return };
        let served = at.state.is_served() && self.tunnel_of(place).is_some();
        let everything = self.config.forward_all.then(|| Prefix::default_of(true));
        let all = at.prefixes.iter().chain(&at.off_link).copied().chain(everything);
        let wanted = all.filter(|_| served).collect();
        self.carry(place, wanted);
    }

    /// Withdraws all forwarding state of a station.
    pub(super) fn end_service(&mut self, place: &Place) {
        self.carry(place, BTreeSet::new());
    }

    /// Forwards exactly these prefixes for a station.
    fn carry(&mut self, place: &Place, wanted: BTreeSet<Prefix>) {
        let Some(at) = self.stations.get_mut(place) else { return };
        // The link belongs to the host alone (RFC 5213, section 6.3). All its traffic goes to its link-layer address,
        // including traffic to addresses of other interfaces, which a stock host does not resolve here.
        let mac = <[u8; 6]>::try_from(&place.1.0[..]).ok().filter(|_| !wanted.is_empty());
        let neighbour = mac.map(|mac| {
            let (interface, address) = (place.0, next_hop(mac));
            Forward::Neighbour { interface, address, mac }
        });
        let old = core::mem::replace(&mut at.carries, wanted.clone());
        let known = core::mem::replace(&mut at.neighbour, neighbour.clone());
        if known.is_none() {
            self.out.extend(neighbour.iter().cloned().map(Output::Forward));
        }
        for prefix in &wanted {
            self.carried.entry(*prefix).or_default().users.insert(place.clone());
        }
        for prefix in old.difference(&wanted) {
            if let Some(carried) = self.carried.get_mut(prefix) {
                carried.users.remove(place);
            }
        }
        old.union(&wanted).for_each(|prefix| self.lead(*prefix));
        if neighbour.is_none() {
            self.out.extend(known.map(Output::Withdraw));
        }
    }

    /// Routes a prefix to a station that holds it, the newest if there are several; otherwise to one that carries it
    /// for another interface. All these stations may send from it.
    fn lead(&mut self, prefix: Prefix) {
        let Some(carried) = self.carried.get(&prefix) else { return };
        let rank = |place: &&Place| -> Option<(bool, Time)> {
            let at = self.stations.get(*place)?;
            Some((at.prefixes.contains(&prefix), at.since))
        };
        let to = carried.users.iter().max_by_key(rank);
        let links: BTreeSet<u32> = carried.users.iter().map(|(interface, _)| *interface).collect();
        let ports = links.into_iter().map(Port::Link);
        let mut wanted: Vec<Forward> =
            ports.map(|port| Forward::Source(Source { port, prefix })).collect();
        if let Some((place, tunnel)) = to.and_then(|place| Some((place, self.tunnel_of(place)?))) {
            let (traffic, exit) = (Traffic::From(prefix), Exit::Tunnel(tunnel));
            wanted.push(Forward::Bind(Bind { traffic, exit }));
            let mac = <[u8; 6]>::try_from(&place.1.0[..]).ok();
            let route = Route::on(prefix, place.0).table(self.config.table);
            wanted.push(Forward::Route(Route { gateway: mac.map(next_hop), ..route }));
        }
        let given = &carried.given;
        // The kernel refuses a duplicate route, so the old one goes first. A new binding replaces the old one.
        let old = given.iter().rev().filter(|part| !wanted.contains(part));
        let is_bound = wanted.iter().any(|part| matches!(part, Forward::Bind(_)));
        let old = old.filter(|part| !(is_bound && matches!(part, Forward::Bind(_))));
        self.out.extend(old.cloned().map(Output::Withdraw));
        let new = wanted.iter().filter(|part| !given.contains(part));
        self.out.extend(new.cloned().map(Output::Forward));
        if wanted.is_empty() {
            self.carried.remove(&prefix);
        } else if let Some(carried) = self.carried.get_mut(&prefix) {
            carried.given = wanted;
        }
    }
}

/// Next hop to a station: a placeholder, the link-local address derived from its link-layer address (RFC 2464, section
/// 4).
fn next_hop([a, b, c, d, e, f]: [u8; 6]) -> IpAddr {
    IpAddr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
