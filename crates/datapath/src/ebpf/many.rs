//! The largest number of paths for which an anchor is designed: each path is probed and measured individually, and
//! their total memory in the kernel is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use segue_keepalive::Probing;
use segue_linux::clock::monotonic;
use segue_wire::{Header, Mode, PacketType, Probe};

use super::convert::{kernel_path, kernel_scale};
use super::load::may_load;
use super::packets::{ARRIVED_ON, KEY, Outer, PORT, REDIRECT, frame, run};
use super::reading::{Totals, read};
use super::*;

const PATHS: u32 = 100_000;
/// Map memory in bytes that a monitored path may take.
const BAR: f64 = 256.0;

fn setup(max_flows: u32) -> Setup {
    Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1456,
        port: PORT,
        role: Role::Anchor,
        max_paths: PATHS,
        max_flows,
        mark: 0x5e6,
    }
}

fn config(slot: u32) -> PathSetup {
    PathSetup {
        tx_index: slot ^ 0x5555,
        tx_cookie: u64::from(slot) + (1 << 40),
        rx_cookie: u64::from(slot) + (1 << 41),
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: slot,
        probing: Probing::default(),
    }
}

/// A number from the kernel's information about a descriptor.
fn told(fd: BorrowedFd<'_>, field: &str) -> u64 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().parse().unwrap()
}

/// All maps of the loaded programs by name, including those without a handle in this process, with their memory in
/// bytes as reported by the kernel.
fn weigh(programs: &Programs, batch: BorrowedFd<'_>) -> BTreeMap<String, u64> {
    let own = [&programs.egress, &programs.ingress, &programs.bare, &programs.leave, &programs.xdp];
    let mut ids: Vec<u32> =
        own.map(|program| told(program.as_fd(), "prog_id") as u32).into_iter().collect();
    ids.push(told(batch, "prog_id") as u32);
    let reflectors = &programs._reflectors;
    for key in reflectors.keys() {
        // The kernel returns a program's number.
        if let Ok(Some(id)) = reflectors.lookup(&key, MapFlags::ANY) {
            ids.push(u32::from_ne_bytes(id.try_into().unwrap()));
        }
    }
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let maps: BTreeSet<u32> = ProgInfoIter::with_query_opts(options)
        .filter(|program| ids.contains(&program.id))
        .flat_map(|program| program.map_ids)
        .collect();
    let weighed = maps.into_iter().map(|id| {
        let map = MapHandle::from_map_id(id).unwrap();
        (map.name().to_string_lossy().into_owned(), told(map.as_fd(), "memlock"))
    });
    weighed.collect()
}

/// Sends one request over a path and returns the response.
fn ask(programs: &Programs, slot: u32, probe: &Probe) -> Probe {
    let head = Header::new(PacketType::Request, 3, slot, u64::from(slot) + (1 << 41));
    let (from, to) = (Outer::V4.address(1), Outer::V4.address(2));
    let packet = frame(Outer::V4, from, to, PORT, &probe.seal(&head, &KEY));
    let (verdict, out) = run(programs.ingress.as_fd(), &packet, None);
    assert_eq!(verdict, REDIRECT, "path {slot}");
    let at = Outer::V4.headers();
    let answered = Header::parse(&out[at..]).unwrap();
    assert_eq!((answered.index, answered.cookie), (slot ^ 0x5555, u64::from(slot) + (1 << 40)));
    Probe::open(&out[at..], &KEY).unwrap()
}

#[test]
fn a_hundred_thousand_paths_are_answered_and_measured_in_little_memory() {
    if !may_load() {
        return;
    }
    let (programs, tables, batch) = load(&setup(1), ARRIVED_ON, None).unwrap();
    tables.set_locals(&[Outer::V4.address(2)].into()).unwrap();
    tables.set_scale(0, &kernel_scale(&Probing::default().taus)).unwrap();
    let number = tables.add_local(Outer::V4.address(2)).unwrap();
    let host = SocketAddr::new(Outer::V4.address(1), 6000);
    let endpoint = kernel_endpoint(host, ARRIVED_ON, number);
    for slot in 0..PATHS {
        tables.set_path(slot, &kernel_path(&config(slot), 0)).unwrap();
        tables.set_state(slot, &path_state { endpoint, ..path_state::default() }).unwrap();
    }
    for slot in 0..PATHS {
        tables.set_alive(monotonic()).unwrap();
        let first = Probe { seq: 1, sc: 1, t_ka_ms: 200, ..Probe::default() };
        let answer = ask(&programs, slot, &first);
        assert_eq!((answer.seq, answer.ss, answer.r), (1, 1, 1));
        // A round trip of this many milliseconds, and one of two packets lost on the uplink.
        let rtt_ms = slot % 1000 + 1;
        let echo = Probe {
            seq: 2,
            t_ss: answer.t_ss.wrapping_sub(rtt_ms * 1000),
            sc: 3,
            ss: 1,
            r: 1,
            ..first
        };
        assert_eq!(ask(&programs, slot, &echo).r, 2);
    }
    for slot in 0..PATHS {
        let state = tables.state(slot);
        let reading = read(&state, None, Mode::Both, &mut Totals::default(), monotonic());
        assert_eq!((reading.received, reading.run, reading.k), (2, 2, 3), "path {slot}");
        let estimates = reading.estimates;
        let expected_ms = f64::from(slot % 1000 + 1);
        let rtt_ms = estimates.rtt_last.unwrap().as_secs_f64() * 1e3;
        // The machine may have been busy in between.
        assert!((expected_ms..expected_ms + 5_000.0).contains(&rtt_ms), "path {slot}: {rtt_ms} ms");
        assert_eq!((estimates.up.sent, estimates.up.received), (2, 1));
    }
    assert!(tables.drops().keys().all(|reason| *reason == DropReason::QueueFull));
    let weighed = weigh(&programs, batch.program());
    let each = |bytes: u64| bytes as f64 / f64::from(PATHS);
    let mut of_paths = 0;
    for (name, bytes) in &weighed {
        println!("{name:16} {bytes:10} bytes, {:6.2} for each of {PATHS} paths", each(*bytes));
        // Memory of flows and hosts.
        if !["segue_flows", "segue_inner"].contains(&name.as_str()) {
            of_paths += bytes;
        }
    }
    println!("without those of flows and inner addresses: {:.2} for each", each(of_paths));
    for name in ["segue_paths", "segue_state", "segue_scratch", "segue_events", "segue_devices"] {
        assert!(weighed.contains_key(name), "{name} was not weighed: {weighed:?}");
    }
    let (programs, _, batch) = load(&setup(1 << 20), ARRIVED_ON, None).unwrap();
    let all: u64 = weigh(&programs, batch.program()).values().sum();
    println!("with the tables of an anchor as set by default: {:.1} for each in all", each(all));
    assert!(each(of_paths) <= BAR, "{}", each(of_paths));
}
