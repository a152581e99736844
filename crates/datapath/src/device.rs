//! The TUN device, the packet sockets that write to it, and the kind of an access device.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use segue_linux::link;

use crate::{DatapathError, option};

/// Bytes of the virtio network header before each packet on the TUN descriptor.
pub(crate) const VNET_LEN: usize = 10;
/// Longest packet on the TUN descriptor, including the header.
pub(crate) const PACKET_MAX: usize = VNET_LEN + 65_536;
/// Bytes of send buffer for packets from user space to the programs.
const SEND_BUFFER: usize = 4 << 20;

/// The TUN device, removed on drop.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
    pub(crate) ifindex: u32,
    /// A netlink socket of the device's namespace, independent of the calling thread's.
    netlink: OwnedFd,
}

impl Tun {
    /// Creates the device in the calling thread's namespace and brings it up.
    pub(crate) fn create(device: &str, mtu: u32) -> Result<Tun, DatapathError> {
        let failed = |what| move |source| DatapathError::Kernel { what, source };
        let name = device.as_bytes();
        if !name.starts_with(b"segue") || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
            return Err(failed("name the TUN device")(io::ErrorKind::InvalidInput.into()));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(failed("open /dev/net/tun"))?;
        let mut request = request_for(name);
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
            .map_err(|source| DatapathError::of_device(name, source))?;
        // No UDP segmentation offload: such packets must reach the user-space half already segmented, because the
        // kernel cannot segment them inside a tunnel.
        let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        let set = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offload) };
        check(set).map_err(failed("set the TUN device's offloads"))?;
        let linux = |what| {
            move |e: segue_linux::error::LinuxError| {
                failed(what)(e.errno().map_or_else(|| io::Error::other(e.to_string()), Into::into))
            }
        };
        link::set_mtu(device, mtu).map_err(linux("set the TUN device's MTU"))?;
        link::set_up(device, true).map_err(linux("bring the TUN device up"))?;
        let ifindex = link::index_of(device).map_err(linux("find the TUN device"))?;
        let netlink = netlink().map_err(failed("ask about the TUN device"))?;
        limit_super_packets(&netlink, ifindex)
            .map_err(failed("limit the TUN device's super-packets"))?;
        Ok(Tun { file, ifindex, netlink })
    }

    /// Reads a packet with its virtio header; `None` if there is no packet.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        (&self.file).read(buffer).ok()
    }

    /// Packets dropped because the descriptor's queue was full; 0 if the kernel does not report it.
    pub(crate) fn overflowed(&self) -> u64 {
        /// RTM_GETSTATS and its bit for `struct rtnl_link_stats64`, whose eighth number is this count.
        const GET_STATS: u16 = 94;
        const LINK_64: u32 = 1;
        const HEAD: usize = 16 + 12 + 4;
        let mut message = Vec::with_capacity(28);
        message.extend(28u32.to_ne_bytes()); // struct nlmsghdr
        message.extend(GET_STATS.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend([0; 8]);
        message.extend([0; 4]); // struct if_stats_msg
        message.extend(self.ifindex.to_ne_bytes());
        message.extend(LINK_64.to_ne_bytes());
        let fd = self.netlink.as_raw_fd();
        let mut answer = [0; 1_024];
        let got = send(fd, &message, MsgFlags::empty())
            .and_then(|_| recv(fd, &mut answer, MsgFlags::empty()));
        let number = |at: usize| answer[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        match got {
            Ok(len) if len >= HEAD + 64 && answer[4..6] != libc::NLMSG_ERROR.to_ne_bytes()[..2] => {
                number(HEAD + 56)
            }
            _ => 0,
        }
    }

    /// Writes a packet with its virtio header, as if it had arrived at the device.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sends packets out of the TUN device, as if an application had sent them.
#[derive(Debug)]
pub(crate) struct Injector {
    socket: OwnedFd,
    ifindex: u32,
}

impl Injector {
    /// `vnet`: packets are preceded by a virtio network header.
    pub(crate) fn open(ifindex: u32, mark: u32, vnet: bool) -> Result<Injector, DatapathError> {
        let failed =
            |e: io::Error| DatapathError::Kernel { what: "open a packet socket", source: e };
        // Protocol 0: the socket never receives.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|e| failed(e.into()))?;
        setsockopt(&socket, sockopt::Mark, &mark).map_err(|e| failed(e.into()))?;
        setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER)
            .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER))
            .map_err(|e| failed(e.into()))?;
        option::set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, vnet.into())
            .map_err(failed)?;
        Ok(Injector { socket, ifindex })
    }

    /// Sends packets, each with its EtherType. Returns how many were dropped because the queue was full; packets that
    /// a program refuses are counted by the program.
    pub(crate) fn send(&self, packets: &[(&[u8], u16)]) -> u64 {
        let mut full = 0;
        let mut rest = packets;
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(64)];
            let sent = match self.send_batch(batch) {
                Ok(sent) => sent,
                Err(error) => {
                    full += u64::from(error.kind() == io::ErrorKind::WouldBlock);
                    1 // this one is lost; later ones may succeed
                }
            };
            rest = &rest[sent..];
        }
        full
    }

    fn send_batch(&self, packets: &[(&[u8], u16)]) -> io::Result<usize> {
        let mut names: Vec<libc::sockaddr_ll> =
            packets.iter().map(|&(_, ethertype)| self.address(ethertype)).collect();
        let mut parts: Vec<libc::iovec> = packets
            .iter()
            .map(|(bytes, _)| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = names
            .iter_mut()
            .zip(&mut parts)
            .map(|(name, part)| {
                // SAFETY: mmsghdr is plain data for which all zero is a valid value.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: every message points to a name and a part in the vectors above, every part to a
        // packet that the caller lends; sendmmsg only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        check(sent)?;
        Ok((sent as usize).max(1))
    }

    fn address(&self, ethertype: u16) -> libc::sockaddr_ll {
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::sa_family_t,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: self.ifindex as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        }
    }
}

/// Neighbour discovery, multicast and similar packets: not for a tunnel of unicast flows.
pub(crate) fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// The EtherType of an inner packet after its virtio header.
pub(crate) fn ethertype(bytes: &[u8]) -> u16 {
    match bytes.get(VNET_LEN).map(|b| b >> 4) {
        Some(6) => libc::ETH_P_IPV6 as u16,
        _ => libc::ETH_P_IP as u16,
    }
}

/// The kind of an access device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceKind {
    /// Packets arrive with an Ethernet header.
    pub(crate) ethernet: bool,
    /// A virtual Ethernet pair, which passes super-packets unsegmented unless XDP is attached.
    pub(crate) veth: bool,
    /// The hardware address of an Ethernet device.
    pub(crate) address: [u8; 6],
}

