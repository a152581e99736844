//! Detects when a stream of arriving packets stops.

use segue_clock::{Span, Time};

use crate::Traffic;

/// Minimum number of packets of a stream.
pub(super) const STREAM: u32 = 8;
/// Maximum duration of a pause that is learned, in seconds. A longer pause causes doubt again the next time.
const LONGEST_PAUSE: f64 = 0.2;
/// A pause within this time after another is one of many, and not a burst of losses that ended before the question.
const OFTEN: Span = Span::from_millis(400);
/// Time constant of the decay of pauses, in seconds without a pause.
const PAUSES_FADE: f64 = 10.0;
/// Maximum silence for which a stream is expected, in seconds.
const SLOWEST: f64 = 1.0;

/// Statistics of arriving packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) last: Option<(u32, Time)>,
    /// Packets since the last long silence.
    pub(super) packets: u32,
    /// Mean distance of packets in seconds, and the mean deviation from it.
    pub(super) gap: f64,
    pub(super) deviation: f64,
    /// The last packet before the current pause, which an answered doubt has revealed, and the end of the previous
    /// pause.
    paused: Option<Time>,
    went_on: Option<Time>,
    /// The longest recent pause in seconds; decays with time.
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

    /// The silence in seconds after which the stream has stopped. A fast stream may lose two packets. A slow one is
    /// missed at the next packet, because questions cost little in comparison.
    pub(super) fn silence(&self) -> f64 {
        let spare = (1.2 * self.gap).min(0.015).max(0.5 * self.gap);
        let silence = self.gap + spare + 4.0 * self.deviation;
        silence.max(1.25 * self.pause) + 0.005
    }

    /// Records that the stream itself paused after `since`, until `resumed` or until now. Its next pause may last as
    /// long.
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

    /// Statistics of a stream that must flow again before it can be missed.
    fn begun_anew(&self) -> Stream {
        Stream { went_on: self.went_on, pause: self.pause, ..Stream::NEW }
    }

    /// When the stream counts as stopped unless a packet arrives before. A silence of up to `least` never counts.
    pub(super) fn stops_at(&self, least: Span) -> Option<Time> {
        let (_, last) = self.last?;
        let silence = Span::from_secs_f64(self.silence());
        self.flows().then(|| last + silence.max(least))
    }

    /// Whether a next packet is expected.
    pub(super) fn flows(&self) -> bool {
        self.packets >= STREAM && self.silence() < SLOWEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(received: u32, at_ms: u64) -> Traffic {
        let received_at = Some(Time(at_ms * 1_000_000));
        Traffic { received_at, received, ..Traffic::NONE }
    }

    /// Ten packets at intervals of `every_ms`, the last one at 10 s.
    fn steady(every_ms: u64) -> Stream {
        let mut stream = Stream::NEW;
        for n in 0..10 {
            stream.observe(&traffic(n, 10_000 - u64::from(9 - n) * every_ms));
        }
        stream
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn the_next_packet_is_missed_after_its_distance_and_some_to_spare() {
        for (every_ms, silence) in [
            (1, 0.001 + 0.001_2 + 0.005),
            (20, 0.02 + 0.015 + 0.005),
            (200, 0.2 + 0.1 + 0.005),
            (660, 0.66 + 0.33 + 0.005),
        ] {
            let stream = steady(every_ms);
            assert_eq!(stream.packets, 9);
            near(stream.silence(), silence);
            let last = Time(10_000_000_000);
            let stops = last + Span::from_secs_f64(silence);
            assert_eq!(stream.stops_at(Span::ZERO), Some(stops), "{every_ms} ms");
            let least = Span::from_secs(2);
            assert_eq!(stream.stops_at(least), Some(last + least));
        }
        assert!(!steady(670).flows(), "nothing is expected so seldom");
        assert_eq!(steady(670).stops_at(Span::ZERO), None);
        let mut few = Stream::NEW;
        (0..8).for_each(|n| few.observe(&traffic(n, 20 * u64::from(n))));
        assert!(!few.flows() && few.packets == 7);
        few.observe(&traffic(8, 160));
        assert!(few.flows());
    }

    #[test]
    fn distances_are_averaged_faster_while_the_stream_is_new() {
        let mut stream = Stream::NEW;
        stream.observe(&traffic(0, 1_000));
        stream.observe(&traffic(1, 1_020));
        stream.observe(&traffic(2, 1_040));
        near(stream.gap, 0.02);
        // Gain ½ for a new stream. Two packets between two looks have half the distance.
        stream.observe(&traffic(3, 1_050));
        near(stream.deviation, 0.005);
        near(stream.gap, 0.015);
        stream.observe(&traffic(5, 1_100));
        near(stream.deviation, 0.005 + 0.5 * (0.01 - 0.005));
        near(stream.gap, 0.02);
        // Gain ¼ from eight packets on.
        let mut stream = steady(20);
        stream.observe(&traffic(10, 10_030));
        near(stream.deviation, 0.002_5);
        near(stream.gap, 0.022_5);
    }

    #[test]
    fn what_is_no_news_changes_nothing_and_a_longer_silence_begins_anew() {
        let seen = |received, at_ms| {
            let mut stream = steady(20);
            stream.observe(&traffic(received, at_ms));
            (stream.packets, stream.last)
        };
        let last = Some((9, Time(10_000_000_000)));
        assert_eq!(seen(9, 10_000), (9, last));
        assert_eq!(seen(9, 10_020), (9, last), "no packet");
        assert_eq!(seen(10, 10_000), (9, last), "no time");
        assert_eq!(seen(8, 10_020), (9, last), "backwards");
        assert_eq!(seen(10, 10_020), (10, Some((10, Time(10_020_000_000)))));
        assert_eq!(seen(10, 10_050), (0, Some((10, Time(10_050_000_000)))));
        let mut stream = steady(20);
        stream.observe(&Traffic::NONE);
        assert_eq!((stream.packets, stream.last), (9, last));
    }

    #[test]
    fn a_stream_that_pauses_often_is_given_as_long_as_it_paused_of_late() {
        let at = |ms: u64| Time(ms * 1_000_000);
        // Two pauses, the first of 0.1 s, `apart_ms` apart.
        let learned = |apart_ms: u64, pause_ms: u64| {
            let mut stream = steady(20);
            stream.pauses(at(10_000), Some(at(10_100)));
            assert_eq!((stream.packets, stream.pause), (0, 0.0), "one is none");
            stream.pauses(at(10_100 + apart_ms), Some(at(10_100 + apart_ms + pause_ms)));
            stream.pause
        };
        near(learned(399, 100), 0.1);
        near(learned(400, 100), 0.0);
        near(learned(100, 200), 0.2);
        near(learned(100, 201), 0.0);

        // If the stream is still silent when its doubt is answered, the pause lasts until the next packet. It decays
        // within ten seconds.
        let mut stream = steady(20);
        stream.pauses(at(10_000), Some(at(10_100)));
        stream.pauses(at(10_200), None);
        stream.observe(&traffic(10, 10_340));
        near(stream.pause, 0.14);
        for n in 1..=10_u32 {
            stream.observe(&traffic(10 + n, 10_340 + 20 * u64::from(n)));
        }
        let pause = 0.14 * libm::exp(-0.2 / 10.0);
        near(stream.pause, pause);
        near(stream.silence(), 1.25 * pause + 0.005);
    }
}
