//! Verifies the emulator: does it impose the requested delay, loss and rate?
//!
//! The test network has two nodes with one emulated link, and real sockets at both ends. The check compares the
//! emulator's own stamps and counters with the imposed values and with what the ends observe.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result};
use segue_clock::{Span, Time};
use segue_ip::Prefix;
use segue_linux::clock::monotonic;
use segue_linux::netns::Netns;
use segue_netem::{LinkSpec, Loss, Queue};
use serde::Serialize;

use crate::emulator::{Direction, EmulatorSpec, Health};
use crate::topology::{End, Lab};

const A: [u8; 4] = [10, 61, 5, 1];
const B: [u8; 4] = [10, 61, 5, 2];
const DELAY: Span = Span::from_millis(20);
const DELAY_PACKETS: u32 = 400;
const LOSS: f64 = 0.05;
const LOSS_PACKETS: u32 = 5_000;
const RATE_BPS: u64 = 50_000_000;
const RATE_TIME: Span = Span::from_secs(2);
/// Payload of a datagram in an IPv4 packet of 1500 bytes.
const LARGE_BYTES: usize = 1_472;
/// IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Two-sided 99.9 % of the normal distribution.
const Z: f64 = 3.290_5;
/// Tolerance for packets that seem early, in microseconds.
const EARLY_US: f64 = 100.0;
/// How long the ends wait for packets in flight.
const PATIENCE: Duration = Duration::from_millis(500);

/// The result of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Imposed and achieved delay.
    pub delay: DelayReport,
    /// Imposed and achieved loss.
    pub loss: LossReport,
    /// Imposed and achieved rate.
    pub rate: RateReport,
    /// Delay of the kernel's own netem in the same position; absent if the kernel has none.
    pub netem: Option<Spread>,
    /// Scheduling of the emulator's thread: `realtime`, `nice` or `ordinary`.
    pub scheduling: &'static str,
    /// All checks. The verification succeeds if every bar holds.
    pub verdicts: Vec<Verdict>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The quantity, with its unit.
    pub what: &'static str,
    /// The measured value.
    pub found: f64,
    /// Minimum and maximum permitted value.
    pub bar: [f64; 2],
    /// True if the value is within the bar.
    pub holds: bool,
}

impl Verdict {
    fn new(what: &'static str, found: f64, bar: [f64; 2]) -> Verdict {
        Verdict { what, found, bar, holds: bar[0] <= found && found <= bar[1] }
    }
}

/// Delay errors in microseconds: measured minus imposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// The delay, as stamped by the emulator and as observed by the receiver.
#[derive(Clone, Debug, Serialize)]
pub struct DelayReport {
    /// Imposed one-way delay in milliseconds.
    pub imposed_ms: f64,
    /// Packets measured.
    pub packets: usize,
    /// Error of the time from arrival stamp to departure stamp.
    pub stamped: Spread,
    /// Error of the time from the sender's call to the receiver's return, including the scheduling of both ends.
    pub end_to_end: Spread,
}

/// The loss.
#[derive(Clone, Debug, Serialize)]
pub struct LossReport {
    /// Imposed probability.
    pub imposed: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that the emulator reports as dropped.
    pub dropped: u64,
    /// Packets that did not arrive.
    pub missing: u64,
    /// Measured loss ratio.
    pub achieved: f64,
    /// 99.9 % interval of the loss ratio for this number of packets.
    pub interval: [f64; 2],
}

/// The rate, under an offered load above it.
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    /// Imposed rate in bits per second of IP packets.
    pub imposed_bps: u64,
    /// Offered rate.
    pub offered_bps: u64,
    /// Rate at which packets arrived.
    pub achieved_bps: u64,
    /// Packets dropped at the full queue.
    pub queue_drops: u64,
    /// Processor time of the emulator's thread under this load, in percent of one processor.
    pub cpu_percent: f64,
}

/// Measures an emulator in a separate network. Takes about eight seconds.
///
/// # Errors
/// No permission to create namespaces.
pub fn run(seed: u64) -> Result<Verification> {
    let (delay, health) = measure_delay(seed)?;
    let (loss, overruns) = measure_loss(seed)?;
    let rate = measure_rate(seed)?;
    let scheduling = match health.precision {
        segue_linux::thread::Precision::Realtime => "realtime",
        segue_linux::thread::Precision::Nice => "nice",
        segue_linux::thread::Precision::Ordinary => "ordinary",
    };
    let netem = measure_netem()?;
    let mut report = Verification { delay, loss, rate, netem, scheduling, verdicts: Vec::new() };
    report.verdicts = verdicts(&report, overruns);
    Ok(report)
}

