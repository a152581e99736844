//! Hosts beside other routing: several addresses on a link, deprecated addresses, default routes in other tables and
//! behind nexthop objects, and rules and routes of other VPNs.

use std::process::Output;
use std::time::{Duration, Instant};

use segue_lab::DemoNet;
use segue_linux::netns::Netns;
use serde_json::Value;

use crate::doctor::{doctor, expect};
use crate::over_both;
use crate::traffic::{UdpEcho, correspondents, one_datagram};
use crate::world::{
    Daemon, HOST_FILE, PATIENCE, World, path, paths_up, registered, text, wait_for,
};

over_both! { among_others:
    the_source_that_the_routes_prefer_is_used_and_not_the_lowest
    a_source_that_nobody_answers_is_left_for_the_next_and_a_configured_one_is_kept
    a_deprecated_address_serves_until_there_is_a_better_one
    default_routes_that_only_rules_lead_to_are_used
    default_routes_behind_nexthop_objects_are_used
    rules_of_other_tunnels_go_first
    routes_for_both_halves_of_the_internet_are_named
    the_operators_word_and_fail_closed_put_segue_before_other_tunnels
}

/// The settings of a family: the option of `ip`, the anchor's address, the host's addresses on Wi-Fi and LTE, the
/// routers, and an alias that sorts below all of these and is not routed.
struct Family {
    option: &'static str,
    anchor: String,
    own: [String; 2],
    routers: [&'static str; 2],
    alias: &'static str,
    length: u8,
}

fn families() -> [Family; 2] {
    let (wifi, lte, anchor) = (DemoNet::HOST_WIFI, DemoNet::HOST_LTE, DemoNet::ANCHOR);
    [
        Family {
            option: "-4",
            anchor: anchor.0.to_string(),
            own: [wifi.0.to_string(), lte.0.to_string()],
            routers: ["10.61.1.1", "10.61.2.1"],
            alias: "10.0.0.2",
            length: 24,
        },
        Family {
            option: "-6",
            anchor: anchor.1.to_string(),
            own: [wifi.1.to_string(), lte.1.to_string()],
            routers: ["fd61:1::1", "fd61:2::1"],
            alias: "fd00::2",
            length: 64,
        },
    ]
}

fn try_ip(node: &Netns, line: &str) -> Output {
    node.command("ip").args(line.split_whitespace()).output().unwrap()
}

#[track_caller]
fn ip(node: &Netns, line: &str) -> String {
    let done = try_ip(node, line);
    assert!(done.status.success(), "ip {line}: {}", text(&done.stderr));
    text(&done.stdout)
}

impl Family {
    fn alias(&self, node: &Netns) {
        let (option, alias, length) = (self.option, self.alias, self.length);
        let nodad = if length == 64 { "nodad" } else { "" };
        ip(node, &format!("{option} addr add {alias}/{length} dev wifi {nodad}"));
    }

