//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), with the optional extensions of RFC 8972: the
//! packets of both ends ([`SenderPacket`], [`ReflectorPacket`]), the extensions ([`tlv`]), the reflector's processing
//! of a request ([`Request`]) and the sender's of an answer ([`Reply`]).
//!
//! Whether packets are authenticated is agreed beforehand: with a [`StampKey`] both ends use the authenticated layout,
//! otherwise the unauthenticated one. `docs/wire/stamp.md` lists the supported features.
//!
//! ```text
//! offset of                  unauthenticated     authenticated
//! Sequence Number            0                   0
//! Timestamp                  4                   16
//! Error Estimate             12                  24
//! SSID                       14                  26
//! Receive Timestamp          16                  32
//! Sender Sequence Number     24                  48
//! Sender Timestamp           28                  64
//! Sender Error Estimate      36                  72
//! Sender TTL                 40                  80
//! HMAC                       –                   96
//! length                     44                  112
//! ```
//!
//! A sender's packet has only the first four fields. Bytes outside all fields must be zero on transmission and are
//! ignored on receipt.

mod key;
mod reflect;
mod reply;
mod time;
pub mod tlv;

pub use key::StampKey;
pub use reflect::{Answer, Facts, Request};
pub use reply::{Extensions, Reply};
pub use time::{ErrorEstimate, Timestamp, TimestampFormat};

use crate::WireError;

/// The UDP port of a reflector (RFC 8762, 4.1).
pub const PORT: u16 = 862;
/// Length of an unauthenticated base packet in bytes.
pub const BASE_LEN: usize = 44;
/// Length of an authenticated base packet in bytes.
const AUTHENTICATED_LEN: usize = 112;
/// Length of an unauthenticated packet up to its last field. Packets of TWAMP Light, with which STAMP interoperates
/// (RFC 8762, 4.6), end here.
pub const TWAMP_LIGHT_LEN: usize = 41;

/// Number of bytes of a base packet that the HMAC covers.
const COVERED_LEN: usize = 96;

/// Offsets of the fields of a base packet.
struct Layout {
    timestamp: usize,
    error: usize,
    receive: usize,
    sender_seq: usize,
    sender_timestamp: usize,
    sender_error: usize,
    sender_ttl: usize,
    len: usize,
    /// Minimum accepted length.
    min: usize,
}

const PLAIN: Layout = Layout {
    timestamp: 4,
    error: 12,
    receive: 16,
    sender_seq: 24,
    sender_timestamp: 28,
    sender_error: 36,
    sender_ttl: 40,
    len: BASE_LEN,
    min: TWAMP_LIGHT_LEN,
};

const AUTHENTICATED: Layout = Layout {
    timestamp: 16,
    error: 24,
    receive: 32,
    sender_seq: 48,
    sender_timestamp: 64,
    sender_error: 72,
    sender_ttl: 80,
    len: AUTHENTICATED_LEN,
    min: AUTHENTICATED_LEN,
};

impl Layout {
    fn of(key: Option<&StampKey>) -> &'static Layout {
        if key.is_some() { &AUTHENTICATED } else { &PLAIN }
    }

    /// Checks the length and the HMAC.
    fn check(&self, bytes: &[u8], key: Option<&StampKey>) -> Result<(), WireError> {
        if bytes.len() < self.min {
            return Err(WireError::TooShort { what: "STAMP", got: bytes.len(), min: self.min });
        }
        let verified = key.is_none_or(|key| {
            key.verify(&[&bytes[..COVERED_LEN]], &bytes[COVERED_LEN..AUTHENTICATED_LEN])
        });
        if verified { Ok(()) } else { Err(WireError::Mac) }
    }
}

/// Length of a base packet in bytes, with or without a key.
#[must_use]
pub fn base_len(key: Option<&StampKey>) -> usize {
    Layout::of(key).len
}

/// Minimum length of a packet that is read, in bytes, with or without a key.
#[must_use]
pub fn min_len(key: Option<&StampKey>) -> usize {
    Layout::of(key).min
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn timestamp(bytes: &[u8], at: usize) -> Timestamp {
    Timestamp(u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4)))
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn seal(bytes: &mut [u8], key: Option<&StampKey>) {
    if let Some(key) = key {
        let mac = key.mac(&[&bytes[..COVERED_LEN]]);
        put(bytes, COVERED_LEN, &mac);
    }
}

/// The base packet of a Session-Sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderPacket {
    /// Starts at zero and grows by one with each packet of a session.
    pub seq: u32,
    /// T1: departure time, in the format that `error` names.
    pub timestamp: Timestamp,
    /// Accuracy of the sender's clock.
    pub error: ErrorEstimate,
    /// STAMP Session Identifier; zero for none.
    pub ssid: u16,
}

