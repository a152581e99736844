//! What is asked of a running daemon: `segue status`, `events`, `paths`, `flows`, `handover` and `keepalive`.

mod events;
mod flows;
mod orders;
mod paths;
mod status;
mod which;

pub use events::{EventsArgs, events};
pub use flows::{FlowsArgs, flows};
pub use orders::{HandoverArgs, KeepaliveArgs, handover, keepalive};
pub use paths::{PathsArgs, path_figures, paths};
pub use status::{StatusArgs, status};
