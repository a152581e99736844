//! The anchor's side of each path: offers, grants and removal.

use alloc::boxed::Box;
use alloc::string::{String, ToString};

use segue_clock::{Span, Time};
use segue_keepalive::{Config as Keepalive, MeasuredBy, Probing, Server, ServerInput, State};
use segue_wire::signal::{FromAnchor, MAX_NAME, PathGrant, PathOffer, Refusal};
use segue_wire::{Encapsulation, MAX_PATHS, ProbeKey, TooBig};

use super::path::AnchorPath;
use super::scales::{Taus, wanted};
use super::{Anchor, Timer};
use crate::config::{TOO_BIG_PAUSE, UNCUT_PAUSE};
use crate::host::LEAST_INNER;
use crate::{AnchorConfig, AnchorOutput, ConnId, Order, Output, PathSetup, Report};
use segue_clock::planted::fault;

/// The shortest probe period that a host may ask for, in milliseconds. It bounds the anchor's work per path.
pub(super) const MIN_T_KA_MS: u16 = 5;

/// The keepalive settings for an offered path.
fn settings(config: &AnchorConfig, offer: &PathOffer, grant: &PathGrant, taus: &Taus) -> Keepalive {
    Keepalive {
        k: offer.k,
        t_ka: Span::from_millis(u64::from(offer.t_ka_ms)),
        n: u32::from(offer.n),
        taus: taus.to_vec(),
        up_after: 3,
        mode: grant.mode,
        rides: grant.rides,
        measured_by: config.measured_by,
        doubt: None,
        follows_use: offer.follows_use,
    }
}

/// The part of the settings that the datapath needs.
fn probing(keepalive: &Keepalive, grant: &PathGrant) -> Probing {
    Probing { checksums: grant.checksums, ..keepalive.probing(grant.encapsulation) }
}

impl Anchor {
    pub(super) fn add_path(&mut self, now: Time, conn: ConnId, owner: u32, offer: &PathOffer) {
        match self.grant(now, owner, offer) {
            Ok(grant) => {
                self.out.push_back(Output::own(AnchorOutput::Signal(
                    conn,
                    FromAnchor::PathReady(grant),
                )));
            }
            Err(reason) => {
                let refused = FromAnchor::PathRefused { path: offer.path, reason };
                self.out.push_back(Output::own(AnchorOutput::Signal(conn, refused)));
            }
        }
    }

    /// Grants an offer. An offer that names the receiver of an existing path amends that path; any other offer replaces
    /// it with a new one.
    fn grant(&mut self, now: Time, owner: u32, offer: &PathOffer) -> Result<PathGrant, Refusal> {
        let counts = offer.k > 0 && offer.n > 0 && offer.t_ka_ms >= MIN_T_KA_MS;
        if usize::from(offer.path) >= MAX_PATHS || !counts {
            return Err(Refusal::NoPath);
        }
        let host = self.hosts.get(&owner).ok_or(Refusal::Protocol)?;
        let standing = host.paths.get(&offer.path).copied();
        let same = |path: &AnchorPath| {
            (path.offer.index, path.offer.cookie) == (offer.index, offer.cookie)
        };
        if let Some(slot) = standing.filter(|slot| self.slots.get(slot).is_some_and(same)) {
            return self.amend(now, slot, offer).ok_or(Refusal::NoPath);
        }
        if standing.is_some() {
            self.remove_path(owner, offer.path);
        }
        let slot = self.take_slot().ok_or(Refusal::NoPath)?;
        let grant = PathGrant {
            path: offer.path,
            index: slot,
            cookie: self.secrets.cookie(),
            key: self.secrets.key(),
            mode: offer.mode,
            rides: offer.rides,
            encapsulation: self.encapsulation_for(offer),
            checksums: offer.checksums,
        };
        self.install(now, owner, slot, offer, &grant);
        Ok(grant)
    }

    fn encapsulation_for(&self, offer: &PathOffer) -> Encapsulation {
        if self.config.allow_upmt { offer.encapsulation } else { Encapsulation::Segue }
    }

