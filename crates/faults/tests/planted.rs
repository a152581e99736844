//! Each of the mistakes that can be planted in the machines is found by the fault harness, and none is
//! found without them. Built and run by `scripts/planted-faults`, with `--cfg segue_planted`.
#![cfg(segue_planted)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use segue_faults::{Machines, Schedule, run};
use segue_tunnel::planted::choose;

/// Seeds after which a mistake counts as not found.
const MAX_SEEDS: u64 = 1_000;
/// Seeds of each set of machines that find nothing in machines without mistakes.
const SOUND_SEEDS: u64 = 60;

const MISTAKES: [(u8, Machines, &str); 16] = [
    (1, Machines::Tunnel, "host: a redirection is not renewed when the path it leads to dies too"),
    (2, Machines::Tunnel, "host: a redirection is not ended when its path comes back"),
    (3, Machines::Tunnel, "anchor: registers an epoch that is older than the last"),
    (4, Machines::Tunnel, "anchor: does not note a given address as taken"),
    (5, Machines::Tunnel, "anchor: a host's second registration is not written down"),
    (
        6,
        Machines::Tunnel,
        "anchor: does not look at the bit that says whether the host hears a path",
    ),
    (7, Machines::Tunnel, "host: a path granted again keeps the index of its first grant"),
    (8, Machines::Tunnel, "anchor: the expiry of a host is not ended when it shows life"),
    (9, Machines::Tunnel, "anchor: takes older words of a host for newer ones"),
    (10, Machines::Tunnel, "host: flows of the last path that is removed stay bound to it"),
    (11, Machines::Keepalive, "server: the time that the client held an echo counts as round trip"),
    (
        12,
        Machines::Keepalive,
        "client: unsolicited responses put off the time-out of the round trip",
    ),
    (13, Machines::Tunnel, "end: responses that wait for a ride in vain are never sent"),
    (14, Machines::Tunnel, "client: the time that a response waited for a ride is round trip"),
    (15, Machines::Tunnel, "packet path: does not call when requests cease to ride"),
    (16, Machines::Tunnel, "server: waits no longer for requests that ride than for others"),
];

#[test]
fn every_planted_mistake_is_found_and_nothing_else() {
    choose(0);
    for machines in Machines::ALL {
        let found = first_failure(machines, SOUND_SEEDS);
        assert!(found.is_none(), "without a mistake: {} {found:?}", machines.name());
    }
    let mut missed = Vec::new();
    println!("{:>3}  {:>5}  {:>7}  {:<28}  mistake", "no.", "seed", "took", "invariant");
    for (number, machines, what) in MISTAKES {
        choose(number);
        let begun = Instant::now();
        let found = first_failure(machines, MAX_SEEDS);
        let took = format!("{:.1} s", begun.elapsed().as_secs_f64());
        match found {
            Some((seed, invariant)) => {
                println!("{number:>3}  {seed:>5}  {took:>7}  {invariant:<28}  {what}");
            }
            None => {
                println!("{number:>3}  {:>5}  {took:>7}  {:<28}  {what}", "-", "NOT FOUND");
                missed.push(number);
            }
        }
    }
    choose(0);
    assert!(missed.is_empty(), "not found within {MAX_SEEDS} seeds: {missed:?}");
}

/// The smallest seed below `seeds` that fails, and which invariant does.
fn first_failure(machines: Machines, seeds: u64) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(seeds);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let search = || {
        let mut found = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return found;
            }
            let schedule = Schedule::generate(machines, seed);
            let outcome = std::panic::catch_unwind(|| run(&schedule, false).failure);
            let invariant = match outcome {
                Ok(None) => continue,
                Ok(Some(failure)) => failure.violation.invariant.to_string(),
                Err(_) => "no panic".to_string(),
            };
            end.fetch_min(seed, Ordering::Relaxed);
            found = Some((seed, invariant));
        }
    };
    std::thread::scope(|scope| {
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        let found = searches.into_iter().filter_map(|search| search.join().expect("no panic"));
        found.min()
    })
}
