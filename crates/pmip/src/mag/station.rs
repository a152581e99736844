//! State of a gateway: stations, anchors and forwarded prefixes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use segue_clock::{Span, Time};
use segue_ip::{Forward, Prefix};
use segue_mobility::Retransmission;

use super::config::Identity;
use super::state::StationState;
use crate::LinkLayer;

/// A host's interface at an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Index of the access in the configuration.
    pub access: usize,
    /// Identity of the host, once known.
    pub identity: Option<Identity>,
    /// Its state.
    pub state: StationState,
    /// Its assigned prefixes.
    pub prefixes: Vec<Prefix>,
    /// Prefixes that were assigned earlier and are withdrawn.
    pub(super) former: Vec<Prefix>,
    /// Prefixes of the host's other interfaces: forwarded, but not advertised (RFC 7864).
    pub off_link: Vec<Prefix>,
    /// The host should prefer this access, because another one has failed or is about to.
    pub preferred: bool,
    /// `preferred` was set at some time.
    pub(super) was_preferred: bool,
    /// End of the registration.
    pub until: Time,
    /// When it attached.
    pub since: Time,
    /// When it was identified.
    pub identified: Option<Time>,
    /// When it was first registered.
    pub registered: Option<Time>,
    /// When its prefixes were first advertised.
    pub advertised: Option<Time>,
    /// Its link-local address, if it has shown it.
    pub(super) link_local: Option<Ipv6Addr>,
    /// It was heard since its registration was last accepted.
    pub(super) heard: bool,
    /// Sequence number and arrival time of the last notification about it.
    pub(super) notified: Option<(u16, Time)>,
    /// The unacknowledged update: sequence number, send time and retransmission.
    pub(super) open: Option<(u16, Time, Retransmission)>,
    /// Immediate retries since the last accepted update.
    pub(super) hurried: u32,
    /// Solicitations since the last sign of life.
    pub(super) probes: u32,
    /// The installed neighbour entry.
    pub(super) neighbour: Option<Forward>,
    /// Its GRE tunnel, requested or granted.
    pub(super) gre: Option<Gre>,
    /// Prefixes that are forwarded for it, including those of other interfaces.
    pub(super) carries: BTreeSet<Prefix>,
}

/// Key of a station: interface index and link-layer identifier.
pub(super) type Place = (u32, LinkLayer);

/// A timer of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Retransmit the update.
    Again,
    /// Probe the host and renew the registration.
    Renew,
    /// Check for an answer to a solicitation.
    Probe,
    /// Send a router advertisement.
    Advertise,
    /// The registration expires.
    End,
}

impl Task {
    pub(super) const fn why(self) -> &'static str {
        match self {
            Task::Again => "to register again",
            Task::Renew => "to renew a registration",
            Task::Probe => "to solicit a host",
            Task::Advertise => "to advertise",
            Task::End => "a registration ends",
        }
    }
}

/// An anchor of hosts that are here.
#[derive(Clone, Debug, Default)]
pub(super) struct Anchor {
    /// Tunnels to it, by local address.
    pub(super) tunnels: BTreeMap<IpAddr, Way>,
}

/// A tunnel to an anchor, shared by stations.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) number: u32,
    /// Number of stations that use it.
    pub(super) stations: usize,
    /// Set if the tunnel is in UDP and kept open with keepalives.
    pub(super) nat: Option<Nat>,
}

/// Keepalives through a NAT.
#[derive(Clone, Debug)]
pub(super) struct Nat {
    /// Time between keepalives; `None`: none are needed.
    pub(super) refresh: Option<Span>,
    /// Timeout of the next keepalive while none is answered.
    pub(super) wait: Span,
    /// Sequence number of the last keepalive.
    pub(super) sequence: u32,
}

/// The GRE tunnel of one station (RFC 5845).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gre {
    /// Tunnel number.
    pub(super) number: u32,
    /// Key of received packets: the tunnel number, unless restored from an earlier start.
    pub(super) receive: u32,
    /// Key of sent packets, granted by the anchor. Without it the tunnel does not exist.
    pub(super) send: Option<u32>,
}

/// A prefix that is forwarded here.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    /// Stations that hold it, or carry it for another interface.
    pub(super) users: BTreeSet<Place>,
    pub(super) given: Vec<Forward>,
}