/// The bounds are generous: a busy machine is slightly late, but a wrong emulator is far off. A packet can be early
/// only by the resolution of the clocks, and the scheduling of the ends only adds delay.
fn verdicts(report: &Verification, overruns: u64) -> Vec<Verdict> {
    let Verification { delay, loss, rate, .. } = report;
    let ratio = rate.achieved_bps as f64 / rate.imposed_bps as f64;
    let unexplained = loss.missing as f64 - loss.dropped as f64;
    vec![
        Verdict::new("median delay off, µs", delay.stamped.p50_us, [-EARLY_US, 2_000.0]),
        Verdict::new(
            "median delay off as the ends see it, µs",
            delay.end_to_end.p50_us,
            [-EARLY_US, 5_000.0],
        ),
        Verdict::new("packets missing that the emulator did not drop", unexplained, [0.0, 0.0]),
        Verdict::new("packets that the emulator was too slow for", overruns as f64, [0.0, 0.0]),
        Verdict::new("share lost", loss.achieved, loss.interval),
        Verdict::new("achieved rate as a share of the imposed one", ratio, [0.95, 1.02]),
    ]
}

struct Bench {
    lab: Lab,
    from: UdpSocket,
    to: UdpSocket,
}

const LINK: &str = "link";

impl Bench {
    /// Two nodes with an emulated link, or with a plain one if `up` is `None`.
    fn new(up: Option<LinkSpec>, seed: u64) -> Result<Bench> {
        let mut lab = Lab::new("verify")?;
        lab.add_node("a", false)?;
        lab.add_node("b", false)?;
        let near = [Prefix::new(A, 24)];
        let far = [Prefix::new(B, 24)];
        let a = End { node: "a", device: "a0", addresses: &near };
        let b = End { node: "b", device: "b0", addresses: &far };
        match up {
            Some(up) => {
                let spec = EmulatorSpec { up, down: LinkSpec::default(), seed, log: true };
                lab.emulate(LINK, a, b, &spec)?;
            }
            None => lab.connect(a, b)?,
        }
        let from = bind(lab.node("a")?, A)?;
        let to = bind(lab.node("b")?, B)?;
        from.connect(to.local_addr()?)?;
        to.set_read_timeout(Some(PATIENCE))?;
        // Resolve the neighbours before measuring.
        to.send_to(b"hello", from.local_addr()?)?;
        from.set_read_timeout(Some(Duration::from_secs(5)))?;
        from.recv(&mut [0; 8]).context("the two ends cannot reach each other")?;
        Ok(Bench { lab, from, to })
    }

    /// Sends `count` datagrams of `bytes` bytes, `burst` at a time every `gap`, each with its sending time. Returns
    /// sending and arrival times of the datagrams that arrived.
    fn send(&self, count: u32, bytes: usize, burst: u32, gap: Span) -> Result<Vec<(Time, Time)>> {
        let (from, to) = (&self.from, &self.to);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || receive(to));
            let mut datagram = vec![0; bytes];
            let begin = monotonic();
            for n in 0..count {
                if n % burst == 0 {
                    let due = begin + gap * u64::from(n / burst);
                    std::thread::sleep(Duration::from_nanos(due.since(monotonic()).0));
                }
                datagram[..8].copy_from_slice(&monotonic().0.to_be_bytes());
                from.send(&datagram).context("send a datagram")?;
            }
            Ok(receiver.join().expect("the receiver does not panic"))
        })
    }

    fn finish(self) -> Result<(Health, segue_netem::Counters)> {
        let emulator = self.lab.emulator(LINK)?;
        Ok((emulator.health(), emulator.counters(Direction::Up)))
    }
}

/// Reads until no datagram arrives within the time-out.
fn receive(socket: &UdpSocket) -> Vec<(Time, Time)> {
    let mut all = Vec::new();
    let mut buffer = [0; 2_048];
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let now = monotonic();
                let sent = buffer.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                all.push((Time(sent), now));
            }
            // The kernel ends a wait with a time-out early if it interrupts the thread (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return all,
        }
    }
}

fn bind(node: &Netns, addr: [u8; 4]) -> Result<UdpSocket> {
    let socket = node.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(addr), 0)))?;
    socket.context("open a socket for measuring")
}

fn measure_delay(seed: u64) -> Result<(DelayReport, Health)> {
    let bench = Bench::new(Some(LinkSpec { delay: DELAY, ..LinkSpec::default() }), seed)?;
    let seen = bench.send(DELAY_PACKETS, 64, 1, Span::from_millis(5))?;
    let log = bench.lab.emulator(LINK)?.take_log();
    let up = log.iter().filter(|r| r.direction == Direction::Up);
    let stamped = spread(up.filter_map(|r| r.delay()), DELAY);
    let end_to_end = spread(seen.iter().map(|(sent, got)| got.since(*sent)), DELAY);
    let imposed_ms = DELAY.as_millis_f64();
    let report = DelayReport { imposed_ms, packets: seen.len(), stamped, end_to_end };
    Ok((report, bench.finish()?.0))
}

fn measure_loss(seed: u64) -> Result<(LossReport, u64)> {
    let spec = LinkSpec { loss: Loss::Bernoulli(LOSS), ..LinkSpec::default() };
    let bench = Bench::new(Some(spec), seed)?;
    let arrived = bench.send(LOSS_PACKETS, 64, 4, Span::from_millis(1))?.len() as u64;
    let (health, counters) = bench.finish()?;
    let sent = u64::from(LOSS_PACKETS);
    let half = Z * (LOSS * (1.0 - LOSS) / sent as f64).sqrt();
    let report = LossReport {
        imposed: LOSS,
        sent,
        dropped: counters.lost,
        missing: sent - arrived,
        achieved: counters.lost as f64 / sent as f64,
        interval: [LOSS - half, LOSS + half],
    };
    Ok((report, health.overruns + health.send_failures))
}

