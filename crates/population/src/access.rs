//! Access paths without a rate: delay, jitter, loss and outages, in a few bytes each.

use segue_clock::{Span, Time};
use segue_netem::Loss;

use super::spec::{Class, Outages, Silent};

/// A small generator (SplitMix64; Steele, Lea and Flood, 2014): eight bytes, of which a population needs
/// millions. Its sequence is part of what a seed gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// A generator for something of this kind and number, which depends on nothing else.
    pub(super) fn new(seed: u64, kind: u64, number: u64) -> SplitMix {
        let mut mix = SplitMix(seed ^ kind << 56);
        let start = mix.next() ^ number;
        mix = SplitMix(start);
        SplitMix(mix.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1), with 53 random bits.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// In [0, n); 0 for n = 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with this mean.
    pub(super) fn exponential(&mut self, mean: Span) -> Span {
        Span((-libm::log(1.0 - self.unit()) * mean.0 as f64) as u64)
    }
}

/// One direction of an access path. Loss and jitter have sequences of their own, so that the same packets are
/// lost with and without jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    loss: SplitMix,
    jitter: SplitMix,
    last_arrival: Time,
    /// State of a loss process that has two.
    bad: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives.
    Arrives(Time),
    /// It is lost by chance.
    Lost,
    /// The path is silent.
    Silent,
}

impl Direction {
    pub(super) fn new(class: &Class, seed: u64, number: u64) -> Direction {
        let mut loss = SplitMix::new(seed, 1, number);
        let bad = match class.loss {
            Loss::GilbertElliott { p, r, .. } if p + r > 0.0 => loss.unit() < p / (p + r),
            _ => false,
        };
        Direction { loss, jitter: SplitMix::new(seed, 2, number), last_arrival: Time::ZERO, bad }
    }

    pub(super) fn last_arrival(&self) -> Time {
        self.last_arrival
    }

    /// Offers a packet on a path that is not silent; the process of loss goes on with packets, also with
    /// those offered to a silent one.
    pub(super) fn offer(&mut self, now: Time, class: &Class, silent: bool) -> Fate {
        let lost = match class.loss {
            Loss::None | Loss::Exact(_) | Loss::Armed(_) | Loss::Trace(_) => false,
            Loss::Bernoulli(p) => self.loss.unit() < p,
            Loss::GilbertElliott { p, r, loss_good, loss_bad } => {
                let lost = self.loss.unit() < if self.bad { loss_bad } else { loss_good };
                self.bad ^= self.loss.unit() < if self.bad { r } else { p };
                lost
            }
        };
        if silent {
            return Fate::Silent;
        }
        if lost {
            return Fate::Lost;
        }
        let offset = match class.jitter.0 {
            0 => Span::ZERO,
            jitter => Span(self.jitter.below(2 * jitter + 1)),
        };
        let at = (now + (class.delay + offset - class.jitter)).max(self.last_arrival);
        self.last_arrival = at;
        Fate::Arrives(at)
    }
}

/// The outages of a path, one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    rng: SplitMix,
    /// The one that is or comes next.
    pub(super) start: Time,
    pub(super) end: Time,
    /// When the one before ended.
    pub(super) before: Time,
}

impl Outage {
    /// The first comes after `from`.
    pub(super) fn new(outages: Option<Outages>, from: Time, seed: u64, number: u64) -> Outage {
        let never = Time(u64::MAX);
        let rng = SplitMix::new(seed, 3, number);
        let mut first = Outage { rng, start: never, end: never, before: Time::ZERO };
        if let Some(outages) = outages {
            first.draw(from, outages);
        }
        first
    }

    fn draw(&mut self, from: Time, outages: Outages) {
        self.start = from + self.rng.exponential(outages.every);
        self.end = self.start + outages.lasts.half() + Span(self.rng.below(outages.lasts.0));
    }

    /// Goes on to the next if this one is over at `now`; whether it did, and the one that is over then.
    pub(super) fn pass(&mut self, now: Time, outages: Option<Outages>) -> Option<(Time, Time)> {
        let outages = outages.filter(|_| self.end <= now)?;
        let over = (self.start, self.end);
        self.before = self.end;
        self.draw(self.end, outages);
        Some(over)
    }

    /// Whether the path is in an outage at `now`, up to which it has been passed.
    pub(super) fn covers(&self, now: Time) -> bool {
        self.start <= now && now < self.end
    }
}

impl Outages {
    /// Whether this direction is the silent one, or both are.
    pub(super) fn silences(&self, up: bool) -> bool {
        match self.direction {
            Silent::Both => true,
            Silent::Up => up,
            Silent::Down => !up,
        }
    }
}
