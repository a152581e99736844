//! `segue sim faults`: runs machines under seeded fault schedules.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroU64;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use segue_faults::report::{SHRINK_RUNS, replay_seed, report};
use segue_faults::{
    Failure, Machines, Outcome, Schedule, Shrunk, Violation, run as simulate, shrink,
};
use segue_text::say;
use segue_text::terminal;
use serde::Serialize;

/// How often to report progress, on a terminal and elsewhere.
const LIVE: Duration = Duration::from_millis(500);
const TOLD: Duration = Duration::from_secs(10);
/// Maximum number of failures listed. The first of them is shrunk and explained.
const LISTED: usize = 20;
/// Maximum size in bytes of a schedule file.
const MAX_FILE: u64 = 1 << 20;

/// Run host and anchor under seeded faults, and check invariants after every event
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: segue sim faults --seeds 1000. docs/simulator/faults.md says what is injected \
                        and what must hold."
)]
pub struct Args {
    /// How many seeds to run.
    #[arg(long, value_name = "N", default_value = "100", value_parser = one_or_more, conflicts_with_all = ["seed", "schedule"])]
    seeds: NonZeroU64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with_all = ["seed", "schedule"])]
    first: u64,
    /// Run only this seed
    #[arg(long, value_name = "SEED", conflicts_with = "schedule")]
    seed: Option<u64>,
    /// Run the schedule in this file.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Machines to run: tunnel (hosts and anchor), keepalive (the estimators), echo, pmip or mih [default: all].
    #[arg(long, value_name = "NAME", value_parser = machines, conflicts_with = "schedule")]
    machines: Option<Machines>,
    /// Do not look for a smaller schedule that fails in the same way
    #[arg(long)]
    no_shrink: bool,
    /// Print the schedules of the seeds without running them
    #[arg(long, conflicts_with = "schedule")]
    print: bool,
    /// Runs at the same time [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = one_or_more)]
    jobs: Option<NonZeroU64>,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

fn one_or_more(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "a whole number from 1 on is needed".to_owned())
}

fn machines(name: &str) -> Result<Machines, String> {
    let names = Machines::ALL.map(|machines| machines.name()).join(" or ");
    Machines::from_name(name).ok_or_else(|| format!("the machines are {names}"))
}

/// The results of all runs, as JSON.
#[derive(Serialize)]
struct Summary {
    runs: u64,
    events: u64,
    failures: Vec<Found>,
}

/// A run that failed, as JSON.
#[derive(Serialize)]
struct Found {
    machines: &'static str,
    seed: u64,
    invariant: &'static str,
    detail: String,
    at_s: f64,
    events: Vec<String>,
    state: String,
    replay: String,
    schedule: String,
    shrunk: Option<String>,
}

