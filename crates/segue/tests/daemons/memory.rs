//! Hosts, paths and flows that come and go do not make the daemons' memory grow: `make soak`.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_daemon::signalling::Worker;
use segue_datapath::FLOWS_AT_ONCE;
use segue_wire::MAX_PATHS;
use segue_wire::signal::{FromAnchor, FromHost};

use crate::fleet::{Member, Peer, data};
use crate::over_both;
use crate::several::Two;
use crate::traffic::udp;
use crate::world::{Daemon, inner, paths_up, text, wait_for};

over_both! { #[ignore = "minutes to an hour, and a quiet machine"] alone:
    soak_a_hundred_thousand_set_ups_at_the_anchor
    soak_set_ups_at_the_host
    soak_a_million_flows
}

/// Allowed growth in bytes of a daemon's memory after the first of ten rounds, for pages that the
/// allocator keeps per thread.
const FLAT: u64 = 512 << 10;

/// Anonymous memory of a process in bytes.
pub(crate) fn memory(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1_024
}

/// Runs ten rounds. The daemons' memory must not grow after round `full`, by which all bounded
/// tables are full.
fn stays_flat(what: &str, full: usize, daemons: &[(&str, &Daemon)], mut round: impl FnMut(usize)) {
    let begun = Instant::now();
    let before: Vec<u64> = daemons.iter().map(|(_, daemon)| memory(daemon)).collect();
    let mut first = Vec::new();
    for number in 0..10 {
        round(number);
        let now: Vec<u64> = daemons.iter().map(|(_, daemon)| memory(daemon)).collect();
        println!("{what}: {number} {before:?} -> {now:?} after {:.0?}", begun.elapsed());
        if number <= full {
            first = now;
            continue;
        }
        for (((name, _), first), now) in daemons.iter().zip(&first).zip(&now) {
            assert!(*now <= first + FLAT, "{what}: {name} had {first} bytes, and now {now}");
        }
    }
}

/// Repeatedly sets up and removes all paths of a host, `paths` in total.
fn set_up(peer: &mut Peer, paths: usize) {
    for _ in 0..paths / MAX_PATHS {
        for number in 0..MAX_PATHS as u8 {
            peer.send(&FromHost::AddPath(Peer::offer(number))).unwrap();
        }
        for _ in 0..MAX_PATHS {
            assert!(matches!(peer.receive(), Some(FromAnchor::PathReady(_))));
        }
        for path in 0..MAX_PATHS as u8 {
            peer.send(&FromHost::RemovePath { path }).unwrap();
        }
    }
}

/// Number of hosts that set up paths in parallel, since the anchor rate-limits each host.
const HOSTS: usize = 32;

fn soak_a_hundred_thousand_set_ups_at_the_anchor(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let worker = Arc::new(Worker::start().unwrap());
    let mut peers: Vec<Peer> = (0..HOSTS)
        .map(|number| {
            let line = two.enroll(&anchor, 1, &format!("h{number}"));
            let member = Member::enrol(&worker, two.node("a"), &line);
            let mut peer = Peer::connect(&worker, two.node("a"), &member).unwrap();
            peer.register(1).expect("registered");
            peer
        })
        .collect();
    // The anchor keeps two events per second and host, at most 10 000.
    stays_flat(&format!("{datapath}, set-ups, 10 x 10 240"), 5, &[("anchor", &anchor)], |_| {
        std::thread::scope(|scope| {
            for peer in &mut peers {
                scope.spawn(|| set_up(peer, 10_240 / HOSTS));
            }
        });
    });
}

/// Interfaces that come and go together while one other stays.
const ACCESSES: usize = MAX_PATHS - 1;
/// Flaps per round. Each causes at least three events, of which the daemon keeps 10 000.
const FLAPS: usize = 250;

/// A host sets up paths at the anchor's rate limit of ten per second, so this takes an hour.
fn soak_set_ups_at_the_host(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let batch = |name: &str, lines: fn(usize) -> String| {
        let file = two.directory().join(name);
        std::fs::write(&file, (0..ACCESSES).map(lines).collect::<String>()).unwrap();
        file
    };
    let come = batch("come", |n| {
        format!(
            "link add mv{n} link up0 type macvlan mode bridge\naddr add 10.61.1.{}/24 dev mv{n}\n\
             link set mv{n} up\nroute add default via 10.61.1.1 dev mv{n} metric {}\n",
            100 + n,
            1_000 + n
        )
    });
    let go = batch("go", |n| format!("link del mv{n}\n"));
    let ip = |file: &std::path::Path| {
        let done = two.node("a").command("ip").arg("-batch").arg(file).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    // The anchor keeps two of the host's events per second, for an hour.
    stays_flat(
        &format!("{datapath}, set-ups, 10 x {}", FLAPS * ACCESSES),
        1,
        &[("host", &host)],
        |_| {
            for _ in 0..FLAPS {
                ip(&come);
                wait_for("the paths", || paths_up(&host.status()) == MAX_PATHS);
                ip(&go);
                wait_for("one path", || host.status()["paths"].as_array().unwrap().len() == 1);
            }
        },
    );
}

/// A little more than the idle time after which a flow is dropped.
const GONE: Duration = Duration::from_secs(200);
/// Flows from each of [`HOSTS`] hosts per round.
const FLOWS: usize = 100_000 / HOSTS;

fn soak_a_million_flows(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let worker = Arc::new(Worker::start().unwrap());
    let socket = udp(two.node("b"), "0.0.0.0:0".parse().unwrap());
    let peers: Vec<_> = (0..HOSTS)
        .map(|number| {
            let line = two.enroll(&anchor, 2, &format!("h{number}"));
            let member = Member::enrol(&worker, two.node("b"), &line);
            let mut peer = Peer::connect(&worker, two.node("b"), &member).unwrap();
            let own = peer.register(1).expect("registered");
            let grant = peer.add_path(0);
            (peer, own, grant)
        })
        .collect();
    assert!(FLOWS * 10 <= FLOWS_AT_ONCE as usize);
    let own = inner(&host.status()).0;
    let daemons = [("host", &host), ("anchor", &anchor)];
    stays_flat(&format!("{datapath}, flows, 10 x 100 000"), 2, &daemons, |round| {
        let flow = |n: usize| {
            let place = (round * FLOWS + n) as u32;
            SocketAddrV4::new([10, 61, 200, (place >> 16) as u8].into(), place as u16)
        };
        std::thread::scope(|scope| {
            // Flows of the real host, each from a new port.
            scope.spawn(|| {
                for n in 0..20_000 {
                    let near = udp(two.node("a"), SocketAddr::new(own.into(), 0));
                    let _ = near.send_to(b"!", flow(n));
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
            for n in 0..FLOWS {
                for (peer, own, grant) in &peers {
                    let from = SocketAddrV4::new(*own, 9);
                    let packet = data(grant.index, grant.cookie, from, flow(n));
                    socket.send_to(&packet, peer.tunnel()).unwrap();
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        // Both ends drop flows that have been silent for this long.
        std::thread::sleep(GONE);
    });
}
