//! Inputs and outputs of a function.

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

/// Input from the driver and the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihfInput {
    /// An event of a link of this node.
    Event(Event),
    /// Measured parameters of a link of this node.
    Measured {
        /// The link.
        link: LinkId,
        /// The station.
        station: Option<LinkAddress>,
        /// Values in the standard's units; a signal in dBm, in two's complement.
        values: Vec<(ParameterType, u16)>,
    },
    /// A command from the operator; [`MihfWish::Answered`] carries the same number.
    Command {
        /// The number.
        number: u64,
        /// The command.
        command: Command,
    },
    /// The result of [`MihfWish::Act`].
    Acted {
        /// The number of the `Act`.
        number: u64,
        /// The result.
        result: LinkActionResult,
    },
    /// The daemon stops: deregister everywhere.
    Leave,
}

/// A link command (MIH_CS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// MIH_Link_Get_Parameters.
    GetParameters {
        /// Device states to read.
        device: DeviceStatesRequest,
        /// Links to read.
        links: Vec<LinkId>,
        /// Link states, parameters and descriptors to read.
        status: LinkStatusRequest,
    },
    /// MIH_Link_Configure_Thresholds.
    ConfigureThresholds {
        /// The link.
        link: LinkId,
        /// Parameters with their thresholds and intervals.
        parameters: Vec<ParameterConfiguration>,
    },
    /// MIH_Link_Actions.
    Actions(Vec<Action>),
}

/// An action of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The link.
    pub link: LinkId,
    /// The station concerned; [`LinkActionType::DISCONNECT`] disconnects it.
    pub station: Option<LinkAddress>,
    /// The action.
    pub action: LinkActionType,
    /// Its attributes.
    pub attributes: LinkActionAttributes,
    /// Delay in milliseconds, at most [`AFTER_MAX_MS`](crate::AFTER_MAX_MS).
    pub after_ms: u16,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// Answer to [`Command::GetParameters`].
    Parameters {
        /// Device states.
        device: Vec<DeviceState>,
        /// Status of each link.
        links: Vec<LinkStatus>,
    },
    /// Answer to [`Command::ConfigureThresholds`].
    Thresholds(Vec<ParameterConfigurationStatus>),
    /// Answer to [`Command::Actions`].
    Actions(Vec<LinkActionResponse>),
    /// The command failed with this status.
    Failed(Status),
}

/// Outputs of a function to its driver, in addition to the outputs of every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MihfWish {
    /// An event that matches an [`Interest`](crate::Interest).
    Event(Event),
    /// Requests an action of a link of this node; the driver answers with [`MihfInput::Acted`].
    Act {
        /// The number to answer with.
        number: u64,
        /// The action.
        action: Action,
    },
    /// A command from the operator is complete.
    Answered {
        /// The number of the command.
        number: u64,
        /// The answer.
        answer: CommandAnswer,
    },
}

/// Outputs of a function. It stores no records: after a restart peers register again.
pub type MihfOutput = Output<MihfWish, Report, Infallible>;