    /// Starts a host that knows only the anchor's address of this family.
    fn host(&self, world: &World, anchor: &Daemon, name: &str, more: &str) -> Daemon {
        let done = anchor.cli(&["enroll", name, "--at", &self.anchor]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let config = format!("{more}\n{HOST_FILE}");
        world.host_in(world.net.host(), name, text(&done.stdout).trim(), &config)
    }
}

fn local(status: &Value, name: &str) -> String {
    let local = path(status, name)["local"].as_str().unwrap_or_default();
    local.to_owned()
}

fn both_up(status: &Value) -> bool {
    registered(status) && paths_up(status) == 2
}

/// The findings of `segue doctor` for a running host.
fn says(node: &Netns, world: &World, host: &Daemon, name: &str) -> Vec<(String, String, String)> {
    let (config, socket) = (world.path(&format!("{name}.toml")), host.socket());
    let args = ["-c", config.to_str().unwrap(), "--control", socket.to_str().unwrap()];
    doctor(node, &args).1
}

fn passes(world: &World) {
    for to in correspondents() {
        let echo = UdpEcho::start(world.net.cn(), to);
        one_datagram(world.net.host(), echo.address).expect("traffic passes");
    }
}

fn the_source_that_the_routes_prefer_is_used_and_not_the_lowest(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    for (number, family) in families().into_iter().enumerate() {
        family.alias(node);
        let name = format!("alias{number}");
        let host = family.host(&world, &anchor, &name, "");
        let status = host.wait("two paths up", both_up);
        assert_eq!(local(&status, "wifi"), family.own[0], "{status:#}");
        assert_eq!(path(&status, "wifi")["source"], "preferred");
        let text = format!("prefer to {}", family.alias);
        expect(&says(node, &world, &host, &name), "source", "ok", &text);
        passes(&world);
    }
}

fn a_source_that_nobody_answers_is_left_for_the_next_and_a_configured_one_is_kept(
    datapath: &'static str,
) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    for (number, family) in families().into_iter().enumerate() {
        let (option, own) = (family.option, &family.own[0]);
        family.alias(node);
        // The route prefers the alias, to which the router has no way back.
        let router = family.routers[0];
        let change = format!(
            "{option} route replace default via {router} dev wifi metric 100 src {}",
            family.alias
        );
        ip(node, &change);
        let name = format!("tried{number}");
        let mut host = family.host(&world, &anchor, &name, "");
        let status = host.wait("two paths up", both_up);
        assert_eq!(
            (local(&status, "wifi"), &path(&status, "wifi")["source"]),
            (own.clone(), &"tried".into())
        );
        let said = says(node, &world, &host, &name);
        expect(
            &said,
            "source",
            "ok",
            &format!("wifi: from {own}, {} was not answered", family.alias),
        );
        host.end(nix::sys::signal::Signal::SIGTERM);

        let began = Instant::now();
        let name = format!("configured{number}");
        let config = format!("[path.wifi]\nsource = {own:?}");
        let mut host = family.host(&world, &anchor, &name, &config);
        let status = host.wait("two paths up", both_up);
        println!("{datapath} {option}: with a configured source up after {:?}", began.elapsed());
        assert_eq!(
            (local(&status, "wifi"), &path(&status, "wifi")["source"]),
            (own.clone(), &"configured".into())
        );
        expect(&says(node, &world, &host, &name), "source", "ok", "as configured");
        let shown = text(&host.cli(&["status"]).stdout);
        assert!(shown.contains(&format!("wifi sends from {own}, as configured")), "{shown}");
        passes(&world);
        host.end(nix::sys::signal::Signal::SIGTERM);

        let name = format!("missing{number}");
        let config = "[path.wifi]\nsource = \"192.0.2.77\"\n[path.lte]\nsource = \"2001:db8::77\"";
        let host = family.host(&world, &anchor, &name, config);
        let which = ["wifi", "lte"][number];
        let one = |status: &Value| path(status, which).is_null() && paths_up(status) == 1;
        host.wait("the other path", one);
        let line = format!("path.{which}.source: {which} has no address");
        expect(&says(node, &world, &host, &name), "source", "todo", &line);
        assert!(host.log().contains(&line), "{}", host.log());
    }
}

fn a_deprecated_address_serves_until_there_is_a_better_one(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    let [_, family] = families();
    let own = &family.own[0];
    let wifi = |line: &str| ip(node, &format!("-6 addr {line} dev wifi"));
    wifi(&format!("change {own}/64 valid_lft forever preferred_lft 0"));
    assert!(ip(node, "-6 addr show dev wifi").contains("deprecated"));
    let host = family.host(&world, &anchor, "old", "");
    let status = host.wait("two paths up", both_up);
    assert_eq!(local(&status, "wifi"), *own);
    expect(
        &says(node, &world, &host, "old"),
        "source",
        "ok",
        "which is deprecated: there is no better one",
    );
    passes(&world);
    // An address that becomes deprecated also stays in use until a new one appears.
    wifi(&format!("change {own}/64 valid_lft forever preferred_lft forever"));
    wifi(&format!("change {own}/64 valid_lft forever preferred_lft 0"));
    std::thread::sleep(Duration::from_millis(500));
    let status = host.status();
    assert!(both_up(&status) && local(&status, "wifi") == *own, "{status:#}");
    assert_eq!(host.events("path_removed", "wifi", 0), Vec::<Value>::new());
    wifi("add fd61:1::77/64 nodad");
    host.wait("the better address", |status| {
        local(status, "wifi") == "fd61:1::77" && both_up(status)
    });
    passes(&world);
}

fn default_routes_that_only_rules_lead_to_are_used(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    for (number, family) in families().into_iter().enumerate() {
        let Family { option, own, routers, .. } = &family;
        let devices = ["wifi", "lte"];
        for at in 0..2 {
            let (device, router, table) = (devices[at], routers[at], 101 + at);
            ip(node, &format!("{option} route del default via {router} dev {device}"));
            ip(
                node,
                &format!("{option} route add default via {router} dev {device} table {table}"),
            );
            ip(node, &format!("{option} rule add from {} lookup {table} pref {table}", own[at]));
        }
        let name = format!("tables{number}");
        let host = family.host(&world, &anchor, &name, "");
        let status = host.wait("two paths up", both_up);
        assert_eq!([local(&status, "wifi"), local(&status, "lte")], *own);
        expect(&says(node, &world, &host, &name), "source", "ok", "by routing table 102");
        passes(&world);
        // Without its rule, a table is not used.
        ip(node, &format!("{option} rule del pref 102"));
        host.wait("one path", |status| path(status, "lte").is_null() && paths_up(status) == 1);
        let line = format!("ip rule add from {} lookup 102", own[1]);
        expect(&says(node, &world, &host, &name), "access", "todo", &line);
        assert!(host.log().contains(&line), "{}", host.log());
        ip(node, &format!("{option} rule add from {} lookup 102 pref 102", own[1]));
        host.wait("two paths again", both_up);
    }
}

fn default_routes_behind_nexthop_objects_are_used(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    if !try_ip(node, "nexthop list").status.success() {
        println!("skipped: no nexthop objects here");
        return;
    }
    for (number, family) in families().into_iter().enumerate() {
        let Family { option, routers, .. } = &family;
        for compatible in [true, false] {
            let key = format!("net.ipv4.nexthop_compat_mode={}", u8::from(compatible));
            assert!(node.command("sysctl").args(["-qw", &key]).status().unwrap().success());
            let devices = ["wifi", "lte"];
            for at in 0..2 {
                let (device, router, id) = (devices[at], routers[at], 11 + at);
                ip(node, &format!("{option} route del default metric {}", 100 * (at + 1)));
                let _ = try_ip(node, &format!("nexthop del id {id}"));
                ip(node, &format!("{option} nexthop add id {id} via {router} dev {device}"));
            }
            ip(node, &format!("{option} route add default nhid 11 metric 100"));
            let name = format!("objects{number}{compatible}");
            let mut host = family.host(&world, &anchor, &name, "");
            host.wait("one path", |status| registered(status) && paths_up(status) == 1);
            // Add the route while the host runs.
            ip(node, &format!("{option} route add default nhid 12 metric 200"));
            // Of several IPv4 routes behind nexthop objects, Linux returns only the best one when the lookup names an
            // interface.
            let (found, shown) = (option == &"-6", compatible);
            if found || shown && datapath == "ebpf" {
                host.wait("two paths", both_up);
            } else {
                let verdict = |lines: &[(String, String, String)]| {
                    let why =
                        if shown { "Linux does not find the route" } else { "nexthop_compat_mode" };
                    lines.iter().any(|(_, verdict, line)| verdict == "todo" && line.contains(why))
                };
                wait_for("the cause", || verdict(&says(node, &world, &host, &name)));
            }
            passes(&world);
            host.end(nix::sys::signal::Signal::SIGTERM);
        }
        // Remove the objects, and with them their routes.
        for id in [11, 12] {
            ip(node, &format!("nexthop del id {id}"));
        }
        for at in 0..2 {
            let (device, metric) = (["wifi", "lte"][at], 100 * (at + 1));
            ip(
                node,
                &format!(
                    "{option} route add default via {} dev {device} metric {metric}",
                    routers[at]
                ),
            );
        }
    }
}

/// The device by which an ordinary packet leaves.
fn leaves_by(node: &Netns, to: &str) -> String {
    let route = ip(node, &format!("route get {to}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap().to_owned()
}

#[track_caller]
fn soon(node: &Netns, to: &str, device: &str) {
    let began = Instant::now();
    while leaves_by(node, to) != device {
        assert!(
            began.elapsed() < PATIENCE,
            "{to}: {}\n{}",
            ip(node, &format!("route get {to}")),
            ip(node, "rule")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// For each family: a destination, the device of another program's tunnel, the prefix that it takes entirely, and a
/// prefix of selected destinations.
const OTHERS: [(&str, &str, &str, &str, &str); 2] = [
    ("-4", "198.51.100.1", "vpn4", "0.0.0.0/0", "100.64.0.0/10"),
    ("-6", "2001:db8:77::1", "vpn6", "::/0", "fd7a:115c:a1e0::/48"),
];
const VPNS: [&str; 2] = ["vpn4", "vpn6"];
const SEGUE0: [&str; 2] = ["segue0"; 2];

fn make_tunnels(node: &Netns) {
    for (option, device, own) in [("-4", "vpn4", "10.200.0.2/32"), ("-6", "vpn6", "fd99::2/128")] {
        ip(node, &format!("tuntap add mode tun {device}"));
        ip(node, &format!("link set {device} up"));
        ip(node, &format!("{option} addr add {own} dev {device}"));
    }
}

/// Sets up a tunnel for all traffic as wg-quick does, with priorities chosen by the kernel, or removes it.
fn take_everything(node: &Netns, on: bool) {
    for (option, _, device, ..) in OTHERS {
        if on {
            ip(node, &format!("{option} route replace default dev {device} table 51820"));
            ip(node, &format!("{option} rule add not fwmark 51820 table 51820"));
            ip(node, &format!("{option} rule add table main suppress_prefixlength 0"));
        } else {
            ip(node, &format!("{option} rule del not fwmark 51820 table 51820"));
            let rules = ip(node, &format!("{option} rule"));
            let own = |line: &&str| line.contains("suppress_prefix") && !line.contains("proto");
            let priority = rules.lines().find(own).unwrap().split(':').next().unwrap();
            ip(
                node,
                &format!("{option} rule del pref {priority} table main suppress_prefixlength 0"),
            );
        }
    }
}

/// Waits until packets of each family leave by these devices.
#[track_caller]
fn all_by(node: &Netns, devices: [&str; 2]) {
    for ((_, to, ..), device) in OTHERS.iter().zip(devices) {
        soon(node, to, device);
    }
}

fn rules_of_other_tunnels_go_first(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    make_tunnels(node);
    take_everything(node, true);
    let join = world.enroll(&anchor, "laptop");
    let host = world.host_in(node, "first", &join, HOST_FILE);
    host.wait("two paths up", both_up);
    all_by(node, VPNS);
    for (_, _, device, what, _) in OTHERS {
        let line = format!("{what} over {device}) of another program comes first");
        expect(&says(node, &world, &host, "first"), "routing", "todo", &line);
        assert!(host.log().contains(&line), "{}", host.log());
    }
    // Such a tunnel is not used as a path.
    assert_eq!(host.status()["paths"].as_array().unwrap().len(), 2);
    take_everything(node, false);
    all_by(node, SEGUE0);
    expect(&says(node, &world, &host, "first"), "routing", "ok", "no other program's tunnel");
    passes(&world);
    // A tunnel that starts after the host.
    take_everything(node, true);
    all_by(node, VPNS);
    take_everything(node, false);
    all_by(node, SEGUE0);
    // Tailscale, for example, routes only selected destinations.
    for (option, _, device, _, some) in OTHERS {
        ip(node, &format!("{option} route add {some} dev {device} table 52"));
        ip(node, &format!("{option} rule add pref 5270 table 52"));
    }
    soon(node, "100.100.1.1", "vpn4");
    soon(node, "fd7a:115c:a1e0::1", "vpn6");
    all_by(node, SEGUE0);
    let line = "rule 5270 (table 52: 100.64.0.0/10 over vpn4)";
    expect(&says(node, &world, &host, "first"), "routing", "ok", line);
}

fn routes_for_both_halves_of_the_internet_are_named(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, (_anchor, host)) = (world.net.host(), world.running());
    make_tunnels(node);
    let halves =
        [("-4", ["0.0.0.0/1", "128.0.0.0/1"], "vpn4"), ("-6", ["::/1", "8000::/1"], "vpn6")];
    for (option, [low, high], device) in halves {
        for half in [low, high] {
            ip(node, &format!("{option} route add {half} dev {device}"));
        }
        let line = format!("{low} over {device}, {high} over {device} in the main table");
        wait_for("a line about the halves", || host.log().contains(&line));
        expect(&says(node, &world, &host, "host"), "routing", "todo", &line);
    }
}

fn the_operators_word_and_fail_closed_put_segue_before_other_tunnels(datapath: &'static str) {
    let Some(world) = World::new(datapath) else { return };
    let (node, anchor) = (world.net.host(), world.anchor());
    make_tunnels(node);
    take_everything(node, true);
    let join = world.enroll(&anchor, "laptop");
    for (setting, says_why) in [
        ("priority = 4000", "gets nothing, since priority puts Segue first"),
        ("fail_closed = true", "gets nothing, since fail_closed comes first"),
    ] {
        let config = format!("{setting}\n{HOST_FILE}");
        let mut host = world.host_in(node, "first", &join, &config);
        host.wait("two paths up", both_up);
        all_by(node, SEGUE0);
        expect(&says(node, &world, &host, "first"), "routing", "todo", says_why);
        assert!(host.log().contains(says_why), "{}", host.log());
        if setting.starts_with("fail") {
            // A tunnel that starts later inserts its rules before all others.
            take_everything(node, false);
            take_everything(node, true);
            wait_for("a line", || host.log().contains("comes before fail_closed"));
        }
        host.end(nix::sys::signal::Signal::SIGTERM);
        let left = ["-4", "-6"].map(|option| ip(node, &format!("{option} rule"))).concat();
        assert!(!left.contains("proto 94") && !left.contains("24160"), "{left}");
    }
}
