//! What gateways are told of a host's other interfaces: flow mobility (RFC 7864, 3.2.2), by update notifications (RFC 7077).
//!
//! A gateway carries a flow to a prefix that it has not given only if it knows that the prefix is its host's. So each gateway of a
//! host is told at once of all prefixes that the host has elsewhere, long before a flow moves: when an access goes, the anchor
//! has only to lead its traffic to another one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::Prefix;
use segue_mobility::{Backoff, Retransmission, Silence};
use segue_wire::mobility::body::{UpdateNotification, UpdateNotificationAcknowledgement};
use segue_wire::mobility::option::VendorSpecific;
use segue_wire::mobility::{
    Body, MobilityOption, NotificationReason, NotificationStatus, UpdateNotificationFlags,
};

use super::Lma;
use super::state::{Elsewhere, NOTIFICATION, Notification};
use crate::message::off_link_prefix;
use crate::{NodeId, PREFERENCE, PeerAddress, Refusal, VENDOR};

/// Most that are not acknowledged at a time.
const OPEN_MAX: usize = 1 << 15;

impl Lma {
    /// Tells the gateways of a host what they do not know yet.
    pub(super) fn notify(&mut self, now: Time, node: &NodeId) {
        if !self.config.flow_mobility {
            return;
        }
        let Some(host) = self.hosts.get(node) else { return };
        let active = self.active(host);
        let held = |prefix: &Prefix| {
            let holders = self.holders.get(prefix);
            holders.is_some_and(|all| active.iter().any(|(number, _)| all.contains(number)))
        };
        // A host goes on sending into an access that has gone, or is about to, or whose gateway is not reached: the others are to
        // be preferred.
        let leaves = |number: &u32| self.is_doubtful(*number);
        let any_leaves = active.iter().any(|(number, _)| leaves(number));
        let gone = !host.prefixes.keys().all(held);
        let preferred: BTreeSet<u32> = active
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| gone || any_leaves && !leaves(number))
            .collect();
        let all: BTreeSet<Prefix> = host.prefixes.keys().copied().collect();
        // A notification names the host, not its interface: it says all that one of those at a gateway lacks.
        let mut lacks: BTreeMap<PeerAddress, BTreeSet<Prefix>> = BTreeMap::new();
        for (number, gateway) in &active {
            let own = self.sessions.get(number).map(|at| &at.value.prefixes);
            let lacked = all.iter().filter(|prefix| own.is_some_and(|own| !own.contains(prefix)));
            lacks.entry(*gateway).or_default().extend(lacked);
        }
        for (number, to) in active {
            let Some(session) = self.sessions.value_mut(&number) else { continue };
            let prefixes = lacks.get(&to).into_iter().flatten().copied().collect();
            let says = Elsewhere { prefixes, prefer: preferred.contains(&number) };
            if !self.config.flow_mobility_initiate {
                session.told = Some(Elsewhere { prefer: false, ..says });
                continue;
            }
            let nothing_ever = says == Elsewhere::default() && session.asked.is_none();
            if nothing_ever || session.asked.as_ref() == Some(&says) {
                continue;
            }
            // Until it is acknowledged, only what is in both is sure.
            if let Some(told) = &mut session.told {
                told.prefixes.retain(|prefix| says.prefixes.contains(prefix));
            }
            let asked = Some(says.clone());
            if self.open_notification(now, node, number, to, says)
                && let Some(session) = self.sessions.value_mut(&number)
            {
                session.asked = asked;
            }
        }
        if !self.config.flow_mobility_initiate {
            self.follow(now, node);
        }
    }

    /// A gateway may have forgotten what it was told.
    pub(super) fn tell_anew(&mut self, now: Time, gateway: PeerAddress) {
        let there: Vec<u32> = self.sessions.of(&gateway).map(|(number, _)| *number).collect();
        let mut nodes = BTreeSet::new();
        for number in there {
            if let Some(session) = self.sessions.value_mut(&number) {
                (session.told, session.asked) = (None, None);
                nodes.insert(session.node.clone());
            }
        }
        for node in nodes {
            self.notify(now, &node);
            self.follow(now, &node);
        }
    }

    fn open_notification(
        &mut self,
        now: Time,
        node: &NodeId,
        session: u32,
        to: PeerAddress,
        says: Elsewhere,
    ) -> bool {
        self.notifications.retain(|_, open| open.session != session);
        if self.notifications.len() >= OPEN_MAX {
            return false;
        }
        let mut options = Vec::from([MobilityOption::MobileNodeIdentifier(node.option())]);
        options.extend(says.prefixes.iter().map(|prefix| off_link_prefix(*prefix)));
        if says.prefer {
            let (vendor_id, sub_type, data) = (VENDOR, PREFERENCE, Vec::from([1]));
            options.push(MobilityOption::VendorSpecific(VendorSpecific {
                vendor_id,
                sub_type,
                data,
            }));
        }
        let sequence = loop {
            let sequence = self.number(NOTIFICATION) as u16;
            if !self.notifications.contains_key(&sequence) {
                break sequence;
            }
        };
        let again = Retransmission::new(now, Backoff::NOTIFICATION);
        let open = Notification { sequence, session, says, again, to, options };
        self.notify_once(&open, UpdateNotificationFlags::ACKNOWLEDGE);
        self.notifications.insert(sequence, open);
        true
    }

    fn notify_once(&mut self, open: &Notification, flags: UpdateNotificationFlags) {
        let notification_reason = NotificationReason::FLOW_MOBILITY;
        let sequence = open.sequence;
        let body = UpdateNotification { sequence, notification_reason, flags };
        self.say(Body::UpdateNotification(body), open.options.clone(), open.to);
    }

    /// A gateway knows, or cannot.
    pub(super) fn noticed(
        &mut self,
        now: Time,
        answer: &UpdateNotificationAcknowledgement,
        from: PeerAddress,
    ) -> Result<(), Refusal> {
        let open = self.notifications.get(&answer.sequence).filter(|open| open.to == from);
        let open = open.ok_or(Refusal::Stale)?;
        if answer.status != NotificationStatus::SUCCESS {
            // It may have come before the answer to the registration: it is repeated.
            return Ok(());
        }
        let (session, says) = (open.session, open.says.clone());
        self.notifications.remove(&answer.sequence);
        let Some(value) = self.sessions.value_mut(&session) else { return Ok(()) };
        value.told = Some(says);
        let node = value.node.clone();
        self.follow(now, &node);
        // Flows that could not be there until now are looked at again.
        if let Some(host) = self.hosts.get_mut(&node) {
            host.settled = Default::default();
        }
        Ok(())
    }

    /// Says again what is not acknowledged; a gateway that never answers is told once more when it registers the host again.
    pub(super) fn notify_again(&mut self, now: Time) {
        let due = self.notifications.values().filter(|open| open.again.deadline() <= now);
        let due: Vec<u16> = due.map(|open| open.sequence).collect();
        for sequence in due {
            let Some(open) = self.notifications.get_mut(&sequence) else { continue };
            match open.again.on_silence(now) {
                Silence::Wait => {}
                Silence::Again => {
                    let open = open.clone();
                    let repeated = UpdateNotificationFlags::RETRANSMISSION;
                    self.notify_once(&open, UpdateNotificationFlags::ACKNOWLEDGE | repeated);
                }
                Silence::GiveUp => {
                    let session = open.session;
                    self.notifications.remove(&sequence);
                    if let Some(session) = self.sessions.value_mut(&session) {
                        session.asked = None;
                    }
                }
            }
        }
    }
}
