//! Encodes messages between the ends for transport through a network: bytes as in
//! `docs/wire/tunnel-and-probe.md`, followed by the inner packet as a value if there is one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use segue_tunnel::ProbeKind;
use segue_wire::header::flags;
use segue_wire::{Header, PacketType, Probe, ProbeKey, Size};

use super::message::{Body, Inner, Message, Ride};
use crate::Packet;
use crate::net::flow_key;
use crate::packet::Raw;

pub(super) fn inner(packet: Packet) -> Inner<Packet> {
    Inner { key: flow_key(&packet), dscp: packet.dscp, bytes: packet.bytes, payload: packet }
}

fn mark(flag: u8, set: bool) -> u8 {
    if set { flag } else { 0 }
}

/// The UDP payload of a message: its bytes, and the packet that follows.
pub(super) fn seal(message: Message<Packet>) -> (Vec<u8>, Option<Packet>) {
    let (index, cookie) = (message.index, message.cookie);
    let header = |packet_type, flags, k, age| Header { packet_type, flags, k, age, index, cookie };
    match message.body {
        Body::Data { inner, one_way, age } => {
            let flags = mark(flags::DATA_ONE_WAY, one_way);
            (header(PacketType::Data, flags, 0, age).emit().to_vec(), Some(inner.payload))
        }
        Body::Probe { kind, k, report, question, age, probe, key } => {
            let (packet_type, flags) = match kind {
                ProbeKind::Request => (
                    PacketType::Request,
                    mark(flags::REQUEST_REPORT, report) | mark(flags::REQUEST_QUESTION, question),
                ),
                ProbeKind::Response => {
                    (PacketType::Response, mark(flags::RESPONSE_QUESTION, question))
                }
                ProbeKind::Unsolicited => (PacketType::Response, flags::RESPONSE_UNSOLICITED),
            };
            (probe.seal(&header(packet_type, flags, k, age), &key).to_vec(), None)
        }
        Body::Ride(ride) => {
            let Ride { inner, one_way, age, kind, k, probe, key } = *ride;
            let flags = mark(flags::RIDE_ONE_WAY, one_way)
                | mark(flags::RIDE_RESPONSE, kind == ProbeKind::Response);
            let header = header(PacketType::Ride, flags, k, age);
            (probe.seal(&header, &key).to_vec(), Some(inner.payload))
        }
        Body::Size { size, key, .. } => {
            let mut packet = Vec::new();
            size.seal(&header(PacketType::Size, 0, 0, 0), &key, &mut packet);
            (packet, None)
        }
    }
}

