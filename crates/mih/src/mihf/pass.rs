//! Events: from links of one's own or from their owners, to who has subscribed.

use segue_clock::planted::fault;
use segue_wire::mih::identity::LinkAddress;
use segue_wire::mih::link::{ParameterType, ParameterValue};

use super::state::{Line, Purpose};
use super::*;
use crate::event::{Event, What};
use crate::io::MihfWish;

impl Mihf {
    /// Something happened to a link of its own.
    pub(super) fn happened(&mut self, now: Time, event: Event) -> Result<(), Refusal> {
        let link = self.links.get(&event.link).ok_or(Refusal::Link)?;
        if link.owner != Some(Owner::Own) {
            return Err(Refusal::Link);
        }
        self.learn(now, event, None)
    }

    /// Somebody has told of a link.
    pub(super) fn told(&mut self, now: Time, from: &Party, event: Event) -> Result<(), Refusal> {
        let link = self.links.get(&event.link).ok_or(Refusal::Link)?;
        if link.owner.as_ref().and_then(Owner::party).as_ref() != Some(from) {
            return Err(Refusal::Link);
        }
        self.learn(now, event, Some(from))
    }

    /// Keeps what an event says, and passes it on if it says something new.
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
            // What is told of who is not there is late.
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

    /// Tells all who want to hear it; who has left is forgotten.
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

    /// Tells somebody. Of a station, one event is under way at a time, so that none overtakes another; of those that wait the
    /// newest goes.
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
        // Whoever is not told everything is to subscribe anew: then it is told who is there.
        match party {
            _ if asked => {}
            Party::Client(_) => self.forget(now, party),
            Party::Function(number) => self.not_registered(now, *number),
        }
    }
}

impl Station {
    /// Keeps what was measured.
    pub(super) fn note(&mut self, parameter: &ParameterType, value: u16) -> Option<u16> {
        if let Some((_, known)) = self.values.iter_mut().find(|(of, _)| of == parameter) {
            return Some(core::mem::replace(known, value));
        }
        self.values.push((parameter.clone(), value));
        None
    }

    /// What was measured last.
    #[must_use]
    pub fn value(&self, parameter: &ParameterType) -> Option<u16> {
        self.values.iter().find(|(of, _)| of == parameter).map(|(_, value)| *value)
    }
}

/// The address under which a station is kept.
#[must_use]
pub(super) fn key(link: &LinkId, station: Option<&LinkAddress>) -> LinkAddress {
    station.unwrap_or(&link.address).clone()
}
