//! Complete IP packets into and out of a device without a frame header.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A packet socket on one device.
pub(crate) struct Tap {
    socket: OwnedFd,
    ifindex: i32,
}

impl Tap {
    /// Opens it on the device with this name in the caller's namespace.
    pub(crate) fn new(device: &str) -> Tap {
        let ifindex = segue_linux::link::index_of(device).unwrap() as i32;
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain values.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, protocol.into()) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let tap = Tap { socket, ifindex };
        let address = tap.address(protocol);
        // SAFETY: the address lives until the call returns, its size is given.
        let bound = unsafe {
            let len = std::mem::size_of_val(&address) as u32;
            libc::bind(fd, (&raw const address).cast(), len)
        };
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        tap
    }

    fn address(&self, protocol: u16) -> libc::sockaddr_ll {
        // SAFETY: an all-zero sockaddr_ll is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = self.ifindex;
        address
    }

    /// Sends a packet out of the device, like its network stack.
    pub(crate) fn send(&self, packet: &[u8]) {
        let protocol = if packet[0] >> 4 == 4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let address = self.address((protocol as u16).to_be());
        let (fd, len) = (self.socket.as_raw_fd(), std::mem::size_of_val(&address) as u32);
        // SAFETY: packet and address live until the call returns, with the lengths given.
        let sent = unsafe {
            let to = (&raw const address).cast();
            libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, to, len)
        };
        assert_eq!(sent, packet.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// The next packet that has arrived on the device, or has left over it, if there is one.
    pub(crate) fn next(&self, left: bool) -> Option<Vec<u8>> {
        let mut buffer = [0u8; 66_000];
        loop {
            let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
            let mut from = self.address(0);
            let mut len = std::mem::size_of_val(&from) as u32;
            // SAFETY: buffer and address have the lengths given and outlive the call.
            let n = unsafe {
                let (data, from) = (buffer.as_mut_ptr().cast(), (&raw mut from).cast());
                libc::recvfrom(fd, data, buffer.len(), flags, from, &mut len)
            };
            match usize::try_from(n) {
                // The socket receives outgoing packets too, even its own.
                Ok(_) if (from.sll_pkttype == libc::PACKET_OUTGOING) != left => {}
                Ok(n) => return Some(buffer[..n].to_vec()),
                Err(_) => {
                    let error = std::io::Error::last_os_error();
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return None;
                }
            }
        }
    }

    /// Waits until exactly this packet has arrived on the device.
    pub(crate) fn expect(&self, packet: &[u8]) {
        self.expect_where(&format!("{packet:02x?}"), |got| got == packet);
    }

    /// Waits until a matching packet has arrived on the device.
    pub(crate) fn expect_where(&self, what: &str, fits: impl Fn(&[u8]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            match self.next(false) {
                Some(got) if fits(&got) => return,
                Some(got) => seen.push(got),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        panic!("not within 10 s: {what}\nseen: {seen:02x?}");
    }
}

/// A UDP datagram with distinctive values in the fields that a tunnel might change.
pub(crate) fn packet(source: IpAddr, destination: IpAddr, n: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = etherparse::Ipv4Header::new(
                (8 + payload.len()) as u16,
                9,
                etherparse::IpNumber::UDP,
                source.octets(),
                destination.octets(),
            )
            .unwrap();
            ip.identification = 0xa500 | n;
            ip.dscp = ((n % 64) as u8).try_into().unwrap();
            ip.ecn = ((n % 3) as u8).try_into().unwrap();
            ip.dont_fragment = n.is_multiple_of(2);
            ip.header_checksum = ip.calc_header_checksum();
            let udp = etherparse::UdpHeader::with_ipv4_checksum(4000, 4001, &ip, payload).unwrap();
            ip.write(&mut packet).unwrap();
            udp.write(&mut packet).unwrap();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = etherparse::Ipv6Header {
                traffic_class: (n % 64) as u8 * 4 + (n % 3) as u8,
                flow_label: (u32::from(n) * 77).try_into().unwrap(),
                payload_length: (8 + payload.len()) as u16,
                next_header: etherparse::IpNumber::UDP,
                hop_limit: 9,
                source: source.octets(),
                destination: destination.octets(),
            };
            let udp = etherparse::UdpHeader::with_ipv6_checksum(4000, 4001, &ip, payload).unwrap();
            ip.write(&mut packet).unwrap();
            udp.write(&mut packet).unwrap();
        }
        _ => unreachable!("one family"),
    }
    packet.extend(payload);
    packet
}
