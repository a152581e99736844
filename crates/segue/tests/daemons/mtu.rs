//! Accesses with a smaller MTU than their interface claims, from the start and in mid-flow.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use segue_lab::DemoNet;
use segue_linux::link::{Feature, set_feature};
use segue_linux::netns::Netns;
use serde_json::Value;

use crate::over_both;
use crate::traffic::{Stream, UdpEcho, any, correspondents, udp};
use crate::world::{Daemon, World, nft, path, paths_up};

over_both! { among_others:
    a_way_that_narrows_in_mid_flow_stops_no_connection_for_long
    servers_behind_an_anchor_that_forwarded_nothing_before_hear_what_the_paths_take
    connections_fit_the_tunnel_though_servers_hear_no_icmp
    both_ends_take_the_smaller_size_without_icmp_and_without_a_packet_filter
    a_way_down_that_narrowed_while_nobody_used_it_stops_no_download
    each_end_sends_what_every_path_takes
    an_access_too_narrow_for_ipv6_is_left_to_the_others
    a_router_that_says_what_it_takes_is_believed_once_it_was_tested
    another_mtu_of_an_interface_is_followed_in_mid_flow
    where_every_access_takes_1280_bytes_ipv4_goes_on
}

/// Longest acceptable stall of a connection.
pub(crate) const STUCK: Duration = Duration::from_secs(3);

/// Makes the router silently drop packets larger than `bytes` from or to the host's `access`.
pub(crate) fn narrow(world: &World, access: &str, bytes: u32) {
    narrow_ways(world, access, bytes, &["iifname", "oifname"]);
}

/// Like [`narrow`], for these directions: `iifname` is the host's uplink, `oifname` its downlink.
pub(crate) fn narrow_ways(world: &World, access: &str, bytes: u32, ways: &[&str]) {
    let router = world.net.router();
    // Disable offloads, so that packets reach the router at the length that they would have on a wire.
    for (node, device) in [(world.net.anchor(), "core"), (world.net.anchor(), "cn")] {
        let cut = || {
            [Feature::Tso, Feature::Gso, Feature::TxChecksum]
                .iter()
                .try_for_each(|f| set_feature(device, *f, false))
        };
        node.run(cut).unwrap().unwrap();
    }
    nft(router, "add table inet narrow");
    nft(router, "add chain inet narrow forward { type filter hook forward priority 0; }");
    for way in ways {
        nft(
            router,
            &format!("add rule inet narrow forward {way} {access} meta length > {bytes} drop"),
        );
    }
}

/// The MTU of a node's device.
pub(crate) fn device_mtu(node: &Netns, device: &str) -> u32 {
    let read = || segue_linux::link::links().unwrap();
    let links = node.run(read).unwrap();
    links.iter().find(|link| link.name == device).unwrap().mtu_bytes
}

/// The largest packet that the kernel of a node sends to an address.
pub(crate) fn route_mtu(node: &Netns, to: IpAddr) -> u32 {
    node.run(|| segue_linux::udp::path_mtu((to, 9).into()).unwrap()).unwrap()
}

fn mtu(status: &Value, name: &str) -> [u64; 2] {
    ["mtu_up", "mtu_down"].map(|key| path(status, name)[key].as_u64().unwrap_or(0))
}

