//! The 16-byte header between the outer UDP header and the tunnel's payload.

use crate::WireError;

/// The header of every packet on port [`crate::TUNNEL_PORT`].
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-------+-------+---------------+---------------+---------------+
/// |Version| Type  |     Flags     |       K       |      Age      |
/// +-------+-------+---------------+---------------+---------------+
/// |              Tunnel index (chosen by the receiver)            |
/// +---------------------------------------------------------------+
/// |                                                               |
/// +              Cookie (chosen by the receiver)                  +
/// |                                                               |
/// +---------------------------------------------------------------+
/// ```
///
/// All fields are in network byte order. `K` is the number of unanswered probes after which the client declares the
/// path down (in probes and rides, else zero). `Age` ([`crate::age`]) states how long ago the sender heard the peer: in
/// data and rides, on this path; in a request, on another path that is in doubt, or zero if none is; otherwise it is
/// zero. The cookie is secret and stays the same during a registration, so that all segments of a super-packet can
/// carry the same header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the content.
    pub packet_type: PacketType,
    /// The [`flags`] of that type.
    pub flags: u8,
    /// K in probes and rides, otherwise zero.
    pub k: u8,
    /// [`crate::age`] in data, rides and requests, otherwise zero.
    pub age: u8,
    /// The receiver's index of the path.
    pub index: u32,
    /// The receiver's cookie of the path.
    pub cookie: u64,
}

/// Type of the content behind the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// An inner IPv4 or IPv6 packet.
    Data = 0,
    /// Probe and authenticator of a request or response, followed by an inner packet.
    Ride = 1,
    /// A probe request: 32 bytes of probe, 8 bytes of authenticator.
    Request = 2,
    /// A probe response, in the format of the request.
    Response = 3,
    /// A test of the packet size ([`crate::Size`]).
    Size = 4,
}

/// Flag bits by packet type.
pub mod flags {
    /// Data: the sender moved only this direction of the flow, so the receiver must not learn the return path.
    pub const DATA_ONE_WAY: u8 = 1;
    /// Response: sent without a request, because the server has not heard the client for a while.
    pub const RESPONSE_UNSOLICITED: u8 = 1;
    /// Response: the answer to a request with [`REQUEST_QUESTION`]; like the request, it does not count as a packet.
    /// Never combined with [`RESPONSE_UNSOLICITED`].
    pub const RESPONSE_QUESTION: u8 = 2;
    /// Request: carries the client's averages (see [`crate::Probe`]) in the fields that otherwise echo Ss and R.
    pub const REQUEST_REPORT: u8 = 1;
    /// Request: sent because an expected packet did not arrive. Neither end counts it or its response as a packet.
    pub const REQUEST_QUESTION: u8 = 2;
    /// Ride: like [`DATA_ONE_WAY`], for the inner packet.
    pub const RIDE_ONE_WAY: u8 = 1;
    /// Ride: the probe is a response; otherwise it is a request.
    pub const RIDE_RESPONSE: u8 = 2;
    /// Ride: like [`REQUEST_REPORT`], for a request.
    pub const RIDE_REPORT: u8 = 4;
}

