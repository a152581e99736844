//! Reads packets of other implementations, verifies their checksums and emits the same bytes.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;

use segue_wire::WireError;
use segue_wire::extension::{Chain, DestinationOptions, IPV6_LEN, Type2RoutingHeader};
use segue_wire::mobility::{
    self, Message, MobilityOption, Profile, authenticated_range, verify_checksum,
};

const IPV6: u8 = 41;

fn packets(hex: &str) -> Vec<Vec<u8>> {
    let lines = hex.lines().filter(|line| !line.starts_with('#'));
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    lines.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

/// The header chain of the innermost packet, and its Mobility Header.
fn message(packet: &[u8]) -> (Chain, &[u8]) {
    let chain = Chain::parse(packet).unwrap();
    match chain.next_header {
        IPV6 => message(chain.payload(packet)),
        mobility::NEXT_HEADER => (chain, chain.payload(packet)),
        other => panic!("next header {other}"),
    }
}

fn names(packets: &[Vec<u8>], profile: &Profile) -> BTreeMap<&'static str, usize> {
    let mut names = BTreeMap::new();
    for packet in packets {
        let parsed = Message::parse(message(packet).1, profile).unwrap();
        *names.entry(parsed.message_name()).or_default() += 1;
    }
    names
}

#[test]
fn all_of_umip_is_read_and_emitted_again() {
    let packets = packets(include_str!("captures/umip.hex"));
    for packet in &packets {
        let (_, bytes) = message(packet);
        let parsed = Message::parse(bytes, &Profile::STRICT).unwrap();
        assert!(parsed.reencodes(bytes, &Profile::STRICT), "{parsed:?}");
    }
    let expected = BTreeMap::from([
        ("Home Test Init", 4),
        ("Care-of Test Init", 4),
        ("Home Test", 4),
        ("Care-of Test", 4),
        ("Binding Update", 14),
        ("Binding Acknowledgement", 12),
    ]);
    assert_eq!(names(&packets, &Profile::STRICT), expected);
}

#[test]
fn all_checksums_of_umip_are_right() {
    let packets = packets(include_str!("captures/umip.hex"));
    let wrong = packets.iter().filter(|packet| {
        let (chain, bytes) = message(packet);
        !verify_checksum(chain.checksum_source(), chain.checksum_destination(), bytes)
    });
    assert_eq!((packets.len(), wrong.count()), (42, 0));
    // With the addresses of the IPv6 header, checksums are wrong for packets with a home address.
    let wrong = packets.iter().filter(|packet| {
        let (chain, bytes) = message(packet);
        !verify_checksum(chain.source, chain.destination, bytes)
    });
    assert_eq!(wrong.count(), 26);
}

#[test]
fn the_authenticator_of_umip_is_found() {
    let mut found = 0;
    for packet in packets(include_str!("captures/umip.hex")) {
        let (_, bytes) = message(&packet);
        let parsed = Message::parse(bytes, &Profile::STRICT).unwrap();
        let covered = authenticated_range(bytes, &Profile::STRICT).unwrap();
        match parsed.options.last() {
            Some(MobilityOption::BindingAuthorizationData(option)) => {
                let covered = covered.unwrap();
                assert_eq!(
                    (covered.start, bytes[covered.end..] == option.authenticator),
                    (0, true)
                );
                found += 1;
            }
            _ => assert_eq!(covered, None),
        }
    }
    assert_eq!(found, 10);
}

#[test]
fn the_headers_around_the_messages_of_umip_are_emitted_again() {
    let (mut options, mut routing) = (0, 0);
    for packet in packets(include_str!("captures/umip.hex")) {
        let chain = Chain::parse(&packet).unwrap();
        let header = &packet[IPV6_LEN..chain.payload_at];
        if chain.home_address.is_some() {
            let parsed = DestinationOptions::parse(header).unwrap();
            assert_eq!(parsed.emit().unwrap(), header);
            options += 1;
        } else if chain.routing_home_address.is_some() {
            let parsed = Type2RoutingHeader::parse(header).unwrap();
            assert_eq!(parsed.emit()[..], *header);
            routing += 1;
        }
    }
    assert_eq!((options, routing), (14, 12));
}

#[test]
fn oai_is_read_with_its_profile_alone_and_emitted_again() {
    let packets = packets(include_str!("captures/oai-pmip.hex"));
    for packet in &packets {
        let (chain, bytes) = message(packet);
        assert!(verify_checksum(chain.source, chain.destination, bytes));
        let what = "Mobility Header";
        let refused = Err(WireError::Length { what, got: bytes.len() });
        assert_eq!(Message::parse(bytes, &Profile::STRICT), refused);
        let parsed = Message::parse(bytes, &Profile::OAI).unwrap();
        assert!(parsed.reencodes(bytes, &Profile::OAI), "{parsed:?}");
        assert!(!parsed.reencodes(bytes, &Profile::STRICT), "{parsed:?}");
        // Sent within a second of the capture.
        let Some(MobilityOption::Timestamp(timestamp)) = parsed.options.last() else { panic!() };
        assert!((1_795_236_688..=1_795_236_689).contains(&timestamp.seconds));
    }
    let expected = BTreeMap::from([("Proxy Binding Update", 2), ("Binding Acknowledgement", 2)]);
    assert_eq!(names(&packets, &Profile::OAI), expected);
}
