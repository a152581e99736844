//! Inputs and outputs of a gateway's machine.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::UnixTime;
use segue_ip::{Datagram, Output, Prefix};

use super::config::Identity;
use crate::news::Why;
use crate::{LinkLayer, Report};

/// Inputs from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MagInput {
    /// The time of day. The driver sends it periodically, and after the clock was set.
    TimeOfDay(UnixTime),
    /// A host has attached to an access.
    Attached {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
        /// Its link-local address, if known.
        link_local: Option<Ipv6Addr>,
    },
    /// A frame of a station was heard at an access. The source address may be forged, so new stations are rate-limited.
    Heard {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
        /// Its link-local address, if known.
        link_local: Option<Ipv6Addr>,
    },
    /// A router solicitation without a Source Link-Layer Address option; the driver takes the address from the frame.
    /// Solicitations with the option arrive as datagrams.
    Solicited {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
        /// Its link-local address, if it has one.
        link_local: Option<Ipv6Addr>,
    },
    /// A station has left.
    Detached {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
    },
    /// The identity of a station; `None` if it must not be served, or no longer.
    Identified {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
        /// Its identity.
        identity: Option<Identity>,
    },
    /// The maximum packet size of a tunnel has changed.
    TunnelSize {
        /// Tunnel number.
        tunnel: u32,
        /// Maximum inner packet size in bytes; `None` if unknown, or if the tunnel is gone.
        bytes: Option<u32>,
    },
}

/// Requests of a gateway to its driver, in addition to those of every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Identify a station and answer with [`MagInput::Identified`].
    Identify {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
    },
    /// A station is served, or has different prefixes. `Began` and `Ended` are sent only if the driver identifies
    /// hosts.
    Began {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
    },
    /// A station is no longer served, or no longer needs to be identified. May be sent twice.
    Ended {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
        /// Why.
        why: Why,
    },
    /// Make all hosts of this link show themselves, and report those that are heard ([`MagInput::Heard`]).
    Ask {
        /// Interface index of the access.
        interface: u32,
    },
    /// Make this station show itself, and report at once if it is heard ([`MagInput::Heard`]).
    Show {
        /// Interface index of the access.
        interface: u32,
        /// The station's link-layer identifier.
        station: LinkLayer,
    },
    /// Send a datagram to one station. Its IP destination may be a multicast address (RFC 6085).
    ToStation {
        /// Link-layer address of the station.
        mac: [u8; 6],
        /// The datagram, with its checksum and its interface.
        datagram: Datagram,
    },
}

/// A stored station. A later record of the same access and station replaces it; without contents it deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MagRecord {
    /// Interface name of the access.
    pub access: String,
    /// The station's link-layer identifier.
    pub station: LinkLayer,
    /// The contents; `None` deletes the record.
    pub stored: Option<StoredStation>,
}

/// A station, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStation {
    /// Its identity, with its anchor.
    pub identity: Identity,
    /// Its assigned prefixes.
    pub prefixes: Vec<Prefix>,
    /// Prefixes of the host's other interfaces, which are also forwarded here.
    pub off_link: Vec<Prefix>,
    /// Its link-local address, if it has shown it.
    pub link_local: Option<Ipv6Addr>,
    /// Keys of its GRE tunnel, if it has one: to send with, and to receive with.
    pub gre: Option<[u32; 2]>,
    /// End of the registration.
    pub until: UnixTime,
}

/// Outputs of a gateway's machine.
pub type MagOutput = Output<Wish, Report, MagRecord>;
