//! Probes that ride on data packets (Salsano et al. 2018, section 5.3). The rules are in
//! `docs/wire/tunnel-and-probe.md`, "Rides".
//!
//! A host's requests, including those that the daemon orders, are numbered here, and carry the echoes that the last
//! response left in [`Rx`](super::path::Rx). The machine that orders requests learns of the others from
//! [`Reading`](segue_keepalive::Reading)s.

mod state;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use segue_clock::{Span, Time};
use segue_linux::clock::monotonic;
use segue_wire::header::flags::{RIDE_ONE_WAY, RIDE_RESPONSE};
use segue_wire::upmt::Trailer;
use segue_wire::{HELD_AT_MOST_MS, Header, PacketType, Probe};

use super::path::{Path, Tx};
use super::probes::send_response;
use super::shared::Core;
use crate::Role;
use crate::drops::Drops;
use crate::sync::lock;
use state::{Held, Mtu};
pub(super) use state::{Pending, Rides, Waiting};

/// How long the kernel's MTU of a path is reused.
const MTU_FOR: Span = Span::from_secs(10);
/// Bytes of the outer IP and UDP headers, by family.
const OUTER: [usize; 2] = [28, 48];

impl Path {
    /// The first of these packets that should carry a probe. `lengths` has the inner length of each packet, `None`
    /// for one cut from a super-packet.
    pub(super) fn carrier(
        &self,
        role: Role,
        mut lengths: impl Iterator<Item = Option<usize>>,
    ) -> Option<usize> {
        let (socket, endpoint) = self.route()?;
        let to = endpoint.remote?;
        let outer = OUTER[usize::from(to.is_ipv6())];
        let now = monotonic();
        let mut tx = lock(&self.state.tx);
        let known = tx.rides.mtu.take_if(|mtu| mtu.to == to && now.since(mtu.at) < MTU_FOR);
        let mtu = known.unwrap_or_else(|| Mtu { to, at: now, bytes: socket.mtu(to) });
        let room = mtu.bytes.and_then(|mtu| mtu.checked_sub(outer + Probe::PACKET_LEN));
        tx.rides.mtu = Some(mtu);
        let room = room?;
        let at = lengths.position(|inner| inner.is_some_and(|inner| inner <= room))?;
        tx.rides.last_fit = Some(now);
        tx.rides.due(role, now, self.config.probing.t_ka).then_some(at)
    }

    /// Sends an inner packet (in two parts) with a probe in front, if one is still due. False if the packet has not
    /// left.
    pub(super) fn send_ride(
        &self,
        role: Role,
        inner: (&[u8], &[u8]),
        one_way: bool,
        class: u8,
        waiting: &Waiting,
    ) -> bool {
        let Some((socket, endpoint)) = self.route() else { return false };
        let mut tx = lock(&self.state.tx);
        let now = monotonic();
        if !tx.rides.due(role, now, self.config.probing.t_ka) {
            return false;
        }
        let flags = if one_way { RIDE_ONE_WAY } else { 0 };
        let count = tx.packets.wrapping_add(1);
        let (flags, k, probe) = match &tx.rides.held {
            Some(Held { response, .. }) => {
                (flags | RIDE_RESPONSE, response.k, response.complete(count, now, tx.heard))
            }
            None => (flags, self.config.probing.k, self.request(&tx, count, now)),
        };
        let header = Header { packet_type: PacketType::Ride, flags, k, ..self.data_header(0) };
        let sealed = probe.seal(&header, &self.config.key);
        let (first, trailer): ([u8; 1], [u8; Trailer::LEN]);
        let parts = if self.is_upmt() {
            let (rest, packet) = split_first(inner);
            let Some(ride) = packet.and_then(|byte| self.upmt_ride(role, byte, probe)) else {
                return false;
            };
            (first, trailer) = ([ride.0], ride.1);
            [&first[..], rest.0, rest.1, &trailer[..]]
        } else {
            [&sealed[..], inner.0, inner.1, &[]]
        };
        let mut iov = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        if role == Role::Host {
            self.state.number(probe.seq);
        }
        if let Err(error) = socket.send(&endpoint, &mut iov, None, class, role == Role::Host) {
            tracing::trace!(slot = self.slot, %error, "no probe on this packet");
            if role == Role::Host {
                self.state.number(probe.seq.wrapping_sub(1));
            }
            return false;
        }
        let number = if role == Role::Host { probe.seq } else { probe.t_ss };
        lock(&self.state.rx).called(number, monotonic().since(now));
        tx.packets = count;
        tx.bytes += (inner.0.len() + inner.1.len()) as u64;
        tx.rides.sent = tx.rides.sent.wrapping_add(1);
        tx.rides.rode = tx.rides.rode.wrapping_add(1);
        (tx.rides.last_sent, tx.rides.last_ride) = (Some(now), Some(now));
        if let Some(held) = tx.rides.held.take() {
            lock(waiting).remove(&(held.until, self.slot));
        }
        true
    }

