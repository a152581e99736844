//! Registrations: the order of the checks (RFC 5213, section 5.3), and the life of bindings.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{Span, Time, UnixTime};
use segue_ip::{Output, Prefix};
use segue_mobility::{Binding, Entered, Lifetime, Untimely};
use segue_wire::mobility::Status;
use segue_wire::mobility::option::{AccessTechnology, Handoff};

use segue_clock::planted::fault;

use super::Lma;
use super::answer::Answer;
use super::config::Nodes;
use super::io::{LmaRecord, Presence};
use super::lookup::Found;
use super::state::{
    LinkQuality, Roams, SESSION, Session, SessionState, Stage, WAITING, Waiting, Way,
};
use crate::message::{Registration, Update};
use crate::news::{Cause, Off, Why};
use crate::{NodeId, PeerAddress, Refusal, Report};

/// Maximum number of registrations that wait for the end of another binding.
const WAITING_MAX: usize = 4_096;

/// Maximum numbers of interfaces and prefixes of a host. Within them, a host's prefixes at other gateways fit into one
/// message.
const INTERFACES_MAX: usize = 16;
const PREFIXES_MAX: usize = 48;
/// Maximum number of unknown gateways that are reported, and the time until one is reported again.
const NAMED_MAX: usize = 16;
const NAMED_AGAIN: Span = Span::from_secs(3_600);
/// This many moves between the same two gateways within this time are reported. A mobile host does not move so often.
const TWICE: u32 = 6;
const TO_AND_FRO: Span = Span::from_secs(30);
/// Maximum number of replies per second to unknown peers.
const STRANGERS_MAX: u32 = 10;

/// Result of an update.
enum Outcome {
    /// Accepted: the prefixes, the lifetime, and the binding unless it ends.
    Granted(Vec<Prefix>, Lifetime, Option<u32>),
    /// The answer waits for the driver's authorization.
    Unauthorized,
    /// The answer waits until this binding has ended, or until the wait is over.
    Later(u32),
}

/// Why an update is refused.
pub(super) enum Denial {
    /// Reported to the peer, with our time of day if the clocks disagree.
    Status(Status, Option<UnixTime>),
    /// Ignored without an answer.
    Silent(Refusal),
}

impl From<Status> for Denial {
    fn from(status: Status) -> Denial {
        Denial::Status(status, None)
    }
}

impl Lma {
    /// Processes an update and answers it.
    pub(super) fn update(&mut self, now: Time, update: Update, stage: Stage) {
        match self.register(now, &update, stage) {
            Ok(Outcome::Granted(prefixes, lifetime, number)) => {
                // Supersedes pending registrations of the same interface.
                self.waiting.retain(|_, waits| !waits.update.is_of_same(&update));
                let answer = self.grant(&update, prefixes, lifetime, number);
                self.acknowledge(&update, answer);
                self.notify_of(now, &update);
            }
            Ok(Outcome::Unauthorized) => self.authorize(now, update),
            Ok(Outcome::Later(session)) => {
                // A retransmission replaces the waiting update; only the last one is answered.
                let same = |waits: &&mut Waiting| waits.update.is_repeated_by(&update);
                if let Some(waits) = self.waiting.values_mut().find(same) {
                    waits.update = update;
                    return;
                }
                if self.waiting.len() >= WAITING_MAX {
                    self.refuse(Refusal::Full);
                    return;
                }
                let key = (now + self.config.assign_delay, self.number(WAITING));
                self.waiting.insert(key, Waiting { session, update });
            }
            Err(Denial::Silent(why)) => self.refuse(why),
            Err(Denial::Status(status, own_time)) => self.deny(now, &update, status, own_time),
        }
    }

