//! A path between gateway and anchor of Proxy Mobile IPv6 that is narrower than the links at both ends.

use std::net::IpAddr;
use std::time::Duration;

use segue_linux::netns::Netns;
use serde_json::Value;

use crate::mtu::{STUCK, deafen, route_mtu, stands_still};
use crate::over_both;
use crate::pmip::{Domain, FIRST, cn};
use crate::pmip_ipv4;
use crate::traffic::{Stream, UdpEcho, any, udp};
use crate::world::{drops, text, wait_for};

over_both! { among_others:
    a_backhaul_that_narrows_in_mid_flow_stops_nothing_and_senders_are_told
    a_backhaul_that_is_narrow_from_the_start_is_advertised_and_segments_fit_it
    connections_fit_a_way_down_that_narrowed_though_servers_hear_no_icmp
    a_message_that_quotes_no_packet_of_a_tunnel_changes_nothing
}

/// Encapsulations and their overhead in bytes.
const FORMS: [(&str, u32); 4] = [("ip", 40), ("gre", 48), ("ip over IPv4", 20), ("udp", 28)];

fn start(datapath: &'static str, form: &str) -> Option<Domain> {
    start_at(datapath, form, "wlan1")
}

/// Starts a domain with a host attached to `access`.
pub(crate) fn start_at(datapath: &'static str, form: &str, access: &str) -> Option<Domain> {
    let over_v4 =
        |anchor, more| pmip_ipv4::domain(datapath, "\"10.2.0.2\", \"10.3.0.2\"", anchor, more);
    let domain = match form {
        "udp" => over_v4("accept_udp = true\n", "encapsulation = \"udp\"\n")?,
        "ip over IPv4" => over_v4("", "")?,
        _ => {
            let mut domain = Domain::empty(datapath)?;
            domain.lma = Some(domain.start("lma", "lma", ""));
            let more = format!("encapsulation = \"{form}\"\n");
            for access in ["wlan1", "wlan2"] {
                domain.mags.insert(access, domain.start("mag", access, &more));
            }
            domain
        }
    };
    domain.attach("host:wlan", access);
    let coa = coa_of(form).replacen('2', if access == "wlan1" { "2" } else { "3" }, 1);
    domain.is_bound(FIRST, &coa);
    domain.address("host", "wlan");
    Some(domain)
}

/// The registered address of the first gateway.
pub(crate) fn coa_of(form: &str) -> &'static str {
    if form == "udp" || form.ends_with("IPv4") { "10.2.0.2" } else { "fd00:2::2" }
}

