//! The cost of an anchor's machine on the eBPF datapath with 100 000 probed paths. `SEGUE_T_KA_MS`
//! overrides the test's periods, for a busy machine.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_daemon::packets::{self, Packets};
use segue_daemon::settings::{Choice, Tunnel};
use segue_daemon::until;
use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::{
    Datapath, DatapathError, DatapathEvent, LinuxDatapath, PathSetup, ProbeKind, ProbeOrder, Role,
    Setup,
};
use segue_ip::Output as ToDriver;
use segue_ip::Prefix;
use segue_keepalive::{MeasuredBy, Probing, State};
use segue_linux::clock::{monotonic, thread_cpu};
use segue_linux::link;
use segue_linux::netns::Netns;
use segue_tunnel::{
    Anchor, AnchorConfig, AnchorInput, AnchorOutput, ConnId, End, Pool, Report, Turn,
};
use segue_wire::signal::{FromAnchor, FromHost, PathGrant, PathOffer, SIGNAL_VERSION};
use segue_wire::{Encapsulation, MAX_PATHS, Mode, Probe, ProbeKey};

const PATHS: u32 = 100_000;
const PORT: u16 = 5005;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const ANCHOR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
/// Requests of one call: a virtual pair has room for 256 frames.
const CHUNK: u32 = 192;
/// Time limit until every path has been up once.
const PATIENCE: Span = Span::from_secs(600);
/// Time from then until every path has echoed and is quiet, in periods.
const SETTLE: u64 = 3;
const MEASURED: Span = Span::from_secs(10);

#[test]
#[ignore = "100 000 paths, a minute of all processors; make soak"]
fn a_hundred_thousand_paths_are_probed_and_watched() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: namespaces and eBPF programs need root");
        return;
    }
    match std::env::var("SEGUE_T_KA_MS") {
        Ok(ms) => measure(Span::from_millis(ms.parse().unwrap())),
        Err(_) => [5_000, 1_000].into_iter().for_each(|ms| measure(Span::from_millis(ms))),
    }
}

fn measure(t_ka: Span) {
    let name = |end| format!("segue-many{}-{end}", std::process::id());
    let [host_ns, anchor_ns] = ["a", "b"].map(|end| Netns::create(&name(end)).unwrap());
    host_ns.run(|| link::create_veth("sgm", "sgm", Some(&anchor_ns))).unwrap().unwrap();
    for (ns, address) in [(&host_ns, HOST), (&anchor_ns, ANCHOR)] {
        ns.run(|| {
            link::add_address("sgm", Prefix::new(address, 24)).unwrap();
            link::set_up("sgm", true).unwrap();
        })
        .unwrap();
    }
    let (grants_in, grants) = channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, host_ns) = (&stop, &host_ns);
        let hosts = scope.spawn(move || {
            host_ns.enter_thread().unwrap();
            ask(&grants, t_ka, stop)
        });
        let anchor_ns = &anchor_ns;
        let anchor = scope.spawn(move || {
            anchor_ns.enter_thread().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // The hosts end with it, even if it fails, because their channel closes.
            runtime.unwrap().block_on(watch(grants_in, t_ka));
        });
        let watched = anchor.join();
        stop.store(true, Ordering::Relaxed);
        let asked = hosts.join();
        watched.unwrap();
        let (sent, cpu) = asked.unwrap();
        let each = cpu.as_secs_f64() / sent as f64;
        println!(
            "  sending, with the kernel's part of receiving and answering: {:.2} µs",
            each * 1e6
        );
    });
}

fn setup(role: Role) -> Setup {
    Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1400,
        port: PORT,
        role,
        max_paths: PATHS + 1,
        max_flows: 1024,
        mark: packets::MARK,
    }
}

const OPTIONS: EbpfOptions = EbpfOptions { xdp: Xdp::On, tcx: true, stamp: None };