    /// Refuses an update with a status.
    pub(super) fn deny(
        &mut self,
        now: Time,
        update: &Update,
        status: Status,
        own_time: Option<UnixTime>,
    ) {
        self.tell_failed(update);
        self.refuse(Refusal::Denied(status));
        // Unknown peers are not logged, and replies to them are rate-limited because their source may be forged.
        let answer = Answer { status, own_time, ..Answer::default() };
        if self.allowed(update.ends.peer.0).is_none() {
            if self.may_answer_stranger(now) {
                self.acknowledge(update, answer);
            }
            self.name_stranger(now, update);
            return;
        }
        let (node, with) = (update.asked.node.clone(), update.proxy_coa());
        let off = own_time.zip(update.asked.timestamp).map(|(own, sent)| Off::of(sent, own));
        self.report(Report::Denied { node, status, with, off });
        self.acknowledge(update, answer);
    }

    /// Reports a gateway that is not allowed. The number of reports is bounded, because the source may be forged.
    fn name_stranger(&mut self, now: Time, update: &Update) {
        let Some(node) = update.asked.node.clone() else { return };
        let gateway = update.ends.peer.0;
        self.named.retain(|_, at| now < *at + NAMED_AGAIN);
        if self.named.len() < NAMED_MAX && !self.named.contains_key(&gateway) {
            self.named.insert(gateway, now);
            self.report(Report::Stranger { gateway: gateway.into(), node });
        }
    }

    /// Counts the moves of an interface between two gateways. Too many back and forth suggest two machines with the
    /// same link-layer address, which is reported.
    fn roams(&mut self, now: Time, number: u32, from: PeerAddress, to: PeerAddress) {
        let Some(session) = self.sessions.value_mut(&number) else { return };
        let roams = &mut session.roams;
        if roams.between != Some((to, from)) && roams.between != Some((from, to))
            || now.since(roams.since) > TO_AND_FRO
        {
            *roams = Roams { between: Some((from, to)), since: now, ..*roams };
            roams.count = 0;
        }
        roams.count += 1;
        if roams.count < TWICE || roams.said.is_some_and(|at| now < at + NAMED_AGAIN) {
            return;
        }
        roams.said = Some(now);
        let (node, link_layer) = (session.node.clone(), session.link_layer.clone());
        self.report(Report::Twice { node, link_layer, gateways: [from, to] });
    }

    fn may_answer_stranger(&mut self, now: Time) -> bool {
        let (since, count) = &mut self.strangers;
        if now >= *since + Span::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= STRANGERS_MAX
    }

    fn register(&mut self, now: Time, update: &Update, stage: Stage) -> Result<Outcome, Denial> {
        let asked = &update.asked;
        let node = asked.node.clone().ok_or(Status::MISSING_MN_IDENTIFIER_OPTION)?;
        let coa = update.proxy_coa();
        if self.allowed(update.ends.peer.0).is_none() || self.allowed(coa.address).is_none() {
            return Err(Status::MAG_NOT_AUTHORIZED_FOR_PROXY_REG.into());
        }
        if let Nodes::Listed(nodes) = &self.config.nodes {
            match nodes.get(&node) {
                None => return Err(Status::NOT_LMA_FOR_THIS_MOBILE_NODE.into()),
                Some(false) => return Err(Status::PROXY_REG_NOT_ENABLED.into()),
                Some(true) => {}
            }
        }
        // A deferred update was checked on arrival.
        if stage == Stage::Came {
            self.check_order(&node, update)?;
        }
        if asked.prefixes.is_empty() {
            return Err(Status::MISSING_HOME_NETWORK_PREFIX_OPTION.into());
        }
        asked.handoff.ok_or(Status::MISSING_HANDOFF_INDICATOR_OPTION)?;
        let access = asked.access.ok_or(Status::MISSING_ACCESS_TECH_TYPE_OPTION)?;
        let found = self.look_up(&node, update);
        if update.lifetime.is_zero() {
            return self.leave(now, &found, update);
        }
        let number = match found {
            Found::Session(number) => Some(number),
            Found::New | Found::Shares | Found::Perhaps(_) if self.is_asked(stage) => {
                return Ok(Outcome::Unauthorized);
            }
            Found::Perhaps(number) if stage != Stage::Waited => return Ok(Outcome::Later(number)),
            Found::New | Found::Shares | Found::Perhaps(_) => None,
            Found::Denied(status) => return Err(status.into()),
        };
        // A re-registration from a gateway that the host has left: the gateway has not noticed the handover.
        let elsewhere = |at: &Binding<PeerAddress, Session>| {
            at.peer != coa && at.value.state == SessionState::Active
        };
        if asked.handoff == Some(Handoff::REREGISTRATION)
            && number.and_then(|number| self.sessions.get(&number)).is_some_and(elsewhere)
        {
            return Err(Status::ADMINISTRATIVELY_PROHIBITED.into());
        }
        self.check_tunnel(update, number)?;
        let lifetime = update.lifetime.grant(self.config.longest);
        let number = match number {
            Some(number) => self.renew(now, number, update, access, lifetime),
            None => {
                let prefixes = match found {
                    Found::Shares => self.shared(&node, update),
                    _ => self.allocate(now, &node, update)?,
                };
                self.create(now, node, update, access, prefixes, lifetime)?
            }
        };
        let session = self.sessions.get(&number);
        let prefixes = session.map_or(Vec::new(), |at| at.value.prefixes.clone());
        Ok(Outcome::Granted(prefixes, lifetime, Some(number)))
    }

