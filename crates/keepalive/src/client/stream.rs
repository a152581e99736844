//! A stream that arrives: when its next packet is due.

use segue_clock::{Span, Time};

use crate::Traffic;

/// Packets that make a stream.
pub(super) const STREAM: u32 = 8;
/// Longer pauses of a stream, in seconds, are not learned: the next is a doubt again.
const LONGEST_PAUSE: f64 = 0.2;
/// One that follows another so soon is one of many, and not a burst of losses that was over when it was asked about.
const OFTEN: Span = Span::from_millis(400);
/// Over how many seconds without one they are forgotten.
const PAUSES_FADE: f64 = 10.0;
/// No stream is expected after a silence longer than this.
const SLOWEST: f64 = 1.0;

/// How packets arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) last: Option<(u32, Time)>,
    /// Packets since the last longer silence.
    pub(super) packets: u32,
    /// Mean distance in seconds, and how far distances are from it.
    pub(super) gap: f64,
    pub(super) deviation: f64,
    /// After which packet it paused, as its answered doubt has shown, and when it went on after the pause before.
    paused: Option<Time>,
    went_on: Option<Time>,
    /// How long it pauses, in seconds: the longest of late.
    pause: f64,
}

impl Stream {
    pub(super) const NEW: Stream = Stream {
        last: None,
        packets: 0,
        gap: 0.0,
        deviation: 0.0,
        paused: None,
        went_on: None,
        pause: 0.0,
    };

    pub(super) fn observe(&mut self, traffic: &Traffic) {
        let Some(at) = traffic.received_at else { return };
        if let Some(since) = self.paused.take_if(|since| at > *since) {
            self.learn_pause(since, at);
        }
        let last = self.last.replace((traffic.received, at));
        let Some((count, before)) = last else { return };
        let new = traffic.received.wrapping_sub(count);
        if new == 0 || new > 1 << 31 || at <= before {
            self.last = last;
            return;
        }
        let elapsed = at.since(before).as_secs_f64();
        self.pause *= libm::exp(-elapsed / PAUSES_FADE);
        let distance = elapsed / f64::from(new);
        if self.packets > 0 && distance > self.silence() {
            *self = Stream { last: self.last, ..self.begun_anew() };
            return;
        }
        let gain = if self.packets < STREAM { 0.5 } else { 0.25 };
        if self.packets == 0 {
            self.gap = distance;
        }
        self.deviation += gain * (libm::fabs(distance - self.gap) - self.deviation);
        self.gap += gain * (distance - self.gap);
        self.packets = self.packets.saturating_add(new);
    }

    /// How long no packet may come until the stream has stopped, in seconds. Of a fast one two may be lost; of a
    /// slow one the next is missed at once, since the questions cost little beside it.
    pub(super) fn silence(&self) -> f64 {
        let spare = (1.2 * self.gap).min(0.015).max(0.5 * self.gap);
        let silence = self.gap + spare + 4.0 * self.deviation;
        silence.max(1.25 * self.pause) + 0.005
    }

    /// It was silent after `since` by itself, until `resumed` or still: its next pause may last as long.
    pub(super) fn pauses(&mut self, since: Time, resumed: Option<Time>) {
        *self = self.begun_anew();
        match resumed {
            Some(at) => self.learn_pause(since, at),
            None => self.paused = Some(since),
        }
    }

    fn learn_pause(&mut self, since: Time, until: Time) {
        let often = self.went_on.is_some_and(|before| since.since(before) < OFTEN);
        let pause = until.since(since).as_secs_f64();
        if often && pause <= LONGEST_PAUSE {
            self.pause = self.pause.max(pause);
        }
        self.went_on = Some(until);
    }

    /// It has to flow again before it is missed.
    fn begun_anew(&self) -> Stream {
        Stream { went_on: self.went_on, pause: self.pause, ..Stream::NEW }
    }

    /// When it has stopped unless a packet comes before; a silence of `least` is none.
    pub(super) fn stops_at(&self, least: Span) -> Option<Time> {
        let (_, last) = self.last?;
        let silence = Span::from_secs_f64(self.silence());
        self.flows().then(|| last + silence.max(least))
    }

    /// Whether the next packet is due.
    pub(super) fn flows(&self) -> bool {
        self.packets >= STREAM && self.silence() < SLOWEST
    }
}
