//! STAMP.

use segue_wire::WireError;
use segue_wire::stamp::tlv::{is_padding, tlvs};
use segue_wire::stamp::{BASE_LEN, ErrorEstimate, ReflectorPacket, SenderPacket, TimestampFormat};

use crate::element::{Decoded, Nothing, Outcome};
use crate::{Tree, hex};

/// Octets that are zero in an authenticated packet and hold the timestamp in an unauthenticated one.
const ZEROS: std::ops::Range<usize> = 4..16;

/// Decodes a packet to a reflector (`request`) or from one.
pub(crate) fn decode(bytes: &[u8], request: bool) -> Outcome {
    if bytes.get(ZEROS).is_some_and(|zeros| zeros == [0; ZEROS.end - ZEROS.start]) {
        return Err(Nothing::other(
            "STAMP, authenticated",
            "STAMP, authenticated: without its key",
        ));
    }
    let mut emitted = [0; BASE_LEN];
    let refused = |error: WireError| Nothing::Broken(error.to_string());
    let (message, mut fields, length, rest) = if request {
        let (packet, rest) = SenderPacket::parse(bytes, None).map_err(refused)?;
        let fields = Tree::object([
            ("sequence_number", packet.seq.into()),
            ("timestamp", packet.timestamp.0.into()),
            ("error_estimate", estimate(packet.error)),
            ("ssid", packet.ssid.into()),
        ]);
        ("STAMP Session-Sender packet", fields, packet.emit(None, &mut emitted), rest)
    } else {
        let (packet, rest) = ReflectorPacket::parse(bytes, None).map_err(refused)?;
        let fields = Tree::object([
            ("sequence_number", packet.seq.into()),
            ("timestamp", packet.timestamp.0.into()),
            ("error_estimate", estimate(packet.error)),
            ("ssid", packet.ssid.into()),
            ("receive_timestamp", packet.receive.0.into()),
            ("session_sender_sequence_number", packet.sender_seq.into()),
            ("session_sender_timestamp", packet.sender_timestamp.0.into()),
            ("session_sender_error_estimate", estimate(packet.sender_error)),
            ("session_sender_ttl", packet.sender_ttl.into()),
        ]);
        ("STAMP Session-Reflector packet", fields, packet.emit(None, &mut emitted), rest)
    };
    let length = length.unwrap_or(0).min(bytes.len());
    let reencodes = emitted[..length] == bytes[..length];
    if is_padding(rest) {
        fields.push("padding", rest.len() as u64);
    } else {
        fields.push("extensions", extensions(rest)?);
    }
    Ok(Decoded { message, fields, reencodes })
}

fn estimate(error: ErrorEstimate) -> Tree {
    Tree::object([
        ("s", error.synchronised.into()),
        ("z", (error.format == TimestampFormat::Ptp).into()),
        ("scale", error.scale.into()),
        ("multiplier", error.multiplier.into()),
    ])
}

fn extensions(bytes: &[u8]) -> Result<Tree, Nothing> {
    let tlvs = tlvs(bytes).map(|tlv| {
        let tlv = tlv.map_err(|error| Nothing::Broken(format!("STAMP: {error}")))?;
        Ok(Tree::object([
            ("flags", tlv.flags.into()),
            ("type", tlv.kind.into()),
            ("value", hex::of(tlv.value).into()),
        ]))
    });
    tlvs.collect::<Result<_, _>>().map(Tree::List)
}
