//! A link between two devices, emulated by a thread: frames that arrive at one are sent out of the
//! other when its [`LinkModel`] says so.
//!
//! The thread owns both sockets and does all sending; a [`Handle`] shares the models, counters and log
//! with it under one lock, which the thread never holds while it waits. What belongs to the link itself
//! (ARP, neighbour discovery, link-local packets) passes at once and uncounted: the emulated part is behind the first
//! hop, so a silent link does not look like a vanished neighbour. Between a radio and a cell it is the first hop itself,
//! and all frames are alike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use segue_linux::link::{self, Feature};
use segue_linux::netns::Netns;
use segue_linux::packet::PacketSocket;
use segue_linux::thread::Precision;
use segue_netem::{Counters, LinkModel, LinkSpec, SpecError};

use crate::frame::{ETHERNET_BYTES, ports, udp_payload};
pub use crate::log::Direction;
use crate::log::{Fate, Record};

mod worker;

use worker::Worker;

/// Records kept until they are taken; later ones are only counted.
const MAX_RECORDS: usize = 4_000_000;

/// An emulated link.
#[derive(Clone, Debug, Default)]
pub struct EmulatorSpec {
    /// From the first end to the second.
    pub up: LinkSpec,
    /// From the second end to the first.
    pub down: LinkSpec,
    /// Seed of loss and jitter; each direction draws its own sequence from it.
    pub seed: u64,
    /// Keep a record of each packet.
    pub log: bool,
}

/// How well the emulator itself keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// How the thread is scheduled.
    pub precision: Precision,
    /// The longest that a packet was sent after its due time.
    pub late_max: Span,
    /// Sum of all delays beyond the imposed one, over `sent` packets.
    pub late_sum: Span,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost because the emulator was too slow: no room to receive or to keep them. Known a moment later
    /// ([`Handle::stop`] waits for it). While this is zero, the models' drop counts are complete.
    pub overruns: u64,
    /// Packets that the far device did not take.
    pub send_failures: u64,
    /// Records not kept because the log was full.
    pub records_lost: u64,
    /// Processor time of the emulator's thread. It includes most of what the kernel does with a packet beyond the far
    /// device, up to its delivery to a socket: that mostly happens within the send.
    pub cpu: Span,
}

/// A running emulator. Dropping it stops the thread; packets under way are lost.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    ways: [Way; 2],
    health: Health,
    log: Option<Vec<Record>>,
    failure: Option<String>,
}

/// One direction: its model and the packets under way, by due time.
#[derive(Debug)]
struct Way {
    model: LinkModel,
    pending: BTreeMap<(Time, u64), Pending>,
    accepted: u64,
    last_arrival: Time,
    gate: Gate,
    silent: bool,
    cut: bool,
}

/// Which frames a direction takes. The others are no concern of it, and are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// None.
    Closed,
    /// Those that belong to the link itself ([`stays_on_link`](crate::frame::stays_on_link)).
    Link,
    /// All.
    Open,
}

#[derive(Debug)]
struct Pending {
    frame: Vec<u8>,
    arrival: Time,
    start: Time,
}

/// Starts an emulator between the devices `first` and `second` of `netns`, and switches their
/// offloads off, so that it sees packets as they would be on a wire. The devices at the far ends need
/// [`wire_like`] too.
///
/// # Errors
/// No such device, no permission, or a spec that makes no link.
pub fn start(netns: &Netns, first: &str, second: &str, spec: &EmulatorSpec) -> Result<Handle> {
    start_with(netns, first, second, spec, None)
}

/// As [`start`], between the device of a radio, which has this link-layer address, and that of a cell. Both directions are
/// closed until they are [opened](Handle::set_gate). Of what the cell sends, only what is for this radio or for all passes;
/// and what belongs to the link itself passes as everything else, since the air is the first hop.
///
/// # Errors
/// As [`start`].
pub(crate) fn start_air(
    netns: &Netns,
    radio: &str,
    cell: &str,
    spec: &EmulatorSpec,
    mac: [u8; 6],
) -> Result<Handle> {
    start_with(netns, radio, cell, spec, Some(mac))
}

