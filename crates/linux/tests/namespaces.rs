//! Namespaces, devices, addresses, routes and rules against the running kernel.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use segue_ip::{Forward, Forwarding, Prefix, Route, Rule, Then};
use segue_linux::Kernel;
use segue_linux::link::{self, Feature};
use segue_linux::neighbour;
use segue_linux::netns::{self, Netns};

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

fn name(node: &str) -> String {
    format!("segue-t{}-{node}", std::process::id())
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two namespaces joined by a veth pair with addresses of both families.
fn pair(tag: &str) -> (Netns, Netns) {
    let left = Netns::create(&name(&format!("{tag}l"))).unwrap();
    let right = Netns::create(&name(&format!("{tag}r"))).unwrap();
    left.run(|| link::create_veth("sg0", "sg1", Some(&right)).unwrap()).unwrap();
    for (ns, dev, host) in [(&left, "sg0", 1), (&right, "sg1", 2)] {
        ns.run(|| {
            link::add_address(dev, prefix(&format!("10.61.77.{host}/24"))).unwrap();
            link::add_address(dev, prefix(&format!("fd61:77::{host}/64"))).unwrap();
            link::set_up(dev, true).unwrap();
        })
        .unwrap();
    }
    (left, right)
}

#[test]
fn datagrams_of_both_families_cross_a_veth_pair_between_two_namespaces() {
    if !root() {
        return;
    }
    let (left, right) = pair("a");
    for (from, to) in [("10.61.77.1", "10.61.77.2"), ("fd61:77::1", "fd61:77::2")] {
        let from: IpAddr = from.parse().unwrap();
        let to: IpAddr = to.parse().unwrap();
        let server = right.run(|| UdpSocket::bind((to, 5005)).unwrap()).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let client = left.run(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
        client.send_to(b"through", (to, 5005)).unwrap();
        let mut buffer = [0; 16];
        let (len, peer) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], peer.ip()), (&b"through"[..], from));
    }
}

#[test]
fn a_dropped_namespace_is_gone_and_an_opened_one_is_left_alone() {
    if !root() {
        return;
    }
    let name = name("drop");
    let made = Netns::create(&name).unwrap();
    drop(Netns::open(&name).unwrap());
    assert_eq!(netns::list_with_prefix(&name), [name.as_str()]);
    assert!(Netns::create(&name).is_err(), "a taken name is refused");
    drop(made);
    assert!(netns::list_with_prefix(&name).is_empty());
    assert!(Netns::open(&name).is_err());
}

/// A router namespace between two others, whose addresses share a prefix.
fn middle(tag: &str) -> [Netns; 3] {
    let ends = [
        Netns::create(&name(&format!("{tag}0"))).unwrap(),
        Netns::create(&name(&format!("{tag}1"))).unwrap(),
    ];
    let middle = Netns::create(&name(&format!("{tag}m"))).unwrap();
    for (end, n) in ends.iter().zip(0..) {
        let port = format!("sgm{n}");
        middle.run(|| link::create_veth(&port, "sg0", Some(end)).unwrap()).unwrap();
        middle.run(|| link::set_up(&port, true).unwrap()).unwrap();
        end.run(|| {
            link::add_address("sg0", prefix(&format!("10.61.77.{}/24", n + 1))).unwrap();
            link::add_address("sg0", prefix(&format!("fd61:77::{}/64", n + 1))).unwrap();
            link::set_up("sg0", true).unwrap();
        })
        .unwrap();
    }
    middle
        .run(|| {
            link::sysctl("net.ipv4.ip_forward", "1").unwrap();
            link::sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
            link::add_address("sgm0", prefix("10.61.78.1/24")).unwrap();
        })
        .unwrap();
    let [first, second] = ends;
    [first, middle, second]
}

