//! An operator's commands to links (MIH_CS), as the control socket carries them.

use segue_mih::{Action, Command, CommandAnswer, Mihf};
use segue_wire::mih::codes::{
    DeviceStatesRequest, GenericParameter, Ieee80211Parameter, LinkActionAttributes,
    LinkActionResult, LinkActionType, LinkDescriptorsRequest, LinkStatesRequest, Status,
    ThresholdAction, ThresholdDirection,
};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::{
    LinkStatus, LinkStatusRequest, ParameterConfiguration, ParameterType, ParameterValue, Threshold,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::source::mac_of;
use super::{Words, owner_of, text};
use crate::control::Response;

/// Most pending commands.
pub(super) const COMMANDS_MAX: usize = 64;

/// A request to a function, or to a link service access point about its own links.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// MIH_Link_Get_Parameters.
    Get {
        /// The link's address.
        link: String,
        /// The parameters to read.
        parameters: Vec<ParameterKey>,
    },
    /// MIH_Link_Configure_Thresholds.
    Threshold {
        /// The link's address.
        link: String,
        /// The parameter.
        parameter: ParameterKey,
        /// The thresholds.
        thresholds: Vec<ThresholdKey>,
        /// The operation on the thresholds.
        how: HowKey,
        /// Interval of regular reports in ms; `None` for no regular reports.
        every_ms: Option<u16>,
    },
    /// MIH_Link_Actions.
    Act {
        /// The link's address.
        link: String,
        /// The action.
        action: ActionKey,
        /// The station that it concerns.
        station: Option<String>,
        /// Delay in ms.
        after_ms: u16,
    },
}

/// A parameter of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ParameterKey {
    /// Strength of the signal, dBm
    Signal,
    /// RSSI of the beacon channel, dBm
    Rssi,
    /// Data rate, kbit/s
    DataRate,
    /// Signal over interference plus noise, dB
    Sinr,
    /// Throughput, kbit/s
    Throughput,
    /// Packet error rate
    PacketErrorRate,
}

impl ParameterKey {
    /// All of them.
    pub const ALL: [ParameterKey; 6] = [
        ParameterKey::Signal,
        ParameterKey::Rssi,
        ParameterKey::DataRate,
        ParameterKey::Sinr,
        ParameterKey::Throughput,
        ParameterKey::PacketErrorRate,
    ];

    fn parameter(self) -> ParameterType {
        ParameterType::Generic(match self {
            ParameterKey::Rssi => return ParameterType::Ieee80211(Ieee80211Parameter::RSSI),
            ParameterKey::Signal => GenericParameter::SIGNAL_STRENGTH,
            ParameterKey::DataRate => GenericParameter::DATA_RATE,
            ParameterKey::Sinr => GenericParameter::SINR,
            ParameterKey::Throughput => GenericParameter::THROUGHPUT,
            ParameterKey::PacketErrorRate => GenericParameter::PACKET_ERROR_RATE,
        })
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ParameterKey::Signal => "signal",
            ParameterKey::Rssi => "rssi",
            ParameterKey::DataRate => "data-rate",
            ParameterKey::Sinr => "sinr",
            ParameterKey::Throughput => "throughput",
            ParameterKey::PacketErrorRate => "packet-error-rate",
        }
    }

    /// Its unit with a leading space; empty for a parameter without a unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            ParameterKey::Signal | ParameterKey::Rssi => " dBm",
            ParameterKey::DataRate | ParameterKey::Throughput => " kbit/s",
            ParameterKey::Sinr => " dB",
            ParameterKey::PacketErrorRate => "",
        }
    }

    fn is_signal(self) -> bool {
        matches!(self, ParameterKey::Signal | ParameterKey::Rssi)
    }

    /// The value as frames encode it; `None` if it is out of range.
    fn emit(self, value: i32) -> Option<u16> {
        match self.is_signal() {
            true => i16::try_from(value).ok().map(i16::cast_unsigned),
            false => u16::try_from(value).ok(),
        }
    }

    fn read(self, value: u16) -> i32 {
        if self.is_signal() { value.cast_signed().into() } else { value.into() }
    }
}

