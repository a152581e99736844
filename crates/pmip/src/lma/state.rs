//! What an anchor knows: bindings, hosts, gateways, flows, and messages without an answer.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use segue_clock::{Span, Time};
use segue_ip::{FlowKey, Forward, Prefix};
use segue_mobility::{Retransmission, SequenceOrder, TimestampOrder};
use segue_steering::{Class, PathId, Steering};
use segue_wire::mih::codes::GenericParameter;
use segue_wire::mih::link::{ParameterReport, ParameterType, ParameterValue};
use segue_wire::mobility::option::AccessTechnology;
use segue_wire::mobility::{MobilityOption, RevocationTrigger};

use crate::keepalive::Keepalive;
use crate::message::Update;
use crate::peer::Ends;
use crate::{LinkLayer, NodeId, PeerAddress};

// Kinds of numbers that an anchor gives.
pub(super) const SESSION: usize = 0;
pub(super) const TUNNEL: usize = 1;
pub(super) const REVOCATION: usize = 2;
pub(super) const WAITING: usize = 3;
pub(super) const NOTIFICATION: usize = 4;

/// What is known of a link to a station; what is not is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkQuality {
    /// Data rate in kbit/s.
    pub rate_kbps: Option<u32>,
    /// Signal in dBm.
    pub signal_dbm: Option<i16>,
}

/// What is told of a link holds so long: those who tell do so each second.
const LINK_HOLDS: Span = Span::from_secs(10);

impl Session {
    /// What is known of its link.
    #[must_use]
    pub fn link(&self, now: Time) -> LinkQuality {
        if now < self.link_told + LINK_HOLDS { self.link } else { LinkQuality::default() }
    }
}

impl LinkQuality {
    /// The largest data rate that a report of IEEE 802.21 can state, in kbit/s: the link may be faster.
    pub const MOST_KBPS: u16 = u16::MAX;

    /// Reads a Link_Parameters_Report; `None` if it contains nothing that we use.
    #[must_use]
    pub fn reported(reports: &[ParameterReport]) -> Option<LinkQuality> {
        let mut quality = LinkQuality::default();
        for ParameterReport { parameter, .. } in reports {
            let ParameterValue::Number(value) = parameter.value else { continue };
            match parameter.parameter {
                ParameterType::Generic(GenericParameter::DATA_RATE) => {
                    let at_least = value == LinkQuality::MOST_KBPS;
                    quality.rate_kbps = Some(if at_least { u32::MAX } else { value.into() });
                }
                ParameterType::Generic(GenericParameter::SIGNAL_STRENGTH) => {
                    quality.signal_dbm = Some(value.cast_signed());
                }
                _ => {}
            }
        }
        Some(quality).filter(|quality| *quality != LinkQuality::default())
    }

    /// With what is newer.
    #[must_use]
    pub fn and(self, newer: LinkQuality) -> LinkQuality {
        LinkQuality {
            rate_kbps: newer.rate_kbps.or(self.rate_kbps),
            signal_dbm: newer.signal_dbm.or(self.signal_dbm),
        }
    }
}

/// A binding: one interface of a host, and the gateway where it is. The gateway's address is the peer of its place in the
/// cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// Of the access.
    pub access: AccessTechnology,
    /// What it was given, unlike any other binding's unless it shares.
    pub prefixes: Vec<Prefix>,
    /// Its number among the bindings of the host (BID), not 0.
    pub bid: u16,
    /// Whether it is there.
    pub state: SessionState,
    /// When it came to its gateway.
    pub since: Time,
    /// It is about to leave: until when that is believed.
    pub(super) leaves: Option<Time>,
    /// What was told of its link last, and when.
    pub(super) link: LinkQuality,
    pub(super) link_told: Time,
    /// Since when it is there and not about to leave.
    pub(super) steady: Time,
    pub(super) order: Order,
    /// Its own tunnel, if it has one.
    pub(super) gre: Option<Gre>,
    /// The address that gateways have on the host's link, if one has said so.
    pub(super) link_local: Option<Ipv6Addr>,
    /// What its gateway knows of the host's other interfaces, and what it was told last.
    pub(super) told: Option<Elsewhere>,
    pub(super) asked: Option<Elsewhere>,
    /// Its moves of late.
    pub(super) roams: Roams,
}

/// Moves between the same two gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roams {
    pub(super) between: Option<(PeerAddress, PeerAddress)>,
    pub(super) since: Time,
    pub(super) count: u32,
    /// When somebody was told.
    pub(super) said: Option<Time>,
}

impl Session {
    /// Prefixes of the host's other interfaces that its gateway is known to carry.
    #[must_use]
    pub fn elsewhere(&self) -> &[Prefix] {
        self.told.as_ref().map_or(&[], |told| &told.prefixes)
    }

    /// Whether it is about to leave.
    #[must_use]
    pub fn is_going_down(&self) -> bool {
        self.leaves.is_some()
    }

