//! UDP sockets with kernel timestamps.
//!
//! A [`TimestampedSocket`] never blocks; wait for its descriptor with `poll` (readable: datagrams; error: transmit
//! stamps). The kernel takes software stamps (`SO_TIMESTAMPING`) on the realtime clock when a datagram enters or leaves
//! the network stack. This module converts each stamp to the monotonic clock when it is collected: it reads both clocks
//! and reports the possible error of the conversion with the stamp.

mod clocks;
mod error;
mod icmp;
mod options;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, Timestamping};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg,
    sendmsg, setsockopt,
};
use segue_clock::{Span, Time};
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock;
use clocks::{Ahead, Clocks};
pub use error::UdpError;
pub use icmp::{IcmpError, IcmpReason};
pub use options::path_mtu;

/// Room for a stamp, packet information and an extended error with its address.
const CONTROL_BYTES: usize = 256;
/// Origin of an extended error that carries a transmit stamp (`linux/errqueue.h`).
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// The datagram was longer than the buffer.
    pub truncated: bool,
    /// Source address; IPv4 addresses are never in their IPv6-mapped form.
    pub source: SocketAddr,
    /// Destination address, if the kernel reports it.
    pub local: Option<IpAddr>,
    /// Index of the interface on which it arrived, if the kernel reports it.
    pub interface: Option<u32>,
    /// When it arrived.
    pub at: Time,
    /// True if `at` is a kernel stamp; otherwise `at` is the time of the read.
    pub kernel_stamp: bool,
    /// Possible error of `at`. With a kernel stamp it is the error of the clock conversion. Without one, `at` may be
    /// too late by the time since the socket was last found empty.
    pub error: Span,
    /// When the program read it; later than `at` by the wake-up delay.
    pub seen: Time,
    /// Traffic class (IPv6) or type of service (IPv4): DSCP and, in the two lower bits, ECN. Only after
    /// [`TimestampedSocket::receive_traffic_class`].
    pub class: Option<u8>,
    /// TTL or hop limit with which it arrived. Only after [`TimestampedSocket::receive_ttl`].
    pub ttl: Option<u8>,
}

/// Per-datagram send options; the kernel chooses those that are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    /// Source address, for replies that must come from the address that received the request.
    pub from: Option<IpAddr>,
    /// Index of the interface.
    pub interface: Option<u32>,
    /// Traffic class or type of service.
    pub class: Option<u8>,
    /// Hop limit or time to live.
    pub hop_limit: Option<u8>,
}

/// When a datagram left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxStamp {
    /// As returned by [`TimestampedSocket::send`].
    pub id: u32,
    /// When it was handed to the network device.
    pub at: Time,
    /// Possible error of `at` from the clock conversion.
    pub error: Span,
}

/// A non-blocking UDP socket with kernel timestamps in both directions.
#[derive(Debug)]
pub struct TimestampedSocket {
    socket: Socket,
    v6: bool,
    /// The kernel takes transmit stamps. The socket assigns ids even without them.
    tx_stamps: bool,
    want_tx_stamps: bool,
    /// The id of the next datagram, and the id at which the kernel's count was zero.
    next_id: u32,
    kernel_zero: u32,
    ahead: Ahead,
    /// When the socket was last found empty; initially the time of its creation.
    empty: Cell<Time>,
    wants_icmp: bool,
    /// ICMP errors waiting for collection.
    icmp: RefCell<VecDeque<IcmpError>>,
}

impl TimestampedSocket {
    /// Binds to `local` and, if given, to the interface `device`. An IPv6 socket on the unspecified address also
    /// accepts IPv4. Works without timestamps if the kernel does not support them.
    ///
    /// # Errors
    /// [`UdpError`]
    pub fn bind(local: SocketAddr, device: Option<&str>) -> Result<TimestampedSocket, UdpError> {
        let io = |source: io::Error| UdpError::Io { address: local, source };
        let v6 = local.is_ipv6();
        let socket =
            Socket::new(Domain::for_address(local), Type::DGRAM.nonblocking(), Some(Protocol::UDP))
                .map_err(io)?;
        if v6 {
            socket.set_only_v6(!local.ip().is_unspecified()).map_err(io)?;
            setsockopt(&socket, Ipv6RecvPacketInfo, &true).map_err(|e| io(e.into()))?;
        } else {
            setsockopt(&socket, Ipv4PacketInfo, &true).map_err(|e| io(e.into()))?;
        }
        if let Some(name) = device {
            options::bind_to_device(&socket, name, local)?;
        }
        socket.bind(&local.into()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UdpError::InUse { address: local },
            _ => io(error),
        })?;
        let mut socket = TimestampedSocket {
            socket,
            v6,
            tx_stamps: false,
            want_tx_stamps: true,
            next_id: 0,
            kernel_zero: 0,
            ahead: Ahead::default(),
            empty: Cell::new(clock::monotonic()),
            wants_icmp: false,
            icmp: RefCell::default(),
        };
        socket.start_stamps();
        Ok(socket)
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// An error of `getsockname`, which is not expected to fail.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Turns transmit stamps off. For users that do not collect them with [`TimestampedSocket::tx_stamp`]: uncollected
    /// stamps fill the receive buffer.
    pub fn receive_stamps_only(&mut self) {
        self.want_tx_stamps = false;
        self.start_stamps();
    }