/// All hosts in one datapath: a request on each path in each period, evenly spread. Returns their
/// number and the processor time.
fn ask(grants: &Receiver<(u32, PathGrant)>, t_ka: Span, stop: &AtomicBool) -> (u64, Span) {
    let mut datapath =
        Ebpf::with_options(&setup(Role::Host), std::sync::Arc::new(|_| {}), OPTIONS).unwrap();
    let ifindex = link::index_of("sgm").unwrap();
    datapath.attach(ifindex).unwrap();
    for (slot, grant) in grants.iter().take(PATHS as usize) {
        let path = PathSetup {
            tx_index: grant.index,
            tx_cookie: grant.cookie,
            rx_cookie: cookie(slot),
            key: ProbeKey(grant.key),
            local: Some(SocketAddr::new(HOST, PORT)),
            remote: Some(SocketAddr::new(ANCHOR, PORT)),
            ifindex,
            gateway: None,
            owner: 0,
            probing: Probing { t_ka, ..Probing::default() },
        };
        datapath.set_path(slot, &path).unwrap();
        datapath.set_quiet(slot, true);
    }
    let (began, cpu, mut sent) = (monotonic(), thread_cpu(), 0);
    let mut beaten = Time::ZERO;
    while !stop.load(Ordering::Relaxed) {
        if monotonic().since(beaten) > Span::from_millis(500) {
            beaten = monotonic();
            datapath.heartbeat();
        }
        let first = (sent % u64::from(PATHS)) as u32;
        let due = began + Span((u128::from(t_ka.0) * u128::from(sent) / u128::from(PATHS)) as u64);
        std::thread::sleep(Duration::from_nanos(due.since(monotonic()).0));
        let orders: Vec<_> =
            (first..(first + CHUNK).min(PATHS)).map(|slot| order(slot, t_ka)).collect();
        datapath.send_probes(&orders).unwrap();
        sent += orders.len() as u64;
    }
    (sent.max(1), thread_cpu() - cpu)
}

fn cookie(slot: u32) -> u64 {
    u64::from(slot) + (1 << 40)
}

fn order(slot: u32, t_ka: Span) -> ProbeOrder {
    let t_ka_ms = (t_ka.0 / 1_000_000) as u16;
    let probe = Probe { t_ka_ms, heard: u16::MAX, ..Probe::default() };
    ProbeOrder::plain(slot, ProbeKind::Request, 3, probe)
}

/// An anchor's machine and datapath, driven as the daemon drives them.
struct Driver {
    end: End<Anchor, Box<dyn LinuxDatapath>>,
    events: Packets,
    shed: packets::Shed,
    /// Number of due paths; each one is read.
    readings: u64,
    grants: Sender<(u32, PathGrant)>,
    wakes: u64,
    told: u64,
    downs: u64,
    /// Paths that have been up, by host and name.
    seen: BTreeSet<(String, String)>,
}

async fn watch(grants: Sender<(u32, PathGrant)>, t_ka: Span) {
    let before = memory();
    let (device, port, datapath) = ("segue0".into(), PORT, Choice::Ebpf);
    let settings = Tunnel { device, port, datapath, realtime: false };
    let opened = packets::open(&settings, &setup(Role::Anchor), OPTIONS).unwrap();
    let (mut datapath, _reserved) = (opened.datapath, opened.reserved);
    datapath.attach(link::index_of("sgm").unwrap()).unwrap();
    let mut driver = Driver {
        end: End::new(Anchor::new(config(datapath.as_ref()), [3; 32]), datapath),
        events: opened.events,
        shed: opened.shed,
        grants,
        readings: 0,
        wakes: 0,
        told: 0,
        downs: 0,
        seen: BTreeSet::new(),
    };
    let (began, cpu) = (monotonic(), thread_cpu());
    driver.set_up(t_ka);
    let (took, cpu) = (monotonic().since(began), thread_cpu() - cpu);
    println!(
        "T_KA {t_ka}: {PATHS} paths set up in {took}, {cpu} of it the machine and its datapath"
    );
    println!(
        "  memory of the process for each path: {} bytes",
        (memory() - before) / u64::from(PATHS)
    );
    let patience = monotonic() + PATIENCE;
    while driver.seen.len() < PATHS as usize {
        assert!(monotonic() < patience, "only {} paths have been up", driver.seen.len());
        driver.run_until(monotonic() + Span::from_secs(1)).await;
    }
    driver.run_until(monotonic() + t_ka * SETTLE).await;
    driver.measure(t_ka).await;
}

fn config(datapath: &dyn LinuxDatapath) -> AnchorConfig {
    assert_eq!(packets::measured_by(datapath), MeasuredBy::PacketPath);
    AnchorConfig {
        port: PORT,
        pool_v4: Pool::new("10.64.0.0/10".parse().unwrap()),
        pool_v6: None,
        max_paths: PATHS + 1,
        expiry: Span::from_secs(600),
        rest: Span::ZERO,
        resting: Vec::new(),
        measured_by: MeasuredBy::PacketPath,
        largest: None,
        allow_upmt: false,
    }
}

impl Driver {
    fn set_up(&mut self, t_ka: Span) {
        for host in 0..PATHS / MAX_PATHS as u32 {
            let conn = ConnId(host.into());
            self.feed(AnchorInput::Connected { conn, host: format!("host{host}") });
            let register = FromHost::Register { version: SIGNAL_VERSION, epoch: 1 };
            self.feed(AnchorInput::Signal { conn, message: register });
            for path in 0..MAX_PATHS as u8 {
                let index = host * MAX_PATHS as u32 + u32::from(path);
                let offer = PathOffer {
                    path,
                    name: format!("if{path}"),
                    index,
                    cookie: cookie(index),
                    k: 3,
                    t_ka_ms: (t_ka.0 / 1_000_000) as u16,
                    mode: Mode::Both,
                    rides: false,
                    encapsulation: Encapsulation::Segue,
                    n: 10,
                    taus: [segue_wire::signal::Timescale::symmetric(1_000); 2],
                    follows_use: false,
                    largest: 1_456,
                    v6: false,
                    checksums: false,
                };
                let message = FromHost::AddPath(offer);
                self.feed(AnchorInput::Signal { conn, message });
            }
        }
        assert_eq!(self.end.machine.paths().count(), PATHS as usize);
    }

