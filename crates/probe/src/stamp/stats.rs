//! The results of a session's answers: round-trip time without the reflector's share, jitter in each direction, and
//! loss in each direction if the reflector counts packets.

use segue_clock::{Span, Time};
use segue_keepalive::{self as keepalive, Counted, Estimates};
use segue_wire::stamp::tlv::ClassOfService;
use segue_wire::stamp::{Reply, Timestamp, TimestampFormat};

use super::super::ipdv::Ipdv;
use super::super::samples::{RttMs, Samples, Stamps};

/// Number of RTT samples for percentiles.
const SAMPLES_MAX: usize = 100_000;
/// Gain of the smoothed jitter (RFC 3550, 6.4.1).
const JITTER_GAIN: f64 = 1.0 / 16.0;

/// A request and its answer.
pub(super) struct Exchange {
    /// The answer.
    pub reply: Reply,
    /// When the request left, by this end's clock.
    pub left: Time,
    /// When the answer arrived, by this end's clock.
    pub arrived: Time,
    /// Both times are kernel timestamps.
    pub kernel: bool,
    /// DSCP and ECN on arrival of the answer.
    pub class: Option<u8>,
}

/// The values from one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Number of the request.
    pub seq: u32,
    /// When the answer arrived.
    pub at: Time,
    /// (T4 − T1) − (T3 − T2); `None` if the reflector's times are impossible.
    pub rtt: Option<Span>,
    /// Both times of this end are kernel timestamps.
    pub kernel: bool,
}

/// The results of all answers.
pub(super) struct Stats {
    /// Number of answers, without duplicates.
    pub received: u32,
    /// Number of duplicate answers.
    pub duplicates: u64,
    /// Answers to requests older than one already answered.
    pub reordered: u64,
    /// Answers with kernel timestamps at this end.
    pub kernel_stamps: u32,
    /// Answers whose T2 and T3 are impossible.
    pub implausible: u64,
    /// Extensions that the reflector does not support.
    pub unrecognised: u64,
    /// Answers with the I flag or a wrong HMAC in their extensions.
    pub integrity: u64,
    /// Answers with a malformed extension.
    pub malformed: u64,
    /// The reflector numbers its answers independently.
    pub stateful: bool,
    /// TTL or hop limit on arrival of the last request.
    pub ttl: Option<u8>,
    /// The last Class of Service, with DSCP and ECN on arrival of its answer.
    pub class: Option<(ClassOfService, Option<u8>)>,
    /// Delay of answers after T3: number and sum, from follow-ups.
    pub follow_ups: (u64, Span),
    /// Bound on the error of the reflector's clock, in seconds.
    pub clock_error_s: Option<f64>,
    /// The reflector's clock is synchronised.
    pub synchronised: bool,
    samples: Samples,
    /// The last round-trip time.
    pub rtt_last: Option<Span>,
    rtt_min: Option<Span>,
    rtt_max: Option<Span>,
    jitter: Smoothed,
    jitter_up: Smoothed,
    jitter_down: Smoothed,
    /// The variation of the delay.
    pub ipdv: Ipdv,
    previous: Option<Previous>,
    numbers: Option<(Numbers, Numbers)>,
    counters: Option<(Counters, Counters)>,
}

/// The last answer that arrived in order.
struct Previous {
    seq: u32,
    reflector_seq: u32,
    rtt: Option<Span>,
    left: Time,
    arrived: Time,
    receive: Timestamp,
    transmit: Timestamp,
    format: TimestampFormat,
}

/// Sequence numbers of an answer.
#[derive(Clone, Copy)]
struct Numbers {
    sender: u32,
    reflector: u32,
    received: u32,
}

/// Counters of Direct Measurement.
#[derive(Clone, Copy)]
struct Counters {
    sender_tx: u32,
    reflector_rx: u32,
    reflector_tx: u32,
    received: u32,
}

/// A smoothed mean of absolute differences, in seconds.
#[derive(Clone, Copy, Default)]
struct Smoothed(Option<f64>);

impl Smoothed {
    fn take(&mut self, difference_ns: i64) {
        let d = difference_ns.unsigned_abs() as f64 / 1e9;
        let before = self.0.unwrap_or(0.0);
        self.0 = Some(before + (d - before) * JITTER_GAIN);
    }

