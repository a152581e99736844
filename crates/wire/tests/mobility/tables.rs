//! Tables with numbers from the RFCs.

use std::net::Ipv6Addr;

use segue_wire::WireError;
use segue_wire::mobility::body::*;
use segue_wire::mobility::option::*;
use segue_wire::mobility::*;
use serde_json::json;

/// MH Type, and number of bytes before the options.
const FIXED: [(u8, usize); 18] = [
    (0, 8),
    (1, 16),
    (2, 16),
    (3, 24),
    (4, 24),
    (5, 12),
    (6, 12),
    (7, 24),
    (8, 12),
    (9, 12),
    (13, 12),
    (14, 10),
    (15, 10),
    (16, 12),
    (17, 12),
    (18, 12),
    (19, 12),
    (20, 12),
];

/// Option type, alignment "xn+y" as (x, y), and permitted lengths; two equal lengths mean "at least".
const OPTIONS: [(u8, (usize, usize), &[usize]); 40] = [
    (2, (2, 0), &[2]),
    (3, (8, 6), &[16]),
    (4, (2, 0), &[4]),
    (5, (8, 2), &[12]),
    (6, (8, 4), &[18]),
    (7, (1, 0), &[1, 1]),
    (8, (1, 0), &[1, 1]),
    (19, (4, 2), &[5, 5]),
    (20, (1, 0), &[1, 1]),
    (21, (1, 0), &[4, 4]),
    (22, (8, 4), &[18]),
    (23, (1, 0), &[2]),
    (24, (1, 0), &[2]),
    (25, (1, 0), &[2, 2]),
    (26, (8, 6), &[16]),
    (27, (8, 2), &[8]),
    (28, (4, 2), &[4]),
    (29, (4, 0), &[6]),
    (30, (4, 0), &[6]),
    (31, (4, 0), &[6]),
    (32, (4, 0), &[6]),
    (33, (4, 0), &[2, 6]),
    (34, (8, 4), &[18]),
    (35, (2, 0), &[4, 8, 20]),
    (36, (4, 0), &[6]),
    (37, (4, 0), &[6]),
    (38, (4, 0), &[6]),
    (39, (1, 0), &[2]),
    (40, (1, 0), &[2, 4, 6, 8]),
    (41, (1, 0), &[6, 18]),
    (42, (1, 0), &[10]),
    (44, (2, 0), &[0, 2, 4, 6, 8]),
    (45, (2, 0), &[6, 6]),
    (46, (4, 0), &[2]),
    (47, (4, 0), &[2]),
    (48, (4, 0), &[18]),
    (49, (4, 2), &[4]),
    (50, (1, 0), &[6]),
    (51, (8, 4), &[18]),
    (63, (1, 0), &[6]),
];

pub(crate) fn fixed_len(message_type: u8) -> usize {
    FIXED.iter().find(|(kind, _)| *kind == message_type).unwrap().1
}

/// The required position of an option: multiple and offset.
pub(crate) fn alignment(kind: u8, len: usize) -> (usize, usize) {
    match OPTIONS.iter().find(|(known, ..)| *known == kind) {
        // With a care-of address.
        _ if kind == 35 && len > 4 => (8, 2),
        Some((_, alignment, _)) => *alignment,
        None => match kind {
            9 => (4, 1),
            10 | 55 => (8, 2),
            52 | 53 => (4, 0),
            _ => (1, 0),
        },
    }
}

/// A Binding Update with an option of `len` bytes. They are zero, except one that tells the family of an address.
fn with_option(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![59, 0, 5, 0, 0, 0, 0, 1, 0x80, 0, 0, 1];
    // Padding before the option, which may have to be the last.
    let pad = (8 - (bytes.len() + 2 + len) % 8) % 8;
    match pad {
        0 => {}
        1 => bytes.push(0),
        _ => bytes.extend([&[1, pad as u8 - 2][..], &[0; 8][..pad - 2]].concat()),
    }
    bytes.extend([kind, len as u8]);
    let at = bytes.len();
    bytes.resize(at + len, 0);
    if kind == 41 && len > 0 {
        bytes[at] = if len == 6 { 2 } else { 1 };
    }
    bytes[1] = (bytes.len() / 8 - 1) as u8;
    bytes
}

#[test]
fn options_have_the_lengths_of_the_table_and_no_others() {
    for (kind, _, lengths) in OPTIONS {
        for len in 0..60 {
            let endless = lengths.len() == 2 && lengths[0] == lengths[1];
            // A request without data takes two bytes.
            let right = match kind {
                40 | 44 => len >= lengths[0] && len % 2 == 0,
                _ if endless => len >= lengths[0],
                _ => lengths.contains(&len),
            };
            let read = Message::parse(&with_option(kind, len), &Profile::STRICT);
            match read {
                Ok(message) => {
                    assert!(right, "type {kind}, length {len}: {message:?}");
                    assert_eq!(message.options[0].kind(), kind);
                }
                Err(WireError::TooShort { what, got, .. } | WireError::Length { what, got }) => {
                    assert!(!right && got == len, "type {kind}, length {len}");
                    let name = name_of(kind);
                    assert!(what == name, "type {kind}, length {len}: {what} is not {name}");
                }
                Err(error) => panic!("type {kind}, length {len}: {error}"),
            }
        }
    }
}

