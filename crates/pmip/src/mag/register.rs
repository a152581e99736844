//! Registrations of hosts with their anchors (RFC 5213, section 6.9).

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Span, Time, UnixTime};
use segue_ip::{Forward, Output};
use segue_mobility::{Backoff, Lifetime, Retransmission, Silence};
use segue_wire::mobility::body::{BindingAcknowledgement, BindingUpdate};
use segue_wire::mobility::option::Handoff;
use segue_wire::mobility::{BindingUpdateFlags, Body, MobilityOption, Profile, Status};

use segue_clock::planted::fault;

use super::Mag;
use super::config::{AttachBy, Encapsulation, HOSTS_MAX, Identity};
use super::io::Wish;
use super::state::{Event, Next, StationState};
use super::station::{Place, Station, Task};
use crate::message::{ANY_PREFIX, Registration, datagram};
use crate::news::{Off, Why};
use crate::peer::Ends;
use crate::{NodeId, Refusal, Report};

/// Maximum number of immediate retries in a row after an anchor refused the timestamp or the sequence number.
const HURRIED_MAX: u32 = 3;
/// Timeout of a deregistration, which is sent once.
const GOODBYE: Span = Span::from_secs(1);

impl Mag {
    pub(super) fn new_station(
        &self,
        now: Time,
        interface: u32,
        link_local: Option<Ipv6Addr>,
    ) -> Option<Station> {
        Some(Station {
            access: *self.links.get(&interface)?,
            identity: None,
            state: StationState::Identifying,
            prefixes: Vec::new(),
            former: Vec::new(),
            off_link: Vec::new(),
            preferred: false,
            was_preferred: false,
            until: now,
            since: now,
            identified: None,
            registered: None,
            advertised: None,
            link_local,
            heard: true,
            notified: None,
            open: None,
            hurried: 0,
            probes: 0,
            neighbour: None,
            gre: None,
            carries: BTreeSet::new(),
        })
    }

    /// Handles the attachment of a host. A known station is left as it is, unless it was leaving. Its link-local
    /// address stays the first one it showed: a forged frame must not change which address the gateway probes.
    pub(super) fn attach(&mut self, now: Time, place: Place, link_local: Option<Ipv6Addr>) {
        match self.stations.get_mut(&place) {
            Some(at) if at.state == StationState::Leaving => self.forget(&place),
            Some(at) => {
                at.link_local = at.link_local.or(link_local);
                at.heard = true;
                self.answered(now, &place);
                return;
            }
            None => {}
        }
        if self.stations.len() >= self.config.capacity.min(HOSTS_MAX) {
            self.refuse(Refusal::Full);
            return;
        }
        if self.is_occupied() {
            self.refuse(Refusal::SecondHost);
            return;
        }
        let Some(at) = self.new_station(now, place.0, link_local) else { return };
        self.stations.insert(place.clone(), at);
        match &self.config.identities {
            Some(identities) => {
                let identity = identities.known.get(&place.1).cloned();
                let identity = identity.or_else(|| {
                    let realm = identities.realm.as_ref()?;
                    let name: String = place.1.0.iter().map(|byte| format!("{byte:02x}")).collect();
                    let node = NodeId::nai(&format!("{name}@{realm}"));
                    Some(Identity { node, anchor: None, prefixes: Vec::new() })
                });
                self.identified(now, place, identity);
            }
            None => {
                let (interface, station) = place;
                self.out.push_back(Output::Own(Wish::Identify { interface, station }));
            }
        }
    }

    /// Returns true if everything is forwarded to a single station and there is one: packets for it must not reach
    /// another host. A leaving station counts, because packets for it may be in flight.
    pub(super) fn is_occupied(&self) -> bool {
        self.config.forward_all && !self.stations.is_empty()
    }

    /// Adds an identified station to the index by host.
    pub(super) fn know(&mut self, place: &Place) {
        let identity = self.stations.get(place).and_then(|at| at.identity.as_ref());
        if let Some(identity) = identity {
            self.nodes.entry(identity.node.clone()).or_default().insert(place.clone());
        }
    }

    /// The stations of a host.
    pub(super) fn stations_of(&self, node: &NodeId) -> impl Iterator<Item = (&Place, &Station)> {
        let places = self.nodes.get(node).into_iter().flatten();
        places.filter_map(|place| Some((place, self.stations.get(place)?)))
    }

