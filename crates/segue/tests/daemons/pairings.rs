//! Each combination of datapaths at both ends, over a wire with its offloads, without segmentation
//! offload, and without checksum offload.

use std::net::IpAddr;
use std::time::Duration;

use segue_linux::link::{Feature, set_feature};
use segue_linux::netns::Netns;

use crate::several::Two;
use crate::traffic::{Stream, UdpEcho, one_datagram};
use crate::world::{Daemon, inner};

/// Offloads that are disabled on the devices of the access link.
const WIRES: [(&str, &[Feature]); 3] = [
    ("whole", &[]),
    ("no segmentation", &[Feature::Tso, Feature::Gso]),
    ("no checksums", &[Feature::Tso, Feature::Gso, Feature::TxChecksum]),
];

#[test]
fn a_host_over_ebpf_and_an_anchor_over_ebpf() {
    pair("ebpf", "ebpf");
}

#[test]
fn a_host_over_ebpf_and_an_anchor_in_user_space() {
    pair("ebpf", "user");
}

#[test]
fn a_host_in_user_space_and_an_anchor_over_ebpf() {
    pair("user", "ebpf");
}

#[test]
fn a_host_in_user_space_and_an_anchor_in_user_space() {
    pair("user", "user");
}

fn pair(at_host: &'static str, at_anchor: &'static str) {
    let _turn = crate::among_others();
    for (wire, without) in &WIRES {
        let Some(mut two) = Two::new(at_anchor) else { return };
        for (node, device) in [("anchor", "a"), ("a", "up0")] {
            let off = || without.iter().try_for_each(|off| set_feature(device, *off, false));
            two.node(node).run(off).unwrap().unwrap();
        }
        let anchor = two.anchor_with("reach_anchor = \"all\"\n");
        two.datapath = at_host;
        let host = two.host(&anchor, 1, "a");
        let ends = [&anchor, &host].map(|daemon| daemon.status()["datapath"].clone());
        assert_eq!(ends, [at_anchor, at_host]);
        traffic(wire, &two, &anchor);
        for node in ["a", "anchor", "cn"] {
            let wrong = two.node(node).run(wrong_checksums).unwrap();
            assert!(wrong.is_empty(), "{wire}: {node}: {wrong:?}");
        }
    }
}

/// UDP and TCP of both families, to the anchor itself and to a correspondent behind it.
fn traffic(wire: &str, two: &Two, anchor: &Daemon) {
    let (host, cn) = (two.node("a"), two.node("cn"));
    let (v4, v6) = inner(&anchor.status());
    let far: [(&Netns, IpAddr); 3] = [
        (cn, "10.61.3.2".parse().unwrap()),
        (two.node("anchor"), v4.into()),
        (two.node("anchor"), v6.into()),
    ];
    for (node, address) in far {
        let echo = UdpEcho::start(node, address);
        assert!(one_datagram(host, echo.address).is_some(), "{wire}: UDP with {address}");
        Stream::start(host, node, address, Duration::ZERO).flows_on(1 << 20);
    }
}

/// Nonzero counters of wrong checksums in the calling thread's namespace.
fn wrong_checksums() -> Vec<String> {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let snmp = read("snmp");
    let lines: Vec<&str> = snmp.lines().collect();
    let v4 = lines.chunks_exact(2).flat_map(|pair| {
        pair[0]
            .split_whitespace()
            .zip(pair[1].split_whitespace())
            .map(|(name, n)| format!("{name} {n}"))
    });
    let snmp6 = read("snmp6");
    let v6 = snmp6.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    v4.chain(v6).filter(|line| line.contains("InCsumErrors ") && !line.ends_with(" 0")).collect()
}
