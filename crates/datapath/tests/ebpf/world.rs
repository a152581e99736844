//! A host and an anchor in separate namespaces, joined by veth pairs, with one path per pair.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use segue_datapath::ebpf::{Ebpf, EbpfOptions};
use segue_datapath::{
    Datapath, DatapathEvent, LinuxDatapath, PathCounters, PathSetup, ProbeEvent, ProbeKind,
    ProbeOrder, Role, Setup,
};
use segue_ip::Prefix;
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_wire::{DropReason, Probe, ProbeKey};

use crate::local::is_local;
pub(crate) use crate::stage::{Wire, eventually, may_run};

pub(crate) const PORT: u16 = 5005;
pub(crate) const OWNER: u32 = 7;
pub(crate) const KEY: ProbeKey = ProbeKey([42; 16]);
pub(crate) const OUTER_MTU: u32 = 1500;

/// Outer or inner family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: [Family; 2] = [Family::V4, Family::V6];

    pub(crate) fn inner(self, end: u8) -> IpAddr {
        self.pick(format!("10.8.0.{end}"), format!("fd08::{end}"))
    }

    pub(crate) fn outer(self, path: u32, end: u8) -> IpAddr {
        self.pick(format!("10.9.{path}.{end}"), format!("fd09:0:0:{path}::{end}"))
    }

    fn pick(self, v4: String, v6: String) -> IpAddr {
        match self {
            Family::V4 => v4.parse().unwrap(),
            Family::V6 => v6.parse().unwrap(),
        }
    }
}

/// One end with a stand-in for its daemon, which binds every flow without a binding to `bind_to`.
pub(crate) struct End {
    pub ns: Netns,
    pub datapath: Arc<Mutex<Ebpf>>,
    pub probes: Arc<Mutex<Vec<ProbeEvent>>>,
    pub misses: Arc<AtomicUsize>,
    /// The paths on which requests were reported to have stopped riding.
    pub rides_over: Arc<Mutex<Vec<u32>>>,
    pub bind_to: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<()>>,
}

pub(crate) struct World {
    pub host: End,
    pub anchor: End,
    pub outer: Family,
}

pub(crate) const fn host_slot(path: u32) -> u32 {
    3 + path
}

pub(crate) const fn anchor_slot(path: u32) -> u32 {
    11 + path
}

pub(crate) fn setup(role: Role, outer: Family) -> Setup {
    let overhead = match outer {
        Family::V4 => 44,
        Family::V6 => 64,
    };
    Setup {
        tun_name: "segue0".into(),
        tun_mtu: OUTER_MTU - overhead,
        port: PORT,
        role,
        max_paths: 32,
        max_flows: 1024,
        mark: 0x5e6,
    }
}

impl World {
    /// Two ends and `paths` wires, all set up, before any packet. The anchor knows the host's address: an unknown
    /// source would have to echo first.
    pub(crate) fn new(outer: Family, wire: Wire, paths: u32, options: EbpfOptions) -> World {
        World::with_paths(outer, wire, paths, options, 32)
    }

