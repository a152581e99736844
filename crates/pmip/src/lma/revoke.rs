//! Revocation of bindings by the anchor (RFC 5846).

use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_mobility::{Backoff, Retransmission, Silence};
use segue_wire::mobility::body::{
    BindingRevocation, BindingRevocationAcknowledgement, BindingRevocationIndication,
};
use segue_wire::mobility::{
    Body, MobilityOption, Profile, RevocationFlags, RevocationStatus, RevocationTrigger,
};

use super::Lma;
use super::state::{REVOCATION, Revocation};
use crate::message::{datagram, home_network_prefix};
use crate::news::Why;
use crate::peer::Ends;
use crate::{NodeId, PeerAddress, Refusal};

/// Time after which a registration at the same gateway does not restart a pending revocation any more.
const RENEWED: Span = Span::from_secs(5);
/// Maximum number of unacknowledged revocations.
const OPEN_MAX: usize = 1 << 12;

impl Lma {
    /// Revokes all bindings of a host.
    pub(super) fn revoke(&mut self, now: Time, node: &NodeId) {
        let Some(host) = self.hosts.get(node) else { return };
        let sessions: Vec<u32> = host.sessions.iter().copied().collect();
        self.revoke_sessions(now, node, &sessions);
    }

    /// Revokes some bindings of a host.
    pub(super) fn revoke_sessions(&mut self, now: Time, node: &NodeId, sessions: &[u32]) {
        for session in sessions.iter().copied() {
            let Some(at) = self.sessions.get(&session) else { continue };
            if self.revocations.values().any(|open| open.session == Some(session)) {
                continue;
            }
            let (prefixes, to) = (at.value.prefixes.clone(), at.peer);
            let trigger = RevocationTrigger::ADMINISTRATIVE_REASON;
            self.open_revocation(now, node, &prefixes, Some(session), to, trigger);
        }
    }

    /// Tells the previous gateway that a host's interface has moved, so that it drops its state.
    pub(super) fn revoke_former(
        &mut self,
        now: Time,
        node: &NodeId,
        prefixes: &[Prefix],
        former: PeerAddress,
        same_access: bool,
    ) {
        let trigger = match same_access {
            true => RevocationTrigger::INTER_MAG_SAME_ACCESS,
            false => RevocationTrigger::INTER_MAG_DIFFERENT_ACCESS,
        };
        self.open_revocation(now, node, prefixes, None, former, trigger);
    }

    /// Repeats a pending revocation of a binding that was registered meanwhile: the gateway gets it again after the
    /// answer to its registration. It may have had no such binding when it got the first one, so its answer to that one
    /// no longer counts. Further registrations do not put off the end of a binding for longer than [`RENEWED`].
    pub(super) fn revoke_at(&mut self, now: Time, session: u32, gateway: PeerAddress) {
        let restarts = |open: &&Revocation| {
            open.session == Some(session) && (now < open.since + RENEWED || open.to != gateway)
        };
        let open = self.revocations.values().find(restarts).map(|open| open.sequence);
        let Some(open) = open.and_then(|open| self.revocations.remove(&open)) else { return };
        let (sequence, ends) = (self.free_sequence(), self.ends_to(gateway));
        let again = Retransmission::later(now, Backoff::REVOCATION);
        let open = Revocation { sequence, again, to: gateway, ends, ..open };
        self.revocations.insert(sequence, open);
    }

    /// The number of a new revocation.
    fn free_sequence(&mut self) -> u16 {
        loop {
            let sequence = self.number(REVOCATION) as u16;
            if !self.revocations.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    fn open_revocation(
        &mut self,
        now: Time,
        node: &NodeId,
        prefixes: &[Prefix],
        session: Option<u32>,
        to: PeerAddress,
        trigger: RevocationTrigger,
    ) {
        if self.revocations.len() >= OPEN_MAX {
            self.refuse(Refusal::Full);
            return;
        }
        let mut options = Vec::from([MobilityOption::MobileNodeIdentifier(node.option())]);
        options.extend(prefixes.iter().map(|prefix| home_network_prefix(*prefix)));
        let sequence = self.free_sequence();
        let again = Retransmission::new(now, Backoff::REVOCATION);
        let (node, ends) = (node.clone(), self.ends_to(to));
        let since = now;
        let open = Revocation { node, sequence, trigger, session, since, again, to, ends, options };
        self.indicate(&open);
        self.revocations.insert(sequence, open);
    }

    fn indicate(&mut self, open: &Revocation) {
        let indication = BindingRevocationIndication {
            revocation_trigger: open.trigger,
            sequence: open.sequence,
            flags: RevocationFlags::PROXY,
        };
        let body = Body::BindingRevocation(BindingRevocation::Indication(indication));
        let ends =
            if self.peers.contains_key(&open.to) { self.ends_to(open.to) } else { open.ends };
        let message = datagram(body, open.options.clone(), ends, &Profile::STRICT);
        self.send_about(Some(&open.node), message);
    }

    /// Handles an acknowledgement: the gateway has ended the binding, or never had it.
    pub(super) fn revoked(
        &mut self,
        now: Time,
        answer: &BindingRevocationAcknowledgement,
        from: PeerAddress,
        ends: Ends,
    ) -> Result<(), Refusal> {
        let is_from = |open: &&Revocation| open.to == from || open.ends == ends;
        let open = self.revocations.get(&answer.sequence).filter(is_from);
        let session = open.ok_or(Refusal::Stale)?.session;
        self.revocations.remove(&answer.sequence);
        if answer.status != RevocationStatus::MN_ATTACHED {
            self.end_revoked(now, session);
        }
        Ok(())
    }

    /// Retransmits unacknowledged revocations. After the last attempt the binding ends anyway.
    pub(super) fn revoke_again(&mut self, now: Time) {
        let due = self.revocations.values().filter(|open| open.again.deadline() <= now);
        let due: Vec<u16> = due.map(|open| open.sequence).collect();
        for sequence in due {
            let Some(open) = self.revocations.get_mut(&sequence) else { continue };
            match open.again.on_silence(now) {
                Silence::Wait => {}
                Silence::Again => {
                    let open = open.clone();
                    self.indicate(&open);
                }
                Silence::GiveUp => {
                    let session = open.session;
                    self.revocations.remove(&sequence);
                    self.end_revoked(now, session);
                }
            }
        }
    }

    fn end_revoked(&mut self, now: Time, session: Option<u32>) {
        let Some(session) = session else { return };
        if let Some(binding) = self.sessions.remove(&session) {
            self.ended(now, session, binding, Why::Revoked);
        }
    }
}
