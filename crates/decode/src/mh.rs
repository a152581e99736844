//! Mobility Headers.

use segue_wire::mobility::{CHECKSUM_AT, Message, Profile, verify_checksum};

use crate::Tree;
use crate::element::{Decoded, Outcome, Over, named};

/// A message, which is all of `bytes`; `over` is missing where its checksum counts no addresses that are known.
pub(crate) fn decode(bytes: &[u8], over: Option<&Over>) -> Outcome {
    let strict = Message::parse(bytes, &Profile::STRICT);
    let read = strict.map(|message| (message, Profile::STRICT)).or_else(|error| {
        let lenient = Message::parse(bytes, &Profile::OAI);
        lenient.map(|message| (message, Profile::OAI)).map_err(|_| error)
    });
    let (message, profile) = read.map_err(|error| named("Mobility Header", error))?;
    let mut fields = Tree::object([
        ("payload_proto", bytes[0].into()),
        ("header_len", bytes[1].into()),
        ("mh_type", bytes[2].into()),
        ("checksum", format!("{:#06x}", u16::from_be_bytes([bytes[4], bytes[5]])).into()),
        ("checksum_ok", checksum_ok(bytes, over).into()),
    ]);
    if profile == Profile::OAI {
        fields.push("profile", "OAI-PMIPv6-FM");
    }
    fields.append(Tree::of(&message));
    if let Some(over) = over {
        over.add_to(&mut fields);
    }
    let reencodes = message.reencodes(bytes, &profile);
    Ok(Decoded { message: message.message_name(), fields, reencodes })
}

/// Over UDP (RFC 5844) the checksum is zero and not looked at.
fn checksum_ok(bytes: &[u8], over: Option<&Over>) -> Option<bool> {
    debug_assert!(bytes.len() > CHECKSUM_AT.end, "a message that was read");
    over.map(|over| verify_checksum(over.source, over.destination, bytes))
}
