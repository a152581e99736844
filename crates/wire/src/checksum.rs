//! The Internet checksum (RFC 1071) and the pseudo-header of IPv6 (RFC 8200, 8.1).

use core::net::Ipv6Addr;

/// One's-complement sum; an odd byte at the end is the upper half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from));
    fold(words.sum())
}

/// The sum with its carries added in.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum over the pseudo-header and a message of an upper layer: `0xffff` where the message holds the right checksum,
/// the complement of the checksum where its field holds zero.
pub(crate) fn pseudo_sum(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    message: &[u8],
) -> u16 {
    let parts = [sum(&source.octets()), sum(&destination.octets()), sum(message)];
    let parts: u64 = parts.into_iter().map(u64::from).sum();
    fold(parts + message.len() as u64 + u64::from(next_header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_another_implementation() {
        let (source, destination) = (Ipv6Addr::from([0xfd; 16]), Ipv6Addr::from([0xfe; 16]));
        for length in [0, 1, 7, 64] {
            let mut packet = alloc::vec::Vec::new();
            etherparse::PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
                .udp(1, 2)
                .write(&mut packet, &alloc::vec![0xab; length])
                .unwrap();
            let udp = &mut packet[40..];
            assert_eq!(pseudo_sum(source, destination, 17, udp), 0xffff);
            let written = u16::from_be_bytes([udp[6], udp[7]]);
            udp[6..8].fill(0);
            assert_eq!(!pseudo_sum(source, destination, 17, udp), written);
        }
    }
}
