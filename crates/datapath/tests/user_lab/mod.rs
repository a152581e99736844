//! Two namespaces with a veth between them and a user-space datapath in each: a host and its anchor.
//! Dropping a [`Lab`] removes everything.

#![allow(dead_code, reason = "each user of this module needs a part of it")]
#![allow(clippy::unwrap_used, reason = "a test network that cannot be set up ends the run")]

mod local;
pub(crate) mod raw;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_datapath::user::User;
use segue_datapath::{
    Datapath, DatapathEvent, EventSink, LinuxDatapath, MissPacket, PathSetup, ProbeEvent,
    ProbeKind, ProbeOrder, Role, Setup,
};
use segue_ip::Prefix;
use segue_keepalive::Probing;
use segue_linux::link::{self, Feature};
use segue_linux::netns::Netns;
use segue_wire::{Probe, ProbeKey};

pub(crate) const PORT: u16 = 5005;
/// The host's slot, which is also its tunnel index.
pub(crate) const HOST_SLOT: u32 = 3;
/// The anchor's slot for [`HOST_SLOT`].
pub(crate) const ANCHOR_SLOT: u32 = 6;
pub(crate) const HOST_COOKIE: u64 = 0x1111_2222_3333_4444;
pub(crate) const ANCHOR_COOKIE: u64 = 0x5555_6666_7777_8888;
pub(crate) const KEY: ProbeKey = ProbeKey([7; 16]);
pub(crate) const OWNER: u32 = 42;
pub(crate) const HOST_DEVICE: &str = "sgh0";
pub(crate) const ANCHOR_DEVICE: &str = "sga0";

/// How the veth treats packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offloads {
    Whole,
    NoGso,
    NoChecksum,
}

/// True if namespace tests cannot run here; then prints why.
pub(crate) fn skipped() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    !root
}

pub(crate) fn outer(v6: bool, last: u8) -> IpAddr {
    if v6 {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)])
    } else {
        IpAddr::from([192, 0, 2, last])
    }
}

pub(crate) fn inner(v6: bool, last: u8) -> IpAddr {
    if v6 {
        IpAddr::from([0xfd00, 9, 0, 0, 0, 0, 0, u16::from(last)])
    } else {
        IpAddr::from([10, 9, 0, last])
    }
}