    /// Checks that an update is newer than the previous ones. Its timestamp is compared with its arrival time, so that
    /// time spent waiting here is not taken for a clock difference.
    fn check_order(&self, node: &NodeId, update: &Update) -> Result<(), Denial> {
        let before = self.ordered_by(node, update).map(|session| session.order);
        let order = before.unwrap_or_default();
        match update.asked.timestamp {
            Some(sent) => {
                let own = self.config.clock.at(update.arrived);
                order.timestamp.check(sent, own, self.config.window).map_err(|why| {
                    let own = matches!(why, Untimely::Mismatch { .. }).then_some(own);
                    Denial::Status(why.status(), own)
                })
            }
            None => order
                .sequence
                .check(update.sequence)
                .map_err(|_| Denial::Status(Status::SEQUENCE_OUT_OF_WINDOW, None)),
        }
    }

    /// Prefixes of a binding that shares them: the requested ones, or those of the host's first binding.
    fn shared(&self, node: &NodeId, update: &Update) -> Vec<Prefix> {
        if update.names_prefixes() {
            return update.asked.prefixes.clone();
        }
        let host = self.hosts.get(node);
        let numbers = host.into_iter().flat_map(|host| &host.sessions);
        let first = { numbers }.find_map(|number| self.sessions.get(number));
        first.map_or(Vec::new(), |at| at.value.prefixes.clone())
    }

    /// Leases the prefixes of a new binding: each requested one, or any one.
    fn allocate(
        &mut self,
        now: Time,
        node: &NodeId,
        update: &Update,
    ) -> Result<Vec<Prefix>, Denial> {
        let host = self.hosts.get(node);
        let more = update.asked.prefixes.len();
        if host.is_some_and(|host| {
            host.sessions.len() >= INTERFACES_MAX || host.prefixes.len() + more > PREFIXES_MAX
        }) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let key = (node.clone(), update.asked.link_layer.clone());
        let named = update.asked.prefixes.iter().filter(|prefix| !prefix.addr.is_unspecified());
        let named: Vec<Prefix> = named.copied().collect();
        let mut leased = Vec::new();
        for prefix in &named {
            let taken = self.leases.take(now, &key, *prefix, None);
            if self.holders.contains_key(prefix) || taken.is_err() {
                self.give_back(now, node, &leased);
                return Err(Status::NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX.into());
            }
            leased.push(*prefix);
        }
        if named.is_empty() {
            // Prefer a prefix that the interface had before, unless another binding holds it.
            let free = |prefix: &Prefix| !self.holders.contains_key(prefix);
            let own = self.leases.of(&key).find(free).filter(|_| !fault(39));
            let prefix = own.or_else(|| self.leases.another(now, &key, None));
            leased.push(prefix.ok_or(Status::INSUFFICIENT_RESOURCES)?);
        }
        Ok(leased)
    }

