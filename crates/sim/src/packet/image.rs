//! Byte images of packets.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use super::{Packet, TCP, UDP};

/// Offset of the length field in an IPv4 header, an IPv6 header and a UDP header.
const LENGTH_V4: usize = 2;
const LENGTH_V6: usize = 4;
const LENGTH_UDP: usize = 4;
/// Offset of the checksum in an IPv4 header, a TCP header and a UDP header.
const SUM_V4: usize = 10;
const SUM_TCP: usize = 16;
const SUM_UDP: usize = 6;

/// Appends the whole packet.
pub(super) fn append(packet: &Packet, image: &mut Vec<u8>) {
    let start = image.len();
    header(packet, image);
    let content = image.len();
    if packet.protocol == UDP {
        image.extend_from_slice(&packet.ports.0.to_be_bytes());
        image.extend_from_slice(&packet.ports.1.to_be_bytes());
        image.extend_from_slice(&[0; 4]);
    }
    packet.payload.write(packet, image);
    let length = word(image.len() - content);
    if packet.protocol == UDP {
        set(image, content + LENGTH_UDP, length);
    }
    let at = match packet.protocol {
        TCP => Some(SUM_TCP),
        UDP => Some(SUM_UDP),
        _ => None,
    };
    if let Some(at) = at.filter(|at| image.len() >= content + at + 2) {
        set(image, content + at, 0);
        let sum = !folded(pseudo_header(packet, length) + sum(&image[content..]));
        // In UDP, 0 means "no checksum" (RFC 768).
        set(image, content + at, if sum == 0 && packet.protocol == UDP { u16::MAX } else { sum });
    }
    if packet.src.is_ipv4() {
        let whole = word(image.len() - start);
        set(image, start + LENGTH_V4, whole);
        let sum = !folded(sum(&image[start..content]));
        set(image, start + SUM_V4, sum);
    } else {
        set(image, start + LENGTH_V6, length);
    }
}

/// The IP header, with length and checksum still 0.
fn header(packet: &Packet, image: &mut Vec<u8>) {
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (packet.src, packet.dst) {
        let dont_fragment = 0x40;
        image.extend_from_slice(&[0x45, packet.dscp << 2, 0, 0, 0, 0, dont_fragment, 0]);
        image.extend_from_slice(&[packet.ttl, packet.protocol, 0, 0]);
        image.extend_from_slice(&src.octets());
        image.extend_from_slice(&dst.octets());
        return;
    }
    let class = u32::from(packet.dscp) << 2;
    let first = 6 << 28 | class << 20 | packet.label & 0xf_ffff;
    image.extend_from_slice(&first.to_be_bytes());
    image.extend_from_slice(&[0, 0, packet.protocol, packet.ttl]);
    image.extend_from_slice(&v6(packet.src));
    image.extend_from_slice(&v6(packet.dst));
}

/// Sum over the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1).
fn pseudo_header(packet: &Packet, length: u16) -> u32 {
    let addresses = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => sum(&src.octets()) + sum(&dst.octets()),
        (src, dst) => sum(&v6(src)) + sum(&v6(dst)),
    };
    addresses + u32::from(packet.protocol) + u32::from(length)
}

/// Sum of 16-bit words (RFC 1071). The input is at most 64 KiB, so the sum does not overflow.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    words + rest.first().map_or(0, |last| u32::from(*last) << 8)
}

fn folded(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + once) as u16
}

