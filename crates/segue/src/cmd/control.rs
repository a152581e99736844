//! Queries and orders to a running daemon: `segue status`, `events`, `report`, `paths`, `flows`, `handover` and
//! `keepalive`.

mod events;
mod flows;
mod orders;
mod past;
mod paths;
mod report;
mod status;
mod which;

pub use events::{EventsArgs, events};
pub use flows::{FlowsArgs, flows};
pub use orders::{HandoverArgs, KeepaliveArgs, handover, keepalive};
pub use paths::{PathsArgs, path_figures, paths};
pub use report::{ReportArgs, report};
pub use status::{StatusArgs, status};
