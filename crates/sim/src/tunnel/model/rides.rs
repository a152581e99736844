//! Chooses the packet that carries a probe, and manages waiting responses: docs/wire/tunnel-and-probe.md,
//! "Rides".

use core::net::SocketAddr;

use segue_clock::Time;
use segue_clock::planted::fault;
use segue_tunnel::ProbeKind;
use segue_wire::Probe;

use super::super::message::{Message, Outer, outer_bytes};
use super::super::rides::{Held, Request, Rider, longest_wait};
use super::super::slot::Slot;
use super::{Inner, Model};

/// MTU of the simulator's interfaces. The sender does not know about narrower links on the way.
const MTU: u32 = 1_500;

impl<P: Clone> Model<P> {
    /// The probe that a packet which leaves now (and has been counted) should carry.
    pub(super) fn rider(
        &mut self,
        now: Time,
        slot: u32,
        outer: &Outer,
        inner: &Inner<P>,
    ) -> Option<Rider> {
        let is_anchor = self.is_anchor;
        let Slot { rides, setup, meter, tx, heard, .. } = self.path_mut(slot)?;
        let rides = rides.as_deref_mut()?;
        let room = MTU - outer_bytes(outer.remote.is_ipv6()) - Probe::PACKET_LEN as u32;
        if inner.bytes > room {
            return None;
        }
        if is_anchor {
            rides.last_fit = Some(now);
            let held = rides.held.take()?;
            rides.rode = rides.rode.wrapping_add(1);
            let (k, probe) = (held.k, held.response(now, *tx, *heard));
            self.set_timer(slot, None);
            return Some(Rider { kind: ProbeKind::Response, k, probe });
        }
        let t_ka = setup.probing.t_ka;
        let step = rides.request_due(now, t_ka)?;
        rides.rides(now);
        let stated = t_ka.0.div_ceil(1_000_000);
        let mut probe = Probe {
            t_sc: now.micros32(),
            sc: *tx,
            heard: *heard,
            t_ka_ms: u16::try_from(stated).unwrap_or(0),
            ..Probe::default()
        };
        let k = setup.probing.k;
        if let Some(meter) = meter {
            probe.dt = now.micros32().wrapping_sub(meter.held_since());
            meter.on_order(now, false, &mut probe);
            let silent = meter.silent_at(t_ka * (u64::from(k) + 2) + t_ka.half());
            let until = step + t_ka * 2;
            let until =
                silent.filter(|at| *at > now && !fault(35)).map_or(until, |at| at.min(until));
            rides.watched = Some(until);
            self.set_timer(slot, Some(until).filter(|_| !fault(15)));
        } else {
            rides.number(now, &mut probe);
        }
        Some(Rider { kind: ProbeKind::Request, k, probe })
    }

    /// Answers a request with source and destination `ends`. Returns the answer if it leaves at once; otherwise
    /// it leaves later.
    pub(super) fn respond(
        &mut self,
        now: Time,
        ends: (SocketAddr, SocketAddr),
        slot: u32,
        request: Request,
    ) -> Option<(Outer, Message<P>)> {
        // At most one response waits on a path.
        self.release(now, slot);
        let measures = self.measures;
        let path = self.path_mut(slot)?;
        let Request { probe, k, question, alone } = request;
        let challenge = path.learn(now, ends, probe.t_ss);
        let received = path.rx;
        let Slot { rides, setup, .. } = path;
        let probing = &setup.probing;
        // A host that sends a bare request may be in doubt about the path.
        let may_wait = challenge.is_none() && !question && !(alone && probing.follows_use);
        if let Some(rides) = rides.as_deref_mut().filter(|_| may_wait) {
            let wait = longest_wait(probing, probe.t_ka_ms);
            if rides.last_fit.is_some_and(|at| now.since(at) <= wait) {
                let request = Probe { r: received, ..probe };
                rides.held = Some(Held { request, k, came: now });
                self.set_timer(slot, Some(now + wait));
                return None;
            }
        }
        // The BPF programs answer in the request's own packet, unless it carried data.
        if measures && !alone {
            let Outer { remote, local, .. } = path.outer(true)?;
            return Some(path.answer(now, (remote, local), probe, (k, question), None));
        }
        Some(path.answer(now, ends, probe, (k, question), challenge))
    }

    /// Sends the waiting response of a path, if any.
    fn release(&mut self, now: Time, slot: u32) {
        let Some(path) = self.slots.get_mut(slot as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some(held) = path.rides.as_deref_mut().and_then(|rides| rides.held.take()) else {
            return;
        };
        if let Some(outer) = path.outer(true) {
            path.tx = path.tx.wrapping_add(1);
            let probe = held.response(now, path.tx, path.heard);
            self.sent.push((outer, path.probe(ProbeKind::Response, held.k, probe)));
        }
        self.set_timer(slot, None);
    }

    /// Sends responses that found no ride in time. Returns when to call again.
    pub(super) fn sweep_held(&mut self, now: Time) -> Option<Time> {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let due = self.timers.pop_first();
            due.into_iter().for_each(|(_, slot)| self.release(now, slot));
        }
        let next = self.timers.first().map(|(at, _)| *at);
        if !self.measures {
            return next;
        }
        // The driver does not see every request, so a response may be held from now on, at least for the shortest
        // wait.
        let riding = self.paths().filter(|(_, path)| path.rides.is_some());
        let shortest = riding.map(|(_, path)| now + longest_wait(&path.setup.probing, 0)).min();
        next.into_iter().chain(shortest).min()
    }

    /// When to call the driver: by then a request should have ridden, or a response arrived.
    #[must_use]
    pub(crate) fn calls_at(&self) -> Option<Time> {
        self.timers.first().filter(|_| !self.is_anchor).map(|(at, _)| *at)
    }

    /// A path whose driver must be called now because rides have stopped or a response is missing.
    pub(crate) fn take_due_call(&mut self, now: Time) -> Option<u32> {
        let due = self.timers.first().copied().filter(|(at, _)| *at <= now && !self.is_anchor);
        let (_, slot) = due?;
        self.set_timer(slot, None);
        Some(slot)
    }

    /// Sets or clears the timer of a path with rides.
    pub(super) fn set_timer(&mut self, slot: u32, at: Option<Time>) {
        let path = self.slots.get_mut(slot as usize).and_then(Option::as_deref_mut);
        let Some(rides) = path.and_then(|path| path.rides.as_deref_mut()) else { return };
        if let Some(before) = core::mem::replace(&mut rides.timer, at) {
            self.timers.remove(&(before, slot));
        }
        self.timers.extend(at.map(|at| (at, slot)));
    }

    /// Starts or stops rides on a path according to its settings.
    pub(super) fn set_rides(&mut self, slot: u32) {
        let Some(path) = self.path_mut(slot) else { return };
        if path.setup.probing.rides {
            path.rides.get_or_insert_default();
        } else if path.rides.is_some() {
            self.release(self.now, slot);
            self.set_timer(slot, None);
            if let Some(path) = self.path_mut(slot) {
                path.rides = None;
            }
        }
    }
}
