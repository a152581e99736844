//! Who hosts are, where the driver says it: it is asked, and told how long each is served.

use segue_clock::Time;
use segue_ip::Output;

use super::Mag;
use super::config::Identity;
use super::io::Wish;
use super::state::{Event, Next, StationState};
use super::station::Place;
use crate::news::Why;

impl Mag {
    /// It is known who a host is, or that it may not be served.
    pub(super) fn identified(&mut self, now: Time, place: Place, identity: Option<Identity>) {
        let Some(at) = self.stations.get_mut(&place) else { return };
        if at.state != StationState::Identifying {
            // It was known before. Whoever is another one now is not served in the former one's name.
            let node = |identity: &Option<Identity>| identity.as_ref().map(|i| i.node.clone());
            if node(&identity) != node(&at.identity) {
                self.detach(now, &place, Why::Unauthorized);
            }
            return;
        }
        // A tunnel has both ends in one family.
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

    /// Tells a driver that says who hosts are that one is served.
    pub(super) fn tell_beginning(&mut self, (interface, station): &Place) {
        if self.config.identities.is_none() {
            let (interface, station) = (*interface, station.clone());
            self.out.push_back(Output::Own(Wish::Began { interface, station }));
        }
    }

    /// Tells it that one is not any more.
    pub(super) fn tell_end(&mut self, (interface, station): &Place, why: Why) {
        if self.config.identities.is_none() {
            let (interface, station) = (*interface, station.clone());
            self.out.push_back(Output::Own(Wish::Ended { interface, station, why }));
        }
    }
}
