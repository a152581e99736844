//! Raw XDP frames: there are no socket buffers in either direction, and the generator is cheap enough to be included in
//! the measurement. The kernel runs a program on live frames (`BPF_PROG_TEST_RUN`), which turns each frame into a valid
//! request and sends it over the wire.

use std::os::fd::{AsRawFd, OwnedFd};

use segue_wire::Probe;

use crate::account::Meter;
use crate::error::system;
use crate::probes::{BenchOptions, Progress};
use crate::protocol::{client, fill_headers};
use crate::responder::Running;
use crate::rows::{Quantity, RawRow, Skipped};
use crate::skel::{Attached, RAW_PATHS};
use crate::world::{Hook, World};
use crate::{BenchError, Responder};

const HEADERS: usize = 42;
/// Frames that the kernel allocates at a time.
const BATCH: u32 = 64;
/// Frames per call; deferred work runs between calls.
const CALL: u32 = 100_000;
/// Number of unmeasured calls, and of measured calls per second of duration.
const WARM_CALLS: u32 = 2;
const CALLS_PER_S: f64 = 20.0;

/// The receiver of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Drop,
    Answer(Responder),
}

/// Measures the drop and the responders that accept raw frames.
pub(crate) fn measure(
    options: &BenchOptions,
    world: &World,
    meter: &Meter,
    progress: &mut (dyn Progress + Send),
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<RawRow>, BenchError> {
    let answering = options.responders.iter().copied().filter(|r| r.takes_raw_frames());
    let mut targets: Vec<Target> = answering.map(Target::Answer).collect();
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    targets.insert(0, Target::Drop);
    let calls = ((options.duration.as_secs_f64() * CALLS_PER_S) as u32).max(1);
    let mut found = vec![Vec::new(); targets.len()];
    for run in 0..options.runs {
        for i in 0..targets.len() {
            let i = (i + run) % targets.len();
            let target = targets[i];
            let name = name(target);
            progress.step(&format!("run {} of {}: raw frames, {name}", run + 1, options.runs));
            match one_run(world, meter, target, calls) {
                Ok(figures) => found[i].push(figures),
                Err(BenchError::System { what, source }) if what == LIVE => {
                    let why = format!("the kernel does not run programs on live frames: {source}");
                    skipped.push(Skipped { what: "raw frames".into(), why });
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            }
        }
    }
    let row = |(target, runs): (Target, Vec<(f64, f64)>)| {
        Some(RawRow {
            responder: name(target),
            cpu_us: Quantity::of(runs.iter().map(|r| r.0).collect())?,
            answered: Quantity::of(runs.iter().map(|r| r.1).collect())?.median,
        })
    };
    Ok(targets.into_iter().zip(found).filter_map(row).collect())
}

fn name(target: Target) -> &'static str {
    match target {
        Target::Drop => "drop",
        Target::Answer(responder) => responder.name(),
    }
}

/// Processor time per frame in microseconds, and the share of answered frames.
fn one_run(
    world: &World,
    meter: &Meter,
    target: Target,
    calls: u32,
) -> Result<(f64, f64), BenchError> {
    let mut headers = [0; HEADERS];
    fill_headers(&mut headers, world.macs, client(0), Probe::PACKET_LEN);
    world.programs.set_raw(&headers)?;
    let _sink = world.attach_sink(Hook::Xdp)?;
    let mut met = Met::new(world, target)?;
    for _ in 0..WARM_CALLS {
        met.heartbeat();
        generate(world, CALL)?;
    }
    world.programs.reset(true)?;
    let cpu = meter.read(&[]);
    for _ in 0..calls {
        met.heartbeat();
        generate(world, CALL)?;
    }
    let cpu = meter.read(&[]) - cpu;
    let counts = world.programs.counts()?;
    let done = if target == Target::Drop { counts.dropped } else { counts.answers };
    let each_us = cpu as f64 / 1e3 / done.max(1) as f64;
    Ok((each_us, done as f64 / counts.raw.max(1) as f64))
}

/// The active receiver of the frames; removed when dropped.
enum Met {
    Drop { _program: Attached },
    Running(Box<dyn Running>),
}

impl Met {
    fn new(world: &World, target: Target) -> Result<Met, BenchError> {
        Ok(match target {
            Target::Drop => Met::Drop { _program: world.attach_drop(Hook::Xdp)? },
            Target::Answer(responder) => Met::Running(responder.start(world, RAW_PATHS, 1)?),
        })
    }

    fn heartbeat(&mut self) {
        if let Met::Running(running) = self {
            running.heartbeat();
        }
    }
}

const LIVE: &str = "run a program on live frames";

/// Sends frames as fast as possible.
fn generate(world: &World, frames: u32) -> Result<(), BenchError> {
    world.near.run(|| run_live(&world.programs.generate, frames))?
}

fn run_live(program: &OwnedFd, frames: u32) -> Result<(), BenchError> {
    let frame = [0u8; HEADERS + Probe::PACKET_LEN];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: frames as i32,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: BATCH,
        ..Default::default()
    };
    // SAFETY: the frame that the options name outlives the call, with the length given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(system(LIVE)(std::io::Error::from_raw_os_error(-result)));
    }
    Ok(())
}
