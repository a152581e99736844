//! The anchor's side of each path, and where its downlink goes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{Config as Keepalive, Server, ServerInput, ServerOutput, State, Tau};
use segue_wire::signal::{FromAnchor, MAX_NAME, PathGrant, PathOffer, Refusal};
use segue_wire::{MAX_PATHS, ProbeKey};

use super::hosts::Word;
use super::{Anchor, RegisteredHost};
use crate::{
    AnchorOutput, Cause, ConnId, PathSetup, ProbeIn, ProbeKind, ProbeOut, Redirect, Report,
};

/// Time constants of the anchor's averages.
const TAUS: [Tau; 2] = [
    Tau { rise: Span::from_secs(1), fall: Span::from_secs(1) },
    Tau { rise: Span::from_secs(30), fall: Span::from_secs(30) },
];
/// Probes of a loss interval at the anchor.
const LOSS_INTERVAL: u32 = 10;
/// A word older than this does not keep a newer one out, whatever their stamps say: those wrap.
const WORD_LIFE: Span = Span::from_secs(600);
/// The shortest probe period a host may ask for: bounds the anchor's work for one path.
const MIN_T_KA_MS: u16 = 5;

/// A path as the anchor has it.
pub struct AnchorPath {
    /// The host it belongs to, by number.
    pub owner: u32,
    /// The host's number for it.
    pub number: u8,
    /// The host's name for it.
    pub name: String,
    offer: PathOffer,
    grant: PathGrant,
    server: Server,
    down_at: Option<Time>,
    /// The host has said at least once that it hears this path.
    heard_once: bool,
    via: Option<Redirect>,
}

impl AnchorPath {
    /// The measurement.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The path that carries this one's downlink instead.
    #[must_use]
    pub fn via(&self) -> Option<Redirect> {
        self.via
    }

    /// K and T_KA in force.
    #[must_use]
    pub fn keepalive(&self) -> (u8, Span) {
        self.server.in_force()
    }

    /// T_Rmax of eq. 1 with K and T_KA in force and the largest RTT seen.
    #[must_use]
    pub fn detection_bound(&self) -> Span {
        let (k, t_ka) = self.keepalive();
        t_ka * (u64::from(k) + 1) + self.server.estimates().rtt_max.unwrap_or(Span::ZERO)
    }

    /// Requests arrive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.server.state() == State::Up
    }

    pub(super) fn deadline(&self) -> Option<(Time, &'static str)> {
        self.server.deadline()
    }

    /// The largest RTT, or a guess at one.
    fn rtt_max(&self) -> Span {
        self.server.estimates().rtt_max.unwrap_or(Span::from_millis(200))
    }

    /// For how long after this end has missed the requests the host may still hold the path for
    /// heard though both directions died at once: it heard the last answer a little later than this
    /// end the request, and its time-out is never more than half a period longer.
    fn doubt(&self) -> Span {
        self.keepalive().1 + self.rtt_max()
    }
}

impl Anchor {
    pub(super) fn add_path(&mut self, now: Time, conn: ConnId, owner: u32, offer: &PathOffer) {
        match self.grant(now, owner, offer) {
            Ok(grant) => {
                self.out.push_back(AnchorOutput::Signal(conn, FromAnchor::PathReady(grant)));
            }
            Err(reason) => {
                let refused = FromAnchor::PathRefused { path: offer.path, reason };
                self.out.push_back(AnchorOutput::Signal(conn, refused));
            }
        }
    }

    /// The grant for an offer: the standing one where the offer names the same receiver, else a new
    /// path in the place of the old.
    fn grant(&mut self, now: Time, owner: u32, offer: &PathOffer) -> Result<PathGrant, Refusal> {
        if usize::from(offer.path) >= MAX_PATHS || offer.k == 0 || offer.t_ka_ms < MIN_T_KA_MS {
            return Err(Refusal::NoPath);
        }
        let host = self.hosts.get(&owner).ok_or(Refusal::Protocol)?;
        let standing = host.paths.get(&offer.path).copied();
        if let Some(path) = standing.and_then(|slot| self.slots.get_mut(&slot))
            && (path.offer.index, path.offer.cookie) == (offer.index, offer.cookie)
        {
            path.offer = offer.clone();
            path.name.clone_from(&offer.name);
            return Ok(path.grant.clone());
        }
        if standing.is_some() {
            self.remove_path(owner, offer.path);
        }
        let slot = self.free_slot().ok_or(Refusal::NoPath)?;
        let grant = PathGrant {
            path: offer.path,
            index: slot,
            cookie: self.secrets.cookie(),
            key: self.secrets.key(),
        };
        self.install(now, owner, slot, offer, &grant);
        Ok(grant)
    }

