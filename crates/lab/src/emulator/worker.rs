//! The emulator's thread. It owns both sockets and does all receiving, sending and waiting.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike};
use segue_clock::{Span, Time};
use segue_linux::clock::{monotonic, thread_cpu};
use segue_linux::packet::PacketSocket;
use segue_linux::thread::prefer_precision;
use segue_netem::Verdict;

use super::{Direction, Gate, Pending, Shared, State, ip_bytes, record, record_of};
use crate::frame::{ETHERNET_BYTES, is_for, stays_on_link};
use crate::log::Fate;

/// Maximum number of frames read from one socket before the thread serves the other one and the timers.
const RECEIVE_BATCH: usize = 64;
/// Maximum length of an untruncated frame. Offloads are disabled, so no frame exceeds an MTU.
const FRAME_BYTES: usize = 9_216;
/// Busy-waits for a packet due sooner than this, because a timer wakes about this much late.
const SPIN: Span = Span::from_micros(15);
/// How often the thread checks whether it should stop.
const IDLE: Span = Span::from_millis(50);
/// Interval at which the thread reads its statistics from the kernel.
const HOUSEKEEPING: Span = Span::from_millis(10);
/// Maximum number of packets in flight in one direction; further ones are dropped and count as overruns.
const MAX_PENDING: usize = 65_536;

/// State of the thread.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) sockets: [PacketSocket; 2],
    /// Link-layer address of the first device's radio, if the second device is that of a cell.
    pub(super) air: Option<[u8; 6]>,
    /// Buffers for reuse.
    pub(super) spare: VecDeque<Vec<u8>>,
    /// When to read statistics next.
    pub(super) housekeeping: Time,
}

impl Worker {
    pub(super) fn run(mut self) {
        let precision = prefer_precision();
        let shared = Arc::clone(&self.shared);
        shared.lock().health.precision = precision;
        let mut buffer = vec![0; FRAME_BYTES];
        let mut ready = [true; 2];
        while !shared.stop.load(Ordering::Acquire) {
            // Outside the `match`, because its arms take the lock again.
            let turned = self.turn(&mut shared.lock(), ready, &mut buffer);
            let next = match turned {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!("an emulated link ended: {error:#}");
                    shared.lock().failure = Some(format!("{error:#}"));
                    return;
                }
            };
            ready = self.wait_until(next);
        }
        let overruns: u64 = self.sockets.iter().map(PacketSocket::overruns).sum();
        shared.lock().health.overruns += overruns;
    }

    /// Processes frames at the ready sockets, sends due packets, and returns when to continue.
    fn turn(&mut self, state: &mut State, ready: [bool; 2], buffer: &mut [u8]) -> Result<Time> {
        let mut more = false;
        for direction in Direction::ALL.into_iter().filter(|d| ready[*d as usize]) {
            more |= self.receive(state, direction, buffer)?;
        }
        for direction in Direction::ALL {
            self.send_due(state, direction)?;
        }
        let now = monotonic();
        if now >= self.housekeeping {
            state.health.overruns += self.sockets.iter().map(PacketSocket::overruns).sum::<u64>();
            state.health.cpu = thread_cpu();
            self.housekeeping = now + HOUSEKEEPING;
        }
        if more {
            return Ok(now);
        }
        let due = state.ways.iter().filter_map(|w| w.pending.keys().next()).map(|(at, _)| *at);
        Ok(due.min().unwrap_or(Time(u64::MAX)).min(now + IDLE))
    }

    /// Reads a batch of frames. True if there may be more.
    fn receive(&mut self, state: &mut State, to: Direction, buffer: &mut [u8]) -> Result<bool> {
        let State { ways, health, log, .. } = state;
        let way = &mut ways[to as usize];
        for _ in 0..RECEIVE_BATCH {
            let Some(got) = self.sockets[to as usize].receive(buffer)? else { return Ok(false) };
            let Some(frame) = buffer.get(..got.len).filter(|f| f.len() >= ETHERNET_BYTES) else {
                health.overruns += 1;
                continue;
            };
            let of_link = stays_on_link(frame);
            let passes = match way.gate {
                Gate::Closed => false,
                Gate::Link => of_link,
                Gate::Open => true,
            };
            let for_other =
                self.air.is_some_and(|mac| to == Direction::Down && !is_for(mac, frame));
            if !passes || for_other {
                continue;
            }
            if self.air.is_none() && of_link {
                self.sockets[1 - to as usize].send(frame)?;
                continue;
            }
            // Stamps of two processors may differ slightly, but a model's time must not go back.
            let arrival = got.at.max(way.last_arrival);
            way.last_arrival = arrival;
            let fate = way.model.offer(arrival, ip_bytes(frame));
            match fate {
                Verdict::Deliver { start, at } if way.pending.len() < MAX_PENDING => {
                    let mut kept = self.spare.pop_front().unwrap_or_default();
                    kept.clear();
                    kept.extend_from_slice(frame);
                    way.accepted += 1;
                    let pending = Pending { frame: kept, arrival: got.at, start };
                    way.pending.insert((at, way.accepted), pending);
                }
                Verdict::Deliver { .. } => health.overruns += 1,
                Verdict::Drop(cause) => {
                    record(log, health, record_of(frame, to, got.at, Fate::Dropped(cause)));
                }
            }
        }
        Ok(true)
    }

    fn send_due(&mut self, state: &mut State, to: Direction) -> Result<()> {
        let State { ways, health, log, .. } = state;
        let way = &mut ways[to as usize];
        let out = &self.sockets[1 - to as usize];
        loop {
            let now = monotonic();
            let Some(entry) = way.pending.first_entry().filter(|e| e.key().0 <= now) else {
                return Ok(());
            };
            let ((due, _), pending) = entry.remove_entry();
            let departure = monotonic();
            let fate = if out.send(&pending.frame)? {
                let late = departure.since(due);
                health.late_max = health.late_max.max(late);
                health.late_sum = health.late_sum + late;
                health.sent += 1;
                Fate::Delivered { due, departure }
            } else {
                health.send_failures += 1;
                Fate::SendFailed
            };
            record(log, health, pending.record(to, fate));
            if self.spare.len() < RECEIVE_BATCH {
                self.spare.push_back(pending.frame);
            }
        }
    }

    /// Waits until `next` or until a frame arrives, and returns the sockets to read.
    fn wait_until(&self, next: Time) -> [bool; 2] {
        let wait = next.since(monotonic());
        let mut ready = [true; 2];
        if wait > SPIN {
            let timeout = TimeSpec::nanoseconds((wait - SPIN).0 as i64);
            let mut fds =
                self.sockets.each_ref().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN));
            match ppoll(&mut fds, Some(timeout), None) {
                Ok(0) => ready = [false; 2],
                Ok(_) => return fds.map(|fd| fd.any() == Some(true)),
                // Interrupted by a signal, so check everything.
                Err(_) => return ready,
            }
        }
        while monotonic() < next {
            std::hint::spin_loop();
        }
        ready
    }
}