    fn ms(self) -> Option<f64> {
        self.0.map(|s| s * 1e3)
    }
}

/// Jitter in milliseconds: of the round trip and of each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct JitterMs {
    /// Jitter of the round-trip time.
    pub rtt: Option<f64>,
    /// Sender to reflector.
    pub up: Option<f64>,
    /// Reflector to sender.
    pub down: Option<f64>,
}

impl Stats {
    /// Results without answers.
    pub(super) fn new(seed: u64) -> Stats {
        Stats {
            received: 0,
            duplicates: 0,
            reordered: 0,
            kernel_stamps: 0,
            implausible: 0,
            unrecognised: 0,
            integrity: 0,
            malformed: 0,
            stateful: false,
            ttl: None,
            class: None,
            follow_ups: (0, Span::ZERO),
            clock_error_s: None,
            synchronised: false,
            samples: Samples::new(SAMPLES_MAX, seed),
            rtt_last: None,
            rtt_min: None,
            rtt_max: None,
            jitter: Smoothed::default(),
            jitter_up: Smoothed::default(),
            jitter_down: Smoothed::default(),
            ipdv: Ipdv::new(seed),
            previous: None,
            numbers: None,
            counters: None,
        }
    }

    /// Adds an answer.
    pub(super) fn take(&mut self, exchange: &Exchange) -> Sample {
        let packet = &exchange.reply.packet;
        self.received = self.received.wrapping_add(1);
        self.kernel_stamps += u32::from(exchange.kernel);
        self.ttl = Some(packet.sender_ttl);
        self.clock_error_s = packet.error.seconds();
        self.synchronised = packet.error.synchronised;
        // A stateless reflector repeats the sender's number.
        self.stateful |= packet.seq != packet.sender_seq;
        let rtt = self.round_trip(exchange);
        self.extensions(exchange);
        let newer = |seq: u32| (packet.sender_seq.wrapping_sub(seq) as i32) > 0;
        if self.previous.as_ref().is_none_or(|previous| newer(previous.seq)) {
            self.in_order(exchange, rtt);
        } else {
            self.reordered += 1;
        }
        Sample { seq: packet.sender_seq, at: exchange.arrived, rtt, kernel: exchange.kernel }
    }

    fn round_trip(&mut self, exchange: &Exchange) -> Option<Span> {
        let packet = &exchange.reply.packet;
        let whole = exchange.arrived.since(exchange.left);
        let held = packet.timestamp.since(packet.receive, packet.error.format);
        let rtt = u64::try_from(held).ok().and_then(|held| whole.0.checked_sub(held)).map(Span);
        let Some(rtt) = rtt else {
            self.implausible += 1;
            return None;
        };
        let sample = keepalive::Sample {
            at: exchange.arrived,
            seq: packet.sender_seq,
            rtt: Some(rtt),
            owl_up: None,
            owl_down: None,
            rtl: None,
            uncertainty: Span::ZERO,
        };
        self.samples.take(&sample, Stamps::default());
        self.rtt_last = Some(rtt);
        self.rtt_min = Some(self.rtt_min.map_or(rtt, |min| min.min(rtt)));
        self.rtt_max = Some(self.rtt_max.map_or(rtt, |max| max.max(rtt)));
        Some(rtt)
    }

    fn extensions(&mut self, exchange: &Exchange) {
        let told = &exchange.reply.extensions;
        self.unrecognised += u64::from(told.unrecognised);
        self.integrity += u64::from(told.integrity);
        self.malformed += u64::from(told.malformed);
        if let Some(class) = told.class_of_service {
            self.class = Some((class, exchange.class));
        }
        if let Some(direct) = told.direct {
            let now = Counters {
                sender_tx: direct.sender_tx,
                reflector_rx: direct.reflector_rx,
                reflector_tx: direct.reflector_tx,
                received: self.received,
            };
            let (first, last) = self.counters.unwrap_or((now, now));
            let newer = (now.sender_tx.wrapping_sub(last.sender_tx) as i32) > 0;
            self.counters = Some((first, if newer { now } else { last }));
        }
        if let (Some(told), Some(previous)) = (told.follow_up, &self.previous)
            && told.timestamp.0 != 0
            && told.seq == previous.reflector_seq
            && let Ok(late) =
                u64::try_from(told.timestamp.since(previous.transmit, previous.format))
        {
            let (count, sum) = self.follow_ups;
            self.follow_ups = (count + 1, sum + Span(late));
        }
    }

