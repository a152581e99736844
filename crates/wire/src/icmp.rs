//! Router messages about a tunnel packet that was too big: Destination Unreachable, fragmentation needed (RFC 792, RFC
//! 1191), and Packet Too Big (RFC 4443, 3.2). Both quote the packet from its IP header on.

use core::net::IpAddr;

use crate::Header;

const UDP: u8 = 17;
/// Type and code of the two messages.
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const PACKET_TOO_BIG: [u8; 2] = [2, 0];
const ICMP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// A tunnel packet was too big. Anyone can claim this, but a message that quotes the cookie comes from a node that saw
/// the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The packet's tunnel index.
    pub index: u32,
    /// The packet's cookie.
    pub cookie: u64,
    /// The largest IP packet that the router forwards, in bytes; `None` if not stated.
    pub mtu: Option<u16>,
}

impl TooBig {
    /// Reads a message as received from a raw ICMP socket, including its IP header. `None` for any other message, and
    /// for a message that quotes no tunnel packet or too little of it.
    #[must_use]
    pub fn parse_v4(packet: &[u8]) -> Option<TooBig> {
        TooBig::of(Quoted::v4(packet)?)
    }

    /// The same for ICMPv6, where a raw socket delivers no IP header.
    #[must_use]
    pub fn parse_v6(message: &[u8]) -> Option<TooBig> {
        TooBig::of(Quoted::v6(message)?)
    }

    fn of(Quoted { protocol, rest, mtu, .. }: Quoted<'_>) -> Option<TooBig> {
        let Header { index, cookie, .. } = Header::parse(rest.get(UDP_HEADER..)?).ok()?;
        (protocol == UDP).then_some(TooBig { index, cookie, mtu })
    }
}

/// A packet of a tunnel without cookies was too big: the content of the message and of its quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterTooBig {
    /// Source of the quoted packet.
    pub local: IpAddr,
    /// Destination of the quoted packet.
    pub remote: IpAddr,
    /// Protocol behind the quoted IP header.
    pub protocol: u8,
    /// The first bytes of that protocol. RFC 792 requires routers to quote no more.
    pub front: [u8; 8],
    /// The largest IP packet that the router forwards, in bytes; `None` if not stated.
    pub mtu: Option<u16>,
}

impl OuterTooBig {
    /// Reads a message as received from a raw ICMP socket, including its IP header. `None` for any other message.
    #[must_use]
    pub fn parse_v4(packet: &[u8]) -> Option<OuterTooBig> {
        OuterTooBig::of(Quoted::v4(packet)?)
    }

    /// The same for ICMPv6, where a raw socket delivers no IP header.
    #[must_use]
    pub fn parse_v6(message: &[u8]) -> Option<OuterTooBig> {
        OuterTooBig::of(Quoted::v6(message)?)
    }

    fn of(Quoted { from, to, protocol, rest, mtu }: Quoted<'_>) -> Option<OuterTooBig> {
        let front = *rest.first_chunk()?;
        Some(OuterTooBig { local: from, remote: to, protocol, front, mtu })
    }
}

/// The quoted part of a packet that was too big.
struct Quoted<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    /// The bytes behind the IP header.
    rest: &'a [u8],
    mtu: Option<u16>,
}

impl Quoted<'_> {
    fn v4(packet: &[u8]) -> Option<Quoted<'_>> {
        let message = packet.get(ipv4_header(packet)?..)?;
        let quote = message.get(ICMP_HEADER..)?;
        let head: &[u8; 20] = quote.first_chunk()?;
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
        if message[..2] != FRAGMENTATION_NEEDED || fragment != 0 {
            return None;
        }
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *head;
        let mtu = u16::from_be_bytes([message[6], message[7]]);
        Some(Quoted {
            from: [s0, s1, s2, s3].into(),
            to: [d0, d1, d2, d3].into(),
            protocol: head[9],
            rest: quote.get(ipv4_header(quote)?..)?,
            mtu: (mtu > 0).then_some(mtu),
        })
    }

    fn v6(message: &[u8]) -> Option<Quoted<'_>> {
        let (head, rest) = message.get(ICMP_HEADER..)?.split_first_chunk::<IPV6_HEADER>()?;
        if message[..2] != PACKET_TOO_BIG || head[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&head[at..at + 16]);
            IpAddr::from(octets)
        };
        let mtu = u32::from_be_bytes(*message[4..].first_chunk()?);
        Some(Quoted {
            from: address(8),
            to: address(24),
            protocol: head[6],
            rest,
            mtu: (mtu > 0).then(|| u16::try_from(mtu).unwrap_or(u16::MAX)),
        })
    }
}