    /// Whether its gateway carries what is for a prefix.
    pub(super) fn carries(&self, prefix: Prefix) -> bool {
        let told = self.told.as_ref().is_some_and(|told| told.prefixes.contains(&prefix));
        told || self.prefixes.contains(&prefix)
    }
}

/// Whether a host's interface is where its binding says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// It is.
    Active,
    /// It has left; what is for it alone is dropped, and a registration in time finds the binding.
    Leaving,
}

/// What came last, so that nothing older counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) timestamp: TimestampOrder,
    pub(super) sequence: SequenceOrder,
}

/// The tunnel of one binding (RFC 5845).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gre {
    /// Its number.
    pub(super) tunnel: u32,
    /// Keys of what the gateway gets, which it has chosen, and of what it sends.
    pub(super) send: u32,
    pub(super) receive: u32,
}

/// A gateway with bindings.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The number of the tunnel to it.
    pub(super) tunnel: u32,
    pub(super) way: Way,
    /// How well the way there does, if that is measured.
    pub(super) keepalive: Option<Keepalive>,
    /// Keepalives are not answered.
    pub(super) unreachable: bool,
    /// Since when they are, or are not.
    pub(super) since: Time,
}

/// How a gateway is reached over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The UDP port of its messages; over IPv6 0.
    pub(super) port: u16,
    /// That of hosts' packets, where these are in UDP.
    pub(super) data: Option<u16>,
}

/// A revocation that is not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) node: NodeId,
    pub(super) sequence: u16,
    pub(super) trigger: RevocationTrigger,
    /// The binding that ends with it; `None`: it is at another gateway already.
    pub(super) session: Option<u32>,
    pub(super) again: Retransmission,
    pub(super) to: PeerAddress,
    /// How the gateway was reached when it had a binding: it may have none any more.
    pub(super) ends: Ends,
    pub(super) options: Vec<MobilityOption>,
}

/// A host with bindings.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) sessions: BTreeSet<u32>,
    /// All that it has, and for which interface they were leased; while it has a binding it keeps them all.
    pub(super) prefixes: BTreeMap<Prefix, LinkLayer>,
    /// Flows to it that were placed by themselves.
    pub(super) flows: BTreeSet<(Time, FlowKey)>,
    /// Which ways its flows go, if that is by quality.
    pub(super) steering: Option<Box<Steering>>,
    /// The ways of classes where flows were led last.
    pub(super) settled: [Option<PathId>; Class::ALL.len()],
    /// What the node was given for it.
    pub(super) given: Vec<Forward>,
}

/// What a gateway is to know of a host's other interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Prefixes that it is to carry and not to advertise.
    pub(super) prefixes: Vec<Prefix>,
    /// An access of the host is gone: the gateway is to advertise itself as the better router, since a stock host goes on
    /// sending into an access without a carrier.
    pub(super) prefer: bool,
}

/// A notification that is not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Notification {
    pub(super) sequence: u16,
    pub(super) session: u32,
    pub(super) says: Elsewhere,
    pub(super) again: Retransmission,
    pub(super) to: PeerAddress,
    pub(super) options: Vec<MobilityOption>,
}

impl Notification {
    /// Whether it is about this binding.
    pub(super) fn is_of(&self, session: u32) -> bool {
        self.session == session
    }
}

/// A registration that waits for the end of this binding.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) session: u32,
    pub(super) update: Update,
}

/// How far an update has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has just come.
    Came,
    /// Its host may be registered.
    Authorized,
    /// It has waited for the end of another binding, too.
    Waited,
}

/// A registration about which the driver is asked.
#[derive(Clone, Debug)]
pub(super) struct Unauthorized {
    /// When it was asked.
    pub(super) asked: Time,
    pub(super) update: Update,
}

/// A flow of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host.
    pub node: NodeId,
    /// The binding that it goes to, by its number.
    pub session: u32,
    /// Why there.
    pub why: Placed,
    /// When it was seen first.
    pub since: Time,
    /// Its differentiated services code point.
    pub dscp: u8,
    /// Where somebody has ordered it to go. The order holds while that interface is away.
    pub(super) ordered: Option<Ordered>,
    /// How many bindings could carry it when that was looked at last.
    pub(super) choices: usize,
    /// The tunnel that it was bound to.
    pub(super) tunnel: Option<u32>,
}

impl Flow {
    /// The interface where somebody has ordered it to go, also while that is away.
    #[must_use]
    pub fn ordered(&self) -> Option<&LinkLayer> {
        self.ordered.as_ref().map(|ordered| &ordered.link_layer)
    }
}

/// The interface that somebody has ordered for a flow: by its binding, and by its name, since it may have another binding when it
/// is back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub(super) session: u32,
    pub(super) link_layer: LinkLayer,
}

/// Why a flow goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// By the anchor's own rule.
    Rule,
    /// Somebody decided so.
    Decision,
    /// Where it was, or where somebody has ordered it to go, cannot be reached.
    Moved,
}

impl Placed {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placed::Rule => "rule",
            Placed::Decision => "decision",
            Placed::Moved => "moved",
        }
    }
}
