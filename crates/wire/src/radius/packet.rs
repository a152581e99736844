//! Packets, and the verification of their origin.

use alloc::vec::Vec;

use serde::Serialize;

use super::LONGEST;
use super::attribute::{Attribute, AttributeType};
use super::secret::Secret;
use crate::WireError;
use crate::layout::{codes, hex};

/// Length of the header before the attributes, in bytes.
const HEADER_LEN: usize = 20;
/// Length of an authenticator in bytes.
pub const AUTHENTICATOR_LEN: usize = 16;
/// Length of a Message-Authenticator attribute in bytes.
const MESSAGE_AUTHENTICATOR_LEN: usize = 18;
const ZEROS: [u8; AUTHENTICATOR_LEN] = [0; AUTHENTICATOR_LEN];

codes! {
    /// Type of a packet.
    pub struct Code(u8) {
        ACCESS_REQUEST = 1 "Access-Request",
        ACCESS_ACCEPT = 2 "Access-Accept",
        ACCESS_REJECT = 3 "Access-Reject",
        ACCOUNTING_REQUEST = 4 "Accounting-Request",
        ACCOUNTING_RESPONSE = 5 "Accounting-Response",
        ACCESS_CHALLENGE = 11 "Access-Challenge",
        STATUS_SERVER = 12 "Status-Server",
        STATUS_CLIENT = 13 "Status-Client",
        DISCONNECT_REQUEST = 40 "Disconnect-Request",
        DISCONNECT_ACK = 41 "Disconnect-ACK",
        DISCONNECT_NAK = 42 "Disconnect-NAK",
        COA_REQUEST = 43 "CoA-Request",
        COA_ACK = 44 "CoA-ACK",
        COA_NAK = 45 "CoA-NAK",
    }
}

/// Why a packet's origin is not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// Its authenticator does not match the secret, the request and the content.
    Authenticator,
    /// Its Message-Authenticator does not match, or there are several.
    MessageAuthenticator,
    /// It lacks a required Message-Authenticator.
    NoMessageAuthenticator,
    /// It has no Message-Authenticator, but a Proxy-State, which our requests never contain.
    ProxyState,
}

