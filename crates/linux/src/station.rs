//! Stations of a link. [`Stations`] sends a packet to a single station, whatever its destination address: for example a
//! router advertisement to all nodes that only one station should receive (RFC 6085). [`Heard`] reports which stations
//! send.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, MsgFlags, recvmsg};
use segue_ip::Datagram;
use socket2::SockFilter;

use crate::error::{LinuxError, Result};
use crate::option;
use crate::raw::{Extension, ICMPV6, packet};

/// A socket that sends to single stations over any Ethernet interface of its namespace. It receives nothing and never
/// blocks.
///
/// Its packets bypass the IP stack: netfilter and IPsec policies do not see them.
#[derive(Debug)]
pub struct Stations(OwnedFd);

impl Stations {
    /// Opens the socket in the calling thread's namespace.
    ///
    /// # Errors
    /// No permission (requires `CAP_NET_RAW`).
    pub fn open() -> Result<Stations> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // A socket of protocol 0 receives no frames.
        // SAFETY: no memory is passed.
        let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) });
        let fd = fd.map_err(|e| LinuxError::refused("open a packet socket", e))?;
        // SAFETY: a descriptor just made, with no other owner.
        Ok(Stations(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Solicits a packet from all nodes of an interface's link with a Multicast Listener Query (RFC 3810, 5.1). Each
    /// node responds within milliseconds.
    ///
    /// # Errors
    /// As for [`Stations::send`].
    pub fn ask_all(&self, interface: u32, from: Ipv6Addr) -> io::Result<()> {
        self.ask([0x33, 0x33, 0, 0, 0, 1], interface, from)
    }

    /// Like [`Stations::ask_all`], for one station.
    ///
    /// # Errors
    /// As for [`Stations::send`].
    pub fn ask(&self, station: [u8; 6], interface: u32, from: Ipv6Addr) -> io::Result<()> {
        // Type, code, checksum; maximum response delay 1 ms; any group; robustness 2, interval 125 s, no sources.
        let mut bytes = [&[130, 0, 0, 0, 0, 1, 0, 0][..], &[0; 16], &[2, 125, 0, 0]].concat();
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let sum = checksum(from, all, &bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let (from, to, protocol) = ((from.into(), 0), (all.into(), 0), ICMPV6);
        let query = Datagram {
            waited_ns: 0,
            interface: Some(interface),
            from,
            to,
            protocol,
            hop_limit: 1,
            bytes,
        };
        // Router Alert option (RFC 2711) and padding.
        let alert = Extension { protocol: 0, bytes: &[0, 0, 5, 2, 0, 0, 1, 0] };
        self.send_frame(station, &[alert], &query)
    }

    /// Sends an IPv6 message in a frame to the station with this link-layer address. The message must have its
    /// interface, source, destination and checksum.
    ///
    /// # Errors
    /// `InvalidInput` if the message names no interface or is not over IPv6, otherwise an error of the kernel:
    /// `EMSGSIZE` if it is too long for the interface, `ENETDOWN`, `WouldBlock` if the queue is full.
    pub fn send(&self, station: [u8; 6], message: &Datagram) -> io::Result<()> {
        self.send_frame(station, &[], message)
    }

    fn send_frame(
        &self,
        station: [u8; 6],
        headers: &[Extension<'_>],
        message: &Datagram,
    ) -> io::Result<()> {
        let (IpAddr::V6(from), IpAddr::V6(to), Some(interface)) =
            (message.from.0, message.to.0, message.interface)
        else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let packet = packet(headers, message, from, to)?;
        // SAFETY: plain data for which all zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IPV6 as u16).to_be();
        address.sll_ifindex = interface.cast_signed();
        address.sll_halen = station.len() as u8;
        address.sll_addr[..station.len()].copy_from_slice(&station);
        let (length, address_length) = (packet.len(), size_of_val(&address) as libc::socklen_t);
        // SAFETY: packet and address outlive the call, and their lengths are passed.
        let sent = unsafe {
            let (packet, address) = (packet.as_ptr().cast(), (&raw const address).cast());
            libc::sendto(self.0.as_raw_fd(), packet, length, 0, address, address_length)
        };
        Ok(Errno::result(sent).map(drop)?)
    }
}

/// The checksum of an ICMPv6 message whose field holds zero (RFC 8200, 8.1).
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    let parts = [&from.octets()[..], &to.octets(), &length, &[0, 0, 0, ICMPV6], message];
    let sum: u32 = parts
        .iter()
        .flat_map(|part| part.chunks(2))
        .map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A station that sent an ICMPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardStation {
    /// Index of the interface.
    pub interface: u32,
    /// Its link-layer address: the source of the frame.
    pub mac: [u8; 6],
    /// Source address of the packet.
    pub source: Ipv6Addr,
    /// The packet is a router solicitation without Source Link-Layer Address option (RFC 4861, 4.1), as if sent from
    /// the unspecified address. Only the frame tells where to send the response.
    pub solicits: bool,
}

/// Whether an IPv6 packet is a router solicitation without Source Link-Layer Address option.
fn solicits(packet: &[u8]) -> bool {
    const ROUTER_SOLICITATION: u8 = 133;
    const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
    let Some((head, message)) = packet.split_at_checked(40) else { return false };
    let solicits = head[6] == ICMPV6 && head[7] == 255 && message.len() >= 8;
    if !solicits || message[0] != ROUTER_SOLICITATION || message[1] != 0 {
        return false;
    }
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut options = message.get(8..length.min(message.len())).unwrap_or_default();
    while let [kind, units, ..] = *options {
        if kind == SOURCE_LINK_LAYER_ADDRESS || units == 0 {
            return false;
        }
        options = options.get(usize::from(units) * 8..).unwrap_or_default();
    }
    true
}

/// Bytes read of a packet: enough for a solicitation with several options.
const READ: usize = 128;

/// A socket that reports the sender of each ICMPv6 packet that arrives on any interface of its namespace. Hosts send
/// such packets when they join a link, and in response to [`Stations::ask_all`].
#[derive(Debug)]
pub struct Heard(OwnedFd);

impl Heard {
    /// Opens the socket in the calling thread's namespace.
    ///
    /// # Errors
    /// No permission (requires `CAP_NET_RAW`).
    pub fn open() -> Result<Heard> {
        let refused = |e: Errno| LinuxError::refused("open a packet socket for ICMPv6", e);
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // A socket of protocol 0 receives no frames until it is bound.
        // SAFETY: no memory is passed.
        let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) });
        // SAFETY: a descriptor just made, with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.map_err(refused)?) };
        option::set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32).map_err(refused)?;
        // Next header ICMPv6, or hop-by-hop options, which precede the ICMPv6 header of listener reports.
        let filter = [
            SockFilter::new((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, 6),
            SockFilter::new(
                (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                1,
                0,
                ICMPV6.into(),
            ),
            SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, 0),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, READ as u32),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
        ];
        socket2::SockRef::from(&fd)
            .attach_filter(&filter)
            .map_err(|e| LinuxError::refused("filter a packet socket", e))?;
        // SAFETY: plain data for which all zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IPV6 as u16).to_be();
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address outlives the call, and its length is passed.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
        Errno::result(bound).map_err(refused)?;
        Ok(Heard(fd))
    }

    /// Returns the station that sent the next packet; `None` if none is waiting.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn next(&self) -> io::Result<Option<HeardStation>> {
        let mut buffer = [0; READ];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<LinkAddr>(self.0.as_raw_fd(), &mut parts, None, flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (address, length) = (message.address, message.bytes);
        let address = address.ok_or(ErrorKind::AddrNotAvailable)?;
        let interface = u32::try_from(address.ifindex()).unwrap_or(0);
        let mac = address.addr();
        let source = <[u8; 16]>::try_from(&buffer[8..24]).unwrap_or_default();
        let solicits = solicits(&buffer[..length]);
        Ok(mac.map(|mac| HeardStation { interface, mac, source: source.into(), solicits }))
    }
}

