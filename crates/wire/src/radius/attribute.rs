//! Attributes: their types, and the formats of values that are read or written here.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Prefix;
use serde::Serialize;

use crate::layout::{codes, hex};

codes! {
    /// What an attribute is.
    pub struct AttributeType(u8) {
        USER_NAME = 1 "User-Name",
        USER_PASSWORD = 2 "User-Password",
        NAS_IP_ADDRESS = 4 "NAS-IP-Address",
        SERVICE_TYPE = 6 "Service-Type",
        REPLY_MESSAGE = 18 "Reply-Message",
        STATE = 24 "State",
        CLASS = 25 "Class",
        SESSION_TIMEOUT = 27 "Session-Timeout",
        IDLE_TIMEOUT = 28 "Idle-Timeout",
        TERMINATION_ACTION = 29 "Termination-Action",
        CALLED_STATION_ID = 30 "Called-Station-Id",
        CALLING_STATION_ID = 31 "Calling-Station-Id",
        NAS_IDENTIFIER = 32 "NAS-Identifier",
        PROXY_STATE = 33 "Proxy-State",
        ACCT_STATUS_TYPE = 40 "Acct-Status-Type",
        ACCT_DELAY_TIME = 41 "Acct-Delay-Time",
        ACCT_INPUT_OCTETS = 42 "Acct-Input-Octets",
        ACCT_OUTPUT_OCTETS = 43 "Acct-Output-Octets",
        ACCT_SESSION_ID = 44 "Acct-Session-Id",
        ACCT_AUTHENTIC = 45 "Acct-Authentic",
        ACCT_SESSION_TIME = 46 "Acct-Session-Time",
        ACCT_INPUT_PACKETS = 47 "Acct-Input-Packets",
        ACCT_OUTPUT_PACKETS = 48 "Acct-Output-Packets",
        ACCT_TERMINATE_CAUSE = 49 "Acct-Terminate-Cause",
        ACCT_INPUT_GIGAWORDS = 52 "Acct-Input-Gigawords",
        ACCT_OUTPUT_GIGAWORDS = 53 "Acct-Output-Gigawords",
        EVENT_TIMESTAMP = 55 "Event-Timestamp",
        NAS_PORT_TYPE = 61 "NAS-Port-Type",
        EAP_MESSAGE = 79 "EAP-Message",
        MESSAGE_AUTHENTICATOR = 80 "Message-Authenticator",
        ACCT_INTERIM_INTERVAL = 85 "Acct-Interim-Interval",
        NAS_PORT_ID = 87 "NAS-Port-Id",
        CHARGEABLE_USER_IDENTITY = 89 "Chargeable-User-Identity",
        NAS_IPV6_ADDRESS = 95 "NAS-IPv6-Address",
        FRAMED_INTERFACE_ID = 96 "Framed-Interface-Id",
        FRAMED_IPV6_PREFIX = 97 "Framed-IPv6-Prefix",
        MIP6_FEATURE_VECTOR = 124 "MIP6-Feature-Vector",
        MOBILE_NODE_IDENTIFIER = 145 "Mobile-Node-Identifier",
        SERVICE_SELECTION = 146 "Service-Selection",
        PMIP6_HOME_LMA_IPV6_ADDRESS = 147 "PMIP6-Home-LMA-IPv6-Address",
        PMIP6_VISITED_LMA_IPV6_ADDRESS = 148 "PMIP6-Visited-LMA-IPv6-Address",
        PMIP6_HOME_LMA_IPV4_ADDRESS = 149 "PMIP6-Home-LMA-IPv4-Address",
        PMIP6_VISITED_LMA_IPV4_ADDRESS = 150 "PMIP6-Visited-LMA-IPv4-Address",
        PMIP6_HOME_HN_PREFIX = 151 "PMIP6-Home-HN-Prefix",
        PMIP6_VISITED_HN_PREFIX = 152 "PMIP6-Visited-HN-Prefix",
        PMIP6_HOME_INTERFACE_ID = 153 "PMIP6-Home-Interface-ID",
        PMIP6_VISITED_INTERFACE_ID = 154 "PMIP6-Visited-Interface-ID",
        PMIP6_HOME_IPV4_HOA = 155 "PMIP6-Home-IPv4-HoA",
        PMIP6_VISITED_IPV4_HOA = 156 "PMIP6-Visited-IPv4-HoA",
        PMIP6_HOME_DHCP4_SERVER_ADDRESS = 157 "PMIP6-Home-DHCP4-Server-Address",
        PMIP6_VISITED_DHCP4_SERVER_ADDRESS = 158 "PMIP6-Visited-DHCP4-Server-Address",
        PMIP6_HOME_DHCP6_SERVER_ADDRESS = 159 "PMIP6-Home-DHCP6-Server-Address",
        PMIP6_VISITED_DHCP6_SERVER_ADDRESS = 160 "PMIP6-Visited-DHCP6-Server-Address",
        PMIP6_HOME_IPV4_GATEWAY = 161 "PMIP6-Home-IPv4-Gateway",
        PMIP6_VISITED_IPV4_GATEWAY = 162 "PMIP6-Visited-IPv4-Gateway",
    }
}

