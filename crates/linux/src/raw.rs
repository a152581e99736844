//! Protocols right above IPv6, through the system's IP stack, so that its filters and IPsec policies apply: ICMPv6 and
//! the Mobility Header.
//!
//! Of ICMPv6 the kernel computes and checks the checksum, and [`solicited_node`] groups, routers' groups and the like are
//! joined with [`RawSocket::join`]. The Mobility Header's checksum is the sender's and the receiver's: beside a Home
//! Address option or a type 2 routing header it covers other addresses than those that the packet has (RFC 6275,
//! 6.1.1), and the kernel would take the packet's.
//!
//! A packet with a Home Address option or a type 2 routing header that *arrives* is refused by a kernel without Mobile
//! IPv6 before any raw socket has it. The packet path takes those.

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

/// `linux/icmpv6.h`: the option that says which types to block.
const ICMPV6_FILTER: libc::c_int = 1;
/// Room for packet information, a hop limit and a time stamp.
const CONTROL_BYTES: usize = 128;
/// What is kept of a packet of a tunnel, and the room for all that wait.
const STRAY_BYTES: u32 = 64;
const STRAYS_BYTES: usize = 256 << 10;
/// Length of an IPv6 header.
const HEADER_BYTES: usize = 40;

/// A socket for one protocol, of all interfaces, that never blocks.
#[derive(Debug)]
pub struct RawSocket {
    socket: Socket,
    /// Sends packets whose IPv6 header is made here.
    whole: Option<Socket>,
    protocol: u8,
    /// What has been joined, with the index of the interface.
    joined: BTreeSet<(Ipv6Addr, u32)>,
}

/// A header between the IPv6 header and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its protocol number: 60 for destination options, 43 for routing.
    pub protocol: u8,
    /// The header, a multiple of eight bytes. The first says what follows, and is written here.
    pub bytes: &'a [u8],
}

impl RawSocket {
    /// Opens one for ICMPv6 that receives messages of these types alone.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
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

    /// Opens one for the Mobility Header.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
    pub fn mobility() -> Result<RawSocket> {
        RawSocket::open(MOBILITY, |socket| {
            option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_CHECKSUM, &-1i32)
        })
    }

    /// Opens one for packets of tunnels over IPv6 that nothing takes before: of this protocol, 4 or 41 in IP and 47 in GRE. It
    /// has the first bytes of few packets, to show who sends some.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
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
        // What it says to a group is not for itself.
        socket.set_multicast_loop_v6(false).map_err(refused)?;
        Ok(RawSocket { socket, whole: None, protocol, joined: BTreeSet::new() })
    }

    /// Its protocol number.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Receives what is sent to a group on an interface. The kernel lets one socket join some hundreds
    /// (`net.core.optmem_max`).
    ///
    /// # Errors
    /// No such interface, or too many groups.
    pub fn join(&mut self, group: Ipv6Addr, interface: u32) -> Result<()> {
        if self.joined.contains(&(group, interface)) {
            return Ok(());
        }
        match self.socket.join_multicast_v6(&group, interface) {
            // The interface was away for a time, and has kept it.
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

    /// Receives nothing more that is sent to a group on an interface, unless others here joined it.
    pub fn leave(&mut self, group: Ipv6Addr, interface: u32) {
        if self.joined.remove(&(group, interface)) {
            // An interface that has gone has left all groups.
            let _ = self.socket.leave_multicast_v6(&group, interface);
        }
    }

    /// The interfaces that are there. With the others the kernel forgets what was joined.
    pub fn keep(&mut self, interfaces: &BTreeSet<u32>) {
        let gone = |joined: &&(Ipv6Addr, u32)| !interfaces.contains(&joined.1);
        let gone: Vec<(Ipv6Addr, u32)> = self.joined.iter().filter(gone).copied().collect();
        for (group, interface) in gone {
            self.leave(group, interface);
        }
    }

    /// Sends a message. The kernel chooses its source if that is unspecified, its way if no interface is named, and cuts
    /// it into fragments if it is too long.
    ///
    /// # Errors
    /// `InvalidInput` if the message is of another protocol or family, or the kernel's: `PermissionDenied` if an IPsec
    /// policy or a filter blocks it, `WouldBlock` if there is no room.
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

    /// Sends a message behind these headers, in this order. The message must have its source, and is not cut; its
    /// destination is the packet's, the next one's of a routing header. Policies see the message's protocol.
    ///
    /// # Errors
    /// As [`RawSocket::send`]; `InvalidInput` also if a header's length is no multiple of eight, or without a source;
    /// `EMSGSIZE` if the packet is too long for the interface.
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

    /// Takes the next message, with how long it has waited; `None` if none waits.
    ///
    /// # Errors
    /// The kernel's.
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

/// The group of all nodes that may have an address (RFC 4291, 2.7.1).
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

/// How long ago, by the time of day, something was; zero if that lies ahead, since the clock was set.
fn since(stamp: std::time::Duration) -> u64 {
    let now = std::time::Duration::from_nanos(clock::realtime_ns());
    u64::try_from(now.saturating_sub(stamp).as_nanos()).unwrap_or(0)
}

fn new(protocol: u8) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(protocol));
    Socket::new(Domain::IPV6, Type::RAW.nonblocking(), Some(protocol))
}

/// One that sends whole packets and receives nothing. It has its message's protocol, which policies go by.
fn new_whole(protocol: u8) -> io::Result<Socket> {
    let socket = new(protocol)?;
    let nothing = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0);
    socket.attach_filter(&[nothing])?;
    option::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, &1i32)?;
    socket.set_multicast_loop_v6(false)?;
    Ok(socket)
}

/// A whole packet (RFC 8200, section 3).
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
