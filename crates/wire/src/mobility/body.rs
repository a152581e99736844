//! The fields of each type of message, between checksum and options.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::Serialize;

use super::codes::*;
use super::header::{FIXED_LEN, MobilityHeader};
use crate::WireError;
use crate::layout::{Reader, Wire, hex, layout};

/// Defines [`Body`] by types and formats.
macro_rules! bodies {
    ($($kind:ident => $body:ident,)*) => {
        /// What a message says, by its type.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Body {
            $( #[doc = concat!("[`MessageType::", stringify!($kind), "`].")] $body($body), )*
        }

        impl Body {
            /// Its MH Type.
            #[must_use]
            pub const fn message_type(&self) -> MessageType {
                match self { $( Body::$body(_) => MessageType::$kind, )* }
            }

            /// Reads it, and says where the options begin.
            pub(super) fn parse(header: &MobilityHeader<'_>) -> Result<(Body, usize), WireError> {
                let kind = header.message_type();
                let what = kind.name().ok_or(WireError::Type { got: kind.0 })?;
                let mut reader = Reader::new(what, header.bytes(), FIXED_LEN);
                let body = match kind {
                    $( MessageType::$kind => Body::$body(Wire::read(&mut reader)?), )*
                    MessageType(got) => return Err(WireError::Type { got }),
                };
                Ok((body, reader.at()))
            }

            /// Appends its bytes.
            pub(super) fn write(&self, out: &mut Vec<u8>) {
                match self { $( Body::$body(body) => body.write(out), )* }
            }
        }
    };
}

bodies! {
    BINDING_REFRESH_REQUEST => BindingRefreshRequest,
    HOME_TEST_INIT => HomeTestInit,
    CARE_OF_TEST_INIT => CareOfTestInit,
    HOME_TEST => HomeTest,
    CARE_OF_TEST => CareOfTest,
    BINDING_UPDATE => BindingUpdate,
    BINDING_ACKNOWLEDGEMENT => BindingAcknowledgement,
    BINDING_ERROR => BindingError,
    FAST_BINDING_UPDATE => FastBindingUpdate,
    FAST_BINDING_ACKNOWLEDGMENT => FastBindingAcknowledgment,
    HEARTBEAT => Heartbeat,
    HANDOVER_INITIATE => HandoverInitiate,
    HANDOVER_ACKNOWLEDGE => HandoverAcknowledge,
    BINDING_REVOCATION => BindingRevocation,
    LOCALIZED_ROUTING_INITIATION => LocalizedRoutingInitiation,
    LOCALIZED_ROUTING_ACKNOWLEDGMENT => LocalizedRoutingAcknowledgment,
    UPDATE_NOTIFICATION => UpdateNotification,
    UPDATE_NOTIFICATION_ACKNOWLEDGEMENT => UpdateNotificationAcknowledgement,
}

