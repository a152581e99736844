//! Measurements on links of this node: thresholds, periodic reports, and forecasts of signal loss.

use segue_wire::mih::codes::{
    GenericParameter, Ieee80211Parameter, LinkGoingDownReason, ThresholdAction, ThresholdDirection,
};
use segue_wire::mih::identity::LinkAddress;
use segue_wire::mih::link::{
    Parameter, ParameterConfiguration, ParameterConfigurationStatus, ParameterReport,
    ParameterType, ParameterValue, Threshold,
};

use super::pass::key;
use super::state::Configured;
use super::*;
use crate::event::What;
use crate::forecast::Outlook;

/// Maximum number of configured parameters per link, and of thresholds per parameter.
const CONFIGURED_MAX: usize = 16;
/// Minimum interval of periodic reports.
const INTERVAL_MIN: Span = Span::from_millis(100);

/// True for a signal strength in dBm.
fn is_signal(parameter: &ParameterType) -> bool {
    matches!(
        parameter,
        ParameterType::Generic(GenericParameter::SIGNAL_STRENGTH)
            | ParameterType::Ieee80211(Ieee80211Parameter::RSSI)
    )
}

/// The value as a comparable number.
fn number(parameter: &ParameterType, value: u16) -> i32 {
    if is_signal(parameter) { value.cast_signed().into() } else { value.into() }
}

/// Whether a value crosses a threshold: it lies beyond, and the previous value, if any, did not.
fn crosses(parameter: &ParameterType, before: Option<u16>, value: u16, at: &Threshold) -> bool {
    let [limit, value] = [at.value, value].map(|value| number(parameter, value));
    let beyond = |value: i32| match at.direction {
        ThresholdDirection::ABOVE => value > limit,
        _ => value < limit,
    };
    beyond(value) && !before.is_some_and(|before| beyond(number(parameter, before)))
}

fn report_of(
    parameter: &ParameterType,
    value: u16,
    threshold: Option<Threshold>,
) -> ParameterReport {
    let (parameter, value) = (parameter.clone(), ParameterValue::Number(value));
    ParameterReport { parameter: Parameter { parameter, value }, threshold }
}

impl Mihf {
    /// Handles measurements of a link of this node.
    pub(super) fn measured(
        &mut self,
        now: Time,
        id: &LinkId,
        station: Option<&LinkAddress>,
        values: &[(ParameterType, u16)],
    ) -> Result<(), Refusal> {
        let link = self.links.get_mut(id).filter(|link| link.owner == Some(Owner::Own));
        let link = link.ok_or(Refusal::Link)?;
        let Some(known) = link.stations.get_mut(&key(id, station)) else { return Ok(()) };
        let mut outlook = None;
        let mut reports = Vec::new();
        for (parameter, value) in values {
            let before = known.note(parameter, *value);
            let of_it = link.thresholds.iter_mut().filter(|of| of.parameter == *parameter);
            for configured in of_it {
                configured.thresholds.retain(|(threshold, once)| {
                    let crossed = crosses(parameter, before, *value, threshold);
                    if crossed {
                        reports.push(report_of(parameter, *value, Some(threshold.clone())));
                    }
                    !(crossed && *once)
                });
            }
            if let Some(forecast) = known.forecast.as_mut().filter(|_| is_signal(parameter)) {
                outlook = forecast.sample(now, value.cast_signed()).or(outlook);
            }
        }
        let mut events = Vec::new();
        if !reports.is_empty() {
            events.push(What::Parameters(reports));
        }
        events.extend(outlook.map(|outlook| match outlook {
            Outlook::GoingDown { within_ms } => {
                let reason = LinkGoingDownReason::LINK_PARAMETER_DEGRADING;
                What::GoingDown { within_ms, reason }
            }
            Outlook::Recovered => What::Up,
        }));
        for what in events {
            self.happened(now, Event { link: id.clone(), station: station.cloned(), what })?;
        }
        Ok(())
    }

    /// Configures thresholds and periodic reports of a link of this node.
    pub(super) fn configure(
        &mut self,
        now: Time,
        id: &LinkId,
        all: &[ParameterConfiguration],
    ) -> Vec<ParameterConfigurationStatus> {
        let Some(link) = self.links.get_mut(id) else { return Vec::new() };
        let mut statuses = Vec::new();
        for ParameterConfiguration { parameter, interval_ms, action, thresholds } in all {
            let unused = |of: &Configured| of.thresholds.is_empty() && of.interval.is_none();
            let place = link.thresholds.iter().position(|of| of.parameter == *parameter);
            let place = place.or_else(|| {
                let place = link.thresholds.iter().position(unused)?;
                link.thresholds[place].parameter = parameter.clone();
                Some(place)
            });
            let place = place.or_else(|| {
                (link.thresholds.len() < CONFIGURED_MAX).then(|| {
                    let (parameter, interval) = (parameter.clone(), None);
                    link.thresholds.push(Configured {
                        parameter,
                        interval,
                        thresholds: Vec::new(),
                    });
                    link.thresholds.len() - 1
                })
            });
            let room = place.map(|place| (place, &mut link.thresholds[place]));
            let is_set = |threshold: &Threshold, one: &mut Configured| {
                one.thresholds.retain(|(known, _)| known != threshold);
                let sets = *action != ThresholdAction::CANCEL;
                if sets && one.thresholds.len() >= CONFIGURED_MAX {
                    return false;
                }
                if sets {
                    let once = *action == ThresholdAction::ONE_SHOT;
                    one.thresholds.push((threshold.clone(), once));
                }
                true
            };
            let Some((place, one)) = room else {
                statuses.extend(thresholds.iter().map(|threshold| {
                    let (parameter, threshold) = (parameter.clone(), threshold.clone());
                    ParameterConfigurationStatus { parameter, threshold, configured: false }
                }));
                continue;
            };
            for threshold in thresholds {
                let configured = is_set(threshold, one);
                let (parameter, threshold) = (parameter.clone(), threshold.clone());
                statuses.push(ParameterConfigurationStatus { parameter, threshold, configured });
            }
            let interval = interval_ms.map(|ms| Span::from_millis(ms.into()).max(INTERVAL_MIN));
            one.interval = interval.filter(|_| *action != ThresholdAction::CANCEL);
            let task = Task::Report(id.clone(), place);
            match one.interval {
                Some(interval) => self.timers.set(task, now + interval),
                None => self.timers.cancel(&task),
            }
        }
        statuses
    }

    /// Sends a periodic report.
    pub(super) fn report_regularly(&mut self, now: Time, id: &LinkId, which: usize) {
        let Some(link) = self.links.get(id) else { return };
        let Some(configured) = link.thresholds.get(which) else { return };
        let Some(interval) = configured.interval else { return };
        let parameter = &configured.parameter;
        let values = link.stations.iter().filter_map(|(station, known)| {
            let report = report_of(parameter, known.value(parameter)?, None);
            let station = Some(station.clone()).filter(|station| *station != id.address);
            let what = What::Parameters(Vec::from([report]));
            Some(Event { link: id.clone(), station, what })
        });
        let events: Vec<Event> = values.collect();
        self.timers.set(Task::Report(id.clone(), which), now + interval);
        events.into_iter().for_each(|event| self.pass(now, event, None));
    }
}
