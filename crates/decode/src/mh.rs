//! Mobility Headers.

use segue_wire::WireError;
use segue_wire::mobility::{CHECKSUM_AT, Message, Profile, verify_checksum};

use crate::element::{Decoded, Outcome, Over, named};
use crate::{Tree, hex};

/// Prefix of errors, and the name of messages with an unknown type.
pub(crate) const MESSAGE: &str = "Mobility Header";
/// Octets before the message data.
const FIXED: usize = 6;

/// Decodes a message. `bytes` is the whole message; `over` is `None` if the addresses for its checksum are unknown.
pub(crate) fn decode(bytes: &[u8], over: Option<&Over>) -> Outcome {
    let strict = Message::parse(bytes, &Profile::STRICT);
    let read = strict.map(|message| (message, Profile::STRICT)).or_else(|error| {
        let lenient = Message::parse(bytes, &Profile::OAI);
        lenient.map(|message| (message, Profile::OAI)).map_err(|_| error)
    });
    let Some([proto, length, kind, _, high, low]) = bytes.first_chunk::<FIXED>() else {
        let error = WireError::TooShort { what: MESSAGE, got: bytes.len(), min: FIXED };
        return Err(named(MESSAGE, error));
    };
    let mut fields = Tree::object([
        ("payload_proto", (*proto).into()),
        ("header_len", (*length).into()),
        ("mh_type", (*kind).into()),
        ("checksum", format!("{:#06x}", u16::from_be_bytes([*high, *low])).into()),
        ("checksum_ok", checksum_ok(bytes, over).into()),
    ]);
    let (message, reencodes) = match read {
        Ok((message, profile)) => {
            if profile == Profile::OAI {
                fields.push("profile", "OAI-PMIPv6-FM");
            }
            fields.append(Tree::of(&message));
            (message.message_name(), message.reencodes(bytes, &profile))
        }
        Err(error) => {
            if over.is_none_or(|over| !over.is_cut) {
                fields.push("malformed", error.to_string());
            }
            match Message::parse_lossy(bytes) {
                Ok(message) => {
                    fields.append(Tree::of(&message));
                    (message.message_name(), message.reencodes(bytes, &Profile::STRICT))
                }
                Err(WireError::Type { .. }) => {
                    fields.push("data", hex::of(&bytes[FIXED..]));
                    (MESSAGE, true)
                }
                Err(error) => return Err(named(MESSAGE, error)),
            }
        }
    };
    if let Some(over) = over {
        over.add_to(&mut fields);
    }
    Ok(Decoded { message, fields, reencodes })
}

/// Verifies the checksum; `None` if its addresses are unknown. Over UDP the checksum is zero and ignored (RFC 5844).
fn checksum_ok(bytes: &[u8], over: Option<&Over>) -> Option<bool> {
    debug_assert!(bytes.len() >= CHECKSUM_AT.end, "the fixed part");
    let whole = over.filter(|over| !over.is_cut);
    whole.map(|over| verify_checksum(over.source, over.destination, bytes))
}
