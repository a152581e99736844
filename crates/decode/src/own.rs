//! Packets of Segue's tunnels (`docs/wire/tunnel-and-probe.md`) and of UPMT (`docs/wire/upmt.md`). Authenticators are
//! shown but not verified: a capture does not contain the keys.

use std::borrow::Cow;

use segue_wire::header::flags;
use segue_wire::upmt::{Form, ProbePacket, Trailer};
use segue_wire::{Header, PacketType, Probe, Size};

use crate::element::{Decoded, Found, Nothing, Outcome};
use crate::{Tree, hex};

/// Length of the authenticator.
const MAC_LEN: usize = Probe::PACKET_LEN - Header::LEN - Probe::LEN;

/// Decodes a UDP payload of `length` bytes on the wire, of which `bytes` were captured.
pub(crate) fn payload(bytes: &[u8], length: usize) -> Vec<Found<'_>> {
    match Form::of(bytes) {
        Form::Inner => upmt_inner(bytes),
        Form::Ride => upmt_ride(bytes),
        Form::Other => segue(bytes, length),
    }
}

fn segue(bytes: &[u8], length: usize) -> Vec<Found<'_>> {
    let header = match Header::parse(bytes) {
        Ok(header) => header,
        Err(error) => return vec![Found::Message(Err(Nothing::Broken(format!("Segue: {error}"))))],
    };
    let message = Found::Message(fields(&header, bytes, length));
    let inner = match header.packet_type {
        PacketType::Data => bytes.get(Header::LEN..),
        PacketType::Ride => bytes.get(Probe::PACKET_LEN..),
        _ => None,
    };
    let inner = inner.map(|packet| Found::Inner("Segue", Cow::Borrowed(packet)));
    [message].into_iter().chain(inner).collect()
}

fn fields(header: &Header, bytes: &[u8], length: usize) -> Outcome {
    let mut fields = Tree::object([
        ("version", Header::VERSION.into()),
        ("type", (header.packet_type as u8).into()),
        ("flags", Tree::List(names(header).into_iter().map(Tree::from).collect())),
        ("k", header.k.into()),
        ("age", header.age.into()),
        ("tunnel_index", header.index.into()),
        ("cookie", format!("{:016x}", header.cookie).into()),
    ]);
    let mut emitted = header.emit().to_vec();
    let message = match header.packet_type {
        PacketType::Data => "Segue Data",
        PacketType::Ride => "Segue Ride",
        PacketType::Request => "Segue Request",
        PacketType::Response => "Segue Response",
        PacketType::Size => "Segue Size",
    };
    if header.packet_type != PacketType::Data {
        let (words, mac) = words(bytes).ok_or_else(|| {
            let (got, min) = (bytes.len(), Probe::PACKET_LEN);
            Nothing::Broken(format!("{message}: {got} bytes, at least {min} needed"))
        })?;
        if matches!(header.packet_type, PacketType::Request | PacketType::Response)
            && length != Probe::PACKET_LEN
        {
            let error = format!("{message}: a length of {length} bytes is wrong");
            return Err(Nothing::Broken(error));
        }
        if header.packet_type == PacketType::Size {
            let from_host = words.t_sc as u16 != 0;
            let size = Size::read(&words, length, from_host)
                .map_err(|error| Nothing::Broken(format!("{message}: {error}")))?;
            fields.push("token", size.token);
            fields.push("size", size.size);
            fields.push("answer", size.answer);
            emitted.extend(size.words().emit());
        } else {
            fields.append(probe(&words));
            fields.push("t_ka", words.t_ka_ms);
            emitted.extend(words.emit());
        }
        fields.push("mac", hex::of(mac));
        emitted.extend(mac);
    }
    let reencodes = bytes.starts_with(&emitted);
    Ok(Decoded { message, fields, reencodes })
}

/// The fields of a probe, and its authenticator.
fn words(bytes: &[u8]) -> Option<(Probe, &[u8])> {
    let words = bytes.get(Header::LEN..)?.first_chunk()?;
    let mac = bytes.get(Header::LEN + Probe::LEN..Probe::PACKET_LEN)?;
    debug_assert_eq!(mac.len(), MAC_LEN, "the layout of a probe");
    Some((Probe::parse(words), mac))
}

/// The names of the flags that are set.
fn names(header: &Header) -> Vec<&'static str> {
    let known: &[(u8, &'static str)] = match header.packet_type {
        PacketType::Data => &[(flags::DATA_ONE_WAY, "one_way")],
        PacketType::Ride => &[
            (flags::RIDE_ONE_WAY, "one_way"),
            (flags::RIDE_RESPONSE, "response"),
            (flags::RIDE_REPORT, "report"),
        ],
        PacketType::Request => {
            &[(flags::REQUEST_REPORT, "report"), (flags::REQUEST_QUESTION, "question")]
        }
        PacketType::Response => {
            &[(flags::RESPONSE_UNSOLICITED, "unsolicited"), (flags::RESPONSE_QUESTION, "question")]
        }
        PacketType::Size => &[],
    };
    known.iter().filter(|(flag, _)| header.flags & flag != 0).map(|(_, name)| *name).collect()
}

/// The probe fields that Segue and UPMT share.
fn probe(probe: &Probe) -> Tree {
    Tree::object([
        ("seq", probe.seq.into()),
        ("t_sc", probe.t_sc.into()),
        ("t_ss", probe.t_ss.into()),
        ("dt", probe.dt.into()),
        ("sc", probe.sc.into()),
        ("ss", probe.ss.into()),
        ("r", probe.r.into()),
        ("heard", format!("{:#06x}", probe.heard).into()),
    ])
}

/// Decodes an inner packet without a header before it: a probe, or data.
fn upmt_inner(bytes: &[u8]) -> Vec<Found<'_>> {
    let packet = match ProbePacket::parse(bytes) {
        Some(Ok(packet)) => packet,
        Some(Err(error)) => {
            let error = format!("UPMT probe: {error}");
            return vec![Found::Message(Err(Nothing::Broken(error)))];
        }
        None => return vec![Found::Inner("UPMT", Cow::Borrowed(bytes))],
    };
    let mut fields = Tree::object([
        ("path", packet.path.into()),
        (if packet.response { "unsolicited" } else { "report" }, packet.flagged.into()),
        ("host", packet.host.to_string().into()),
        ("anchor", packet.anchor.to_string().into()),
    ]);
    fields.append(probe(&packet.probe));
    let message = if packet.response { "UPMT Response" } else { "UPMT Request" };
    vec![Found::Message(Ok(Decoded { message, fields, reencodes: packet.emit() == bytes }))]
}

fn upmt_ride(bytes: &[u8]) -> Vec<Found<'_>> {
    let (trailer, inner) = match Trailer::split(bytes) {
        Ok(split) => split,
        Err(error) => {
            let error = format!("UPMT ride: {error}");
            return vec![Found::Message(Err(Nothing::Broken(error)))];
        }
    };
    let mut fields = Tree::object([
        ("path", trailer.path.into()),
        ("response", trailer.response.into()),
        ("report", trailer.report.into()),
        ("version", trailer.version.into()),
    ]);
    fields.append(probe(&trailer.probe));
    let reencodes = bytes.ends_with(&trailer.emit());
    let mut packet = inner.to_vec();
    packet[0] = trailer.restored(packet[0]);
    vec![
        Found::Message(Ok(Decoded { message: "UPMT Ride", fields, reencodes })),
        Found::Inner("UPMT", Cow::Owned(packet)),
    ]
}
