//! RADIUS (RFC 2865 to 2869, 3162, 3579, 5176), with the attributes of Proxy Mobile IPv6 (RFC 6572).
//!
//! ```text
//! |     Code      |  Identifier   |            Length             |
//! +-------------------------------+-------------------------------+
//! |              Request or Response Authenticator                |
//! |                          (16 octets)                          |
//! +-------------------------------+-------------------------------+
//! |     Type      |    Length     ~    value, then further ones   ~
//! ```
//!
//! A [`View`] is over bytes with checked lengths; a [`Packet`] holds their content. Packets are sent sealed
//! ([`Packet::seal_request`], [`Packet::seal_reply`]), and received ones must pass a check of their seal
//! ([`View::check_reply`], [`View::check_request`]). Message-Authenticator is the first attribute, so that an attacker
//! cannot choose a prefix of a packet by knowing the rest (Blast-RADIUS, CVE-2024-3596).

mod attribute;
mod packet;
mod secret;

pub use attribute::{
    AcctAuthentic, AcctStatusType, AcctTerminateCause, Attribute, AttributeType, ErrorCause,
    Format, FramedProtocol, NasPortType, ServiceType, TerminationAction, TunnelMediumType,
    TunnelType,
};
pub use packet::{AUTHENTICATOR_LEN, Code, Packet, Unproven, View};
pub use secret::Secret;

/// UDP port of authentication.
pub const PORT: u16 = 1812;
/// UDP port of accounting (RFC 2866).
pub const ACCOUNTING_PORT: u16 = 1813;
/// UDP ports of authentication and accounting before RFC 2865 (see its section 3 and RFC 2866, 3), used by old servers.
pub const OLD_PORTS: [u16; 2] = [1645, 1646];
/// UDP ports for requests by the server: that of RFC 5176, 2.3, and the one that many servers used before.
pub const DYNAMIC_PORTS: [u16; 2] = [3799, 1700];
/// The longest packet in bytes.
pub const LONGEST: usize = 4_096;
/// The flag for Proxy Mobile IPv6 in MIP6-Feature-Vector (RFC 6572, 4.1).
pub const PMIP6_SUPPORTED: u64 = 0x0000_0100_0000_0000;