/// Length of an IPv4 header in bytes.
fn ipv4_header(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let len = usize::from(first & 15) * 4;
    (first >> 4 == 4 && len >= 20).then_some(len)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::PacketType;

    /// The UDP datagram of a data packet to index 7 with cookie 9, with some bytes of payload.
    fn udp() -> Vec<u8> {
        let packet_type = PacketType::Data;
        let header = Header::new(packet_type, 0, 7, 9);
        [&[0x13, 0x8d, 0x13, 0x8d, 5, 0x58, 0, 0][..], &header.emit(), &[0x45; 20]].concat()
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = [0; 20];
        (header[0], header[9]) = (0x45, protocol);
        [&header[..], payload].concat()
    }

    fn needed(mtu: u16, quote: &[u8]) -> Vec<u8> {
        let [high, low] = mtu.to_be_bytes();
        ipv4(1, &[&[3, 4, 0, 0, 0, 0, high, low][..], quote].concat())
    }

    fn too_big(mtu: u32, udp: &[u8]) -> Vec<u8> {
        let mut header = [0; 40];
        (header[0], header[6]) = (0x60, UDP);
        [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), &header, udp].concat()
    }

    #[test]
    fn what_quotes_a_tunnel_packet_names_the_path_and_the_size() {
        let said = |mtu| Some(TooBig { index: 7, cookie: 9, mtu });
        assert_eq!(TooBig::parse_v4(&needed(1_400, &ipv4(UDP, &udp()))), said(Some(1_400)));
        assert_eq!(TooBig::parse_v4(&needed(0, &ipv4(UDP, &udp()))), said(None));
        assert_eq!(TooBig::parse_v6(&too_big(1_280, &udp())), said(Some(1_280)));
        assert_eq!(TooBig::parse_v6(&too_big(100_000, &udp())), said(Some(u16::MAX)));
    }

    #[test]
    fn of_other_packets_their_ends_and_first_bytes_are_read() {
        let gre = [0x20, 0, 0x86, 0xdd, 0, 0, 0, 7];
        let mut packet = ipv4(47, &gre);
        packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        let said = OuterTooBig::parse_v4(&needed(1_400, &packet)).unwrap();
        let [local, remote] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let expected = OuterTooBig { local, remote, protocol: 47, front: gre, mtu: Some(1_400) };
        assert_eq!(said, expected);
        assert_eq!(OuterTooBig::parse_v4(&needed(1_400, &packet[..27])), None, "too little");
        let said = OuterTooBig::parse_v6(&too_big(1_280, &udp())).unwrap();
        assert_eq!((said.protocol, said.mtu), (UDP, Some(1_280)));
        assert_eq!(said.front, udp()[..8]);
        assert!(said.local.is_ipv6() && said.remote.is_ipv6());
    }

    #[test]
    fn other_messages_and_quotes_are_nothing() {
        // RFC 792 requires routers to quote only 8 bytes behind the IP header, which do not identify a path.
        assert_eq!(TooBig::parse_v4(&needed(1_400, &ipv4(UDP, &udp()[..8]))), None);
        assert_eq!(TooBig::parse_v4(&needed(1_400, &ipv4(6, &udp()))), None);
        let mut fragment = ipv4(UDP, &udp());
        fragment[7] = 1;
        assert_eq!(TooBig::parse_v4(&needed(1_400, &fragment)), None);
        let mut port = needed(1_400, &ipv4(UDP, &udp()));
        port[21] = 3;
        assert_eq!(TooBig::parse_v4(&port), None);
        let mut echo = too_big(1_280, &udp());
        echo[0] = 128;
        assert_eq!(TooBig::parse_v6(&echo), None);
        assert_eq!(TooBig::parse_v6(&too_big(1_280, &udp()[..20])), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (TooBig::parse_v4(&bytes), TooBig::parse_v6(&bytes));
            let _ = (OuterTooBig::parse_v4(&bytes), OuterTooBig::parse_v6(&bytes));
        }
    }
}
