//! Messages that anchors initiate: revocations (RFC 5846), and notifications of flow mobility (RFC 7077, RFC 7864).

use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Span, Time};
use segue_wire::mobility::body::{
    BindingRevocation, BindingRevocationAcknowledgement, BindingRevocationIndication,
    UpdateNotification, UpdateNotificationAcknowledgement,
};
use segue_wire::mobility::{
    Body, MobilityOption, NotificationReason, NotificationStatus, RevocationStatus,
    UpdateNotificationFlags,
};

use super::Mag;
use super::state::StationState;
use super::station::{Place, Station};
use crate::Refusal;
use crate::message::{Registration, datagram};
use crate::news::Why;
use crate::peer::Ends;

/// Maximum age of the last notification for detecting reordering. After that, a lower sequence number belongs to a
/// restarted anchor.
const OVERTAKEN: Span = Span::from_secs(10);

/// How long packets of a station whose registration is revoked do not attach it again: it has moved to another gateway,
/// and its last packets may still be heard here.
const LATE: Span = Span::from_secs(3);

impl Mag {
    /// Handles a Binding Revocation Indication (RFC 5846).
    pub(super) fn revoke(
        &mut self,
        now: Time,
        indication: &BindingRevocationIndication,
        options: &[MobilityOption],
        from: IpAddr,
        to: IpAddr,
    ) {
        let asked = Registration::of(options);
        let mut places = self.places(&asked, from, to);
        places.retain(|place| self.stations.get(place).is_some_and(|at| at.state.is_served()));
        let status = match (&asked.node, places.is_empty()) {
            (None, _) => RevocationStatus::IDENTITY_REQUIRED,
            (Some(_), true) => RevocationStatus::BINDING_DOES_NOT_EXIST,
            (Some(_), false) => RevocationStatus::SUCCESS,
        };
        self.revoked.retain(|_, until| now < *until);
        for place in &places {
            self.lost(place, Why::Revoked);
            self.revoked.insert(place.1.clone(), now + LATE);
        }
        let (sequence, flags) = (indication.sequence, indication.flags);
        let body = BindingRevocationAcknowledgement { status, sequence, flags };
        let body = Body::BindingRevocation(BindingRevocation::Acknowledgement(body));
        let answer =
            datagram(body, identifying(options), Ends::between(to, from), &self.config.profile);
        self.send(answer);
    }

    /// Handles an Update Notification (RFC 7077): flows move here (RFC 7864), or the anchor requests a re-registration.
    pub(super) fn notified(
        &mut self,
        now: Time,
        notification: &UpdateNotification,
        options: &[MobilityOption],
        from: IpAddr,
        to: IpAddr,
    ) -> Result<(), Refusal> {
        let told = Registration::of(options);
        let named = Registration { prefixes: Vec::new(), ..told.clone() };
        let places = self.places(&named, from, to);
        let is_overtaken = |place: &Place| {
            let last = self.stations.get(place).and_then(|at| at.notified);
            last.is_some_and(|(last, at)| {
                let behind = last.wrapping_sub(notification.sequence);
                (1..1 << 15).contains(&behind) && now < at + OVERTAKEN
            })
        };
        if places.iter().any(is_overtaken) {
            return Err(Refusal::Stale);
        }
        let status = match notification.notification_reason {
            _ if places.is_empty() => NotificationStatus::MN_NOT_ATTACHED,
            NotificationReason::FORCE_REREGISTRATION => {
                places.iter().for_each(|place| self.send_update(now, place));
                NotificationStatus::SUCCESS
            }
            NotificationReason::FLOW_MOBILITY => {
                for place in &places {
                    let Some(at) = self.stations.get_mut(place) else { continue };
                    let others =
                        told.off_link.iter().filter(|prefix| !at.prefixes.contains(prefix));
                    at.off_link = others.copied().collect();
                    at.notified = Some((notification.sequence, now));
                    let changes = core::mem::replace(&mut at.preferred, told.prefer) != told.prefer;
                    at.was_preferred |= told.prefer;
                    self.follow(place);
                    self.store(place);
                    if changes {
                        self.advertise(now, place);
                    }
                }
                NotificationStatus::SUCCESS
            }
            _ => NotificationStatus::REASON_UNSPECIFIED,
        };
        if notification.flags.contains(UpdateNotificationFlags::ACKNOWLEDGE) {
            let body =
                UpdateNotificationAcknowledgement { sequence: notification.sequence, status };
            let body = Body::UpdateNotificationAcknowledgement(body);
            let answer =
                datagram(body, identifying(options), Ends::between(to, from), &self.config.profile);
            self.send(answer);
        }
        Ok(())
    }

    /// The stations of a host that this anchor has registered at this address, or is registering: a notification may
    /// arrive before the acknowledgement. Restricted to stations with a named prefix, if any is named.
    fn places(&self, asked: &Registration, anchor: IpAddr, coa: IpAddr) -> Vec<Place> {
        let Some(node) = &asked.node else { return Vec::new() };
        let usual = self.config.anchor;
        let fits = |at: &Station| {
            let identity = at.identity.as_ref();
            (at.state.is_served() || at.state == StationState::Registering)
                && self.config.accesses[at.access].proxy_coa == coa
                && identity.is_some_and(|i| i.anchor.unwrap_or(usual) == anchor)
                && (asked.prefixes.is_empty()
                    || asked.prefixes.iter().any(|prefix| at.prefixes.contains(prefix)))
        };
        let found = self.stations_of(node).filter(|(_, at)| fits(at));
        found.map(|(place, _)| place.clone()).collect()
    }
}

/// The options that identify the host and its prefixes.
fn identifying(options: &[MobilityOption]) -> Vec<MobilityOption> {
    let of_whom = |option: &&MobilityOption| {
        matches!(
            option,
            MobilityOption::MobileNodeIdentifier(_) | MobilityOption::HomeNetworkPrefix(_)
        )
    };
    options.iter().filter(of_whom).cloned().collect()
}