/// Sends datagrams from the first to the second namespace until one arrives (true) or the time is over (false).
fn crosses(first: &Netns, second: &Netns, from: &str, to: &str, within: Duration) -> bool {
    let [from, to] = [from, to].map(ip);
    let server = second.run(|| UdpSocket::bind((to, 5005)).unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let client = first.run(|| UdpSocket::bind((from, 0)).unwrap()).unwrap();
    let until = std::time::Instant::now() + within;
    while std::time::Instant::now() < until {
        // Without a neighbour entry, this call may return the error of the previous one.
        let _ = client.send_to(b"across", (to, 5005));
        if server.recv_from(&mut [0; 16]).is_ok() {
            return true;
        }
    }
    false
}

#[test]
fn addresses_that_a_router_answers_for_are_reached_through_it_until_they_are_taken_back() {
    if !root() {
        return;
    }
    let [first, router, second] = middle("p");
    let index = |device: &str| router.run(|| link::index_of(device).unwrap()).unwrap();
    let ways = [index("sgm0"), index("sgm1")];
    let put = |part: Forward| router.run(|| Kernel.put(&part).unwrap()).unwrap();
    for (from, to) in [("10.61.77.1", "10.61.77.2"), ("fd61:77::1", "fd61:77::2")] {
        let ends = [from, to].map(ip);
        for (address, way) in ends.into_iter().zip(ways) {
            put(Forward::Route(Route::on(Prefix::host(address), way)));
        }
        let across = |within| crosses(&first, &second, from, to, Duration::from_secs(within));
        assert!(!across(1), "{to} before anybody answers for it");
        let proxies = [0, 1].map(|n: usize| (ways[n], ends[1 - n]));
        for (interface, address) in [proxies[0], proxies[1], proxies[1]] {
            put(Forward::Proxy { interface, address });
        }
        let listed = || router.run(|| neighbour::proxies().unwrap()).unwrap();
        assert!(proxies.iter().all(|proxy| listed().contains(proxy)), "{:?}", listed());
        assert!(across(20), "{to}");
        for (interface, address) in [proxies[0], proxies[1], proxies[1]] {
            let part = Forward::Proxy { interface, address };
            router.run(|| Kernel.take_back(&part).unwrap()).unwrap();
        }
        assert!(listed().is_empty(), "{:?}", listed());
        let device = first.run(|| link::index_of("sg0").unwrap()).unwrap();
        first.run(|| neighbour::forget(device, ends[1]).unwrap()).unwrap();
        assert!(!across(1), "{to} afterwards");
    }
    let nowhere = Forward::Proxy { interface: 9999, address: ip("fd61:77::9") };
    assert!(router.run(|| Kernel.put(&nowhere).is_err()).unwrap());
}

#[test]
fn what_is_forwarded_takes_the_table_of_the_interface_that_it_came_by() {
    if !root() {
        return;
    }
    let [first, router, second] = middle("i");
    let index = |device: &str| router.run(|| link::index_of(device).unwrap()).unwrap();
    let ways = [index("sgm0"), index("sgm1")];
    for (v6, from, to, gateway) in [
        (false, "10.61.77.1", "10.62.0.1", "10.61.77.2"),
        (true, "fd61:77::1", "fd62::1", "fd61:77::2"),
    ] {
        let route = Route::on(Prefix::host(ip(from)), ways[0]);
        let onward = Route::via(prefix(if v6 { "fd62::/64" } else { "10.62.0.0/24" }), ip(gateway));
        let link_of_gateway = Route::on(Prefix::host(ip(gateway)), ways[1]);
        let inside = |ns: &Netns, part: Forward| ns.run(|| Kernel.put(&part).unwrap()).unwrap();
        inside(&router, Forward::Route(route));
        inside(&router, Forward::Route(link_of_gateway));
        inside(&router, Forward::Route(onward.index(ways[1]).table(77)));
        let lo = second
            .run(|| {
                link::set_up("lo", true).unwrap();
                link::index_of("lo").unwrap()
            })
            .unwrap();
        inside(&second, Forward::Address { interface: lo, prefix: Prefix::host(ip(to)) });
        // The router is the first end's gateway. It answers for its own address without a proxy entry.
        let router_address = if v6 { "fd61:77::99" } else { "10.61.77.99" };
        let own = Forward::Address { interface: ways[0], prefix: Prefix::host(ip(router_address)) };
        inside(&router, own);
        inside(&first, Forward::Route(Route::via(Prefix::default_of(v6), ip(router_address))));
        let across = |within| crosses(&first, &second, from, to, Duration::from_secs(within));
        let rule = |iif: &str| Rule {
            v6,
            priority: 700,
            table: 77,
            iif: Some(iif.to_owned()),
            ..Rule::default()
        };
        inside(&router, Forward::Rule(rule("sgm1")));
        assert!(!across(1), "{to}: by another interface");
        inside(&router, Forward::Rule(rule("sgm0")));
        assert!(across(20), "{to}: by the interface of the rule");
        router.run(|| Kernel.take_back(&Forward::Rule(rule("sgm0"))).unwrap()).unwrap();
        assert!(!across(1), "{to}: afterwards");
        let bound = Rule { oif: Some("sgm1".to_owned()), iif: None, ..rule("") };
        inside(&router, Forward::Rule(bound.clone()));
        assert!(router.run(|| link::rules().unwrap()).unwrap().contains(&bound));
        assert!(!across(1), "{to}: nothing that is forwarded is bound");
    }
}

#[test]
fn a_command_runs_inside_the_namespace() {
    if !root() {
        return;
    }
    let (left, _right) = pair("c");
    let mut command = left.command("cat");
    let mut child = command.arg("/proc/self/net/dev").stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    assert!(text.contains("sg0:"), "{text}");
    assert!(link::index_of("sg0").is_err(), "the test's own namespace must not have it");
}

#[test]
fn addresses_routes_and_rules_are_read_back_as_they_were_set_and_deleted() {
    if !root() {
        return;
    }
    let (left, _right) = pair("r");
    left.run(|| {
        let index = link::index_of("sg0").unwrap();
        let all = link::addresses().unwrap();
        for text in ["10.61.77.1/24", "fd61:77::1/64"] {
            let found = all.iter().find(|a| a.prefix == prefix(text) && a.index == index);
            assert!(found.is_some_and(|a| a.usable && !a.link_local), "{text}: {all:?}");
        }
        for (dst, via, table) in [
            ("0.0.0.0/0", "10.61.77.2", 254),
            ("10.9.0.0/16", "10.61.77.2", 1000),
            ("::/0", "fd61:77::2", 254),
            ("fd99::/32", "fd61:77::2", 1000),
        ] {
            let gateway: IpAddr = via.parse().unwrap();
            let route = Route::via(prefix(dst), gateway).table(table).metric(77).index(index);
            link::add_route(&route).unwrap();
            assert!(link::add_route(&route).is_err(), "the same route twice");
            link::replace_route(&route).unwrap();
            assert!(link::routes().unwrap().contains(&route), "{route:?} {:?}", link::routes());
            link::delete_route(&route).unwrap();
            assert!(!link::routes().unwrap().contains(&route), "{route:?}");
        }
        for v6 in [false, true] {
            let marked = Rule {
                v6,
                priority: 5210,
                table: 5005,
                fwmark: Some(0x5e9),
                invert: true,
                ..Rule::default()
            };
            let suppressed = Rule {
                v6,
                priority: 5209,
                table: 254,
                suppress_prefix_length: Some(0),
                ..Rule::default()
            };
            let from = prefix(if v6 { "fd61:77::/48" } else { "10.61.0.0/16" });
            let sourced =
                Rule { v6, priority: 5208, table: 5005, from: Some(from), ..Rule::default() };
            let on = Rule { v6, priority: 5207, then: Then::Nothing, ..Rule::default() };
            let iif = Some("lo".to_owned());
            let (priority, then) = (5206, Then::Goto(5207));
            let skipped = Rule { v6, priority, then, iif, invert: true, ..Rule::default() };
            let sunk =
                Rule { v6, priority: 5205, then: Then::Unreachable, to: Some(from), ..on.clone() };
            let prohibited = Rule { priority: 5204, then: Then::Prohibit, ..sunk.clone() };
            for rule in [marked, suppressed, sourced, on, skipped, sunk, prohibited] {
                link::add_rule(&rule).unwrap();
                assert!(link::rules().unwrap().contains(&rule), "{:?}", link::rules());
                assert!(!link::add_missing_rule(&rule).unwrap());
                link::delete_rule(&rule).unwrap();
                assert!(!link::rules().unwrap().contains(&rule));
                assert!(link::is_gone(&link::delete_rule(&rule).unwrap_err()));
                assert!(link::add_missing_rule(&rule).unwrap());
                // The kernel takes the inverted rule for the same one and keeps only one of them.
                let opposite = Rule { invert: !rule.invert, ..rule.clone() };
                let refused = link::add_missing_rule(&opposite).unwrap_err();
                assert_eq!(refused.errno(), Some(Errno::EEXIST), "{rule:?}");
                link::delete_rule(&rule).unwrap();
            }
        }
        link::delete_address("sg0", prefix("10.61.77.1/24")).unwrap();
        assert!(!link::addresses().unwrap().iter().any(|a| a.prefix == prefix("10.61.77.1/24")));
    })
    .unwrap();
}

#[test]
fn link_local_addresses_of_both_families_are_told_from_the_others() {
    if !root() {
        return;
    }
    let (left, _right) = pair("s");
    left.run(|| {
        for (text, link_local) in [
            ("169.254.7.7/16", true),
            ("fe80::7/64", true),
            ("192.0.2.7/24", false),
            ("2001:db8::7/64", false),
        ] {
            link::add_address("sg0", prefix(text)).unwrap();
            let all = link::addresses().unwrap();
            let found = all.iter().find(|a| a.prefix == prefix(text));
            assert_eq!(found.map(|a| a.link_local), Some(link_local), "{text}: {all:?}");
        }
    })
    .unwrap();
}

#[test]
fn mtu_state_features_and_sysctls_take_effect() {
    if !root() {
        return;
    }
    let (left, _right) = pair("m");
    left.run(|| {
        link::set_mtu("sg0", 1400).unwrap();
        let get = || link::links().unwrap().into_iter().find(|l| l.name == "sg0").unwrap();
        assert_eq!((get().mtu_bytes, get().up), (1400, true));
        link::set_up("sg0", false).unwrap();
        assert!(!get().up);
        use Feature::{Gro, Gso, RxChecksum, Tso, TxChecksum};
        for feature in [Tso, Gso, Gro, TxChecksum, RxChecksum] {
            link::set_feature("sg0", feature, false).unwrap();
            link::set_feature("sg0", feature, feature != RxChecksum).unwrap();
        }
        link::sysctl("net.ipv4.ip_forward", "1").unwrap();
        assert_eq!(std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap(), "1\n");
        assert!(link::sysctl("net.ipv4.no_such", "1").is_err());
        link::delete("sg0").unwrap();
        assert!(link::index_of("sg0").is_err());
    })
    .unwrap();
}

#[test]
fn a_device_whose_peer_has_another_index_shows_each_loss_of_its_carrier_at_once() {
    if !root() {
        return;
    }
    let near = Netns::create(&name("nn")).unwrap();
    let far = Netns::create(&name("nf")).unwrap();
    // If device and peer had the same index, the kernel would check the carrier at most once a second.
    far.run(|| link::create_veth_numbered("sg1", 1_000_007, "sg0", Some(&near)).unwrap()).unwrap();
    far.run(|| assert_eq!(link::index_of("sg1").unwrap(), 1_000_007)).unwrap();
    let mac = [2, 0, 0, 0, 0, 9];
    let running = || {
        let links = near.run(|| link::links().unwrap()).unwrap();
        let own = links.into_iter().find(|link| link.name == "sg0").unwrap();
        assert_eq!(own.mac, mac);
        own.running
    };
    near.run(|| link::set_mac("sg0", mac).unwrap()).unwrap();
    near.run(|| link::set_up("sg0", true).unwrap()).unwrap();
    let begin = std::time::Instant::now();
    for up in [true, false].repeat(5) {
        far.run(|| link::set_up("sg1", up).unwrap()).unwrap();
        while running() != up {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("ten changes within {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn what_waits_for_a_neighbour_that_does_not_answer_is_dropped_when_that_is_forgotten() {
    if !root() {
        return;
    }
    let (left, right) = pair("n");
    let index = left.run(|| link::index_of("sg0").unwrap()).unwrap();
    let entries = || {
        let all = left.command("ip").args(["neighbour", "show", "dev", "sg0"]).output().unwrap();
        String::from_utf8(all.stdout).unwrap()
    };
    for (silent, set) in [("10.61.77.9", "10.61.77.8"), ("fd61:77::9", "fd61:77::8")] {
        let [silent, set]: [IpAddr; 2] = [silent, set].map(|text| text.parse().unwrap());
        let any = if silent.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = left.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        for _ in 0..10 {
            socket.send_to(&[0; 500], (silent, 5005)).unwrap();
        }
        let waiting = || unsent(&socket);
        assert!(waiting() > 5_000, "{} bytes wait for {silent}", waiting());
        let by_hand = format!("neighbour add {set} dev sg0 lladdr 02:00:00:00:00:01 nud permanent");
        let added = left.command("ip").args(by_hand.split(' ')).status().unwrap();
        assert!(added.success());
        left.run(|| {
            for address in [silent, set, "192.0.2.1".parse().unwrap()] {
                neighbour::forget(index, address).unwrap();
            }
        })
        .unwrap();
        assert_eq!(waiting(), 0, "{}", entries());
        let left_over = entries();
        assert!(left_over.contains(&format!("{set} ")), "an operator's stays: {left_over}");
    }
    drop(right);
}

/// Bytes in the socket's send queue.
fn unsent(socket: &UdpSocket) -> i32 {
    let mut bytes = 0;
    // SAFETY: the kernel writes one `int`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0);
    bytes
}
