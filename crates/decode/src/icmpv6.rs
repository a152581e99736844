//! ICMPv6: neighbour discovery and what mobility adds.

use segue_wire::nd::{CHECKSUM_AT, Envelope, Kind, Message, check, verify_checksum};

use crate::Tree;
use crate::element::{Decoded, Outcome, Over, named};

/// A message, which is all of `bytes`.
pub(crate) fn decode(bytes: &[u8], over: Option<&Over>) -> Outcome {
    let kind = *bytes.first().ok_or("ICMPv6: no bytes")?;
    let name = Kind::of(kind).ok_or_else(|| not_decoded(kind))?.name();
    let message = Message::parse(bytes).map_err(|error| named(name, error))?;
    let mut emitted = message.emit();
    emitted[CHECKSUM_AT].copy_from_slice(&bytes[CHECKSUM_AT]);
    let checksum_ok = over.map(|over| verify_checksum(over.source, over.destination, bytes));
    let mut fields = Tree::object([
        ("type", kind.into()),
        ("code", bytes[1].into()),
        ("checksum", format!("{:#06x}", u16::from_be_bytes([bytes[2], bytes[3]])).into()),
        ("checksum_ok", checksum_ok.into()),
    ]);
    fields.append(Tree::of(&message));
    if let Some(over) = over {
        let Over { source, destination, hop_limit, .. } = *over;
        if let Err(refusal) = check(bytes, &Envelope { source, destination, hop_limit }) {
            fields.push("refused", refusal.to_string());
        }
        over.add_to(&mut fields);
    }
    Ok(Decoded { message: name, fields, reencodes: emitted == bytes })
}

fn not_decoded(kind: u8) -> String {
    let name = match kind {
        1 => " (Destination Unreachable)",
        2 => " (Packet Too Big)",
        3 => " (Time Exceeded)",
        4 => " (Parameter Problem)",
        128 => " (Echo Request)",
        129 => " (Echo Reply)",
        130..=132 | 143 => " (multicast listeners)",
        _ => "",
    };
    format!("ICMPv6 type {kind}{name}: not decoded")
}
