//! Notifies gateways of a host's prefixes at other gateways: flow mobility (RFC 7864, section 3.2.2) by update
//! notifications (RFC 7077).
//!
//! A gateway carries a flow to a prefix that it did not assign only if it knows that the prefix belongs to its host. So
//! each gateway of a host is notified at once of all the host's other prefixes, long before a flow moves. When an
//! access fails, the anchor only has to reroute the traffic.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use segue_clock::Time;
use segue_ip::Prefix;
use segue_mobility::{Backoff, Retransmission, Silence};
use segue_wire::mobility::body::{UpdateNotification, UpdateNotificationAcknowledgement};
use segue_wire::mobility::option::VendorSpecific;
use segue_wire::mobility::{
    Body, MobilityOption, NotificationReason, NotificationStatus, Profile, UpdateNotificationFlags,
};

use super::Lma;
use super::state::{Elsewhere, NOTIFICATION, Notification};
use crate::message::{datagram, off_link_prefix};
use crate::{NodeId, PREFERENCE, PeerAddress, Refusal, VENDOR};

/// Maximum number of unacknowledged notifications.
const OPEN_MAX: usize = 1 << 15;

impl Lma {
    /// Notifies the gateways of a host of changes that concern them.
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
        // A host keeps sending into an access that has failed or is about to fail, or whose gateway is unreachable: ask
        // it to prefer the other gateways.
        let leaves = |number: &u32| self.is_doubtful(*number);
        let any_leaves = active.iter().any(|(number, _)| leaves(number));
        let gone = !host.prefixes.keys().all(held);
        let preferred: BTreeSet<u32> = active
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| gone || any_leaves && !leaves(number))
            .collect();
        let all: BTreeSet<Prefix> = host.prefixes.keys().copied().collect();
        // A notification names the host, not the interface, so it lists the prefixes that any of the host's interfaces
        // at that gateway lacks.
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
            // Until the acknowledgement, only prefixes that are in both lists are certain to be carried.
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

    /// Notifies a gateway again: after its restart it may have forgotten everything.
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
        let node = node.clone();
        let open = Notification { node, sequence, session, says, again, to, options };
        self.notify_once(&open, UpdateNotificationFlags::ACKNOWLEDGE);
        self.notifications.insert(sequence, open);
        true
    }

    fn notify_once(&mut self, open: &Notification, flags: UpdateNotificationFlags) {
        let notification_reason = NotificationReason::FLOW_MOBILITY;
        let sequence = open.sequence;
        let body = UpdateNotification { sequence, notification_reason, flags };
        let (ends, options) = (self.ends_to(open.to), open.options.clone());
        let message = datagram(Body::UpdateNotification(body), options, ends, &Profile::STRICT);
        self.send_about(Some(&open.node), message);
    }

    /// Handles the acknowledgement of a notification.
    pub(super) fn noticed(
        &mut self,
        now: Time,
        answer: &UpdateNotificationAcknowledgement,
        from: PeerAddress,
    ) -> Result<(), Refusal> {
        let open = self.notifications.get(&answer.sequence).filter(|open| open.to == from);
        let open = open.ok_or(Refusal::Stale)?;
        if answer.status != NotificationStatus::SUCCESS {
            // The notification may have overtaken the answer to the registration: it will be retransmitted.
            return Ok(());
        }
        let (session, says) = (open.session, open.says.clone());
        self.notifications.remove(&answer.sequence);
        let Some(value) = self.sessions.value_mut(&session) else { return Ok(()) };
        value.told = Some(says);
        let node = value.node.clone();
        self.follow(now, &node);
        // Reconsider flows that this gateway could not carry before.
        if let Some(host) = self.hosts.get_mut(&node) {
            host.settled = Default::default();
        }
        Ok(())
    }

    /// Retransmits unacknowledged notifications. A gateway that never answers is notified again when it renews the
    /// registration.
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
