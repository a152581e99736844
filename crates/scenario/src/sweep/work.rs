//! Distributes runs over threads. Each thread takes the next free run and stores its results immediately.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use segue_sim::Results;
use segue_text::terminal;

use super::plan::{Plan, Point};
use super::store::{Kept, Store};

/// Executes those of `runs` that the store lacks.
///
/// # Errors
/// A run cannot be stored. Other unfinished runs are stored first.
pub(super) fn execute(
    plan: &Plan,
    store: &Store,
    runs: &[u64],
    jobs: usize,
    run: &(dyn Fn(&Point<'_>) -> Result<Results, String> + Sync),
) -> anyhow::Result<()> {
    let left: Vec<u64> = runs.iter().copied().filter(|run| !store.has(*run)).collect();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut progress = Progress::new(runs.len(), runs.len() - left.len());
    let (done, finished) = mpsc::channel();
    let work = |done: mpsc::Sender<anyhow::Result<()>>| {
        while !stop.load(Ordering::Relaxed) {
            let Some(number) = left.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let point = plan.point(*number);
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&point)));
            let outcome = outcome.unwrap_or_else(|_| Err("the simulator panicked".into()));
            let kept = store.keep(&Kept::of(*number, outcome));
            stop.fetch_or(kept.is_err(), Ordering::Relaxed);
            // The receiver outlives every worker.
            let _ = done.send(kept);
        }
    };
    let mut wrong = None;
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(left.len()) {
            let (done, work) = (done.clone(), &work);
            scope.spawn(move || work(done));
        }
        drop(done);
        loop {
            match finished.recv_timeout(Duration::from_secs(1)) {
                Ok(Ok(())) => progress.one(),
                Ok(Err(error)) => wrong = Some(error),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            progress.show();
        }
    });
    progress.shown.clear();
    wrong.map_or(Ok(()), Err)
}

/// Progress of the sweep.
struct Progress {
    all: usize,
    done: usize,
    shown: terminal::Progress,
    begun: Instant,
    /// End times of the latest runs, at most 50, to compute the rate.
    ends: VecDeque<Instant>,
}

impl Progress {
    fn new(all: usize, done: usize) -> Progress {
        if done > 0 {
            eprintln!("segue: {done} of {all} runs are there already");
        }
        let shown = terminal::Progress::new(Duration::from_secs(1), Duration::from_secs(30));
        Progress { all, done, shown, begun: Instant::now(), ends: VecDeque::new() }
    }

    fn one(&mut self) {
        self.done += 1;
        if self.ends.len() == 50 {
            self.ends.pop_front();
        }
        self.ends.push_back(Instant::now());
    }

    fn show(&mut self) {
        let line = self.line(Instant::now());
        self.shown.tell(|| line);
    }

    fn line(&self, now: Instant) -> String {
        let since = self.ends.front().filter(|_| self.ends.len() > 1).unwrap_or(&self.begun);
        let seconds = now.duration_since(*since).as_secs_f64();
        let rate = self.ends.len() as f64 / seconds.max(1e-9);
        let (done, all) = (self.done, self.all);
        if self.ends.is_empty() {
            return format!("segue: {done} of {all} runs");
        }
        let left = (all - done) as f64 / rate;
        format!("segue: {done} of {all} runs, {rate:.2} a second, {left:.0} s left")
    }
}