/// Waits until `bytes` more have been echoed; returns the longest pause.
pub(crate) fn stands_still(stream: &Stream, bytes: u64) -> Duration {
    let (from, mut last) = (stream.echoed(), stream.echoed());
    let (mut since, mut longest) = (Instant::now(), Duration::ZERO);
    while last < from + bytes {
        std::thread::sleep(Duration::from_millis(5));
        let now = stream.echoed();
        longest = longest.max(since.elapsed());
        if now > last {
            (last, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(20), "nothing comes back any more");
    }
    longest
}

/// Waits until the host's paths have these packet sizes in both directions.
pub(crate) fn sizes(host: &Daemon, wifi: u64, lte: u64) {
    host.wait("the sizes", |status| {
        mtu(status, "wifi") == [wifi; 2] && mtu(status, "lte") == [lte; 2]
    });
}

fn a_way_that_narrows_in_mid_flow_stops_no_connection_for_long(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (_anchor, host) = world.running();
    let order = host.cli(&["handover", "--to", "wifi"]);
    assert!(order.status.success());
    let streams = correspondents().map(|ip| {
        let stream = Stream::start(world.net.host(), world.net.cn(), ip, Duration::from_millis(5));
        stream.flows_on(1 << 20);
        stream
    });
    narrow(&world, DemoNet::WIFI, 1_400);
    let longest = std::thread::scope(|scope| {
        let still = streams.each_ref().map(|stream| scope.spawn(|| stands_still(stream, 1 << 20)));
        still.map(|still| still.join().unwrap())
    });
    assert!(longest.iter().all(|still| *still < STUCK), "{longest:?}");
    sizes(&host, 1_400, 1_500);
    assert_eq!(paths_up(&host.status()), 2);
    assert!(!host.events("path_mtu", "wifi", 0).is_empty());
}

/// On a fresh machine the anchor enables forwarding itself, and forwarded packets then use a separate routing table.
fn servers_behind_an_anchor_that_forwarded_nothing_before_hear_what_the_paths_take(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    let switch_off = || {
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            segue_linux::link::sysctl(key, "0").unwrap();
        }
    };
    world.net.anchor().run(switch_off).unwrap();
    let (_anchor, host) = world.running();
    assert!(host.cli(&["handover", "--to", "wifi"]).status.success());
    let (at_host, cn) = (world.net.host(), world.net.cn());
    let streams = correspondents().map(|ip| {
        let stream = Stream::start(at_host, cn, ip, Duration::from_millis(5));
        stream.flows_on(1 << 20);
        stream
    });
    narrow(&world, DemoNet::WIFI, 1_400);
    let longest = std::thread::scope(|scope| {
        let still = streams.each_ref().map(|stream| scope.spawn(|| stands_still(stream, 1 << 20)));
        still.map(|still| still.join().unwrap())
    });
    assert!(longest.iter().all(|still| *still < STUCK), "{longest:?}");
    let (v4, v6) = crate::world::inner(&host.status());
    for to in [v4.into(), v6.into()] {
        assert_eq!(route_mtu(cn, to), 1_356, "{to}: the server was told");
    }
}

