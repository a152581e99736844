//! Checks packets of this crate against another implementation: `docs/wire/segue.lua` in tshark, which parses inner
//! packets with its own dissectors and checks their lengths and checksums.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use etherparse::PacketBuilder;
use segue_wire::flow::Inner;
use segue_wire::header::flags::{
    DATA_ONE_WAY, REQUEST_QUESTION, REQUEST_REPORT, RESPONSE_QUESTION, RESPONSE_UNSOLICITED,
    RIDE_ONE_WAY, RIDE_REPORT, RIDE_RESPONSE,
};
use segue_wire::upmt::{DATA_LEN, ProbePacket, Trailer};
use segue_wire::{Header, PacketType, Probe, ProbeKey, Size, TUNNEL_PORT};

/// Fields to request from tshark. If outer and inner packets share a field name, the inner value comes second.
const FIELDS: [&str; 42] = [
    "segue.version",
    "segue.type",
    "segue.flags",
    "segue.flags.one_way",
    "segue.flags.unsolicited",
    "segue.flags.response",
    "segue.flags.report",
    "segue.flags.question",
    "segue.k",
    "segue.age",
    "segue.index",
    "segue.cookie",
    "segue.probe.seq",
    "segue.probe.t_sc",
    "segue.probe.t_ss",
    "segue.probe.dt",
    "segue.probe.sc",
    "segue.probe.ss",
    "segue.probe.r",
    "segue.probe.heard",
    "segue.probe.t_ka",
    "segue.probe.mac",
    "segue.size.token",
    "segue.size.size",
    "segue.size.answer",
    "segue.upmt.path",
    "segue.upmt.response",
    "segue.upmt.report",
    "segue.upmt.unsolicited",
    "segue.upmt.version",
    "segue.upmt.complement",
    "segue.malformed",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "ip.dsfield.dscp",
    "ip.checksum.status",
    "udp.srcport",
    "udp.checksum.status",
    "tcp.srcport",
    "tcp.checksum.status",
];

/// The status by which tshark reports a correct checksum.
const GOOD: &str = "1";

/// Builds a capture file of raw IP packets (link type 101).
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    // Magic number, version 2.4, time zone, accuracy, longest packet, link type.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (i, packet) in (0u32..).zip(packets) {
        let len = packet.len() as u32;
        [i, 0, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

fn outer(payload: &[u8], v6: bool) -> Vec<u8> {
    let ip = if v6 {
        PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64)
    } else {
        PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
    };
    let mut packet = Vec::new();
    ip.udp(4000, TUNNEL_PORT).write(&mut packet, payload).unwrap();
    packet
}

/// Returns the values of each field for each packet; `None` without tshark.
fn dissect(packets: &[Vec<u8>]) -> Option<Vec<Vec<Vec<String>>>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture(packets)).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire/segue.lua");
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-X", &format!("lua_script:{script}"), "-r"]).arg(file.path());
    tshark.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-o", "tcp.check_checksum:TRUE", "-T", "fields", "-E", "aggregator=;"]);
    FIELDS.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: tshark cannot be run: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let values = |field: &str| {
        field.split(';').filter(|v| !v.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.split('\t').map(values).collect::<Vec<_>>());
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), packets.len(), "{text}");
    Some(lines)
}

fn get<'a>(line: &'a [Vec<String>], field: &str) -> &'a [String] {
    &line[FIELDS.iter().position(|known| *known == field).unwrap()]
}

/// The only value of a field, as a number.
fn number(line: &[Vec<String>], field: &str) -> u64 {
    let [value] = get(line, field) else { panic!("{field}: {:?}", get(line, field)) };
    match (value.strip_prefix("0x"), value.as_str()) {
        (Some(hex), _) => u64::from_str_radix(hex, 16).unwrap(),
        (None, "True") => 1,
        (None, "False") => 0,
        (None, decimal) => decimal.parse().unwrap(),
    }
}

fn expect_header(line: &[Vec<String>], header: &Header) {
    assert_eq!(number(line, "segue.version"), 1);
    assert_eq!(number(line, "segue.type"), header.packet_type as u64);
    assert_eq!(number(line, "segue.flags"), u64::from(header.flags));
    assert_eq!(number(line, "segue.k"), u64::from(header.k));
    assert_eq!(number(line, "segue.age"), 0);
    assert_eq!(number(line, "segue.index"), u64::from(header.index));
    assert_eq!(number(line, "segue.cookie"), header.cookie);
    assert!(get(line, "segue.malformed").is_empty());
}

