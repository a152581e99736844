//! How the process as a whole behaves, and what it starts.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{User, getgrouplist, setgid, setgroups, setuid};

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

/// Has the command start with no signal blocked, whatever this process blocks.
pub fn unblock_signals(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call (rt_sigprocmask) with a set on its stack, and
    // builds an error value from a number: nothing allocates and nothing locks.
    unsafe {
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from));
    }
}

/// Has the command run as a user, in all groups of that user. Needs root.
///
/// # Errors
/// The user's groups cannot be read.
pub fn run_as(command: &mut Command, user: &User) -> io::Result<()> {
    let groups = getgrouplist(&CString::new(user.name.as_str())?, user.gid)?;
    let (uid, gid) = (user.uid, user.gid);
    // SAFETY: between fork and exec the closure makes three system calls (setgroups, setgid, setuid) with values it
    // owns, and builds an error value from a number: nothing allocates, and no other thread holds a lock.
    unsafe {
        command.pre_exec(move || {
            setgroups(&groups)?;
            setgid(gid)?;
            setuid(uid)?;
            Ok(())
        });
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::stop_signals::StopSignals;

    #[test]
    fn a_command_can_be_terminated_although_we_block_the_signal() {
        let _signals = StopSignals::take().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "kill -TERM $$"]);
        unblock_signals(&mut command);
        assert_eq!(command.status().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }
}