    /// Releases prefixes that were leased for a failed registration, except those that the host already has.
    fn give_back(&mut self, now: Time, node: &NodeId, prefixes: &[Prefix]) {
        let kept = |prefix: &&Prefix| {
            self.hosts.get(node).is_some_and(|host| host.prefixes.contains_key(prefix))
        };
        let given: Vec<Prefix> = prefixes.iter().filter(|prefix| !kept(prefix)).copied().collect();
        given.into_iter().for_each(|prefix| self.leases.release_one(now, prefix));
    }

    fn create(
        &mut self,
        now: Time,
        node: NodeId,
        update: &Update,
        access: AccessTechnology,
        prefixes: Vec<Prefix>,
        lifetime: Lifetime,
    ) -> Result<u32, Denial> {
        let number = loop {
            let number = self.number(SESSION) as u32;
            if self.sessions.get(&number).is_none() {
                break number;
            }
        };
        let link_layer = update.asked.link_layer.clone();
        let session = Session {
            node: node.clone(),
            link_layer: link_layer.clone(),
            access,
            prefixes: prefixes.clone(),
            bid: self.free_bid(&node),
            state: SessionState::Active,
            since: now,
            leaves: None,
            link: LinkQuality::default(),
            link_told: now,
            steady: now,
            order: super::Order::default(),
            gre: None,
            link_local: None,
            told: None,
            asked: None,
            roams: Roams::default(),
        };
        let (peer, until) = (update.proxy_coa(), lifetime.end(now));
        let displaced = match self.sessions.enter(number, Binding { peer, until, value: session }) {
            Err(_) => {
                self.give_back(now, &node, &prefixes);
                return Err(Status::INSUFFICIENT_RESOURCES.into());
            }
            Ok(Entered::Displaced(other, binding)) => Some((other, binding)),
            Ok(_) => None,
        };
        self.enter_link_layer(&link_layer, number);
        let is_renewal = update.asked.handoff == Some(Handoff::REREGISTRATION);
        let is_forgotten = is_renewal && !self.peers.contains_key(&peer);
        self.reach(now, peer, Way::of(update));
        if is_forgotten {
            // The gateway registered this host at an earlier start and may have more hosts: announce the restart.
            self.show_itself(peer);
        }
        self.encapsulate(number, update.wants_gre());
        let host = self.hosts.entry(node.clone()).or_default();
        host.sessions.insert(number);
        let mut leased = Vec::new();
        for prefix in &prefixes {
            self.holders.entry(*prefix).or_default().insert(number);
            if !host.prefixes.contains_key(prefix) {
                host.prefixes.insert(*prefix, link_layer.clone());
                leased.push(*prefix);
            }
        }
        for prefix in leased {
            self.store_lease(prefix, &node, link_layer.clone(), None);
        }
        // Not earlier: the displaced binding may be the host's only other one, and its end would have released the
        // host's prefixes.
        if let Some((other, binding)) = displaced {
            self.ended(now, other, binding, Why::Displaced);
        }
        self.accept(number, update);
        self.tell_bound(number);
        self.tell_presence(number, Presence::There);
        self.gone.clear();
        self.follow(now, &node);
        self.tell_gone(now, &node, Cause::Back);
        let prefix = prefixes.first().copied();
        self.report(Report::Registered { node, link_layer, with: peer, prefix });
        Ok(number)
    }