fn start_with(
    netns: &Netns,
    first: &str,
    second: &str,
    spec: &EmulatorSpec,
    air: Option<[u8; 6]>,
) -> Result<Handle> {
    let sockets = netns.run(|| -> Result<[PacketSocket; 2]> {
        for device in [first, second] {
            wire_like(device)?;
        }
        Ok([PacketSocket::open(first)?, PacketSocket::open(second)?])
    })??;
    let now = monotonic();
    let way = |spec: &LinkSpec, seed, name| -> Result<Way> {
        let model = LinkModel::new(spec.clone(), seed, now)
            .with_context(|| format!("direction {name} of the link"))?;
        let pending = BTreeMap::new();
        let gate = if air.is_some() { Gate::Closed } else { Gate::Open };
        Ok(Way { model, pending, accepted: 0, last_arrival: now, gate, silent: false, cut: false })
    };
    let ways = [way(&spec.up, spec.seed, "up")?, way(&spec.down, !spec.seed, "down")?];
    let health = Health {
        precision: Precision::Ordinary,
        late_max: Span::ZERO,
        late_sum: Span::ZERO,
        sent: 0,
        overruns: 0,
        send_failures: 0,
        records_lost: 0,
        cpu: Span::ZERO,
    };
    let log = spec.log.then(Vec::new);
    let state = Mutex::new(State { ways, health, log, failure: None });
    let shared = Arc::new(Shared { state, stop: AtomicBool::new(false) });
    let (spare, housekeeping) = (VecDeque::new(), now);
    let worker = Worker { shared: Arc::clone(&shared), sockets, air, spare, housekeeping };
    let thread = std::thread::Builder::new()
        .name("segue-emulator".to_owned())
        .spawn(move || worker.run())
        .context("start the emulator's thread")?;
    Ok(Handle { shared, thread: Some(thread) })
}

/// Switches off the offloads of a device of the calling thread's namespace: what then leaves it is what a wire would
/// carry, no super-packets and with checksums filled in.
///
/// # Errors
/// No such device, or no permission.
pub(crate) fn wire_like(device: &str) -> Result<()> {
    for feature in [Feature::TxChecksum, Feature::Tso, Feature::Gso, Feature::Gro] {
        link::set_feature(device, feature, false)?;
    }
    Ok(())
}

impl Handle {
    /// Begins or ends silence in one direction and returns the time of the change. Packets that wait for
    /// serialisation are dropped; those on the wire arrive.
    pub fn set_silent(&self, direction: Direction, silent: bool) -> Time {
        self.quiet(direction, |way| way.silent = silent)
    }

    /// Cuts or mends one direction and returns the time of the change: the same silence, beside that of
    /// [`set_silent`](Self::set_silent).
    pub(crate) fn set_cut(&self, direction: Direction, cut: bool) -> Time {
        self.quiet(direction, |way| way.cut = cut)
    }

    /// Chooses which frames one direction takes. What waits for serialisation when it closes is dropped and counts as
    /// silenced; what is on the wire arrives.
    pub(crate) fn set_gate(&self, direction: Direction, gate: Gate) {
        let mut state = self.lock();
        let now = monotonic();
        state.ways[direction as usize].gate = gate;
        if gate == Gate::Closed {
            state.drop_unstarted(direction, now);
            state.ways[direction as usize].model.flush(now);
        }
    }

    fn quiet(&self, direction: Direction, change: impl FnOnce(&mut Way)) -> Time {
        let mut state = self.lock();
        let now = monotonic();
        let way = &mut state.ways[direction as usize];
        change(way);
        let silent = way.silent || way.cut;
        way.model.set_silent(silent);
        if silent {
            state.drop_unstarted(direction, now);
        }
        now
    }

