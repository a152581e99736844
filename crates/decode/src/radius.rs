//! RADIUS packets (RFC 2865 to 2869, 3162, 5176, 6572).

use segue_wire::radius::{Attribute, AttributeType as Type, Format, Packet, View};

use crate::element::{Decoded, Nothing, Outcome, named};
use crate::{Tree, hex};

/// Prefix of errors, and the name of packets with an unknown code.
pub(crate) const PACKET: &str = "RADIUS packet";
/// The highest tag of a tunnel attribute (RFC 2868, 3.1).
const TAG_MAX: u8 = 31;

/// Decodes the packet in a datagram, which may be padded. `is_cut`: the datagram was truncated.
pub(crate) fn decode(bytes: &[u8], is_cut: bool) -> Outcome {
    let malformed = View::parse(bytes).err();
    let view = View::lossy(bytes).map_err(|error| named(PACKET, error))?;
    if malformed.is_some() && view.code().name().is_none() {
        return Err(Nothing::other("UDP", "UDP on a port of RADIUS, no packet of RADIUS"));
    }
    let mut attributes: Vec<Tree> = view.attributes().map(attribute).collect();
    if let [kind, rest @ ..] = view.rest() {
        let data = rest.get(1..).unwrap_or_default();
        let error = "longer than what is there, or shorter than itself";
        let value = Tree::object([
            ("type", (*kind).into()),
            ("data", hex::of(data).into()),
            ("error", error.into()),
        ]);
        attributes.push(Tree::object([("attribute", "malformed".into()), ("value", value)]));
    }
    let mut fields = Tree::object([
        ("code", view.code().0.into()),
        ("identifier", view.id().into()),
        ("length", u16::from_be_bytes([bytes[2], bytes[3]]).into()),
        ("authenticator", hex::of(&view.authenticator()).into()),
        ("attributes", Tree::List(attributes)),
    ]);
    if let Some(error) = malformed.filter(|_| !is_cut) {
        fields.push("malformed", error.to_string());
    }
    let padding = bytes.len() - view.bytes().len();
    if padding > 0 {
        fields.push("padding", padding as u64);
    }
    let reencodes = Packet::of(&view).emit().is_ok_and(|written| written == view.bytes());
    Ok(Decoded { message: view.code().name().unwrap_or(PACKET), fields, reencodes })
}

fn attribute((kind, value): (Type, &[u8])) -> Tree {
    let name = Type::name(kind).unwrap_or("unknown");
    let value = match kind.name() {
        Some(_) => said(kind, value).unwrap_or_else(|| hex::of(value).into()),
        None => Tree::object([("type", kind.0.into()), ("data", hex::of(value).into())]),
    };
    Tree::object([("attribute", name.into()), ("value", value)])
}

/// The value of an attribute, if it has the format of its type.
fn said(kind: Type, value: &[u8]) -> Option<Tree> {
    let octets = Attribute::octets(kind, value);
    let number = |number: u32| Tree::named(number.into(), kind.value_name(number));
    Some(match kind.format() {
        Format::Text => str::from_utf8(value).ok()?.into(),
        Format::Integer => number(octets.to_integer()?),
        Format::Integer64 => octets.to_integer64()?.into(),
        Format::Prefix => octets.to_prefix()?.to_string().into(),
        Format::Address => octets.to_address()?.to_string().into(),
        Format::Vendor => {
            let (vendor, data) = value.split_first_chunk()?;
            Tree::object([
                ("vendor_id", u32::from_be_bytes(*vendor).into()),
                ("data", hex::of(data).into()),
            ])
        }
        Format::TaggedInteger => {
            let whole = octets.to_integer()?;
            Tree::object([("tag", value[0].into()), ("value", number(whole & 0x00ff_ffff))])
        }
        Format::TaggedText => match value {
            [tag @ 1..=TAG_MAX, text @ ..] => {
                let text = str::from_utf8(text).ok()?;
                Tree::object([("tag", (*tag).into()), ("value", text.into())])
            }
            text => str::from_utf8(text).ok()?.into(),
        },
        Format::Octets => return None,
    })
}
