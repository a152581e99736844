//! The quality of paths and links to hosts, in an anchor's status and in events for decision entities.

use segue_keepalive::{Estimates, State};
use segue_pmip::LinkQuality;
use serde::{Deserialize, Serialize};

/// The quality of the path to a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
