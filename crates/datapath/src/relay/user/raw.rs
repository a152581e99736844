//! Raw sockets, which send whole packets.

use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use segue_linux::route::Hop;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::option;
use crate::user::control::{self, Writer};

/// Bytes of buffer for packets on their way out.
const SEND_BUFFER: usize = 4 << 20;
/// Packets that one call takes.
const BATCH: usize = 64;
/// How long a sender waits for room, in milliseconds.
const SEND_WAIT_MS: i32 = 10;

/// Pieces of a packet: outer headers, inner headers, payload.
pub(super) type Pieces<'a> = [IoSlice<'a>; 3];

/// How packets leave. A next hop of the other family than theirs cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) hop: Hop,
    /// Firewall mark; 0 is none.
    pub(super) mark: u32,
}

/// Sends packets whose IP header was made here.
pub(super) struct Sender {
    v4: Socket,
    /// `None` in a kernel without IPv6.
    v6: Option<Socket>,
}

impl Sender {
    pub(super) fn open() -> io::Result<Sender> {
        let raw = Some(Protocol::from(libc::IPPROTO_RAW));
        let new = |domain| -> io::Result<Socket> {
            let socket = Socket::new(domain, Type::RAW.nonblocking(), raw)?;
            let forced = libc::SO_SNDBUFFORCE;
            if option::set(&socket, libc::SOL_SOCKET, forced, SEND_BUFFER as i32).is_err() {
                socket.set_send_buffer_size(SEND_BUFFER)?;
            }
            Ok(socket)
        };
        let v6 = match new(Domain::IPV6) {
            Ok(socket) => {
                option::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
                Some(socket)
            }
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        Ok(Sender { v4: new(Domain::IPV4)?, v6 })
    }

    /// Sends packets in order; waits briefly for room. Returns how many went before one could not.
    pub(super) fn send(&self, packets: &[Pieces<'_>], out: &Out) -> (usize, io::Result<()>) {
        let mut sent = 0;
        let mut waited = false;
        while sent < packets.len() {
            let batch = &packets[sent..packets.len().min(sent + BATCH)];
            match self.send_batch(batch, out) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !waited => {
                    waited = true;
                    self.wait(out);
                }
                Err(error) => return (sent, Err(error)),
            }
        }
        (sent, Ok(()))
    }

    fn socket(&self, out: &Out) -> io::Result<&Socket> {
        match out.hop.next {
            IpAddr::V4(_) => Ok(&self.v4),
            IpAddr::V6(_) => self.v6.as_ref().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn send_batch(&self, packets: &[Pieces<'_>], out: &Out) -> io::Result<usize> {
        let (nobody, name) = match out.hop.next {
            IpAddr::V4(to) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), SocketAddr::from((to, 0))),
            IpAddr::V6(to) => (
                Ipv6Addr::UNSPECIFIED.into(),
                SocketAddrV6::new(to, 0, 0, out.hop.interface).into(),
            ),
        };
        let name = SockAddr::from(name);
        let mut buffer = control::Buffer::default();
        let mut writer = Writer::new(&mut buffer);
        writer.push_source(nobody, out.hop.interface);
        if out.mark != 0 {
            writer.push(libc::SOL_SOCKET, libc::SO_MARK, out.mark);
        }
        let control_len = writer.len();
        let control = buffer.as_mut_ptr();
        let mut messages: Vec<libc::mmsghdr> = packets
            .iter()
            .map(|pieces| {
                // SAFETY: plain data for which all zero is a valid value.
                let mut message: libc::mmsghdr = unsafe { zeroed() };
                let header = &mut message.msg_hdr;
                header.msg_name = name.as_ptr().cast_mut().cast();
                header.msg_namelen = name.len();
                // IoSlice has the layout of iovec.
                header.msg_iov = pieces.as_ptr().cast_mut().cast();
                header.msg_iovlen = pieces.len();
                header.msg_control = control.cast();
                header.msg_controllen = control_len;
                message
            })
            .collect();
        // SAFETY: every message points to name, control messages and pieces that outlive the call; sendmmsg only reads
        // them, and writes the lengths into the vector.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket(out)?.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok((sent as usize).max(1)) }
    }

    fn wait(&self, out: &Out) {
        let Ok(socket) = self.socket(out) else { return };
        let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one valid pollfd. The next send shows the outcome.
        unsafe { libc::poll(&raw mut poll, 1, SEND_WAIT_MS) };
    }
}

/// The size of control messages is a compile-time fact: both of a packet's fit.
const _: () = assert!(size_of::<control::Buffer>() >= 64);
