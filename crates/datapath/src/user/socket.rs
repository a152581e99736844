//! The outer UDP sockets: batches, segmentation and coalescing by the kernel, source addresses, and kernel timestamps
//! in both directions.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, SockAddr, Type};

use super::class::{congested, mark};
use super::control::{self, Received, Writer};
use crate::option;
use crate::sync::lock;

/// Most datagrams received in one call (each may consist of several).
pub(super) const BATCH: usize = 32;
/// Longest datagram.
const MAX_DATAGRAM: usize = 65_536;
/// Receive buffer in bytes: some milliseconds of traffic at 10 Gbit/s.
const RECEIVE_BUFFER: i32 = 8 << 20;
/// How long a sender waits for room in the socket, in milliseconds.
const SEND_WAIT_MS: i32 = 10;

/// A UDP socket for tunnel packets.
pub(super) struct Socket {
    inner: socket2::Socket,
    bound: SocketAddr,
    ifindex: u32,
    gso: AtomicBool,
    /// Never sends: the kernel reports MTUs only for connected sockets.
    asker: Mutex<socket2::Socket>,
}

/// Destination and source of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The remote end.
    pub remote: Option<SocketAddr>,
    /// Source address; `None` leaves it to the socket.
    pub local: Option<IpAddr>,
    /// Interface of a link-local source, otherwise 0.
    pub ifindex: u32,
}

impl Socket {
    /// Opens and binds a socket. `ifindex` 0 means any interface, `mark` 0 means no mark. If an option that requires
    /// a capability is refused (interface, mark, buffer), the socket works without it.
    pub(super) fn open(bound: SocketAddr, ifindex: u32, mark: u32) -> io::Result<Socket> {
        let domain = Domain::for_address(bound);
        let new = || socket2::Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP));
        let (inner, asker) = (new()?, new()?);
        if ifindex != 0 {
            // A path that is set up again may meet its predecessor's socket, which is about to be closed.
            inner.set_reuse_address(true)?;
            if let Err(error) = bind_to_interface(&inner, ifindex) {
                tracing::info!(ifindex, %error, "not bound to the interface, by source address only");
            } else {
                bind_to_interface(&asker, ifindex)?;
            }
        }
        if mark != 0
            && let Err(error) = inner.set_mark(mark).and_then(|()| asker.set_mark(mark))
        {
            tracing::info!(mark, %error, "outer packets carry no mark");
        }
        let fd = inner.as_raw_fd();
        // Packets are never fragmented. Their size is tested; a router's report is ignored, because an attacker could
        // forge it.
        if bound.is_ipv6() {
            inner.set_only_v6(true)?;
            option::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            option::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            option::set(
                &fd,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            )?;
            // A peer that encapsulates in eBPF sends no outer checksum.
            let _ = option::set(&fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
        } else {
            option::set(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            option::set(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            option::set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        }
        if option::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).is_err() {
            let _ = option::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
        }
        let _ = option::set(&fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        // Each send requests its transmit timestamp; this option only lets the kernel report timestamps.
        let stamps = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
        let _ = option::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps as i32);
        inner.bind(&bound.into())?;
        asker.bind(&SocketAddr::new(bound.ip(), 0).into())?;
        let (gso, asker) = (AtomicBool::new(true), Mutex::new(asker));
        Ok(Socket { inner, bound, ifindex, gso, asker })
    }

    /// True if a path with these parameters can share the socket.
    pub(super) fn serves(&self, bound: SocketAddr, ifindex: u32) -> bool {
        (self.bound, self.ifindex) == (bound, ifindex)
    }

    /// True if the socket supports `remote`'s family.
    pub(super) fn same_family(&self, remote: SocketAddr) -> bool {
        self.bound.is_ipv6() == remote.is_ipv6()
    }

    /// True if the kernel segments for this socket.
    pub(super) fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Records that the kernel, or the device, does not segment.
    pub(super) fn refuse_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
        tracing::info!(bound = %self.bound, "the kernel does not segment here, sending one by one");
    }

    /// Sends one buffer, which the kernel cuts into datagrams of `segment` bytes if given; waits briefly for room.
    /// `class` is DSCP and ECN of the outer header; `stamp` requests a transmit timestamp in the error queue.
    pub(super) fn send(
        &self,
        to: &Endpoint,
        iov: &mut [libc::iovec],
        segment: Option<u16>,
        class: u8,
        stamp: bool,
    ) -> io::Result<()> {
        let remote = SockAddr::from(to.remote.ok_or(io::ErrorKind::NotConnected)?);
        let mut buffer = control::Buffer::default();
        let mut writer = Writer::new(&mut buffer);
        if let Some(size) = segment {
            writer.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
        }
        if let Some(local) = to.local {
            writer.push_source(local, to.ifindex);
        }
        if class != 0 {
            let (level, kind) = if remote.is_ipv6() {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS)
            };
            writer.push(level, kind, i32::from(class));
        }
        if stamp {
            let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE;
            writer.push(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags);
        }
        let controllen = writer.len();
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = remote.as_ptr().cast_mut().cast();
        message.msg_namelen = remote.len();
        message.msg_iov = iov.as_mut_ptr();
        message.msg_iovlen = iov.len() as _;
        if controllen > 0 {
            message.msg_control = buffer.as_mut_ptr().cast();
            message.msg_controllen = controllen as _;
        }
        let mut waited = false;
        loop {
            // SAFETY: name, control and iovec array live until the call returns; the caller's iovecs
            // point at memory it borrows.
            if unsafe { libc::sendmsg(self.fd(), &message, 0) } >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock if !waited => {
                    waited = true;
                    wait(self.fd(), libc::POLLOUT, SEND_WAIT_MS);
                }
                _ => return Err(error),
            }
        }
    }

    /// The kernel's MTU of the route to a remote end, including the IP header.
    pub(super) fn mtu(&self, remote: SocketAddr) -> Option<usize> {
        let asker = lock(&self.asker);
        asker.connect(&remote.into()).ok()?;
        let (level, name) = if remote.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU)
        };
        let (mut mtu, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
        let value = (&raw mut mtu).cast();
        // SAFETY: the value is an int, its size is given, and both outlive the call.
        let got = unsafe { libc::getsockopt(asker.as_raw_fd(), level, name, value, &mut len) };
        (got == 0).then(|| usize::try_from(mtu).ok()).flatten()
    }

    /// Clears a pending error, which would end every poll(2).
    pub(super) fn clear_error(&self) {
        if let Ok(Some(error)) = self.inner.take_error() {
            tracing::debug!(bound = %self.bound, %error, "socket error");
        }
    }

    /// The descriptor, for poll(2).
    pub(super) fn fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    /// Reads the pending transmit timestamps: the tail of each looped datagram and its timestamp (time of day in
    /// nanoseconds).
    pub(super) fn drain_errors(&self, mut each: impl FnMut(&[u8], u64)) {
        let mut data = [0u8; 512];
        let mut buffer = control::Buffer::default();
        loop {
            let mut iov = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
            // SAFETY: an all-zero msghdr is valid.
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_iov = &mut iov;
            message.msg_iovlen = 1;
            message.msg_control = buffer.as_mut_ptr().cast();
            message.msg_controllen = size_of::<control::Buffer>() as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: all buffers of `message` live until the call returns, with the lengths given.
            let len = unsafe { libc::recvmsg(self.fd(), &mut message, flags) };
            let Ok(len) = usize::try_from(len) else { return };
            let received = control::read(&message);
            if let (true, Some(stamp)) = (received.transmit_stamp, received.stamp_ns) {
                each(&data[..len.min(data.len())], stamp);
            }
        }
    }
}

