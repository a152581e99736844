//! The hex dumps in `docs/wire/` are what the program emits.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use segue_wire::flow::Inner;
use segue_wire::signal::{FromAnchor, FromHost, PathGrant, PathOffer, Refusal, decode, encode};
use segue_wire::{Header, PacketType, Probe, ProbeKey};
use serde::{Deserialize, Serialize};

const TUNNEL: &str = include_str!("../../../docs/wire/tunnel-and-probe.md");
const SIGNALLING: &str = include_str!("../../../docs/wire/signalling.md");
const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

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
    let header = Header {
        packet_type: PacketType::Request,
        flags: 0,
        k: 3,
        index: 7,
        cookie: 0x1122_3344_5566_7788,
    };
    let probe =
        Probe { seq: 1, t_sc: 1_000_000, sc: 1, heard: 1, t_ka_ms: 200, ..Probe::default() };
    (header, probe)
}

#[test]
fn the_packets_in_the_description_of_the_tunnel_are_real() {
    let (header, probe) = request();
    let data = Header { packet_type: PacketType::Data, k: 0, ..header };
    let inner = [
        0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 17, 0x26, 0x34, 10, 77, 0, 2, 10, 77, 0, 1, 0x30, 0x39,
        0, 53, 0, 8, 0xba, 0xd3,
    ];
    let key = Inner::parse(&inner).unwrap().key;
    assert_eq!(key.to_string(), "udp 10.77.0.2:12345 > 10.77.0.1:53");
    let answer = Header {
        packet_type: PacketType::Response,
        index: 5,
        cookie: 0xaabb_ccdd_eeff_0011,
        ..header
    };
    let held = Probe { t_ss: 123_456_789, dt: 12, ss: 1, r: 1, ..probe };
    expect_same(
        TUNNEL,
        &[
            ("data", [&data.emit()[..], &inner].concat()),
            ("request", probe.seal(&header, &ProbeKey(KEY)).into()),
            ("response", held.seal(&answer, &ProbeKey(KEY)).into()),
        ],
    );
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

#[test]
fn the_messages_in_the_description_of_the_signalling_are_real() {
    let offer = PathOffer {
        path: 3,
        name: "wlan0".into(),
        index: 70_000,
        cookie: u64::MAX,
        k: 5,
        t_ka_ms: 30,
    };
    let registered = FromAnchor::Registered {
        inner: ["10.77.0.2", "fd5e:67e0::2"].map(|a| a.parse::<IpAddr>().unwrap()).into(),
        anchor: vec!["10.77.0.1".parse().unwrap()],
        tunnel_port: 5005,
    };
    let grant = PathGrant { path: 3, index: 11, cookie: 0x1122_3344_5566_7788, key: KEY };
    let version = FromAnchor::Refused { reason: Refusal::Version { speaks: 1 } };
    let examples = [
        ("Register", host(FromHost::Register { version: 1, epoch: 9 })),
        ("AddPath", host(FromHost::AddPath(offer))),
        ("RemovePath", host(FromHost::RemovePath { path: 3 })),
        ("Leave", host(FromHost::Leave)),
        ("Registered", anchor(registered)),
        ("PathReady", anchor(FromAnchor::PathReady(grant))),
        ("PathRefused", anchor(FromAnchor::PathRefused { path: 3, reason: Refusal::NoPath })),
        ("Refused", anchor(version)),
    ];
    // The join line and its record belong to the program's own test.
    let (before, messages) = SIGNALLING.split_once("## Framing").unwrap();
    assert_eq!(before.matches("<!-- example: join").count(), 2);
    expect_same(messages, &examples);
}
