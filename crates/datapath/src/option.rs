//! Socket options whose value is an integer.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

/// Sets an option.
pub(crate) fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let (value, len) = ((&raw const value).cast(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the value is an int that outlives the call, its size is given.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
