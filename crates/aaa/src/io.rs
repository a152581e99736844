//! Inputs and outputs of the client's machine.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::UnixTime;
use segue_ip::{Output, Prefix};

use crate::grant::Grant;
use crate::news::AaaReport;

/// Input from the driver. `K` is the driver's key of a host's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaInput<K> {
    /// Sets the time of day.
    TimeOfDay(UnixTime),
    /// Asks whether a host may be served. Answered by [`AaaWish::Answered`], unless the host is in service and no
    /// server answers. Repetitions while a request is pending share its answer; during hold-off the last verdict is
    /// repeated.
    Ask {
        /// The host's interface.
        key: K,
        /// Facts for the request.
        subject: Subject,
    },
    /// Service has begun, or continues. If the host has no grant yet, a server is asked.
    Began {
        /// The host's interface.
        key: K,
        /// Facts for the request.
        subject: Subject,
    },
    /// Service has ended, or the driver no longer waits for an answer.
    Ended {
        /// The host's interface.
        key: K,
        /// Acct-Terminate-Cause.
        cause: Cause,
    },
    /// The answer to [`AaaWish::Count`].
    Counted {
        /// The session.
        session: u64,
        /// Its traffic so far.
        volume: Volume,
    },
}

/// Traffic of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Octets from the host, counting whole IP packets.
    pub input_octets: u64,
    /// Octets to the host, counting whole IP packets.
    pub output_octets: u64,
    /// Packets from the host.
    pub input_packets: u64,
    /// Packets to the host.
    pub output_packets: u64,
}

/// A host's interface, as requests describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The link-layer address.
    pub link_layer: Vec<u8>,
    /// The host's identity (MN-ID), if known.
    pub node: Option<Vec<u8>>,
    /// NAS-IPv6-Address: our own address.
    pub nas: Option<Ipv6Addr>,
    /// NAS-Port-Id: the name of the access interface.
    pub port: Option<String>,
    /// NAS-Port-Type.
    pub port_type: Option<u32>,
    /// Its prefixes, or the prefixes that it requests.
    pub prefixes: Vec<Prefix>,
}

/// Why a session ended (Acct-Terminate-Cause, RFC 2866, 5.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host left.
    UserRequest = 1,
    /// The host does not answer.
    LostCarrier = 2,
    /// The peer (gateway or anchor) refused the host.
    LostService = 3,
    /// The session timed out, or a server refused to extend it.
    SessionTimeout = 5,
    /// An operator ended it.
    AdminReset = 6,
    /// The host moved to another access.
    PortPreempted = 13,
}

/// The servers' decision about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host may be served.
    Granted(Grant),
    /// The host may not be served, or no longer.
    Refused,
    /// No server answered.
    Unanswered,
}

/// Outputs of a client to its driver, in addition to the outputs of every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AaaWish<K> {
    /// The servers' decision is known.
    Answered {
        /// The host's interface.
        key: K,
        /// The decision; never [`Verdict::Unanswered`] for a host in service.
        verdict: Verdict,
    },
    /// Requests the traffic of these prefixes since the first `Count` of this session. The driver answers at once, with
    /// [`AaaInput::Counted`].
    Count {
        /// The session.
        session: u64,
        /// Its prefixes.
        prefixes: Vec<Prefix>,
        /// The session has ended; this is the last `Count` for it.
        last: bool,
    },
}

/// Outputs of the client's machine.
pub type AaaOutput<K> = Output<AaaWish<K>, AaaReport, ()>;