    /// Renews a binding or moves it to another gateway.
    fn renew(
        &mut self,
        now: Time,
        number: u32,
        update: &Update,
        access: AccessTechnology,
        lifetime: Lifetime,
    ) -> u32 {
        let Some(Binding { peer: before, mut value, .. }) = self.sessions.remove(&number) else {
            return number;
        };
        self.leave_link_layer(&value, number);
        self.enter_link_layer(&update.asked.link_layer, number);
        let peer = update.proxy_coa();
        let (node, link_layer) = (value.node.clone(), update.asked.link_layer.clone());
        let moved = before != peer;
        let was = value.gre.map(|gre| self.keyed(before, gre));
        value.leaves = value.leaves.filter(|_| !moved);
        self.fading.extend(value.leaves.map(|until| (until, number)));
        let same_access = value.access == access;
        let prefixes = value.prefixes.clone();
        if moved || value.state == SessionState::Leaving {
            (value.since, value.steady) = (now, now);
            value.link = LinkQuality::default();
        }
        // A gateway that is new to the host does not know its other interfaces, even if it served the host before.
        if moved || update.asked.handoff != Some(Handoff::REREGISTRATION) {
            (value.told, value.asked) = (None, None);
        }
        let was_there = value.state == SessionState::Active;
        if value.link_layer != link_layer {
            self.tell_unbound(node.clone(), value.link_layer.clone(), Why::Displaced);
            if was_there {
                self.tell_interface(node.clone(), value.link_layer.clone(), Presence::Left);
            }
        }
        let same = !moved && was_there && same_access && value.link_layer == link_layer;
        (value.link_layer, value.access) = (link_layer.clone(), access);
        value.state = SessionState::Active;
        // There is room: the entry was removed above.
        let _ = self.sessions.enter(number, Binding { peer, until: lifetime.end(now), value });
        self.reach(now, peer, Way::of(update));
        self.encapsulate(number, update.wants_gre());
        self.accept(number, update);
        self.tell_bound(number);
        if !same {
            self.tell_presence(number, Presence::There);
        }
        self.gone.clear();
        self.follow(now, &node);
        let is_keyed = self.session(number).is_some_and(|session| session.gre.is_some());
        self.take_back(was.filter(|_| !is_keyed));
        if moved {
            self.roams(now, number, before, peer);
            // Report a single move, which includes flows that were elsewhere while the interface was detached.
            let flows = self.loads.get(&number).copied().unwrap_or(0);
            self.gone = BTreeMap::from([((before, peer), flows)]);
        }
        self.tell_gone(now, &node, if moved { Cause::Moved } else { Cause::Back });
        // This gateway serves the host: drop revocations to it that belong to an earlier stay.
        self.revocations.retain(|_, open| {
            let of_it =
                || Registration::of(&open.options).prefixes.iter().any(|p| prefixes.contains(p));
            open.session.is_some() || (&open.node, open.to) != (&node, peer) || !of_it()
        });
        self.revoke_at(now, number, peer);
        if moved {
            if !fault(36) {
                self.revoke_former(now, &node, &prefixes, before, same_access);
            }
            self.leave_gateway(before);
            self.report(Report::Moved { node, link_layer, from: before, to: peer });
        }
        number
    }

    /// Records the update's timestamp and sequence number, so that older updates are refused.
    fn accept(&mut self, number: u32, update: &Update) {
        if let Some(session) = self.sessions.value_mut(&number) {
            if let Some(sent) = update.asked.timestamp {
                session.order.timestamp.accept(sent);
            }
            session.order.sequence.accept(update.sequence);
            let said = update.asked.link_local.filter(Ipv6Addr::is_unicast_link_local);
            session.link_local = said.or(session.link_local);
            if fault(38) && session.told.is_some() {
                return;
            }
        }
        self.store(number);
    }

    /// Stores a binding, or deletes its record.
    pub(super) fn store(&mut self, number: u32) {
        let stored = self.sessions.get(&number).map(|at| self.stored(at));

        self.out.push_back(Output::Persist(LmaRecord::Session(number, stored)));
    }

