//! The fixed part of the header: lengths, checksum and the range of an authenticator.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::option::BINDING_AUTHORIZATION_DATA;
use super::profile::Profile;
use super::{MessageType, body};
use crate::WireError;
use crate::checksum::Ipv6Checksum;
use crate::padded::RawOptions;

/// Next header value of the Mobility Header.
pub const NEXT_HEADER: u8 = 135;
/// Position of the checksum.
pub const CHECKSUM_AT: Range<usize> = 4..6;
const CHECKSUM: Ipv6Checksum = Ipv6Checksum { next_header: NEXT_HEADER, at: CHECKSUM_AT };
/// Payload Proto: no payload follows.
const NO_NEXT_HEADER: u8 = 59;
/// Length of the fixed part in bytes.
pub(super) const FIXED_LEN: usize = 6;

/// A view over a message whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobilityHeader<'a> {
    bytes: &'a [u8],
}

impl<'a> MobilityHeader<'a> {
    /// Parses a message that fills `bytes`.
    ///
    /// # Errors
    /// [`WireError::TooShort`]; [`WireError::Length`] if there are more bytes than Header Len states;
    /// [`WireError::Field`] for a Payload Proto other than 59.
    pub fn parse(bytes: &'a [u8], profile: &Profile) -> Result<MobilityHeader<'a>, WireError> {
        let (what, got) = ("Mobility Header", bytes.len());
        let too_short = |min| WireError::TooShort { what, got, min };
        let [proto, header_len, ..] = *bytes else { return Err(too_short(8)) };
        if proto != NO_NEXT_HEADER {
            return Err(WireError::Field { field: "Payload Proto", got: proto.into() });
        }
        let said = (usize::from(header_len) + 1) * 8;
        let most = if profile.unpadded_end { said + 7 } else { said };
        match got {
            _ if got < said => Err(too_short(said)),
            _ if got > most => Err(WireError::Length { what, got }),
            _ => Ok(MobilityHeader { bytes }),
        }
    }

    /// Parses a possibly truncated message for display: up to the length in Header Len, if there are that many bytes.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if the fixed part is incomplete.
    pub(super) fn lossy(bytes: &'a [u8]) -> Result<MobilityHeader<'a>, WireError> {
        let (what, got) = ("Mobility Header", bytes.len());
        let Some([_, header_len, ..]) = bytes.first_chunk::<FIXED_LEN>() else {
            return Err(WireError::TooShort { what, got, min: FIXED_LEN });
        };
        let said = (usize::from(*header_len) + 1) * 8;
        Ok(MobilityHeader { bytes: &bytes[..said.min(got)] })
    }

    /// The whole message.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header Len: the length in units of 8 bytes, excluding the first 8.
    #[must_use]
    pub fn header_len(&self) -> u8 {
        self.bytes[1]
    }

    /// MH Type.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        MessageType(self.bytes[2])
    }

    /// The checksum as received.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.bytes[4], self.bytes[5]])
    }
}

/// The checksum of a message, regardless of the present content of its field. `source` is the address in a Home Address
/// option if the packet has one, `destination` the address in a type 2 routing header if it has one.
#[must_use]
pub fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    CHECKSUM.of(source, destination, message)
}

/// Returns whether a message has the right [`checksum`].
#[must_use]
pub fn verify_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> bool {
    CHECKSUM.is_right(source, destination, message)
}

/// Writes the [`checksum`] into a message. This must be the last step: the checksum covers the authenticator, which in
/// turn is computed with a checksum of zero.
pub fn fill_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    CHECKSUM.fill(source, destination, message);
}

/// The part of a message that the authenticator of a Binding Authorization Data option covers, with a checksum of zero:
/// up to and including the option's type and length (RFC 6275, 6.2.7). The authenticator follows. `None` if the message
/// has no such option.
///
/// # Errors
/// Those of [`Message::parse`](super::Message::parse), for the part before the option.
pub fn authenticated_range(
    message: &[u8],
    profile: &Profile,
) -> Result<Option<Range<usize>>, WireError> {
    let header = MobilityHeader::parse(message, profile)?;
    let (_, at) = body::Body::parse(&header)?;
    for option in RawOptions::new("Mobility Options", &message[at..]) {
        let option = option?;
        if option.kind == BINDING_AUTHORIZATION_DATA {
            return Ok(Some(0..at + option.at + 2));
        }
    }
    Ok(None)
}
