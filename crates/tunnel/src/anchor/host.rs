//! State of one registered host.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_clock::Time;

use crate::ConnId;

/// A host with a registration.
#[derive(Clone, Debug)]
pub struct RegisteredHost {
    /// Its enrolled name.
    pub name: String,
    /// Its number in the datapath's tables.
    pub owner: u32,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// Its paths, keyed by the host's path number; the values are the anchor's slots.
    pub paths: BTreeMap<u8, u32>,
    /// Its signalling connection, if it has one.
    pub conn: Option<ConnId>,
    pub(super) epoch: u64,
    /// When the registration expires, unless the host shows a sign of life before.
    pub(super) expires: Option<Time>,
    pub(super) heard_word: u16,
    /// The host's last report of the paths that it hears.
    pub(super) word: Option<Word>,
    /// At the last review every downlink used its own path, the host heard all paths, and requests arrived on all of
    /// them. As long as the host repeats the same report, no review is needed.
    pub(super) calm: bool,
    /// The largest packet to send to it, in bytes, once one of its paths has reported a size.
    pub(super) mtu: Option<u16>,
    /// The last reinjection of packets to it.
    pub(super) reinjected: Option<Reinjected>,
    /// The last request for counts of its flows.
    pub(super) counting: Option<Counting>,
}

/// A host's request for counts of its flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    pub(super) at: Time,
    /// The host's number of the request.
    pub(super) round: u32,
}

/// The `heard` word of a host's request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// When the host sent it, by the host's clock. Requests on different paths can overtake each other.
    pub(super) stamp: u32,
    /// When it arrived.
    pub(super) at: Time,
    /// A lower bound on when the host sent it, by the anchor's clock.
    pub(super) sent_after: Time,
    /// One bit per path.
    pub(super) bits: u16,
}

/// The last reinjection that a host's report caused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reinjected {
    pub(super) at: Time,
    pub(super) over: u32,
    pub(super) since: Time,
}
