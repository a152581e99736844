//! How the process as a whole behaves.

/// Ends the process quietly when the reader of its output goes away (`segue plan … | head`), like every shell
/// program; Rust's runtime would make that an error. Not for daemons, whose log may lose its reader.
pub fn end_on_broken_pipe() {
    // SAFETY: sets a signal to its default action; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
