//! Identifiers of hosts and their interfaces.

use alloc::vec::Vec;
use core::fmt;

use segue_ip::Subject;
use segue_wire::mobility::option::MobileNodeIdentifier;

/// A mobile node's identity (MN-ID, RFC 4283). Trailing zero bytes, which some peers append, are removed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    subtype: u8,
    bytes: Vec<u8>,
}

impl NodeId {
    /// From a network access identifier (`user@realm`).
    #[must_use]
    pub fn nai(nai: &str) -> NodeId {
        NodeId::of(&MobileNodeIdentifier::nai(nai))
            .unwrap_or(NodeId { subtype: MobileNodeIdentifier::NAI, bytes: Vec::new() })
    }

    /// Reads a Mobile Node Identifier option; `None` if it holds only zeros.
    #[must_use]
    pub(crate) fn of(option: &MobileNodeIdentifier) -> Option<NodeId> {
        let len = option.identifier.iter().rposition(|byte| *byte != 0)? + 1;
        Some(NodeId { subtype: option.subtype, bytes: option.identifier[..len].to_vec() })
    }

    /// Builds a Mobile Node Identifier option.
    pub(crate) fn option(&self) -> MobileNodeIdentifier {
        MobileNodeIdentifier { subtype: self.subtype, identifier: self.bytes.clone() }
    }

    /// Subtype and bytes, for storage.
    #[must_use]
    pub fn parts(&self) -> (u8, &[u8]) {
        (self.subtype, &self.bytes)
    }

    /// The subject of the host's records.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject([&[self.subtype], &self.bytes[..]].concat())
    }

    /// From stored subtype and bytes.
    #[must_use]
    pub fn from_parts(subtype: u8, bytes: &[u8]) -> NodeId {
        NodeId { subtype, bytes: bytes.to_vec() }
    }
}

impl fmt::Display for NodeId {
    /// As text, or in hexadecimal if the bytes are not printable UTF-8.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match core::str::from_utf8(&self.bytes) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => hex(f, &self.bytes, ""),
        }
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The link-layer identifier of one interface of a node (MN-LL-ID, RFC 5213, section 8.6): the hardware address on
/// Ethernet and Wi-Fi. Empty if unknown.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkLayer(pub Vec<u8>);

impl LinkLayer {
    /// From a hardware address.
    #[must_use]
    pub fn mac(mac: [u8; 6]) -> LinkLayer {
        LinkLayer(mac.to_vec())
    }

    /// Returns true if the identifier is known, that is, not empty.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.0.is_empty()
    }
}

impl fmt::Display for LinkLayer {
    /// `02:00:00:00:00:01`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0, ":")
    }
}

impl fmt::Debug for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8], between: &str) -> fmt::Result {
    bytes.iter().enumerate().try_for_each(|(n, byte)| {
        let between = if n == 0 { "" } else { between };
        write!(f, "{between}{byte:02x}")
    })
}
