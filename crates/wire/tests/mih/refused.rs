//! Lengths in all their forms, and refused frames.

use segue_wire::WireError;
use segue_wire::mih::codes::{LinkDownReason, Status};
use segue_wire::mih::identity::{LinkAddress, MacAddress};
use segue_wire::mih::tlv::{Raw, Unknown};
use segue_wire::mih::{Frame, MessageId, OctetString, Payload, Profile, Tlv, View};

/// A frame with these bytes as TLVs.
fn around(tlvs: &[u8]) -> Vec<u8> {
    let length = (tlvs.len() as u16).to_be_bytes();
    [&[0x10, 0, 0x2c, 0x02, 0, 1][..], &length, tlvs].concat()
}

fn parse(tlvs: &[u8]) -> Result<Vec<Tlv>, WireError> {
    Frame::parse(&around(tlvs), &Profile::STRICT).map(|frame| frame.tlvs().to_vec())
}

fn emit(tlvs: Vec<Tlv>) -> Result<Vec<u8>, WireError> {
    Frame::new(MessageId::LINK_UP, 1, tlvs).emit(&Profile::STRICT)
}

fn vendor(data: Vec<u8>) -> Tlv {
    Tlv::Unknown(Unknown { kind: 100, data })
}

#[test]
fn lengths_have_one_octet_up_to_128() {
    for (length, field) in [
        (0, &[0][..]),
        (127, &[127]),
        (128, &[128]),
        (129, &[0x81, 1]),
        (383, &[0x81, 255]),
        (384, &[0x82, 1, 0]),
        (65_532, &[0x82, 0xff, 0x7c]),
    ] {
        let tlv = vendor(vec![7; length]);
        let tlvs = [&[100], field, &vec![7; length]].concat();
        if length > 65_000 {
            // Type and length push the frame over the maximum of its length field.
            let got = 8 + 4 + length;
            assert_eq!(emit(vec![tlv]), Err(WireError::Length { what: "MIH frame", got }));
            continue;
        }
        assert_eq!(emit(vec![tlv.clone()]).unwrap(), around(&tlvs));
        assert_eq!(parse(&tlvs), Ok(vec![tlv]));
    }
    let most = emit(vec![vendor(vec![7; 65_531])]).unwrap();
    assert_eq!(most.len(), 65_543);
    assert_eq!(View::parse(&most).unwrap().payload().len(), 65_535);
}

#[test]
fn a_length_with_zeros_in_front_is_read_and_does_not_come_out_again() {
    let tlvs = [&[100, 0x83, 0, 0, 2][..], &[7; 130]].concat();
    assert_eq!(parse(&tlvs), Ok(vec![vendor(vec![7; 130])]));
    let frame = Frame::parse(&around(&tlvs), &Profile::STRICT).unwrap();
    assert!(!frame.reencodes(&around(&tlvs), &Profile::STRICT));
    let refused = Err(WireError::Field { field: "number of length octets", got: 5 });
    assert_eq!(parse(&[100, 0x85, 0, 0, 0, 0, 2]), refused);
    let huge = parse(&[100, 0x84, 255, 255, 255, 255]);
    assert!(matches!(huge, Err(WireError::TooShort { what: "MIH frame's TLVs", got: 6, .. })));
}

#[test]
fn strings_and_lists_have_such_lengths_too() {
    let name = OctetString(vec![b'a'; 200]);
    let tlvs = [&[1, 0x81, 74, 0x81, 72][..], &[b'a'; 200]].concat();
    assert_eq!(emit(vec![Tlv::SourceMihfId(name.clone())]).unwrap(), around(&tlvs));
    assert_eq!(parse(&tlvs), Ok(vec![Tlv::SourceMihfId(name)]));
    let urls = vec![OctetString(vec![b'u']); 130];
    let tlvs = [&[50, 0x81, 134, 0x81, 2][..], &[1, b'u'].repeat(130)].concat();
    assert_eq!(emit(vec![Tlv::InfoResponseRdfSchemaUrlList(urls.clone())]).unwrap(), around(&tlvs));
    assert_eq!(parse(&tlvs), Ok(vec![Tlv::InfoResponseRdfSchemaUrlList(urls)]));
}

#[test]
fn a_list_that_promises_more_than_there_is_is_refused() {
    let what = "Link identifier list";
    let refused = Err(WireError::TooShort { what, got: 5, min: 6 });
    assert_eq!(parse(&[25, 5, 0x84, 255, 255, 255, 255]), refused);
}

#[test]
fn another_version_is_refused() {
    for version in [0, 2, 15] {
        let mut bytes = around(&[]);
        bytes[0] = version << 4;
        assert_eq!(View::parse(&bytes), Err(WireError::Version { got: version }));
    }
}

