//! Decides which experiments run at the same time. Those in namespaces send a few packets per second and all run at
//! once; those with daemons follow, again at once. Then virtual machines, calculations and processor measurements run
//! one by one: calculations would disturb the measurements of the first two groups, and the last group needs an idle
//! machine.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use segue_text::errors::Told;
use segue_text::terminal;

use super::experiment::{Experiment, Needs, Outcome, Stage};
use super::repeat;
use super::results::Results;

/// Polling interval for finished experiments.
const LOOK: Duration = Duration::from_millis(250);
/// Interval of progress reports without a terminal.
const REPORT: Duration = Duration::from_secs(15);

/// Options of a run.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Number of runs of each measurement.
    pub runs: u32,
    /// Show no progress.
    pub quiet: bool,
}

/// Runs the experiments and passes on each result as it arrives. If the user asks to stop, running experiments end and
/// no others start.
pub(crate) fn run(
    experiments: &[Experiment],
    stage: &Stage,
    how: How,
    results: &mut Results,
) -> anyhow::Result<()> {
    let with =
        |needs: Needs| (0..experiments.len()).filter(move |i| experiments[*i].needs == needs);
    let mut groups: Vec<Vec<usize>> =
        vec![with(Needs::Namespaces).collect(), with(Needs::Daemons).collect()];
    groups.extend(with(Needs::Machine).map(|i| vec![i]));
    groups.extend(with(Needs::Nothing).map(|i| vec![i]));
    groups.extend(with(Needs::Processor).map(|i| vec![i]));
    groups.retain(|group| !group.is_empty());
    let of = |i: &usize| {
        let Experiment { needs, takes, .. } = experiments[*i];
        takes * if needs == Needs::Nothing { 1 } else { how.runs }
    };
    let takes = |group: &[usize]| group.iter().map(of).max().unwrap_or_default();
    for (done, group) in groups.iter().enumerate() {
        let later = groups[done + 1..].iter().map(|group| takes(group)).sum();
        let progress = Progress::new(how.quiet, takes(group), later);
        together(experiments, group, (stage, how.runs), progress, results)?;
    }
    Ok(())
}

fn together(
    experiments: &[Experiment],
    group: &[usize],
    (stage, runs): (&Stage, u32),
    mut progress: Progress,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut running: Vec<usize> = group.to_vec();
    std::thread::scope(|scope| {
        let (sink, finished) = mpsc::channel::<(usize, f64, anyhow::Result<Outcome>)>();
        for i in group.iter().copied() {
            let (sink, experiment) = (sink.clone(), &experiments[i]);
            scope.spawn(move || {
                let start = Instant::now();
                let result = stage.check().and_then(|()| repeat::run(experiment, stage, runs));
                // The receiver stays until every experiment has ended.
                let _ = sink.send((i, start.elapsed().as_secs_f64(), result));
            });
        }
        drop(sink);
        loop {
            let names: Vec<&str> = running.iter().map(|i| experiments[*i].id).collect();
            match finished.recv_timeout(LOOK) {
                Ok((i, took_s, result)) => {
                    running.retain(|other| *other != i);
                    progress.finished(experiments[i].id, took_s, result.as_ref().err());
                    results.add(i, &experiments[i], took_s, result)?;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => progress.show(&names),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    })
}

/// The progress line for a terminal, with the running experiments.
fn progress(left_s: u64, names: &[&str]) -> String {
    const ROOM: usize = 70;
    let mut line = format!("about {left_s} s left; running {}", names.first().unwrap_or(&""));
    for (n, name) in names.iter().enumerate().skip(1) {
        if line.len() + name.len() > ROOM {
            return format!("{line}, {} more", names.len() - n);
        }
        line += &format!(", {name}");
    }
    line
}

/// Shows progress to the user.
struct Progress {
    /// `None` if progress is hidden.
    shown: Option<terminal::Progress>,
    start: Instant,
    takes: Duration,
    later: Duration,
}

impl Progress {
    fn new(quiet: bool, takes: Duration, later: Duration) -> Progress {
        let shown = (!quiet).then(|| terminal::Progress::new(LOOK, REPORT).at_once());
        Progress { shown, start: Instant::now(), takes, later }
    }

    fn show(&mut self, names: &[&str]) {
        let left = self.takes.saturating_sub(self.start.elapsed()) + self.later;
        if let Some(shown) = self.shown.as_mut().filter(|_| !names.is_empty()) {
            shown.tell(|| progress(left.as_secs(), names));
        }
    }

    fn finished(&mut self, id: &str, took_s: f64, error: Option<&anyhow::Error>) {
        let Some(shown) = &mut self.shown else { return };
        shown.say(&match error {
            Some(error) => format!("{id}: {}", Told(error)),
            None => format!("{id}: done in {took_s:.1} s"),
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(shown) = &mut self.shown {
            shown.clear();
        }
    }
}
