//! Checks that the hex dumps in `docs/wire/` are the program's output.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_wire::enrol::{EnrolRefusal, Enrolled, ToEnrol, Token};
use segue_wire::flow::Inner;
use segue_wire::header::flags::REQUEST_REPORT;
use segue_wire::signal::{
    CountedFlow, FlowSeen, FromAnchor, FromHost, PathGrant, PathOffer, Refusal, SIGNAL_VERSION,
    Timescale, WaysOut, decode, encode,
};
use segue_wire::stamp::tlv::{ClassOfService, DirectMeasurement, FollowUp, Writer, kind};
use segue_wire::stamp::{ErrorEstimate, Facts, Request, SenderPacket, StampKey, Timestamp};
use segue_wire::upmt::{ProbePacket, Trailer};
use segue_wire::{Encapsulation, Header, Mode, PacketType, Probe, ProbeKey, ProbeReport, Size};
use serde::{Deserialize, Serialize};

const TUNNEL: &str = include_str!("../../../docs/wire/tunnel-and-probe.md");
const STAMP: &str = include_str!("../../../docs/wire/stamp.md");
const UPMT: &str = include_str!("../../../docs/wire/upmt.md");
const SIGNALLING: &str = include_str!("../../../docs/wire/signalling.md");
const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// An empty datagram from 10.77.0.2:12345 to 10.77.0.1:53.
const INNER: [u8; 28] = [
    0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 17, 0x26, 0x34, 10, 77, 0, 2, 10, 77, 0, 1, 0x30, 0x39, 0,
    53, 0, 8, 0xba, 0xd3,
];

/// The blocks that follow `<!-- example: NAME -->`, by name.
fn examples(document: &str) -> BTreeMap<&str, Vec<u8>> {
    let block = |text| -> Option<(&str, Vec<u8>)> {
        let (name, rest) = str::split_once(text, " -->\n```text\n")?;
        let (dump, _) = rest.split_once("\n```")?;
        let bytes = dump.split_whitespace().map(|hex| u8::from_str_radix(hex, 16));
        Some((name, bytes.collect::<Result<_, _>>().unwrap()))
    };
    document.split("<!-- example: ").skip(1).map(|text| block(text).unwrap()).collect()
}

