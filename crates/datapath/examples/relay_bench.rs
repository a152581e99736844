//! What the relay costs: TCP over the kernel's VXLAN and through the relay in each form, and datagrams of many flows that
//! are each bound by a rule of their own. In namespaces of its own; needs root and `iperf3`.
//!
//! `relay_bench [--json] [--rounds N] [--seconds N] [--flows N]`
//!
//! Two kinds of wire: one that carries super-packets whole (a virtual pair's default) and one like a real one (cut to
//! packets before it, merged by GRO behind it). The order rotates from round to round; medians are shown, next to their
//! bars ([`CPU_BAR`], [`FLOWS_BAR`]). GRO does not look behind a UDP header that it does not know, so that form is shown
//! on the second wire without a bar.

mod side_by_side;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_datapath::relay::{Relay, RelayRoom, RelaySetup};
use segue_ip::{
    Binding, Exit, FlowKey, Form, Forward, Forwarding, Port, Prefix, Route, Source, Traffic, Tunnel,
};
use segue_linux::link;
use segue_linux::netns::Netns;
use side_by_side::{Error, IN_VXLAN, Net, Sample, WIRE, median, verdict, wire_name};

const TUNNEL: u32 = 1;
/// The receiver's address behind the relay.
const BEHIND: &str = "10.8.0.2";
/// Most processor time for a gigabyte, as a multiple of VXLAN's.
const CPU_BAR: f64 = 1.0;
/// Most processor time for a datagram with many rules, as a multiple of that with one.
const FLOWS_BAR: f64 = 1.2;
/// Datagrams in a round of each.
const DATAGRAMS: u32 = 400_000;

const CARRIERS: [(&str, Option<Form>); 4] = [
    ("vxlan", None),
    ("ip", Some(Form::Ip)),
    ("gre", Some(Form::Gre { send: Some(1), receive: Some(1) })),
    ("udp", Some(Form::Udp { local: 5437, remote: 5437 })),
];

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay_bench: {error}");
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
    let flows = number("--flows", 100_000) as u32;
    let net = Net::new()?;
    let mut samples: BTreeMap<(bool, usize), Vec<Sample>> = BTreeMap::new();
    for whole in [true, false] {
        net.set_offloads(whole)?;
        for round in 0..rounds {
            for i in 0..CARRIERS.len() {
                let at = (i + round) % CARRIERS.len();
                let relays = CARRIERS[at].1.map(|form| relays(&net, form)).transpose()?;
                let to = if relays.is_some() { BEHIND } else { IN_VXLAN };
                samples.entry((whole, at)).or_default().push(net.measure(to, seconds)?);
            }
        }
    }
    let medians: BTreeMap<_, _> = samples.into_iter().map(|(k, v)| (k, median(&v))).collect();
    net.set_offloads(true)?;
    let one_and_many = of_flows(&net, flows, rounds)?;
    if args.iter().any(|a| a == "--json") {
        print_json(&medians, flows, one_and_many);
    } else {
        print_table(&medians, flows, one_and_many);
    }
    Ok(())
}

/// The bar of a carrier's processor time, where it has one.
fn bar(whole: bool, form: Option<Form>) -> Option<f64> {
    match form {
        None => None,
        Some(Form::Udp { .. }) if !whole => None,
        Some(_) => Some(CPU_BAR),
    }
}

fn print_table(medians: &BTreeMap<(bool, usize), Sample>, flows: u32, [one, many]: [f64; 2]) {
    println!(
        "{:<10} {:<8} {:>8} {:>12} {:>12} {:>13}",
        "wire", "carrier", "Gbit/s", "own CPU s/GB", "busy s/GB", "own / vxlan"
    );
    for (&(whole, at), s) in medians.iter().rev() {
        let (name, form) = CARRIERS[at];
        let cpu = s.own_s_per_gb / medians[&(whole, 0)].own_s_per_gb;
        let bar = bar(whole, form).map_or_else(String::new, |bar| {
            format!("CPU \u{2264} {bar:.2}: {}", verdict(cpu <= bar))
        });
        println!(
            "{:<10} {name:<8} {:>8.2} {:>12.3} {:>12.3} {cpu:>13.2}  {bar}",
            wire_name(whole),
            s.gbit_s,
            s.own_s_per_gb,
            s.busy_s_per_gb
        );
    }
    let ratio = many / one;
    println!(
        "a datagram: {one:.0} ns with one rule, {many:.0} ns with {flows}: {ratio:.2}  CPU \u{2264} {FLOWS_BAR:.2}: {}",
        verdict(ratio <= FLOWS_BAR)
    );
}

fn print_json(medians: &BTreeMap<(bool, usize), Sample>, flows: u32, [one, many]: [f64; 2]) {
    let rows: Vec<_> = medians
        .iter()
        .map(|(&(whole, at), s)| {
            let (name, form) = CARRIERS[at];
            serde_json::json!({
                "wire": wire_name(whole),
                "carrier": name,
                "gbit_s": s.gbit_s,
                "own_cpu_s_per_gb": s.own_s_per_gb,
                "busy_cpu_s_per_gb": s.busy_s_per_gb,
                "cpu_of_vxlan_bar": bar(whole, form),
            })
        })
        .collect();
    let rules = serde_json::json!({
        "rules": flows, "one_ns": one, "many_ns": many, "many_of_one_bar": FLOWS_BAR,
    });
    println!("{}", serde_json::json!({ "medians": rows, "datagrams": rules }));
}