fn name_of(kind: u8) -> &'static str {
    let (.., lengths) = OPTIONS.iter().find(|(known, ..)| *known == kind).unwrap();
    let message = Message::parse(&with_option(kind, lengths[0]), &Profile::STRICT).unwrap();
    message.options[0].name()
}

#[test]
fn every_message_without_its_last_octets_is_refused_by_its_name() {
    for (kind, len) in FIXED {
        // The first byte of type 16 selects one of two messages.
        let mut bytes = [vec![59, 0, kind, 0, 0, 0, 1], vec![0; 40]].concat();
        for n in 8..len {
            bytes[1] = (n / 8 - 1) as u8;
            let refused = Message::parse(&bytes[..n], &Profile::OAI);
            let what = MessageType(kind).name().unwrap();
            assert_eq!(refused, Err(WireError::TooShort { what, got: n, min: min(kind, n) }));
        }
        bytes[1] = (len / 8 - 1) as u8;
        let message = Message::parse(&bytes[..len], &Profile::OAI).unwrap();
        assert_eq!(message.body.message_type(), MessageType(kind));
    }
}

/// The end of the field that a message of `n` bytes has only in part.
fn min(kind: u8, n: usize) -> usize {
    let ends: &[usize] = match kind {
        0 => &[8],
        1 | 2 => &[8, 16],
        3 | 4 => &[8, 16, 24],
        7 => &[7, 8, 24],
        13 => &[8, 12],
        14 | 15 => &[8, 9, 10],
        20 => &[8, 9, 12],
        _ => &[8, 10, 12],
    };
    // A one-byte status or flag field ends in between, and is complete.
    let ends = if kind == 18 { &[8, 9, 10, 12][..] } else { ends };
    *ends.iter().find(|end| **end > n).unwrap()
}

#[test]
fn types_have_the_names_of_the_registry() {
    let names = (0..=23).map(|kind| MessageType(kind).name());
    assert!(names.into_iter().all(|name| name.is_some()));
    assert_eq!(MessageType(24).name(), None);
    assert_eq!(MessageType(16).name(), Some("Binding Revocation"));
    assert_eq!(MessageType(19).name(), Some("Update Notification"));
}

#[test]
fn statuses_have_their_numbers() {
    let table = [
        (Status::ACCEPTED, 0),
        (Status::MCOA_NOTCOMPLETE, 4),
        (Status::REASON_UNSPECIFIED, 128),
        (Status::DUPLICATE_ADDRESS, 134),
        (Status::SEQUENCE_OUT_OF_WINDOW, 135),
        (Status::EXPIRED_NONCES, 138),
        (Status::FORWARDING_SETUP_FAILED, 143),
        (Status::MIPV6_ID_MISMATCH, 144),
        (Status::CGA_AND_SIGNATURE_FAILED, 148),
        (Status::SERVICE_AUTHORIZATION_FAILED, 151),
        (Status::PROXY_REG_NOT_ENABLED, 152),
        (Status::TIMESTAMP_MISMATCH, 156),
        (Status::TIMESTAMP_LOWER_THAN_PREV_ACCEPTED, 157),
        (Status::MISSING_ACCESS_TECH_TYPE_OPTION, 162),
        (Status::GRE_KEY_OPTION_REQUIRED, 163),
        (Status::MCOA_BULK_REGISTRATION_PROHIBITED, 168),
        (Status::MULTIPLE_IPV4_HOME_ADDRESS_ASSIGNMENT_NOT_SUPPORTED, 173),
        (Status::INVALID_CARE_OF_ADDRESS, 174),
        (Status::CANNOT_SUPPORT_MULTIPATH_BINDING, 180),
    ];
    for (status, number) in table {
        assert_eq!(status, Status(number));
        assert_eq!(status.is_accepted(), number < 128);
    }
    assert_eq!(Status(157).name(), Some("TIMESTAMP_LOWER_THAN_PREV_ACCEPTED"));
    assert_eq!(Status(179).name(), None);
}

fn letters(flags: BindingUpdateFlags) -> String {
    flags.letters().collect()
}

#[test]
fn flags_are_shown_by_their_letters_and_one_bit_by_what_the_update_is() {
    assert_eq!(letters(BindingUpdateFlags(0xffe0)), "AHLKMRPFTBS");
    assert_eq!(letters(BindingUpdateFlags(0x8200)), "AP");
    assert_eq!(letters(BindingUpdateFlags(0xc040)), "AHO");
    assert_eq!(letters(BindingUpdateFlags(0x0011)), "0x11");
    let ack = BindingAcknowledgementFlags(0xf8).letters().collect::<String>();
    assert_eq!(ack, "KRPTB");
}

