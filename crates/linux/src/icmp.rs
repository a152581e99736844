//! What routers say of packets that were too big for them, whoever has sent those.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;

use crate::error::{LinuxError, Result};

/// Of both families: the option that names the types that are not to come, and the type that is.
const FILTER: libc::c_int = 1;
const SOL_RAW: libc::c_int = 255;
const UNREACHABLE: u32 = 3;
const PACKET_TOO_BIG: u32 = 2;

/// A raw socket that gets the messages of a family in which a packet may be called too big.
pub struct TooBigSocket(AsyncFd<OwnedFd>);

impl TooBigSocket {
    /// Opens it in the calling thread's namespace. Inside a runtime.
    ///
    /// # Errors
    /// No such family, or no permission (needs `CAP_NET_RAW`).
    pub fn open(v6: bool) -> Result<TooBigSocket> {
        let refused = |e: std::io::Error| LinuxError::refused("listen to ICMP", e);
        let (domain, protocol) = match v6 {
            true => (Domain::IPV6, Protocol::ICMPV6),
            false => (Domain::IPV4, Protocol::ICMPV4),
        };
        let socket =
            Socket::new(domain, Type::RAW.nonblocking(), Some(protocol)).map_err(refused)?;
        // Bits that are set are types that do not come.
        match v6 {
            true => {
                let mut filter = [u32::MAX; 8];
                filter[0] &= !(1 << PACKET_TOO_BIG);
                set_option(&socket, libc::IPPROTO_ICMPV6, &filter)
            }
            false => set_option(&socket, SOL_RAW, &!(1u32 << UNREACHABLE)),
        }
        .map_err(|e| refused(e.into()))?;
        let fd = OwnedFd::from(socket);
        // SAFETY: an `OwnedFd` is open, and stays the same descriptor as long as it is owned.
        Ok(TooBigSocket(unsafe { AsyncFd::register(fd) }.map_err(|e| refused(e.into()))?))
    }

    /// Waits for the next message and says how long it is: with its IP header for IPv4, without for IPv6. What does
    /// not fit is cut off. May be given up.
    ///
    /// # Errors
    /// When the socket is of no use any more.
    pub async fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        let told = |e: std::io::Error| LinuxError::refused("receive ICMP", e);
        loop {
            let mut ready = self.0.readable().await.map_err(told)?;
            match recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => return Ok(len),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(told(e.into())),
            }
        }
    }
}

fn set_option<T>(socket: &Socket, level: libc::c_int, value: &T) -> nix::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), std::ptr::from_ref(value).cast());
    // SAFETY: the kernel reads `length` bytes, the size of the value.
    Errno::result(unsafe { libc::setsockopt(fd, level, FILTER, value, length) }).map(drop)
}
