//! The Internet checksum (RFC 1071), and that of messages over IPv6 (RFC 8200, section 8.1).

use core::net::Ipv6Addr;

/// The checksum of a message over IPv6: of ICMPv6 (58), the Mobility Header (135), UDP (17).
///
/// With zero in the message's checksum field, this is what belongs there; a message with the right checksum in place
/// gives 0. Where a Home Address option or a type 2 routing header stands before the message, the home address takes the
/// place of the address that it stands for (RFC 6275, 6.1.1).
#[must_use]
pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, message: &[u8]) -> u16 {
    let addresses = [source, destination].map(|address| u64::from(sum(&address.octets())));
    let length = message.len() as u64;
    !fold(addresses[0] + addresses[1] + length + u64::from(protocol) + u64::from(sum(message)))
}

/// One's-complement sum; an odd byte at the end is the upper half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from));
    fold(words.sum())
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_another_implementation() {
        let (source, destination) = (Ipv6Addr::from([0xfd; 16]), Ipv6Addr::from([0xfe; 16]));
        for length in [0, 1, 7, 64] {
            let mut packet = alloc::vec::Vec::new();
            etherparse::PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
                .udp(1, 2)
                .write(&mut packet, &alloc::vec![0xab; length])
                .unwrap();
            let udp = &mut packet[40..];
            assert_eq!(ipv6(source, destination, 17, udp), 0);
            let written = u16::from_be_bytes([udp[6], udp[7]]);
            udp[6..8].fill(0);
            assert_eq!(ipv6(source, destination, 17, udp), written);
        }
    }
}
