//! Refused messages, and messages that are accepted although no sender should send them.

use std::net::Ipv6Addr;

use segue_wire::WireError;
use segue_wire::mobility::body::*;
use segue_wire::mobility::option::*;
use segue_wire::mobility::*;

/// A Binding Refresh Request with these bytes as options.
fn request(options: &[u8]) -> Vec<u8> {
    let mut bytes = [&[59, 0, 0, 0, 0, 0, 0, 0][..], options].concat();
    bytes[1] = (bytes.len() / 8 - 1) as u8;
    bytes
}

fn parse(bytes: &[u8]) -> Result<Message, WireError> {
    Message::parse(bytes, &Profile::STRICT)
}

fn update(options: Vec<MobilityOption>) -> Message {
    let flags = BindingUpdateFlags::default();
    let body = Body::BindingUpdate(BindingUpdate { sequence: 0, flags, lifetime_4s: 0 });
    Message { body, options }
}

fn unknown(len: usize) -> MobilityOption {
    MobilityOption::Unknown(Unknown { kind: 200, data: vec![7; len] })
}

#[test]
fn a_type_without_a_format_is_refused_by_its_number() {
    for kind in [10, 11, 12, 21, 22, 23, 24, 255] {
        let mut bytes = request(&[]);
        bytes[2] = kind;
        assert_eq!(parse(&bytes), Err(WireError::Type { got: kind }));
        assert_eq!(
            authenticated_range(&bytes, &Profile::STRICT),
            Err(WireError::Type { got: kind })
        );
    }
}

#[test]
fn a_payload_behind_the_header_is_refused() {
    let mut bytes = request(&[]);
    bytes[0] = 6;
    assert_eq!(parse(&bytes), Err(WireError::Field { field: "Payload Proto", got: 6 }));
}

#[test]
fn more_octets_than_header_len_says_are_for_a_lenient_reader() {
    let bytes = request(&[0; 7]);
    let what = "Mobility Header";
    assert_eq!(parse(&bytes), Err(WireError::Length { what, got: 15 }));
    assert_eq!(Message::parse(&bytes, &Profile::OAI).map(|message| message.options), Ok(vec![]));
    let mut bytes = request(&[0; 8]);
    bytes[1] = 0;
    let refused = Message::parse(&bytes, &Profile::OAI);
    assert_eq!(refused, Err(WireError::Length { what, got: 16 }));
}

#[test]
fn reserved_fields_are_ignored_but_do_not_come_out_again() {
    let mut bytes = request(&[]);
    bytes[6] = 1;
    let message = parse(&bytes).unwrap();
    assert!(!message.reencodes(&bytes, &Profile::STRICT));
    bytes[6] = 0;
    assert!(message.reencodes(&bytes, &Profile::STRICT));
    bytes[4..6].copy_from_slice(&[1, 2]);
    assert!(message.reencodes(&bytes, &Profile::STRICT), "whatever the checksum is");
    assert!(!message.reencodes(&bytes[..7], &Profile::STRICT));
    assert!(!message.reencodes(&[], &Profile::STRICT));
}

#[test]
fn padding_of_any_kind_is_skipped() {
    let advice = [2, 2, 0, 9];
    let options =
        [MobilityOption::BindingRefreshAdvice(BindingRefreshAdvice { refresh_interval_4s: 9 })];
    // Padding that no alignment requires, as single bytes, with content, and of the least length.
    for padded in [
        [&[0, 0, 0, 0][..], &advice].concat(),
        [&[0][..], &advice, &[1, 1, 7]].concat(),
        [&[1, 0, 1, 0][..], &advice].concat(),
    ] {
        let message = parse(&request(&padded)).unwrap();
        assert_eq!(message.options, options);
        assert!(!message.reencodes(&request(&padded), &Profile::STRICT));
    }
    let canonical = request(&[&advice[..], &[1, 2, 0, 0]].concat());
    assert!(parse(&canonical).unwrap().reencodes(&canonical, &Profile::STRICT));
}

#[test]
fn an_option_longer_than_the_message_is_refused() {
    for (options, min) in [
        ([1, 7, 0, 0, 0, 0, 0, 0], 9),
        ([0, 200, 6, 0, 0, 0, 0, 0], 9),
        ([0, 0, 0, 0, 0, 0, 0, 8], 9),
    ] {
        let what = "mobility options";
        assert_eq!(parse(&request(&options)), Err(WireError::TooShort { what, got: 8, min }));
    }
}

#[test]
fn an_unknown_option_is_kept_as_it_came() {
    let bytes = request(&[200, 4, 1, 2, 3, 4, 0, 201, 0, 1, 4, 0, 0, 0, 0, 0]);
    let message = parse(&bytes).unwrap();
    let kept = |kind, data: &[u8]| MobilityOption::Unknown(Unknown { kind, data: data.to_vec() });
    assert_eq!(message.options, [kept(200, &[1, 2, 3, 4]), kept(201, &[])]);
}

#[test]
fn an_unknown_option_has_the_alignment_that_its_type_has() {
    for (kind, at) in [(9, 13), (10, 18), (11, 12), (52, 12), (55, 18)] {
        let option = MobilityOption::Unknown(Unknown { kind, data: vec![7; 5] });
        let bytes = update(vec![option]).emit(&Profile::STRICT).unwrap();
        assert_eq!(bytes[at..at + 3], [kind, 5, 7]);
    }
}

