//! One responder under load from one generator.

use std::time::Duration;

use segue_clock::Time;
use segue_linux::clock::monotonic;

use crate::account::Meter;
use crate::generator::{Checked, Generator, Listener, Pace};
use crate::protocol::Requests;
use crate::responder::Running;
use crate::skel::Attached;
use crate::world::World;
use crate::{BenchError, Responder};

/// Maximum time to a responder's first answer; a JVM first compiles its program.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Requests per second for single requests.
const ISOLATED_RATE: f64 = 2000.0;
/// Maximum number of requests per second in bursts: the generator also requires processor time.
const RATE_MAX: f64 = 200_000.0;
/// Share of the processor for generator and responder together during a measurement.
const SHARE: f64 = 0.5;
/// Minimum share of answered requests at a sustainable rate.
const ANSWERED: f64 = 0.99;
/// Requests per second in bursts for the measurement of turnarounds, the same for every responder that sustains it.
/// Queues must result from the burst and not from a processor at its limit.
const TURNAROUND_RATE: f64 = 6400.0;
/// Time without an answer after which a responder counts as finished, and the maximum time to wait for that.
const QUIET: Duration = Duration::from_millis(10);
const QUIET_LIMIT: Duration = Duration::from_secs(2);
/// Maximum time between two heartbeats.
const SLICE: Duration = Duration::from_secs(1);

/// The components of a trial.
pub(crate) struct Trial<'a> {
    pub(crate) world: &'a World,
    pub(crate) meter: &'a Meter,
    pub(crate) responder: Responder,
    pub(crate) paths: u32,
    pub(crate) clients: u32,
}

/// Number of requests, their outcome, and the cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) sent: u64,
    /// Requests answered, or dropped if that is the baseline.
    pub(crate) done: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

impl Sample {
    /// Processor time per completed request.
    pub(crate) fn us_each(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.done.max(1) as f64
    }

    /// Share of completed requests.
    pub(crate) fn share(&self) -> f64 {
        self.done as f64 / self.sent.max(1) as f64
    }

    /// Processor time divided by wall time.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

impl<'a> Trial<'a> {
    fn generator(&self) -> Result<Generator, BenchError> {
        let format = self.responder.format();
        let requests = Requests::new(format, self.world.macs, self.paths, self.clients);
        Generator::new(self.world, requests)
    }

    /// Starts the responder and waits for its first answer.
    pub(crate) fn start(&self) -> Result<Live<'a>, BenchError> {
        let sink = self.world.attach_sink(self.responder.hook())?;
        let running = self.responder.start(self.world, self.paths, self.clients)?;
        let generator = self.generator()?;
        let listener = Listener::new(self.world, generator.format(), self.paths)?;
        let mut live = Live {
            running,
            _sink: sink,
            generator,
            listener,
            world: self.world,
            meter: self.meter,
            responder: self.responder,
        };
        live.wait_until_it_answers()?;
        Ok(live)
    }

    /// Sends the same requests into a drop at the responder's hook.
    pub(crate) fn dropped(
        &self,
        paces: impl Iterator<Item = Pace>,
    ) -> Result<Vec<Sample>, BenchError> {
        let hook = self.responder.hook();
        let _sink = self.world.attach_sink(hook)?;
        let _drop = self.world.attach_drop(hook)?;
        let mut generator = self.generator()?;
        paces
            .map(|pace| {
                generator.send_paced(Pace { duration: warm(pace), ..pace })?;
                self.world.programs.reset(true)?;
                let (wall, cpu) = (monotonic(), self.meter.read(&[]));
                let sent = generator.send_paced(pace)?;
                let (wall_ns, cpu_ns) = (monotonic().0 - wall.0, self.meter.read(&[]) - cpu);
                Ok(Sample { sent, done: self.world.programs.counts()?.dropped, cpu_ns, wall_ns })
            })
            .collect()
    }
}

/// Duration of a measurement's warm-up.
fn warm(pace: Pace) -> Duration {
    (pace.duration / 4).min(Duration::from_millis(250))
}

