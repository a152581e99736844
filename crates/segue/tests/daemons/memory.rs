//! What comes and goes leaves nothing behind in the daemons' memory.

use std::sync::Arc;

use segue::signalling::Worker;
use segue_linux::link::{self, Prefix};
use segue_wire::MAX_PATHS;
use segue_wire::signal::{FromAnchor, FromHost};

use crate::fleet::{Member, Peer};
use crate::over_both;
use crate::several::Two;
use crate::world::{Daemon, paths_up, wait_for};

over_both! { among_others:
    path_set_ups_leave_nothing_in_the_anchor
    path_set_ups_leave_nothing_in_the_host
}

/// Anonymous memory of a process in bytes.
fn memory(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1_024
}

/// Sets paths up and takes them down, all at once, again and again: so many.
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

fn path_set_ups_leave_nothing_in_the_anchor(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let line = two.enroll(&anchor, 1, "a");
    let worker = Arc::new(Worker::start().unwrap());
    let mut peer =
        Peer::connect(&worker, two.node("a"), &Member::enrol(&worker, two.node("a"), &line))
            .unwrap();
    peer.register(1).expect("registered");
    for round in 0..10 {
        set_up(&mut peer, 2_000);
        println!("{datapath} anchor {round} {}", memory(&anchor));
    }
}

fn path_set_ups_leave_nothing_in_the_host(datapath: &'static str) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let address: Prefix = "10.61.1.2/24".parse().unwrap();
    for round in 0..10 {
        for _ in 0..50 {
            for up in [false, true] {
                let change = || match up {
                    true => link::add_address("up0", address).unwrap(),
                    false => link::delete_address("up0", address).unwrap(),
                };
                two.node("a").run(change).unwrap();
                wait_for("the path", || paths_up(&host.status()) == usize::from(up));
            }
        }
        println!("{datapath} host {round} {} anchor {}", memory(&host), memory(&anchor));
    }
}