    /// Sends one datagram and returns its id, which identifies its [`TimestampedSocket::tx_stamp`].
    ///
    /// # Errors
    /// An error of the kernel, `WouldBlock` if the send buffer is full. The datagram was not sent.
    pub fn send(&mut self, payload: &[u8], to: SocketAddr, how: Leave) -> io::Result<u32> {
        let tos = how.class.unwrap_or(0);
        let (tclass, hops) = (i32::from(tos), how.hop_limit.map_or(0, i32::from));
        let of_class = how.class.map(|_| match to {
            SocketAddr::V4(_) => ControlMessage::Ipv4Tos(&tos),
            SocketAddr::V6(_) => ControlMessage::Ipv6TClass(&tclass),
        });
        let of_hops = how.hop_limit.map(|_| match to {
            SocketAddr::V4(_) => ControlMessage::Ipv4Ttl(&hops),
            SocketAddr::V6(_) => ControlMessage::Ipv6HopLimit(&hops),
        });
        let iov = [IoSlice::new(payload)];
        let to = SockaddrStorage::from(self.outward(to));
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let index = how.interface.unwrap_or(0);
        let local = (how.from, how.interface) != (None, None);
        let (v4, v6);
        let of_way = if self.v6 {
            let s6_addr = how.from.map_or(Ipv6Addr::UNSPECIFIED, mapped).octets();
            v6 = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr }, ipi6_ifindex: index };
            local.then_some(ControlMessage::Ipv6PacketInfo(&v6))
        } else {
            let octets = match how.from {
                Some(IpAddr::V4(a)) => a.octets(),
                _ => [0; 4],
            };
            v4 = libc::in_pktinfo {
                ipi_ifindex: index.cast_signed(),
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(octets) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            local.then_some(ControlMessage::Ipv4PacketInfo(&v4))
        };
        let control: Vec<ControlMessage> =
            [of_way, of_class, of_hops].into_iter().flatten().collect();
        let mut again = self.wants_icmp;
        let sent = loop {
            match sendmsg(fd, &iov, &control, flags, Some(&to)) {
                Err(Errno::EINTR) => {}
                // The kernel reports a pending ICMP error on the next call of any kind.
                Err(error) if again && error != Errno::EAGAIN => {
                    again = false;
                    self.start_stamps();
                }
                other => break other,
            }
        };
        if let Err(error) = sent {
            // Kernels differ in whether a failed datagram takes a number, so restart the count at zero.
            self.start_stamps();
            return Err(error.into());
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        Ok(id)
    }

    /// Reads the next datagram; `None` if none is waiting.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let mut control = nix::cmsg_space!([u8; CONTROL_BYTES]);
        let mut iov = [IoSliceMut::new(buffer)];
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(fd, &mut iov, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => {
                self.empty.set(clock::monotonic());
                return Ok(None);
            }
            Err(Errno::EINTR) => return Ok(None),
            // An ICMP error, which is also in the error queue; the next call returns the datagram.
            Err(_) if self.wants_icmp => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let clocks = Clocks::read();
        let (mut stamp, mut class, mut ttl) = (None, None, None);
        let (mut local, mut interface) = (None, None);
        for item in message.cmsgs()? {
            match item {
                ControlMessageOwned::ScmTimestampsns(stamps) => {
                    stamp = clocks.convert(stamps.system, &self.ahead);
                }
                ControlMessageOwned::Ipv4Tos(tos) => class = Some(tos),
                ControlMessageOwned::Ipv6TClass(tclass) => class = u8::try_from(tclass).ok(),
                ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                    ttl = u8::try_from(hops).ok();
                }
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    local = Some(IpAddr::from(info.ipi_addr.s_addr.to_ne_bytes()));
                    interface = u32::try_from(info.ipi_ifindex).ok();
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    local = Some(IpAddr::from(info.ipi6_addr.s6_addr).to_canonical());
                    interface = Some(info.ipi6_ifindex);
                }
                _ => {}
            }
        }
        let source = message.address.as_ref().and_then(inward);
        Ok(Some(Datagram {
            len: message.bytes,
            truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
            source: source.ok_or(io::ErrorKind::AddrNotAvailable)?,
            local,
            interface,
            at: stamp.map_or(clocks.monotonic, |stamp| stamp.at),
            kernel_stamp: stamp.is_some(),
            error: stamp.map_or(clocks.monotonic.since(self.empty.get()), |stamp| stamp.error),
            seen: clocks.monotonic,
            class,
            ttl,
        }))
    }

    /// Reads the next transmit stamp; `None` if none is waiting. Stamps may arrive out of order, or never if the device
    /// driver takes none. Queues the ICMP errors that it finds for [`TimestampedSocket::icmp_error`].
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn tx_stamp(&self) -> io::Result<Option<TxStamp>> {
        loop {
            let mut control = nix::cmsg_space!([u8; CONTROL_BYTES]);
            let mut quote = [0; icmp::QUOTE_MAX];
            let mut iov = [IoSliceMut::new(&mut quote)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let message = match recvmsg::<SockaddrStorage>(fd, &mut iov, Some(&mut control), flags)
            {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let clocks = Clocks::read();
            let (mut stamp, mut number, mut said) = (None, None, None);
            for item in message.cmsgs()? {
                match item {
                    ControlMessageOwned::ScmTimestampsns(stamps) => {
                        stamp = clocks.convert(stamps.system, &self.ahead);
                    }
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _)
                        if error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING =>
                    {
                        number = Some(error.ee_data);
                    }
                    ControlMessageOwned::Ipv4RecvErr(error, by) => said = icmp::said_v4(&error, by),
                    ControlMessageOwned::Ipv6RecvErr(error, by) => said = icmp::said_v6(&error, by),
                    _ => {}
                }
            }
            let to = message.address.as_ref().and_then(inward);
            let bytes = message.bytes;
            if let (Some((reason, from)), Some(to)) = (said, to) {
                let quote = quote[..bytes.min(icmp::QUOTE_MAX)].to_vec();
                self.keep_icmp(IcmpError { to, from, reason, quote });
            }
            if let (Some(stamp), Some(number)) = (stamp, number) {
                let id = self.kernel_zero.wrapping_add(number);
                // A straggler from before the count restarted names an id not yet assigned.
                if id.wrapping_sub(self.kernel_zero) < self.next_id.wrapping_sub(self.kernel_zero) {
                    return Ok(Some(TxStamp { id, at: stamp.at, error: stamp.error }));
                }
            }
        }
    }

    /// Returns the next ICMP error that [`TimestampedSocket::tx_stamp`] has queued.
    pub fn icmp_error(&self) -> Option<IcmpError> {
        self.icmp.borrow_mut().pop_front()
    }

    /// Queues an error, or drops it if the queue is full.
    fn keep_icmp(&self, error: IcmpError) {
        let mut waiting = self.icmp.borrow_mut();
        if waiting.len() < icmp::WAITING_MAX {
            waiting.push_back(error);
        }
    }

    /// Turns stamps on and restarts the kernel's datagram count at zero.
    fn start_stamps(&mut self) {
        let receive = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
        let both = receive
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        // The count restarts when the option goes from off to on, not when it is set again.
        let _ = setsockopt(&self.socket, Timestamping, &receive);
        self.tx_stamps =
            self.want_tx_stamps && setsockopt(&self.socket, Timestamping, &both).is_ok();
        self.kernel_zero = self.next_id;
    }

    fn outward(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(a) if self.v6 => {
                SocketAddrV6::new(a.ip().to_ipv6_mapped(), a.port(), 0, 0).into()
            }
            other => other,
        }
    }
}

impl AsFd for TimestampedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TimestampedSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

fn inward(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(a) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(a.ip().into(), a.port()));
    }
    let a = address.as_sockaddr_in6()?;
    match a.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddr::new(ip.into(), a.port())),
        // The scope matters for link-local addresses. The flow label is not part of an address.
        IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, a.port(), 0, a.scope_id()).into()),
    }
}
