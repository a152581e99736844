//! The table and the curves.

mod trial;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::account::{Meter, pin};
use crate::generator::Pace;
use crate::rows::{BenchReport, Quantity, Row, Skipped};
use crate::world::World;
use crate::{BenchError, Responder, raw, sending};

use trial::Trial;

pub use crate::generator::Checked;

/// Options of a bench.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The responders, in the order of the table.
    pub responders: Vec<Responder>,
    /// Burst sizes: number of requests that arrive together (1 to 64).
    pub bursts: Vec<usize>,
    /// Number of runs of each measurement.
    pub runs: usize,
    /// Duration of each measurement.
    pub duration: Duration,
    /// Number of paths, to which the requests belong in turn.
    pub paths: u32,
    /// Also measure raw frames.
    pub raw: bool,
    /// Also measure sending, with this many paths.
    pub sending: Option<u32>,
}

impl Default for BenchOptions {
    /// All measurements, five runs of a second.
    fn default() -> BenchOptions {
        BenchOptions {
            responders: Responder::ALL.to_vec(),
            bursts: vec![32, 1],
            runs: 5,
            duration: Duration::from_secs(1),
            paths: 1024,
            raw: true,
            sending: Some(10_000),
        }
    }
}

impl BenchOptions {
    fn check(&self) -> Result<(), BenchError> {
        let burst = |b: &usize| (1..=crate::generator::BURST_MAX).contains(b);
        if self.runs == 0 || !self.bursts.iter().all(burst) {
            return Err(BenchError::Option(
                "a bench needs at least one run, and bursts of 1 to 64",
            ));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(600)).contains(&self.duration) {
            return Err(BenchError::Option("a measurement takes between 10 ms and 10 minutes"));
        }
        if !(64..=100_000).contains(&self.paths) {
            return Err(BenchError::Option("between 64 and 100000 paths"));
        }
        Ok(())
    }
}

/// Receives the progress of a bench.
pub trait Progress {
    /// Reports the part that begins, in one line.
    fn step(&mut self, text: &str);
}

impl<F: FnMut(&str)> Progress for F {
    fn step(&mut self, text: &str) {
        self(text);
    }
}

/// One run's figures for a row.
#[derive(Clone, Copy, Debug)]
struct Figures {
    total_us: f64,
    drop_us: f64,
    answered: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
}

/// Measures the cost of an answered probe.
///
/// Skips a part that this machine lacks (a JVM, `sipp`) and reports that.
///
/// # Errors
/// Not root, or the system lacks a facility that every Linux has.
pub fn run(
    options: &BenchOptions,
    progress: &mut (dyn Progress + Send),
) -> Result<BenchReport, BenchError> {
    options.check()?;
    on_one_processor(|world, meter, cpu| {
        let mut report = BenchReport {
            method: meter.method().into(),
            cpu,
            paths: options.paths,
            runs: options.runs,
            duration_s: options.duration.as_secs_f64(),
            ..BenchReport::default()
        };
        table(options, world, meter, progress, &mut report)?;
        if options.raw {
            report.raw = raw::measure(options, world, meter, progress, &mut report.skipped)?;
        }
        if let Some(paths) = options.sending {
            progress.step(&format!("sending the probes of {paths} paths"));
            report.sending = Some(sending::measure(world, meter, paths, options.runs)?);
        }
        report.judge();
        Ok(report)
    })
}

