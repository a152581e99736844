//! Credentials of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Limit of supplementary groups in the kernel (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// The supplementary groups that the peer process had when it connected this Unix socket (SO_PEERGROUPS).
///
/// # Errors
/// `socket` is not a connected Unix socket.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of_val(&groups[..])).unwrap_or(0);
        // SAFETY: the kernel writes at most `bytes` into the vector, which is that long, and both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        if result == 0 {
            groups.truncate(bytes as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(GROUPS_MAX, 0);
    }
}