#[test]
fn nothing_may_follow_an_option_that_is_the_last() {
    let data = [&[1, 0, 5, 12][..], &[3; 12]].concat();
    assert!(parse(&request(&data)).is_ok());
    for behind in [&[0; 8][..], &[2, 2, 0, 1, 1, 2, 0, 0], &[1, 6, 0, 0, 0, 0, 0, 0]] {
        let field = "octets behind the last option";
        let refused = parse(&request(&[&data, behind].concat()));
        assert_eq!(refused, Err(WireError::Field { field, got: 8 }));
    }
}

#[test]
fn an_option_that_is_the_last_is_emitted_as_such() {
    let last = BindingAuthorizationData { authenticator: [1; 12] };
    let last = MobilityOption::BindingAuthorizationData(last);
    let bytes = update(vec![last.clone(), unknown(3)]).emit(&Profile::STRICT).unwrap();
    assert_eq!(parse(&bytes).unwrap().options, [unknown(3), last]);
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    let refused = |option: MobilityOption| update(vec![option]).emit(&Profile::STRICT).unwrap_err();
    let what = "mobility option";
    assert_eq!(refused(unknown(256)), WireError::Length { what, got: 256 });
    let many = update(vec![unknown(250); 8]).emit(&Profile::STRICT);
    assert!(many.is_ok_and(|bytes| bytes.len() == 2032 && bytes[1] == 253));
    let many = update(vec![unknown(255); 8]).emit(&Profile::STRICT);
    assert_eq!(many, Err(WireError::Length { what: "Mobility Header", got: 2072 }));
    let prefix = HomeNetworkPrefix {
        flags: HomeNetworkPrefixFlags::OFF_LINK,
        prefix_length: 129,
        home_network_prefix: Ipv6Addr::UNSPECIFIED,
    };
    let wrong = WireError::Field { field: "Prefix Length", got: 129 };
    assert_eq!(refused(MobilityOption::HomeNetworkPrefix(prefix)), wrong);
    let timestamp = Timestamp { seconds: 1 << 48, fraction_65536ths: 0 };
    let wrong = WireError::Field { field: "Timestamp", got: 1 << 16 };
    assert_eq!(refused(MobilityOption::Timestamp(timestamp)), wrong);
    let request = Request { req_type: 1, req_option: vec![0; 300] };
    let option = MobilityOption::ContextRequest(ContextRequest { requests: vec![request] });
    assert_eq!(refused(option), WireError::Length { what: "Context Request", got: 304 });
    let long = FlowSubOption::Unknown(Unknown { kind: 9, data: vec![0; 256] });
    let option = FlowIdentification {
        fid: 1,
        fid_pri: 1,
        status: FlowStatus::SUCCESS,
        sub_options: vec![long],
    };
    let refused = refused(MobilityOption::FlowIdentification(option));
    assert!(matches!(refused, WireError::Length { what: "Flow Identification", .. }));
}

#[test]
fn prefixes_longer_than_an_address_are_refused() {
    let prefix = |kind, length| {
        let option = [&[0; 4][..], &[kind, 18, 0, length], &[0; 16]].concat();
        parse(&request(&option))
    };
    for kind in [6, 22, 34] {
        assert!(prefix(kind, 128).is_ok());
        let wrong = WireError::Field { field: "Prefix Length", got: 129 };
        assert_eq!(prefix(kind, 129), Err(wrong));
    }
    for (kind, at) in [(29, 0), (30, 1), (36, 0), (37, 1)] {
        let mut option = [kind, 6, 0, 0, 10, 0, 0, 1];
        option[2 + at] = 32 << 2 | 1;
        assert!(parse(&request(&option)).is_ok());
        option[2 + at] = 33 << 2;
        let wrong = WireError::Field { field: "Prefix Length", got: 33 };
        assert_eq!(parse(&request(&option)), Err(wrong));
    }
}

#[test]
fn the_code_of_an_anchors_address_agrees_with_its_length() {
    let anchor = |code, len: usize| {
        let option = [&[41, len as u8, code, 0][..], &vec![9; len - 2], &[0; 8]].concat();
        let end = option.len() / 8 * 8;
        parse(&request(&option[..end]))
    };
    assert!(anchor(1, 18).is_ok() && anchor(2, 6).is_ok());
    let what = "Local Mobility Anchor Address";
    assert_eq!(anchor(1, 6), Err(WireError::Length { what, got: 6 }));
    assert_eq!(anchor(2, 18), Err(WireError::Length { what, got: 18 }));
    let field = "LMA Address Option-Code";
    assert_eq!(anchor(3, 6), Err(WireError::Field { field, got: 3 }));
}

#[test]
fn errors_say_what_is_wrong() {
    let short = parse(&request(&[23, 1, 0, 1, 1, 1, 0, 0])).unwrap_err();
    assert_eq!(short.to_string(), "Handoff Indicator: 1 bytes, at least 2 needed");
    let long = parse(&request(&[23, 3, 0, 0, 0, 1, 1, 0])).unwrap_err();
    assert_eq!(long.to_string(), "Handoff Indicator: a length of 3 bytes is wrong");
}
