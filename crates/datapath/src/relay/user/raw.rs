//! Raw sockets, which send complete packets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use segue_linux::LinuxError;
use segue_linux::netns::Netns;
use segue_linux::route::Hop;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::option;
use crate::user::control::{self, Writer};

/// Bytes of send buffer for each interface and family.
const SEND_BUFFER: usize = 4 << 20;
/// Most packets in one call.
const BATCH: usize = 64;

/// Pieces of a packet: outer headers, inner headers, payload.
pub(super) type Pieces<'a> = [IoSlice<'a>; 3];

/// How packets leave. The next hop has the packets' family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) hop: Hop,
    /// Firewall mark; 0 for none.
    pub(super) mark: u32,
}

/// Sends packets with IP headers made here. Each interface and family has a socket, so that a slow interface does not
/// block the others.
pub(super) struct Senders {
    sockets: BTreeMap<(u32, bool), Socket>,
    /// The namespace of the sockets, regardless of the sending thread.
    netns: Netns,
}

impl Senders {
    /// Sockets will be created in the calling thread's namespace.
    pub(super) fn new() -> Result<Senders, LinuxError> {
        Ok(Senders { sockets: BTreeMap::new(), netns: Netns::current()? })
    }

    /// Sends packets in order, without blocking. Returns how many were sent before the first failure.
    pub(super) fn send(&mut self, packets: &[Pieces<'_>], out: &Out) -> (usize, io::Result<()>) {
        let socket = match self.socket(out) {
            Ok(socket) => socket,
            Err(error) => return (0, Err(error)),
        };
        let mut sent = 0;
        while sent < packets.len() {
            let batch = &packets[sent..packets.len().min(sent + BATCH)];
            match send_batch(socket, batch, out) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (sent, Err(error)),
            }
        }
        (sent, Ok(()))
    }

    fn socket(&mut self, out: &Out) -> io::Result<&Socket> {
        let v6 = out.hop.next.is_ipv6();
        match self.sockets.entry((out.hop.interface, v6)) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(none) => {
                let socket = self.netns.run(|| open(v6)).map_err(io::Error::other)??;
                Ok(none.insert(socket))
            }
        }
    }
}

fn open(v6: bool) -> io::Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let protocol = Some(Protocol::from(libc::IPPROTO_RAW));
    let socket = Socket::new(domain, Type::RAW.nonblocking(), protocol)?;
    let forced = libc::SO_SNDBUFFORCE;
    if option::set(&socket, libc::SOL_SOCKET, forced, SEND_BUFFER as i32).is_err() {
        socket.set_send_buffer_size(SEND_BUFFER)?;
    }
    if v6 {
        option::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
    }
    Ok(socket)
}

fn send_batch(socket: &Socket, packets: &[Pieces<'_>], out: &Out) -> io::Result<usize> {
    let (nobody, name) = match out.hop.next {
        IpAddr::V4(to) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), SocketAddr::from((to, 0))),
        IpAddr::V6(to) => {
            (Ipv6Addr::UNSPECIFIED.into(), SocketAddrV6::new(to, 0, 0, out.hop.interface).into())
        }
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
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok((sent as usize).max(1)) }
}

/// Checked at compile time: the buffer holds both control messages of a packet.
const _: () = assert!(size_of::<control::Buffer>() >= 64);
