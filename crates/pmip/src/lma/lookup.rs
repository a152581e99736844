//! Finds the binding that an update is about (RFC 5213, section 5.4.1; RFC 7864, section 3.2).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use segue_ip::Prefix;
use segue_mobility::Binding;
use segue_wire::mobility::Status;
use segue_wire::mobility::option::Handoff;

use super::Lma;
use super::state::{Session, SessionState};
use crate::message::Update;
use crate::{NodeId, PeerAddress};

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The update is about this binding.
    Session(u32),
    /// A new host, or an additional interface of a known one.
    New,
    /// An additional interface that shares the prefixes of another.
    Shares,
    /// Perhaps a handoff of this binding: known once that has ended, or has not ended in time.
    Perhaps(u32),
    /// The update requests prefixes that it may not have.
    Denied(Status),
}

impl Lma {
    /// Finds the binding that an update is about.
    pub(super) fn look_up(&self, node: &NodeId, update: &Update) -> Found {
        if update.names_prefixes() {
            return self.by_prefixes(node, update);
        }
        let asked = &update.asked;
        let own = self.bindings_of(node);
        let same_interface = |session: &Session| {
            session.link_layer == asked.link_layer && Some(session.access) == asked.access
        };
        if asked.link_layer.is_known()
            && let Some((number, _)) = own.iter().find(|(_, at)| same_interface(&at.value))
        {
            return Found::Session(*number);
        }
        let only = match own[..] {
            [(number, at)] => Some((number, at.value.state)),
            _ => None,
        };
        match (asked.handoff, only) {
            (Some(Handoff::BETWEEN_INTERFACES), Some((number, _))) => Found::Session(number),
            (Some(Handoff::BETWEEN_GATEWAYS), Some((number, _)))
                if !asked.link_layer.is_known() =>
            {
                Found::Session(number)
            }
            (Some(Handoff::UNKNOWN), Some((number, SessionState::Leaving))) => {
                Found::Session(number)
            }
            (Some(Handoff::UNKNOWN), Some((number, SessionState::Active))) => {
                Found::Perhaps(number)
            }
            (Some(Handoff::NEW_INTERFACE_SHARING_PREFIXES), _) if !own.is_empty() => Found::Shares,
            _ => Found::New,
        }
    }

    fn by_prefixes(&self, node: &NodeId, update: &Update) -> Found {
        let asked = &update.asked;
        let set: BTreeSet<Prefix> = asked.prefixes.iter().copied().collect();
        let holders = set.iter().filter_map(|prefix| self.holders.get(prefix)).flatten();
        let holders: Vec<(u32, &Binding<PeerAddress, Session>)> = {
            let numbers: BTreeSet<u32> = holders.copied().collect();
            numbers.into_iter().filter_map(|n| Some((n, self.sessions.get(&n)?))).collect()
        };
        if holders.is_empty() {
            return Found::New;
        }
        if holders.iter().any(|(_, at)| at.value.node != *node) {
            return Found::Denied(Status::NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX);
        }
        let is_same_set = |(_, at): &&(u32, &Binding<PeerAddress, Session>)| {
            at.value.prefixes.len() == set.len()
                && at.value.prefixes.iter().all(|p| set.contains(p))
        };
        let same: Vec<_> = holders.iter().filter(is_same_set).collect();
        if same.is_empty() {
            return Found::Denied(Status::BCE_PBU_PREFIX_SET_DO_NOT_MATCH);
        }
        let handoff = asked.handoff.unwrap_or_default();
        let is_about = |at: &Binding<PeerAddress, Session>| {
            let session = &at.value;
            let same_access = Some(session.access) == asked.access;
            let same_interface = session.link_layer == asked.link_layer && same_access;
            let known = session.link_layer.is_known() || asked.link_layer.is_known();
            known && same_interface
                || !known && same_access && handoff == Handoff::BETWEEN_GATEWAYS
                || handoff == Handoff::BETWEEN_INTERFACES
                || same_access && at.peer == update.proxy_coa()
        };
        if let Some((number, _)) = same.iter().find(|(_, at)| is_about(at)) {
            return Found::Session(*number);
        }
        match handoff {
            Handoff::NEW_INTERFACE_SHARING_PREFIXES => Found::Shares,
            Handoff::UNKNOWN if same.len() == 1 => match same[0].1.value.state {
                SessionState::Leaving => Found::Session(same[0].0),
                SessionState::Active => Found::Perhaps(same[0].0),
            },
            _ => Found::Denied(Status::NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX),
        }
    }

    /// The binding whose sequence an update continues: that of the same interface; or the only one of the host, if the
    /// update has no link-layer identifier.
    pub(super) fn ordered_by(&self, node: &NodeId, update: &Update) -> Option<&Session> {
        let own = self.bindings_of(node);
        let same = |(_, at): &&(u32, &Binding<PeerAddress, Session>)| {
            at.value.link_layer == update.asked.link_layer
        };
        let found = own.iter().find(same).or(match &own[..] {
            [only] if !update.asked.link_layer.is_known() => Some(only),
            _ => None,
        });
        found.map(|(_, at)| &at.value)
    }

    fn bindings_of(&self, node: &NodeId) -> Vec<(u32, &Binding<PeerAddress, Session>)> {
        let numbers = self.hosts.get(node).into_iter().flat_map(|host| &host.sessions);
        numbers.filter_map(|number| Some((*number, self.sessions.get(number)?))).collect()
    }
}