impl AsFd for Heard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with this ICMPv6 message.
    fn packet(message: &[u8]) -> Vec<u8> {
        let head = [0x60, 0, 0, 0, 0, message.len() as u8, ICMPV6, 255];
        [&head[..], &[0; 32], message].concat()
    }

    #[test]
    fn a_solicitation_that_does_not_say_its_senders_link_layer_address_is_recognised() {
        let solicitation = [133, 0, 0, 0, 0, 0, 0, 0];
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        let own = [1, 1, 2, 0, 0, 0, 0, 1];
        assert!(solicits(&packet(&solicitation)));
        assert!(solicits(&packet(&[solicitation, nonce].concat())));
        assert!(!solicits(&packet(&[solicitation, own].concat())));
        assert!(!solicits(&packet(&[solicitation, nonce, own].concat())));
        assert!(
            !solicits(&packet(&[solicitation, [14, 0, 0, 0, 0, 0, 0, 0]].concat())),
            "malformed"
        );
        assert!(!solicits(&packet(&[143, 0, 0, 0, 0, 0, 0, 0])), "a listener's report");
        assert!(!solicits(&packet(&solicitation)[..44]));
        let mut routed = packet(&solicitation);
        routed[7] = 254;
        assert!(!solicits(&routed));
    }
}
