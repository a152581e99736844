//! How well the ways to hosts do, in the status of an anchor and in the messages to programs that decide.

use segue_keepalive::{Estimates, State};
use segue_pmip::LinkQuality;
use serde::{Deserialize, Serialize};

/// How well the way to a gateway does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QualityStatus {
    /// `starting`, `up` or `down`.
    pub state: String,
    /// Round-trip time in milliseconds, averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Deviation of the delay of one way in milliseconds.
    pub jitter_ms: f64,
    /// Share of packets that are lost towards the gateway, averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_to: Option<f64>,
    /// The same from the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_from: Option<f64>,
}

impl QualityStatus {
    /// From what keepalives say.
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

/// What is known of the link to a host's interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Data rate in kbit/s; 65535: that or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_kbps: Option<u16>,
    /// Signal in dBm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<i16>,
}

impl LinkStatus {
    /// If anything is known.
    #[must_use]
    pub fn of(link: LinkQuality) -> Option<LinkStatus> {
        let known = link != LinkQuality::default();
        let rate_kbps =
            link.rate_kbps.map(|rate| rate.try_into().unwrap_or(LinkQuality::MOST_KBPS));
        known.then_some(LinkStatus { rate_kbps, signal_dbm: link.signal_dbm })
    }
}
