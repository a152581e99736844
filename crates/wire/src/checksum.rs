//! The Internet checksum (RFC 1071), also of messages over IPv6 (RFC 8200, 8.1).

use core::net::Ipv6Addr;
use core::ops::Range;

/// The one's-complement sum of 16-bit words. An odd byte at the end is the upper half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from));
    fold(words.sum())
}

/// Adds the carries of a sum.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The next header value and the position of the checksum of a message type.
pub(crate) struct Ipv6Checksum {
    pub(crate) next_header: u8,
    pub(crate) at: Range<usize>,
}

impl Ipv6Checksum {
    /// The checksum of a message, regardless of the present content of its field.
    pub(crate) fn of(&self, source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
        let field = message.get(self.at.clone());
        let field = field.map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
        !fold(u64::from(self.sum(source, destination, message)) + u64::from(!field))
    }

    /// Returns whether the message's checksum is correct.
    pub(crate) fn is_right(&self, source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> bool {
        self.sum(source, destination, message) == 0xffff
    }

    /// Writes the checksum into a message.
    pub(crate) fn fill(&self, source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
        let checksum = self.of(source, destination, message);
        if let Some(field) = message.get_mut(self.at.clone()) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// The sum over pseudo-header and message: `0xffff` if the checksum is correct.
    fn sum(&self, source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
        let parts = [sum(&source.octets()), sum(&destination.octets()), sum(message)];
        let parts: u64 = parts.into_iter().map(u64::from).sum();
        fold(parts + message.len() as u64 + u64::from(self.next_header))
    }
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
            let checksum = Ipv6Checksum { next_header: 17, at: 6..8 };
            assert!(checksum.is_right(source, destination, udp));
            let written = udp.to_vec();
            udp[6..8].fill(7);
            checksum.fill(source, destination, udp);
            assert_eq!(udp, written);
        }
    }
}
