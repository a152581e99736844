//! Measurements of a path by a packet path, and the decision which probes it passes to the machine.

use core::net::SocketAddr;

use segue_clock::{Span, Time};
use segue_keepalive::{Arrival, Counted, Estimates, Reading, Traffic};
use segue_tunnel::ProbeKind;
use segue_wire::Probe;

/// Sequence numbers and measurements of one path, independent of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// Probes without news are not passed on.
    pub quiet: bool,
    sent: u32,
    last_sent: Option<Time>,
    received: u32,
    last_received: Option<Time>,
    last_heard: Option<Time>,
    /// The last probe that counted, and the receive counter at that time.
    last: Option<(Probe, u32)>,
    /// Bit *i*: response *i* before the newest has arrived.
    window: u64,
    run: u8,
    k: u8,
    source: Option<SocketAddr>,
    rtt: Option<Span>,
    rtt_max: Option<Span>,
    /// Packets of all kinds between probes that arrived in order, uplink and downlink.
    counted: [Counted; 2],
}

impl Meter {
    /// Arrival of the last probe that counted, in microseconds modulo 2³².
    pub(super) fn held_since(&self) -> u32 {
        self.last_received.map_or(0, Time::micros32)
    }

    /// The time at which no probe has counted for `silence`; `None` before the first probe.
    pub(super) fn silent_at(&self, silence: Span) -> Option<Time> {
        self.last_received.map(|at| at + silence)
    }

    /// See [`super::Model::warm`].
    pub(super) fn warm(&self) -> u64 {
        u64::from(self.sent) ^ self.last.map_or(0, |(probe, _)| u64::from(probe.seq ^ probe.r))
    }

    /// Fills numbers and echoes into a probe that the machine orders.
    pub(super) fn on_order(&mut self, now: Time, is_anchor: bool, probe: &mut Probe) {
        let Some((last, received)) = self.last.as_ref() else {
            return self.on_request(now, is_anchor, probe);
        };
        if is_anchor {
            (probe.t_sc, probe.sc) = (last.t_sc, last.sc);
        } else {
            (probe.t_ss, probe.ss, probe.r) = (last.t_ss, last.ss, *received);
        }
        self.on_request(now, is_anchor, probe);
    }

    fn on_request(&mut self, now: Time, is_anchor: bool, probe: &mut Probe) {
        if !is_anchor {
            self.sent += 1;
            self.last_sent = Some(now);
            probe.seq = self.sent;
        }
    }

    /// Returns true if a response counts: each does once, including late ones up to 64 behind the newest.
    pub(super) fn counts(&mut self, seq: u32) -> bool {
        if seq == 0 || seq > self.sent {
            return false;
        }
        let newest = self.last.as_ref().map_or(0, |(last, _)| last.seq);
        if seq > newest {
            self.window = self.window.checked_shl(seq - newest).unwrap_or(0) | 1;
            return true;
        }
        let bit = 1u64.checked_shl(newest - seq).unwrap_or(0);
        let fresh = self.window & bit == 0 && bit != 0;
        self.window |= bit;
        fresh
    }

    /// Notes a probe that counts. Returns true if it has news for the machine.
    pub(super) fn tells(
        &mut self,
        now: Time,
        kind: ProbeKind,
        k: u8,
        arrival: &Arrival,
        from: SocketAddr,
    ) -> bool {
        self.last_heard = Some(now);
        if kind == ProbeKind::Unsolicited {
            return !self.quiet;
        }
        let probe = arrival.probe;
        self.received += 1;
        self.last_received = Some(now);
        if kind == ProbeKind::Request {
            self.sent += 1;
            self.last_sent = Some(now);
        }
        let echo = if kind == ProbeKind::Request { probe.t_ss } else { probe.t_sc };
        // A timestamp ahead of the clock is a challenge.
        if echo != 0 && now.micros32().wrapping_sub(echo) < 1 << 31 {
            let us = now.micros32().wrapping_sub(echo).wrapping_sub(probe.dt);
            let rtt = Span::from_micros(u64::from(us));
            self.rtt = Some(rtt);
            self.rtt_max = self.rtt_max.max(Some(rtt));
        }
        if self.last.as_ref().is_some_and(|(last, _)| probe.seq < last.seq) {
            // A newer response has overtaken this one.
            return !self.quiet || arrival.question;
        }
        self.count(kind, arrival);
        let words = |probe: &Probe| (probe.heard, probe.t_ka_ms);
        let same = self.last.as_ref().is_some_and(|(last, _)| words(last) == words(&probe));
        let same = same && (self.k, self.source) == (k, Some(from));
        let follows = self.last.as_ref().is_some_and(|(last, _)| probe.seq == last.seq + 1);
        self.run = if follows { self.run.saturating_add(1) } else { 1 };
        (self.k, self.source, self.last) = (k, Some(from), Some((probe, arrival.received)));
        // The machine needs to know which question was answered.
        let told = kind == ProbeKind::Response && arrival.question;
        !self.quiet || !same || told
    }

    /// Counts the packets between the last probe and this one.
    fn count(&mut self, kind: ProbeKind, arrival: &Arrival) {
        let Some((last, before)) = &self.last else { return };
        let (probe, here) = (arrival.probe, arrival.received.wrapping_sub(*before));
        let there = probe.r.wrapping_sub(last.r);
        let received = if kind == ProbeKind::Request { [here, there] } else { [there, here] };
        let sent = [probe.sc.wrapping_sub(last.sc), probe.ss.wrapping_sub(last.ss)];
        for (way, counted) in self.counted.iter_mut().enumerate() {
            counted.sent += u64::from(sent[way]);
            counted.received += u64::from(received[way]);
        }
    }

    /// The measurements for the machine.
    pub(super) fn reading(&self, now: Time) -> Reading {
        let seconds = self.rtt.map(Span::as_secs_f64);
        let t_ka = self.last.as_ref().map(|(last, _)| u64::from(last.t_ka_ms));
        Reading {
            at: now,
            sent: self.sent,
            rode: 0,
            last_sent: self.last_sent,
            received: self.received,
            last_received: self.last_received,
            last_heard: self.last_heard,
            watched: None,
            traffic: Traffic::default(),
            run: self.run,
            k: self.k,
            t_ka: t_ka.map(Span::from_millis),
            estimates: Estimates {
                rtt_last: self.rtt,
                rtt_max: self.rtt_max,
                rtt_ewma: seconds.into_iter().collect(),
                up: self.counted[0],
                down: self.counted[1],
                ..Estimates::default()
            },
        }
    }
}
