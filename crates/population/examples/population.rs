//! Measures the cost of a population like `examples/million.toml`: processor time per host and virtual second once all
//! hosts are up, and memory per host. Also prints a digest of the statistics, which an optimization must not change.
//!
//! `cargo run --release -p segue-population --example population -- HOSTS SECONDS probes|readings`

use std::fs::read_to_string;

use segue_clock::{Span, Time};
use segue_keepalive::MeasuredBy;
use segue_netem::Loss;
use segue_population::{Class, Flows, Outages, Shard, Silent, Spec};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u32| {
        args.get(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (hosts, seconds) = (number(0, 20_000), number(1, 20));
    let readings = args.get(2).is_some_and(|mode| mode == "readings");
    let spec =
        spec(hosts, seconds, if readings { MeasuredBy::PacketPath } else { MeasuredBy::Machine });
    spec.check().expect("the scenario is one");
    let empty = resident_kb();
    let mut shards: Vec<Shard> = (0..spec.shards).map(|n| Shard::new(&spec, n)).collect();
    let from = spec.measured_from();
    shards.iter_mut().for_each(|shard| shard.run_until(from));
    let (before, events) = (user_ms(), shards.iter().map(Shard::events).sum::<u64>());
    shards.iter_mut().for_each(|shard| shard.run_until(Time::ZERO + spec.duration));
    let (spent, kb) = (user_ms() - before, resident_kb() - empty);
    let events = shards.iter().map(Shard::events).sum::<u64>() - events;
    let found: Vec<_> = shards.into_iter().map(Shard::finish).collect();
    let per_host = spent * 1e3 / f64::from(hosts) / f64::from(seconds);
    println!(
        "start {before:.0} ms; then {per_host:.2} us a host and second, {:.2} us an event, {:.2} events; \
         {:.2} kB a host; digest {:016x}",
        spent * 1e3 / events as f64,
        events as f64 / f64::from(hosts) / f64::from(seconds),
        kb * 1.024 / f64::from(hosts),
        digest(&format!("{found:?}")),
    );
}

fn spec(hosts: u32, seconds: u32, measured_by: MeasuredBy) -> Spec {
    let class = |name: &str, delay, jitter, loss, every| Class {
        name: name.into(),
        delay: Span::from_millis(delay),
        jitter: Span::from_millis(jitter),
        loss: Loss::Bernoulli(loss),
        outages: Some(Outages {
            every: Span::from_secs(every),
            lasts: Span::from_secs(20),
            direction: Silent::Both,
        }),
    };
    let start_over = Span::from_secs(2);
    Spec {
        seed: 1,
        hosts,
        anchors: 128.min(hosts / 2).max(2),
        shards: 2,
        duration: start_over + Span::from_secs(12 + u64::from(seconds)),
        start_over,
        k: 3,
        t_ka: Span::from_secs(2),
        measured_by,
        classes: vec![class("wlan", 10, 5, 0.02, 600), class("cell", 35, 10, 0.01, 1_200)],
        paths: vec![0, 1],
        flows: Some(Flows { share: 0.01, interval: Span::from_secs(1), bytes: 200 }),
        planned_every: Some(Span::from_secs(120)),
    }
}

/// User time of this process in milliseconds, at 100 clock ticks a second.
fn user_ms() -> f64 {
    let stat = read_to_string("/proc/self/stat").expect("Linux has it");
    // The 14th field. The second field, in brackets, may contain blanks.
    let rest = stat.rsplit(')').next().expect("there is a bracket");
    let ticks = rest.split_whitespace().nth(11).and_then(|ticks| ticks.parse().ok());
    ticks.map_or(f64::NAN, |ticks: f64| ticks * 10.0)
}

/// Resident memory of this process in units of 1024 bytes.
fn resident_kb() -> f64 {
    let status = read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
