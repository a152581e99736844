//! Control messages of datagrams: `struct cmsghdr` followed by the kernel's UDP data.

use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A buffer for all control messages that are sent or received with one datagram, aligned for `struct
/// cmsghdr`.
pub(crate) type Buffer = [u64; 32];

/// Writes control messages into a buffer.
pub(crate) struct Writer<'a> {
    buffer: &'a mut Buffer,
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer) -> Writer<'a> {
        Writer { buffer, len: 0 }
    }

    /// Appends a message; `T` is the plain C type that the kernel expects.
    pub(crate) fn push<T: Copy>(&mut self, level: i32, kind: i32, value: T) {
        // SAFETY: both compute lengths only.
        let (len, space) = unsafe {
            (libc::CMSG_LEN(size_of::<T>() as u32), libc::CMSG_SPACE(size_of::<T>() as u32))
        };
        assert!(self.len + space as usize <= size_of::<Buffer>(), "control buffer too small");
        let base = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the header and the value fit between `len` and `len + space`, which was checked to
        // lie in the buffer; `len` is a multiple of eight, the buffer's alignment.
        unsafe {
            let header = base.add(self.len).cast::<libc::cmsghdr>();
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space as usize;
    }

    /// Appends the source address of a departing datagram.
    pub(crate) fn push_source(&mut self, source: IpAddr, ifindex: u32) {
        match source {
            IpAddr::V4(source) => self.push(
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                libc::in_pktinfo {
                    ipi_ifindex: ifindex as i32,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                },
            ),
            IpAddr::V6(source) => self.push(
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
                    ipi6_ifindex: ifindex,
                },
            ),
        }
    }

    /// Number of bytes written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// The kernel's information about a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Size of each datagram that the kernel merged into this one.
    pub gro_size: Option<usize>,
    /// The destination address.
    pub local: Option<IpAddr>,
    /// The interface of arrival.
    pub ifindex: u32,
    /// DSCP and ECN of the outer header.
    pub class: u8,
    /// Software timestamp, time of day in nanoseconds.
    pub stamp_ns: Option<u64>,
    /// This is a looped datagram with its transmit timestamp.
    pub transmit_stamp: bool,
}

/// Reads the control messages of a received message.
pub(super) fn read(message: &libc::msghdr) -> Received {
    let mut received = Received::default();
    // SAFETY: the kernel filled `msg_control` for `msg_controllen` bytes, and the CMSG functions stay
    // within them; each value is read only where its message is long enough.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(cmsg) = header.as_ref() {
            match (cmsg.cmsg_level, cmsg.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    received.gro_size = value::<i32>(cmsg).and_then(|n| usize::try_from(n).ok());
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    if let Some(info) = value::<libc::in_pktinfo>(cmsg) {
                        let octets = info.ipi_addr.s_addr.to_ne_bytes();
                        received.local = Some(Ipv4Addr::from(octets).into());
                        received.ifindex = info.ipi_ifindex as u32;
                    }
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    received.class = value::<u8>(cmsg).unwrap_or(0);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    received.class = value::<i32>(cmsg).unwrap_or(0) as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    if let Some(info) = value::<libc::in6_pktinfo>(cmsg) {
                        received.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                        received.ifindex = info.ipi6_ifindex;
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    if let Some([software, ..]) = value::<[libc::timespec; 3]>(cmsg) {
                        let ns = software.tv_sec as u64 * 1_000_000_000 + software.tv_nsec as u64;
                        received.stamp_ns = (ns != 0).then_some(ns);
                    }
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let error = value::<libc::sock_extended_err>(cmsg).unwrap_or(zeroed());
                    received.transmit_stamp = error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING;
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    received
}

/// # Safety
/// `cmsg` must lie in a buffer in which `cmsg_len` bytes follow its start, and any bytes must be a
/// valid `T`.
#[allow(clippy::unnecessary_cast, reason = "the length's type differs between C libraries")]
unsafe fn value<T: Copy>(cmsg: &libc::cmsghdr) -> Option<T> {
    // SAFETY: CMSG_LEN computes a length; CMSG_DATA points behind the header, where the length says
    // that at least a `T` lies.
    unsafe {
        let needed = libc::CMSG_LEN(size_of::<T>() as u32) as usize;
        (cmsg.cmsg_len as usize >= needed)
            .then(|| libc::CMSG_DATA(cmsg).cast::<T>().read_unaligned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut buffer = Buffer::default();
        let source = IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]);
        let mut writer = Writer::new(&mut buffer);
        writer.push(libc::SOL_UDP, libc::UDP_GRO, 1400i32);
        writer.push_source(source, 7);
        writer.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 0xbbi32);
        let stamp = libc::timespec { tv_sec: 2, tv_nsec: 5 };
        writer.push(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, [stamp; 3]);
        let len = writer.len();
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_control = buffer.as_mut_ptr().cast();
        message.msg_controllen = len as _;
        let expected = Received {
            gro_size: Some(1400),
            local: Some(source),
            ifindex: 7,
            class: 0xbb,
            stamp_ns: Some(2_000_000_005),
            transmit_stamp: false,
        };
        assert_eq!(read(&message), expected);
        message.msg_controllen = 20;
        assert_eq!(read(&message).stamp_ns, None);
    }
}
