//! The thread that reads the relay's TUN device: packets that are held or asked about, packets that the programs could
//! not send, and messages for the daemon.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use segue_wire::DropReason;

use super::holds::Holds;
use super::plane::{Plane, Waits};
use super::words::{RelayEvent, RelaySink, read_inner};
use crate::device::{PACKET_MAX, VNET_LEN, is_local};
use crate::drops::Drops;
use crate::locals::Watch;
use crate::misses::{Missed, Misses};
use crate::sync::lock;
use crate::{DatapathError, MissPacket};

/// Interval between two sweeps for packets that have waited too long for a decision.
const SWEEP: Span = Span::from_secs(1);
/// Longest time that the release of a queue may take; later packets may overtake the rest.
const RELEASE: Span = Span::from_millis(100);
/// Most batches of earlier packets that are read after the release.
const LAST_BATCHES: usize = 16;
/// Packets read before the thread turns to its other work.
const BATCH: usize = 64;

/// State shared by the thread and the daemon.
pub(super) struct Shore {
    pub(super) plane: Box<dyn Plane>,
    /// The lock for reading the TUN device: its holder knows that no other thread has packets from it.
    reading: Mutex<Reading>,
    pub(super) drops: Drops,
    sink: RelaySink,
    /// Flows are distinguished by their flow labels, too.
    labels: bool,
}

/// The packets that wait in user space.
pub(super) struct Reading {
    pub(super) holds: Holds,
    misses: Misses,
    buffers: Vec<Vec<u8>>,
}

impl Shore {
    pub(super) fn new(plane: Box<dyn Plane>, sink: RelaySink, labels: bool) -> Shore {
        let reading = Reading {
            holds: Holds::default(),
            misses: Misses::of_relay(),
            buffers: vec![vec![0; PACKET_MAX]; BATCH],
        };
        let drops = Drops::default();
        Shore { plane, reading: Mutex::new(reading), drops, sink, labels }
    }

