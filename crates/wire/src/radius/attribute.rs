//! Attributes: their types, and the formats of values that this crate reads or writes.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_ip::Prefix;
use serde::Serialize;

use crate::layout::{codes, hex};

codes! {
    /// Type of an attribute.
    pub struct AttributeType(u8) {
        USER_NAME = 1 "User-Name",
        USER_PASSWORD = 2 "User-Password",
        CHAP_PASSWORD = 3 "CHAP-Password",
        NAS_IP_ADDRESS = 4 "NAS-IP-Address",
        NAS_PORT = 5 "NAS-Port",
        SERVICE_TYPE = 6 "Service-Type",
        FRAMED_PROTOCOL = 7 "Framed-Protocol",
        FRAMED_IP_ADDRESS = 8 "Framed-IP-Address",
        FRAMED_IP_NETMASK = 9 "Framed-IP-Netmask",
        FRAMED_ROUTING = 10 "Framed-Routing",
        FILTER_ID = 11 "Filter-Id",
        FRAMED_MTU = 12 "Framed-MTU",
        FRAMED_COMPRESSION = 13 "Framed-Compression",
        LOGIN_IP_HOST = 14 "Login-IP-Host",
        LOGIN_SERVICE = 15 "Login-Service",
        LOGIN_TCP_PORT = 16 "Login-TCP-Port",
        REPLY_MESSAGE = 18 "Reply-Message",
        CALLBACK_NUMBER = 19 "Callback-Number",
        CALLBACK_ID = 20 "Callback-Id",
        FRAMED_ROUTE = 22 "Framed-Route",
        FRAMED_IPX_NETWORK = 23 "Framed-IPX-Network",
        STATE = 24 "State",
        CLASS = 25 "Class",
        VENDOR_SPECIFIC = 26 "Vendor-Specific",
        SESSION_TIMEOUT = 27 "Session-Timeout",
        IDLE_TIMEOUT = 28 "Idle-Timeout",
        TERMINATION_ACTION = 29 "Termination-Action",
        CALLED_STATION_ID = 30 "Called-Station-Id",
        CALLING_STATION_ID = 31 "Calling-Station-Id",
        NAS_IDENTIFIER = 32 "NAS-Identifier",
        PROXY_STATE = 33 "Proxy-State",
        LOGIN_LAT_SERVICE = 34 "Login-LAT-Service",
        LOGIN_LAT_NODE = 35 "Login-LAT-Node",
        LOGIN_LAT_GROUP = 36 "Login-LAT-Group",
        FRAMED_APPLETALK_LINK = 37 "Framed-AppleTalk-Link",
        FRAMED_APPLETALK_NETWORK = 38 "Framed-AppleTalk-Network",
        FRAMED_APPLETALK_ZONE = 39 "Framed-AppleTalk-Zone",
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
        ACCT_MULTI_SESSION_ID = 50 "Acct-Multi-Session-Id",
        ACCT_LINK_COUNT = 51 "Acct-Link-Count",
        ACCT_INPUT_GIGAWORDS = 52 "Acct-Input-Gigawords",
        ACCT_OUTPUT_GIGAWORDS = 53 "Acct-Output-Gigawords",
        EVENT_TIMESTAMP = 55 "Event-Timestamp",
        CHAP_CHALLENGE = 60 "CHAP-Challenge",
        NAS_PORT_TYPE = 61 "NAS-Port-Type",
        PORT_LIMIT = 62 "Port-Limit",
        LOGIN_LAT_PORT = 63 "Login-LAT-Port",
        TUNNEL_TYPE = 64 "Tunnel-Type",
        TUNNEL_MEDIUM_TYPE = 65 "Tunnel-Medium-Type",
        TUNNEL_CLIENT_ENDPOINT = 66 "Tunnel-Client-Endpoint",
        TUNNEL_SERVER_ENDPOINT = 67 "Tunnel-Server-Endpoint",
        ACCT_TUNNEL_CONNECTION = 68 "Acct-Tunnel-Connection",
        TUNNEL_PASSWORD = 69 "Tunnel-Password",
        ARAP_PASSWORD = 70 "ARAP-Password",
        ARAP_FEATURES = 71 "ARAP-Features",
        ARAP_ZONE_ACCESS = 72 "ARAP-Zone-Access",
        ARAP_SECURITY = 73 "ARAP-Security",
        ARAP_SECURITY_DATA = 74 "ARAP-Security-Data",
        PASSWORD_RETRY = 75 "Password-Retry",
        PROMPT = 76 "Prompt",
        CONNECT_INFO = 77 "Connect-Info",
        CONFIGURATION_TOKEN = 78 "Configuration-Token",
        EAP_MESSAGE = 79 "EAP-Message",
        MESSAGE_AUTHENTICATOR = 80 "Message-Authenticator",
        TUNNEL_PRIVATE_GROUP_ID = 81 "Tunnel-Private-Group-Id",
        TUNNEL_ASSIGNMENT_ID = 82 "Tunnel-Assignment-Id",
        TUNNEL_PREFERENCE = 83 "Tunnel-Preference",
        ARAP_CHALLENGE_RESPONSE = 84 "ARAP-Challenge-Response",
        ACCT_INTERIM_INTERVAL = 85 "Acct-Interim-Interval",
        ACCT_TUNNEL_PACKETS_LOST = 86 "Acct-Tunnel-Packets-Lost",
        NAS_PORT_ID = 87 "NAS-Port-Id",
        FRAMED_POOL = 88 "Framed-Pool",
        CHARGEABLE_USER_IDENTITY = 89 "Chargeable-User-Identity",
        TUNNEL_CLIENT_AUTH_ID = 90 "Tunnel-Client-Auth-Id",
        TUNNEL_SERVER_AUTH_ID = 91 "Tunnel-Server-Auth-Id",
        NAS_IPV6_ADDRESS = 95 "NAS-IPv6-Address",
        FRAMED_INTERFACE_ID = 96 "Framed-Interface-Id",
        FRAMED_IPV6_PREFIX = 97 "Framed-IPv6-Prefix",
        LOGIN_IPV6_HOST = 98 "Login-IPv6-Host",
        FRAMED_IPV6_ROUTE = 99 "Framed-IPv6-Route",
        FRAMED_IPV6_POOL = 100 "Framed-IPv6-Pool",
        ERROR_CAUSE = 101 "Error-Cause",
        DELEGATED_IPV6_PREFIX = 123 "Delegated-IPv6-Prefix",
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
        FRAMED_IPV6_ADDRESS = 168 "Framed-IPv6-Address",
        DNS_SERVER_IPV6_ADDRESS = 169 "DNS-Server-IPv6-Address",
    }
}