    /// Like [`World::new`], with room for `max_paths` paths at each end.
    pub(crate) fn with_paths(
        outer: Family,
        wire: Wire,
        paths: u32,
        options: EbpfOptions,
        max_paths: u32,
    ) -> World {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("segue-e{}-{serial}{end}", std::process::id());
        let namespaces = [Netns::create(&name('a')).unwrap(), Netns::create(&name('b')).unwrap()];
        for ns in &namespaces {
            ns.run(|| {
                for which in ["all", "default"] {
                    link::sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0").unwrap();
                    link::sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0").unwrap();
                }
            })
            .unwrap();
        }
        for path in 0..paths {
            let device = format!("sg{path}");
            namespaces[0]
                .run(|| link::create_veth(&device, &device, Some(&namespaces[1])))
                .unwrap()
                .unwrap();
            for (end, ns) in (1..).zip(&namespaces) {
                ns.run(|| wire_up(&device, path, end, wire)).unwrap();
            }
        }
        let [a, b] = namespaces;
        let host = End::start(a, &Setup { max_paths, ..setup(Role::Host, outer) }, options);
        let anchor = End::start(b, &Setup { max_paths, ..setup(Role::Anchor, outer) }, options);
        let world = World { host, anchor, outer };
        for path in 0..paths {
            world.set_paths(path);
        }
        for family in Family::BOTH {
            let mut datapath = world.host.datapath.lock().unwrap();
            datapath.set_inner(family.inner(1), 0).unwrap();
            drop(datapath);
            let mut datapath = world.anchor.datapath.lock().unwrap();
            datapath.set_inner(family.inner(1), OWNER).unwrap();
        }
        for (end, ns) in [(1, &world.host.ns), (2, &world.anchor.ns)] {
            ns.run(|| {
                for family in Family::BOTH {
                    let len = if family == Family::V4 { 24 } else { 64 };
                    let prefix = Prefix::new(family.inner(end), len);
                    link::add_address("segue0", prefix).unwrap();
                    eventually("an inner address", || is_local(family.inner(end)));
                }
            })
            .unwrap();
        }
        world
    }

    /// Like [`World::new`], with each path probed once.
    pub(crate) fn ready(outer: Family, wire: Wire, paths: u32, options: EbpfOptions) -> World {
        let world = World::new(outer, wire, paths, options);
        for path in 0..paths {
            world.probe(path, 1);
        }
        world
    }

    pub(crate) fn host_path(&self, path: u32) -> PathSetup {
        PathSetup {
            tx_index: anchor_slot(path),
            tx_cookie: 0xa000 + u64::from(path),
            rx_cookie: 0xb000 + u64::from(path),
            key: KEY,
            local: Some(SocketAddr::new(self.outer.outer(path, 1), PORT)),
            remote: Some(SocketAddr::new(self.outer.outer(path, 2), PORT)),
            ifindex: self.host.ifindex(path),
            gateway: None,
            owner: 0,
            probing: segue_keepalive::Probing::default(),
        }
    }

    /// The anchor's counterpart of [`host_path`](World::host_path).
    pub(crate) fn anchor_path(&self, path: u32) -> PathSetup {
        let host = self.host_path(path);
        PathSetup {
            tx_index: host_slot(path),
            tx_cookie: host.rx_cookie,
            rx_cookie: host.tx_cookie,
            local: host.remote,
            remote: host.local,
            ifindex: self.anchor.ifindex(path),
            owner: OWNER,
            ..host
        }
    }

    pub(crate) fn set_paths(&self, path: u32) {
        let (host, anchor) = (self.host_path(path), self.anchor_path(path));
        for (end, slot, config) in
            [(&self.host, host_slot(path), host), (&self.anchor, anchor_slot(path), anchor)]
        {
            let ifindex = end.ifindex(path);
            let datapath = &end.datapath;
            datapath.lock().unwrap().set_path(slot, &config).unwrap();
            end.ns.run(|| datapath.lock().unwrap().attach(ifindex)).unwrap().unwrap();
        }
    }

    /// Sends a request over a path and returns the response.
    pub(crate) fn probe(&self, path: u32, seq: u32) -> ProbeEvent {
        self.order(path, seq);
        self.host.wait_for_probe(|e| e.slot == host_slot(path) && e.arrival.probe.seq == seq)
    }

    pub(crate) fn order(&self, path: u32, seq: u32) {
        self.order_as(path, seq, false);
    }

    /// Sends a request, or a question.
    pub(crate) fn order_as(&self, path: u32, seq: u32, question: bool) {
        let probe = Probe { seq, t_ka_ms: 200, heard: 3, ..Probe::default() };
        let order = ProbeOrder {
            question,
            ..ProbeOrder::plain(host_slot(path), ProbeKind::Request, 3, probe)
        };
        self.host.datapath.lock().unwrap().send_probes(&[order]).unwrap();
    }
}

