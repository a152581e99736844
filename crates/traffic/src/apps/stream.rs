//! One end of an application over UDP: sends streams, receives streams, and reports to the meters.

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

/// UDP and RTP headers in bytes (RFC 768, RFC 3550 without contributing sources).
pub(crate) const UDP_RTP_BYTES: u32 = UDP_HEADER + 12;
const UDP_HEADER: u32 = 8;

/// The next datagram of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Payload of the datagram, in bytes.
    pub payload_bytes: u32,
    /// Tag of the datagram, for example a frame number.
    pub tag: u32,
}

/// A UDP datagram of an application, with the fields that its receiver needs for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number of the datagram in its stream, from 0.
    pub seq: u64,
    /// The application's tag, for example a video frame number.
    pub tag: u32,
}

impl Payload for Datagram {
    fn copy(&self) -> Box<dyn Payload> {
        Box::new(*self)
    }

    /// Zeros up to the length of the packet.
    fn write(&self, packet: &Packet, image: &mut Vec<u8>) {
        let headers = ip_header_bytes(packet.src) + UDP_HEADER;
        image.resize(image.len() + packet.bytes.saturating_sub(headers) as usize, 0);
    }
}

/// Sending times and sizes of an application's datagrams, independent of addresses.
pub trait Timetable {
    /// Time of the next datagram; `None`: there are no more.
    fn next(&self) -> Option<Time>;
    /// Takes the next datagram and advances to the following one.
    fn take(&mut self) -> Option<Shot>;
}

/// Start and end of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Start, relative to the start of the run.
    pub start: Span,
    /// End, relative to the start of the run; `None`: the end of the run.
    pub stop: Option<Span>,
}

impl Period {
    /// Time of its start.
    #[must_use]
    pub fn begin(&self) -> Time {
        Time(self.start.0)
    }

    /// Returns `at` if it lies before the end.
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

/// A direction of the application that an agent reports.
#[derive(Clone)]
pub(super) struct Reported {
    /// Suffix of the application's name in the names of results.
    pub name: &'static str,
    pub meter: SharedMeter,
    pub kind: Kind,
}

/// Additional results of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Speech: the E-model rating.
    Voice,
    /// Video: complete frames.
    Video,
}

/// One end of an application over UDP.
pub struct Endpoint {
    senders: Vec<Sender>,
    receivers: Vec<(u16, SharedMeter)>,
    reports: Vec<Reported>,
    /// Current attachments of its node.
    attached: Vec<Attachment>,
}

/// A connected interface, and the newest of its radio's cells.
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
    /// Notifies the meters that follow this kind of handover.
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

    /// A handover begins when its node attaches elsewhere, or becomes detached. Attaching afterwards belongs to
    /// the same handover, and so does leaving an attachment that is not used any longer.
    fn interfaces_changed(&mut self, io: &mut Io<'_>) {
        let before = core::mem::replace(&mut self.attached, attachments(io.node));
        if before.is_empty() || before == self.attached {
            return;
        }
        self.notice_handover(io.now, Meter::follows_interfaces);
    }

    /// A host on its node moved flows, possibly this one.
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
