//! A test of a path's packet size: a separate packet, padded to the tested size.

use crate::{Header, PacketType, Probe, ProbeKey, WireError};

/// A test or its answer. The packet has the layout of a probe packet with these fields as its data, followed by zeros
/// up to the tested size.
///
/// ```text
/// +---------------------------------------------------------------+
/// |                            Token                              |
/// +-------------------------------+-------------------------------+
/// |             Size              |            Answer             |
/// +-------------------------------+-------------------------------+
/// |                     24 bytes that are zero                    |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Chosen by the host, repeated by the anchor.
    pub token: u32,
    /// UDP payload of this packet, in bytes.
    pub size: u16,
    /// From the host: requested UDP payload of the answer, in bytes. From the anchor: zero.
    pub answer: u16,
}

impl Size {
    /// The shortest UDP payload of a test, in bytes.
    pub const LEAST: u16 = Probe::PACKET_LEN as u16;
    /// The longest, in bytes: no network under a path takes larger packets.
    pub const MOST: u16 = 9_216;

    /// The answer to this test.
    #[must_use]
    pub fn answered(self) -> Size {
        Size { token: self.token, size: self.answer, answer: 0 }
    }

    /// The fields in the layout of a probe's data.
    #[must_use]
    pub fn words(self) -> Probe {
        let t_sc = u32::from(self.size) << 16 | u32::from(self.answer);
        Probe { seq: self.token, t_sc, ..Probe::default() }
    }

    /// Reads a test from the data of a probe packet with a UDP payload of `length` bytes, sent by the host
    /// (`from_host`) or the anchor.
    ///
    /// # Errors
    /// [`WireError::Field`] if the packet does not have the stated length, the requested answer is shorter than
    /// [`Size::LEAST`] or longer than [`Size::MOST`], an answer requests an answer, or a field that must be zero is
    /// not.
    pub fn read(words: &Probe, length: usize, from_host: bool) -> Result<Size, WireError> {
        let (size, answer) = ((words.t_sc >> 16) as u16, words.t_sc as u16);
        let read = Size { token: words.seq, size, answer };
        if usize::from(size) != length {
            return Err(WireError::Field { field: "size", got: u32::from(size) });
        }
        let is_answer =
            if from_host { (Size::LEAST..=Size::MOST).contains(&answer) } else { answer == 0 };
        if !is_answer {
            return Err(WireError::Field { field: "answer", got: u32::from(answer) });
        }
        if read.words() != *words {
            return Err(WireError::Field { field: "reserved", got: 1 });
        }
        Ok(read)
    }

    /// Returns whether a header belongs to a test.
    #[must_use]
    pub fn is(header: &Header) -> bool {
        header.packet_type == PacketType::Size
    }

    /// Writes the whole UDP payload, of `size` bytes, into `packet`.
    pub fn seal(self, header: &Header, key: &ProbeKey, packet: &mut alloc::vec::Vec<u8>) {
        packet.clear();
        packet.extend(self.words().seal(header, key));
        packet.resize(usize::from(self.size.max(Size::LEAST)), 0);
    }

    /// Reads a whole UDP payload whose header has been parsed.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`], and those of [`Size::read`].
    pub fn open(packet: &[u8], key: &ProbeKey, from_host: bool) -> Result<Size, WireError> {
        let (words, _) = Probe::open_ride(packet, key)?;
        Size::read(&words, packet.len(), from_host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const KEY: ProbeKey = ProbeKey([7; 16]);

    fn header() -> Header {
        let packet_type = PacketType::Size;
        Header::new(packet_type, 0, 7, 9)
    }

    fn sealed(size: Size) -> Vec<u8> {
        let mut packet = Vec::new();
        size.seal(&header(), &KEY, &mut packet);
        packet
    }

    #[test]
    fn a_test_and_its_answer_are_as_long_as_they_say_and_read_back() {
        let asked = Size { token: 3, size: 1_472, answer: 60 };
        let packet = sealed(asked);
        assert_eq!(packet.len(), 1_472);
        assert_eq!(Header::parse(&packet), Ok(header()));
        assert_eq!(Size::open(&packet, &KEY, true), Ok(asked));
        let answer = sealed(asked.answered());
        assert_eq!(answer.len(), 60);
        let answered = Size { token: 3, size: 60, answer: 0 };
        assert_eq!(Size::open(&answer, &KEY, false), Ok(answered));
    }

    #[test]
    fn what_is_not_as_it_says_is_refused() {
        let packet = sealed(Size { token: 3, size: 100, answer: 60 });
        let field = |field, got| Err(WireError::Field { field, got });
        assert_eq!(Size::open(&packet[..99], &KEY, true), field("size", 100));
        assert_eq!(Size::open(&packet, &KEY, false), field("answer", 60));
        let short = sealed(Size { token: 3, size: 100, answer: 55 });
        assert_eq!(Size::open(&short, &KEY, true), field("answer", 55));
        let long = sealed(Size { token: 3, size: 100, answer: 9_217 });
        assert_eq!(Size::open(&long, &KEY, true), field("answer", 9_217));
        let words = Probe { heard: 1, ..Size { token: 3, size: 56, answer: 56 }.words() };
        assert_eq!(Size::read(&words, 56, true), field("reserved", 1));
        let mut forged = packet.clone();
        forged[17] ^= 1;
        assert_eq!(Size::open(&forged, &KEY, true), Err(WireError::Mac));
        assert!(matches!(Size::open(&packet[..55], &KEY, true), Err(WireError::TooShort { .. })));
    }
}
