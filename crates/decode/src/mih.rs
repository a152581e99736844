//! MIH frames (IEEE 802.21).

use segue_wire::mih::{Frame, MessageId, Payload, Profile, VERSION, View};

use crate::element::{Decoded, Found, Outcome, named};
use crate::{Tree, hex};

/// Prefix of errors, and the name of frames with an unknown message.
pub(crate) const FRAME: &str = "MIH frame";

/// Decodes a frame. `bytes` is the whole frame.
pub(crate) fn decode(bytes: &[u8]) -> Outcome {
    View::parse(bytes).map_err(|error| named(FRAME, error)).and_then(frame)
}

/// Decodes the frame in an Ethernet frame, which may be padded.
pub(crate) fn padded(bytes: &[u8]) -> Outcome {
    View::split(bytes).map_err(|error| named(FRAME, error)).and_then(|(view, _)| frame(view))
}

/// Decodes consecutive frames of a TCP segment. The last one may continue in another segment.
pub(crate) fn stream(mut bytes: &[u8]) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (outcome, rest) = match View::split(bytes) {
            Ok((view, rest)) => (frame(view), rest),
            Err(error) => (Err(named(FRAME, error)), &[][..]),
        };
        found.push(Found::Message(outcome));
        bytes = rest;
    }
    found
}

fn frame(view: View<'_>) -> Outcome {
    let strict = Frame::of(&view, &Profile::STRICT).map(|frame| (frame, Profile::STRICT));
    let read = strict.or_else(|error| {
        let lenient = Frame::of(&view, &Profile::LENIENT);
        lenient.map(|frame| (frame, Profile::LENIENT)).map_err(|_| error)
    });
    let (frame, profile) = read.map_err(|error| named(FRAME, error))?;
    let mut fields = header(&view);
    if profile == Profile::LENIENT {
        fields.push("profile", "lenient");
    }
    match &frame.payload {
        Payload::Tlvs(tlvs) => fields.push("tlvs", Tree::of(tlvs)),
        Payload::Fragment { part, .. } => fields.push("fragment", hex::of(part)),
    }
    let message = frame.name().unwrap_or(FRAME);
    Ok(Decoded { message, fields, reencodes: frame.reencodes(view.bytes(), &profile) })
}

fn header(view: &View<'_>) -> Tree {
    let flags = [
        ("ack_req", view.ack_req()),
        ("ack_rsp", view.ack_rsp()),
        ("uir", view.uir()),
        ("m", view.more_fragments()),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into());
    let id: MessageId = view.message_id();
    Tree::object([
        ("version", VERSION.into()),
        ("flags", Tree::List(flags.collect())),
        ("fragment_number", view.fragment_number().into()),
        ("message_id", format!("{:#06x}", id.0).into()),
        ("service_id", id.service().0.into()),
        ("operation_code", id.opcode().0.into()),
        ("action_id", id.action().into()),
        ("transaction_id", view.transaction_id().into()),
        ("payload_length", (view.payload().len() as u64).into()),
    ])
}