/// Runs `f` on a thread that is pinned to one processor, together with everything it starts.
fn on_one_processor<T: Send>(
    f: impl FnOnce(&World, &Meter, usize) -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let body = || {
        let cpu = pin()?;
        let world = World::new()?;
        f(&world, &Meter::new(cpu), cpu)
    };
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn table(
    options: &BenchOptions,
    world: &World,
    meter: &Meter,
    progress: &mut (dyn Progress + Send),
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    if options.bursts.is_empty() {
        return Ok(()); // raw frames or sending alone
    }
    let mut present = options.responders.clone();
    let mut rates: BTreeMap<(Responder, usize), f64> = BTreeMap::new();
    let mut figures: BTreeMap<(Responder, usize), Vec<Figures>> = BTreeMap::new();
    for run in 0..options.runs {
        let mut order = present.clone();
        order.rotate_left(run % present.len().max(1));
        for responder in order {
            progress.step(&format!("run {} of {}: {responder}", run + 1, options.runs));
            let trial = Trial { world, meter, responder, paths: options.paths, clients: 1 };
            match one_run(options, &trial, run, &mut rates) {
                Ok(found) => {
                    for (burst, f) in found {
                        figures.entry((responder, burst)).or_default().push(f);
                    }
                }
                Err(why @ (BenchError::Missing { .. } | BenchError::Silent { .. })) => {
                    progress.step(&format!("{responder} is left out: {why}"));
                    present.retain(|r| *r != responder);
                    let what = responder.name().into();
                    report.skipped.push(Skipped { what, why: why.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
    }
    for &responder in &options.responders {
        for &burst in &options.bursts {
            let found = figures.get(&(responder, burst)).map_or(&[][..], Vec::as_slice);
            let rate = rates.get(&(responder, burst)).copied().unwrap_or(0.0);
            report.rows.extend(row(responder, burst, rate, found));
        }
    }
    Ok(())
}

/// Measures one responder with all kinds of requests. Every other run starts with the drop.
fn one_run(
    options: &BenchOptions,
    trial: &Trial<'_>,
    run: usize,
    rates: &mut BTreeMap<(Responder, usize), f64>,
) -> Result<Vec<(usize, Figures)>, BenchError> {
    let mut live = trial.start()?;
    for &burst in &options.bursts {
        let rate = match rates.get(&(trial.responder, burst)) {
            Some(rate) => *rate,
            None => live.calibrate(burst, options.duration)?,
        };
        rates.insert((trial.responder, burst), rate);
    }
    let pace = |burst: usize| Pace {
        rate: rates[&(trial.responder, burst)],
        burst,
        duration: options.duration,
    };
    drop(live);
    let mut dropped = Vec::new();
    let drop_first = run.is_multiple_of(2);
    if drop_first {
        dropped = trial.dropped(options.bursts.iter().map(|&b| pace(b)))?;
    }
    let mut live = trial.start()?;
    let mut found = Vec::new();
    for &burst in &options.bursts {
        let pace = pace(burst);
        live.warm_up(pace)?;
        let answered = live.answered(pace)?;
        let turnarounds = live.turnarounds(Pace { duration: pace.duration / 2, ..pace })?;
        found.push((burst, answered, turnarounds));
    }
    drop(live);
    if !drop_first {
        dropped = trial.dropped(options.bursts.iter().map(|&b| pace(b)))?;
    }
    let figures = found.into_iter().zip(dropped).map(|((burst, answered, turnarounds), drop)| {
        let figures = Figures {
            total_us: answered.us_each(),
            drop_us: drop.us_each(),
            answered: answered.share(),
            p50_us: quantile_us(&turnarounds, 0.5),
            p99_us: quantile_us(&turnarounds, 0.99),
        };
        (burst, figures)
    });
    Ok(figures.collect())
}

fn row(responder: Responder, burst: usize, rate: f64, runs: &[Figures]) -> Option<Row> {
    let of = |f: &dyn Fn(&Figures) -> f64| Quantity::of(runs.iter().map(f).collect());
    let some =
        |f: &dyn Fn(&Figures) -> Option<f64>| Quantity::of(runs.iter().filter_map(f).collect());
    let row = Row {
        responder,
        burst,
        rate,
        cpu_us: of(&|f| f.total_us - f.drop_us)?,
        total_us: of(&|f| f.total_us)?.median,
        drop_us: of(&|f| f.drop_us)?.median,
        answered: of(&|f| f.answered)?.median,
        rate_at_half_cpu: None,
        hosts: None,
        p50_us: some(&|f| f.p50_us),
        p99_us: some(&|f| f.p99_us),
    };
    Some(row.with_rates())
}

/// The quantile `share` of the sorted values, in microseconds.
fn quantile_us(sorted_ns: &[u64], share: f64) -> Option<f64> {
    let last = sorted_ns.len().checked_sub(1)?;
    Some(sorted_ns[(last as f64 * share).ceil() as usize] as f64 / 1e3)
}

/// Sends requests to a responder and validates each answer as a client would.
///
/// # Errors
/// As for [`run`]; [`BenchError::Missing`] if the responder is not available.
pub fn check(
    responder: Responder,
    rate: f64,
    burst: usize,
    duration: Duration,
) -> Result<Checked, BenchError> {
    on_one_processor(|world, meter, _| {
        let trial = Trial { world, meter, responder, paths: 256, clients: 3 };
        trial.start()?.judged(Pace { rate, burst, duration })
    })
}

/// A curve of processor time against rate.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The responder.
    pub responder: Responder,
    /// Requests per second of all clients together.
    pub rates: Vec<f64>,
    /// Number of source addresses, each with separate paths (1 to 3).
    pub clients: u32,
    /// Number of requests that arrive together.
    pub burst: usize,
    /// Number of runs for each point, which is their median.
    pub runs: usize,
    /// Duration of each measurement.
    pub duration: Duration,
}

/// One point of a [`Sweep`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests per second.
    pub rate: f64,
    /// Processor time for answering minus that for dropping, in percent of one processor.
    pub cpu_percent: Quantity,
    /// Share of answered requests: below 1 the responder is at its limit.
    pub answered: f64,
}

/// Measures a curve: processor time of a responder against the rate of requests (paper 2, Fig. 7 for user space with
/// one to three clients, Fig. 8 for the kernel).
///
/// # Errors
/// As for [`run`]; [`BenchError::Missing`] if the responder is not available.
pub fn sweep(
    sweep: &Sweep,
    progress: &mut (dyn Progress + Send),
) -> Result<Vec<Point>, BenchError> {
    let options = BenchOptions {
        responders: vec![sweep.responder],
        bursts: vec![sweep.burst],
        runs: sweep.runs,
        duration: sweep.duration,
        ..BenchOptions::default()
    };
    options.check()?;
    if !(1..=crate::world::CLIENTS_MAX).contains(&sweep.clients) || sweep.rates.is_empty() {
        return Err(BenchError::Option("a curve needs rates, and one to three clients"));
    }
    on_one_processor(|world, meter, _| {
        let trial = Trial {
            world,
            meter,
            responder: sweep.responder,
            // The same number for each client, so that three do not share the paths of one.
            paths: 64 * sweep.clients,
            clients: sweep.clients,
        };
        points(sweep, &trial, progress)
    })
}

fn points(
    sweep: &Sweep,
    trial: &Trial<'_>,
    progress: &mut (dyn Progress + Send),
) -> Result<Vec<Point>, BenchError> {
    let pace = |rate| Pace { rate, burst: sweep.burst, duration: sweep.duration };
    let mut percent = vec![Vec::new(); sweep.rates.len()];
    let mut answered = percent.clone();
    for run in 0..sweep.runs {
        let (responder, clients) = (sweep.responder, sweep.clients);
        progress.step(&format!(
            "run {} of {}: {responder}, clients: {clients}",
            run + 1,
            sweep.runs
        ));
        let dropped = trial.dropped(sweep.rates.iter().map(|&rate| pace(rate)))?;
        let mut live = trial.start()?;
        live.warm_up(pace(sweep.rates.iter().copied().fold(1.0, f64::max)))?;
        for (i, (&rate, drop)) in sweep.rates.iter().zip(dropped).enumerate() {
            let sample = live.answered(pace(rate))?;
            percent[i].push((sample.cpu_share() - drop.cpu_share()) * 100.0);
            answered[i].push(sample.share());
        }
    }
    let points = sweep.rates.iter().zip(percent.into_iter().zip(answered));
    Ok(points
        .filter_map(|(&rate, (percent, answered))| {
            let answered = Quantity::of(answered)?.median;
            Some(Point { rate, cpu_percent: Quantity::of(percent)?, answered })
        })
        .collect())
}
