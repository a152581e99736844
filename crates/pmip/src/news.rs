//! What either side tells: news for people and pages, and what it refused.

use alloc::collections::BTreeMap;
use core::fmt;

use segue_clock::{Span, Time, UnixTime};
use segue_ip::Prefix;
use segue_wire::mobility::Status;

use crate::{LinkLayer, NodeId, PeerAddress};

/// News of an anchor or a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A host's interface is registered; at an anchor with this gateway, at a gateway with this anchor.
    Registered {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The other end.
        with: PeerAddress,
        /// Its first prefix.
        prefix: Option<Prefix>,
    },
    /// A host's interface is at another gateway now.
    Moved {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The former gateway.
        from: PeerAddress,
        /// The gateway.
        to: PeerAddress,
    },
    /// What is for a host goes another way. Only an anchor says so.
    Handover {
        /// The host.
        node: NodeId,
        /// Why.
        cause: Cause,
        /// The gateway that it went to.
        from: PeerAddress,
        /// The gateway that it goes to.
        to: PeerAddress,
        /// Flows that were placed by themselves and went along.
        flows: usize,
        /// When the anchor took that up.
        at: Time,
    },
    /// A host's interface has left.
    Left {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Why.
        why: Why,
    },
    /// A registration is refused.
    Denied {
        /// The host, if it was named.
        node: Option<NodeId>,
        /// With this status.
        status: Status,
        /// The other end.
        with: PeerAddress,
        /// With TIMESTAMP_MISMATCH: by how much the gateway's clock is off the anchor's, if the answer says so.
        off: Option<Off>,
    },
    /// A gateway that may not register hosts wants to. Only an anchor says so, of each gateway once in a while.
    Stranger {
        /// Its address.
        gateway: PeerAddress,
        /// The host.
        node: NodeId,
    },
    /// A host's interface goes to and fro between two gateways. Only an anchor says so, of each once in a while.
    Twice {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// The gateways.
        gateways: [PeerAddress; 2],
    },
    /// The other end has started anew.
    Restarted {
        /// The other end.
        peer: PeerAddress,
    },
    /// The other end does not answer.
    Silent {
        /// The other end.
        peer: PeerAddress,
    },
    /// The other end answers again.
    Answers {
        /// The other end.
        peer: PeerAddress,
    },
}

/// By how much a clock is off another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// It is ahead.
    Ahead(Span),
    /// It is behind.
    Behind(Span),
}

impl Off {
    /// That of a clock that shows this, while another shows that.
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

/// Why a registration was refused, and what helps, in words.
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

/// Why what is for a host goes another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An interface has moved to another gateway.
    Moved,
    /// An interface has left, and another one takes over.
    Left,
    /// An interface is about to leave, and another one takes over.
    GoingDown,
    /// The gateway of an interface does not answer keepalives, and another interface takes over.
    Unreachable,
    /// Another interface serves flows better.
    Better,
    /// An interface is back, or stays after all, or its gateway answers again, and has again what is its own.
    Back,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 6] = [
        Cause::Moved,
        Cause::Left,
        Cause::GoingDown,
        Cause::Unreachable,
        Cause::Better,
        Cause::Back,
    ];

    /// In a word.
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

/// Why a host's interface is not registered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has detached.
    Detached,
    /// Its lifetime is over.
    Expired,
    /// It does not answer.
    Unreachable,
    /// It was revoked (RFC 5846).
    Revoked,
    /// Another one took its place in a full table.
    Displaced,
    /// The other end refuses it.
    Refused,
    /// Whoever says who hosts are allows it no longer.
    Unauthorized,
}

impl Why {
    /// In a word.
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
    /// It is no message.
    Malformed,
    /// Its checksum is wrong.
    Checksum,
    /// It is from nobody that may send it.
    Stranger,
    /// It came over an access, where only hosts are, and they do not signal.
    FromHost,
    /// It is of a kind that is not served.
    NotServed,
    /// It answers nothing that is open, or something else than was asked.
    Stale,
    /// It ends a registration that there is not, or that another has made; or a host's packet, in a tunnel that does not exist.
    NoBinding,
    /// Nobody has said whether the host may be served.
    Unanswered,
    /// Too many wait.
    Full,
    /// Too many hosts are new at its access.
    Paced,
    /// Another host is at a gateway that forwards everything to one.
    SecondHost,
    /// It does not say which station it is from.
    NoStation,
    /// A registration, refused with this status.
    Denied(Status),
}

impl Refusal {
    /// Its name in counts; of a registration that of its status.
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

/// Refused messages by reason.
pub type Refused = BTreeMap<Refusal, u64>;
