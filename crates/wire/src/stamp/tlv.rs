//! The extensions of RFC 8972: type, length, value.
//!
//! ```text
//! |STAMP TLV Flags|     Type      |           Length              |
//! ~                            Value                              ~
//! ```

use super::{StampKey, Timestamp, half, timestamp, word};
use crate::WireError;

/// Length of flags, type and length in bytes.
pub const HEADER_LEN: usize = 4;

/// STAMP TLV Flags (RFC 8972, section 4).
pub mod flags {
    /// U: the reflector did not recognise the TLV. A sender sets it.
    pub const UNRECOGNISED: u8 = 0x80;
    /// M: the TLV's length is wrong or exceeds the packet.
    pub const MALFORMED: u8 = 0x40;
    /// I: the HMAC of the extensions is wrong.
    pub const INTEGRITY: u8 = 0x20;
}

/// STAMP TLV Types used here (RFC 8972, 5.1).
pub mod kind {
    /// Makes a packet longer.
    pub const EXTRA_PADDING: u8 = 1;
    /// The addresses that the reflector sees.
    pub const LOCATION: u8 = 2;
    /// DSCP and ECN.
    pub const CLASS_OF_SERVICE: u8 = 4;
    /// Counters of a session's packets.
    pub const DIRECT_MEASUREMENT: u8 = 5;
    /// The actual departure time of the reflector's previous packet.
    pub const FOLLOW_UP: u8 = 7;
    /// Authenticates the TLVs before it.
    pub const HMAC: u8 = 8;
}

/// One extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// See [`flags`].
    pub flags: u8,
    /// See [`kind`].
    pub kind: u8,
    /// Its value.
    pub value: &'a [u8],
}

/// Iterates over the extensions in order; ends after the first that does not fit into the packet.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

/// The extensions in the bytes behind a base packet.
#[must_use]
pub fn tlvs(bytes: &[u8]) -> Tlvs<'_> {
    Tlvs { rest: bytes }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = core::mem::take(&mut self.rest);
        let short = |min| WireError::TooShort { what: "STAMP TLV", got: rest.len(), min };
        if rest.len() < HEADER_LEN {
            return Some(Err(short(HEADER_LEN)));
        }
        let end = HEADER_LEN + usize::from(half(rest, 2));
        let Some(value) = rest.get(HEADER_LEN..end) else { return Some(Err(short(end))) };
        self.rest = &rest[end..];
        Some(Ok(Tlv { flags: rest[0], kind: rest[1], value }))
    }
}

/// Returns whether the bytes behind a base packet are padding as in RFC 8762 and TWAMP Light, not extensions: they are
/// too short for an extension, or its type would be the reserved zero.
#[must_use]
pub fn is_padding(rest: &[u8]) -> bool {
    rest.len() < HEADER_LEN || rest[1] == 0
}

/// Writes a sender's extensions behind a base packet.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes to the start of `out`.
    #[must_use]
    pub fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer { out, len: 0 }
    }

    /// Number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an extension with the flags of a sender. If it does not fit, returns `None` and writes nothing.
    #[must_use]
    pub fn push(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        let len = u16::try_from(value.len()).ok()?;
        let slot = self.out.get_mut(self.len..self.len + HEADER_LEN + value.len())?;
        slot[..2].copy_from_slice(&[flags::UNRECOGNISED, kind]);
        slot[2..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
        slot[HEADER_LEN..].copy_from_slice(value);
        self.len += HEADER_LEN + value.len();
        Some(())
    }

    /// Adds the HMAC over the packet's sequence number and the extensions so far (RFC 8972, 4.8).
    #[must_use]
    pub fn seal(&mut self, key: &StampKey, seq: u32) -> Option<()> {
        let mac = key.mac(&[&seq.to_be_bytes(), &self.out[..self.len]]);
        self.push(kind::HMAC, &mac)
    }

    /// Adds zero padding of `len` bytes, including its header.
    #[must_use]
    pub fn pad(&mut self, len: usize) -> Option<()> {
        let value = u16::try_from(len.checked_sub(HEADER_LEN)?).ok()?;
        let slot = self.out.get_mut(self.len..self.len + len)?;
        slot.fill(0);
        slot[..2].copy_from_slice(&[flags::UNRECOGNISED, kind::EXTRA_PADDING]);
        slot[2..HEADER_LEN].copy_from_slice(&value.to_be_bytes());
        self.len += len;
        Some(())
    }
}

/// Class of Service TLV (RFC 8972, 4.4).
///
/// ```text
/// |   DSCP1   |   DSCP2   |ECN| RP|          Reserved             |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassOfService {
    /// The requested DSCP of the answer.
    pub dscp1: u8,
    /// The DSCP of the request on arrival.
    pub dscp2: u8,
    /// The ECN field of the request on arrival.
    pub ecn: u8,
    /// Reverse Path: 1 if the reflector does not permit `dscp1`.
    pub rp: u8,
}

impl ClassOfService {
    /// Length of the value in bytes.
    pub const LEN: usize = 4;

    /// The value's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ClassOfService::LEN] {
        let fields = u16::from(self.dscp1 & 63) << 10
            | u16::from(self.dscp2 & 63) << 4
            | u16::from(self.ecn & 3) << 2
            | u16::from(self.rp & 3);
        let [a, b] = fields.to_be_bytes();
        [a, b, 0, 0]
    }

    /// Reads a value; `None` if its length is wrong.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<ClassOfService> {
        let [a, b, _, _] = *value else { return None };
        Some(ClassOfService {
            dscp1: a >> 2,
            dscp2: (a & 3) << 4 | b >> 4,
            ecn: b >> 2 & 3,
            rp: b & 3,
        })
    }
}

/// Direct Measurement TLV (RFC 8972, 4.5). Counters are modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectMeasurement {
    /// S_TxC: packets that the sender has sent.
    pub sender_tx: u32,
    /// R_RxC: packets that the reflector has received.
    pub reflector_rx: u32,
    /// R_TxC: packets that the reflector has sent.
    pub reflector_tx: u32,
}

impl DirectMeasurement {
    /// Length of the value in bytes.
    pub const LEN: usize = 12;

    /// The value's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; DirectMeasurement::LEN] {
        let mut bytes = [0; DirectMeasurement::LEN];
        let words = [self.sender_tx, self.reflector_rx, self.reflector_tx];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Reads a value; `None` if its length is wrong.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<DirectMeasurement> {
        (value.len() == DirectMeasurement::LEN).then(|| DirectMeasurement {
            sender_tx: word(value, 0),
            reflector_rx: word(value, 4),
            reflector_tx: word(value, 8),
        })
    }
}

/// Follow-Up Telemetry TLV (RFC 8972, 4.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowUp {
    /// Sequence number of the reflector's previous answer.
    pub seq: u32,
    /// Departure time of that answer.
    pub timestamp: Timestamp,
    /// Source of that time: one of the STAMP Timestamping Methods.
    pub method: u8,
}

impl FollowUp {
    /// Length of the value in bytes.
    pub const LEN: usize = 16;
    /// Timestamping method 2, SW Local.
    pub const SOFTWARE: u8 = 2;

    /// The value's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; FollowUp::LEN] {
        let mut bytes = [0; FollowUp::LEN];
        bytes[..4].copy_from_slice(&self.seq.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.timestamp.0.to_be_bytes());
        bytes[12] = self.method;
        bytes
    }

    /// Reads a value; `None` if its length is wrong.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<FollowUp> {
        (value.len() == FollowUp::LEN).then(|| FollowUp {
            seq: word(value, 0),
            timestamp: timestamp(value, 4),
            method: value[12],
        })
    }
}