    /// Returns true if the anchor attributes a station's registration to another station of the same host by now, so
    /// that a deregistration would end the wrong one. With `since_then`, only a station that registered later counts.
    fn is_taken_over(&self, place: &Place, since_then: bool) -> bool {
        let Some(at) = self.stations.get(place) else { return false };
        let Some(identity) = &at.identity else { return false };
        let access = &self.config.accesses[at.access];
        self.stations_of(&identity.node).any(|(other, sibling)| {
            let its = &self.config.accesses[sibling.access];
            other != place
                && sibling.state.is_served()
                && (!since_then || sibling.registered > at.registered)
                && (its.technology, its.proxy_coa) == (access.technology, access.proxy_coa)
                && its.handoff != Handoff::NEW_INTERFACE_SHARING_PREFIXES
                && sibling.prefixes.iter().any(|prefix| at.prefixes.contains(prefix))
        })
    }

    /// Handles the departure of a host: ends the service and deregisters.
    pub(super) fn detach(&mut self, now: Time, place: &Place, why: Why) {
        let Some(at) = self.stations.get_mut(place) else { return };
        match at.state.next(Event::Left) {
            Next::To(state) => at.state = state,
            Next::Gone => {
                self.forget(place);
                return;
            }
            Next::Same => return,
        }
        if let Some((sequence, ..)) = at.open.take() {
            self.open.remove(&sequence);
        }
        let (registered, identity) = (at.registered, at.identity.clone());
        if let (Some(since), Some(identity)) = (registered, &identity) {
            self.stays.add(&identity.node, now.since(since));
            self.end_service(place);
            let (node, link_layer) = (identity.node.clone(), place.1.clone());
            self.report(Report::Left { node, link_layer, why });
        }
        self.tell_end(place, why);
        for task in [Task::Again, Task::Renew, Task::Probe, Task::Advertise, Task::End] {
            self.timers.cancel(&(place.clone(), task));
        }
        if self.is_taken_over(place, false) {
            self.forget_stored(place);
        } else {
            self.send_update(now, place);
        }
    }

    /// Handles an expired registration. An active station is kept and registered again once its anchor answers; one
    /// that is being probed is detached.
    pub(super) fn over(&mut self, now: Time, place: &Place) {
        let Some(at) = self.stations.get_mut(place) else { return };
        match at.state.next(Event::Over) {
            Next::To(state) => at.state = state,
            Next::Gone | Next::Same => {
                self.detach(now, place, Why::Expired);
                return;
            }
        }
        let identity = at.identity.clone();
        at.registered = None;
        self.end_service(place);
        self.timers.cancel(&(place.clone(), Task::Renew));
        self.timers.cancel(&(place.clone(), Task::Advertise));
        self.store(place);
        if let Some(identity) = identity {
            let (node, link_layer, why) = (identity.node, place.1.clone(), Why::Expired);
            self.report(Report::Left { node, link_layer, why });
            self.tell_end(place, why);
        }
        if self.stations.get(place).is_some_and(|at| at.open.is_none()) {
            self.send_update(now, place);
        }
    }

    /// Removes a station and its state without notifying its anchor.
    pub(super) fn forget(&mut self, place: &Place) {
        self.end_service(place);
        self.end_key(place);
        self.tell_end(place, Why::Refused);
        if let Some(at) = self.stations.remove(place) {
            if let Some((sequence, ..)) = at.open {
                self.open.remove(&sequence);
            }
            if let Some(identity) = &at.identity {
                if let Some(places) = self.nodes.get_mut(&identity.node) {
                    places.remove(place);
                    if places.is_empty() {
                        self.nodes.remove(&identity.node);
                    }
                }
                let coa = self.config.accesses[at.access].proxy_coa;
                self.leave_anchor(coa, identity.anchor.unwrap_or(self.config.anchor));
            }
        }
        for task in [Task::Again, Task::Renew, Task::Probe, Task::Advertise, Task::End] {
            self.timers.cancel(&(place.clone(), task));
        }
        if self.config.forward_all {
            // A host that was refused because of this one may be served now.
            self.out.push_back(Output::Own(Wish::Ask { interface: place.0 }));
        }
    }

