//! A flow whose access goes down: it moves to the host's other interface, which other flows already use.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use segue_bench::passage::{Passages, Side};
use segue_clock::Time;
use segue_daemon::pmip::lma;
use segue_linux::clock::monotonic;

use super::domain::{Access, Domain, FIRST, SECOND};
use super::frames::{Awaited, BINDING_UPDATE, is_mobility};
use super::packets::{Flow, Pace, wait_until};
use crate::experiment::Stage;

/// Packet interval of each flow other than the moved one.
const PERIOD: Duration = Duration::from_millis(10);
/// Bytes per packet of the moved flow.
const BYTES: u32 = 125;
/// Number in packets that no one looks up: beyond the range of every table.
const UNCOUNTED: u32 = u32::MAX;
/// Range of the moved flow's packet numbers.
const NUMBERS: u32 = 1 << 20;
/// How long the flow is observed after it has moved: longer than packets are under way.
const AFTER: Duration = Duration::from_millis(100);
/// How long the flow is observed before the access goes down.
const BEFORE: Duration = Duration::from_millis(60);

/// The offered load: one flow that moves, and others over the other access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub others: u16,
    /// Rate of each flow.
    pub kbit_s: u32,
}

impl Load {
    /// The pace of the moved flow: small packets, so that its gap is measured as precisely as its rate allows.
    fn moved(self) -> Pace {
        let seconds = f64::from(BYTES * 8) / (f64::from(self.kbit_s) * 1e3);
        Pace { period: Duration::from_secs_f64(seconds), bytes: BYTES as usize }
    }
}

/// One handover, in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    /// Time between the last packet at the old interface and the first at the new one, less the packet interval.
    pub delay: f64,
    /// From the loss of the link until the gateway's message reached the anchor; and, below, until the anchor
    /// redirected the flow.
    pub told: f64,
    pub rebound: f64,
    /// Packets of the flow that never arrived.
    pub lost: u32,
}

/// Moves the flow repeatedly under a load.
///
/// # Errors
/// The flow does not come back, or the user wants to stop.
pub(crate) fn handovers(
    stage: &Stage,
    domain: &mut Domain,
    clock: &Clock,
    load: Load,
    runs: u32,
) -> anyhow::Result<Vec<Handover>> {
    let _sink = domain.sink()?;
    let moved = domain.flow(&FIRST, 9_000, load.moved())?;
    let others = Pace::of(load.kbit_s, PERIOD);
    let others = (0..load.others).map(|flow| domain.flow(&SECOND, 10_000 + flow, others));
    let others: Vec<Flow> = others.collect::<Result<_, _>>()?;
    let watch =
        |access: &Access| domain.watch("host", NUMBERS, &[(access.radio.name, Side::Entry)]);
    let arrivals = [watch(&FIRST)?, watch(&SECOND)?];
    let (stop, next) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| run(&stop, &next, (&moved, load.moved().period), &others));
        let _end = End(&stop);
        let each = (0..runs).map(|_| handover(stage, domain, (clock, load), &arrivals, &next));
        each.collect()
    })
}

/// Stops the sender when dropped, so that it ends even if a handover fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends all flows until `stop` is set; `next` is the moved flow's next number.
fn run(stop: &AtomicBool, next: &AtomicU32, moved: (&Flow, Duration), others: &[Flow]) {
    let begin = Instant::now();
    let step = PERIOD / others.len().max(1) as u32;
    let (mut own, mut other) = (0u32, 0u32);
    while !stop.load(Ordering::Relaxed) {
        let (due, due_other) = (begin + moved.1 * own, begin + step * other);
        if due <= due_other || others.is_empty() {
            wait_until(due);
            moved.0.send(next.fetch_add(1, Ordering::Relaxed));
            own += 1;
        } else {
            wait_until(due_other);
            others[other as usize % others.len()].send(UNCOUNTED);
            other += 1;
        }
    }
}

