//! A router advertisement reaches only the station that it is sent to. Needs root.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use segue_ip::Datagram;
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::station::Stations;

const ROUTER: &str = "fe80::200:5eff:fe00:5213";

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn namespace(node: &str) -> Netns {
    Netns::create(&format!("segue-t{}-st{node}", std::process::id())).unwrap()
}

/// A router advertisement with one autoconfiguration prefix (RFC 4861, 4.2 and 4.6.2).
fn advertisement(interface: u32, prefix: Ipv6Addr) -> Datagram {
    let (from, to) = (ip(ROUTER), ip("ff02::1"));
    let mut bytes = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08, 0, 0, 0, 0]);
    bytes.extend(prefix.octets());
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 0, 0, bytes.len() as u8, 0, 0, 0, 58]];
    let words = pseudo.concat().into_iter().chain(bytes.iter().copied()).collect::<Vec<u8>>();
    let words = words.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    bytes[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
    let (from, to) = ((from.into(), 0), (to.into(), 0));
    Datagram {
        waited_ns: 0,
        interface: Some(interface),
        from,
        to,
        protocol: 58,
        hop_limit: 255,
        bytes,
    }
}

/// Whether a station has an address with this prefix.
fn has(station: &Netns, prefix: Ipv6Addr) -> bool {
    let inside = |addr: IpAddr| match addr {
        IpAddr::V6(addr) => addr.segments()[..4] == prefix.segments()[..4],
        IpAddr::V4(_) => false,
    };
    let all = station.run(|| link::addresses().unwrap()).unwrap();
    all.iter().any(|address| inside(address.prefix.addr))
}

#[test]
fn one_station_of_a_link_takes_an_advertisement_for_all_nodes_and_the_other_does_not() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: needs root");
    }
    let (switch, router) = (namespace("s"), namespace("r"));
    let stations = [namespace("a"), namespace("b")];
    let bridge = |words: &str| {
        let mut command = switch.command("ip");
        assert!(command.args(words.split_whitespace()).status().unwrap().success(), "ip {words}");
    };
    bridge("link add sgbr type bridge mcast_snooping 0");
    bridge("link set sgbr up");
    let ends = [&router, &stations[0], &stations[1]];
    for (end, port) in ends.into_iter().zip(["sgp0", "sgp1", "sgp2"]) {
        switch.run(|| link::create_veth(port, "sgst", Some(end)).unwrap()).unwrap();
        bridge(&format!("link set {port} master sgbr"));
        bridge(&format!("link set {port} up"));
        end.run(|| {
            link::sysctl("net.ipv6.conf.sgst.accept_dad", "0").unwrap();
            link::sysctl("net.ipv6.conf.sgst.accept_ra", "1").unwrap();
            link::set_up("sgst", true).unwrap();
        })
        .unwrap();
    }
    let macs = stations.each_ref().map(|station| {
        let links = station.run(|| link::links().unwrap()).unwrap();
        links.into_iter().find(|link| link.name == "sgst").unwrap().mac
    });
    let interface = router.run(|| link::index_of("sgst").unwrap()).unwrap();
    let socket = router.run(|| Stations::open().unwrap()).unwrap();
    let prefixes = [ip("fd61:80:1::"), ip("fd61:80:2::")];
    for ((station, mac), prefix) in stations.iter().zip(macs).zip(prefixes) {
        let until = Instant::now() + Duration::from_secs(20);
        while !has(station, prefix) {
            assert!(Instant::now() < until, "{prefix} is not configured");
            // The first advertisements may be lost because the bridge port does not forward yet.
            socket.send(mac, &advertisement(interface, prefix)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // Each station configured only its own prefix. All advertisements to the first preceded those to the second.
    assert!(!has(&stations[0], prefixes[1]) && !has(&stations[1], prefixes[0]));
    let nowhere = Datagram { interface: None, ..advertisement(interface, prefixes[0]) };
    assert!(socket.send(macs[0], &nowhere).is_err());
}
