//! From enrolment to traffic, and the leftovers of each way to end a daemon.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::over_both;
use crate::traffic::{Stream, UdpEcho, correspondents, one_datagram};
use crate::world::{Daemon, World, inner, inventory, paths_up, registered, settled, wait_for};

over_both! { among_others:
    an_enrolled_host_joins_and_carries_tcp_and_udp_of_both_families
    a_signal_leaves_nothing_behind
    a_killed_daemon_leaves_nothing_in_the_way_and_the_next_start_cleans_up
    an_anchor_that_comes_and_goes_beside_a_host_leaves_its_routing_rules_alone
    a_daemon_that_stood_still_says_what_changed_and_little_else
}

fn an_enrolled_host_joins_and_carries_tcp_and_udp_of_both_families(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let status = host.status();
    assert!(status["datapath"].as_str().unwrap().starts_with(datapath), "{status:#}");
    let (v4, v6) = inner(&status);
    let told = anchor.status()["hosts"][0].clone();
    assert_eq!((&told["name"], &told["connected"]), (&"laptop".into(), &true.into()));
    assert_eq!(told["inner"], status["inner"]);
    for ip in correspondents() {
        let own = if ip.is_ipv4() { v4.to_string() } else { v6.to_string() };
        let echo = UdpEcho::start(world.net.cn(), ip);
        let (from, rtt) =
            one_datagram(world.net.host(), echo.address).expect("the first packet is not lost");
        println!("{datapath}: first datagram over {ip} and back in {rtt:?}");
        assert_eq!(from.ip().to_string(), own);
        let port = format!(":{}", from.port());
        wait_for("the flow over wifi at both ends", || {
            [&host, &anchor].iter().all(|daemon| {
                let flow = daemon.flow(&[&own, &port]).expect("the flow is shown");
                flow["path"] == "wifi" && flow["via"].is_null()
            })
        });
        let flow = host.flow(&[&own, &port]).expect("the flow is shown");
        assert!(!flow["why"].as_str().unwrap().is_empty(), "{flow:#}");
        assert!(flow["packets"].as_u64() >= Some(1), "{flow:#}");
        let stream = Stream::start(world.net.host(), world.net.cn(), ip, Duration::ZERO);
        assert_eq!(stream.host.ip().to_string(), own);
        println!("{datapath}: 1 MB over TCP and {ip} echoed in {:?}", stream.flows_on(1 << 20));
    }
    for daemon in [&host, &anchor] {
        let status = daemon.status();
        let role = &status["role"];
        assert_eq!(status["drops"], serde_json::json!({}), "nothing was refused by the {role}");
    }
}

fn a_signal_leaves_nothing_behind(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let nodes = [world.net.host(), world.net.anchor()];
    let before = nodes.map(settled);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut anchor, mut host) = world.running();
        let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
        one_datagram(world.net.host(), echo.address).expect("traffic passes");
        assert_ne!(inventory(nodes[0]), before[0]);
        assert_ne!(inventory(nodes[1]), before[1]);
        assert!(host.end(signal).success(), "{signal}");
        let status = anchor.wait("the host has left", |s| s["hosts"] == serde_json::json!([]));
        assert_eq!(status["paths"], serde_json::json!([]));
        assert!(anchor.end(signal).success(), "{signal}");
        for (node, before) in nodes.iter().zip(&before) {
            assert_eq!(&inventory(node), before, "after {signal}");
        }
        assert!(!host.socket().exists() && !anchor.socket().exists(), "after {signal}");
    }
}

