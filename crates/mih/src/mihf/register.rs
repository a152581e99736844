//! Registrations of peers here, and of this function elsewhere.

use segue_clock::planted::fault;
use segue_wire::mih::codes::{CommandList, EventList, RegisterRequestCode, Status, TransportList};
use segue_wire::mih::identity::{LinkAddress, LinkId, NetworkType, NetworkTypeAddress};
use segue_wire::mih::{MessageId, OctetString, Tlv};

use super::state::{Purpose, Task};
use super::*;

/// Delay before registering again after a refusal or a timeout.
pub(super) const RETRY: Span = Span::from_secs(1);
/// Maximum number of links per owner.
const LINKS_OF_ONE: usize = 64;
/// Maximum length of a link address in octets; 3GPP addresses have up to 15.
const ADDRESS_MAX: usize = 16;
/// Number of links that fit into one datagram.
const LINKS_IN_UDP: usize = 60;
/// Interval of Capability_Discover while a link that an interest names is unknown.
const LOOK: Span = Span::from_secs(1);

/// The events that functions forward.
const EVENTS: EventList = EventList(
    EventList::LINK_DETECTED.0
        | EventList::LINK_UP.0
        | EventList::LINK_DOWN.0
        | EventList::LINK_PARAMETERS_REPORT.0
        | EventList::LINK_GOING_DOWN.0,
);

