//! Probes at the anchor: evaluates the host's reports and drives the servers of its paths.

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_clock::{Machine, Span, Time};
use segue_keepalive::{MeasuredBy, Reading, Request, Server, ServerInput, ServerOutput, State};
use segue_wire::Probe;

use super::Anchor;
use super::host::Word;
use super::paths::MIN_T_KA_MS;
use crate::{Order, Output, ProbeEvent, ProbeKind, ProbeOrder, Report};
use segue_clock::planted::fault;

/// A report older than this cannot overtake a newer one, whatever their stamps say, because stamps wrap.
const WORD_LIFE: Span = Span::from_secs(600);

impl Anchor {
    pub(super) fn on_probe(&mut self, now: Time, probe: &ProbeEvent) {
        if probe.kind != ProbeKind::Request {
            return;
        }
        let Some(path) = self.slots.get_mut(&probe.slot) else { return };
        let owner = path.owner;
        let mut arrival = probe.arrival;
        let word = Word {
            stamp: arrival.probe.t_sc,
            at: now,
            sent_after: now - path.rtt_max(),
            bits: arrival.probe.heard,
        };
        let news = self.note_word(owner, word);
        if arrival.probe.t_ka_ms != 0 {
            arrival.probe.t_ka_ms = arrival.probe.t_ka_ms.max(MIN_T_KA_MS);
        }
        self.drive(now, probe.slot, |server| {
            server.handle(now, ServerInput::Request { arrival, k: probe.k, report: probe.report });
        });
        self.on_family(probe.slot, probe.remote.ip().to_canonical().is_ipv6());
        self.reinject(now, owner, probe);
        if news {
            self.review_deaf(now, owner, probe.slot);
            self.reroute(owner);
        }
        self.review_quiet(owner);
    }

