//! Events: from links of this node or from their owners, to subscribers.

use segue_clock::planted::fault;
use segue_wire::mih::identity::LinkAddress;
use segue_wire::mih::link::{ParameterType, ParameterValue};

use super::state::{Line, Purpose};
use super::*;
use crate::event::{Event, What};
use crate::io::MihfWish;

impl Mihf {
    /// An event of a link of this node.
    pub(super) fn happened(&mut self, now: Time, event: Event) -> Result<(), Refusal> {
        let link = self.links.get(&event.link).ok_or(Refusal::Link)?;
        if link.owner != Some(Owner::Own) {
            return Err(Refusal::Link);
        }
        self.learn(now, event, None)
    }

    /// A peer reported an event.
    pub(super) fn told(&mut self, now: Time, from: &Party, event: Event) -> Result<(), Refusal> {
        let link = self.links.get(&event.link).ok_or(Refusal::Link)?;
        if link.owner.as_ref().and_then(Owner::party).as_ref() != Some(from) {
            return Err(Refusal::Link);
        }
        self.learn(now, event, Some(from))
    }

    /// Updates the stations from an event, and passes it on if it is news.
    fn learn(&mut self, now: Time, event: Event, from: Option<&Party>) -> Result<(), Refusal> {
        let Some(link) = self.links.get_mut(&event.link) else { return Err(Refusal::Link) };
        let station = event.station.clone().unwrap_or_else(|| event.link.address.clone());
        let known = link.stations.get_mut(&station);
        match (&event.what, known) {
            (What::Up, Some(known)) => {
                known.fresh = true;
                if !core::mem::take(&mut known.going_down) {
                    return Ok(());
                }
            }
            (What::Up, None) => {
                let of_node = link.node.map_or(0, |node| {
                    let all = self.links.values().filter(|link| link.node == Some(node));
                    all.map(|link| link.stations.len()).sum()
                });
                let Some(link) = self.links.get_mut(&event.link) else { return Err(Refusal::Link) };
                if link.stations.len() >= STATIONS_MAX || of_node >= STATIONS_OF_NODE {
                    return Err(Refusal::Full);
                }
                let forecast = link.forecasting.map(crate::Forecast::new);
                let (values, going_down, fresh, since) = (Vec::new(), false, true, now);
                let new = Station { since, going_down, values, fresh, forecast };
                link.stations.insert(station, new);
            }
            (What::GoingDown { .. }, Some(known)) => known.going_down = true,
            // The station is not attached: the event is late.
            (What::Down(_) | What::GoingDown { .. }, None) => return Ok(()),
            (What::Parameters(reports), Some(known)) => {
                for report in reports {
                    if let ParameterValue::Number(value) = report.parameter.value {
                        known.note(&report.parameter.parameter, value);
                    }
                }
            }
            (What::Down(_), Some(_)) | (What::Parameters(_), None) | (What::Detected(_), _) => {}
        }
        self.pass(now, event, from);
        Ok(())
    }

    /// Passes an event to the subscribers and to the driver; removes a station that has left.
    pub(super) fn pass(&mut self, now: Time, event: Event, from: Option<&Party>) {
        let kind = event.what.kind();
        let Some(link) = self.links.get_mut(&event.link) else { return };
        if let What::Down(_) = event.what {
            let station = event.station.as_ref().unwrap_or(&event.link.address);
            link.stations.remove(station);
        }
        let wants =
            |(party, events): &(&Party, &EventList)| events.contains(kind) && Some(*party) != from;
        let parties = link.subscribed.iter().filter(wants).map(|(party, _)| party.clone());
        let parties: Vec<Party> = parties.collect();
        parties.iter().for_each(|party| self.tell(now, party, &event));
        if !matches!(event.what, What::Parameters(_)) {
            self.report(Report::Link(event.clone()));
        }
        if self.interest(&event.link).contains(kind) {
            self.out.push_back(Output::Own(MihfWish::Event(event)));
        }
    }

    /// Sends an event to a party. Per station, only one event is in flight, so that none overtakes another; meanwhile
    /// [`Open::queue`] keeps the latest.
    pub(super) fn tell(&mut self, now: Time, party: &Party, event: &Event) {
        let Some(way) = self.way(party) else { return };
        let parameters = matches!(event.what, What::Parameters(_));
        let (link, station) = (event.link.clone(), event.station.clone());
        let line = Line { party: party.clone(), link, station, parameters };
        let waits =
            self.lines.get(&line).filter(|_| !fault(48)).and_then(|key| self.open.get_mut(key));
        if let Some(open) = waits {
            open.queue(event);
            return;
        }
        let asked = self.ask(now, way, event.what.message(), event.tlvs(), Purpose::Event(line));
        // An event was lost, so have the party register and subscribe again: it is then sent all attached stations.
        match party {
            _ if asked => {}
            Party::Client(_) => self.forget(now, party),
            Party::Function(number) => self.not_registered(now, *number),
        }
    }
}

impl Station {
    /// Stores a measurement and returns the previous value.
    pub(super) fn note(&mut self, parameter: &ParameterType, value: u16) -> Option<u16> {
        if let Some((_, known)) = self.values.iter_mut().find(|(of, _)| of == parameter) {
            return Some(core::mem::replace(known, value));
        }
        self.values.push((parameter.clone(), value));
        None
    }

    /// The latest measurement, in the standard's units.
    #[must_use]
    pub fn value(&self, parameter: &ParameterType) -> Option<u16> {
        self.values.iter().find(|(of, _)| of == parameter).map(|(_, value)| *value)
    }
}

/// The key of a station in [`Link::stations`]; without a station, the address of the link.
#[must_use]
pub(super) fn key(link: &LinkId, station: Option<&LinkAddress>) -> LinkAddress {
    station.unwrap_or(&link.address).clone()
}
