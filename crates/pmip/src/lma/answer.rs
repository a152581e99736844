//! Answers to registrations (RFC 5213, section 5.3.6).

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::UnixTime;
use segue_ip::Prefix;
use segue_mobility::Lifetime;
use segue_wire::mobility::body::BindingAcknowledgement;
use segue_wire::mobility::option::{
    LinkLocalAddress, MobileNodeIdentifier, NatDetection, NatDetectionFlags,
};
use segue_wire::mobility::{
    BindingAcknowledgementFlags, BindingUpdateFlags, Body, MobilityOption, Profile, Status,
};

use super::Lma;
use crate::message::{
    ANY_PREFIX, Registration, Update, datagram, gre_key, home_network_prefix, timestamp,
};

/// Contents of an acknowledgement.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) lifetime: Lifetime,
    /// Empty: echo the requested prefixes.
    pub(super) prefixes: Vec<Prefix>,
    /// Our time of day, if the clocks disagree.
    pub(super) own_time: Option<UnixTime>,
    /// Replaces the link-local address that the gateway sent or asked for.
    pub(super) link_local: Option<Ipv6Addr>,
    /// Additional options.
    pub(super) more: Vec<MobilityOption>,
}

impl Lma {
    /// Contents of a positive acknowledgement; `number` is the binding unless it ends.
    pub(super) fn grant(
        &self,
        update: &Update,
        prefixes: Vec<Prefix>,
        lifetime: Lifetime,
        number: Option<u32>,
    ) -> Answer {
        let mut answer = Answer { prefixes, lifetime, ..Answer::default() };
        let Some(at) = number.and_then(|number| self.sessions.get(&number)) else { return answer };
        answer.link_local = Some(at.value.link_local.unwrap_or(self.config.link_local));
        match (update.asked.gre, at.value.gre) {
            (Some(_), None) => answer.status = Status::GRE_KEY_OPTION_NOT_REQUIRED,
            (Some(_), Some(gre)) => {
                if update.flags.contains(BindingUpdateFlags::TLV_HEADER) {
                    answer.status = Status::GRE_TUNNELING_BUT_TLV_HEADER_NOT_SUPPORTED;
                }
                answer.more.push(gre_key(Some(gre.receive)));
            }
            (None, _) => {}
        }
        if self.peers.get(&at.peer).is_some_and(|peer| peer.way.data.is_some()) {
            let seconds = self.config.nat_keepalive.as_micros() / 1_000_000;
            answer.more.push(MobilityOption::NatDetection(NatDetection {
                flags: NatDetectionFlags::FORCE_UDP,
                refresh_time_s: u32::try_from(seconds).unwrap_or(u32::MAX),
            }));
        }
        answer
    }

    /// Sends an acknowledgement. Options that RFC 5213 requires to be echoed are copied unchanged.
    pub(super) fn acknowledge(&mut self, update: &Update, answer: Answer) {
        let Answer { status, lifetime, prefixes, own_time, link_local, more } = answer;
        let asked = &update.asked;
        let named: Vec<Prefix> = if !prefixes.is_empty() {
            prefixes
        } else if asked.prefixes.is_empty() {
            Vec::from([ANY_PREFIX])
        } else {
            asked.prefixes.clone()
        };
        // A non-strict gateway expects what its own anchor sends: prefixes with length 128, as it wrote them, and only
        // the options that it reads.
        let is_plain = update.profile != Profile::STRICT;
        let home = |prefix: Prefix| match is_plain {
            true => home_network_prefix(Prefix { len: 128, ..prefix }),
            false => home_network_prefix(prefix),
        };
        let mut options = Vec::new();
        let mut homes = Some(named);
        for option in &update.options {
            match option {
                MobilityOption::HomeNetworkPrefix(_) => {
                    let named = homes.take().into_iter().flatten();
                    options.extend(named.map(home));
                }
                MobilityOption::Timestamp(_) => {
                    options.push(own_time.map_or_else(|| option.clone(), timestamp));
                }
                MobilityOption::HandoffIndicator(_) | MobilityOption::AccessTechnologyType(_)
                    if is_plain => {}
                MobilityOption::LinkLocalAddress(asked) => {
                    let link_local_address = link_local.unwrap_or(asked.link_local_address);
                    options.push(MobilityOption::LinkLocalAddress(LinkLocalAddress {
                        link_local_address,
                    }));
                }
                MobilityOption::MobileNodeIdentifier(_)
                | MobilityOption::HandoffIndicator(_)
                | MobilityOption::AccessTechnologyType(_)
                | MobilityOption::MobileNodeLinkLayerIdentifier(_) => options.push(option.clone()),
                _ => {}
            }
        }
        options.extend(homes.into_iter().flatten().map(home));
        if !update.options.iter().any(|o| matches!(o, MobilityOption::MobileNodeIdentifier(_))) {
            options.push(MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai("")));
        }
        let missing = Registration {
            handoff: (asked.handoff.is_none() && !is_plain).then(Default::default),
            access: (asked.access.is_none() && !is_plain).then(Default::default),
            ..Registration::default()
        };
        options.extend(missing.options());
        options.extend(more);
        let last = || {
            let node = asked.node.as_ref()?;
            self.ordered_by(node, update)?.order.sequence.last()
        };
        let sequence = match status {
            Status::SEQUENCE_OUT_OF_WINDOW => last().unwrap_or(update.sequence),
            _ => update.sequence,
        };
        let flags = match is_plain {
            true => BindingAcknowledgementFlags(0),
            false => BindingAcknowledgementFlags::PROXY,
        };
        let lifetime_4s = lifetime.0;
        let body = BindingAcknowledgement { status, flags, sequence, lifetime_4s };
        let body = Body::BindingAcknowledgement(body);
        let answer = datagram(body, options, update.ends, &update.profile);
        self.send_about(asked.node.as_ref(), answer);
    }
}
