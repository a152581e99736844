//! Arrivals whose path is known: checks and counts them, and collects the work that follows.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use segue_clock::{Span, Time};
use segue_wire::flow::Inner;
use segue_wire::header::flags::{
    REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION, RESPONSE_UNSOLICITED, RIDE_REPORT,
};
use segue_wire::{DropReason, FlowKey, Header, PacketType, Probe, Size};

use super::class::{capable, class_of, congested};
use super::coalesce;
use super::flows::Bound;
use super::path::{Path, Rx};
use super::probes::Answer;
use super::rides::Pending;
use super::shared::{Core, Shared};
use super::socket::Endpoint;
use crate::sync::lock;
use crate::{DatapathEvent, ProbeEvent, ProbeKind, Role, STAMP_TO_WIRE};

/// Longest time that reading both clocks takes without an interruption.
pub(super) const UNDISTURBED: Span = Span::from_micros(10);

/// The work of one batch that is done after the tables are unlocked.
#[derive(Default)]
pub(super) struct Work<'a> {
    pub packets: Vec<Cow<'a, [u8]>>,
    pub answers: Vec<Answer>,
    /// Answers to packet size tests, with their traffic classes.
    pub sizes: Vec<(Arc<Path>, Size, u8)>,
    pub events: Vec<DatapathEvent>,
}

/// Metadata of a datagram.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub from: SocketAddr,
    pub endpoint: Endpoint,
    pub at: Time,
    pub kernel_stamp: bool,
    /// Possible error of `at`: the error of the clock conversion for a kernel timestamp, otherwise all the
    /// time since this thread was last idle.
    pub error: Span,
    /// Traffic class of the outer header.
    pub class: u8,
    /// Interface of arrival, 0 if unknown.
    pub ifindex: u32,
}

/// The path and the binding of the previous packet of the batch; most packets repeat them.
#[derive(Default)]
pub(super) struct Last {
    pub header: Option<([u8; Header::LEN], Arc<Path>)>,
    learned: Option<(FlowKey, Bound)>,
    /// A flow, and its index in the table.
    counted: Option<(FlowKey, u32)>,
    /// An inner address that has been checked on a path.
    admitted: Option<(IpAddr, u32)>,
}

/// Fields of a data packet's header.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// How long ago the sender heard this end ([`segue_wire::age`]).
    pub age: u8,
    /// Only this direction of the flow has moved.
    pub one_way: bool,
}

/// Processes the packets of one batch.
pub(super) struct Intake<'s, 'a> {
    pub shared: &'s Shared,
    pub core: &'s mut Core,
    pub last: Last,
    pub work: Work<'a>,
}

impl<'s, 'a> Intake<'s, 'a> {
    pub(super) fn new(shared: &'s Shared, core: &'s mut Core) -> Intake<'s, 'a> {
        Intake { shared, core, last: Last::default(), work: Work::default() }
    }

    /// Processes data of a path.
    pub(super) fn data(
        &mut self,
        path: &Path,
        arrival: &Arrival,
        body: Cow<'a, [u8]>,
        head: Head,
    ) -> Result<(), DropReason> {
        let inner = Inner::parse(&body);
        let packets = coalesce::packets_in(&body, self.shared.tun_mtu);
        {
            // Counted even if it is refused below, because it was not lost.
            let mut rx = lock(&path.state.rx);
            rx.packets = rx.packets.wrapping_add(packets);
            rx.bytes += inner.map_or(0, |inner| inner.len) as u64;
        }
        if path.data_came(self.shared.role, arrival.at, head.age) {
            self.work.events.push(DatapathEvent::Look(path.slot));
        }
        let inner = inner?;
        let host = self.shared.role == Role::Host;
        let address = if host { inner.key.dst } else { inner.key.src };
        if self.last.admitted != Some((address, path.slot)) {
            match self.core.inner.get(&address) {
                Some(owner) if host || *owner == path.config.owner => {}
                _ if host => return Err(DropReason::InnerDestination),
                _ => return Err(DropReason::InnerSource),
            }
            self.last.admitted = Some((address, path.slot));
        }
        let back = (inner.key.reversed(), path.bound());
        if !host && self.last.learned != Some(back) {
            // Packets of flows in progress, and replies, have a binding.
            let begins = self.core.flows.bound(&back.0).is_none();
            if begins && !self.core.may_begin(&inner.key) {
                return Err(DropReason::NotAllowed);
            }
            if !head.one_way {
                if begins && !self.core.shares.take(address, arrival.at) {
                    return Err(DropReason::TooManyFlows);
                }
                self.core.flows.bind(back.0, back.1, arrival.at);
                self.last.learned = Some(back);
            }
        }
        let came = (packets, inner.len as u64);
        self.core.flows.received(&mut self.last.counted, &back.0, back.1, came);
        if congested(arrival.class) && !capable(class_of(&body)) {
            return Err(DropReason::Decapsulation);
        }
        self.work.packets.push(match body {
            Cow::Borrowed(body) => Cow::Borrowed(&body[..inner.len]),
            Cow::Owned(mut body) => {
                body.truncate(inner.len);
                Cow::Owned(body)
            }
        });
        Ok(())
    }
}