fn set(image: &mut [u8], at: usize, value: u16) {
    image[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Clamps a length to its 16-bit field; longer packets are never sent.
fn word(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// The bytes of an IPv6 address; an IPv4 address is mapped to IPv6.
fn v6(address: IpAddr) -> [u8; 16] {
    let address: Ipv6Addr = match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    };
    address.octets()
}

#[cfg(test)]
mod tests {
    use etherparse::{IpSlice, NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;
    use crate::packet::{Raw, encapsulate};

    fn address(v6: bool, n: u8) -> IpAddr {
        if v6 {
            [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n].into()
        } else {
            [10, 0, 0, n].into()
        }
    }

    /// The packet as an independent parser sees it: protocol and content; asserts that all checksums are correct.
    fn judge(image: &[u8]) -> (u8, Vec<u8>) {
        let sliced = SlicedPacket::from_ip(image).unwrap();
        let Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_)) = &sliced.net else { panic!("{sliced:?}") };
        let ip = IpSlice::from_slice(image).unwrap();
        if let IpSlice::Ipv4(v4) = &ip {
            let header = v4.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert!(header.dont_fragment && usize::from(header.total_len) == image.len());
        }
        let transport = sliced.transport.as_ref().map(|transport| match transport {
            TransportSlice::Udp(udp) => {
                let (header, content) = (udp.to_header(), udp.payload());
                let right = match &ip {
                    IpSlice::Ipv4(v4) => {
                        let v4 = v4.header().to_header();
                        header.calc_checksum_ipv4(&v4, content)
                    }
                    IpSlice::Ipv6(v6) => {
                        header.calc_checksum_ipv6(&v6.header().to_header(), content)
                    }
                };
                assert_eq!(header.checksum, right.unwrap());
                content.to_vec()
            }
            TransportSlice::Tcp(tcp) => {
                let right = match &ip {
                    IpSlice::Ipv4(v4) => {
                        let v4 = v4.header();
                        tcp.calc_checksum_ipv4(v4.source(), v4.destination())
                    }
                    IpSlice::Ipv6(v6) => {
                        let v6 = v6.header();
                        tcp.calc_checksum_ipv6(v6.source(), v6.destination())
                    }
                };
                assert_eq!(tcp.checksum(), right.unwrap());
                tcp.payload().to_vec()
            }
            other => panic!("{other:?}"),
        });
        let payload = ip.payload();
        (payload.ip_number.0, transport.unwrap_or_else(|| payload.payload.to_vec()))
    }

    #[test]
    fn a_sum_of_zero_is_not_taken_for_none() {
        let ends = ((address(false, 1), 1), (address(false, 2), 2));
        let sum = |word: u16| {
            let image = Packet::udp(ends.0, ends.1, word.to_be_bytes().into()).image();
            u16::from_be_bytes([image[26], image[27]])
        };
        // Over all words the sum takes every value, including zero.
        let sums: Vec<u16> = (0..=u16::MAX).map(sum).collect();
        assert!(!sums.contains(&0) && sums.contains(&u16::MAX));
    }

    proptest! {
        #[test]
        fn another_parser_finds_every_length_and_checksum_right(
            v6 in any::<bool>(),
            content in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let ends = ((address(v6, 1), 1_000), (address(v6, 2), 2_000));
            let datagram = Packet::udp(ends.0, ends.1, content.clone());
            prop_assert_eq!(datagram.image().len(), datagram.bytes as usize);
            prop_assert_eq!(judge(&datagram.image()), (UDP, content.clone()));
            let outer = encapsulate(address(!v6, 3), address(!v6, 4), datagram.clone());
            prop_assert_eq!(outer.image().len(), outer.bytes as usize);
            // The parser continues into the inner packet.
            let inside = outer.image()[(outer.bytes - datagram.bytes) as usize..].to_vec();
            prop_assert_eq!(inside, datagram.image());
            let mut bytes = [&[0; 12][..], &[0x50, 16], &[0xff; 6]].concat();
            bytes.extend_from_slice(&content);
            let stream = Packet::new(TCP, ends.0, ends.1, 0, Raw { bytes, inner: None });
            prop_assert_eq!(judge(&stream.image()), (TCP, content.clone()));
            let raw = Raw { bytes: content.clone(), inner: None };
            let other = Packet::new(135, (ends.0.0, 0), (ends.1.0, 0), 0, raw);
            let image = other.image();
            prop_assert_eq!(&image[image.len() - content.len()..], &content[..]);
        }
    }
}
