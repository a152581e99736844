//! What the bench asks of a responder while it runs.

use nix::unistd::Pid;

/// A running responder; it ends when dropped.
pub(crate) trait Running {
    /// Processes of its own, whose time counts.
    fn processes(&self) -> Vec<Pid> {
        Vec::new()
    }
    /// Called about once a second.
    fn heartbeat(&mut self) {}
}
