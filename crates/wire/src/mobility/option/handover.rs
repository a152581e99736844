//! Fast handover options (RFC 5568, RFC 5949).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire, codes, hex, layout};

codes! {
    /// Kind of address in an IPv6 Address/Prefix option.
    pub struct AddressCode(u8) {
        OLD_CARE_OF_ADDRESS = 1 "Old Care-of Address",
        NEW_CARE_OF_ADDRESS = 2 "New Care-of Address",
        NAR_ADDRESS = 3 "NAR's IP address",
        NAR_PREFIX = 4 "NAR's prefix",
    }
}

layout! {
    /// Mobility Header Link-Layer Address (RFC 5568, 6.4.4).
    pub struct MobilityHeaderLinkLayerAddress {
        /// 2 for the mobile node's address.
        option_code: u8,
        /// The address.
        #[serde(serialize_with = "hex")]
        link_layer_address: Vec<u8>,
    }

    /// Binding Authorization Data for FMIPv6 (RFC 5568, 6.4.5).
    pub struct BindingAuthorizationDataForFmipv6 {
        /// Security Parameter Index.
        spi: u32,
        /// 96 bits with HMAC-SHA1.
        #[serde(serialize_with = "hex")]
        authenticator: Vec<u8>,
    }

    /// Mobility Header IPv6 Address/Prefix (RFC 5568, 6.4.2).
    pub struct MobilityHeaderIpv6AddressPrefix {
        /// Option-Code.
        option_code: AddressCode,
        /// Prefix Length, at most 128.
        prefix_length: u8,
        /// The address or prefix.
        ipv6_address: Ipv6Addr,
    }

    /// Mobile Node Link-local Address Interface Identifier (RFC 5949, 6.2.3).
    pub struct MobileNodeLinkLocalAddressInterfaceIdentifier {
        /// The lower half of the address.
        #[serde(serialize_with = "hex")]
        [2] interface_identifier: [u8; 8],
    }
}

/// Context Request (RFC 5949, 6.2.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContextRequest {
    /// The requested pieces of context.
    pub requests: Vec<Request>,
}

/// A requested piece of context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Req-type: the type of the mobility option that carries it.
    pub req_type: u8,
    /// Req-option: selects among several.
    #[serde(serialize_with = "hex")]
    pub req_option: Vec<u8>,
}

impl Wire for ContextRequest {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        reader.take(2)?;
        let mut requests = Vec::new();
        while reader.left() > 0 {
            let [req_type, length] = Wire::read(reader)?;
            let req_option = reader.take(length.into())?.to_vec();
            requests.push(Request { req_type, req_option });
        }
        Ok(ContextRequest { requests })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([0; 2]);
        for request in &self.requests {
            // Longer data do not fit the option, which is then refused on emission.
            out.extend([request.req_type, request.req_option.len() as u8]);
            out.extend(&request.req_option);
        }
    }
}

/// Local Mobility Anchor Address (RFC 5949, 6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LocalMobilityAnchorAddress {
    /// Its family is encoded in Option-Code: 1 for IPv6, 2 for IPv4.
    pub local_mobility_anchor_address: IpAddr,
}

impl LocalMobilityAnchorAddress {
    fn option_code(&self) -> u8 {
        if self.local_mobility_anchor_address.is_ipv6() { 1 } else { 2 }
    }
}

impl Wire for LocalMobilityAnchorAddress {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [option_code, _] = Wire::read(reader)?;
        let option =
            LocalMobilityAnchorAddress { local_mobility_anchor_address: Wire::read(reader)? };
        match option_code {
            1 | 2 if option_code != option.option_code() => Err(reader.wrong_length()),
            1 | 2 => Ok(option),
            got => Err(WireError::Field { field: "LMA Address Option-Code", got: got.into() }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend([self.option_code(), 0]);
        self.local_mobility_anchor_address.write(out);
    }
}
