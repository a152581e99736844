//! `segue sim run` for a population: distributes its shards over the processors and collects the results.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::bail;
use segue_clock::{Span, Time};
use segue_linux::clock::thread_cpu;
use segue_population::{Shard, Spec, Stats, Verdict, results, verdicts};
use segue_text::say;
use segue_text::terminal::Progress;
use serde_json::json;

/// Virtual time between two progress checks of a shard.
const STEP: Span = Span::from_millis(500);

/// A shard's progress, or its result.
enum News {
    At(u32, Time, u64),
    End(u32, Box<Stats>, Cost),
}

/// The cost of a shard.
#[derive(Clone, Copy)]
struct Cost {
    /// Processor time of the measured part.
    cpu: Span,
    /// Number of events in the measured part.
    events: u64,
    /// Processor time in total.
    whole: Span,
}

/// Runs the population on the given number of threads; by default, one per processor.
///
/// # Errors
/// A machine broke its contract, or the results cannot be printed. A deviation from the equations is not an error: it
/// is printed and shown in the exit status.
pub(crate) fn run(spec: &Spec, threads: Option<usize>, json: bool) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let (mut all, costs) = run_shards(spec, threads);
    let wall = begun.elapsed();
    let mut stats = Stats::default();
    for shard in all.drain(..) {
        stats.merge(shard);
    }
    tell_cost(spec, &costs, wall);
    if stats.events == 0 {
        bail!("nothing happened");
    }
    let verdicts = verdicts(spec, &stats);
    let found = results(spec, &stats);
    if json {
        let mut object = serde_json::to_value(super::show::Json(&found))?;
        let list = verdicts.iter().map(
            |v| json!({ "what": v.what, "found": v.found, "bar": v.bar, "verdict": v.word() }),
        );
        object["verdicts"] = list.collect();
        println!("{object}");
    } else {
        say!("{}", super::show::table(&found).trim_end());
        say!("verdicts");
        for verdict in &verdicts {
            let Verdict { what, found, bar, .. } = verdict;
            say!("  {:<8} {what}: {}; bar: {bar}", verdict.word(), super::show::number(*found));
        }
    }
    let failed = verdicts.iter().any(|verdict| verdict.holds == Some(false));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs all shards, each on one thread; returns their results in order of shard number.
fn run_shards(spec: &Spec, threads: Option<usize>) -> (Vec<Stats>, Vec<Cost>) {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(processors).clamp(1, spec.shards as usize);
    let next = AtomicU32::new(0);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= spec.shards {
                        return;
                    }
                    run_shard(spec, number, &sender);
                }
            });
        }
        drop(sender);
        follow(spec, &receiver)
    })
}

fn run_shard(spec: &Spec, number: u32, news: &Sender<News>) {
    let begun = thread_cpu();
    let mut shard = Shard::new(spec, number);
    let (end, from) = (Time::ZERO + spec.duration, spec.measured_from());
    let mut measured = (begun, 0);
    while shard.now() < end {
        let counts = shard.now() >= from;
        let stop = if counts { end } else { from };
        shard.run_until((shard.now() + STEP).min(stop));
        if !counts && shard.now() >= from {
            measured = (thread_cpu(), shard.events());
        }
        // The receiver is gone only if the program is ending.
        let _ = news.send(News::At(number, shard.now(), shard.events()));
    }
    let cost = Cost {
        cpu: thread_cpu() - measured.0,
        events: shard.events() - measured.1,
        whole: thread_cpu() - begun,
    };
    let _ = news.send(News::End(number, Box::new(shard.finish()), cost));
}

/// Reports the shards' progress until all are complete.
fn follow(spec: &Spec, news: &Receiver<News>) -> (Vec<Stats>, Vec<Cost>) {
    let mut progress = Progress::new(Duration::from_secs(1), Duration::from_secs(60));
    let begun = Instant::now();
    let mut places = vec![(Time::ZERO, 0); spec.shards as usize];
    let mut ends: Vec<Option<(Stats, Cost)>> = places.iter().map(|_| None).collect();
    for news in news {
        match news {
            News::At(number, at, events) => places[number as usize] = (at, events),
            News::End(number, stats, cost) => ends[number as usize] = Some((*stats, cost)),
        }
        progress.tell(|| {
            let sum: f64 = places.iter().map(|(at, _)| at.as_secs_f64()).sum();
            let (events, seconds) = (places.iter().map(|(_, n)| n).sum::<u64>(), begun.elapsed());
            format!(
                "segue: {:.1} of {:.0} virtual s, {:.2} million events/s, {} MiB",
                sum / places.len() as f64,
                spec.duration.as_secs_f64(),
                events as f64 / seconds.as_secs_f64() / 1e6,
                peak_mib()
            )
        });
    }
    progress.clear();
    ends.into_iter().map(|end| end.expect("every shard has ended")).unzip()
}

/// Prints the cost of the run to standard error, because it varies.
fn tell_cost(spec: &Spec, costs: &[Cost], wall: Duration) {
    let measured = (Time::ZERO + spec.duration).since(spec.measured_from()).as_secs_f64();
    for (number, cost) in costs.iter().enumerate() {
        let cpu = cost.cpu.as_secs_f64();
        eprintln!(
            "segue: shard {number}: {:.3} s of processor time a virtual second, {:.2} million events \
             a second of it, {:.1} s in all",
            cpu / measured,
            cost.events as f64 / cpu.max(1e-9) / 1e6,
            cost.whole.as_secs_f64()
        );
    }
    let seconds = spec.duration.as_secs_f64();
    eprintln!(
        "segue: {seconds:.0} virtual s in {:.1} s, {:.2} times real time, at most {} MiB",
        wall.as_secs_f64(),
        seconds / wall.as_secs_f64(),
        peak_mib()
    );
}

/// The peak memory of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1_024
}