/// A threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdKey {
    /// Which way it is crossed.
    pub direction: DirectionKey,
    /// Its value, in the parameter's unit.
    pub value: i32,
}

/// The direction in which a threshold is crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectionKey {
    /// Upwards.
    Above,
    /// Downwards.
    Below,
}

/// An operation on thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HowKey {
    /// Report each crossing.
    Set,
    /// Report the first crossing.
    Once,
    /// Stop reporting crossings.
    Cancel,
}

/// An action of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKey {
    /// Send a station away
    Disconnect,
    /// Save power
    LowPower,
    /// Go down
    PowerDown,
    /// Come up
    PowerUp,
}

/// A function's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Ask::Get`].
    Parameters(Parameters),
    /// To [`Ask::Threshold`].
    Thresholds(Thresholds),
    /// To [`Ask::Act`]: the action is done.
    Acted(Acted),
}

/// The known parameters of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    /// Its address.
    pub link: String,
    /// `own`, or the peer that reports the link.
    pub owner: String,
    /// Its parameters.
    pub parameters: Vec<ParameterStatus>,
}

/// A parameter of a link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ParameterStatus {
    /// The parameter.
    pub parameter: ParameterKey,
    /// Its value, in its unit.
    pub value: i32,
}

/// Thresholds that were configured or cancelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thresholds {
    /// The link's address.
    pub link: String,
    /// The parameter.
    pub parameter: ParameterKey,
    /// The thresholds.
    pub thresholds: Vec<ThresholdKey>,
    /// The operation on the thresholds.
    pub how: HowKey,
    /// Interval of regular reports in ms; `None` for no regular reports.
    pub every_ms: Option<u16>,
}

/// A completed action.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acted {
    /// The link's address.
    pub link: String,
    /// The action.
    pub action: ActionKey,
    /// The station that it concerned.
    pub station: Option<String>,
}

impl Ask {
    fn link(&self) -> &str {
        let (Ask::Get { link, .. } | Ask::Threshold { link, .. } | Ask::Act { link, .. }) = self;
        link
    }
}