    /// Adds an answer to a later request than all before.
    fn in_order(&mut self, exchange: &Exchange, rtt: Option<Span>) {
        let packet = &exchange.reply.packet;
        let format = packet.error.format;
        if let Some(previous) = &self.previous
            && previous.format == format
        {
            if let (Some(rtt), Some(before)) = (rtt, previous.rtt) {
                self.jitter.take(rtt.0 as i64 - before.0 as i64);
            }
            let left = exchange.left.since(previous.left).0 as i64;
            let arrived = exchange.arrived.since(previous.arrived).0 as i64;
            let receive = packet.receive.since(previous.receive, format);
            let transmit = packet.timestamp.since(previous.transmit, format);
            let (up, down) = (receive.saturating_sub(left), arrived.saturating_sub(transmit));
            self.jitter_up.take(up);
            self.jitter_down.take(down);
            if packet.sender_seq == previous.seq.wrapping_add(1) {
                self.ipdv.push(up, down);
            }
        }
        let now =
            Numbers { sender: packet.sender_seq, reflector: packet.seq, received: self.received };
        self.numbers = Some((self.numbers.map_or(now, |(first, _)| first), now));
        self.previous = Some(Previous {
            seq: packet.sender_seq,
            reflector_seq: packet.seq,
            rtt,
            left: exchange.left,
            arrived: exchange.arrived,
            receive: packet.receive,
            transmit: packet.timestamp,
            format,
        });
    }

    /// Packets in each direction (to the reflector, and back) between the first and the last answer: from counters if
    /// the reflector has them, else from its numbers. `None` if it keeps neither.
    pub(super) fn directions(&self) -> Option<(Counted, Counted)> {
        let counted = |sent: u32, received: u32| Counted {
            sent: sent.into(),
            received: received.min(sent).into(),
        };
        if let Some((first, last)) = self.counters {
            let sent = last.sender_tx.wrapping_sub(first.sender_tx);
            let there = last.reflector_rx.wrapping_sub(first.reflector_rx);
            let back = last.reflector_tx.wrapping_sub(first.reflector_tx);
            let received = last.received.wrapping_sub(first.received);
            return Some((counted(sent, there), counted(back, received)));
        }
        let (first, last) = self.numbers.filter(|_| self.stateful)?;
        let sent = last.sender.wrapping_sub(first.sender);
        let there = last.reflector.wrapping_sub(first.reflector);
        let received = last.received.wrapping_sub(first.received);
        Some((counted(sent, there), counted(there, received)))
    }

    /// Round-trip times.
    pub(super) fn rtt_ms(&self) -> RttMs {
        let estimates =
            Estimates { rtt_min: self.rtt_min, rtt_max: self.rtt_max, ..Estimates::default() };
        self.samples.summary(&estimates)
    }