    /// Updates which paths the host reports as unheard. A path counts as heard again only when a request on that path
    /// says so, because that request also carries the counters of the lost packets.
    fn review_deaf(&mut self, now: Time, owner: u32, asked: u32) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let Some(word) = host.word else { return };
        let mut changed = Vec::new();
        for (number, slot) in &host.paths {
            let Some(path) = self.slots.get_mut(slot) else { continue };
            let hears = word.bits >> number & 1 == 1;
            let deaf = path.heard_once && path.is_watched() && !hears;
            if deaf != path.deaf && (deaf || *slot == asked && hears || !path.is_watched()) {
                path.deaf = deaf;
                changed.push((*slot, deaf));
            }
        }
        for (slot, deaf) in changed {
            match self.config.measured_by {
                MeasuredBy::Machine => self.feed(now, slot, ServerInput::Deaf(deaf)),
                MeasuredBy::PacketPath => {
                    self.out.push_back(Output::Order(Order::SetDeaf(slot, deaf)))
                }
            }
        }
    }

    /// Handles a reading of the datapath, with the same bounds on the stated T_KA as for requests.
    pub(super) fn on_reading(&mut self, now: Time, slot: u32, mut reading: Reading) {
        let least = Span::from_millis(MIN_T_KA_MS.into());
        reading.t_ka = reading.t_ka.map(|t_ka| t_ka.max(least));
        self.feed(now, slot, ServerInput::Reading(reading));
    }

    /// Stores the host's report of the paths that it hears, unless a newer one arrived before. Returns whether the
    /// report may affect a downlink.
    fn note_word(&mut self, owner: u32, word: Word) -> bool {
        let Some(host) = self.hosts.get_mut(&owner) else { return false };
        let overtaken = host.word.is_some_and(|last| {
            let older = (word.stamp.wrapping_sub(last.stamp) >= 1 << 31) != fault(9);
            older && word.at.since(last.at) < WORD_LIFE
        });
        if overtaken {
            return !host.calm;
        }
        let same = host.word.is_some_and(|last| last.bits == word.bits);
        host.word = Some(word);
        if host.calm && same {
            return false;
        }
        for (number, slot) in &host.paths {
            if word.bits >> number & 1 == 1
                && let Some(path) = self.slots.get_mut(slot)
            {
                path.heard_once = true;
            }
        }
        true
    }

    /// Gives a path's server an input and carries out its outputs.
    pub(super) fn feed(&mut self, now: Time, slot: u32, input: ServerInput) {
        self.drive(now, slot, |server| server.handle(now, input));
    }

    /// Ticks a path's server and carries out its outputs.
    pub(super) fn tick_path(&mut self, now: Time, slot: u32) {
        self.drive(now, slot, |server| server.tick(now));
    }

    fn drive(&mut self, now: Time, slot: u32, call: impl FnOnce(&mut Server)) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        call(&mut path.server);
        let outputs = path.server.take_outputs();
        self.follow_settings(slot);
        self.arm(now, slot);
        for output in outputs {
            match output {
                ServerOutput::SendUnsolicited(request) => self.send_unsolicited(slot, request),
                ServerOutput::State(state) => {
                    self.tell_down(now, slot, state);
                    self.on_state(now, slot, state);
                }
                // The anchor's servers are created without samples.
                ServerOutput::Sample(_) => {}
            }
        }
    }

    /// Updates the datapath when the host has changed K or T_KA in its requests.
    fn follow_settings(&mut self, slot: u32) {
        let Some(path) = self.slots.get_mut(&slot) else { return };
        let (k, t_ka) = path.keepalive();
        let probing = &mut path.setup.probing;
        if (probing.k, probing.t_ka) != (k, t_ka) {
            (probing.k, probing.t_ka) = (k, t_ka);
            self.out.push_back(Output::Order(Order::SetPath(slot, Box::new(path.setup.clone()))));
        }
    }

    /// Sends a response that no request asked for. The datapath sends it where it sends data: to an endpoint that has
    /// been verified, or nowhere while there is none.
    fn send_unsolicited(&mut self, slot: u32, request: Request) {
        let heard = self.word_for(slot);
        let Some(path) = self.slots.get(&slot) else { return };
        let probe = Probe { heard, ..request.probe };
        self.out.push_back(Output::Order(Order::SendProbe(ProbeOrder {
            slot,
            kind: ProbeKind::Unsolicited,
            k: path.keepalive().0,
            probe,
            held_since: request.held_since,
            report: false,
            question: false,
            age: 0,
        })));
    }

    fn word_for(&self, slot: u32) -> u16 {
        let owner = self.slots.get(&slot).map(|path| path.owner);
        owner.and_then(|owner| self.hosts.get(&owner)).map_or(0, |host| host.heard_word)
    }

    fn on_state(&mut self, now: Time, slot: u32, state: State) {
        let Some(path) = self.slots.get_mut(&slot).filter(|path| path.is_watched()) else { return };
        path.down_at = (state == State::Down).then_some(now);
        let owner = path.owner;
        let bound = path.detection_bound();
        let silent = path.server.last_request().map(|at| now.since(at));
        let name = path.name.clone();
        self.say_heard(owner);
        self.reroute(owner);
        self.review_quiet(owner);
        self.review_expiry(now, owner);
        let heard = self.slots.get(&slot).is_some_and(|path| path.via.is_none());
        self.out.push_back(Output::report(Report::PathState {
            host: self.name_of(owner),
            path: name,
            state,
            heard,
            silent: silent.filter(|_| state == State::Down),
            bound,
        }));
    }

    /// Tells a datapath that measures when an outage begins or ends.
    pub(super) fn tell_down(&mut self, now: Time, slot: u32, state: State) {
        let Some(path) = self.slots.get(&slot) else { return };
        if self.config.measured_by == MeasuredBy::PacketPath {
            let last = path.server.last_request();
            let silence = last.filter(|_| state == State::Down).map(|at| now.since(at));
            self.out.push_back(Output::Order(Order::SetDown(slot, silence)));
        }
    }

    /// Lets the datapath withhold probes without news on paths that are up. Not while a path without requests is still
    /// reported as heard: then every report of the host matters.
    pub(super) fn review_quiet(&mut self, owner: u32) {
        if self.config.measured_by != MeasuredBy::PacketPath {
            return;
        }
        let Some(host) = self.hosts.get(&owner) else { return };
        let in_doubt = host.paths.values().filter_map(|slot| self.slots.get(slot)).any(|path| {
            let hears = host.word.is_some_and(|word| word.bits >> path.number & 1 == 1);
            path.down_at.is_some() && hears && !self.downlink_lives(host, path)
        });
        let mut changes = Vec::new();
        for slot in host.paths.values() {
            let Some(path) = self.slots.get(slot) else { continue };
            let steady = path.is_up() || !path.is_watched();
            let quiet = steady && !in_doubt;
            if path.quiet != quiet {
                changes.push((*slot, quiet));
            }
        }
        for (slot, quiet) in changes {
            if let Some(path) = self.slots.get_mut(&slot) {
                path.quiet = quiet;
            }
            self.out.push_back(Output::Order(Order::SetQuiet(slot, quiet)));
        }
    }
}