/// The command for a request, and the owner of its link; or why the request is refused.
pub(super) fn read(mihf: &Mihf, ask: &Ask) -> Result<(Command, String), String> {
    let name = ask.link().to_ascii_lowercase();
    let (id, link) =
        mihf.links().iter().find(|(id, _)| text(&id.address) == name).ok_or_else(|| {
            let known: Vec<String> = mihf.links().keys().map(|id| text(&id.address)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("there is no link {name:?}; known: {known}")
        })?;
    if link.owner.is_none() {
        return Err(format!("nobody tells of {name} any more: who did is not registered"));
    }
    Ok((command(id, ask)?, owner_of(mihf, link)))
}

fn command(id: &LinkId, ask: &Ask) -> Result<Command, String> {
    Ok(match ask {
        Ask::Get { parameters, .. } => {
            let status = LinkStatusRequest {
                states: LinkStatesRequest(0),
                parameters: parameters.iter().map(|of| of.parameter()).collect(),
                descriptors: LinkDescriptorsRequest(0),
            };
            let (device, links) = (DeviceStatesRequest(0), vec![id.clone()]);
            Command::GetParameters { device, links, status }
        }
        Ask::Threshold { parameter, thresholds, how, every_ms, .. } => {
            let of = |key: &ThresholdKey| {
                let value = parameter.emit(key.value).ok_or_else(|| {
                    let (name, value) = (parameter.name(), key.value);
                    format!("{name}: {value}{} is out of range", parameter.unit())
                })?;
                let direction = match key.direction {
                    DirectionKey::Above => ThresholdDirection::ABOVE,
                    DirectionKey::Below => ThresholdDirection::BELOW,
                };
                Ok::<_, String>(Threshold { value, direction })
            };
            let configuration = ParameterConfiguration {
                parameter: parameter.parameter(),
                interval_ms: *every_ms,
                action: match how {
                    HowKey::Set => ThresholdAction::NORMAL,
                    HowKey::Once => ThresholdAction::ONE_SHOT,
                    HowKey::Cancel => ThresholdAction::CANCEL,
                },
                thresholds: thresholds.iter().map(of).collect::<Result<_, _>>()?,
            };
            Command::ConfigureThresholds { link: id.clone(), parameters: vec![configuration] }
        }
        Ask::Act { action: ActionKey::Disconnect, station: None, .. } => {
            return Err("disconnect: say which station is to be sent away (--station)".into());
        }
        Ask::Act { action, station, after_ms, .. } => {
            let mac = |text: &String| {
                let mac = mac_of(text).filter(|mac| mac[0] & 1 == 0).map(LinkAddress::mac);
                mac.ok_or_else(|| {
                    format!(
                        "{text:?} is no station's link-layer address, such as 02:00:00:00:00:01"
                    )
                })
            };
            Command::Actions(vec![Action {
                link: id.clone(),
                station: station.as_ref().map(mac).transpose()?,
                action: match action {
                    ActionKey::Disconnect => LinkActionType::DISCONNECT,
                    ActionKey::LowPower => LinkActionType::LOW_POWER,
                    ActionKey::PowerDown => LinkActionType::POWER_DOWN,
                    ActionKey::PowerUp => LinkActionType::POWER_UP,
                },
                attributes: LinkActionAttributes(0),
                after_ms: *after_ms,
            }])
        }
    })
}

/// A pending command.
pub(super) struct Asked {
    pub(super) ask: Ask,
    /// The owner of its link.
    pub(super) of: String,
    pub(super) to: oneshot::Sender<Response<Words>>,
}

impl Asked {
    /// Sends the outcome to the requester.
    pub(super) fn answer(self, answer: CommandAnswer) {
        let said = answer_of(self.ask, self.of, answer);
        // The requester may have disconnected.
        let _ = self.to.send(said.map_or_else(Response::Error, Response::Own));
    }
}

fn answer_of(ask: Ask, owner: String, answer: CommandAnswer) -> Result<Answer, String> {
    match (ask, answer) {
        (Ask::Get { link, parameters }, CommandAnswer::Parameters { links, .. }) => {
            let known = parameters.into_iter().filter_map(|parameter| {
                let value = number(&links, &parameter.parameter())?;
                Some(ParameterStatus { parameter, value: parameter.read(value) })
            });
            let parameters = known.collect();
            Ok(Answer::Parameters(Parameters { link, owner, parameters }))
        }
        (
            Ask::Threshold { link, parameter, thresholds, how, every_ms },
            CommandAnswer::Thresholds(all),
        ) => {
            if all.iter().any(|one| !one.configured) {
                return Err(format!("{owner} has no room for further thresholds of {link}"));
            }
            Ok(Answer::Thresholds(Thresholds { link, parameter, thresholds, how, every_ms }))
        }
        (Ask::Act { link, action, station, .. }, CommandAnswer::Actions(all)) => {
            match all.first().map(|one| one.result) {
                Some(LinkActionResult::SUCCESS) => {
                    Ok(Answer::Acted(Acted { link, action, station }))
                }
                Some(LinkActionResult::INCAPABLE) => Err(format!(
                    "{link} cannot do that, or is not to be ordered about (orders = true where it is watched)"
                )),
                Some(LinkActionResult::REFUSED) => Err(format!("{link} refuses to do that")),
                _ => Err(format!("{link} has failed to do that")),
            }
        }
        (ask, CommandAnswer::Failed(Status::NETWORK_ERROR)) => {
            Err(format!("{owner}, who tells of {}, does not answer", ask.link()))
        }
        (_, CommandAnswer::Failed(Status::AUTHORIZATION_FAILURE)) => {
            Err(format!("{owner} does not know this function: try again in a second"))
        }
        (_, CommandAnswer::Failed(_)) => Err(format!("{owner} rejects that")),
        (ask, _) => Err(format!("{owner} gives an answer about {} that is none", ask.link())),
    }
}

/// A parameter's value.
fn number(links: &[LinkStatus], parameter: &ParameterType) -> Option<u16> {
    let mut all = links.iter().flat_map(|link| &link.parameters);
    match all.find(|of| of.parameter == *parameter)?.value {
        ParameterValue::Number(value) => Some(value),
        ParameterValue::Qos(_) => None,
    }
}
