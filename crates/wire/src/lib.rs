//! Byte formats only: the tunnel header ([`header`]), the keepalive probe ([`probe`]), the flow key of an inner packet
//! ([`flow`]), tests of a path's packet size ([`size`]), the signalling messages ([`signal`]), the enrolment messages
//! ([`enrol`]), the Mobility Header ([`mobility`]) and the IPv6 extension headers around it ([`extension`]), neighbour
//! discovery ([`nd`]), MIH ([`mih`]), RADIUS ([`radius`]), STAMP ([`stamp`]), the packets of UPMT itself ([`upmt`]) and
//! the reasons for dropping a packet ([`DropReason`]).
//!
//! Parsing never panics. Errors name the offending field and value. `docs/wire/` specifies the formats byte by byte.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod age;
mod checksum;
mod drop_reason;
pub mod enrol;
pub mod error;
pub mod extension;
pub mod flow;
pub mod header;
pub mod icmp;
mod layout;
pub mod mih;
pub mod mobility;
pub mod nd;
pub mod padded;
pub mod probe;
pub mod radius;
pub mod signal;
pub mod size;
pub mod stamp;
pub mod upmt;

pub use drop_reason::DropReason;
pub use error::WireError;
pub use header::{Header, PacketType};
pub use icmp::{OuterTooBig, TooBig};
pub use layout::VALUE_NAME;
pub use probe::{Probe, ProbeKey, ProbeReport};
pub use segue_ip::FlowKey;
pub use signal::{Encapsulation, Mode};
pub use size::Size;

/// UDP port of probes and tunnels.
pub const TUNNEL_PORT: u16 = 5005;
/// UDP port of the signalling (QUIC).
pub const SIGNAL_PORT: u16 = 5006;
/// Maximum number of paths of a host at a time: each has a bit in a probe's `heard` field.
pub const MAX_PATHS: usize = 16;

/// Maximum time that a response waits for a packet to ride on, in milliseconds: slightly more than the packet interval
/// of a call. If T_KA is shorter, T_KA is the maximum.
pub const HELD_AT_MOST_MS: u64 = 24;