    /// Lets one direction [stall](LinkModel::stall): what is due from `from` on is sent at `until`, also what is under way.
    pub fn stall(&self, direction: Direction, from: Time, until: Time) {
        let way = &mut self.lock().ways[direction as usize];
        way.model.stall(from, until);
        let mut later = way.pending.split_off(&(from, 0));
        let rest = later.split_off(&(until, 0));
        way.pending.extend(later.into_iter().map(|((_, number), held)| ((until, number), held)));
        way.pending.extend(rest);
    }

    /// Gives one direction other parameters and returns the time from which they hold. Packets under way keep their
    /// times.
    ///
    /// # Errors
    /// A spec that makes no link; then nothing changes.
    pub fn set_model(&self, direction: Direction, spec: LinkSpec) -> Result<Time, SpecError> {
        let mut state = self.lock();
        let now = monotonic();
        state.ways[direction as usize].model.reconfigure(now, spec)?;
        Ok(now)
    }

    /// What one direction has done so far.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> Counters {
        self.lock().ways[direction as usize].model.counters()
    }

    /// The parameters of one direction.
    #[must_use]
    pub fn spec(&self, direction: Direction) -> LinkSpec {
        self.lock().ways[direction as usize].model.spec().clone()
    }

    /// Packets of one direction that were accepted and are not sent yet.
    #[must_use]
    pub fn under_way(&self, direction: Direction) -> usize {
        self.lock().ways[direction as usize].pending.len()
    }

    /// How well the emulator keeps up.
    #[must_use]
    pub fn health(&self) -> Health {
        self.lock().health
    }

    /// Takes the records since the last call, in the order in which fates were decided (drops) or
    /// fulfilled (deliveries). Empty if no log was asked for.
    #[must_use]
    pub fn take_log(&self) -> Vec<Record> {
        self.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Why the emulator gave up, if it did (a device went away).
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// What has gone wrong, in words: packets that it lost against its model, and why it has ended.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let Health { overruns, send_failures, .. } = self.health();
        let mut troubles = Vec::new();
        if overruns > 0 {
            troubles
                .push(format!("{overruns} packets were too many for the emulator, and are lost"));
        }
        if send_failures > 0 {
            troubles.push(format!("{send_failures} packets were not taken by the far device"));
        }
        troubles.extend(self.failure().map(|why| format!("the emulator has ended: {why}")));
        troubles
    }

    /// Stops the thread and waits for it; the counters and the log stay readable.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// A panic under the lock would have ended the emulator; its data are still worth reading.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_unstarted(&mut self, direction: Direction, now: Time) {
        for pending in self.ways[direction as usize].take_unstarted(now) {
            let fate = Fate::Dropped(segue_netem::DropCause::Silent);
            record(&mut self.log, &mut self.health, pending.record(direction, fate));
        }
    }
}

impl Way {
    fn take_unstarted(&mut self, now: Time) -> Vec<Pending> {
        let unstarted = |p: &Pending| p.start > now;
        let keys: Vec<_> =
            self.pending.iter().filter(|(_, p)| unstarted(p)).map(|(key, _)| *key).collect();
        let taken: Vec<Pending> = keys.iter().filter_map(|key| self.pending.remove(key)).collect();
        for pending in &taken {
            self.model.withdraw(ip_bytes(&pending.frame));
        }
        taken
    }
}

impl Pending {
    fn record(&self, direction: Direction, fate: Fate) -> Record {
        record_of(&self.frame, direction, self.arrival, fate)
    }
}

fn record_of(frame: &[u8], direction: Direction, arrival: Time, fate: Fate) -> Record {
    let (bytes, ports, payload) = (ip_bytes(frame), ports(frame), udp_payload(frame));
    Record { direction, arrival, fate, bytes, ports, payload }
}

fn ip_bytes(frame: &[u8]) -> u32 {
    frame.len().saturating_sub(ETHERNET_BYTES) as u32
}

fn record(log: &mut Option<Vec<Record>>, health: &mut Health, record: Record) {
    match log {
        Some(log) if log.len() < MAX_RECORDS => log.push(record),
        Some(_) => health.records_lost += 1,
        None => (),
    }
}
