//! Subscriptions of peers here, and of this function at the owners of links.

use segue_clock::planted::fault;
use segue_wire::mih::codes::{EventList, LinkDownReason, Status};
use segue_wire::mih::identity::{LinkAddress, LinkId, LinkTupleId};
use segue_wire::mih::{MessageId, Tlv};

use super::state::{Line, Purpose, Task};
use super::*;
use crate::event::{Event, What};

/// After a subscription, how long the owner has to report the attached stations; the others are then removed.
const SETTLE: Span = Span::from_secs(10);
/// Maximum number of requests that wait for the owner of a link.
const WAITING_MAX: usize = 64;

/// The link and the events of a request.
fn about(tlvs: &[Tlv]) -> Option<(LinkId, EventList)> {
    let link = tlvs.iter().find_map(|tlv| match tlv {
        Tlv::LinkIdentifier(tuple) => Some(tuple.link.clone()),
        _ => None,
    })?;
    let events = tlvs.iter().find_map(|tlv| match tlv {
        Tlv::EventList(events) => Some(*events),
        _ => None,
    })?;
    Some((link, events))
}

fn answer_of(status: Status, link: &LinkId, events: EventList) -> Vec<Tlv> {
    let tuple = LinkTupleId { link: link.clone(), poa: None };
    Vec::from([Tlv::Status(status), Tlv::LinkIdentifier(tuple), Tlv::EventList(events)])
}

impl Mihf {
    /// Whether this node has an interest in a link.
    pub(super) fn is_interesting(&self, id: &LinkId) -> bool {
        self.interest(id).0 != 0
    }

    /// The events of a link that this node is interested in.
    pub(super) fn interest(&self, id: &LinkId) -> EventList {
        let of = |address: &Option<_>| address.as_ref().is_none_or(|of| *of == id.address);
        let all = self.config.interests.iter().filter(|interest| of(&interest.link));
        all.fold(EventList(0), |events, interest| events | interest.events)
    }

    /// The events of a link that this node or any subscriber wants.
    fn wanted(&self, id: &LinkId) -> EventList {
        let others = self.links.get(id).into_iter().flat_map(|link| link.subscribed.values());
        others.fold(self.interest(id), |events, one| events | *one)
    }

    /// Subscribes at the owner of a link if it does not report all wanted events yet.
    pub(super) fn want(&mut self, now: Time, id: &LinkId) {
        let wanted = self.wanted(id);
        let Some(link) = self.links.get_mut(id) else { return };
        let Some(party) = link.owner.as_ref().and_then(Owner::party) else { return };
        if link.asking || link.told.contains(wanted) {
            return;
        }
        link.asking = true;
        // The answer to this request restarts the timer.
        self.timers.cancel(&Task::Settle(id.clone()));
        // Reset already here, because events may overtake the answer.
        link.stations.values_mut().for_each(|station| station.fresh = false);
        let tuple = LinkTupleId { link: id.clone(), poa: None };
        let tlvs = Vec::from([Tlv::LinkIdentifier(tuple), Tlv::EventList(wanted)]);
        let purpose = Purpose::Subscribe(id.clone(), wanted);
        let asked = self
            .way(&party)
            .is_some_and(|way| self.ask(now, way, MessageId::EVENT_SUBSCRIBE, tlvs, purpose));
        if !asked {
            self.not_subscribed(now, id);
        }
    }

    /// Handles a subscription request.
    pub(super) fn subscribe(
        &mut self,
        now: Time,
        request: &Request,
        party: Party,
        tlvs: &[Tlv],
    ) -> Result<Served, Refusal> {
        let (id, events) = about(tlvs).ok_or(Refusal::Malformed)?;
        let link = self.links.get_mut(&id).filter(|link| link.owner.is_some());
        let Some(link) = link else {
            self.refuse(Refusal::Link);
            return Ok(Served::Now(answer_of(Status::REJECTED, &id, EventList(0))));
        };
        if link.owner.as_ref().and_then(Owner::party).as_ref() == Some(&party) {
            self.refuse(Refusal::Link);
            return Ok(Served::Now(answer_of(Status::REJECTED, &id, EventList(0))));
        }
        let mine = link.subscribed.entry(party.clone()).or_default();
        *mine = *mine | events;
        let is_told = link.owner == Some(Owner::Own) || link.told.contains(events);
        if is_told {
            self.answer(now, request, answer_of(Status::SUCCESS, &id, events));
            self.present(now, &party, &id);
            return Ok(Served::Answered);
        }
        if link.waiting.len() >= WAITING_MAX {
            return Err(Refusal::Full);
        }
        let request = Request { acknowledged: true, ..request.clone() };
        link.waiting.push(request);
        self.want(now, &id);
        Ok(Served::Later)
    }

    /// Sends a Link_Up for each attached station to a new subscriber.
    fn present(&mut self, now: Time, party: &Party, id: &LinkId) {
        let Some(link) = self.links.get(id).filter(|_| !fault(47)) else { return };
        if !link.subscribed.get(party).is_some_and(|events| events.contains(EventList::LINK_UP)) {
            return;
        }
        let stations = link.stations.keys();
        let up = |station: &LinkAddress| Event {
            link: id.clone(),
            station: Some(station.clone()).filter(|station| *station != id.address),
            what: What::Up,
        };
        let all: Vec<Event> = stations.map(up).collect();
        all.iter().for_each(|event| self.tell(now, party, event));
    }

