//! ICMPv6: neighbour discovery, and the messages that mobility protocols add to it.

use std::borrow::Cow;

use segue_wire::nd::{CHECKSUM_AT, Envelope, Kind, Message, NdOption, check, verify_checksum};

use crate::Tree;
use crate::element::{Decoded, Found, Nothing, Outcome, Over, named};

/// Offset of the quoted packet in an ICMPv6 error.
const QUOTE_AT: usize = 8;
/// Why a message in an atomic fragment is discarded.
const FRAGMENT: &str = "in a fragment (RFC 6980)";

/// The contents of an ICMPv6 message: the message itself, or the packet that it quotes. `bytes` is the whole message.
pub(crate) fn found<'a>(bytes: &'a [u8], over: &Over) -> Vec<Found<'a>> {
    let quote = bytes.get(QUOTE_AT..).filter(|quote| !quote.is_empty());
    match (bytes.first(), quote) {
        (Some(1..=4), Some(quote)) => vec![Found::Quote("ICMPv6", Cow::Borrowed(quote))],
        (Some(137), _) => {
            let message = Message::parse_lossy(bytes).ok();
            let options = message.iter().flat_map(Message::options);
            let quoted = options.filter_map(|option| match option {
                NdOption::RedirectedHeader { packet } => Some(Cow::Owned(packet.clone())),
                _ => None,
            });
            let quotes = quoted.map(|packet| Found::Quote("Redirect", packet));
            [Found::Message(decode(bytes, Some(over)))].into_iter().chain(quotes).collect()
        }
        _ => vec![Found::Message(decode(bytes, Some(over)))],
    }
}

/// Decodes a message. `bytes` is the whole message.
pub(crate) fn decode(bytes: &[u8], over: Option<&Over>) -> Outcome {
    let kind = *bytes.first().ok_or_else(|| Nothing::Broken("ICMPv6: no bytes".into()))?;
    let name = Kind::of(kind).ok_or_else(|| not_decoded(kind))?.name();
    let message = Message::parse_lossy(bytes).map_err(|error| named(name, error))?;
    let mut emitted = message.emit();
    emitted[CHECKSUM_AT].copy_from_slice(&bytes[CHECKSUM_AT]);
    let whole = over.filter(|over| !over.is_cut);
    let checksum_ok = whole.map(|over| verify_checksum(over.source, over.destination, bytes));
    let mut fields = Tree::object([
        ("type", kind.into()),
        ("code", bytes[1].into()),
        ("checksum", format!("{:#06x}", u16::from_be_bytes([bytes[2], bytes[3]])).into()),
        ("checksum_ok", checksum_ok.into()),
    ]);
    fields.append(Tree::of(&message));
    if let Some(over) = whole {
        let Over { source, destination, hop_limit, is_atomic_fragment, .. } = *over;
        match check(bytes, &Envelope { source, destination, hop_limit }) {
            Err(refusal) => fields.push("refused", refusal.to_string()),
            Ok(message) if is_atomic_fragment && message.kind().is_of_the_link() => {
                fields.push("refused", FRAGMENT);
            }
            Ok(_) => {}
        }
    }
    if let Some(over) = over {
        over.add_to(&mut fields);
    }
    Ok(Decoded { message: name, fields, reencodes: emitted == bytes })
}

fn not_decoded(kind: u8) -> Nothing {
    let name = match kind {
        1 => "Destination Unreachable",
        2 => "Packet Too Big",
        3 => "Time Exceeded",
        4 => "Parameter Problem",
        128 => "Echo Request",
        129 => "Echo Reply",
        130..=132 | 143 => "multicast listeners",
        _ => return Nothing::other("ICMPv6", &format!("ICMPv6 type {kind}")),
    };
    Nothing::other(&format!("ICMPv6 {name}"), &format!("ICMPv6 type {kind} ({name})"))
}
