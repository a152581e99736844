//! Raw sockets for protocols directly above IPv6: ICMPv6 and the Mobility Header. Packets pass the system's IP stack,
//! so its filters and IPsec policies apply.
//!
//! For ICMPv6 the kernel computes and verifies checksums. Join groups with [`RawSocket::join`], for example
//! [`solicited_node`] or all routers. For the Mobility Header, sender and receiver handle the checksum themselves: with
//! a Home Address option or a type 2 routing header it covers other addresses than those in the packet (RFC 6275,
//! 6.1.1), and the kernel would use the packet's.
//!
//! A kernel without Mobile IPv6 rejects *received* packets with a Home Address option or a type 2 routing header before
//! any raw socket sees them. The packet path receives those.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv6RecvHopLimit, Ipv6RecvPacketInfo, ReceiveTimestampns};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg, sendmsg, setsockopt,
};
use segue_ip::Datagram;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::clock;
use crate::error::{LinuxError, Result};
use crate::option;

/// The protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// The protocol number of the Mobility Header.
pub const MOBILITY: u8 = 135;

/// The socket option for a filter of message types (`linux/icmpv6.h`).
const ICMPV6_FILTER: libc::c_int = 1;
/// Room for packet information, a hop limit and a time stamp.
const CONTROL_BYTES: usize = 128;
/// Bytes read of a stray tunnel packet, and the receive buffer for all strays.
const STRAY_BYTES: u32 = 64;
const STRAYS_BYTES: usize = 256 << 10;
/// Length of an IPv6 header.
const HEADER_BYTES: usize = 40;

/// A non-blocking socket for one protocol on all interfaces.
#[derive(Debug)]
pub struct RawSocket {
    socket: Socket,
    /// Sends packets whose IPv6 header this module builds.
    whole: Option<Socket>,
    protocol: u8,
    /// Joined groups, each with the index of its interface.
    joined: BTreeSet<(Ipv6Addr, u32)>,
}

/// A header between the IPv6 header and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its protocol number: 60 for destination options, 43 for routing.
    pub protocol: u8,
    /// The header; its length is a multiple of eight bytes. Sending overwrites the first byte, the Next Header field.
    pub bytes: &'a [u8],
}

impl RawSocket {
    /// Opens a socket for ICMPv6 that receives only messages of these types.
    ///
    /// # Errors
    /// No permission (requires `CAP_NET_RAW`).
    pub fn icmpv6(types: &[u8]) -> Result<RawSocket> {
        // A set bit blocks that type.
        let mut filter = [u32::MAX; 8];
        for kind in types {
            filter[usize::from(*kind >> 5)] &= !(1 << (kind & 31));
        }
        RawSocket::open(ICMPV6, |socket| {
            option::set(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &filter)
        })
    }