fn wire_up(device: &str, path: u32, end: u8, wire: Wire) {
    for family in Family::BOTH {
        let len = if family == Family::V4 { 24 } else { 64 };
        link::add_address(device, Prefix::new(family.outer(path, end), len)).unwrap();
    }
    wire.set_up(device);
}

impl End {
    fn start(ns: Netns, setup: &Setup, options: EbpfOptions) -> End {
        let (sender, events) = channel();
        let sender = Mutex::new(sender);
        let sink = Arc::new(move |event| {
            let _ = sender.lock().unwrap().send(event);
        });
        let datapath = ns.run(|| Ebpf::with_options(setup, sink, options)).unwrap().unwrap();
        let slot = if setup.role == Role::Host { host_slot(0) } else { anchor_slot(0) };
        let mut end = End {
            ns,
            datapath: Arc::new(Mutex::new(datapath)),
            probes: Arc::default(),
            misses: Arc::default(),
            rides_over: Arc::default(),
            bind_to: Arc::new(AtomicU32::new(slot)),
            stop: Arc::default(),
            daemon: None,
        };
        end.daemon = Some(end.daemon(events));
        end
    }

    fn daemon(&self, events: Receiver<DatapathEvent>) -> JoinHandle<()> {
        let (datapath, probes) = (Arc::clone(&self.datapath), Arc::clone(&self.probes));
        let (misses, bind_to) = (Arc::clone(&self.misses), Arc::clone(&self.bind_to));
        let (stop, rides_over) = (Arc::clone(&self.stop), Arc::clone(&self.rides_over));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match events.recv_timeout(Duration::from_millis(100)) {
                    Ok(DatapathEvent::Miss(packet)) => {
                        misses.fetch_add(1, Ordering::Relaxed);
                        let mut datapath = datapath.lock().unwrap();
                        let slot = bind_to.load(Ordering::Relaxed);
                        if slot != u32::MAX {
                            datapath.bind_flow(packet.key, slot).unwrap();
                            datapath.inject(packet);
                        }
                    }
                    Ok(DatapathEvent::Probe(probe)) => probes.lock().unwrap().push(probe),
                    Ok(DatapathEvent::Look(slot)) => rides_over.lock().unwrap().push(slot),
                    Ok(event @ (DatapathEvent::Uncut(_) | DatapathEvent::Size(..))) => {
                        panic!("unasked: {event:?}")
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                datapath.lock().unwrap().heartbeat();
            }
        })
    }

    pub(crate) fn ifindex(&self, path: u32) -> u32 {
        self.ns.run(|| link::index_of(&format!("sg{path}"))).unwrap().unwrap()
    }

    pub(crate) fn counters(&self, slot: u32) -> PathCounters {
        self.datapath.lock().unwrap().counters(slot)
    }

    /// Packets that the wires' devices dropped in both directions, according to the kernel.
    pub(crate) fn lost_on_wire(&self) -> u64 {
        let text = self.ns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
        let lost = |line: &str| {
            let fields = line.trim().strip_prefix("sg")?.split_once(':')?.1.split_whitespace();
            let numbers: Vec<u64> = fields.map(|f| f.parse().unwrap()).collect();
            Some(numbers[3] + numbers[11])
        };
        text.unwrap().lines().filter_map(lost).sum()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.datapath.lock().unwrap().drops().get(&reason).copied().unwrap_or(0)
    }

    /// The first matching probe event; fails after ten seconds.
    pub(crate) fn wait_for_probe(&self, fits: impl Fn(&ProbeEvent) -> bool) -> ProbeEvent {
        let mut found = None;
        eventually("a probe event", || {
            found = self.probes.lock().unwrap().iter().find(|e| fits(e)).copied();
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.join();
        }
    }
}