    fn free_slot(&mut self) -> Option<u32> {
        let max = self.config.max_paths;
        if self.slots.len() as u64 + 1 >= u64::from(max) {
            return None;
        }
        loop {
            let slot = self.next_slot;
            self.next_slot = if slot + 1 >= max { 1 } else { slot + 1 };
            if !self.slots.contains_key(&slot) {
                return Some(slot);
            }
        }
    }

    fn install(&mut self, now: Time, owner: u32, slot: u32, offer: &PathOffer, grant: &PathGrant) {
        let keepalive = Keepalive {
            k: offer.k,
            t_ka: Span::from_millis(u64::from(offer.t_ka_ms)),
            n: LOSS_INTERVAL,
            taus: TAUS.to_vec(),
            up_after: 3,
        };
        let path = AnchorPath {
            owner,
            number: offer.path,
            name: offer.name.clone(),
            offer: offer.clone(),
            grant: grant.clone(),
            server: Server::new(keepalive, now, true),
            down_at: None,
            heard_once: false,
            via: None,
        };
        let setup = PathSetup {
            tx_index: offer.index,
            tx_cookie: offer.cookie,
            rx_cookie: grant.cookie,
            key: ProbeKey(grant.key),
            local: None,
            remote: None,
            ifindex: 0,
            gateway: None,
            owner,
        };
        let report = Report::PathAdded { host: self.name_of(owner), path: path.name.clone() };
        self.slots.insert(slot, path);
        if let Some(host) = self.hosts.get_mut(&owner) {
            host.paths.insert(offer.path, slot);
        }
        self.out.push_back(AnchorOutput::SetPath(slot, setup));
        self.out.push_back(AnchorOutput::Report(report));
    }

    pub(super) fn remove_path(&mut self, owner: u32, number: u8) {
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        let Some(slot) = host.paths.remove(&number) else { return };
        let name = self.slots.remove(&slot).map(|path| path.name).unwrap_or_default();
        // First the rest lets go of it.
        self.reroute(owner);
        self.out.push_back(AnchorOutput::RemovePath(slot));
        let report = Report::PathRemoved { host: self.name_of(owner), path: name };
        self.out.push_back(AnchorOutput::Report(report));
        self.say_heard(owner);
    }

    fn name_of(&self, owner: u32) -> String {
        self.host_name(owner).unwrap_or_default().to_string()
    }

    pub(super) fn on_probe(&mut self, now: Time, probe: &ProbeIn) {
        if probe.kind != ProbeKind::Request {
            return;
        }
        let Some(path) = self.slots.get(&probe.slot) else { return };
        let owner = path.owner;
        let mut arrival = probe.arrival;
        let word = Word {
            stamp: arrival.probe.t_sc,
            at: now,
            sent_after: now - path.rtt_max(),
            bits: arrival.probe.heard,
        };
        self.note_word(owner, word);
        if arrival.probe.t_ka_ms != 0 {
            arrival.probe.t_ka_ms = arrival.probe.t_ka_ms.max(MIN_T_KA_MS);
        }
        self.feed(now, probe.slot, ServerInput::Request { arrival, k: probe.k });
        self.reroute(owner);
    }

    /// Takes what the host says that it hears, unless a newer word has overtaken it.
    fn note_word(&mut self, owner: u32, word: Word) {
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        let overtaken = host.word.is_some_and(|last| {
            let older = word.stamp.wrapping_sub(last.stamp) >= 1 << 31;
            older && word.at.since(last.at) < WORD_LIFE
        });
        if overtaken {
            return;
        }
        host.word = Some(word);
        for (number, slot) in &host.paths {
            if word.bits >> number & 1 == 1
                && let Some(path) = self.slots.get_mut(slot)
            {
                path.heard_once = true;
            }
        }
    }