    /// Applies an offer's changes to an existing path. Cookies, keys and counters stay.
    fn amend(&mut self, now: Time, slot: u32, offer: &PathOffer) -> Option<PathGrant> {
        let encapsulation = self.encapsulation_for(offer);
        let old = self.slots.get(&slot)?;
        let (owner, old_largest) = (old.owner, old.offer.largest);
        let terms = |offer: &PathOffer| {
            (
                offer.k,
                offer.t_ka_ms,
                offer.mode,
                offer.rides,
                offer.n,
                offer.taus,
                offer.follows_use,
            )
        };
        let checksums = old.needs_checksums(offer);
        let form = (encapsulation, checksums);
        let changed = terms(&old.offer) != terms(offer)
            || (old.grant.encapsulation, old.grant.checksums) != form;
        let mut taus = old.setup.probing.taus;
        if old.offer.taus != offer.taus {
            self.scales.release(&taus);
            taus = self.take_scale(owner, Some(slot), offer);
        }
        let fits = old_largest == offer.largest;
        let path = self.slots.get_mut(&slot)?;
        let other_mode = path.grant.mode != offer.mode;
        path.offer = offer.clone();
        path.name.clone_from(&offer.name);
        path.grant = PathGrant {
            mode: offer.mode,
            rides: offer.rides,
            encapsulation,
            checksums,
            ..path.grant.clone()
        };
        let grant = path.grant.clone();
        if !fits {
            self.fit(owner);
            self.reroute(owner);
        }
        let path = self.slots.get_mut(&slot)?;
        if changed {
            let keepalive = settings(&self.config, offer, &grant, &taus);
            path.setup.probing = probing(&keepalive, &grant);
            self.out.push_back(Output::Order(Order::SetPath(slot, Box::new(path.setup.clone()))));
            if other_mode {
                path.server = Server::new(keepalive, now, true).without_samples();
                path.down_at = None;
                self.tell_down(now, slot, State::Starting);
                self.review(now, slot);
            } else {
                self.feed(now, slot, ServerInput::Reconfigure(keepalive));
            }
        }
        Some(grant)
    }