/// The update with which a gateway requests a prefix, byte by byte.
#[test]
fn a_proxy_binding_update_is_what_the_rfc_draws() {
    let message = Message {
        body: Body::BindingUpdate(BindingUpdate {
            sequence: 0x0102,
            flags: BindingUpdateFlags::ACKNOWLEDGE | BindingUpdateFlags::PROXY,
            lifetime_4s: 900,
        }),
        options: vec![
            MobilityOption::MobileNodeIdentifier(MobileNodeIdentifier::nai("mn@x")),
            MobilityOption::HomeNetworkPrefix(HomeNetworkPrefix {
                flags: HomeNetworkPrefixFlags::default(),
                prefix_length: 0,
                home_network_prefix: Ipv6Addr::UNSPECIFIED,
            }),
            MobilityOption::HandoffIndicator(HandoffIndicator {
                handoff_indicator: Handoff::NEW_INTERFACE,
            }),
            MobilityOption::AccessTechnologyType(AccessTechnologyType {
                access_technology_type: AccessTechnology::WLAN,
            }),
            MobilityOption::Timestamp(Timestamp {
                seconds: 0x6b01_2350,
                fraction_65536ths: 0x5415,
            }),
        ],
    };
    #[rustfmt::skip]
    let bytes = [
        59, 7, 5, 0, 0, 0, 1, 2, 0x82, 0, 3, 132,
        8, 5, 1, b'm', b'n', b'@', b'x', 0,
        22, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        23, 2, 0, 1, 24, 2, 0, 4,
        1, 0,
        27, 8, 0, 0, 0x6b, 1, 0x23, 0x50, 0x54, 0x15,
        1, 2, 0, 0,
    ];
    assert_eq!(message.emit(&Profile::STRICT).unwrap(), bytes);
    assert_eq!(message.message_name(), "Proxy Binding Update");
}

#[test]
fn a_message_is_shown_by_the_names_of_its_fields() {
    let bytes = with_option(22, 18);
    let message = Message::parse(&bytes, &Profile::STRICT).unwrap();
    let shown = json!({
        "sequence": 1,
        "flags": ["A"],
        "lifetime_4s": 1,
        "options": [{
            "option": "home_network_prefix",
            "flags": [],
            "prefix_length": 0,
            "home_network_prefix": "::",
        }],
    });
    assert_eq!(serde_json::to_value(&message).unwrap(), shown);
    let identifier = |bytes: &[u8]| {
        let identifier = bytes.to_vec();
        let option = MobileNodeIdentifier { subtype: 1, identifier };
        serde_json::to_value(option).unwrap()["identifier"].clone()
    };
    assert_eq!(identifier(b"mn@x\0\0"), json!("mn@x"));
    assert_eq!(identifier(&[0xff, 0]), json!("ff00"));
    let unknown = MobilityOption::Unknown(Unknown { kind: 200, data: vec![1, 0xab] });
    let shown = json!({"option": "unknown", "type": 200, "data": "01ab"});
    assert_eq!(serde_json::to_value(unknown).unwrap(), shown);
    let revocation = BindingRevocation::Acknowledgement(BindingRevocationAcknowledgement {
        status: RevocationStatus::PARTIAL_SUCCESS,
        sequence: 2,
        flags: RevocationFlags::PROXY,
    });
    let message = Message { body: Body::BindingRevocation(revocation), options: vec![] };
    let shown = json!({
        "br_type": "acknowledgement", "status": 1, "sequence": 2, "flags": ["P"], "options": [],
    });
    assert_eq!(serde_json::to_value(&message).unwrap(), shown);
}

#[test]
fn messages_that_share_a_type_have_names_of_their_own() {
    let name = |body| Message { body, options: vec![] }.message_name();
    let update = |flags| BindingUpdate { sequence: 0, flags, lifetime_4s: 0 };
    assert_eq!(name(Body::BindingUpdate(update(BindingUpdateFlags(0xc000)))), "Binding Update");
    let notification = |reason| {
        name(Body::UpdateNotification(UpdateNotification {
            sequence: 0,
            notification_reason: NotificationReason(reason),
            flags: UpdateNotificationFlags::ACKNOWLEDGE,
        }))
    };
    assert_eq!(notification(1), "Update Notification");
    assert_eq!(notification(8), "Flow Mobility Initiate");
    let indication = BindingRevocationIndication {
        revocation_trigger: RevocationTrigger::USER_INITIATED,
        sequence: 0,
        flags: RevocationFlags::default(),
    };
    let body = Body::BindingRevocation(BindingRevocation::Indication(indication));
    assert_eq!(name(body), "Binding Revocation Indication");
}
