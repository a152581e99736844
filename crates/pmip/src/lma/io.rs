//! What goes into an anchor's machine, and comes out of it.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{Span, UnixTime};
use segue_ip::{FlowKey, Output, Prefix};
use segue_wire::mobility::option::AccessTechnology;

use super::state::LinkQuality;
use crate::news::Why;
use crate::{LinkLayer, NodeId, PeerAddress, Report};

/// What an anchor's operator orders, and what its driver tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaInput {
    /// It is this time of day: told now and then, and when somebody has set the clock.
    TimeOfDay(UnixTime),
    /// End a host's bindings (RFC 5846).
    Revoke(NodeId),
    /// The first packet of a flow waits for a place to go to.
    Flow {
        /// The flow.
        key: FlowKey,
        /// Its differentiated services code point.
        dscp: u8,
    },
    /// Nothing has come of these flows for a while.
    FlowsEnded(Vec<FlowKey>),
    /// A flow goes to the binding of its host with this number (BID); `None`: where the own rule says.
    Place {
        /// The flow.
        key: FlowKey,
        /// The binding.
        bid: Option<u16>,
    },
    /// Whether somebody decides where flows go; if not, the own rule does.
    Deciding(bool),
    /// A host's interface is about to leave the gateway where it is: what is for it goes another way, if there is one, until it
    /// has left or does not.
    GoingDown {
        /// The interface.
        link_layer: LinkLayer,
        /// Within this time.
        within: Span,
    },
    /// It does not leave after all.
    Stays {
        /// The interface.
        link_layer: LinkLayer,
    },
    /// The link to a host's interface is so good, in what is known of it.
    Link {
        /// The interface.
        link_layer: LinkLayer,
        /// What is known.
        quality: LinkQuality,
    },
    /// Whether a host's interface may be registered, or still be ([`LmaWish::Authorize`]).
    Authorized {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Whether it may.
        verdict: Authorization,
    },
}

/// Whether a host's interface may be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// It may, with these prefixes; none: any.
    Allowed(Vec<Prefix>),
    /// It may not.
    Refused,
    /// Nobody has said so.
    Unanswered,
}

/// What an anchor stores. A later record of the same key takes its place; `None` takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaRecord {
    /// A binding, by its number.
    Session(u32, Option<StoredSession>),
    /// Whose a prefix is.
    Lease(Prefix, Option<StoredLease>),
}

/// A binding as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// Of the access.
    pub access: AccessTechnology,
    /// What it was given.
    pub prefixes: Vec<Prefix>,
    /// Its number among those of the host.
    pub bid: u16,
    /// Whether its host has left.
    pub leaving: bool,
    /// The gateway.
    pub gateway: PeerAddress,
    /// The UDP port of its messages, over IPv4.
    pub port: u16,
    /// What is exchanged with it is in UDP.
    pub in_udp: bool,
    /// With GRE: the key of what the gateway gets.
    pub gre: Option<u32>,
    /// The address that gateways have on the host's link, if one has said so.
    pub link_local: Option<Ipv6Addr>,
    /// When it ends.
    pub until: UnixTime,
    /// The last timestamp that was accepted.
    pub timestamp: Option<UnixTime>,
    /// The last sequence number that was accepted.
    pub sequence: Option<u16>,
}

/// Whose a prefix is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// The host has no binding, and the prefix rests for it until then.
    pub rests: Option<UnixTime>,
}

/// What an anchor asks of its driver, beside what every role does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LmaWish {
    /// The first packet of this flow may go where the flow is bound to.
    Release(FlowKey),
    /// It goes nowhere.
    Refuse(FlowKey),
    /// Ask who decides where this flow goes, and say it ([`LmaInput::Place`]).
    Decide(FlowKey),
    /// A flow goes another way than before, or for another reason, or could go more ways: whoever decides is told.
    Went {
        /// The flow.
        key: FlowKey,
        /// Nobody's order says where it goes: who decides is asked again. It does not wait for that.
        asked: bool,
    },
    /// A flow is forgotten: whoever decides is told.
    Ended(FlowKey),
    /// What has become of a host's interface: whoever decides is told.
    Interface {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// What.
        now: Presence,
    },
    /// Find out whether this may be registered, and say it ([`LmaInput::Authorized`]). Its gateway waits.
    Authorize {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Of the access.
        access: AccessTechnology,
        /// Prefixes that it asks for; none: any.
        prefixes: Vec<Prefix>,
    },
    /// A host's interface is registered. Only a driver that is asked is told this, and what follows.
    Bound {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Of the access.
        access: AccessTechnology,
        /// Its prefixes.
        prefixes: Vec<Prefix>,
    },
    /// It is not, or not any more.
    Unbound {
        /// The host.
        node: NodeId,
        /// Its interface.
        link_layer: LinkLayer,
        /// Why.
        why: Why,
    },
}

/// What has become of a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is at a gateway, and was not, or was at another.
    There,
    /// It is about to leave, within this time.
    GoingDown(Span),
    /// It does not leave after all.
    Stays,
    /// It has left.
    Left,
}

/// What an anchor asks of its driver.
pub type LmaOutput = Output<LmaWish, Report, LmaRecord>;