/// One end, with a thread that decides in place of a daemon: every new flow takes `slot`.
pub(crate) struct End {
    pub ns: Netns,
    pub user: Arc<Mutex<User>>,
    pub probes: Mutex<Receiver<ProbeEvent>>,
    pub misses: Arc<AtomicU32>,
    /// Slot for new flows; `u32::MAX` keeps them waiting.
    pub slot: Arc<AtomicU32>,
    decider: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

pub(crate) struct Lab {
    pub host: End,
    pub anchor: End,
    pub outer_v6: bool,
}

pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("sg{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Two namespaces with addressed veth ends.
pub(crate) fn namespaces(offloads: Offloads) -> (Netns, Netns) {
    let host = Netns::create(&unique("h")).unwrap();
    let anchor = Netns::create(&unique("a")).unwrap();
    host.run(|| link::create_veth(HOST_DEVICE, ANCHOR_DEVICE, Some(&anchor)).unwrap()).unwrap();
    for (ns, device, last) in [(&host, HOST_DEVICE, 1), (&anchor, ANCHOR_DEVICE, 2)] {
        ns.run(|| {
            link::add_address(device, Prefix::new(outer(false, last), 24)).unwrap();
            link::add_address(device, Prefix::new(outer(true, last), 64)).unwrap();
            link::set_up(device, true).unwrap();
            match offloads {
                Offloads::Whole => {}
                Offloads::NoGso => {
                    link::set_feature(device, Feature::Tso, false).unwrap();
                    link::set_feature(device, Feature::Gso, false).unwrap();
                }
                Offloads::NoChecksum => {
                    link::set_feature(device, Feature::TxChecksum, false).unwrap();
                }
            }
        })
        .unwrap();
    }
    (host, anchor)
}

impl End {
    fn new(ns: Netns, role: Role, last: u8, slot: u32, mtu: u32) -> End {
        let setup = Setup {
            tun_name: "segue0".into(),
            tun_mtu: mtu,
            port: PORT,
            role,
            max_paths: 16,
            max_flows: 1024,
            mark: 0x5e6,
        };
        let (probe_tx, probe_rx) = channel();
        let (miss_tx, miss_rx) = channel();
        let misses = Arc::new(AtomicU32::new(0));
        let sink = sink(probe_tx, miss_tx, misses.clone());
        let user = ns.run(|| User::new(&setup, sink).unwrap()).unwrap();
        ns.run(|| {
            link::add_address("segue0", Prefix::new(inner(false, last), 24)).unwrap();
            link::add_address("segue0", Prefix::new(inner(true, last), 64)).unwrap();
            wait_for("an inner address", || local::is_local(inner(true, last)));
        })
        .unwrap();
        let user = Arc::new(Mutex::new(user));
        let slot = Arc::new(AtomicU32::new(slot));
        let decider = Some(decider(user.clone(), slot.clone(), miss_rx));
        let probes = Mutex::new(probe_rx);
        End { ns, user, probes, misses, slot, decider }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut User) -> T) -> T {
        f(&mut self.user.lock().unwrap())
    }

    pub(crate) fn drops(&self, reason: segue_wire::DropReason) -> u64 {
        self.with(|user| user.drops().get(&reason).copied().unwrap_or(0))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.decider.take() {
            stop.store(true, Ordering::Release);
            let _ = thread.join();
        }
    }
}

fn sink(
    probes: Sender<ProbeEvent>,
    misses: Sender<MissPacket>,
    count: Arc<AtomicU32>,
) -> EventSink {
    let senders = Mutex::new((probes, misses));
    Arc::new(move |event| {
        let senders = senders.lock().unwrap();
        match event {
            DatapathEvent::Probe(probe) => drop(senders.0.send(probe)),
            DatapathEvent::Miss(packet) => {
                count.fetch_add(1, Ordering::Relaxed);
                drop(senders.1.send(packet));
            }
            DatapathEvent::Look(_) | DatapathEvent::Uncut(_) | DatapathEvent::Size(..) => {}
        }
    })
}

fn decider(
    user: Arc<Mutex<User>>,
    slot: Arc<AtomicU32>,
    misses: Receiver<MissPacket>,
) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            let Ok(packet) = misses.recv_timeout(Duration::from_millis(20)) else { continue };
            while slot.load(Ordering::Acquire) == u32::MAX && !stopped.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut user = user.lock().unwrap();
            if user.bind_flow(packet.key, slot.load(Ordering::Acquire)).is_ok() {
                user.inject(packet);
            }
        }
    });
    (stop, thread)
}

pub(crate) fn host_config(v6: bool) -> PathSetup {
    PathSetup {
        tx_index: ANCHOR_SLOT,
        tx_cookie: ANCHOR_COOKIE,
        rx_cookie: HOST_COOKIE,
        key: KEY,
        local: Some(SocketAddr::new(outer(v6, 1), PORT)),
        remote: Some(SocketAddr::new(outer(v6, 2), PORT)),
        ifindex: 0,
        gateway: None,
        owner: 0,
        probing: Probing::default(),
    }
}

pub(crate) fn anchor_config() -> PathSetup {
    PathSetup {
        tx_index: HOST_SLOT,
        tx_cookie: HOST_COOKIE,
        rx_cookie: ANCHOR_COOKIE,
        key: KEY,
        local: None,
        remote: None,
        ifindex: 0,
        gateway: None,
        owner: OWNER,
        probing: Probing::default(),
    }
}

impl Lab {
    /// Both ends, with one path over the outer family that has been probed once.
    pub(crate) fn new(outer_v6: bool, offloads: Offloads) -> Lab {
        let (host_ns, anchor_ns) = namespaces(offloads);
        let mtu = if outer_v6 { 1436 } else { 1456 };
        let host = End::new(host_ns, Role::Host, 1, HOST_SLOT, mtu);
        let anchor = End::new(anchor_ns, Role::Anchor, 2, ANCHOR_SLOT, mtu);
        for v6 in [false, true] {
            host.with(|u| u.set_inner(inner(v6, 1), 0).unwrap());
            anchor.with(|u| u.set_inner(inner(v6, 1), OWNER).unwrap());
        }
        let lab = Lab { host, anchor, outer_v6 };
        // The anchor knows the host's address: an unknown source would have to echo first.
        let host = host_config(outer_v6);
        let known = PathSetup { local: host.remote, remote: host.local, ..anchor_config() };
        lab.anchor.with(|u| u.set_path(ANCHOR_SLOT, &known).unwrap());
        lab.probe_as(Probing::default(), Probing::default());
        lab.probe(1);
        lab
    }

