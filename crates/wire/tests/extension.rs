//! Tests of the walk through extension headers, and of the two headers that mobility uses.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::net::Ipv6Addr;

use proptest::prelude::*;
use segue_wire::WireError;
use segue_wire::extension::{
    Chain, DESTINATION_OPTIONS, DestinationOption, DestinationOptions, FRAGMENT, HOP_BY_HOP,
    Header, Headers, IPV6_LEN, MAX_HEADERS, ROUTING, Type2RoutingHeader,
};

const MOBILITY: u8 = 135;
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const HOME: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);

fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let ends = [SOURCE.octets(), DESTINATION.octets()].concat();
    [&[0x60, 0, 0, 0, high, low, next_header, 64][..], &ends, payload].concat()
}

fn home_address(next_header: u8) -> Vec<u8> {
    DestinationOptions::home_address(next_header, HOME).emit().unwrap()
}

fn routing(next_header: u8) -> Vec<u8> {
    Type2RoutingHeader { next_header, home_address: HOME }.emit().to_vec()
}

#[test]
fn the_home_address_option_is_what_the_rfc_draws() {
    let bytes = [&[MOBILITY, 2, 1, 2, 0, 0, 0xc9, 16][..], &HOME.octets()].concat();
    assert_eq!(home_address(MOBILITY), bytes);
    let parsed = DestinationOptions::parse(&bytes).unwrap();
    assert_eq!(parsed, DestinationOptions::home_address(MOBILITY, HOME));
    for n in 0..bytes.len() {
        let cut = DestinationOptions::parse(&bytes[..n]);
        assert!(matches!(cut, Err(WireError::TooShort { got, .. }) if got == n));
    }
    let mut wrong = bytes;
    wrong[7] = 15;
    wrong[22..].copy_from_slice(&[0, 0]);
    let short = WireError::TooShort { what: "Home Address", got: 15, min: 16 };
    assert_eq!(DestinationOptions::parse(&wrong), Err(short));
}

#[test]
fn the_routing_header_is_what_the_rfc_draws() {
    let bytes = [&[MOBILITY, 2, 2, 1, 0, 0, 0, 0][..], &HOME.octets()].concat();
    assert_eq!(routing(MOBILITY), bytes);
    let header = Type2RoutingHeader { next_header: MOBILITY, home_address: HOME };
    assert_eq!(Type2RoutingHeader::parse(&bytes), Ok(header));
    for n in 0..bytes.len() {
        let cut = Type2RoutingHeader::parse(&bytes[..n]);
        assert!(matches!(cut, Err(WireError::TooShort { got, .. }) if got == n));
    }
    for (at, field) in [(1, "Hdr Ext Len"), (2, "Routing Type"), (3, "Segments Left")] {
        let mut wrong = bytes.clone();
        wrong[at] = 4;
        let refused = Err(WireError::Field { field, got: 4 });
        assert_eq!(Type2RoutingHeader::parse(&wrong), refused);
    }
}

#[test]
fn the_walk_takes_the_home_addresses_along() {
    // Both headers at once, behind Hop-by-Hop Options.
    let hops = [ROUTING, 0, 5, 2, 0, 0, 1, 0];
    let headers = [&hops[..], &routing(DESTINATION_OPTIONS), &home_address(MOBILITY)].concat();
    let bytes = packet(HOP_BY_HOP, &[&headers[..], &[1, 2, 3]].concat());
    let behind = [&bytes[..], &[9, 9]].concat();
    let chain = Chain::parse(&behind).unwrap();
    let expected = Chain {
        source: SOURCE,
        destination: DESTINATION,
        home_address: Some(HOME),
        routing_home_address: Some(HOME),
        is_atomic_fragment: false,
        next_header: MOBILITY,
        payload_at: IPV6_LEN + headers.len(),
        payload_end: bytes.len(),
    };
    assert_eq!(chain, expected);
    assert_eq!(chain.payload(&behind), [1, 2, 3]);
    assert_eq!((chain.checksum_source(), chain.checksum_destination()), (HOME, HOME));
    for n in 0..bytes.len() {
        let cut = Chain::parse(&bytes[..n]);
        assert!(
            matches!(cut, Err(WireError::TooShort { what: "IPv6 packet", got, .. }) if got == n)
        );
    }
}

#[test]
fn without_a_home_address_the_ends_are_those_of_the_packet() {
    let chain = Chain::parse(&packet(MOBILITY, &[])).unwrap();
    assert_eq!((chain.checksum_source(), chain.checksum_destination()), (SOURCE, DESTINATION));
    assert_eq!((chain.payload_at, chain.payload_end), (IPV6_LEN, IPV6_LEN));
}

#[test]
fn the_walk_stops_at_fragments_and_what_it_does_not_know() {
    for stop in [50, 59, 6, 200] {
        let bytes =
            packet(DESTINATION_OPTIONS, &[&home_address(stop)[..], &[60, 200, 0, 0]].concat());
        let chain = Chain::parse(&bytes).unwrap();
        assert_eq!((chain.next_header, chain.payload_at), (stop, IPV6_LEN + 24));
        assert_eq!(chain.home_address, Some(HOME));
    }
}

#[test]
fn a_header_cut_by_the_packets_own_length_is_refused() {
    let headers = [&routing(DESTINATION_OPTIONS)[..], &home_address(MOBILITY)].concat();
    for n in 1..headers.len() {
        // The following bytes do not belong to the packet.
        let bytes = [&packet(ROUTING, &headers[..n])[..], &headers[n..]].concat();
        let refused = Chain::parse(&bytes);
        let what = if n < 24 { "Routing Header" } else { "Destination Options" };
        // After a cut between the two, the second is missing entirely.
        assert!(matches!(refused, Err(WireError::TooShort { what: named, .. }) if named == what));
    }
}

