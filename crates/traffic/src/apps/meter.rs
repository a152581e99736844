//! Measurements of a numbered stream of datagrams, as defined by paper 4 (section 4) and the RFCs.
//!
//! ```text
//!  sender ──sent──►┌───────┐◄──arrived── receiver
//!                  │ Meter │◄──handover── the host's interfaces, a mobility protocol, a list of instants
//!                  └───┬───┘
//!                      └ decided in the order of sending: histograms, handovers
//! ```
//!
//! The simulator sees both ends, like the reader of a trace: one meter serves a direction of an application, and
//! each datagram is reported to it when it is sent and when it arrives. The meter keeps the datagrams of the last
//! [`MeterConfig::loss_after`] and counts the others.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use segue_clock::{Span, Time};

use super::handovers::Handovers;
use super::histogram::Histogram;

/// Maximum number of undecided datagrams. If one more is sent, the oldest is decided at once.
pub const MAX_WINDOW: usize = 1 << 16;

/// The delay of the unloaded path, which is excluded from delay variance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// The minimum delay observed, regardless of the datagram's size. Correct for datagrams of equal size if at
    /// least one met no queue.
    #[default]
    Minimum,
    /// Computed for each datagram from the links of the path: the rate in bits per second (`None`: unlimited) and
    /// propagation delay of each. [`crate::apps::path_of`] finds them in a network.
    Links(Vec<(Option<u64>, Span)>),
    /// Like `Links`, for paths that differ by direction.
    EachWay {
        /// From the first end to the second.
        up: Vec<(Option<u64>, Span)>,
        /// From the second end to the first.
        down: Vec<(Option<u64>, Span)>,
    },
}

impl Forwarding {
    /// The forwarding delay of one direction.
    fn one_way(&self, way: Direction) -> Forwarding {
        match (self, way) {
            (Forwarding::EachWay { up, .. }, Direction::Up) => Forwarding::Links(up.clone()),
            (Forwarding::EachWay { down, .. }, Direction::Down) => Forwarding::Links(down.clone()),
            (same, _) => same.clone(),
        }
    }

    /// Serialisation and propagation of a packet of `bytes` bytes over all links; `None` without a path.
    #[must_use]
    pub fn delay(&self, bytes: u32) -> Option<Span> {
        let Forwarding::Links(links) = self else { return None };
        let serialisation =
            |rate: u64| Span((u64::from(bytes) * 8_000_000_000).div_ceil(rate.max(1)));
        Some(links.iter().fold(Span::ZERO, |sum, (rate, delay)| {
            sum + rate.map_or(Span::ZERO, serialisation) + *delay
        }))
    }
}

/// A direction of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second.
    Up,
    /// From the second end to the first.
    Down,
}

/// Settings of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// A packet that has not arrived within this time is lost (RFC 2680, section 2.7: the measurer chooses the
    /// threshold).
    pub loss_after: Span,
    /// Reference of delay variance.
    pub forwarding: Forwarding,
    /// Bin width of one-way delay and delay variance.
    pub delay_bin: Span,
    /// Bin width of delay variation.
    pub jitter_bin: Span,
    /// Lead of a handover's interval before its instant; at most `loss_after`. It should exceed the one-way
    /// delay, since packets in flight at that instant are lost in the handover.
    pub handover_lead: Span,
    /// Length of a handover's interval; `None`: until the next interval begins.
    pub handover_span: Option<Span>,
    /// Notices of a handover within this time of each other refer to the same handover.
    pub handover_merge: Span,
    /// Handovers known from the start, for example from a host's walk; ascending.
    pub handovers: Vec<Time>,
    /// Treat a change of the interfaces of either end's node as a handover.
    pub handovers_of_interfaces: bool,
}

impl Default for MeterConfig {
    /// Loss after 2 s, bins of 10 µs, handovers from 100 ms before their instant to the next one, noticed by
    /// interface changes.
    fn default() -> MeterConfig {
        MeterConfig {
            loss_after: Span::from_secs(2),
            forwarding: Forwarding::Minimum,
            delay_bin: Span::from_micros(10),
            jitter_bin: Span::from_micros(10),
            handover_lead: Span::from_millis(100),
            handover_span: None,
            handover_merge: Span::from_millis(50),
            handovers: Vec::new(),
            handovers_of_interfaces: true,
        }
    }
}