impl SenderPacket {
    /// Writes the packet to the start of `out` and returns its length; `None` if there is no room for [`base_len`]
    /// bytes.
    #[must_use]
    pub fn emit(&self, key: Option<&StampKey>, out: &mut [u8]) -> Option<usize> {
        let layout = Layout::of(key);
        let bytes = out.get_mut(..layout.len)?;
        bytes.fill(0);
        put(bytes, 0, &self.seq.to_be_bytes());
        put(bytes, layout.timestamp, &self.timestamp.0.to_be_bytes());
        put(bytes, layout.error, &self.error.emit());
        put(bytes, layout.error + 2, &self.ssid.to_be_bytes());
        seal(bytes, key);
        Some(layout.len)
    }

    /// Reads the base packet at the start of a UDP payload and returns it with the bytes behind it.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`].
    pub fn parse<'a>(
        bytes: &'a [u8],
        key: Option<&StampKey>,
    ) -> Result<(SenderPacket, &'a [u8]), WireError> {
        let layout = Layout::of(key);
        layout.check(bytes, key)?;
        let packet = SenderPacket {
            seq: word(bytes, 0),
            timestamp: timestamp(bytes, layout.timestamp),
            error: ErrorEstimate::parse(half(bytes, layout.error)),
            ssid: half(bytes, layout.error + 2),
        };
        Ok((packet, bytes.get(layout.len..).unwrap_or(&[])))
    }
}

/// The base packet of a Session-Reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// Stateful: number of earlier answers in this session. Stateless: the sender's number.
    pub seq: u32,
    /// T3: departure time of the answer, in the format that `error` names.
    pub timestamp: Timestamp,
    /// Accuracy of the reflector's clock.
    pub error: ErrorEstimate,
    /// Repeated from the request; zero from reflectors that lack RFC 8972.
    pub ssid: u16,
    /// T2: arrival time of the request, in the format that `error` names.
    pub receive: Timestamp,
    /// Repeated from the request.
    pub sender_seq: u32,
    /// T1, repeated from the request.
    pub sender_timestamp: Timestamp,
    /// Repeated from the request.
    pub sender_error: ErrorEstimate,
    /// TTL or hop limit of the request on arrival.
    pub sender_ttl: u8,
}

impl ReflectorPacket {
    /// Writes the packet to the start of `out`, truncated to the size of `out`, and returns its length; `None` if there
    /// is no room for all fields.
    #[must_use]
    pub fn emit(&self, key: Option<&StampKey>, out: &mut [u8]) -> Option<usize> {
        let layout = Layout::of(key);
        let len = out.len().min(layout.len);
        let bytes = out.get_mut(..len).filter(|bytes| bytes.len() >= layout.min)?;
        bytes.fill(0);
        put(bytes, 0, &self.seq.to_be_bytes());
        put(bytes, layout.timestamp, &self.timestamp.0.to_be_bytes());
        put(bytes, layout.error, &self.error.emit());
        put(bytes, layout.error + 2, &self.ssid.to_be_bytes());
        put(bytes, layout.receive, &self.receive.0.to_be_bytes());
        put(bytes, layout.sender_seq, &self.sender_seq.to_be_bytes());
        put(bytes, layout.sender_timestamp, &self.sender_timestamp.0.to_be_bytes());
        put(bytes, layout.sender_error, &self.sender_error.emit());
        bytes[layout.sender_ttl] = self.sender_ttl;
        seal(bytes, key);
        Some(len)
    }

    /// Reads the base packet at the start of a UDP payload and returns it with the bytes behind it.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::Mac`].
    pub fn parse<'a>(
        bytes: &'a [u8],
        key: Option<&StampKey>,
    ) -> Result<(ReflectorPacket, &'a [u8]), WireError> {
        let layout = Layout::of(key);
        layout.check(bytes, key)?;
        let packet = ReflectorPacket {
            seq: word(bytes, 0),
            timestamp: timestamp(bytes, layout.timestamp),
            error: ErrorEstimate::parse(half(bytes, layout.error)),
            ssid: half(bytes, layout.error + 2),
            receive: timestamp(bytes, layout.receive),
            sender_seq: word(bytes, layout.sender_seq),
            sender_timestamp: timestamp(bytes, layout.sender_timestamp),
            sender_error: ErrorEstimate::parse(half(bytes, layout.sender_error)),
            sender_ttl: bytes[layout.sender_ttl],
        };
        Ok((packet, bytes.get(layout.len..).unwrap_or(&[])))
    }
}

#[cfg(test)]
mod tests;
