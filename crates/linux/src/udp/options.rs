//! Socket options, and the path MTU that the kernel knows.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{
    IpRecvTos, Ipv4RecvErr, Ipv4RecvTtl, Ipv6RecvErr, Ipv6RecvHopLimit, Ipv6RecvTClass,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{TimestampedSocket, UdpError};
use crate::option;

impl TimestampedSocket {
    /// Enlarges the receive buffer, as far as the kernel's limit allows.
    pub fn set_receive_buffer(&self, bytes: usize) {
        // On failure the buffer only stays smaller.
        let _ = self.socket.set_recv_buffer_size(bytes);
    }

    /// Sets the traffic class (IPv6) or type of service (IPv4) of every datagram that does not specify one.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        if self.v6 {
            self.socket.set_tclass_v6(class.into())?;
        }
        // An IPv6 socket sends to IPv4 addresses too.
        self.socket.set_tos_v4(class.into())
    }

    /// Enables [`Datagram::class`](super::Datagram::class) for received datagrams.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive_traffic_class(&self) -> io::Result<()> {
        if self.v6 {
            setsockopt(&self.socket, Ipv6RecvTClass, &true)?;
        }
        Ok(setsockopt(&self.socket, IpRecvTos, &true)?)
    }

    /// Sets the TTL or hop limit of all datagrams.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        if self.v6 {
            self.socket.set_unicast_hops_v6(ttl.into())?;
        }
        self.socket.set_ttl_v4(ttl.into())
    }

    /// Enables [`Datagram::ttl`](super::Datagram::ttl) for received datagrams.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive_ttl(&self) -> io::Result<()> {
        if self.v6 {
            setsockopt(&self.socket, Ipv6RecvHopLimit, &true)?;
        }
        Ok(setsockopt(&self.socket, Ipv4RecvTtl, &true)?)
    }

    /// Enables ICMP errors ([`TimestampedSocket::icmp_error`]).
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive_icmp(&mut self) -> io::Result<()> {
        if self.v6 {
            setsockopt(&self.socket, Ipv6RecvErr, &true)?;
        }
        // An IPv6 socket sends to IPv4 addresses too.
        setsockopt(&self.socket, Ipv4RecvErr, &true)?;
        self.wants_icmp = true;
        Ok(())
    }

    /// Forbids fragmentation here and on the path: [`TimestampedSocket::send`] fails with `EMSGSIZE` for a datagram
    /// longer than the known path MTU.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn never_fragment(&self) -> io::Result<()> {
        if self.v6 {
            let (name, mode) = (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO);
            option::set(&self.socket, libc::IPPROTO_IPV6, name, &mode)?;
        }
        let (name, mode) = (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
        Ok(option::set(&self.socket, libc::IPPROTO_IP, name, &mode)?)
    }
}

pub(super) fn bind_to_device(
    socket: &Socket,
    name: &str,
    address: SocketAddr,
) -> Result<(), UdpError> {
    socket.bind_device(Some(name.as_bytes())).map_err(|source| match source.raw_os_error() {
        Some(libc::ENODEV | libc::EINVAL | libc::ENXIO) => {
            UdpError::NoInterface { name: name.into() }
        }
        Some(libc::EPERM | libc::EACCES) => UdpError::Permission { name: name.into() },
        _ => UdpError::Io { address, source },
    })
}

/// The path MTU to `to` that the kernel knows, in bytes with the IP header.
///
/// # Errors
/// An error of the kernel, for example if no route exists.
pub fn path_mtu(to: SocketAddr) -> io::Result<u32> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&to.into())?;
    let (level, name) = match to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: i32 = 0;
    let mut length = size_of_val(&mtu) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the option is an int; value and length outlive the call.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut mtu).cast(), &raw mut length) };
    if done == 0 { Ok(mtu.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
}
