//! The cost of a packet: exact processor time of all participants.
//!
//! Sampling in ticks is useless for loads of a few microseconds. The scheduler's run time is exact. On a virtual wire,
//! softirqs run in the sender's context, so they are charged to this process or to the responder's. Deferred work goes
//! to the processor's ksoftirqd, whose run time is added. A kernel that accounts interrupts separately excludes
//! softirqs from run times ([`Meter::new`] detects this); its own count of softirqs, which is then exact, is added.

use std::fs;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use segue_linux::clock::{monotonic, thread_cpu};

use crate::BenchError;
use crate::error::system;

/// Pins the calling thread, and everything it starts later, to the last permitted processor; returns that processor.
pub(crate) fn pin() -> Result<usize, BenchError> {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own).map_err(system("ask for the processors"))?;
    let cpu = (0..CpuSet::count()).rev().find(|&cpu| allowed.is_set(cpu) == Ok(true));
    let cpu = cpu.ok_or(BenchError::Option("there is no processor to run on"))?;
    let mut one = CpuSet::new();
    one.set(cpu).map_err(system("name a processor"))?;
    sched_setaffinity(own, &one).map_err(system("stay on one processor"))?;
    Ok(cpu)
}

/// Reads the processor time of this process, of the responder's processes, and of softirqs.
#[derive(Debug)]
pub(crate) struct Meter {
    clocks: Vec<ClockId>,
    /// The processor, if the kernel counts its softirqs separately from run times.
    apart: Option<usize>,
}

impl Meter {
    /// A meter for everything on `cpu`, where the calling thread is pinned.
    pub(crate) fn new(cpu: usize) -> Meter {
        let mut clocks = vec![ClockId::CLOCK_PROCESS_CPUTIME_ID];
        clocks.extend(softirq_thread(cpu).and_then(|pid| clock_getcpuclockid(pid).ok()));
        Meter { clocks, apart: softirqs_are_apart(cpu).then_some(cpu) }
    }

    /// The accounting method for softirqs, for a report.
    pub(crate) fn method(&self) -> &'static str {
        match (self.apart, self.clocks.len()) {
            (Some(_), _) => "run times, and the kernel's exact count of softirqs",
            (None, 1) => {
                "run times, softirqs included where they run in a sender's context; \
                          ksoftirqd is not to be seen from here"
            }
            (None, _) => "run times, softirqs and ksoftirqd included",
        }
    }

    /// Processor time so far in nanoseconds, including the processes `pids`.
    pub(crate) fn read(&self, pids: &[Pid]) -> u64 {
        let children = pids.iter().filter_map(|&pid| clock_getcpuclockid(pid).ok());
        let ns = |clock: ClockId| {
            clock_gettime(clock)
                .map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
        };
        let run: u64 = self.clocks.iter().copied().chain(children).map(ns).sum();
        run + self.apart.map_or(0, interrupts_ns)
    }
}

fn softirq_thread(cpu: usize) -> Option<Pid> {
    let name = format!("ksoftirqd/{cpu}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim() == name).then(|| Pid::from_raw(pid))
    })
}

/// Time of a processor in interrupts and softirqs, from /proc/stat.
fn interrupts_ns(cpu: usize) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default();
    let columns = line.split_whitespace().skip(5).take(2);
    columns.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

/// Whether the kernel excludes softirqs from run times. If so, a thread that mostly causes softirqs (datagrams over the
/// loopback device) occupies the processor for longer than its run time.
fn softirqs_are_apart(cpu: usize) -> bool {
    let Ok(socket) = std::net::UdpSocket::bind("127.0.0.1:0") else { return false };
    let Ok(to) = socket.local_addr() else { return false };
    let (wall, ran, waited) = (monotonic(), thread_cpu(), waited_ns());
    let counted = interrupts_ns(cpu);
    while monotonic().0 - wall.0 < Duration::from_millis(100).as_nanos() as u64 {
        for _ in 0..32 {
            // To itself, so that the softirq does most of the work. Drops at a full buffer do not matter.
            let _ = socket.send_to(&[0; 8], to);
        }
    }
    let wall = monotonic().0 - wall.0;
    let ran = (thread_cpu() - ran).0 + (waited_ns() - waited);
    // Both conditions, because other processes could cause either one.
    ran < wall * 9 / 10 && interrupts_ns(cpu) - counted > wall / 10
}

/// Time for which the calling thread has been ready but not running.
fn waited_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
