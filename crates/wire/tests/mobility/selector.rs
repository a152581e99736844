//! Traffic selectors and flow bindings.

use proptest::prelude::*;
use segue_wire::WireError;
use segue_wire::mobility::option::*;
use segue_wire::mobility::{Family, Message, MobilityOption, Profile, Span, TrafficSelector};
use serde_json::json;

use crate::generate;

proptest! {
    #[test]
    fn a_selector_reads_back_and_its_parts_do_not(selector in generate::selector()) {
        let bytes = selector.emit().unwrap();
        prop_assert_eq!(TrafficSelector::parse(selector.family, &bytes), Ok(selector.clone()));
        for n in 0..bytes.len() {
            let cut = TrafficSelector::parse(selector.family, &bytes[..n]);
            let short = matches!(cut, Err(WireError::TooShort { got, .. }) if got == n);
            prop_assert!(short, "{:?}", cut);
        }
        let longer = [&bytes[..], &[0]].concat();
        let what = "Traffic Selector";
        let refused = Err(WireError::Length { what, got: longer.len() });
        prop_assert_eq!(TrafficSelector::parse(selector.family, &longer), refused);
    }
}

/// Source, destination, flow label, ports and protocol: flags A, C, G, I, K, O.
#[test]
fn the_six_fields_of_a_flow_of_ipv6() {
    let selector = TrafficSelector {
        source_address: Some(Span::one("2001:db8::1".parse().unwrap())),
        destination_address: Some(Span::one("2001:db8::2".parse().unwrap())),
        flow_label: Some(Span::one(0xabcde)),
        source_port: Some(Span::one(80)),
        destination_port: Some(Span::one(4660)),
        protocol: Some(Span::one(6)),
        ..TrafficSelector::any(Family::Ipv6)
    };
    let mut bytes = vec![0xa2, 0xa2, 0, 0, 0x20, 1, 0x0d, 0xb8];
    bytes.extend([0; 11]);
    bytes.extend([1, 0x20, 1, 0x0d, 0xb8]);
    bytes.extend([0; 11]);
    bytes.extend([2, 0, 0x0a, 0xbc, 0xde, 0, 80, 0x12, 0x34, 6]);
    assert_eq!(selector.emit().unwrap(), bytes);
    // The bits above the label are ignored.
    bytes[36..38].copy_from_slice(&[0xff, 0xfa]);
    assert_eq!(TrafficSelector::parse(Family::Ipv6, &bytes), Ok(selector));
}

#[test]
fn every_range_of_ipv4() {
    let bytes = [
        0xff, 0xfc, 0xff, 0xff, 10, 0, 0, 1, 10, 0, 0, 9, 10, 1, 0, 0, 10, 1, 0, 255, 0, 0, 0, 1,
        0, 0, 0, 2, 0, 1, 0, 2, 0, 3, 0, 4, 0xb8, 0xbb, 6, 17,
    ];
    let read = TrafficSelector::parse(Family::Ipv4, &bytes).unwrap();
    let address = |text: &str| text.parse().unwrap();
    let selector = TrafficSelector {
        family: Family::Ipv4,
        source_address: Some(Span::range(address("10.0.0.1"), address("10.0.0.9"))),
        destination_address: Some(Span::range(address("10.1.0.0"), address("10.1.0.255"))),
        ipsec_spi: Some(Span::range(1, 2)),
        flow_label: None,
        source_port: Some(Span::range(1, 2)),
        destination_port: Some(Span::range(3, 4)),
        dscp: Some(Span::range(46, 46)),
        protocol: Some(Span::range(6, 17)),
    };
    assert_eq!(read, selector);
    let shown = serde_json::to_value(&read).unwrap();
    assert_eq!(shown["source_address"], json!({"start": "10.0.0.1", "end": "10.0.0.9"}));
    assert_eq!(shown["family"], json!("ipv4"));
}

#[test]
fn an_end_without_its_start_is_refused() {
    for bit in [0x4000, 0x1000, 0x0400, 0x0100, 0x0040, 0x0010, 0x0004, 0x0001_u16] {
        let bytes = [&bit.to_be_bytes()[..], &[0; 40]].concat();
        let field = "Traffic Selector flags";
        let refused = Err(WireError::Field { field, got: bit.into() });
        assert_eq!(TrafficSelector::parse(Family::Ipv6, &bytes), refused);
    }
}

