//! The fault harness finds each of the mistakes that can be planted in the machines, and finds nothing without
//! them. Built and run by `scripts/planted-faults`, with `--cfg segue_planted`.
#![cfg(segue_planted)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use segue_clock::planted::choose;
use segue_faults::report::SHRINK_RUNS;
use segue_faults::{Machines, Schedule, run, shrink};

/// Number of seeds after which a mistake counts as not found.
const MAX_SEEDS: u64 = 1_000;
/// Number of seeds per protocol that must find nothing in machines without mistakes.
const SOUND_SEEDS: u64 = 60;

/// Only one test may plant mistakes at a time.
static CHOICE: Mutex<()> = Mutex::new(());

const MISTAKES: [(u8, &str, &str); 59] = [
    (1, "tunnel", "host: a redirection is not renewed when the path it leads to dies too"),
    (2, "tunnel", "host: a redirection is not ended when its path comes back"),
    (3, "tunnel", "anchor: registers an epoch that is older than the last"),
    (4, "tunnel", "anchor: does not note a given address as taken"),
    (5, "tunnel", "anchor: a host's second registration is not written down"),
    (6, "tunnel", "anchor: does not look at the bit that says whether the host hears a path"),
    (7, "tunnel", "host: a path granted again keeps the index of its first grant"),
    (8, "tunnel", "anchor: the expiry of a host is not ended when it shows life"),
    (9, "tunnel", "anchor: takes older words of a host for newer ones"),
    (10, "tunnel", "host: flows of the last path that is removed stay bound to it"),
    (11, "keepalive", "server: the time that the client held an echo counts as round trip"),
    (12, "keepalive", "client: unsolicited responses put off the time-out of the round trip"),
    (13, "tunnel", "end: responses that wait for a ride in vain are never sent"),
    (14, "tunnel", "client: the time that a response waited for a ride is round trip"),
    (15, "tunnel", "packet path: does not call when requests cease to ride"),
    (16, "tunnel", "server: waits no longer for requests that ride than for others"),
    (17, "tunnel", "anchor: the timer of a path is not set to an earlier instant"),
    (18, "keepalive", "server: K and T_KA are taken from requests that were overtaken"),
    (
        19,
        "tunnel",
        "host: the order for a flow holds for the next interface with its path's number",
    ),
    (20, "tunnel", "anchor: a redirection stays on a path whose downlink has died"),
    (21, "tunnel", "measure: the first largest round trip is kept for ever"),
    (22, "keepalive", "measure: counts go on from those before the other end's restart"),
    (23, "keepalive", "client: a time-out that was put off is not put off again after an answer"),
    (24, "tunnel", "anchor: a slot is used again as soon as it is free"),
    (25, "tunnel", "anchor: the old connection of a registration that goes on stays open"),
    (
        26,
        "tunnel",
        "host: the order for a class holds for the next interface with its path's number",
    ),
    (27, "tunnel", "host: does not repeat a switch of the keepalive on a new connection"),
    (28, "tunnel", "anchor: a path that is removed stays in the word of those that are heard"),
    (29, "keepalive", "server: waits for two periods too many"),
    (30, "tunnel", "host: a path keeps the address that its interface has lost"),
    (31, "tunnel", "host: requests that ride are not told that a path has gone"),
    (32, "tunnel", "host: paths that went while no connection stood are not named to the anchor"),
    (33, "tunnel", "anchor: an address rests although another host has it"),
    (34, "keepalive", "client: takes answers to a former client's requests for its own"),
    (35, "tunnel", "packet path: waits for a ride's answer as long as for a ride"),
    (36, "pmip", "anchor: does not tell the former gateway that its host has moved"),
    (37, "pmip", "anchor: the former gateway's word ends the binding of another"),
    (38, "pmip", "anchor: a renewal is not written down"),
    (39, "pmip", "anchor: an interface that comes back gets another prefix"),
    (40, "pmip", "gateway: a registration that is not renewed does not end"),
    (41, "pmip", "anchor: a registration that waits is never answered"),
    (42, "pmip", "gateway: an update that is repeated has the time of attaching"),
    (43, "pmip", "anchor: flows stay on a binding that has ended"),
    (44, "pmip", "anchor: forgets with a start whose the prefixes are"),
    (45, "pmip", "gateway: forgets its hosts with a start"),
    (46, "mih", "function: stations that are not told of again stay"),
    (47, "mih", "function: whoever subscribes is not told who is there"),
    (48, "mih", "function: an event does not wait for the one before it"),
    (49, "mih", "function: renews the registration of somebody whom it does not know"),
    (50, "pmip", "anchor: an order is not carried out when its interface is back"),
    (51, "aaa", "client: does not ask again when a session is over"),
    (52, "aaa", "client: does not pass on that a host in service is refused"),
    (53, "aaa", "client: records do not wait until the Accounting-On is acknowledged"),
    (54, "aaa", "client: sends no record of the end of a session"),
    (55, "aaa", "client: a host in service is not served when no server answers"),
    (56, "aaa", "client: sends no Accounting-On after a restart"),
    (57, "aaa", "gateway: a revoked host's packets attach it again at once"),
    (58, "aaa", "node: its client does not learn that service has ended"),
    (59, "aaa", "gateway: serves on when its servers refuse a host in service"),
];