/// A well-formed probe.
pub(super) struct Take<'a> {
    pub path: &'a Arc<Path>,
    pub arrival: &'a Arrival,
    /// The header; for a path with UPMT packets, an equivalent one.
    pub header: &'a Header,
    pub probe: Probe,
    /// The probe came on its own, so its packet has not been counted yet.
    pub alone: bool,
}

impl Take<'_> {
    pub(super) fn probe(&self, role: Role, work: &mut Work<'_>) -> Result<(), DropReason> {
        match role {
            Role::Anchor => self.request(work),
            Role::Host => self.response(work),
        }
    }

    fn request(&self, work: &mut Work<'_>) -> Result<(), DropReason> {
        let Take { path, arrival, probe, .. } = *self;
        let mut rx = lock(&path.state.rx);
        rx.expect_newer(probe.seq)?;
        self.count(&mut rx);
        path.state.data.heard(arrival.at);
        let challenge = path.learn_endpoint(&rx, arrival.endpoint, arrival.at, probe.t_ss);
        rx.requested(arrival.at);
        let probe = Probe { r: rx.packets, ..probe };
        let elsewhere = challenge.map(|challenge| (arrival.endpoint, challenge));
        let response = Pending {
            k: self.header.k,
            probe,
            received_at: arrival.at,
            rode: !self.alone,
            question: self.is_question(),
            elsewhere,
        };
        work.answers.push(Answer { path: path.clone(), response });
        let mut event = self.event(ProbeKind::Request, &rx);
        event.arrival.uncertainty = event.arrival.uncertainty + rx.call(probe.t_ss);
        work.events.push(DatapathEvent::Probe(event));
        Ok(())
    }

    fn response(&self, work: &mut Work<'_>) -> Result<(), DropReason> {
        let Take { path, arrival, probe, .. } = *self;
        let unsolicited = self.alone && self.header.flags & RESPONSE_UNSOLICITED != 0;
        let kind = if unsolicited { ProbeKind::Unsolicited } else { ProbeKind::Response };
        let mut rx = lock(&path.state.rx);
        if unsolicited {
            rx.expect_newer(probe.seq)?;
        } else if path.config.probing.rides && path.state.never_sent(probe.seq) {
            return Err(DropReason::Replay);
        } else {
            rx.expect_new(probe.seq)?;
        }
        self.count(&mut rx);
        let mut event = self.event(kind, &rx);
        if !unsolicited {
            rx.answered(&probe, arrival.at);
            let taken = &mut event.arrival;
            taken.sent_at = rx.sent_at(probe.seq);
            let own = taken.sent_at.map_or_else(|| rx.call(probe.seq), |_| UNDISTURBED);
            taken.uncertainty = taken.uncertainty + own;
        }
        work.events.push(DatapathEvent::Probe(event));
        Ok(())
    }

    fn count(&self, rx: &mut Rx) {
        rx.packets = rx.packets.wrapping_add(u32::from(self.alone && !self.is_question()));
    }

    /// True for a question or the answer to one; neither counts.
    fn is_question(&self) -> bool {
        match self.header.packet_type {
            PacketType::Request => self.header.flags & REQUEST_QUESTION != 0,
            PacketType::Response => self.header.flags & RESPONSE_QUESTION != 0,
            PacketType::Data | PacketType::Ride | PacketType::Size => false,
        }
    }

    fn event(&self, kind: ProbeKind, rx: &Rx) -> ProbeEvent {
        let report = if self.alone { REQUEST_REPORT } else { RIDE_REPORT };
        ProbeEvent {
            slot: self.path.slot,
            kind,
            k: self.header.k,
            report: kind == ProbeKind::Request && self.header.flags & report != 0,
            age: if kind == ProbeKind::Request && self.alone { self.header.age } else { 0 },
            arrival: segue_keepalive::Arrival {
                probe: self.probe,
                at: self.arrival.at,
                received: rx.packets,
                question: self.is_question(),
                sent_at: None,
                uncertainty: self.arrival.error + STAMP_TO_WIRE,
            },
            remote: self.arrival.from,
            kernel_stamp: self.arrival.kernel_stamp,
        }
    }
}
