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

/// Restricts a static program to its own code for looking up names and groups. The C library would otherwise load the
/// modules in `/etc/nsswitch.conf` from the system, which fails where the system has another version of that library.
pub fn use_built_in_lookups() {
    #[cfg(all(feature = "static", target_env = "gnu"))]
    for (database, services) in [(c"hosts", c"files dns"), (c"group", c"files")] {
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        // SAFETY: both are strings that end in NUL, which the function only reads, and no other thread runs yet.
        unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
    }
}
