//! Hosts at Proxy Mobile IPv6 gateways receive all their own packets and no others: when a second host arrives, when
//! hosts solicit without a link-layer address, when routes are wrong, and when the anchor has lost its state.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_wire::nd::Message;

use crate::doctor::{doctor, expect};
use crate::pmip::{Domain, FIRST, OTHER, binding, cn, example};
use crate::pmip_forged::{AtEnd, seen};
use crate::traffic::{Voice, udp};
use crate::world::{SEGUE, text, wait_for};

/// A gateway with `forward_all` sends every packet to the one host that it serves, since the anchor sends it no flow
/// information.
fn has_one_host(datapath: &'static str) {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty(datapath) else { return };
    domain.lma = Some(domain.start("lma", "lma", "flow_mobility_initiate = false\n"));
    domain.mags.insert("wlan1", domain.start("mag", "wlan1", "forward_all = true\n"));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    let first = domain.address("host", "wlan");
    let voice = Voice::start(domain.node("host"), domain.node("cn"), cn());
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let _ends = AtEnd(&stop);
        let seen = scope.spawn(|| seen(domain.node("other"), first, &stop));
        domain.attach("other:wlan", "wlan1");
        domain.mags["wlan1"].wait("the second host is refused", |status| {
            status["refused"]["second_host"].as_u64().unwrap_or(0) > 0
        });
        voice.flows_on(50);
        stop.store(true, Ordering::Relaxed);
        seen.join().unwrap()
    });
    let heard = voice.finish();
    assert_eq!((seen, heard.lost), (0, [0; 2]), "of {:?}", heard.sent);
    let status = domain.is_bound(FIRST, "fd00:2::2");
    assert!(binding(&status, OTHER).is_none(), "{status}");
    let status = domain.mags["wlan1"].status();
    assert_eq!((&status["host_count"], &status["hosts"][0]["llid"]), (&1.into(), &FIRST.into()));
    // Once the first host is no longer served, the second one is.
    assert!(domain.lma().cli(&["pmip", "revoke", "alice@example.org"]).status.success());
    domain.is_bound(OTHER, "fd00:2::2");
    domain.address("other", "wlan");
}

#[test]
fn a_gateway_that_forwards_everything_refuses_a_second_host() {
    has_one_host("ebpf");
}

#[test]
fn a_gateway_that_forwards_everything_refuses_a_second_host_in_user_space() {
    has_one_host("user");
}

/// Keeps a radio's system from soliciting routers.
fn solicits_nothing() {
    link::sysctl("net/ipv6/conf/wlan/router_solicitations", "0").unwrap();
}

/// A router solicitation without options.
fn solicitation(mac: [u8; 6], from: Ipv6Addr) -> Vec<u8> {
    let to: Ipv6Addr = "ff02::2".parse().unwrap();
    let message = Message::RouterSolicitation { options: Vec::new() }.emit_with_checksum(from, to);
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2(mac, [0x33, 0x33, 0, 0, 0, 2]).ipv6(
        from.octets(),
        to.octets(),
        255,
    );
    builder.write(&mut frame, etherparse::IpNumber::IPV6_ICMP, &message).unwrap();
    frame
}

/// The link-layer address and the link-local address of a node's radio.
fn station(node: &Netns) -> ([u8; 6], Ipv6Addr) {
    let links = node.run(link::links).unwrap().unwrap();
    let radio = links.into_iter().find(|link| link.name == "wlan").unwrap();
    let own = node.run(link::addresses).unwrap().unwrap().into_iter();
    let mut own = own.filter(|own| own.index == radio.index).map(|own| own.prefix.addr);
    let link_local = own.find_map(|address| match address {
        std::net::IpAddr::V6(address) => Some(address).filter(Ipv6Addr::is_unicast_link_local),
        std::net::IpAddr::V4(_) => None,
    });
    (radio.mac, link_local.unwrap())
}