/// An attribute: what it is, and its value, of 1 to 253 octets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attribute {
    /// What it is.
    pub kind: AttributeType,
    /// What it says.
    #[serde(serialize_with = "hex")]
    pub value: Vec<u8>,
}

impl Attribute {
    /// The longest value, in octets.
    pub const VALUE_MAX: usize = 253;

    /// With these octets; what is longer than a value can be is cut off.
    #[must_use]
    pub fn octets(kind: AttributeType, value: &[u8]) -> Attribute {
        Attribute { kind, value: value[..value.len().min(Attribute::VALUE_MAX)].to_vec() }
    }

    /// With a number of 32 bits.
    #[must_use]
    pub fn integer(kind: AttributeType, value: u32) -> Attribute {
        Attribute { kind, value: value.to_be_bytes().to_vec() }
    }

    /// With a number of 64 bits.
    #[must_use]
    pub fn integer64(kind: AttributeType, value: u64) -> Attribute {
        Attribute { kind, value: value.to_be_bytes().to_vec() }
    }

    /// With an address of its own family's length.
    #[must_use]
    pub fn address(kind: AttributeType, address: IpAddr) -> Attribute {
        let value = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        Attribute { kind, value }
    }

    /// With a prefix (RFC 3162, 2.3; RFC 6572, 4.9): reserved octet, length, all of the address.
    #[must_use]
    pub fn prefix(kind: AttributeType, prefix: Prefix) -> Attribute {
        let mut value = Vec::from([0, prefix.len]);
        match prefix.addr {
            IpAddr::V4(address) => value.extend(address.octets()),
            IpAddr::V6(address) => value.extend(address.octets()),
        }
        Attribute { kind, value }
    }

    /// Its number of 32 bits, if it is as long.
    #[must_use]
    pub fn to_integer(&self) -> Option<u32> {
        <[u8; 4]>::try_from(&self.value[..]).ok().map(u32::from_be_bytes)
    }

    /// Its number of 64 bits, if it is as long.
    #[must_use]
    pub fn to_integer64(&self) -> Option<u64> {
        <[u8; 8]>::try_from(&self.value[..]).ok().map(u64::from_be_bytes)
    }

    /// Its address, if it is as long as one.
    #[must_use]
    pub fn to_address(&self) -> Option<IpAddr> {
        match self.value.len() {
            4 => <[u8; 4]>::try_from(&self.value[..]).ok().map(|a| Ipv4Addr::from(a).into()),
            16 => <[u8; 16]>::try_from(&self.value[..]).ok().map(|a| Ipv6Addr::from(a).into()),
            _ => None,
        }
    }

    /// Its IPv6 prefix. Octets that are left out are zero; bits behind the prefix's length must be (RFC 3162, 2.3).
    #[must_use]
    pub fn to_prefix(&self) -> Option<Prefix> {
        let [_, len @ 0..=128, address @ ..] = &self.value[..] else { return None };
        if address.len() > 16 || address.len() < usize::from(*len).div_ceil(8) {
            return None;
        }
        let mut octets = [0; 16];
        octets[..address.len()].copy_from_slice(address);
        let prefix = Prefix::new(Ipv6Addr::from(octets), *len);
        (prefix == prefix.network()).then_some(prefix)
    }
}