/// A view over a packet whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a datagram. Bytes behind the packet are padding (RFC 2865, 3).
    ///
    /// # Errors
    /// [`WireError::TooShort`] if the datagram is shorter than the packet states; [`WireError::Length`] for an invalid
    /// length of the packet or of an attribute.
    pub fn parse(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let what = "RADIUS packet";
        let got = bytes.len();
        if got < HEADER_LEN {
            return Err(WireError::TooShort { what, got, min: HEADER_LEN });
        }
        let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if !(HEADER_LEN..=LONGEST).contains(&len) {
            return Err(WireError::Length { what, got: len });
        }
        let bytes = bytes.get(..len).ok_or(WireError::TooShort { what, got, min: len })?;
        let mut rest = &bytes[HEADER_LEN..];
        while let [_, len, ..] = rest {
            let len = usize::from(*len);
            let wrong = WireError::Length { what: "RADIUS attribute", got: len };
            if len < 2 {
                return Err(wrong);
            }
            rest = rest.get(len..).ok_or(wrong)?;
        }
        if !rest.is_empty() {
            return Err(WireError::Length { what: "RADIUS attribute", got: rest.len() });
        }
        Ok(View { bytes })
    }

    /// Parses a possibly truncated packet for display: up to its stated length, if there are that many bytes.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if the header is incomplete.
    pub fn lossy(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let Some([_, _, high, low, ..]) = bytes.first_chunk::<HEADER_LEN>() else {
            let (what, got) = ("RADIUS packet", bytes.len());
            return Err(WireError::TooShort { what, got, min: HEADER_LEN });
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        Ok(View { bytes: &bytes[..len.clamp(HEADER_LEN, bytes.len())] })
    }

    /// The bytes behind the last complete attribute: empty, unless the view is [lossy](View::lossy).
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        let end = self.places().last().map_or(HEADER_LEN, |(at, _, value)| at + 2 + value.len());
        &self.bytes[end..]
    }

    /// The whole packet.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its type.
    #[must_use]
    pub fn code(&self) -> Code {
        Code(self.bytes[0])
    }

    /// Identifier of a request, repeated in the answer.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.bytes[1]
    }

    /// Request Authenticator or Response Authenticator.
    #[must_use]
    pub fn authenticator(&self) -> [u8; AUTHENTICATOR_LEN] {
        let mut authenticator = ZEROS;
        authenticator.copy_from_slice(&self.bytes[4..HEADER_LEN]);
        authenticator
    }

    /// Its attributes in order: offset, type and value.
    fn places(&self) -> impl Iterator<Item = (usize, AttributeType, &'a [u8])> {
        let bytes = self.bytes;
        let mut at = HEADER_LEN;
        core::iter::from_fn(move || {
            let [kind, len, rest @ ..] = bytes.get(at..)? else { return None };
            let value = rest.get(..usize::from(*len).checked_sub(2)?)?;
            let place = at;
            at += usize::from(*len);
            Some((place, AttributeType(*kind), value))
        })
    }

    /// Its attributes in order.
    pub fn attributes(&self) -> impl Iterator<Item = (AttributeType, &'a [u8])> {
        self.places().map(|(_, kind, value)| (kind, value))
    }

    /// Checks the Message-Authenticator, computed with `authenticator` in the packet's authenticator field.
    fn check_message(
        &self,
        authenticator: &[u8; AUTHENTICATOR_LEN],
        secret: &Secret,
        is_required: bool,
    ) -> Result<(), Unproven> {
        let is_one = |(_, kind, _): &(usize, AttributeType, &[u8])| {
            *kind == AttributeType::MESSAGE_AUTHENTICATOR
        };
        let mut all = self.places().filter(is_one);
        match (all.next(), all.next()) {
            (None, _) if is_required => Err(Unproven::NoMessageAuthenticator),
            (None, _) => Ok(()),
            (Some((at, _, value)), None) if value.len() == AUTHENTICATOR_LEN => {
                let (before, behind) = (&self.bytes[HEADER_LEN..at + 2], at + 2 + value.len());
                let text = [&self.bytes[..4], authenticator, before, &ZEROS, &self.bytes[behind..]];
                let is_right = secret.verify(&text, value);
                is_right.then_some(()).ok_or(Unproven::MessageAuthenticator)
            }
            _ => Err(Unproven::MessageAuthenticator),
        }
    }

    /// Returns whether it has an attribute of this type.
    #[must_use]
    pub fn has(&self, kind: AttributeType) -> bool {
        self.attributes().any(|(other, _)| other == kind)
    }

    /// Checks whether this is an answer to the request with this authenticator, from a server that knows the secret.
    ///
    /// The Response Authenticator alone proves little: an on-path attacker can make a server echo a Proxy-State for
    /// which the MD5 sums of a reject and of a forged accept collide (CVE-2024-3596, "Blast-RADIUS"). Servers copy
    /// Proxy-State from the request (RFC 2865, 5.33). Our requests contain none, so a Proxy-State in an answer without
    /// a Message-Authenticator comes from an attacker.
    ///
    /// # Errors
    /// The reason why it is not verified.
    pub fn check_reply(
        &self,
        request: &[u8; AUTHENTICATOR_LEN],
        secret: &Secret,
        is_message_authenticator_required: bool,
    ) -> Result<(), Unproven> {
        let digest = secret.digest(&[&self.bytes[..4], request, &self.bytes[HEADER_LEN..]]);
        // Collect the differences of all bytes, so that the time does not reveal the position of the first one.
        let differs = digest.iter().zip(self.authenticator()).fold(0, |or, (a, b)| or | (a ^ b));
        if differs != 0 {
            return Err(Unproven::Authenticator);
        }
        self.check_message(request, secret, is_message_authenticator_required)?;
        let is_signed = self.has(AttributeType::MESSAGE_AUTHENTICATOR);
        let is_spoilt = !is_signed && self.has(AttributeType::PROXY_STATE);
        if is_spoilt { Err(Unproven::ProxyState) } else { Ok(()) }
    }

    /// Checks whether this request comes from a client that knows the secret. For an Access-Request only the
    /// Message-Authenticator proves this.
    ///
    /// # Errors
    /// The reason why it is not verified.
    pub fn check_request(&self, secret: &Secret) -> Result<(), Unproven> {
        if self.code() != Code::ACCOUNTING_REQUEST {
            return self.check_message(&self.authenticator(), secret, true);
        }
        let digest = secret.digest(&[&self.bytes[..4], &ZEROS, &self.bytes[HEADER_LEN..]]);
        let differs = digest.iter().zip(self.authenticator()).fold(0, |or, (a, b)| or | (a ^ b));
        if differs != 0 {
            return Err(Unproven::Authenticator);
        }
        self.check_message(&ZEROS, secret, false)
    }
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// Its type.
    pub code: Code,
    /// Identifier of a request, repeated in the answer.
    pub id: u8,
    /// Request Authenticator or Response Authenticator.
    #[serde(serialize_with = "hex")]
    pub authenticator: [u8; AUTHENTICATOR_LEN],
    /// Its attributes in order.
    pub attributes: Vec<Attribute>,
}

