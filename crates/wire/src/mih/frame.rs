//! Frames: header and payload.

use alloc::vec::Vec;

use serde::Serialize;

use super::VERSION;
use super::message_id::MessageId;
use super::profile::Profile;
use super::tlv::{self, Tlv};
use crate::WireError;
use crate::layout::hex;

/// Length of the header in bytes.
const HEADER_LEN: usize = 8;
const ACK_REQ: u8 = 0x08;
const ACK_RSP: u8 = 0x04;
const UIR: u8 = 0x02;
const MORE_FRAGMENTS: u8 = 0x01;
/// The largest transaction ID.
const TRANSACTION_ID_MAX: u16 = 0x0fff;
/// The largest fragment number.
const FRAGMENT_NUMBER_MAX: u8 = 0x7f;

/// A view over a frame whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame that fills `bytes`.
    ///
    /// # Errors
    /// Those of [`View::split`]; [`WireError::Length`] if there are more bytes than the header states.
    pub fn parse(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        match View::split(bytes)? {
            (view, []) => Ok(view),
            _ => Err(WireError::Length { what: "MIH frame", got: bytes.len() }),
        }
    }

    /// Parses the frame at the start of `bytes`, and returns the bytes behind it: the next frame of a stream, or a
    /// link's padding.
    ///
    /// # Errors
    /// [`WireError::TooShort`], which tells the reader of a stream how many bytes it needs; [`WireError::Version`] for
    /// any version but 1.
    pub fn split(bytes: &'a [u8]) -> Result<(View<'a>, &'a [u8]), WireError> {
        let got = bytes.len();
        let too_short = |min| WireError::TooShort { what: "MIH frame", got, min };
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(too_short(HEADER_LEN))?;
        if header[0] >> 4 != VERSION {
            return Err(WireError::Version { got: header[0] >> 4 });
        }
        let end = HEADER_LEN + usize::from(u16::from_be_bytes([header[6], header[7]]));
        let (bytes, rest) = bytes.split_at_checked(end).ok_or(too_short(end))?;
        Ok((View { bytes }, rest))
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// ACK-Req: the receiver has to acknowledge the frame.
    #[must_use]
    pub fn ack_req(&self) -> bool {
        self.bytes[0] & ACK_REQ != 0
    }

    /// ACK-Rsp: the frame acknowledges one with the same message and transaction.
    #[must_use]
    pub fn ack_rsp(&self) -> bool {
        self.bytes[0] & ACK_RSP != 0
    }

    /// UIR: an unauthenticated information request, or an answer to one.
    #[must_use]
    pub fn uir(&self) -> bool {
        self.bytes[0] & UIR != 0
    }

    /// M: more fragments follow.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.bytes[0] & MORE_FRAGMENTS != 0
    }

    /// FN: number of the fragment, from 0.
    #[must_use]
    pub fn fragment_number(&self) -> u8 {
        self.bytes[1] >> 1
    }

    /// MID: the message's identifier.
    #[must_use]
    pub fn message_id(&self) -> MessageId {
        MessageId(self.word(2))
    }

    /// TID, 12 bits: matches an answer to its request.
    #[must_use]
    pub fn transaction_id(&self) -> u16 {
        self.word(4) & TRANSACTION_ID_MAX
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
}

/// A frame (IEEE 802.21-2008, 8.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// ACK-Req: the receiver has to acknowledge the frame.
    pub ack_req: bool,
    /// ACK-Rsp: the frame acknowledges one with the same message and transaction.
    pub ack_rsp: bool,
    /// UIR: an unauthenticated information request, or an answer to one.
    pub uir: bool,
    /// The message's identifier.
    pub message_id: MessageId,
    /// Matches an answer to its request; 12 bits.
    pub transaction_id: u16,
    /// The payload.
    #[serde(flatten)]
    pub payload: Payload,
}

/// The payload of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The TLVs of a whole message, in order. The first two are the identifiers of source and destination.
    Tlvs(Vec<Tlv>),
    /// A part of a message, which may end at any byte.
    Fragment {
        /// FN, from 0; 7 bits.
        number: u8,
        /// M: more fragments follow. Fragment 0 without M would be a whole message.
        more: bool,
        /// The content of the fragment.
        #[serde(serialize_with = "hex")]
        part: Vec<u8>,
    },
}