    /// Handles an unsubscription request.
    pub(super) fn unsubscribe(
        &mut self,
        now: Time,
        party: &Party,
        tlvs: &[Tlv],
    ) -> Result<Served, Refusal> {
        let (id, events) = about(tlvs).ok_or(Refusal::Malformed)?;
        let Some(link) = self.links.get_mut(&id) else {
            self.refuse(Refusal::Link);
            return Ok(Served::Now(answer_of(Status::REJECTED, &id, EventList(0))));
        };
        if let Some(mine) = link.subscribed.get_mut(party) {
            mine.0 &= !events.0;
            let left = *mine;
            if left.0 == 0 {
                link.subscribed.remove(party);
            }
            self.hush(now, party, &id, left);
        }
        self.shed(now, &id);
        Ok(Served::Now(answer_of(Status::SUCCESS, &id, events)))
    }

    /// Stops sending events other than `left` to a party. An event still in flight could otherwise arrive after a new
    /// subscription, and would be outdated.
    fn hush(&mut self, now: Time, party: &Party, id: &LinkId, left: EventList) {
        let about = |line: &Line| line.party == *party && line.link == *id;
        let keys = self.lines.iter().filter(|(line, _)| about(line)).map(|(_, key)| *key);
        for key in keys.collect::<Vec<Key>>() {
            let Some(open) = self.open.get_mut(&key) else { continue };
            open.next.retain(|event| left.contains(event.what.kind()));
            let tlvs = open.frame.tlvs().get(2..).unwrap_or_default();
            let event = Event::read(open.frame.message_id, tlvs);
            if !event.is_some_and(|event| left.contains(event.what.kind())) {
                self.done(now, key);
            }
        }
    }

    /// Unsubscribes from events that are no longer wanted, and removes a link without owner and subscribers.
    fn shed(&mut self, now: Time, id: &LinkId) {
        let wanted = self.wanted(id);
        let Some(link) = self.links.get_mut(id) else { return };
        if link.owner.is_none() && wanted.0 == 0 {
            self.links.remove(id);
            self.timers.cancel(&Task::Settle(id.clone()));
            return;
        }
        let surplus = EventList(link.told.0 & !wanted.0);
        let Some(party) = link.owner.as_ref().and_then(Owner::party) else { return };
        if surplus.0 == 0 || link.asking {
            return;
        }
        link.told = EventList(link.told.0 & wanted.0);
        if wanted.0 == 0 {
            // Departures are not reported any longer.
            link.stations.clear();
        }
        let tuple = LinkTupleId { link: id.clone(), poa: None };
        let tlvs = Vec::from([Tlv::LinkIdentifier(tuple), Tlv::EventList(surplus)]);
        // One request at a time: this one must not overtake a later subscription.
        link.asking = true;
        let (unsubscribe, purpose) =
            (MessageId::EVENT_UNSUBSCRIBE, Purpose::Unsubscribe(id.clone()));
        let asked =
            self.way(&party).is_some_and(|way| self.ask(now, way, unsubscribe, tlvs, purpose));
        if !asked {
            self.unsubscribed_at(now, id);
        }
    }

    /// The owner of a link confirmed an unsubscription. More events may be wanted by now.
    pub(super) fn unsubscribed_at(&mut self, now: Time, id: &LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.asking = false;
        self.want(now, id);
    }

    /// Removes all subscriptions of a party.
    pub(super) fn drop_subscriptions(&mut self, now: Time, party: &Party) {
        let theirs = self.links.iter_mut().filter_map(|(id, link)| {
            let had = link.subscribed.remove(party).is_some();
            had.then(|| id.clone())
        });
        let theirs: Vec<LinkId> = theirs.collect();
        if let Some((path, _)) = self.way(party) {
            let waits = |request: &Request| request.path.remote == path.remote;
            self.links.values_mut().for_each(|link| link.waiting.retain(|r| !waits(r)));
        }
        for id in theirs {
            self.hush(now, party, &id, EventList(0));
            self.shed(now, &id);
        }
    }

    /// Handles the answer to a subscription.
    pub(super) fn subscribed_at(
        &mut self,
        now: Time,
        id: &LinkId,
        events: EventList,
        status: Status,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        if status != Status::SUCCESS {
            self.not_subscribed(now, id);
            return;
        }
        (link.asking, link.told) = (false, events);
        let waiting = core::mem::take(&mut link.waiting);
        self.timers.set(Task::Settle(id.clone()), now + SETTLE);
        for request in waiting {
            let party = self.party(request.path.remote, &request.name);
            let Some(party) = party else { continue };
            let mine = self.links.get(id).and_then(|link| link.subscribed.get(&party)).copied();
            let tlvs = answer_of(Status::SUCCESS, id, mine.unwrap_or_default());
            self.answer(now, &request, tlvs);
            self.present(now, &party, id);
        }
        self.want(now, id);
    }

    /// The subscription failed. It is retried when the owner renews its registration, or this function its registration
    /// there.
    pub(super) fn not_subscribed(&mut self, now: Time, id: &LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.asking = false;
        for request in core::mem::take(&mut link.waiting) {
            let party = self.party(request.path.remote, &request.name);
            if let (Some(party), Some(link)) = (party, self.links.get_mut(id)) {
                link.subscribed.remove(&party);
            }
            self.answer(now, &request, answer_of(Status::NETWORK_ERROR, id, EventList(0)));
        }
    }

    /// Removes the stations that were not reported since the last subscription.
    pub(super) fn settle(&mut self, now: Time, id: &LinkId) {
        let Some(link) = self.links.get(id) else { return };
        let gone = link.stations.iter().filter(|(_, station)| !station.fresh && !fault(46));
        let gone: Vec<LinkAddress> = gone.map(|(address, _)| address.clone()).collect();
        for station in gone {
            let what = What::Down(LinkDownReason::EXPLICIT_DISCONNECT);
            self.pass(now, Event { link: id.clone(), station: Some(station), what }, None);
        }
    }
}
