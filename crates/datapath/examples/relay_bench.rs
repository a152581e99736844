//! The cost of the relay: TCP over the kernel's VXLAN and through the relay in each form, and datagrams of many flows,
//! or to many prefixes, each bound by its own rule. Runs in separate namespaces; needs root and `iperf3`.
//!
//! `relay_bench [--json] [--rounds N] [--seconds N] [--rules N]`
//!
//! Two kinds of wire: one that passes super-packets unsegmented (the default of a veth pair), and one like a real link
//! (segmented before it, merged by GRO after it). The order rotates from round to round; medians are printed, next to
//! their limits ([`CPU_BAR`], [`RULES_BAR`]).

mod side_by_side;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_datapath::relay::{Counts, Relay, RelayRoom, RelaySetup};
use segue_ip::{
    Binding, Exit, FlowKey, Form, Forward, Forwarding, Port, Prefix, Route, Source, Traffic, Tunnel,
};
use segue_linux::link;
use segue_linux::netns::Netns;
use side_by_side::{Error, IN_VXLAN, Net, Sample, WIRE, median, verdict, wire_name};

const TUNNEL: u32 = 1;
/// The receiver's address behind the relay.
const BEHIND: &str = "10.8.0.2";
/// Most processor time per gigabyte, as a multiple of VXLAN's.
const CPU_BAR: f64 = 1.0;
/// Most processor time per datagram with many rules, as a multiple of the time with one rule.
const RULES_BAR: f64 = 1.2;
/// Datagrams per round and kind of rule.
const DATAGRAMS: u32 = 400_000;

/// The kind of traffic that a rule binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    Flows,
    Prefixes,
}

/// Nanoseconds of processor time per datagram, with one rule and with many.
type OneAndMany = [f64; 2];

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
    let rules = number("--rules", 100_000) as u32;
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
    let mut datagrams = Vec::new();
    for kind in [Rules::Flows, Rules::Prefixes] {
        datagrams.push((kind, of_rules(&net, kind, rules, rounds)?));
    }
    if args.iter().any(|a| a == "--json") {
        print_json(&medians, rules, &datagrams);
    } else {
        print_table(&medians, rules, &datagrams);
    }
    Ok(())
}

/// The limit of a carrier's processor time, if it has one.
fn bar(form: Option<Form>) -> Option<f64> {
    form.map(|_| CPU_BAR)
}