    /// Jitter.
    pub(crate) fn jitter_ms(&self) -> JitterMs {
        let (rtt, up, down) = (self.jitter.ms(), self.jitter_up.ms(), self.jitter_down.ms());
        JitterMs { rtt, up, down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_wire::stamp::tlv::{DirectMeasurement, FollowUp};
    use segue_wire::stamp::{Extensions, ReflectorPacket};

    /// An exchange sent at `seq` seconds: 10 ms to the reflector, 3 ms at the reflector, and 20 ms back.
    fn exchange(seq: u32, reflector: u32) -> Exchange {
        let base = u64::from(seq) * 1_000_000_000;
        // The reflector's clock is an hour ahead.
        let theirs = |ns: u64| Timestamp::ntp(1_700_003_600_000_000_000 + base + ns);
        let packet = ReflectorPacket {
            seq: reflector,
            sender_seq: seq,
            receive: theirs(10_000_000),
            timestamp: theirs(13_000_000),
            ..ReflectorPacket::default()
        };
        Exchange {
            reply: Reply { packet, extensions: Extensions::default() },
            left: Time(base),
            arrived: Time(base + 33_000_000),
            kernel: true,
            class: None,
        }
    }

    #[test]
    fn the_reflectors_share_is_not_in_the_round_trip() {
        let mut stats = Stats::new(1);
        assert_eq!(stats.take(&exchange(0, 0)).rtt, Some(Span::from_millis(30)));
        stats.take(&exchange(1, 1));
        let jitter = stats.jitter_ms();
        assert_eq!((jitter.rtt, jitter.up, jitter.down), (Some(0.0), Some(0.0), Some(0.0)));
        assert!((stats.rtt_ms().avg.unwrap() - 30.0).abs() < 1e-6);
    }

    #[test]
    fn jitter_of_one_direction_is_told_from_that_of_the_other() {
        let mut stats = Stats::new(1);
        stats.take(&exchange(0, 0));
        let mut late = exchange(1, 1);
        late.arrived += Span::from_millis(16);
        stats.take(&late);
        let jitter = stats.jitter_ms();
        assert_eq!((jitter.up, jitter.down), (Some(0.0), Some(1.0)));
        assert_eq!(stats.ipdv.ms().down.max, Some(16.0));
        assert_eq!(stats.ipdv.ms().up.max, Some(0.0));
        // A request after a lost one yields no value.
        let mut later = exchange(3, 3);
        later.arrived += Span::from_millis(99);
        stats.take(&later);
        assert_eq!(stats.ipdv.ms().down.max, Some(16.0));
    }

    #[test]
    fn a_reflector_that_counts_tells_the_direction_of_loss() {
        let mut stats = Stats::new(1);
        // Request 2 is lost, and the answers to 4 and 5.
        for (seq, reflector) in [(0, 0), (1, 1), (3, 2), (6, 5)] {
            stats.take(&exchange(seq, reflector));
        }
        let (up, down) = stats.directions().unwrap();
        assert_eq!((up.sent, up.received), (6, 5));
        assert_eq!((down.sent, down.received), (5, 3));
    }

    #[test]
    fn a_stateless_reflector_tells_no_direction() {
        let mut stats = Stats::new(1);
        let _ = [0, 1, 3, 6].map(|seq| stats.take(&exchange(seq, seq)));
        assert!(stats.directions().is_none());
    }

    #[test]
    fn counters_go_before_numbers() {
        let mut stats = Stats::new(1);
        for (seq, rx, tx) in [(0, 11, 21), (5, 15, 25)] {
            let mut answer = exchange(seq, seq);
            answer.reply.extensions.direct =
                Some(DirectMeasurement { sender_tx: seq + 1, reflector_rx: rx, reflector_tx: tx });
            stats.take(&answer);
        }
        let (up, down) = stats.directions().unwrap();
        assert_eq!((up.sent, up.received, down.sent, down.received), (5, 4, 4, 1));
    }

    #[test]
    fn a_follow_up_says_how_late_the_answer_before_left() {
        let mut stats = Stats::new(1);
        let first = exchange(0, 0);
        stats.take(&first);
        let mut second = exchange(1, 1);
        let late = Timestamp::ntp(1_700_003_600_000_000_000 + 13_250_000);
        second.reply.extensions.follow_up =
            Some(FollowUp { seq: 0, timestamp: late, method: FollowUp::SOFTWARE });
        stats.take(&second);
        let (count, sum) = stats.follow_ups;
        assert_eq!((count, sum.0 / 1_000), (1, 250));
    }

    #[test]
    fn times_that_cannot_be_give_no_sample() {
        let mut stats = Stats::new(1);
        let mut wrong = exchange(0, 0);
        wrong.reply.packet.timestamp = Timestamp(wrong.reply.packet.receive.0 - 1);
        assert_eq!(stats.take(&wrong).rtt, None);
        let mut wrong = exchange(1, 1);
        wrong.arrived = wrong.left + Span::from_millis(2);
        assert_eq!(stats.take(&wrong).rtt, None);
        assert_eq!((stats.implausible, stats.received), (2, 2));
    }
}
