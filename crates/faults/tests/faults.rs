//! Runs the fault harness over many seeds, and over kept failures.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_faults::report::{SHRINK_RUNS, replay_seed, report};
use segue_faults::{Failure, Machines, Outcome, Schedule, Violation, run, shrink};

/// Number of seeds per protocol in the ordinary tests.
const SEEDS: u64 = 300;

fn of(name: &str) -> Machines {
    Machines::from_name(name).expect(name)
}

#[test]
fn hosts_and_anchor_keep_every_invariant_under_faults() {
    expect_no_failure(of("tunnel"), 0, SEEDS);
}

#[test]
fn estimators_keep_every_invariant_under_faults() {
    expect_no_failure(of("keepalive"), 0, SEEDS);
}

#[test]
fn clients_and_server_of_the_pattern_keep_every_invariant_under_faults() {
    expect_no_failure(of("echo"), 0, SEEDS);
}

#[test]
fn anchor_and_gateways_of_proxy_mobile_ipv6_keep_every_invariant_under_faults() {
    expect_no_failure(of("pmip"), 0, SEEDS);
}

#[test]
fn domains_with_radius_servers_keep_every_invariant_under_faults() {
    expect_no_failure(of("aaa"), 0, SEEDS);
}

#[test]
fn seeds_and_schedules_that_were_kept_find_nothing_any_more() {
    let kept = include_str!("faults/kept.txt");
    let lines = kept.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let schedule = match words[..] {
            ["file", name] => {
                let path = format!("{}/tests/faults/{name}", env!("CARGO_MANIFEST_DIR"));
                let text = std::fs::read_to_string(&path).expect(&path);
                text.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
            }
            [machines, seed] => {
                let machines = Machines::from_name(machines).expect(line);
                Schedule::generate(machines, seed.parse().expect(line))
            }
            _ => panic!("kept.txt: \"{line}\" is neither a seed nor a file"),
        };
        if let Some(failure) = attempt(&schedule, false).failure {
            panic!("{line}\n{}", explain(&schedule, &failure));
        }
        count += 1;
    }
    assert!(count >= 5, "{count} kept");
}

#[test]
fn the_same_seed_gives_the_same_record_and_another_gives_another() {
    for machines in Machines::ALL {
        let hash = |seed| run(&Schedule::generate(machines, seed), false).hash;
        let hashes: Vec<u64> = (0..4).map(hash).collect();
        assert_eq!(hashes, (0..4).map(hash).collect::<Vec<_>>());
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]), "{hashes:?}");
        // Recording texts does not change the run.
        let schedule = Schedule::generate(machines, 0);
        assert_eq!(run(&schedule, true).hash, hashes[0]);
        // Neither does conversion to text and back.
        let again: Schedule = schedule.to_string().parse().unwrap();
        assert_eq!(run(&again, false).hash, hashes[0]);
    }
}

/// Runs FAULT_SEEDS seeds of each protocol, starting at FAULT_FIRST.
#[test]
#[ignore = "minutes: make soak"]
fn soak() {
    let number = |name, default| std::env::var(name).map_or(default, |n| n.parse().expect(name));
    let (first, seeds) = (number("FAULT_FIRST", SEEDS), number("FAULT_SEEDS", 5_000));
    let named = std::env::var("FAULT_MACHINES").ok();
    let chosen = |machines: &Machines| named.as_deref().is_none_or(|name| name == machines.name());
    for machines in Machines::ALL.into_iter().filter(chosen) {
        expect_no_failure(machines, first, seeds);
    }
}

fn expect_no_failure(machines: Machines, first: u64, seeds: u64) {
    let next = AtomicU64::new(first);
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return None;
            }
            let schedule = Schedule::generate(machines, seed);
            if let Some(failure) = attempt(&schedule, false).failure {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                return Some((seed, schedule, failure));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found = std::thread::scope(|scope| {
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        let found = searches.into_iter().filter_map(|search| search.join().expect("no panic"));
        found.min_by_key(|(seed, ..)| *seed)
    });
    if let Some((_, schedule, failure)) = found {
        panic!("\n{}", explain(&schedule, &failure));
    }
}

/// A run in which a panic counts as a failure.
fn attempt(schedule: &Schedule, keeps_text: bool) -> Outcome {
    catch_unwind(|| run(schedule, keeps_text)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
        let violation = Violation::new("no panic", said.unwrap_or_default());
        let (at, last, state) = Default::default();
        Outcome { hash: 0, events: 0, failure: Some(Failure { at, violation, last, state }) }
    })
}

fn explain(schedule: &Schedule, failure: &Failure) -> String {
    let same = |other: &Failure| other.violation.invariant == failure.violation.invariant;
    let shrunk = shrink(schedule, SHRINK_RUNS, |candidate| {
        attempt(candidate, false).failure.as_ref().is_some_and(same)
    });
    let again = attempt(&shrunk.schedule, true).failure;
    let shrunk = again.as_ref().map(|failure| (&shrunk, failure));
    report(schedule, failure, shrunk, &replay_seed(schedule))
}
