//! The interface of a running responder.

use nix::unistd::Pid;

/// A running responder; stopped when dropped.
pub(crate) trait Running {
    /// Child processes whose processor time counts.
    fn processes(&self) -> Vec<Pid> {
        Vec::new()
    }
    /// Called about once a second.
    fn heartbeat(&mut self) {}
}