impl Mihf {
    /// Handles a registration request.
    pub(super) fn register(
        &mut self,
        now: Time,
        request: &Request,
        tlvs: &[Tlv],
    ) -> Result<Served, Refusal> {
        let (path, name) = (request.path, &request.name);
        if !self.may_register(path.remote.address) {
            return Err(Refusal::Stranger);
        }
        let code = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::RegisterRequestCode(code) => Some(*code),
            _ => None,
        });
        let links = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::LinkIdentifierList(links) => Some(&links[..]),
            _ => None,
        });
        let rejected = Ok(Served::Now(Vec::from([Tlv::Status(Status::REJECTED)])));
        let known = self.clients.get(name);
        if known.is_some_and(|client| client.at.remote.address != path.remote.address) {
            self.refuse(Refusal::NameTaken);
            return rejected;
        }
        // An unknown peer that renews lost its state here: it must register and subscribe again.
        let renews = code == Some(RegisterRequestCode::RE_REGISTRATION);
        // The same holds for a peer that moved, because events may have been sent to its old endpoint.
        let stayed = known.is_some_and(|client| client.at.remote == path.remote);
        if renews && !stayed && !fault(49) {
            return rejected;
        }
        let node = path.remote.address;
        let here = self.clients.values().filter(|client| client.at.remote.address == node).count();
        let is_full = self.clients.len() >= CLIENTS_MAX || here >= CLIENTS_OF_NODE;
        if known.is_none() && is_full {
            self.refuse(Refusal::Full);
            return rejected;
        }
        let known = known.is_some();
        if !renews {
            self.seen.forget(path.remote);
            // Drops pending subscriptions at its links; they are repeated below.
            let (party, owner) = (Party::Client(name.clone()), Some(Owner::Client(name.clone())));
            let is_own = |id: &&LinkId| self.links.get(id).is_some_and(|link| link.owner == owner);
            let own: Vec<LinkId> =
                links.unwrap_or_default().iter().filter(is_own).cloned().collect();
            self.drop_open(now, |open| match &open.purpose {
                Purpose::Subscribe(link, _) | Purpose::Unsubscribe(link) => own.contains(link),
                // Pending events may be addressed to its old endpoint.
                Purpose::Event(line) => line.party == party,
                _ => false,
            });
            self.lines.retain(|line, _| line.party != party);
        }
        if !renews && known {
            // It restarted.
            self.drop_subscriptions(now, &Party::Client(name.clone()));
        }
        if !known {
            self.report(Report::Registered(name.clone()));
        }
        let until = now + self.config.validity;
        let remote = path.remote;
        let before = self.clients.insert(name.clone(), Client { at: path, until });
        // Its port changed.
        if let Some(old) = before.map(|old| old.at.remote).filter(|old| *old != remote) {
            self.transactions.remove(&old);
            self.round_trips.remove(&old);
        }
        self.timers.set(Task::Lapse(name.clone()), until);
        let seconds = (self.config.validity.as_micros() / 1_000_000) as u32;
        let granted = [Tlv::Status(Status::SUCCESS), Tlv::ValidTimeInterval(seconds)];
        // The answer goes out before subscriptions to its links.
        self.answer(now, request, granted.into());
        for link in links.unwrap_or_default() {
            self.offered(now, link, &Owner::Client(name.clone()), renews);
        }
        Ok(Served::Answered)
    }

    /// A peer offers a link.
    fn offered(&mut self, now: Time, id: &LinkId, owner: &Owner, known: bool) {
        // Users identify a link by its address alone, so the type does not matter here.
        let same = self.links.iter().filter(|(other, _)| other.address == id.address);
        let others = same.filter_map(|(of, link)| Some((of, link.owner.as_ref()?)));
        let others: Vec<(&LinkId, &Owner)> = others.filter(|(_, of)| *of != owner).collect();
        let nearness = self.nearness(owner);
        let is_taken = others.iter().any(|(_, of)| self.nearness(of) >= nearness);
        if is_taken || length(&id.address) > ADDRESS_MAX {
            self.refuse(Refusal::Link);
            return;
        }
        let lost: Vec<LinkId> = others.into_iter().map(|(of, _)| of.clone()).collect();
        let node = self.node_of(owner);
        let count = |is_theirs: &dyn Fn(&Link) -> bool| {
            self.links.values().filter(|link| is_theirs(link)).count()
        };
        let is_full = self.links.len() >= LINKS_MAX
            || count(&|link| link.owner.as_ref() == Some(owner)) >= LINKS_OF_ONE
            || count(&|link| link.node == node) >= LINKS_OF_NODE;
        if is_full && !self.links.contains_key(id) {
            self.refuse(Refusal::Full);
            return;
        }
        lost.iter().for_each(|of| self.orphan(now, of));
        let link = self.links.entry(id.clone()).or_insert_with(|| Link::of(owner.clone()));
        link.node = node;
        if link.owner.is_none() || !known {
            link.owner = Some(owner.clone());
            (link.told, link.asking) = (EventList(0), false);
        }
        self.want(now, id);
    }

    fn node_of(&self, owner: &Owner) -> Option<IpAddr> {
        match owner {
            Owner::Own => None,
            Owner::Client(name) => self.clients.get(name).map(|client| client.at.remote.address),
            Owner::Function(number) => Some(self.functions[*number].remote.address),
        }
    }

    /// Precedence among owners that claim the same link; the first claim wins a tie.
    fn nearness(&self, owner: &Owner) -> u8 {
        let is_here = || self.node_of(owner).is_some_and(|node| node.is_loopback());
        match owner {
            Owner::Own => 3,
            Owner::Client(_) if is_here() => 2,
            // More than a remote client, because the operator configured it.
            Owner::Function(_) => 1,
            Owner::Client(_) => 0,
        }
    }

    /// Removes the owner of a link. The link stays while it has subscribers or interests here: losing its owner does
    /// not mean that its stations left.
    fn orphan(&mut self, now: Time, id: &LinkId) {
        self.drop_open(now, |open| match &open.purpose {
            Purpose::Subscribe(link, _) | Purpose::Unsubscribe(link) => link == id,
            _ => false,
        });
        let Some(link) = self.links.get_mut(id) else { return };
        (link.owner, link.told, link.asking) = (None, EventList(0), false);
        self.not_subscribed(now, id);
        let unwanted = |link: &Link| link.subscribed.is_empty();
        if self.links.get(id).is_some_and(unwanted) && !self.is_interesting(id) {
            self.links.remove(id);
            self.timers.cancel(&Task::Settle(id.clone()));
        }
    }

    /// The TLVs of a Capability_Discover response: our links, events, commands and transports.
    pub(super) fn capabilities(&self, transport: Transport) -> Vec<Tlv> {
        let network_type = |of: &LinkId| NetworkType {
            link_type: Some(of.link_type),
            subtype: None,
            extension: None,
        };
        let most = if transport == Transport::Udp { LINKS_IN_UDP } else { LINKS_MAX };
        let there = self.links.iter().filter(|(_, link)| link.owner.is_some()).take(most);
        let links = there.map(|(id, _)| NetworkTypeAddress {
            network_type: network_type(id),
            address: id.address.clone(),
        });
        Vec::from([
            Tlv::Status(Status::SUCCESS),
            Tlv::LinkAddressList(links.collect()),
            Tlv::EventList(EVENTS),
            Tlv::CommandList(
                CommandList::LINK_GET_PARAMETERS
                    | CommandList::LINK_CONFIGURE_THRESHOLDS
                    | CommandList::LINK_ACTIONS,
            ),
            Tlv::TransportOptionList(TransportList::UDP | TransportList::TCP),
        ])
    }

    /// Forgets a peer: its registration, subscriptions and links.
    pub(super) fn forget(&mut self, now: Time, party: &Party) {
        if let Party::Client(name) = party {
            let Some(client) = self.clients.remove(name) else { return };
            self.timers.cancel(&Task::Lapse(name.clone()));
            self.round_trips.remove(&client.at.remote);
            self.transactions.remove(&client.at.remote);
            self.report(Report::Gone(name.clone()));
            let to = client.at.remote;
            self.drop_open(now, |open| open.to.remote == to);
            self.lines.retain(|line, _| line.party != *party);
        }
        self.drop_subscriptions(now, party);
        let own = self
            .links
            .iter()
            .filter(|(_, link)| link.owner.as_ref().and_then(Owner::party).as_ref() == Some(party));
        let own: Vec<LinkId> = own.map(|(id, _)| id.clone()).collect();
        own.iter().for_each(|id| self.orphan(now, id));
    }

    /// Registers at a function, or renews the registration.
    pub(super) fn register_at(&mut self, now: Time, number: usize) {
        let party = Party::Function(number);
        let (Some(way), Some(function)) = (self.way(&party), self.functions.get_mut(number)) else {
            return;
        };
        if core::mem::replace(&mut function.asking, true) {
            return;
        }
        function.asked_at = now;
        let code = if function.registered {
            RegisterRequestCode::RE_REGISTRATION
        } else {
            RegisterRequestCode::REGISTRATION
        };
        let links = self.config.links.iter().map(|link| link.id.clone()).collect();
        let tlvs = Vec::from([Tlv::LinkIdentifierList(links), Tlv::RegisterRequestCode(code)]);
        if !self.ask(now, way, MessageId::REGISTER, tlvs, Purpose::Register(number)) {
            self.not_registered(now, number);
        }
    }

    /// An event was retransmitted to a function: renews the registration at once (once per `RETRY`), which
    /// shows whether the function still knows us.
    pub(super) fn doubt(&mut self, now: Time, number: usize) {
        let function = &self.functions[number];
        if !function.asking && now.since(function.asked_at) >= RETRY {
            self.timers.set(Task::Register(number), now);
        }
    }

    /// Marks a function as not registered, and registers again later.
    pub(super) fn not_registered(&mut self, now: Time, number: usize) {
        let Some(function) = self.functions.get_mut(number) else { return };
        function.asking = false;
        let was = core::mem::replace(&mut function.registered, false);
        let is_new =
            !was && function.name.is_none() && !core::mem::replace(&mut function.silent, true);
        let address = function.remote.address;
        let name = function.name.clone().unwrap_or_default();
        self.timers.set(Task::Register(number), now + RETRY);
        self.timers.cancel(&Task::Discover(number));
        // A late answer to the renewal would wrongly mark us as registered.
        self.drop_open(now, |open| matches!(open.purpose, Purpose::Register(of) if of == number));
        if was {
            self.report(Report::Lost(name));
        } else if is_new {
            self.report(Report::Silent(address));
        }
    }

    /// Handles the answer to a registration.
    pub(super) fn registered_at(
        &mut self,
        now: Time,
        number: usize,
        name: &OctetString,
        status: Status,
        tlvs: &[Tlv],
    ) {
        let Some(function) = self.functions.get_mut(number) else { return };
        function.asking = false;
        let was = function.registered;
        if status != Status::SUCCESS {
            self.not_registered(now, number);
            if was {
                // The function restarted.
                self.timers.set(Task::Register(number), now);
            }
            return;
        }
        (function.registered, function.name) = (true, Some(name.clone()));
        let valid = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::ValidTimeInterval(seconds) => Some(Span::from_secs((*seconds).into())),
            _ => None,
        });
        // A node without traffic notices a restart only by its renewals, so the interval is limited.
        let valid = valid.unwrap_or(self.config.validity).min(self.config.validity).max(RETRY * 2);
        self.timers.set(Task::Register(number), now + valid.half());
        if !was {
            self.report(Report::RegisteredAt(name.clone()));
            self.drop_questions(now, number);
            if let Some((path, _)) = self.way(&Party::Function(number)) {
                self.seen.forget(path.remote);
            }
            for link in self.links.values_mut() {
                if link.owner == Some(Owner::Function(number)) {
                    (link.told, link.asking) = (EventList(0), false);
                }
            }
        }
        if !self.config.interests.is_empty() {
            self.discover(now, number);
        }
    }

    /// Drops requests that were sent to a function before the new registration; their answers no longer apply.
    fn drop_questions(&mut self, now: Time, number: usize) {
        let Some((path, _)) = self.way(&Party::Function(number)) else { return };
        let is_old = |open: &Open| {
            open.to.remote == path.remote
                && matches!(
                    open.purpose,
                    Purpose::Subscribe(..) | Purpose::Unsubscribe(_) | Purpose::Discover(_)
                )
        };
        self.drop_open(now, is_old);
    }

    /// Drops pending frames; commands among them fail.
    fn drop_open(&mut self, now: Time, which: impl Fn(&Open) -> bool) {
        let old = self.open.iter().filter(|(_, open)| which(open)).map(|(key, _)| *key);
        let old: Vec<Key> = old.collect();
        for key in old {
            self.timers.cancel(&Task::Again(key));
            if let Some(Purpose::Command(asker)) = self.open.remove(&key).map(|open| open.purpose) {
                self.unanswered(now, &asker);
            }
        }
    }

    /// Asks a function for its links.
    pub(super) fn discover(&mut self, now: Time, number: usize) {
        let Some(way) = self.way(&Party::Function(number)) else { return };
        let ask = MessageId::CAPABILITY_DISCOVER;
        if !self.ask(now, way, ask, Vec::new(), Purpose::Discover(number)) {
            self.timers.set(Task::Discover(number), now + LOOK);
        }
    }

    /// Handles a Capability_Discover response.
    pub(super) fn discovered(&mut self, now: Time, number: usize, tlvs: &[Tlv]) {
        let links = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::LinkAddressList(links) => Some(links),
            _ => None,
        });
        let events = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::EventList(events) => Some(*events),
            _ => None,
        });
        self.functions[number].events = events.unwrap_or(EVENTS);
        for found in links.into_iter().flatten() {
            let Some(link_type) = found.network_type.link_type else { continue };
            let id = LinkId { link_type, address: found.address.clone() };
            if self.is_interesting(&id) {
                self.offered(now, &id, &Owner::Function(number), true);
            }
        }
        let named = self.config.interests.iter().filter_map(|interest| interest.link.as_ref());
        let known = |address: &LinkAddress| {
            let here =
                |(id, link): (&LinkId, &Link)| id.address == *address && link.owner.is_some();
            self.links.iter().any(here)
        };
        if !{ named }.all(known) {
            self.timers.set(Task::Discover(number), now + LOOK);
        }
    }

    /// A TCP stream has ended.
    pub(super) fn closed(&mut self, now: Time, remote: Endpoint) {
        let of = |name: &Name, client: &Client| (client.at.remote == remote).then(|| name.clone());
        let client = self.clients.iter().find_map(|(name, client)| of(name, client));
        if let Some(name) = client {
            self.forget(now, &Party::Client(name));
        }
        for number in 0..self.functions.len() {
            let at = self.functions[number].remote;
            if (at.address, at.port, at.transport)
                == (remote.address, remote.port, remote.transport)
            {
                let open = self.open.iter().filter(|(_, open)| open.to.remote == remote);
                let open: Vec<Key> = open.map(|(key, _)| *key).collect();
                for key in open {
                    if let Some(Purpose::Command(asker)) =
                        self.done(now, key).map(|open| open.purpose)
                    {
                        self.unanswered(now, &asker);
                    }
                }
                self.not_registered(now, number);
            }
        }
    }

    /// Deregisters everywhere.
    pub(super) fn leave(&mut self, now: Time) {
        for number in 0..self.functions.len() {
            self.timers.cancel(&Task::Register(number));
            self.timers.cancel(&Task::Discover(number));
            if self.functions[number].registered
                && let Some(way) = self.way(&Party::Function(number))
            {
                let deregister = MessageId::DEREGISTER;
                self.ask(now, way, deregister, Vec::new(), Purpose::Deregister);
            }
        }
    }
}

/// The length of an address, in octets.
fn length(address: &LinkAddress) -> usize {
    match address {
        LinkAddress::Mac(mac) => mac.address.len(),
        LinkAddress::Cell3g(_) | LinkAddress::Cell2g(_) => 0,
        LinkAddress::Address3gpp(text)
        | LinkAddress::Address3gpp2(text)
        | LinkAddress::Other(text) => text.0.len(),
    }
}
