//! Queries and orders to a running daemon: `segue status`, `events`, `report`, `paths`, `flows`, `handover` and
//! `keepalive`.

mod events;
pub(crate) mod flows;
mod orders;
mod past;
mod paths;
mod report;
pub(crate) mod status;
pub(crate) mod which;

use std::process::ExitCode;

use super::roles;
pub use events::{EventsArgs, events};
pub use flows::FlowsArgs;
pub use orders::{HandoverArgs, KeepaliveArgs, handover, keepalive};
pub use paths::{PathsArgs, path_figures, paths};
pub use report::{ReportArgs, report};
pub use status::{StatusArgs, status};

/// Runs `segue flows`.
pub fn flows(args: FlowsArgs) -> anyhow::Result<ExitCode> {
    flows::flows(args, |role| roles::daemon(role)?.flows)
}
