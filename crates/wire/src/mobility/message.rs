//! A whole message: what it says and its options.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::Serialize;

use super::body::{BindingAcknowledgement, BindingRevocation, Body, UpdateNotification};
use super::header::{CHECKSUM_AT, FIXED_LEN, MobilityHeader, fill_checksum};
use super::option::{self, MobilityOption};
use super::profile::Profile;
use super::{BindingAcknowledgementFlags, BindingUpdateFlags, NotificationReason};
use crate::WireError;
use crate::padded::pad_to;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The fields that every message of its type has.
    #[serde(flatten)]
    pub body: Body,
    /// Its options without the padding, in their order; one that has to be the last stands last.
    pub options: Vec<MobilityOption>,
}

impl Message {
    /// Reads a message, which is all of `bytes`. Its checksum is not looked at.
    ///
    /// # Errors
    /// Of [`MobilityHeader::parse`]; [`WireError::Type`] for an MH Type that is not known or has no format here;
    /// [`WireError::TooShort`] and [`WireError::Length`] that name the message or the option; [`WireError::Field`]
    /// for a value without a meaning, and for what follows an option that has to be the last.
    pub fn parse(bytes: &[u8], profile: &Profile) -> Result<Message, WireError> {
        let header = MobilityHeader::parse(bytes, profile)?;
        let (body, at) = Body::parse(&header)?;
        let options = option::parse_all(&bytes[at..], profile)?;
        Ok(Message { body, options })
    }

    /// Reads what there is of a message, for showing it. An option that cannot be read is [`MobilityOption::Malformed`]; one that
    /// is cut is so too, and the last. Octets behind the length that the header states are left out.
    ///
    /// # Errors
    /// [`WireError::Type`] for an MH Type that is not known or has no format here; [`WireError::TooShort`] where the fields in front
    /// of the options are not whole.
    pub fn parse_lossy(bytes: &[u8]) -> Result<Message, WireError> {
        let header = MobilityHeader::lossy(bytes)?;
        let (body, at) = Body::parse(&header)?;
        Ok(Message { body, options: option::parse_lossy(&header.bytes()[at..]) })
    }

    /// The message's bytes, with a checksum of zero. An option that has to be the last is put there.
    ///
    /// # Errors
    /// [`WireError::Length`]: the message or an option is longer than its length field can say; [`WireError::Field`]:
    /// a field holds a value that would not be read again.
    pub fn emit(&self, profile: &Profile) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::with_capacity(64);
        out.extend([59, 0, self.body.message_type().0, 0, 0, 0]);
        debug_assert_eq!(out.len(), FIXED_LEN, "the fixed part");
        self.body.write(&mut out);
        let (last, others): (Vec<_>, Vec<_>) =
            self.options.iter().partition(|option| option.is_last());
        for option in others.into_iter().chain(last) {
            option.emit(profile, &mut out)?;
        }
        if !profile.unpadded_end {
            pad_to(&mut out, 8);
        }
        let too_long = WireError::Length { what: "Mobility Header", got: out.len() };
        out[1] = u8::try_from(out.len() / 8 - 1).map_err(|_| too_long)?;
        Ok(out)
    }

    /// The message's bytes with the [`checksum`](super::checksum).
    ///
    /// # Errors
    /// Of [`Message::emit`].
    pub fn emit_with_checksum(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        profile: &Profile,
    ) -> Result<Vec<u8>, WireError> {
        let mut out = self.emit(profile)?;
        fill_checksum(source, destination, &mut out);
        Ok(out)
    }

    /// Whether the message, read from these bytes, is emitted as the same bytes, the checksum apart.
    #[must_use]
    pub fn reencodes(&self, bytes: &[u8], profile: &Profile) -> bool {
        let Ok(mut emitted) = self.emit(profile) else { return false };
        let Some(field) = bytes.get(CHECKSUM_AT) else { return false };
        emitted[CHECKSUM_AT].copy_from_slice(field);
        emitted == bytes
    }

    /// The name that an RFC gives it: of its type, or the one that it has by a flag or a field. (An acknowledgement of
    /// a Flow Mobility Initiate does not tell that it is one.)
    #[must_use]
    pub fn message_name(&self) -> &'static str {
        match &self.body {
            Body::BindingUpdate(update) if update.flags.contains(BindingUpdateFlags::PROXY) => {
                "Proxy Binding Update"
            }
            Body::BindingAcknowledgement(BindingAcknowledgement { flags, .. })
                if flags.contains(BindingAcknowledgementFlags::PROXY) =>
            {
                "Proxy Binding Acknowledgement"
            }
            Body::BindingRevocation(BindingRevocation::Indication(_)) => {
                "Binding Revocation Indication"
            }
            Body::BindingRevocation(BindingRevocation::Acknowledgement(_)) => {
                "Binding Revocation Acknowledgement"
            }
            Body::UpdateNotification(UpdateNotification {
                notification_reason: NotificationReason::FLOW_MOBILITY,
                ..
            }) => "Flow Mobility Initiate",
            body => body.message_type().name().unwrap_or("Mobility Header"),
        }
    }
}