    /// Gives a path's server an input and does what it says.
    pub(super) fn feed(&mut self, now: Time, slot: u32, input: ServerInput) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        path.server.handle(now, input);
        let mut outputs = Vec::new();
        while let Some(output) = path.server.poll() {
            outputs.push(output);
        }
        for output in outputs {
            match output {
                ServerOutput::SendUnsolicited(request) => {
                    let mut probe = request.probe;
                    probe.heard = self.word_for(slot);
                    let k = self.slots.get(&slot).map_or(0, |path| path.offer.k);
                    let held_since = request.held_since;
                    let order = ProbeOut { slot, k, probe, held_since };
                    self.out.push_back(AnchorOutput::SendProbe(order));
                }
                ServerOutput::State(state) => self.on_state(now, slot, state),
                ServerOutput::Sample(_) => {}
            }
        }
    }

    fn word_for(&self, slot: u32) -> u16 {
        let owner = self.slots.get(&slot).map(|path| path.owner);
        owner.and_then(|owner| self.hosts.get(&owner)).map_or(0, |host| host.heard_word)
    }

    fn on_state(&mut self, now: Time, slot: u32, state: State) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        path.down_at = (state == State::Down).then_some(now);
        let owner = path.owner;
        let bound = path.detection_bound();
        let silent = path.server.last_request().map(|at| now.since(at));
        let name = path.name.clone();
        self.say_heard(owner);
        self.reroute(owner);
        self.review_expiry(now, owner);
        let heard = self.slots.get(&slot).is_some_and(|path| path.via.is_none());
        self.out.push_back(AnchorOutput::Report(Report::PathState {
            host: self.name_of(owner),
            path: name,
            state,
            heard,
            silent: silent.filter(|_| state == State::Down),
            bound,
        }));
    }

    /// Tells the datapath which paths of a host are heard, if that changed.
    fn say_heard(&mut self, owner: u32) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let up = |slot: &u32| self.slots.get(slot).is_some_and(AnchorPath::is_up);
        let word = host
            .paths
            .iter()
            .filter(|(_, slot)| up(slot))
            .fold(0u16, |word, (number, _)| word | 1 << number);
        let slots: Vec<u32> = host.paths.values().copied().collect();
        if let Some(host) = self.hosts.get_mut(&owner) {
            host.heard_word = word;
        }
        self.out.push_back(AnchorOutput::SetHeard(slots, word));
    }

    /// Whether the host hears this path, by the rule in the module's text.
    fn downlink_lives(&self, host: &RegisteredHost, path: &AnchorPath) -> bool {
        let Some(word) = host.word else { return path.is_up() };
        let hears = word.bits >> path.number & 1 == 1;
        hears && path.down_at.is_none_or(|down_at| word.sent_after > down_at + path.doubt())
    }

    /// The host's live path with the lowest RTT, other than `except`. One of which the host has not
    /// said anything yet comes last.
    pub(super) fn best_slot(&self, host: &RegisteredHost, except: Option<u32>) -> Option<u32> {
        host.paths
            .values()
            .filter(|slot| Some(**slot) != except)
            .filter_map(|slot| self.slots.get(slot).map(|path| (*slot, path)))
            .filter(|(_, path)| path.is_up())
            .filter(|(_, path)| self.downlink_lives(host, path) || !path.heard_once)
            .min_by(|(_, a), (_, b)| {
                b.heard_once.cmp(&a.heard_once).then(rtt_of(a).total_cmp(&rtt_of(b)))
            })
            .map(|(slot, _)| slot)
    }

    /// Redirects the downlinks of a host that are dead, and ends redirections that no longer serve.
    fn reroute(&mut self, owner: u32) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let mut changes: Vec<(u32, Option<Redirect>)> = Vec::new();
        for slot in host.paths.values() {
            let Some(path) = self.slots.get(slot) else { continue };
            let via = if !path.heard_once || self.downlink_lives(host, path) {
                None
            } else {
                let keep = path.via.filter(|via| self.serves(host, via.slot));
                keep.or_else(|| {
                    let slot = self.best_slot(host, Some(*slot))?;
                    Some(Redirect { slot, one_way: false })
                })
            };
            if via != path.via {
                changes.push((*slot, via));
            }
        }
        for (slot, via) in changes {
            self.redirect(owner, slot, via);
        }
    }

    fn serves(&self, host: &RegisteredHost, slot: u32) -> bool {
        self.slots.get(&slot).is_some_and(|path| path.is_up() && self.downlink_lives(host, path))
    }

    fn redirect(&mut self, owner: u32, slot: u32, via: Option<Redirect>) {
        let to = via.and_then(|via| self.slots.get(&via.slot)).map(|path| path.name.clone());
        let host = self.name_of(owner);
        let Some(path) = self.slots.get_mut(&slot) else { return };
        path.via = via;
        let cause = if path.is_up() { Cause::DownlinkDown } else { Cause::Down };
        let from = path.name.clone();
        self.out.push_back(AnchorOutput::SetVia(slot, via));
        if let Some(to) = to {
            let report = Report::Handover { host, class: None, from, to, cause, flows: 0 };
            self.out.push_back(AnchorOutput::Report(report));
        }
    }
}

/// A host's name for its path as the operator's terminal may show it: no control characters, nothing
/// that turns the direction of writing, and no longer than a name of an interface.
pub(super) fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().take(MAX_NAME / 4).map(shown).collect()
}

fn rtt_of(path: &AnchorPath) -> f64 {
    path.server.estimates().rtt_ewma.first().copied().unwrap_or(f64::MAX)
}