/// The outcome of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Its delay (minus the forwarding delay, if that is computed); `None` if it was lost.
    pub delay_ns: Option<i64>,
    /// Its delay minus that of its predecessor (RFC 3393), if neither was lost.
    pub jitter_ns: Option<i64>,
    /// Number of arrivals.
    pub copies: u32,
    /// It arrived after a datagram that was sent later (RFC 4737, section 3).
    pub reordered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    sent: Time,
    bytes: u32,
    tag: u32,
    delay: Option<Span>,
    copies: u32,
    reordered: bool,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of these IP packets.
    pub sent_bytes: u64,
    /// Datagrams that arrived in time, each counted once.
    pub received: u64,
    /// Bytes of these IP packets.
    pub received_bytes: u64,
    /// Datagrams that did not arrive in time.
    pub lost: u64,
    /// Arrivals after the threshold, including duplicates.
    pub late: u64,
    /// Timely arrivals of datagrams that had arrived before.
    pub duplicates: u64,
    /// Datagrams that arrived after one that was sent later (RFC 4737's reordered packets).
    pub reordered: u64,
    /// Datagrams decided before the threshold because too many were waiting.
    pub hurried: u64,
    /// Frames (runs of datagrams with equal tags) all of whose datagrams arrived in time.
    pub frames_whole: u64,
    /// Frames that lack at least one datagram.
    pub frames_broken: u64,
}

/// The measurements of one direction.
#[derive(Clone, Debug)]
pub struct Meter {
    config: MeterConfig,
    /// Number of the oldest undecided datagram.
    first: u64,
    pending: VecDeque<Pending>,
    /// Delay of the last decided datagram, if it arrived.
    before: Option<Span>,
    /// One above the highest number that arrived: RFC 4737's NextExp.
    next_expected: u64,
    /// Tag of the frame being decided, and whether it is complete so far; `None` if that remains unknown.
    frame: Option<(u32, Option<bool>)>,
    counts: Counts,
    began: Option<Time>,
    last_bytes: u32,
    delay: Histogram,
    variance: Histogram,
    jitter: Histogram,
    handovers: Handovers,
}

impl Meter {
    /// A meter in its initial state.
    #[must_use]
    pub fn new(config: &MeterConfig, way: Direction) -> Meter {
        let config = MeterConfig { forwarding: config.forwarding.one_way(way), ..config.clone() };
        let variance = match config.forwarding {
            Forwarding::Links(_) => Histogram::new(config.delay_bin),
            _ => Histogram::anchored_at_first(config.delay_bin),
        };
        let mut handovers = Handovers::new(&config);
        config.handovers.iter().for_each(|at| handovers.notice(*at));
        Meter {
            first: 0,
            pending: VecDeque::new(),
            before: None,
            next_expected: 0,
            frame: None,
            counts: Counts::default(),
            began: None,
            last_bytes: 0,
            delay: Histogram::new(config.delay_bin),
            variance,
            jitter: Histogram::new(config.jitter_bin),
            handovers,
            config,
        }
    }

    /// Notes that a datagram of the frame `tag` is sent in an IP packet of `bytes` bytes. Returns its number.
    pub fn sent(&mut self, now: Time, bytes: u32, tag: u32) -> u64 {
        self.decide_until(now);
        if self.pending.len() >= MAX_WINDOW {
            self.counts.hurried += 1;
            self.decide_oldest();
        }
        self.began.get_or_insert(now);
        self.last_bytes = bytes;
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(bytes);
        let (delay, copies, reordered) = (None, 0, false);
        self.pending.push_back(Pending { sent: now, bytes, tag, delay, copies, reordered });
        self.first + self.pending.len() as u64 - 1
    }

    /// Notes the arrival of the datagram with this number.
    pub fn arrived(&mut self, now: Time, seq: u64) {
        self.decide_until(now);
        let Some(place) = seq.checked_sub(self.first).map(|place| place as usize) else {
            self.counts.late += 1;
            return;
        };
        let Some(datagram) = self.pending.get_mut(place) else { return };
        datagram.copies += 1;
        if datagram.delay.is_some() {
            self.counts.duplicates += 1;
            return;
        }
        let delay = now.since(datagram.sent);
        datagram.delay = Some(delay);
        datagram.reordered = seq < self.next_expected;
        let bytes = datagram.bytes;
        self.counts.reordered += u64::from(seq < self.next_expected);
        self.next_expected = self.next_expected.max(seq + 1);
        self.counts.received += 1;
        self.counts.received_bytes += u64::from(bytes);
        self.delay.add(nanos(delay));
        self.variance.add(self.varied(delay, bytes));
        let earlier = match place {
            0 => self.before,
            _ => self.pending[place - 1].delay,
        };
        if let Some(earlier) = earlier {
            self.jitter.add(nanos(delay) - nanos(earlier));
        }
        if let Some(later) = self.pending.get(place + 1).and_then(|next| next.delay) {
            self.jitter.add(nanos(later) - nanos(delay));
        }
    }

    /// Notes that a host at one end of the stream changes its point of attachment at `at`. Call it before packets
    /// sent at that time are decided; notices before the first datagram are ignored.
    pub fn handover(&mut self, at: Time) {
        if self.began.is_some() {
            self.handovers.notice(at);
        }
    }

    pub(super) fn follows_interfaces(&self) -> bool {
        self.config.handovers_of_interfaces
    }

    /// If no handover times are configured, a move of flows counts as a handover.
    pub(super) fn follows_flows(&self) -> bool {
        self.config.handovers_of_interfaces && self.config.handovers.is_empty()
    }

