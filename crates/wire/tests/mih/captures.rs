//! Frames captured from ODTONE and from a client of it.

use std::collections::BTreeMap;

use segue_wire::WireError;
use segue_wire::mih::codes::{EventList, LinkDownReason, LinkType, Status, TransportList};
use segue_wire::mih::identity::{
    LinkAddress, LinkId, LinkTupleId, NetworkType, NetworkTypeAddress,
};
use segue_wire::mih::tlv::Unknown;
use segue_wire::mih::{BitOrder, Frame, MessageId, Opcode, Profile, Tlv};

fn frames() -> Vec<Vec<u8>> {
    let hex = include_str!("../captures/odtone.hex");
    let lines = hex.lines().filter(|line| !line.starts_with('#'));
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    lines.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x51];

fn link(address: LinkAddress) -> LinkTupleId {
    LinkTupleId { link: LinkId { link_type: LinkType::IEEE_802_11, address }, poa: None }
}

#[test]
fn all_of_odtone_is_read_and_emitted_again() {
    let mut names = BTreeMap::new();
    for bytes in frames() {
        let frame = Frame::parse(&bytes, &Profile::LENIENT).unwrap();
        assert!(frame.reencodes(&bytes, &Profile::LENIENT), "{frame:?}");
        let most_first = Profile { bit_order: BitOrder::MostFirst, ..Profile::LENIENT };
        let other = Frame::parse(&bytes, &most_first).unwrap();
        assert!(other.reencodes(&bytes, &most_first), "{other:?}");
        *names.entry(frame.name().unwrap_or("private")).or_insert(0) += 1;
    }
    let expected = BTreeMap::from([
        ("MIH_Capability_Discover confirm", 1),
        ("MIH_Capability_Discover indication", 1),
        ("MIH_Capability_Discover request", 4),
        ("MIH_Capability_Discover response", 1),
        ("MIH_Event_Subscribe confirm", 1),
        ("MIH_Event_Subscribe request", 2),
        ("MIH_Event_Subscribe response", 3),
        ("MIH_Link_Down indication", 1),
        ("MIH_Link_Get_Parameters request", 2),
        ("MIH_Link_Up indication", 2),
        ("MIH_Register request", 1),
        ("private", 2),
    ]);
    assert_eq!(names, expected);
}

/// The client put a LIST(LINK_ID) into TLV 9, a LIST(LINK_TUPLE_ID) into TLV 25, and too few bytes into TLV 27.
#[test]
fn two_frames_of_the_client_are_for_a_lenient_reader() {
    let read: Vec<_> = frames().iter().map(|bytes| Frame::parse(bytes, &Profile::STRICT)).collect();
    let refused: Vec<_> = (1..).zip(&read).filter(|(_, read)| read.is_err()).collect();
    let field = "choice of an optional value";
    let what = "Link identifier list";
    assert_eq!(
        refused,
        [
            (10, &Err(WireError::Field { field, got: 0x13 })),
            (15, &Err(WireError::Length { what, got: 13 })),
        ]
    );
    let frame = Frame::parse(&frames()[14], &Profile::LENIENT).unwrap();
    let kinds = |tlv: &Tlv| (tlv.kind(), matches!(tlv, Tlv::Unknown(_)));
    let kinds: Vec<_> = frame.tlvs().iter().map(kinds).collect();
    assert_eq!(kinds, [(1, false), (2, false), (24, false), (25, true), (27, true)]);
}

#[test]
fn an_acknowledgement_names_its_message_and_both_ends() {
    let ends = |from: &str, to: &str| {
        vec![Tlv::SourceMihfId(from.into()), Tlv::DestinationMihfId(to.into())]
    };
    let frame =
        Frame { ack_rsp: true, ..Frame::new(MessageId(0x3401), 0x104, ends("mihf1", "mihf2")) };
    assert_eq!(frame.emit(&Profile::STRICT).unwrap(), frames()[15]);
}

#[test]
fn capabilities_have_a_network_type_and_bitmaps() {
    let bytes = &frames()[8];
    let frame = Frame::parse(bytes, &Profile::STRICT).unwrap();
    assert_eq!(frame.message_id, MessageId::CAPABILITY_DISCOVER.with_opcode(Opcode::RESPONSE));
    let network_type =
        NetworkType { link_type: Some(LinkType::IEEE_802_11), subtype: None, extension: None };
    let address = NetworkTypeAddress { network_type, address: LinkAddress::mac(MAC) };
    let tlvs = [
        Tlv::SourceMihfId("mihf1".into()),
        Tlv::DestinationMihfId("mihf2".into()),
        Tlv::Status(Status::SUCCESS),
        Tlv::LinkAddressList(vec![address]),
        Tlv::EventList(EventList(0x7f)),
        Tlv::TransportOptionList(TransportList::UDP),
    ];
    assert_eq!(frame.tlvs(), tlvs);
    // With the other bit order these are other events: bits 25 to 31, which have no names.
    let most_first = Profile { bit_order: BitOrder::MostFirst, ..Profile::STRICT };
    let other = Frame::parse(bytes, &most_first).unwrap();
    assert_eq!(other.tlvs()[4], Tlv::EventList(EventList(0xfe00_0000)));
    assert_eq!(other.tlvs()[5], Tlv::TransportOptionList(TransportList(0x8000)));
}

#[test]
fn link_events_name_the_link() {
    let frame = Frame::parse(&frames()[17], &Profile::STRICT).unwrap();
    assert_eq!(frame.name(), Some("MIH_Link_Up indication"));
    assert_eq!(frame.tlvs()[2..], [Tlv::LinkIdentifier(link(LinkAddress::mac(MAC)))]);
    let frame = Frame::parse(&frames()[16], &Profile::STRICT).unwrap();
    let address = LinkAddress::mac([0x92, 0xe6, 0x66, 0x51, 0x06, 0xd9]);
    assert_eq!(address.as_mac(), Some([0x92, 0xe6, 0x66, 0x51, 0x06, 0xd9]));
    let reason = Tlv::LinkDownReason(LinkDownReason::EXPLICIT_DISCONNECT);
    assert_eq!(frame.tlvs()[2..], [Tlv::LinkIdentifier(link(address)), reason]);
}

#[test]
fn private_tlvs_are_kept_as_they_came() {
    let frame = Frame::parse(&frames()[3], &Profile::STRICT).unwrap();
    let kept = |kind, data: [u8; 4]| Tlv::Unknown(Unknown { kind, data: data.to_vec() });
    assert_eq!(frame.tlvs()[3..], [kept(101, [0, 0, 0, 0x7f]), kept(102, [0; 4])]);
}