impl Packet {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Those of [`View::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Packet, WireError> {
        Ok(Packet::of(&View::parse(bytes)?))
    }

    /// Reads the packet of a view.
    #[must_use]
    pub fn of(view: &View<'_>) -> Packet {
        let attribute = |(kind, value): (AttributeType, &[u8])| Attribute::octets(kind, value);
        let attributes = view.attributes().map(attribute).collect();
        let (code, id, authenticator) = (view.code(), view.id(), view.authenticator());
        Packet { code, id, authenticator, attributes }
    }

    /// The first attribute of a type.
    #[must_use]
    pub fn first(&self, kind: AttributeType) -> Option<&Attribute> {
        self.all(kind).next()
    }

    /// All attributes of a type.
    pub fn all(&self, kind: AttributeType) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(move |attribute| attribute.kind == kind)
    }

    /// Its bytes, with its authenticators as they are.
    ///
    /// # Errors
    /// [`WireError::Length`] if an attribute or the packet exceeds its length field or the standard's limit.
    pub fn emit(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::from([self.code.0, self.id, 0, 0]);
        out.extend(self.authenticator);
        for Attribute { kind, value } in &self.attributes {
            if value.len() > Attribute::VALUE_MAX {
                return Err(WireError::Length { what: "RADIUS attribute", got: value.len() + 2 });
            }
            out.extend([kind.0, value.len() as u8 + 2]);
            out.extend(value);
        }
        if out.len() > LONGEST {
            return Err(WireError::Length { what: "RADIUS packet", got: out.len() });
        }
        let length = out.len() as u16;
        out[2..4].copy_from_slice(&length.to_be_bytes());
        Ok(out)
    }

    /// Its bytes with an empty Message-Authenticator in front of the other attributes.
    fn with_empty_message_authenticator(&self) -> Result<Vec<u8>, WireError> {
        let mut packet = self.clone();
        packet.attributes.retain(|a| a.kind != AttributeType::MESSAGE_AUTHENTICATOR);
        let empty = Attribute::octets(AttributeType::MESSAGE_AUTHENTICATOR, &ZEROS);
        packet.attributes.insert(0, empty);
        packet.emit()
    }

    /// The bytes of a sealed request. An Accounting-Request gets its Request Authenticator (RFC 2866, 3), any other a
    /// Message-Authenticator (RFC 3579, 3.2).
    ///
    /// # Errors
    /// Those of [`Packet::emit`].
    pub fn seal_request(&self, secret: &Secret) -> Result<Vec<u8>, WireError> {
        let message = HEADER_LEN + 2..HEADER_LEN + MESSAGE_AUTHENTICATOR_LEN;
        if self.code == Code::ACCOUNTING_REQUEST {
            let mut out = Packet { authenticator: ZEROS, ..self.clone() }.emit()?;
            let digest = secret.digest(&[&out]);
            out[4..HEADER_LEN].copy_from_slice(&digest);
            return Ok(out);
        }
        let mut out = self.with_empty_message_authenticator()?;
        let mac = secret.mac(&[&out]);
        out[message].copy_from_slice(&mac);
        Ok(out)
    }

    /// The bytes of a sealed answer to the request with this authenticator, with or without a Message-Authenticator.
    ///
    /// # Errors
    /// Those of [`Packet::emit`].
    pub fn seal_reply(
        &self,
        request: &[u8; AUTHENTICATOR_LEN],
        secret: &Secret,
        has_message_authenticator: bool,
    ) -> Result<Vec<u8>, WireError> {
        let packet = Packet { authenticator: *request, ..self.clone() };
        let mut out = match has_message_authenticator {
            true => packet.with_empty_message_authenticator()?,
            false => packet.emit()?,
        };
        if has_message_authenticator {
            let mac = secret.mac(&[&out]);
            out[HEADER_LEN + 2..HEADER_LEN + MESSAGE_AUTHENTICATOR_LEN].copy_from_slice(&mac);
        }
        let digest = secret.digest(&[&out]);
        out[4..HEADER_LEN].copy_from_slice(&digest);
        Ok(out)
    }
}
