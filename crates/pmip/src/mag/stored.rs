//! Persistent state of a gateway.

use segue_clock::Time;
use segue_ip::Output;

use segue_clock::planted::fault;

use super::Mag;
use super::io::{MagRecord, StoredStation};
use super::state::StationState;
use super::station::{Place, Task};
impl Mag {
    /// Stores a served station; deletes the record of any other.
    pub(super) fn store(&mut self, place: &Place) {
        let Some(at) = self.stations.get(place) else { return };
        let until = self.config.clock.at(at.until);
        let identity = at.identity.clone().filter(|_| at.state.is_served());
        let (prefixes, off_link) = (at.prefixes.clone(), at.off_link.clone());
        let link_local = at.link_local;
        let stored = identity.map(|identity| StoredStation {
            identity,
            prefixes,
            off_link,
            link_local,
            gre: at.gre.and_then(|gre| Some([gre.send?, gre.receive])),
            until,
        });
        self.note(at.access, place, stored);
    }

    /// Emits a record for storage.
    pub(super) fn note(&mut self, access: usize, place: &Place, stored: Option<StoredStation>) {
        let access = self.config.accesses[access].interface.clone();
        let station = place.1.clone();
        self.out.push_back(Output::Persist(MagRecord { access, station, stored }));
    }

    /// Restores a record of an earlier start. The station is served as before, and its registration is renewed at once
    /// to find out whether it still exists.
    pub(super) fn restore(&mut self, now: Time, MagRecord { access, station, stored }: MagRecord) {
        let of_access = |index: &usize| self.config.accesses[*index].interface == access;
        let interface = self.links.iter().find(|(_, index)| of_access(index)).map(|(i, _)| *i);
        let (Some(interface), Some(stored)) = (interface, stored) else { return };
        // The clock may have been wrong, so the lifetime is capped.
        let until = self.config.clock.when(stored.until, now);
        let until = until.min(now + self.config.lifetime.longest);
        let place = (interface, station);
        if self.stations.contains_key(&place) || self.is_occupied() || fault(45) {
            return;
        }
        let Some(mut at) = self.new_station(now, interface, stored.link_local) else { return };
        if until <= now {
            self.note(at.access, &place, None);
            return;
        }
        at.state = StationState::Active;
        (at.prefixes, at.until, at.registered) = (stored.prefixes, until, Some(now));
        at.off_link = stored.off_link;
        at.identity = Some(stored.identity);
        self.stations.insert(place.clone(), at);
        self.know(&place);
        self.reach(now, &place);
        self.restore_key(&place, stored.gre);
        self.timers.set((place.clone(), Task::End), until);
        self.follow(&place);
        self.tell_beginning(&place);
        self.advertise(now, &place);
        self.send_update(now, &place);
    }
}