    /// Sets how each end probes the path; counters and learned state are kept.
    pub(crate) fn probe_as(&self, host: Probing, anchor: Probing) {
        let ifindex = self.host.ns.run(|| link::index_of(HOST_DEVICE).unwrap()).unwrap();
        let config = PathSetup { ifindex, probing: host, ..host_config(self.outer_v6) };
        self.set_host_path(HOST_SLOT, &config);
        self.anchor_probes_as(anchor);
    }

    /// Like [`Lab::probe_as`], only for the anchor.
    pub(crate) fn anchor_probes_as(&self, probing: Probing) {
        let config = PathSetup { probing, ..anchor_config() };
        self.anchor.with(|u| u.set_path(ANCHOR_SLOT, &config).unwrap());
    }

    /// Runs in the host's namespace, to which new sockets belong.
    pub(crate) fn set_host_path(&self, slot: u32, config: &PathSetup) {
        self.host.ns.run(|| self.host.with(|u| u.set_path(slot, config).unwrap())).unwrap();
    }

    /// One request and its response; returns both ends' events.
    pub(crate) fn probe(&self, seq: u32) -> (ProbeEvent, ProbeEvent) {
        self.order(HOST_SLOT, seq);
        let request = expect_probe(&self.anchor.probes, "request at the anchor");
        let response = expect_probe(&self.host.probes, "response at the host");
        (request, response)
    }

    pub(crate) fn order(&self, slot: u32, seq: u32) {
        self.order_as(slot, seq, false);
    }

    /// Sends a request, or a question.
    pub(crate) fn order_as(&self, slot: u32, seq: u32, question: bool) {
        let probe = Probe { seq, heard: 5, t_ka_ms: 200, ..Probe::default() };
        let order = ProbeOrder {
            slot,
            kind: ProbeKind::Request,
            k: 4,
            probe,
            held_since: 0,
            report: false,
            question,
            age: 0,
        };
        self.host.with(|u| u.send_probes(&[order]).unwrap());
    }

    /// Waits until the counters of both ends agree, and returns (host to anchor, anchor to host).
    pub(crate) fn settled_counters(&self) -> ((u32, u64), (u32, u64)) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let h = self.host.with(|u| u.counters(HOST_SLOT));
            let a = self.anchor.with(|u| u.counters(ANCHOR_SLOT));
            let up = ((h.tx_packets, h.tx_bytes), (a.rx_packets, a.rx_bytes));
            let down = ((a.tx_packets, a.tx_bytes), (h.rx_packets, h.rx_bytes));
            if up.0 == up.1 && down.0 == down.1 {
                return (up.0, down.0);
            }
            let drops = (self.host.with(User::drops), self.anchor.with(User::drops));
            assert!(
                Instant::now() < deadline,
                "the counters of both ends differ: up {up:?}, down {down:?}, drops {drops:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Packets of many kinds in both directions, compared byte by byte.
pub(crate) fn exchange(lab: &Lab, v6: bool) {
    let ends = [&lab.host, &lab.anchor];
    let taps = ends.map(|end| end.ns.run(|| raw::Tap::new("segue0")).unwrap());
    for n in 0..12u16 {
        let payload: Vec<u8> = (0..n * 100).map(|i| (i ^ n) as u8).collect();
        for (from, to, ends) in [(0, 1, [1, 2]), (1, 0, [2, 1])] {
            let [source, destination] = ends.map(|last| inner(v6, last));
            let packet = raw::packet(source, destination, n, &payload);
            taps[from].send(&packet);
            taps[to].expect(&packet);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a condition holds, for at most ten seconds because the machine may be busy.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn expect_probe(events: &Mutex<Receiver<ProbeEvent>>, what: &str) -> ProbeEvent {
    match events.lock().unwrap().recv_timeout(Duration::from_secs(10)) {
        Ok(event) => event,
        Err(_) => panic!("no {what} within 10 s"),
    }
}
