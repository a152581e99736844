//! Compares our reading of RADIUS with tshark's: an exchange between FreeRADIUS and its client, and one packet of our
//! own with every attribute that we know.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use segue_decode::{Link, Tree, packet};
use segue_wire::radius::{Attribute, AttributeType, Code, Format, Packet};

use crate::pdml::attribute;

/// Attributes that tshark names differently.
const NAMES: &[(&str, &str)] = &[("User-Password (encrypted)", "User-Password")];

/// A captured exchange between FreeRADIUS and its client.
fn captured() -> Vec<Vec<u8>> {
    let hex = include_str!("../../../wire/tests/captures/freeradius.hex");
    let lines = hex.lines().filter(|line| !line.starts_with('#'));
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    lines.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

/// Every named attribute, with a value in its format. Leaves out EAP-Message and attributes with tags and vendors,
/// which tshark splits into fields.
fn own() -> Vec<u8> {
    let is_split = |kind: &AttributeType| {
        matches!(kind.format(), Format::Vendor | Format::TaggedInteger | Format::TaggedText)
            || ["CHAP-Password", "EAP-Message", "Tunnel-Password"]
                .contains(&kind.name().unwrap_or(""))
    };
    let all =
        (1..=u8::MAX).map(AttributeType).filter(|kind| kind.name().is_some() && !is_split(kind));
    let attribute = |kind: AttributeType| {
        let name = kind.name().unwrap();
        let is_v6 = ["IPv6-Address", "IPv6-Host", "DHCP6"].iter().any(|of| name.contains(of));
        match kind.format() {
            Format::Text => Attribute::octets(kind, b"alice@example.org"),
            Format::Integer64 => Attribute::integer64(kind, 1 << 40),
            Format::Prefix => Attribute::prefix(kind, "2001:db8:1:2::/64".parse().unwrap()),
            Format::Address if is_v6 => Attribute::address(kind, "2001:db8::7".parse().unwrap()),
            Format::Address => Attribute::address(kind, "192.0.2.7".parse().unwrap()),
            Format::Integer => Attribute::integer(kind, 0x0102_0304),
            _ if name.ends_with("Authenticator") || name.ends_with("Password") => {
                Attribute::octets(kind, &[9; 16])
            }
            _ if name.to_ascii_lowercase().ends_with("interface-id") => {
                Attribute::octets(kind, &[1, 2, 3, 4, 5, 6, 7, 8])
            }
            _ if name.ends_with("HoA") => Attribute::octets(kind, &[0, 24, 192, 0, 2, 7]),
            _ => Attribute::octets(kind, &[0xab, 0, 0xcd]),
        }
    };
    let attributes = all.map(attribute).collect();
    let packet =
        Packet { code: Code::ACCOUNTING_REQUEST, id: 5, authenticator: [3; 16], attributes };
    packet.emit().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The octets of a prefix: a reserved one, the length, and the full address.
fn prefix(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (std::net::Ipv6Addr, u8) = (address.parse().ok()?, length.parse().ok()?);
    Some(format!("00{length:02x}{}", hex(&address.octets())))
}

/// A packet over UDP and IPv4 to the server's port.
fn over_udp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ip = etherparse::PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    ip.udp(40_000, 1_812).write(&mut bytes, payload).unwrap();
    bytes
}

fn write(path: &Path, packets: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        let length = packet.len() as u32;
        [0, 0, length, length].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    std::fs::write(path, file).unwrap();
}

/// The attributes of each packet as tshark reads them: name, shown value, and octets.
fn theirs(path: &Path) -> Option<Vec<Vec<(String, String, String)>>> {
    let mut tshark = Command::new("tshark");
    let Ok(output) = tshark.args(["-n", "-T", "pdml", "-r"]).arg(path).output() else {
        eprintln!("skipped: tshark cannot be run");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut packets: Vec<Vec<(String, String, String)>> = Vec::new();
    let mut open = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("<proto name=\"radius\"") {
            packets.push(Vec::new());
        }
        let [name, showname, value] = ["name", "showname", "value"].map(|of| attribute(line, of));
        match &*name {
            "radius.avp" => open = true,
            "radius.avp.type" | "radius.avp.length" => {}
            field if open && field.starts_with("radius.") => {
                let (name, shown) = showname.split_once(": ").unwrap();
                let known = NAMES.iter().find(|(theirs, _)| *theirs == name);
                let name = known.map_or(name, |(_, ours)| ours);
                packets.last_mut().unwrap().push((name.to_owned(), shown.to_owned(), value));
                open = false;
            }
            _ => {}
        }
    }
    Some(packets)
}

#[test]
fn attributes_of_radius_are_read_as_tshark_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("radius.pcap");
    let mut packets: Vec<Vec<u8>> = captured().iter().map(|bytes| over_udp(bytes)).collect();
    packets.push(over_udp(&own()));
    write(&path, &packets);
    let Some(theirs) = theirs(&path) else { return };
    assert_eq!(theirs.len(), packets.len());
    let mut compared = 0;
    for (bytes, theirs) in packets.iter().zip(&theirs) {
        let told = packet(1, Link::Raw(0), bytes, bytes.len());
        assert!(told[0].reencodes, "{}", told[0]);
        let Tree::Object(fields) = &told[0].fields else { panic!("{:?}", told[0].fields) };
        let attributes = fields.iter().find(|(name, _)| name == "attributes").unwrap();
        let Tree::List(ours) = &attributes.1 else { panic!("{attributes:?}") };
        assert_eq!(ours.len(), theirs.len(), "{theirs:?}");
        for (ours, (name, shown, octets)) in ours.iter().zip(theirs) {
            let Tree::Object(ours) = ours else { panic!("{ours:?}") };
            let (Tree::Text(own_name), value) = (&ours[0].1, &ours[1].1) else {
                panic!("{ours:?}")
            };
            assert_eq!(own_name, name);
            let same = match value {
                Tree::Number(number) | Tree::Named(number, _) => {
                    u64::from_str_radix(octets, 16).unwrap() == *number
                }
                // For text and prefixes tshark may show the octets.
                Tree::Text(text) => {
                    [shown, octets].contains(&text)
                        || hex(text.as_bytes()) == *octets
                        || prefix(text).is_some_and(|written| written == *octets)
                        || text.parse().is_ok_and(|at: Ipv4Addr| hex(&at.octets()) == *octets)
                }
                _ => false,
            };
            assert!(same, "{name}: {value:?}, tshark shows {shown:?} of {octets}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared} attributes");
}
