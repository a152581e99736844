//! The monitor against the kernel, in a network namespace of the test. Skipped without root.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use segue_ip::{Datagram, DownReason, LinkEvent, Route};
use segue_linux::link;
use segue_linux::monitor::{Change, Device, Monitor, RouterOptions, physical_candidates};
use segue_linux::raw::{ICMPV6, RawSocket};
use segue_linux::route::way_over;

#[test]
fn devices_addresses_and_routes_are_reported_as_they_come_and_go() {
    apart(come_and_go);
}

#[test]
fn each_loss_and_return_of_a_carrier_is_told_before_the_list_that_shows_it() {
    apart(carrier);
}

#[test]
fn links_that_flap_unwatched_are_told_of_each_time_and_a_flood_of_routes_displaces_none() {
    apart(unwatched);
}

#[test]
fn after_more_flaps_than_the_kernel_keeps_events_still_alternate_and_end_in_the_truth() {
    apart(overflow);
}

#[test]
fn a_translators_prefix_that_a_router_advertises_is_told_with_its_interface() {
    apart(advertised);
}

/// Runs a scenario in a network namespace that ends with its thread, so that a failed test leaves nothing behind.
fn apart<F: Future<Output = ()>>(scenario: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            eprintln!("skipped: a new network namespace needs root");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(scenario());
    });
    thread.join().unwrap();
}

async fn carrier() {
    ip("link add sgmon type veth peer name sgpeer");
    ip("link set sgmon up");
    ip("link set sgpeer up");
    let mut monitor = Monitor::new().await.unwrap();
    wait(&mut monitor, |d| d.up).await;
    let (interface, poa) = (link::index_of("sgmon").unwrap(), None);
    let down = LinkEvent::Down { interface, poa, why: DownReason::PacketTimeout };
    for (up, expected) in [(false, down), (true, LinkEvent::Up { interface, poa })].repeat(20) {
        link::set_up("sgpeer", up).unwrap();
        // The peer's own link changes too.
        let mut told = next(&mut monitor).await;
        while of(&told) != Some(interface) {
            told = next(&mut monitor).await;
        }
        assert_eq!(told, Change::Link(expected));
        while !matches!(told, Change::Devices(_)) {
            told = next(&mut monitor).await;
        }
        assert_eq!(monitor.current().iter().find(|d| is_ours(d)).map(|d| d.up), Some(up));
    }
    ip("link del sgmon");
    let gone = LinkEvent::Down { interface, poa, why: DownReason::ExplicitDisconnect };
    while next(&mut monitor).await != Change::Link(gone) {}
}

