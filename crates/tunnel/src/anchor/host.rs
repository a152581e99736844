//! One host of the anchor: what is known of it.

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
    /// Its number in tables of the datapath.
    pub owner: u32,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// Its paths: the host's number to the anchor's slot.
    pub paths: BTreeMap<u8, u32>,
    /// Its signalling connection, if one stands.
    pub conn: Option<ConnId>,
    pub(super) epoch: u64,
    /// When it is forgotten, unless it shows life before then.
    pub(super) expires: Option<Time>,
    pub(super) heard_word: u16,
    /// The host's last report of what it hears.
    pub(super) word: Option<Word>,
    /// At the last look at the downlinks all were on their own paths, which the host heard and from which requests
    /// came. While the host repeats its report, there is nothing to do.
    pub(super) calm: bool,
    /// The largest packet to send to it, once one of its paths has reported a size.
    pub(super) mtu: Option<u16>,
    /// When packets to it were last sent a second time.
    pub(super) reinjected: Option<Reinjected>,
    /// The last question about its flows.
    pub(super) counting: Option<Counting>,
}

/// A question of a host about its flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    pub(super) at: Time,
    /// As the host numbered it.
    pub(super) round: u32,
}

/// The `heard` word of a host's request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// When the host sent it, by its own clock: requests over different paths overtake each other.
    pub(super) stamp: u32,
    /// When it came.
    pub(super) at: Time,
    /// The host sent it after this instant, as far as this end can tell.
    pub(super) sent_after: Time,
    /// A bit for each path.
    pub(super) bits: u16,
}

/// The last time that a host's report had packets to it sent a second time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reinjected {
    pub(super) at: Time,
    pub(super) over: u32,
    pub(super) since: Time,
}