    /// The next request, numbered and with the echoes of the last response.
    pub(super) fn request(&self, tx: &Tx, count: u32, now: Time) -> Probe {
        let echo = lock(&self.state.rx).echo.unwrap_or_default();
        let t_ka_ms = self.config.probing.t_ka.0.div_ceil(1_000_000);
        let t_sc = now.micros32();
        Probe {
            seq: self.state.requests.load(Ordering::Acquire).wrapping_add(1),
            t_sc,
            t_ss: echo.t_ss,
            dt: echo.held_since.map_or(0, |since| t_sc.wrapping_sub(since)),
            sc: count,
            ss: echo.ss,
            r: echo.r,
            heard: tx.heard.unwrap_or(0),
            t_ka_ms: u16::try_from(t_ka_ms).unwrap_or(0),
        }
    }

    /// Holds a response back for a ride if departing packets could carry it, for at most T_KA, and at most
    /// [`HELD_AT_MOST_MS`] where detection follows use. Returns the responses to send at once: this one if it is
    /// not held, and a previous one that was still held.
    pub(super) fn hold(&self, response: Pending, waiting: &Waiting) -> Vec<Pending> {
        let mut tx = lock(&self.state.tx);
        let now = monotonic();
        let probing = &self.config.probing;
        let soon = Span::from_millis(HELD_AT_MOST_MS);
        let t_ka = if probing.follows_use { probing.t_ka.min(soon) } else { probing.t_ka };
        let mut waiting = lock(waiting);
        let mut at_once = Vec::new();
        if let Some(held) = tx.rides.held.take() {
            waiting.remove(&(held.until, self.slot));
            at_once.push(held.response);
        }
        let fits = response.elsewhere.is_none();
        if fits && tx.rides.last_fit.is_some_and(|at| now.since(at) <= t_ka) {
            let until = response.received_at + t_ka;
            waiting.insert((until, self.slot));
            tx.rides.held = Some(Held { response, until });
        } else {
            at_once.push(response);
        }
        at_once
    }

    /// Takes the held response if its time is up.
    fn take_overdue(&self, now: Time) -> Option<Pending> {
        let mut tx = lock(&self.state.tx);
        tx.rides.held.take_if(|held| held.until <= now).map(|held| held.response)
    }
}

/// Splits a packet in two parts into the rest and its first byte.
fn split_first<'a>((head, body): (&'a [u8], &'a [u8])) -> ((&'a [u8], &'a [u8]), Option<u8>) {
    match (head, body) {
        ([first, head @ ..], body) | (head @ [], [first, body @ ..]) => {
            ((head, body), Some(*first))
        }
        ([], []) => ((head, body), None),
    }
}

/// Sends the responses that found no ride in time; returns when the next one is due.
pub(super) fn sweep(
    core: &Mutex<Core>,
    waiting: &Waiting,
    drops: &Drops,
    now: Time,
) -> Option<Time> {
    let (due, next) = {
        let mut waiting = lock(waiting);
        let later = waiting.split_off(&(now + Span(1), 0));
        let due = std::mem::replace(&mut *waiting, later);
        (due, waiting.first().map(|(at, _)| *at))
    };
    let paths: Vec<Arc<Path>> = {
        let core = lock(core);
        due.iter().filter_map(|(_, slot)| core.path(*slot).cloned()).collect()
    };
    for path in paths {
        if let Some(held) = path.take_overdue(now) {
            send_response(&path, &held, drops);
        }
    }
    next
}
