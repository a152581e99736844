//! TCP through the user-space datapath, and through wireguard-go for comparison in the same run.
//!
//! `cargo run --release -p segue-datapath --example user_bench -- [--seconds N] [--rounds N]
//! [--wireguard-go PATH] [--json]`
//!
//! Two namespaces, a veth with all offloads, and one iperf3 stream. The order of the two rotates from
//! round to round; medians are printed. CPU is the run time in nanoseconds that the scheduler accounts
//! to every task of both ends (datapath threads or wireguard-go processes, iperf3 client and server)
//! and to ksoftirqd; softirq work in the context of these tasks is included. Other programs on the
//! machine are not included, so their load has little effect on the figure. The busy time of the whole
//! machine is printed next to it, with nothing subtracted.

#[path = "../tests/user_lab/mod.rs"]
mod user_lab;

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use segue_ip::Prefix;
use segue_linux::link;
use segue_linux::netns::Netns;
use serde_json::{Value, json};
use user_lab::{Lab, Offloads, inner, namespaces, outer, skipped};

const WG_HOST: &str = "sgwgh0";
const WG_ANCHOR: &str = "sgwga0";
const WG_PORT: &str = "5999";
/// The default of wg-quick.
const WG_MTU: u32 = 1420;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Segue,
    WireguardGo,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Segue => "segue (user)",
            Subject::WireguardGo => "wireguard-go",
        }
    }
}

#[derive(Clone, Copy)]
struct Figure {
    gbit_per_s: f64,
    cpu_s_per_gb: f64,
    machine_s_per_gb: f64,
}

fn main() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| -> Result<u64> {
        match args.iter().position(|a| a == name) {
            Some(at) => Ok(args.get(at + 1).context("a number is missing")?.parse()?),
            None => Ok(default),
        }
    };
    let (seconds, rounds) = (number("--seconds", 5)?, number("--rounds", 3)?);
    let program = args.iter().position(|a| a == "--wireguard-go").and_then(|at| args.get(at + 1));
    let program = program.map_or("wireguard-go", String::as_str).to_owned();
    let subjects = [Subject::Segue, Subject::WireguardGo];
    let mut figures = [const { Vec::new() }; 2];
    for round in 0..rounds as usize {
        for turn in 0..subjects.len() {
            let which = (round + turn) % subjects.len();
            let figure = match subjects[which] {
                Subject::Segue => segue(seconds)?,
                Subject::WireguardGo => wireguard_go(&program, seconds)?,
            };
            figures[which].push(figure);
        }
    }
    report(&subjects, &figures, args.iter().any(|a| a == "--json"));
    Ok(())
}

