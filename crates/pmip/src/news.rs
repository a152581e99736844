//! Reports for users, and the reasons why messages were refused.

use alloc::collections::BTreeMap;
use core::fmt;

use segue_clock::{Span, Time, UnixTime};
use segue_ip::Prefix;
use segue_wire::mobility::Status;

use crate::{LinkLayer, NodeId, PeerAddress};

/// An event that an anchor or a gateway reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A host's interface has been registered. `with` is the gateway in an anchor's report, and the anchor in a
    /// gateway's.
    Registered {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The peer.
        with: PeerAddress,
        /// The first prefix of the interface.
        prefix: Option<Prefix>,
    },
    /// A host's interface has moved to another gateway.
    Moved {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The previous gateway.
        from: PeerAddress,
        /// The new gateway.
        to: PeerAddress,
    },
    /// Traffic to a host takes another way. Reported by anchors only.
    Handover {
        /// The host.
        node: NodeId,
        /// Why.
        cause: Cause,
        /// The previous gateway.
        from: PeerAddress,
        /// The new gateway.
        to: PeerAddress,
        /// Number of individually placed flows that moved.
        flows: usize,
        /// When the anchor handled the event.
        at: Time,
    },
    /// A host's interface is no longer registered.
    Left {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Why.
        why: Why,
    },
    /// A registration was refused.
    Denied {
        /// The host, if the update named one.
        node: Option<NodeId>,
        /// Status of the acknowledgement.
        status: Status,
        /// The peer.
        with: PeerAddress,
        /// With TIMESTAMP_MISMATCH: offset of the gateway's clock from the anchor's, if the acknowledgement carries the
        /// anchor's time.
        off: Option<Off>,
    },
    /// A gateway that is not configured tries to register a host. Reported by anchors only, at most once an hour for
    /// each gateway.
    Stranger {
        /// The gateway.
        gateway: PeerAddress,
        /// The host.
        node: NodeId,
    },
    /// A host's interface moves back and forth between two gateways, as if two machines had the same address. Reported
    /// by anchors only, at most once an hour for each interface.
    Twice {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The two gateways.
        gateways: [PeerAddress; 2],
    },
    /// The peer has restarted.
    Restarted {
        /// The peer.
        peer: PeerAddress,
    },
    /// The peer does not answer.
    Silent {
        /// The peer.
        peer: PeerAddress,
    },
    /// The peer answers again.
    Answers {
        /// The peer.
        peer: PeerAddress,
    },
}

/// Offset of one clock from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// Ahead by this time.
    Ahead(Span),
    /// Behind by this time.
    Behind(Span),
}

impl Off {
    /// Offset of the clock that shows `this` from the one that shows `that`.
    #[must_use]
    pub fn of(this: UnixTime, that: UnixTime) -> Off {
        match this >= that {
            true => Off::Ahead(this.since(that)),
            false => Off::Behind(that.since(this)),
        }
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Off::Ahead(by) | Off::Behind(by)) = self;
        let word = if matches!(self, Off::Ahead(_)) { "ahead of" } else { "behind" };
        write!(f, "{:.1} s {word}", by.as_secs_f64())
    }
}

/// Explains a status in words, with a remedy where there is one.
fn words(status: Status) -> &'static str {
    match status {
        Status::REASON_UNSPECIFIED => "the anchor does not say why",
        Status::ADMINISTRATIVELY_PROHIBITED => "the host is at another gateway by now",
        Status::INSUFFICIENT_RESOURCES => {
            "the anchor has no room: see max_bindings, max_tunnels and pool"
        }
        Status::PROXY_REG_NOT_ENABLED => {
            "the anchor, or its RADIUS server, does not serve this host"
        }
        Status::NOT_LMA_FOR_THIS_MOBILE_NODE => "the anchor's `nodes` do not list this host",
        Status::MAG_NOT_AUTHORIZED_FOR_PROXY_REG => {
            "the anchor's `gateways` do not list this gateway: add its proxy_coa there"
        }
        Status::NOT_AUTHORIZED_FOR_HOME_NETWORK_PREFIX => "the host may not have this prefix",
        Status::TIMESTAMP_MISMATCH => "the clocks of gateway and anchor differ: set both, by NTP",
        Status::TIMESTAMP_LOWER_THAN_PREV_ACCEPTED => "a later registration has come already",
        Status::SEQUENCE_OUT_OF_WINDOW => "a registration with a higher number has come already",
        Status::BCE_PBU_PREFIX_SET_DO_NOT_MATCH => "the host has other prefixes at the anchor",
        Status::MISSING_HOME_NETWORK_PREFIX_OPTION => "it names no prefix",
        Status::MISSING_MN_IDENTIFIER_OPTION => "it names no host",
        Status::MISSING_HANDOFF_INDICATOR_OPTION => "it does not say how the host came",
        Status::MISSING_ACCESS_TECH_TYPE_OPTION => "it does not say over which kind of access",
        Status::GRE_KEY_OPTION_REQUIRED => {
            "the anchor wants GRE: set encapsulation = \"gre\" at the gateway"
        }
        other => other.name().unwrap_or("for a reason that is not known here"),
    }
}

