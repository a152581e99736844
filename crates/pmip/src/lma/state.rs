//! State of an anchor: bindings, hosts, gateways, flows, and messages that await an answer.

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

/// Time between inspections of flows.
pub(super) const INSPECTION: Span = Span::from_secs(1);

// Kinds of numbers that an anchor allocates.
pub(super) const SESSION: usize = 0;
pub(super) const TUNNEL: usize = 1;
pub(super) const REVOCATION: usize = 2;
pub(super) const WAITING: usize = 3;
pub(super) const NOTIFICATION: usize = 4;

/// Quality of the link to a station; `None` for unknown values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkQuality {
    /// Data rate in kbit/s.
    pub rate_kbps: Option<u32>,
    /// Signal in dBm.
    pub signal_dbm: Option<i16>,
}

/// Validity of a link report; functions report once per second.
const LINK_HOLDS: Span = Span::from_secs(10);

impl Session {
    /// The current quality of its link; unknown if the last report has expired.
    #[must_use]
    pub fn link(&self, now: Time) -> LinkQuality {
        if now < self.link_told + LINK_HOLDS { self.link } else { LinkQuality::default() }
    }
}

impl LinkQuality {
    /// Maximum data rate that an IEEE 802.21 report can state, in kbit/s. A link that reports it may be faster.
    pub const MOST_KBPS: u16 = u16::MAX;

    /// Reads a Link_Parameters_Report; `None` if it contains no parameter that we use.
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

    /// Combines two reports; `newer` takes precedence.
    #[must_use]
    pub fn and(self, newer: LinkQuality) -> LinkQuality {
        LinkQuality {
            rate_kbps: newer.rate_kbps.or(self.rate_kbps),
            signal_dbm: newer.signal_dbm.or(self.signal_dbm),
        }
    }
}

/// A binding of one interface of a host to a gateway. The gateway's address is the peer of the binding's cache entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The host.
    pub node: NodeId,
    /// Its interface.
    pub link_layer: LinkLayer,
    /// Type of the access.
    pub access: AccessTechnology,
    /// Assigned prefixes. No other binding has them, unless it shares them.
    pub prefixes: Vec<Prefix>,
    /// Number among the bindings of the host (BID), never 0.
    pub bid: u16,
    /// Attached or leaving.
    pub state: SessionState,
    /// When the interface attached to its gateway.
    pub since: Time,
    /// Set while the interface is predicted to leave: until when the prediction is valid.
    pub(super) leaves: Option<Time>,
    /// The last report about its link, and when it arrived.
    pub(super) link: LinkQuality,
    pub(super) link_told: Time,
    /// When the interface last attached, or when a prediction that it leaves was last cancelled.
    pub(super) steady: Time,
    pub(super) order: Order,
    /// The binding's own tunnel (GRE), if it has one.
    pub(super) gre: Option<Gre>,
    /// Link-local address of gateways on the host's link, if a gateway has reported one.
    pub(super) link_local: Option<Ipv6Addr>,
    /// The host's other interfaces: as the gateway last acknowledged them, and as last sent to it.
    pub(super) told: Option<Elsewhere>,
    pub(super) asked: Option<Elsewhere>,
    /// Recent moves.
    pub(super) roams: Roams,
}

/// Repeated moves between the same two gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roams {
    pub(super) between: Option<(PeerAddress, PeerAddress)>,
    pub(super) since: Time,
    pub(super) count: u32,
    /// When the moves were last reported.
    pub(super) said: Option<Time>,
}

impl Session {
    /// Prefixes of the host's other interfaces that the gateway has acknowledged to carry.
    #[must_use]
    pub fn elsewhere(&self) -> &[Prefix] {
        self.told.as_ref().map_or(&[], |told| &told.prefixes)
    }

    /// Returns true while the interface is predicted to leave.
    #[must_use]
    pub fn is_going_down(&self) -> bool {
        self.leaves.is_some()
    }

    /// Returns true if the gateway carries packets for a prefix.
    pub(super) fn carries(&self, prefix: Prefix) -> bool {
        let told = self.told.as_ref().is_some_and(|told| told.prefixes.contains(&prefix));
        told || self.prefixes.contains(&prefix)
    }
}

/// State of the interface that a binding describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Attached.
    Active,
    /// Detached. Packets that only this binding could carry are dropped; a registration within MinDelayBeforeBCEDelete
    /// reuses the binding.
    Leaving,
}

/// The last accepted order values, to reject older messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) timestamp: TimestampOrder,
    pub(super) sequence: SequenceOrder,
}

/// The GRE tunnel of one binding (RFC 5845).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gre {
    /// Number of the tunnel.
    pub(super) tunnel: u32,
    /// Keys: of packets to the gateway, chosen by the gateway, and of packets from it.
    pub(super) send: u32,
    pub(super) receive: u32,
}