/// A datagram, or several of one size that the kernel merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// Outer source.
    pub from: SocketAddr,
    /// The kernel's information about it.
    pub received: Received,
    /// Index of its buffer in the batch.
    index: usize,
    /// Length in bytes.
    len: usize,
}

/// Buffers for the datagrams of one call.
pub(super) struct Batch {
    data: Vec<u8>,
    controls: Vec<control::Buffer>,
    names: Vec<libc::sockaddr_storage>,
    /// The datagrams of the last call.
    pub datagrams: Vec<Datagram>,
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch {
            data: vec![0; BATCH * MAX_DATAGRAM],
            controls: vec![control::Buffer::default(); BATCH],
            // SAFETY: an all-zero sockaddr_storage is valid.
            names: vec![unsafe { zeroed() }; BATCH],
            datagrams: Vec::with_capacity(BATCH),
        }
    }

    /// Receives the pending datagrams, at most [`BATCH`]; does not block.
    pub(super) fn receive(&mut self, socket: &Socket) -> io::Result<()> {
        self.datagrams.clear();
        let chunks = self.data.chunks_exact_mut(MAX_DATAGRAM);
        let mut iovs: [libc::iovec; BATCH] =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        for (iov, chunk) in iovs.iter_mut().zip(chunks) {
            *iov = libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() };
        }
        // SAFETY: all-zero mmsghdrs are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        for (i, message) in messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
            header.msg_iov = &raw mut iovs[i];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<control::Buffer>() as _;
        }
        let (messages_ptr, flags) = (messages.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: every pointer in `messages` is to a buffer of the stated length that lives until
        // the call returns; no timeout is given.
        let n = unsafe {
            libc::recvmmsg(socket.fd(), messages_ptr, BATCH as _, flags as _, std::ptr::null_mut())
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        for (index, message) in messages.iter().take(n).enumerate() {
            let Some(from) = address(&self.names[index]) else { continue };
            let received = control::read(&message.msg_hdr);
            let len = (message.msg_len as usize).min(MAX_DATAGRAM);
            self.datagrams.push(Datagram { from, received, index, len });
        }
        Ok(())
    }

    /// Copies congestion marks of outer headers to the inner packets of this batch.
    pub(super) fn carry_congestion(&mut self) {
        for datagram in self.datagrams.iter().filter(|d| congested(d.received.class)) {
            let at = datagram.index * MAX_DATAGRAM;
            let bytes = &mut self.data[at..at + datagram.len];
            let size = datagram.received.gro_size.unwrap_or(bytes.len()).max(1);
            bytes.chunks_mut(size).for_each(mark);
        }
    }

    /// The bytes of a datagram of this batch.
    pub(super) fn bytes(&self, datagram: &Datagram) -> &[u8] {
        let at = datagram.index * MAX_DATAGRAM;
        &self.data[at..at + datagram.len]
    }
}

/// Waits for an event on a descriptor; the caller's next call shows the outcome.
pub(super) fn wait(fd: RawFd, events: i16, timeout_ms: i32) {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, timeout_ms) };
}

fn bind_to_interface(socket: &socket2::Socket, ifindex: u32) -> io::Result<()> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that if_indextoname needs.
    if unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    socket.bind_device(Some(&name[..len]))
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure the storage holds, and it is large enough.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(std::net::SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}
