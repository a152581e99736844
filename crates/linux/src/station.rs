//! Packets for one station of a link, whatever their destination: a router advertisement for all nodes, say, that only
//! one of them is to have (RFC 6085).

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use segue_ip::Datagram;

use crate::error::{LinuxError, Result};
use crate::raw::packet;

/// A socket that sends to stations, over all Ethernet interfaces of its namespace. It receives nothing and never blocks.
///
/// What it sends goes past the IP stack: no filter and no IPsec policy sees it.
#[derive(Debug)]
pub struct Stations(OwnedFd);

impl Stations {
    /// Opens it in the calling thread's namespace.
    ///
    /// # Errors
    /// No permission (needs `CAP_NET_RAW`).
    pub fn open() -> Result<Stations> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Of protocol 0, no frame comes.
        // SAFETY: no memory is passed.
        let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) });
        let fd = fd.map_err(|e| LinuxError::refused("open a packet socket", e))?;
        // SAFETY: a descriptor just made, with no other owner.
        Ok(Stations(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a message over IPv6 in a frame from the interface that it names to the station with this link-layer
    /// address. The message has its source, its destination and its checksum.
    ///
    /// # Errors
    /// `InvalidInput` if the message names no interface or is not over IPv6, or the kernel's: `EMSGSIZE` if it is too
    /// long for the interface, `ENETDOWN`, `WouldBlock` if there is no room.
    pub fn send(&self, station: [u8; 6], message: &Datagram) -> io::Result<()> {
        let (IpAddr::V6(from), IpAddr::V6(to), Some(interface)) =
            (message.from.0, message.to.0, message.interface)
        else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let packet = packet(&[], message, from, to)?;
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
