//! Who is who.

use alloc::vec::Vec;
use core::fmt;

use segue_wire::mobility::option::MobileNodeIdentifier;

/// A mobile node's identity (MN-ID, RFC 4283), without the zeros that some peers put behind it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    subtype: u8,
    bytes: Vec<u8>,
}

impl NodeId {
    /// That of a network access identifier (`user@realm`).
    #[must_use]
    pub fn nai(nai: &str) -> NodeId {
        NodeId::of(&MobileNodeIdentifier::nai(nai))
            .unwrap_or(NodeId { subtype: MobileNodeIdentifier::NAI, bytes: Vec::new() })
    }

    /// What an option says; `None` if that is nobody.
    #[must_use]
    pub(crate) fn of(option: &MobileNodeIdentifier) -> Option<NodeId> {
        let len = option.identifier.iter().rposition(|byte| *byte != 0)? + 1;
        Some(NodeId { subtype: option.subtype, bytes: option.identifier[..len].to_vec() })
    }

    /// As an option.
    pub(crate) fn option(&self) -> MobileNodeIdentifier {
        MobileNodeIdentifier { subtype: self.subtype, identifier: self.bytes.clone() }
    }

    /// Its subtype and its bytes, to be stored.
    #[must_use]
    pub fn parts(&self) -> (u8, &[u8]) {
        (self.subtype, &self.bytes)
    }

    /// From its subtype and its bytes.
    #[must_use]
    pub fn from_parts(subtype: u8, bytes: &[u8]) -> NodeId {
        NodeId { subtype, bytes: bytes.to_vec() }
    }
}

impl fmt::Display for NodeId {
    /// Its text; bytes that are none in hexadecimal.
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

/// The link-layer identifier of one of a node's interfaces (MN-LL-ID, RFC 5213, 8.6): its hardware address on Ethernet
/// and Wi-Fi. Empty where it is not known.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkLayer(pub Vec<u8>);

impl LinkLayer {
    /// Of a hardware address.
    #[must_use]
    pub fn mac(mac: [u8; 6]) -> LinkLayer {
        LinkLayer(mac.to_vec())
    }

    /// Whether it is known.
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