async fn advertised() {
    link::sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
    ip("link add sgmon type veth peer name sgpeer");
    ip("link set sgmon up");
    ip("link set sgpeer up");
    let mut monitor = Monitor::new().await.unwrap();
    wait(&mut monitor, |d| d.up).await;
    // RFC 8781: 64:ff9b::/96 for 1800 s, from a router that is not a default router.
    let option = [38, 2, 7, 8, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
    let header = [134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let advertisement = Datagram {
        waited_ns: 0,
        interface: Some(link::index_of("sgpeer").unwrap()),
        from: ("::".parse().unwrap(), 0),
        to: ("ff02::1".parse().unwrap(), 0),
        protocol: ICMPV6,
        hop_limit: 255,
        bytes: [header, option].concat(),
    };
    let socket = RawSocket::icmpv6(&[]).unwrap();
    let interface = link::index_of("sgmon").unwrap();
    let expected = Change::Advertised(RouterOptions { interface, options: option.to_vec() });
    for _ in 0..200 {
        // Fails while the sender has no link-local address.
        let _ = socket.send(&advertisement);
        let wait = Duration::from_millis(100);
        while let Ok(told) = tokio::time::timeout(wait, monitor.changed()).await {
            if told.unwrap() == expected {
                return;
            }
        }
    }
    panic!("nothing is told of what was advertised");
}

/// A device without an operational state: the kernel reports its changes synchronously.
async fn plain() -> (Monitor, u32) {
    ip("link add sgmon type ifb");
    (Monitor::new().await.unwrap(), link::index_of("sgmon").unwrap())
}

async fn unwatched() {
    let (mut monitor, interface) = plain().await;
    ip("link set lo up");
    let route = Route::on("203.0.113.0/24".parse().unwrap(), link::index_of("lo").unwrap());
    for _ in 0..FLAPS {
        link::set_up("sgmon", true).unwrap();
        for _ in 0..50 {
            link::add_route(&route).unwrap();
            link::delete_route(&route).unwrap();
        }
        link::set_up("sgmon", false).unwrap();
    }
    let events = events(&mut monitor).await;
    let flap = [(interface, true), (interface, false)];
    assert_eq!(events, flap.repeat(FLAPS));
}

/// Fewer than the notifications that a socket buffer of the default size holds.
const FLAPS: usize = 20;

async fn overflow() {
    let (mut monitor, interface) = plain().await;
    for _ in 0..2_000 {
        link::set_up("sgmon", true).unwrap();
        link::set_up("sgmon", false).unwrap();
    }
    link::set_up("sgmon", true).unwrap();
    let events = events(&mut monitor).await;
    assert!(events.len() < 2_000, "{} events: none was lost", events.len());
    let alternate = events.iter().enumerate().all(|(i, told)| *told == (interface, i % 2 == 0));
    assert!(alternate && events.last() == Some(&(interface, true)), "{events:?}");
    assert!(monitor.current().iter().any(|device| is_ours(device) && device.up));
}

/// Collects events until none arrives for two seconds: the link, and whether it came up.
async fn events(monitor: &mut Monitor) -> Vec<(u32, bool)> {
    let mut events = Vec::new();
    while let Ok(told) = tokio::time::timeout(Duration::from_secs(2), monitor.changed()).await {
        match told.unwrap() {
            Change::Link(LinkEvent::Up { interface, .. }) => events.push((interface, true)),
            Change::Link(LinkEvent::Down { interface, .. }) => events.push((interface, false)),
            told => assert!(matches!(told, Change::Devices(_)), "{told:?}"),
        }
    }
    events
}

/// The interface of an event.
fn of(told: &Change) -> Option<u32> {
    match told {
        Change::Link(LinkEvent::Up { interface, .. } | LinkEvent::Down { interface, .. }) => {
            Some(*interface)
        }
        _ => None,
    }
}

async fn come_and_go() {
    let mut monitor = Monitor::new().await.unwrap();
    assert!(monitor.current().iter().all(|i| !i.up));

    ip("link add sgmon type veth peer name sgpeer");
    ip("link set sgmon up");
    ip("link set sgpeer up");
    // Added first, so that a wrong monitor would show it together with the others. The command gives no scope.
    ip("address add 169.254.7.7/16 dev sgmon");
    ip("address add 192.0.2.7/24 dev sgmon");
    ip("address add 2001:db8::7/64 dev sgmon nodad");
    let seen = wait(&mut monitor, |d| d.up && d.interface.addresses.len() == 2).await;
    let interface = &seen.interface;
    assert_eq!((seen.kind.as_deref(), seen.ethernet), (Some("veth"), true));
    assert_eq!(interface.mtu_bytes, 1500);
    let mut addresses: Vec<String> = interface.addresses.iter().map(IpAddr::to_string).collect();
    addresses.sort();
    assert_eq!(addresses, ["192.0.2.7", "2001:db8::7"]);
    assert!(!seen.default_route);
    let anchor = "198.51.100.1".parse().unwrap();
    assert!(physical_candidates(monitor.current(), anchor).is_empty(), "no route yet");

    ip("route add default via 192.0.2.1 dev sgmon metric 50");
    ip("-6 route add default via 2001:db8::1 dev sgmon metric 70");
    ip("route add 203.0.113.0/24 dev sgmon table 99");
    let seen = wait(&mut monitor, |d| d.interface.gateways.len() == 2).await;
    let gateways: Vec<String> = seen.interface.gateways.iter().map(IpAddr::to_string).collect();
    assert_eq!(gateways, ["192.0.2.1", "2001:db8::1"]);
    assert_eq!((seen.default_route, seen.metric), (true, Some(50)));
    assert!(
        seen.routes.iter().all(|r| r.destination.addr.to_string() != "203.0.113.0"),
        "table 99"
    );
    assert_eq!(physical_candidates(monitor.current(), anchor), [seen]);

    // The monitor lists default routes of other tables separately, and reports rules.
    ip("route add default via 192.0.2.9 dev sgmon table 99");
    let seen = wait(&mut monitor, |d| !d.elsewhere.is_empty()).await;
    assert_eq!(seen.elsewhere.iter().map(|r| r.table).collect::<Vec<_>>(), [99]);
    let (to, own) = ("203.0.113.9".parse().unwrap(), "192.0.2.7".parse().unwrap());
    let way = |source| {
        let way = way_over(to, source, seen.interface.index, 1).unwrap().unwrap();
        (way.gateway.unwrap().to_string(), way.source, way.table)
    };
    assert_eq!(way(None), ("192.0.2.1".into(), Some(own), 254));
    ip("rule add from 192.0.2.7 lookup 99");
    while next(&mut monitor).await != Change::Rules {}
    // Table 99 has an on-link route to the network; without it, its default route applies.
    ip("route del 203.0.113.0/24 dev sgmon table 99");
    assert_eq!(way(Some(own)), ("192.0.2.9".into(), Some(own), 99));
    ip("rule del from 192.0.2.7 lookup 99");
    while next(&mut monitor).await != Change::Rules {}
    assert_eq!(way(Some(own)), ("192.0.2.1".into(), Some(own), 254));
    // Deprecated addresses are listed last.
    ip("address add 2001:db8::3/64 dev sgmon nodad preferred_lft 0");
    let seen = wait(&mut monitor, |d| d.interface.addresses.len() == 3).await;
    let addresses: Vec<String> = seen.interface.addresses.iter().map(IpAddr::to_string).collect();
    assert_eq!(addresses, ["192.0.2.7", "2001:db8::7", "2001:db8::3"]);
    assert_eq!(seen.deprecated, ["2001:db8::3".parse::<IpAddr>().unwrap()]);

    ip("link set sgpeer down");
    wait(&mut monitor, |i| !i.up).await;
    assert!(physical_candidates(monitor.current(), anchor).is_empty(), "no carrier");

    ip("link del sgmon");
    while monitor.current().iter().any(is_ours) {
        change(&mut monitor).await;
    }

    // Without a change the monitor reports nothing.
    let quiet = tokio::time::timeout(Duration::from_millis(300), monitor.changed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

/// Waits until the device `sgmon` is as `wanted`.
async fn wait(monitor: &mut Monitor, wanted: fn(&Device) -> bool) -> Device {
    loop {
        if let Some(device) = monitor.current().iter().find(|d| is_ours(d) && wanted(d)) {
            return device.clone();
        }
        change(monitor).await;
    }
}

fn is_ours(device: &Device) -> bool {
    device.interface.name == "sgmon"
}

/// Waits for the next list and checks that it differs from the previous one.
async fn change(monitor: &mut Monitor) {
    let before = monitor.current().to_vec();
    while !matches!(next(monitor).await, Change::Devices(_)) {
        assert_eq!(monitor.current(), before);
    }
    assert_ne!(monitor.current(), before);
}

async fn next(monitor: &mut Monitor) -> Change {
    let changed = tokio::time::timeout(Duration::from_secs(30), monitor.changed());
    changed.await.expect("a change should be reported").unwrap()
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}