layout! {
    /// Binding Refresh Request (RFC 6275, 6.1.2).
    pub struct BindingRefreshRequest {
        ; [2]
    }

    /// Home Test Init (RFC 6275, 6.1.3).
    pub struct HomeTestInit {
        /// Comes back in the answer.
        #[serde(serialize_with = "hex")]
        [2] home_init_cookie: [u8; 8],
    }

    /// Care-of Test Init (RFC 6275, 6.1.4).
    pub struct CareOfTestInit {
        /// Comes back in the answer.
        #[serde(serialize_with = "hex")]
        [2] care_of_init_cookie: [u8; 8],
    }

    /// Home Test (RFC 6275, 6.1.5).
    pub struct HomeTest {
        /// Names the nonce in the Binding Update.
        home_nonce_index: u16,
        /// From the Home Test Init.
        #[serde(serialize_with = "hex")]
        home_init_cookie: [u8; 8],
        /// Half of the binding management key's input.
        #[serde(serialize_with = "hex")]
        home_keygen_token: [u8; 8],
    }

    /// Care-of Test (RFC 6275, 6.1.6).
    pub struct CareOfTest {
        /// Names the nonce in the Binding Update.
        care_of_nonce_index: u16,
        /// From the Care-of Test Init.
        #[serde(serialize_with = "hex")]
        care_of_init_cookie: [u8; 8],
        /// Half of the binding management key's input.
        #[serde(serialize_with = "hex")]
        care_of_keygen_token: [u8; 8],
    }

    /// Binding Update (RFC 6275, 6.1.7), of a proxy with [`BindingUpdateFlags::PROXY`] (RFC 5213, 8.1).
    ///
    /// ```text
    ///                                 |          Sequence #           |
    /// |A|H|L|K|M|R|P|F|T|B|S|         |           Lifetime            |
    /// ```
    pub struct BindingUpdate {
        /// Sequence #, which wraps.
        sequence: u16,
        /// What is asked for.
        flags: BindingUpdateFlags,
        /// Lifetime in units of 4 s; 0 deletes the binding.
        lifetime_4s: u16,
    }

    /// Binding Acknowledgement (RFC 6275, 6.1.8), to a proxy with [`BindingAcknowledgementFlags::PROXY`].
    pub struct BindingAcknowledgement {
        /// What became of the update.
        status: Status,
        /// As the update has them.
        flags: BindingAcknowledgementFlags,
        /// That of the update; with [`Status::SEQUENCE_OUT_OF_WINDOW`] the last one accepted.
        sequence: u16,
        /// Granted lifetime in units of 4 s.
        lifetime_4s: u16,
    }

    /// Binding Error (RFC 6275, 6.1.9).
    pub struct BindingError {
        /// The reason.
        status: BindingErrorStatus,
        /// From the Home Address option of the packet, or unspecified.
        [1] home_address: Ipv6Addr,
    }

    /// Fast Binding Update (RFC 5568, 6.2.2).
    pub struct FastBindingUpdate {
        /// Sequence #, which wraps.
        sequence: u16,
        /// A and H.
        flags: BindingUpdateFlags,
        /// Lifetime in seconds.
        lifetime_s: u16,
    }

    /// Fast Binding Acknowledgment (RFC 5568, 6.2.3).
    pub struct FastBindingAcknowledgment {
        /// What became of the update.
        status: FastStatus,
        /// K.
        flags: BindingAcknowledgementFlags,
        /// That of the update.
        sequence: u16,
        /// Granted lifetime in seconds.
        lifetime_s: u16,
    }

    /// Heartbeat (RFC 5847, 4.1), request or response.
    pub struct Heartbeat {
        /// Which of the two.
        flags: HeartbeatFlags,
        /// A response has that of its request.
        sequence: u32,
    }

    /// Handover Initiate (RFC 5568, 6.2.1.1; RFC 5949, 6.1.1).
    pub struct HandoverInitiate {
        /// Sequence #.
        sequence: u16,
        /// What is asked for.
        flags: HandoverInitiateFlags,
        /// Why it is sent.
        code: HandoverInitiateCode,
    }

    /// Handover Acknowledge (RFC 5568, 6.2.1.2; RFC 5949, 6.1.2).
    pub struct HandoverAcknowledge {
        /// That of the Handover Initiate.
        sequence: u16,
        /// As the Handover Initiate has them.
        flags: HandoverAcknowledgeFlags,
        /// What became of it; below 128 it was accepted.
        code: HandoverAcknowledgeCode,
    }

    /// Binding Revocation Indication (RFC 5846, 5.1), without the octet that says so.
    pub struct BindingRevocationIndication {
        /// Why.
        revocation_trigger: RevocationTrigger,
        /// Sequence #.
        sequence: u16,
        /// Which bindings.
        flags: RevocationFlags,
    }

    /// Binding Revocation Acknowledgement (RFC 5846, 5.2), without the octet that says so.
    pub struct BindingRevocationAcknowledgement {
        /// What became of it; below 128 it succeeded.
        status: RevocationStatus,
        /// That of the indication.
        sequence: u16,
        /// As the indication has them.
        flags: RevocationFlags,
    }

    /// Localized Routing Initiation (RFC 6705, 10.1).
    pub struct LocalizedRoutingInitiation {
        /// Sequence #.
        sequence: u16,
        /// Lifetime in seconds; 0 ends local routing, all ones is for ever.
        [2] lifetime_s: u16,
    }

    /// Localized Routing Acknowledgment (RFC 6705, 10.2).
    pub struct LocalizedRoutingAcknowledgment {
        /// That of the initiation.
        sequence: u16,
        /// U.
        flags: LocalizedRoutingFlags,
        /// What became of it.
        status: LocalizedRoutingStatus,
        /// Lifetime in seconds.
        lifetime_s: u16,
    }

    /// Update Notification (RFC 7077, 4.1); with [`NotificationReason::FLOW_MOBILITY`] a Flow Mobility Initiate (RFC
    /// 7864, 3.3).
    pub struct UpdateNotification {
        /// Sequence #.
        sequence: u16,
        /// Why.
        notification_reason: NotificationReason,
        /// A and D.
        flags: UpdateNotificationFlags,
    }

    /// Update Notification Acknowledgement (RFC 7077, 4.2), also of a Flow Mobility Initiate.
    pub struct UpdateNotificationAcknowledgement {
        /// That of the notification.
        sequence: u16,
        /// What became of it; below 128 it succeeded.
        status: NotificationStatus,
        ; [3]
    }
}

/// Binding Revocation (RFC 5846), whose first octet says which of two messages it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "br_type", rename_all = "snake_case")]
pub enum BindingRevocation {
    /// 1.
    Indication(BindingRevocationIndication),
    /// 2.
    Acknowledgement(BindingRevocationAcknowledgement),
}

impl Wire for BindingRevocation {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match u8::read(reader)? {
            1 => Wire::read(reader).map(BindingRevocation::Indication),
            2 => Wire::read(reader).map(BindingRevocation::Acknowledgement),
            got => Err(WireError::Field { field: "Binding Revocation type", got: got.into() }),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            BindingRevocation::Indication(indication) => {
                out.push(1);
                indication.write(out);
            }
            BindingRevocation::Acknowledgement(acknowledgement) => {
                out.push(2);
                acknowledgement.write(out);
            }
        }
    }
}
