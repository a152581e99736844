//! What goes into a function, and comes out of it.

use alloc::vec::Vec;
use core::convert::Infallible;

use segue_ip::Output;
use segue_wire::mih::codes::{
    DeviceStatesRequest, LinkActionAttributes, LinkActionResult, LinkActionType, Status,
};
use segue_wire::mih::identity::{LinkAddress, LinkId};
use segue_wire::mih::link::{
    DeviceState, LinkActionResponse, LinkStatus, LinkStatusRequest, ParameterConfiguration,
    ParameterConfigurationStatus, ParameterType,
};

use crate::{Event, Report};

/// What a function's driver tells and its operator orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihfInput {
    /// Something happened to a link of its own.
    Event(Event),
    /// Parameters of a link of its own were measured.
    Measured {
        /// The link.
        link: LinkId,
        /// The station.
        station: Option<LinkAddress>,
        /// The values in the standard's units; a signal in dBm, in two's complement.
        values: Vec<(ParameterType, u16)>,
    },
    /// A command of the operator, whose answer has the same number.
    Command {
        /// The number.
        number: u64,
        /// The command.
        command: Command,
    },
    /// A link of its own has done what it was to do ([`MihfWish::Act`]), or has not.
    Acted {
        /// The number of the wish.
        number: u64,
        /// What became of it.
        result: LinkActionResult,
    },
    /// The daemon ends: it deregisters.
    Leave,
}

/// A command to links (MIH_CS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// MIH_Link_Get_Parameters.
    GetParameters {
        /// What of the device.
        device: DeviceStatesRequest,
        /// Of which links.
        links: Vec<LinkId>,
        /// What of them.
        status: LinkStatusRequest,
    },
    /// MIH_Link_Configure_Thresholds.
    ConfigureThresholds {
        /// Of which link.
        link: LinkId,
        /// Which.
        parameters: Vec<ParameterConfiguration>,
    },
    /// MIH_Link_Actions.
    Actions(Vec<Action>),
}

/// What a link is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The link.
    pub link: LinkId,
    /// The station that it is about: with [`LinkActionType::DISCONNECT`] that one is sent away.
    pub station: Option<LinkAddress>,
    /// What.
    pub action: LinkActionType,
    /// How.
    pub attributes: LinkActionAttributes,
    /// After how long.
    pub after_ms: u16,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// Parameters.
    Parameters {
        /// Of the device.
        device: Vec<DeviceState>,
        /// Of links.
        links: Vec<LinkStatus>,
    },
    /// Thresholds.
    Thresholds(Vec<ParameterConfigurationStatus>),
    /// Actions.
    Actions(Vec<LinkActionResponse>),
    /// It failed with this status.
    Failed(Status),
}

/// What a function asks of its driver, beside what every role does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihfWish {
    /// An event that it is interested in.
    Event(Event),
    /// Have a link of its own do this, and say what became of it ([`MihfInput::Acted`]).
    Act {
        /// The number of the wish.
        number: u64,
        /// What.
        action: Action,
    },
    /// A command of the operator is done.
    Answered {
        /// Its number.
        number: u64,
        /// What became of it.
        answer: CommandAnswer,
    },
}

/// What a function asks of its driver. It stores nothing: who speaks to it registers anew.
pub type MihfOutput = Output<MihfWish, Report, Infallible>;
