//! Conversion between messages or signalling and packets of a network.

use core::net::{IpAddr, SocketAddr};

use segue_clock::Time;

use super::message::Message;
use super::{bytes, signal};
use crate::Packet;
use crate::packet::Raw;

/// Converts a message between tunnel ends into a packet.
pub(super) fn tunnelled(
    now: Time,
    from: SocketAddr,
    to: SocketAddr,
    message: Message<Packet>,
) -> Packet {
    let dscp = message.dscp();
    let (bytes, inner) = bytes::seal(message);
    let packet = Packet::carrying(place(from), place(to), bytes, inner);
    Packet { dscp, sent: now, ..packet }
}

pub(super) fn signalled(
    now: Time,
    from: SocketAddr,
    to: SocketAddr,
    datagram: &signal::Datagram,
) -> Packet {
    Packet { sent: now, ..Packet::udp(place(from), place(to), datagram.encode()) }
}

fn place(end: SocketAddr) -> (IpAddr, u16) {
    (end.ip(), end.port())
}

/// A packet for an end: source, destination and content; for a tunnel packet also the code point.
pub(super) enum Came {
    Tunnel(SocketAddr, SocketAddr, u8, Raw),
    Signal(SocketAddr, SocketAddr, signal::Datagram),
}

/// Decodes a packet for an end; `None` if it belongs neither to a tunnel nor to signalling.
pub(super) fn came(packet: Packet) -> Option<Came> {
    let ((sport, dport), dscp) = (packet.ports, packet.dscp);
    let (from, to) = ((packet.src, sport).into(), (packet.dst, dport).into());
    let raw = *packet.into_value::<Raw>().ok()?;
    if dport == signal::SIGNAL_PORT {
        return Some(Came::Signal(from, to, signal::Datagram::decode(&raw.bytes)?));
    }
    Some(Came::Tunnel(from, to, dscp, raw))
}