    /// Opens a socket for the Mobility Header.
    ///
    /// # Errors
    /// No permission (requires `CAP_NET_RAW`).
    pub fn mobility() -> Result<RawSocket> {
        RawSocket::open(MOBILITY, |socket| {
            option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_CHECKSUM, &-1i32)
        })
    }

    /// Opens a socket for tunnel packets over IPv6 that no tunnel has consumed: protocol 4 or 41 for IP, 47 for GRE. It
    /// keeps the first bytes of a few packets, enough to show who sends them.
    ///
    /// # Errors
    /// No permission (requires `CAP_NET_RAW`).
    pub fn strays(protocol: u8) -> Result<RawSocket> {
        let opened = RawSocket::open(protocol, |_| Ok(()))?;
        let first = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, STRAY_BYTES);
        let set = opened.socket.attach_filter(&[first]);
        let set = set.and_then(|()| opened.socket.set_recv_buffer_size(STRAYS_BYTES));
        set.map_err(|e| LinuxError::refused(format!("open {}", named(protocol)), e))?;
        Ok(opened)
    }

    fn open(protocol: u8, set: impl FnOnce(&Socket) -> nix::Result<()>) -> Result<RawSocket> {
        let refused = |e: io::Error| LinuxError::refused(format!("open {}", named(protocol)), e);
        let socket = new(protocol).map_err(refused)?;
        set(&socket).map_err(|e| refused(e.into()))?;
        setsockopt(&socket, Ipv6RecvPacketInfo, &true).map_err(|e| refused(e.into()))?;
        setsockopt(&socket, Ipv6RecvHopLimit, &true).map_err(|e| refused(e.into()))?;
        setsockopt(&socket, ReceiveTimestampns, &true).map_err(|e| refused(e.into()))?;
        // Our own messages to a group must not come back.
        socket.set_multicast_loop_v6(false).map_err(refused)?;
        Ok(RawSocket { socket, whole: None, protocol, joined: BTreeSet::new() })
    }

    /// Its protocol number.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Joins a group on an interface. The kernel limits a socket to some hundreds of groups (`net.core.optmem_max`).
    ///
    /// # Errors
    /// No such interface, or too many groups.
    pub fn join(&mut self, group: Ipv6Addr, interface: u32) -> Result<()> {
        if self.joined.contains(&(group, interface)) {
            return Ok(());
        }
        match self.socket.join_multicast_v6(&group, interface) {
            // `AddrInUse`: the interface was away for a time and kept its membership.
            Err(e) if e.kind() != ErrorKind::AddrInUse => {
                let what = format!("join {group} on the interface with index {interface}");
                Err(LinuxError::refused(what, e))
            }
            _ => {
                self.joined.insert((group, interface));
                Ok(())
            }
        }
    }

    /// Leaves a group on an interface. Its messages still arrive if other sockets here have joined the group.
    pub fn leave(&mut self, group: Ipv6Addr, interface: u32) {
        if self.joined.remove(&(group, interface)) {
            // The call fails if the interface was removed, which ends its memberships anyway.
            let _ = self.socket.leave_multicast_v6(&group, interface);
        }
    }

    /// Forgets memberships on interfaces other than these, as the kernel does when an interface is removed.
    pub fn keep(&mut self, interfaces: &BTreeSet<u32>) {
        let gone = |joined: &&(Ipv6Addr, u32)| !interfaces.contains(&joined.1);
        let gone: Vec<(Ipv6Addr, u32)> = self.joined.iter().filter(gone).copied().collect();
        for (group, interface) in gone {
            self.leave(group, interface);
        }
    }

    /// Sends a message. The kernel chooses the source if it is unspecified, and the route if no interface is named. It
    /// fragments a message that is too long.
    ///
    /// # Errors
    /// `InvalidInput` if the message is of another protocol or family, otherwise an error of the kernel:
    /// `PermissionDenied` if an IPsec policy or a filter blocks it, `WouldBlock` if the queue is full.
    pub fn send(&self, message: &Datagram) -> io::Result<()> {
        let (from, to) = self.ends(message)?;
        let hops = i32::from(message.hop_limit);
        let hops = ControlMessage::Ipv6HopLimit(&hops);
        send(
            &self.socket,
            &[IoSlice::new(&message.bytes)],
            (from, to),
            message.interface,
            Some(hops),
        )
    }

    /// Sends a message behind these headers, in this order, without fragmentation. The message must have a source. Its
    /// destination is that of the packet; a routing header carries the next destination. IPsec policies see the
    /// message's protocol.
    ///
    /// # Errors
    /// As for [`RawSocket::send`]; `InvalidInput` also if a header's length is not a multiple of eight or if the source
    /// is missing; `EMSGSIZE` if the packet is too long for the interface.
    pub fn send_behind(&mut self, headers: &[Extension<'_>], message: &Datagram) -> io::Result<()> {
        let (from, to) = self.ends(message)?;
        if from.is_unspecified() {
            return Err(ErrorKind::InvalidInput.into());
        }
        let packet = packet(headers, message, from, to)?;
        let whole = match &mut self.whole {
            Some(whole) => whole,
            none => none.insert(new_whole(self.protocol)?),
        };
        send(whole, &[IoSlice::new(&packet)], (from, to), message.interface, None)
    }

    /// Reads the next message and its waiting time; `None` if none is waiting.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let mut control = nix::cmsg_space!([u8; CONTROL_BYTES]);
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let mut parts = [IoSliceMut::new(buffer)];
        let message = match recvmsg::<SockaddrIn6>(fd, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut interface, mut hop_limit, mut to) = (None, 0, Ipv6Addr::UNSPECIFIED);
        let mut waited_ns = 0;
        for item in message.cmsgs()? {
            match item {
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    (to, interface) = (info.ipi6_addr.s6_addr.into(), Some(info.ipi6_ifindex));
                }
                ControlMessageOwned::Ipv6HopLimit(hops) => {
                    hop_limit = u8::try_from(hops).unwrap_or(0);
                }
                ControlMessageOwned::ScmTimestampns(stamp) => waited_ns = since(stamp.into()),
                _ => {}
            }
        }
        let from = message.address.ok_or(ErrorKind::AddrNotAvailable)?.ip();
        let (len, protocol) = (message.bytes, self.protocol);
        let bytes = buffer.get(..len).unwrap_or_default().to_vec();
        let (from, to) = ((from.into(), 0), (to.into(), 0));
        Ok(Some(Datagram { waited_ns, interface, from, to, protocol, hop_limit, bytes }))
    }

    fn ends(&self, message: &Datagram) -> io::Result<(Ipv6Addr, Ipv6Addr)> {
        match (message.from.0, message.to.0) {
            (IpAddr::V6(from), IpAddr::V6(to)) if message.protocol == self.protocol => {
                Ok((from, to))
            }
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The solicited-node multicast address (RFC 4291, 2.7.1).
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

fn named(protocol: u8) -> &'static str {
    match protocol {
        ICMPV6 => "a socket for ICMPv6",
        MOBILITY => "a socket for the Mobility Header",
        _ => "a socket for packets of tunnels",
    }
}

/// Nanoseconds since `stamp`, on the realtime clock; zero if `stamp` is in the future because the clock was set.
fn since(stamp: std::time::Duration) -> u64 {
    let now = std::time::Duration::from_nanos(clock::realtime_ns());
    u64::try_from(now.saturating_sub(stamp).as_nanos()).unwrap_or(0)
}

fn new(protocol: u8) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(protocol));
    Socket::new(Domain::IPV6, Type::RAW.nonblocking(), Some(protocol))
}

