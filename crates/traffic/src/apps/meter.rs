//! What is measured of a numbered stream of datagrams, as paper 4 (section 4) and the RFCs define it.
//!
//! ```text
//!  sender ──sent──►┌───────┐◄──arrived── receiver
//!                  │ Meter │◄──handover── the host's interfaces, a mobility protocol, a list of instants
//!                  └───┬───┘
//!                      └ decided in the order of sending: histograms, handovers
//! ```
//!
//! The simulator sees both ends, like the reader of a trace: one meter stands for a direction of an application and is
//! told of each datagram when it is sent and when it arrives. It keeps the datagrams of the last
//! [`MeterConfig::loss_after`] and counts the others.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use segue_clock::{Span, Time};

use super::handovers::Handovers;
use super::histogram::Histogram;

/// Most datagrams that wait for their fate to be decided. If one more is sent, that of the oldest is
/// decided at once.
pub const MAX_WINDOW: usize = 1 << 16;

/// The delay of the unloaded path, which delay variance leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// The least delay that was seen, whatever the size of the datagram that had it. Right for datagrams of
    /// one size of which one met no queue.
    #[default]
    Minimum,
    /// Computed for each datagram from the links of the path: rate in bits per second (`None`: unlimited) and
    /// propagation delay of each. [`crate::apps::path_of`] finds them in a network.
    Links(Vec<(Option<u64>, Span)>),
    /// The same, for paths that differ there and back.
    EachWay {
        /// From the first end to the second.
        up: Vec<(Option<u64>, Span)>,
        /// From the second end to the first.
        down: Vec<(Option<u64>, Span)>,
    },
}

impl Forwarding {
    /// That of one direction.
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

/// How a stream is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// A packet that has not arrived within this time is lost (RFC 2680, section 2.7: the threshold is the measurer's
    /// to state).
    pub loss_after: Span,
    /// What delay variance is counted from.
    pub forwarding: Forwarding,
    /// Width of the bins of one-way delay and delay variance.
    pub delay_bin: Span,
    /// Width of the bins of delay variation.
    pub jitter_bin: Span,
    /// How long before a handover's instant its interval begins; at most `loss_after`. It should be longer
    /// than the one-way delay: what is on its way at that instant is lost with it.
    pub handover_lead: Span,
    /// How long a handover's interval is; `None`: until that of the next begins.
    pub handover_span: Option<Span>,
    /// Notices of a handover that are less than this apart mean the same one.
    pub handover_merge: Span,
    /// Handovers known from the start, for instance from a host's walk; ascending.
    pub handovers: Vec<Time>,
    /// Whether a change of the interfaces of either end's node is a handover.
    pub handovers_of_interfaces: bool,
}

impl Default for MeterConfig {
    /// Loss after 2 s, bins of 10 µs, handovers from 100 ms before their instant to the next, noticed by
    /// changes of interfaces.
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

/// What became of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Its delay (less the forwarding delay, where that is computed); `None` if it was lost.
    pub delay_ns: Option<i64>,
    /// Its delay less that of the one before it (RFC 3393), if neither was lost.
    pub jitter_ns: Option<i64>,
    /// How often it came.
    pub copies: u32,
    /// It came after one that was sent later (RFC 4737, section 3).
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

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of their IP packets.
    pub sent_bytes: u64,
    /// Datagrams that arrived in time, each counted once.
    pub received: u64,
    /// Bytes of their IP packets.
    pub received_bytes: u64,
    /// Datagrams that did not arrive in time.
    pub lost: u64,
    /// Arrivals after the threshold, duplicates among them.
    pub late: u64,
    /// Arrivals in time of datagrams that had arrived before.
    pub duplicates: u64,
    /// Datagrams that arrived after one that was sent later (RFC 4737's reordered packets).
    pub reordered: u64,
    /// Datagrams whose fate was decided before the threshold, because too many waited.
    pub hurried: u64,
    /// Frames (runs of datagrams with the same tag) all of whose datagrams arrived in time.
    pub frames_whole: u64,
    /// Frames that missed at least one datagram.
    pub frames_broken: u64,
}

