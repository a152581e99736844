//! Shrinks a failing schedule: first fewer faults (ddmin: Zeller, Hildebrandt, Simplifying and isolating
//! failure-inducing input, 2002), then fewer hosts and paths, then simpler values.

use alloc::string::ToString;
use alloc::vec::Vec;

use segue_sim::net::LinkFault;

use super::fault::{Entry, Fault, Way};
use super::schedule::Schedule;

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest failing schedule found.
    pub schedule: Schedule,
    /// Number of calls of `fails`.
    pub runs: usize,
}

/// Returns the smallest schedule for which `fails` is still true, found with at most `max_runs` calls. `fails`
/// must be true for `schedule` itself.
pub fn shrink(schedule: &Schedule, max_runs: usize, fails: impl Fn(&Schedule) -> bool) -> Shrunk {
    let mut search = Search { best: schedule.clone(), runs: 0, max_runs, fails };
    loop {
        let before = search.best.clone();
        search.fewer_entries();
        search.smaller_network();
        search.simpler_values();
        if search.best == before || search.is_spent() {
            return Shrunk { schedule: search.best, runs: search.runs };
        }
    }
}

struct Search<F> {
    best: Schedule,
    runs: usize,
    max_runs: usize,
    fails: F,
}

impl<F: Fn(&Schedule) -> bool> Search<F> {
    fn is_spent(&self) -> bool {
        self.runs >= self.max_runs
    }

    /// Keeps a candidate if it fails as well.
    fn accept(&mut self, candidate: Schedule) -> bool {
        // An order may refer to something that was removed.
        let stands = || candidate.to_string().parse::<Schedule>().is_ok();
        if self.is_spent() || candidate == self.best || !stands() {
            return false;
        }
        self.runs += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Removes ever smaller parts of the entries. Keeping a single part needs no extra step: it results from
    /// removing all other parts one after the other.
    fn fewer_entries(&mut self) {
        let mut parts = 2;
        while !self.best.entries.is_empty() && !self.is_spent() {
            let len = self.best.entries.len();
            let size = len.div_ceil(parts);
            let mut left_out = false;
            let mut from = 0;
            while from < self.best.entries.len() {
                let mut candidate = self.best.clone();
                let to = (from + size).min(candidate.entries.len());
                candidate.entries.drain(from..to);
                if self.accept(candidate) {
                    left_out = true;
                } else {
                    from = to;
                }
            }
            if size == 1 && !left_out {
                return;
            }
            parts = if left_out { 2 } else { (parts * 2).min(len) };
        }
    }

    /// Removes the last host, or the last path of a host, if no entry refers to it; moves the start of the quiet
    /// time to just after the last entry.
    fn smaller_network(&mut self) {
        loop {
            let named = |entry: &Entry, host: usize| entry.fault.host() == Some(host);
            let mut candidate = self.best.clone();
            let last = candidate.hosts.len() - 1;
            if last > 0 && !candidate.entries.iter().any(|entry| named(entry, last)) {
                candidate.hosts.pop();
                if self.accept(candidate) {
                    continue;
                }
            }
            break;
        }
        for host in 0..self.best.hosts.len() {
            let mut candidate = self.best.clone();
            let last = candidate.hosts[host].paths.len() - 1;
            let named = candidate.entries.iter().any(|entry| {
                entry.fault.path().is_some_and(|at| (at.host, at.path) == (host, last))
            });
            if last > 0 && !named {
                candidate.hosts[host].paths.pop();
                self.accept(candidate);
            }
        }
        let end = self.best.entries.last().map_or(1_000, |entry| entry.at_ms + 500);
        if end < self.best.quiet_ms {
            let candidate = Schedule { quiet_ms: end, ..self.best.clone() };
            self.accept(candidate);
        }
    }

    fn simpler_values(&mut self) {
        for candidate in self.best.machines.simpler(&self.best) {
            self.accept(candidate);
        }
        for index in 0..self.best.entries.len() {
            for fault in simpler(&self.best.entries[index].fault) {
                let mut candidate = self.best.clone();
                candidate.entries[index].fault = fault;
                if self.accept(candidate) {
                    break;
                }
            }
            for step in [1_000, 100, 10] {
                let mut candidate = self.best.clone();
                let entry = &mut candidate.entries[index];
                entry.at_ms = entry.at_ms / step * step;
                if candidate.entries.is_sorted_by_key(|entry| entry.at_ms) && self.accept(candidate)
                {
                    break;
                }
            }
        }
    }
}

/// The same fault with simpler values: always instead of sometimes, and both directions instead of one.
fn simpler(fault: &Fault) -> Vec<Fault> {
    if let Fault::Stall(node, ms @ 2..) = fault {
        return Vec::from([Fault::Stall(*node, ms / 2)]);
    }
    let Fault::Link(at, way, of) = fault else { return Vec::new() };
    let link = |way, fault| Vec::from([Fault::Link(*at, way, fault)]);
    match *of {
        LinkFault::Loss(_) => link(*way, LinkFault::Cut),
        LinkFault::Burst(n) if n > 1 => link(*way, LinkFault::Burst(n / 2)),
        LinkFault::Duplicate(n) if n < 1_000 => link(*way, LinkFault::Duplicate(1_000)),
        LinkFault::Reorder(n, ms) if n < 1_000 => link(*way, LinkFault::Reorder(1_000, ms)),
        LinkFault::Cut if *way != Way::Both => link(Way::Both, LinkFault::Cut),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::PathRef;
    use crate::protocol::Machines;

    const AT: PathRef = PathRef { host: 0, path: 0 };

    #[test]
    fn two_entries_that_fail_together_are_what_is_left() {
        for seed in 0..50 {
            let mut schedule = Schedule::generate(Machines::ALL[0], seed);
            let fault = |n: u16| Fault::Link(AT, Way::Up, LinkFault::Burst(10_000 + n));
            let (first, second) = (3, schedule.entries.len() - 2);
            schedule.entries[first].fault = fault(1);
            schedule.entries[second].fault = fault(2);
            let fails = |candidate: &Schedule| {
                [1, 2].iter().all(|n| candidate.entries.iter().any(|e| e.fault == fault(*n)))
            };
            let shrunk = shrink(&schedule, 1_000, fails);
            assert_eq!(shrunk.schedule.entries.len(), 2, "seed {seed}: {shrunk:?}");
            assert_eq!(shrunk.schedule.hosts.len(), 1);
            assert!(fails(&shrunk.schedule) && shrunk.runs < 200, "seed {seed}: {}", shrunk.runs);
        }
    }

    #[test]
    fn no_more_questions_are_asked_than_allowed() {
        let schedule = Schedule::generate(Machines::ALL[0], 1);
        let asked = core::cell::Cell::new(0);
        let shrunk = shrink(&schedule, 7, |_| {
            asked.set(asked.get() + 1);
            false
        });
        assert_eq!((shrunk.runs, asked.get()), (7, 7));
        assert_eq!(shrunk.schedule, schedule);
    }

    #[test]
    fn what_fails_without_any_fault_ends_up_without_any() {
        let schedule = Schedule::generate(Machines::ALL[0], 1);
        let shrunk = shrink(&schedule, 100, |_| true);
        assert!(shrunk.schedule.entries.is_empty());
    }
}
