//! Counts the messages of each type in a capture and compares with tshark: in our own captures, written in every format
//! that we read, and in the captures of a directory (`CAPTURES`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use segue_decode::{Capture, Element, Link, Tree, packet, unpacked};
use segue_wire::mobility::MessageType;
use segue_wire::nd::Kind;

use crate::own;

/// Counts by keys such as "mh 5", "nd 134", "radius 1".
type Counts = BTreeMap<String, u64>;

/// No file may take longer than this.
const LONGEST: Duration = Duration::from_secs(60);

/// tshark's counts, and whether it reads the whole file. `None` without tshark.
fn theirs(path: &Path) -> Option<(Counts, bool)> {
    const FIELDS: [&str; 3] = ["mip6.mhtype", "icmpv6.type", "radius.code"];
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields"]);
    FIELDS.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let Ok(output) = tshark.arg("-r").arg(path).output() else {
        eprintln!("skipped: tshark cannot be run");
        return None;
    };
    let mut counts = Counts::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        for (group, numbers) in ["mh", "nd", "radius"].iter().zip(line.split('\t')) {
            for number in numbers.split(',').filter_map(|number| number.parse().ok()) {
                if *group != "nd" || Kind::of(number).is_some() {
                    *counts.entry(format!("{group} {number}")).or_default() += 1;
                }
            }
        }
    }
    Some((counts, output.status.success()))
}

/// Our counts, and whether we read the whole file.
fn ours(path: &Path) -> (Counts, bool) {
    let (head, input) = unpacked(File::open(path).unwrap()).unwrap();
    let mut counts = Counts::new();
    let Some(magic) = head.first_chunk().filter(|head| Capture::<File>::is(**head)) else {
        return (counts, false);
    };
    let Ok(mut capture) = Capture::open(*magic, input) else { return (counts, false) };
    loop {
        let read = match capture.next_packet() {
            Ok(Some(read)) => read,
            end => return (counts, end.is_ok()),
        };
        let Some(link) = Link::of(read.link_type) else { continue };
        for element in packet(read.number, link, &read.bytes, read.length) {
            if let Some(key) = key(&element) {
                *counts.entry(key).or_default() += 1;
            }
        }
    }
}

/// The key of a message in [`Counts`]. The error of a malformed message names it too.
fn key(element: &Element) -> Option<String> {
    let Tree::Object(fields) = &element.fields else { return None };
    let number = |name: &str| {
        fields.iter().find_map(|(known, value)| match value {
            Tree::Number(number) if known == name => Some(*number),
            _ => None,
        })
    };
    if let Some(error) = &element.error {
        let is_named = |name: &str| error.contains(&format!("{name}: "));
        let nd = (0..=255).find(|kind| Kind::of(*kind).is_some_and(|kind| is_named(kind.name())));
        let mh = (0..=255).find(|kind| MessageType(*kind).name().is_some_and(is_named));
        return nd.map(|kind| format!("nd {kind}")).or(mh.map(|kind| format!("mh {kind}")));
    }
    if let Some(kind) = number("mh_type") {
        return Some(format!("mh {kind}"));
    }
    let kind = number("type").filter(|kind| Kind::of(*kind as u8).is_some());
    let radius = number("code").filter(|_| number("identifier").is_some());
    match kind {
        Some(kind) => Some(format!("nd {kind}")),
        None => radius.map(|code| format!("radius {code}")),
    }
}

/// Link type and packets of a capture.
fn packets(path: &Path) -> (u16, Vec<Vec<u8>>) {
    let magic = fs::read(path).unwrap()[..4].try_into().unwrap();
    let mut capture = Capture::open(magic, File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    let mut link_type = 0;
    while let Some(read) = capture.next_packet().unwrap() {
        link_type = read.link_type;
        packets.push(read.bytes);
    }
    (link_type, packets)
}

/// A pcap file with packets that are truncated to `snap` bytes.
fn pcap(link_type: u32, packets: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, snap as u32, link_type] {
        file.extend(word.to_le_bytes());
    }
    for (at, packet) in packets.iter().enumerate() {
        let kept = packet.len().min(snap);
        for word in [at as u32, 7, kept as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&packet[..kept]);
    }
    file
}

/// A pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let total = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &total, &body, &total].concat()
}