    /// Handles a deregistration: the interface has left its gateway. The binding stays for `delete_delay`.
    fn leave(&mut self, now: Time, found: &Found, update: &Update) -> Result<Outcome, Denial> {
        let Found::Session(number) = *found else {
            // The registration may still be waiting: cancel it.
            self.waiting.retain(|_, waits| !waits.update.is_repeated_by(update));
            self.unauthorized.retain(|_, asked| !asked.update.is_repeated_by(update));
            return Err(Denial::Silent(Refusal::NoBinding));
        };
        let until = now + self.config.delete_delay;
        let is_its_own =
            |at: &&Binding<PeerAddress, Session>| at.peer == update.proxy_coa() || fault(37);
        let Some(at) = self.sessions.get(&number).filter(is_its_own) else {
            return Err(Denial::Silent(Refusal::NoBinding));
        };
        let (node, prefixes) = (at.value.node.clone(), at.value.prefixes.clone());
        if at.value.state == SessionState::Active {
            self.tell_presence(number, Presence::Left);
            self.sessions.renew(&number, until);
            if let Some(session) = self.sessions.value_mut(&number) {
                session.state = SessionState::Leaving;
            }
            self.gone.clear();
            self.follow(now, &node);
            // Traffic without individually placed flows moves too: report the handover even if no flow moved.
            let takes =
                prefixes.iter().find_map(|prefix| self.usable(&node, *prefix).first().copied());
            if let Some(to) = takes.and_then(|number| self.sessions.get(&number)).map(|at| at.peer)
            {
                self.gone.entry((update.proxy_coa(), to)).or_default();
            }
            self.tell_gone(now, &node, Cause::Left);
        }
        self.accept(number, update);
        self.end_waits(now, number);
        Ok(Outcome::Granted(prefixes, Lifetime::ZERO, None))
    }

    /// Cleans up after a binding that was removed from the cache.
    pub(super) fn ended(
        &mut self,
        now: Time,
        number: u32,
        Binding { peer, value, .. }: Binding<PeerAddress, Session>,
        why: Why,
    ) {
        for prefix in &value.prefixes {
            if let Some(holders) = self.holders.get_mut(prefix) {
                holders.remove(&number);
                if holders.is_empty() {
                    self.holders.remove(prefix);
                }
            }
        }
        if let Some(host) = self.hosts.get_mut(&value.node) {
            host.sessions.remove(&number);
        }
        self.leave_link_layer(&value, number);
        if value.state == SessionState::Active {
            // For a leaving interface this was reported when it left.
            self.tell_interface(value.node.clone(), value.link_layer.clone(), Presence::Left);
        }
        self.store(number);
        self.notifications.retain(|_, open| !open.is_of(number));
        self.follow(now, &value.node);
        self.take_back(value.gre.map(|gre| self.keyed(peer, gre)));
        self.leave_gateway(peer);
        self.notify(now, &value.node);
        let Session { node, link_layer, .. } = value;
        self.tell_unbound(node.clone(), link_layer.clone(), why);
        self.report(Report::Left { node, link_layer, why });
        self.end_waits(now, number);
    }

    /// Processes the registrations that waited for this binding to end.
    fn end_waits(&mut self, now: Time, session: u32) {
        let due = self.waiting.iter().filter(|(_, waits)| waits.session == session);
        let due: Vec<(Time, u64)> = due.map(|(key, _)| *key).collect();
        let due = due.into_iter().filter_map(|key| Some((key, self.waiting.remove(&key)?)));
        let due: BTreeMap<(Time, u64), Waiting> = due.collect();
        self.take_up(now, due);
    }

    /// Processes registrations whose wait is over: they are about an additional interface.
    pub(super) fn wait_no_longer(&mut self, now: Time) {
        if fault(41) {
            return;
        }
        let later = self.waiting.split_off(&(now, u64::MAX));
        let due = core::mem::replace(&mut self.waiting, later);
        self.take_up(now, due);
    }

    fn take_up(&mut self, now: Time, due: BTreeMap<(Time, u64), Waiting>) {
        due.into_values().for_each(|waits| self.update(now, waits.update, Stage::Waited));
    }

    /// Notifies the gateways after the acknowledgement, so that they know the host that the notification is about.
    fn notify_of(&mut self, now: Time, update: &Update) {
        if let Some(node) = &update.asked.node {
            self.notify(now, node);
        }
    }

    fn free_bid(&self, node: &NodeId) -> u16 {
        let numbers = self.hosts.get(node).into_iter().flat_map(|host| &host.sessions);
        let used: Vec<u16> =
            numbers.filter_map(|n| self.sessions.get(n)).map(|at| at.value.bid).collect();
        (1..=u16::MAX).find(|bid| !used.contains(bid)).unwrap_or(u16::MAX)
    }
}