impl Header {
    /// The protocol version, in the upper half of the first byte.
    pub const VERSION: u8 = 1;
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// A header without flags and age.
    #[must_use]
    pub const fn new(packet_type: PacketType, k: u8, index: u32, cookie: u64) -> Header {
        Header { packet_type, flags: 0, k, age: 0, index, cookie }
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`WireError`] for short input, another version, an unknown type, an unknown flag, or a field that must be zero
    /// for the type and is not.
    pub fn parse(bytes: &[u8]) -> Result<Header, WireError> {
        let Some((head, _)) = bytes.split_first_chunk::<{ Header::LEN }>() else {
            return Err(WireError::TooShort { what: "header", got: bytes.len(), min: Header::LEN });
        };
        let [vt, flags, k, age, i0, i1, i2, i3, cookie @ ..] = *head;
        if vt >> 4 != Header::VERSION {
            return Err(WireError::Version { got: vt >> 4 });
        }
        let packet_type = match vt & 15 {
            0 => PacketType::Data,
            1 => PacketType::Ride,
            2 => PacketType::Request,
            3 => PacketType::Response,
            4 => PacketType::Size,
            got => return Err(WireError::Type { got }),
        };
        let known = match packet_type {
            PacketType::Data => 1,
            PacketType::Request | PacketType::Response => 3,
            PacketType::Ride => 7,
            PacketType::Size => 0,
        };
        let exclusive = match packet_type {
            PacketType::Data | PacketType::Request | PacketType::Size => u8::MAX,
            PacketType::Ride => flags::RIDE_RESPONSE | flags::RIDE_REPORT,
            PacketType::Response => flags::RESPONSE_UNSOLICITED | flags::RESPONSE_QUESTION,
        };
        if flags & !known != 0 || flags & exclusive == exclusive {
            return Err(WireError::Field { field: "flags", got: u32::from(flags) });
        }
        if age != 0 && matches!(packet_type, PacketType::Response | PacketType::Size) {
            return Err(WireError::Field { field: "age", got: u32::from(age) });
        }
        if matches!(packet_type, PacketType::Data | PacketType::Size) && k != 0 {
            return Err(WireError::Field { field: "k", got: u32::from(k) });
        }
        Ok(Header {
            packet_type,
            flags,
            k,
            age,
            index: u32::from_be_bytes([i0, i1, i2, i3]),
            cookie: u64::from_be_bytes(cookie),
        })
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Header::LEN] {
        let mut bytes = [0; Header::LEN];
        bytes[0] = Header::VERSION << 4 | self.packet_type as u8;
        bytes[1] = self.flags;
        bytes[2] = self.k;
        bytes[3] = self.age;
        bytes[4..8].copy_from_slice(&self.index.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: [u8; 16] =
        [0x10, 1, 0, 3, 0, 0, 0, 7, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];

    #[test]
    fn golden_bytes_of_a_one_way_data_header() {
        let header = Header {
            packet_type: PacketType::Data,
            flags: flags::DATA_ONE_WAY,
            k: 0,
            age: 3,
            index: 7,
            cookie: 0x1122_3344_5566_7788,
        };
        assert_eq!(header.emit(), GOLDEN);
        assert_eq!(Header::parse(&GOLDEN), Ok(header));
    }

    #[test]
    fn every_truncation_is_refused_by_length() {
        for n in 0..Header::LEN {
            assert_eq!(
                Header::parse(&GOLDEN[..n]),
                Err(WireError::TooShort { what: "header", got: n, min: 16 })
            );
        }
    }

    #[test]
    fn unknown_versions_types_flags_and_misplaced_fields_are_refused() {
        let with = |i: usize, v: u8| {
            let mut b = GOLDEN;
            b[i] = v;
            Header::parse(&b)
        };
        assert_eq!(with(0, 0x20), Err(WireError::Version { got: 2 }));
        assert_eq!(with(0, 0x1f), Err(WireError::Type { got: 15 }));
        assert_eq!(with(1, 2), Err(WireError::Field { field: "flags", got: 2 }));
        let ride = |flags: u8| {
            let mut b = GOLDEN;
            (b[0], b[1]) = (0x11, flags);
            Header::parse(&b).map(|header| header.flags)
        };
        for good in [0, 1, 2, 3, 4, 5] {
            assert_eq!(ride(good), Ok(good));
        }
        for bad in [6, 7, 8] {
            assert_eq!(ride(bad), Err(WireError::Field { field: "flags", got: bad.into() }));
        }
        let alone = |packet_type: u8, flags: u8| {
            let mut b = GOLDEN;
            (b[0], b[1], b[3]) = (0x10 | packet_type, flags, 0);
            Header::parse(&b).map(|header| header.flags)
        };
        for good in [0, 1, 2, 3] {
            assert_eq!(
                alone(2, good),
                Ok(good),
                "a request may be a report and a question at once"
            );
        }
        for good in [0, 1, 2] {
            assert_eq!(alone(3, good), Ok(good));
        }
        assert_eq!(alone(2, 4), Err(WireError::Field { field: "flags", got: 4 }));
        for bad in [3, 4] {
            assert_eq!(alone(3, bad), Err(WireError::Field { field: "flags", got: bad.into() }));
        }
        assert_eq!(with(2, 9), Err(WireError::Field { field: "k", got: 9 }));
        let probe = |packet_type: u8, age: u8| {
            let mut b = GOLDEN;
            (b[0], b[1], b[3]) = (0x10 | packet_type, 0, age);
            Header::parse(&b).map(|header| header.age)
        };
        assert_eq!((probe(2, 0), probe(2, 1), probe(3, 0)), (Ok(0), Ok(1), Ok(0)));
        assert_eq!(probe(3, 1), Err(WireError::Field { field: "age", got: 1 }));
    }

    proptest! {
        #[test]
        fn what_parses_emits_the_same_bytes(bytes in proptest::array::uniform16(any::<u8>())) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(header.emit(), bytes);
            }
        }
    }
}