/// Decodes a packet that arrived with this code point, for a host (`at_host`) or an anchor; `key_of` returns the
/// key of the path with an index. `None` if the packet is not a message or has a wrong authenticator.
pub(super) fn open(
    raw: Raw,
    dscp: u8,
    at_host: bool,
    key_of: impl Fn(u32) -> Option<ProbeKey>,
) -> Option<Message<Packet>> {
    let Raw { bytes, inner: packet } = raw;
    let header = Header::parse(&bytes).ok()?;
    let Header { packet_type, flags, k, age, index, cookie } = header;
    let has = |flag: u8| flags & flag != 0;
    let body = match packet_type {
        PacketType::Data => {
            let one_way = has(flags::DATA_ONE_WAY);
            Body::Data { inner: inner(packet?), one_way, age }
        }
        PacketType::Ride => {
            let key = key_of(index)?;
            let (probe, _) = Probe::open_ride(&bytes, &key).ok()?;
            let kind = match has(flags::RIDE_RESPONSE) {
                true => ProbeKind::Response,
                false => ProbeKind::Request,
            };
            let (inner, one_way) = (inner(packet?), has(flags::RIDE_ONE_WAY));
            Body::Ride(Box::new(Ride { inner, one_way, age, kind, k, probe, key }))
        }
        PacketType::Request => {
            let key = key_of(index)?;
            let (kind, probe) = (ProbeKind::Request, Probe::open(&bytes, &key).ok()?);
            let (report, question) = (has(flags::REQUEST_REPORT), has(flags::REQUEST_QUESTION));
            Body::Probe { kind, k, report, question, age, probe, key }
        }
        PacketType::Response => {
            let key = key_of(index)?;
            let unsolicited = has(flags::RESPONSE_UNSOLICITED);
            let kind = if unsolicited { ProbeKind::Unsolicited } else { ProbeKind::Response };
            let (probe, question) =
                (Probe::open(&bytes, &key).ok()?, has(flags::RESPONSE_QUESTION));
            Body::Probe { kind, k, report: false, question, age, probe, key }
        }
        PacketType::Size => {
            let key = key_of(index)?;
            Body::Size { size: Size::open(&bytes, &key, !at_host).ok()?, dscp, key }
        }
    };
    Some(Message { index, cookie, body })
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::packet::UDP;

    const KEY: ProbeKey = ProbeKey([7; 16]);

    fn packet() -> Packet {
        let place = |port| (IpAddr::from(Ipv4Addr::LOCALHOST), port);
        Packet::new(UDP, place(1), place(2), 200, Raw::default())
    }

    fn data() -> Inner<Packet> {
        inner(packet())
    }

    /// Every kind of message with every permitted flag, as hosts and anchors send them.
    fn messages() -> Vec<(bool, Body<Packet>)> {
        let (key, probe, k) = (KEY, Probe { seq: 9, heard: 5, ..Probe::default() }, 3);
        let mut all = Vec::new();
        for one_way in [false, true] {
            all.push((true, Body::Data { inner: data(), one_way, age: 7 }));
            for kind in [ProbeKind::Request, ProbeKind::Response] {
                let ride = Ride { inner: data(), one_way, age: 1, kind, k, probe, key };
                all.push((kind == ProbeKind::Response, Body::Ride(Box::new(ride))));
            }
        }
        for (report, question) in [(false, false), (true, false), (false, true), (true, true)] {
            let kind = ProbeKind::Request;
            all.push((false, Body::Probe { kind, k, report, question, age: 4, probe, key }));
        }
        for (kind, question) in [
            (ProbeKind::Response, false),
            (ProbeKind::Response, true),
            (ProbeKind::Unsolicited, false),
        ] {
            all.push((true, Body::Probe { kind, k, report: false, question, age: 0, probe, key }));
        }
        let size = Size { token: 4, size: 1_400, answer: 80 };
        all.push((false, Body::Size { size, dscp: 46, key }));
        all.push((true, Body::Size { size: size.answered(), dscp: 46, key }));
        all
    }

    #[test]
    fn every_message_is_as_long_as_it_says_and_reads_back() {
        for (to_host, body) in messages() {
            let outer = IpAddr::from(Ipv4Addr::LOCALHOST);
            let sent = Message { index: 6, cookie: 8, body };
            let (bytes, inner) = seal(sent.clone());
            let whole = Packet::carrying((outer, 1), (outer, 2), bytes.clone(), inner.clone());
            assert_eq!(whole.bytes, sent.bytes(outer), "{sent:?}");
            let key_of = |index| (index == 6).then_some(KEY);
            let read = open(Raw { bytes, inner }, 46, to_host, key_of).unwrap();
            // Compared as text, since payloads cannot be compared.
            assert_eq!(alloc::format!("{read:?}"), alloc::format!("{sent:?}"));
        }
    }

    #[test]
    fn a_wrong_authenticator_and_bytes_that_are_no_message_are_refused() {
        let mut authenticated = 0;
        for (to_host, body) in messages() {
            let (bytes, inner) = seal(Message { index: 6, cookie: 8, body });
            let read = |raw, key| open(raw, 46, to_host, |_| Some(key)).is_some();
            let raw = Raw { bytes, inner };
            assert!(read(raw.clone(), KEY));
            let forged = !read(raw.clone(), ProbeKey([8; 16]));
            authenticated += u32::from(forged);
            assert_eq!(forged, raw.bytes.len() > Header::LEN, "{raw:?}");
            assert!(!read(Raw { bytes: raw.bytes[..15].to_vec(), ..raw.clone() }, KEY));
            if raw.inner.is_some() {
                assert!(!read(Raw { inner: None, ..raw }, KEY), "nothing is in it");
            }
        }
        assert_eq!(authenticated, 13);
    }
}