    /// Notes whether a path's requests arrive over IPv6, and so whether they are translated on the way.
    pub(super) fn on_family(&mut self, slot: u32, v6: bool) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        if path.comes_v6 == Some(v6) {
            return;
        }
        path.comes_v6 = Some(v6);
        let checksums = path.needs_checksums(&path.offer);
        if path.grant.checksums == checksums {
            return;
        }
        path.grant.checksums = checksums;
        path.setup.probing.checksums = checksums;
        self.out.push_back(Output::Order(Order::SetPath(slot, Box::new(path.setup.clone()))));
        let conn = self.hosts.get(&path.owner).and_then(|host| host.conn);
        if let Some(conn) = conn {
            let granted = FromAnchor::PathReady(path.grant.clone());
            self.out.push_back(Output::own(AnchorOutput::Signal(conn, granted)));
        }
    }

    /// The free slot that was used least recently.
    fn take_slot(&mut self) -> Option<u32> {
        if fault(24) && !self.free_slots.is_empty() {
            return self.free_slots.pop_back();
        }
        if self.fresh_slot < self.config.max_paths {
            self.fresh_slot += 1;
            return Some(self.fresh_slot - 1);
        }
        self.free_slots.pop_front()
    }

    pub(super) fn release_slot(&mut self, slot: u32) -> Option<AnchorPath> {
        self.disarm(slot);
        let path = self.slots.remove(&slot)?;
        self.scales.release(&path.setup.probing.taus);
        self.free_slots.push_back(slot);
        Some(path)
    }

    fn install(&mut self, now: Time, owner: u32, slot: u32, offer: &PathOffer, grant: &PathGrant) {
        let taus = self.take_scale(owner, None, offer);
        let keepalive = settings(&self.config, offer, grant, &taus);
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
            probing: probing(&keepalive, grant),
        };
        let path = AnchorPath {
            owner,
            number: offer.path,
            name: offer.name.clone(),
            offer: offer.clone(),
            grant: grant.clone(),
            setup: setup.clone(),
            comes_v6: None,
            server: Server::new(keepalive, now, true).without_samples(),
            on: true,
            down_at: None,
            heard_once: false,
            deaf: false,
            via: None,
            told_to: None,
            quiet: false,
            uncut_told: None,
            too_big_told: None,
            armed: None,
        };
        let report = Report::PathAdded { host: self.name_of(owner), path: path.name.clone() };
        self.slots.insert(slot, path);
        if let Some(host) = self.hosts.get_mut(&owner) {
            host.paths.insert(offer.path, slot);
        }
        self.fit(owner);
        self.out.push_back(Output::Order(Order::SetPath(slot, Box::new(setup))));
        self.out.push_back(Output::report(report));
        self.review(now, slot);
    }

    /// Obtains time constants for the path in `slot`, or for a new path.
    fn take_scale(&mut self, owner: u32, slot: Option<u32>, offer: &PathOffer) -> Taus {
        let slots = self.hosts.get(&owner).into_iter().flat_map(|host| host.paths.values());
        let others = slots.filter(|other| Some(**other) != slot);
        let taus = others.filter_map(|other| Some(self.slots.get(other)?.setup.probing.taus));
        self.scales.take(wanted(offer), taus)
    }

    /// Switches the path's keepalive when the host switches it.
    pub(super) fn switch(&mut self, now: Time, owner: u32, number: u8, on: bool) {
        let slot = self.hosts.get(&owner).and_then(|host| host.paths.get(&number)).copied();
        let Some(slot) = slot else { return };
        let Some(path) = self.slots.get_mut(&slot).filter(|path| path.on != on) else { return };
        path.on = on;
        path.down_at = None;
        self.feed(now, slot, ServerInput::Switch(on));
        self.review(now, slot);
    }

    /// Reports to the host that its super-packets arrive unsegmented: no device cuts them.
    pub(super) fn on_uncut(&mut self, now: Time, slot: u32) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        let conn = self.hosts.get(&path.owner).and_then(|host| host.conn);
        if let Some(conn) = conn
            && path.uncut_told.is_none_or(|at| now.since(at) >= UNCUT_PAUSE)
        {
            path.uncut_told = Some(now);
            let message = FromAnchor::OneByOne { path: path.number };
            self.out.push_back(Output::own(AnchorOutput::Signal(conn, message)));
        }
    }

    /// Reports to the host that a router found a packet too big. The quoted cookie shows that the router saw such a
    /// packet; the host tests the size.
    pub(super) fn on_too_big(&mut self, now: Time, TooBig { index, cookie, mtu }: TooBig) {
        let quoted =
            |path: &AnchorPath| (path.setup.tx_index, path.setup.tx_cookie) == (index, cookie);
        let Some(slot) = self.slots.iter().find(|(_, path)| quoted(path)).map(|(slot, _)| slot)
        else {
            return;
        };
        let Some(path) = self.slots.get_mut(&slot) else { return };
        let conn = self.hosts.get(&path.owner).and_then(|host| host.conn);
        if let Some(conn) = conn
            && path.too_big_told.is_none_or(|at| now.since(at) >= TOO_BIG_PAUSE)
        {
            path.too_big_told = Some(now);
            let message = FromAnchor::TooBig { path: path.number, mtu };
            self.out.push_back(Output::own(AnchorOutput::Signal(conn, message)));
        }
    }

    /// The host receives the anchor's super-packets unsegmented: sends one by one from now on.
    pub(super) fn one_by_one(&mut self, owner: u32, number: u8) {
        let slot = self.hosts.get(&owner).and_then(|host| host.paths.get(&number)).copied();
        self.out.extend(slot.map(|slot| Output::Order(Order::SetOneByOne(slot))));
    }

    /// Updates everything that depends on whether a path is watched and up.
    fn review(&mut self, now: Time, slot: u32) {
        self.arm(now, slot);
        let Some(owner) = self.slots.get(&slot).map(|path| path.owner) else { return };
        self.say_heard(owner);
        self.reroute(owner);
        self.review_quiet(owner);
        self.review_expiry(now, owner);
    }

    /// Sets the path's timer to its server's deadline, or to an earlier check if the datapath measures.
    pub(super) fn arm(&mut self, now: Time, slot: u32) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        let due = match self.config.measured_by {
            MeasuredBy::PacketPath => path.look_at(now),
            MeasuredBy::Machine => path.deadline(),
        };
        let later = fault(17) && path.armed.is_some() && due < path.armed;
        if due == path.armed || later {
            return;
        }
        let before = core::mem::replace(&mut path.armed, due);
        before.map(|at| self.timers.remove(&(at, Timer::Path(slot))));
        self.timers.extend(due.map(|at| (at, Timer::Path(slot))));
    }

    /// Cancels the path's timer.
    pub(super) fn disarm(&mut self, slot: u32) {
        let armed = self.slots.get_mut(&slot).and_then(|path| path.armed.take());
        if let Some(at) = armed {
            self.timers.remove(&(at, Timer::Path(slot)));
        }
    }

    pub(super) fn remove_path(&mut self, owner: u32, number: u8) {
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        let Some(slot) = host.paths.remove(&number) else { return };
        let name = self.release_slot(slot).map(|path| path.name).unwrap_or_default();
        // Remove the redirections to it first.
        self.reroute(owner);
        self.out.push_back(Output::Order(Order::RemovePath(slot)));
        let report = Report::PathRemoved { host: self.name_of(owner), path: name };
        self.out.push_back(Output::report(report));
        if !fault(28) {
            self.say_heard(owner);
        }
        self.review_quiet(owner);
        self.fit(owner);
    }

    /// Sets the largest packet to a host to what all its paths take, ignoring narrow paths if there are wider ones.
    fn fit(&mut self, owner: u32) {
        let Some(host) = self.hosts.get_mut(&owner) else { return };
        let all =
            || host.paths.values().filter_map(|slot| Some(self.slots.get(slot)?.offer.largest));
        let wide = all().filter(|largest| *largest >= LEAST_INNER).min();
        let Some(mtu) = wide.or_else(|| all().min()) else { return };
        if host.mtu != Some(mtu) {
            host.mtu = Some(mtu);
            let told = host.inner.iter();
            let told = told.map(|own| Output::own(AnchorOutput::SetMtu(*own, Some(mtu))));
            self.out.extend(told);
        }
    }

    pub(super) fn name_of(&self, owner: u32) -> String {
        self.host_name(owner).unwrap_or_default().to_string()
    }
}

/// A host's name for its path, made safe for the operator's terminal: no control characters, nothing that changes the
/// direction of writing, and no longer than an interface name.
pub(super) fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().take(MAX_NAME / 4).map(shown).collect()
}
