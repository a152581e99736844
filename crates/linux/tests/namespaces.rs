//! Namespaces, devices, addresses, routes and rules against the running kernel.

#![expect(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use segue_ip::{Prefix, Route, Rule, Then};
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
                // The kernel takes its opposite for the same rule, and keeps only one.
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

/// Bytes of a socket that have not left the machine.
fn unsent(socket: &UdpSocket) -> i32 {
    let mut bytes = 0;
    // SAFETY: the kernel writes one `int`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0);
    bytes
}