/// The measurements of one direction.
#[derive(Clone, Debug)]
pub struct Meter {
    config: MeterConfig,
    /// The number of the oldest datagram that is not decided.
    first: u64,
    pending: VecDeque<Pending>,
    /// Delay of the last datagram that was decided, if it arrived.
    before: Option<Span>,
    /// One above the greatest number that arrived: RFC 4737's NextExp.
    next_expected: u64,
    /// Tag of the frame that is being decided, and whether it is whole so far; `None` if that stays unknown.
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
    /// A meter that has seen nothing.
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

    /// A datagram of the frame `tag` is sent in an IP packet of `bytes` bytes; its number.
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

    /// The datagram with this number arrives.
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

    /// A host at one end of the stream changes its point of attachment at `at`. It must be told of before the
    /// packets sent then are decided; a notice before the first datagram means nothing.
    pub fn handover(&mut self, at: Time) {
        if self.began.is_some() {
            self.handovers.notice(at);
        }
    }

    pub(super) fn follows_interfaces(&self) -> bool {
        self.config.handovers_of_interfaces
    }

    /// Where no instants are listed, a move of flows is a handover.
    pub(super) fn follows_flows(&self) -> bool {
        self.config.handovers_of_interfaces && self.config.handovers.is_empty()
    }

    /// A delay as it enters delay variance: without the forwarding delay where that can be computed.
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

    /// The measurements at the end of a run, at `now`. Packets that arrived are decided; those that did not
    /// and could still do so in time are left undecided, and so is their frame.
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

/// What was measured of a stream in a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Counts.
    pub counts: Counts,
    /// Datagrams that were on their way at the end of the run; no share counts them.
    pub undecided: u64,
    /// When the first datagram was sent, and when the run ended.
    pub began: Time,
    /// See `began`.
    pub ended: Time,
    /// The computed forwarding delay of the last datagram; `None` where the minimum stands for it.
    pub forwarding: Option<Span>,
    /// One-way delay (RFC 2679).
    pub delay: Histogram,
    /// Delay less the computed forwarding delay, or delay; see [`Measured::variance_base_ns`].
    pub variance: Histogram,
    /// Packet delay variation between neighbours in sequence (RFC 3393).
    pub jitter: Histogram,
    /// What each handover did.
    pub handovers: Handovers,
}

impl Measured {
    /// What is taken away from the values of `variance` for paper 4's delay variance: nothing where the
    /// forwarding delay was computed, else the least of them.
    #[must_use]
    pub(crate) fn variance_base_ns(&self) -> i64 {
        match self.forwarding {
            Some(_) => 0,
            None => self.variance.min_ns().unwrap_or(0),
        }
    }

    /// Lost packets out of those whose fate is known (RFC 2680's average).
    #[must_use]
    pub(crate) fn loss_ratio(&self) -> Option<f64> {
        let known = self.counts.received + self.counts.lost;
        (known > 0).then(|| self.counts.lost as f64 / known as f64)
    }
}

fn nanos(span: Span) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

/// A meter that the agents at both ends tell of what they do. A mobility protocol that knows of handovers
/// can hold a copy too.
#[derive(Clone, Debug)]
pub struct SharedMeter(Rc<RefCell<Meter>>);

impl SharedMeter {
    /// A meter that has seen nothing.
    #[must_use]
    pub fn new(config: &MeterConfig, way: Direction) -> SharedMeter {
        SharedMeter(Rc::new(RefCell::new(Meter::new(config, way))))
    }

    /// Tells it something.
    pub fn tell<T>(&self, what: impl FnOnce(&mut Meter) -> T) -> T {
        what(&mut self.0.borrow_mut())
    }

    /// The measurements at the end of a run.
    #[must_use]
    pub fn finished(&self, now: Time) -> Measured {
        self.0.borrow().finished(now)
    }
}