fn measure_rate(seed: u64) -> Result<RateReport> {
    let queue = Queue::Packets(100);
    let spec = LinkSpec { rate_bps: Some(RATE_BPS), queue, ..LinkSpec::default() };
    let bench = Bench::new(Some(spec), seed)?;
    let bits = (LARGE_BYTES + HEADER_BYTES) as u64 * 8;
    // Five packets per millisecond are 60 Mbit/s.
    let (burst, gap) = (5, Span::from_millis(1));
    let count = (RATE_TIME.0 / gap.0) as u32 * burst;
    let arrivals = bench.send(count, LARGE_BYTES, burst, gap)?;
    let time = match (arrivals.first(), arrivals.last()) {
        (Some(first), Some(last)) => last.1.since(first.1).as_secs_f64(),
        _ => 0.0,
    };
    let achieved = arrivals.len().saturating_sub(1) as f64 * bits as f64 / time;
    let (health, counters) = bench.finish()?;
    Ok(RateReport {
        imposed_bps: RATE_BPS,
        offered_bps: bits * u64::from(burst) * 1_000_000_000 / gap.0,
        achieved_bps: achieved as u64,
        queue_drops: counters.queue_full,
        cpu_percent: health.cpu.as_secs_f64() / time * 100.0,
    })
}

/// Measures the same delay with the kernel's netem; `None` without `tc` or netem.
fn measure_netem() -> Result<Option<Spread>> {
    let bench = Bench::new(None, 0)?;
    let delay = format!("{}us", DELAY.0 / 1_000);
    let tc = bench
        .lab
        .node("a")?
        .command("tc")
        .args(["qdisc", "add", "dev", "a0", "root", "netem", "delay", &delay])
        .output();
    if !tc.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let seen = bench.send(DELAY_PACKETS, 64, 1, Span::from_millis(5))?;
    Ok(Some(spread(seen.iter().map(|(sent, got)| got.since(*sent)), DELAY)))
}

fn spread(delays: impl Iterator<Item = Span>, imposed: Span) -> Spread {
    let mut errors: Vec<f64> = delays.map(|d| (d.0 as f64 - imposed.0 as f64) / 1e3).collect();
    errors.sort_by(f64::total_cmp);
    let Some(max_us) = errors.last().copied() else { return Spread::default() };
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
    let mean_us = errors.iter().sum::<f64>() / errors.len() as f64;
    Spread { mean_us, p50_us: at(0.5), p99_us: at(0.99), max_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_order_statistics() {
        let delays = (0..=100).map(|i| Span::from_micros(1_000 + i));
        let s = spread(delays, Span::from_millis(1));
        assert_eq!((s.mean_us, s.p50_us, s.p99_us, s.max_us), (50.0, 50.0, 99.0, 100.0));
        assert_eq!(spread(std::iter::empty(), DELAY), Spread::default());
    }

    #[test]
    fn what_is_out_of_bounds_on_either_side_does_not_hold_and_nothing_else() {
        let spread = Spread { mean_us: 90.0, p50_us: 80.0, p99_us: 200.0, max_us: 9_000.0 };
        let good = Verification {
            delay: DelayReport {
                imposed_ms: 20.0,
                packets: 400,
                stamped: spread,
                end_to_end: spread,
            },
            loss: LossReport {
                imposed: 0.05,
                sent: 5_000,
                dropped: 251,
                missing: 251,
                achieved: 0.0502,
                interval: [0.04, 0.06],
            },
            rate: RateReport {
                imposed_bps: 50_000_000,
                offered_bps: 60_000_000,
                achieved_bps: 49_900_000,
                queue_drops: 7,
                cpu_percent: 9.0,
            },
            netem: None,
            scheduling: "nice",
            verdicts: Vec::new(),
        };
        let broken = |report: &Verification, overruns| {
            verdicts(report, overruns).into_iter().filter(|verdict| !verdict.holds).count()
        };
        assert_eq!(broken(&good, 0), 0);
        assert_eq!(broken(&good, 3), 1);
        let mut bad = good.clone();
        bad.loss.missing = 252;
        bad.loss.achieved = 0.07;
        bad.rate.achieved_bps = 40_000_000;
        bad.delay.stamped.p50_us = 2_500.0;
        bad.delay.end_to_end.p50_us = 6_000.0;
        assert_eq!(broken(&bad, 0), 5);
        // Packets that are too early, too fast, or arrive although reported as dropped, are as wrong as the opposite.
        bad.loss.missing = 250;
        bad.rate.achieved_bps = 60_000_000;
        bad.delay.stamped.p50_us = -2_500.0;
        bad.delay.end_to_end.p50_us = -6_000.0;
        assert_eq!(broken(&bad, 0), 5);
    }
}
