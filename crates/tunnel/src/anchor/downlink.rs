//! Chooses the path that carries the downlink of each path.

use alloc::vec::Vec;

use super::{Anchor, AnchorPath, RegisteredHost};
use crate::{Cause, Order, Output, Report, Via};
use segue_clock::planted::fault;

impl Anchor {
    /// Sends the datapath the set of paths on which the anchor hears a host.
    pub(super) fn say_heard(&mut self, owner: u32) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let up = |slot: &u32| self.slots.get(slot).is_some_and(AnchorPath::may_carry);
        let word = host
            .paths
            .iter()
            .filter(|(_, slot)| up(slot))
            .fold(0u16, |word, (number, _)| word | 1 << number);
        let slots: Vec<u32> = host.paths.values().copied().collect();
        if let Some(host) = self.hosts.get_mut(&owner) {
            host.heard_word = word;
        }
        self.out.push_back(Output::Order(Order::SetHeard(slots, word)));
    }

    /// Returns whether the host hears this path. The [module](super) documents the rule.
    pub(super) fn downlink_lives(&self, host: &RegisteredHost, path: &AnchorPath) -> bool {
        let Some(word) = host.word else { return path.may_carry() };
        let hears = fault(6) || word.bits >> path.number & 1 == 1;
        hears && path.down_at.is_none_or(|down_at| word.sent_after > down_at + path.doubt())
    }

    /// Returns whether the path is narrow while the host has a live path that is not. The host excludes the same paths.
    fn is_left_out(&self, host: &RegisteredHost, path: &AnchorPath) -> bool {
        let wide = |slot: &u32| {
            self.slots.get(slot).is_some_and(|other| {
                !other.is_narrow() && other.heard_once && self.serves(host, *slot)
            })
        };
        path.is_narrow() && host.paths.values().any(wide)
    }

    /// The host's live path with the lowest RTT, other than `except`. Wide paths rank before narrow ones; a path that
    /// the host has not reported as heard yet ranks last.
    pub(super) fn best_slot(&self, host: &RegisteredHost, except: Option<u32>) -> Option<u32> {
        host.paths
            .values()
            .filter(|slot| Some(**slot) != except)
            .filter_map(|slot| self.slots.get(slot).map(|path| (*slot, path)))
            .filter(|(_, path)| path.may_carry())
            .filter(|(_, path)| self.downlink_lives(host, path) || !path.heard_once)
            .min_by(|(_, a), (_, b)| {
                let narrow = a.is_narrow().cmp(&b.is_narrow());
                let rtt = || rtt_of(a).total_cmp(&rtt_of(b));
                b.heard_once.cmp(&a.heard_once).then(narrow).then_with(rtt)
            })
            .map(|(slot, _)| slot)
    }

    /// The path for a new flow: the best live one, or else the one with the lowest RTT among those that the host has
    /// ever heard. A packet on a path in doubt may arrive, whereas a refused packet is certainly lost.
    pub(super) fn slot_for_new(&self, host: &RegisteredHost) -> Option<u32> {
        let any = || {
            host.paths
                .values()
                .filter_map(|slot| self.slots.get(slot).map(|path| (*slot, path)))
                .filter(|(_, path)| path.heard_once)
                .min_by(|(_, a), (_, b)| rtt_of(a).total_cmp(&rtt_of(b)))
                .map(|(slot, _)| slot)
        };
        self.best_slot(host, None).or_else(any)
    }

    /// Redirects the host's downlinks that are dead or excluded, and ends redirections whose target no longer serves. A
    /// path that the host has not heard yet may be dead too: once the host hears another path, flows bound to the
    /// unheard one move there without a report.
    pub(super) fn reroute(&mut self, owner: u32) {
        let Some(host) = self.hosts.get(&owner) else { return };
        let mut changes: Vec<(u32, Option<Via>)> = Vec::new();
        let mut live = Vec::new();
        for slot in host.paths.values() {
            let Some(path) = self.slots.get(slot) else { continue };
            let young = !path.heard_once && host.word.is_none();
            let out = self.is_left_out(host, path);
            let via = if young || self.downlink_lives(host, path) && !out {
                live.extend(path.told_to.is_some().then_some(*slot));
                None
            } else {
                let narrow =
                    |via: &Via| self.slots.get(&via.slot).is_some_and(AnchorPath::is_narrow);
                let keep = path.via.filter(|via| self.serves(host, via.slot));
                let keep = keep.filter(|via| !(out && narrow(via)));
                keep.or_else(|| {
                    let slot = self.best_slot(host, Some(*slot))?;
                    let heard = self.slots.get(&slot).is_some_and(|other| other.heard_once);
                    (path.heard_once || heard).then_some(Via { slot, one_way: false })
                })
            };
            if via != path.via {
                changes.push((*slot, via));
            }
        }
        for (slot, via) in changes {
            self.redirect(owner, slot, via);
        }
        // The path recovered: report its next redirection.
        for slot in live {
            if let Some(path) = self.slots.get_mut(&slot) {
                path.told_to = None;
            }
        }
        let calm = self.is_calm(owner);
        if let Some(host) = self.hosts.get_mut(&owner) {
            host.calm = calm;
        }
    }

    fn is_calm(&self, owner: u32) -> bool {
        let Some(host) = self.hosts.get(&owner) else { return false };
        let Some(word) = host.word else { return false };
        host.paths.values().filter_map(|slot| self.slots.get(slot)).all(|path| {
            let hears = word.bits >> path.number & 1 == 1 && path.heard_once;
            hears && !path.deaf && path.via.is_none() && path.down_at.is_none()
        })
    }

    fn serves(&self, host: &RegisteredHost, slot: u32) -> bool {
        self.slots
            .get(&slot)
            .is_some_and(|path| path.may_carry() && (fault(20) || self.downlink_lives(host, path)))
    }

    fn redirect(&mut self, owner: u32, slot: u32, via: Option<Via>) {
        let to = via.and_then(|via| self.slots.get(&via.slot)).map(|path| path.name.clone());
        let host = self.name_of(owner);
        let Some(path) = self.slots.get_mut(&slot) else { return };
        path.via = via;
        // A downlink whose target died too returns to its own path once that recovers; do not report this again.
        let told = path.told_to;
        if let Some(via) = via {
            path.told_to = Some(via.slot);
        }
        let cause = match path.may_carry() {
            true if path.is_narrow() && !path.deaf => Cause::Better,
            true => Cause::DownlinkDown,
            false => Cause::Down,
        };
        let from = path.name.clone();
        self.out.push_back(Output::Order(Order::SetVia(slot, via)));
        if let Some(to) = to
            && path.heard_once
            && path.told_to != told
        {
            let (class, flows, scores) = (None, 0, Vec::new());
            let report = Report::Handover { host, class, from, to, cause, flows, scores };
            self.out.push_back(Output::report(report));
        }
    }
}

fn rtt_of(path: &AnchorPath) -> f64 {
    path.server.estimates().rtt_ewma.first().copied().unwrap_or(f64::MAX)
}
