//! Proxy Mobile IPv6 (RFC 5213) with flow mobility (RFC 7864): hosts keep their prefixes while they move and need no
//! mobility software. An [`Lma`] anchors the prefixes; a [`Mag`] at each access registers the hosts that attach there.
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
//! Both machines ask their driver for forwarding state: tunnels, the inner source prefixes allowed out of each tunnel,
//! and the route of each prefix. Signalling runs directly over IPv6 (Mobility Header), where kernel IPsec can protect
//! it, or in UDP over IPv4 (RFC 5844).
//!
//! From attachment to the first packet: (1) the gateway hears a station and sends a PBU; (2) the anchor checks it,
//! stores what is new, and answers once it is on disk; (3) with the PBA the gateway installs the prefix and advertises
//! it to that station alone; (4) if the host has another interface, the anchor notifies each gateway of the other's
//! prefixes, and from their acknowledgement on places each flow at its first packet; (5) when an access goes, the
//! anchor moves the flows before anything else. Both machines derive a host's forwarding anew at each change and emit
//! the difference.

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

/// IP protocol number of the Mobility Header.
pub const MOBILITY: u8 = segue_wire::mobility::NEXT_HEADER;
/// Vendor ID of our vendor-specific options: the documentation enterprise number (RFC 5612), because none is registered
/// for Segue.
pub const VENDOR: u32 = 32_473;
/// Subtype of the option that asks a gateway to advertise itself with high router preference: one octet, value 1.
pub const PREFERENCE: u8 = 1;
/// Subtype of the heartbeat option that carries a 32-octet keepalive probe ([`segue_wire::Probe`]).
pub const PROBE: u8 = 2;
/// Hop limit of every message that the machines send.
const HOPS: u8 = 64;
