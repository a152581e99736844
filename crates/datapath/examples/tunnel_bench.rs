//! What the tunnel costs: TCP over the bare wire, over the kernel's VXLAN and over this datapath, in
//! namespaces of its own. Needs root and `iperf3`.
//!
//! `tunnel_bench [--json] [--rounds N] [--seconds N] [--whole | --wire-like]`
//!
//! Two kinds of wire: one that carries super-packets whole (a virtual pair's default) and one like a real one (cut to
//! packets before it, merged by GRO behind it). Sender and receiver are pinned to a processor each. The order rotates
//! from round to round; medians are shown. Next to the figures of `segue` stand their bars ([`RATE_BAR`],
//! [`cpu_bar`]).
//!
//! A virtual pair copies every packet for XDP, which a network card does not: `vxlan+xdp` is VXLAN with
//! an XDP program attached that only lets it pass, for a fair view of `segue-xdp`.
//!
//! Processor time is not sampled in ticks, which softirqs escape. `own` is the scheduler's exact run time of both
//! iperf3 processes and of all ksoftirqd threads: the packet path runs in their context (the little that interrupts
//! other tasks is missed). `busy` is all time in which a processor was not idle, which the kernel also measures and
//! does not sample: complete, interrupts included, but with everything else that the machine does.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_datapath::ebpf::{Ebpf, EbpfOptions, Xdp};
use segue_datapath::{
    Datapath, DatapathEvent, EventSink, LinuxDatapath, PathSetup, ProbeKind, ProbeOrder, Role,
    Setup,
};
use segue_ip::Prefix;
use segue_linux::link::{self, Feature, set_feature};
use segue_linux::netns::Netns;
use segue_wire::{Probe, ProbeKey};

type Error = Box<dyn std::error::Error>;

const PORT: u16 = 5005;
const WIRE: &str = "sg0";
const HOST: u32 = 1;
const ANCHOR: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carrier {
    Bare,
    Vxlan,
    Segue,
    SegueXdp,
    /// VXLAN while the XDP program is attached and lets it pass: what XDP itself costs this device.
    VxlanBesideXdp,
}

impl Carrier {
    const ALL: [Carrier; 5] =
        [Carrier::Bare, Carrier::Vxlan, Carrier::Segue, Carrier::SegueXdp, Carrier::VxlanBesideXdp];

    fn name(self) -> &'static str {
        match self {
            Carrier::Bare => "bare",
            Carrier::Vxlan => "vxlan",
            Carrier::Segue => "segue",
            Carrier::SegueXdp => "segue-xdp",
            Carrier::VxlanBesideXdp => "vxlan+xdp",
        }
    }

    fn receiver(self) -> &'static str {
        match self {
            Carrier::Bare => "10.9.0.2",
            Carrier::Vxlan | Carrier::VxlanBesideXdp => "10.7.0.2",
            Carrier::Segue | Carrier::SegueXdp => "10.8.0.2",
        }
    }
}

/// Least rate on a wire with offloads whole, as a share of the bare wire's.
const RATE_BAR: f64 = 0.85;

/// Most processor time for a gigabyte, as a multiple of VXLAN's. There is no GRO behind TC
/// decapsulation, and XDP costs a virtual pair a copy: a wire that cuts packets gets some allowance.
fn cpu_bar(whole: bool) -> f64 {
    if whole { 1.00 } else { 1.15 }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    gbit_s: f64,
    own_s_per_gb: f64,
    busy_s_per_gb: f64,
}

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tunnel_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: usize| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (rounds, seconds) = (number("--rounds", 5), number("--seconds", 3));
    let net = Net::new()?;
    let mut samples: BTreeMap<(bool, Carrier), Vec<Sample>> = BTreeMap::new();
    let only = |name: &str| args.iter().any(|a| a == name);
    for whole in [true, false] {
        if only(if whole { "--wire-like" } else { "--whole" }) {
            continue;
        }
        net.set_offloads(whole)?;
        for round in 0..rounds {
            for i in 0..Carrier::ALL.len() {
                let carrier = Carrier::ALL[(i + round) % Carrier::ALL.len()];
                let sample = net.measure(carrier, seconds)?;
                samples.entry((whole, carrier)).or_default().push(sample);
            }
        }
    }
    let medians: BTreeMap<_, _> = samples.into_iter().map(|(k, v)| (k, median(&v))).collect();
    if args.iter().any(|a| a == "--json") {
        print_json(&medians, rounds, seconds);
    } else {
        print_table(&medians);
    }
    Ok(())
}