impl Frame {
    /// A frame of a whole message, without flags.
    #[must_use]
    pub fn new(message_id: MessageId, transaction_id: u16, tlvs: Vec<Tlv>) -> Frame {
        let payload = Payload::Tlvs(tlvs);
        Frame { ack_req: false, ack_rsp: false, uir: false, message_id, transaction_id, payload }
    }

    /// Reads a frame that fills `bytes`.
    ///
    /// # Errors
    /// Those of [`View::parse`] and [`Frame::of`].
    pub fn parse(bytes: &[u8], profile: &Profile) -> Result<Frame, WireError> {
        Frame::of(&View::parse(bytes)?, profile)
    }

    /// Reads the frame of a view.
    ///
    /// # Errors
    /// [`WireError::TooShort`] and [`WireError::Length`], with the name of the TLV; [`WireError::Field`] for an
    /// undefined value.
    pub fn of(view: &View<'_>, profile: &Profile) -> Result<Frame, WireError> {
        let (number, more) = (view.fragment_number(), view.more_fragments());
        let payload = if number != 0 || more {
            Payload::Fragment { number, more, part: view.payload().to_vec() }
        } else {
            Payload::Tlvs(tlv::parse_all(view.payload(), profile)?)
        };
        Ok(Frame {
            ack_req: view.ack_req(),
            ack_rsp: view.ack_rsp(),
            uir: view.uir(),
            message_id: view.message_id(),
            transaction_id: view.transaction_id(),
            payload,
        })
    }

    /// Its TLVs; empty for a fragment.
    #[must_use]
    pub fn tlvs(&self) -> &[Tlv] {
        match &self.payload {
            Payload::Tlvs(tlvs) => tlvs,
            Payload::Fragment { .. } => &[],
        }
    }

    /// The standard's name of the message, such as "MIH_Link_Up indication".
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        self.message_id.name()
    }

    /// The frame's bytes.
    ///
    /// # Errors
    /// [`WireError::Length`] if the payload exceeds its length field; [`WireError::Field`] for a transaction ID of more
    /// than 12 bits, a fragment number of more than 7 bits, or a single fragment.
    pub fn emit(&self, profile: &Profile) -> Result<Vec<u8>, WireError> {
        let refused = |field, got| Err(WireError::Field { field, got });
        let id = self.transaction_id;
        if id > TRANSACTION_ID_MAX {
            return refused("Transaction ID", id.into());
        }
        let (number, more) = match self.payload {
            Payload::Tlvs(_) => (0, false),
            Payload::Fragment { number, more, .. } => (number, more),
        };
        let is_alone = matches!(self.payload, Payload::Fragment { number: 0, more: false, .. });
        if number > FRAGMENT_NUMBER_MAX || is_alone {
            return refused("Fragment Number", number.into());
        }
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(self.ack_req, ACK_REQ)
            | flag(self.ack_rsp, ACK_RSP)
            | flag(self.uir, UIR)
            | flag(more, MORE_FRAGMENTS);
        let mut out = Vec::with_capacity(128);
        out.extend([VERSION << 4 | flags, number << 1]);
        out.extend(self.message_id.0.to_be_bytes());
        out.extend(id.to_be_bytes());
        out.extend([0; 2]);
        match &self.payload {
            Payload::Tlvs(tlvs) => tlvs.iter().for_each(|tlv| tlv.emit(profile, &mut out)),
            Payload::Fragment { part, .. } => out.extend(part),
        }
        let length = u16::try_from(out.len() - HEADER_LEN);
        let length = length.map_err(|_| WireError::Length { what: "MIH frame", got: out.len() })?;
        out[6..HEADER_LEN].copy_from_slice(&length.to_be_bytes());
        Ok(out)
    }

    /// Returns whether the frame, read from `bytes`, is emitted as the same bytes.
    #[must_use]
    pub fn reencodes(&self, bytes: &[u8], profile: &Profile) -> bool {
        self.emit(profile).is_ok_and(|emitted| emitted == bytes)
    }
}
