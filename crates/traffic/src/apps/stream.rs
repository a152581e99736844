//! The end of an application over UDP: it sends streams, receives streams, and lets meters know.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::{Span, Time};

use super::meter::{Meter, SharedMeter};
use super::report;
use segue_sim::agent::{Agent, Io};
use segue_sim::net::{CellId, Node};
use segue_sim::packet::{Packet, Payload, UDP, ip_header_bytes};
use segue_sim::results::Results;

/// UDP and RTP headers (RFC 768, RFC 3550 without contributing sources).
pub(crate) const UDP_RTP_BYTES: u32 = UDP_HEADER + 12;
const UDP_HEADER: u32 = 8;

/// What an application has to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Bytes of payload of one datagram.
    pub payload_bytes: u32,
    /// What it belongs to, for instance the number of a frame.
    pub tag: u32,
}

/// A UDP datagram of an application: what its receiver needs for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number of the datagram in its stream, from 0.
    pub seq: u64,
    /// The application's tag, for instance the number of a video frame.
    pub tag: u32,
}

impl Payload for Datagram {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(*self)
    }

    /// Zeros, as many as the packet is long.
    fn write(&self, packet: &Packet, image: &mut Vec<u8>) {
        let headers = ip_header_bytes(packet.src) + UDP_HEADER;
        image.resize(image.len() + packet.bytes.saturating_sub(headers) as usize, 0);
    }
}

/// When an application sends what. A timetable knows nothing of addresses.
pub trait Timetable {
    /// When to send the next datagram; `None`: never again.
    fn next(&self) -> Option<Time>;
    /// Takes the next datagram and goes on to the one after it.
    fn take(&mut self) -> Option<Shot>;
}

/// From when and until when an application sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Start, counted from the start of the run.
    pub start: Span,
    /// End, likewise; `None`: the end of the run.
    pub stop: Option<Span>,
}

impl Period {
    /// The instant of its start.
    #[must_use]
    pub fn begin(&self) -> Time {
        Time(self.start.0)
    }

    /// This instant, if it lies before the end.
    #[must_use]
    pub fn within(&self, at: Time) -> Option<Time> {
        Some(at).filter(|at| self.stop.is_none_or(|stop| at.0 < stop.0))
    }
}

struct Sender {
    timetable: Box<dyn Timetable>,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    dscp: u8,
    meter: SharedMeter,
}

/// What one agent is to report: a direction of the application.
#[derive(Clone)]
pub(super) struct Reported {
    /// What stands behind the application's name in the names of results.
    pub name: &'static str,
    pub meter: SharedMeter,
    pub kind: Kind,
}

/// What there is to say of a direction beside what every stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Speech: the rating of the E-model.
    Voice,
    /// Video: whole frames.
    Video,
}

/// One end of an application over UDP.
pub struct Endpoint {
    senders: Vec<Sender>,
    receivers: Vec<(u16, SharedMeter)>,
    reports: Vec<Reported>,
    /// Where its node is attached.
    attached: Vec<Attachment>,
}

/// An interface that is connected, and the newest of its radio's cells.
type Attachment = (u32, Option<CellId>);

fn attachments(node: &Node) -> Vec<Attachment> {
    let connected = node.adapters.iter().filter(|adapter| adapter.out.is_some());
    connected.map(|adapter| (adapter.interface.index, adapter.cells.last().copied())).collect()
}

impl Endpoint {
    pub(super) fn new(reports: Vec<Reported>) -> Endpoint {
        Endpoint { senders: vec![], receivers: vec![], reports, attached: vec![] }
    }

    pub(super) fn sends(
        &mut self,
        timetable: Box<dyn Timetable>,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        dscp: u8,
        meter: &SharedMeter,
    ) {
        self.senders.push(Sender { timetable, from, to, dscp, meter: meter.clone() });
    }

    pub(super) fn set_reports(&mut self, reports: Vec<Reported>) {
        self.reports = reports;
    }

    pub(super) fn receives(&mut self, port: u16, meter: &SharedMeter) {
        self.receivers.push((port, meter.clone()));
    }

    /// Meters of the directions that it reports, by name: `up` is from the first end to the second.
    pub(crate) fn meters(&self) -> impl Iterator<Item = (&'static str, &SharedMeter)> {
        self.reports.iter().map(|direction| (direction.name, &direction.meter))
    }

    /// The meter of a direction.
    #[must_use]
    pub fn meter(&self, direction: &str) -> Option<&SharedMeter> {
        self.meters().find(|(name, _)| *name == direction).map(|(_, meter)| meter)
    }
}

impl Sender {
    fn send_due(&mut self, io: &mut Io<'_>) {
        while self.timetable.next().is_some_and(|at| at <= io.now) {
            let Some(shot) = self.timetable.take() else { return };
            let bytes = ip_header_bytes(self.to.0) + UDP_RTP_BYTES + shot.payload_bytes;
            let seq = self.meter.tell(|meter| meter.sent(io.now, bytes, shot.tag));
            let datagram = Datagram { seq, tag: shot.tag };
            let packet = Packet::new(UDP, self.from, self.to, bytes, datagram);
            io.send(Packet { dscp: self.dscp, sent: io.now, ..packet });
        }
    }
}

impl Endpoint {
    /// Tells the meters that follow such a handover of one.
    fn notice_handover(&self, now: Time, follows: impl Fn(&Meter) -> bool) {
        let own = self.senders.iter().map(|sender| &sender.meter);
        for meter in own.chain(self.receivers.iter().map(|(_, meter)| meter)) {
            meter.tell(|meter| {
                if follows(meter) {
                    meter.handover(now);
                }
            });
        }
    }
}

impl Agent for Endpoint {
    fn start(&mut self, io: &mut Io<'_>) {
        self.attached = attachments(io.node);
        self.wake(io);
    }

    fn receive(&mut self, io: &mut Io<'_>, _over: Option<u32>, packet: Packet) {
        let Some(datagram) = packet.value::<Datagram>() else { return };
        if let Some((_, meter)) = self.receivers.iter().find(|(port, _)| *port == packet.ports.1) {
            meter.tell(|meter| meter.arrived(io.now, datagram.seq));
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.senders.iter_mut().for_each(|sender| sender.send_due(io));
    }

    fn deadline(&self) -> Option<Time> {
        self.senders.iter().filter_map(|sender| sender.timetable.next()).min()
    }

    /// A handover begins when its node attaches elsewhere, or is attached to nothing; attaching after that
    /// belongs to it, and so does leaving what is not used any more.
    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        let before = core::mem::replace(&mut self.attached, attachments(io.node));
        if before.is_empty() || before == self.attached {
            return;
        }
        self.notice_handover(io.now, Meter::follows_interfaces);
    }

    /// A host of its node moved flows, perhaps this one.
    fn flows_moved(&mut self, io: &mut Io<'_>) {
        self.notice_handover(io.now, Meter::follows_flows);
    }

    fn report(&self, name: &str, now: Time, results: &mut Results) {
        for direction in &self.reports {
            let prefix = [name, ".", direction.name, "."].concat();
            report::stream(&prefix, direction.kind, &direction.meter.finished(now), results);
        }
    }
}