/// PLANTED restricts the test to the mistakes with these numbers (`3,18`).
#[test]
fn every_planted_mistake_is_found_and_nothing_else() {
    let _guard = CHOICE.lock();
    choose(0);
    for machines in Machines::ALL {
        let found = first_failure(machines, SOUND_SEEDS);
        assert!(found.is_none(), "without a mistake: {} {found:?}", machines.name());
    }
    let named = std::env::var("PLANTED").unwrap_or_default();
    let named: Vec<u8> = named.split_terminator(',').map(|n| n.parse().expect("PLANTED")).collect();
    let mut missed = Vec::new();
    println!("{:>3}  {:>5}  {:>7}  {:<28}  mistake", "no.", "seed", "took", "invariant");
    for (number, machines, what) in MISTAKES {
        if !named.is_empty() && !named.contains(&number) {
            continue;
        }
        choose(number);
        let begun = Instant::now();
        let machines = Machines::from_name(machines).expect(machines);
        let found = first_failure(machines, MAX_SEEDS);
        let took = format!("{:.1} s", begun.elapsed().as_secs_f64());
        match found {
            Some((seed, invariant)) => {
                println!("{number:>3}  {seed:>5}  {took:>7}  {invariant:<28}  {what}");
                if std::env::var_os("PLANTED_SHRUNK").is_some() {
                    let schedule = Schedule::generate(machines, seed);
                    let same = |other: &Schedule| fails(other).as_deref() == Some(&*invariant);
                    println!("{}", shrink(&schedule, SHRINK_RUNS, same).schedule);
                }
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

/// Every kept schedule that names a mistake finds it.
#[test]
fn kept_schedules_show_what_they_were_kept_for() {
    let _guard = CHOICE.lock();
    let mut shown = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(number) = text.lines().find_map(|line| line.strip_prefix("# planted: ")) else {
            continue;
        };
        let schedule: Schedule = text.parse().unwrap();
        choose(number.trim().parse().unwrap());
        let found = fails(&schedule);
        choose(0);
        assert!(found.is_some(), "{} does not find mistake {number}", path.display());
        shown += 1;
    }
    assert!(shown >= 2, "{shown} name a mistake");
}

/// The invariant that a schedule violates.
fn fails(schedule: &Schedule) -> Option<String> {
    match std::panic::catch_unwind(|| run(schedule, false).failure) {
        Ok(failure) => failure.map(|failure| failure.violation.invariant.to_string()),
        Err(_) => Some("no panic".to_string()),
    }
}

/// The smallest seed below `seeds` that fails, and the violated invariant.
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
            let Some(invariant) = fails(&schedule) else { continue };
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