fn median(samples: &[Sample]) -> Sample {
    let middle = |field: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Sample {
        gbit_s: middle(|s| s.gbit_s),
        own_s_per_gb: middle(|s| s.own_s_per_gb),
        busy_s_per_gb: middle(|s| s.busy_s_per_gb),
    }
}

fn wire_name(whole: bool) -> &'static str {
    if whole { "whole" } else { "wire-like" }
}

fn print_table(medians: &BTreeMap<(bool, Carrier), Sample>) {
    println!(
        "{:<10} {:<10} {:>8} {:>12} {:>12} {:>9} {:>9}  bars",
        "wire", "carrier", "Gbit/s", "own CPU s/GB", "busy s/GB", "/ bare", "/ vxlan"
    );
    println!("{:>73}", "rate      own CPU");
    for (&(whole, carrier), s) in medians.iter().rev() {
        let rate = medians.get(&(whole, Carrier::Bare)).map_or(f64::NAN, |b| s.gbit_s / b.gbit_s);
        let cpu = medians
            .get(&(whole, Carrier::Vxlan))
            .map_or(f64::NAN, |v| s.own_s_per_gb / v.own_s_per_gb);
        let bars = match carrier {
            Carrier::Segue | Carrier::SegueXdp => {
                let cpu = verdict(cpu <= cpu_bar(whole));
                let cpu = format!("CPU \u{2264} {:.2}: {cpu}", cpu_bar(whole));
                let rate = verdict(rate >= RATE_BAR);
                if whole { format!("rate \u{2265} {RATE_BAR:.2}: {rate}, {cpu}") } else { cpu }
            }
            Carrier::VxlanBesideXdp => "for reference: what XDP itself costs here".into(),
            Carrier::Bare | Carrier::Vxlan => String::new(),
        };
        println!(
            "{:<10} {:<10} {:>8.2} {:>12.3} {:>12.3} {rate:>9.2} {cpu:>9.2}  {bars}",
            wire_name(whole),
            carrier.name(),
            s.gbit_s,
            s.own_s_per_gb,
            s.busy_s_per_gb
        );
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn print_json(medians: &BTreeMap<(bool, Carrier), Sample>, rounds: usize, seconds: usize) {
    let rows: Vec<_> = medians
        .iter()
        .map(|(&(whole, carrier), s)| {
            serde_json::json!({
                "wire": wire_name(whole),
                "carrier": carrier.name(),
                "gbit_s": s.gbit_s,
                "own_cpu_s_per_gb": s.own_s_per_gb,
                "busy_cpu_s_per_gb": s.busy_s_per_gb,
            })
        })
        .collect();
    let bars = serde_json::json!({
        "rate_of_bare": RATE_BAR,
        "cpu_of_vxlan": { "whole": cpu_bar(true), "wire-like": cpu_bar(false) },
    });
    let all =
        serde_json::json!({ "rounds": rounds, "seconds": seconds, "bars": bars, "medians": rows });
    println!("{all}");
}

/// Two namespaces with a wire and a VXLAN between them.
struct Net {
    a: Netns,
    b: Netns,
}

impl Net {
    fn new() -> Result<Net, Error> {
        let name = |end| format!("segue-bench{}{end}", std::process::id());
        let net = Net { a: Netns::create(&name('a'))?, b: Netns::create(&name('b'))? };
        net.a.run(|| link::create_veth(WIRE, WIRE, Some(&net.b)))??;
        for (ns, end) in [(&net.a, 1), (&net.b, 2)] {
            ns.run(|| -> Result<(), segue_linux::LinuxError> {
                link::sysctl("net.ipv4.conf.all.rp_filter", "0")?;
                link::add_address(WIRE, Prefix::new([10, 9, 0, end], 24))?;
                set_feature(WIRE, Feature::Gro, true)?;
                link::set_up(WIRE, true)
            })??;
            let other = 3 - end;
            for step in [
                format!(
                    "link add sgvx type vxlan id 9 dstport 4789 local 10.9.0.{end} remote 10.9.0.{other} dev {WIRE}"
                ),
                format!("addr add 10.7.0.{end}/24 dev sgvx"),
                "link set sgvx up".into(),
            ] {
                if !ns.command("ip").args(step.split(' ')).status()?.success() {
                    return Err(format!("ip {step}").into());
                }
            }
        }
        Ok(net)
    }

    fn set_offloads(&self, whole: bool) -> Result<(), Error> {
        for ns in [&self.a, &self.b] {
            ns.run(|| {
                set_feature(WIRE, Feature::Tso, whole)
                    .and_then(|()| set_feature(WIRE, Feature::Gso, whole))
            })??;
        }
        Ok(())
    }

    fn measure(&self, carrier: Carrier, seconds: usize) -> Result<Sample, Error> {
        let tunnel = match carrier {
            Carrier::Bare | Carrier::Vxlan => None,
            Carrier::Segue => Some(Tunnel::new(self, Xdp::Off)?),
            Carrier::SegueXdp | Carrier::VxlanBesideXdp => Some(Tunnel::new(self, Xdp::On)?),
        };
        let to = carrier.receiver();
        let mut server = iperf3(&self.b, &["-s", "-1", "-B", to, "-A", "1"])?;
        std::thread::sleep(Duration::from_millis(300));
        let before = Spent::now()?;
        let time = seconds.to_string();
        let client = iperf3(&self.a, &["-c", to, "-t", &time, "-J", "-A", "0"])?;
        let output = client.wait_with_output()?;
        if !output.status.success() {
            // It waits for a client that never comes.
            server.kill()?;
        }
        server.wait()?;
        let spent = Spent::now()?.since(&before);
        drop(tunnel);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let sum = &report["end"]["sum_received"];
        let (Some(bytes), Some(rate)) = (sum["bytes"].as_f64(), sum["bits_per_second"].as_f64())
        else {
            return Err(format!("iperf3 over {}: {}", carrier.name(), report["error"]).into());
        };
        let per_gb = |ns: u64| ns as f64 / bytes;
        Ok(Sample {
            gbit_s: rate / 1e9,
            own_s_per_gb: per_gb(spent.own_ns),
            busy_s_per_gb: per_gb(spent.busy_ns),
        })
    }
}

fn iperf3(ns: &Netns, args: &[&str]) -> Result<Child, Error> {
    let mut command: Command = ns.command("iperf3");
    Ok(command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?)
}

/// Processor time in nanoseconds since some start.
struct Spent {
    own_ns: u64,
    busy_ns: u64,
}

impl Spent {
    fn now() -> Result<Spent, Error> {
        // SAFETY: rusage is plain data for which all zero is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: getrusage writes one rusage, which outlives the call.
        if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        let children = ns(usage.ru_utime) + ns(usage.ru_stime);
        let idle_ns = idle_ns()?;
        let wall_ns = segue_linux::clock::monotonic().0;
        let processors = std::thread::available_parallelism()?.get() as u64;
        let busy = (wall_ns * processors).saturating_sub(idle_ns);
        Ok(Spent { own_ns: children + softirq_threads_ns(), busy_ns: busy })
    }

    fn since(&self, before: &Spent) -> Spent {
        Spent { own_ns: self.own_ns - before.own_ns, busy_ns: self.busy_ns - before.busy_ns }
    }
}

/// Idle time of all processors since boot; the kernel measures it between entering and leaving idle.
fn idle_ns() -> Result<u64, Error> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = text
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .filter_map(|field| field.parse().ok())
        .collect();
    let ticks = fields.get(3).zip(fields.get(4)).map(|(idle, iowait)| idle + iowait);
    Ok(ticks.ok_or("no idle time in /proc/stat")? * 10_000_000)
}

fn softirq_threads_ns() -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    processes
        .flatten()
        .filter(|p| {
            fs::read_to_string(p.path().join("comm")).is_ok_and(|c| c.starts_with("ksoftirqd/"))
        })
        .filter_map(|p| {
            let text = fs::read_to_string(p.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Both ends of the tunnel, removed when dropped.
struct Tunnel {
    stop: Arc<AtomicBool>,
    daemons: Vec<std::thread::JoinHandle<()>>,
}

impl Tunnel {
    fn new(net: &Net, xdp: Xdp) -> Result<Tunnel, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut daemons = Vec::new();
        let (ready, answered) = channel();
        for (ns, role, end) in [(&net.b, Role::Anchor, 2), (&net.a, Role::Host, 1)] {
            let (sender, events) = channel();
            let sender = Mutex::new(sender);
            let sink: EventSink = Arc::new(move |event| {
                if let Ok(sender) = sender.lock() {
                    let _ = sender.send(event);
                }
            });
            let mut datapath = ns.run(|| end_of_tunnel(role, end, xdp, sink))??;
            if role == Role::Host {
                request(&mut datapath)?;
            }
            let (stop, ready) = (Arc::clone(&stop), ready.clone());
            let slot = if role == Role::Host { HOST } else { ANCHOR };
            daemons.push(std::thread::spawn(move || {
                daemon(datapath, slot, &events, &stop, &ready);
            }));
        }
        // Two requests and their answers.
        for _ in 0..4 {
            answered.recv_timeout(Duration::from_secs(10))?;
        }
        Ok(Tunnel { stop, daemons })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for daemon in self.daemons.drain(..) {
            let _ = daemon.join();
        }
    }
}

fn end_of_tunnel(role: Role, end: u8, xdp: Xdp, sink: EventSink) -> Result<Ebpf, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let setup = Setup {
        tun_name: "segue0".into(),
        tun_mtu: 1456,
        port: PORT,
        role,
        max_paths: 8,
        max_flows: 1024,
        mark: 0,
    };
    let options = EbpfOptions { xdp, ..EbpfOptions::default() };
    let mut datapath = Ebpf::with_options(&setup, sink, options).map_err(|e| text(&e))?;
    let ifindex = link::index_of(WIRE).map_err(|e| text(&e))?;
    let address = |end| Some(SocketAddr::from(([10, 9, 0, end], PORT)));
    let host = role == Role::Host;
    let path = PathSetup {
        tx_index: if host { ANCHOR } else { HOST },
        tx_cookie: if host { 2 } else { 1 },
        rx_cookie: if host { 1 } else { 2 },
        key: ProbeKey([7; 16]),
        local: host.then_some(address(1)).flatten(),
        remote: host.then_some(address(2)).flatten(),
        ifindex: if host { ifindex } else { 0 },
        gateway: None,
        owner: u32::from(!host),
        // As without a configuration: packets that leave may have to leave again.
        probing: segue_keepalive::Probing { follows_use: true, ..Default::default() },
    };
    let entry = path.owner;
    datapath.set_path(if host { HOST } else { ANCHOR }, &path).map_err(|e| text(&e))?;
    datapath.set_inner([10, 8, 0, 1].into(), entry).map_err(|e| text(&e))?;
    datapath.attach(ifindex).map_err(|e| text(&e))?;
    let prefix = Prefix::new([10, 8, 0, end], 24);
    link::add_address("segue0", prefix).map_err(|e| text(&e))?;
    Ok(datapath)
}

fn request(datapath: &mut Ebpf) -> Result<(), segue_datapath::DatapathError> {
    let order = ProbeOrder::plain(HOST, ProbeKind::Request, 3, Probe::default());
    datapath.send_probes(&[order])
}

fn daemon(
    mut datapath: Ebpf,
    slot: u32,
    events: &Receiver<DatapathEvent>,
    stop: &AtomicBool,
    ready: &std::sync::mpsc::Sender<()>,
) {
    // The anchor sends to a host that has echoed the answer to its first request.
    let mut echoes = slot == HOST;
    while !stop.load(Ordering::Relaxed) {
        datapath.heartbeat();
        match events.recv_timeout(Duration::from_millis(200)) {
            Ok(DatapathEvent::Miss(packet)) => {
                if datapath.bind_flow(packet.key, slot).is_ok() {
                    datapath.inject(packet);
                }
            }
            Ok(DatapathEvent::Probe(_)) => {
                let _ = ready.send(());
                if core::mem::take(&mut echoes) {
                    let _ = request(&mut datapath);
                }
            }
            Ok(DatapathEvent::Look(_) | DatapathEvent::Uncut(_) | DatapathEvent::Size(..))
            | Err(_) => {}
        }
    }
}