/// A running responder with its generator.
pub(crate) struct Live<'a> {
    running: Box<dyn Running>,
    _sink: Attached,
    generator: Generator,
    listener: Listener,
    world: &'a World,
    meter: &'a Meter,
    responder: Responder,
}

impl Live<'_> {
    fn wait_until_it_answers(&mut self) -> Result<(), BenchError> {
        let end = Time(monotonic().0 + START_LIMIT.as_nanos() as u64);
        let pace = Pace { rate: 20.0, burst: 1, duration: Duration::from_millis(50) };
        while monotonic() < end {
            if !self.turnarounds(pace)?.is_empty() {
                return Ok(());
            }
        }
        Err(BenchError::Silent { responder: self.responder.name() })
    }

    /// Warms up caches, branch predictors and just-in-time compilers under load.
    pub(crate) fn warm_up(&mut self, pace: Pace) -> Result<(), BenchError> {
        let longer = if self.responder == Responder::Java { 4 } else { 1 };
        self.answered(Pace { duration: warm(pace) * longer, ..pace }).map(drop)
    }

    /// Sends requests and counts the answers on arrival.
    pub(crate) fn answered(&mut self, pace: Pace) -> Result<Sample, BenchError> {
        self.world.programs.reset(true)?;
        let pids = self.running.processes();
        let (wall, cpu) = (monotonic(), self.meter.read(&pids));
        let (mut sent, mut left) = (0, pace.duration);
        while !left.is_zero() {
            self.running.heartbeat();
            let duration = left.min(SLICE);
            sent += self.generator.send_paced(Pace { duration, ..pace })?;
            left -= duration;
        }
        let done = self.settled()?;
        let (wall_ns, cpu_ns) = (monotonic().0 - wall.0, self.meter.read(&pids) - cpu);
        Ok(Sample { sent, done, cpu_ns, wall_ns })
    }

    /// Waits until no more answers arrive and returns their number; late answers cost processor time too.
    fn settled(&self) -> Result<u64, BenchError> {
        let end = Time(monotonic().0 + QUIET_LIMIT.as_nanos() as u64);
        let mut answers = self.world.programs.counts()?.answers;
        loop {
            std::thread::sleep(QUIET);
            let now = self.world.programs.counts()?.answers;
            if now == answers || monotonic() >= end {
                return Ok(now);
            }
            answers = now;
        }
    }

    /// Sends requests and returns the sorted turnarounds of valid answers in nanoseconds.
    pub(crate) fn turnarounds(&mut self, pace: Pace) -> Result<Vec<u64>, BenchError> {
        self.world.programs.reset(false)?;
        let rate = if pace.burst == 1 { pace.rate } else { pace.rate.min(TURNAROUND_RATE) };
        let (mut all, mut left) = (Vec::new(), pace.duration);
        while !left.is_zero() {
            self.running.heartbeat();
            let duration = left.min(SLICE);
            let pace = Pace { rate, duration, ..pace };
            all.extend(self.generator.turnarounds(pace, &mut self.listener)?);
            left -= duration;
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Sends requests and validates each answer as a client would.
    pub(crate) fn judged(&mut self, pace: Pace) -> Result<Checked, BenchError> {
        self.listener.judged = Checked::default();
        self.turnarounds(pace)?;
        Ok(self.listener.judged)
    }

    /// Selects the rate: single requests, or as many as the processor sustains without losses.
    pub(crate) fn calibrate(
        &mut self,
        burst: usize,
        duration: Duration,
    ) -> Result<f64, BenchError> {
        let most = if burst == 1 { ISOLATED_RATE } else { RATE_MAX };
        let mut rate = ISOLATED_RATE;
        for _ in 0..5 {
            let pace = Pace { rate, burst, duration };
            let sample = self.answered(Pace { duration: warm(pace), ..pace })?;
            let lossy = sample.share() < ANSWERED;
            let factor = if lossy { 0.5 } else { SHARE / sample.cpu_share() };
            rate = (rate * factor.clamp(0.25, 8.0)).clamp(50.0, most);
        }
        Ok(rate)
    }
}
