//! RADIUS packets (RFC 2865, 2866, 6572).

use segue_wire::radius::{Attribute, AttributeType as Type, Packet, View};

use crate::element::{Decoded, Outcome, named};
use crate::{Tree, hex};

/// Names what is broken, and packets whose code has no name.
const PACKET: &str = "RADIUS packet";

/// The packet in a datagram, which may be padded.
pub(crate) fn decode(bytes: &[u8]) -> Outcome {
    let view = View::parse(bytes).map_err(|error| named(PACKET, error))?;
    let attribute = |(kind, value)| {
        let name = Type::name(kind).unwrap_or("unknown");
        let value = match kind.name() {
            Some(_) => said(kind, value),
            None => Tree::object([("type", kind.0.into()), ("data", hex::of(value).into())]),
        };
        Tree::object([("attribute", name.into()), ("value", value)])
    };
    let mut fields = Tree::object([
        ("code", view.code().0.into()),
        ("identifier", view.id().into()),
        ("length", (view.bytes().len() as u64).into()),
        ("authenticator", hex::of(&view.authenticator()).into()),
        ("attributes", Tree::List(view.attributes().map(attribute).collect())),
    ]);
    let padding = bytes.len() - view.bytes().len();
    if padding > 0 {
        fields.push("padding", padding as u64);
    }
    let reencodes = Packet::of(&view).emit().is_ok_and(|written| written == view.bytes());
    Ok(Decoded { message: view.code().name().unwrap_or(PACKET), fields, reencodes })
}

/// What an attribute says; its octets, if they have not the format of its type.
fn said(kind: Type, value: &[u8]) -> Tree {
    let attribute = Attribute::octets(kind, value);
    let read = match kind {
        Type::USER_NAME
        | Type::REPLY_MESSAGE
        | Type::CALLED_STATION_ID
        | Type::CALLING_STATION_ID
        | Type::NAS_IDENTIFIER
        | Type::ACCT_SESSION_ID
        | Type::NAS_PORT_ID
        | Type::MOBILE_NODE_IDENTIFIER
        | Type::SERVICE_SELECTION => str::from_utf8(value).ok().map(Tree::from),
        Type::SERVICE_TYPE
        | Type::SESSION_TIMEOUT
        | Type::IDLE_TIMEOUT
        | Type::TERMINATION_ACTION
        | Type::ACCT_STATUS_TYPE
        | Type::ACCT_DELAY_TIME
        | Type::ACCT_INPUT_OCTETS
        | Type::ACCT_OUTPUT_OCTETS
        | Type::ACCT_AUTHENTIC
        | Type::ACCT_SESSION_TIME
        | Type::ACCT_INPUT_PACKETS
        | Type::ACCT_OUTPUT_PACKETS
        | Type::ACCT_TERMINATE_CAUSE
        | Type::ACCT_INPUT_GIGAWORDS
        | Type::ACCT_OUTPUT_GIGAWORDS
        | Type::EVENT_TIMESTAMP
        | Type::NAS_PORT_TYPE
        | Type::ACCT_INTERIM_INTERVAL => attribute.to_integer().map(Tree::from),
        Type::MIP6_FEATURE_VECTOR => attribute.to_integer64().map(Tree::from),
        Type::FRAMED_IPV6_PREFIX | Type::PMIP6_HOME_HN_PREFIX | Type::PMIP6_VISITED_HN_PREFIX => {
            attribute.to_prefix().map(|at| at.to_string().into())
        }
        Type::NAS_IP_ADDRESS
        | Type::NAS_IPV6_ADDRESS
        | Type::PMIP6_HOME_LMA_IPV6_ADDRESS
        | Type::PMIP6_VISITED_LMA_IPV6_ADDRESS
        | Type::PMIP6_HOME_LMA_IPV4_ADDRESS
        | Type::PMIP6_VISITED_LMA_IPV4_ADDRESS
        | Type::PMIP6_HOME_DHCP4_SERVER_ADDRESS
        | Type::PMIP6_VISITED_DHCP4_SERVER_ADDRESS
        | Type::PMIP6_HOME_DHCP6_SERVER_ADDRESS
        | Type::PMIP6_VISITED_DHCP6_SERVER_ADDRESS
        | Type::PMIP6_HOME_IPV4_GATEWAY
        | Type::PMIP6_VISITED_IPV4_GATEWAY => {
            attribute.to_address().map(|at| at.to_string().into())
        }
        _ => None,
    };
    read.unwrap_or_else(|| hex::of(value).into())
}