fn outer(end: u8) -> IpAddr {
    Ipv6Addr::from_bits(0xfd09 << 112 | u128::from(end)).into()
}

/// A relay with its heartbeat; removed when dropped.
struct Living {
    relay: Arc<Mutex<Relay>>,
    _alive: Sender<()>,
}

/// A relay at each end, with addresses behind them.
fn relays(net: &Net, form: Form) -> Result<[Living; 2], Error> {
    let at = |ns: &Netns, end| ns.run(|| living(end, form).map_err(|e| e.to_string()));
    Ok([at(&net.a, 1)??, at(&net.b, 2)??])
}

fn living(end: u8, form: Form) -> Result<Living, Error> {
    let relay = Arc::new(Mutex::new(relay(end, form)?));
    let (alive, ended) = channel();
    let weak = Arc::downgrade(&relay);
    std::thread::spawn(move || {
        while ended.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout)
            && let Some(relay) = weak.upgrade()
            && let Ok(mut relay) = relay.lock()
        {
            relay.heartbeat();
        }
    });
    Ok(Living { relay, _alive: alive })
}

fn relay(end: u8, form: Form) -> Result<Relay, Error> {
    let setup = RelaySetup {
        device: "segue0".into(),
        mtu_bytes: 1_452,
        mark: 0,
        room: RelayRoom::default(),
    };
    let mut relay = Relay::new(&setup, Arc::new(|_| ()))?;
    relay.attach(link::index_of(WIRE)?)?;
    let (local, remote) = (outer(end), outer(3 - end));
    relay.put(&Forward::Tunnel(Tunnel { number: TUNNEL, local, remote, interface: None, form }))?;
    let everything = Prefix::default_of(false);
    relay.put(&Forward::Source(Source { port: Port::Tunnel(TUNNEL), prefix: everything }))?;
    let far = Prefix::host([10, 8, 0, 3 - end]);
    bind(&mut relay, Traffic::To(far))?;
    link::add_address("segue0", Prefix::host([10, 8, 0, end]))?;
    let way = Route::on(far, relay.tun_ifindex());
    relay.put(&Forward::Route(Route { source: Some([10, 8, 0, end].into()), ..way }))?;
    Ok(relay)
}

fn bind(relay: &mut Relay, traffic: Traffic) -> Result<(), segue_datapath::DatapathError> {
    let binding = Binding { traffic, exit: Exit::Tunnel(TUNNEL) };
    relay.put(&Forward::Bind(binding))
}

/// Nanoseconds of processor time for a datagram into a tunnel: of one flow with one rule, of as many flows as rules.
fn of_flows(net: &Net, flows: u32, rounds: usize) -> Result<[f64; 2], Error> {
    let [near, far] = relays(net, Form::Ip)?;
    let poisoned = |_| "a thread with the relay has panicked";
    // What arrives is refused at once, so that only the way out differs.
    let source = Source { port: Port::Tunnel(TUNNEL), prefix: Prefix::default_of(false) };
    far.relay.lock().map_err(poisoned)?.take_back(&Forward::Source(source))?;
    let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for many in [false, true] {
        let rules = if many { flows } else { 1 };
        for n in 0..rules {
            let (sport, dport) = ports(n);
            let key = FlowKey {
                src: [10, 8, 0, 1].into(),
                dst: [10, 8, 0, 2].into(),
                sport,
                dport,
                protocol: 17,
                label: 0,
            };
            bind(&mut *near.relay.lock().map_err(poisoned)?, Traffic::Flow(key))?;
        }
        for _ in 0..rounds {
            let spent = net.a.run(|| send(rules).map_err(|e| e.to_string()))??;
            times[usize::from(many)].push(spent as f64 / f64::from(DATAGRAMS));
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

/// Flow `n`'s ports.
fn ports(n: u32) -> (u16, u16) {
    (10_000 + (n / 50_000) as u16, 10_000 + (n % 50_000) as u16)
}

/// Sends datagrams of so many flows in turn; returns this thread's processor time, in which the kernel's work on the way
/// out is done.
fn send(flows: u32) -> Result<u64, Error> {
    let sockets = (0..=flows / 50_000)
        .map(|n| UdpSocket::bind(("10.8.0.1", 10_000 + n as u16)))
        .collect::<Result<Vec<_>, _>>()?;
    let before = thread_ns()?;
    for n in 0..DATAGRAMS {
        // Not in the order in which the rules were made.
        let n = n.wrapping_mul(2_654_435_761) % flows;
        let (_, dport) = ports(n);
        let to = SocketAddr::from(([10, 8, 0, 2], dport));
        // A full queue is no error of the bench.
        let _ = sockets[(n / 50_000) as usize].send_to(&[0; 64], to);
    }
    Ok(thread_ns()? - before)
}

fn thread_ns() -> Result<u64, Error> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
