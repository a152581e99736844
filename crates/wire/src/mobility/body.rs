//! The fields of each message type, between checksum and options.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::Serialize;

use super::codes::*;
use super::header::{FIXED_LEN, MobilityHeader};
use crate::WireError;
use crate::layout::{Reader, Wire, hex, layout};

/// Defines [`Body`] by message types and formats.
macro_rules! bodies {
    ($($kind:ident => $body:ident,)*) => {
        /// The fields of a message, by its type.
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

            /// Reads the body and returns it with the offset of the options.
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

            /// Appends the body's bytes.
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
        /// Returned in the answer.
        #[serde(serialize_with = "hex")]
        [2] home_init_cookie: [u8; 8],
    }

    /// Care-of Test Init (RFC 6275, 6.1.4).
    pub struct CareOfTestInit {
        /// Returned in the answer.
        #[serde(serialize_with = "hex")]
        [2] care_of_init_cookie: [u8; 8],
    }

    /// Home Test (RFC 6275, 6.1.5).
    pub struct HomeTest {
        /// Identifies the nonce in the Binding Update.
        home_nonce_index: u16,
        /// The cookie of the Home Test Init.
        #[serde(serialize_with = "hex")]
        home_init_cookie: [u8; 8],
        /// One of the two inputs to the binding management key.
        #[serde(serialize_with = "hex")]
        home_keygen_token: [u8; 8],
    }

    /// Care-of Test (RFC 6275, 6.1.6).
    pub struct CareOfTest {
        /// Identifies the nonce in the Binding Update.
        care_of_nonce_index: u16,
        /// The cookie of the Care-of Test Init.
        #[serde(serialize_with = "hex")]
        care_of_init_cookie: [u8; 8],
        /// One of the two inputs to the binding management key.
        #[serde(serialize_with = "hex")]
        care_of_keygen_token: [u8; 8],
    }

    /// Binding Update (RFC 6275, 6.1.7); with [`BindingUpdateFlags::PROXY`] a Proxy Binding Update (RFC 5213, 8.1).
    ///
    /// ```text
    ///                                 |          Sequence #           |
    /// |A|H|L|K|M|R|P|F|T|B|S|         |           Lifetime            |
    /// ```
    pub struct BindingUpdate {
        /// Sequence #, which wraps.
        sequence: u16,
        /// The requested properties of the binding.
        flags: BindingUpdateFlags,
        /// Lifetime in units of 4 s; 0 deletes the binding.
        lifetime_4s: u16,
    }

    /// Binding Acknowledgement (RFC 6275, 6.1.8); with [`BindingAcknowledgementFlags::PROXY`] to a proxy.
    pub struct BindingAcknowledgement {
        /// Result of the update.
        status: Status,
        /// Flags of the update.
        flags: BindingAcknowledgementFlags,
        /// Sequence # of the update; with [`Status::SEQUENCE_OUT_OF_WINDOW`] the last one accepted.
        sequence: u16,
        /// Granted lifetime in units of 4 s.
        lifetime_4s: u16,
    }

    /// Binding Error (RFC 6275, 6.1.9).
    pub struct BindingError {
        /// The reason.
        status: BindingErrorStatus,
        /// The address in the packet's Home Address option, or unspecified.
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
        /// Result of the update.
        status: FastStatus,
        /// K.
        flags: BindingAcknowledgementFlags,
        /// Sequence # of the update.
        sequence: u16,
        /// Granted lifetime in seconds.
        lifetime_s: u16,
    }

    /// Heartbeat (RFC 5847, 4.1), request or response.
    pub struct Heartbeat {
        /// Request or response, and whether it is unsolicited.
        flags: HeartbeatFlags,
        /// Sequence #; a response repeats that of its request.
        sequence: u32,
    }

    /// Handover Initiate (RFC 5568, 6.2.1.1; RFC 5949, 6.1.1).
    pub struct HandoverInitiate {
        /// Sequence #.
        sequence: u16,
        /// The requested actions.
        flags: HandoverInitiateFlags,
        /// Reason of the message.
        code: HandoverInitiateCode,
    }

    /// Handover Acknowledge (RFC 5568, 6.2.1.2; RFC 5949, 6.1.2).
    pub struct HandoverAcknowledge {
        /// Sequence # of the Handover Initiate.
        sequence: u16,
        /// The corresponding flags of the Handover Initiate.
        flags: HandoverAcknowledgeFlags,
        /// Result; below 128 the handover was accepted.
        code: HandoverAcknowledgeCode,
    }

    /// Binding Revocation Indication (RFC 5846, 5.1), without the B.R. Type byte.
    pub struct BindingRevocationIndication {
        /// The reason.
        revocation_trigger: RevocationTrigger,
        /// Sequence #.
        sequence: u16,
        /// The bindings to revoke.
        flags: RevocationFlags,
    }

    /// Binding Revocation Acknowledgement (RFC 5846, 5.2), without the B.R. Type byte.
    pub struct BindingRevocationAcknowledgement {
        /// Result; below 128 the revocation succeeded.
        status: RevocationStatus,
        /// Sequence # of the indication.
        sequence: u16,
        /// Flags of the indication.
        flags: RevocationFlags,
    }

    /// Localized Routing Initiation (RFC 6705, 10.1).
    pub struct LocalizedRoutingInitiation {
        /// Sequence #.
        sequence: u16,
        /// Lifetime in seconds; 0 ends local routing, all ones means infinity.
        [2] lifetime_s: u16,
    }

    /// Localized Routing Acknowledgment (RFC 6705, 10.2).
    pub struct LocalizedRoutingAcknowledgment {
        /// Sequence # of the initiation.
        sequence: u16,
        /// U.
        flags: LocalizedRoutingFlags,
        /// Result.
        status: LocalizedRoutingStatus,
        /// Lifetime in seconds.
        lifetime_s: u16,
    }

    /// Update Notification (RFC 7077, 4.1); with [`NotificationReason::FLOW_MOBILITY`] a Flow Mobility Initiate (RFC
    /// 7864, 3.3).
    pub struct UpdateNotification {
        /// Sequence #.
        sequence: u16,
        /// The reason.
        notification_reason: NotificationReason,
        /// A and D.
        flags: UpdateNotificationFlags,
    }

    /// Update Notification Acknowledgement (RFC 7077, 4.2), also for a Flow Mobility Initiate.
    pub struct UpdateNotificationAcknowledgement {
        /// Sequence # of the notification.
        sequence: u16,
        /// Result; below 128 the notification succeeded.
        status: NotificationStatus,
        ; [3]
    }
}

/// Binding Revocation (RFC 5846). The first byte (B.R. Type) selects the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "br_type", rename_all = "snake_case")]
pub enum BindingRevocation {
    /// B.R. Type 1.
    Indication(BindingRevocationIndication),
    /// B.R. Type 2.
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