    /// Sends the update that a station's state requires: a registration, a renewal or a deregistration.
    pub(super) fn send_update(&mut self, now: Time, place: &Place) {
        let Some(at) = self.stations.get(place) else { return };
        let access = &self.config.accesses[at.access];
        let (technology, coa) = (access.technology, access.proxy_coa);
        let Some(identity) = at.identity.clone() else { return };
        let (leaves, since) = (at.state == StationState::Leaving, at.since);
        let handoff = match at.state {
            StationState::Leaving => Handoff::UNKNOWN,
            StationState::Active | StationState::Probing => Handoff::REREGISTRATION,
            StationState::Registering | StationState::Identifying => access.handoff,
        };
        let known = if at.prefixes.is_empty() { &identity.prefixes } else { &at.prefixes };
        let prefixes = if known.is_empty() { Vec::from([ANY_PREFIX]) } else { known.clone() };
        let lifetime = match leaves {
            true => Lifetime::ZERO,
            false => Lifetime::of(self.stays.lifetime(&identity.node, &self.config.lifetime)),
        };
        let anchor = identity.anchor.unwrap_or(self.config.anchor);
        let ends = Ends::between(coa, anchor);
        let gre = match self.config.encapsulation {
            Encapsulation::Gre if !leaves => self.key_of(place).map(Some),
            _ => None,
        };
        let asked = Registration {
            node: Some(identity.node.clone()),
            prefixes,
            handoff: Some(handoff),
            access: Some(technology),
            link_layer: place.1.clone(),
            timestamp: Some(self.config.clock.at(if fault(42) { since } else { now })),
            care_of: ends.own_v4(),
            gre,
            ..Registration::default()
        };
        let before = self.stations.get_mut(place).and_then(|at| at.open.take());
        if let Some((sequence, ..)) = &before {
            self.open.remove(sequence);
        }
        let sequence = self.next_sequence();
        let mut flags = BindingUpdateFlags::ACKNOWLEDGE | BindingUpdateFlags::PROXY;
        if self.config.encapsulation == Encapsulation::Udp && coa.is_ipv4() {
            flags = flags | BindingUpdateFlags::FORCE_UDP;
        }
        let body = BindingUpdate { sequence, flags, lifetime_4s: lifetime.0 };
        let profile = self.config.profile;
        let update = datagram(Body::BindingUpdate(body), asked.options(), ends, &profile);
        self.send(update);
        let backoff = if leaves {
            Backoff { initial: GOODBYE, longest: GOODBYE, tries: Some(1) }
        } else {
            Backoff::BINDING
        };
        let Some(at) = self.stations.get_mut(place) else { return };
        let again = before.map_or_else(|| Retransmission::new(now, backoff), |(.., again)| again);
        self.timers.set((place.clone(), Task::Again), again.deadline());
        at.open = Some((sequence, now, again));
        self.open.insert(sequence, place.clone());
    }

    /// Handles the timeout of an update.
    pub(super) fn again(&mut self, now: Time, place: &Place) {
        let Some((_, _, again)) = self.stations.get_mut(place).and_then(|at| at.open.as_mut())
        else {
            return;
        };
        match again.on_silence(now) {
            Silence::Wait => {}
            Silence::Again => self.send_update(now, place),
            Silence::GiveUp => self.confirmed(place),
        }
    }

    /// Removes a station that has left: the anchor has confirmed that, or has not answered in time.
    fn confirmed(&mut self, place: &Place) {
        if self.stations.get(place).is_some_and(|at| at.state.next(Event::Confirmed) == Next::Gone)
        {
            self.forget_stored(place);
        }
    }

    /// Removes a station and its stored record.
    fn forget_stored(&mut self, place: &Place) {
        let access = self.stations.get(place).map(|at| at.access);
        self.forget(place);
        // The interface may have come back under another index, and the host with it.
        let again = |(index, of): (&u32, &usize)| {
            Some(*of) == access && self.stations.contains_key(&(*index, place.1.clone()))
        };
        if let Some(access) = access.filter(|_| !self.links.iter().any(again)) {
            self.note(access, place, None);
        }
    }

