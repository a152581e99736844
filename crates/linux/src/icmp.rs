//! "Packet too big" messages from routers about packets of any sender on this machine.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;

use crate::error::{LinuxError, Result};
use crate::option;

/// For both families: the option that names the message types to block, and the type to receive.
const FILTER: libc::c_int = 1;
const SOL_RAW: libc::c_int = 255;
const UNREACHABLE: u32 = 3;
const PACKET_TOO_BIG: u32 = 2;

/// A raw socket that receives the "packet too big" messages of one family.
pub struct TooBigSocket(AsyncFd<OwnedFd>);

impl TooBigSocket {
    /// Opens the socket in the calling thread's namespace. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The kernel lacks this family, or no permission (requires `CAP_NET_RAW`).
    pub fn open(v6: bool) -> Result<TooBigSocket> {
        let refused = |e: std::io::Error| LinuxError::refused("listen to ICMP", e);
        let (domain, protocol) = match v6 {
            true => (Domain::IPV6, Protocol::ICMPV6),
            false => (Domain::IPV4, Protocol::ICMPV4),
        };
        let socket =
            Socket::new(domain, Type::RAW.nonblocking(), Some(protocol)).map_err(refused)?;
        // A set bit blocks that type.
        match v6 {
            true => {
                let mut filter = [u32::MAX; 8];
                filter[0] &= !(1 << PACKET_TOO_BIG);
                option::set(&socket, libc::IPPROTO_ICMPV6, FILTER, &filter)
            }
            false => option::set(&socket, SOL_RAW, FILTER, &!(1u32 << UNREACHABLE)),
        }
        .map_err(|e| refused(e.into()))?;
        let fd = OwnedFd::from(socket);
        // SAFETY: an `OwnedFd` is open, and stays the same descriptor as long as it is owned.
        Ok(TooBigSocket(unsafe { AsyncFd::register(fd) }.map_err(|e| refused(e.into()))?))
    }

    /// Waits for the next message and returns its length, which includes the IP header for IPv4 but not for IPv6. A
    /// message longer than the buffer is truncated. Cancel safe.
    ///
    /// # Errors
    /// The socket failed.
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