    /// Changes the waiting packets while the thread is not reading.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Reading) -> T) -> T {
        change(&mut lock(&self.reading))
    }

    /// Releases the packets of a queue, followed by the packets that arrived after them. After `let_go` the programs
    /// send the held packets, and new ones as soon as user space has no earlier ones; after `bind` they forget the
    /// queue.
    pub(super) fn release<E>(
        &self,
        queue: u32,
        let_go: impl FnOnce() -> Result<(), E>,
        bind: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<DatapathError>,
    {
        let mut reading = lock(&self.reading);
        let_go()?;
        self.plane.set_returned(queue, reading.holds.gone(queue))?;
        // A machine too busy to catch up loses the order.
        let end = monotonic() + RELEASE;
        loop {
            let held = reading.holds.drain(queue);
            self.send(held.iter().map(Vec::as_slice));
            if self.read(&mut reading) == 0 && held.is_empty() || monotonic() > end {
                break;
            }
        }
        bind()?;
        let held = reading.holds.drain(queue);
        self.send(held.iter().map(Vec::as_slice));
        for _ in 0..LAST_BATCHES {
            if self.read(&mut reading) == 0 {
                break;
            }
        }
        let left = reading.holds.remove(queue);
        self.drops.add(DropReason::NoBinding, left);
        Ok(())
    }

    /// Sends a packet that was reported as a miss, and the packets of its flow that wait behind it.
    pub(super) fn inject(&self, packet: MissPacket) {
        // The lock stops reading, so that new packets stay behind the waiting ones.
        self.with(|reading| {
            let waiting = reading.misses.settle(&packet.key);
            let all = std::iter::once(&packet.bytes).chain(&waiting);
            self.send(all.map(Vec::as_slice));
        });
    }

    /// Drops a packet that was reported as a miss, and the packets of its flow that wait behind it.
    pub(super) fn refuse(&self, packet: &MissPacket) {
        let refused = self.with(|reading| reading.misses.refuse(&packet.key, monotonic()));
        self.drops.add(DropReason::NoBinding, refused);
    }

    fn send<'a>(&self, packets: impl Iterator<Item = &'a [u8]>) {
        let batch: Vec<&[u8]> = packets.collect();
        if !batch.is_empty() {
            self.plane.send(&batch);
        }
    }

    /// Asks about the packets that a queue holds, and then about those that arrived after them.
    pub(super) fn ask<E>(&self, queue: u32, bind: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut reading = lock(&self.reading);
        bind()?;
        let (held, now) = (reading.holds.drain(queue), monotonic());
        let go = held.iter().filter(|bytes| self.place(&mut reading, bytes, now));
        self.send(go.map(Vec::as_slice));
        reading.holds.remove(queue);
        Ok(())
    }

    /// Reads a batch of packets; returns how many.
    fn read(&self, reading: &mut Reading) -> usize {
        let mut buffers = std::mem::take(&mut reading.buffers);
        let now = monotonic();
        let (mut read, mut go) = (0, Vec::new());
        for buffer in &mut buffers {
            let Some(n) = self.plane.tun().read(buffer) else { break };
            read += 1;
            let bytes = &buffer[..n];
            if self.place(reading, bytes, now) {
                go.push(bytes);
            }
        }
        self.send(go.into_iter());
        reading.buffers = buffers;
        read
    }

    /// Handles a packet that came out of a tunnel and is bound again.
    fn turn(&self, bytes: &[u8]) {
        if self.with(|reading| self.place(reading, bytes, monotonic())) {
            self.send(std::iter::once(bytes));
        }
    }

    /// Holds a packet or asks about it; true if the caller must send it.
    fn place(&self, reading: &mut Reading, bytes: &[u8], now: Time) -> bool {
        let packet = bytes.get(VNET_LEN..).unwrap_or_default();
        let Ok(inner) = read_inner(packet, self.labels) else {
            self.drops.add(DropReason::InnerPacket, 1);
            return false;
        };
        if is_local(inner.key.src) || is_local(inner.key.dst) {
            return false;
        }
        match self.plane.waits(&inner.key, bytes) {
            // The flow has been bound, but the packet reported as a miss has not come back yet.
            None => match reading.misses.follow(&inner.key, bytes) {
                None => return true,
                Some(Missed::Full) => self.drops.add(DropReason::QueueFull, 1),
                Some(Missed::Held | Missed::Report(_)) => {}
            },
            Some(Waits::Asked(queue)) => {
                match reading.misses.take(queue, inner.key, inner.dscp, bytes, now) {
                    Missed::Report(packet) => (self.sink)(RelayEvent::Miss(packet)),
                    Missed::Held => {}
                    Missed::Full => self.drops.add(DropReason::QueueFull, 1),
                }
            }
            Some(Waits::Held(queue)) => {
                self.drops.add(DropReason::HoldFull, reading.holds.take(queue, bytes, now));
            }
        }
        false
    }

    /// Drops packets that have waited too long; returns when to call again.
    fn expire(&self, now: Time, swept: &mut Time) -> Time {
        let mut reading = lock(&self.reading);
        self.drops.add(DropReason::HoldExpired, reading.holds.expire(now));
        if now.since(*swept) >= SWEEP {
            *swept = now;
            self.drops.add(DropReason::NoBinding, reading.misses.purge(now));
        }
        reading.holds.next().unwrap_or(now + SWEEP).min(now + SWEEP)
    }
}

/// The thread's body; returns when the other end of `stop` closes.
pub(super) fn run(shore: &Shore, watch: &Watch, stop: &UnixStream) -> Result<(), String> {
    let mut arrivals = shore.plane.arrivals(&shore.sink)?;
    let (mut swept, mut next) = (monotonic(), monotonic());
    loop {
        let mut fds = [
            PollFd::new(shore.plane.tun().as_fd(), PollFlags::POLLIN),
            PollFd::new(arrivals.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
        ];
        let wait_ms = next.since(monotonic()).0.div_ceil(1_000_000);
        let wait = PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::from(1000u16));
        let _ = poll(&mut fds, wait);
        if fds[2].any() == Some(true) {
            return Ok(());
        }
        if fds[0].revents().is_some_and(|is| is.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
        {
            return Err("the relay's device is gone".into());
        }
        if fds[3].any() == Some(true) {
            watch.drain();
            if let Err(error) = shore.plane.refresh() {
                tracing::warn!(%error, "the addresses of this machine could not be brought up to date");
            }
        }
        arrivals.take(&|bytes| shore.turn(bytes))?;
        shore.with(|reading| shore.read(reading));
        next = shore.expire(monotonic(), &mut swept);
    }
}