    /// Handles an acknowledgement.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        answer: &BindingAcknowledgement,
        options: &[MobilityOption],
        (from, to): (IpAddr, IpAddr),
    ) -> Result<(), Refusal> {
        let place = self.open.get(&answer.sequence).cloned();
        // An anchor that refuses a sequence number answers with the last one it accepted, so look the station up by the
        // options.
        let by_options = || self.place_of(&Registration::of(options), from);
        let is_old = answer.status == Status::SEQUENCE_OUT_OF_WINDOW;
        let place = place.or_else(|| is_old.then(by_options)?).ok_or(Refusal::Stale)?;
        let at = self.stations.get(&place).ok_or(Refusal::Stale)?;
        let identity = at.identity.as_ref().ok_or(Refusal::Stale)?;
        if identity.anchor.unwrap_or(self.config.anchor) != from {
            return Err(Refusal::Stranger);
        }
        let told = Registration::of(options);
        if !self.is_echo(&told, &place, at) {
            return Err(Refusal::Stale);
        }
        let (node, asked_at) = (identity.node.clone(), at.open.map_or(now, |(_, at, _)| at));
        if at.state == StationState::Leaving {
            self.confirmed(&place);
            return Ok(());
        }
        if !answer.status.is_accepted() {
            self.denied(now, &place, node, answer, told.timestamp, from);
            return Ok(());
        }
        self.closed(&place);
        let Some(at) = self.stations.get_mut(&place) else { return Ok(()) };
        let lifetime = Lifetime(answer.lifetime_4s);
        if lifetime.is_zero() || told.prefixes.is_empty() {
            self.lost(&place, Why::Refused);
            return Ok(());
        }
        if let Next::To(state) = at.state.next(Event::Accepted) {
            at.state = state;
        }
        let changed = at.prefixes != told.prefixes;
        let before = core::mem::replace(&mut at.prefixes, told.prefixes.clone());
        at.off_link.retain(|prefix| !told.prefixes.contains(prefix));
        at.former.extend(before);
        at.former.retain(|prefix| !told.prefixes.contains(prefix));
        (at.hurried, at.heard) = (0, false);
        if !told.off_link.is_empty() {
            at.off_link.clone_from(&told.off_link);
        }
        at.until = lifetime.end(asked_at);
        let is_new = at.registered.is_none();
        at.registered.get_or_insert(now);
        let prefix = at.prefixes.first().copied();
        self.timers.set((place.clone(), Task::Renew), lifetime.refresh(asked_at, None));
        if !fault(40) {
            self.timers.set((place.clone(), Task::End), lifetime.end(asked_at));
        }
        self.on_nat(now, to, from, told.nat.as_ref());
        let former = self.key_granted(&place, told.gre.flatten());
        self.follow(&place);
        self.out.extend(former.map(Forward::Tunnel).map(Output::Withdraw));
        self.store(&place);
        if changed {
            self.advertise(now, &place);
        }
        if is_new || changed {
            self.tell_beginning(&place);
        }
        if is_new {
            let link_layer = place.1.clone();
            self.report(Report::Registered { node, link_layer, with: from.into(), prefix });
        }
        Ok(())
    }

    /// Marks a station's update as answered.
    fn closed(&mut self, place: &Place) {
        if let Some((sequence, ..)) = self.stations.get_mut(place).and_then(|at| at.open.take()) {
            self.open.remove(&sequence);
        }
        self.timers.cancel(&(place.clone(), Task::Again));
    }

    /// Returns true if an acknowledgement echoes the update. Non-strict anchors omit some options.
    fn is_echo(&self, told: &Registration, place: &Place, at: &Station) -> bool {
        let lenient = self.config.profile != Profile::STRICT;
        let node = at.identity.as_ref().map(|identity| &identity.node);
        let access = self.config.accesses[at.access].technology;
        told.node.as_ref() == node
            && (told.link_layer == place.1)
            && (told.access == Some(access) || lenient && told.access.is_none())
            && (told.handoff.is_some() || lenient)
    }

    /// Finds the station that an acknowledgement is about by the echoed options.
    fn place_of(&self, told: &Registration, from: IpAddr) -> Option<Place> {
        let mut all = self.stations_of(told.node.as_ref()?);
        let found = all.find(|((_, link_layer), at)| {
            let anchor = at.identity.as_ref().and_then(|identity| identity.anchor);
            anchor.unwrap_or(self.config.anchor) == from
                && at.open.is_some()
                && *link_layer == told.link_layer
        });
        found.map(|(place, _)| place.clone())
    }

    fn denied(
        &mut self,
        now: Time,
        place: &Place,
        node: NodeId,
        answer: &BindingAcknowledgement,
        anchors: Option<UnixTime>,
        from: IpAddr,
    ) {
        let status = answer.status;
        // Only then the acknowledgement carries the anchor's time.
        let anchors = anchors.filter(|_| status == Status::TIMESTAMP_MISMATCH);
        let off = anchors.map(|anchors| Off::of(self.config.clock.at(now), anchors));
        self.report(Report::Denied { node: Some(node), status, with: from.into(), off });
        let Some(at) = self.stations.get_mut(place) else { return };
        let hurry = at.hurried < HURRIED_MAX;
        at.hurried += 1;
        match status {
            // Another gateway was faster, or the numbers belong to an earlier start: retry with new ones.
            Status::TIMESTAMP_LOWER_THAN_PREV_ACCEPTED if hurry => self.send_update(now, place),
            Status::SEQUENCE_OUT_OF_WINDOW if hurry => {
                self.sequence = answer.sequence;
                self.send_update(now, place);
            }
            // Transient: the update is retransmitted as if there had been no answer.
            Status::TIMESTAMP_LOWER_THAN_PREV_ACCEPTED
            | Status::SEQUENCE_OUT_OF_WINDOW
            | Status::TIMESTAMP_MISMATCH
            | Status::REASON_UNSPECIFIED
            | Status::INSUFFICIENT_RESOURCES => {}
            _ => self.lost(place, Why::Refused),
        }
    }

    /// Handles the end of a registration by the anchor.
    pub(super) fn lost(&mut self, place: &Place, why: Why) {
        let Some(at) = self.stations.get(place) else { return };
        if let (Some(_), Some(identity)) = (at.registered, &at.identity) {
            let (node, link_layer) = (identity.node.clone(), place.1.clone());
            self.report(Report::Left { node, link_layer, why });
        }
        self.tell_end(place, why);
        self.forget_stored(place);
    }

    /// Starts the renewal of a registration: probes first whether the host is still there. A host without a known
    /// address is renewed if the driver has heard it since, or if only solicitations show hosts.
    pub(super) fn renew(&mut self, now: Time, place: &Place) {
        // A renewal would take the registration back.
        if self.is_taken_over(place, true) {
            self.lost(place, Why::Displaced);
            return;
        }
        let Some(at) = self.stations.get_mut(place) else { return };
        let by = self.config.accesses[at.access].by;
        if at.link_local.is_none() && (at.heard || by == AttachBy::Solicitation) {
            self.send_update(now, place);
            return;
        }
        if let Next::To(state) = at.state.next(Event::Asked) {
            at.state = state;
            at.probes = 0;
            self.probe(now, place);
        }
    }

    /// Handles a sign of life of a host: finishes the probe and renews the registration.
    pub(super) fn answered(&mut self, now: Time, place: &Place) {
        let Some(at) = self.stations.get_mut(place) else { return };
        if let Next::To(state) = at.state.next(Event::Answered) {
            at.state = state;
            self.timers.cancel(&(place.clone(), Task::Probe));
            self.send_update(now, place);
        }
    }

    /// Registers all hosts of a restarted anchor again.
    pub(super) fn register_again(&mut self, now: Time, anchor: IpAddr) {
        let usual = self.config.anchor;
        // The anchor numbers its notifications anew.
        self.stations.values_mut().for_each(|at| at.notified = None);
        let is_of = |at: &Station| {
            let identity = at.identity.as_ref();
            at.state.is_served() && identity.is_some_and(|i| i.anchor.unwrap_or(usual) == anchor)
        };
        let all: Vec<Place> = self
            .stations
            .iter()
            .filter(|(_, at)| is_of(at))
            .map(|(place, _)| place.clone())
            .collect();
        all.iter().for_each(|place| self.send_update(now, place));
    }

    fn next_sequence(&mut self) -> u16 {
        loop {
            self.sequence = self.sequence.wrapping_add(1);
            if !self.open.contains_key(&self.sequence) {
                return self.sequence;
            }
        }
    }
}
