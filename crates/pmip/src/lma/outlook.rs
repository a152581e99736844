//! Interfaces that are about to leave, as their link reports (Link_Going_Down, IEEE 802.21): their traffic moves to
//! another interface beforehand, if there is one.

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::Output;

use super::Lma;
use super::io::{LmaWish, Presence};
use super::state::{Session, SessionState};
use crate::news::Cause;
use crate::{LinkLayer, NodeId};

/// An interface that is still there this long after the predicted time is assumed to stay.
const GRACE: Span = Span::from_secs(2);

impl Lma {
    /// Numbers of the bindings of an interface.
    pub(super) fn numbers_of(&self, link_layer: &LinkLayer) -> Vec<u32> {
        self.by_link_layer.get(link_layer).into_iter().flatten().copied().collect()
    }

    /// Adds a binding to the index by interface.
    pub(super) fn enter_link_layer(&mut self, link_layer: &LinkLayer, number: u32) {
        self.by_link_layer.entry(link_layer.clone()).or_default().insert(number);
    }

    /// Removes a binding from the index by interface, and its prediction to leave.
    pub(super) fn leave_link_layer(&mut self, session: &Session, number: u32) {
        let link_layer = &session.link_layer;
        if let Some(all) = self.by_link_layer.get_mut(link_layer) {
            all.remove(&number);
            if all.is_empty() {
                self.by_link_layer.remove(link_layer);
            }
        }
        if let Some(until) = session.leaves {
            self.fading.remove(&(until, number));
        }
    }

    /// Cancels the prediction that a binding's interface leaves. Returns whether there was one.
    pub(super) fn stays(&mut self, now: Time, number: u32) -> bool {
        let Some(session) = self.sessions.value_mut(&number) else { return false };
        let until = session.leaves.take();
        if until.is_some() {
            session.steady = now;
        }
        until.is_some_and(|until| self.fading.remove(&(until, number)))
    }

    /// Handles the prediction that an interface leaves within this time.
    pub(super) fn going_down(&mut self, now: Time, link_layer: &LinkLayer, within: Span) {
        for number in self.numbers_of(link_layer) {
            self.stays(now, number);
            let until = now + within + GRACE;
            if let Some(session) = self.sessions.value_mut(&number) {
                session.leaves = Some(until);
                self.fading.insert((until, number));
            }
            self.tell_presence(number, Presence::GoingDown(within));
            self.turn(now, number, Cause::GoingDown);
        }
    }

    /// Handles the report that an interface stays after all.
    pub(super) fn recovered(&mut self, now: Time, link_layer: &LinkLayer) {
        for number in self.numbers_of(link_layer) {
            if self.stays(now, number) {
                self.tell_presence(number, Presence::Stays);
                self.turn(now, number, Cause::Back);
            }
        }
    }

    /// Cancels predictions that did not come true in time.
    pub(super) fn fade(&mut self, now: Time) {
        let due: Vec<u32> = self
            .fading
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, number)| *number)
            .collect();
        for number in due {
            self.stays(now, number);
            self.tell_presence(number, Presence::Stays);
            self.turn(now, number, Cause::Back);
        }
    }

    /// Reports the presence of a binding's interface to the external scheduler. Skips interfaces that have left.
    pub(super) fn tell_presence(&mut self, number: u32, now: Presence) {
        let Some(at) = self.sessions.get(&number) else { return };
        if at.value.state == SessionState::Active {
            let (node, link_layer) = (at.value.node.clone(), at.value.link_layer.clone());
            self.tell_interface(node, link_layer, now);
        }
    }

    /// Reports the presence of an interface to the external scheduler, even if it has no binding any more.
    pub(super) fn tell_interface(&mut self, node: NodeId, link_layer: LinkLayer, now: Presence) {
        self.out.push_back(Output::Own(LmaWish::Interface { node, link_layer, now }));
    }

    /// Redirects the traffic of a host after the interface of a binding has changed, and reports the handover.
    pub(super) fn turn(&mut self, now: Time, number: u32, cause: Cause) {
        let Some(at) = self.sessions.get(&number) else { return };
        let (node, own, prefixes) = (at.value.node.clone(), at.peer, at.value.prefixes.clone());
        self.gone.clear();
        self.follow(now, &node);
        // Traffic without individually placed flows moves too: report the handover even if no flow moved.
        let first = prefixes.iter().find_map(|prefix| self.usable(&node, *prefix).first().copied());
        let first = first.filter(|number| !self.is_doubtful(*number));
        let to = first.and_then(|number| self.sessions.get(&number)).map(|at| at.peer);
        if let Some(to) = to.filter(|to| cause != Cause::Back && *to != own) {
            self.gone.entry((own, to)).or_default();
        }
        self.tell_gone(now, &node, cause);
        self.notify(now, &node);
    }

    /// Those bindings that can be relied on; all of them if none can.
    pub(super) fn lasting(&self, of: Vec<u32>) -> Vec<u32> {
        let lasting: Vec<u32> = of.iter().copied().filter(|n| !self.is_doubtful(*n)).collect();
        if lasting.is_empty() { of } else { lasting }
    }
}
