//! Hosts that are new at an access. Who sends frames with ever new link-layer addresses is to cost others nothing: each access
//! has a pace at which it takes hosts that nothing is known of. Beyond it, and while the gateway is half full, a new host must
//! show that it receives: it is asked, and is served if it is heard again at once. Hosts with a name in the configuration, and
//! those that are served already, are never paced.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::Ipv6Addr;

use segue_clock::{Span, Time};
use segue_ip::Output;
use segue_mobility::Pace;

use super::Mag;
use super::config::HOSTS_MAX;
use super::io::Wish;
use super::station::Place;
use crate::Refusal;

/// Hosts that an access takes at once, and then one per period, without asking them.
const UNASKED: (u32, Span) = (32, Span::from_millis(100));
/// The same of hosts that have answered.
const ANSWERED: (u32, Span) = (100, Span::from_millis(10));
/// How long the answer of a host may take.
const ANSWER: Span = Span::from_millis(200);
/// Most questions that are open; the oldest gives way.
const OPEN_MAX: usize = 4_096;

/// What is known of new hosts.
#[derive(Default)]
pub(super) struct Newcomers {
    /// By interface: of hosts that were not asked, and of those that have answered.
    paces: BTreeMap<u32, (Pace, Pace)>,
    /// Hosts that were asked, and when.
    asked: BTreeMap<Place, Time>,
    by_age: BTreeSet<(Time, Place)>,
}

/// What becomes of a new host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// It is served.
    Served,
    /// It is asked to show itself.
    Asked,
    /// It was asked, and is not served yet.
    Refused,
}

impl Newcomers {
    /// Whether a host that is new was asked to show itself, and has time left for its answer.
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
    /// Whether a station was asked to show itself before it is served: what is heard of it counts ([`super::MagInput::Heard`]).
    #[must_use]
    pub fn awaits(&self, now: Time, interface: u32, station: &crate::LinkLayer) -> bool {
        self.newcomers.is_asked(now, &(interface, station.clone()))
    }

    /// A frame of a station was heard.
    pub(super) fn heard(&mut self, now: Time, place: Place, link_local: Option<Ipv6Addr>) {
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
