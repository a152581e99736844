//! What enrolled hosts can reach, and what neighbours can reach outside the tunnel.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;
use segue_linux::netns::Netns;

use crate::over_both;
use crate::several::Two;
use crate::traffic::{UdpEcho, any, one_datagram, udp};
use crate::world::{Daemon, drops, inner, inventory, settled, text, wait_for};

over_both! { among_others:
    hosts_reach_what_is_routed_and_ping_the_anchor_and_nothing_else
    what_is_sent_to_a_host_that_is_away_opens_no_way_to_it
    an_anchors_settings_say_what_hosts_reach
    plain_packets_past_the_tunnel_are_dropped
    an_anchor_forwards_for_its_hosts_and_for_nobody_else
}

/// Whether an echo service answers.
fn answers(from: &Netns, to: SocketAddr) -> bool {
    let socket = udp(from, any(to.ip()));
    socket.connect(to).unwrap();
    (0..3).any(|_| {
        let _ = socket.send(b"anybody there");
        socket.recv(&mut [0; 32]).is_ok()
    })
}

/// Whether an ICMP echo request is answered.
pub(crate) fn pings(from: &Netns, to: IpAddr) -> bool {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let (family, protocol, kind) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8u8),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128),
    };
    let raw = from.run(|| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap());
    let socket = UdpSocket::from(raw.unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // Echo request, identifier 0x5e60, number 1; the kernel computes the ICMPv6 checksum.
    let mut request = [kind, 0, 0, 0, 0x5e, 0x60, 0, 1];
    let sum = !(0x0800u16 + 0x5e60 + 1);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    (0..3).any(|_| {
        let _ = socket.send_to(&request, SocketAddr::new(to, 0));
        let mut buffer = [0; 128];
        (0..4).any(|_| {
            let Ok(len) = socket.recv(&mut buffer) else { return false };
            let at = if to.is_ipv4() { 20 } else { 0 };
            let reply = if to.is_ipv4() { 0 } else { 129 };
            len >= at + 8 && buffer[at] == reply && buffer[at + 4..at + 6] == [0x5e, 0x60]
        })
    })
}

fn addresses(daemon: &Daemon) -> [IpAddr; 2] {
    let (v4, v6) = inner(&daemon.status());
    [v4.into(), v6.into()]
}