#[test]
fn reserved_bits_are_ignored_but_do_not_come_out_again() {
    for (at, bits) in [(1, 0x01), (4, 0xf0)] {
        let mut bytes = around(&[3, 1, 0]);
        bytes[at] |= bits;
        let frame = Frame::parse(&bytes, &Profile::STRICT).unwrap();
        assert_eq!(frame, Frame::new(MessageId::LINK_UP, 1, vec![Tlv::Status(Status::SUCCESS)]));
        assert!(!frame.reencodes(&bytes, &Profile::STRICT));
    }
}

#[test]
fn values_of_a_wrong_length_are_refused_by_name() {
    let short = |what, got, min| Err(WireError::TooShort { what, got, min });
    let long = |what, got| Err(WireError::Length { what, got });
    assert_eq!(parse(&[3, 0]), short("Status", 0, 1));
    assert_eq!(parse(&[3, 2, 0, 0]), long("Status", 2));
    assert_eq!(parse(&[5, 3, 0, 0, 0]), short("MIH event list", 3, 4));
    assert_eq!(parse(&[21, 4, 0, 0, 0, 0]), long("Time interval", 4));
    assert_eq!(parse(&[1, 3, 3, b'a', b'b']), short("Source MIHF ID", 3, 4));
    assert_eq!(parse(&[1, 3, 1, b'a', b'b']), long("Source MIHF ID", 3));
    assert_eq!(parse(&[3, 1]), short("MIH frame's TLVs", 2, 3));
    assert_eq!(parse(&[3]), short("MIH frame's TLVs", 1, 2));
    assert_eq!(parse(&[35, 6, 0, 1, 3, 10, 0, 0]), long("IP_ADDR", 3));
    assert_eq!(parse(&[35, 7, 0, 2, 4, 10, 0, 0, 1]), long("IP_ADDR", 4));
}

#[test]
fn values_without_a_meaning_are_refused_by_name() {
    let refused = |field, got| Err(WireError::Field { field, got });
    assert_eq!(parse(&[17, 1, 2]), refused("BOOLEAN", 2));
    assert_eq!(parse(&[15, 2, 6, 0]), refused("choice of LINK_ADDR", 6));
    assert_eq!(parse(&[35, 3, 0, 3, 0]), refused("address family of IP_ADDR", 3));
    assert_eq!(parse(&[23, 3, 1, 12, 0]), refused("choice of LINK_PARAM_TYPE", 12));
    assert_eq!(parse(&[57, 7, 1, 0, 0, 0, 0, 0, 3]), refused("choice of TSP_CONTAINER", 3));
    let tuple = [13, 8, 19, 5, 1, 9, 2, 0, 0, 0];
    assert_eq!(parse(&tuple), refused("choice of an optional value", 2));
}

#[test]
fn a_code_without_a_name_is_kept() {
    let tlvs = parse(&[20, 1, 200]).unwrap();
    assert_eq!(tlvs, [Tlv::LinkDownReason(LinkDownReason(200))]);
    assert_eq!(LinkDownReason(200).name(), None);
    assert_eq!(LinkDownReason::NO_BROADCAST.name(), Some("No broadcast"));
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    let refused = |frame: Frame| frame.emit(&Profile::STRICT).unwrap_err();
    let wrong = WireError::Field { field: "Transaction ID", got: 4096 };
    assert_eq!(refused(Frame::new(MessageId::LINK_UP, 4096, vec![])), wrong);
    let fragment = |number, more| Frame {
        payload: Payload::Fragment { number, more, part: vec![] },
        ..Frame::new(MessageId::LINK_UP, 1, vec![])
    };
    let wrong = |got| WireError::Field { field: "Fragment Number", got };
    assert_eq!(refused(fragment(128, true)), wrong(128));
    assert_eq!(refused(fragment(0, false)), wrong(0));
}

#[test]
fn only_addresses_of_ieee_802_are_macs() {
    let mac =
        |family, octets| LinkAddress::Mac(MacAddress { family, address: vec![1; octets] }).as_mac();
    assert_eq!(mac(6, 6), Some([1; 6]));
    assert_eq!((mac(6, 8), mac(1, 6)), (None, None));
    assert_eq!(LinkAddress::Other("abcdef".into()).as_mac(), None);
}

#[test]
fn the_inner_format_of_binary_queries_is_not_read() {
    assert_eq!(parse(&[43, 2, 9, 9]), Ok(vec![Tlv::InfoQueryBinaryDataList(Raw(vec![9, 9]))]));
    assert_eq!(Tlv::InfoQueryBinaryDataList(Raw(vec![])).name(), "Info query binary data list");
}
