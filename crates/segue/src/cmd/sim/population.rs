//! Populations at work: their shards on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use segue_clock::{Span, Time};
use segue_linux::clock::thread_cpu;
use segue_sim::population::{Shard, Spec, Stats};

/// What a population found, and what it cost.
pub struct Found {
    /// Of all shards.
    pub stats: Stats,
    /// How many events happened.
    pub events: u64,
    /// Processor time of all threads.
    pub cpu: Span,
}

/// Pieces of a shard's time between which it tells how far it is.
const SLICES: u64 = 100;
/// How often somebody is told.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs every shard, on as many threads as there are processors at most. The shards are the scenario's, so
/// that the outcome does not depend on how many there are. `tell` hears now and then which share is done,
/// and how many events have happened.
pub fn run(spec: &Spec, threads: usize, mut tell: impl FnMut(f64, u64)) -> Found {
    let (next, events, slices) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let parts: Mutex<Vec<(u32, Stats)>> = Mutex::new(Vec::new());
    let cpu = Mutex::new(Span::ZERO);
    let work = || {
        let begun = thread_cpu();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= spec.shards {
                break;
            }
            let mut shard = Shard::new(spec, number);
            let mut before = 0;
            for slice in 1..=SLICES {
                let at = u128::from(spec.duration.0) * u128::from(slice) / u128::from(SLICES);
                shard.run_until(Time(at as u64));
                events.fetch_add(shard.events() - before, Ordering::Relaxed);
                before = shard.events();
                slices.fetch_add(1, Ordering::Relaxed);
            }
            let stats = shard.finish();
            parts.lock().expect("no thread panics with the lock").push((number, stats));
        }
        let mut sum = cpu.lock().expect("no thread panics with the lock");
        *sum = *sum + (thread_cpu() - begun);
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads.clamp(1, spec.shards as usize)).map(|_| scope.spawn(work)).collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let done = slices.load(Ordering::Relaxed) as f64;
            tell(done / (u64::from(spec.shards) * SLICES) as f64, events.load(Ordering::Relaxed));
            std::thread::sleep(PAUSE);
        }
    });
    let mut parts = parts.into_inner().expect("no thread panics with the lock");
    parts.sort_by_key(|(number, _)| *number);
    let mut stats = Stats::default();
    for (_, part) in parts {
        stats.merge(part);
    }
    let cpu = *cpu.lock().expect("the threads have ended");
    Found { stats, events: events.into_inner(), cpu }
}
