//! What a gateway carries: of each prefix, whose it is here, and what the node was given for it. Stations of one host may have
//! a prefix together, and one that leaves takes nothing from another.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;
use segue_ip::{Binding as Bind, Exit, Forward, Output, Port, Prefix, Route, Source, Traffic};

use super::Mag;
use super::station::Place;
impl Mag {
    /// Gives the node what a station needs now, and takes back what it needs no longer.
    pub(super) fn follow(&mut self, place: &Place) {
        let Some(at) = self.stations.get(place) else { return };
        let served = at.state.is_served() && self.tunnel_of(place).is_some();
        let everything = self.config.forward_all.then(|| Prefix::default_of(true));
        let all = at.prefixes.iter().chain(&at.off_link).copied().chain(everything);
        let wanted = all.filter(|_| served).collect();
        self.carry(place, wanted);
    }

    /// Carries nothing more for a station.
    pub(super) fn end_service(&mut self, place: &Place) {
        self.carry(place, BTreeSet::new());
    }

    /// Carries these prefixes for a station, and no others.
    fn carry(&mut self, place: &Place, wanted: BTreeSet<Prefix>) {
        let Some(at) = self.stations.get_mut(place) else { return };
        // The link is the host's alone (RFC 5213, 6.3): all that is for it goes to its link-layer address, also what is for an
        // address of another interface, which a stock host does not resolve here.
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

    /// Leads a prefix to the station that has it, the newest if there are several, or else to one that has it as another
    /// interface's; and lets all that have it send from it.
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
        // A route is not there twice: the old one goes first. A binding takes the place of the one before.
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

/// The next hop to a station, one in name only: the address of link scope that its link-layer address gives (RFC 2464,
/// section 4).
fn next_hop([a, b, c, d, e, f]: [u8; 6]) -> IpAddr {
    IpAddr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
