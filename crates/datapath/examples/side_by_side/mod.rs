//! TCP between two namespaces, and the processor time that it costs: the common part of the benchmarks.
//!
//! Processor time is not sampled in ticks, which miss softirqs. `own` is the scheduler's exact run time of both
//! iperf3 processes and of all ksoftirqd threads: the datapath runs in their context (the small part that
//! interrupts other tasks is missed). `busy` is all time in which a processor was not idle, which the kernel also
//! measures without sampling: it is complete and includes interrupts, but also everything else that the machine
//! does.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use segue_ip::Prefix;
use segue_linux::link::{self, Feature, set_feature};
use segue_linux::netns::Netns;

pub(crate) type Error = Box<dyn std::error::Error>;

/// The wire's device at both ends.
pub(crate) const WIRE: &str = "sg0";
/// The receiver's address in the VXLAN.
pub(crate) const IN_VXLAN: &str = "10.7.0.2";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) gbit_s: f64,
    pub(crate) own_s_per_gb: f64,
    pub(crate) busy_s_per_gb: f64,
}

pub(crate) fn median(samples: &[Sample]) -> Sample {
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

pub(crate) fn wire_name(whole: bool) -> &'static str {
    if whole { "whole" } else { "wire-like" }
}

pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Two namespaces with a wire and a VXLAN between them.
pub(crate) struct Net {
    pub(crate) a: Netns,
    pub(crate) b: Netns,
}

impl Net {
    pub(crate) fn new() -> Result<Net, Error> {
        let name = |end| format!("segue-bench{}{end}", std::process::id());
        let net = Net { a: Netns::create(&name('a'))?, b: Netns::create(&name('b'))? };
        net.a.run(|| link::create_veth(WIRE, WIRE, Some(&net.b)))??;
        for (ns, end) in [(&net.a, 1), (&net.b, 2)] {
            ns.run(|| -> Result<(), segue_linux::LinuxError> {
                link::sysctl("net.ipv4.conf.all.rp_filter", "0")?;
                link::add_address(WIRE, Prefix::new([10, 9, 0, end], 24))?;
                link::sysctl("net.ipv6.conf.all.accept_dad", "0")?;
                link::sysctl("net.ipv6.conf.default.accept_dad", "0")?;
                let v6 = std::net::Ipv6Addr::from_bits(0xfd09 << 112 | u128::from(end));
                link::add_address(WIRE, Prefix::new(v6, 64))?;
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

    pub(crate) fn set_offloads(&self, whole: bool) -> Result<(), Error> {
        for ns in [&self.a, &self.b] {
            ns.run(|| {
                set_feature(WIRE, Feature::Tso, whole)
                    .and_then(|()| set_feature(WIRE, Feature::Gso, whole))
            })??;
        }
        Ok(())
    }

    /// Measures TCP to this address in the second namespace.
    pub(crate) fn measure(&self, to: &str, seconds: usize) -> Result<Sample, Error> {
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
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let sum = &report["end"]["sum_received"];
        let (Some(bytes), Some(rate)) = (sum["bytes"].as_f64(), sum["bits_per_second"].as_f64())
        else {
            return Err(format!("iperf3 to {to}: {}", report["error"]).into());
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

/// Processor time in nanoseconds since an arbitrary start.
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