/// The format of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// UTF-8.
    Text,
    /// 32 bits.
    Integer,
    /// 64 bits.
    Integer64,
    /// An IPv4 or IPv6 address.
    Address,
    /// An IPv6 prefix (RFC 3162, 2.3).
    Prefix,
    /// A vendor's enterprise number, followed by vendor-defined data (RFC 2865, 5.26).
    Vendor,
    /// A tag, then 24 bits (RFC 2868).
    TaggedInteger,
    /// UTF-8, with an optional tag of 1 to 31 in front (RFC 2868).
    TaggedText,
    /// Raw bytes, or an unknown format.
    Octets,
}

impl AttributeType {
    /// The format of its values.
    #[must_use]
    pub const fn format(self) -> Format {
        match self.0 {
            1
            | 11
            | 18..=20
            | 22
            | 30..=32
            | 34
            | 35
            | 39
            | 44
            | 50
            | 63
            | 68
            | 74
            | 77
            | 78
            | 87
            | 88
            | 99
            | 100
            | 145
            | 146 => Format::Text,
            5..=7
            | 10
            | 12
            | 13
            | 15
            | 16
            | 27..=29
            | 37
            | 38
            | 40..=43
            | 45..=49
            | 51..=53
            | 55
            | 61
            | 62
            | 72
            | 73
            | 75
            | 76
            | 85
            | 86
            | 101 => Format::Integer,
            124 => Format::Integer64,
            4 | 8 | 9 | 14 | 23 | 95 | 98 | 147..=150 | 157..=162 | 168 | 169 => Format::Address,
            97 | 123 | 151 | 152 => Format::Prefix,
            26 => Format::Vendor,
            64 | 65 | 83 => Format::TaggedInteger,
            66 | 67 | 81 | 82 | 90 | 91 => Format::TaggedText,
            _ => Format::Octets,
        }
    }