/// Hosts whose systems do not solicit routers send solicitations without an option, one from its address and one from
/// the unspecified address.
fn is_answered_by_frame(datapath: &'static str) {
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::new(datapath, &[]) else { return };
    let content = std::fs::read_to_string(example("wlan1.toml")).unwrap();
    let content = content.replace("technology", "attach = \"solicitation\"\ntechnology");
    domain.mags.insert("wlan1", domain.start_with("mag", "wlan1", &content));
    for (name, llid, unspecified) in [("host", FIRST, false), ("other", OTHER, true)] {
        let node = domain.node(name);
        node.run(solicits_nothing).unwrap();
        domain.attach(&format!("{name}:wlan"), "wlan1");
        let (mac, link_local) = station(node);
        let from = if unspecified { Ipv6Addr::UNSPECIFIED } else { link_local };
        let mut socket = node.run(|| PacketSocket::open("wlan")).unwrap().unwrap();
        let frame = solicitation(mac, from);
        // The cell may take a moment before it carries frames.
        let (mut sent, mut frames) = (None::<Instant>, Vec::new());
        wait_for("a router advertisement", || {
            if sent.is_none_or(|sent| sent.elapsed() > Duration::from_secs(1)) {
                socket.send(&frame).unwrap();
                sent = Some(Instant::now());
            }
            let mut buffer = [0; 2_048];
            while socket.receive(&mut buffer).unwrap().is_some() {
                // ICMPv6, router advertisement.
                if buffer[20] == 58 && buffer[54] == 134 {
                    frames.push(<[u8; 6]>::try_from(&buffer[..6]).unwrap());
                }
            }
            !frames.is_empty()
        });
        println!("{datapath}: from {from} answered after {:?}", sent.unwrap().elapsed());
        assert!(frames.iter().all(|to| *to == mac), "{name}: {frames:?}");
        domain.is_bound(llid, "fd00:2::2");
        domain.address(name, "wlan");
    }
}

#[test]
fn a_solicitation_without_a_link_layer_address_is_answered_at_its_frames() {
    is_answered_by_frame("ebpf");
}

#[test]
fn a_solicitation_without_a_link_layer_address_is_answered_at_its_frames_in_user_space() {
    is_answered_by_frame("user");
}

#[test]
fn a_gateway_whose_anchor_is_behind_an_access_does_not_run() {
    const SAID: &str =
        "interface wlan1 is an access, and routes lead to the anchor fd00:1::1 over it";
    let _turn = crate::among_others();
    let Some(domain) = Domain::empty("user") else { return };
    domain.attach("other:wlan", "wlan1");
    let left = domain.node("left");
    let route = |what: &str| {
        let mut ip = left.command("ip");
        ip.args(["-6", "route", what, "fd00:1::1/128", "via", "fe80::1", "dev", "wlan1"]);
        assert!(ip.status().unwrap().success(), "{what}");
    };
    let file = example("wlan1.toml");
    let file = file.to_str().unwrap();
    let segue = |node: &Netns, args: &[&str]| {
        let output = node.command(SEGUE).args(args).output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
    };
    expect(&doctor(left, &["-c", file]).1, "anchor", "ok", "routes lead to fd00:1::1 over core");
    expect(&doctor(left, &["-c", file]).1, "access", "ok", "wlan1");
    assert_eq!(segue(left, &["check", file]).0, 0);

    let mut gateway = domain.start("mag", "wlan1", "");
    route("add");
    assert_eq!(gateway.ended().code(), Some(2));
    let log = gateway.log();
    let said: Vec<&str> = log.lines().filter(|line| line.contains(SAID)).collect();
    assert_eq!(said.len(), 1, "{log}");

    let (code, said) = segue(left, &["pmip", "mag", "-c", file]);
    assert_eq!((code, said.lines().count(), said.contains(SAID)), (2, 1, true), "{said}");
    let (code, said) = segue(left, &["check", file]);
    assert!(code != 0 && said.contains(SAID), "{code} {said}");
    // On other machines the check cannot judge the routes.
    assert_eq!(segue(domain.node("right"), &["check", file]).0, 0);
    expect(&doctor(left, &["-c", file]).1, "anchor", "todo", SAID);
    route("del");
    domain.start("mag", "wlan1", "");
}