#[test]
fn what_no_selector_can_say_is_not_emitted() {
    let any = TrafficSelector::any(Family::Ipv4);
    let wrong = |selector: TrafficSelector| match selector.emit() {
        Err(WireError::Field { field, got }) => (field, got),
        other => panic!("{other:?}"),
    };
    let v6 = Some(Span::one("::1".parse().unwrap()));
    assert_eq!(wrong(TrafficSelector { source_address: v6, ..any.clone() }), ("TS Format", 1));
    let label = Some(Span::one(5));
    assert_eq!(wrong(TrafficSelector { flow_label: label, ..any.clone() }), ("Flow Label", 5));
    let dscp = Some(Span::range(0, 64));
    assert_eq!(wrong(TrafficSelector { dscp, ..any }), ("DSCP", 64));
    let any = TrafficSelector::any(Family::Ipv6);
    let label = Some(Span::range(0, 1 << 20));
    assert_eq!(wrong(TrafficSelector { flow_label: label, ..any }), ("Flow Label", 1 << 20));
}

#[test]
fn a_span_has_both_its_ends() {
    assert!(Span::one(5).contains(5) && !Span::one(5).contains(4) && !Span::one(5).contains(6));
    let span = Span::range(5, 7);
    assert!([5, 6, 7].into_iter().all(|value| span.contains(value)));
    assert!(!span.contains(4) && !span.contains(8));
    assert!(!Span::range(7, 5).contains(6));
}

/// A flow binding with padding as in RFC 6275, binding references, a selector, and a selector of an unknown format.
#[test]
fn a_flow_binding_has_bindings_and_a_selector() {
    #[rustfmt::skip]
    let bytes = [
        59, 5, 5, 0, 0, 0, 0, 1, 0x80, 0, 0, 1,
        45, 32, 0, 7, 0, 1, 0, 0,
        2, 4, 0, 1, 0, 2,
        3, 7, 1, 0, 0, 8, 0, 0, 17,
        1, 1, 0,
        3, 4, 9, 0, 1, 2,
        77, 0,
        0, 0,
    ];
    let read = Message::parse(&bytes, &Profile::STRICT).unwrap();
    let udp = Some(Span::one(17));
    let flow = FlowIdentification {
        fid: 7,
        fid_pri: 1,
        status: FlowStatus::SUCCESS,
        sub_options: vec![
            FlowSubOption::BindingReference(BindingReference { bids: vec![1, 2] }),
            FlowSubOption::TrafficSelector(TrafficSelector {
                protocol: udp,
                ..TrafficSelector::any(Family::Ipv4)
            }),
            FlowSubOption::OtherTrafficSelector(OtherTrafficSelector {
                ts_format: 9,
                traffic_selector: vec![1, 2],
            }),
            FlowSubOption::Unknown(Unknown { kind: 77, data: vec![] }),
        ],
    };
    assert_eq!(read.options, [MobilityOption::FlowIdentification(flow)]);
    // Each sub-option starts at an even offset, with the least padding.
    let emitted = read.emit(&Profile::STRICT).unwrap();
    let behind = [3, 7, 1, 0, 0, 8, 0, 0, 17, 0, 3, 4, 9, 0, 1, 2, 77, 0, 1, 2, 0, 0];
    assert_eq!(emitted[26..], behind);
    assert_eq!(Message::parse(&emitted, &Profile::STRICT), Ok(read));
}

#[test]
fn a_flow_binding_whose_parts_have_wrong_lengths_is_refused() {
    let flow = |sub_options: &[u8]| {
        let length = 6 + sub_options.len() as u8;
        let head = [59, 0, 5, 0, 0, 0, 0, 1, 0, 0, 0, 1, 45, length, 0, 7, 0, 1, 0, 0];
        let mut bytes = [&head[..], sub_options].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        Message::parse(&bytes, &Profile::STRICT).unwrap_err()
    };
    let length = |what, got| WireError::Length { what, got };
    let short = |what, got, min| WireError::TooShort { what, got, min };
    assert_eq!(flow(&[2, 3, 0, 1, 0]), length("Binding Reference", 3));
    assert_eq!(flow(&[3, 1, 1]), short("Traffic Selector", 1, 2));
    assert_eq!(flow(&[3, 0]), short("Traffic Selector", 0, 1));
    assert_eq!(flow(&[3, 3, 1, 0, 0]), short("Traffic Selector", 1, 2));
    assert_eq!(flow(&[2, 9, 0]), short("Flow Identification", 3, 11));
}