    /// The name of one of its values, if its values have names.
    #[must_use]
    pub const fn value_name(self, number: u32) -> Option<&'static str> {
        match self {
            AttributeType::SERVICE_TYPE => ServiceType(number).name(),
            AttributeType::FRAMED_PROTOCOL => FramedProtocol(number).name(),
            AttributeType::TERMINATION_ACTION => TerminationAction(number).name(),
            AttributeType::ACCT_STATUS_TYPE => AcctStatusType(number).name(),
            AttributeType::ACCT_AUTHENTIC => AcctAuthentic(number).name(),
            AttributeType::ACCT_TERMINATE_CAUSE => AcctTerminateCause(number).name(),
            AttributeType::NAS_PORT_TYPE => NasPortType(number).name(),
            AttributeType::TUNNEL_TYPE => TunnelType(number).name(),
            AttributeType::TUNNEL_MEDIUM_TYPE => TunnelMediumType(number).name(),
            AttributeType::ERROR_CAUSE => ErrorCause(number).name(),
            _ => None,
        }
    }
}

codes! {
    /// Service-Type (RFC 2865, 5.6).
    pub struct ServiceType(u32) {
        LOGIN = 1 "Login",
        FRAMED = 2 "Framed",
        CALLBACK_LOGIN = 3 "Callback-Login",
        CALLBACK_FRAMED = 4 "Callback-Framed",
        OUTBOUND = 5 "Outbound",
        ADMINISTRATIVE = 6 "Administrative",
        NAS_PROMPT = 7 "NAS-Prompt",
        AUTHENTICATE_ONLY = 8 "Authenticate-Only",
        CALLBACK_NAS_PROMPT = 9 "Callback-NAS-Prompt",
        CALL_CHECK = 10 "Call-Check",
        CALLBACK_ADMINISTRATIVE = 11 "Callback-Administrative",
        AUTHORIZE_ONLY = 17 "Authorize-Only",
    }

    /// Framed-Protocol (RFC 2865, 5.7).
    pub struct FramedProtocol(u32) {
        PPP = 1 "PPP",
        SLIP = 2 "SLIP",
        ARAP = 3 "ARAP",
        GANDALF_SLML = 4 "Gandalf-SLML",
        XYLOGICS_IPX_SLIP = 5 "Xylogics-IPX-SLIP",
        X_75_SYNCHRONOUS = 6 "X.75-Synchronous",
    }

    /// Termination-Action (RFC 2865, 5.29).
    pub struct TerminationAction(u32) {
        DEFAULT = 0 "Default",
        RADIUS_REQUEST = 1 "RADIUS-Request",
    }

    /// Acct-Status-Type (RFC 2866, 5.1).
    pub struct AcctStatusType(u32) {
        START = 1 "Start",
        STOP = 2 "Stop",
        INTERIM_UPDATE = 3 "Interim-Update",
        ACCOUNTING_ON = 7 "Accounting-On",
        ACCOUNTING_OFF = 8 "Accounting-Off",
        TUNNEL_START = 9 "Tunnel-Start",
        TUNNEL_STOP = 10 "Tunnel-Stop",
        TUNNEL_REJECT = 11 "Tunnel-Reject",
        TUNNEL_LINK_START = 12 "Tunnel-Link-Start",
        TUNNEL_LINK_STOP = 13 "Tunnel-Link-Stop",
        TUNNEL_LINK_REJECT = 14 "Tunnel-Link-Reject",
        FAILED = 15 "Failed",
    }

    /// Acct-Authentic (RFC 2866, 5.6).
    pub struct AcctAuthentic(u32) {
        RADIUS = 1 "RADIUS",
        LOCAL = 2 "Local",
        REMOTE = 3 "Remote",
        DIAMETER = 4 "Diameter",
    }

    /// Acct-Terminate-Cause (RFC 2866, 5.10).
    pub struct AcctTerminateCause(u32) {
        USER_REQUEST = 1 "User-Request",
        LOST_CARRIER = 2 "Lost-Carrier",
        LOST_SERVICE = 3 "Lost-Service",
        IDLE_TIMEOUT = 4 "Idle-Timeout",
        SESSION_TIMEOUT = 5 "Session-Timeout",
        ADMIN_RESET = 6 "Admin-Reset",
        ADMIN_REBOOT = 7 "Admin-Reboot",
        PORT_ERROR = 8 "Port-Error",
        NAS_ERROR = 9 "NAS-Error",
        NAS_REQUEST = 10 "NAS-Request",
        NAS_REBOOT = 11 "NAS-Reboot",
        PORT_UNNEEDED = 12 "Port-Unneeded",
        PORT_PREEMPTED = 13 "Port-Preempted",
        PORT_SUSPENDED = 14 "Port-Suspended",
        SERVICE_UNAVAILABLE = 15 "Service-Unavailable",
        CALLBACK = 16 "Callback",
        USER_ERROR = 17 "User-Error",
        HOST_REQUEST = 18 "Host-Request",
    }

    /// NAS-Port-Type (RFC 2865, 5.41).
    pub struct NasPortType(u32) {
        ASYNC = 0 "Async",
        SYNC = 1 "Sync",
        ISDN = 2 "ISDN",
        ISDN_V120 = 3 "ISDN-V120",
        ISDN_V110 = 4 "ISDN-V110",
        VIRTUAL = 5 "Virtual",
        ETHERNET = 15 "Ethernet",
        XDSL = 16 "xDSL",
        CABLE = 17 "Cable",
        WIRELESS_OTHER = 18 "Wireless-Other",
        WIRELESS_802_11 = 19 "Wireless-802.11",
    }

    /// Tunnel-Type (RFC 2868, 3.1).
    pub struct TunnelType(u32) {
        PPTP = 1 "PPTP",
        L2F = 2 "L2F",
        L2TP = 3 "L2TP",
        ATMP = 4 "ATMP",
        VTP = 5 "VTP",
        AH = 6 "AH",
        IP_IN_IP = 7 "IP-in-IP",
        MIN_IP_IP = 8 "MIN-IP-IP",
        ESP = 9 "ESP",
        GRE = 10 "GRE",
        DVS = 11 "DVS",
        IP_IN_IP_TUNNELING = 12 "IP-in-IP-Tunneling",
        VLAN = 13 "VLAN",
    }

    /// Tunnel-Medium-Type (RFC 2868, 3.2).
    pub struct TunnelMediumType(u32) {
        IPV4 = 1 "IPv4",
        IPV6 = 2 "IPv6",
        IEEE_802 = 6 "IEEE-802",
    }

    /// Error-Cause (RFC 5176, 3.5).
    pub struct ErrorCause(u32) {
        RESIDUAL_CONTEXT_REMOVED = 201 "Residual-Context-Removed",
        INVALID_EAP_PACKET = 202 "Invalid-EAP-Packet",
        UNSUPPORTED_ATTRIBUTE = 401 "Unsupported-Attribute",
        MISSING_ATTRIBUTE = 402 "Missing-Attribute",
        NAS_IDENTIFICATION_MISMATCH = 403 "NAS-Identification-Mismatch",
        INVALID_REQUEST = 404 "Invalid-Request",
        UNSUPPORTED_SERVICE = 405 "Unsupported-Service",
        UNSUPPORTED_EXTENSION = 406 "Unsupported-Extension",
        ADMINISTRATIVELY_PROHIBITED = 501 "Administratively-Prohibited",
        PROXY_REQUEST_NOT_ROUTABLE = 502 "Proxy-Request-Not-Routable",
        SESSION_CONTEXT_NOT_FOUND = 503 "Session-Context-Not-Found",
        SESSION_CONTEXT_NOT_REMOVABLE = 504 "Session-Context-Not-Removable",
        PROXY_PROCESSING_ERROR = 505 "Proxy-Processing-Error",
        RESOURCES_UNAVAILABLE = 506 "Resources-Unavailable",
        REQUEST_INITIATED = 507 "Request-Initiated",
    }
}

