//! What a program that decides about flows (paper 3) learns of an anchor, and how it orders: docs/decision.md.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use segue_ip::FlowKey;
use segue_keepalive::{Estimates, State};
use segue_pmip::LinkQuality;
use serde::{Deserialize, Serialize};

/// A flow, as the socket names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowName {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, the host's.
    pub dst: IpAddr,
    /// Source port, or 0.
    #[serde(default)]
    pub sport: u16,
    /// Destination port, or 0.
    #[serde(default)]
    pub dport: u16,
    /// IP protocol.
    pub protocol: u8,
    /// IPv6 flow label of a flow without ports, or 0.
    #[serde(default)]
    pub label: u32,
}

impl From<FlowKey> for FlowName {
    fn from(FlowKey { src, dst, sport, dport, protocol, label }: FlowKey) -> FlowName {
        FlowName { src, dst, sport, dport, protocol, label }
    }
}

impl From<FlowName> for FlowKey {
    fn from(FlowName { src, dst, sport, dport, protocol, label }: FlowName) -> FlowKey {
        FlowKey { src, dst, sport, dport, protocol, label }
    }
}

/// The traffic of a flow towards its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowRate {
    /// Packets.
    pub packets: u64,
    /// Bytes in these packets.
    pub bytes: u64,
    /// Rate between the last two samples, in kbit/s; absent before the first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kbps: Option<f64>,
}

/// An event that programs learn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A host's interface is attached to this gateway. A new connection first receives the existing bindings.
    Binding {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Its binding identifier (BID), which orders refer to.
        bid: u16,
        /// Access Technology Type.
        att: String,
        /// Its prefixes.
        prefixes: Vec<String>,
        /// The gateway.
        proxy_coa: String,
    },
    /// The interface has left the gateway.
    Left {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// The interface is about to leave: its flows have already moved to another binding, if there is one.
    GoingDown {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// Expected time until it leaves, in ms.
        within_ms: f64,
    },
    /// The interface stays after all; cancels [`Event::GoingDown`].
    Stays {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
    },
    /// A new flow, or a flow that has moved to another binding.
    Flow {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// Its differentiated services code point.
        dscp: u8,
        /// The binding it uses, or will use if no decision arrives.
        bid: u16,
        /// The reason: `rule`, `decision` or `moved`.
        why: &'static str,
        /// A decision is asked for. The first packet of a new flow waits up to 20 ms for it.
        asked: bool,
        /// Its traffic so far.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// The traffic of a flow: reported once a second if it carried packets, and less often with very many flows.
    Rate {
        /// The flow.
        flow: FlowName,
        /// The host's identity.
        mn_id: String,
        /// The binding it uses.
        bid: u16,
        /// Its traffic so far.
        #[serde(flatten)]
        carried: FlowRate,
    },
    /// The flow is forgotten: it was idle for too long, no interface of its host can carry it, or the table is full.
    FlowEnded {
        /// The flow.
        flow: FlowName,
    },
    /// The quality of the path to a gateway: reported each second if it is measured.
    Quality {
        /// The gateway.
        proxy_coa: String,
        /// The measured quality.
        #[serde(flatten)]
        quality: QualityStatus,
    },
    /// The state of the link to a host's interface: reported each second if any is known.
    Link {
        /// The host's identity.
        mn_id: String,
        /// Its interface.
        llid: String,
        /// The link's state.
        #[serde(flatten)]
        link: LinkStatus,
    },
    /// An order could not be carried out.
    Refused {
        /// The reason.
        why: String,
    },
}

/// An order of a program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// The connection decides: from this point on it is asked about each new flow.
    Decide {},
    /// The connection only observes.
    Observe {},
    /// Place a flow on this binding of its host.
    Place {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// The same, for a flow that currently uses another binding.
    Move {
        /// The flow.
        flow: FlowName,
        /// The binding.
        bid: u16,
    },
    /// Return a flow to the anchor's own rule.
    Default {
        /// The flow.
        flow: FlowName,
    },
}

impl Event {
    /// The flow whose traffic the event reports, and the place for it.
    pub fn carried_mut(&mut self) -> Option<(FlowKey, &mut FlowRate)> {
        match self {
            Event::Flow { flow, carried, .. } | Event::Rate { flow, carried, .. } => {
                Some(((*flow).into(), carried))
            }
            _ => None,
        }
    }
}

/// The quality of the path to a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QualityStatus {
    /// `starting`, `up` or `down`.
    pub state: String,
    /// Round-trip time in milliseconds, averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Deviation of the one-way delay in milliseconds.
    pub jitter_ms: f64,
    /// Share of packets lost towards the gateway, averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_to: Option<f64>,
    /// The same from the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_from: Option<f64>,
}

impl QualityStatus {
    /// The quality that keepalives have measured.
    #[must_use]
    pub fn of((state, estimates): (State, &Estimates)) -> QualityStatus {
        let first = |all: &[f64]| all.first().copied();
        QualityStatus {
            state: state.name().to_owned(),
            rtt_ms: first(&estimates.rtt_ewma).map(|rtt_s| rtt_s * 1e3),
            jitter_ms: estimates.rtt_jitter / 2.0 * 1e3,
            loss_to: first(&estimates.owl_up),
            loss_from: first(&estimates.owl_down),
        }
    }
}

/// The state of the link to a host's interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Data rate in kbit/s; 65535 stands for that rate or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_kbps: Option<u16>,
    /// Signal in dBm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<i16>,
}

impl LinkStatus {
    /// The known state; `None` if nothing is known.
    #[must_use]
    pub fn of(link: LinkQuality) -> Option<LinkStatus> {
        let known = link != LinkQuality::default();
        let rate_kbps =
            link.rate_kbps.map(|rate| rate.try_into().unwrap_or(LinkQuality::MOST_KBPS));
        known.then_some(LinkStatus { rate_kbps, signal_dbm: link.signal_dbm })
    }
}