/// A socket that sends whole packets and receives nothing. Its protocol is that of the message, for IPsec policies.
fn new_whole(protocol: u8) -> io::Result<Socket> {
    let socket = new(protocol)?;
    let nothing = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
    socket.attach_filter(&[nothing])?;
    option::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, &1i32)?;
    socket.set_multicast_loop_v6(false)?;
    Ok(socket)
}

/// Builds a whole packet (RFC 8200, section 3).
pub(crate) fn packet(
    headers: &[Extension<'_>],
    message: &Datagram,
    from: Ipv6Addr,
    to: Ipv6Addr,
) -> io::Result<Vec<u8>> {
    let invalid = io::Error::from(ErrorKind::InvalidInput);
    let fits =
        |header: &Extension<'_>| !header.bytes.is_empty() && header.bytes.len().is_multiple_of(8);
    let length = headers.iter().map(|header| header.bytes.len()).sum::<usize>();
    let Ok(length) = u16::try_from(length + message.bytes.len()) else { return Err(invalid) };
    if !headers.iter().all(fits) {
        return Err(invalid);
    }
    let mut next = headers.iter().map(|header| header.protocol).chain([message.protocol]);
    let mut packet = Vec::with_capacity(HEADER_BYTES + usize::from(length));
    packet.extend([0x60, 0, 0, 0]);
    packet.extend(length.to_be_bytes());
    packet.extend(next.next());
    packet.push(message.hop_limit);
    packet.extend(from.octets());
    packet.extend(to.octets());
    for header in headers {
        packet.extend(next.next());
        packet.extend(&header.bytes[1..]);
    }
    packet.extend(&message.bytes);
    Ok(packet)
}

fn send(
    socket: &Socket,
    parts: &[IoSlice<'_>],
    (from, to): (Ipv6Addr, Ipv6Addr),
    interface: Option<u32>,
    hops: Option<ControlMessage<'_>>,
) -> io::Result<()> {
    let ipi6_addr = libc::in6_addr { s6_addr: from.octets() };
    let way = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: interface.unwrap_or(0) };
    let control: Vec<_> = [ControlMessage::Ipv6PacketInfo(&way)].into_iter().chain(hops).collect();
    let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, interface.unwrap_or(0)));
    loop {
        match sendmsg(socket.as_raw_fd(), parts, &control, MsgFlags::MSG_DONTWAIT, Some(&to)) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stand_in_their_order_and_each_names_the_next() {
        let address = |last: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        let message = Datagram {
            waited_ns: 0,
            interface: None,
            from: (address(1).into(), 0),
            to: (address(2).into(), 0),
            protocol: MOBILITY,
            hop_limit: 64,
            bytes: vec![59, 1, 5, 0, 0, 0, 0, 0],
        };
        let (routing, options) = ([0xff; 24], [0xee; 8]);
        let headers = [
            Extension { protocol: 43, bytes: &routing },
            Extension { protocol: 60, bytes: &options },
        ];
        let whole = packet(&headers, &message, address(1), address(2)).unwrap();
        assert_eq!(whole[..8], [0x60, 0, 0, 0, 0, 40, 43, 64]);
        assert_eq!(whole[8..40], [address(1).octets(), address(2).octets()].concat());
        assert_eq!((whole[40], whole[64], whole.len()), (60, MOBILITY, 80));
        assert_eq!((&whole[41..64], &whole[65..72]), (&routing[1..], &options[1..]));
        assert_eq!(whole[72..], message.bytes);
        let odd = [Extension { protocol: 60, bytes: &options[..7] }];
        assert!(packet(&odd, &message, address(1), address(2)).is_err());
    }

    #[test]
    fn the_solicited_node_group_has_the_last_three_bytes_of_the_address() {
        // The example of RFC 4291, 2.7.1.
        let address = "4037::01:800:200E:8C6C".parse().unwrap();
        assert_eq!(solicited_node(address), "FF02::1:FF0E:8C6C".parse::<Ipv6Addr>().unwrap());
    }
}