/// A pcapng file: options of its interface, the block type of its packets, and their options.
fn pcapng(
    link_type: u16,
    options: &[u8],
    kind: u32,
    packets: &[Vec<u8>],
    of_each: &[u8],
) -> Vec<u8> {
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut file = block(0x0a0d_0d0a, &section);
    let interface = [&link_type.to_le_bytes()[..], &[0; 6], options].concat();
    file.extend(block(1, &interface));
    for packet in packets {
        let length = (packet.len() as u32).to_le_bytes();
        let mut body = match kind {
            3 => length.to_vec(),
            _ => [&[0; 12][..], &length, &length].concat(),
        };
        body.extend(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(of_each);
        file.extend(block(kind, &body));
    }
    file
}

/// Each packet with `head` before it and `tail` after it.
fn behind(head: &[u8], packets: &[Vec<u8>], tail: &[u8]) -> Vec<Vec<u8>> {
    packets.iter().map(|packet| [head, packet, tail].concat()).collect()
}

/// The IPv6 packets, each turned into an atomic fragment.
fn atomic(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let v6 = packets.iter().filter(|packet| packet[0] >> 4 == 6);
    v6.map(|packet| {
        let mut packet = packet.clone();
        let length = u16::from_be_bytes([packet[4], packet[5]]) + 8;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        let next = std::mem::replace(&mut packet[6], 44);
        packet.splice(40..40, [next, 0, 0, 0, 0, 0, 0, 9]);
        packet
    })
    .collect()
}

#[test]
fn captures_of_every_form_hold_the_messages_that_tshark_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.pcap");
    own::write(&path);
    let (link_type, own) = packets(&path);
    assert_eq!(link_type, 101, "IP packets");
    let ethernet = [&[2; 12][..], &[0x86, 0xdd]].concat();
    let v6: Vec<Vec<u8>> = own.iter().filter(|packet| packet[0] >> 4 == 6).cloned().collect();
    let wifi = [&[8, 1][..], &[0; 22], &[0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd]].concat();
    let radiotap = [&[0, 0, 9, 0, 2, 0, 0, 0, 0][..], &wifi].concat();
    let pppoe: Vec<Vec<u8>> = v6
        .iter()
        .map(|packet| {
            let length = (packet.len() as u16 + 2).to_be_bytes();
            [&[2; 12][..], &[0x88, 0x64, 0x11, 0, 0, 5], &length, &[0, 0x57], packet].concat()
        })
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&pcap(101, &own, 65_535)).unwrap();
    let comment = [&[1, 0, 4, 0][..], b"caf\xe9", &[0; 4]].concat();
    let files = [
        ("whole", pcap(101, &own, 65_535)),
        ("cut", pcap(1, &behind(&ethernet, &v6, &[]), 80)),
        ("check-octets", pcap(1 | 2 << 28 | 1 << 26, &behind(&ethernet, &v6, &[9; 4]), 65_535)),
        ("pppoe", pcap(1, &pppoe, 65_535)),
        ("wifi", pcap(105, &behind(&wifi, &v6, &[]), 65_535)),
        ("radiotap", pcap(127, &behind(&radiotap, &v6, &[]), 65_535)),
        ("atomic", pcap(101, &atomic(&own), 65_535)),
        ("enhanced", pcapng(101, &[], 6, &own, &[])),
        ("obsolete", pcapng(101, &[], 2, &own, &[])),
        ("simple", pcapng(101, &[], 3, &own, &[])),
        ("options-without-end", pcapng(101, &[2, 0, 4, 0, b'e', b't', b'h', b'0'], 6, &own, &[])),
        ("latin1", pcapng(101, &[], 6, &own, &comment)),
        ("gzip", gzip.finish().unwrap()),
    ];
    let mut all = 0;
    for (name, bytes) in files {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        let Some((theirs, is_whole)) = theirs(&path) else { return };
        assert!(is_whole, "{name}: tshark reads it");
        let (ours, is_whole) = ours(&path);
        assert!(is_whole, "{name}");
        assert_eq!(ours, theirs, "{name}");
        assert!(ours.len() > 15, "{name}: {ours:?}");
        all += ours.values().sum::<u64>();
    }
    assert!(all > 300, "{all} messages");
}

/// Endings of capture file names.
const ENDINGS: [&str; 6] = ["pcap", "pcapng", "cap", "trace", "dmp", "gz"];

/// Captures under a directory.
fn files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_capture = path.extension().is_some_and(|end| ENDINGS.iter().any(|of| end == *of));
        if path.is_dir() {
            self::files(&path, files);
        } else if is_capture {
            files.push(path);
        }
    }
}

#[test]
#[ignore = "reads the captures in the directory CAPTURES; prints how it and tshark differ"]
fn captures_of_others_hold_the_messages_that_tshark_counts() {
    let directory = std::env::var("CAPTURES").expect("CAPTURES names a directory");
    let mut paths = Vec::new();
    files(Path::new(&directory), &mut paths);
    paths.sort();
    let (mut read, mut told, mut theirs_all, mut fewer) = (0, 0, Counts::new(), Vec::new());
    for path in paths {
        let Some((theirs, is_whole)) = theirs(&path) else { return };
        if !is_whole && theirs.is_empty() {
            continue;
        }
        let (sender, receiver) = mpsc::channel();
        let of = path.clone();
        std::thread::spawn(move || sender.send(ours(&of)));
        let (ours, ours_is_whole) = receiver.recv_timeout(LONGEST).expect("it ends");
        read += 1;
        if is_whole && !ours_is_whole {
            fewer.push(format!("{}: tshark reads it to its end", path.display()));
        }
        for (kind, count) in &theirs {
            let ours = ours.get(kind).copied().unwrap_or_default();
            told += ours.min(*count);
            *theirs_all.entry(kind.clone()).or_default() += count;
            if ours < *count {
                fewer.push(format!("{}: {kind}: {ours} of {count}", path.display()));
            }
        }
        for (kind, count) in ours.iter().filter(|(kind, _)| !theirs.contains_key(*kind)) {
            println!("{}: {count} of {kind}, tshark none", path.display());
        }
    }
    println!(
        "{read} captures, {told} of {} messages: {theirs_all:?}",
        theirs_all.values().sum::<u64>()
    );
    assert!(fewer.is_empty(), "{} differ:\n{}", fewer.len(), fewer.join("\n"));
}
