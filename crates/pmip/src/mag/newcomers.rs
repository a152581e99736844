//! Admission of new hosts at an access, so that frames with ever new link-layer addresses do not use up what other
//! hosts need. Each access admits unknown hosts at a limited rate. Above that rate, and while the gateway is more than
//! half full, a new host must first prove that it receives: it is solicited, and admitted if it is heard again in time.
//! Hosts that the configuration names and hosts that are already served are not limited.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::Ipv6Addr;

use segue_clock::planted::fault;
use segue_clock::{Span, Time};
use segue_ip::Output;
use segue_mobility::Pace;

use super::Mag;
use super::config::HOSTS_MAX;
use super::io::Wish;
use super::station::Place;
use crate::Refusal;

/// Burst size and period of the rate limit for hosts that were not solicited.
const UNASKED: (u32, Span) = (32, Span::from_millis(100));
/// The same for hosts that have answered a solicitation.
const ANSWERED: (u32, Span) = (100, Span::from_millis(10));
/// How long a host may take to answer.
const ANSWER: Span = Span::from_millis(200);
/// Maximum number of open solicitations; the oldest is evicted.
const OPEN_MAX: usize = 4_096;

/// State of the admission of new hosts.
#[derive(Default)]
pub(super) struct Newcomers {
    /// By interface: rate limits for unsolicited hosts, and for hosts that have answered.
    paces: BTreeMap<u32, (Pace, Pace)>,
    /// When each host was solicited.
    asked: BTreeMap<Place, Time>,
    by_age: BTreeSet<(Time, Place)>,
}

/// Decision about a new host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// Admitted.
    Served,
    /// Solicited first.
    Asked,
    /// Solicited before, and not admitted yet.
    Refused,
}

impl Newcomers {
    /// Returns true if a new host was solicited and still has time to answer.
    fn is_asked(&self, now: Time, place: &Place) -> bool {
        self.asked.get(place).is_some_and(|at| now.since(*at) <= ANSWER)
    }

    fn admit(&mut self, now: Time, place: &Place, is_crowded: bool) -> Admission {
        let is_asked = self.is_asked(now, place);
        let (unasked, answered) = self.paces.entry(place.0).or_default();
        let take = |pace: &mut Pace, (burst, period)| pace.take(now, period, burst);
        if !is_crowded && take(unasked, UNASKED) {
            return Admission::Served;
        }
        if is_asked {
            return if take(answered, ANSWERED) { Admission::Served } else { Admission::Refused };
        }
        self.ask(now, place);
        Admission::Asked
    }

    fn ask(&mut self, now: Time, place: &Place) {
        if let Some(before) = self.asked.insert(place.clone(), now) {
            self.by_age.remove(&(before, place.clone()));
        }
        self.by_age.insert((now, place.clone()));
        if self.by_age.len() > OPEN_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.asked.remove(&oldest);
        }
    }
}

impl Mag {
    /// Returns true if a station was solicited before admission, so that the driver should report frames from it at
    /// once ([`super::MagInput::Heard`]).
    #[must_use]
    pub fn awaits(&self, now: Time, interface: u32, station: &crate::LinkLayer) -> bool {
        self.newcomers.is_asked(now, &(interface, station.clone()))
    }

    /// Handles a frame heard from a station.
    pub(super) fn heard(&mut self, now: Time, place: Place, link_local: Option<Ipv6Addr>) {
        if self.revoked.get(&place.1).is_some_and(|until| now < *until) && !fault(57) {
            return;
        }
        let named = |place: &Place| {
            let identities = self.config.identities.as_ref();
            identities.is_some_and(|identities| identities.known.contains_key(&place.1))
        };
        if self.stations.contains_key(&place) || named(&place) {
            return self.attach(now, place, link_local);
        }
        if !self.links.contains_key(&place.0) {
            return;
        }
        let is_crowded = self.stations.len() * 2 > self.config.capacity.min(HOSTS_MAX);
        match self.newcomers.admit(now, &place, is_crowded) {
            Admission::Served => self.attach(now, place, link_local),
            Admission::Refused => self.refuse(Refusal::Paced),
            Admission::Asked => {
                self.refuse(Refusal::Paced);
                let (interface, station) = place;
                self.out.push_back(Output::Own(Wish::Show { interface, station }));
            }
        }
    }
}
