//! What goes into a client's machine, and comes out of it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::UnixTime;
use segue_ip::{Output, Prefix};

use crate::grant::Grant;
use crate::news::AaaReport;

/// What a driver tells. `K` names a host's interface to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaInput<K> {
    /// It is this time of day.
    TimeOfDay(UnixTime),
    /// Who is this, and may it be served? Answered by [`AaaWish::Answered`], also if the question is repeated.
    Ask {
        /// Whose.
        key: K,
        /// What is known of it.
        subject: Subject,
    },
    /// It is served from now on, or still is. One that nobody was asked about is asked about.
    Began {
        /// Whose.
        key: K,
        /// What is known of it.
        subject: Subject,
    },
    /// It is not served, or waits for an answer no longer.
    Ended {
        /// Whose.
        key: K,
        /// Why.
        cause: Cause,
    },
    /// The answer to [`AaaWish::Count`].
    Counted {
        /// Which.
        session: u64,
        /// What it has carried.
        volume: Volume,
    },
}

/// What a session has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Octets from the host, of whole IP packets.
    pub input_octets: u64,
    /// Octets to it.
    pub output_octets: u64,
    /// Packets from it.
    pub input_packets: u64,
    /// Packets to it.
    pub output_packets: u64,
}

/// A host's interface, as servers are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its link-layer address.
    pub link_layer: Vec<u8>,
    /// The host's identity (MN-ID), as far as it is known.
    pub node: Option<Vec<u8>>,
    /// The address of who asks.
    pub nas: Option<Ipv6Addr>,
    /// The access, by the name of its interface.
    pub port: Option<String>,
    /// NAS-Port-Type.
    pub port_type: Option<u32>,
    /// Its prefixes, or those that it asks for.
    pub prefixes: Vec<Prefix>,
}

/// Why a session has ended (Acct-Terminate-Cause, RFC 2866, 5.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host has left.
    UserRequest = 1,
    /// It does not answer.
    LostCarrier = 2,
    /// The other end refuses it.
    LostService = 3,
    /// The session's time is over, or a server refuses to go on.
    SessionTimeout = 5,
    /// An operator has ended it.
    AdminReset = 6,
    /// It went on elsewhere.
    PortPreempted = 13,
}

/// What servers say of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be served.
    Granted(Grant),
    /// It may not, or not any longer.
    Refused,
    /// No server has answered.
    Unanswered,
}

/// What a client asks of its driver, beside what every role does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaWish<K> {
    /// Servers were asked.
    Answered {
        /// Whose.
        key: K,
        /// What they say; never [`Verdict::Unanswered`] of a host that is served.
        verdict: Verdict,
    },
    /// How much have these prefixes carried since this was asked first? To be answered at once, by
    /// [`AaaInput::Counted`].
    Count {
        /// For which session.
        session: u64,
        /// Its prefixes.
        prefixes: Vec<Prefix>,
        /// It is over: this is not asked again.
        last: bool,
    },
}

/// What a client asks of its driver.
pub type AaaOutput<K> = Output<AaaWish<K>, AaaReport, ()>;