/// Runs the verb.
///
/// # Errors
/// Bad input.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let work = match &args.schedule {
        Some(path) => Work::File(read(path)?),
        None => Work::Seeds {
            machines: args.machines.map_or(Machines::ALL.to_vec(), |machines| vec![machines]),
            first: args.seed.unwrap_or(args.first),
            seeds: if args.seed.is_some() { 1 } else { args.seeds.get() },
        },
    };
    if args.print {
        for number in 0..work.len()? {
            println!("{}", work.schedule(number));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (events, mut failures) = run_all(&work, args.jobs)?;
    failures.sort_by_key(|(number, _)| *number);
    let replay = |schedule: &Schedule| match &args.schedule {
        Some(path) => format!("segue sim faults --schedule {}", path.display()),
        None => replay_seed(schedule),
    };
    let runs = work.len()?;
    let first = failures.first().map(|(number, failure)| {
        let schedule = work.schedule(*number);
        let again = attempt(&schedule, true).failure.unwrap_or_else(|| failure.clone());
        let shrunk = if args.no_shrink { None } else { smaller(&schedule, &again) };
        (schedule, again, shrunk)
    });
    if args.json {
        print_json(&work, runs, events, &failures, first.as_ref(), &replay)?;
    } else {
        print_text(&work, runs, events, &failures, first.as_ref(), &replay);
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A full failure: its schedule, the broken invariant, and the shrunk version of both.
type First = (Schedule, Failure, Option<(Shrunk, Failure)>);

fn print_text(
    work: &Work,
    runs: u64,
    events: u64,
    failures: &[(u64, Failure)],
    first: Option<&First>,
    replay: &dyn Fn(&Schedule) -> String,
) {
    let Some((schedule, failure, shrunk)) = first else {
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        say!("{runs}, {events} events, every invariant held");
        return;
    };
    let shrunk = shrunk.as_ref().map(|(shrunk, failure)| (shrunk, failure));
    say!("{}", report(schedule, failure, shrunk, &replay(schedule)));
    say!("{} of {runs} runs failed:", failures.len());
    for (number, failure) in failures.iter().take(LISTED) {
        let schedule = work.schedule(*number);
        say!("  {}: {}", replay(&schedule), failure.violation.invariant);
    }
    if failures.len() > LISTED {
        say!("  and {} more", failures.len() - LISTED);
    }
}

fn print_json(
    work: &Work,
    runs: u64,
    events: u64,
    failures: &[(u64, Failure)],
    first: Option<&First>,
    replay: &dyn Fn(&Schedule) -> String,
) -> anyhow::Result<()> {
    let found = |(index, (number, failure)): (usize, &(u64, Failure))| {
        let schedule = work.schedule(*number);
        let full = first.filter(|_| index == 0);
        let failure = full.map_or(failure, |(_, failure, _)| failure);
        Found {
            machines: schedule.machines.name(),
            seed: schedule.seed,
            invariant: failure.violation.invariant,
            detail: failure.violation.detail.clone(),
            at_s: failure.at.as_secs_f64(),
            events: failure.last.clone(),
            state: failure.state.clone(),
            replay: replay(&schedule),
            schedule: schedule.to_string(),
            shrunk: full
                .and_then(|(_, _, shrunk)| shrunk.as_ref())
                .map(|(shrunk, _)| shrunk.schedule.to_string()),
        }
    };
    let failures = failures.iter().enumerate().map(found).collect();
    println!("{}", serde_json::to_string_pretty(&Summary { runs, events, failures })?);
    Ok(())
}

/// The runs to do.
enum Work {
    File(Schedule),
    Seeds { machines: Vec<Machines>, first: u64, seeds: u64 },
}

impl Work {
    fn len(&self) -> anyhow::Result<u64> {
        match self {
            Work::File(_) => Ok(1),
            Work::Seeds { machines, first, seeds } => {
                let runs = seeds.checked_mul(machines.len() as u64);
                let last = first.checked_add(*seeds);
                runs.filter(|_| last.is_some()).context("--first and --seeds: too many seeds")
            }
        }
    }

    /// The schedule of a run. The runs of one seed, one per kind of machine, have successive numbers.
    fn schedule(&self, number: u64) -> Schedule {
        match self {
            Work::File(schedule) => schedule.clone(),
            Work::Seeds { machines, first, .. } => {
                let sets = machines.len() as u64;
                Schedule::generate(machines[(number % sets) as usize], first + number / sets)
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Schedule> {
    let name = path.display();
    let mut text = String::new();
    // A pipe has no known length and may never end, so the read is bounded.
    let file = File::open(path).with_context(|| format!("--schedule {name}"))?;
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    if read.with_context(|| format!("--schedule {name}"))? as u64 > MAX_FILE {
        bail!("--schedule {name}: a schedule has at most {MAX_FILE} bytes");
    }
    text.parse().with_context(|| format!("--schedule {name}"))
}

/// Executes all runs on `jobs` threads. Returns the number of events, and the failures with the numbers of their runs.
fn run_all(work: &Work, jobs: Option<NonZeroU64>) -> anyhow::Result<(u64, Vec<(u64, Failure)>)> {
    let runs = work.len()?;
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let jobs = jobs.map_or(processors, NonZeroU64::get).min(runs).min(1_000);
    let state = Mutex::new(Progress::new(runs));
    // A guard taken in the loop's head would be held during the run.
    let take = || lock(&state).next();
    let one_job = || {
        while let Some(number) = take() {
            let outcome = attempt(&work.schedule(number), false);
            lock(&state).done(number, outcome);
        }
    };
    // Panics are reported as failures, in one place.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(one_job);
        }
    });
    panic::set_hook(hook);
    let progress = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok((progress.events, progress.failures))
}

fn lock(state: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The finished runs.
struct Progress {
    runs: u64,
    begun: u64,
    done: u64,
    events: u64,
    failures: Vec<(u64, Failure)>,
    shown: terminal::Progress,
}

impl Progress {
    fn new(runs: u64) -> Progress {
        let shown = terminal::Progress::new(LIVE, TOLD);
        Progress { runs, begun: 0, done: 0, events: 0, failures: Vec::new(), shown }
    }

    fn next(&mut self) -> Option<u64> {
        let number = self.begun;
        self.begun += 1;
        (number < self.runs).then_some(number)
    }

    fn done(&mut self, number: u64, outcome: Outcome) {
        self.done += 1;
        self.events += outcome.events;
        self.failures.extend(outcome.failure.map(|failure| (number, failure)));
        if self.done == self.runs {
            self.shown.clear();
            return;
        }
        let (done, runs, failed) = (self.done, self.runs, self.failures.len());
        self.shown.tell(|| format!("{done} of {runs} runs, {failed} failed"));
    }
}

/// A run in which a panic counts as a failure.
fn attempt(schedule: &Schedule, keeps_text: bool) -> Outcome {
    panic::catch_unwind(|| simulate(schedule, keeps_text)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
        let violation = Violation::new("no panic", said.unwrap_or_default());
        let (at, last, state) = Default::default();
        Outcome { hash: 0, events: 0, failure: Some(Failure { at, violation, last, state }) }
    })
}

/// Searches for a smaller schedule that breaks the same invariant.
fn smaller(schedule: &Schedule, failure: &Failure) -> Option<(Shrunk, Failure)> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let same = |other: &Failure| other.violation.invariant == failure.violation.invariant;
    let shrunk = shrink(schedule, SHRINK_RUNS, |candidate| {
        attempt(candidate, false).failure.as_ref().is_some_and(same)
    });
    let again = attempt(&shrunk.schedule, true).failure;
    panic::set_hook(hook);
    again.map(|failure| (shrunk, failure))
}
