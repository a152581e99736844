//! Floods: whoever sends them, nobody else is worse off.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::over_both;
use crate::several::Two;
use crate::traffic::udp;
use crate::world::{PATIENCE, inner, paths_up};

over_both! { among_others:
    a_flood_to_a_host_without_a_path_and_to_nobody_stops_no_other_hosts_flows
}

/// New flows of the host that is not attacked.
const FLOWS: usize = 40;

fn a_flood_to_a_host_without_a_path_and_to_nobody_stops_no_other_hosts_flows(
    datapath: &'static str,
) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let (a, mut b) = (two.host(&anchor, 1, "a"), two.host(&anchor, 2, "b"));
    let (own_a, own_b) = (inner(&a.status()).0, inner(&b.status()).0);
    b.end(Signal::SIGKILL);
    anchor.wait("b has no path", |status| paths_up(status) == 1);

    let nobody = std::net::Ipv4Addr::from(u32::from(own_b) + 100);
    let ended = AtomicBool::new(false);
    let flood = udp(two.node("cn"), "0.0.0.0:0".parse().unwrap());
    let arrived = std::thread::scope(|scope| {
        scope.spawn(|| {
            let targets = [IpAddr::from(own_b), nobody.into()];
            let ports = (1u16..=60_000).cycle();
            // 1 500 packets a second, each the first of a flow.
            for (n, port) in ports.enumerate().take_while(|_| !ended.load(Ordering::Relaxed)) {
                let _ = flood.send_to(b"?", SocketAddr::new(targets[n % 2], port));
                if n % 15 == 0 {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        std::thread::sleep(Duration::from_secs(2));
        let arrived = new_flows(&two, own_a.into());
        ended.store(true, Ordering::Relaxed);
        arrived
    });
    assert_eq!(arrived, FLOWS, "new flows to the other host");
    assert!(crate::world::drops(&anchor.status(), "no_remote") > 0, "the flood is counted");
}

/// How many of [`FLOWS`] datagrams that open a flow each, from the correspondent to host `a`, arrive.
fn new_flows(two: &Two, to: IpAddr) -> usize {
    let listening = udp(two.node("a"), SocketAddr::new(to, 0));
    let to = listening.local_addr().unwrap();
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let senders: Vec<UdpSocket> = (0..FLOWS).map(|_| udp(two.node("cn"), any)).collect();
    for sender in &senders {
        sender.send_to(b"!", to).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let start = Instant::now();
    let mut sources = std::collections::BTreeSet::new();
    while sources.len() < FLOWS && start.elapsed() < PATIENCE / 4 {
        sources.extend(listening.recv_from(&mut [0; 8]).map(|(_, from)| from));
    }
    sources.len()
}