/// A gateway with bindings.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Number of the tunnel to it.
    pub(super) tunnel: u32,
    pub(super) way: Way,
    /// Measures the path to the gateway, if configured.
    pub(super) keepalive: Option<Keepalive>,
    /// Keepalives are unanswered.
    pub(super) unreachable: bool,
    /// When `unreachable` last changed.
    pub(super) since: Time,
}

/// How to reach a gateway over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// UDP port for its messages; 0 over IPv6.
    pub(super) port: u16,
    /// UDP port for the hosts' packets, if these are encapsulated in UDP.
    pub(super) data: Option<u16>,
}

/// An unacknowledged revocation.
#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) node: NodeId,
    pub(super) sequence: u16,
    pub(super) trigger: RevocationTrigger,
    /// The binding that ends with the revocation; `None` if it has already moved to another gateway.
    pub(super) session: Option<u32>,
    pub(super) since: Time,
    pub(super) again: Retransmission,
    pub(super) to: PeerAddress,
    /// How to reach the gateway, stored because it may have no other binding.
    pub(super) ends: Ends,
    pub(super) options: Vec<MobilityOption>,
}

/// A host with bindings.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) sessions: BTreeSet<u32>,
    /// All its prefixes, each with the interface that it was leased for. The host keeps all of them while it has a
    /// binding.
    pub(super) prefixes: BTreeMap<Prefix, LinkLayer>,
    /// Flows to the host that were placed individually, by time of arrival.
    pub(super) flows: BTreeSet<(Time, FlowKey)>,
    /// Chooses ways for its flows, with the schedule by quality.
    pub(super) steering: Option<Box<Steering>>,
    /// The way of each class that its flows were last moved to.
    pub(super) settled: [Option<PathId>; Class::ALL.len()],
    /// Forwarding entries of the node for this host.
    pub(super) given: Vec<Forward>,
}

/// State of a host's other interfaces, for a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Prefixes that the gateway carries but does not advertise.
    pub(super) prefixes: Vec<Prefix>,
    /// Set after the host has lost an access: the gateway advertises a higher router preference, since a stock host
    /// keeps sending into an access without a carrier.
    pub(super) prefer: bool,
}

/// An unacknowledged notification.
#[derive(Clone, Debug)]
pub(super) struct Notification {
    /// The host that it is about.
    pub(super) node: NodeId,
    pub(super) sequence: u16,
    pub(super) session: u32,
    pub(super) says: Elsewhere,
    pub(super) again: Retransmission,
    pub(super) to: PeerAddress,
    pub(super) options: Vec<MobilityOption>,
}

impl Notification {
    /// True if the notification is about this binding.
    pub(super) fn is_of(&self, session: u32) -> bool {
        self.session == session
    }
}

/// A registration that waits until this binding has ended.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) session: u32,
    pub(super) update: Update,
}

/// Progress of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Just received.
    Came,
    /// The host is authorized.
    Authorized,
    /// It has also waited for the end of another binding.
    Waited,
}

/// A registration that waits for the driver's authorization.
#[derive(Clone, Debug)]
pub(super) struct Unauthorized {
    /// When the driver was asked.
    pub(super) asked: Time,
    pub(super) update: Update,
}

/// A flow of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host.
    pub node: NodeId,
    /// Number of the binding that carries it.
    pub session: u32,
    /// The reason for this binding.
    pub why: Placed,
    /// When its first packet arrived.
    pub since: Time,
    /// Differentiated services code point (DSCP).
    pub dscp: u8,
    /// The interface that the external scheduler ordered. The order remains valid while that interface is detached.
    pub(super) ordered: Option<Ordered>,
    /// Number of bindings that could carry it at the last check.
    pub(super) choices: usize,
    /// The tunnel of its forwarding entry, if it has one.
    pub(super) tunnel: Option<u32>,
}

impl Flow {
    /// The interface that the external scheduler ordered, even while that is detached.
    #[must_use]
    pub fn ordered(&self) -> Option<&LinkLayer> {
        self.ordered.as_ref().map(|ordered| &ordered.link_layer)
    }
}

/// The ordered interface of a flow: its binding, and its link-layer identifier, since it may have a different binding
/// when it attaches again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub(super) session: u32,
    pub(super) link_layer: LinkLayer,
}

/// Why a flow uses its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The anchor's schedule chose it.
    Rule,
    /// The external scheduler chose it.
    Decision,
    /// The flow's previous or ordered interface is unreachable.
    Moved,
}

impl Placed {
    /// Name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placed::Rule => "rule",
            Placed::Decision => "decision",
            Placed::Moved => "moved",
        }
    }
}