fn a_killed_daemon_leaves_nothing_in_the_way_and_the_next_start_cleans_up(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let before = settled(world.net.host());
    let anchor = world.anchor();
    let join = world.enroll(&anchor, "laptop");
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let up = |host: &Daemon| {
        host.wait("registered with paths", |s| registered(s) && crate::world::paths_up(s) == 2)
    };
    let mut host = world.host(&join);
    let first = inner(&up(&host));
    one_datagram(world.net.host(), echo.address).expect("traffic passes");
    host.end(Signal::SIGKILL);
    // Without the tunnel, ordinary routes lead to the correspondent.
    let (from, _) = one_datagram(world.net.host(), echo.address).expect("plain traffic passes");
    assert_eq!(from.ip(), segue_lab::DemoNet::HOST_WIFI.0);
    let mut host = world.host(&join);
    assert_eq!(inner(&up(&host)), first);
    let (from, _) = one_datagram(world.net.host(), echo.address).expect("the tunnel again");
    assert_eq!(from.ip(), first.0);
    assert!(host.end(Signal::SIGTERM).success());
    assert_eq!(inventory(world.net.host()), before);

    let mut anchor = anchor;
    let host = world.host(&join);
    up(&host);
    anchor.end(Signal::SIGKILL);
    drop(host);
    one_datagram(world.net.host(), echo.address).expect("through the dead anchor's node");
    let anchor = world.anchor();
    let host = world.host(&join);
    assert_eq!(inner(&up(&host)), first);
    one_datagram(world.net.host(), echo.address).expect("the tunnel again");
    assert_eq!(anchor.status()["hosts"][0]["name"], "laptop");
}

fn an_anchor_that_comes_and_goes_beside_a_host_leaves_its_routing_rules_alone(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    let node = world.net.host();
    // The anchor's rules have the priorities 5200 to 5204.
    let rules = || -> Vec<String> {
        let all = inventory(node).into_iter().filter(|line| line.contains(" rule: "));
        all.filter(|line| !line.contains(" rule: 520")).collect()
    };
    let bare = rules();
    let (_anchor, host) = world.running();
    let before = rules();
    assert_eq!(before.len(), bare.len() + 4, "two of each family: {before:#?}");
    let config = world.file(
        "beside.toml",
        "device = \"segue1\"\nport = 5105\nsignal_port = 5106\npool_v4 = \"10.78.0.0/24\"\n\
         pool_v6 = \"fd5e:67e1::/64\"\n",
    );
    let state = world.path("beside.db");
    let args =
        ["anchor", "--datapath", datapath, "-c", &config, "--state", state.to_str().unwrap()];
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut beside = Daemon::start(node, world.path("beside"), &args);
        beside.wait("the anchor beside the host answers", |_| true);
        assert_eq!(rules(), before, "while it runs");
        beside.end(signal);
        assert_eq!(rules(), before, "after {signal}");
    }
    let echo = UdpEcho::start(world.net.cn(), correspondents()[0]);
    let (from, _) = one_datagram(node, echo.address).expect("the host goes on");
    assert_eq!(from.ip(), inner(&host.status()).0);
}

/// How long the daemon is stopped by SIGSTOP.
const STOP: Duration = Duration::from_secs(20);
/// Maximum number of log lines for the outage that this causes and its end, with two paths and
/// their classes of flows.
const LINES: usize = 25;

fn a_daemon_that_stood_still_says_what_changed_and_little_else(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    let streams = correspondents()
        .map(|ip| Stream::start(world.net.host(), world.net.cn(), ip, Duration::from_millis(5)));
    let flow_on = || streams.iter().map(|stream| stream.flows_on(100_000)).max();
    flow_on();
    for stopped in [&host, &anchor] {
        let lines = || [&host, &anchor].map(|daemon| daemon.log().lines().count());
        let before = lines();
        stopped.signal(Signal::SIGSTOP);
        std::thread::sleep(STOP);
        stopped.signal(Signal::SIGCONT);
        flow_on();
        for daemon in [&host, &anchor] {
            daemon.wait("two paths up", |status| paths_up(status) == 2);
        }
        std::thread::sleep(Duration::from_secs(2));
        let after = lines();
        let said = [0, 1].map(|end| after[end] - before[end]);
        println!("{datapath}: lines of host and anchor: {said:?}");
        let all = || format!("{}\nthe anchor:\n{}", host.log(), anchor.log());
        assert!(said.iter().all(|lines| *lines <= LINES), "{said:?} {}", all());
    }
    drop(streams);
}
