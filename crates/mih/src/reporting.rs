//! Has links report regularly how good they are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use segue_clock::{Span, Time};
use segue_wire::mih::codes::{EventList, GenericParameter, ThresholdAction};
use segue_wire::mih::identity::LinkId;
use segue_wire::mih::link::{ParameterConfiguration, ParameterType};

use crate::{Command, Interest, Mihf, MihfInput};

/// Time between reports of links in milliseconds.
const REPORTS_MS: u16 = 1_000;
/// How often links are configured again: a function that restarts forgets it.
const AGAIN: Span = Span::from_secs(30);

/// The links that were configured, and when.
#[derive(Debug, Default)]
pub struct Reporting {
    told: BTreeMap<LinkId, Time>,
    number: u64,
}

impl Reporting {
    /// The interest in the reports of all links, which the machine needs in its configuration.
    #[must_use]
    pub fn interest() -> Interest {
        Interest { link: None, events: EventList::LINK_PARAMETERS_REPORT }
    }

    /// Commands for the links of a machine that were not configured lately.
    pub fn turn(&mut self, now: Time, machine: &Mihf) -> Vec<MihfInput> {
        let links = machine.links();
        self.told.retain(|link, at| links.contains_key(link) && now.since(*at) < AGAIN);
        let untold: Vec<LinkId> =
            links.keys().filter(|link| !self.told.contains_key(link)).cloned().collect();
        let command = |link: LinkId| {
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
            MihfInput::Command { number: self.number, command }
        };
        untold.into_iter().map(command).collect()
    }
}