/// A machine behind the host, like a container: its connections leave with the host's addresses.
pub(crate) fn behind_the_host(world: &World) -> Netns {
    let name = format!("segue-box-{}-{}", std::process::id(), crate::world::tag());
    let (behind, at_host) = (Netns::create(&name).unwrap(), world.net.host());
    let ip = |node: &Netns, line: &str| {
        let output = node.command("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ip(at_host, &format!("link add box type veth peer name eth0 netns {name}"));
    for (node, device, end) in [(at_host, "box", 1), (&behind, "eth0", 2)] {
        ip(node, &format!("address add 172.17.0.{end}/24 dev {device}"));
        ip(node, &format!("address add fd17::{end}/64 dev {device} nodad"));
        ip(node, &format!("link set {device} up"));
    }
    ip(&behind, "route add default via 172.17.0.1");
    ip(&behind, "-6 route add default via fd17::1");
    let forward = || {
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            segue_linux::link::sysctl(key, "1").unwrap();
        }
    };
    at_host.run(forward).unwrap();
    nft(at_host, "add table inet box");
    nft(at_host, "add chain inet box leaving { type nat hook postrouting priority 100; }");
    nft(at_host, "add rule inet box leaving iifname box masquerade");
    behind
}

/// Makes the node ignore ICMP errors.
pub(crate) fn deafen(node: &Netns) {
    nft(node, "add table inet deaf");
    nft(node, "add chain inet deaf input { type filter hook input priority 0; }");
    nft(node, "add rule inet deaf input icmp type destination-unreachable drop");
    nft(node, "add rule inet deaf input icmpv6 type packet-too-big drop");
}

/// By itself the host's device would allow 1456 bytes; it adopts the anchor's 1436. The clamp's tables are deleted, so
/// nothing adjusts segment sizes.
fn both_ends_take_the_smaller_size_without_icmp_and_without_a_packet_filter(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    let (at_host, at_anchor, cn) = (world.net.host(), world.net.anchor(), world.net.cn());
    deafen(cn);
    let (_anchor, _host) = world.running();
    for node in [at_host, at_anchor] {
        nft(node, "delete table inet segue_clamp_segue0");
    }
    assert_eq!([at_host, at_anchor].map(|node| device_mtu(node, "segue0")), [1_436; 2]);
    for ip in correspondents() {
        Stream::start(at_host, cn, ip, Duration::ZERO).flows_on(1 << 20);
    }
}

/// If only IPv4 leads to the anchor, the anchor's MTU limits the tunnel rather than the host's, and the link of a
/// container has a larger MTU than the tunnel.
fn connections_fit_the_tunnel_though_servers_hear_no_icmp(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (at_host, cn) = (world.net.host(), world.net.cn());
    deafen(cn);
    let (_anchor, _host) = world.running();
    let behind = behind_the_host(&world);
    for node in [&behind, at_host] {
        for ip in correspondents() {
            Stream::start(node, cn, ip, Duration::ZERO).flows_on(1 << 20);
        }
    }
}

fn a_way_down_that_narrowed_while_nobody_used_it_stops_no_download(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (_anchor, host) = world.running();
    assert!(host.cli(&["handover", "--to", "wifi"]).status.success());
    sizes(&host, 1_500, 1_500);
    // Let the size tests end.
    std::thread::sleep(Duration::from_secs(4));
    narrow_ways(&world, DemoNet::WIFI, 1_400, &["oifname"]);
    let (at_host, cn) = (world.net.host(), world.net.cn());
    let stream = Stream::start(at_host, cn, DemoNet::CN.0.into(), Duration::from_millis(5));
    let still = stands_still(&stream, 1 << 20);
    assert!(still < STUCK, "{still:?}");
    host.wait("the size", |status| mtu(status, "wifi") == [1_500, 1_400]);
}

fn each_end_sends_what_every_path_takes(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    narrow(&world, DemoNet::WIFI, 1_400);
    let (_anchor, host) = world.running();
    sizes(&host, 1_400, 1_500);
    let (v4, v6) = crate::world::inner(&host.status());
    let (at_host, at_anchor) = (world.net.host(), world.net.anchor());
    crate::world::wait_for("both ends follow", || {
        device_mtu(at_host, "segue0") == 1_356
            && [v4.into(), v6.into()].into_iter().all(|to| route_mtu(at_anchor, to) == 1_356)
    });
    // A datagram that fits passes whole, and a larger one in fragments, in both directions.
    for ip in correspondents() {
        let echo = UdpEcho::start(world.net.cn(), ip);
        let socket = udp(at_host, any(ip));
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let headers = if ip.is_ipv4() { 28 } else { 48 };
        for bytes in [1_356 - headers, 1_357 - headers, 4_000] {
            socket.send_to(&vec![7; bytes], echo.address).unwrap();
            let mut buffer = [0; 5_000];
            let came = (0..20).find_map(|_| {
                let came = socket.recv(&mut buffer).ok();
                if came.is_none() {
                    socket.send_to(&vec![7; bytes], echo.address).unwrap();
                }
                came
            });
            assert_eq!(came, Some(bytes), "{ip}");
        }
        Stream::start(at_host, world.net.cn(), ip, Duration::ZERO).flows_on(1 << 20);
    }
}

fn an_access_too_narrow_for_ipv6_is_left_to_the_others(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    narrow(&world, DemoNet::WIFI, 1_280);
    let (_anchor, host) = world.running();
    sizes(&host, 1_280, 1_500);
    let (at_host, cn) = (world.net.host(), world.net.cn());
    assert_eq!(device_mtu(at_host, "segue0"), 1_436);
    for ip in correspondents() {
        let stream = Stream::start(at_host, cn, ip, Duration::ZERO);
        stream.flows_on(1 << 20);
        let text = stream.host.to_string();
        let flow = host.flow(&["tcp", &text]).unwrap();
        assert_eq!(flow["path"], "lte", "{flow:#}");
    }
    // As the only path, it carries IPv4.
    world.net.set_carrier(DemoNet::LTE, false).unwrap();
    host.wait("one path", |status| paths_up(status) == 1);
    let stream = Stream::start(at_host, cn, DemoNet::CN.0.into(), Duration::ZERO);
    stream.flows_on(1 << 20);
}

/// Not a common size: common sizes are found without a router's message, this one is not.
const ODD: u64 = 1_411;

fn a_router_that_says_what_it_takes_is_believed_once_it_was_tested(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (anchor, host) = world.running();
    sizes(&host, 1_500, 1_500);
    assert!(host.cli(&["handover", "--to", "wifi"]).status.success());
    // Set on the router's routes, so that the router sends "too big" messages to both sides.
    let router = world.net.router();
    for (family, to, via) in [
        ("-4", "10.61.1.0/24", DemoNet::WIFI),
        ("-6", "fd61:1::/64", DemoNet::WIFI),
        ("-4", "10.61.9.0/24", "core"),
        ("-6", "fd61:9::/64", "core"),
    ] {
        let mtu = ODD.to_string();
        // The metrics of the links' own routes, which the command replaces.
        let metric = if family == "-6" { "256" } else { "0" };
        let args = [family, "route", "replace", to, "dev", via, "metric", metric, "mtu", &mtu];
        let output = router.command("ip").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let streams = correspondents()
        .map(|ip| Stream::start(world.net.host(), world.net.cn(), ip, Duration::from_millis(5)));
    let longest = std::thread::scope(|scope| {
        let still = streams.each_ref().map(|stream| scope.spawn(|| stands_still(stream, 1 << 20)));
        still.map(|still| still.join().unwrap())
    });
    assert!(longest.iter().all(|still| *still < STUCK), "{longest:?}");
    host.wait("what the router says", |status| mtu(status, "wifi") == [ODD; 2]);
    drop(anchor);
}

fn another_mtu_of_an_interface_is_followed_in_mid_flow(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (_anchor, host) = world.running();
    assert!(host.cli(&["handover", "--to", "wifi"]).status.success());
    let streams = correspondents().map(|ip| {
        let stream = Stream::start(world.net.host(), world.net.cn(), ip, Duration::from_millis(5));
        stream.flows_on(1 << 20);
        stream
    });
    for own in [1_400, 1_280, 1_500] {
        let at_host = world.net.host();
        let set = || segue_linux::link::set_mtu(DemoNet::WIFI, own).unwrap();
        at_host.run(set).unwrap();
        let longest = std::thread::scope(|scope| {
            let still =
                streams.each_ref().map(|stream| scope.spawn(|| stands_still(stream, 1 << 20)));
            still.map(|still| still.join().unwrap())
        });
        assert!(longest.iter().all(|still| *still < STUCK), "{own}: {longest:?}");
        sizes(&host, own.into(), 1_500);
    }
}

fn where_every_access_takes_1280_bytes_ipv4_goes_on(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (_anchor, host) = world.running();
    let stream = Stream::start(
        world.net.host(),
        world.net.cn(),
        DemoNet::CN.0.into(),
        Duration::from_millis(5),
    );
    stream.flows_on(1 << 20);
    for device in [DemoNet::WIFI, DemoNet::LTE] {
        world.net.host().run(|| segue_linux::link::set_mtu(device, 1_280).unwrap()).unwrap();
    }
    assert!(stands_still(&stream, 1 << 20) < STUCK);
    sizes(&host, 1_280, 1_280);
}