pub(crate) fn ip(node: &Netns, line: &str) {
    let output = node.command("ip").args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

/// Makes the router between gateways and anchor refuse packets larger than `bytes`, with an ICMP error.
fn narrow(domain: &Domain, bytes: u32) {
    narrow_towards(domain, &["lma", "left"], bytes);
}

/// Like [`narrow`], for packets that leave the router by these devices.
pub(crate) fn narrow_towards(domain: &Domain, devices: &[&str], bytes: u32) {
    let core = domain.node("core");
    let addresses = core.run(|| segue_linux::link::addresses().unwrap()).unwrap();
    for device in devices {
        let index = core.run(|| segue_linux::link::index_of(device).unwrap()).unwrap();
        let own = addresses.iter().filter(|address| address.index == index);
        for to in own.map(|address| address.prefix.network()) {
            // The metrics of the links' own routes, which the command replaces.
            let (family, metric) = if to.addr.is_ipv6() { ("-6", "256") } else { ("-4", "0") };
            let line =
                format!("{family} route replace {to} dev {device} metric {metric} mtu {bytes}");
            ip(core, &line);
        }
    }
}

fn tunnel_mtu(status: &Value) -> u64 {
    let tunnels = status["tunnels"].as_array().unwrap();
    tunnels.iter().filter_map(|tunnel| tunnel["mtu"].as_u64()).min().unwrap_or(0)
}

fn a_backhaul_that_narrows_in_mid_flow_stops_nothing_and_senders_are_told(datapath: &'static str) {
    for (form, overhead) in FORMS {
        let Some(domain) = start(datapath, form) else { return };
        let (host, far) = (domain.node("host"), domain.node("cn"));
        let own: IpAddr = domain.address("host", "wlan").into();
        let echo = UdpEcho::start(far, cn());
        let stream = Stream::start(host, far, cn(), Duration::from_millis(2));
        stream.flows_on(1 << 20);
        assert_eq!(tunnel_mtu(&domain.lma().status()), u64::from(1_500 - overhead), "{form}");
        narrow(&domain, 1_400);
        let still = stands_still(&stream, 1 << 20);
        assert!(still < STUCK, "{form}: {still:?}");
        println!("{datapath}, {form}: {still:?}");
        let inner = 1_400 - overhead;
        let status = domain.lma().wait("the anchor learns it", |status| {
            tunnel_mtu(status) == u64::from(inner) && drops(status, "too_big") > 0
        });
        assert!(status["drops"]["too_big"].as_u64().unwrap() < 1_000, "{status}");
        wait_for("both ends are told", || {
            (route_mtu(host, cn()), route_mtu(far, own)) == (inner, inner)
        });
        // Datagrams that fit pass whole, and larger ones in fragments, in both directions.
        let socket = udp(host, any(cn()));
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        for bytes in [inner - 48, inner - 47, 4_000].map(|bytes| bytes as usize) {
            let mut buffer = [0; 5_000];
            let came = (0..20).find_map(|_| {
                let _ = socket.send_to(&vec![7; bytes], echo.address);
                socket.recv(&mut buffer).ok()
            });
            assert_eq!(came, Some(bytes), "{form}");
        }
    }
}

fn a_backhaul_that_is_narrow_from_the_start_is_advertised_and_segments_fit_it(
    datapath: &'static str,
) {
    let Some(domain) = start(datapath, "ip") else { return };
    // As with PPPoE, the gateway's own link is narrow, and so is the router's link towards it.
    for (node, device) in [("left", "core"), ("core", "left")] {
        ip(domain.node(node), &format!("link set {device} mtu 1400"));
    }
    let (host, far) = (domain.node("host"), domain.node("cn"));
    wait_for("the host is told", || route_mtu(host, cn()) == 1_360);
    // No packet that is too large reaches the anchor either.
    deafen(far);
    Stream::start(host, far, cn(), Duration::from_millis(2)).flows_on(1 << 20);
    assert_eq!(drops(&domain.lma().status(), "too_big"), 0);
    // A larger MTU is adopted again.
    for (node, device) in [("left", "core"), ("core", "left")] {
        ip(domain.node(node), &format!("link set {device} mtu 1500"));
    }
    wait_for("the host is told", || route_mtu(host, cn()) == 1_452);
}

/// Neither end of a connection learns the size: the anchor clamps the segment sizes that they announce.
fn connections_fit_a_way_down_that_narrowed_though_servers_hear_no_icmp(datapath: &'static str) {
    let Some(domain) = start(datapath, "ip") else { return };
    let (host, far) = (domain.node("host"), domain.node("cn"));
    narrow_towards(&domain, &["left"], 1_400);
    // The anchor learns the size from the first packet that is too large.
    let echo = UdpEcho::start(far, cn());
    let socket = udp(host, any(cn()));
    domain.lma().wait("the anchor learns it", |status| {
        socket.send_to(&[7; 1_400], echo.address).unwrap();
        tunnel_mtu(status) == 1_360
    });
    assert_eq!(route_mtu(host, cn()), 1_452, "the way up is as wide as ever");
    deafen(far);
    let own: IpAddr = domain.address("host", "wlan").into();
    ip(far, "-6 route flush cache");
    assert_eq!(route_mtu(far, own), 1_500, "the server knows nothing");
    let from = Stream::start(host, far, cn(), Duration::from_millis(2));
    let to = Stream::start(far, host, own, Duration::from_millis(2));
    for stream in [from, to] {
        let still = stands_still(&stream, 1 << 20);
        assert!(still < STUCK, "{still:?}");
    }
}

fn a_message_that_quotes_no_packet_of_a_tunnel_changes_nothing(datapath: &'static str) {
    let Some(domain) = start(datapath, "ip") else { return };
    let quote = |from: &str, to: &str, next: u8| {
        let [from, to] = [from, to].map(|a| a.parse::<std::net::Ipv6Addr>().unwrap().octets());
        let head = [&[0x60, 0, 0, 0, 5, 0xb0, next, 64][..], &from, &to].concat();
        [&[2, 0, 0, 0, 0, 0, 5, 0x78][..], &head, &[0x60; 48]].concat()
    };
    let send = |message: &[u8]| {
        let sent = domain.node("core").run(|| {
            let (kind, protocol) = (socket2::Type::RAW, socket2::Protocol::ICMPV6);
            let socket = socket2::Socket::new(socket2::Domain::IPV6, kind, Some(protocol)).unwrap();
            let to: std::net::SocketAddr = "[fd00:1::1]:0".parse().unwrap();
            socket.send_to(message, &to.into()).unwrap();
        });
        sent.unwrap();
    };
    let size = || tunnel_mtu(&domain.lma().status());
    for (from, to, next) in [
        ("fd00:1::1", "fd00:2::99", 41),
        ("fd00:1::9", "fd00:2::2", 41),
        ("fd00:2::2", "fd00:1::1", 41),
        ("fd00:1::1", "fd00:2::2", 47),
        ("fd00:1::1", "fd00:2::2", 58),
    ] {
        send(&quote(from, to, next));
    }
    // The messages are read in order, and none may have an effect.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((size(), drops(&domain.lma().status(), "too_big")), (1_460, 0));
    send(&quote("fd00:1::1", "fd00:2::2", 41));
    domain.lma().wait("one that does", |status| tunnel_mtu(status) == 1_360);
}
