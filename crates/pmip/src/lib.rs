//! Proxy Mobile IPv6 (RFC 5213) with flow mobility (RFC 7864): hosts keep their prefixes while they move, and change nothing
//! themselves. An [`Lma`] anchors the prefixes, and a [`Mag`] at each access registers the hosts that it finds there.
//!
//! ```text
//!   host ── attaches ──► MAG ── PBU {MN-ID, handoff, access, link-layer id, timestamp} ──► LMA
//!                        MAG ◄── PBA {home network prefixes, lifetime} ──────────────────  LMA
//!   host ◄── RA (to it alone) ── MAG          traffic of the host: a tunnel between MAG and LMA
//!                        MAG ── PBU {lifetime 0} ──► LMA      when the host has left
//!                        MAG ◄── heartbeat, restart counter ──► LMA      (RFC 5847)
//!                        MAG ◄── heartbeat with a probe ──► LMA             (keepalive, where it is wanted)
//!                        MAG ◄── BRI ── LMA,  MAG ── BRA ──► LMA         (RFC 5846)
//! ```
//!
//! What either wants of its node is forwarding: tunnels, the inner sources that may come out of them, and which prefix goes
//! where. Signalling goes right above IPv6 (Mobility Header), where IPsec of the kernel protects it, or over IPv4 in UDP
//! (RFC 5844).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod heart;
mod keepalive;
mod lma;
mod mag;
mod message;
mod names;
mod news;
mod peer;

pub use lma::{
    Allowed, Authorization, DECISION, Flow, GreUse, LinkQuality, Lma, LmaConfig, LmaInput,
    LmaOutput, LmaRecord, LmaWish, Nodes, Placed, Presence, Rated, Schedule, Session, SessionState,
    StoredLease, StoredSession, Worth,
};
pub use mag::{
    Access, AttachBy, Encapsulation, FIXED_LINK_LOCAL, FIXED_MAC, HOSTS_MAX, Identities, Identity,
    Lifetimes, Mag, MagConfig, MagInput, MagOutput, MagRecord, Station, StationState,
    StoredStation, Wish,
};
pub use names::{LinkLayer, NodeId};
pub use news::{Cause, Off, Refusal, Refused, Report, Why};
pub use peer::{DATA_PORT, PeerAddress, SIGNALLING_PORT};

/// The protocol number of the Mobility Header.
pub const MOBILITY: u8 = segue_wire::mobility::NEXT_HEADER;
/// The vendor of our own options: the enterprise number for examples (RFC 5612), as there is none of ours.
pub const VENDOR: u32 = 32_473;
/// Subtype of our option that wishes a gateway to advertise itself as the better router: one octet, 1.
pub const PREFERENCE: u8 = 1;
/// Subtype of our option of heartbeats with the 32 octets of a keepalive's probe ([`segue_wire::Probe`]).
pub const PROBE: u8 = 2;
/// Hop limit of what either sends.
const HOPS: u8 = 64;
