//! What a router says about a tunnel packet that was too big for it: Destination Unreachable, fragmentation needed (RFC
//! 792, RFC 1191), and Packet Too Big (RFC 4443, 3.2). Both quote the packet from its IP header on.

use crate::Header;

const UDP: u8 = 17;
/// Type and code of the two messages.
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const PACKET_TOO_BIG: [u8; 2] = [2, 0];
const ICMP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// A tunnel packet was too big. Any sender can claim this; one that quotes the cookie has seen the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The tunnel index that the packet was sent to.
    pub index: u32,
    /// The cookie that it brought.
    pub cookie: u64,
    /// The largest IP packet that the router takes, in bytes; `None` where it does not say.
    pub mtu: Option<u16>,
}

impl TooBig {
    /// Reads a message as a raw socket for ICMP gives it, with the router's own IP header. `None` for any other
    /// message, and for one that quotes no tunnel packet, or too little of it.
    #[must_use]
    pub fn parse_v4(packet: &[u8]) -> Option<TooBig> {
        let message = packet.get(ipv4_header(packet)?..)?;
        let quote = message.get(ICMP_HEADER..)?;
        let fragment = u16::from_be_bytes([*quote.get(6)?, *quote.get(7)?]) & 0x1fff;
        if message[..2] != FRAGMENTATION_NEEDED || fragment != 0 || *quote.get(9)? != UDP {
            return None;
        }
        let mtu = u16::from_be_bytes([message[6], message[7]]);
        TooBig::of(quote.get(ipv4_header(quote)?..)?, mtu.into())
    }

    /// The same of ICMPv6, for which a raw socket gives no IP header.
    #[must_use]
    pub fn parse_v6(message: &[u8]) -> Option<TooBig> {
        let quote = message.get(ICMP_HEADER..)?;
        if message[..2] != PACKET_TOO_BIG || quote.first()? >> 4 != 6 || *quote.get(6)? != UDP {
            return None;
        }
        let mtu = u32::from_be_bytes(*message[4..].first_chunk()?);
        TooBig::of(quote.get(IPV6_HEADER..)?, mtu)
    }

    fn of(udp: &[u8], mtu: u32) -> Option<TooBig> {
        let Header { index, cookie, .. } = Header::parse(udp.get(UDP_HEADER..)?).ok()?;
        let mtu = (mtu > 0).then(|| u16::try_from(mtu).unwrap_or(u16::MAX));
        Some(TooBig { index, cookie, mtu })
    }
}

/// Length of an IPv4 header.
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

    /// Header of a data packet to index 7 with cookie 9, and a little of what follows, in UDP.
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
    fn other_messages_and_quotes_are_nothing() {
        // RFC 792 asks only for 8 bytes behind the IP header, which name no path.
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
        }
    }
}
