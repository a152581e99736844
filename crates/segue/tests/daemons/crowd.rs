//! An anchor's flow table filled to capacity: listing it delays nothing else, and no host gets more
//! than its share.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_daemon::control::tunnels;
use segue_daemon::signalling::Worker;
use segue_datapath::{FLOW_PACE, FLOWS_AT_ONCE};

use crate::fleet::{Member, Peer, data};
use crate::over_both;
use crate::several::Two;
use crate::traffic::udp;
use crate::world::{Daemon, World, drops, inner, path, paths_up, wait_for};

over_both! { alone:
    a_host_that_opens_flows_at_full_rate_has_its_share_and_the_others_have_theirs
}

/// Number of flows in the table.
const FLOWS: u32 = 520_000;
/// One flow in this many belongs to a removed path.
const DEAD: u32 = 100;
/// Position of the generation (the second word) in a flow's value.
const GENERATION: std::ops::Range<usize> = 4..8;
/// Position of the source address in an IPv4 flow's key.
const SOURCE: std::ops::Range<usize> = 12..16;
/// First byte of the source addresses, by which the flows differ.
const NET: u8 = 100;
/// Time limit for one answer of a daemon on a busy machine. Listing all flows at once would take a
/// second.
const HELD_UP: Duration = Duration::from_millis(400);

/// The flow table of a running daemon's programs.
fn table(daemon: &Daemon) -> MapHandle {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fdinfo", daemon.process())).unwrap();
    let id = |file: std::io::Result<std::fs::DirEntry>| {
        let told = std::fs::read_to_string(file.ok()?.path()).ok()?;
        told.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok())
    };
    let mut maps = descriptors.filter_map(id).filter_map(|id| MapHandle::from_map_id(id).ok());
    maps.find(|map| map.name() == "segue_flows").expect("the daemon has its table")
}

/// Fills the table with copies of its one flow that differ in their source addresses.
fn fill(flows: &MapHandle) {
    let of_v4 = |key: &Vec<u8>| key[..SOURCE.start] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let key = flows.keys().find(of_v4).expect("a flow to copy");
    let value = flows.lookup(&key, MapFlags::ANY).unwrap().unwrap();
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for n in 0..FLOWS {
        let (mut key, mut value) = (key.clone(), value.clone());
        key[SOURCE].copy_from_slice(&(u32::from(NET) << 24 | n).to_be_bytes());
        if n % DEAD == 0 {
            value[GENERATION].iter_mut().for_each(|byte| *byte = !*byte);
        }
        keys.extend(key);
        values.extend(value);
    }
    flows.update_batch(&keys, &values, FLOWS, MapFlags::ANY, MapFlags::ANY).unwrap();
}

/// Lists all flows. Returns the time of the slowest page, and the flows.
fn list(anchor: &Daemon) -> (Duration, Vec<String>) {
    let (mut slowest, mut all) = (Duration::ZERO, Vec::new());
    let mut begun = Instant::now();
    tunnels::flows(&anchor.socket(), Some("laptop"), |page| {
        slowest = slowest.max(begun.elapsed());
        all.extend(page.into_iter().map(|flow| flow.flow));
        begun = Instant::now();
        Ok(())
    })
    .unwrap();
    (slowest, all)
}

/// Polls the status until `ended`. Returns the time of the slowest answer and the number of
/// answers.
fn asked_meanwhile(daemon: &Daemon, ended: &AtomicBool) -> (Duration, u32) {
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    while !ended.load(Ordering::Relaxed) {
        let start = Instant::now();
        tunnels::status(&daemon.socket(), u64::MAX).unwrap();
        slowest = slowest.max(start.elapsed());
        asked += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    (slowest, asked)
}

#[test]
fn half_a_million_flows_are_listed_once_each_while_the_anchor_sees_to_its_paths() {
    let _turn = crate::alone();
    let Some(world) = World::new("ebpf") else { return };
    let (anchor, host) = world.running();
    let own = inner(&host.status()).0;
    let far = (segue_lab::DemoNet::CN.0, 9);
    let near = udp(world.net.host(), (own, 0).into());
    wait_for("a flow", || {
        near.send_to(b"!", far).unwrap();
        !anchor.flows().is_empty()
    });
    let flows = table(&anchor);
    fill(&flows);
    let before = [anchor.status(), host.status()];

    let ended = AtomicBool::new(false);
    let ((slowest, all), (held_up, asked), took) = std::thread::scope(|scope| {
        let others = scope.spawn(|| asked_meanwhile(&anchor, &ended));
        let start = Instant::now();
        let listed = list(&anchor);
        let took = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        (listed, others.join().unwrap(), took)
    });
    println!(
        "{} flows in {took:?}, a page in {slowest:?} at most, status in {held_up:?} at most of {asked}",
        all.len()
    );
    let live = FLOWS - FLOWS.div_ceil(DEAD);
    let copies = format!(" {NET}.");
    let listed = all.iter().filter(|flow| flow.contains(&copies)).count();
    assert_eq!(listed, live as usize, "those of a path that is gone are not there");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "each once");
    assert!(slowest < HELD_UP && held_up < HELD_UP, "{slowest:?} {held_up:?}");
    assert!(asked > 20, "{asked}");
    for (daemon, before) in [&anchor, &host].into_iter().zip(before) {
        let after = daemon.status();
        assert_eq!(paths_up(&after), 2);
        for name in ["wifi", "lte"] {
            let count = |status| path(status, name)["transitions"].as_u64().unwrap();
            assert_eq!(count(&after), count(&before), "{name} went down: {after:#}");
        }
    }
}

