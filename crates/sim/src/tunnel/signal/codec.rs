//! Encoding of the stand-in's datagrams, each as long as the corresponding QUIC datagram.
//!
//! ```text
//! +--------+------------------+--------+-------------------+-----------------+----------+
//! | kind   | connection       | number | if ACKED:         | frame: name, or | zeros up |
//! | (+128: | (8 bytes)        |        | newest packet,    | offset and      | to the   |
//! | ACKED) |                  |        | bytes of stream   | bytes           | length   |
//! +--------+------------------+--------+-------------------+-----------------+----------+
//! ```
//!
//! All numbers except the connection ID are variable-length integers (RFC 9000, section 16). A length in the same
//! encoding precedes names and stream bytes. All of this fits into the space of QUIC's authenticator.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Ack, Datagram, FRAME_BYTES, Frame, HANDSHAKE_BYTES, PACKET_BYTES};

const HELLO: u8 = 1;
const ACCEPT: u8 = 2;
const STREAM: u8 = 3;
const PING: u8 = 4;
const ACK: u8 = 5;
const CLOSE: u8 = 6;
const RESET: u8 = 7;
/// An acknowledgement follows the number.
const ACKED: u8 = 128;

impl Datagram {
    /// UDP payload length in bytes, equal to that of the QUIC datagram.
    fn length(&self) -> usize {
        let ack = if self.ack.is_some() { FRAME_BYTES } else { 0 };
        match &self.frame {
            Frame::Hello { .. } | Frame::Accept => HANDSHAKE_BYTES,
            Frame::Stream { bytes, .. } => PACKET_BYTES + ack + FRAME_BYTES + bytes.len(),
            Frame::Ping => PACKET_BYTES + ack + 1,
            Frame::Ack => PACKET_BYTES + ack,
            Frame::Close | Frame::Reset => PACKET_BYTES + FRAME_BYTES + 16,
        }
    }

    /// The UDP payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let kind = match &self.frame {
            Frame::Hello { .. } => HELLO,
            Frame::Accept => ACCEPT,
            Frame::Stream { .. } => STREAM,
            Frame::Ping => PING,
            Frame::Ack => ACK,
            Frame::Close => CLOSE,
            Frame::Reset => RESET,
        };
        let mut out = Vec::with_capacity(self.length());
        out.push(kind | if self.ack.is_some() { ACKED } else { 0 });
        out.extend_from_slice(&self.conn.to_be_bytes());
        put(&mut out, self.number);
        if let Some(ack) = self.ack {
            put(&mut out, ack.largest);
            put(&mut out, ack.stream);
        }
        let content = match &self.frame {
            Frame::Hello { name } => name.as_bytes(),
            Frame::Stream { offset, bytes } => {
                put(&mut out, *offset);
                bytes
            }
            _ => &[],
        };
        if matches!(kind, HELLO | STREAM) {
            put(&mut out, content.len() as u64);
            out.extend_from_slice(content);
        }
        out.resize(out.len().max(self.length()), 0);
        out
    }

    /// Decodes a UDP payload; `None` if it is malformed.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Datagram> {
        let (kind, mut rest) = payload.split_first()?;
        let (conn, behind) = rest.split_first_chunk()?;
        rest = behind;
        let number = take(&mut rest)?;
        let acked = kind & ACKED != 0;
        let ack = match acked {
            true => Some(Ack { largest: take(&mut rest)?, stream: take(&mut rest)? }),
            false => None,
        };
        let frame = match kind & !ACKED {
            HELLO => Frame::Hello { name: String::from_utf8(content(&mut rest)?.to_owned()).ok()? },
            ACCEPT => Frame::Accept,
            STREAM => {
                let offset = take(&mut rest)?;
                Frame::Stream { offset, bytes: content(&mut rest)?.to_owned() }
            }
            PING => Frame::Ping,
            ACK => Frame::Ack,
            CLOSE => Frame::Close,
            RESET => Frame::Reset,
            _ => return None,
        };
        Some(Datagram { conn: u64::from_be_bytes(*conn), number, ack, frame })
    }
}

/// Maximum value of a variable-length integer.
const MOST: u64 = (1 << 62) - 1;

fn put(out: &mut Vec<u8>, number: u64) {
    let number = number.min(MOST);
    match number {
        0..=0x3f => out.push(number as u8),
        0x40..=0x3fff => out.extend_from_slice(&(number as u16 | 1 << 14).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(number as u32 | 2 << 30).to_be_bytes()),
        _ => out.extend_from_slice(&(number | 3 << 62).to_be_bytes()),
    }
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let length = 1 << (rest.first()? >> 6);
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    let whole = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some(whole & (MOST >> (64 - 8 * length)))
}

fn content<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (content, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(content)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn datagram(frame: Frame, ack: Option<Ack>) -> Datagram {
        Datagram { conn: 0x0102_0304_0506_0708, number: 70, ack, frame }
    }

    #[test]
    fn golden_bytes_of_a_part_of_the_stream() {
        let frame = Frame::Stream { offset: 20_000, bytes: vec![9, 8] };
        let bytes = datagram(frame, Some(Ack { largest: 3, stream: 64 })).encode();
        let expected = [0x83, 1, 2, 3, 4, 5, 6, 7, 8, 0x40, 70, 3, 0x40, 64];
        assert_eq!(bytes[..14], expected);
        assert_eq!(bytes[14..21], [0x80, 0, 0x4e, 0x20, 2, 9, 8]);
        // 27 bytes of header and authenticator, 6 each for acknowledgement and frame, and 2 bytes of data.
        assert_eq!((bytes.len(), bytes[21..].iter().all(|byte| *byte == 0)), (41, true));
    }

    #[test]
    fn each_is_as_long_as_quics_and_what_is_cut_short_is_refused() {
        let ack = Some(Ack { largest: 1 << 20, stream: 1 << 29 });
        let hello = Frame::Hello { name: "alice".into() };
        let stream = Frame::Stream { offset: 1 << 29, bytes: vec![1; 1_150] };
        for (frame, lengths, least) in [
            (hello, [1_200, 1_200], [17, 25]),
            (Frame::Accept, [1_200, 1_200], [11, 19]),
            (stream, [1_183, 1_189], [1_167, 1_175]),
            (Frame::Ping, [28, 34], [11, 19]),
            (Frame::Ack, [27, 33], [11, 19]),
            (Frame::Close, [49, 49], [11, 19]),
            (Frame::Reset, [49, 49], [11, 19]),
        ] {
            for (i, ack) in [None, ack].into_iter().enumerate() {
                let sent = datagram(frame.clone(), ack);
                let bytes = sent.encode();
                assert_eq!(bytes.len(), lengths[i], "{sent:?}");
                assert_eq!(Datagram::decode(&bytes).as_ref(), Some(&sent));
                for short in 0..least[i] {
                    assert_eq!(Datagram::decode(&bytes[..short]), None, "{sent:?} {short}");
                }
                assert_eq!(Datagram::decode(&bytes[..least[i]]), Some(sent));
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_read_back_and_any_bytes_are_read_or_refused(
            number in 0..=MOST,
            shift in 0u32..62,
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let number = number >> shift;
            let mut out = Vec::new();
            put(&mut out, number);
            let mut rest = &out[..];
            prop_assert_eq!((take(&mut rest), rest), (Some(number), &[][..]));
            if let Some(read) = Datagram::decode(&bytes) {
                prop_assert_eq!(Datagram::decode(&read.encode()), Some(read));
            }
        }
    }
}
