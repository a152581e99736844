//! The Internet checksum (RFC 1071): sums that can be combined, and the checksum fields of packets.

/// An unfolded one's-complement sum over pieces of even length (the last may be odd). Bytes are read
/// in memory order; until it is folded, the sum does not depend on the byte order (RFC 1071, section
/// 2 (B)).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes. A piece of odd length is padded with a zero byte and must be the last.
    #[must_use]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Sum {
        // Eight independent lanes of 32-bit words summed in 64 bits, which the compiler vectorizes.
        let mut lanes = [0u64; 8];
        let mut blocks = bytes.chunks_exact(32);
        for block in &mut blocks {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
                *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
            }
        }
        let mut sum = self.0 + lanes.iter().sum::<u64>();
        let mut pairs = blocks.remainder().chunks_exact(2);
        for pair in &mut pairs {
            sum += u64::from(u16::from_ne_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Sum(sum)
    }

    /// Adds a number that is in network byte order in the packet.
    #[must_use]
    pub(crate) fn word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word.to_be()))
    }

    /// The folded sum, ready to be stored in network byte order; the checksum is its complement.
    #[must_use]
    pub(crate) fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::from_be(sum as u16)
    }
}

/// The sum of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1): `addresses` are the source and
/// destination bytes of the IP header, `len` is the length of the upper-layer packet in bytes.
#[must_use]
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> Sum {
    let len = len as u32;
    Sum::default()
        .bytes(addresses)
        .word(u16::from(protocol))
        .word((len >> 16) as u16)
        .word(len as u16)
}

/// Recomputes the checksum of an IPv4 header.
pub(super) fn set_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !Sum::default().bytes(header).fold();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071, section 4.1, literally.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).fold(), 0xddf2);
    }

    proptest! {
        #[test]
        fn any_bytes_sum_as_the_rfc_says_in_one_piece_and_in_two(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0usize..200)
        {
            let expected = reference(&bytes);
            prop_assert_eq!(Sum::default().bytes(&bytes).fold(), expected);
            let (a, b) = bytes.split_at((cut * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::default().bytes(a).bytes(b).fold(), expected);
        }
    }
}
