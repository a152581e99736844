//! Identification of hosts by the driver, which learns in turn how long each host is served.

use segue_clock::Time;
use segue_clock::planted::fault;
use segue_ip::Output;

use super::Mag;
use super::config::Identity;
use super::io::Wish;
use super::state::{Event, Next, StationState};
use super::station::Place;
use crate::news::Why;

impl Mag {
    /// Handles the driver's answer: the identity of a host, or `None` if it must not be served.
    pub(super) fn identified(&mut self, now: Time, place: Place, identity: Option<Identity>) {
        let Some(at) = self.stations.get_mut(&place) else { return };
        if at.state != StationState::Identifying {
            // The host was identified before. Stop the service if it has another identity now.
            let node = |identity: &Option<Identity>| identity.as_ref().map(|i| i.node.clone());
            if node(&identity) != node(&at.identity) && !fault(59) {
                self.detach(now, &place, Why::Unauthorized);
            }
            return;
        }
        // Both ends of a tunnel must be of the same address family.
        let coa = self.config.accesses[at.access].proxy_coa;
        let fits = |identity: &Identity| {
            identity.anchor.is_none_or(|anchor| anchor.is_ipv4() == coa.is_ipv4())
        };
        let identity = identity.filter(fits);
        let event = if identity.is_some() { Event::Identified } else { Event::Refused };
        match at.state.next(event) {
            Next::To(state) => {
                (at.state, at.identity) = (state, identity);
                at.identified = Some(now);
                self.know(&place);
            }
            Next::Gone => {
                self.forget(&place);
                return;
            }
            Next::Same => return,
        }
        self.reach(now, &place);
        self.send_update(now, &place);
    }

    /// Tells the driver, if it identifies hosts, that a station is served.
    pub(super) fn tell_beginning(&mut self, (interface, station): &Place) {
        if self.config.identities.is_none() {
            let (interface, station) = (*interface, station.clone());
            self.out.push_back(Output::Own(Wish::Began { interface, station }));
        }
    }

    /// Tells the driver, if it identifies hosts, that a station is no longer served.
    pub(super) fn tell_end(&mut self, (interface, station): &Place, why: Why) {
        if self.config.identities.is_none() {
            let (interface, station) = (*interface, station.clone());
            self.out.push_back(Output::Own(Wish::Ended { interface, station, why }));
        }
    }
}
