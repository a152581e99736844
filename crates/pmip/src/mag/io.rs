//! What goes into a gateway's machine, and comes out of it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::UnixTime;
use segue_ip::{Datagram, Output, Prefix};

use super::config::Identity;
use crate::news::Why;
use crate::{LinkLayer, Report};

/// What a gateway's driver tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MagInput {
    /// It is this time of day: told now and then, and when somebody has set the clock.
    TimeOfDay(UnixTime),
    /// A host has attached to the access with this interface.
    Attached {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Its address of link scope, if that is known.
        link_local: Option<Ipv6Addr>,
    },
    /// A frame of a station was heard at the access. Its address may be forged: new ones are served at a pace.
    Heard {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Its address of link scope, if that is known.
        link_local: Option<Ipv6Addr>,
    },
    /// A station solicits a router and does not say its link-layer address: the frame has told it. Solicitations that
    /// say it come as messages.
    Solicited {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Its address of link scope, if it has one.
        link_local: Option<Ipv6Addr>,
    },
    /// It has left.
    Detached {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// Who it is; `None`: it may not be served, or not any longer.
    Identified {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Who.
        identity: Option<Identity>,
    },
    /// A tunnel takes packets of another size.
    TunnelSize {
        /// Its number.
        tunnel: u32,
        /// The largest inner packet in bytes; `None` if nothing is known, or the tunnel is gone.
        bytes: Option<u32>,
    },
}

/// What a gateway asks of its driver, beside what every role does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Find out who this is, and say it ([`MagInput::Identified`]).
    Identify {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// A station is served, or has other prefixes. Only a driver that says who hosts are is told this, and what follows.
    Began {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// It is not served any more, or is not asked about; may be said twice.
    Ended {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
        /// Why.
        why: Why,
    },
    /// Have all hosts of this link show themselves, and say who was heard ([`MagInput::Heard`]).
    Ask {
        /// Index of the interface.
        interface: u32,
    },
    /// Have this station alone show itself, and say at once if it is heard ([`MagInput::Heard`]).
    Show {
        /// Index of the interface.
        interface: u32,
        /// The host's interface.
        station: LinkLayer,
    },
    /// Send this to one station, whatever its destination is (RFC 6085).
    ToStation {
        /// Its link-layer address.
        mac: [u8; 6],
        /// With its checksum, and the interface.
        datagram: Datagram,
    },
}

/// What a gateway stores: who is at an access. A later record of the same place takes its place; `None` takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MagRecord {
    /// The name of the access's interface.
    pub access: String,
    /// The host's interface.
    pub station: LinkLayer,
    /// Who.
    pub stored: Option<StoredStation>,
}

/// A host's interface as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStation {
    /// Who it is, and its anchor.
    pub identity: Identity,
    /// What it was given.
    pub prefixes: Vec<Prefix>,
    /// Prefixes of its other interfaces, which are carried too.
    pub off_link: Vec<Prefix>,
    /// Its address of link scope, if it has shown it.
    pub link_local: Option<Ipv6Addr>,
    /// The keys of its own tunnel, of what goes and what comes, if it has one.
    pub gre: Option<[u32; 2]>,
    /// When its registration ends.
    pub until: UnixTime,
}

/// What a gateway asks of its driver.
pub type MagOutput = Output<Wish, Report, MagRecord>;
