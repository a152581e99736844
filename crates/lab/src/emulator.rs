//! A link between two devices, emulated by a thread: frames that arrive at one device leave through the other when the
//! [`LinkModel`] schedules them.
//!
//! The thread owns both sockets and does all sending. A [`Handle`] shares models, counters and log with it under one
//! lock, which the thread never holds while it waits. Traffic of the link itself (ARP, neighbour discovery, link-local
//! packets) passes immediately and uncounted, because the emulated part is behind the first hop: a silent link must not
//! look like a vanished neighbour. Between a radio and a cell the emulated part is the first hop itself, and all frames
//! are treated alike.

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

/// Maximum number of records in the log; further ones are only counted.
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
    /// Log each packet.
    pub log: bool,
}

/// Indicators of whether the emulator keeps up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Scheduling of the thread.
    pub precision: Precision,
    /// Maximum delay beyond a packet's due time.
    pub late_max: Span,
    /// Sum of these delays over all `sent` packets.
    pub late_sum: Span,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost because the emulator was too slow, in the receive buffer or in the pending queue. Updated with a
    /// delay, for which [`Handle::stop`] waits. While this is zero, the drop counts of the models are complete.
    pub overruns: u64,
    /// Packets that the outgoing device rejected.
    pub send_failures: u64,
    /// Records discarded because the log was full.
    pub records_lost: u64,
    /// Processor time of the emulator's thread. Includes most of the kernel's processing beyond the outgoing device, up
    /// to the delivery to a socket, because that usually happens within the send.
    pub cpu: Span,
}

/// A running emulator. Dropping it stops the thread and loses packets in flight.
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

/// One direction: its model, and the packets in flight by due time.
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

/// The frames that a direction accepts. Other frames are ignored and not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// None.
    Closed,
    /// Frames of the link itself ([`stays_on_link`](crate::frame::stays_on_link)).
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

/// Starts an emulator between the devices `first` and `second` of `netns`. Disables their offloads, so that it sees
/// packets as on a wire. The devices at the far ends require [`wire_like`] as well.
///
/// # Errors
/// No such device, no permission, or an invalid link specification.
pub fn start(netns: &Netns, first: &str, second: &str, spec: &EmulatorSpec) -> Result<Handle> {
    start_with(netns, first, second, spec, None)
}

/// Like [`start`], between the device of a radio with this link-layer address and the device of a cell. Both directions
/// are closed until [`Handle::set_gate`] opens them. From the cell, only frames for this radio or for a group pass.
/// Traffic of the link itself is treated like all other traffic, because the air is the first hop.
///
/// # Errors
/// As for [`start`].
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

/// Disables the offloads of a device in the calling thread's namespace, so that it sends packets as on a wire: no
/// super-packets, and with complete checksums.
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
    /// Starts or ends silence in one direction and returns the time of the change. Packets that wait for serialisation
    /// are dropped; those on the wire arrive.
    pub fn set_silent(&self, direction: Direction, silent: bool) -> Time {
        self.quiet(direction, |way| way.silent = silent)
    }

    /// Cuts or mends one direction and returns the time of the change. A second cause of silence, independent of
    /// [`set_silent`](Self::set_silent).
    pub(crate) fn set_cut(&self, direction: Direction, cut: bool) -> Time {
        self.quiet(direction, |way| way.cut = cut)
    }

    /// Selects the frames that one direction accepts. When it closes, packets that wait for serialisation are dropped
    /// and count as silenced; those on the wire arrive.
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

    /// [Stalls](LinkModel::stall) one direction: packets due from `from` on are sent at `until`, including those in
    /// flight.
    pub fn stall(&self, direction: Direction, from: Time, until: Time) {
        let way = &mut self.lock().ways[direction as usize];
        way.model.stall(from, until);
        let mut later = way.pending.split_off(&(from, 0));
        let rest = later.split_off(&(until, 0));
        way.pending.extend(later.into_iter().map(|((_, number), held)| ((until, number), held)));
        way.pending.extend(rest);
    }

    /// Changes the parameters of one direction and returns the time of the change. Packets in flight keep their times.
    ///
    /// # Errors
    /// An invalid link specification; nothing has changed.
    pub fn set_model(&self, direction: Direction, spec: LinkSpec) -> Result<Time, SpecError> {
        let mut state = self.lock();
        let now = monotonic();
        state.ways[direction as usize].model.reconfigure(now, spec)?;
        Ok(now)
    }

    /// Counters of one direction.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> Counters {
        self.lock().ways[direction as usize].model.counters()
    }

    /// The parameters of one direction.
    #[must_use]
    pub fn spec(&self, direction: Direction) -> LinkSpec {
        self.lock().ways[direction as usize].model.spec().clone()
    }

    /// Number of accepted packets of one direction that have not been sent yet.
    #[must_use]
    pub fn under_way(&self, direction: Direction) -> usize {
        self.lock().ways[direction as usize].pending.len()
    }

    /// Indicators of whether the emulator keeps up.
    #[must_use]
    pub fn health(&self) -> Health {
        self.lock().health
    }

    /// Takes the records since the last call, in the order in which packets were dropped or delivered. Empty if the log
    /// is disabled.
    #[must_use]
    pub fn take_log(&self) -> Vec<Record> {
        self.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Why the emulator failed, if it did (a device was removed).
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Problems in words: packets lost in violation of the model, and the reason if it has ended.
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

    /// Stops the thread and waits for it. Counters and log stay readable.
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
    /// A panic under the lock has ended the emulator, but its data are still useful.
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