/// Why traffic to a host takes another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The interface has moved to another gateway.
    Moved,
    /// The interface has left, and another one takes over.
    Left,
    /// The interface is about to leave, and another one takes over.
    GoingDown,
    /// The interface's gateway does not answer keepalives, and another interface takes over.
    Unreachable,
    /// Another interface serves the flows better.
    Better,
    /// The interface is back or stays after all, or its gateway answers again: the interface takes its own traffic
    /// back.
    Back,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 6] = [
        Cause::Moved,
        Cause::Left,
        Cause::GoingDown,
        Cause::Unreachable,
        Cause::Better,
        Cause::Back,
    ];

    /// Short name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Moved => "moved",
            Cause::Left => "left",
            Cause::GoingDown => "going_down",
            Cause::Unreachable => "unreachable",
            Cause::Better => "better",
            Cause::Back => "back",
        }
    }
}

/// Why a host's interface is no longer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The interface has detached.
    Detached,
    /// The lifetime has ended.
    Expired,
    /// The host does not answer.
    Unreachable,
    /// The anchor revoked the binding (RFC 5846).
    Revoked,
    /// Another binding took over: the table was full, or the host registered the same prefixes from another interface.
    Displaced,
    /// The peer refused the registration.
    Refused,
    /// The authority for host identities withdrew its permission.
    Unauthorized,
}

impl Why {
    /// Short name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Why::Detached => "detached",
            Why::Expired => "expired",
            Why::Unreachable => "unreachable",
            Why::Revoked => "revoked",
            Why::Displaced => "displaced",
            Why::Refused => "refused",
            Why::Unauthorized => "unauthorized",
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Registered { node, link_layer, with, prefix } => {
                write!(f, "{node} ({link_layer}) is registered with {with}")?;
                prefix.map_or(Ok(()), |prefix| write!(f, " and has {prefix}"))
            }
            Report::Moved { node, link_layer, from, to } => {
                write!(f, "{node} ({link_layer}) moves from {from} to {to}")
            }
            Report::Handover { node, cause, from, to, flows, .. } => {
                let cause = cause.name();
                write!(f, "{node}: from {from} to {to} ({cause}), flows that were placed: {flows}")
            }
            Report::Left { node, link_layer, why } => {
                write!(f, "{node} ({link_layer}) is not registered any more: {}", why.name())
            }
            Report::Denied { node, status, with, off } => {
                write!(f, "{with}: registration")?;
                node.as_ref().map_or(Ok(()), |node| write!(f, " of {node}"))?;
                write!(f, " refused: ")?;
                match off {
                    Some(off) => write!(
                        f,
                        "the gateway's clock is {off} the anchor's: set both, by NTP, or raise the anchor's timestamp_window"
                    ),
                    None => f.write_str(words(*status)),
                }
            }
            Report::Stranger { gateway, node } => write!(
                f,
                "{gateway} wants to register {node}, and `gateways` does not list it: if it is yours, add \"{}\" there",
                gateway.address
            ),
            Report::Twice { node, link_layer, gateways: [one, other] } => write!(
                f,
                "{node}: {link_layer} goes to and fro between {one} and {other}: two machines seem to have this address (a copied \
                 virtual machine has its original's)"
            ),
            Report::Restarted { peer } => write!(f, "{peer} has started anew"),
            Report::Silent { peer } => write!(f, "{peer} does not answer"),
            Report::Answers { peer } => write!(f, "{peer} answers again"),
        }
    }
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Cannot be parsed.
    Malformed,
    /// The checksum is wrong.
    Checksum,
    /// The sender is not an allowed peer.
    Stranger,
    /// It arrived on an access link. Only hosts are there, and hosts send no mobility signalling.
    FromHost,
    /// A message type that this role does not serve.
    NotServed,
    /// It answers no pending request, does not match its request, or was overtaken by a newer message.
    Stale,
    /// It ends a binding that does not exist or belongs to another gateway; or it is a host's packet in an unknown
    /// tunnel.
    NoBinding,
    /// The driver could not find out whether the host may be registered.
    Unanswered,
    /// A table or queue is full.
    Full,
    /// Rate limit: too many new hosts at the access.
    Paced,
    /// A second host at a gateway that forwards everything to one ([`crate::MagConfig::forward_all`]).
    SecondHost,
    /// A router solicitation whose link-layer address is not an Ethernet address.
    NoStation,
    /// A registration refused with this status.
    Denied(Status),
}

impl Refusal {
    /// Name in counters; for a denied registration, the name of its status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Checksum => "checksum",
            Refusal::Stranger => "stranger",
            Refusal::FromHost => "from_host",
            Refusal::NotServed => "not_served",
            Refusal::Stale => "stale",
            Refusal::NoBinding => "no_binding",
            Refusal::Unanswered => "unanswered",
            Refusal::Full => "full",
            Refusal::Paced => "paced",
            Refusal::SecondHost => "second_host",
            Refusal::NoStation => "no_station",
            Refusal::Denied(status) => status.name().unwrap_or("denied"),
        }
    }
}

/// Counts of refused messages by reason.
pub type Refused = BTreeMap<Refusal, u64>;
