//! How the process as a whole behaves.

/// Ends the process quietly when what it prints is read no longer (`segue plan … | head`), as every
/// program of the shell does; Rust's runtime would turn that into an error. Not for daemons, whose
/// log may lose its reader.
pub fn end_on_broken_pipe() {
    // SAFETY: sets a signal to its default action; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