#[test]
fn an_independent_dissector_reads_the_fields_of_probes() {
    let probe = Probe {
        seq: 0xffff_ffff,
        t_sc: 2,
        t_ss: 0x8000_0000,
        dt: 4,
        sc: 5,
        ss: 6,
        r: 7,
        heard: 0x8001,
        t_ka_ms: 200,
    };
    let header = |packet_type, flags| Header {
        flags,
        ..Header::new(packet_type, 3, 0x0102_0304, 0xfedc_ba98_7654_3210)
    };
    let headers = [
        header(PacketType::Request, 0),
        header(PacketType::Response, 0),
        header(PacketType::Response, RESPONSE_UNSOLICITED),
        header(PacketType::Request, REQUEST_QUESTION | REQUEST_REPORT),
        header(PacketType::Response, RESPONSE_QUESTION),
    ];
    let sealed = headers.map(|header| probe.seal(&header, &ProbeKey([7; 16])));
    let packets: Vec<_> = sealed.iter().flat_map(|p| [outer(p, false), outer(p, true)]).collect();
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        expect_header(line, &headers[i / 2]);
        let fields = [
            ("seq", probe.seq),
            ("t_sc", probe.t_sc),
            ("t_ss", probe.t_ss),
            ("dt", probe.dt),
            ("sc", probe.sc),
            ("ss", probe.ss),
            ("r", probe.r),
            ("heard", probe.heard.into()),
            ("t_ka", probe.t_ka_ms.into()),
        ];
        for (name, value) in fields {
            assert_eq!(number(line, &format!("segue.probe.{name}")), u64::from(value), "{name}");
        }
        let mac: String = sealed[i / 2][48..].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(get(line, "segue.probe.mac"), [mac]);
        let unsolicited = get(line, "segue.flags.unsolicited");
        match headers[i / 2].packet_type {
            PacketType::Response => {
                assert_eq!(number(line, "segue.flags.unsolicited"), u64::from(i / 2 == 2));
            }
            _ => assert!(unsolicited.is_empty()),
        }
        assert_eq!(number(line, "segue.flags.question"), u64::from(i / 2 >= 3));
    }
}

#[test]
fn an_independent_dissector_hands_inner_packets_to_its_own_and_finds_them_right() {
    let header = Header { flags: DATA_ONE_WAY, ..Header::new(PacketType::Data, 0, 7, 9) };
    let (v4, v6) = (
        [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 1)],
        [
            Ipv6Addr::new(0xfd5e, 0x67e0, 0, 0, 0, 0, 0, 2),
            Ipv6Addr::new(0xfd5e, 0x67e0, 0, 0, 0, 0, 0, 1),
        ],
    );
    let mut inner = vec![Vec::new(); 4];
    let ipv4 = || PacketBuilder::ipv4(v4[0].octets(), v4[1].octets(), 64);
    let ipv6 = || PacketBuilder::ipv6(v6[0].octets(), v6[1].octets(), 64);
    ipv4().udp(1111, 2222).write(&mut inner[0], b"voice").unwrap();
    ipv4().tcp(1111, 2222, 1, 100).write(&mut inner[1], &[5; 1000]).unwrap();
    ipv6().udp(1111, 2222).write(&mut inner[2], b"voice").unwrap();
    ipv6().tcp(1111, 2222, 1, 100).write(&mut inner[3], &[5; 1000]).unwrap();
    let packets: Vec<_> = inner
        .iter()
        .flat_map(|packet| {
            let packet = [&header.emit()[..], packet].concat();
            [outer(&packet, false), outer(&packet, true)]
        })
        .collect();
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        expect_header(line, &header);
        assert_eq!(number(line, "segue.flags.one_way"), 1);
        let ours = Inner::parse(&inner[i / 2]).unwrap();
        let family = if ours.key.src.is_ipv4() { "ip" } else { "ipv6" };
        let last = |field: String| get(line, &field).last().cloned().unwrap();
        assert_eq!(last(format!("{family}.src")), ours.key.src.to_string());
        assert_eq!(last(format!("{family}.dst")), ours.key.dst.to_string());
        let transport = if ours.key.protocol == 6 { "tcp" } else { "udp" };
        assert_eq!(last(format!("{transport}.srcport")), ours.key.sport.to_string());
        for field in ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status"] {
            let found = get(line, field);
            assert!(found.iter().all(|status| status == GOOD), "{field}: {found:?}");
        }
        let checked = get(line, &format!("{transport}.checksum.status")).len();
        assert_eq!(checked, if transport == "tcp" { 1 } else { 2 });
    }
}