    async fn run_until(&mut self, end: Time) {
        let mut heartbeat = tokio::time::interval(Duration::from_secs(1));
        loop {
            let deadline = self.end.deadline().map(|(at, _)| at);
            tokio::select! {
                biased;
                () = until(Some(end)) => break,
                _ = heartbeat.tick() => self.end.datapath.heartbeat(),
                () = until(deadline) => self.on_deadline(),
                events = turn(&mut self.events) => {
                    events.into_iter().for_each(|event| self.on_event(event));
                }
            }
        }
    }

    fn on_deadline(&mut self) {
        self.wakes += 1;
        self.readings += self.end.machine.due(monotonic()).len() as u64;
        let waiting = self.events.waiting();
        self.told += waiting.len() as u64;
        self.follow(Turn::at_deadline(waiting));
    }

    fn on_event(&mut self, event: DatapathEvent) {
        self.told += u64::from(matches!(event, DatapathEvent::Probe(_)));
        let turn = self.end.on_event(monotonic(), event);
        self.follow(turn);
    }

    fn feed(&mut self, input: AnchorInput) {
        let turn = self.end.handle(monotonic(), input);
        self.follow(turn);
    }

    fn follow(&mut self, mut turn: Turn<DatapathError>) {
        while let Some(output) = self.end.poll(&mut turn, monotonic) {
            match output {
                ToDriver::Own(AnchorOutput::Signal(conn, FromAnchor::PathReady(grant))) => {
                    let slot = conn.0 as u32 * MAX_PATHS as u32 + u32::from(grant.path);
                    self.grants.send((slot, grant)).unwrap();
                }
                ToDriver::Report(Report::PathState { host, path, state, .. }) => match state {
                    State::Up => drop(self.seen.insert((host, path))),
                    State::Down => self.downs += 1,
                    State::Starting => {}
                },
                _ => {}
            }
        }
        assert!(turn.failures.is_empty());
    }

    async fn measure(&mut self, t_ka: Span) {
        let received = |driver: &mut Driver| -> u64 {
            (1..=PATHS).map(|slot| u64::from(driver.end.datapath.counters(slot).rx_packets)).sum()
        };
        let before = received(self);
        (self.readings, self.wakes, self.told, self.downs) = (0, 0, 0, 0);
        let (began, cpu, events) = (monotonic(), thread_cpu(), event_threads());
        self.run_until(began + MEASURED).await;
        let seconds = monotonic().since(began).as_secs_f64();
        let (cpu, events) = (thread_cpu() - cpu, event_threads() - events);
        let came = received(self) - before;
        let up = self.end.machine.paths().filter(|(_, path)| path.is_up()).count();
        println!(
            "  {:.0} requests a second of {:.0}, {up} paths up, {} times down",
            came as f64 / seconds,
            f64::from(PATHS) / t_ka.as_secs_f64(),
            self.downs
        );
        println!(
            "  the daemon's thread: {:.3} s of processor a second, {:.0} wake-ups, {:.0} readings ({:.2} µs each)",
            cpu.as_secs_f64() / seconds,
            self.wakes as f64 / seconds,
            self.readings as f64 / seconds,
            cpu.as_secs_f64() * 1e6 / self.readings.max(1) as f64,
        );
        println!(
            "  told of {:.0} probes a second; the threads of events: {:.3} s a second",
            self.told as f64 / seconds,
            events.as_secs_f64() / seconds
        );
        println!("  refused: {:?}", packets::drops(self.end.datapath.as_mut(), &self.shed));
        assert!(came > 0 && self.readings > 0, "nothing is probed or looked at");
    }
}

/// Takes one turn's batch, as the daemon's loop would.
async fn turn(queue: &mut Packets) -> Vec<DatapathEvent> {
    std::future::poll_fn(|context| {
        let mut events = Vec::new();
        queue.take(context, |event| events.push(event));
        if events.is_empty() { Poll::Pending } else { Poll::Ready(events) }
    })
    .await
}

/// Anonymous memory of this process in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Processor time of the threads that take the programs' events, at both ends.
fn event_threads() -> Span {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let ran = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let ran = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let ns = ran.split(' ').next()?.parse::<u64>().ok()?;
        (name.trim() == "segue-ebpf").then_some(ns)
    });
    Span(ran.sum())
}
