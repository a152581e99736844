//! The contents of an Access-Accept.

use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::Span;
use segue_ip::Prefix;
use segue_wire::radius::{Attribute, AttributeType, Packet};

use crate::config::{AaaProfile, Side};

/// Maximum number of prefixes; the rest are ignored.
const PREFIXES_MAX: usize = 16;
/// Maximum number of Class attributes (RFC 2865, 5.25); the rest are ignored.
const CLASSES_MAX: usize = 8;
/// Shortest Acct-Interim-Interval allowed (RFC 2869, 5.16).
const INTERIM_MIN: Span = Span::from_secs(60);
/// Termination-Action RADIUS-Request: ask again when the session times out (RFC 2865, 5.29).
const RADIUS_REQUEST: u32 = 1;

/// The service that a server granted to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The host's identity (MN-ID).
    pub node: Option<Vec<u8>>,
    /// The address of its anchor (LMA).
    pub anchor: Option<Ipv6Addr>,
    /// Its home network prefixes.
    pub prefixes: Vec<Prefix>,
    /// Session-Timeout, at least one second; `None`: unlimited.
    pub session: Option<Span>,
    /// Ask the servers again when the session times out.
    pub again: bool,
    /// Acct-Interim-Interval, at least 60 s.
    pub interim: Option<Span>,
    /// Class attributes, echoed in accounting requests.
    pub classes: Vec<Vec<u8>>,
    /// State, echoed in the next Access-Request.
    pub state: Option<Vec<u8>>,
}

impl Grant {
    /// Reads an Access-Accept; `None` if a gateway's reply does not identify the host.
    pub(crate) fn of(packet: &Packet, profile: AaaProfile, side: Side) -> Option<Grant> {
        let octets = |kind| packet.first(kind).map(|found| found.value.clone());
        let mut node = octets(AttributeType::MOBILE_NODE_IDENTIFIER).unwrap_or_default();
        // Trailing zeros are padding, not part of the identity.
        node.truncate(node.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1));
        if profile == AaaProfile::Paper && node.is_empty() {
            node = interface_id(packet).unwrap_or_default();
        }
        let node = Some(node).filter(|node| !node.is_empty());
        if side == Side::Gateway && node.is_none() {
            return None;
        }
        let integer = |kind| packet.first(kind).and_then(Attribute::to_integer);
        let seconds = |kind| integer(kind).map(|s| Span::from_secs(s.into()));
        let anchor = packet.first(AttributeType::PMIP6_HOME_LMA_IPV6_ADDRESS);
        let anchor = anchor.and_then(Attribute::to_address).and_then(|address| match address {
            IpAddr::V6(address) if is_anchors(address) => Some(address),
            _ => None,
        });
        let home = match profile {
            AaaProfile::Rfc6572 => AttributeType::PMIP6_HOME_HN_PREFIX,
            AaaProfile::Paper => AttributeType::FRAMED_IPV6_PREFIX,
        };
        // The unspecified prefix leaves the choice to the anchor.
        let prefixes = packet.all(home).filter_map(Attribute::to_prefix);
        let prefixes = prefixes.filter(|prefix| !prefix.addr.is_unspecified()).take(PREFIXES_MAX);
        let classes = packet.all(AttributeType::CLASS).map(|class| class.value.clone());
        Some(Grant {
            node,
            anchor,
            prefixes: prefixes.collect(),
            // A Session-Timeout of 0 would ask again without end.
            session: seconds(AttributeType::SESSION_TIMEOUT).map(|s| s.max(Span::from_secs(1))),
            again: side == Side::Anchor
                || integer(AttributeType::TERMINATION_ACTION) == Some(RADIUS_REQUEST),
            interim: seconds(AttributeType::ACCT_INTERIM_INTERVAL).map(|s| s.max(INTERIM_MIN)),
            classes: classes.take(CLASSES_MAX).collect(),
            state: octets(AttributeType::STATE),
        })
    }
}

/// The identity of a host that is named only by Framed-Interface-Id (RFC 3162, 2.2): 16 hexadecimal digits.
fn interface_id(packet: &Packet) -> Option<Vec<u8>> {
    let found = packet.first(AttributeType::FRAMED_INTERFACE_ID)?;
    let id = <[u8; 8]>::try_from(&found.value[..]).ok().filter(|id| *id != [0; 8])?;
    Some(format!("{:016x}", u64::from_be_bytes(id)).into_bytes())
}

fn is_anchors(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_multicast()
        || address.is_loopback()
        || address.is_unicast_link_local())
}