/// Ends a flood when dropped, so also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// New flows of the well-behaved host.
const NEW: usize = 40;

fn a_host_that_opens_flows_at_full_rate_has_its_share_and_the_others_have_theirs(
    datapath: &'static str,
) {
    let Some(two) = Two::new(datapath) else { return };
    let anchor = two.anchor();
    let host = two.host(&anchor, 1, "a");
    let worker = Arc::new(Worker::start().unwrap());
    let mallory = Member::enrol(&worker, two.node("b"), &two.enroll(&anchor, 2, "mallory"));
    let mut peer = Peer::connect(&worker, two.node("b"), &mallory).unwrap();
    let own = peer.register(u64::MAX).expect("registered");
    let grant = peer.add_path(0);
    let socket = udp(two.node("b"), "0.0.0.0:0".parse().unwrap());
    let (from, far) = (SocketAddrV4::new(own, 9), [10, 61, 3, 2].into());
    let correspondent = udp(two.node("cn"), SocketAddr::new(far, 0));
    let to = correspondent.local_addr().unwrap();
    let near = inner(&host.status()).0;

    let (ended, begun) = (AtomicBool::new(false), Instant::now());
    let (arrived, bound) = std::thread::scope(|scope| {
        let _ends = Ends(&ended);
        scope.spawn(|| {
            for n in (0u32..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                // The destination does not exist, so the flow is refused.
                let place = SocketAddrV4::new([10, 61, 200, (n >> 16) as u8].into(), n as u16);
                let packet = data(grant.index, grant.cookie, from, place);
                let _ = socket.send_to(&packet, peer.tunnel());
            }
        });
        wait_for("its share is used up", || {
            drops(&anchor.status(), "too_many_flows") > u64::from(FLOWS_AT_ONCE) / 8
        });
        let senders: Vec<UdpSocket> =
            (0..NEW).map(|_| udp(two.node("a"), (near, 0).into())).collect();
        let mut arrived = BTreeSet::new();
        wait_for("the other host's new flows", || {
            senders.iter().for_each(|sender| drop(sender.send_to(b"!", to)));
            while let Ok((_, from)) = correspondent.recv_from(&mut [0; 8]) {
                arrived.insert(from);
            }
            arrived.len() == NEW
        });
        (arrived, flows_of(&anchor, "a"))
    });
    let bound =
        bound.iter().filter(|flow| arrived.iter().any(|from| flow.ends_with(&from.to_string())));
    assert_eq!(bound.count(), NEW, "each has its way back");
    let at_its_pace = begun.elapsed().as_nanos() as u64 / FLOW_PACE.0;
    let hostile = flows_of(&anchor, "mallory").len() as u64;
    println!("{datapath}: {hostile} flows of the hostile host, {at_its_pace} at its pace at most");
    assert!(hostile >= u64::from(FLOWS_AT_ONCE), "{hostile}");
    assert!(hostile <= u64::from(FLOWS_AT_ONCE) + at_its_pace + 32, "{hostile}");
}

/// The flows that the anchor has for one host.
fn flows_of(anchor: &Daemon, host: &str) -> Vec<String> {
    let mut all = Vec::new();
    tunnels::flows(&anchor.socket(), Some(host), |page| {
        all.extend(page.into_iter().map(|flow| flow.flow));
        Ok(())
    })
    .unwrap();
    all
}
