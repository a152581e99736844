//! Options for IPv4: dual stacks (RFC 5555, RFC 5844) and GRE keys (RFC 5845).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire, codes, flags, layout};

/// Prefix Length of an IPv4 address, 0 to 32: the upper six bits of a byte. The others are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ipv4PrefixLength(pub u8);

impl Wire for Ipv4PrefixLength {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Ipv4PrefixLength(u8::read(reader)? >> 2))
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.0 << 2).write(out);
    }
}

flags! {
    /// Flags of a NAT Detection option.
    pub struct NatDetectionFlags(u16) {
        /// Force UDP encapsulation.
        FORCE_UDP = 0x8000 "F",
    }

    /// Flags of an IPv4 DHCP Support Mode option.
    pub struct DhcpSupportModeFlags(u16) {
        /// DHCP support mode: the gateway acts as server if set, otherwise as relay.
        SERVER = 0x0001 "S",
    }
}

codes! {
    /// Status of an IPv4 Address Acknowledgement or an IPv4 Home Address Reply.
    pub struct Ipv4Status(u8) {
        SUCCESS = 0 "Success",
        FAILURE = 128 "Failure, reason unspecified",
        ADMINISTRATIVELY_PROHIBITED = 129 "Administratively prohibited",
        INCORRECT_ADDRESS = 130 "Incorrect IPv4 home address",
        INVALID_ADDRESS = 131 "Invalid IPv4 address",
        DYNAMIC_NOT_AVAILABLE = 132 "Dynamic IPv4 home address assignment not available",
        PREFIX_UNAUTHORIZED = 133 "Prefix allocation unauthorized",
    }
}

layout! {
    /// IPv4 Address Acknowledgement (RFC 5555, 3.2.1).
    pub struct Ipv4AddressAcknowledgement {
        /// Result of the IPv4 binding.
        status: Ipv4Status,
        /// Pref-len.
        prefix_length: Ipv4PrefixLength,
        /// The address.
        ipv4_home_address: Ipv4Addr,
    }

    /// NAT Detection (RFC 5555, 3.2.2).
    pub struct NatDetection {
        /// Flags.
        flags: NatDetectionFlags,
        /// Keepalive interval in seconds; all ones if no keepalives are needed.
        refresh_time_s: u32,
    }

    /// IPv4 Care-of Address (RFC 5555, 3.1.2).
    pub struct Ipv4CareOfAddress {
        /// The address to bind.
        [2] ipv4_care_of_address: Ipv4Addr,
    }

    /// GRE Key (RFC 5845, 5.1).
    pub struct GreKey {
        /// GRE Key Identifier; `None` requests one.
        [2] gre_key_identifier: Option<u32>,
    }

    /// IPv4 Home Address Request (RFC 5844, 3.3.1).
    pub struct Ipv4HomeAddressRequest {
        /// Prefix-len.
        prefix_length: Ipv4PrefixLength,
        /// The requested address; unspecified requests any.
        [1] ipv4_home_address: Ipv4Addr,
    }

    /// IPv4 Home Address Reply (RFC 5844, 3.3.2).
    pub struct Ipv4HomeAddressReply {
        /// Result of the request.
        status: Ipv4Status,
        /// Pref-len.
        prefix_length: Ipv4PrefixLength,
        /// The address.
        ipv4_home_address: Ipv4Addr,
    }

    /// IPv4 Default-Router Address (RFC 5844, 3.3.3).
    pub struct Ipv4DefaultRouterAddress {
        /// Address of the mobile node's router.
        [2] ipv4_default_router_address: Ipv4Addr,
    }

    /// IPv4 DHCP Support Mode (RFC 5844, 3.3.4).
    pub struct Ipv4DhcpSupportMode {
        /// Flags.
        flags: DhcpSupportModeFlags,
    }
}

/// IPv4 Home Address (RFC 5555, 3.1.1).
///
/// ```text
/// |Prefix-len |P|             Reserved                            |
/// |                     IPv4 home address                         |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv4HomeAddress {
    /// Prefix-len.
    pub prefix_length: Ipv4PrefixLength,
    /// P: a mobile network prefix is requested.
    pub prefix_requested: bool,
    /// The requested address; unspecified requests any.
    pub ipv4_home_address: Ipv4Addr,
}

impl Ipv4HomeAddress {
    const P: u8 = 0x02;
}

impl Wire for Ipv4HomeAddress {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [first, _] = Wire::read(reader)?;
        Ok(Ipv4HomeAddress {
            prefix_length: Ipv4PrefixLength(first >> 2),
            prefix_requested: first & Ipv4HomeAddress::P != 0,
            ipv4_home_address: Wire::read(reader)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let p = if self.prefix_requested { Ipv4HomeAddress::P } else { 0 };
        out.extend([self.prefix_length.0 << 2 | p, 0]);
        self.ipv4_home_address.write(out);
    }
}
