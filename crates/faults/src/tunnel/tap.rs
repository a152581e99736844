//! Decodes packets on the links, so that invariants can check the machines' messages. Most packets carry only
//! data, which are irrelevant to the invariants.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

use segue_clock::Time;
use segue_sim::net::Lost;
use segue_sim::packet::Payload;
use segue_sim::tunnel::signal::{Datagram, Frame, SIGNAL_PORT};
use segue_sim::{ChannelId, NodeId, Observer, Packet, Raw};
use segue_tunnel::ProbeKind;
use segue_wire::header::flags;
use segue_wire::{Header, PacketType, Probe};

use super::layout::{LARGE, PORT};
use crate::fault::PathRef;

/// Identity of a flow's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag {
    pub host: u8,
    pub flow: u8,
    pub counts: bool,
    /// Number of the packet, from 0, among those that count.
    pub number: u32,
    pub up: bool,
}

impl Payload for Tag {
    fn copy(&self) -> alloc::boxed::Box<dyn Payload> {
        alloc::boxed::Box::new(*self)
    }

    fn write(&self, _packet: &Packet, _image: &mut Vec<u8>) {}
}

/// A packet between the ends.
#[derive(Clone, Debug)]
pub(super) enum What {
    Tunnel {
        header: Header,
        /// The probe that it is or carries.
        probe: Option<(ProbeKind, Probe)>,
        /// The flow packet that it carries.
        tag: Option<Tag>,
    },
    Signal(Datagram),
    /// A packet of a flow; true if a probe rides on it.
    Data(Tag, bool),
}

/// Where, or with which outcome, a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Leaving the host.
    FromHost,
    /// Arriving at the core.
    ToAnchor,
    /// Leaving the core.
    FromAnchor,
    /// Too large for the link, upwards (true) or downwards.
    TooLarge(bool),
    /// Sent over a link with a size limit and not too large, upwards (true) or downwards.
    Fits(bool),
    /// Dropped by a filter of the link.
    Filtered,
}

/// Sightings since the last check, in order.
#[derive(Default)]
pub(super) struct Tape {
    pub seen: Vec<(PathRef, Place, What)>,
}

/// Observes the links between hosts and core.
pub(super) struct Tap {
    tape: Rc<RefCell<Tape>>,
    /// The paths in the order in which the stage created them, with four channels each.
    paths: Vec<PathRef>,
    core: NodeId,
}

impl Tap {
    pub(super) fn new(paths: Vec<PathRef>, core: NodeId) -> (Tap, Rc<RefCell<Tape>>) {
        let tape = Rc::new(RefCell::new(Tape::default()));
        (Tap { tape: tape.clone(), paths, core }, tape)
    }

    fn note(&self, at: PathRef, place: Place, packet: &Packet) {
        if let Some(what) = read(packet) {
            self.tape.borrow_mut().seen.push((at, place, what));
        }
    }
}

impl Observer for Tap {
    fn sent(&mut self, _: Time, channel: ChannelId, packet: &Packet, at: Result<Time, Lost>) {
        let Some(path) = self.paths.get(channel.0 as usize / 4).copied() else { return };
        match channel.0 % 4 {
            0 => {
                self.note(path, Place::FromHost, packet);
                self.size(path, true, packet, at);
            }
            1 => self.size(path, false, packet, at),
            3 => self.note(path, Place::FromAnchor, packet),
            _ => {}
        }
    }

    fn arrived(&mut self, _: Time, channel: ChannelId, packet: &Packet) {
        let Some(path) = self.paths.get(channel.0 as usize / 4).copied() else { return };
        if channel.0 % 4 == 2 {
            self.note(path, Place::ToAnchor, packet);
        }
    }

    fn dropped(&mut self, _: Time, node: NodeId, packet: &Packet, why: Lost) {
        // The anchor sends to a source that a NAT has forgotten. Its path is unknown, and no invariant depends on
        // it.
        if node == self.core && why == Lost::NoRoute && packet.ports.0 == PORT {
            self.note(PathRef { host: 0, path: 0 }, Place::FromAnchor, packet);
        }
    }

    fn said(&mut self, _: Time, _: NodeId, _: &str) {}

    fn listens(&self) -> bool {
        false
    }
}

impl Tap {
    /// Notes data packets that were too large or filtered, and large ones that passed.
    fn size(&self, path: PathRef, up: bool, packet: &Packet, at: Result<Time, Lost>) {
        let Some(raw) = packet.value::<Raw>() else { return };
        let Some(tag) = raw.inner.as_ref().and_then(|inner| inner.value::<Tag>()) else { return };
        let place = match at {
            Err(Lost::TooLarge) => Place::TooLarge(up),
            Err(Lost::Filtered) => Place::Filtered,
            _ => Place::Fits(up),
        };
        if place != Place::Fits(up) || usize::from(tag.flow) == LARGE {
            self.tape.borrow_mut().seen.push((
                path,
                place,
                What::Data(*tag, raw.bytes.len() > Header::LEN),
            ));
        }
    }
}

/// Decodes a packet between the ends; `None` for a flow packet without a probe, and for anything else.
fn read(packet: &Packet) -> Option<What> {
    let raw = packet.value::<Raw>()?;
    if packet.ports.0 == SIGNAL_PORT || packet.ports.1 == SIGNAL_PORT {
        return Datagram::decode(&raw.bytes).map(What::Signal);
    }
    let header = Header::parse(&raw.bytes).ok()?;
    let has = |flag: u8| header.flags & flag != 0;
    let kind = match header.packet_type {
        PacketType::Request => Some(ProbeKind::Request),
        PacketType::Response if has(flags::RESPONSE_UNSOLICITED) => Some(ProbeKind::Unsolicited),
        PacketType::Response => Some(ProbeKind::Response),
        PacketType::Ride if has(flags::RIDE_RESPONSE) => Some(ProbeKind::Response),
        PacketType::Ride => Some(ProbeKind::Request),
        PacketType::Data => return None,
        PacketType::Size => None,
    };
    let behind = raw.bytes.get(Header::LEN..Header::LEN + Probe::LEN);
    let bytes = behind.and_then(|bytes| bytes.first_chunk());
    let probe = kind.zip(bytes.map(Probe::parse));
    let tag = raw.inner.as_ref().and_then(|inner| inner.value::<Tag>()).copied();
    Some(What::Tunnel { header, probe, tag })
}

/// A sighting as text.
pub(super) fn text((at, place, what): &(PathRef, Place, What)) -> String {
    match what {
        What::Tunnel { header, probe, tag } => {
            let data = tag.map(|tag| format!(" flow {}.{}", tag.host, tag.flow));
            let says =
                probe.as_ref().map(|(kind, p)| format!(" {kind:?} {}, heard {:b}", p.seq, p.heard));
            let (data, says) = (data.unwrap_or_default(), says.unwrap_or_default());
            format!(
                "{at} {place:?}: {:?} to index {}{data}{says}",
                header.packet_type, header.index
            )
        }
        What::Data(tag, _) => format!("{at} {place:?}: flow {}.{}", tag.host, tag.flow),
        What::Signal(datagram) => {
            let frame = match &datagram.frame {
                Frame::Stream { offset, bytes } => {
                    format!("stream {offset}, {} bytes", bytes.len())
                }
                other => format!("{other:?}"),
            };
            format!("{at} {place:?}: connection {:x}, {frame}", datagram.conn)
        }
    }
}
