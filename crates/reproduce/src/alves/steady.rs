//! How long packets of established flows take to pass the anchor and a gateway, separated by whether the node received
//! them alone or several in one poll.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use segue_bench::passage::{Passage, Passages};

use super::domain::{Access, Domain};
use super::figures::Samples;
use super::node::must;
use super::packets::{self, Flow, Pace, Planned, plan};
use crate::experiment::Stage;

/// Bytes per packet.
pub(crate) const BYTES: f64 = 125.0;
/// Packets sent during this time at the start are not counted.
const WARM_UP: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(100);

/// The offered load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub flows: u16,
    pub kbit_s: u32,
    /// All flows send in the same instant; otherwise they are evenly spaced.
    pub together: bool,
    /// Duration of the measurement.
    pub lasts: Duration,
    /// Port of the first flow, so that each load has different flows.
    pub port: u16,
}

impl Load {
    fn period(&self) -> Duration {
        Duration::from_secs_f64(BYTES * 8.0 / 1e3 / f64::from(self.kbit_s))
    }

    fn plan(&self) -> Vec<Planned> {
        let step =
            if self.together { Duration::ZERO } else { self.period() / u32::from(self.flows) };
        let begins = (0..self.flows).map(|flow| step * u32::from(flow));
        plan(begins, self.period(), WARM_UP + self.lasts)
    }
}

/// Time in a node, in µs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stay {
    /// Packets that arrived alone.
    pub alone: Vec<f64>,
    /// Packets that arrived together in one poll.
    pub batched: Vec<f64>,
}

impl Stay {
    pub(crate) fn add(&mut self, other: Stay) {
        self.alone.extend(other.alone);
        self.batched.extend(other.batched);
    }

    pub(crate) fn samples(&self) -> [Samples; 2] {
        [&self.alone, &self.batched].map(|all| Samples::new(all.clone()))
    }
}

/// Lets another processor than the sender's process packets that reach the anchor, as a network card's interrupts
/// would. On the sender's processor, each packet would pass before the next one is sent, and packets would never queue.
/// Has no effect on a machine with one processor.
///
/// # Errors
/// The kernel does not steer packets.
pub(crate) fn steer(domain: &Domain) -> anyhow::Result<()> {
    if std::thread::available_parallelism().is_ok_and(|all| all.get() < 2) {
        return Ok(());
    }
    let name = domain.node("lma")?.name().unwrap_or_default();
    let steer = "echo 2 > /sys/class/net/outside/queues/rx-0/rps_cpus";
    // Inside `ip netns exec`, where /sys shows the node's devices.
    must(std::process::Command::new("ip").args(["netns", "exec", name, "sh", "-c", steer]))?;
    Ok(())
}

/// Sends a load to the host over an access; returns the times in the anchor and in the access's gateway.
///
/// # Errors
/// At most half of the packets pass, or the user wants to stop.
pub(crate) fn measure(
    stage: &Stage,
    domain: &Domain,
    access: &Access,
    load: Load,
) -> anyhow::Result<[Stay; 2]> {
    let _sink = domain.sink()?;
    let plan = load.plan();
    let most = plan.len() as u32;
    let passages = [domain.watch_anchor(most)?, domain.watch_gateway(access, most)?];
    let pace = Pace { period: load.period(), bytes: BYTES as usize };
    let flows = (0..load.flows).map(|flow| domain.flow(access, load.port + flow, pace));
    let flows: Vec<Flow> = flows.collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let mut one = CpuSet::new();
            one.set(0)?;
            sched_setaffinity(Pid::from_raw(0), &one)?;
            packets::send(stage, &flows, &plan)
        });
        sent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    std::thread::sleep(GRACE);
    let [anchor, gateway] = passages.map(|passages| stay(&passages, &plan));
    Ok([anchor?, gateway?])
}

fn stay(passages: &Passages, plan: &[Planned]) -> anyhow::Result<Stay> {
    let mut polls: BTreeMap<(u32, u64), Vec<Passage>> = BTreeMap::new();
    let counted = plan.iter().enumerate().filter(|(_, packet)| packet.at >= WARM_UP);
    let (mut wanted, mut came) = (0, 0);
    for (number, _) in counted {
        wanted += 1;
        if let Some(passage) = passages.of(number as u32)? {
            came += 1;
            polls.entry(passage.poll).or_default().push(passage);
        }
    }
    anyhow::ensure!(2 * came > wanted, "{came} of {wanted} packets came to a node");
    let mut stay = Stay::default();
    for together in polls.into_values() {
        let times = together.iter().filter_map(Passage::took).map(|took| took.as_secs_f64() * 1e6);
        match together.len() {
            1 => stay.alone.extend(times),
            _ => stay.batched.extend(times),
        }
    }
    Ok(stay)
}
