//! What a gateway knows: hosts at its accesses, their anchors, and what is carried.

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
    /// Which of the configured accesses.
    pub access: usize,
    /// Who it is, once that is known.
    pub identity: Option<Identity>,
    /// Where it stands.
    pub state: StationState,
    /// What it was given.
    pub prefixes: Vec<Prefix>,
    /// Prefixes that it was given before and has no longer.
    pub(super) former: Vec<Prefix>,
    /// Prefixes of the host's other interfaces, which are carried and not advertised (RFC 7864).
    pub off_link: Vec<Prefix>,
    /// Another access of the host is gone: it is to prefer this one.
    pub preferred: bool,
    /// It was to do so once.
    pub(super) was_preferred: bool,
    /// When its registration ends.
    pub until: Time,
    /// When it attached.
    pub since: Time,
    /// When it was known who it is.
    pub identified: Option<Time>,
    /// When it was registered first.
    pub registered: Option<Time>,
    /// When it was first told of its prefixes.
    pub advertised: Option<Time>,
    /// Its address of link scope, if it has shown it.
    pub(super) link_local: Option<Ipv6Addr>,
    /// It was heard since its registration was last accepted.
    pub(super) heard: bool,
    /// The last notification about it, and when it came.
    pub(super) notified: Option<(u16, Time)>,
    /// The update that is not acknowledged: its number, when it was sent first, and its repetition.
    pub(super) open: Option<(u16, Time, Retransmission)>,
    /// Updates that were repeated at once since the last one was accepted.
    pub(super) hurried: u32,
    /// Solicitations since the last sign of life.
    pub(super) probes: u32,
    /// What leads to it on its link, if that was given.
    pub(super) neighbour: Option<Forward>,
    /// The tunnel that it has asked for or has alone, if its anchor keeps it apart with GRE.
    pub(super) gre: Option<Gre>,
    /// Prefixes that are carried for it now, its own and others.
    pub(super) carries: BTreeSet<Prefix>,
}

/// Where a station is: index of the interface, link-layer address.
pub(super) type Place = (u32, LinkLayer);

/// What falls due for a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// To ask again.
    Again,
    /// To see whether it is there, and renew.
    Renew,
    /// To look for an answer of the station.
    Probe,
    /// To advertise.
    Advertise,
    /// Its registration ends.
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

/// An anchor with hosts here.
#[derive(Clone, Debug, Default)]
pub(super) struct Anchor {
    /// Tunnels to it by the address of this end.
    pub(super) tunnels: BTreeMap<IpAddr, Way>,
}

/// A tunnel to an anchor that stations share.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) number: u32,
    /// How many stations use it.
    pub(super) stations: usize,
    /// It is in UDP, and kept open.
    pub(super) nat: Option<Nat>,
}

/// What keeps a NAT open.
#[derive(Clone, Debug)]
pub(super) struct Nat {
    /// Time between keepalives; `None`: none is needed.
    pub(super) refresh: Option<Span>,
    /// Until the next one, while none is answered.
    pub(super) wait: Span,
    /// The number of the last one.
    pub(super) sequence: u32,
}

/// The tunnel of one station (RFC 5845).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gre {
    /// Its number.
    pub(super) number: u32,
    /// The key of what comes: the number, unless it is from an earlier start.
    pub(super) receive: u32,
    /// The anchor's key, of what goes; until it has one there is no tunnel.
    pub(super) send: Option<u32>,
}

/// A prefix that is carried here.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    /// Stations that have it, as their own or as another interface's.
    pub(super) users: BTreeSet<Place>,
    pub(super) given: Vec<Forward>,
}
