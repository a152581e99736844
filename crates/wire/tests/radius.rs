//! RADIUS packets from FreeRADIUS, and their seals.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use segue_wire::WireError;
use segue_wire::radius::{Attribute, AttributeType, Code, Packet, Secret, Unproven, View};

fn captured() -> [Vec<u8>; 2] {
    let hex = include_str!("captures/freeradius.hex");
    let mut lines = hex.lines().filter(|line| !line.starts_with('#'));
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let mut next = || lines.next().unwrap().as_bytes().chunks(2).map(byte).collect();
    [next(), next()]
}

fn secret() -> Secret {
    Secret::new(b"testing123")
}

#[test]
fn freeradius_and_its_client_are_read_checked_and_written_again() {
    let [request, accept] = captured();
    for bytes in [&request, &accept] {
        let packet = Packet::parse(bytes).unwrap();
        assert_eq!(packet.emit().unwrap(), *bytes);
    }
    let (asked, said) = (View::parse(&request).unwrap(), View::parse(&accept).unwrap());
    assert_eq!(asked.check_request(&secret()), Ok(()));
    assert_eq!(asked.check_request(&Secret::new(b"x")), Err(Unproven::MessageAuthenticator));
    let authenticator = asked.authenticator();
    assert_eq!(said.check_reply(&authenticator, &secret(), false), Ok(()));
    let required = said.check_reply(&authenticator, &secret(), true);
    assert_eq!(required, Err(Unproven::NoMessageAuthenticator), "it adds none by itself");
    let wrong = said.check_reply(&authenticator, &Secret::new(b"x"), false);
    assert_eq!(wrong, Err(Unproven::Authenticator));
    // Sealing the same content gives the same bytes.
    let packet = Packet::of(&said);
    assert_eq!(packet.seal_reply(&authenticator, &secret(), false).unwrap(), accept);
}

#[test]
fn the_attributes_of_rfc_6572_say_what_freeradius_was_told_to_say() {
    let [request, accept] = captured().map(|bytes| Packet::parse(&bytes).unwrap());
    assert_eq!((request.code, accept.code), (Code::ACCESS_REQUEST, Code::ACCESS_ACCEPT));
    let first = |kind| accept.first(kind).unwrap();
    assert_eq!(first(AttributeType::MOBILE_NODE_IDENTIFIER).value, b"mn1@example.org");
    assert_eq!(first(AttributeType::SERVICE_SELECTION).value, b"internet");
    let home = Some("2001:db8:1:1::/64".parse().unwrap());
    assert_eq!(first(AttributeType::PMIP6_HOME_HN_PREFIX).to_prefix(), home);
    assert_eq!(first(AttributeType::FRAMED_IPV6_PREFIX).to_prefix(), home);
    let anchor = first(AttributeType::PMIP6_HOME_LMA_IPV6_ADDRESS).to_address();
    assert_eq!(anchor, Some("2001:db8:ff::1".parse().unwrap()));
    assert_eq!(first(AttributeType::SESSION_TIMEOUT).to_integer(), Some(3_600));
    assert_eq!(first(AttributeType::MIP6_FEATURE_VECTOR).to_integer64(), Some(0));
    assert!(accept.attributes.iter().all(|attribute| attribute.kind.name().is_some()));
    let hidden = secret().hide(b"linux", &request.authenticator);
    assert_eq!(request.first(AttributeType::USER_PASSWORD).unwrap().value, hidden);
}

#[test]
fn a_packet_that_is_cut_or_has_wrong_lengths_is_refused_and_padding_is_not() {
    let [request, _] = captured();
    for cut in 0..request.len() {
        let read = View::parse(&request[..cut]);
        assert!(matches!(read, Err(WireError::TooShort { .. })), "{cut}: {read:?}");
    }
    let padded = [&request[..], &[0; 9]].concat();
    assert_eq!(View::parse(&padded).unwrap().bytes(), request);
    let with_length = |at: usize, length: u8| {
        let mut bytes = request.clone();
        bytes[at] = length;
        View::parse(&bytes).map(|_| ())
    };
    for length in [0, 1, 0xff] {
        assert!(matches!(with_length(21, length), Err(WireError::Length { .. })), "{length}");
    }
    assert!(matches!(with_length(3, 19), Err(WireError::Length { .. })));
    // An attribute with a length of one byte, behind which a valid one seems to start.
    let short = [&[2, 0, 0, 23][..], &[0; 16], &[1, 1, 2]].concat();
    let wrong = WireError::Length { what: "RADIUS attribute", got: 1 };
    assert_eq!(View::parse(&short), Err(wrong));
    let mut long = Packet::parse(&request).unwrap();
    let text = Attribute::octets(AttributeType::REPLY_MESSAGE, &[b'x'; 300]);
    assert_eq!(text.value.len(), Attribute::VALUE_MAX);
    long.attributes = vec![text; 17];
    assert!(matches!(long.emit(), Err(WireError::Length { .. })));
}

#[test]
fn a_prefix_has_no_bits_behind_its_length_and_may_leave_octets_out() {
    let of = |value: &[u8]| Attribute::octets(AttributeType::FRAMED_IPV6_PREFIX, value).to_prefix();
    let full = [&[0, 64, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 1][..], &[0; 8]].concat();
    let home = Some("2001:db8:1:1::/64".parse().unwrap());
    assert_eq!((of(&full), of(&full[..10])), (home, home));
    assert_eq!(of(&full[..9]), None, "an octet of the prefix is missing");
    assert_eq!(of(&[&full[..17], &[1]].concat()), None);
    assert_eq!((of(&[0, 129]), of(&[0]), of(&[full, vec![0]].concat())), (None, None, None));
    assert_eq!(of(&[0, 0]), Some("::/0".parse().unwrap()));
}

#[test]
fn of_several_message_authenticators_none_counts() {
    use hmac::{Hmac, KeyInit, Mac};
    use md5::{Digest, Md5};

    let request = [7; 16];
    let empty = Attribute::octets(AttributeType::MESSAGE_AUTHENTICATOR, &[0; 16]);
    let other = Attribute::octets(AttributeType::MESSAGE_AUTHENTICATOR, &[9; 16]);
    let said = |attributes: Vec<Attribute>| {
        let (code, id, authenticator) = (Code::ACCESS_ACCEPT, 1, request);
        let mut bytes = Packet { code, id, authenticator, attributes }.emit().unwrap();
        let mut mac = Hmac::<Md5>::new_from_slice(b"testing123").unwrap();
        mac.update(&bytes);
        bytes[22..38].copy_from_slice(&mac.finalize().into_bytes());
        let digest = Md5::new().chain_update(&bytes).chain_update(b"testing123").finalize();
        bytes[4..20].copy_from_slice(&digest);
        View::parse(&bytes).unwrap().check_reply(&request, &secret(), true)
    };
    assert_eq!(said(vec![empty.clone()]), Ok(()));
    assert_eq!(said(vec![empty, other]), Err(Unproven::MessageAuthenticator));
}
