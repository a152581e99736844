//! MIH frames from ODTONE's capture: over UDP, over TCP, and in Ethernet frames.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs::File;
use std::path::Path;

use etherparse::PacketBuilder;
use segue_decode::{Bare, Capture, Element, Link, bare, packet};
use segue_wire::mih::codes::Status;
use segue_wire::mih::handover::{AssignedResources, QosList, TransportContainer};
use segue_wire::mih::tlv::Unknown;
use segue_wire::mih::{ETHERTYPE, Frame, MessageId, OctetString, PORT, Payload, Profile, Tlv};
use serde_json::{Value, json};

fn frame(id: MessageId, tlvs: Vec<Tlv>) -> Vec<u8> {
    let ends = [
        Tlv::SourceMihfId("mihf1".into()),
        Tlv::DestinationMihfId(OctetString(b"\x01\\".to_vec())),
    ];
    let tlvs = ends.into_iter().chain(tlvs).collect();
    Frame { ack_req: true, ..Frame::new(id, 0x103, tlvs) }.emit(&Profile::STRICT).unwrap()
}

fn tcp(payload: &[u8]) -> Vec<Element> {
    let mut bytes = Vec::new();
    let ip = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    ip.tcp(40_000, PORT, 1, 100).write(&mut bytes, payload).unwrap();
    packet(3, Link::Raw(0), &bytes, bytes.len())
}

fn messages(elements: &[Element]) -> Vec<Result<&str, &str>> {
    elements
        .iter()
        .map(|element| element.message.ok_or_else(|| element.error.as_deref().unwrap()))
        .collect()
}

fn json(element: &Element) -> Value {
    serde_json::to_value(element).unwrap()
}

#[test]
fn all_frames_of_odtone_on_their_port_are_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/odtone.pcap");
    let magic = std::fs::read(&path).unwrap()[..4].try_into().unwrap();
    let mut capture = Capture::open(magic, File::open(path).unwrap()).unwrap();
    let mut elements = Vec::new();
    while let Some(read) = capture.next_packet().unwrap() {
        elements.extend(packet(read.number, Link::Ethernet, &read.bytes, read.length));
    }
    let (told, others): (Vec<_>, Vec<_>) =
        elements.iter().partition(|element| element.message.is_some());
    // ODTONE's link and user use ports that we do not recognise.
    assert_eq!((told.len(), others.len()), (9, 12));
    assert!(told.iter().all(|element| element.reencodes));
    let lenient = |element: &&&Element| json(element)["fields"]["profile"] == "lenient";
    let lenient: Vec<u64> = told.iter().filter(lenient).map(|element| element.packet).collect();
    assert_eq!(lenient, [10, 15]);
    let subscribed = told.iter().find(|element| element.packet == 14).unwrap();
    let expected = json!({
        "packet": 14,
        "time": null,
        "source": "127.0.0.1:4551",
        "destination": "127.0.0.2:4555",
        "within": [],
        "message": "MIH_Event_Subscribe response",
        "fields": {
            "version": 1,
            "flags": ["ack_req"],
            "fragment_number": 0,
            "message_id": "0x1804",
            "service_id": 1,
            "operation_code": 2,
            "action_id": 4,
            "transaction_id": 259,
            "payload_length": 39,
            "tlvs": [
                { "tlv": "source_mihf_id", "value": "mihf1" },
                { "tlv": "destination_mihf_id", "value": "mihf2" },
                { "tlv": "status", "value": 0, "value_name": "Success" },
                { "tlv": "link_identifier", "value": { "link": {
                    "link_type": 19,
                    "link_type_name": "Wireless - IEEE 802.11",
                    "address": { "mac": { "family": 6, "address": "020000000051" } },
                } } },
                { "tlv": "event_list", "value": ["0x60000000"] },
            ],
        },
        "reencodes": true,
    });
    assert_eq!(json(subscribed), expected);
}

#[test]
fn frames_of_a_stream_stand_one_behind_another() {
    let up = frame(MessageId::LINK_UP, vec![]);
    let private = frame(MessageId(0x5401), vec![]);
    let two = tcp(&[&up[..], &private].concat());
    assert_eq!(messages(&two), [Ok("MIH_Link_Up indication"), Ok("MIH frame")]);
    assert_eq!(two[0].source.as_deref(), Some("192.0.2.1:40000"));
    let cut = tcp(&[&up[..], &private[..9]].concat());
    let short = format!("MIH frame: 9 bytes, at least {} needed", private.len());
    assert_eq!(messages(&cut), [Ok("MIH_Link_Up indication"), Err(&*short)]);
    assert_eq!(messages(&tcp(&[])), [Err("TCP without data: not decoded")]);
    assert_eq!(messages(&tcp(&[0x20; 8])), [Err("MIH frame: version 2 is not known")]);
}