fn hosts_reach_what_is_routed_and_ping_the_anchor_and_nothing_else(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let (a, b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let cn = UdpEcho::start(two.node("cn"), "10.61.3.2".parse().unwrap());
    one_datagram(two.node("a"), cn.address).expect("what is routed");
    let mut refused = 0;
    for ((of_b, of_anchor), of_a) in
        addresses(&b).into_iter().zip(addresses(&anchor)).zip(addresses(&a))
    {
        let at_b = UdpEcho::start(two.node("b"), of_b);
        let at_anchor = UdpEcho::start(two.node("anchor"), of_anchor);
        assert!(!answers(two.node("a"), at_b.address), "{of_b}: another host");
        assert!(!pings(two.node("a"), of_b), "{of_b}: another host, by ICMP");
        assert!(!answers(two.node("a"), at_anchor.address), "{of_anchor}: the anchor's services");
        assert!(pings(two.node("a"), of_anchor), "{of_anchor}: the anchor, by ICMP");
        let status = anchor.wait("counted", |status| drops(status, "not_allowed") >= refused + 9);
        refused = drops(&status, "not_allowed");
        assert_eq!(drops(&b.status(), "inner_destination"), 0);
        // A host may answer flows that others open.
        let at_a = UdpEcho::start(two.node("a"), of_a);
        let began = one_datagram(two.node("anchor"), at_a.address);
        assert!(began.is_some(), "begun by the anchor: {:#} {:#}", anchor.status(), a.status());
    }
}

/// A host sends to the address of another host before that host arrives, and continues the flow once it is there.
fn what_is_sent_to_a_host_that_is_away_opens_no_way_to_it(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let (a, mut b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let (own_a, own_b) = (addresses(&a), addresses(&b));
    assert!(b.end(Signal::SIGTERM).success());
    anchor.wait("b has left", |status| status["hosts"].as_array().unwrap().len() == 1);
    let flows = own_a.into_iter().zip(own_b).map(|(own_a, own_b)| {
        let socket = udp(two.node("a"), SocketAddr::new(own_a, 40_000));
        socket.connect(SocketAddr::new(own_b, 9_000)).unwrap();
        socket
    });
    let flows: Vec<UdpSocket> = flows.collect();
    let send = |n: u64| {
        for flow in &flows {
            // Retry once: the first send may report an ICMP error caused by the previous datagram.
            (0..2).any(|_| flow.send(b"for b alone").is_ok());
        }
        anchor.wait("refused", |status| drops(status, "not_allowed") >= n);
    };
    send(2);
    let b = two.again("b");
    assert_eq!(addresses(&b), own_b);
    let receivers = own_b.map(|own| udp(two.node("b"), SocketAddr::new(own, 9_000)));
    send(4);
    for receiver in receivers {
        assert!(receiver.recv(&mut [0; 32]).is_err(), "{datapath}: to {receiver:?}");
    }
    assert!(anchor.flow(&[":9000"]).is_none(), "nothing was learned");
}

fn an_anchors_settings_say_what_hosts_reach(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let settings = "reach_hosts = true\nreach_anchor = \"all\"\nreach_routed = false\n";
    let anchor = two.anchor_with(settings);
    let (_a, b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    for (of_b, of_anchor) in addresses(&b).into_iter().zip(addresses(&anchor)) {
        for (node, address) in [("b", of_b), ("anchor", of_anchor)] {
            let echo = UdpEcho::start(two.node(node), address);
            wait_for("an answer", || answers(two.node("a"), echo.address));
        }
    }
    let cn = UdpEcho::start(two.node("cn"), "10.61.3.2".parse().unwrap());
    assert!(!answers(two.node("a"), cn.address), "what is routed");
}

fn ip(node: &Netns, arguments: &str) -> String {
    let done = node.command("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// The link-local address of a device.
fn link_local(node: &Netns, device: &str) -> String {
    let shown = ip(node, &format!("-6 -o addr show dev {device} scope link"));
    let words: Vec<&str> = shown.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "inet6").expect("a link-local address");
    words[at + 1].split('/').next().unwrap().to_owned()
}

/// Packets dropped by a node's guard, on either datapath.
fn past_tunnel(daemon: &Daemon, node: &Netns) -> u64 {
    let listed = node.command("nft").args(["list", "ruleset"]).output().unwrap();
    let listed = text(&listed.stdout);
    let packets = listed.split("counter packets ").skip(1);
    let by_nft: u64 = packets.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum();
    drops(&daemon.status(), "past_tunnel") + by_nft
}

fn plain_packets_past_the_tunnel_are_dropped(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let (a, b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let ends = addresses(&a).into_iter().zip(addresses(&b));
    for (of_a, of_b) in ends {
        let family = if of_a.is_ipv4() { "-4" } else { "-6" };
        let receiver = udp(two.node("a"), SocketAddr::new(of_a, 9_000));
        let spoofed = |node: &str, source: Option<IpAddr>| {
            let source = source.map_or(any(of_a), |source| SocketAddr::new(source, 0));
            let socket = udp(two.node(node), source);
            for _ in 0..5 {
                socket.send_to(b"past the tunnel", receiver.local_addr().unwrap()).unwrap();
            }
        };
        // A neighbour on the host's access link, in this case the anchor's machine.
        let via = match of_a {
            IpAddr::V4(_) => "10.61.1.2".to_owned(),
            IpAddr::V6(_) => link_local(two.node("a"), "up0"),
        };
        let node = two.node("anchor");
        ip(node, &format!("{family} route add {of_a} via {via} dev a table 77"));
        ip(node, &format!("{family} rule add ipproto udp dport 9000 lookup 77 priority 100"));
        let before = past_tunnel(&a, two.node("a"));
        spoofed("anchor", None);
        assert!(receiver.recv(&mut [0; 32]).is_err(), "{datapath}: {of_a} from a neighbour");
        wait_for("counted at the host", || past_tunnel(&a, two.node("a")) >= before + 5);
        ip(node, &format!("{family} rule del priority 100"));
        // An attacker behind the anchor uses another host's address.
        let far = two.node("cn");
        let length = if of_b.is_ipv4() { 32 } else { 128 };
        ip(far, &format!("addr add {of_b}/{length} dev lo"));
        if of_a.is_ipv6() {
            let via = link_local(node, "cn");
            ip(far, &format!("-6 route add {of_a} via {via} dev up0"));
        }
        let before = past_tunnel(&anchor, node);
        wait_for("a usable address", || far.run(|| UdpSocket::bind((of_b, 0)).is_ok()).unwrap());
        spoofed("cn", Some(of_b));
        assert!(receiver.recv(&mut [0; 32]).is_err(), "{datapath}: {of_a} in the name of {of_b}");
        wait_for("counted at the anchor", || past_tunnel(&anchor, node) >= before + 5);
        // The same attack from an unassigned address of the pool.
        let nobodys: IpAddr =
            if of_a.is_ipv4() { "10.77.9.9" } else { "fd5e:67e0::909" }.parse().unwrap();
        ip(far, &format!("addr add {nobodys}/{length} dev lo"));
        wait_for("a usable address", || far.run(|| UdpSocket::bind((nobodys, 0)).is_ok()).unwrap());
        let before = past_tunnel(&anchor, node);
        spoofed("cn", Some(nobodys));
        assert!(
            receiver.recv(&mut [0; 32]).is_err(),
            "{datapath}: {of_a} in the name of {nobodys}"
        );
        wait_for("counted at the anchor", || past_tunnel(&anchor, node) >= before + 5);
    }
}

/// An nftables guard left by a crash would drop packets without the knowledge of the new datapath.
#[test]
fn a_start_over_ebpf_removes_the_guard_that_a_crash_in_user_space_left() {
    let _turn = crate::among_others();
    let Some(mut two) = Two::new("user") else { return };
    let mut anchor = two.anchor();
    let mut host = two.host(&anchor, 1, "a");
    let guards = |two: &Two| {
        ["anchor", "a"].map(|name| {
            let listed = two.node(name).command("nft").args(["list", "tables"]).output().unwrap();
            text(&listed.stdout).contains("segue_past_")
        })
    };
    assert_eq!(guards(&two), [true; 2]);
    host.end(Signal::SIGKILL);
    anchor.end(Signal::SIGKILL);
    assert_eq!(guards(&two), [true; 2]);
    two.datapath = "ebpf";
    let _anchor = two.anchor();
    let _host = two.again("a");
    assert_eq!(guards(&two), [false; 2]);
}

/// Whether packets of a family are forwarded in a node.
fn forwards(node: &Netns, v6: bool) -> bool {
    let key = if v6 { "ipv6/conf/all/forwarding" } else { "ipv4/ip_forward" };
    let read = || std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
    node.run(read).unwrap().trim() == "1"
}

fn forward(node: &Netns, on: bool) {
    let write = |key: &str| {
        std::fs::write(format!("/proc/sys/net/{key}"), if on { "1" } else { "0" }).unwrap();
    };
    node.run(|| ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].into_iter().for_each(write))
        .unwrap();
}

/// Adds IPv6 to the networks of `b` and `cn`, with the anchor as their router.
fn with_ipv6(two: &Two) {
    for (net, node) in [(2, "b"), (3, "cn")] {
        ip(two.node("anchor"), &format!("-6 addr add fd61:{net}::1/64 dev {node} nodad"));
        ip(two.node(node), &format!("-6 addr add fd61:{net}::2/64 dev up0 nodad"));
        ip(two.node(node), &format!("-6 route add default via fd61:{net}::1 dev up0"));
    }
    // Hosts send through the tunnel only what the anchor has a route for.
    ip(two.node("anchor"), "-6 route add default via fd61:3::2 dev cn");
}

/// Here `b` is not a host but an outsider on an access link that tries to use the anchor as a router.
fn an_anchor_forwards_for_its_hosts_and_for_nobody_else(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    with_ipv6(&two);
    let node = two.node("anchor");
    let echoes = ["10.61.3.2", "fd61:3::2"]
        .map(|of_cn| UdpEcho::start(two.node("cn"), of_cn.parse().unwrap()));
    let passes = |wanted: bool, when: &str| {
        for echo in &echoes {
            let passed = || answers(two.node("b"), echo.address);
            let way = format!("{datapath}, {when}: from b to {}", echo.address);
            if wanted {
                // A neighbour solicitation sent before the neighbour listens is repeated after a second.
                wait_for(&way, passed);
            } else {
                assert!(!passed(), "{way}");
            }
        }
    };
    // A machine that already forwarded keeps forwarding.
    passes(true, "a router");
    let mut anchor = two.anchor();
    passes(true, "a router with an anchor");
    assert!(anchor.end(Signal::SIGTERM).success());
    passes(true, "a router after an anchor");

    forward(node, false);
    passes(false, "no router");
    // As on virtual routers, the rule that looks up local addresses has a low priority.
    for family in ["-4", "-6"] {
        ip(node, &format!("{family} rule add priority 30000 lookup local"));
        ip(node, &format!("{family} rule del priority 0"));
    }
    let before = settled(node);
    let mut anchor = two.anchor();
    let mut host = two.host(&anchor, 1, "a");
    let works = |anchor: &Daemon, host: &Daemon, when: &str| {
        passes(false, when);
        for (of_a, echo) in addresses(host).into_iter().zip(&echoes) {
            one_datagram(two.node("a"), echo.address).expect("a host's own");
            let at_a = UdpEcho::start(two.node("a"), of_a);
            one_datagram(two.node("cn"), at_a.address).expect("begun by the correspondent");
            one_datagram(node, at_a.address).expect("begun by the anchor");
        }
        assert!(forwards(node, false) && forwards(node, true), "{}", anchor.log());
    };
    works(&anchor, &host, "an anchor");
    // The next start recognizes and removes the leftovers of a crash.
    host.end(Signal::SIGTERM);
    anchor.end(Signal::SIGKILL);
    passes(false, "a crashed anchor");
    let mut anchor = two.anchor();
    let mut host = two.again("a");
    works(&anchor, &host, "an anchor after a crash");
    host.end(Signal::SIGTERM);
    assert!(anchor.end(Signal::SIGTERM).success());
    assert!(!forwards(node, false) && !forwards(node, true));
    assert_eq!(inventory(node), before);
    let mut anchor = two.anchor();
    anchor.end(Signal::SIGKILL);
    let mut clean = node.command(crate::world::SEGUE);
    let said = clean.args(["clean", "--control"]).arg(anchor.socket()).output().unwrap();
    let said = text(&said.stdout);
    assert!(said.contains("10 routing rules"), "{said}");
    assert!(!forwards(node, false) && !forwards(node, true));
    assert_eq!(inventory(node), before);
}
