//! How well the ways to hosts do, as an anchor's daemon says and hears it: keepalives of gateways in the status and to
//! whoever decides, and what functions of IEEE 802.21 report of links.

use std::collections::BTreeMap;

use segue_clock::{Span, Time};
use segue_keepalive::{Estimates, State};
use segue_linux::clock::monotonic;
use segue_mih::{Command, Interest, MihfInput};
use segue_pmip::LinkQuality;
use segue_wire::mih::codes::{EventList, GenericParameter, ThresholdAction};
use segue_wire::mih::identity::LinkId;
use segue_wire::mih::link::{
    ParameterConfiguration, ParameterReport, ParameterType, ParameterValue,
};
use serde::{Deserialize, Serialize};

use crate::mih::listener::Listener;

/// Time between reports of links in milliseconds.
const REPORTS_MS: u16 = 1_000;
/// How often links are told again to report: who has started anew has forgotten it.
const AGAIN: Span = Span::from_secs(30);
/// The largest data rate that a report can say, in kbit/s: the link may be faster.
const MOST_KBPS: u16 = u16::MAX;

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
        let rate_kbps = link.rate_kbps.map(|rate| rate.try_into().unwrap_or(MOST_KBPS));
        known.then_some(LinkStatus { rate_kbps, signal_dbm: link.signal_dbm })
    }
}

/// What an anchor hears of all links, beside who comes and goes: how good they are.
#[must_use]
pub fn interest() -> Interest {
    Interest { link: None, events: EventList::LINK_PARAMETERS_REPORT }
}

/// What a report says of a link; `None`: nothing that counts.
#[must_use]
pub fn reported(reports: &[ParameterReport]) -> Option<LinkQuality> {
    let mut quality = LinkQuality::default();
    for ParameterReport { parameter, .. } in reports {
        let ParameterValue::Number(value) = parameter.value else { continue };
        match parameter.parameter {
            ParameterType::Generic(GenericParameter::DATA_RATE) => {
                let at_least = value == MOST_KBPS;
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

/// Has links report how good they are.
#[derive(Debug, Default)]
pub struct Reporting {
    told: BTreeMap<LinkId, Time>,
    number: u64,
}

impl Reporting {
    /// Tells those that were not told lately.
    pub fn turn(&mut self, listener: &mut Listener) {
        let now = monotonic();
        let links = listener.machine().links();
        self.told.retain(|link, at| links.contains_key(link) && now.since(*at) < AGAIN);
        let untold: Vec<LinkId> =
            links.keys().filter(|link| !self.told.contains_key(link)).cloned().collect();
        for link in untold {
            self.told.insert(link.clone(), now);
            self.number += 1;
            let configuration = |parameter| ParameterConfiguration {
                parameter: ParameterType::Generic(parameter),
                interval_ms: Some(REPORTS_MS),
                action: ThresholdAction::NORMAL,
                thresholds: Vec::new(),
            };
            let wanted = [GenericParameter::DATA_RATE, GenericParameter::SIGNAL_STRENGTH];
            let parameters = wanted.map(configuration).to_vec();
            let command = Command::ConfigureThresholds { link, parameters };
            listener.order(MihfInput::Command { number: self.number, command });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_wire::mih::link::Parameter;

    #[test]
    fn the_largest_rate_that_a_report_can_say_is_no_bound() {
        let report = |parameter, value| ParameterReport {
            parameter: Parameter {
                parameter: ParameterType::Generic(parameter),
                value: ParameterValue::Number(value),
            },
            threshold: None,
        };
        let rate = |value| reported(&[report(GenericParameter::DATA_RATE, value)]);
        assert_eq!(rate(54_000).unwrap().rate_kbps, Some(54_000));
        assert_eq!(rate(65_535).unwrap().rate_kbps, Some(u32::MAX));
        assert_eq!(LinkStatus::of(rate(65_535).unwrap()).unwrap().rate_kbps, Some(65_535));
        let signal = report(GenericParameter::SIGNAL_STRENGTH, (-61i16).cast_unsigned());
        assert_eq!(reported(&[signal]).unwrap().signal_dbm, Some(-61));
        assert_eq!(reported(&[report(GenericParameter::SINR, 12)]), None);
    }
}