#[test]
fn a_second_home_address_is_refused() {
    let twice = [&home_address(DESTINATION_OPTIONS)[..], &home_address(MOBILITY)].concat();
    let field = "Home Address options";
    let refused = Err(WireError::Field { field, got: 2 });
    assert_eq!(Chain::parse(&packet(DESTINATION_OPTIONS, &twice)), refused);
    let twice = [&routing(ROUTING)[..], &routing(MOBILITY)].concat();
    let field = "type 2 routing headers";
    let refused = Err(WireError::Field { field, got: 2 });
    assert_eq!(Chain::parse(&packet(ROUTING, &twice)), refused);
}

#[test]
fn a_wrong_routing_header_is_refused_and_other_types_are_walked_through() {
    let mut bytes = routing(MOBILITY);
    bytes[3] = 0;
    let refused = Err(WireError::Field { field: "Segments Left", got: 0 });
    assert_eq!(Chain::parse(&packet(ROUTING, &bytes)), refused);
    bytes[2] = 4;
    let chain = Chain::parse(&packet(ROUTING, &bytes)).unwrap();
    assert_eq!((chain.next_header, chain.routing_home_address), (MOBILITY, None));
}

#[test]
fn a_packet_has_so_many_headers_and_no_more() {
    let options = [DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
    let packet = |headers: usize| {
        let mut bytes = packet(DESTINATION_OPTIONS, &options.repeat(headers));
        let last = bytes.len() - 8;
        bytes[last] = MOBILITY;
        Chain::parse(&bytes)
    };
    assert_eq!(packet(MAX_HEADERS).unwrap().next_header, MOBILITY);
    let refused = Err(WireError::Field { field: "extension headers", got: 17 });
    assert_eq!(packet(MAX_HEADERS + 1), refused);
}

#[test]
fn other_options_are_kept_and_emitted_again() {
    let header = DestinationOptions {
        next_header: 41,
        options: vec![
            DestinationOption::TunnelEncapsulationLimit { limit: 4 },
            DestinationOption::Unknown { kind: 30, data: vec![1, 2] },
            DestinationOption::HomeAddress { home_address: HOME },
        ],
    };
    let bytes = header.emit().unwrap();
    assert_eq!(bytes[..16], [41, 3, 4, 1, 4, 30, 2, 1, 2, 1, 3, 0, 0, 0, 0xc9, 16]);
    assert_eq!(DestinationOptions::parse(&bytes), Ok(header));
    let long = DestinationOption::Unknown { kind: 30, data: vec![0; 256] };
    let header = DestinationOptions { next_header: 41, options: vec![long] };
    let what = "Destination Option";
    assert_eq!(header.emit(), Err(WireError::Length { what, got: 256 }));
    let many = vec![DestinationOption::Unknown { kind: 30, data: vec![0; 254] }; 9];
    let header = DestinationOptions { next_header: 41, options: many };
    let what = "Destination Options";
    assert_eq!(header.emit(), Err(WireError::Length { what, got: 2312 }));
}

#[test]
fn ipv4_is_another_version() {
    let mut bytes = packet(MOBILITY, &[]);
    bytes[0] = 0x45;
    assert_eq!(Chain::parse(&bytes), Err(WireError::Version { got: 4 }));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        first in prop_oneof![Just(HOP_BY_HOP), Just(ROUTING), Just(DESTINATION_OPTIONS), any::<u8>()],
        payload in proptest::collection::vec(prop_oneof![0..3u8, Just(60), Just(43), any::<u8>()], 0..120),
    ) {
        let bytes = packet(first, &payload);
        let (mut last, mut ended) = (0, false);
        for header in Headers::new(&bytes).unwrap() {
            prop_assert!(!ended, "nothing follows an error or the payload");
            match header {
                Ok((at, header)) => {
                    prop_assert!(at > last);
                    last = at;
                    ended = matches!(header, Header::Payload { .. });
                }
                Err(_) => ended = true,
            }
        }
        prop_assert!(ended);
        if let Ok(chain) = Chain::parse(&bytes) {
            prop_assert_eq!(chain.payload_at, last);
        }
    }
}

#[test]
fn a_whole_fragment_is_walked_through_and_a_part_of_one_is_not() {
    let authentication = [&[MOBILITY, 4, 0, 0][..], &[7; 20]].concat();
    let whole = [&[51, 0, 0, 0b110, 1, 2, 3, 4][..], &authentication].concat();
    let chain = Chain::parse(&packet(FRAGMENT, &whole)).unwrap();
    assert_eq!((chain.next_header, chain.payload_at), (MOBILITY, IPV6_LEN + 8 + 24));
    assert!(chain.is_atomic_fragment);
    let chain = Chain::parse(&packet(51, &authentication)).unwrap();
    assert_eq!((chain.next_header, chain.is_atomic_fragment), (MOBILITY, false));
    // Neither first fragments nor later ones are atomic.
    for part in [[0, 1], [1, 0], [0, 8]] {
        let header = [51, 0, part[0], part[1], 1, 2, 3, 4];
        let chain = Chain::parse(&packet(FRAGMENT, &header)).unwrap();
        assert_eq!((chain.next_header, chain.payload_at), (FRAGMENT, IPV6_LEN));
    }
    let cut = Chain::parse(&packet(FRAGMENT, &[51, 0, 0, 0, 1]));
    assert!(matches!(cut, Err(WireError::TooShort { .. })), "{cut:?}");
}
