//! Authorization of hosts by an external authority (RFC 6572, section 3), which the driver asks.

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::{Output, Prefix};
use segue_wire::mobility::Status;

use super::Lma;
use super::io::{Authorization, LmaWish};
use super::state::{Stage, Unauthorized};
use crate::message::Update;
use crate::news::Why;
use crate::{LinkLayer, NodeId, Refusal};

/// Maximum number of pending authorization requests.
const ASKED_MAX: usize = 1 << 15;
/// A retransmitted update asks the driver again if it has not replied for this long.
const AGAIN: Span = Span::from_secs(60);

impl Lma {
    /// Returns true if the driver must authorize an update that starts a binding.
    pub(super) fn is_asked(&self, stage: Stage) -> bool {
        self.config.authorize && stage == Stage::Came
    }

    /// Asks the driver whether the host may be registered; the update waits. A retransmission replaces the waiting
    /// update.
    pub(super) fn authorize(&mut self, now: Time, update: Update) {
        let Some(node) = update.asked.node.clone() else { return };
        let link_layer = update.asked.link_layer.clone();
        let key = (node.clone(), link_layer.clone());
        let is_full = self.unauthorized.len() >= ASKED_MAX;
        let mut asked = now;
        if let Some(before) = self.unauthorized.get(&key) {
            asked = before.asked;
        } else if is_full {
            self.refuse(Refusal::Full);
            return;
        }
        if asked == now || now.since(asked) >= AGAIN {
            asked = now;
            let named = update.asked.prefixes.iter().filter(|prefix| !prefix.addr.is_unspecified());
            let prefixes: Vec<Prefix> = named.copied().collect();
            let access = update.asked.access.unwrap_or_default();
            let wish = LmaWish::Authorize { node, link_layer, access, prefixes };
            self.out.push_back(Output::Own(wish));
        }
        self.unauthorized.insert(key, Unauthorized { asked, update });
    }

    /// Handles the driver's verdict: continues a waiting registration, or ends bindings that are no longer authorized.
    pub(super) fn authorized(
        &mut self,
        now: Time,
        key: (NodeId, LinkLayer),
        verdict: Authorization,
    ) {
        let waits = self.unauthorized.remove(&key);
        match (waits, verdict) {
            (Some(Unauthorized { mut update, .. }), Authorization::Allowed(prefixes)) => {
                if !update.names_prefixes() && !prefixes.is_empty() {
                    update.asked.prefixes = prefixes;
                }
                self.update(now, update, Stage::Authorized);
            }
            (Some(Unauthorized { update, .. }), Authorization::Refused) => {
                self.deny(now, &update, Status::PROXY_REG_NOT_ENABLED, None);
            }
            // The gateway retransmits.
            (Some(_), Authorization::Unanswered) => self.refuse(Refusal::Unanswered),
            (None, Authorization::Refused) => {
                let (node, link_layer) = &key;
                let own = self.sessions_of(node);
                let own = own.filter(|(.., session)| session.link_layer == *link_layer);
                let sessions: Vec<u32> = own.map(|(number, ..)| number).collect();
                self.revoke_sessions(now, node, &sessions);
            }
            (None, Authorization::Allowed(_) | Authorization::Unanswered) => {}
        }
    }

    /// Reports a new or renewed binding to the driver, if that authorizes hosts.
    pub(super) fn tell_bound(&mut self, number: u32) {
        let Some(at) = self.sessions.get(&number).filter(|_| self.config.authorize) else { return };
        let session = &at.value;
        let wish = LmaWish::Bound {
            node: session.node.clone(),
            link_layer: session.link_layer.clone(),
            access: session.access,
            prefixes: session.prefixes.clone(),
        };
        self.out.push_back(Output::Own(wish));
    }

    /// Reports the end of a binding to the driver, if that authorizes hosts.
    pub(super) fn tell_unbound(&mut self, node: NodeId, link_layer: LinkLayer, why: Why) {
        if self.config.authorize {
            self.out.push_back(Output::Own(LmaWish::Unbound { node, link_layer, why }));
        }
    }

    /// Reports a failed registration: the host may have been authorized but has no binding.
    pub(super) fn tell_failed(&mut self, update: &Update) {
        let link_layer = &update.asked.link_layer;
        let Some(node) = update.asked.node.as_ref().filter(|_| self.config.authorize) else {
            return;
        };
        let is_bound = self.sessions_of(node).any(|(.., at)| at.link_layer == *link_layer);
        if !is_bound && !self.unauthorized.contains_key(&(node.clone(), link_layer.clone())) {
            self.tell_unbound(node.clone(), link_layer.clone(), Why::Refused);
        }
    }
}
