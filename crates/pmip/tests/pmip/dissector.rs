//! Checks all messages of a domain with tshark.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use segue_ip::{Datagram, Input};
use segue_pmip::{Identity, LmaInput};

use crate::domain::*;

/// Builds an IPv6 packet, or the IPv4 packet around a UDP datagram.
fn packet(datagram: &Datagram) -> Vec<u8> {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (datagram.from.0, datagram.to.0) else {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (datagram.from.0, datagram.to.0) else { panic!() };
        let length = datagram.bytes.len() as u16 + 8;
        let total = (length + 20).to_be_bytes();
        let head = [0x45, 0, total[0], total[1], 0, 0, 0, 0, datagram.hop_limit, datagram.protocol];
        let ports = [datagram.from.1, datagram.to.1, length, 0].map(u16::to_be_bytes).concat();
        let ends = [from.octets(), to.octets()].concat();
        return [&head[..], &[0; 2], &ends, &ports, &datagram.bytes].concat();
    };
    let length = (datagram.bytes.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, length[0], length[1], datagram.protocol, datagram.hop_limit];
    [&head[..], &from.octets(), &to.octets(), &datagram.bytes].concat()
}

/// A pcap file of raw IP packets.
fn capture(packets: &[Datagram]) -> Vec<u8> {
    let head: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 101];
    let mut all: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    for (n, datagram) in packets.iter().enumerate() {
        let packet = packet(datagram);
        let length = packet.len() as u32;
        all.extend([n as u32, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        all.extend(packet);
    }
    all
}

/// tshark's verdict on each packet: message type, whether it is malformed, and the checksum status.
fn dissected(packets: &[Datagram]) -> Option<Vec<String>> {
    let mut tshark = Command::new("tshark");
    let fields = ["mip6.mhtype", "_ws.malformed", "_ws.expert.group", "mip6.csum"];
    tshark.args(["-r", "-", "-T", "fields", "-E", "separator=;"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", *field]));
    tshark.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = tshark.spawn() else {
        println!("skipped: there is no tshark");
        return None;
    };
    child.stdin.take().unwrap().write_all(&capture(packets)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// Checksum of a message (RFC 1071) with the pseudo-header of RFC 6275; 0 if it is correct.
fn checksum(datagram: &Datagram) -> u16 {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (datagram.from.0, datagram.to.0) else { panic!() };
    let length = (datagram.bytes.len() as u32).to_be_bytes();
    let pseudo =
        [&from.octets()[..], &to.octets(), &length, &[0, 0, 0, datagram.protocol]].concat();
    let words = [pseudo, datagram.bytes.clone()].concat();
    let sum: u64 = words.chunks(2).map(|two| u64::from(two[0]) << 8 | u64::from(two[1])).sum();
    let mut folded = sum;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    !(folded as u16)
}

#[test]
fn tshark_finds_nothing_wrong_with_any_message() {
    let configs = (0..2).map(|n| {
        let mut config = mag_config(n);
        for k in 1..=2 {
            let identity = Identity { node: node(1), anchor: None, prefixes: vec![] };
            config.identities.as_mut().unwrap().known.insert(station(k), identity);
        }
        config
    });
    let mut domain = Domain::of(lma_config(), configs.collect());
    domain.attach(0, station(1));
    domain.run(s(1.0));
    domain.attach(1, station(2));
    domain.run(s(2.0));
    domain.detach(0, station(1));
    domain.run(s(3.0));
    domain.attach(1, station(1)); // also revokes at a gateway that has already forgotten the host
    domain.run(s(4.0));
    domain.attach(0, station(1)); // the anchor revokes at the previous gateway
    domain.run(s(400.0));
    domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
    domain.run(s(500.0));
    assert!(domain.packets.iter().all(|datagram| checksum(datagram) == 0));
    let Some(said) = dissected(&domain.packets) else { return };
    assert_eq!(said.len(), domain.packets.len());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for line in &said {
        let [kind, malformed, expert, _] = line.split(';').collect::<Vec<_>>()[..] else {
            panic!()
        };
        assert_eq!(malformed, "", "{line}");
        // tshark 4.0 does not know notifications, types 19 and 20.
        assert!(expert.is_empty() || matches!(kind, "19" | "20"), "{line}");
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    let all: Vec<&str> = kinds.keys().map(String::as_str).collect();
    assert_eq!(all, ["13", "16", "19", "20", "5", "6"], "{kinds:?}");
    // Check that tshark detects a truncated message.
    let mut cut = domain.packets[0].clone();
    cut.bytes.truncate(cut.bytes.len() - 4);
    assert!(dissected(&[cut]).unwrap()[0].contains("Malformed"));
}

#[test]
fn tshark_finds_nothing_wrong_with_messages_over_ipv4_or_of_gre_keys() {
    let anchor = segue_pmip::LmaConfig {
        address_v4: Some(LMA_V4),
        gateways: ["10.0.0.0/24", "198.51.100.9/32", "fd00::1:0/112"]
            .map(|text| segue_pmip::Allowed {
                prefix: text.parse().unwrap(),
                profile: segue_wire::mobility::Profile::STRICT,
            })
            .into(),
        ..lma_config()
    };
    let keyed =
        segue_pmip::MagConfig { encapsulation: segue_pmip::Encapsulation::Gre, ..mag_config(1) };
    let mut domain = Domain::of(anchor, vec![crate::ipv4::gateway(0), keyed]);
    domain.nat = Some(BTreeMap::new());
    for (n, gateway) in [0, 1, 0].into_iter().enumerate() {
        domain.attach(gateway, station(1));
        domain.run(s(1.0 + n as f64));
    }
    domain.run(s(100.0));
    domain.at_lma(Input::Own(LmaInput::Revoke(node(1))));
    domain.run(s(200.0));
    let of_data = |datagram: &Datagram| datagram.from.1 == segue_pmip::DATA_PORT;
    let is_v4 = |datagram: &&Datagram| datagram.protocol == 17 && !of_data(datagram);
    assert!(domain.packets.iter().filter(is_v4).count() > 10);
    assert!(domain.packets.iter().any(of_data));
    let Some(said) = dissected(&domain.packets) else { return };
    let kinds = ["5", "6", "13", "16"];
    for (line, datagram) in said.iter().zip(&domain.packets) {
        let [kind, malformed, expert, _] = line.split(';').collect::<Vec<_>>()[..] else {
            panic!()
        };
        assert_eq!((malformed, expert), ("", ""), "{line}");
        // tshark decodes only data on the other port.
        assert!(kinds.contains(&kind) || of_data(datagram), "{line}: {datagram:?}");
    }
}
