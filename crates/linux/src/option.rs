//! Socket options that neither `nix` nor `socket2` wraps.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Sets an option whose value is plain data: an integer, a kernel structure, or an array of either.
pub(crate) fn set<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> nix::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(value).cast());
    // SAFETY: the kernel reads at most `length` bytes, the size of a value that outlives the call.
    Errno::result(unsafe { libc::setsockopt(fd, level, name, value, length) }).map(drop)
}