#[test]
fn an_independent_dissector_reads_both_parts_of_a_ride() {
    let probe = Probe { seq: 77, t_sc: 2, r: 7, heard: 0x8001, ..Probe::default() };
    let flags = [0, RIDE_ONE_WAY | RIDE_RESPONSE, RIDE_REPORT];
    let header = |flags| Header { flags, ..Header::new(PacketType::Ride, 3, 7, 9) };
    let mut inner = vec![Vec::new(); 2];
    let (ipv4, ipv6) = (
        PacketBuilder::ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64),
        PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64),
    );
    ipv4.udp(1111, 2222).write(&mut inner[0], b"voice").unwrap();
    ipv6.udp(1111, 2222).write(&mut inner[1], b"voice").unwrap();
    let mut packets = Vec::new();
    for flags in flags {
        let sealed = probe.seal(&header(flags), &ProbeKey([7; 16]));
        let rides = inner.iter().map(|inner| [&sealed[..], inner].concat());
        packets.extend(rides.flat_map(|ride| [outer(&ride, false), outer(&ride, true)]));
    }
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        let flags = flags[i / 4];
        expect_header(line, &header(flags));
        for (name, flag) in
            [("one_way", RIDE_ONE_WAY), ("response", RIDE_RESPONSE), ("report", RIDE_REPORT)]
        {
            let set = u64::from(flags & flag != 0);
            assert_eq!(number(line, &format!("segue.flags.{name}")), set, "{name} of {flags}");
        }
        assert_eq!(number(line, "segue.probe.seq"), 77);
        assert_eq!(number(line, "segue.probe.heard"), 0x8001);
        assert_eq!(get(line, "udp.srcport"), ["4000", "1111"]);
        assert_eq!(get(line, "udp.checksum.status"), [GOOD, GOOD]);
    }
}

#[test]
fn an_independent_dissector_reads_tests_of_the_packet_size() {
    let header = Header::new(PacketType::Size, 0, 7, 9);
    let asked = Size { token: 0x0102_0304, size: 1_400, answer: 56 };
    let sealed = |size: Size| {
        let mut packet = Vec::new();
        size.seal(&header, &ProbeKey([7; 16]), &mut packet);
        packet
    };
    let good = sealed(asked);
    let spoilt = |at: usize| {
        let mut packet = good.clone();
        packet[at] ^= 1;
        packet
    };
    let bad =
        [good[..1_399].to_vec(), spoilt(1), spoilt(2), spoilt(3), spoilt(30), good[..55].to_vec()];
    let tests = [good.clone(), sealed(asked.answered())];
    let packets: Vec<_> = tests.iter().chain(&bad).map(|packet| outer(packet, false)).collect();
    let Some(lines) = dissect(&packets) else { return };
    for (line, size) in lines.iter().zip([asked, asked.answered()]) {
        expect_header(line, &header);
        assert_eq!(number(line, "segue.size.token"), size.token.into());
        assert_eq!(number(line, "segue.size.size"), size.size.into());
        assert_eq!(number(line, "segue.size.answer"), size.answer.into());
    }
    for (line, packet) in lines[2..].iter().zip(&bad) {
        assert!(!get(line, "segue.malformed").is_empty());
        let key = ProbeKey([7; 16]);
        assert!(Header::parse(packet).is_err() || Size::open(packet, &key, true).is_err());
    }
}

#[test]
fn an_independent_dissector_marks_what_the_parser_refuses() {
    let request = Header::new(PacketType::Request, 3, 7, 9);
    let good = Probe::default().seal(&request, &ProbeKey([7; 16]));
    let spoilt = |at: usize, value: u8| {
        let mut packet = good.to_vec();
        packet[at] = value;
        packet
    };
    let data = [&[0x10][..], &[0; 15], &[0x70; 30]].concat();
    let ride = |flags| [&[0x11, flags][..], &good[2..]].concat();
    let response = |flags, age| [&[0x13, flags, 3, age][..], &good[4..]].concat();
    let bad = [
        spoilt(1, 4),
        response(3, 0),
        response(0, 1),
        spoilt(0, 0x10),
        good[..55].to_vec(),
        data,
        [&ride(6)[..], &[0x45]].concat(),
        [&ride(0)[..], &[0x75]].concat(),
        ride(0)[..55].to_vec(),
    ];
    let foreign = [spoilt(0, 0x22), spoilt(0, 0x15), good[..15].to_vec()];
    let packets: Vec<_> = bad.iter().chain(&foreign).map(|packet| outer(packet, false)).collect();
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(get(line, "segue.malformed").is_empty(), i >= bad.len(), "packet {i}");
        assert_eq!(get(line, "segue.type").is_empty(), i >= bad.len(), "packet {i}");
    }
    for packet in bad.iter().chain(&foreign) {
        let header = Header::parse(packet);
        assert!(header.is_err() || Probe::open_ride(packet, &ProbeKey([7; 16])).is_err());
    }
}