/// An attribute: its type, and a value of 1 to 253 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attribute {
    /// Its type.
    pub kind: AttributeType,
    /// Its value.
    #[serde(serialize_with = "hex")]
    pub value: Vec<u8>,
}

impl Attribute {
    /// The longest value in bytes.
    pub const VALUE_MAX: usize = 253;

    /// An attribute with these bytes, truncated to [`Attribute::VALUE_MAX`].
    #[must_use]
    pub fn octets(kind: AttributeType, value: &[u8]) -> Attribute {
        Attribute { kind, value: value[..value.len().min(Attribute::VALUE_MAX)].to_vec() }
    }

    /// An attribute with a 32-bit number.
    #[must_use]
    pub fn integer(kind: AttributeType, value: u32) -> Attribute {
        Attribute { kind, value: value.to_be_bytes().to_vec() }
    }

    /// An attribute with a 64-bit number.
    #[must_use]
    pub fn integer64(kind: AttributeType, value: u64) -> Attribute {
        Attribute { kind, value: value.to_be_bytes().to_vec() }
    }

    /// An attribute with an IPv4 or IPv6 address.
    #[must_use]
    pub fn address(kind: AttributeType, address: IpAddr) -> Attribute {
        let value = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        Attribute { kind, value }
    }

    /// An attribute with a prefix (RFC 3162, 2.3; RFC 6572, 4.9): a reserved byte, the length, and the whole address.
    #[must_use]
    pub fn prefix(kind: AttributeType, prefix: Prefix) -> Attribute {
        let mut value = Vec::from([0, prefix.len]);
        match prefix.addr {
            IpAddr::V4(address) => value.extend(address.octets()),
            IpAddr::V6(address) => value.extend(address.octets()),
        }
        Attribute { kind, value }
    }

    /// The value as a 32-bit number; `None` if it has another length.
    #[must_use]
    pub fn to_integer(&self) -> Option<u32> {
        <[u8; 4]>::try_from(&self.value[..]).ok().map(u32::from_be_bytes)
    }

    /// The value as a 64-bit number; `None` if it has another length.
    #[must_use]
    pub fn to_integer64(&self) -> Option<u64> {
        <[u8; 8]>::try_from(&self.value[..]).ok().map(u64::from_be_bytes)
    }

    /// The value as an address; `None` if its length fits no address.
    #[must_use]
    pub fn to_address(&self) -> Option<IpAddr> {
        match self.value.len() {
            4 => <[u8; 4]>::try_from(&self.value[..]).ok().map(|a| Ipv4Addr::from(a).into()),
            16 => <[u8; 16]>::try_from(&self.value[..]).ok().map(|a| Ipv6Addr::from(a).into()),
            _ => None,
        }
    }

    /// The value as an IPv6 prefix; `None` if malformed. Omitted bytes are zero; bits beyond the prefix length must be
    /// zero (RFC 3162, 2.3).
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
