//! What surrounds a configuration on this machine.

use std::path::PathBuf;

use segue_daemon::control::{Status, Tunnels};
use segue_daemon::locator::Locator;
use segue_linux::monitor::Device;

use super::finding::{Finding, ok};

/// What a role's checks may take into account: the daemon at a control socket, as far as this user may ask it, and the
/// machine.
#[derive(Default)]
pub(crate) struct Around {
    pub(crate) socket: PathBuf,
    /// The daemon's role; if the socket is closed to this user, the role in the socket's name.
    pub(crate) role: Option<&'static str>,
    /// The status of a host or an anchor.
    pub(crate) status: Option<Status<Tunnels>>,
    /// Why this user may not ask the daemon.
    pub(crate) closed: Option<String>,
    /// The anchor that the user asks about.
    pub(crate) anchor: Option<Locator>,
    /// The interfaces of this machine.
    pub(crate) interfaces: Vec<Device>,
}

impl Around {
    /// Whether the daemon's eBPF programs take tunnel packets before the packet filter sees them.
    pub(crate) fn takes_packets_before_filters(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.body.datapath.starts_with("ebpf"))
    }

    /// Whether the daemon answers, for roles of which no other finding tells.
    pub(crate) fn answers(&self) -> Option<Finding> {
        let who = if self.role.is_some() { "one" } else { "none" };
        let found = || ok("daemon", format!("{who} answers at {}", self.socket.display()));
        self.closed.is_none().then(found)
    }
}