impl DeviceKind {
    /// Queries a device in the calling thread's namespace.
    pub(crate) fn of(ifindex: u32) -> io::Result<DeviceKind> {
        let name = nix::net::if_::if_indextoname(ifindex)?;
        let kind = (AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC);
        let socket = socket(kind.0, kind.1, kind.2, None)?;
        let mut request = request_for(name.to_bytes());
        // SAFETY: SIOCGIFHWADDR reads and writes one ifreq, which outlives the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
        // SAFETY: SIOCGIFHWADDR has filled this member.
        let (hardware, address) = unsafe {
            let address = request.ifr_ifru.ifru_hwaddr;
            (address.sa_family, std::array::from_fn(|i| address.sa_data[i] as u8))
        };
        Ok(DeviceKind {
            ethernet: matches!(hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
            address,
            veth: driver(&socket, &name).is_some_and(|d| d.to_bytes() == b"veth"),
        })
    }
}

/// The hardware address of a device in the calling thread's namespace.
pub(crate) fn hardware_address(ifindex: u32) -> io::Result<[u8; 6]> {
    let name = nix::net::if_::if_indextoname(ifindex)?;
    let kind = (AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC);
    let socket = socket(kind.0, kind.1, kind.2, None)?;
    let mut request = request_for(name.to_bytes());
    // SAFETY: SIOCGIFHWADDR reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: SIOCGIFHWADDR has filled this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|i| address[i] as u8))
}

/// `struct ethtool_drvinfo`; only the fields in use are named.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

fn driver(socket: &OwnedFd, name: &CStr) -> Option<std::ffi::CString> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    let mut request = request_for(name.to_bytes());
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: the kernel writes one ethtool_drvinfo (196 bytes, the size of `info`) behind the pointer.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })
        .ok()?;
    CStr::from_bytes_until_nul(&info.driver).ok().map(Into::into)
}

/// An ifreq that names a device. A name that is too long is truncated, and then not found.
fn request_for(name: &[u8]) -> libc::ifreq {
    // SAFETY: ifreq is plain data for which all zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name) {
        *to = *from as libc::c_char;
    }
    request
}

/// Largest super-packet of the TUN device in bytes. With the outer headers it must stay below 64 KiB; the kernel
/// segments larger ones, which were merged elsewhere and forwarded.
const GSO_MAX: u32 = 65_000;

fn netlink() -> io::Result<OwnedFd> {
    let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
    Ok(socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkRoute)?)
}

/// Sets `gso_max_size` of a device through rtnetlink.
fn limit_super_packets(netlink: &OwnedFd, ifindex: u32) -> io::Result<()> {
    const IFLA_GSO_MAX_SIZE: u16 = 41;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = Vec::with_capacity(40);
    message.extend(40u32.to_ne_bytes()); // struct nlmsghdr
    message.extend(libc::RTM_NEWLINK.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]); // struct ifinfomsg
    message.extend(ifindex.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(8u16.to_ne_bytes()); // struct rtattr
    message.extend(IFLA_GSO_MAX_SIZE.to_ne_bytes());
    message.extend(GSO_MAX.to_ne_bytes());
    send(netlink.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let n = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // An nlmsghdr of NLMSG_ERROR, then the negated error number: 0 for an acknowledgement.
    match answer[..n].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_linux::netns::Netns;

    #[test]
    fn the_requests_of_a_host_leave_in_one_system_call() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: packet sockets need root");
            return;
        }
        let ns = Netns::create(&format!("segue-call{}", std::process::id())).unwrap();
        ns.run(|| {
            link::set_up("lo", true).unwrap();
            let injector = Injector::open(link::index_of("lo").unwrap(), 0, false).unwrap();
            let packet = [0u8; segue_wire::Probe::PACKET_LEN];
            let packets = [(&packet[..], libc::ETH_P_IP as u16); segue_wire::MAX_PATHS];
            // All packets in one call.
            assert_eq!(injector.send_batch(&packets).unwrap(), segue_wire::MAX_PATHS);
        })
        .unwrap();
    }
}