    /// A delay as it enters delay variance: without the forwarding delay if that can be computed.
    fn varied(&self, delay: Span, bytes: u32) -> i64 {
        nanos(delay) - self.config.forwarding.delay(bytes).map_or(0, nanos)
    }

    fn decide_until(&mut self, now: Time) {
        while self.pending.front().is_some_and(|p| p.sent + self.config.loss_after < now) {
            self.decide_oldest();
        }
    }

    fn decide_oldest(&mut self) {
        let Some(oldest) = self.pending.pop_front() else { return };
        self.first += 1;
        self.counts.lost += u64::from(oldest.delay.is_none());
        let before = core::mem::replace(&mut self.before, oldest.delay);
        let outcome = Outcome {
            delay_ns: oldest.delay.map(|delay| self.varied(delay, oldest.bytes)),
            jitter_ns: oldest.delay.zip(before).map(|(delay, before)| nanos(delay) - nanos(before)),
            copies: oldest.copies,
            reordered: oldest.reordered,
        };
        self.handovers.decided(oldest.sent, &outcome);
        self.add_to_frame(oldest.tag, Some(oldest.delay.is_some()));
    }

    fn add_to_frame(&mut self, tag: u32, arrived: Option<bool>) {
        match &mut self.frame {
            Some((known, whole)) if *known == tag => {
                *whole = whole.zip(arrived).map(|(whole, arrived)| whole && arrived);
            }
            _ => {
                self.end_frame();
                self.frame = Some((tag, arrived));
            }
        }
    }

    fn end_frame(&mut self) {
        match self.frame.take() {
            Some((_, Some(true))) => self.counts.frames_whole += 1,
            Some((_, Some(false))) => self.counts.frames_broken += 1,
            Some((_, None)) | None => {}
        }
    }

    /// The measurements at the end of a run, at `now`. Packets that have arrived are decided. Packets that have
    /// not, and could still do so in time, remain undecided, and so do their frames.
    #[must_use]
    pub fn finished(&self, now: Time) -> Measured {
        let mut meter = self.clone();
        meter.decide_until(now);
        let mut undecided = 0;
        while let Some(oldest) = meter.pending.front().copied() {
            if oldest.delay.is_some() {
                meter.decide_oldest();
                continue;
            }
            undecided += 1;
            meter.pending.pop_front();
            meter.first += 1;
            meter.before = None;
            meter.add_to_frame(oldest.tag, None);
        }
        meter.end_frame();
        meter.handovers.finish(now);
        Measured {
            counts: meter.counts,
            undecided,
            began: meter.began.unwrap_or(now),
            ended: now,
            forwarding: meter.config.forwarding.delay(meter.last_bytes),
            delay: meter.delay,
            variance: meter.variance,
            jitter: meter.jitter,
            handovers: meter.handovers,
        }
    }
}

/// Measurements of a stream in a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Counts.
    pub counts: Counts,
    /// Datagrams in flight at the end of the run; ratios ignore them.
    pub undecided: u64,
    /// Sending time of the first datagram.
    pub began: Time,
    /// End of the run.
    pub ended: Time,
    /// The computed forwarding delay of the last datagram; `None` if the minimum is used.
    pub forwarding: Option<Span>,
    /// One-way delay (RFC 2679).
    pub delay: Histogram,
    /// Delay minus the computed forwarding delay, or the whole delay; see [`Measured::variance_base_ns`].
    pub variance: Histogram,
    /// Packet delay variation between consecutive packets (RFC 3393).
    pub jitter: Histogram,
    /// The effect of each handover.
    pub handovers: Handovers,
}

impl Measured {
    /// Offset to subtract from the values of `variance` for paper 4's delay variance: zero if the forwarding
    /// delay was computed, otherwise their minimum.
    #[must_use]
    pub(crate) fn variance_base_ns(&self) -> i64 {
        match self.forwarding {
            Some(_) => 0,
            None => self.variance.min_ns().unwrap_or(0),
        }
    }

    /// Share of lost packets among those decided (RFC 2680's average).
    #[must_use]
    pub(crate) fn loss_ratio(&self) -> Option<f64> {
        let known = self.counts.received + self.counts.lost;
        (known > 0).then(|| self.counts.lost as f64 / known as f64)
    }
}

fn nanos(span: Span) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

/// A meter shared by the agents at both ends. A mobility protocol that knows about handovers can hold a copy too.
#[derive(Clone, Debug)]
pub struct SharedMeter(Rc<RefCell<Meter>>);

impl SharedMeter {
    /// A meter in its initial state.
    #[must_use]
    pub fn new(config: &MeterConfig, way: Direction) -> SharedMeter {
        SharedMeter(Rc::new(RefCell::new(Meter::new(config, way))))
    }

    /// Gives access to the meter, to report something.
    pub fn tell<T>(&self, what: impl FnOnce(&mut Meter) -> T) -> T {
        what(&mut self.0.borrow_mut())
    }

    /// The measurements at the end of a run.
    #[must_use]
    pub fn finished(&self, now: Time) -> Measured {
        self.0.borrow().finished(now)
    }
}