fn print_table(
    medians: &BTreeMap<(bool, usize), Sample>,
    rules: u32,
    datagrams: &[(Rules, OneAndMany)],
) {
    println!(
        "{:<10} {:<8} {:>8} {:>12} {:>12} {:>13}",
        "wire", "carrier", "Gbit/s", "own CPU s/GB", "busy s/GB", "own / vxlan"
    );
    for (&(whole, at), s) in medians.iter().rev() {
        let (name, form) = CARRIERS[at];
        let cpu = s.own_s_per_gb / medians[&(whole, 0)].own_s_per_gb;
        let bar = bar(form).map_or_else(String::new, |bar| {
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
    for (kind, [one, many]) in datagrams {
        let ratio = many / one;
        let bar = kind.bar().map_or_else(String::new, |bar| {
            format!("CPU \u{2264} {bar:.2}: {}", verdict(ratio <= bar))
        });
        println!(
            "a datagram, rules for {}: {one:.0} ns with one, {many:.0} ns with {rules}: {ratio:.2}  {bar}",
            kind.name()
        );
    }
}

impl Rules {
    fn name(self) -> &'static str {
        match self {
            Rules::Flows => "flows",
            Rules::Prefixes => "prefixes",
        }
    }

    /// Only flows have a limit.
    fn bar(self) -> Option<f64> {
        (self == Rules::Flows).then_some(RULES_BAR)
    }

    /// Source port and destination of datagram `n`; there are as many different ones as rules.
    fn ends(self, n: u32) -> (u16, SocketAddr) {
        let (sport, dport, host) = match self {
            Rules::Flows => (n / 50_000, n % 50_000, u32::from_be_bytes([10, 8, 0, 2])),
            Rules::Prefixes => (0, 0, u32::from_be_bytes([10, 64, 0, 0]) + n),
        };
        let to = SocketAddr::from((Ipv4Addr::from_bits(host), 10_000 + dport as u16));
        (10_000 + sport as u16, to)
    }

    /// The traffic that rule `n` binds.
    fn traffic(self, n: u32) -> Traffic {
        let (sport, to) = self.ends(n);
        match self {
            Rules::Prefixes => Traffic::To(Prefix::host(to.ip())),
            Rules::Flows => Traffic::Flow(FlowKey {
                src: [10, 8, 0, 1].into(),
                dst: to.ip(),
                sport,
                dport: to.port(),
                protocol: 17,
                label: 0,
            }),
        }
    }
}

fn print_json(
    medians: &BTreeMap<(bool, usize), Sample>,
    rules: u32,
    datagrams: &[(Rules, OneAndMany)],
) {
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
                "cpu_of_vxlan_bar": bar(form),
            })
        })
        .collect();
    let datagrams: Vec<_> = datagrams
        .iter()
        .map(|(kind, [one, many])| {
            serde_json::json!({
                "of": kind.name(),
                "rules": rules,
                "one_ns": one,
                "many_ns": many,
                "many_of_one_bar": kind.bar(),
            })
        })
        .collect();
    println!("{}", serde_json::json!({ "medians": rows, "datagrams": datagrams }));
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
        held: Vec::new(),
        labels: false,
        counts: Counts::Nothing,
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

/// Processor time of a datagram into a tunnel: for one flow or prefix with one rule, and for as many as there are
/// rules.
fn of_rules(net: &Net, kind: Rules, rules: u32, rounds: usize) -> Result<OneAndMany, Error> {
    let [near, far] = relays(net, Form::Ip)?;
    let poisoned = |_| "a thread with the relay has panicked";
    // The far end refuses arrivals at once, so that only the sending side differs.
    let source = Source { port: Port::Tunnel(TUNNEL), prefix: Prefix::default_of(false) };
    far.relay.lock().map_err(poisoned)?.take_back(&Forward::Source(source))?;
    let relay = near.relay.lock().map_err(poisoned)?.tun_ifindex();
    let hosts = Route::on(Prefix::new([10, 64, 0, 0], 10), relay);
    net.a.run(|| segue_linux::route::add_route(&hosts))??;
    let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for many in [false, true] {
        let rules = if many { rules } else { 1 };
        for n in 0..rules {
            bind(&mut *near.relay.lock().map_err(poisoned)?, kind.traffic(n))?;
        }
        for _ in 0..rounds {
            let spent = net.a.run(|| send(kind, rules).map_err(|e| e.to_string()))??;
            times[usize::from(many)].push(spent as f64 / f64::from(DATAGRAMS));
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

/// Sends datagrams by this many rules in turn; returns this thread's processor time, which includes the kernel's work
/// on the sending side.
fn send(kind: Rules, rules: u32) -> Result<u64, Error> {
    let last = kind.ends(rules - 1).0;
    let sockets = (10_000..=last)
        .map(|port| UdpSocket::bind(("10.8.0.1", port)))
        .collect::<Result<Vec<_>, _>>()?;
    let before = thread_ns()?;
    for n in 0..DATAGRAMS {
        // Not in the order in which the rules were created.
        let (sport, to) = kind.ends(n.wrapping_mul(2_654_435_761) % rules);
        // A full queue is not an error of the benchmark.
        let _ = sockets[usize::from(sport - 10_000)].send_to(&[0; 64], to);
    }
    Ok(thread_ns()? - before)
}

fn thread_ns() -> Result<u64, Error> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