/// The longest time in which a silent host misses its fifty datagrams per second, during `meanwhile` and for eight
/// seconds afterwards.
fn longest_silence(domain: &Domain, to: Ipv6Addr, meanwhile: impl FnOnce()) -> Duration {
    let near = udp(domain.node("host"), SocketAddr::new(to.into(), 0));
    let at = near.local_addr().unwrap();
    let far = udp(domain.node("cn"), SocketAddr::new(cn(), 0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = AtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = far.send_to(b"to a host that says nothing", at);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let hears = scope.spawn(|| {
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                if near.recv(&mut [0; 64]).is_ok() {
                    (longest, last) = (longest.max(last.elapsed()), Instant::now());
                }
            }
            longest.max(last.elapsed())
        });
        meanwhile();
        std::thread::sleep(Duration::from_secs(8));
        stop.store(true, Ordering::Relaxed);
        hears.join().unwrap()
    })
}

/// Kills the anchor and starts it without its state, while a host sends or only listens. By heartbeats alone, its
/// gateway would notice up to half a minute later.
fn forgets_everything(datapath: &'static str, silent: bool) {
    const BAR: Duration = Duration::from_secs(8);
    let _turn = crate::among_others();
    let Some(mut domain) = Domain::empty(datapath) else { return };
    let content = std::fs::read_to_string(example("lma.toml")).unwrap();
    // The anchor can only notify gateways that its file lists as single addresses.
    let one = if silent { "[\"fd00:2::2\"]" } else { "[\"fd00:2::/64\", \"fd00:3::/64\"]" };
    let content = content.replace("[\"fd00:2::/64\", \"fd00:3::/64\"]", one);
    domain.lma = Some(domain.start_with("lma", "lma", &content));
    domain.mags.insert("wlan1", domain.start("mag", "wlan1", ""));
    domain.attach("host:wlan", "wlan1");
    domain.is_bound(FIRST, "fd00:2::2");
    let address = domain.address("host", "wlan");
    // The gateway has just sent a heartbeat, so the next one is far off.
    std::thread::sleep(Duration::from_secs(2));
    let lma = domain.lma.take().unwrap();
    let start_again = |mut lma: crate::world::Daemon| {
        lma.end(Signal::SIGKILL);
        std::fs::remove_file(domain.dir.path().join("lma.db")).unwrap();
        domain.start_with("lma", "lma", &content)
    };
    let dead = if silent {
        let mut again = None;
        let dead = longest_silence(&domain, address, || again = Some(start_again(lma)));
        domain.lma = again;
        dead
    } else {
        let voice = Voice::start(domain.node("host"), domain.node("cn"), cn());
        voice.flows_on(10);
        voice.mark();
        let again = start_again(lma);
        voice.flows_on(25);
        domain.lma = Some(again);
        let dead = voice.gap_ms().into_iter().max().unwrap();
        drop(voice);
        Duration::from_millis(dead)
    };
    println!("{datapath}, silent {silent}: {dead:?} without service");
    assert!(dead < BAR, "{dead:?}");
    domain.is_bound(FIRST, "fd00:2::2");
    assert_eq!(domain.address("host", "wlan"), address);
}

#[test]
fn hosts_of_an_anchor_that_forgot_everything_have_service_soon() {
    forgets_everything("ebpf", false);
}

#[test]
fn hosts_of_an_anchor_that_forgot_everything_have_service_soon_in_user_space() {
    forgets_everything("user", false);
}

#[test]
fn silent_hosts_of_an_anchor_that_forgot_everything_have_service_soon() {
    forgets_everything("user", true);
}
