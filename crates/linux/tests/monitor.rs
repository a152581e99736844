//! The monitor against the kernel, in a network namespace of the test's own. Needs root; without it
//! the test says so and does nothing.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use segue_linux::monitor::{Device, Monitor, physical_candidates};

#[test]
fn devices_addresses_and_routes_are_reported_as_they_come_and_go() {
    // The namespace lives and dies with this thread, so nothing is left behind after a failure.
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

async fn scenario() {
    let mut monitor = Monitor::new().await.unwrap();
    assert!(monitor.current().iter().all(|i| !i.up));

    ip("link add sgmon type veth peer name sgpeer");
    ip("link set sgmon up");
    ip("link set sgpeer up");
    // Added first, so that it would be seen together with the others; no scope is given.
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

    ip("link set sgpeer down");
    wait(&mut monitor, |i| !i.up).await;
    assert!(physical_candidates(monitor.current(), anchor).is_empty(), "no carrier");

    ip("link set sgpeer up");
    told_at_once(&mut monitor).await;

    ip("link del sgmon");
    while monitor.current().iter().any(is_ours) {
        change(&mut monitor).await;
    }

    // Nothing changes: nothing is reported.
    let quiet = tokio::time::timeout(Duration::from_millis(300), monitor.changed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

/// Other changes are waited for half a second, should they never stop; not that a device went down.
async fn told_at_once(monitor: &mut Monitor) {
    let stop = Arc::new(AtomicBool::new(false));
    let changes = std::thread::spawn({
        let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let stop = Arc::clone(&stop);
        move || {
            nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            while !stop.load(Ordering::Relaxed) {
                ip("route add blackhole 203.0.113.0/24 table 98");
                ip("route del blackhole 203.0.113.0/24 table 98");
            }
        }
    });
    let mut taken = Vec::new();
    for _ in 0..9 {
        ip("link set sgmon up");
        wait(monitor, |i| i.up).await;
        let namespace = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let down = std::thread::spawn(move || {
            nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            ip("link set sgmon down");
            Instant::now()
        });
        wait(monitor, |i| !i.up).await;
        let told = Instant::now();
        taken.push(told.saturating_duration_since(down.join().unwrap()));
    }
    taken.sort();
    stop.store(true, Ordering::Relaxed);
    changes.join().unwrap();
    assert!(taken[4] < Duration::from_millis(60), "{taken:?}");
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

async fn change(monitor: &mut Monitor) {
    let before = monitor.current().to_vec();
    let changed = tokio::time::timeout(Duration::from_secs(30), monitor.changed());
    let after = changed.await.expect("a change should be reported").unwrap();
    assert_ne!(before, after);
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}
