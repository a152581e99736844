//! A daemon restores rules, routes and addresses that other programs remove, as network managers
//! do.

use std::time::Instant;

use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::mtu::{narrow, route_mtu, sizes};
use crate::over_both;
use crate::traffic::{UdpEcho, correspondents, one_datagram};
use crate::world::{Daemon, PATIENCE, World, inner, inventory, paths_up, settled, wait_for};

over_both! { among_others:
    what_others_take_away_from_a_host_comes_back
    what_others_take_away_from_an_anchor_comes_back
    the_mtu_of_single_hosts_comes_back_with_what_others_took_away_from_an_anchor
    what_cannot_come_back_keeps_nothing_else_away
}

/// Runs `ip` or `sysctl` with these arguments.
fn run(node: &Netns, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let status = node.command(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Executes each deed, then waits until the daemon has logged once what it restored (it repeats a
/// line only after a minute) and the inventory is as before.
fn mended(node: &Netns, daemon: &Daemon, deeds: &[(&str, Option<&str>)]) {
    let before = settled(node);
    for (lines, told) in deeds {
        lines.split(';').for_each(|line| run(node, line));
        if let Some(told) = told {
            let line = format!("somebody {told}");
            let said = || daemon.log().lines().filter(|said| said.ends_with(&line)).count();
            wait_for(&line, || said() == 1);
        }
        let began = Instant::now();
        let differs = |now: &[String]| {
            let gone = before.iter().filter(|line| !now.contains(line)).cloned();
            let new = now.iter().filter(|line| !before.contains(line)).cloned();
            gone.chain(new).collect::<Vec<_>>()
        };
        while settled(node) != before {
            assert!(began.elapsed() < PATIENCE, "{lines}: {:#?}", differs(&settled(node)));
        }
    }
}

fn what_others_take_away_from_a_host_comes_back(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let node = world.net.host();
    let own = inner(&host.status());
    mended(
        node,
        &host,
        &[
            (
                "ip -4 rule del pref 5280;ip -6 rule del pref 5280;ip -4 rule del pref 5281",
                Some("removed routing rules that this daemon had set: put back"),
            ),
            (
                "ip -4 route flush table 24160;ip -6 route flush table 24160",
                Some("removed routes that this daemon had set: put back"),
            ),
            (
                &format!("ip addr del {}/128 dev segue0", own.1),
                Some("removed addresses that this daemon had set: put back"),
            ),
            ("ip link set segue0 down;ip link set segue0 up", None),
        ],
    );
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let (from, _) = one_datagram(node, echo.address).expect("through the tunnel again");
    assert_eq!(from.ip(), own.0);

    run(node, "ip link set segue0 down");
    wait_for("a word about it", || host.log().contains("segue0 is switched off"));
    drop(host);

    let line = world.enroll(&anchor, "laptop");
    let host = world.host_in(node, "closed", &line, "fail_closed = true\n");
    host.wait("two paths up", |status| paths_up(status) == 2);
    mended(
        node,
        &host,
        &[
            (
                "ip -6 rule del pref 5213;ip -6 rule del pref 5211",
                Some("removed routing rules that this daemon had set: put back"),
            ),
            (
                "ip -4 route flush table 24160;ip -6 route flush table 24160",
                Some("removed routes that this daemon had set: put back"),
            ),
        ],
    );
}

fn what_others_take_away_from_an_anchor_comes_back(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let node = world.net.anchor();
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        run(node, &format!("sysctl -qw {key}=0"));
    }
    let (anchor, host) = world.running();
    mended(
        node,
        &anchor,
        &[
            (
                "ip -4 rule del pref 5203;ip -6 rule del pref 5202;ip -6 rule del pref 5203",
                Some("removed routing rules that this daemon had set: put back"),
            ),
            (
                "ip -4 route flush dev segue0;ip -6 route flush table 24161",
                Some("removed routes that this daemon had set: put back"),
            ),
            (
                "sysctl -qw net.ipv4.ip_forward=0",
                Some("switched forwarding of IPv4 off: switched on again"),
            ),
            (
                "sysctl -qw net.ipv6.conf.all.forwarding=0",
                Some("switched forwarding of IPv6 off: switched on again"),
            ),
        ],
    );
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        let state = node.run(|| std::fs::read_to_string(format!("/proc/sys/{key}")).unwrap());
        assert_eq!(state.unwrap().trim(), "1", "{key}");
    }
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let (from, _) = one_datagram(world.net.host(), echo.address).expect("through the tunnel again");
    assert_eq!(from.ip(), inner(&host.status()).0);
}

fn the_mtu_of_single_hosts_comes_back_with_what_others_took_away_from_an_anchor(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    narrow(&world, DemoNet::WIFI, 1_400);
    let node = world.net.anchor();
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        run(node, &format!("sysctl -qw {key}=0"));
    }
    let (anchor, host) = world.running();
    sizes(&host, 1_400, 1_500);
    let own = inner(&host.status());
    let fits = || [own.0.into(), own.1.into()].iter().all(|to| route_mtu(node, *to) == 1_356);
    wait_for("the anchor follows", fits);
    mended(
        node,
        &anchor,
        &[
            (
                "ip -4 addr flush dev segue0",
                Some("removed addresses that this daemon had set: put back"),
            ),
            (
                &format!("ip -4 route del {}/32;ip -6 route del {}/128", own.0, own.1),
                Some("removed routes that this daemon had set: put back"),
            ),
            ("ip link set segue0 down;ip link set segue0 up", None),
        ],
    );
    assert!(fits());
}

fn what_cannot_come_back_keeps_nothing_else_away(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let node = world.net.anchor();
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        run(node, &format!("sysctl -qw {key}=0"));
    }
    let (anchor, _host) = world.running();
    // Compare only the daemon's state: these deeds remove state of other interfaces for good.
    let ours = || {
        let line = |line: &String| line.contains(" rule: ") || line.contains("inet6 fd07:");
        let route = |line: &String| line.contains(" route ") && line.contains(" dev segue0 ");
        let lasting = |l: &String| !l.contains("fe80:") && !l.contains("multicast ");
        let all = inventory(node).into_iter();
        all.filter(|l| (line(l) || route(l)) && lasting(l)).collect::<Vec<_>>()
    };
    let before = ours();
    let v4 = |all: &[String]| -> Vec<String> {
        all.iter()
            .filter(|line| !line.contains("ip -6 route") && !line.contains("inet6"))
            .cloned()
            .collect()
    };
    assert!(v4(&before).len() < before.len(), "{before:#?}");
    run(node, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
    wait_for("a word about it", || anchor.log().contains("IPv6 is switched off here"));
    run(node, "ip -4 rule del pref 5203");
    run(node, "ip -6 rule del pref 5203");
    run(node, "ip -4 route flush dev segue0");
    run(node, "sysctl -qw net.ipv4.ip_forward=0");
    wait_for("what is not of IPv6", || v4(&ours()) == v4(&before));
    let forwards = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    wait_for("forwarding", || node.run(forwards).unwrap().trim() == "1");
    run(node, "sysctl -qw net.ipv6.conf.all.disable_ipv6=0");
    wait_for("all of it", || ours() == before);
}