fn dump(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

fn expect_same(document: &str, emitted: &[(&str, Vec<u8>)]) {
    let examples = examples(document);
    let wrong = emitted.iter().filter(|(name, bytes)| examples.get(name) != Some(bytes));
    let wrong: Vec<String> = wrong.map(|(name, b)| format!("{name} is\n{}", dump(b))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(examples.len(), emitted.len(), "an example that no test emits: {examples:?}");
}

fn request() -> (Header, Probe) {
    let header = Header::new(PacketType::Request, 3, 7, 0x1122_3344_5566_7788);
    let probe =
        Probe { seq: 1, t_sc: 1_000_000, sc: 1, heard: 1, t_ka_ms: 200, ..Probe::default() };
    (header, probe)
}

#[test]
fn the_packets_in_the_description_of_the_tunnel_are_real() {
    let (header, probe) = request();
    let data = Header { packet_type: PacketType::Data, k: 0, ..header };
    let inner = INNER;
    let key = Inner::parse(&inner).unwrap().key;
    assert_eq!(key.to_string(), "udp 10.77.0.2:12345 > 10.77.0.1:53");
    let answer = Header {
        packet_type: PacketType::Response,
        index: 5,
        cookie: 0xaabb_ccdd_eeff_0011,
        ..header
    };
    let ride = Header { packet_type: PacketType::Ride, ..header };
    let held = Probe { t_ss: 123_456_789, dt: 12, ss: 1, r: 1, ..probe };
    let reporting = Header { flags: REQUEST_REPORT, ..header };
    let second = Probe { seq: 2, t_sc: 1_200_000, t_ss: 123_456_789, dt: 169_500, sc: 2, ..probe };
    let report = ProbeReport::new(0.25, Some(0.0305)).pack(second);
    let test = Size { token: 9, size: Size::LEAST, answer: Size::LEAST };
    let mut size = Vec::new();
    let test_header = Header { packet_type: PacketType::Size, k: 0, ..header };
    test.seal(&test_header, &ProbeKey(KEY), &mut size);
    expect_same(
        TUNNEL,
        &[
            ("data", [&data.emit()[..], &inner].concat()),
            ("request", probe.seal(&header, &ProbeKey(KEY)).into()),
            ("report", report.seal(&reporting, &ProbeKey(KEY)).into()),
            ("response", held.seal(&answer, &ProbeKey(KEY)).into()),
            ("ride", [&probe.seal(&ride, &ProbeKey(KEY))[..], &inner].concat()),
            ("size", size),
        ],
    );
}

#[test]
fn the_packets_in_the_description_of_upmt_are_real() {
    let probe = Probe { t_ka_ms: 0, ..request().1 };
    let host = "10.77.0.2".parse().unwrap();
    let anchor = "192.0.2.1".parse().unwrap();
    let packet =
        ProbePacket { host, anchor, path: 3, response: false, flagged: false, probe }.emit();
    let trailer = Trailer { version: 4, response: false, report: false, path: 3, probe };
    let mut ride = [&INNER[..], &trailer.emit()].concat();
    ride[0] |= 0xf0;
    expect_same(UPMT, &[("probe", packet), ("ride", ride)]);
}

fn host(message: FromHost) -> Vec<u8> {
    emitted(message)
}

fn anchor(message: FromAnchor) -> Vec<u8> {
    emitted(message)
}

fn emitted<M>(message: M) -> Vec<u8>
where
    M: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug,
{
    let bytes = encode(&message).unwrap();
    assert_eq!(decode(&mut bytes.clone()), Ok(Some(message)));
    bytes
}

fn offer() -> PathOffer {
    PathOffer {
        path: 3,
        name: "wlan0".into(),
        index: 70_000,
        cookie: u64::MAX,
        k: 5,
        t_ka_ms: 30,
        mode: Mode::Both,
        rides: false,
        encapsulation: Encapsulation::Segue,
        n: 10,
        taus: [1_000, 10_000].map(Timescale::symmetric),
        follows_use: false,
        largest: 1_456,
        v6: false,
        checksums: false,
    }
}

#[test]
fn the_messages_in_the_description_of_the_signalling_are_real() {
    let registered = FromAnchor::Registered {
        inner: ["10.77.0.2", "fd5e:67e0::2"].map(|a| a.parse::<IpAddr>().unwrap()).into(),
        anchor: vec!["10.77.0.1".parse().unwrap()],
        tunnel_port: 5005,
    };
    let grant = PathGrant {
        path: 3,
        index: 11,
        cookie: 0x1122_3344_5566_7788,
        key: KEY,
        mode: Mode::Both,
        rides: false,
        encapsulation: Encapsulation::Segue,
        checksums: false,
    };
    let ask = ToEnrol::Enrol {
        version: 1,
        name: "laptop".into(),
        token: Token(std::array::from_fn(|n| n as u8)),
        request: vec![0x30, 1, 0],
    };
    let counted = CountedFlow {
        src: "10.77.0.2".parse().unwrap(),
        dst: "192.0.2.9".parse().unwrap(),
        sport: 40_000,
        dport: 5_004,
        protocol: 17,
        label: 0,
    };
    let count = FlowSeen { path: Some(3), sent: 1_000, received: 12, length: 200 };
    let enrolled = |message: Enrolled| encode(&message).unwrap();
    let version = FromAnchor::Refused { reason: Refusal::Version { speaks: 1 } };
    let examples = [
        ("Register", host(FromHost::Register { version: SIGNAL_VERSION, epoch: 9 })),
        ("AddPath", host(FromHost::AddPath(offer()))),
        ("RemovePath", host(FromHost::RemovePath { path: 3 })),
        ("Leave", host(FromHost::Leave)),
        ("OneByOne", host(FromHost::OneByOne { path: 3 })),
        ("CountFlows", host(FromHost::CountFlows { round: 7, flows: vec![counted] })),
        ("Registered", anchor(registered)),
        ("WaysOut", anchor(FromAnchor::WaysOut(WaysOut { v4: 0, v6: 64 }))),
        ("TooBig", anchor(FromAnchor::TooBig { path: 3, mtu: Some(1_400) })),
        ("FlowCounts", anchor(FromAnchor::FlowCounts { round: 7, counts: vec![count] })),
        ("Largest", anchor(FromAnchor::Largest { bytes: 1_436 })),
        ("PathReady", anchor(FromAnchor::PathReady(grant))),
        ("PathRefused", anchor(FromAnchor::PathRefused { path: 3, reason: Refusal::NoPath })),
        ("Refused", anchor(version)),
        ("Renew", host(FromHost::Renew { request: vec![0x30, 1, 0] })),
        ("Renewed", anchor(FromAnchor::Renewed { certificate: vec![0x30, 1, 0] })),
        ("Enrol", encode(&ask).unwrap()),
        ("Certificate", enrolled(Enrolled::Certificate { certificate: vec![0x30, 1, 0] })),
        ("EnrolRefused", enrolled(Enrolled::Refused { reason: EnrolRefusal::Used })),
    ];
    // A test of the program covers the join line and its record.
    let (before, messages) = SIGNALLING.split_once("## Framing").unwrap();
    assert_eq!(before.matches("<!-- example: join").count(), 2);
    expect_same(messages, &examples);
}

#[test]
fn the_packets_in_the_description_of_stamp_are_real() {
    let at = 1_700_000_000_000_000_000;
    let error = ErrorEstimate::ntp(16_000_000_000, false);
    let packet = SenderPacket { seq: 7, timestamp: Timestamp::ntp(at), error, ssid: 0x1234 };
    let mut buffer = [0; 256];
    let base = packet.emit(None, &mut buffer).unwrap();
    let request = buffer[..base].to_vec();
    let receive = Timestamp::ntp(at + 10_000_000);
    let facts = Facts { receive, ttl: 64, error, seq: Some(5), ..Facts::default() };
    let mut answer = vec![0; base];
    let transmit = || Timestamp::ntp(at + 10_250_000);
    Request::open(&request, None).unwrap().answer(&facts, transmit, &mut answer).unwrap();

    let mut writer = Writer::new(&mut buffer[base..]);
    let class = ClassOfService { dscp1: 10, ..ClassOfService::default() };
    let count = DirectMeasurement { sender_tx: 8, ..DirectMeasurement::default() };
    writer.push(kind::CLASS_OF_SERVICE, &class.emit()).unwrap();
    writer.push(kind::DIRECT_MEASUREMENT, &count.emit()).unwrap();
    writer.push(kind::FOLLOW_UP, &FollowUp::default().emit()).unwrap();
    writer.pad(16).unwrap();
    let extensions = base + writer.len();
    let extensions = buffer[..extensions].to_vec();

    let key = StampKey::new(&std::array::from_fn::<u8, 32, _>(|i| i as u8));
    let len = packet.emit(Some(&key), &mut buffer).unwrap();
    expect_same(
        STAMP,
        &[
            ("request", request),
            ("answer", answer),
            ("authenticated", buffer[..len].to_vec()),
            ("extensions", extensions),
        ],
    );
}
