//! Options of hosts: Mobile IPv6 (RFC 6275), mobile networks (RFC 3963), identifiers (RFC 4283, 5149) and multiple
//! care-of addresses (RFC 5648).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use serde::Serializer;

use crate::layout::{flags, hex, layout};

layout! {
    /// Binding Refresh Advice (RFC 6275, 6.2.4).
    pub struct BindingRefreshAdvice {
        /// Refresh Interval in units of 4 s.
        refresh_interval_4s: u16,
    }

    /// Alternate Care-of Address (RFC 6275, 6.2.5).
    pub struct AlternateCareOfAddress {
        /// The address to bind.
        alternate_care_of_address: Ipv6Addr,
    }

    /// Nonce Indices (RFC 6275, 6.2.6).
    pub struct NonceIndices {
        /// Index of the Home Test.
        home_nonce_index: u16,
        /// Index of the Care-of Test.
        care_of_nonce_index: u16,
    }

    /// Binding Authorization Data (RFC 6275, 6.2.7).
    pub struct BindingAuthorizationData {
        /// Computed over the [`authenticated_range`](crate::mobility::authenticated_range) and other data.
        #[serde(serialize_with = "hex")]
        authenticator: [u8; 12],
    }

    /// Mobile Network Prefix (RFC 3963, 4.3).
    pub struct MobileNetworkPrefix {
        /// Prefix Length, at most 128.
        [1] prefix_length: u8,
        /// The prefix.
        mobile_network_prefix: Ipv6Addr,
    }

    /// Mobile Node Identifier (RFC 4283, section 3).
    pub struct MobileNodeIdentifier {
        /// [`MobileNodeIdentifier::NAI`] or another subtype of RFC 8371.
        subtype: u8,
        /// The identifier as sent. Serialised as text if it is UTF-8, without trailing zeros.
        #[serde(serialize_with = "text")]
        identifier: Vec<u8>,
    }

    /// Vendor Specific (RFC 5094).
    pub struct VendorSpecific {
        /// The vendor's enterprise number.
        vendor_id: u32,
        /// Vendor-defined type.
        sub_type: u8,
        /// Vendor-defined data.
        #[serde(serialize_with = "hex")]
        data: Vec<u8>,
    }

    /// Service Selection (RFC 5149), 1 to 255 octets of UTF-8.
    pub struct ServiceSelection {
        /// The service's name.
        #[serde(serialize_with = "text")]
        identifier: Vec<u8>,
    }

    /// Binding Identifier (RFC 5648, 4.1).
    ///
    /// ```text
    /// |       Binding ID (BID)        |     Status    |H|   Reserved  |
    /// ~       care-of address: none, 4 octets or 16 octets            ~
    /// ```
    pub struct BindingIdentifier {
        /// Binding ID, not 0.
        bid: u16,
        /// In a Binding Acknowledgement, the status of this binding.
        status: u8,
        /// Flags.
        flags: BindingIdentifierFlags,
        /// The address to bind, in a Binding Update.
        care_of_address: Option<IpAddr>,
    }
}

impl MobileNodeIdentifier {
    /// Subtype of a Network Access Identifier (`user@realm`).
    pub const NAI: u8 = 1;

    /// Creates an identifier of that subtype.
    #[must_use]
    pub fn nai(nai: &str) -> MobileNodeIdentifier {
        MobileNodeIdentifier { subtype: MobileNodeIdentifier::NAI, identifier: nai.into() }
    }

    /// The identifier without the trailing zeros that some senders add.
    #[must_use]
    pub fn trimmed(&self) -> &[u8] {
        trimmed(&self.identifier)
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Serialises bytes as text if they are UTF-8, else as hexadecimal digits.
fn text<S: Serializer>(bytes: &Vec<u8>, serializer: S) -> Result<S::Ok, S::Error> {
    match str::from_utf8(trimmed(bytes)) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => hex(bytes, serializer),
    }
}

flags! {
    /// Flags of a Binding Identifier.
    pub struct BindingIdentifierFlags(u8) {
        /// Simultaneous Home and Foreign Binding.
        HOME_AND_FOREIGN = 0x80 "H",
    }
}
