//! ICMP errors about sent datagrams, read from a socket's error queue. The kernel has matched the quoted addresses and
//! ports with the socket. The caller must check that the quoted payload is its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Origins of an extended error that arrived as ICMP and as ICMPv6 (`linux/errqueue.h`).
const SO_EE_ORIGIN_ICMP: u8 = 2;
const SO_EE_ORIGIN_ICMP6: u8 = 3;
/// Maximum number of queued errors. Later ones are dropped, because the first ones suffice for a diagnosis.
pub(super) const WAITING_MAX: usize = 1_024;
/// Bytes read of a quoted datagram.
pub(super) const QUOTE_MAX: usize = 64;

/// An ICMP error about a datagram of this socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Destination of the datagram.
    pub to: SocketAddr,
    /// Source of the error, if the kernel reports it.
    pub from: Option<IpAddr>,
    /// The reason.
    pub reason: IcmpReason,
    /// The beginning of the datagram's payload, as far as the ICMP message quotes it.
    pub quote: Vec<u8>,
}

/// Reason for which a datagram was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IcmpReason {
    /// No socket is bound to the destination port.
    PortUnreachable,
    /// The destination does not answer its router, or does not exist.
    HostUnreachable,
    /// A router has no route.
    NoRoute,
    /// A filter rejected it.
    Prohibited,
    /// A link on the path accepts at most this many bytes, IP header included.
    TooBig(u32),
    /// The hop limit was exceeded in transit.
    HopLimit,
    /// Type and code of any other error.
    Other(u8, u8),
}

impl IcmpReason {
    /// Stable name for machine-readable output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IcmpReason::PortUnreachable => "port_unreachable",
            IcmpReason::HostUnreachable => "host_unreachable",
            IcmpReason::NoRoute => "no_route",
            IcmpReason::Prohibited => "prohibited",
            IcmpReason::TooBig(_) => "too_big",
            IcmpReason::HopLimit => "hop_limit",
            IcmpReason::Other(..) => "other",
        }
    }

    /// Maps type and code of ICMP (RFC 792, RFC 1812).
    fn v4(kind: u8, code: u8, info: u32) -> IcmpReason {
        match (kind, code) {
            (3, 0 | 5 | 6 | 11) => IcmpReason::NoRoute,
            (3, 1 | 7 | 8 | 12) => IcmpReason::HostUnreachable,
            (3, 3) => IcmpReason::PortUnreachable,
            (3, 4) => IcmpReason::TooBig(info),
            (3, 9 | 10 | 13) => IcmpReason::Prohibited,
            (11, 0) => IcmpReason::HopLimit,
            _ => IcmpReason::Other(kind, code),
        }
    }

    /// Maps type and code of ICMPv6 (RFC 4443).
    fn v6(kind: u8, code: u8, info: u32) -> IcmpReason {
        match (kind, code) {
            (1, 0 | 6) => IcmpReason::NoRoute,
            (1, 1 | 5) => IcmpReason::Prohibited,
            (1, 3) => IcmpReason::HostUnreachable,
            (1, 4) => IcmpReason::PortUnreachable,
            (2, _) => IcmpReason::TooBig(info),
            (3, 0) => IcmpReason::HopLimit,
            _ => IcmpReason::Other(kind, code),
        }
    }
}

impl fmt::Display for IcmpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IcmpReason::PortUnreachable => f.write_str("port unreachable"),
            IcmpReason::HostUnreachable => f.write_str("host unreachable"),
            IcmpReason::NoRoute => f.write_str("no route"),
            IcmpReason::Prohibited => f.write_str("prohibited by a filter"),
            IcmpReason::TooBig(mtu) => write!(f, "packet too big (MTU {mtu})"),
            IcmpReason::HopLimit => f.write_str("too many hops"),
            IcmpReason::Other(kind, code) => write!(f, "ICMP type {kind} code {code}"),
        }
    }
}

/// Parses an extended error and its source address if it arrived as ICMP.
pub(super) fn said_v4(
    error: &libc::sock_extended_err,
    by: Option<libc::sockaddr_in>,
) -> Option<(IcmpReason, Option<IpAddr>)> {
    let from = by.map(|by| Ipv4Addr::from(by.sin_addr.s_addr.to_ne_bytes()).into());
    (error.ee_origin == SO_EE_ORIGIN_ICMP)
        .then(|| (IcmpReason::v4(error.ee_type, error.ee_code, error.ee_info), from))
}

/// Like [`said_v4`] for an IPv6 socket, whose datagrams to IPv4 addresses still cause ICMP for IPv4.
pub(super) fn said_v6(
    error: &libc::sock_extended_err,
    by: Option<libc::sockaddr_in6>,
) -> Option<(IcmpReason, Option<IpAddr>)> {
    let from = by.map(|by| IpAddr::from(Ipv6Addr::from(by.sin6_addr.s6_addr)).to_canonical());
    match error.ee_origin {
        SO_EE_ORIGIN_ICMP6 => {
            Some((IcmpReason::v6(error.ee_type, error.ee_code, error.ee_info), from))
        }
        SO_EE_ORIGIN_ICMP => {
            Some((IcmpReason::v4(error.ee_type, error.ee_code, error.ee_info), from))
        }
        _ => None,
    }
}