#[test]
fn segments_that_are_none_say_why() {
    let mut bytes = Vec::new();
    let ip = PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    ip.tcp(PORT, 9, 1, 100).write(&mut bytes, &[0x10; 4]).unwrap();
    for (offset, said) in [(0x40, "16"), (0xf0, "60")] {
        bytes[32] = offset;
        let told = packet(1, Link::Raw(0), &bytes, bytes.len());
        assert_eq!(messages(&told), [Err(&*format!("TCP: a header of {said} bytes is wrong"))]);
    }
    bytes[3] = 30;
    let told = packet(1, Link::Raw(0), &bytes, bytes.len());
    assert_eq!(messages(&told), [Err("TCP: 10 bytes, at least 20 needed")]);
}

#[test]
fn a_frame_in_ethernet_has_the_addresses_of_the_link_and_may_be_padded() {
    let up = frame(MessageId::LINK_UP, vec![]);
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xab];
    bytes.extend([0x81, 0, 0, 5]);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(&up);
    for padding in [0, 20] {
        let padded = [&bytes[..], &vec![0; padding]].concat();
        let told = packet(1, Link::Ethernet, &padded, padded.len());
        assert_eq!(messages(&told), [Ok("MIH_Link_Up indication")]);
        assert!(told[0].reencodes);
        assert_eq!(told[0].source.as_deref(), Some("02:00:00:00:00:ab"));
        assert_eq!(told[0].destination.as_deref(), Some("02:00:00:00:00:01"));
    }
    let cooked = [&[0; 14][..], &ETHERTYPE.to_be_bytes(), &up].concat();
    let told = packet(1, Link::of(113).unwrap(), &cooked, cooked.len());
    assert_eq!((messages(&told), &told[0].source), (vec![Ok("MIH_Link_Up indication")], &None));
    let cut = packet(1, Link::Ethernet, &bytes[..20], 20);
    assert_eq!(messages(&cut), [Err("MIH frame: 2 bytes, at least 8 needed")]);
}

#[test]
fn text_has_a_line_for_each_tlv() {
    let qos = QosList {
        classes_of_service: 1,
        min_packet_transfer_delay: vec![],
        avg_packet_transfer_delay: vec![],
        max_packet_transfer_delay: vec![],
        packet_delay_jitter: vec![],
        packet_loss_rate: vec![],
    };
    let transport = TransportContainer::PredefinedConfigurationId(-3);
    let tlvs = vec![
        Tlv::Status(Status::REJECTED),
        Tlv::AssignedResourceSet(AssignedResources { qos, transport }),
        Tlv::Unknown(Unknown { kind: 100, data: vec![0xab] }),
    ];
    let told = bare(Bare::Mih, &frame(MessageId::NET_HO_COMMIT, tlvs));
    let text = told[0].to_string();
    let (_, tlvs) = text.split_once("      tlvs\n").unwrap();
    let expected = r"        source_mihf_id  mihf1
        destination_mihf_id  \x01\\
        status  2 (Rejected)
        assigned_resource_set
          qos
            classes_of_service         1
            min_packet_transfer_delay  none
            avg_packet_transfer_delay  none
            max_packet_transfer_delay  none
            packet_delay_jitter        none
            packet_loss_rate           none
          transport
            predefined_configuration_id  -3
        unknown
          type  100
          data  ab
";
    assert_eq!(tlvs, expected);
}

#[test]
fn a_fragment_is_shown_as_it_came() {
    let payload = Payload::Fragment { number: 2, more: true, part: vec![1, 0xff] };
    let frame = Frame { payload, ..Frame::new(MessageId::GET_INFORMATION, 1, vec![]) };
    let told = bare(Bare::Mih, &frame.emit(&Profile::STRICT).unwrap());
    let fields = &json(&told[0])["fields"];
    assert_eq!(told[0].message, Some("MIH_Get_Information request"));
    assert_eq!((&fields["flags"], &fields["fragment"]), (&json!(["m"]), &json!("01ff")));
    assert_eq!((&fields["fragment_number"], &fields["tlvs"]), (&json!(2), &Value::Null));
}

#[test]
fn a_broken_frame_says_what_is_wrong() {
    let mut bytes = frame(MessageId::LINK_UP, vec![]);
    bytes[9] = 100;
    let told = bare(Bare::Mih, &bytes);
    let short = format!("MIH frame's TLVs: {} bytes, at least 102 needed", bytes.len() - 8);
    assert_eq!(messages(&told), [Err(&*short)]);
    let longer = [&frame(MessageId::LINK_UP, vec![])[..], &[0]].concat();
    let said = format!("MIH frame: a length of {} bytes is wrong", longer.len());
    assert_eq!(messages(&bare(Bare::Mih, &longer)), [Err(&*said)]);
}