fn handover(
    stage: &Stage,
    domain: &mut Domain,
    (clock, load): (&Clock, Load),
    arrivals: &[Passages; 2],
    next: &AtomicU32,
) -> anyhow::Result<Handover> {
    let [old, new] = arrivals;
    // First, the flow uses the first access for a while.
    let from = next.load(Ordering::Relaxed);
    domain.wait(stage, "the flow over its own access", |_| Ok(came(old, from, next)?.is_some()))?;
    let from = next.load(Ordering::Relaxed);
    std::thread::sleep(BEFORE);
    let mut message = Awaited::at(domain, "lma", "core", |f| is_mobility(f, BINDING_UPDATE))?;
    let began = monotonic();
    domain.detach(&FIRST)?;
    domain
        .wait(stage, "the flow over the other access", |_| Ok(came(new, from, next)?.is_some()))?;
    // Packets sent before this moment have arrived after the wait, or are lost.
    let until = next.load(Ordering::Relaxed);
    std::thread::sleep(AFTER);
    message.look()?;
    let (mut last, mut first, mut arrived) = (None, None::<Time>, 0);
    for number in from..until {
        let (at_old, at_new) = (old.of(number)?, new.of(number)?);
        arrived += u32::from(at_old.is_some() || at_new.is_some());
        last = at_old.map(|at| at.entered).or(last);
        first = first.or(at_new.map(|at| at.entered));
    }
    let (last, first) =
        (last.context("the flow did not run")?, first.context("the flow did not move")?);
    let gap_ms = (first.0 as f64 - last.0 as f64) / 1e6;
    let told = message.at.context("the gateway said nothing")?.since(began).as_millis_f64();
    let rebound = (clock.rebound_ns(domain)? - began.0 as f64) / 1e6;
    domain.attach(stage, &FIRST)?;
    domain.await_mobility(stage)?;
    let period_ms = load.moved().period.as_secs_f64() * 1e3;
    let lost = (until - from).saturating_sub(arrived);
    Ok(Handover { delay: gap_ms - period_ms, told, rebound, lost })
}

/// Number of the last packet, from `from` on, that arrived at an interface.
fn came(at: &Passages, from: u32, next: &AtomicU32) -> anyhow::Result<Option<u32>> {
    let numbers = from..next.load(Ordering::Relaxed);
    for number in numbers.rev() {
        if at.of(number)?.is_some() {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The start of the anchor's daemon, in ns on the machine's clock. The status gives the times of handovers relative to
/// this start; events use the machine's clock, but the daemon limits how often it reports them per host.
pub(crate) struct Clock(f64);

impl Clock {
    /// Determines the start from a first handover, which the daemon reports in both ways.
    ///
    /// # Errors
    /// No flow moves although the host's access goes down.
    pub(crate) fn of_anchor(stage: &Stage, domain: &mut Domain) -> anyhow::Result<Clock> {
        domain.detach(&FIRST)?;
        domain.wait(stage, "a handover", |domain| Ok(!domain.anchor()?.handovers.is_empty()))?;
        let events = domain.events::<lma::Words>("lma")?;
        let event = events.iter().find(|event| event.kind == "handover");
        let handovers = domain.anchor()?.handovers;
        let (event, handover) = (event.context("no event")?, handovers.first().context("none")?);
        domain.attach(stage, &FIRST)?;
        domain.await_mobility(stage)?;
        Ok(Clock(event.at_ns as f64 - handover.at_s * 1e9))
    }

    /// When the anchor redirected the flow at the last handover, in ns.
    fn rebound_ns(&self, domain: &Domain) -> anyhow::Result<f64> {
        let handovers = domain.anchor()?.handovers;
        let last = handovers.iter().rev().find(|handover| handover.cause == "left");
        let last = last.context("the anchor tells of no handover")?;
        Ok(self.0 + last.at_s * 1e9 + last.rebinding_ms * 1e6)
    }
}
