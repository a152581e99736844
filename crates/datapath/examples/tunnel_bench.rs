//! The cost of the tunnel: TCP over the bare wire, over the kernel's VXLAN and over this datapath, in separate
//! namespaces. Needs root and `iperf3`.
//!
//! `tunnel_bench [--json] [--rounds N] [--seconds N] [--whole | --wire-like]`
//!
//! Two kinds of wire: one that passes super-packets unsegmented (the default of a veth pair), and one like a real
//! link (segmented before it, merged by GRO after it). Sender and receiver are each pinned to a processor. The order
//! rotates from round to round; medians are printed, with limits next to the figures of `segue` ([`RATE_BAR`],
//! [`cpu_bar`]).
//!
//! A veth pair copies every packet for XDP, which a network card does not: for a fair comparison with `segue-xdp`,
//! `vxlan+xdp` is VXLAN with an XDP program attached that only passes packets.

mod side_by_side;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
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
use segue_linux::link;
use segue_wire::{Probe, ProbeKey};
use side_by_side::{Error, IN_VXLAN, Net, Sample, WIRE, median, verdict, wire_name};

const PORT: u16 = 5005;
const HOST: u32 = 1;
const ANCHOR: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carrier {
    Bare,
    Vxlan,
    Segue,
    SegueXdp,
    /// VXLAN with the XDP program attached and passing packets: the cost of XDP itself on this device.
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
            Carrier::Vxlan | Carrier::VxlanBesideXdp => IN_VXLAN,
            Carrier::Segue | Carrier::SegueXdp => "10.8.0.2",
        }
    }
}

/// Lowest rate on a wire without segmentation, as a share of the bare wire's.
const RATE_BAR: f64 = 0.85;

/// Most processor time per gigabyte, as a multiple of VXLAN's. There is no GRO after TC decapsulation, and XDP costs
/// a veth pair a copy, so a wire that segments packets gets some allowance.
fn cpu_bar(whole: bool) -> f64 {
    if whole { 1.00 } else { 1.15 }
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
                let sample = measure(&net, carrier, seconds)?;
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

fn measure(net: &Net, carrier: Carrier, seconds: usize) -> Result<Sample, Error> {
    let _tunnel = match carrier {
        Carrier::Bare | Carrier::Vxlan => None,
        Carrier::Segue => Some(Tunnel::new(net, Xdp::Off)?),
        Carrier::SegueXdp | Carrier::VxlanBesideXdp => Some(Tunnel::new(net, Xdp::On)?),
    };
    net.measure(carrier.receiver(), seconds)
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
        // As without configuration: sent packets may have to be sent again.
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