fn report(subjects: &[Subject], figures: &[Vec<Figure>; 2], as_json: bool) {
    let medians = figures.each_ref().map(|runs| Figure {
        gbit_per_s: median(runs.iter().map(|f| f.gbit_per_s)),
        cpu_s_per_gb: median(runs.iter().map(|f| f.cpu_s_per_gb)),
        machine_s_per_gb: median(runs.iter().map(|f| f.machine_s_per_gb)),
    });
    let ratio = medians[0].cpu_s_per_gb / medians[1].cpu_s_per_gb;
    if as_json {
        let row = |(subject, f): (&Subject, &Figure)| {
            json!({"name": subject.name(), "gbit_per_s": f.gbit_per_s,
                "cpu_s_per_gb": f.cpu_s_per_gb, "machine_s_per_gb": f.machine_s_per_gb})
        };
        let rows: Vec<Value> = subjects.iter().zip(&medians).map(row).collect();
        println!("{}", json!({"medians": rows, "runs": figures[0].len(), "cpu_ratio": ratio}));
        return;
    }
    println!("{:<14} {:>8} {:>12} {:>16}", "", "Gbit/s", "CPU-s per GB", "machine-s per GB");
    for (subject, f) in subjects.iter().zip(&medians) {
        let (name, rate) = (subject.name(), f.gbit_per_s);
        println!("{name:<14} {rate:>8.2} {:>12.3} {:>16.3}", f.cpu_s_per_gb, f.machine_s_per_gb);
    }
    println!("CPU per GB, segue / wireguard-go: {ratio:.2} (bar: at most 0.60)");
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn segue(seconds: u64) -> Result<Figure> {
    let lab = Lab::new(false, Offloads::Whole);
    measure(&lab.host.ns, &lab.anchor.ns, inner(false, 2), seconds, &[std::process::id()])
}

fn wireguard_go(program: &str, seconds: u64) -> Result<Figure> {
    let (host, anchor) = namespaces(Offloads::Whole);
    let keys = tempfile::tempdir()?;
    let mut ends = Vec::new();
    for (ns, device) in [(&host, WG_HOST), (&anchor, WG_ANCHOR)] {
        let private = text(Command::new("wg").arg("genkey"))?;
        let file = keys.path().join(device);
        std::fs::write(&file, &private)?;
        let public = text(Command::new("sh").args(["-c", "wg pubkey < \"$0\""]).arg(&file))?;
        let daemon = ns
            .command(program)
            .args(["-f", device])
            .env("LOG_LEVEL", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting wireguard-go")?;
        ends.push((Process(daemon), file, public));
    }
    for (i, (ns, device, last)) in
        [(&host, WG_HOST, 1), (&anchor, WG_ANCHOR, 2)].into_iter().enumerate()
    {
        wait_for_device(ns, device)?;
        let endpoint = format!("{}:{WG_PORT}", outer(false, 3 - last));
        let status = ns
            .command("wg")
            .args(["set", device, "listen-port", WG_PORT, "private-key"])
            .arg(&ends[i].1)
            .args(["peer", &ends[1 - i].2, "allowed-ips", "0.0.0.0/0", "endpoint", &endpoint])
            .status()?;
        ensure!(status.success(), "wg set failed");
        ns.run(|| -> Result<()> {
            link::set_mtu(device, WG_MTU)?;
            link::add_address(device, Prefix::new(inner(false, last), 24))?;
            Ok(link::set_up(device, true)?)
        })??;
    }
    let pids: Vec<u32> = ends.iter().map(|end| end.0.0.id()).collect();
    measure(&host, &anchor, inner(false, 2), seconds, &pids)
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn wait_for_device(ns: &Netns, device: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    // The control socket appears after the device.
    let socket = format!("/var/run/wireguard/{device}.sock");
    while ns.run(|| link::index_of(device).is_err())? || !std::path::Path::new(&socket).exists() {
        ensure!(Instant::now() < deadline, "wireguard-go made no {device}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process that is terminated, like by a user, when its owner is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// One iperf3 stream from `client` to `server`; `carriers` are the processes that carry it.
fn measure(
    client: &Netns,
    server: &Netns,
    to: IpAddr,
    seconds: u64,
    carriers: &[u32],
) -> Result<Figure> {
    let to = to.to_string();
    let listening = server
        .command("iperf3")
        .args(["-s", "-1", "-B", &to])
        .stdout(Stdio::null())
        .spawn()
        .context("starting iperf3")?;
    let mut listening = Process(listening);
    std::thread::sleep(Duration::from_millis(500));
    let tasks_before = run_time(carriers)? + children_time()?;
    let (machine_before, started) = (idle_s()?, Instant::now());
    let output = client
        .command("iperf3")
        .args(["-c", &to, "-t", &seconds.to_string(), "-J"])
        .output()
        .context("running iperf3")?;
    let _ = listening.0.wait();
    let cpu_s = run_time(carriers)? + children_time()? - tasks_before;
    let cpus = std::thread::available_parallelism()?.get() as f64;
    let machine_s = cpus * started.elapsed().as_secs_f64() - (idle_s()? - machine_before);
    let result: Value =
        serde_json::from_slice(&output.stdout).context("reading iperf3's result")?;
    let received = &result["end"]["sum_received"];
    let (Some(bytes), Some(bits)) =
        (received["bytes"].as_f64(), received["bits_per_second"].as_f64())
    else {
        bail!("iperf3 failed: {}", result["error"]);
    };
    let gigabytes = bytes / 1e9;
    Ok(Figure {
        gbit_per_s: bits / 1e9,
        cpu_s_per_gb: cpu_s / gigabytes,
        machine_s_per_gb: machine_s / gigabytes,
    })
}

/// Run time in seconds of these processes' tasks and of ksoftirqd.
fn run_time(processes: &[u32]) -> Result<f64> {
    let mut ns = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<u32>() else { continue };
        let softirq = std::fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|comm| comm.starts_with("ksoftirqd"));
        if !softirq && !processes.contains(&pid) {
            continue;
        }
        for task in std::fs::read_dir(entry.path().join("task"))?.flatten() {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            ns += stat.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(ns as f64 / 1e9)
}

/// Run time in seconds of terminated children.
fn children_time() -> Result<f64> {
    use nix::sys::time::TimeValLike;
    // SAFETY: an all-zero rusage is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        ensure!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) == 0, "getrusage failed");
        usage
    };
    let seconds =
        |t: libc::timeval| nix::sys::time::TimeVal::from(t).num_microseconds() as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// Idle time in seconds of all processors.
fn idle_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let mut fields = line.split_whitespace().skip(4).map_while(|n| n.parse::<f64>().ok());
    let ticks = fields.next().unwrap_or(0.0) + fields.next().unwrap_or(0.0);
    // SAFETY: plain query.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(ticks / per_second as f64)
}
