//! How the process as a whole behaves, and what it starts.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::Signal;

/// Ends the process quietly when the reader of its output goes away (`segue plan … | head`), like every shell
/// program; Rust's runtime would make that an error. Not for daemons, whose log may lose its reader.
pub fn end_on_broken_pipe() {
    // SAFETY: sets a signal to its default action; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Has the kernel end the command when the thread that starts it ends, however that happens.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call (prctl), and builds an error value from a number:
    // nothing allocates and nothing locks.
    unsafe {
        command
            .pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
}
