//! Inputs and outputs of an anchor's machine.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{Span, Time, UnixTime};
use segue_ip::{FlowKey, Output, Prefix, Subject};
use segue_wire::mobility::option::AccessTechnology;

use super::state::LinkQuality;
use crate::news::Why;
use crate::{LinkLayer, NodeId, PeerAddress, Report};

/// Inputs from the operator and the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaInput {
    /// The time of day. The driver sends it periodically, and after the clock was set.
    TimeOfDay(UnixTime),
    /// Revoke all bindings of a host (RFC 5846).
    Revoke(NodeId),
    /// The first packet of a flow is held until the flow is placed.
    Flow {
        /// The flow.
        key: FlowKey,
        /// Its DSCP.
        dscp: u8,
    },
    /// The answer to [`LmaWish::Inspect`]: when each of these flows last carried a packet; `None`: never.
    LastSent(Vec<(FlowKey, Option<Time>)>),
    /// Place a flow on the binding of its host with this BID; `None`: let the anchor's schedule decide.
    Place {
        /// The flow.
        key: FlowKey,
        /// The binding identifier.
        bid: Option<u16>,
    },
    /// Set while an external scheduler decides where flows go. Otherwise the anchor's schedule decides.
    Deciding(bool),
    /// A host's interface is about to leave its gateway. Its traffic moves to another interface, if there is one, until
    /// it has left or is reported to stay.
    GoingDown {
        /// The interface.
        link_layer: LinkLayer,
        /// Predicted time until it leaves.
        within: Span,
    },
    /// The interface stays after all.
    Stays {
        /// The interface.
        link_layer: LinkLayer,
    },
    /// Quality of the link to a host's interface.
    Link {
        /// The interface.
        link_layer: LinkLayer,
        /// The known figures; others keep their last value.
        quality: LinkQuality,
    },
    /// The answer to [`LmaWish::Authorize`]. Also sent unasked, to withdraw an authorization.
    Authorized {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The verdict.
        verdict: Authorization,
    },
}

/// Verdict on the registration of a host's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Yes, with these prefixes; empty: any.
    Allowed(Vec<Prefix>),
    /// No.
    Refused,
    /// The authority did not answer.
    Unanswered,
}

/// A record for persistent storage. It replaces an earlier record of the same key; `None` deletes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaRecord {
    /// A binding, by its number.
    Session(u32, Option<StoredSession>),
    /// The lease of a prefix.
    Lease(Prefix, Option<StoredLease>),
}

impl LmaRecord {
    /// The host that it is about; a deletion names none, and nothing waits for it.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let node = match self {
            LmaRecord::Session(_, stored) => stored.as_ref().map(|stored| &stored.node),
            LmaRecord::Lease(_, stored) => stored.as_ref().map(|stored| &stored.node),
        };
        node.map(NodeId::subject).unwrap_or_default()
    }
}

/// A binding, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// Technology of the access.
    pub access: AccessTechnology,
    /// The leased prefixes.
    pub prefixes: Vec<Prefix>,
    /// Its binding identifier (BID) among the host's bindings.
    pub bid: u16,
    /// True if the host has left.
    pub leaving: bool,
    /// The gateway.
    pub gateway: PeerAddress,
    /// Over IPv4: UDP port of the gateway's signalling.
    pub port: u16,
    /// True if hosts' packets to and from the gateway are in UDP.
    pub in_udp: bool,
    /// With GRE: key of the packets to the gateway.
    pub gre: Option<u32>,
    /// Link-local address of gateways on the host's link, if a gateway has sent one.
    pub link_local: Option<Ipv6Addr>,
    /// End of the lifetime.
    pub until: UnixTime,
    /// Last accepted timestamp.
    pub timestamp: Option<UnixTime>,
    /// Last accepted sequence number.
    pub sequence: Option<u16>,
}

/// The lease of a prefix, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// Set if the host has no binding: the prefix stays reserved for it until then.
    pub rests: Option<UnixTime>,
}

/// Requests of an anchor to its driver, in addition to those of every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaWish {
    /// Forward the held first packet of this flow.
    Release(FlowKey),
    /// Drop the held first packet of this flow.
    Refuse(FlowKey),
    /// Find out when these flows last carried a packet; answer with [`LmaInput::LastSent`]. Idle flows are forgotten.
    Inspect(Vec<FlowKey>),
    /// Ask the external scheduler where this flow goes; it answers with [`LmaInput::Place`].
    Decide(FlowKey),
    /// Report to the external scheduler: the flow took another way, has another reason, or gained a possible way.
    Went {
        /// The flow.
        key: FlowKey,
        /// The flow is not on an ordered interface, so the external scheduler may decide again. Its packets are not
        /// held.
        asked: bool,
    },
    /// Report to the external scheduler: the flow was forgotten.
    Ended(FlowKey),
    /// Report to the external scheduler: the state of a host's interface changed.
    Interface {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Its new state.
        now: Presence,
    },
    /// Report to the external scheduler: the state of the link to an interface was reported.
    Link {
        /// The interface.
        link_layer: LinkLayer,
        /// When.
        now: Time,
    },
    /// Find out whether the interface may be registered; answer with [`LmaInput::Authorized`]. The gateway waits.
    Authorize {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Technology of the access.
        access: AccessTechnology,
        /// Requested prefixes; empty: any.
        prefixes: Vec<Prefix>,
    },
    /// A host's interface was registered. `Bound` and `Unbound` are sent only with [`crate::LmaConfig::authorize`].
    Bound {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Technology of the access.
        access: AccessTechnology,
        /// Its prefixes.
        prefixes: Vec<Prefix>,
    },
    /// The registration has ended or was refused.
    Unbound {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Why.
        why: Why,
    },
}

/// State of a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has attached to a gateway, or moved to another.
    There,
    /// It is about to leave, within this time.
    GoingDown(Span),
    /// It stays after all.
    Stays,
    /// It has left.
    Left,
}

/// Outputs of an anchor's machine.
pub type LmaOutput = Output<LmaWish, Report, LmaRecord>;
