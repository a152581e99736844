//! A whole message: body and options.

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
    /// The fields of its type.
    #[serde(flatten)]
    pub body: Body,
    /// Its options without padding, in order. An option that must be the last comes last.
    pub options: Vec<MobilityOption>,
}

impl Message {
    /// Reads a message that fills `bytes`. Does not verify the checksum.
    ///
    /// # Errors
    /// Those of [`MobilityHeader::parse`]; [`WireError::Type`] for an MH Type that is unknown or has no format here;
    /// [`WireError::TooShort`] and [`WireError::Length`], with the name of the message or option; [`WireError::Field`]
    /// for an undefined value, and for options behind one that must be the last.
    pub fn parse(bytes: &[u8], profile: &Profile) -> Result<Message, WireError> {
        let header = MobilityHeader::parse(bytes, profile)?;
        let (body, at) = Body::parse(&header)?;
        let options = option::parse_all(&bytes[at..], profile)?;
        Ok(Message { body, options })
    }

    /// Reads a possibly truncated message for display. An option that cannot be read becomes
    /// [`MobilityOption::Malformed`]; a truncated one too, and it is the last. Bytes beyond the length in the header
    /// are ignored.
    ///
    /// # Errors
    /// [`WireError::Type`] for an MH Type that is unknown or has no format here; [`WireError::TooShort`] if the fields
    /// before the options are incomplete.
    pub fn parse_lossy(bytes: &[u8]) -> Result<Message, WireError> {
        let header = MobilityHeader::lossy(bytes)?;
        let (body, at) = Body::parse(&header)?;
        Ok(Message { body, options: option::parse_lossy(&header.bytes()[at..]) })
    }

    /// The message's bytes, with a checksum of zero. An option that must be the last is moved there.
    ///
    /// # Errors
    /// [`WireError::Length`] if the message or an option exceeds its length field; [`WireError::Field`] if a field
    /// holds a value that a reader would refuse.
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

    /// The message's bytes, with the [`checksum`](super::checksum).
    ///
    /// # Errors
    /// Those of [`Message::emit`].
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

    /// Returns whether the message, read from `bytes`, is emitted as the same bytes, apart from the checksum.
    #[must_use]
    pub fn reencodes(&self, bytes: &[u8], profile: &Profile) -> bool {
        let Ok(mut emitted) = self.emit(profile) else { return false };
        let Some(field) = bytes.get(CHECKSUM_AT) else { return false };
        emitted[CHECKSUM_AT].copy_from_slice(field);
        emitted == bytes
    }

    /// The RFC's name of the message, which for some types depends on a flag or field. (An acknowledgement of a Flow
    /// Mobility Initiate looks like any other.)
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