#[test]
fn an_independent_dissector_reads_upmts_packets_as_ip_in_udp() {
    let probe = Probe { seq: 9, heard: 0x1234, ..Probe::default() };
    let of = |response, flagged| ProbePacket {
        host: [10, 77, 0, 2].into(),
        anchor: [192, 0, 2, 2].into(),
        path: 4,
        response,
        flagged,
        probe,
    };
    let packets = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(response, flagged)| outer(&of(response, flagged).emit(), false));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture(&packets)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-d", "udp.port==5005,ip", "-o", "udp.check_checksum:TRUE", "-r"]);
    tshark.arg(file.path()).args([
        "-o",
        "ip.check_checksum:TRUE",
        "-T",
        "fields",
        "-E",
        "occurrence=l",
    ]);
    let fields = ["ip.src", "ip.dst", "ip.id", "udp.srcport", "udp.dstport", "udp.length"];
    let status = ["ip.checksum.status", "udp.checksum.status"];
    fields.iter().chain(&status).for_each(|field| _ = tshark.args(["-e", field]));
    let Ok(output) = tshark.output() else {
        eprintln!("skipped: tshark cannot be run");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let up = "10.77.0.2\t192.0.2.2\t0x1234\t50054";
    let down = "192.0.2.2\t10.77.0.2\t0x1234";
    let expected = [
        format!("{up}\t50049\t36\t1\t1"),
        format!("{up}\t50048\t36\t1\t1"),
        format!("{down}\t50049\t50054\t36\t1\t1"),
        format!("{down}\t50048\t50054\t36\t1\t1"),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

const UPMT: Probe = Probe {
    seq: 0xffff_fffe,
    t_sc: 2,
    t_ss: 0x8000_0000,
    dt: 4,
    sc: 5,
    ss: 6,
    r: 7,
    heard: 0x8001,
    t_ka_ms: 0,
};

fn expect_upmt_data(line: &[Vec<String>]) {
    for (name, value) in [
        ("seq", UPMT.seq),
        ("t_sc", UPMT.t_sc),
        ("t_ss", UPMT.t_ss),
        ("dt", UPMT.dt),
        ("sc", UPMT.sc),
        ("ss", UPMT.ss),
        ("r", UPMT.r),
        ("heard", UPMT.heard.into()),
    ] {
        assert_eq!(number(line, &format!("segue.probe.{name}")), u64::from(value), "{name}");
    }
    assert!(get(line, "segue.type").is_empty());
}

/// A probe of each family, direction and flag.
fn upmt_probes() -> Vec<ProbePacket> {
    let v4 = (Ipv4Addr::new(10, 77, 0, 2).into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let inner = Ipv6Addr::new(0xfd5e, 0x67e0, 0, 0, 0, 0, 0, 2);
    let v6 = (inner.into(), Ipv6Addr::UNSPECIFIED.into());
    let mut all = Vec::new();
    for ((host, anchor), path) in [(v4, 0), (v4, 15), (v6, 3)] {
        for (response, flagged) in [(false, false), (false, true), (true, false), (true, true)] {
            all.push(ProbePacket { host, anchor, path, response, flagged, probe: UPMT });
        }
    }
    all
}

#[test]
fn an_independent_dissector_reads_upmts_probes() {
    let probes = upmt_probes();
    let packets: Vec<_> =
        probes.iter().map(|probe| outer(&probe.emit(), probe.path == 15)).collect();
    let Some(lines) = dissect(&packets) else { return };
    for (line, probe) in lines.iter().zip(&probes) {
        expect_upmt_data(line);
        assert!(get(line, "segue.malformed").is_empty(), "{probe:?}");
        assert_eq!(number(line, "segue.upmt.path"), u64::from(probe.path));
        assert_eq!(number(line, "segue.upmt.response"), u64::from(probe.response));
        let flags = ["segue.upmt.report", "segue.upmt.unsolicited"];
        let [flag, none] = if probe.response { [flags[1], flags[0]] } else { flags };
        assert_eq!(number(line, flag), u64::from(probe.flagged));
        assert!(get(line, none).is_empty());
        assert_eq!(get(line, "udp.checksum.status"), [GOOD, GOOD], "{probe:?}");
    }
}

/// A ride on an inner packet, as sent.
fn upmt_ride(inner: &[u8], response: bool, report: bool) -> Vec<u8> {
    let version = inner[0] >> 4;
    let trailer = Trailer { version, response, report, path: 15, probe: UPMT };
    let mut ride = [inner, &trailer.emit()].concat();
    ride[0] |= 0xf0;
    ride
}

#[test]
fn an_independent_dissector_reads_both_parts_of_upmts_rides_and_plain_data() {
    let mut inner = vec![Vec::new(); 2];
    let (ipv4, ipv6) = (
        PacketBuilder::ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64),
        PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64),
    );
    // One has an odd length and a single reserved port.
    ipv4.udp(1111, 50_049).write(&mut inner[0], b"voice").unwrap();
    ipv6.tcp(1111, 2222, 1, 100).write(&mut inner[1], &[5; 1000]).unwrap();
    let rides = [(false, false), (true, false), (false, true)];
    let mut packets = Vec::new();
    for inner in &inner {
        packets.extend(
            rides.map(|(response, report)| outer(&upmt_ride(inner, response, report), false)),
        );
        packets.push(outer(inner, true));
    }
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        assert!(get(line, "segue.malformed").is_empty(), "packet {i}");
        let inner_is_v6 = i >= 4;
        if let Some((response, report)) = rides.get(i % 4) {
            expect_upmt_data(line);
            assert_eq!(number(line, "segue.upmt.response"), u64::from(*response));
            assert_eq!(number(line, "segue.upmt.report"), u64::from(*report));
            assert_eq!(number(line, "segue.upmt.path"), 15);
            assert_eq!(number(line, "segue.upmt.version"), if inner_is_v6 { 6 } else { 4 });
        } else {
            assert!(
                get(line, "segue.probe.seq").is_empty() && get(line, "segue.upmt.path").is_empty()
            );
        }
        let source =
            if inner_is_v6 { get(line, "tcp.srcport") } else { &get(line, "udp.srcport")[1..] };
        assert_eq!(source, ["1111"], "packet {i}");
        for field in ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status"] {
            let found = get(line, field);
            assert!(found.iter().all(|status| status == GOOD), "packet {i}, {field}: {found:?}");
        }
    }
}

#[test]
fn an_independent_dissector_marks_what_upmts_parser_refuses() {
    let probe = upmt_probes()[0].emit();
    let mut inner = Vec::new();
    PacketBuilder::ipv4([10, 77, 0, 2], [10, 77, 0, 1], 64)
        .udp(1111, 2222)
        .write(&mut inner, b"voice")
        .unwrap();
    let ride = upmt_ride(&inner, false, false);
    let at = ride.len() - Trailer::LEN;
    let spoilt = |packet: &[u8], at: usize, with: u8| {
        let mut packet = packet.to_vec();
        packet[at] ^= with;
        packet
    };
    // Changes a byte behind the data and corrects the complement.
    let resummed = |offset: usize, with: u8| {
        let mut packet = spoilt(&ride, at + offset, with);
        let words = packet[at..at + 32].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let mut sum = words.sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        packet[at + 32..].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        packet
    };
    let mut short = ProbePacket::parse(&probe).unwrap().unwrap().emit();
    short.truncate(20 + 8 + DATA_LEN - 4);
    short[3] -= 4;
    let checksum = |packet: &mut Vec<u8>| {
        packet[10..12].fill(0);
        let sum =
            packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    };
    checksum(&mut short);
    let (bad_probes, bad_rides) = (
        [spoilt(&probe, 30, 1), spoilt(&probe, 26, 1), short],
        [
            spoilt(&ride, at, 1),
            spoilt(&ride, at + 32, 1),
            resummed(28, 0x10),
            resummed(28, 0x03),
            resummed(28, 0x04),
            resummed(29, 0x1f),
            ride[at..].to_vec(),
        ],
    );
    assert!(Trailer::split(&resummed(29, 0)).is_ok());
    let good = [probe, ride.clone(), resummed(29, 0), inner];
    let bad = bad_probes.iter().chain(&bad_rides);
    let packets: Vec<_> = bad.chain(&good).map(|packet| outer(packet, false)).collect();
    let Some(lines) = dissect(&packets) else { return };
    for (i, line) in lines.iter().enumerate() {
        let is_good = i >= bad_probes.len() + bad_rides.len();
        assert_eq!(get(line, "segue.malformed").is_empty(), is_good, "packet {i}");
    }
    assert!(bad_probes.iter().all(|packet| matches!(ProbePacket::parse(packet), Some(Err(_)))));
    assert!(bad_rides.iter().all(|packet| Trailer::split(packet).is_err()));
}
